"""A simulated EFFECTIVELY_ONCE topology around the topology master's machine.

Tasks restore, start, answer checkpoints and end themselves as real ones do; `CheckpointWorld` checks on the
way that no attempt and no checkpoint number is used twice, that no region starts before every task of it
has restored, and that complete checkpoints name every task exactly once.
"""

from __future__ import annotations

from typing import Any

from heronpy.common.setting_types import CheckpointSettings
from heronpy.common.states import UP_STATES
from heronpy.proto import checkpoint_pb2, control_pb2, plan_pb2, topology_pb2
from heronpy.tmaster import events
from heronpy.tmaster.events import Effect, Node, Prune, WriteMetadata
from heronpy.tmaster.machine import TopologyMaster
from tests.tmaster.tmaster_world import SimTask, World, with_task, without_task


def region_of(shown: plan_pb2.PhysicalPlan, component: str) -> plan_pb2.RegionRecord:
    return next(region for region in shown.regions if component in region.components)


class RestoringTask(SimTask):
    """One instance; what it does about attempts, `CheckpointWorld.follow` does."""

    def __init__(self, task_id: int, component: str, epoch: int, spout: bool) -> None:
        super().__init__(task_id, component, epoch, spout)
        self.attempt = 0

    def apply(self, current: plan_pb2.PhysicalPlan | None) -> None:
        status = self.status
        if current is not None and not self.stuck and any(i.task_id == status.task_id for i in current.instances):
            status.plan_version = current.version
            if status.state in (control_pb2.TASK_RUNNING, control_pb2.TASK_PAUSED):
                paused = self.spout and current.topology.state == topology_pb2.PAUSED
                status.state = control_pb2.TASK_PAUSED if paused else control_pb2.TASK_RUNNING


class CheckpointWorld(World):
    """See the module."""

    task_kind = RestoringTask

    def __init__(self, *, checkpoints: CheckpointSettings | None = None, **options: Any) -> None:
        self.checkpoint_settings = checkpoints or CheckpointSettings(interval_s=5.0)
        #: Attempt to the (task, epoch) that reported to have restored for it.
        self.restored: dict[int, set[tuple[int, int]]] = {}
        self.attempts: dict[tuple[int, str], tuple[int, frozenset[int]]] = {}
        self.triggered: list[int] = []
        self.open: int = 0
        self.to_write: list[checkpoint_pb2.Metadata] = []
        self.written: dict[int, checkpoint_pb2.Metadata] = {}
        self.pruned: set[int] = set()
        self.deletions: list[int] = []
        #: Tasks that do not answer, checkpoints that cannot be restored, and whether the disk is full.
        self.mute: set[int] = set()
        self.damaged: set[int] = set()
        self.full = False
        self.plain: set[str] = set()
        #: Components with two-phase sinks.
        self.publishing: set[str] = set()
        super().__init__(**options)

    def start_master(self) -> None:
        self.epoch += 1
        topology = self.store[Node.TOPOLOGY]
        if not topology.topology_config.kvs:
            topology.topology_config.kvs.add(
                key="topology.reliability.mode", value="EFFECTIVELY_ONCE", type=topology_pb2.STRING_VALUE
            )
        self.to_write.clear()
        self.deletions.clear()
        self.machine = TopologyMaster(
            self.settings,
            self.epoch,
            topology=topology,
            packing=self.store[Node.PACKING_PLAN],
            previous=self.store.get(Node.PHYSICAL_PLAN),
            intent=self.store.get(Node.UPDATE),
            checkpoints=self.checkpoint_settings,
            log=self.store.get(Node.CHECKPOINTS),
        )
        self.perform(self.machine.begin(self.now))
        self.machine.validate()
        self.ask(events.ExecutorRegistered, b"x0", control_pb2.RegisterExecutor(container=0, epoch=1))

    @property
    def checkpoints(self) -> Any:
        return self.machine.checkpoints

    @property
    def log(self) -> checkpoint_pb2.CheckpointLog:
        return self.store[Node.CHECKPOINTS]

    def regions(self) -> list[plan_pb2.RegionRecord]:
        shown = self.store.get(Node.PHYSICAL_PLAN)
        return list(shown.regions) if shown is not None else []

    # ---- effects ----------------------------------------------------------------------------

    def perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, WriteMetadata):
                self._check_metadata(effect.metadata)
                self.to_write.append(effect.metadata)
            elif isinstance(effect, Prune):
                assert not set(effect.delete) & set(effect.keep)
                assert not set(effect.delete) & {r.checkpoint for r in self.log.complete}, "deleted before forgotten"
                self.pruned.update(effect.delete)
                if effect.token:
                    self.deletions.append(effect.token)
            else:
                super().perform([effect])

    def _check_metadata(self, metadata: checkpoint_pb2.Metadata) -> None:
        tasks = [task.task_id for task in metadata.tasks]
        shown = self.store[Node.PHYSICAL_PLAN]
        assert tasks == sorted({record.task_id for record in shown.instances}), "not every task exactly once"
        for task in metadata.tasks:
            assert task.attempt == region_of(shown, task.component).attempt, "state of another attempt"

    def persist(self, effect: Any) -> None:
        if effect.node is Node.CHECKPOINTS and effect.node in self.store:
            before = self.store[Node.CHECKPOINTS]
            assert effect.value.next_checkpoint >= before.next_checkpoint
            assert effect.value.next_attempt >= before.next_attempt
        super().persist(effect)

    def _deliver(self, peer: bytes, body: Any) -> None:
        if isinstance(body, control_pb2.NewPlan):
            self._check_plan(body.plan)
        elif isinstance(body, control_pb2.TriggerCheckpoint):
            self._check_trigger(body)
        elif isinstance(body, control_pb2.CheckpointComplete):
            assert body.checkpoint in self.written, "announced before it was written"
            assert any(r.checkpoint == body.checkpoint for r in self.log.complete), "announced before it was logged"
            for sim in self.sims.values():
                if peer == sim.peer and not sim.silent:
                    for task in sim.tasks.values():
                        task.status.committed = max(task.status.committed, body.checkpoint)
        elif not isinstance(body, control_pb2.CheckpointAborted):
            super()._deliver(peer, body)
            return
        if isinstance(body, control_pb2.NewPlan):
            super()._deliver(peer, body)

    def _check_plan(self, shown: plan_pb2.PhysicalPlan) -> None:
        for region in shown.regions:
            tasks = {i.task_id for i in shown.instances if i.component in region.components}
            assert region.attempt < self.log.next_attempt, "an attempt that was not reserved"
            if region.started:
                assert set(region.epochs) == tasks
                restored = self.restored.get(region.attempt, set())
                assert {(t, e) for t, e in region.epochs.items()} <= restored, "started before all restored"
            key = (region.checkpoint, frozenset(tasks))
            first = min(region.components)
            if (region.attempt, first) not in self.attempts:
                self._check_origin(region)
            known = self.attempts.setdefault((region.attempt, first), key)
            assert known == key, "an attempt was used twice"

    def _check_origin(self, region: plan_pb2.RegionRecord) -> None:
        """A new attempt starts from what is complete, sound and not deleted."""
        if not region.checkpoint:
            # Not even when it has failed: two-phase sinks would drop what they have.
            assert self.checkpoint_settings.allow_empty or not self.log.complete, "state was given up"
        elif region.location != self.log.restore_from:
            record = next(r for r in self.log.complete if r.checkpoint == region.checkpoint)
            assert not record.abandoned and record.location == region.location
            assert not record.damaged or self.machine.shared.failure is not None
            assert region.checkpoint in self.written and region.checkpoint not in self.pruned

    def _check_trigger(self, body: control_pb2.TriggerCheckpoint) -> None:
        number = body.checkpoint
        assert number < self.log.next_checkpoint, "a number that was not reserved"
        if number != self.open:
            assert not self.triggered or number > max(self.triggered), "a number was used twice"
            self.triggered.append(number)
            self.open = number

    # ---- tasks ------------------------------------------------------------------------------

    def follow(self, sim: Any) -> None:
        """Let the tasks of a container follow the regions of the plan that it has."""
        if sim.plan is None:
            return
        known = {record.task_id for record in sim.plan.instances}
        for task, one in list(sim.tasks.items()):
            status = one.status
            if task not in known or one.stuck:
                continue
            region = region_of(sim.plan, status.component)
            if one.attempt and region.attempt > one.attempt:
                self.kill(task)
            elif not one.attempt and not region.started:
                self._restore(one, region)
            elif one.attempt == region.attempt and region.started and region.epochs[task] == status.epoch:
                if status.state == control_pb2.TASK_RESTORED:
                    status.state = control_pb2.TASK_RUNNING

    def _restore(self, one: Any, region: plan_pb2.RegionRecord) -> None:
        status = one.status
        one.attempt = status.attempt = region.attempt
        if region.checkpoint in self.damaged:
            status.state, status.error = control_pb2.TASK_FAILED, f"chk-{region.checkpoint}/x is damaged"
            message = control_pb2.RestoreFailed(
                task_id=status.task_id,
                epoch=status.epoch,
                attempt=region.attempt,
                checkpoint=region.checkpoint,
                error=status.error,
            )
            self.feed(events.RestoreFailed(message))
            return
        status.state = control_pb2.TASK_RESTORED
        self.restored.setdefault(region.attempt, set()).add((status.task_id, status.epoch))

    def answer_checkpoint(self) -> None:
        """Every task that runs answers the checkpoint that was triggered last."""
        if not self.open:
            return
        for task in self.tasks():
            status = task.status
            if status.state not in UP_STATES or status.task_id in self.mute:
                continue
            self.feed(events.TaskAnswered(self.answer_of(task)))

    def answer_of(self, task: SimTask) -> control_pb2.TaskCheckpoint:
        status = task.status
        snapshot = checkpoint_pb2.TaskSnapshot(
            stateful=status.component in self.plain,
            total_bytes=10,
            uploaded_bytes=5,
            publishes=status.component in self.publishing,
        )
        return control_pb2.TaskCheckpoint(
            checkpoint=self.open,
            task_id=status.task_id,
            epoch=status.epoch,
            attempt=status.attempt,
            snapshot=snapshot,
        )

    def write(self) -> None:
        """The metadata that waits reaches the disk."""
        waiting, self.to_write = self.to_write, []
        for metadata in waiting:
            if self.full:
                self.feed(events.MetadataWritten(metadata, events.Failed("no space left on device")))
                continue
            self.written[metadata.checkpoint] = metadata
            location = f"/store/{metadata.topology_id}/chk-{metadata.checkpoint}"
            self.feed(events.MetadataWritten(metadata, events.Written(location)))

    def delete(self) -> None:
        """The files of deleted checkpoints go."""
        waiting, self.deletions = self.deletions, []
        for token in waiting:
            self.feed(events.CheckpointsDeleted(token))

    def round(self, seconds: float = 1.0) -> None:
        for sim in list(self.sims.values()):
            self.follow(sim)
        super().round(seconds)
        self.answer_checkpoint()
        self.write()
        self.delete()

    # ---- shorthands -------------------------------------------------------------------------

    def kill(self, task: int) -> None:
        """The task's process ends; its executor starts another."""
        for sim in self.sims.values():
            if task in sim.tasks:
                one = sim.tasks[task]
                sim.tasks[task] = RestoringTask(task, one.status.component, self.next_epoch(), one.spout)

    def when_complete(self, count: int = 1) -> int:
        """Let checkpoints complete; the number of the last."""
        wanted = len(self.written) + count
        self.until(lambda: len(self.written) >= wanted and not self.to_write)
        return max(self.written)


def world(**options: object) -> CheckpointWorld:
    made = CheckpointWorld(**options)  # type: ignore[arg-type]
    made.running()
    return made


def attempt(w: CheckpointWorld) -> int:
    return w.regions()[0].attempt


def started(w: CheckpointWorld) -> bool:
    going = w.life in (control_pb2.LIFE_RUNNING, control_pb2.LIFE_DEGRADED)  # its last tasks say so a heartbeat later
    return bool(w.regions()) and all(r.started for r in w.regions()) and going


def restored_from(w: CheckpointWorld, before: int) -> int:
    """Wait until a newer attempt runs; the checkpoint that it came from."""
    w.until(lambda: attempt(w) > before and started(w))
    return w.regions()[0].checkpoint


def finish(w: CheckpointWorld) -> None:
    for task in w.tasks():
        if task.spout and task.status.state == control_pb2.TASK_RUNNING:
            task.status.state = control_pb2.TASK_EXHAUSTED


def bigger(w: CheckpointWorld, parallelism: int) -> int:
    """Ask for another parallelism of the bolt."""
    target = w.packing()
    tasks = sorted(i.task_id for c in target.containers for i in c.instances if i.component == "count")
    newest = max(target.next_task_id, max(i.task_id for c in target.containers for i in c.instances) + 1)
    for task in range(newest, newest + parallelism - len(tasks)):
        with_task(target, 1, task)
    for task in tasks[parallelism:]:
        without_task(target, task)
    for index, task in enumerate(
        sorted(i.task_id for c in target.containers for i in c.instances if i.component == "count")
    ):
        for container in target.containers:
            for instance in container.instances:
                if instance.task_id == task:
                    instance.component_index = index
    return w.update(target, {"count": parallelism})
