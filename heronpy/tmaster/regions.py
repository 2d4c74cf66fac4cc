"""Decides which tasks must be ready before a region starts, and when the region must go back to a checkpoint. Pure.

A region is a weakly connected component of the graph of streams: when a component goes back to a checkpoint, all
components upstream and downstream must go back with it. A region's attempt starts when all tasks have restored their
state, and lasts until a task's process is replaced or a frame is lost; then the region goes back with a new attempt.
Invariants: An attempt is reserved before it is announced, and is never used twice. A started region
records the process of every task. A region that has not started keeps restoring, even if processes die.
If a process has ended, its executor reports the reason, paces the restarts and decides whether to continue.
Restores for other reasons are spaced out, and too many of them are a failure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from enum import Enum

from msgspec import Struct, field

from heronpy.common.setting_types import CheckpointSettings
from heronpy.proto import control_pb2, plan_pb2

#: Number of restores without a pause, and the first pause after them in seconds, which doubles each time.
FREE_RESTORES = 3
PAUSE_S = 0.1
PAUSE_MAX_S = 10.0


class Cause(Enum):
    """Why a region goes back to a checkpoint."""

    WANTED = "a request or the plan requires it"
    ENDED = "a process ended and was replaced"
    LOSS = "frames were lost, although no process has ended"


class Ended(Struct, frozen=True):
    """A process of a started region was replaced."""

    name: str

    def __str__(self) -> str:
        return f"{self.name} ended and was replaced"


class Lost(Struct, frozen=True):
    """A task of a started region cannot be reached; `why` is a text for users."""

    name: str
    why: str

    def __str__(self) -> str:
        return f"{self.name} is lost: {self.why or 'its stream manager receives no heartbeat from it'}"


class Source(Struct, frozen=True):
    """The checkpoint that a restore starts from; checkpoint 0 without a location means empty state."""

    checkpoint: int
    location: str


class Region(Struct):
    """One region and its current attempt."""

    components: frozenset[str]
    record: plan_pb2.RegionRecord
    #: By task: its container.
    places: dict[int, int] = field(default_factory=dict)
    #: Tasks that have not restored for this attempt yet.
    missing: set[int] = field(default_factory=set)
    #: Incarnation of each stream manager of the region when the attempt started.
    stmgrs: dict[str, int] = field(default_factory=dict)
    #: Why the region is being restored; None for its first start.
    why: str | None = None
    since: float = 0.0
    #: Earliest time at which the region may start.
    start_at: float = float("-inf")
    #: Times of restores since the last complete checkpoint, except restores caused by an ended process.
    history: deque[float] = field(default_factory=deque)

    @property
    def name(self) -> str:
        """The region's name, as shown to users."""
        names = sorted(self.components)
        return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")

    @property
    def started(self) -> bool:
        return self.record.started

    def watch(self, places: Mapping[int, int]) -> None:
        """Replace the region's set of tasks; each task must restore its state before the region starts."""
        self.places = dict(places)
        self.missing = set(places)


class Regions:
    """The regions of a topology. `Restorer` chooses the checkpoint for each restore."""

    def __init__(self, settings: CheckpointSettings) -> None:
        self._settings = settings
        self.regions: list[Region] = []
        self._of: dict[str, Region] = {}

    def use(self, regions: list[Region]) -> None:
        self.regions = regions
        self._of = {component: region for region in regions for component in region.components}

    def of(self, component: str) -> Region | None:
        return self._of.get(component)

    def of_attempt(self, attempt: int, component: str) -> Region | None:
        """Return the region of a component if this is its current attempt, else None."""
        region = self._of.get(component)
        return region if region is not None and region.record.attempt == attempt else None

    @property
    def all_started(self) -> bool:
        return all(region.started for region in self.regions)

    # ---- reports of tasks -------------------------------------------------------------------

    def look(self, component: str, status: control_pb2.TaskStatus) -> Ended | Lost | None:
        """Check the status of a task; return why the region must be restored, or None."""
        region, task = self._of.get(component), status.task_id
        if region is None or task not in region.places:
            return None
        record = region.record
        if not region.started:
            if status.state == control_pb2.TASK_RESTORED and status.attempt == record.attempt:
                region.missing.discard(task)
            else:
                region.missing.add(task)
            return None
        name = f"task {task} of {component}"
        if status.state == control_pb2.TASK_LOST:
            return Lost(name, status.error)
        return Ended(name) if status.epoch != record.epochs.get(task, 0) else None

    def look_at_stmgr(self, region: Region, name: str, epoch: int) -> Ended | None:
        """Check the incarnation of a stream manager; return an `Ended` if the region must be restored, else None."""
        known = region.stmgrs.get(name) if region.started else None
        return Ended(name) if known is not None and epoch != known else None

    # ---- attempts ---------------------------------------------------------------------------

    def can_start(self, region: Region, now: float) -> bool:
        """Whether every task has restored its state and the pause between restores is over."""
        return not region.started and not region.missing and bool(region.places) and now >= region.start_at

    def start(self, region: Region, epochs: Mapping[int, int], stmgrs: Mapping[str, int]) -> None:
        """Begin the attempt with these processes."""
        region.record.started = True
        region.record.epochs.update(epochs)
        region.stmgrs = dict(stmgrs)

    def restore(
        self,
        region: Region,
        attempt: int,
        source: Source,
        why: str | None,
        now: float,
        *,
        cause: Cause,
    ) -> bool:
        """Begin a new attempt; return False if the restore budget is used up, so that the attempt must not start."""
        history, settings = region.history, self._settings
        if cause is Cause.LOSS:
            history.append(now)
            while history and history[0] < now - settings.restore_window_s:
                history.popleft()
        waits = len(history) - FREE_RESTORES if cause is Cause.LOSS else 0
        pause_s = min(PAUSE_MAX_S, PAUSE_S * 2.0 ** min(waits - 1, 20)) if waits > 0 else 0.0
        region.record = plan_pb2.RegionRecord(
            components=sorted(region.components),
            attempt=attempt,
            checkpoint=source.checkpoint,
            location=source.location,
        )
        region.why, region.since, region.start_at = why, now, now + pause_s
        region.missing = set(region.places)
        return len(history) <= settings.restore_budget

    def forgive(self) -> None:
        """Reset the restore budget after a complete checkpoint or a user's intervention."""
        for region in self.regions:
            region.history.clear()

    def deadline(self) -> float:
        """The earliest time at which a waiting region may start."""
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
