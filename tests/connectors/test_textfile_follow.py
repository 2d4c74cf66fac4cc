"""TextFileSpout with textfile.follow: positions, replays, refusals; and a topology that is killed while logs rotate."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from heronpy.api.config_values import decode_config
from heronpy.api.state.state import HashMapState
from heronpy.common.errors import TopologyError
from heronpy.connectors.textfiles.decoding import TextFileError
from heronpy.connectors.textfiles.textfilespout import TextFileSpout
from heronpy.verify.units.logs import line_of
from tests.api.source_fakes import Context, Delegate, Kept
from tests.support.command import REPO, Heron
from tests.support.growing_logs import GrowingLogs
from tests.support.waiting import wait_for

AT_LEAST_ONCE = {"topology.reliability.mode": "ATLEAST_ONCE"}


def spout(paths: Any, context: Context | None = None, old: HashMapState | None = None, **config: Any) -> TextFileSpout:
    made = TextFileSpout(Delegate())
    if old is not None:
        made.init_state(old)
    given = {"textfile.paths": str(paths), "textfile.follow": True, "textfile.scan_s": 0.001}
    made.initialize({**given, **config}, context or Context())
    return made


def until(made: TextFileSpout, count: int) -> list[Any]:
    """Call it until it has emitted `count` lines."""

    def enough() -> bool:
        made.next_tuple()
        return len(made.delegate.emitted) >= count

    wait_for(enough, 30.0, f"{count} lines")
    return [values[0] for values in made.delegate.emitted]


def append(path: Path, *lines: str) -> None:
    with open(path, "a", encoding="utf-8") as file:
        file.write("".join(line + "\n" for line in lines))


def test_it_follows_and_says_when_to_call_it_again(tmp_path: Path) -> None:
    context = Context()
    made = spout(tmp_path / "*.log", context, **{"textfile.scan_s": 0.02, "textfile.emit_offset": True})
    made.next_tuple()
    assert made.delegate.emitted == [] and 0 < made.delegate.waits[-1] <= 0.02
    assert "matches no file yet" in made.delegate.logged[0]
    append(tmp_path / "a.log", "one", "two")
    until(made, 2)
    append(tmp_path / "a.log", "three")
    append(tmp_path / "b.log", "four")
    until(made, 4)
    a, b = str(tmp_path / "a.log"), str(tmp_path / "b.log")
    assert made.delegate.emitted[:2] == [["one", a, 0], ["two", a, 4]]
    assert sorted(made.delegate.emitted[2:]) == [["four", b, 0], ["three", a, 8]]
    assert made.delegate.ended == 0 and made.delegate.errors == []
    figures = context.metric.get_value_and_reset()
    assert figures["files"] == 2 and figures["lost-bytes"] == 0


def test_the_position_is_in_the_state_also_within_a_block(tmp_path: Path) -> None:
    append(tmp_path / "a.log", *(f"a{number}" for number in range(500)))
    append(tmp_path / "b.log", *(f"b{number}" for number in range(500)))
    context = Context()
    made = spout(tmp_path / "*.log", context, **{"textfile.lines_per_call": 7})
    first = until(made, 777)[:]
    made.pre_save("1")
    os.rename(tmp_path / "a.log", tmp_path / "a-1.log")
    again = spout(tmp_path / "*.log", Context(kept=context.kept()))
    both = first + until(again, 1000 - len(first))
    assert len(both) == 1000 and set(both) == {f"{log}{number}" for log in "ab" for number in range(500)}


def test_files_move_with_their_positions_to_any_number_of_tasks(tmp_path: Path) -> None:
    """3 -> 7 -> 2, restored from a checkpoint each time, while files grow: each line once."""
    seen: list[Any] = []
    kept: Kept = {}
    for phase, tasks in enumerate((3, 7, 2)):
        for file in range(20):
            append(tmp_path / f"{file}.log", *(f"{file} {phase} {line}" for line in range(10)))
        merged: Kept = {}
        for index in range(tasks):
            context = Context(index, tasks, kept=kept)
            made = spout(tmp_path / "*.log", context, **{"textfile.lines_per_call": 7})
            for _ in range(3 if tasks > 2 else 200):
                made.next_tuple()
            made.pre_save("1")
            for name, entries in context.kept().items():
                assert not merged.setdefault(name, {}).keys() & entries.keys(), "a file has two owners"
                merged[name].update(entries)
            seen += [values[0] for values in made.delegate.emitted]
            assert made.backlog().bytes is not None and made.delegate.errors == []
        kept = merged
    assert sorted(seen) == sorted(
        f"{file} {phase} {line}" for file in range(20) for phase in range(3) for line in range(10)
    )


def test_states_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    append(tmp_path / "a.log", "one")
    context = Context()
    made = spout(tmp_path / "*.log", context)
    until(made, 1)
    made.pre_save("1")
    for config, words in (
        ({"textfile.skip_header": 1}, "has 1 header lines, but its positions were saved with 0"),
        ({"textfile.follow": False}, "was checkpointed with textfile.follow"),
    ):
        with pytest.raises(TextFileError, match=words):
            spout(tmp_path / "*.log", Context(kept=context.kept()), **config)
    with pytest.raises(TopologyError, match="was checkpointed by a release"):
        spout(tmp_path / "*.log", old=HashMapState(share={}, follow={}))


@pytest.mark.parametrize(
    "config, words",
    [
        ({"textfile.paths": "/logs/**"}, "names a folder"),
        ({"textfile.scan_s": "soon"}, "textfile.scan_s must be a number"),
        ({"textfile.scan_s": 0}, "textfile.scan_s must be more than 0"),
        ({"textfile.forget_days": -1}, "textfile.forget_days must be more than 0"),
    ],
)
def test_bad_options_are_named(tmp_path: Path, config: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        spout(tmp_path / "*.log", **config)


def test_a_pattern_that_names_a_folder_is_refused_before_it_is_submitted() -> None:
    with pytest.raises(ValueError, match=r"/logs/\*\* names a folder; name its files"):
        TextFileSpout.spec("lines", config={"textfile.paths": "/logs/**", "textfile.follow": True})
    spec = TextFileSpout.spec("lines", config={"textfile.paths": "/logs/*.log", "textfile.follow": True})
    assert decode_config(spec.get_protobuf().comp.config)["textfile.paths"] == ["/logs/*.log"]


def test_failed_lines_come_again_also_after_a_rotation(tmp_path: Path) -> None:
    logs = GrowingLogs(tmp_path, 5)
    logs.append("app.log", 10)
    made = spout(tmp_path / "app.log", **AT_LEAST_ONCE)
    until(made, 10)
    ids = list(made.delegate.ids)
    logs.copytruncate("app.log")
    logs.append("app.log", 10)
    for tup_id in ids[:5]:
        made.fail(tup_id)
    for tup_id in ids[5:]:
        made.ack(tup_id)
    rows = Counter(until(made, 25))
    assert not logs.judge(rows.keys()) and sorted(rows.values()) == [1] * 15 + [2] * 5


def test_a_line_that_cannot_be_replayed_is_an_error(tmp_path: Path) -> None:
    append(tmp_path / "a.log", "one")
    made = spout(tmp_path / "a.log", **AT_LEAST_ONCE)
    until(made, 1)
    os.unlink(tmp_path / "a.log")
    made.fail(made.delegate.ids[0])

    def told() -> list[str]:
        made.next_tuple()
        return made.delegate.errors

    [error] = wait_for(told, 30.0, "the error")
    assert "a.log must be replayed but cannot be read again" in error


# ---- a topology ----------------------------------------------------------------------------------

PROGRAM = """
import sys
from heronpy import Grouping, TopologyBuilder
from heronpy.connectors.files import FileSink
from heronpy.connectors.textfiles.textfilespout import TextFileSpout

name, logs, out = sys.argv[1:]
builder = TopologyBuilder(name)
config = {"textfile.paths": logs + "/*.log*", "textfile.follow": True, "textfile.block_bytes": 8192}
lines = builder.add_spout("lines", TextFileSpout, par=2, config=config)
builder.add_spec(FileSink.spec("store", {lines: Grouping.SHUFFLE}, folder=out, format="text"))
builder.set_config({"topology.reliability.mode": "EFFECTIVELY_ONCE", "heron.checkpoint.interval_s": 0.3})
builder.build_and_submit()
"""
NAME = "Logs"
LINES, LOGS, SEED = 4000, 2, 11


def rows_in(folder: Path) -> list[str]:
    return [line for part in folder.glob("part-*") for line in part.read_text().splitlines()]


@pytest.mark.heavy
@pytest.mark.slow
@pytest.mark.timeout(280)
def test_a_topology_is_exact_through_kills_while_logs_rotate(heron: Heron, user: Path) -> None:
    logs, out, program = user / "logs", user / "out", user / "follow.py"
    logs.mkdir()
    program.write_text(PROGRAM)
    words = ["--seed", SEED, "--logs", LOGS, "--lines", LINES, "--pause-s", 0.03]
    heron.submit(program, NAME, logs, out)
    writer = subprocess.Popen(
        [sys.executable, "-m", "tests.support.growing_logs", str(logs), *map(str, words)], cwd=REPO
    )
    try:
        for component in ("lines", "store", "lines"):
            before = heron.when(NAME, lambda now: now["checkpoints"] and now["checkpoints"]["last"], "a checkpoint")
            pid = next(task["pid"] for task in before["tasks"] if task["component"] == component)
            restores = before["checkpoints"]["restores"]
            os.kill(pid, signal.SIGKILL)
            heron.when(
                NAME,
                lambda now, restores=restores: now["checkpoints"] and now["checkpoints"]["restores"] > restores,
                f"a restore after the end of {component}",
            )
        assert writer.wait(200) == 0
        expected = LINES * LOGS
        wait_for(lambda: len(rows_in(out)) >= expected, 90.0, f"{expected} rows")
        heron("update", "local", NAME, "--component-parallelism", "lines:3").ok()
        exceptions = heron("exceptions", "local", NAME).ok().out
        assert "TextFileError" not in exceptions
    finally:
        writer.kill()
        writer.wait()
        heron.kill(NAME)
    rows = Counter(rows_in(out))
    wanted = {line_of(SEED, f"app-{log}.log", number) for log in range(LOGS) for number in range(LINES)}
    assert rows.keys() == wanted and rows.total() == expected
