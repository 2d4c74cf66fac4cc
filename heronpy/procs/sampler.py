"""A process that samples its own stacks when somebody of its own user asks, with a signal and a file.

The way of `heron profile` where py-spy is not installed. `sample-PID.ask` in the folder of the topology's
sockets (0700) says how long and how often; SIGUSR2 begins; `sample-PID.json` has the result. A timer of
the CPU time that is used (ITIMER_PROF) takes the samples, in the main thread between two bytecodes; a thread
would run whenever the main one releases the interpreter lock, and see little but that. A sample of a thread
weighs the CPU time that it has used since the one before, so threads that wait weigh nothing.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from heronpy.common.folders import write_private_text

#: Nobody samples for longer than this, whatever the file says, nor more often.
DURATION_MAX_S = 600.0
RATE_MAX = 1000
#: Different stacks that are kept, and frames of each; what is beyond is counted as discarded, or cut.
STACKS_MAX = 20_000
DEPTH_MAX = 200
THREAD = "sampler"
#: What is below a frame of this file is the process that this one was forked from.
_FORKED_BY = str(Path(__file__).with_name("fork_loop.py"))

#: Names, outermost first.
Stack = tuple[str, ...]
#: The same while it is taken, innermost first: the thread, then code and line of each frame.
_Raw = tuple[str, tuple[tuple[CodeType, int], ...]]


def paths_of(folder: str, pid: int) -> tuple[Path, Path]:
    """The files of the question and of the answer."""
    return Path(folder) / f"sample-{pid}.ask", Path(folder) / f"sample-{pid}.json"


def install(folder: str) -> None:
    """From now on SIGUSR2 samples this process; to be called by its main thread."""
    running = threading.Lock()

    def start(signum: int, frame: FrameType | None) -> None:
        if not running.acquire(blocking=False):
            return
        try:
            ask, answer = paths_of(folder, os.getpid())
            wanted = json.loads(ask.read_text(encoding="utf-8"))
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
    """Wait for the end, also of a process that uses no CPU, and write the answer."""
    try:
        end = time.monotonic() + duration_s
        while (left_s := end - time.monotonic()) > 0:
            time.sleep(min(left_s, 1 / rate) if samples.waiting else left_s)
            if samples.waiting:
                samples.take()
        if not samples.waiting:
            signal.setitimer(signal.ITIMER_PROF, 0)
        rows = [{"stack": stack, "seconds": seconds} for stack, seconds in samples.close().items()]
        draft = answer.with_suffix(".new")
        write_private_text(draft, json.dumps({"rows": rows, "discarded": samples.discarded}))
        draft.rename(answer)
    except OSError as error:
        _complain(error)
    finally:
        running.release()


def _complain(error: Exception) -> None:
    print(f"cannot sample this process: {error}", file=sys.stderr, flush=True)


class Samples:
    """Seconds by stack, outermost frame first; each stack begins with the name of its thread."""

    def __init__(self, waiting: bool = False) -> None:
        #: Whether threads that wait count, too: then the seconds are those of a clock, not of the CPU.
        self.waiting = waiting
        self.discarded = 0
        self._found: dict[_Raw, float] = {}
        self._closed = False
        self._before: dict[int, float] = {}
        self._last = time.monotonic()
        self._begin = {ident: _cpu_of(ident) for ident in sys._current_frames()}

    def take(self, signum: int = 0, frame: FrameType | None = None) -> None:
        """One sample of each thread but our own; `frame` is where a signal came."""
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
        """What was found; a signal that comes later changes nothing."""
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
    """The last two parts of a path tell files apart, and say nothing of whose machine it is."""
    code, line = place
    return f"{code.co_qualname} ({'/'.join(Path(code.co_filename).parts[-2:])}:{line})"
