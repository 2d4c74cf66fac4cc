"""The regions of a topology and their attempts: which tasks must be ready before one starts, and when one has
lost something.

Pure. An attempt of a region starts when all of its tasks have restored for it, and runs as long as
each task is the process that restored and no frame is lost; else the region goes back with a new attempt.
Invariants (F09, F11): an attempt is reserved before it is announced and never used twice; a started
region knows the process of every task; a region that has not started keeps restoring, even if processes die
meanwhile. If a process ended, its executor, which knows the reason, paces its restarts and decides whether
to continue. Restores without an ended process are spaced out, and too many are a failure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from heronpy.common.rooms import CheckpointSettings
from heronpy.proto import control_pb2 as control
from heronpy.proto import plan_pb2 as plan

#: Number of restores without a pause, then the pause, which doubles.
FREE_RESTORES = 3
PAUSE_S = 0.1
PAUSE_MAX_S = 10.0


class Cause(Enum):
    """Why a region goes back."""

    WANTED = "a user or the plan asked for it"
    ENDED = "a process ended and was replaced"
    LOSS = "frames are lost, and no process has ended"


@dataclass(slots=True)
class Region:
    """One region and its current attempt."""

    components: frozenset[str]
    record: plan.RegionRecord
    #: Task -> its container.
    places: dict[int, int] = field(default_factory=dict)
    #: Tasks that have not restored for this attempt.
    missing: set[int] = field(default_factory=set)
    #: Incarnation of each stream manager of the region when the attempt started.
    stmgrs: dict[str, int] = field(default_factory=dict)
    #: Why the region is being restored; empty for its first start.
    why: str = ""
    since: float = 0.0
    #: It does not start before.
    start_at: float = float("-inf")
    #: Times of restores since the last complete checkpoint that no ended process caused.
    history: deque[float] = field(default_factory=deque)

    @property
    def name(self) -> str:
        """Its name for users."""
        names = sorted(self.components)
        return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")

    @property
    def started(self) -> bool:
        return self.record.started

    def watch(self, places: Mapping[int, int]) -> None:
        """These are its tasks now; none of them has restored."""
        self.places = dict(places)
        self.missing = set(places)


class Regions:
    """See the module. It does not decide which checkpoint a restore starts from."""

    def __init__(self, settings: CheckpointSettings) -> None:
        self._settings = settings
        self.regions: list[Region] = []
        self._of: dict[str, Region] = {}

    def use(self, regions: list[Region]) -> None:
        """Replace the regions."""
        self.regions = regions
        self._of = {component: region for region in regions for component in region.components}

    def of(self, component: str) -> Region | None:
        return self._of.get(component)

    def of_attempt(self, attempt: int, component: str) -> Region | None:
        """The region of a component if this is its current attempt."""
        region = self._of.get(component)
        return region if region is not None and region.record.attempt == attempt else None

    @property
    def all_started(self) -> bool:
        return all(region.started for region in self.regions)

    # ---- what tasks say ---------------------------------------------------------------------

    def look(self, component: str, status: control.TaskStatus) -> str:
        """Check the status of a task; returns why its region must be restored, or an empty string."""
        region, task = self._of.get(component), status.task_id
        if region is None or task not in region.places:
            return ""
        record = region.record
        if not region.started:
            if status.state == control.TASK_RESTORED and status.attempt == record.attempt:
                region.missing.discard(task)
            else:
                region.missing.add(task)
            return ""
        if status.state == control.TASK_LOST:
            return f"task {task} of {component} is lost: {status.error}"
        if status.epoch != record.epochs.get(task, 0):
            return f"task {task} of {component} ended and was replaced"
        return ""

    def look_at_stmgr(self, region: Region, name: str, epoch: int) -> str:
        """Check the incarnation of a stream manager; returns why the region must be restored."""
        known = region.stmgrs.get(name) if region.started else None
        if known is not None and epoch != known:
            return f"{name} ended and was replaced"
        return ""

    # ---- attempts ---------------------------------------------------------------------------

    def can_start(self, region: Region, now: float) -> bool:
        """Whether every task has restored, and the pause after quick restores is over."""
        return not region.started and not region.missing and bool(region.places) and now >= region.start_at

    def start(self, region: Region, epochs: Mapping[int, int], stmgrs: Mapping[str, int]) -> None:
        """The attempt begins with these processes."""
        region.record.started = True
        region.record.epochs.update(epochs)
        region.stmgrs = dict(stmgrs)

    def restore(
        self,
        region: Region,
        attempt: int,
        checkpoint: int,
        location: str,
        why: str,
        now: float,
        *,
        cause: Cause,
    ) -> str:
        """Begin a new attempt; returns why the topology has failed instead, or an empty string."""
        history, settings = region.history, self._settings
        if cause is Cause.LOSS:
            history.append(now)
            while history and history[0] < now - settings.restore_window_s:
                history.popleft()
        waits = len(history) - FREE_RESTORES if cause is Cause.LOSS else 0
        pause_s = min(PAUSE_MAX_S, PAUSE_S * 2.0 ** min(waits - 1, 20)) if waits > 0 else 0.0
        region.record = plan.RegionRecord(
            components=sorted(region.components),
            attempt=attempt,
            checkpoint=checkpoint,
            location=location,
        )
        region.why, region.since, region.start_at = why, now, now + pause_s
        region.missing = set(region.places)
        if len(history) > settings.restore_budget:
            return (
                f"{region.name} went back {len(history)} times within {settings.restore_window_s:g} s"
                f" without a complete checkpoint in between, the last time because {why}"
            )
        return ""

    def forgive(self) -> None:
        """Forget past restores: a checkpoint is complete, or a user has intervened."""
        for region in self.regions:
            region.history.clear()

    def deadline(self) -> float:
        """When a waiting region could start."""
        waiting = [r.start_at for r in self.regions if not r.started and not r.missing]
        return min(waiting, default=float("inf"))

    def validate(self) -> None:
        """Raise AssertionError when an invariant does not hold."""
        for region in self.regions:
            record = region.record
            assert record.attempt > 0, "a region without an attempt"
            assert frozenset(record.components) == region.components
            assert region.missing <= region.places.keys()
            if record.started:
                assert record.epochs.keys() == region.places.keys(), "an unknown process in a started region"
            assert bool(record.checkpoint) <= bool(record.location), "a checkpoint without a location"
