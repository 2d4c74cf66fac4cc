"""The metrics of one task: system metrics under Heron's names, and the metrics that user code registers.

Counters are totals since the process started; histograms observe a whole chunk of tuples at once,
with its weight, so that measuring costs nothing per tuple. The control thread only reads.
"""

from __future__ import annotations

import gc
import logging
import os
import resource
from bisect import bisect_left
from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from heronpy.api import global_metrics
from heronpy.api.metrics import CountMetric, MultiCountMetric
from heronpy.proto import control_pb2

from .time_use import RecentMax, Sample

#: Minimum seconds between two reports from which a rate is computed. A task's last report may follow sooner.
APART_MIN_S = 0.5


class Traffic(Struct, frozen=True):
    """The totals of a link at one moment: frames with tuples, and the tuples in them."""

    at: float
    """Monotonic seconds."""
    sent_frames: int
    sent_tuples: int
    consumed_frames: int
    consumed_tuples: int


def gauges_between(before: Traffic, now: Traffic) -> dict[str, float] | None:
    """Return the gauges by name; None if the two moments are too close together.

    Tuples per frame are 0 while no frame passes.
    """
    seconds = now.at - before.at
    if seconds < APART_MIN_S:
        return None
    sent, sent_tuples = now.sent_frames - before.sent_frames, now.sent_tuples - before.sent_tuples
    consumed, consumed_tuples = (
        now.consumed_frames - before.consumed_frames,
        now.consumed_tuples - before.consumed_tuples,
    )
    return {
        "__gateway-sent-packets-per-sec": sent / seconds,
        "__gateway-sent-tuples-per-packet": sent_tuples / sent if sent else 0.0,
        "__gateway-consumed-packets-per-sec": consumed / seconds,
        "__gateway-consumed-tuples-per-packet": consumed_tuples / consumed if consumed else 0.0,
    }


log = logging.getLogger("heron.metrics")

#: Upper bounds of latency buckets, in nanoseconds: 1 us to 100 s.
LATENCY_BOUNDS_NS = (*(float(f"{m}e{e}") for e in range(3, 11) for m in (1, 2, 5)), 1e11)
#: A task with more metrics than this drops further keys of its multi-key user metrics.
KEYS_MAX = 1000


def cpu_wait_s() -> float | None:
    """Return the seconds that the main thread was ready but got no CPU; None if the kernel does not report it."""
    try:
        with open("/proc/self/schedstat", encoding="ascii") as schedstat:
            return int(schedstat.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return None


class Histogram:
    """Weighted histogram with fixed bounds."""

    __slots__ = ("bounds", "count", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...] = LATENCY_BOUNDS_NS) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0
        self.count = 0

    def observe(self, value: float, weight: int = 1) -> None:
        self.counts[bisect_left(self.bounds, value)] += weight
        self.sum += value * weight
        self.count += weight

    def observe_each(self, samples: Iterable[tuple[float, int]]) -> None:
        """Observe several values, each with its weight."""
        bounds, counts = self.bounds, self.counts
        total, number = 0.0, 0
        for value, weight in samples:
            counts[bisect_left(bounds, value)] += weight
            total += value * weight
            number += weight
        self.sum += total
        self.count += number

    def fill(self, sample: Any) -> None:
        """Write this histogram into a control_pb2.Sample."""
        sample.type = control_pb2.Sample.HISTOGRAM
        sample.sum, sample.count, sample.value = self.sum, self.count, self.sum
        total = 0
        for bound, count in zip((*self.bounds, float("inf")), self.counts, strict=True):
            total += count
            sample.buckets.add(le=bound, count=total)


#: Metrics that change by themselves, even in a task that does nothing.
RESTLESS = frozenset(
    {
        "__busy-time-ns",
        "__idle-time-ns",
        "__blocked-time-ns",
        "__py-user-cpu-time-secs",
        "__py-sys-cpu-time-secs",
        "__py-cpu-wait-time-secs",
        "__py-virtual-memory-byte",
        "__py-physical-memory-byte",
        "__gateway-in-stream-queue-expected-capacity",
        "__gateway-out-stream-queue-expected-capacity",
    }
)


class KeptSamples:
    """Keeps the last report's samples, so that a report writes only numbers, and only histograms that have grown.

    Creating samples is most of a report's cost, and the next report contains the same samples.
    """

    def __init__(self) -> None:
        self.message = control_pb2.MetricsReport()
        #: True if a sample is new, or has changed since the last report for another reason than time.
        self.moved = True
        self._numbers: dict[tuple[int, tuple[str, str]], control_pb2.Sample] = {}
        self._histograms: dict[tuple[str, str], tuple[control_pb2.Sample, int]] = {}

    def take(self, values: dict[tuple[str, str], float], kind: control_pb2.Sample.Type) -> None:
        """Set the samples of these counters or gauges, which another thread may add to."""
        samples = self._numbers
        for key, value in list(values.items()):
            sample = samples.get((kind, key))
            if sample is None:
                name, label = key
                sample = samples[kind, key] = self.message.samples.add(name=name, label=label, type=kind)
                self.moved = True
            elif sample.value == value:
                continue
            sample.value = value
            self.moved = self.moved or key[0] not in RESTLESS

    def take_histograms(self, histograms: dict[tuple[str, str], Histogram]) -> None:
        for key, histogram in list(histograms.items()):
            sample, count = self._histograms.get(key, (None, -1))
            if histogram.count == count:
                continue
            if sample is None:
                name, label = key
                sample = self.message.samples.add(name=name, label=label)
            self.moved = True
            # Later observations are in the next report.
            self._histograms[key] = sample, histogram.count
            del sample.buckets[:]
            histogram.fill(sample)


class TaskMetrics:
    """The system metrics of one task, under Heron's names."""

    def __init__(self) -> None:
        self.counters: dict[tuple[str, str], float] = {}
        self.gauges: dict[tuple[str, str], float] = {}
        self.histograms: dict[tuple[str, str], Histogram] = {}
        #: The slowest call to `process`, by source.
        self.slowest: dict[str, RecentMax] = {}
        self._traffic: Traffic | None = None
        self._samples = KeptSamples()

    def count(self, name: str, label: str, by: float) -> None:
        key = (name, label)
        self.counters[key] = self.counters.get(key, 0) + by

    def gauge(self, name: str, label: str, value: float) -> None:
        self.gauges[name, label] = value

    def drop_gauge(self, name: str, label: str) -> None:
        """Leave a gauge out of further reports, because its value is no longer known."""
        self.gauges.pop((name, label), None)
        self._samples = KeptSamples()

    def count_to(self, name: str, label: str, total: float) -> None:
        """Set a counter to a total that may arrive late. The counter never falls."""
        key = (name, label)
        self.counters[key] = max(total, self.counters.get(key, 0.0))

    def observe(self, name: str, label: str, value: float, weight: int) -> None:
        self._histogram(name, label).observe(value, weight)

    def _histogram(self, name: str, label: str) -> Histogram:
        histogram = self.histograms.get((name, label))
        if histogram is None:
            histogram = self.histograms[name, label] = Histogram()
        return histogram

    def executed(self, source: str, count: int, took_ns: float, samples: list[Sample], now: float) -> None:
        """Record `count` calls to `process` for a source, `took_ns` in total; `now` is in monotonic seconds."""
        self.count("__execute-count", source, count)
        self.count("__execute-time-ns", source, took_ns)
        histogram, slowest = self._histogram("__execute-latency", source), samples[0][0]
        if len(samples) == 1:
            histogram.observe(slowest, count)
        else:
            histogram.observe_each(samples)
            slowest = max(samples)[0]
        self.slowest_call(source, slowest, now)

    def slowest_call(self, source: str, took_ns: float, now: float) -> None:
        """Record the time of one call to user code for tuples from a source."""
        slowest = self.slowest.get(source)
        if slowest is None:
            slowest = self.slowest[source] = RecentMax()
        slowest.note(took_ns, now)

    def gauge_traffic(self, now: Traffic) -> None:
        """Set the rates of the link since the last call that was long enough ago."""
        found = gauges_between(self._traffic, now) if self._traffic is not None else {}
        if found is not None:
            self._traffic = now
            for name, value in found.items():
                self.gauge(name, "", value)

    def sample_process(self) -> None:
        """Sample the CPU time, memory and garbage collection of this process."""
        usage = resource.getrusage(resource.RUSAGE_SELF)
        self.counters["__py-user-cpu-time-secs", ""] = usage.ru_utime
        self.counters["__py-sys-cpu-time-secs", ""] = usage.ru_stime
        waited_s = cpu_wait_s()
        if waited_s is not None:
            self.counters["__py-cpu-wait-time-secs", ""] = waited_s
        with open("/proc/self/statm", encoding="ascii") as statm:
            virtual, resident = (int(pages) * resource.getpagesize() for pages in statm.read().split()[:2])
        self.gauge("__py-virtual-memory-byte", "", virtual)
        self.gauge("__py-physical-memory-byte", "", resident)
        self.gauge("__py-file-descriptors-count", "", len(os.listdir("/proc/self/fd")))
        for index, (stats, threshold) in enumerate(zip(gc.get_stats(), gc.get_threshold(), strict=True), 1):
            self.counters[f"__py-generation-{index}-count", ""] = stats["collections"]
            self.gauge(f"__py-generation-{index}-collection-threshold", "", threshold)

    @property
    def moved(self) -> bool:
        """True if the figures of the last two reports differ, apart from figures that always change."""
        return self._samples.moved

    def fill(self, report: control_pb2.MetricsReport) -> None:
        """Append all samples to a report. Another thread calls this, so the values are copied first."""
        samples = self._samples
        samples.moved = False
        samples.take(self.counters, control_pb2.Sample.COUNTER)
        samples.take(self.gauges, control_pb2.Sample.GAUGE)
        samples.take_histograms(self.histograms)
        report.samples.extend(samples.message.samples)


class UserMetrics:
    """Metrics that user code registers through its context. The task's thread samples them.

    `get_value_and_reset` is called once per time bucket. Counts are added up into totals; any other
    number is a gauge of the last bucket.
    """

    def __init__(self, sink: TaskMetrics) -> None:
        self._sink = sink
        self._metrics: dict[str, tuple[Any, float]] = {}
        self._due: dict[str, float] = {}
        self._full = False
        #: True if user code has a metric, or has counted with one of `heronpy.api.global_metrics`.
        self.used = False

    def register_metric(self, name: str, metric: Any, time_bucket_in_sec: float) -> None:
        """Register a metric. Raises an error if the name is already registered."""
        if name in self._metrics:
            raise ValueError(f"metric {name!r} is already registered; give each metric a different name")
        self._metrics[name] = (metric, max(0.1, float(time_bucket_in_sec)))
        self.used = self.used or name != global_metrics.root_name
        self._due[name] = 0.0

    def collect(self, now: float, force: bool = False) -> None:
        """Sample the metrics for which the time bucket has ended."""
        for name, (metric, bucket_s) in list(self._metrics.items()):
            if not force and now < self._due[name]:
                continue
            self._due[name] = now + bucket_s
            try:
                value = metric.get_value_and_reset()
            except Exception:
                log.exception("metric %s could not be read", name)
                continue
            counts = isinstance(metric, CountMetric | MultiCountMetric) or "Count" in type(metric).__name__
            self._record(name, "", value, counts)

    def _record(self, name: str, label: str, value: Any, counts: bool) -> None:
        if isinstance(value, dict):
            for key, part in list(value.items()):
                known = (name, str(key)) in self._sink.counters or (name, str(key)) in self._sink.gauges
                if not known and len(self._sink.counters) + len(self._sink.gauges) > KEYS_MAX:
                    self._tell_full(name, str(key))
                    continue
                self._record(name, str(key), part, counts)
        elif isinstance(value, bool | int | float):
            self.used = True
            if counts:
                self._sink.count(name, label, value)
            else:
                self._sink.gauge(name, label, float(value))

    def _tell_full(self, name: str, key: str) -> None:
        if not self._full:
            self._full = True
            log.warning(
                "metric %s: the key %r and further keys are dropped, because the task has more than %d metrics; "
                "use fewer keys",
                name,
                key[:100],
                KEYS_MAX,
            )
