"""The last hours of every metric, in bounded memory. Pure.

Each series is a step function: a value is stored when it changes, at most once per time bucket. A series that grows
too long drops every second step of its older half, so older data has a coarser resolution. Steps older than `keep_s`
are dropped. Counters and histograms continue across restarts of their process: the counts of earlier incarnations are
kept as a base. The counts of tasks that an update has removed are kept as sums by component. A new topology master
continues with its predecessor's counts. Invariants: times and totals of a series never decrease; at most
`series_max` series are kept, and samples of further series are counted in `discarded`.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from heronpy.metrics import ledger
from heronpy.proto import control_pb2

#: Number of steps at which a series is thinned.
STEPS_MAX = 240
#: Seconds after a restart of the topology master within which processes send their first report.
RESUME_S = 30.0
#: Seconds of silence after which a removed process counts as ended; until then it may drain or send its last counts.
LEAVE_S = 10.0

#: Counters of which at least one grows if a task has worked.
_WORK = frozenset({"__emit-count", "__execute-count"})
_UNITS = frozenset({"units-attempts", "units-published"})

#: Kinds of processes, other than tasks, that mark their last report. Without the mark, their last counts are unknown.
_GATEWAY = "spark-gateway"

_GAUGE, _HISTOGRAM = control_pb2.Sample.GAUGE, control_pb2.Sample.HISTOGRAM


@dataclass(slots=True)
class _Steps:
    """The values of one number over time, as steps."""

    times: array[float] = field(default_factory=lambda: array("d"))
    values: array[float] = field(default_factory=lambda: array("d"))
    base: float = 0.0
    raw: float = 0.0
    #: The value before the first step.
    origin: float = 0.0

    def add(self, bucket_at: float, now: float, raw: float, total: bool) -> bool:
        """Add a value; return whether it differs from the last value."""
        if total:
            if raw < self.raw:
                self.base += self.raw
            self.raw = raw
            value = self.base + raw
        else:
            value = raw
        if self.times and self.values[-1] == value:
            return False
        if self.times and self.times[-1] >= bucket_at:
            self.values[-1], self.times[-1] = value, now
        else:
            self.times.append(now)
            self.values.append(value)
            if len(self.times) > STEPS_MAX:
                self._thin()
        return True

    def _thin(self) -> None:
        half = len(self.times) // 2
        for name in ("times", "values"):
            steps = getattr(self, name)
            setattr(self, name, steps[0:half:2] + steps[half:])

    def expire(self, before: float) -> None:
        """Drop steps that no query can reach; the last step before `before` is kept."""
        first = bisect_right(self.times, before) - 1
        if first > 0:
            self.origin = self.values[first - 1]
            del self.times[:first]
            del self.values[:first]

    def raise_by(self, total: float) -> None:
        """Add a total to all past values, so that the total does not count as growth."""
        self.base += total
        self.origin += total
        self.values = array("d", (value + total for value in self.values))

    def at(self, moment: float) -> float:
        """Return the last value that was known at a moment."""
        index = bisect_right(self.times, moment) - 1
        return self.values[index] if index >= 0 else self.origin

    def time_at(self, moment: float) -> float:
        """Return the time at which the value of `at` was recorded; the moment itself if the value is still current."""
        index = bisect_right(self.times, moment) - 1
        return self.times[index] if 0 <= index < len(self.times) - 1 else moment


@dataclass(slots=True)
class _Series:
    kind: int
    #: Map from part of the series to steps: "" is a plain value; a histogram has "sum", "count" and the bounds ("le").
    parts: dict[ledger.Part, _Steps] = field(default_factory=dict)


@dataclass(slots=True)
class _Process:
    report: control_pb2.MetricsReport
    seen: float
    series: dict[tuple[str, str], _Series] = field(default_factory=dict)
    #: Time at which the process was removed from the topology; None if it was not.
    left: float | None = None


class MetricsCache:
    """The reports from which the topology master answers GetMetrics."""

    def __init__(self, keep_s: float, bucket_s: float, series_max: int = 100_000, resumed: bool = False) -> None:
        """`resumed` means that the topology ran before this cache existed, under an earlier topology master."""
        self._keep_s = keep_s
        self._bucket_s = max(bucket_s, 1e-3)
        self._series_max = series_max
        self._processes: dict[str, _Process] = {}
        self._count = 0
        self._swept = float("-inf")
        self._resumed = resumed
        self._began: float | None = None
        #: Whether counts of ended processes are unknown.
        self._lacking = resumed
        #: Number of samples of series beyond the limit.
        self.discarded = 0
        #: Number of changes of counts of replaced or removed processes, which a successor cannot get elsewhere.
        self.changes = 0
        #: Counters that grow when a task has worked, and when a task has worked on units.
        self.growth = self.units = 0

    def __len__(self) -> int:
        return self._count

    def add(self, report: control_pb2.MetricsReport, now: float) -> None:
        """Add a report; a report of an incarnation that has been replaced is ignored."""
        if self._began is None:
            self._began = now
        process = self._processes.get(report.process)
        restarted = first = False
        if process is None:
            first = self._resumed and now - self._began <= RESUME_S
            process = self._processes[report.process] = _Process(_head(report), now)
        elif report.epoch < process.report.epoch:
            return
        else:
            restarted = report.epoch > process.report.epoch
            head, previous = _head(report), process.report
            counts = previous.task_id > 0 or previous.process == _GATEWAY
            head.at_least = previous.at_least or (restarted and counts and not previous.ends)
            process.report, process.seen = head, now
            process.left = None if restarted else process.left
        bucket_at = now // self._bucket_s * self._bucket_s
        if restarted:
            self._close_incarnation(process)
        for sample in report.samples:
            self._add_sample(process, sample, bucket_at, now, first)
        # A restarted process may not have measured every metric before its second report.
        if not restarted and len(report.samples) < len(process.series):
            self._drop_gauges(process, report)
        if now - self._swept >= self._bucket_s * 6:
            self._sweep(now)

    def _close_incarnation(self, process: _Process) -> None:
        """Add the counts of an ended incarnation to the bases, including series that the new incarnation lacks."""
        self.changes += 1
        for series in process.series.values():
            if series.kind != _GAUGE:
                for steps in series.parts.values():
                    steps.base, steps.raw = steps.base + steps.raw, 0.0

    def _drop_gauges(self, process: _Process, report: control_pb2.MetricsReport) -> None:
        """Drop gauges that the process no longer reports, such as the queue of a task that has moved."""
        told = {(sample.name, sample.label) for sample in report.samples}
        for key in [key for key, one in process.series.items() if one.kind == _GAUGE and key not in told]:
            del process.series[key]
            self._count -= 1

    def _add_sample(
        self, process: _Process, sample: control_pb2.Sample, bucket_at: float, now: float, inherited: bool
    ) -> None:
        key = (sample.name, sample.label)
        series = process.series.get(key)
        if series is None or series.kind != sample.type:
            if series is None:
                if self._count >= self._series_max:
                    self.discarded += 1
                    return
                self._count += 1
            series = process.series[key] = _Series(sample.type)
        parts: list[tuple[ledger.Part, float]]
        if series.kind == _HISTOGRAM:
            count = series.parts.get("count")
            if count is not None and count.raw == sample.count and series.parts["sum"].raw == sample.sum:
                return  # there were no observations, so no bucket has grown
            buckets = [(bucket.le, float(bucket.count)) for bucket in sample.buckets]
            parts = [("sum", sample.sum), ("count", float(sample.count)), *buckets]
        else:
            parts = [("", sample.value)]
        for part, value in parts:
            steps = series.parts.get(part)
            if steps is None:
                # Counts from before this cache existed do not count as growth.
                steps = series.parts[part] = _Steps(origin=value if inherited else 0.0)
            if steps.add(bucket_at, now, value, series.kind != _GAUGE):
                self.growth += key[0] in _WORK
                self.units += key[0] in _UNITS

    def _sweep(self, now: float) -> None:
        self._swept = now
        self._retire_due(now)
        for name, process in list(self._processes.items()):
            if now - process.seen > self._keep_s and not process.report.component:
                self._drop(name)
                continue
            for series in process.series.values():
                for steps in series.parts.values():
                    steps.expire(now - self._keep_s)

    def forget(self, process: str, now: float) -> None:
        """Record that a process has left the topology; its totals will be added to the totals of its component."""
        gone = self._processes.get(process)
        if gone is not None and gone.left is None:
            gone.left = now

    def knows(self, process: str) -> bool:
        """Return whether this cache contains figures of a process."""
        return process in self._processes

    def _retire_due(self, now: float) -> None:
        for name, process in list(self._processes.items()):
            if process.left is not None and now - max(process.left, process.seen) >= LEAVE_S:
                self._retire(name, now)

    def _drop(self, process: str) -> None:
        self._count -= len(self._processes.pop(process).series)

    def _retire(self, name: str, now: float) -> None:
        gone = self._processes[name]
        self._drop(name)
        self.changes += 1
        component = gone.report.component
        if not component:
            return
        head = control_pb2.MetricsReport(process=_removed(component), component=component)
        kept = self._processes.setdefault(head.process, _Process(head, now))
        last = gone.report
        kept.report.at_least = kept.report.at_least or last.at_least or not last.ends
        for key, series in gone.series.items():
            if series.kind == _GAUGE:
                continue
            if key not in kept.series:
                if self._count >= self._series_max:
                    self.discarded += 1
                    continue
                self._count += 1
            summed = kept.series.setdefault(key, _Series(series.kind))
            for part, steps in series.parts.items():
                summed.parts.setdefault(part, _Steps()).raise_by(steps.base + steps.raw)

    def tasks(self) -> set[str]:
        """Return the names of tasks that have figures."""
        return {name for name, process in self._processes.items() if process.report.task_id}

    def ledger(self, topology_id: str) -> control_pb2.MetricsLedger:
        """Return all counts, for a successor."""
        counted = []
        # Put counts that exist only in this cache first, then tasks.
        ordered = sorted(self._processes.values(), key=lambda one: (one.report.pid > 0, not one.report.component))
        for process in ordered:
            one = ledger.CountedProcess(process.report)
            for key, series in process.series.items():
                if series.kind != _GAUGE:
                    parts = {part: (steps.base, steps.raw) for part, steps in series.parts.items()}
                    one.series[key] = ledger.CountedSeries(series.kind, parts)
            counted.append(one)
        return ledger.write(topology_id, counted)

    def take_over(self, kept: control_pb2.MetricsLedger | None, topology_id: str, now: float) -> None:
        """Continue with a predecessor's counts, unless these belong to another topology."""
        if kept is None or kept.topology_id != topology_id:
            return
        sound = list(ledger.read(kept))
        self._lacking = kept.left_out > 0 or len(sound) < len(kept.processes)
        for one in sound:
            process = self._processes[one.head.process] = _Process(one.head, now)
            for key, told in one.series.items():
                if self._count >= self._series_max:
                    self._lacking = True
                    return
                self._count += 1
                series = process.series[key] = _Series(told.kind)
                for part, (before, latest) in told.parts.items():
                    series.parts[part] = _Steps(base=before, raw=latest, origin=before + latest)

    def query(self, request: control_pb2.GetMetrics, now: float) -> control_pb2.MetricsReply:
        """Answer a request.

        With `interval_s`, counters and histograms cover the last `interval_s` seconds, or up to one bucket more;
        the reply states the actual interval. Without `interval_s`, they cover the time since the start. Gauges
        always have their latest value. `instances` are names of processes. An empty list of names or
        instances selects all of them.
        """
        self._retire_due(now)
        interval = min(max(request.interval_s, 0.0), self._keep_s)
        since = now - interval if interval else None
        reply = control_pb2.MetricsReply(interval_s=interval)
        if self._lacking and self._began is not None:
            reply.resumed_s = max(0.0, now - self._began)
        names, instances = set(request.names), set(request.instances)
        selected = list(self._select(request.component, instances))
        # The pid of a process known from a predecessor is unknown until it reports.
        seen = [one.seen for one in selected if one.report.task_id and one.report.pid and one.left is None]
        reply.apart_s = max(seen, default=0.0) - min(seen, default=0.0)
        for process in selected:
            report = reply.reports.add()
            report.CopyFrom(process.report)
            for sample in self._samples(process, names, since):
                report.samples.append(sample)
            if since is not None:
                covered = now - self._covered_from(process, names, since)
                reply.interval_s = max(reply.interval_s, min(covered, interval + self._bucket_s))
        return reply

    @staticmethod
    def _covered_from(process: _Process, names: set[str], since: float) -> float:
        """Return the time of the oldest value from which the growth of a series is measured."""
        return min(
            (
                steps.time_at(since)
                for (name, label), series in process.series.items()
                if series.kind != _GAUGE and _wanted(names, name, label)
                for steps in series.parts.values()
            ),
            default=since,
        )

    def _select(self, component: str, instances: set[str]) -> Iterator[_Process]:
        for name in sorted(self._processes):
            process = self._processes[name]
            if component and process.report.component != component:
                continue
            if instances and name not in instances:
                continue
            yield process

    def _samples(self, process: _Process, names: set[str], since: float | None) -> Iterable[control_pb2.Sample]:
        for (name, label), series in process.series.items():
            # Drop gauges such as memory and queues of a removed task, and keep its counts.
            if not _wanted(names, name, label) or (process.left is not None and series.kind == _GAUGE):
                continue
            sample = control_pb2.Sample(name=name, label=label, type=control_pb2.Sample.Type.Name(series.kind))
            for part, steps in series.parts.items():
                _fill(sample, part, _grown(steps, None if series.kind == _GAUGE else since))
            sample.buckets.sort(key=lambda bucket: bucket.le)
            yield sample


def _removed(component: str) -> str:
    """Return the name under which the totals of a component's removed tasks are kept."""
    return f"removed tasks of {component}"


def _wanted(names: set[str], name: str, label: str) -> bool:
    """Return whether a counter is requested. `__auto__` selects all counters of a group, and `__auto__/key` selects one
    counter.
    """
    return not names or name in names or f"{name}/{label}" in names


def _head(report: control_pb2.MetricsReport) -> control_pb2.MetricsReport:
    return control_pb2.MetricsReport(
        process=report.process,
        task_id=report.task_id,
        component=report.component,
        container=report.container,
        epoch=report.epoch,
        pid=report.pid,
        loop_age_s=report.loop_age_s,
        state=report.state,
        ends=report.ends,
    )


def _grown(steps: _Steps, since: float | None) -> float:
    newest = steps.values[-1] if steps.values else steps.origin
    if since is None:
        return newest
    return newest - steps.at(since)


def _fill(sample: control_pb2.Sample, part: ledger.Part, value: float) -> None:
    if isinstance(part, float):
        sample.buckets.add(le=part, count=round(value))
    elif part == "sum":
        sample.sum = sample.value = value
    elif part == "count":
        sample.count = round(value)
    else:
        sample.value = value
