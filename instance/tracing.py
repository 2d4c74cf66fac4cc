"""Traces: the time of a tuple, and of the tuples emitted for it, in each part of their path through the graph. Pure.

When it is time for a trace, the spout task makes one separate call to `next_tuple` (`heron.trace.per_s`, over all spout
tasks). The outlets that grew during the call get the trace with the place of the first tuple that was added, and the
frame made of such an outlet carries it (`Frame.trace`). Stream managers append the times at which the frame arrived and
left. A bolt processes the traced tuple separately, and the outlets that grew are traced in turn. Each call creates a
span with its times and the times of the tuple's path to the call; spans are sent with the metrics and are joined at the
topology master.

These parts are not exact:

- Of all tuples that a call emits to one destination, the first tuple represents all. Its time begins at the end of the
  call, or when it left, if that was earlier.
- An outlet has one trace: of two traced tuples in one frame, the later tuple is not followed (SPAN_JOINED).
- A bolt that takes batches processes the batch with the traced tuple as a whole.
- An asynchronous task processes several tuples concurrently: all its emits in that time represent the traced tuple.
- A frame that a stream manager sends again, after an orderly restart of its task, keeps the times of the first send.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np

from heronpy.proto import control_pb2, frame_pb2
from heronpy.task.emitter import Emitter
from heronpy.task.outlets import Outlet
from heronpy.task.tuples import Arrived, Span, TracedFrame
from heronpy.wire.frames import U32, U64

NEVER = float("inf")
#: Maximum number of spans that wait for the next report, and of tuple trees that are followed until their acks.
SPANS_MAX = 100
ROOTS_MAX = 100


class Traced:
    """The facts about a traced tuple in an outlet."""

    __slots__ = ("_tracer", "emitted_ns", "number", "place", "trace")

    def __init__(self, tracer: Tracer, trace: int, number: int, place: int, emitted_ns: int) -> None:
        self._tracer = tracer
        self.trace = trace
        #: The call that emitted it, and the end of that call; 0: it has not ended.
        self.number = number
        self.emitted_ns = emitted_ns
        #: The index of the tuple in the outlet.
        self.place = place

    def seal(self, frame: frame_pb2.Frame, start: int, of_spout: bool) -> TracedFrame:
        """Return the bytes of a complete frame with the outlet's tuples from `start` on."""
        now_ns, index = self._tracer.clock(), self.place - start
        frame.trace, frame.trace_parent, frame.trace_index = self.trace, self.number, index
        frame.trace_clock = self._tracer.clock_id
        frame.trace_emitted = min(self.emitted_ns or now_ns, now_ns)
        frame.trace_sealed = now_ns
        if of_spout:
            root = int(np.frombuffer(frame.roots, dtype=U64)[index]) if frame.roots else frame.root_base + index
            self._tracer.follow(root, self.trace, self.number)
        return TracedFrame(frame.SerializeToString())


class _Call:
    """The traced call in progress, with the sizes of the outlets before the call."""

    __slots__ = ("_tracer", "done", "number", "sizes", "trace")

    def __init__(self, tracer: Tracer, trace: int, number: int, sizes: dict[Outlet, int]) -> None:
        self._tracer = tracer
        self.trace = trace
        self.number = number
        self.sizes = sizes
        #: Outlets that have sent a frame with the trace.
        self.done: set[Outlet] = set()

    def of(self, outlet: Outlet, emitted_ns: int = 0) -> Traced | None:
        place = self.sizes.get(outlet, 0)
        if outlet in self.done or len(outlet) <= place:
            return None
        return Traced(self._tracer, self.trace, self.number, place, emitted_ns)

    def leaving(self, outlet: Outlet) -> Traced | None:
        """Return the trace in an outlet that is about to be sent before the call has ended."""
        found = self.of(outlet) if outlet.trace is None else None
        self.sizes[outlet] = 0
        if found is not None:
            self.done.add(outlet)
        return found


class Tracer:
    """The traces of one task, recorded by the task's thread; the control thread takes the spans."""

    def __init__(
        self, emitter: Emitter, per_s: float, bits: Callable[[], int], clock: Callable[[], int], clock_id: int
    ) -> None:
        """`bits` returns 64 random bits, `clock` monotonic nanoseconds; `clock_id` names the clock of this host."""
        self._emitter = emitter
        self._batches = emitter.batches
        self._bits = bits
        self.clock = clock
        self.clock_id = clock_id
        self._own = per_s
        self._lent, self._lent_until = 0.0, -NEVER
        self._tasks = 1
        #: The time from which the spout must trace its next tuple, in monotonic seconds.
        self.due = 0.0 if per_s else NEVER
        self._spans: deque[Span] = deque(maxlen=SPANS_MAX)
        self.discarded = 0
        #: Tuple trees of traced tuples: root -> (trace, call).
        self.roots: dict[int, tuple[int, int]] = {}

    # ---- when ---------------------------------------------------------------------------------

    def shared_by(self, tasks: int) -> None:
        """Set the number of spout tasks that share the rate."""
        self._tasks = max(1, tasks)

    def lend(self, per_s: float, lease_s: float, now: float) -> None:
        """Trace at this rate, for all spout tasks together, until the lease ends."""
        self._lent, self._lent_until = per_s, now + lease_s
        if per_s > self._own:
            self.due = min(self.due, now + self._pause_s(now))

    def _pause_s(self, now: float) -> float:
        """Return a random pause, so that traces do not fall into step with the source."""
        per_s = max(self._own, self._lent) if now < self._lent_until else self._own
        return self._tasks / per_s * (0.5 + self._bits() / (1 << 64)) if per_s else NEVER

    # ---- calls --------------------------------------------------------------------------------

    def _begin(self, trace: int, number: int) -> None:
        sizes = {outlet: len(outlet) for outlet in self._emitter.outlets() if outlet.flat}
        self._batches.tracing = _Call(self, trace, number, sizes)

    def _end(self, ended_ns: int) -> control_pb2.SpanEnd:
        call, self._batches.tracing = self._batches.tracing, None
        assert isinstance(call, _Call)
        found, joined = bool(call.done), False
        for outlet in self._emitter.outlets():
            traced = call.of(outlet, ended_ns) if outlet.flat else None
            if traced is None:
                continue
            if outlet.trace is None:
                outlet.trace, found = traced, True
            else:
                joined = True
        if found:
            return control_pb2.SPAN_GOES_ON
        if joined:
            return control_pb2.SPAN_JOINED
        return control_pb2.SPAN_HELD if self._emitter.has_consumers() else control_pb2.SPAN_ENDS

    def open(self) -> Span:
        """Begin the trace of a call in which a spout may emit; `close` must follow."""
        span = Span(trace=self._bits() or 1, number=self._bits() or 1, clock=self.clock_id, began=self.clock())
        self._begin(span.trace, span.number)
        return span

    def close(self, span: Span, now: float, wall_s: float) -> bool:
        """Record the end of the call; return whether it has emitted. If so, the next trace is scheduled."""
        span.ended = self.clock()
        span.end = self._end(span.ended)
        if span.end == control_pb2.SPAN_ENDS or span.end == control_pb2.SPAN_HELD:
            return False
        span.at = wall_s - (span.ended - span.began) / 1e9
        span.tuples = 1
        self.due = now + self._pause_s(now)
        self._add(span)
        return True

    def begin(self, arrived: Arrived) -> Span:
        """Begin processing a traced tuple in a bolt; `end` must follow.

        Of several traced tuples in progress, only one is followed.
        """
        span = arrived.span
        span.number, span.clock, span.began = self._bits() or 1, self.clock_id, self.clock()
        if self._batches.tracing is not None:
            span.end = control_pb2.SPAN_JOINED
            return span
        self._begin(span.trace, span.number)
        return span

    def end(self, span: Span, tuples: int = 1) -> None:
        """Record that the traced tuple has been processed, with the number of tuples in the same call."""
        span.ended, span.tuples = self.clock(), tuples
        if span.end != control_pb2.SPAN_JOINED:
            span.end = self._end(span.ended)
        self._add(span)

    # ---- acks ---------------------------------------------------------------------------------

    def follow(self, root: int, trace: int, number: int) -> None:
        """Follow the tuple tree of a traced spout tuple, which has this root."""
        while len(self.roots) >= ROOTS_MAX:
            del self.roots[next(iter(self.roots))]
        self.roots[root] = (trace, number)

    def completed(self, frame: frame_pb2.Frame) -> None:
        """Handle a COMPLETE frame while some trees are followed."""
        first = np.frombuffer(frame.run_first, dtype=U64)
        last = first + np.frombuffer(frame.run_length, dtype=U32)
        for root in list(self.roots):
            value = np.uint64(root)
            if bool(((first <= value) & (value < last)).any()):
                self._settle(root, frame.failed)

    def gave_up(self, base: int, count: int) -> None:
        """Record that the spout has failed trees of consecutive roots."""
        for root in list(self.roots):
            if base <= root < base + count:
                self._settle(root, failed=True)

    def _settle(self, root: int, failed: bool) -> None:
        trace, parent = self.roots.pop(root)
        self._add(
            Span(
                trace=trace,
                number=self._bits() or 1,
                parent=parent,
                end=control_pb2.SPAN_FAILED if failed else control_pb2.SPAN_ACKED,
                ended=self.clock(),
                clock=self.clock_id,
            )
        )

    # ---- reports ------------------------------------------------------------------------------

    def _add(self, span: Span) -> None:
        self.discarded += len(self._spans) == SPANS_MAX
        self._spans.append(span)

    def take(self) -> list[Span]:
        """Return the spans since the last call."""
        found = []
        while self._spans:
            found.append(self._spans.popleft())
        return found


class LatencyMarkers:
    """Decides when a task marks its frames; `due` is in monotonic seconds, and origins are in nanoseconds since the
    epoch.

    Some frames carry the time at which their spout tuple was emitted. A spout marks its frames for some milliseconds,
    `heron.trace.per_s` times a second, with the start time of the loop turn that emitted their first tuple. A task
    that processes tuples of a marked frame marks the outlets that grew in that time, so the time is passed on. If
    nothing was emitted for them, the path of the tuples has ended, and their age is a sample of the end-to-end latency.
    That works in every mode, with and without acks.

    No task marks more often than `per_s`; otherwise each grouping would multiply the marks. The intervals are
    irregular, so that they do not fall into step with the sources of a task.

    Limits of the samples:

    - The first tuple of a frame counts for all its tuples: their age is too large by the time to fill the frame (at
      most a few times `heron.instance.linger_max_us`) and a turn. The time of the call to next_tuple itself counts, so
      a spout that blocks in its source seems slow.
    - In the middle of the graph the outlets that a marked chunk of tuples has reached are marked as a whole; an outlet
    that is marked twice keeps its first mark.
    - Time in a window or a state is not measured: the path of a tuple ends there. Tuples that are emitted on a tick, or
      at the end of the input, have no mark; tuples that a tuple triggers have its mark.
    - An asynchronous bolt processes many tuples at once: all frames that it sends while a marked tuple is in progress
      get the mark, and only a bolt without consumers ends a path.
    - A tuple that is emitted again, after a failure or a restore, counts from the new emit.
    - Clocks of several hosts may differ; an age below zero counts as zero.
    """

    def __init__(self, emitter: Emitter, per_s: float, bits: Callable[[], int]) -> None:
        """`bits` returns 64 random bits."""
        self._emitter = emitter
        self._batches = emitter.batches
        self._pause_s = 1 / per_s if per_s else NEVER
        self._bits = bits
        #: The time from which the next mark may be made.
        self.due = 0.0 if per_s else NEVER
        #: The outlets that contained tuples when `begin` was called, and the number of their sends by then.
        self._sizes: dict[Outlet, int] = {}
        self._flushes = 0
        #: The origins of the marked tuples that an asynchronous bolt has in progress.
        self._beside: list[int] = []

    def _made(self, now: float) -> None:
        self.due = now + self._pause_s * (0.5 + self._bits() / (1 << 64))

    # ---- spouts -------------------------------------------------------------------------------

    def open(self, now: float, wall_ns: int) -> None:
        """Begin a turn that may need a mark: tuples emitted from here on carry the mark. Call this in each such turn.
        If tuples of earlier turns wait, an outlet gets the mark with its first tuple after its next send, because a
        task that emits all the time may never have an empty outlet.
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
        """Replace the mark of an earlier turn in empty outlets; 0 removes it."""
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
        """Begin processing a marked frame's tuples; `end` must follow."""
        batches = self._batches
        self._sizes = {outlet: len(outlet) for outlet in self._emitter.outlets() if outlet.flat}
        self._flushes = batches.flushes
        batches.origin_ns = origin_ns if now >= self.due else 0

    def end(self, now: float) -> bool:
        """End processing these tuples; return whether nothing was emitted, so that their path ends here."""
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
        """Begin processing a marked tuple while other tuples are in progress; return True if its mark is passed on, so
        `part` must follow."""
        if now < self.due:
            return False
        self._made(now)
        self._beside.append(origin_ns)
        self._batches.origin_ns = min(self._beside)
        return True

    def part(self, origin_ns: int) -> None:
        """Record that a marked tuple for which `join` returned True has been processed."""
        self._beside.remove(origin_ns)
        self._batches.origin_ns = min(self._beside, default=0)
        for outlet in self._emitter.outlets():
            if outlet.flat:
                outlet.origin_ns = outlet.origin_ns or origin_ns
