"""Rows of work units that go to bolts: each at least once, whoever is killed, and a unit is done when all are acked."""

from __future__ import annotations

import errno
import json
import os
import random
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from heronpy import Bolt, Grouping, TopologyBuilder
from heronpy.common.errors import ConfigError
from heronpy.growing import chunks
from heronpy.growing.identity import HEAD_BYTES, Fingerprint, digest
from heronpy.ingest import LineFiles, LogUnit, LogUnits
from heronpy.ingest import emitted as module
from heronpy.ingest.asking import Asking
from heronpy.ingest.attempt import RowError
from heronpy.ingest.emitted import EmittedAttempt, values_of
from heronpy.ingest.fingerprints import head_text
from heronpy.ingest.keys import OPTIONS_KEY
from heronpy.ingest.ledger import policy
from heronpy.ingest.ledger.requests import Chunk, Commit, Line, Work
from heronpy.ingest.unit import MovedError, SuspectPage
from heronpy.plan.logical import LogicalPlan
from heronpy.plan.validation import problems
from heronpy.simulator import Simulator
from tests.ingest.units_cli import settled, shown
from tests.support.command import Heron
from tests.support.growing_logs import GrowingLogs

PROGRAM = Path(__file__).parent / "programs" / "unit_rows.py"
PATIENCE_S = 120.0


class Clock:
    """Stands in for the module `time`."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


class Emits:
    """What an attempt has emitted, in order."""

    def __init__(self) -> None:
        self.rows: list[tuple[Sequence[Any], int]] = []

    def __call__(self, values: Sequence[Any], number: int) -> None:
        self.rows.append((values, number))

    @property
    def values(self) -> list[Any]:
        return [values[0] for values, _ in self.rows]


def rows(unit: LogUnit) -> Iterator[list[str]]:
    for line in unit.lines():
        if line == "bad":
            raise ValueError("no")
        yield [line]


def attempt_at(path: Path, emits: Emits) -> EmittedAttempt:
    data = path.read_bytes()
    head = head_text(Fingerprint("first", len(data[:HEAD_BYTES]), digest(data[:HEAD_BYTES]), 0, ""))
    chunk = Chunk(1, path.name, 1, 0, len(data), head, path.name)
    options = LogUnits.specs("p", logs=f"{path.parent}/*.log", rows=rows, fields=["line"])[0].custom_config[OPTIONS_KEY]
    page = SuspectPage(path.parent / "pages", "w-1")
    return EmittedAttempt(Work(7, 2, 1, len(data), (chunk,), 5.0), options, rows, page, emits)


def test_a_unit_is_complete_when_all_its_rows_are_acked(tmp_path: Path, clock: Clock) -> None:
    (tmp_path / "a.log").write_text("one\ntwo\nthree\n")
    emits = Emits()
    attempt = attempt_at(tmp_path / "a.log", emits)
    for number in range(3):
        assert attempt.go_on(0.0) is None and len(emits.rows) == number + 1 and attempt.rest_s == 0.0
    assert attempt.go_on(0.0) is None and attempt.rest_s > 0, "nothing to do but to wait for acks"
    ids = [number for _, number in emits.rows]
    attempt.acked(ids[2])
    attempt.acked(ids[0])
    attempt.acked(12345678)  # of an earlier attempt
    assert attempt.go_on(0.0) is None
    attempt.acked(ids[1])
    clock.now += 2.0
    assert attempt.go_on(0.0) == Commit(7, 2, 1, 3, 2.0)
    assert emits.values == ["one", "two", "three"] and len(set(ids)) == 3


def test_a_row_that_failed_is_emitted_again_later_and_later(tmp_path: Path, clock: Clock) -> None:
    (tmp_path / "a.log").write_text("one\n")
    emits = Emits()
    attempt = attempt_at(tmp_path / "a.log", emits)
    attempt.go_on(0.0)
    [(_, number)] = emits.rows
    attempt.go_on(0.0)  # behind the last row
    pauses = []
    for _ in range(10):
        attempt.failed(number)
        began, count = clock.now, len(emits.rows)
        while len(emits.rows) == count:
            assert attempt.go_on(0.0) is None
            clock.now += attempt.rest_s
        pauses.append(round(clock.now - began, 3))
    assert emits.values == ["one"] * 11 and len({number for _, number in emits.rows}) == 1
    assert pauses[0] == pytest.approx(module.AGAIN_S) and pauses[-1] == pytest.approx(module.AGAIN_MAX_S)
    assert pauses == sorted(pauses)
    attempt.acked(number)
    assert isinstance(attempt.go_on(0.0), Commit)


def _fail_each_time(attempt: EmittedAttempt, number: int, clock: Clock) -> int:
    """How often a row failed before its attempt gave it up; RowError has said so."""
    failures = 0
    while True:
        attempt.failed(number)
        failures += 1
        clock.now += 2 * module.AGAIN_MAX_S
        try:
            attempt.go_on(0.0)
        except RowError as error:
            assert error.line is None and f"have failed this row {failures} times: ['two']" in str(error.__cause__)
            return failures


def test_a_row_that_fails_each_time_is_a_failed_try_of_its_unit(tmp_path: Path, clock: Clock) -> None:
    (tmp_path / "a.log").write_text("one\ntwo\n")
    emits = Emits()
    attempt = attempt_at(tmp_path / "a.log", emits)
    attempt.go_on(0.0)
    attempt.go_on(0.0)
    (_, first), (_, second) = emits.rows
    attempt.acked(first)
    assert _fail_each_time(attempt, second, clock) == module.ROW_FAILS


def test_while_no_row_is_acked_the_bolts_get_more_time(tmp_path: Path, clock: Clock) -> None:
    (tmp_path / "a.log").write_text("two\n")
    emits = Emits()
    attempt = attempt_at(tmp_path / "a.log", emits)
    attempt.go_on(0.0)
    assert _fail_each_time(attempt, emits.rows[0][1], clock) == module.ROW_FAILS_ALONE


def test_an_error_of_the_function_names_its_line_and_what_is_not_acked_is_forgotten(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("one\nbad\ntwo\n")
    emits = Emits()
    attempt = attempt_at(tmp_path / "a.log", emits)
    assert attempt.go_on(0.0) is None
    with pytest.raises(RowError) as raised:
        attempt.go_on(0.0)
    assert raised.value.line == Line(1, 4, 8) and isinstance(raised.value.__cause__, ValueError)
    attempt.discard()
    [(_, number)] = emits.rows
    attempt.failed(number)
    assert emits.values == ["one"]


def test_a_log_that_cannot_be_read_is_no_error_of_the_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.log").write_text("one\n")

    def stale(*about: Any, **more: Any) -> None:
        raise OSError(errno.ESTALE, "Stale file handle")

    monkeypatch.setattr(chunks, "read_lines", stale)
    attempt = attempt_at(tmp_path / "a.log", Emits())
    with pytest.raises(MovedError, match=r"a.log cannot be read, and will be retried: .* Stale file handle"):
        attempt.go_on(0.0)
    attempt.discard()


def test_a_row_fits_the_fields_of_the_stream() -> None:
    assert values_of({"ms": 1, "user": "a"}, ("user", "ms")) == ["a", 1]
    assert values_of(("a", 1), ("user", "ms")) == ("a", 1)
    for row in ({"user": "a"}, ["a"], "ab", 7):
        with pytest.raises((TypeError, ValueError)):
            values_of(row, ("user", "ms"))


class Sink(Bolt):
    def process(self, tup: Any) -> None:
        self.ack(tup)


def problems_in(mode: str) -> list[str]:
    builder = TopologyBuilder("t")
    worker, keeper = LogUnits.specs("p", logs="/logs/*.log", rows=rows, fields=["line"])
    builder.add_spec(worker, keeper)
    builder.add_bolt("sink", Sink, par=1, inputs={worker: Grouping.SHUFFLE})
    builder.set_config({"topology.reliability.mode": mode})
    return problems(LogicalPlan.from_topology(builder.build()))


def test_other_modes_are_refused_in_one_sentence() -> None:
    assert problems_in("ATLEAST_ONCE") == []
    for mode in ("ATMOST_ONCE", "EFFECTIVELY_ONCE"):
        [sentence] = problems_in(mode)
        assert sentence.startswith("spout 'p-worker' emits rows of work units to bolts") and mode in sentence


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "needs output=, such as ParquetTable"),
        ({"fields": "line"}, "or fields="),
        ({"fields": [""]}, "or fields="),
        ({"fields": ["line"], "home": "here"}, "home must be an absolute path"),
        ({"fields": ["line"], "output": LineFiles("/t")}, "has output=, and fields="),
        ({"home": "/h", "output": LineFiles("/t")}, "has output=, and home="),
    ],
)
def test_where_rows_go_is_said_once(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        LogUnits.specs("p", logs="/logs/*.log", rows=rows, **given)


class Choosy(Sink):
    """Fails some rows at their first try."""

    def initialize(self, config: Any, context: Any) -> None:
        self.seen: list[str] = []
        self.refused: set[str] = set()

    def process(self, tup: Any) -> None:
        [line] = tup.values
        if line.endswith("7") and line not in self.refused:
            self.refused.add(line)
            self.fail(tup)
            return
        self.seen.append(line)
        self.ack(tup)


LINES = [f"line {number}" for number in range(500)]


def pipeline_at(tmp_path: Path) -> TopologyBuilder:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "a.log").write_text("".join(line + "\n" for line in LINES) + "unfinished")
    builder = TopologyBuilder("rows")
    numbers: dict[str, Any] = {"until": "now", "unit_bytes": 1000, "unit_wait_s": 0.1}
    worker, keeper = LogUnits.specs("rows", logs=f"{tmp_path}/logs/*.log", rows=rows, fields=["line"], **numbers)
    builder.add_spec(worker, keeper)
    builder.add_bolt("choosy", Choosy, par=1, inputs={worker: Grouping.SHUFFLE})
    builder.set_config({"topology.reliability.mode": "ATLEAST_ONCE", "topology.max.spout.pending": 50})
    return builder


def test_the_rows_of_all_units_reach_the_bolts_and_the_run_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERON_HOME", str(tmp_path / "home"))
    with Simulator(pipeline_at(tmp_path), seed=1) as simulator:
        assert simulator.run(seconds=3600).reason == "finished"
        assert sorted(simulator.task("choosy").seen) == sorted(LINES)
        assert len(simulator.failed("rows-worker")) == 50
        assert len(simulator.acked("rows-worker")) == 500


class Never(Choosy):
    """Fails one row for ever."""

    def process(self, tup: Any) -> None:
        if tup.values == ["line 77"]:
            self.fail(tup)
            return
        super().process(tup)


def test_a_line_whose_row_fails_for_ever_is_bad_and_all_others_arrive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERON_HOME", str(tmp_path / "home"))
    monkeypatch.setitem(globals(), "Choosy", Never)
    # The pauses are real time.
    for name, value in (("AGAIN_S", 0.001), ("AGAIN_MAX_S", 0.01), ("ROW_FAILS_ALONE", 10)):
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(policy, "TRY_AGAIN_S", (0.01, 0.01))
    with Simulator(pipeline_at(tmp_path), seed=1) as simulator:
        assert simulator.run(seconds=36_000).reason == "finished"
        assert set(simulator.task("choosy").seen) == set(LINES) - {"line 77"}
    [record] = (tmp_path / "home" / "units" / "rows" / "_units" / "bad").glob("*.json")
    assert json.loads(record.read_text())["text"] == "line 77\n" and "RefusedRowError" in record.read_text()


def test_the_unit_of_a_worker_that_is_lost_is_emitted_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERON_HOME", str(tmp_path / "home"))
    connections: list[Asking] = []

    def connect(*given: Any) -> Asking:
        connections.append(Asking(*given))
        return connections[-1]

    monkeypatch.setattr("heronpy.ingest.worker.Asking", connect)
    with Simulator(pipeline_at(tmp_path), seed=1) as simulator:
        for wanted in (30, 200, 350):
            while len(simulator.emitted("rows-worker")) < wanted:
                assert simulator.run(max_steps=10).reason != "finished"
            lost = connections[-1]
            simulator.kill_task("rows-worker")
            lost.close()  # as the end of a process does
        assert simulator.run(seconds=3600).reason == "finished"
        assert {values[0] for values in simulator.emitted("rows-worker")} == set(LINES)
        assert set(simulator.task("choosy").seen) == set(LINES)
        assert len(simulator.emitted("rows-worker")) > 550, "those that failed, and those of three lost units"


# ---- real processes -------------------------------------------------------------------------
def acked_rows(out: Path) -> list[str]:
    return [line for path in out.iterdir() for line in path.read_text("utf-8").splitlines(keepends=True)]


@pytest.mark.heavy
def test_rows_that_fail_come_again_bad_lines_are_listed_and_the_run_ends(heron: Heron, tmp_path: Path) -> None:
    logs, out = tmp_path / "logs", tmp_path / "out"
    logs.mkdir()
    out.mkdir()
    lines = [f"{'bad' if number == 777 else 'good'} {number}" for number in range(2000)]
    (logs / "a.log").write_text("".join(line + "\n" for line in lines))
    heron.submit(PROGRAM, "--logs", logs, "--out", out, "--until", "now", "--wait")
    assert {line.rstrip() for line in acked_rows(out)} == set(lines) - {"bad 777"}
    assert "cannot read bad 777" in heron("units", "bad", "rows").out
    assert len(list((heron.home / "units" / "rows" / "_units" / "bad").glob("*.json"))) == 1
    refused = heron("units", "check", "rows", "--table", tmp_path)
    assert refused.code == 1 and "go to bolts" in refused.err


@pytest.mark.heavy
def test_every_row_is_acked_while_workers_and_bolts_are_killed(heron: Heron, tmp_path: Path) -> None:
    logs, out = tmp_path / "logs", tmp_path / "out"
    logs.mkdir()
    out.mkdir()
    chance = random.Random(3)
    writer = GrowingLogs(logs, 3, ("a.log", "b.log"))
    heron.submit(PROGRAM, "--logs", logs, "--out", out)
    kills = 0
    for step in range(240):
        log = chance.choice(("a.log", "b.log"))
        if chance.random() < 0.03:
            writer.rename(log)
        writer.append(log, chance.randint(1, 40))
        if step % 12 == 0:
            tasks = [one for one in heron.status("rows")["tasks"] if one["pid"] and one["component"] != "rows-keeper"]
            if tasks:
                try:
                    os.kill(chance.choice(tasks)["pid"], signal.SIGKILL)
                    kills += 1
                except ProcessLookupError:
                    continue
    size = sum(path.stat().st_size for path in logs.iterdir())
    settled(heron, size, "rows")
    whole = {line.rstrip("\n") for line in acked_rows(out) if line.endswith("\n")}
    wrong = writer.judge(whole)
    assert not wrong.missing, (len(wrong.missing), wrong.missing[:3])
    assert kills > 5 and (found := shown(heron, "rows")) is not None and found.bad_ranges == 0
