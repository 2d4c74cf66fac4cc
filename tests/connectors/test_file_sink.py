"""FileSink: whole files only, and each row once under EFFECTIVELY_ONCE, whatever crashes where (F07)."""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from heronpy.api.api_constants import TOPOLOGY_TICK_TUPLE_FREQ_MS
from heronpy.api.config_values import decode_config, encode_config
from heronpy.api.state.state import HashMapState
from heronpy.common.errors import ConfigError, FencedError
from heronpy.connectors.files import FileSink
from heronpy.connectors.files.lines import UnfitError, line_writer
from tests.connectors.two_phase import (
    POINTS,
    RUNS,
    Context,
    Delegate,
    Harness,
    Tup,
    checkpoint,
    fails_for_good,
    start,
    state_of,
)
from tests.support.full_disk import Patience, full_disk

__all__ = ["full_disk"]


def config_of(folder: Path, **options: Any) -> dict[str, Any]:
    """The configuration as it arrives in a task."""
    spec = FileSink.spec("store", folder=folder, **options)
    return decode_config(encode_config(spec.custom_config))


def rows_of(folder: Path) -> list[Any]:
    return [json.loads(line) for path in sorted(folder.glob("part-*.jsonl")) for line in path.open()]


def names_of(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.mark.parametrize("point", POINTS)
def test_every_row_is_published_once_whatever_crashes_where(tmp_path: Path, point: str) -> None:
    crashed = 0
    runs = RUNS or 8
    for seed in range(runs):
        out = tmp_path / f"out{seed}"
        harness = Harness(tmp_path / str(seed), FileSink, config_of(out, fields=["n"]), seed, 40, lambda n: [n])
        crashed += harness.run_until_done(point)
        assert sorted(row["n"] for row in rows_of(out)) == list(range(40)), f"seed {seed}"
        assert [name for name in names_of(out) if not name.startswith("part-")] == [], f"seed {seed}"
    assert crashed >= runs, "it crashed in most runs"


@pytest.mark.parametrize("point", POINTS)
def test_a_stopped_process_that_goes_on_later_changes_nothing(tmp_path: Path, point: str) -> None:
    """F10: SIGSTOP anywhere, its successors do all, SIGCONT: nothing that it then does is seen."""
    ends = Counter[str]()
    for seed in range(6):
        out = tmp_path / f"out{seed}"
        harness = Harness(tmp_path / str(seed), FileSink, config_of(out, fields=["n"]), seed, 40, lambda n: [n])
        ends[harness.run_with_a_zombie(point)] += 1
        assert sorted(row["n"] for row in rows_of(out)) == list(range(40)), f"seed {seed}"
    assert ends["unstopped"] < 3, ends


def feed(sink: FileSink, *values: int) -> None:
    for value in values:
        sink.process(Tup(value, [value]))


def test_a_file_per_checkpoint_and_none_for_an_empty_one(out: Path) -> None:
    sink = start(FileSink, config_of(out), attempt=1)
    feed(sink, 1, 2)
    sink.pre_save("1")
    assert rows_of(out) == []
    sink.post_save("1")
    checkpoint(sink, 2)
    feed(sink, 3)
    checkpoint(sink, 3)
    run = sink.who.run
    assert names_of(out) == [f"part-store-1-1-{run}.1.jsonl", f"part-store-1-3-{run}.1.jsonl"]
    assert rows_of(out) == [[1], [2], [3]]
    assert sink.delegate.acked == [1, 2, 3]


def test_a_checkpoint_that_is_aborted_goes_with_the_next(out: Path) -> None:
    sink = start(FileSink, config_of(out), attempt=1)
    feed(sink, 1)
    sink.pre_save("1")
    feed(sink, 2)
    checkpoint(sink, 2)
    assert rows_of(out) == [[1], [2]]


def test_a_late_commit_leaves_what_was_prepared_since(out: Path) -> None:
    sink = start(FileSink, config_of(out), attempt=1)
    feed(sink, 1)
    sink.pre_save("1")
    feed(sink, 2)
    sink.pre_save("2")
    sink.post_save("1")
    assert rows_of(out) == [[1]]


def copy(state: Any) -> Any:
    return HashMapState({key: list(value) for key, value in state.items()})


def test_a_zombie_publishes_nothing_and_harms_nothing(out: Path) -> None:
    config = config_of(out)
    zombie = start(FileSink, config, attempt=1)
    feed(zombie, 1)
    zombie.pre_save("1")
    feed(zombie, 2)
    successor = start(FileSink, config, attempt=2)
    feed(successor, 1, 2)
    checkpoint(successor, 3)
    zombie.post_save("1")
    counts = zombie.counts.get_value_and_reset()
    assert (counts["files-published"], counts["files-missing"]) == (0, 1)
    assert successor.counts.get_value_and_reset()["files-removed"] == 2
    assert "are missing" in zombie.delegate.lines[-1]
    with pytest.raises(FencedError, match="a newer process that has replaced this one"):
        zombie.pre_save("2")
    assert zombie.counts.get_value_and_reset()["writes-refused"] == 1
    assert rows_of(out) == [[1], [2]]
    # It is stuck in its own restore, and goes on only now.
    late = start(FileSink, config, attempt=1)
    feed(late, 9)
    late.pre_save("2")
    assert rows_of(out) == [[1], [2]]
    third = start(FileSink, config, attempt=3, state=copy(state_of(successor)), checkpoint=3)
    feed(third, 3)
    checkpoint(third, 4)
    late.post_save("2")
    assert rows_of(out) == [[1], [2], [3]] and len(names_of(out)) == 2


def test_rows_come_once_when_a_checkpoint_turns_out_to_be_damaged(out: Path) -> None:
    """F23: what was published after the older checkpoint is taken back, as its rows come again."""
    config = config_of(out)
    sink = start(FileSink, config, attempt=1)
    feed(sink, 1)
    sink.pre_save("1")
    older = copy(state_of(sink))
    sink.post_save("1")
    feed(sink, 2)
    checkpoint(sink, 2)
    again = start(FileSink, config, attempt=2, state=older, checkpoint=1)
    assert rows_of(out) == [[1]]
    feed(again, 2, 3)
    checkpoint(again, 3)
    assert rows_of(out) == [[1], [2], [3]]


def test_another_submission_goes_on_from_a_savepoint(out: Path) -> None:
    config = config_of(out)
    first = start(FileSink, config, attempt=4)
    feed(first, 1)
    first.pre_save("9")
    # It is killed before it commits; a submission of its own has begun in the same folder meanwhile.
    stranger = start(FileSink, config, attempt=1, topology_id="T-9")
    feed(stranger, 100)
    stranger.pre_save("1")
    second = start(FileSink, config, attempt=1, state=copy(state_of(first)), checkpoint=9, topology_id="T-2")
    assert rows_of(out) == [[1]]
    feed(second, 2)
    checkpoint(second, 10)
    stranger.post_save("1")
    assert sorted(rows_of(out)) == [[1], [2], [100]]


def test_a_failed_prepare_never_passes_rows_over(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = start(FileSink, config_of(out), attempt=1)
    fails_for_good(sink, monkeypatch, lambda value: feed(sink, value))


# -- without checkpoints ----------------------------------------------------------------------


def plain(config: dict[str, Any], mode: str) -> FileSink:
    sink = FileSink(Delegate())
    sink.init_state(HashMapState())
    sink.initialize({**config, "topology.reliability.mode": mode}, Context())
    return sink


def test_at_least_once_acks_after_the_file_is_published(out: Path) -> None:
    sink = plain(config_of(out, roll_bytes=12), "ATLEAST_ONCE")
    sink.delegate.on_ack = lambda: seen.append(len(rows_of(out)))
    seen: list[int] = []
    feed(sink, 1, 2)
    assert sink.delegate.acked == [] and rows_of(out) == []
    feed(sink, 3, 4)
    assert sink.delegate.acked == [1, 2, 3] and seen == [3, 3, 3]
    sink.finish()
    assert sink.delegate.acked == [1, 2, 3, 4] and sorted(rows_of(out)) == [[1], [2], [3], [4]]


def test_a_file_is_published_when_a_spout_stands_at_its_limit(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two tasks of the sink, one of the spout: with 8 tuples pending each task holds 4 of them."""
    tasks = {"store": [6, 7], "parse": [4, 5], "read": [3]}
    sources = {"store": ["parse"], "parse": ["read"], "read": []}
    monkeypatch.setattr(Context, "get_component_tasks", lambda self, name: tasks[name])
    monkeypatch.setattr(
        Context, "get_sources", lambda self, name: [SimpleNamespace(component_name=one) for one in sources[name]]
    )
    sink = plain({**config_of(out), "topology.max.spout.pending": "8"}, "ATLEAST_ONCE")
    feed(sink, 1, 2, 3)
    sink.process_tick(None)
    assert sink.delegate.acked == []
    feed(sink, 4)
    sink.process_tick(None)
    assert sink.delegate.acked == [1, 2, 3, 4] and len(rows_of(out)) == 4
    feed(sink, 5)
    sink.process_tick(None)
    assert sink.delegate.acked == [1, 2, 3, 4]


def test_a_file_is_published_by_age(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("heronpy.connectors.files.sink.time.monotonic", lambda: now[0])
    sink = plain(config_of(out, roll_interval_s=5), "ATMOST_ONCE")
    feed(sink, 1)
    now[0] += 4.9
    sink.process_tick(None)
    assert rows_of(out) == []
    now[0] += 0.2
    sink.process_tick(None)
    assert rows_of(out) == [[1]]
    now[0] += 100
    sink.process_tick(None)
    assert len(names_of(out)) == 1


def die_with_an_open_file(config: dict[str, Any], mode: str) -> None:
    pid = os.fork()
    if pid == 0:
        try:
            sink = plain(config, mode)
            feed(sink, 1, 2, 3)
            file = sink._files._file
            file.write(b"[4")
            file.flush()
        finally:
            os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0


@pytest.mark.parametrize(("mode", "rows", "words"), [
    ("ATLEAST_ONCE", [], "0 published, 1 removed"),
    ("ATMOST_ONCE", [[1], [2], [3]], "1 published, 0 removed"),
])  # fmt: skip
def test_the_open_file_of_a_dead_process(out: Path, mode: str, rows: list[Any], words: str) -> None:
    config = config_of(out)
    die_with_an_open_file(config, mode)
    sink = plain(config, mode)
    assert words in sink.delegate.lines[-1]
    assert rows_of(out) == rows and not [name for name in names_of(out) if name.startswith(".")]


def test_the_open_file_of_a_living_process_is_left_alone(out: Path) -> None:
    config = config_of(out)
    other = plain(config, "ATLEAST_ONCE")
    feed(other, 1)
    plain(config, "ATLEAST_ONCE")
    other.finish()
    assert rows_of(out) == [[1]]


# -- lines and options ------------------------------------------------------------------------


def test_lines() -> None:
    assert line_writer("jsonl", ["a", "b"])(["x\n", None]) == b'{"a":"x\\n","b":null}\n'
    assert line_writer("jsonl", [])([1, [2.5, b"\x00"]]) == b'[1,[2.5,"AA=="]]\n'
    assert line_writer("text", [])(["x", 1]) == b"x\t1\n"
    for format_name, fields, values in (("text", [], ["a\nb"]), ("jsonl", ["a"], [1, 2]), ("jsonl", [], [object()]),
                                        ("text", [], ["\ud800"]), ("jsonl", [], ["\ud800"])):  # fmt: skip
        with pytest.raises(UnfitError):
            line_writer(format_name, fields)(values)


def test_a_tuple_that_does_not_fit_fails_alone(out: Path) -> None:
    sink = start(FileSink, config_of(out, format="text"), attempt=1)
    sink.process(Tup(1, ["a\nb"]))
    sink.process(Tup(2, ["c"]))
    checkpoint(sink, 1)
    assert (sink.delegate.acked, sink.delegate.failed) == ([2], [1])
    assert [path.read_text() for path in out.iterdir()] == ["c\n"] and next(out.iterdir()).suffix == ".txt"
    assert "contains a line break" in sink.delegate.lines[-1]


@pytest.mark.parametrize(("options", "words"), [
    ({"format": "csv"}, "must be one of jsonl, text"),
    ({"fields": ["a", "a"]}, "must have different names"),
    ({"roll_bytes": 0}, "roll_bytes of a FileSink must be a number above zero"),
    ({"roll_interval_s": "soon"}, "roll_interval_s of a FileSink"),
])  # fmt: skip
def test_options_are_checked_where_they_are_given(out: Path, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        FileSink.spec("store", folder=out, **options)


def test_a_sink_by_configuration_alone(out: Path) -> None:
    sink = plain({"file.sink.folder": str(out), "file.sink.fields": "a,b"}, "ATMOST_ONCE")
    sink.process(Tup(1, [1, 2]))
    sink.finish()
    assert rows_of(out) == [{"a": 1, "b": 2}]
    with pytest.raises(ConfigError, match=r"FileSink store needs file\.sink\.folder"):
        plain({}, "ATMOST_ONCE")


@pytest.mark.parametrize(("format", "mode"), [("jsonl", "ATLEAST_ONCE"), ("parquet", "ATMOST_ONCE")])
def test_a_sink_waits_for_room_on_a_full_disk_and_each_row_is_whole(
    full_disk: Path, monkeypatch: pytest.MonkeyPatch, format: str, mode: str
) -> None:
    schema = pa.schema([("n", pa.int64()), ("word", pa.string())])
    options = {"format": format} if format == "jsonl" else {"format": format, "schema": schema}
    patience = Patience(monkeypatch, Delegate, full_disk)
    sink = plain(config_of(full_disk / "out", **options), mode)
    opened = []
    monkeypatch.setattr(os, "rename", lambda old, new, rename=os.rename: opened.append(old) or rename(old, new))
    rows = [[n, random.Random(n).randbytes(2000).hex()] for n in range(80)]  # more than the buffer, less than the disk
    for row in rows:
        sink.process(Tup(row[0], row))
    sink.finish()
    assert patience.waited() == f"{opened[0]}: No space left on device"
    [file] = (full_disk / "out").glob("part-*")
    found = (
        rows_of(full_disk / "out") if format == "jsonl" else [list(r.values()) for r in pq.read_table(file).to_pylist()]
    )
    assert found == rows and sink.delegate.acked == list(range(80))


def test_a_sink_that_is_declared_by_its_configuration_publishes_by_time(out: Path) -> None:
    spec = FileSink.spec("store", config={"file.sink.folder": str(out)})
    assert (
        spec.custom_config[TOPOLOGY_TICK_TUPLE_FREQ_MS]
        == FileSink.spec("store", folder=out).custom_config[TOPOLOGY_TICK_TUPLE_FREQ_MS]
    )
    with pytest.raises(ConfigError, match="must be an absolute path"):
        FileSink.spec("store", config={"file.sink.folder": "out"})
