"""The slow tuples of a task: which calls of `process` took longer than `heron.instance.slow_ms`, and for what value.

The slowest `KEPT` of the last hour are kept; the others are counted only. Where each call is timed, because calls are
slow or few, the tuple is known. In a chunk of quick calls nobody looks at the clock in between (execute_times.py), so
the control thread looks from time to time which tuple is in hand, and a tuple that it has seen in a chunk that turns
out to hold a slow call is that one. What it did not see is kept without a value: a call that held the interpreter's
lock all the time, or one of the first second after a pause.

Pure but for the line in the log, of which there is one in `LOG_EVERY_S`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from operator import sub
from reprlib import Repr

from heronpy.common.units import format_duration
from heronpy.proto import control_pb2

from .execute_times import Sample
from .in_batch import Part
from .tuples import HeronTuple

log = logging.getLogger("heron.instance")

KEPT = 16
KEEP_S = 3600.0
VALUE_LETTERS = 200
LOG_EVERY_S = 10.0
#: The calls of a chunk of at most so many tuples are timed one by one: that costs less than the frame around them.
FEW = 8
#: The control thread looks this many times while a call becomes slow, and until this long after the last blind chunk.
LOOKS = 2
LOOK_MIN_S = 0.01
PARK_S = 1.0
NEVER = float("inf")


class _Short(Repr):
    """`repr` that never looks at more of a value than it shows."""

    def repr_bytes(self, value: bytes, level: int) -> str:
        return repr(bytes(value[:VALUE_LETTERS]))

    repr_bytearray = repr_bytes


_shown = _Short()
_shown.maxlevel = 4
_shown.maxstring = _shown.maxother = _shown.maxlong = VALUE_LETTERS
_shown.maxlist = _shown.maxtuple = _shown.maxdict = _shown.maxset = _shown.maxfrozenset = _shown.maxdeque = 20


def shown(values: object) -> str:
    """The values of a tuple as text, `VALUE_LETTERS` at most; never raises, whatever their `__repr__` does."""
    try:
        text = _shown.repr(values)
    except Exception as error:
        text = f"<values whose repr() raises {type(error).__name__}>"
    return text if len(text) <= VALUE_LETTERS else f"{text[: VALUE_LETTERS - 1]}…"


class SlowTuples:
    """Of one task. Its thread calls all but `look`, which the control thread calls. Times are in nanoseconds."""

    def __init__(self, limit_ms: float, count: Callable[[str, str, float], None]) -> None:
        #: Calls that take longer are slow.
        self.limit_ns = limit_ms * 1e6 if limit_ms else NEVER
        #: When the last chunk began in which calls are not timed, in monotonic seconds.
        self.blind_at = -NEVER
        #: Gives the tuple that user code has in hand.
        self.in_hand: Callable[[], Part | None] = lambda: None
        #: The slowest first; replaced as a whole, so that any thread may read it.
        self.kept: tuple[control_pb2.SlowTuple, ...] = ()
        self._count = count
        self._look_s = max(LOOK_MIN_S, limit_ms / 1000 / LOOKS)
        self._park_s = max(PARK_S, limit_ms / 1000) if limit_ms else -NEVER
        self._seen: deque[Part] = deque(maxlen=KEPT)
        self._logged_at = -NEVER
        self._unlogged = 0

    # ---- the control thread -------------------------------------------------------------------

    def look(self, now: float) -> float:
        """See what is in hand, if it has been for long; when to look again at the latest, in monotonic seconds."""
        age = now - self.blind_at
        if age > self._park_s:
            return NEVER
        if age >= self._look_s:
            self._note()
        return now + self._look_s

    def _note(self) -> None:
        tup = self.in_hand()
        if tup is not None and not any(tup is seen for seen in self._seen):
            self._seen.append(tup)

    # ---- the task's thread --------------------------------------------------------------------

    def call(self, tup: HeronTuple, took_ns: float, at: float, tuples: int = 1) -> None:
        """One call was slow: for a tuple, or for a batch of `tuples` of which it is the first. `at` is wall time."""
        self._add(tup, took_ns, at, tuples, shown(tup.values))

    def chunk(
        self, part: Sequence[HeronTuple], took_ns: float, samples: list[Sample], stamps: Sequence[int], at: float
    ) -> None:
        """Calls for these tuples took longer together than one may; `samples` and `stamps` as in ExecuteTimes."""
        seen, limit = list(self._seen), self.limit_ns
        self._seen.clear()
        if len(part) == 1:
            self.call(part[0], took_ns, at)
        elif len(stamps) > 1:
            for tup, took, end in zip(part, map(sub, stamps[1:], stamps), stamps[1:]):
                if took > limit:
                    self.call(tup, took, at - (stamps[-1] - end) / 1e9)
        elif (slowest := max(samples)[0]) > limit:
            found = next((tup for tup in part if any(tup is one for one in seen)), None)
            if found is not None:
                self.call(found, slowest, at)
            else:
                self._add(part[0], slowest, at, len(part), "")

    def _add(self, tup: HeronTuple, took_ns: float, at: float, tuples: int, value: str) -> None:
        source = f"{tup.component}/{tup.stream}"
        self._count("__slow-tuples", source, 1)
        self._tell(source, tup.task, took_ns, at)
        fresh = control_pb2.SlowTuple(
            at=at, source=source, source_task=tup.task, took_s=took_ns / 1e9, value=value, tuples=tuples
        )
        kept = [one for one in self.kept if one.at > at - KEEP_S]
        self.kept = tuple(sorted((*kept, fresh), key=lambda one: -one.took_s)[:KEPT])

    def _tell(self, source: str, task: int, took_ns: float, at: float) -> None:
        if self._logged_at <= at < self._logged_at + LOG_EVERY_S:
            self._unlogged += 1
            return
        more = f"; {self._unlogged} more since the last such line" if self._unlogged else ""
        log.warning(
            "process() took %s for a tuple of %s from task %d, and heron.instance.slow_ms is %s; "
            "'heron slow' shows its value%s",
            format_duration(took_ns / 1e9),
            source,
            task,
            format_duration(self.limit_ns / 1e9),
            more,
        )
        self._logged_at, self._unlogged = at, 0
