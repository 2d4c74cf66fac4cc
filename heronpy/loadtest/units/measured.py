"""The CPU time of a contender that is no topology, without its start.

It prints `ready`, waits for a line, works, prints `done`, and waits for the end of its input. The CPU time is that of
all processes below it between these two, also of those that have ended meanwhile.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

import psutil

from heronpy.loadtest.cluster import LoadTestError

READY, DONE = "ready", "done"
START_S = 240.0
_KEPT_LINES, _LISTEN_S = 20, 5.0


class _NotDoneError(Exception):
    """Why a contender has not said its word."""


def tree_cpu_s(pid: int) -> float:
    """CPU seconds so far of a process and all below it, with those that its processes have waited for."""
    total = 0.0
    with suppress(psutil.Error):
        root = psutil.Process(pid)
        for process in (root, *root.children(recursive=True)):
            with suppress(psutil.Error):
                times = process.cpu_times()
                total += times.user + times.system + times.children_user + times.children_system
    return total


def measured(command: Sequence[str], name: str, deadline_s: float) -> float:
    """Run a contender; its CPU seconds. LoadTestError when it fails or is late."""
    with subprocess.Popen(
        list(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        said: list[str] = []
        errors = process.stderr
        listener = threading.Thread(target=lambda: keep_last(errors, said), daemon=True)
        listener.start()
        try:
            _wait_for(process, READY, START_S)
            before = tree_cpu_s(process.pid)
            process.stdin.write("go\n")
            process.stdin.flush()
            _wait_for(process, DONE, deadline_s)
            after = tree_cpu_s(process.pid)
            process.stdin.close()
            process.wait(START_S)
        except (_NotDoneError, OSError, subprocess.TimeoutExpired) as error:
            _end(process)
            listener.join(_LISTEN_S)  # its last lines are the reason
            raise LoadTestError("\n".join([f"the contender '{name}' {error}", *said])) from None
        finally:
            _end(process)
            listener.join(_LISTEN_S)
    return after - before


def serve(prepare: Callable[[], Callable[[], None]]) -> None:
    """The contender's side: prepare, then work when told so."""
    work = prepare()
    print(READY, flush=True)
    if not sys.stdin.readline():
        return
    work()
    print(DONE, flush=True)
    sys.stdin.read()


def keep_last(lines: Iterable[str], kept: list[str]) -> None:
    """Read to the end, and keep the last lines."""
    with suppress(ValueError):  # closed: a process that the contender left holds the other end, and nobody waits longer
        for line in lines:
            kept.append(line.rstrip())
            del kept[:-_KEPT_LINES]


def _wait_for(process: subprocess.Popen[str], word: str, seconds: float) -> None:
    late = threading.Event()

    def give_up() -> None:
        late.set()
        _end(process)

    timer = threading.Timer(seconds, give_up)
    timer.start()
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if line.strip() == word:
                return
    finally:
        timer.cancel()
    raise _NotDoneError(f"was not {word} after {seconds:g} s" if late.is_set() else "has ended")


def _end(process: subprocess.Popen[str]) -> None:
    """It and all below it."""
    below: list[psutil.Process] = []
    with suppress(psutil.Error):
        below = psutil.Process(process.pid).children(recursive=True)
    if process.poll() is None:
        process.kill()
    for one in below:
        with suppress(psutil.Error):
            one.kill()
