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
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Protocol

import zmq

from heronpy.common import exit_codes
from heronpy.common.setting_types import InstanceSettings
from heronpy.common.units import format_duration
from heronpy.procs import exit_notice

from .control import ControlThread
from .in_batch import InBatch, Part
from .reports import Reported, exception_report
from .tuples import HeronTuple

if TYPE_CHECKING:
    from .poison import PoisonGuard

log = logging.getLogger("heron.instance")

LOOKS_PER_TIMEOUT = 4
#: For the report to reach the executor.
LAST_WORDS_S = 0.5


class Owner(Reported, Protocol):
    """The task that is watched."""

    settings: InstanceSettings
    control: ControlThread


class ExecuteWatch(threading.Thread):
    """`codes` are the runtime's functions whose local `tup` is the tuple that user code processes."""

    def __init__(self, task: Owner, poison: PoisonGuard, codes: frozenset[CodeType]) -> None:
        super().__init__(name="execute-watch", daemon=True)
        self._task = task
        self._poison = poison
        self._codes = codes
        self._timeout_s: float = task.settings.execute_timeout_s
        self._watched = threading.get_ident()
        self._stop = threading.Event()

    def stop(self) -> None:
        self._stop.set()

    def run(self) -> None:
        pause_s = self._timeout_s / LOOKS_PER_TIMEOUT
        seen: Part | None = None
        since = 0.0
        while not self._stop.wait(pause_s):
            if self._task.progress.loop_age_s() < pause_s:
                seen = None
                continue
            now = time.monotonic()
            tup, frames = self._in_hand()
            if tup is None or tup is not seen:
                seen, since = tup, now
            elif now - since >= self._timeout_s:
                self._end(tup, frames, now - since)

    def _in_hand(self) -> tuple[Part | None, list[FrameType]]:
        """The tuple or batch that the task's thread processes, and the frames of user code, innermost first."""
        frame = sys._current_frames().get(self._watched)
        frames: list[FrameType] = []
        while frame is not None:
            if frame.f_code in self._codes:
                tup = frame.f_locals.get("tup")
                return (tup, frames) if frames and isinstance(tup, HeronTuple | InBatch) else (None, [])
            frames.append(frame)
            frame = frame.f_back
        return None, []

    def _end(self, tup: Part, frames: list[FrameType], took_s: float) -> None:
        task = self._task
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
            self._poison.overran(tup, text)
            task.control.publish(exception_report(task, "ExecuteTimeout", message, text))
            task.control.stop(LAST_WORDS_S)
            # The sockets of the hanging thread stay open, so this only gives the others time to empty.
            ending = threading.Thread(target=zmq.Context.instance().term, daemon=True)
            ending.start()
            ending.join(LAST_WORDS_S)
        finally:
            sys.stdout.flush()
            exit_notice.leave(exit_codes.USER_EXCEPTION)


def _summary(frame: FrameType) -> traceback.FrameSummary:
    code = frame.f_code
    return traceback.FrameSummary(code.co_filename, frame.f_lineno, code.co_name)
