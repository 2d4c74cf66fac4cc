"""Objects by type: each counted once, also what the collector does not list; no code of theirs runs."""

from __future__ import annotations

import gc
import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heronpy.procs import heap, sampler
from heronpy.procs.heap import HeapCount, count_types
from tests.support.waiting import wait_for


class Record:
    """Can be part of a cycle, so it is listed."""

    def __init__(self, name: object) -> None:
        self.name = name


class Loud:
    """Its own code would end the walk."""

    def __sizeof__(self) -> int:
        raise SystemExit("code of the user ran")

    @property
    def __class__(self) -> Any:
        raise SystemExit("code of the user ran")


def counts(found: HeapCount) -> dict[str, tuple[int, int]]:
    return {name.rpartition(".")[2]: (count, size) for name, count, size in found.types}


def look(roots: tuple[object, ...] = (), limit_s: float = 60.0) -> dict[str, tuple[int, int]]:
    found = count_types(heap.TOP_MAX, limit_s, roots)
    assert found.kinds == len(found.types) or found.kinds > heap.TOP_MAX
    return counts(found)


@pytest.fixture(autouse=True)
def few_others() -> Iterator[None]:
    """What pytest holds is not listed meanwhile."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def test_objects_and_what_they_hold_are_counted_with_their_bytes() -> None:
    records = [Record(bytearray(b"name 7" * 100)) for _ in range(1000)]
    found = look()
    assert found["Record"][0] == 1000 and found["bytearray"][0] == pytest.approx(1000, rel=0.01)
    assert found["bytearray"][1] == pytest.approx(1000 * sys.getsizeof(records[0].name), rel=0.01)
    assert "name 7" not in str(count_types(heap.TOP_MAX, 60.0)), "types, no values"


@settings(max_examples=8, deadline=None)
@given(st.integers(1, 50), st.integers(1, 8))
def test_what_several_share_is_counted_once(texts: int, holders: int) -> None:
    # The collector lists no complex numbers: they are found through what holds them.
    shared = [complex(number, 1) for number in range(texts)]
    held = [list(shared) for _ in range(holders - 1)]
    found = look()["complex"][0]
    shared.clear()
    held.clear()
    assert found - look().get("complex", (0, 0))[0] == pytest.approx(texts, abs=2), "others may have some, too"


FROZEN = """
import gc
from heronpy.procs.heap import count_types

class Task:
    def __init__(self):
        self.cache = {}

def look(roots=()):
    return {name: count for name, count, _ in count_types(500, 60.0, roots).types}.get("complex", 0)

def main():
    task = Task()
    gc.freeze()
    task.cache.update((number, complex(number, 1)) for number in range(500))
    print(look(), look((task,)))

main()
"""


def test_a_cache_that_was_frozen_is_found_from_the_task() -> None:
    """In a process of its own, since freezing is for ever."""
    done = subprocess.run([sys.executable, "-c", FROZEN], capture_output=True, text=True, timeout=60, check=True)
    without, found = map(int, done.stdout.split())
    assert without == 0 and found == pytest.approx(500, abs=5)


def test_a_large_container_is_seen_in_part_and_stands_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heap, "BELOW_MAX", 1000)
    cache = [{number: complex(number, 1) for number in range(10_000)}, Record("keeps the list listed")]
    found = count_types(heap.TOP_MAX, 60.0)
    assert counts(found)["complex"][0] == pytest.approx(10_000, rel=0.1) and found.share < 1 and cache


def test_the_walk_ends_at_its_limit_and_estimates() -> None:
    records = [Record("x") for _ in range(20_000)]
    ticks = itertools.count()
    # The clock moves with each look at it: after 40 looks, about 10,000 objects, the time is over.
    found = count_types(heap.TOP_MAX, 40.0, (), lambda: float(next(ticks)))
    assert 0.1 < found.share < 0.9
    assert counts(found)["Record"][0] == pytest.approx(len(records), rel=0.2)


def test_no_code_of_the_objects_runs() -> None:
    loud = [Loud() for _ in range(10)]
    assert look()["Loud"][0] == len(loud)


def test_a_process_counts_when_it_is_asked_and_can_be_sampled_afterwards(tmp_path: Path) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGUSR2, signal.SIGPROF)]
    ask, answer = sampler.paths_of(str(tmp_path), os.getpid())
    records = [Record("x") for _ in range(100)]
    try:
        sampler.install(str(tmp_path))
        for wanted in ({"heap": {"top": 500, "limit_s": 5}}, {"duration_s": 0.05, "rate": 100, "idle": True}):
            ask.write_text(json.dumps(wanted))
            os.kill(os.getpid(), signal.SIGUSR2)
            wait_for(answer.exists, what="the answer")
            found = json.loads(answer.read_text())
            answer.unlink()
            if "heap" in wanted:
                assert [name.rpartition(".")[2] for name, _, _ in found["types"]].count("Record") == 1
                assert 0 < found["share"] <= 1 and found["seconds"] >= 0
        assert found["rows"] and records
    finally:
        for number, handler in zip((signal.SIGUSR2, signal.SIGPROF), before, strict=True):
            signal.signal(number, handler)
