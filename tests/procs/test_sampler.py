"""A process that samples itself: CPU goes to the stacks that use it, waiting to nobody, and nothing is left on."""

from __future__ import annotations

import inspect
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from heronpy.procs import sampler
from tests.support.waiting import wait_for


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGUSR2, signal.SIGPROF)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def burn(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        sum(range(1000))


def asked(folder: Path, work: Any = None, **wanted: Any) -> list[dict[str, Any]]:
    """Ask this process for samples of itself; the rows of the answer."""
    ask, answer = sampler.paths_of(str(folder), os.getpid())
    ask.write_text(json.dumps({"duration_s": 0.4, "rate": 500, "idle": False, **wanted}))
    sampler.install(str(folder))
    os.kill(os.getpid(), signal.SIGUSR2)
    if work is not None:
        work()
    wait_for(answer.exists, what="the answer")
    assert signal.getitimer(signal.ITIMER_PROF) == (0.0, 0.0), "the timer is off again"
    rows: list[dict[str, Any]] = json.loads(answer.read_text())["rows"]
    return rows


def share(rows: list[dict[str, Any]], name: str) -> float:
    total = sum(row["seconds"] for row in rows)
    return sum(row["seconds"] for row in rows if any(frame.startswith(name) for frame in row["stack"])) / total


def test_cpu_is_found_where_it_is_used(tmp_path: Path) -> None:
    rows = asked(tmp_path, lambda: burn(0.5))
    assert share(rows, "burn (procs/test_sampler.py:") > 0.9
    assert {row["stack"][0] for row in rows} == {"MainThread"}
    used = sum(row["seconds"] for row in rows)
    # How much CPU a busy machine gives in the time of the samples is not known; each is worth 2 ms of it.
    assert 0 < used < 1.0, "seconds of CPU, not numbers of samples"


def test_threads_that_wait_count_only_when_asked(tmp_path: Path) -> None:
    done = threading.Event()

    def resting() -> None:
        done.wait(30)

    thread = threading.Thread(target=resting, name="rest")
    thread.start()
    try:
        rows = asked(tmp_path, lambda: burn(0.5))
        assert share(rows, "rest") < 0.01
        sampler.paths_of(str(tmp_path), os.getpid())[1].unlink()
        rows = asked(tmp_path, idle=True)
        assert share(rows, "rest") > 0.3
    finally:
        done.set()
        thread.join()


@pytest.mark.parametrize("text", ["", "{}", '{"duration_s": 1, "rate": 0, "idle": false}', "[1]"])
def test_a_question_that_makes_no_sense_is_refused_and_the_next_one_is_answered(
    tmp_path: Path, text: str, capfd: pytest.CaptureFixture[str]
) -> None:
    sampler.paths_of(str(tmp_path), os.getpid())[0].write_text(text)
    sampler.install(str(tmp_path))
    os.kill(os.getpid(), signal.SIGUSR2)
    wait_for(lambda: "cannot sample this process" in capfd.readouterr().err, what="the complaint")
    assert asked(tmp_path, lambda: burn(0.5))


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler, "STACKS_MAX", 1)
    monkeypatch.setattr(sampler, "DEPTH_MAX", 3)
    samples = sampler.Samples(waiting=True)

    def deep(level: int) -> None:
        if level:
            deep(level - 1)
        else:
            frame = inspect.currentframe()
            time.sleep(0.001)
            samples.take(0, frame)

    for level in (5, 6, 7):
        deep(level)
    samples.take(0, inspect.currentframe())
    found = samples.close()
    assert len(found) == 1 and samples.discarded >= 1
    assert all(len(stack) <= 1 + 3 for stack in found)
