"""Whether a thread has slept: waiting counts, computing and losing the core do not."""

from __future__ import annotations

import os
import threading

from instance.awake import Sleeps


def test_waiting_for_another_thread_is_sleep() -> None:
    sleeps, gate = Sleeps(), threading.Event()
    for _ in range(100):
        waker = threading.Timer(0.01, gate.set)
        waker.start()
        assert gate.wait(10)
        waker.join()
        if sleeps.any():
            break
    assert sleeps.any()
    sleeps.forget()
    assert not sleeps.any()


def test_a_thread_that_always_has_work_has_not_slept() -> None:
    sleeps = Sleeps()
    for _ in range(20):  # others may have made it wait for the interpreter
        sleeps.forget()
        sum(range(100_000))
        os.sched_yield()
        if not sleeps.any():
            return
    raise AssertionError("computing counted as sleep, 20 times")
