"""Marks, from which latency is measured end to end: some frames say when the spout tuple behind them was emitted. Pure.

A spout marks what it sends for some milliseconds, `heron.trace.per_s` times a second: the frames carry the time at
which the turn of its loop began that emitted their first tuple. A task that processes tuples of a marked frame
marks the outlets that grew meanwhile, so the time travels on; where nothing was emitted for them, the path of the
tuples has ended, and their age is a sample of the latency end to end. It is so in any mode, with and without acks.

No task marks more often than `per_s`, or each grouping would multiply the marks. The intervals are irregular, so that
they do not fall into step with the sources of a task.

What the samples say, and what not:

- The first tuple of a frame counts for all of them: they are too old by the time it took to fill the frame, a few
  times `heron.instance.linger_max_us` at most, and a turn. The time of the call of next_tuple itself counts, so a
  spout that blocks in its source seems slow.
- In the middle of the graph the outlets that a marked chunk of tuples has reached are marked as a whole, and of two
  marks the first one stays.
- What a window or a state holds back is not measured: where a tuple is put into it, its path ends. What is
  emitted on a tick, or at the end of the input, has no mark; what a tuple triggers has the mark of that tuple.
- An asynchronous bolt processes many tuples at once: whatever it sends while a marked one is in progress gets the
  mark, and only a bolt without consumers ends a path.
- A tuple that is emitted again, after a failure or a restore, counts from the new emit.
- Clocks of several hosts may differ; an age below zero counts as zero.
"""

from __future__ import annotations

from collections.abc import Callable

from .emitter import Emitter
from .outlets import Outlet

NEVER = float("inf")


class LatencyMarkers:
    """When a task marks what it emits; `due` is in monotonic seconds, origins are in nanoseconds since the epoch."""

    def __init__(self, emitter: Emitter, per_s: float, bits: Callable[[], int]) -> None:
        """`bits` gives 64 random bits."""
        self._emitter = emitter
        self._batches = emitter.batches
        self._pause_s = 1 / per_s if per_s else NEVER
        self._bits = bits
        #: From when on the next mark may be made.
        self.due = 0.0 if per_s else NEVER
        #: The outlets that held something when `begin` was called, and how often any was sent by then.
        self._sizes: dict[Outlet, int] = {}
        self._flushes = 0
        #: The origins of the marked tuples that an asynchronous bolt has in progress.
        self._beside: list[int] = []

    def _made(self, now: float) -> None:
        self.due = now + self._pause_s * (0.5 + self._bits() / (1 << 64))

    # ---- spouts -------------------------------------------------------------------------------

    def open(self, now: float, wall_ns: int) -> None:
        """A turn begins, and a mark is due: what is emitted from here on carries it. To be called in each such turn.

        While tuples wait from earlier turns, an outlet gets the mark with the first tuple after it was sent: a task
        that emits all the time may never be without any.
        """
        batches = self._batches
        if batches.marked:
            self._sent(now)
        elif not self._emitter.dirty():
            self._renew(0)
            batches.origin_ns = wall_ns
        elif not batches.origin_ns:
            self._renew(wall_ns)

    def _renew(self, wall_ns: int) -> None:
        """Outlets that hold nothing do not keep the mark of an earlier turn."""
        self._batches.renewed_ns = wall_ns
        for outlet in self._emitter.outlets():
            if outlet.origin_ns and not outlet.flat:
                outlet.origin_ns = wall_ns

    def _sent(self, now: float) -> None:
        self._renew(0)
        self._batches.origin_ns, self._batches.marked = 0, False
        self._made(now)

    # ---- bolts --------------------------------------------------------------------------------

    def begin(self, origin_ns: int, now: float) -> None:
        """Tuples of a marked frame are processed from here on; `end` must follow."""
        batches = self._batches
        self._sizes = {outlet: len(outlet) for outlet in self._emitter.outlets() if outlet.flat}
        self._flushes = batches.flushes
        batches.origin_ns = origin_ns if now >= self.due else 0

    def end(self, now: float) -> bool:
        """They are processed; whether nothing was emitted for them, so that their path ends here."""
        batches = self._batches
        origin_ns, batches.origin_ns = batches.origin_ns, 0
        grown = [o for o in self._emitter.outlets() if o.flat and len(o) != self._sizes.get(o, 0)]
        self._sizes = {}
        if not grown and batches.flushes == self._flushes:
            return True
        if origin_ns:
            for outlet in grown:
                outlet.origin_ns = outlet.origin_ns or origin_ns
            self._made(now)
        return False

    def join(self, origin_ns: int, now: float) -> bool:
        """A marked tuple is processed beside others; True if its mark travels on, then `part` must follow."""
        if now < self.due:
            return False
        self._made(now)
        self._beside.append(origin_ns)
        self._batches.origin_ns = min(self._beside)
        return True

    def part(self, origin_ns: int) -> None:
        """That tuple is processed."""
        self._beside.remove(origin_ns)
        self._batches.origin_ns = min(self._beside, default=0)
        for outlet in self._emitter.outlets():
            if outlet.flat:
                outlet.origin_ns = outlet.origin_ns or origin_ns
