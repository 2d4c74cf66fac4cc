"""Checkpoints of real processes at odd moments: state is exact, what cannot be saved is counted, all goes on.

Each test runs to the end of the input, where every number must have been counted once by state alone.
"""

from __future__ import annotations

import json
import os
import re
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from heronpy.proto import control_pb2
from tests.support.command import Heron
from tests.support.inside import ask_master
from tests.support.waiting import wait_for

PROGRAM = Path(__file__).parent / "programs" / "stateful.py"
NAME = "stateful"

pytestmark = pytest.mark.timeout(300)


def submit(heron: Heron, out: Path, *words: object, **settings: object) -> None:
    chosen = [f"heron.checkpoint.{key}={value}" for key, value in {"interval_s": 0.3, **settings}.items()]
    properties = [word for item in chosen for word in ("--config-property", item)]
    heron.submit(PROGRAM, NAME, "--out", out, *words, *properties)


def master(heron: Heron) -> control_pb2.CheckpointsReply:
    """What the topology master counts of its checkpoints."""
    found: control_pb2.CheckpointsReply = ask_master(heron, NAME, control_pb2.GetCheckpoints())
    return found


def when(
    heron: Heron, condition: Callable[[control_pb2.CheckpointsReply], bool], what: str
) -> control_pb2.CheckpointsReply:
    return wait_for(lambda: now if condition(now := master(heron)) else None, 60, what)


def finish(heron: Heron, out: Path) -> None:
    """The input ends; each number up to where its source ended was counted once."""
    (out / "end").touch()
    heron.when_state(NAME, "FINISHED", 120)
    # A source that was rewound after its end has another one later.
    notes = [re.findall(r" end (\d+)$", path.read_text(), re.M) for path in out.glob("calls.source.*")]
    expected = [number for ends in notes for number in range(int(ends[-1]) % 2, int(ends[-1]), 2)]
    assert len(notes) == 2 and len(expected) > 10
    assert result(out) == dict.fromkeys(expected, 1)


def result(out: Path) -> dict[int, int]:
    total: Counter[int] = Counter()
    for path in out.glob("result.*"):
        total.update({int(number): count for number, count in json.loads(path.read_text()).items()})
    return dict(total)


def calls(out: Path, component: str) -> dict[str, list[list[str]]]:
    """The calls of each process of a component, oldest process first."""
    found: dict[str, list[list[str]]] = {}
    for path in sorted(out.glob(f"calls.{component}.*")):
        for line in path.read_text().splitlines():
            pid, *call = line.split()
            found.setdefault(pid, []).append(call)
    return found


@pytest.mark.parametrize(
    "words",
    [(), *(pytest.param((word,), marks=pytest.mark.heavy) for word in ("--asynchronous", "--asynchronous-source"))],
)
def test_state_is_exact_whoever_is_killed(heron: Heron, out: Path, words: tuple[str, ...]) -> None:
    """Spouts rewind, coroutines have ended at each cut, ticks count, the last checkpoint publishes (F01, F02)."""
    submit(heron, out, "--source-pause-ms", 4, *words)
    victims = ("container_1_source_1", "container_1_work_3", "container_1_store_4")
    for number, victim in enumerate(victims):
        completed = when(heron, lambda now: now.restores == number, "the restore").completed  # noqa: B023
        when(heron, lambda now: now.completed > completed, "a checkpoint")  # noqa: B023
        os.kill(heron.pid(NAME, victim), signal.SIGKILL)
        when(heron, lambda now: now.restores > number, "a restore")  # noqa: B023
    finish(heron, out)
    assert "Traceback" not in heron("exceptions", "local", NAME).ok().out
    for pid, made in calls(out, "store").items():
        assert [call[0] for call in made[:3]] == ["init_state", "pre_restore", "initialize"], pid
        saved = [int(call[1]) for call in made if call[0] == "pre_save"]
        committed = [int(call[1]) for call in made if call[0] == "post_save"]
        assert saved == sorted(set(saved)) and committed == sorted(set(committed))
        assert set(committed) <= set(saved), "a commit of what was not prepared"
    begun = [call[1] for made in calls(out, "store").values() for call in made if call[0] == "pre_restore"]
    assert begun.count("0") == 2 and len(begun) == 8, begun
    last = [call[0] for call in list(calls(out, "store").values())[-1]]
    # A checkpoint that was under way may complete first.
    assert last.count("finish") == 1 and last[last.index("finish") :][-2:] == ["pre_save", "post_save"], last
    finishes = [call for made in calls(out, "work").values() for call in made if call[0] == "finish"]
    restored = [int(call[1]) for made in calls(out, "work").values() for call in made if call[0] == "ticks"]
    assert restored == sorted(restored) and restored[0] == 0 < restored[-1], "ticks belong to the state"
    assert len(finishes) == 1 and int(finishes[0][1]) >= restored[-1]


@pytest.mark.heavy
def test_checkpoints_at_odd_moments(heron: Heron, out: Path) -> None:
    """Paused, raising, blocked in next_tuple, stuck in process: nothing wedges, and nothing is restored."""
    submit(heron, out, "--source-pause-ms", 1, interval_s=3600, timeout_s=2)
    trigger = ("checkpoints", "trigger", "local", NAME)

    heron("deactivate", "local", NAME).ok()
    heron(*trigger).ok()
    heron("activate", "local", NAME).ok()

    (out / "raise").touch()
    heron(*trigger).refused(1, "pre_save of task container_1_store_", "OSError", "the target is full")
    (out / "raise").unlink()
    shown = heron("exceptions", "local", NAME).ok().out
    assert "Traceback" in shown and "in pre_save" in shown and "OSError: the target is full" in shown
    heron(*trigger).ok()

    for flag in ("block", "stuck"):
        (out / flag).touch()
        wait_for(lambda: (out / f"{flag}.holds").exists(), 60, flag)  # noqa: B023
        heron(*trigger).refused(1, "2 s")
        (out / flag).unlink()
        heron(*trigger).ok()

    now = master(heron)
    assert (now.completed, now.restores) == (4, 0)
    assert now.aborted + now.failed == 3
    finish(heron, out)
    assert master(heron).restores == 0


@pytest.mark.heavy
def test_too_much_to_hold_back_is_declined_and_counted(heron: Heron, out: Path) -> None:
    """One source is blocked, the other goes on: the bolt between them holds back a limited number of bytes."""
    submit(heron, out, "--pad", 500, "--source-pause-ms", 0.5,
           interval_s=3600, alignment_bytes_max=20_000)  # fmt: skip
    (out / "block").touch()
    wait_for((out / "block.holds").exists, 60, "the block")
    trigger = ("checkpoints", "trigger", "local", NAME)
    heron(*trigger).refused(1, "container_1_work_3", "hold back more than 20000 bytes", "alignment_bytes_max")
    (out / "block").unlink()
    heron(*trigger).ok()
    finish(heron, out)
    now = master(heron)
    assert now.restores == 0 and now.aborted + now.failed == 1
