"""The oracle finds each way in which records can be wrong: an oracle that passes everything proves nothing (3.3)."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heronpy.common.errors import ConfigError
from heronpy.loadtest.errors import LabError
from heronpy.loadtest.histogram import quantile
from heronpy.verify import records
from heronpy.verify.oracle import Limits, Verdict, longest_gap, read_endless, read_spec, recoveries, verify
from heronpy.verify.records import RECORD, Progress, Segment, incarnation, progress_path
from heronpy.verify.stream import InputSpec, Partition, expected_totals, key_text

SPEC = InputSpec(seed=7, partitions=2, count=200, keys=20, payload_bytes=16)
Row = list[Any]


def perfect() -> list[Row]:
    """[seq, time, partition, crc, source, attempt, task, epoch] of everything once, in order."""
    rows = []
    for seq in range(SPEC.count):
        for number in range(SPEC.partitions):
            crc = Partition(SPEC, number).tuple(seq)[4]
            rows.append([seq, seq / 100, number, crc, 1, 0, 3, 1])
    return rows


def judged(out: Path, rows: list[Row], mode: str, limits: Limits | None = None, spec: InputSpec = SPEC) -> Verdict:
    segment = Segment(out / records.TRACE / "3-000001.seg")
    for row in rows:
        segment.append(RECORD.pack(*row))
    segment.close()
    if mode == "EFFECTIVELY_ONCE":
        rows_file = Segment(out / records.ROWS / "3-1.committed")
        rows_file.append(b"".join(RECORD.pack(*row) for row in rows))
        rows_file.close()
        write_totals(out, spec=spec)
    return verify(out, spec, mode, limits or Limits())


def write_totals(out: Path, wrong: int = 0, spec: InputSpec = SPEC) -> None:
    totals = expected_totals(spec)
    content = {
        key_text(n): (int(totals.counts[n]) + (wrong if n == 0 else 0), int(totals.sums[n])) for n in range(spec.keys)
    }
    records.write_atomically(out / records.TOTALS / "3.json", {"totals": content})


def failed(verdict: Verdict) -> set[str]:
    return {check.name for check in verdict.checks if not check.ok}


@pytest.mark.parametrize("mode", ["ATMOST_ONCE", "ATLEAST_ONCE", "EFFECTIVELY_ONCE"])
def test_what_is_missing_of_a_run_that_was_given_up_is_not_called_lost(tmp_path: Path, mode: str) -> None:
    """What has come is judged; of the rest nobody knows whether it would have come."""
    rows = perfect()[:-10]
    _double(rows)
    judged(tmp_path, rows, mode)
    verdict = verify(tmp_path, SPEC, mode, Limits(loss_max=100), complete=False)
    assert failed(verdict) == {"loss", "duplicates"}
    [loss] = [check.text for check in verdict.checks if check.name == "loss"]
    assert loss == "10 of 400 tuples had not arrived when the run was abandoned; they may be lost or late"
    assert verdict.as_json()["complete"] is False


def test_of_a_run_that_was_given_up_after_all_had_arrived_nothing_is_lost(tmp_path: Path) -> None:
    judged(tmp_path, perfect(), "ATLEAST_ONCE")
    verdict = verify(tmp_path, SPEC, "ATLEAST_ONCE", Limits(), complete=False)
    assert [check.text for check in verdict.checks if check.name == "loss"] == ["0 lost of 400"]


@pytest.mark.parametrize("mode", ["ATMOST_ONCE", "ATLEAST_ONCE", "EFFECTIVELY_ONCE"])
def test_perfect_records_pass_in_every_mode(tmp_path: Path, mode: str) -> None:
    verdict = judged(tmp_path, perfect(), mode)
    assert verdict.ok, failed(verdict)
    assert (verdict.loss, verdict.duplicates, verdict.wrong_keys, verdict.inversions) == (0, 0, 0, 0)


def _lose(rows: list[Row]) -> None:
    del rows[17]


def _double(rows: list[Row]) -> None:
    rows.append(list(rows[17]))


def _replay(rows: list[Row]) -> None:
    again = list(rows[17])
    again[5] = 1
    rows.append(again)


def _damage(rows: list[Row]) -> None:
    rows[17][3] ^= 1


def _foreign(rows: list[Row]) -> None:
    rows.append([SPEC.count, 9.0, 0, 0, 1, 0, 3, 1])


def _swap(rows: list[Row]) -> None:
    """Two tuples of one key, the other way round."""
    keys = [Partition(SPEC, 0).tuple(seq)[2] for seq in range(SPEC.count)]
    first = next(n for n in range(SPEC.count) if keys.count(keys[n]) > 1)
    second = keys.index(keys[first], first + 1)
    one, other = (next(row for row in rows if row[0] == seq and row[2] == 0) for seq in (first, second))
    one[1], other[1] = other[1], one[1]


@pytest.mark.parametrize(
    "spoil, mode, found",
    [
        (_lose, "ATMOST_ONCE", {"loss"}),
        (_lose, "ATLEAST_ONCE", {"loss", "exactness"}),
        (_lose, "EFFECTIVELY_ONCE", {"loss"}),
        (_double, "ATMOST_ONCE", {"duplicates"}),
        (_double, "ATLEAST_ONCE", {"duplicates"}),
        (_double, "EFFECTIVELY_ONCE", {"duplicates"}),
        (_replay, "ATMOST_ONCE", {"duplicates"}),
        (_replay, "ATLEAST_ONCE", set()),
        (_replay, "EFFECTIVELY_ONCE", {"duplicates"}),
        (_damage, "ATLEAST_ONCE", {"input", "exactness"}),
        (_foreign, "ATLEAST_ONCE", {"input"}),
        (_swap, "ATLEAST_ONCE", {"order"}),
        (_swap, "EFFECTIVELY_ONCE", {"order"}),
    ],
)
def test_each_wrong_is_found_and_named(
    tmp_path: Path, spoil: Callable[[list[Row]], None], mode: str, found: set[str]
) -> None:
    rows = perfect()
    spoil(rows)
    assert failed(judged(tmp_path, rows, mode)) == found


def test_atmost_once_may_lose_what_was_under_way(tmp_path: Path) -> None:
    rows = perfect()
    _lose(rows)
    assert judged(tmp_path, rows, "ATMOST_ONCE", Limits(loss_max=1)).ok


def test_wrong_state_fails_although_all_rows_are_there(tmp_path: Path) -> None:
    judged(tmp_path, perfect(), "EFFECTIVELY_ONCE")
    write_totals(tmp_path, wrong=1)
    verdict = verify(tmp_path, SPEC, "EFFECTIVELY_ONCE", Limits())
    assert failed(verdict) == {"exactness"} and verdict.wrong_keys == 1


def test_rows_of_a_transaction_that_was_never_committed_are_lost(tmp_path: Path) -> None:
    judged(tmp_path, perfect(), "EFFECTIVELY_ONCE")
    (tmp_path / records.ROWS / "3-1.committed").rename(tmp_path / records.ROWS / "3-1.pending")
    assert verify(tmp_path, SPEC, "EFFECTIVELY_ONCE", Limits()).loss == SPEC.expected


def test_a_stall_and_too_much_memory_fail(tmp_path: Path) -> None:
    rows = perfect()
    for row in rows:
        row[1] += 100 * (row[0] >= 100)
    limits = Limits(stall_max_s=60, memory_max_bytes=100)
    judged(tmp_path, rows, "ATLEAST_ONCE", limits)
    verdict = verify(tmp_path, SPEC, "ATLEAST_ONCE", limits, memory={"task sink": 101})
    assert failed(verdict) == {"liveness", "memory"}


def test_a_wrong_count_of_one_key_is_found_among_right_rows(tmp_path: Path) -> None:
    """Two keys that are wrong in opposite directions do not make up for each other."""
    judged(tmp_path, perfect(), "EFFECTIVELY_ONCE")
    totals = expected_totals(SPEC)
    counts = {key_text(n): [int(totals.counts[n]), int(totals.sums[n])] for n in range(SPEC.keys)}
    counts[key_text(0)][0] += 1
    counts[key_text(1)][0] -= 1
    records.write_atomically(tmp_path / records.TOTALS / "3.json", {"totals": counts})
    verdict = verify(tmp_path, SPEC, "EFFECTIVELY_ONCE", Limits())
    assert failed(verdict) == {"exactness"} and verdict.wrong_keys == 2


def test_a_key_in_the_state_that_never_was_is_foreign(tmp_path: Path) -> None:
    judged(tmp_path, perfect(), "EFFECTIVELY_ONCE")
    totals = expected_totals(SPEC)
    counts = {key_text(n): [int(totals.counts[n]), int(totals.sums[n])] for n in range(SPEC.keys)}
    records.write_atomically(tmp_path / records.TOTALS / "3.json", {"totals": {**counts, "k400584": [1, 7]}})
    assert failed(verify(tmp_path, SPEC, "EFFECTIVELY_ONCE", Limits())) == {"input"}


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_number_of_losses_and_duplicates_is_counted(data: st.DataObject) -> None:
    """Planted at random, in any mode, the oracle finds exactly as many."""
    rows = perfect()
    places = st.integers(0, len(rows) - 1)
    lost = data.draw(st.sets(places, max_size=30))
    doubled = data.draw(st.sets(places, max_size=30)) - lost
    mode = data.draw(st.sampled_from(["ATMOST_ONCE", "ATLEAST_ONCE", "EFFECTIVELY_ONCE"]))
    planted = [row for n, row in enumerate(rows) if n not in lost] + [list(rows[n]) for n in doubled]
    with tempfile.TemporaryDirectory() as folder:
        verdict = judged(Path(folder), planted, mode)
    assert (verdict.loss, verdict.duplicates, verdict.unexplained) == (len(lost), len(doubled), len(doubled))
    assert verdict.ok == (not lost and not doubled)


POISONED = replace(SPEC, poison=1, count=300)


def poisoned_rows() -> list[Row]:
    rows = []
    for seq in range(POISONED.count):
        for number in range(POISONED.partitions):
            rows.append([seq, seq / 100, number, Partition(POISONED, number).tuple(seq)[4], 1, 0, 3, 1])
    return rows


def test_poison_that_passes_and_a_tuple_lost_for_poison_are_both_found(tmp_path: Path) -> None:
    """F19: exactly the poison is missing."""
    [seq] = POISONED.poisonous()
    clean = [row for row in poisoned_rows() if row[0] != seq]
    for name, rows, found in (
        ("clean", clean, set()),
        ("passed", poisoned_rows(), {"input"}),
        ("instead", [row for row in poisoned_rows() if row[0] != seq - 1], {"input", "loss", "exactness"}),
    ):
        out = tmp_path / name
        segment = Segment(out / records.TRACE / "3-000001.seg")
        segment.append(b"".join(RECORD.pack(*row) for row in rows))
        segment.close()
        assert failed(verify(out, POISONED, "ATLEAST_ONCE", Limits())) == found, name


def test_an_input_without_a_count_ends_where_the_verifier_says(tmp_path: Path) -> None:
    endless = replace(SPEC, count=0, rate=10.0)
    (tmp_path / "spec.json").write_text(json.dumps({**asdict(endless), "mode": "ATLEAST_ONCE"}))
    assert read_endless(tmp_path) == endless
    with pytest.raises(LabError, match="heron verify end"):
        read_spec(tmp_path)
    for number, done in enumerate((40, 70)):
        progress = Progress(progress_path(tmp_path, number), owner=1)
        progress.note_next(done)
        progress.close()
    end = 70 + int(records.TAIL_S * 10) + records.TAIL_TUPLES
    assert records.write_end(tmp_path, endless.partitions, 10.0) == records.read_end(tmp_path) == end
    assert read_spec(tmp_path)[0] == replace(endless, count=end)
    with pytest.raises(LabError, match=f"already has an end: {end:,} tuples"):
        read_endless(tmp_path)


def test_an_input_that_makes_up_for_an_outage_ends_beyond_what_it_passes_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    progress = Progress(progress_path(tmp_path, 0), owner=1)
    progress.note_next(1000)
    monkeypatch.setattr(records.time, "sleep", lambda seconds: progress.note_next(5000))
    assert records.write_end(tmp_path, 1, 10.0) == 5000 + 30_000 + records.TAIL_TUPLES
    progress.close()


def test_a_torn_record_at_the_end_of_a_segment_is_left_out(tmp_path: Path) -> None:
    judged(tmp_path, perfect(), "ATLEAST_ONCE")
    path = tmp_path / records.TRACE / "3-000001.seg"
    path.write_bytes(path.read_bytes()[:-1])
    assert verify(tmp_path, SPEC, "ATLEAST_ONCE", Limits()).loss == 1


def test_the_noted_specification_is_read_back(tmp_path: Path) -> None:
    (tmp_path / "spec.json").write_text(json.dumps({**asdict(SPEC), "mode": "ATLEAST_ONCE"}))
    assert read_spec(tmp_path) == (SPEC, "ATLEAST_ONCE")


# ---- files that outlive processes ----------------------------------------------------------------


def test_incarnations_are_never_given_twice(tmp_path: Path) -> None:
    assert [incarnation(tmp_path, 3) for _ in range(3)] == [1, 2, 3]
    assert incarnation(tmp_path, 4) == 1


def test_a_process_that_came_back_from_the_dead_does_not_move_the_progress_of_its_successor(tmp_path: Path) -> None:
    path = progress_path(tmp_path, 0)
    zombie = Progress(path, owner=1)
    zombie.note_next(10)
    successor = Progress(path, owner=2)
    assert successor.next == 10
    zombie.note_next(11)
    zombie.note_acked(11)
    zombie.note_replay()
    seen = Progress(path)
    assert (seen.next, seen.acked, seen.replays, seen.started) == (10, 0, 0, zombie.started)
    for one in (zombie, successor, seen):
        one.close()


# ---- recovery --------------------------------------------------------------------------------------


def test_recovery_is_from_the_fault_until_the_rate_is_back() -> None:
    times = np.concatenate([np.arange(0, 10, 0.01), np.arange(11.5, 20, 0.01)])
    [found] = recoveries(times, [(10.0, "kill")], 20.0)
    assert found.fault == "kill" and found.seconds == pytest.approx(1.5, abs=0.1)
    assert longest_gap(times) == pytest.approx(1.51, abs=0.01)


def test_what_comes_after_the_end_of_the_schedule_is_no_recovery() -> None:
    """The rest of an ended input comes as fast as it can: that says nothing about the fault before it."""
    slow_then_burst = np.concatenate([np.arange(0, 10, 0.01), np.arange(10, 15, 0.1), np.arange(15, 16, 0.001)])
    [found] = recoveries(slow_then_burst, [(10.0, "kill")], 15.0)
    assert found.seconds is None and found.change == pytest.approx(-0.9, abs=0.02)


def test_a_fault_that_is_not_felt_takes_no_time_and_one_without_end_none() -> None:
    steady = np.arange(0, 20, 0.01)
    assert [one.seconds for one in recoveries(steady, [(10.0, "a")], 19.9)] == [0.0]
    slower = np.concatenate([np.arange(0, 10, 0.01), np.arange(10, 20, 0.1)])
    assert [one.seconds for one in recoveries(slower, [(10.0, "a")], 19.9)] == [None]


@settings(max_examples=50)
@given(st.floats(0.3, 5), st.integers(50, 500))
def test_any_outage_is_measured_to_within_a_window(outage: float, rate: int) -> None:
    times = np.concatenate([np.arange(0, 10, 1 / rate), np.arange(10 + outage, 30, 1 / rate)])
    [found] = recoveries(times, [(10.0, "kill")], 30.0)
    assert found.seconds == pytest.approx(outage, abs=0.15)


def test_the_rate_after_a_fault_is_compared_with_the_one_before() -> None:
    """F03: a topology master that dies may not change the rate."""
    steady = np.arange(0, 30, 0.01)
    halved = np.concatenate([np.arange(0, 10, 0.01), np.arange(10, 30, 0.02)])
    assert recoveries(steady, [(10.0, "a")], 29.9)[0].change == pytest.approx(0, abs=0.01)
    assert recoveries(halved, [(10.0, "a")], 29.9)[0].change == pytest.approx(-0.5, abs=0.01)
    assert recoveries(steady, [(29.0, "a")], 29.9)[0].change is None, "the input ended before it could be seen"


@given(st.lists(st.floats(0, 1e6), min_size=1))
def test_percentiles_are_values(values: list[float]) -> None:
    assert quantile(values, 1.0) == max(values)
    assert quantile(values, 0.5) in values
    assert quantile([], 0.5) is None


EQUAL = replace(SPEC, distinct=3)


def equal_rows() -> list[Row]:
    """All tuples, as records of the few contents that they have."""
    found: list[Row] = []
    for number in range(EQUAL.partitions):
        for seq in range(EQUAL.count):
            partition, content, _, _, crc = Partition(EQUAL, number).tuple(seq)
            found.append([content, seq / 100, partition, crc, 0, 0, 3, 1])
    return found


def judge_equal(out: Path, rows: list[Row], mode: str, replays: int = 0) -> Verdict:
    for number in range(EQUAL.partitions):
        progress = Progress(progress_path(out, number), 1)
        for _ in range(replays if not number else 0):
            progress.note_replay()
        progress.close()
    return judged(out, rows, mode, spec=EQUAL)


@pytest.mark.parametrize("mode", ["ATMOST_ONCE", "ATLEAST_ONCE", "EFFECTIVELY_ONCE"])
def test_equal_tuples_are_judged_by_their_number(tmp_path: Path, mode: str) -> None:
    rows = equal_rows()
    assert len(rows) == EQUAL.expected and {row[0] for row in rows} == {0, 1, 2}
    whole = judge_equal(tmp_path / "whole", rows, mode)
    assert whole.ok, failed(whole)
    assert whole.inversions is None, "of equal tuples nobody knows the order"
    lost = judge_equal(tmp_path / "lost", rows[:-2], mode)
    assert lost.loss == 2 and "loss" in failed(lost)
    twice = judge_equal(tmp_path / "twice", [*rows, rows[0]], mode)
    assert twice.duplicates == 1 and failed(twice) == {"duplicates"}
    # One more of a content does not make up for one less of another.
    other = next(row for row in rows if row[0] != rows[0][0])
    mixed = judge_equal(tmp_path / "mixed", [*rows[1:], other], mode)
    assert (mixed.loss, mixed.duplicates) == (1, 1)
    foreign = judge_equal(tmp_path / "foreign", [*rows, [3, 1.0, 0, 1, 0, 0, 3, 1]], mode)
    assert foreign.foreign == 1 and not foreign.ok


def test_equal_tuples_may_come_as_often_again_as_the_source_was_asked(tmp_path: Path) -> None:
    rows = equal_rows()
    assert judge_equal(tmp_path / "asked", [*rows, rows[0], rows[1]], "ATLEAST_ONCE", replays=2).ok
    assert not judge_equal(tmp_path / "not", [*rows, rows[0], rows[1]], "ATLEAST_ONCE", replays=1).ok


def test_kinds_of_input_that_exclude_each_other_are_refused() -> None:
    with pytest.raises(ConfigError, match="exclude each other"):
        replace(SPEC, distinct=3, undecodable=1).check()
