"""Ends a task whose `process` lasts too long for one tuple (F19, heron.instance.execute_timeout_s).

A thread periodically reads from the stack of the task's thread which tuple it is processing, so that the calls
themselves cost nothing. A tuple that is seen in progress twice, with the timeout in between, has used
up its time: it is charged, its stack is reported as an exception, and this thread ends the process,
because the task's own thread hangs. User code that holds the interpreter lock
also stops this thread; that is what heron.instance.hang_timeout_s is for.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Protocol

import zmq

from heronpy.common import exit_codes
from heronpy.common.units import format_duration
from heronpy.procs import exit_notice
from heronpy.proto import control_pb2

from .progress import Progress, TaskName
from .reports import exception_report
from .tuples import HeronTuple, InBatch, Part

log = logging.getLogger("heron.instance")

LOOKS_PER_TIMEOUT = 4
#: For the report to reach the executor.
LAST_WORDS_S = 0.5


class LastWords(Protocol):
    """Who passes on why the task ends."""

    def publish(self, message: control_pb2.ExceptionReport) -> None: ...

    def stop(self, timeout_s: float) -> None: ...


class ExecuteWatch(threading.Thread):
    """Watches the thread that makes it."""

    def __init__(
        self,
        name: TaskName,
        progress: Progress,
        timeout_s: float,
        code: CodeType,
        overran: Callable[[Part, str], None],
        control: LastWords,
    ) -> None:
        """`code` is the runtime's function whose local `tup` is the tuple that user code processes."""
        super().__init__(name="execute-watch", daemon=True)
        self._task = name
        self._progress = progress
        self._timeout_s = timeout_s
        self._code = code
        self._overran = overran
        self._control = control
        self._watched = threading.get_ident()
        self._stop = threading.Event()

    def stop(self) -> None:
        self._stop.set()

    def run(self) -> None:
        pause_s = self._timeout_s / LOOKS_PER_TIMEOUT
        seen: Part | None = None
        since = 0.0
        while not self._stop.wait(pause_s):
            if self._progress.loop_age_s() < pause_s:
                seen = None
                continue
            now = time.monotonic()
            tup, frames = in_hand(self._watched, self._code)
            if tup is None or tup is not seen:
                seen, since = tup, now
            elif now - since >= self._timeout_s:
                self._end(tup, frames, now - since)

    def _end(self, tup: Part, frames: list[FrameType], took_s: float) -> None:
        stack = "".join(traceback.format_list([_summary(frame) for frame in reversed(frames)]))
        what = "process() has lasted {} for a tuple"
        if isinstance(tup, InBatch):
            what = f"process_batch() has lasted {{}} for {len(tup)} tuples"
        message = (
            f"{what.format(format_duration(took_s))} of {tup.component}/{tup.stream},"
            f" and heron.instance.execute_timeout_s is {format_duration(self._timeout_s)}"
        )
        text = f"Traceback (most recent call last):\n{stack}ExecuteTimeout: {message}"
        log.error("%s", text)
        try:
            self._overran(tup, text)
            self._control.publish(exception_report(self._task, "ExecuteTimeout", message, text))
            self._control.stop(LAST_WORDS_S)
            # The sockets of the hanging thread stay open, so this only gives the others time to empty.
            ending = threading.Thread(target=zmq.Context.instance().term, daemon=True)
            ending.start()
            ending.join(LAST_WORDS_S)
        finally:
            sys.stdout.flush()
            exit_notice.leave(exit_codes.USER_EXCEPTION)


def in_hand(thread: int, code: CodeType) -> tuple[Part | None, list[FrameType]]:
    """The tuple or batch that a task's thread gave to user code, and the frames of user code, innermost first.

    `code` is of the runtime's function whose local `tup` is that tuple. None when no user code runs.
    """
    frame = sys._current_frames().get(thread)
    frames: list[FrameType] = []
    while frame is not None:
        if frame.f_code is code:
            tup = frame.f_locals.get("tup")
            return (tup, frames) if frames and isinstance(tup, HeronTuple | InBatch) else (None, [])
        frames.append(frame)
        frame = frame.f_back
    return None, []


def _summary(frame: FrameType) -> traceback.FrameSummary:
    code = frame.f_code
    return traceback.FrameSummary(code.co_filename, frame.f_lineno, code.co_name)
