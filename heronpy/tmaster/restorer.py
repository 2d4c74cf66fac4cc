"""Decides which tasks belong to an attempt, and from which checkpoint it starts (mode EFFECTIVELY_ONCE). Pure.

The restorer keeps the regions in line with the packing plan. It sends a region back to a checkpoint when part of the
region is lost, falls back to an older checkpoint when a checkpoint cannot be restored, and starts a region when all
tasks of the region have restored. Invariants: An attempt, its checkpoint and its start are in the
stored plan before a task receives them. The tasks of a started region in the plan are exactly the tasks that restored.
So a successor of this master can continue from the stored plan. State is discarded only on request:
no region that has ever had a checkpoint starts empty.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from heronpy.common.errors import RpcError
from heronpy.common.ids import stmgr_id
from heronpy.common.setting_types import CheckpointSettings
from heronpy.plan.logical import regions_of
from heronpy.proto import control_pb2, plan_pb2
from heronpy.storage.checkpoint_layout import number_in
from heronpy.tmaster.coordinator import Coordinator, Incarnation
from heronpy.tmaster.input import Finisher
from heronpy.tmaster.planbook import placement
from heronpy.tmaster.regions import Cause, Region, Regions, Source
from heronpy.tmaster.shared_state import SharedState

#: Number of damaged files named in the error when nothing can be restored.
DAMAGE_MAX = 3


class NothingSoundError(RpcError):
    """No checkpoint can be restored. `held` is the checkpoint for which sinks must keep their prepared output."""

    def __init__(self, held: Source, damage: tuple[str, ...]) -> None:
        super().__init__(held, damage)
        self.held, self.damage = held, damage

    def __str__(self) -> str:
        what = "; ".join(self.damage[:DAMAGE_MAX])
        return f"no checkpoint can be restored ({what}); set heron.checkpoint.allow_empty to start with empty state"


class Restorer:
    """The attempts of a topology's regions; call `begin` first."""

    def __init__(
        self,
        shared: SharedState,
        settings: CheckpointSettings,
        coordinator: Coordinator,
        previous: plan_pb2.PhysicalPlan | None,
        finisher: Finisher,
        perform: Callable[[], None],
    ) -> None:
        self._shared = shared
        self._settings = settings
        self._coordinator = coordinator
        self._previous = previous
        self._finisher = finisher
        #: Adds the effects of the coordinator to the pending effects.
        self._perform = perform
        self.regions = Regions(settings)
        #: Why the location given at submit cannot be restored.
        self._source_damage: str | None = None
        #: Whether an update is in the phase SWITCHING. If so, a state that does not load is attributed to the update,
        #: which is rolled back.
        self.switching = False
        self.last_restore = ""
        self.last_restore_s = 0.0

    # ---- the regions of the plan ------------------------------------------------------------

    def begin(self, now: float) -> None:
        """Read the previous topology master's records, before the first plan is published."""
        log, previous = self._coordinator.log, self._previous
        seen = [region.attempt + 1 for region in previous.regions] if previous is not None else []
        log.next_attempt = max([1, log.next_attempt, *seen])
        self._shared.before_plan = self.replan
        self.replan(now)

    def replan(self, now: float) -> None:
        """Adapt the regions to the packing plan that the next plan is built from."""
        book = self._shared.book
        places: dict[str, dict[int, int]] = {}
        for task, (container, component) in placement(book.packing).items():
            places.setdefault(component, {})[task] = container
        inherited = self._inherited()
        known = {region.components: region for region in self.regions.regions} or inherited
        regions, fresh = [], []
        for components in regions_of(book.topology):
            tasks = {t: c for name in components for t, c in places.get(name, {}).items()}
            region = known.get(components)
            if region is None:
                region = Region(components, plan_pb2.RegionRecord())
                fresh.append(region)
            elif region.places != tasks:
                fresh.append(region)
            regions.append(region)
            if region.places != tasks:
                region.watch(tasks)
        self.regions.use(regions)
        if fresh:
            self._coordinator.abort("the tasks of the topology are changing", now)
            going_back = [region for region in fresh if region.record.attempt > 0]
            why = "its tasks have a new placement"
            self._renew(fresh, why if going_back else None, now)
            if going_back:
                self._shared.registry.totals.count_restores(len(going_back))
                self.last_restore = f"{going_back[-1].name}: {why}"
        for region in inherited.values():
            if region in regions and region not in fresh and not region.started and self._in_doubt(region.record):
                self._renew([region], None, now)
                self._shared.change_plan(now)
        book.regions = [region.record for region in regions]

    def _inherited(self) -> dict[frozenset[str], Region]:
        previous, self._previous = self._previous, None
        if previous is None:
            return {}
        found: dict[frozenset[str], Region] = {}
        epochs = {record.id: record.epoch for record in previous.stmgrs}
        for stored in previous.regions:
            record = plan_pb2.RegionRecord()
            record.CopyFrom(stored)
            region = Region(frozenset(stored.components), record)
            region.watch({i.task_id: i.container for i in previous.instances if i.component in region.components})
            if record.started:
                region.missing = set()
                names = {stmgr_id(container) for container in region.places.values()}
                region.stmgrs = {name: epochs[name] for name in names if name in epochs}
                if record.epochs.keys() != region.places.keys():
                    region.places = {}
            found[region.components] = region
        return found

    def _in_doubt(self, record: plan_pb2.RegionRecord) -> bool:
        """Whether a task may have reported only to the previous master that it cannot restore this checkpoint.

        The log contains only checkpoints of this topology, so restoring from another topology's checkpoint is retried.
        """
        newest = self._coordinator.newest()
        return self._has_past and (newest is None or newest.checkpoint != record.checkpoint)

    # ---- going back -------------------------------------------------------------------------

    @property
    def _has_past(self) -> bool:
        return bool(self._coordinator.log.complete or self._coordinator.log.restore_from)

    def _choose(self) -> Source | NothingSoundError:
        """Choose the checkpoint or empty state from which a restore starts."""
        log = self._coordinator.log
        record = self._coordinator.newest()
        if record is not None:
            return Source(record.checkpoint, record.location)
        source = Source(number_in(log.restore_from), log.restore_from)
        if log.restore_from and self._source_damage is None:
            return source
        if not self._has_past or self._settings.allow_empty:
            return Source(0, "")
        damage = [self._source_damage, *(record.damage for record in reversed(log.complete) if record.damaged)]
        # Do not start empty: two-phase sinks would drop prepared output that must still be committed.
        last = next((record for record in reversed(log.complete) if not record.abandoned), None)
        held = Source(last.checkpoint, last.location) if last is not None else source
        return NothingSoundError(held, tuple(text for text in damage if text))

    def _renew(self, regions: list[Region], why: str | None, now: float, cause: Cause = Cause.WANTED) -> None:
        """Begin new attempts of these regions, from the newest undamaged checkpoint."""
        choice = self._choose()
        source = choice if isinstance(choice, Source) else choice.held
        attempt = self._coordinator.reserve_attempt(source.checkpoint)
        for region in regions:
            within_budget = self.regions.restore(region, attempt, source, why, now, cause=cause)
            if isinstance(choice, NothingSoundError):
                self._fail(region, str(choice))
            elif not within_budget:
                self._fail(
                    region,
                    f"{region.name} went back {len(region.history)} times within"
                    f" {self._settings.restore_window_s:g} s without a complete checkpoint in between, the last time"
                    f" because {why}",
                )
        self._perform()

    def _fail(self, region: Region, why: str) -> None:
        region.start_at = float("inf")
        self._shared.failure = why
        self._shared.note(why, warning=True)

    def restore(self, region: Region, why: str, now: float, cause: Cause) -> None:
        """Restore a region that has lost a part."""
        if self._finisher.done:
            # The last checkpoint contains all data.
            return
        choice = self._choose()
        source = choice if isinstance(choice, Source) else choice.held
        start = f"checkpoint {source.checkpoint}" if source.checkpoint else "the start"
        self._coordinator.abort(f"{start} is restored for {region.name} because {why}", now, again=True)
        self._go_back([region], why, now, cause)

    def _go_back(self, regions: list[Region], why: str, now: float, cause: Cause) -> None:
        shared = self._shared
        self._renew(regions, why, now, cause)
        shared.registry.totals.count_restores(len(regions))
        for region in regions:
            self.last_restore = f"{region.name}: {why}"
            shared.note(f"{region.name}: attempt {region.record.attempt} {_origin(region)}: {why}", warning=True)
        shared.book.regions = [region.record for region in self.regions.regions]
        shared.change_plan(now)
        self._finisher.begin_again()

    def rewind(self, checkpoint: int, now: float) -> int:
        """Rewind the topology, at a user's request, to a checkpoint or the newest (0); return the checkpoint.

        Raises RpcError if the rewind is impossible.
        """
        coordinator = self._coordinator
        if checkpoint:
            coordinator.back_to(checkpoint)
        elif isinstance(choice := self._choose(), NothingSoundError):
            raise choice
        coordinator.abort("the topology is being rewound by heron checkpoints restore", now)
        self._forget_failures()
        for region in self.regions.regions:
            self._excuse(region)
        self._go_back(self.regions.regions, "heron checkpoints restore requested it", now, Cause.WANTED)
        return self.regions.regions[0].record.checkpoint

    def in_use(self) -> dict[int, str]:
        """Return a map from each checkpoint that must be kept to the reason."""
        restored = [r for r in self.regions.regions if not r.started and self._shared.failure is None]
        found = {region.record.checkpoint: f"{region.name} is being restored from it" for region in restored}
        record = self._coordinator.newest()
        if record is not None:
            found[record.checkpoint] = "the topology would be restored from it"
        return found

    def forgive(self, now: float) -> None:
        """Retry failed restores, because a user has restarted a part of the topology."""
        if self._forget_failures():
            for region in self.regions.regions:
                if region.start_at == float("inf"):
                    self._excuse(region)
                    self.restore(region, "it was restarted after a failure", now, Cause.WANTED)

    def _forget_failures(self) -> bool:
        failed = self._shared.failure is not None
        self.regions.forgive()
        self._shared.failure = self._source_damage = None
        return failed

    def _excuse(self, region: Region) -> None:
        """Ignore failed restores of the region's old processes, because a new attempt replaces all of them."""
        for task in region.places:
            self._shared.registry.excuse(task, self._shared.registry.epoch_of(task))

    # ---- reports of other processes ---------------------------------------------------------

    def look_at_all(self, now: float) -> None:
        """Check all tasks, because a process has been silent for too long."""
        for container in sorted(self._shared.registry.containers):
            self.look_at(container, now)

    def look_at(self, container: int, now: float) -> None:
        """Check the tasks of a container whose statuses have changed."""
        registry = self._shared.registry
        for task in registry.tasks_of(container):
            status = registry.tasks.get(task)
            if status is None:
                continue
            component = registry.places[task].component
            ended = self.regions.look(component, status)
            region = self.regions.of(component)
            if ended is not None and region is not None:
                self.restore(region, str(ended), now, Cause.ENDED)

    def look_at_stmgr(self, record: plan_pb2.StmgrRecord, now: float) -> None:
        """Check a stream manager that has registered."""
        for region in self.regions.regions:
            ended = self.regions.look_at_stmgr(region, record.id, record.epoch)
            if ended is not None:
                self.restore(region, str(ended), now, Cause.ENDED)

    def on_data_lost(self, task: int, attempt: int, why: str, now: float) -> None:
        """Handle a loss of frames that were sent to a task in this attempt."""
        place = self._shared.registry.places.get(task)
        region = self.regions.of_attempt(attempt, place.component) if place is not None else None
        if region is not None and region.started:
            self.restore(region, why, now, Cause.LOSS)

    def on_restore_failed(self, message: control_pb2.RestoreFailed, now: float) -> None:
        """Handle a task's failed restore: use an older checkpoint, or fail."""
        registry, log = self._shared.registry, self._coordinator.log
        place = registry.places.get(message.task_id)
        region = self.regions.of(place.component) if place is not None else None
        if region is None or message.attempt > region.record.attempt:
            return
        if message.attempt == region.record.attempt and not region.started:
            if self.switching or self._shared.failure is not None:
                return
            number = region.record.checkpoint
            if region.record.location == log.restore_from and log.restore_from:
                self._source_damage = message.error
            elif any(r.checkpoint == number and not r.damaged for r in log.complete):
                self._coordinator.damaged(number, message.error)
            else:
                # The checkpoint is not the cause, so restoring an older one would fail as well.
                self._shared.failure = f"{region.name} cannot start: {message.error}"
                region.start_at = float("inf")
                return
            why = f"checkpoint {number} cannot be restored: {message.error}"
            self.restore(region, why, now, Cause.WANTED)
        if self._shared.failure is None:
            registry.excuse(message.task_id, message.epoch)

    # ---- starting ---------------------------------------------------------------------------

    def advance(self, now: float) -> None:
        """Start the regions whose tasks are all ready."""
        for region in self.regions.regions:
            if self._shared.failure is None and self.regions.can_start(region, now):
                self._start(region, now)
        self._shared.restoring = self._cause()

    def _start(self, region: Region, now: float) -> None:
        shared = self._shared
        epochs = {task: shared.registry.epoch_of(task) for task in region.places}
        names = {stmgr_id(container) for container in region.places.values()}
        stmgrs = {name: shared.registry.stmgrs[name].record.epoch for name in names}
        self.regions.start(region, epochs, stmgrs)
        if region.why is not None:
            self.last_restore_s = now - region.since
            shared.event_log.add(
                control_pb2.EVENT_RESTORE,
                f"{region.name} went back and starts {_origin(region)}: {region.why}",
                subject=region.name,
                lasted_s=self.last_restore_s,
                warning=True,
            )
        shared.note(f"{region.name}: attempt {region.record.attempt} starts {_origin(region)}")
        shared.change_plan(now)

    def roster(self) -> Mapping[int, Incarnation] | None:
        """Return every task, or None unless all tasks run and can be reached."""
        registry = self._shared.registry
        places = registry.places
        if not self.ready or any(registry.peer_of_task(task) is None for task in places):
            # After a takeover, the plan shows that tasks run even before their stream managers have connected.
            return None
        return {
            task: Incarnation(places[task].component, region.record.epochs[task], region.record.attempt)
            for region in self.regions.regions
            for task in region.places
            if task in places
        }

    @property
    def ready(self) -> bool:
        """Whether every task runs, and every process has the current plan."""
        return self.regions.all_started and self._shared.publish_at is None

    def deadline(self) -> float:
        """The latest time for the next call to `advance`."""
        return float("inf") if self._shared.failure is not None else self.regions.deadline()

    def _cause(self) -> str:
        """Describe the restore in progress with its reason; empty if every region runs."""
        waiting = [region for region in self.regions.regions if not region.started and region.why is not None]
        if not waiting:
            return ""
        region = waiting[0]
        number = region.record.checkpoint
        what = f"restoring from checkpoint {number}" if number else "restoring from the beginning"
        more = f" (and {len(waiting) - 1} more regions)" if len(waiting) > 1 else ""
        return f"{what}: {region.why}{more}"


def _origin(region: Region) -> str:
    number = region.record.checkpoint
    return f"from checkpoint {number}" if number else "from the beginning"
