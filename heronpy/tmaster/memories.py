"""The memory of each process over the last two minutes, from the metrics reports. Pure.

Minutes are too coarse for a leak that fills its limit within one. Invariants: a trail has at most `POINTS_MAX` points,
at least `STEP_S` apart, of one incarnation of a process; of the incarnation before, the trail is kept for `KEPT_S`.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

from heronpy.proto import control_pb2

STEP_S, POINTS_MAX = 4.0, 30
KEPT_S = 300.0
#: A trail that has changed by less is not told.
TOLD_BYTES = 2 << 20
_METRIC = "__py-physical-memory-byte"


@dataclass(slots=True)
class _Trail:
    epoch: int
    times: array[float] = field(default_factory=lambda: array("d"))
    sizes: array[float] = field(default_factory=lambda: array("d"))
    before: _Trail | None = None


class MemoryStore:
    """See the module."""

    def __init__(self) -> None:
        self._trails: dict[str, _Trail] = {}

    def take(self, report: control_pb2.MetricsReport, now: float) -> None:
        """Note the memory of a task's process, unless that was done just now."""
        if not report.task_id:
            return
        trail = self._trails.get(report.process)
        newer = trail is None or report.epoch > trail.epoch
        if trail is not None and not newer and (report.epoch < trail.epoch or now - trail.times[-1] < STEP_S):
            return
        value = next((sample.value for sample in report.samples if sample.name == _METRIC), 0.0)
        if not 0 < value < 1 << 63:
            return
        if trail is None or newer:
            if trail is not None:
                trail.before = None
            trail = self._trails[report.process] = _Trail(report.epoch, before=trail)
        trail.times.append(now)
        trail.sizes.append(value)
        if len(trail.times) > POINTS_MAX:
            del trail.times[0], trail.sizes[0]

    def forget(self, process: str) -> None:
        """A task was removed."""
        self._trails.pop(process, None)

    def add_to(self, found: control_pb2.LooksReply, component_of: dict[str, tuple[str, int]], now: float) -> None:
        """Add the trails of these processes, given with component and task, unless they have hardly changed."""
        known = {one.process: one for one in found.tasks}
        for process, (component, task_id) in component_of.items():
            trail = self._trails.get(process)
            if trail is None:
                continue
            before = trail.before if trail.before is not None and now - trail.before.times[-1] <= KEPT_S else None
            if not _changed(trail) and (before is None or not _changed(before)):
                continue
            one = known.get(process) or found.tasks.add(process=process, component=component, task_id=task_id)
            _tell(one.memory, trail, now)
            if before is not None:
                _tell(one.memory_before, before, now)


def _changed(trail: _Trail) -> bool:
    return max(trail.sizes) - min(trail.sizes) >= TOLD_BYTES


def _tell(into: control_pb2.MemoryTrail, trail: _Trail, now: float) -> None:
    into.age_s.extend([max(0.0, now - at) for at in trail.times])
    into.bytes.extend([int(size) for size in trail.sizes])
