"""Takes a running topology from one packing plan to another, in steps. Pure.

The steps, each stored before it is announced:

    SAVING     EFFECTIVELY_ONCE only: a checkpoint is taken, from which the tasks of the new plan restore
    JOINING    the packing plan is the union of old and new, so executors start the added processes;
               wait until all of them are registered
    SWITCHING  the physical plan contains the new tasks and no removed tasks; wait until every task has applied it
    DRAINING   removed tasks get no new tuples; wait until they are empty, or until the drain timeout. When tasks move
    to other containers, the spouts also wait until the whole topology is empty: tuples in flight to a
    removed stream manager would be lost
    SETTLING   the packing plan is the new one, so executors stop the removed processes; tasks that move
    to another container start there; wait until these tasks are up

Before DRAINING, the whole update is rolled back if a deadline is missed or a task cannot start. An intent is kept in
the state manager from the first step until the final packing plan is stored; a restarted topology master resumes
the update at the step that the stored plans show. The packing plan's version records the progress: v before
the update, v+1 for the union, v+2 at the end (for the new plan or, after a rollback, the old one).
With checkpoints, the switch restarts the regions whose tasks change, from the checkpoint of SAVING: keyed state
moves to the tasks that now own its keys, nothing is drained, and a rollback restores that checkpoint as well.
Only DRAINING waits for tuples to be processed, and it has a deadline. So an update ends even while backpressure
holds back all spouts.
"""

from __future__ import annotations

from enum import Enum
from typing import Protocol

from msgspec import Struct

from heronpy.common.errors import HeronError, InvalidRpcError, RetryableError, RpcError
from heronpy.common.ids import stmgr_id
from heronpy.common.units import counted, listed
from heronpy.plan import packing_plan, validation
from heronpy.plan.logical import LogicalPlan
from heronpy.proto import control_pb2, plan_pb2, topology_pb2
from heronpy.tmaster.coordinator import Answer
from heronpy.tmaster.events import Node
from heronpy.tmaster.planbook import placement, placement_of_plan
from heronpy.tmaster.shared_state import SharedState

#: Seconds without tuples before a removed task ends; longer than a frame is in transit to the task.
QUIET_S = 0.5
#: Seconds after which tasks move even if the topology is not empty, for example because bolts emit on each tick.
MOVE_WAIT_S = 5.0
_GONE_STATES = frozenset({control_pb2.TASK_LOST, control_pb2.TASK_FAILED})


class Phase(Enum):
    """The step of an update."""

    SAVING = "waiting for a checkpoint"
    JOINING = "waiting for added tasks to register"
    SWITCHING = "waiting for tasks to apply the new plan"
    DRAINING = "draining removed tasks"
    SETTLING = "waiting for moved tasks"
    DONE = "done"


class Saver(Protocol):
    """Takes the checkpoint that an update needs."""

    @property
    def plain(self) -> frozenset[str]:
        """Components that have a plain State in the last checkpoint."""

    @property
    def settled(self) -> bool:
        """Whether every task has restored its state and runs with the current plan."""

    def ask(self, now: float) -> int:
        """Request a checkpoint; return the token for `outcome`."""

    def outcome(self, token: int) -> Answer | None:
        """Return the result of the checkpoint; None while it is in progress."""


class Broken(Struct, frozen=True):
    """A task that can never start."""

    name: str
    why: str

    def __str__(self) -> str:
        return f"{self.name} cannot start: {self.why}"


class Update:
    """One update; create it with `begin` or `resume`."""

    def __init__(
        self, shared: SharedState, intent: plan_pb2.UpdateIntent, requests: list[int], saver: Saver | None = None
    ) -> None:
        self._shared = shared
        self._saver = saver
        self._token = 0
        self._saving_until = float("-inf")
        self._intent = intent
        self._requests = requests
        self.name = "update"
        self.phase = Phase.JOINING
        self._deadline = float("inf")
        self._next_look = float("-inf")
        self._version = 0
        self._discarded_before = shared.registry.totals.discarded
        self._discarded = 0
        self._draining_at = float("inf")
        #: By removed task: (epoch, emitted, executed), and the first and last heartbeat with these values.
        self._idle: dict[int, tuple[tuple[int, int, int], float, float]] = {}
        self._diff = packing_plan.diff(intent.old_packing_plan, intent.new_packing_plan)
        self._added, self._removed = self._diff.added_ids, self._diff.removed_ids
        self._moved = self._diff.moved_ids
        self._union = union_of(intent.old_packing_plan, intent.new_packing_plan)
        self._middle = middle_of(intent.old_packing_plan, intent.new_packing_plan)
        self._old_spouts = {spout.comp.name for spout in intent.old_topology.spouts}
        self._new_spouts = {spout.comp.name for spout in intent.new_topology.spouts}

    @classmethod
    def begin(
        cls,
        shared: SharedState,
        request: int,
        message: control_pb2.UpdateTopology,
        now: float,
        saver: Saver | None = None,
    ) -> Update:
        """Check a request and take the first step. Raises RpcError or TopologyError if the request is invalid."""
        check_request(shared, message)
        timeout_s = message.drain_timeout_s or shared.settings.drain_timeout_s
        intent = plan_pb2.UpdateIntent(drain_timeout_s=timeout_s)
        intent.old_topology.CopyFrom(shared.book.topology)
        intent.old_packing_plan.CopyFrom(shared.book.packing)
        intent.new_topology.CopyFrom(message.topology)
        intent.new_topology.state = shared.book.topology.state
        intent.new_packing_plan.CopyFrom(message.packing_plan)
        intent.new_packing_plan.version = shared.book.packing.version + 2
        update = cls(shared, intent, [request], saver)
        if bound := update._bound():
            # If an earlier checkpoint shows the reason for a refusal, no checkpoint has to be taken.
            raise InvalidRpcError(bound)
        if saver is not None:
            update.phase = Phase.SAVING
            update._saving_until = now + shared.settings.start_timeout_s
            update._token = saver.ask(now)
        else:
            shared.persist(Node.UPDATE, intent)
            update._join(now)
        return update

    @classmethod
    def resume(
        cls, shared: SharedState, intent: plan_pb2.UpdateIntent, now: float, saver: Saver | None = None
    ) -> Update:
        """Continue a predecessor's update; the plan book shows whether the update had reached SWITCHING."""
        update = cls(shared, intent, [], saver)
        if placement(shared.book.packing) == placement(update._middle) and update._has_switched():
            shared.registry.place(update._union, update._old_spouts | update._new_spouts)
            update.phase = Phase.SWITCHING
            update._version = shared.book.version
            update._deadline = now + shared.settings.start_timeout_s
        else:
            update._join(now)
        return update

    def _has_switched(self) -> bool:
        return self._shared.book.topology == self._intent.new_topology

    @property
    def done(self) -> bool:
        return self.phase is Phase.DONE

    @property
    def deadline(self) -> float | None:
        return min(self._deadline, self._next_look) if self._shared.pace_s else self._deadline

    def advance(self, now: float) -> None:
        if now < min(self._next_look, self._deadline):
            return
        self._next_look = now + self._shared.pace_s
        if self.phase is Phase.SAVING:
            self._advance_saving(now)
        elif self.phase is Phase.JOINING:
            self._advance_joining(now)
        elif self.phase is Phase.SWITCHING:
            self._advance_switching(now)
        elif self.phase is Phase.DRAINING:
            self._advance_draining(now)
        elif self.phase is Phase.SETTLING:
            self._advance_settling(now)

    # ---- saving -----------------------------------------------------------------------------

    def _advance_saving(self, now: float) -> None:
        """Wait for the checkpoint. If it fails or contains state that cannot be redistributed, change nothing."""
        assert self._saver is not None
        answer = self._saver.outcome(self._token)
        if answer is None:
            return
        if isinstance(answer.outcome, RetryableError) and now < self._saving_until:
            self._token = self._saver.ask(now)
            return
        if isinstance(answer.outcome, HeronError):
            self._refuse(f"nothing was updated: {answer.outcome}")
        elif bound := self._bound():
            self._refuse(bound)
        else:
            self._shared.persist(Node.UPDATE, self._intent)
            self._join(now)

    def _bound(self) -> str:
        """Return why the tasks of the new plan cannot continue the work of the current tasks; "" if they can."""
        plain = self._saver.plain if self._saver is not None else ()
        rereading = validation.rereading(self._intent.old_topology)
        bound = [why for name in sorted(self._rescaled()) if (why := validation.not_scalable(name, plain, rereading))]
        return f"nothing was updated: {'; '.join(bound)}" if bound else ""

    def _rescaled(self) -> set[str]:
        old = packing_plan.tasks_by_component(self._intent.old_packing_plan)
        new = packing_plan.tasks_by_component(self._intent.new_packing_plan)
        return {name for name in old.keys() & new.keys() if len(old[name]) != len(new[name])}

    # ---- joining ----------------------------------------------------------------------------

    def _join(self, now: float) -> None:
        self.phase = Phase.JOINING
        self._deadline = now + self._shared.settings.start_timeout_s
        self._shared.persist(Node.PACKING_PLAN, self._union)
        self._shared.registry.place(self._union, self._old_spouts | self._new_spouts)

    def _advance_joining(self, now: float) -> None:
        registry = self._shared.registry
        waiting = [
            name
            for name in (stmgr_id(container.id) for container in self._union.containers)
            if name not in registry.stmgrs or registry.stmgrs[name].lost
        ]
        for task in self._added:
            status = registry.tasks.get(task)
            if status is None or status.state in _GONE_STATES:
                waiting.append(registry.name_of(task))
        broken = self._broken()
        if broken is not None:
            self._roll_back(now, str(broken))
        elif not waiting:
            self._switch(now)
        elif now >= self._deadline:
            self._roll_back(now, f"within {self._timeout()} these processes did not register: {listed(waiting)}")

    def _broken(self) -> Broken | None:
        """Return the first task that can never start, or None."""
        registry = self._shared.registry
        # A switch with checkpoints also restarts tasks that do not change.
        restarted = self._saver is not None and self.phase is Phase.SWITCHING
        for task in sorted(registry.places) if restarted else self._added:
            name = registry.name_of(task)
            process = registry.failed_processes.get(name)
            if task in registry.failed_tasks:
                return Broken(name, registry.tasks[task].error)
            if process is not None:
                reason = process.exit_reason.replace("_", " ")
                return Broken(name, f"{reason}: {process.exit_detail}".rstrip(": "))
        return None

    # ---- switching --------------------------------------------------------------------------

    def _switch(self, now: float) -> None:
        book = self._shared.book
        self.phase = Phase.SWITCHING
        self._deadline = now + self._shared.settings.start_timeout_s
        book.held_to_empty = bool(self._moved) and self._saver is None
        book.topology = self._intent.new_topology
        book.use(self._middle)
        self._shared.persist(Node.TOPOLOGY, book.topology)
        self._version = self._shared.change_plan(now)

    def _advance_switching(self, now: float) -> None:
        registry = self._shared.registry
        broken = self._broken()
        if broken is not None:
            self._roll_back(now, str(broken))
        elif self._in_force() and not registry.lagging:
            self.phase = Phase.DRAINING
            self._draining_at = now
            self._deadline = now + self._intent.drain_timeout_s
            self._advance_draining(now)
        elif now >= self._deadline:
            names = [registry.name_of(task) for task in sorted(registry.lagging)]
            self._roll_back(now, f"within {self._timeout()} these tasks did not apply the new plan: {listed(names)}")

    def _in_force(self) -> bool:
        """Whether the requested plan is published and, with checkpoints, every task has restored its state for it."""
        book = self._shared.book
        published = book.plan is not None and book.plan.version >= self._version
        return published and (self._saver is None or self._saver.settled)

    # ---- draining ---------------------------------------------------------------------------

    def _advance_draining(self, now: float) -> None:
        # The successors of removed tasks process their tuples again.
        left = self._undrained() if self._saver is None else []
        emptying = self._shared.book.held_to_empty and now < self._draining_at + MOVE_WAIT_S
        if now < self._deadline and any(emptying or task in self._removed for task in left):
            return
        left = [task for task in left if task in self._removed]
        for task in left:
            status = self._shared.registry.tasks.get(task)
            if status is not None:
                self._discarded += status.in_queue_tuples + status.out_queue_tuples
        self._commit(now)

    def _undrained(self) -> list[int]:
        """Return removed tasks that may still have work and, if the spouts are held back, all other tasks with work.

        All tasks must be idle during the same period, because one task may feed another. The period has a minimum
        length, because frames may be in transit between two stream managers.
        """
        registry, removed = self._shared.registry, self._removed
        tasks = [*removed, *(registry.places.keys() - removed if self._shared.book.held_to_empty else ())]
        latest = float("-inf")
        for task in tasks:
            status = registry.tasks.get(task)
            entry = registry.stmgrs.get(stmgr_id(registry.places[task].container))
            if status is None or entry is None or status.state in _GONE_STATES or _is_busy(status, task in removed):
                self._idle.pop(task, None)
                continue
            if entry.last_seen <= self._draining_at:
                continue
            counters = (status.epoch, status.emitted, status.executed)
            known = self._idle.get(task)
            since = known[1] if known is not None and known[0] == counters else entry.last_seen
            self._idle[task] = (counters, since, entry.last_seen)
            latest = max(latest, since)
        return [t for t in tasks if t not in self._idle or self._idle[t][2] <= latest + QUIET_S]

    # ---- the end ----------------------------------------------------------------------------

    def _commit(self, now: float) -> None:
        shared, final = self._shared, self._intent.new_packing_plan
        shared.book.held_to_empty = False
        self._discarded += max(0, shared.registry.totals.discarded - self._discarded_before)
        shared.persist(Node.PACKING_PLAN, final)
        shared.persist(Node.UPDATE, None)
        shared.book.use(final)
        for task in (*self._removed, *self._moved):
            shared.outages.pop(shared.registry.name_of(task), None)  # its end will not be reported
        shared.registry.place(final, self._new_spouts)
        if self._moved or self._diff.removed_containers:
            self._version = shared.change_plan(now)
            shared.publish_if_due(now)
        if self._moved:
            self.phase = Phase.SETTLING
            self._deadline = now + shared.settings.start_timeout_s
        else:
            self._finish()

    def _advance_settling(self, now: float) -> None:
        registry = self._shared.registry
        waiting = sorted(registry.lagging & set(self._moved))
        if self._in_force() and not waiting:
            self._finish()
        elif now >= self._deadline:
            names = [registry.name_of(task) for task in waiting]
            self._refuse(
                f"the update is done, but within {self._timeout()} these moved tasks did not start:"
                f" {listed(names)}; see their logs"
            )

    def _refuse(self, why: str) -> None:
        self.phase = Phase.DONE
        self._shared.refuse(self._requests, RpcError(why))

    def _finish(self) -> None:
        self.phase = Phase.DONE
        body = control_pb2.UpdateReply(
            added=self._added,
            removed=self._removed,
            discarded_tuples=self._discarded,
            plan_version=self._shared.book.version,
        )
        for request in self._requests:
            self._shared.reply(request, body)
        text = (
            f"update done: {counted(len(self._added), 'task')} added, {len(self._removed)} removed,"
            f" {len(self._moved)} moved, {counted(self._discarded, 'tuple')} discarded"
        )
        self._shared.note(text)
        self._shared.event_log.add(control_pb2.EVENT_UPDATE, text, reason="done")

    def _roll_back(self, now: float, why: str) -> None:
        shared = self._shared
        switched = self.phase is Phase.SWITCHING
        packing = plan_pb2.PackingPlan()
        packing.CopyFrom(self._intent.old_packing_plan)
        packing.version += 2
        packing.next_task_id = packing_plan.next_task_id(self._union)
        shared.book.topology, shared.book.held_to_empty = self._intent.old_topology, False
        # Needed even if nothing was switched: a predecessor may have stored the new topology.
        shared.persist(Node.TOPOLOGY, shared.book.topology)
        shared.persist(Node.PACKING_PLAN, packing)
        shared.persist(Node.UPDATE, None)
        shared.book.use(packing)
        shared.registry.place(packing, self._old_spouts)
        if switched:
            shared.change_plan(now)
            shared.publish_if_due(now)
        self._refuse(f"update rolled back; the topology runs as before: {why}")
        text = f"update rolled back: {why}"
        shared.note(text, warning=True)
        shared.event_log.add(control_pb2.EVENT_UPDATE, text, reason="rolled_back", warning=True)

    def _timeout(self) -> str:
        return f"{self._shared.settings.start_timeout_s:g} s"


def _is_busy(status: control_pb2.TaskStatus, leaves: bool) -> bool:
    """Whether a task has work; a spout's pending tuples only count if the task is being removed."""
    # Bytes without tuples are frames that the stream manager still holds for the task.
    queued = status.in_queue_tuples or status.in_queue_bytes
    return bool(queued or status.out_queue_tuples or (leaves and status.pending))


def check_request(shared: SharedState, message: control_pb2.UpdateTopology) -> None:
    """Raise RpcError or TopologyError if the requested update must not begin."""
    book, target = shared.book, message.packing_plan
    if message.expected_version != book.packing.version:
        raise RpcError("the packing plan has changed; run update again")
    if message.topology.name != book.topology.name:
        raise InvalidRpcError(f"the update is for {message.topology.name}, but this is {book.topology.name}")
    validation.validate(LogicalPlan.from_topology(message.topology))
    wrong = packing_plan.problems(target, message.topology)
    if wrong:
        raise InvalidRpcError(f"{wrong[0]}; pack again")
    old, new = placement(book.packing), placement(target)
    for task in old.keys() & new.keys():
        if old[task][1] != new[task][1]:
            raise InvalidRpcError(f"task {task} belongs to {old[task][1]} and cannot become a task of {new[task][1]}")


def same(shared: SharedState, message: control_pb2.UpdateTopology) -> bool:
    """Whether an update would change nothing."""
    topology = topology_pb2.Topology()
    topology.CopyFrom(message.topology)
    topology.state = shared.book.topology.state
    packing = plan_pb2.PackingPlan()
    packing.CopyFrom(message.packing_plan)
    packing.version, packing.id = shared.book.packing.version, shared.book.packing.id
    return topology == shared.book.topology and packing == shared.book.packing


def union_of(old: plan_pb2.PackingPlan, new: plan_pb2.PackingPlan) -> plan_pb2.PackingPlan:
    """Return a plan with all current and all added tasks, in which moved tasks are still in their old containers."""
    union: plan_pb2.PackingPlan = packing_plan.union(old, new)
    union.version = old.version + 1
    return union


def middle_of(old: plan_pb2.PackingPlan, new: plan_pb2.PackingPlan) -> plan_pb2.PackingPlan:
    """Return a plan with the tasks of the new plan in their current containers; removed containers become empty."""
    middle = union_of(old, new)
    stays = placement(new).keys()
    for container in middle.containers:
        kept = [instance for instance in container.instances if instance.task_id in stays]
        del container.instances[:]
        container.instances.extend(kept)
    return middle


def resume_point(
    intent: plan_pb2.UpdateIntent, stored: plan_pb2.PackingPlan, previous: plan_pb2.PhysicalPlan | None
) -> tuple[topology_pb2.Topology, plan_pb2.PackingPlan] | None:
    """Return the topology and packing plan of a half-done update, or None if the update is over.

    The physical plan decides: it is stored before it is sent, so no process acts on a switch that is not stored.
    """
    if stored.version > intent.old_packing_plan.version + 1:
        return None
    middle = middle_of(intent.old_packing_plan, intent.new_packing_plan)
    switched = (
        previous is not None
        and previous.topology == intent.new_topology
        and placement_of_plan(previous) == placement(middle)
    )
    if switched:
        return intent.new_topology, middle
    return intent.old_topology, intent.old_packing_plan
