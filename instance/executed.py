"""What the calls of user code for the tuples of a bolt count as, by source: number, time, latency, the slowest one."""

from __future__ import annotations

from collections.abc import Sequence

from .execute_times import ExecuteTimes, Sample, by_stream
from .in_batch import InBatch
from .metrics import TaskMetrics
from .tuples import HeronTuple


class Executed:
    """The account of one bolt task, for its thread. Times are in nanoseconds, and `now` in monotonic seconds."""

    def __init__(self, metrics: TaskMetrics) -> None:
        self._metrics = metrics
        self._times = ExecuteTimes()

    def singly(self, source: str) -> bool:
        """Whether each call for tuples of this source, "component/stream", is to be timed."""
        return self._times.singly(source)

    def chunk(
        self, source: str, first: HeronTuple, count: int, took_ns: float, stamps: Sequence[int], now: float
    ) -> list[Sample]:
        """Calls for the tuples from `first` on, all of one frame: `source` is its first stream.

        `stamps` as in ExecuteTimes. Returns what they count as.
        """
        samples = self._times.samples(source, count, took_ns, stamps)
        streams = first.frame.streams
        if streams is None:
            self._metrics.executed(source, count, took_ns, samples, now)
            return samples
        for stream, own in by_stream(streams[first.index : first.index + count], samples).items():
            number, own_ns = sum(n for _, n in own), sum(each * n for each, n in own)
            self._metrics.executed(f"{first.frame.component}/{stream}", number, own_ns, own, now)
        return samples

    def call(self, tup: HeronTuple, took_ns: float, now: float) -> None:
        """One call, beside others."""
        sample: Sample = (took_ns, 1)
        self._metrics.executed(f"{tup.component}/{tup.stream}", 1, took_ns, [sample], now)

    def batch(self, batch: InBatch, took_ns: float, now: float) -> None:
        """One call for many tuples; how its time spreads over them is not known."""
        source, count = f"{batch.component}/{batch.stream}", len(batch)
        self._metrics.executed(source, count, took_ns, [(took_ns / count, count)], now)
        self._metrics.slowest_call(source, took_ns, now)

    def path_ended(self, first: HeronTuple, count: int, wall_ns: int) -> None:
        """Tuples of a marked frame, from `first` on, went no further: their age is a latency end to end.

        `wall_ns` is now, in nanoseconds since the epoch.
        """
        age_ns = max(0, wall_ns - first.frame.origin_ns)
        self._metrics.observe("__end-to-end-latency", f"{first.component}/{first.stream}", age_ns, count)
