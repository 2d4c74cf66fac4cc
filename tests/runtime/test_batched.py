"""Bolts that take batches, also as Arrow, in real processes: exact in each mode, killed in the middle, and with poison in them."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from pathlib import Path

import pytest

from tests.runtime.programs.batched import PER_CALL
from tests.runtime.test_poison import COUNT as POISON_COUNT
from tests.runtime.test_poison import check_others, letters, numbers, tries
from tests.runtime.test_poison import submit as submit_poison
from tests.support.command import Heron
from tests.support.inside import inside
from tests.support.waiting import wait_for

PROGRAM = Path(__file__).parent / "programs" / "batched.py"
QUICK = ("heron.executor.restart_backoff_s=0.01", "heron.executor.restart_backoff_max_s=0.1")
OFTEN = ("heron.checkpoint.interval_s=0.3",)
ARROW = ("--arrow", "--containers", 2, "--config-property", "heron.instance.allow_pickle=false")


def submit(heron: Heron, out: Path, mode: str, count: int, *words: object) -> None:
    settings = [word for setting in (*QUICK, *OFTEN) for word in ("--config-property", setting)]
    heron.submit(PROGRAM, "batched", "--out", out, "--mode", mode, "--count", count, *settings, *words)


def tallied(out: Path) -> tuple[Counter[int], int]:
    """How often each number was counted, and the signs; a key is counted by one task only."""
    counts: Counter[int] = Counter()
    signs = 0
    keys: list[set[int]] = []
    for path in out.glob("tally.*.json"):
        found = json.loads(path.read_text())
        assert all(key == number % 11 for key, number, _ in found["counts"])
        keys.append({key for key, _, _ in found["counts"]})
        for _, number, count in found["counts"]:
            counts[number] += count
        signs += found["signs"]
    assert sum(map(len, keys)) == len(set().union(*keys)) == 11
    return counts, signs


def expected(count: int) -> Counter[int]:
    return Counter({number: number % 3 for number in range(count) if number % 3})


@pytest.mark.parametrize(
    "mode",
    ["ATLEAST_ONCE", *(pytest.param(mode, marks=pytest.mark.heavy) for mode in ("ATMOST_ONCE", "EFFECTIVELY_ONCE"))],
)
@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("--containers", 1), marks=pytest.mark.heavy),
        ("--containers", 2),
        pytest.param(ARROW, marks=pytest.mark.heavy),
    ],
)
def test_batches_are_exact_in_each_mode(heron: Heron, out: Path, mode: str, words: tuple[object, ...]) -> None:
    submit(heron, out, mode, 20_000, *words)
    heron.when_state("batched", "FINISHED", 60)
    counts, signs = tallied(out)
    assert counts == expected(20_000)
    assert signs >= 20_000 // 1000, "one for each batch"
    executed: Counter[str] = Counter()
    for task in inside(heron, "batched").tasks:
        executed[task.component] += task.executed
    assert executed == {"source": 0, "relay": 20_000, "tally": sum(counts.values()) + signs}, "tuples, not batches"


@pytest.mark.heavy
def test_a_kill_in_the_middle_of_arrow_batches(heron: Heron, out: Path) -> None:
    """Nothing is counted twice; other batches are killed in the simulation, in each mode."""
    count = 600 * PER_CALL
    submit(heron, out, "EFFECTIVELY_ONCE", count, "--pause-ms", 3, *ARROW)
    killed: set[int] = set()
    for victim in ("relay", "tally", "source", "tally"):
        wait_for(lambda victim=victim: kill_busy(heron, victim, killed), 60, f"a busy {victim}")
    heron.when_state("batched", "FINISHED", 120)
    counts, _ = tallied(out)
    assert counts == expected(count)


def busy(heron: Heron, component: str, killed: set[int]) -> int:
    """The process of a task that is in the middle of its work; 0 while there is none."""
    for task in inside(heron, "batched").tasks:
        done = task.emitted if component == "source" else task.executed
        if task.component == component and task.pid not in killed and done > 500:
            return int(task.pid)
    return 0


def kill_busy(heron: Heron, component: str, killed: set[int]) -> bool:
    """Kill one; False if there is none, or it has just been replaced because another one was killed."""
    pid = busy(heron, component, killed)
    if not pid:
        return False
    killed.add(pid)
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.heavy
def test_a_tuple_that_makes_its_batch_fail_is_found(heron: Heron, out: Path) -> None:
    """What raises, ends the process or never returns: one tuple each is blamed, and all others arrive."""
    poison = {20: "raise", 30: "exit", 100: "hang", 140: "sysexit"}
    limit = ("--config-property", "heron.instance.execute_timeout_s=0.5")
    submit_poison(heron, out, poison, *limit, "--batches")
    heron.when_state("poison", "FINISHED", 120)
    check_others(out, poison)
    found = {letter["payload"][0]: letter for letter in letters(heron)}
    assert sorted(found) == sorted(poison) and len(letters(heron)) == len(poison)
    assert {letter["tries"] for letter in found.values()} == {3}
    assert "ValueError: this tuple is poison" in found[20]["traceback"]
    assert "process_batch() has lasted" in found[100]["traceback"]
    assert all(3 <= tries(out, number) <= 8 for number in poison)
    assert max(map(int, (out / "largest").read_text().split())) > 1, "the healthy process took them together"


def test_at_most_once_a_batch_that_fails_is_lost_as_a_whole(heron: Heron, out: Path) -> None:
    """Nothing may be processed twice, so every tuple of the batch has a letter; none is lost without one."""
    submit_poison(heron, out, {20: "raise"}, "--mode", "ATMOST_ONCE", "--batches")
    heron.when_state("poison", "FINISHED")
    stored, lost = numbers(out / "stored"), [letter["payload"][0] for letter in letters(heron)]
    assert 20 in lost and stored + Counter(lost) == Counter(range(POISON_COUNT))
    assert tries(out, 20) == 1


@pytest.mark.heavy
def test_effectively_once_a_tuple_that_makes_its_batch_fail_is_found(heron: Heron, out: Path) -> None:
    submit_poison(heron, out, {20: "raise", 60: "exit"}, "--mode", "EFFECTIVELY_ONCE", "--batches",
                  "--config-property", "heron.checkpoint.interval_s=0.2")  # fmt: skip
    heron.when_state("poison", "FINISHED", 120)
    assert set(numbers(out / "stored")) == set(range(POISON_COUNT)) - {20, 60}
    assert sorted(letter["payload"][0] for letter in letters(heron)) == [20, 60]
