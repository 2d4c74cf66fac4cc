"""The figures of `heron metrics` and `heron status`: sums over processes, and key figures by component. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from heronpy.common.ids import instance_id
from heronpy.metrics.names import find
from heronpy.metrics.quantiles import Quantile, quantile
from heronpy.proto import control_pb2, plan_pb2


def add_zeros(
    reply: control_pb2.MetricsReply, plan: plan_pb2.PackingPlan, component: str, instances: tuple[str, ...]
) -> None:
    """Add a zero for each counter that a requested task lacks and another task of its component reports.

    A process reports a counter only after its first count. Without zeros, a task that gets no
    tuples would be missing from the table.
    """
    counters: dict[str, set[tuple[str, str]]] = {}
    reports = {report.process: report for report in reply.reports}
    for report in reply.reports:
        if report.component:
            found = {(s.name, s.label) for s in report.samples if s.type == control_pb2.Sample.COUNTER}
            counters.setdefault(report.component, set()).update(found)
    for container in plan.containers:
        for task in container.instances:
            name = instance_id(container.id, task.component, task.task_id)
            if component not in ("", task.component) or (instances and name not in instances):
                continue
            wanted = counters.get(task.component, set())
            mine = reports.get(name)
            if mine is None:
                if not wanted:
                    continue
                mine = reply.reports.add(
                    process=name, component=task.component, task_id=task.task_id, container=container.id
                )
            told = {(sample.name, sample.label) for sample in mine.samples}
            for metric, label in sorted(wanted - told):
                mine.samples.add(name=metric, label=label, type=control_pb2.Sample.COUNTER)


@dataclass(slots=True)
class Figures:
    """Figures of one component or task; None for a figure that was not reported."""

    owner: str
    emitted: float | None = None
    executed: float | None = None
    acked: float | None = None
    failed: float | None = None
    queue: float | None = None
    cpu_s: float | None = None
    memory_bytes: float | None = None
    #: Received per second: frames, and the tuples in them. `sent` has the same figures for sent frames.
    received: tuple[float, float] | None = None
    sent: tuple[float, float] | None = None
    latencies: dict[str, list[control_pb2.Sample]] = field(default_factory=dict)

    def add(self, sample: control_pb2.Sample) -> None:
        name = _COUNTED.get(sample.name)
        if name is not None:
            setattr(self, name, (getattr(self, name) or 0.0) + sample.value)
        elif sample.name in _LATENCIES and sample.count:
            self.latencies.setdefault(sample.name, []).append(sample)

    def add_frames(self, samples: Iterable[control_pb2.Sample]) -> None:
        """Add the frames that one task receives and sends per second, given all samples of the task."""
        gauges = {sample.name: sample.value for sample in samples}
        for direction, word in (("received", "consumed"), ("sent", "sent")):
            frames = gauges.get(f"__gateway-{word}-packets-per-sec")
            if frames is not None:
                tuples = frames * gauges.get(f"__gateway-{word}-tuples-per-packet", 0.0)
                before = getattr(self, direction) or (0.0, 0.0)
                setattr(self, direction, (before[0] + frames, before[1] + tuples))

    def frames(self) -> tuple[float | None, float | None]:
        """Return frames per second and tuples per frame, for received frames or, if none are received, for sent frames.

        A figure is None if it was not reported, or no frames passed.
        """
        passed = self.received if self.received is not None and self.received[0] else self.sent
        if passed is None:
            return None, None
        return passed[0], passed[1] / passed[0] if passed[0] else None

    def latency(self) -> list[control_pb2.Sample]:
        """Return the distributions that represent this component's latency; may be empty."""
        return next((self.latencies[name] for name in _LATENCIES if name in self.latencies), [])


#: Metrics that stream managers report for each link.
LINK_METRICS: Final = ("__frames_to_stmgrs_by_peer", "__tuples_to_stmgrs_by_peer")


@dataclass(frozen=True, slots=True)
class Link:
    """Traffic from one stream manager to another."""

    sender: str
    receiver: str
    frames: float
    tuples: float


def links(reports: Iterable[control_pb2.MetricsReport]) -> list[Link]:
    """Return the links between stream managers that have carried tuples, most frames first."""
    found = []
    for report in reports:
        frames, tuples = (
            {sample.label: sample.value for sample in report.samples if sample.name == name} for name in LINK_METRICS
        )
        found += [Link(report.process, peer, count, tuples.get(peer, 0.0)) for peer, count in frames.items() if count]
    return sorted(found, key=lambda link: (-link.frames, link.sender, link.receiver))


def figures(reports: Iterable[control_pb2.MetricsReport], by_instance: bool) -> list[Figures]:
    """Return a row per component or per task; processes without user code have no row."""
    rows: dict[str, Figures] = {}
    for report in reports:
        if report.component:
            owner = report.process if by_instance else report.component
            row = rows.setdefault(owner, Figures(owner))
            for sample in report.samples:
                row.add(sample)
            row.add_frames(report.samples)
    return [rows[owner] for owner in sorted(rows)]


COLUMNS = (
    "emitted", "executed", "acked", "failed", "latency", "99 %", "in queue", "cpu", "memory",
    "frames/s", "tuples/frame",
)  # fmt: skip

_COUNTED = {
    "__emit-count": "emitted",
    "__execute-count": "executed",
    "__ack-count": "acked",
    "__fail-count": "failed",
    "__gateway-in-stream-queue-size": "queue",
    "__py-sys-cpu-time-secs": "cpu_s",
    "__py-user-cpu-time-secs": "cpu_s",
    "__py-physical-memory-byte": "memory_bytes",
}
#: Metrics that can represent the latency of a component; the first metric with observations is used. They measure a
#: spout's complete tuple trees, one call to `process`, and one call to `next_tuple`.
_LATENCIES = ("__complete-latency", "__execute-latency", "__next-tuple-latency")


@dataclass(slots=True)
class Combined:
    """One metric of a component or instance (`owner`), summed over all its processes."""

    owner: str
    name: str
    label: str
    type: int
    value: float = 0.0
    sum: float = 0.0
    count: int = 0
    samples: list[control_pb2.Sample] = field(default_factory=list)

    def add(self, sample: control_pb2.Sample) -> None:
        found = find(self.name)
        if found is not None and found[0].largest:
            self.value = max(self.value, sample.value)
        else:
            self.value += sample.value
        self.sum += sample.sum
        self.count += sample.count
        self.samples.append(sample)

    def quantile(self, part: float) -> Quantile | None:
        """Return the value at the quantile `part` (0 to 1), or a bound for it; None without observations."""
        return quantile(self.samples, part)
