"""Lets a process report its activity when its executor requests a report with a signal and a file.

SIGUSR1 prints all stacks. `sample-PID.ask` in the folder with the topology's sockets (mode 0700) selects the action of
SIGUSR2, and `sample-PID.json` contains the result: the objects by type (see `heap`), or stacks. `heron profile` uses
this to sample stacks if py-spy is not installed or may not attach. A CPU-time timer (ITIMER_PROF) takes the samples, in
the main thread between two bytecodes; a sampling thread would run only when the main thread releases the interpreter
lock, and would mostly sample these moments. The weight of a sample is the CPU time that the thread has used since its
previous sample, so waiting threads have no weight.
"""

from __future__ import annotations

import faulthandler
import json
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from msgspec.structs import asdict

from heronpy.common.folders import write_private_text
from heronpy.procs.heap import LIMIT_MAX_S, count_types

_DIGEST = re.compile("[0-9a-f]{64}")
#: Maximum duration and rate of sampling, whatever the request file contains.
DURATION_MAX_S = 600.0
RATE_MAX = 1000
#: Maximum number of distinct stacks, and of frames per stack. Further stacks are counted as discarded, and longer
#: stacks are truncated.
STACKS_MAX = 20_000
DEPTH_MAX = 200
THREAD = "sampler"
#: Frames below a frame of this file belong to the process that forked this one.
_FORKED_BY = str(Path(__file__).with_name("fork_loop.py"))

#: Names, outermost first.
Stack = tuple[str, ...]
#: A stack during sampling, innermost first: the thread, then code and line of each frame.
_Raw = tuple[str, tuple[tuple[CodeType, int], ...]]


def paths_of(folder: str, pid: int) -> tuple[Path, Path]:
    """The paths of the request file and of the result file."""
    return Path(folder) / f"sample-{pid}.ask", Path(folder) / f"sample-{pid}.json"


def install(folder: str, roots: Sequence[object] = ()) -> None:
    """Make SIGUSR1 print the stacks and SIGUSR2 sample this process; call it from the main thread.

    `roots` are additional objects where the count of objects starts (see `heap`).
    """
    running = threading.Lock()
    # faulthandler installs no handler while the fork server's registration exists.
    faulthandler.unregister(signal.SIGUSR1)
    faulthandler.register(signal.SIGUSR1, file=sys.__stderr__ or 2, all_threads=True)

    def start(signum: int, frame: FrameType | None) -> None:
        if not running.acquire(blocking=False):
            return
        try:
            ask, answer = paths_of(folder, os.getpid())
            wanted = json.loads(ask.read_text(encoding="utf-8"))
            if "heap" in wanted:
                found = _count(wanted["heap"], roots)
                # Released first, because a client that has the answer may immediately send its next request.
                running.release()
                _answer(answer, found)
                return
            duration_s, rate = min(float(wanted["duration_s"]), DURATION_MAX_S), min(int(wanted["rate"]), RATE_MAX)
            samples = Samples(waiting=bool(wanted["idle"]))
            if not samples.waiting:
                signal.signal(signal.SIGPROF, samples.take)
                signal.setitimer(signal.ITIMER_PROF, 1 / rate, 1 / rate)
        except (OSError, ValueError, KeyError, TypeError, ZeroDivisionError) as error:
            _complain(error)
            running.release()
            return
        words = samples, duration_s, rate, answer, running
        threading.Thread(target=_finish, args=words, name=THREAD, daemon=True).start()

    signal.signal(signal.SIGUSR2, start)


def _finish(samples: Samples, duration_s: float, rate: int, answer: Path, running: Any) -> None:
    """Wait until the sampling time is over, even if the process uses no CPU, and write the result."""
    try:
        end = time.monotonic() + duration_s
        while (left_s := end - time.monotonic()) > 0:
            time.sleep(min(left_s, 1 / rate) if samples.waiting else left_s)
            if samples.waiting:
                samples.take()
        if not samples.waiting:
            signal.setitimer(signal.ITIMER_PROF, 0)
        rows = [{"stack": stack, "seconds": seconds} for stack, seconds in samples.close().items()]
    finally:
        # Released first, because a client that has the answer may immediately send its next request.
        running.release()
    _answer(answer, {"rows": rows, "discarded": samples.discarded})


def _count(wanted: Mapping[str, Any], roots: Sequence[object]) -> Mapping[str, Any]:
    """Count the objects in the main thread, so that this thread runs no other code meanwhile."""
    top, limit_s = int(wanted["top"]), min(float(wanted["limit_s"]), LIMIT_MAX_S)
    try:
        return asdict(count_types(top, limit_s, roots))
    except MemoryError:
        return {"error": "has no memory left to count its objects"}


def _answer(path: Path, found: Mapping[str, Any]) -> None:
    draft = path.with_suffix(".new")
    try:
        write_private_text(draft, json.dumps(found))
        draft.rename(path)
    except OSError as error:
        _complain(error)


def _complain(error: Exception) -> None:
    print(f"cannot sample this process: {error}", file=sys.stderr, flush=True)


class Samples:
    """Seconds by stack, outermost frame first; each stack begins with the name of its thread."""

    def __init__(self, waiting: bool = False) -> None:
        #: Whether waiting threads count too: then the seconds are wall time, not CPU time.
        self.waiting = waiting
        self.discarded = 0
        self._found: dict[_Raw, float] = {}
        self._closed = False
        self._before: dict[int, float] = {}
        self._last = time.monotonic()
        self._begin = {ident: _cpu_of(ident) for ident in sys._current_frames()}

    def take(self, signum: int = 0, frame: FrameType | None = None) -> None:
        """Take one sample of each thread except the current one; `frame` is where the signal arrived."""
        me, now = threading.get_ident(), time.monotonic()
        gap_s, self._last = now - self._last, now
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        for ident, current in sys._current_frames().items():
            used = _cpu_of(ident)
            weight = gap_s if self.waiting else used - self._before.get(ident, self._begin.get(ident, 0.0))
            self._before[ident] = used
            where = frame if ident == me else current
            if names.get(ident) != THREAD and where is not None and weight > 0 and not self._closed:
                self._add((names.get(ident, f"thread {ident}"), _frames(where)), weight)

    def _add(self, stack: _Raw, weight: float) -> None:
        if stack in self._found or len(self._found) < STACKS_MAX:
            self._found[stack] = self._found.get(stack, 0.0) + weight
        else:
            self.discarded += 1

    def close(self) -> dict[Stack, float]:
        """Stop sampling and return the result."""
        self._closed = True
        return {(thread, *map(_named, reversed(frames))): seconds for (thread, frames), seconds in self._found.items()}


def _cpu_of(ident: int) -> float:
    try:
        return time.clock_gettime(time.pthread_getcpuclockid(ident))
    except OSError:  # it has just ended
        return 0.0


def _frames(frame: FrameType | None) -> tuple[tuple[CodeType, int], ...]:
    found: list[tuple[CodeType, int]] = []
    while frame is not None and len(found) < DEPTH_MAX and frame.f_code.co_filename != _FORKED_BY:
        found.append((frame.f_code, frame.f_lineno))
        frame = frame.f_back
    return tuple(found)


def _named(place: tuple[CodeType, int]) -> str:
    """A frame as text, with only the last two parts of the file's path, to hide the machine's folders.

    The folder of an unpacked package is omitted, because it is only a digest.
    """
    code, line = place
    parts = [part for part in Path(code.co_filename).parts[-2:] if not _DIGEST.fullmatch(part)]
    return f"{code.co_qualname} ({'/'.join(parts)}:{line})"
