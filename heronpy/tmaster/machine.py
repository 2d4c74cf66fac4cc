"""The decisions of the topology master: events in, effects out. Pure.

`handle` takes one event and the monotonic time; the shell performs the effects in order and sends a
Tick at `next_deadline`. One operation (activation, restart, update) runs at a time and has a deadline,
so every request is answered. Data is only persisted when a plan changes: heartbeats never cause a
write to the state manager.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from heronpy.common import states
from heronpy.common.errors import HeronError, RetryableRpcError, RpcError
from heronpy.common.setting_types import CheckpointSettings, TmasterSettings
from heronpy.common.states import UP_STATES
from heronpy.plan.component_config import reliability_mode
from heronpy.proto import checkpoint_pb2, control_pb2, plan_pb2, topology_pb2
from heronpy.tmaster import events, lifecycle
from heronpy.tmaster.checkpoints import Checkpoints
from heronpy.tmaster.event_log import EventLog, Watcher
from heronpy.tmaster.events import Effect, Node
from heronpy.tmaster.exceptions import ExceptionStore
from heronpy.tmaster.input import Finisher, Readiness
from heronpy.tmaster.operations import Move, Restart, StateChange
from heronpy.tmaster.planbook import PlanBook, placement, placement_of_plan
from heronpy.tmaster.registry import Registry
from heronpy.tmaster.shared_state import Operation, SharedState
from heronpy.tmaster.totals import Totals
from heronpy.tmaster.update import Phase, Update, check_request, resume_point, same

#: Seconds after sending a plan in which it is not sent again to a stream manager that reports an older plan.
RESEND_PLAN_S = 1.0
#: Highest credible version of a plan; a process that reports a higher version is ignored.
PLAN_VERSION_MAX = 1 << 48
#: If a deadline is missed by this many seconds, this process was stopped, so the silence of others proves nothing.
PAUSED_S = 0.5


class TopologyMaster:
    """The topology master's state machine; call `begin` first, then `handle` for each event."""

    def __init__(
        self,
        settings: TmasterSettings,
        epoch: int,
        *,
        topology: topology_pb2.Topology,
        packing: plan_pb2.PackingPlan,
        previous: plan_pb2.PhysicalPlan | None = None,
        intent: plan_pb2.UpdateIntent | None = None,
        checkpoints: CheckpointSettings | None = None,
        log: checkpoint_pb2.CheckpointLog | None = None,
        totals: control_pb2.TotalsLedger | None = None,
        happened: control_pb2.EventLedger | None = None,
        submitted: plan_pb2.ExecutionState | None = None,
        wall_offset_s: float = 0.0,
        process: str = "tmaster",
    ) -> None:
        self.settings = settings
        self.epoch = epoch
        self._intent = intent
        self._submitted = submitted
        self._resumes = False
        if intent is not None and intent.new_topology.id == topology.id:
            point = resume_point(intent, packing, previous)
            if point is not None:
                topology, packing = point
                self._resumes = True
        book = PlanBook(topology, packing, previous, epoch)
        registry = Registry(settings.stmgr_lost_s, settings.executor_lost_s)
        registry.totals = Totals.of(totals, topology.id)
        if previous is not None:
            registry.totals.take_plan(previous)
        event_log = EventLog(wall_offset_s)
        event_log.take_over(happened, topology.id)
        self.shared = SharedState(settings, registry, book, ExceptionStore(settings.exceptions_max), event_log, process)
        self.shared.resumed = previous is not None
        self.watcher = Watcher(event_log)
        self.operation: Operation | None = None
        self.finisher = Finisher(self.shared)
        self.readiness = Readiness(self.shared)
        #: The checkpoints; None unless the mode is EFFECTIVELY_ONCE.
        self.checkpoints: Checkpoints | None = None
        if reliability_mode(topology) == "EFFECTIVELY_ONCE":
            settings_of = checkpoints or CheckpointSettings()
            self.checkpoints = Checkpoints(self.shared, settings_of, log, previous, self.finisher)
        #: Wall time minus the time of the events, in seconds.
        self._wall_offset_s = wall_offset_s
        self._started_at = 0.0
        #: Time at which all spouts of a deactivated topology were first known to be paused.
        self._resting_since = 0.0
        self._due: float | None = None
        #: Version of the last plan that was passed to the watcher.
        self._watched = 0
        #: The lifecycle state that was announced last.
        self.life: control_pb2.Lifecycle = control_pb2.LIFE_STARTING
        self._handlers: dict[type, Callable[[Any, float], None]] = {
            events.StmgrRegistered: self._on_stmgr_registered,
            events.StmgrBeat: self._on_stmgr_beat,
            events.ExecutorRegistered: self._on_executor_registered,
            events.ExecutorBeat: self._on_executor_beat,
            events.ExceptionsReported: self._on_exceptions,
            events.OutageReported: self._on_outage,
            events.StateRequested: self._on_state_requested,
            events.RestartRequested: self._on_restart_requested,
            events.UpdateRequested: self._on_update_requested,
            events.ConfigRequested: self._on_config_requested,
            events.SendFailed: self._on_send_failed,
            events.TaskAnswered: self._on_checkpoint_event,
            events.RestoreFailed: self._on_checkpoint_event,
            events.DataLost: self._on_checkpoint_event,
            events.MetadataWritten: self._on_checkpoint_event,
            events.CheckpointsDeleted: self._on_checkpoint_event,
            events.CheckpointRequested: self._on_checkpoint_requested,
            events.RewindRequested: self._on_rewind_requested,
            events.DeleteRequested: self._on_delete_requested,
            events.Tick: self._on_tick,
        }

    # ---- the machine ------------------------------------------------------------------------

    def begin(self, now: float) -> list[Effect]:
        """Start the machine, continuing from the records of a predecessor if there was one."""
        self._started_at = self._resting_since = now
        shared, book = self.shared, self.shared.book
        shared.event_log.now = now
        shared.registry.totals.start(now + self._wall_offset_s)
        if book.plan is not None:
            shared.event_log.add(
                control_pb2.EVENT_MASTER, f"topology master {self.epoch} took over", subject="tmaster", warning=True
            )
        elif self._submitted is not None and not shared.event_log.start.launched_at:
            submitted_at = self._submitted.submitted_at
            shared.event_log.start.begun_at = self._submitted.begun_at or submitted_at
            shared.event_log.start.packaged_at = submitted_at
            shared.event_log.start.launched_at = now + self._wall_offset_s
        spouts = {spout.comp.name for spout in book.topology.spouts}
        shared.registry.place(book.packing, spouts)
        shared.registry.expect(book.plan_tasks(), book.version)
        if self._resumes and self._intent is not None:
            shared.note("resuming the update that the previous topology master left unfinished", warning=True)
            self.operation = Update.resume(shared, self._intent, now, self.checkpoints)
        elif self._intent is not None:
            shared.persist(Node.UPDATE, None)
        if self.checkpoints is not None:
            self.checkpoints.begin(now)
        if book.plan is None or book.stale:
            shared.change_plan(now)
        self._due = self.next_deadline()
        return shared.take()

    def handle(self, event: events.Event, now: float) -> list[Effect]:
        """Decide how to react to an event; return the effects to perform in order."""
        self.shared.event_log.now = now
        if self._due is not None and now - self._due > PAUSED_S:
            self.shared.registry.overslept(now)
        request: int = getattr(event, "request", 0)
        try:
            self._handlers[type(event)](event, now)
        except HeronError as error:
            if not request:
                raise
            self.shared.refuse([request], error)
        self._advance(now)
        self._due = self.next_deadline()
        return self.shared.take()

    def next_deadline(self) -> float | None:
        """The latest time for the next Tick; None if only another event can change the state."""
        operation = self.operation.deadline if self.operation is not None else None
        candidates = [
            self.shared.registry.next_sweep,
            self.shared.publish_deadline(),
            operation,
            self.finisher.deadline,
            self.checkpoints.deadline() if self.checkpoints is not None else None,
        ]
        due = min(c for c in candidates if c is not None)
        return due if due != float("inf") else None

    def validate(self) -> None:
        """Raise AssertionError when an invariant does not hold."""
        book, registry = self.shared.book, self.shared.registry
        registry.validate()
        self.shared.exceptions.validate()
        self.shared.event_log.validate()
        assert not self.shared.pending, "some effects were not carried out"
        assert self.operation is None or not self.operation.done, "a finished operation was kept"
        if book.plan is not None:
            assert book.plan.version <= book.version
            shown = placement_of_plan(book.plan)
            if self.shared.publish_at is None:
                assert shown == placement(book.packing), "the plan differs from the packing"
            assert self.shared.publish_at is not None or not book.stale
        if not isinstance(self.operation, Update):
            known = {task: (p.container, p.component) for task, p in registry.places.items()}
            assert known == placement(book.packing), "supervised tasks are not the packed ones"
        if self.checkpoints is not None:
            self.checkpoints.validate()
        if self.life == control_pb2.LIFE_UPDATING:
            assert isinstance(self.operation, Update)

    def _advance(self, now: float) -> None:
        shared = self.shared
        if now >= shared.registry.next_sweep:
            for name in shared.registry.sweep(now):
                text = f"no heartbeat from {name}"
                shared.note(text, warning=True)
                shared.event_log.add(control_pb2.EVENT_SILENT, text, subject=name, warning=True)
            if self.checkpoints is not None:
                self.checkpoints.restorer.look_at_all(now)
        if self.checkpoints is not None:
            update = self.operation if isinstance(self.operation, Update) else None
            switching = update is not None and update.phase is Phase.SWITCHING
            self.checkpoints.advance(now, updating=update is not None, switching=switching)
        shared.publish_if_due(now)
        book = shared.book
        if not shared.started and book.plan is not None and not shared.registry.lagging:
            shared.started = True
            shared.registry.totals.start_all()
            shared.note(f"all {len(shared.registry.places)} tasks of {book.topology.name} have started")
        if self.operation is not None:
            self.operation.advance(now)
            if self.operation.done:
                self._note_rest(self.operation, now)
                self.operation = None
            shared.publish_if_due(now)
        restoring = self.checkpoints is not None and not self.checkpoints.restorer.regions.all_started
        if not restoring:
            self.readiness.advance(now)
        # Processes that are about to restart do not get FinishTasks.
        waits = isinstance(self.operation, Move) or (isinstance(self.operation, Restart) and self.operation.is_emptying)
        if not isinstance(self.operation, Update) and not waits and not restoring:
            self.finisher.advance(now)
        if shared.event_log.start.launched_at and not shared.event_log.start.running_at:
            self._time_start(now)
        life = self.lifecycle
        if life != self.life:
            self.life = life
            cause, word = self.cause(now), control_pb2.Lifecycle.Name(life)[5:]
            # A process that is briefly stopped by a command is not a fault.
            ordered = life == control_pb2.LIFE_DEGRADED and isinstance(self.operation, Move | Restart)
            by = f" by the {self.operation.name}" if ordered and self.operation is not None else ""
            text = f"{book.topology.name} is {word}{by}{': ' + cause if cause else ''}"
            shared.note(text, warning=life == control_pb2.LIFE_FAILED)
            bad = life in (control_pb2.LIFE_FAILED, control_pb2.LIFE_DEGRADED) and not ordered
            shared.event_log.add(control_pb2.EVENT_LIFE, text, reason=word.lower(), warning=bad)
        if self._watched != book.version:
            self._watched = book.version
            self.watcher.place(shared.registry.containers)

    def _time_start(self, now: float) -> None:
        """Record the end times of the phases of the first start."""
        shared, start, wall = self.shared, self.shared.event_log.start, now + self._wall_offset_s
        if not start.registered_at and not shared.book.missing(shared.registry.stmgrs):
            start.registered_at = wall
        if start.registered_at and not start.planned_at and shared.book.plan is not None:
            start.planned_at = wall
        if start.planned_at and shared.has_run:
            start.running_at = wall
            text = f"{shared.book.topology.name} was started in {states.start_text(start)}"
            shared.event_log.add(control_pb2.EVENT_LIFE, text, reason="start")

    def _note_rest(self, operation: Operation, now: float) -> None:
        """Record the time at which every spout has applied a deactivation."""
        if isinstance(operation, StateChange) and operation.applied and not operation.active:
            self._resting_since = now
            self.finisher.input_ended = operation.end_input

    # ---- stream managers --------------------------------------------------------------------

    def _on_stmgr_registered(self, event: events.StmgrRegistered, now: float) -> None:
        shared, message = self.shared, event.message
        shared.registry.register_stmgr(event.peer, message, now)
        self._reserve(message.stmgr.id, max((t.plan_version for t in message.tasks), default=0), now)
        book = shared.book
        if self.checkpoints is not None:
            self.checkpoints.look_at_stmgr(message.stmgr, event.peer, now)
            self.checkpoints.restorer.look_at(message.stmgr.container, now)
        if book.differs(message.stmgr):
            shared.change_addresses(now)
        reply = control_pb2.RegisterStmgrReply(tmaster_epoch=self.epoch)
        if book.plan is not None and shared.publish_at is None and message.stmgr.id in book.wanted:
            reply.plan.CopyFrom(book.plan)
            shared.registry.stmgrs[message.stmgr.id].plan_sent_at = now
        shared.reply(event.request, reply)

    def _on_stmgr_beat(self, event: events.StmgrBeat, now: float) -> None:
        shared, message = self.shared, event.message
        if shared.registry.beat(event.peer, message, now) is None:
            shared.send((event.peer,), control_pb2.RegisterAgain())
            return
        book = shared.book
        entry = shared.registry.stmgrs.get(message.stmgr_id)
        if entry is not None and message.epoch == entry.record.epoch:
            self.watcher.culprits(message.stmgr_id, message.culprits)
        if self.checkpoints is not None and message.stmgr_id in shared.registry.stmgrs:
            self.checkpoints.restorer.look_at(shared.registry.stmgrs[message.stmgr_id].record.container, now)
        if message.stmgr_id not in book.wanted or book.plan is None or shared.publish_at is not None:
            return
        if entry is None or message.epoch != entry.record.epoch:
            return
        if message.plan_version > book.version:
            self._reserve(message.stmgr_id, message.plan_version, now)
        elif message.plan_version < book.version and now >= entry.plan_sent_at + RESEND_PLAN_S:
            entry.plan_sent_at = now
            shared.send((event.peer,), control_pb2.NewPlan(plan=book.plan))

    def _reserve(self, name: str, version: int, now: float) -> None:
        """Skip plan versions up to one that a process has received but the state manager has lost."""
        book = self.shared.book
        if book.version < version <= PLAN_VERSION_MAX:
            self.shared.note(f"{name} has plan {version}, which is newer than {book.version}", warning=True)
            book.reserve(version)
            self.shared.change_plan(now)

    # ---- executors --------------------------------------------------------------------------

    def _on_executor_registered(self, event: events.ExecutorRegistered, now: float) -> None:
        message = event.message
        self.shared.registry.register_executor(event.peer, message, now)
        after = message.after if message.HasField("after") else None
        self.watcher.processes(message.container, message.epoch, message.processes, after)
        self.shared.reply(event.request, control_pb2.Ok(text="registered"))

    def _on_executor_beat(self, event: events.ExecutorBeat, now: float) -> None:
        registry, message = self.shared.registry, event.message
        if registry.executor_beat(event.peer, message, now):
            self.watcher.processes(message.container, message.epoch, message.processes)
        elif message.container in registry.executors:
            # The executor was stopped while it was replaced. Its registration will be refused, which ends it (F10).
            self.shared.send((event.peer,), control_pb2.RegisterAgain())

    def _on_exceptions(self, event: events.ExceptionsReported, now: float) -> None:
        for report in event.reports:
            self.shared.exceptions.add(report)

    def _on_outage(self, event: events.OutageReported, now: float) -> None:
        if event.why:
            self.shared.outages[event.process] = event.why
        else:
            self.shared.outages.pop(event.process, None)

    # ---- requests ---------------------------------------------------------------------------

    def _on_state_requested(self, event: events.StateRequested, now: float) -> None:
        running = self.operation
        if isinstance(running, StateChange) and running.active == event.active:
            running.requests.append(event.request)
            running.end_input |= event.end_input and not event.active
            return
        self._require_idle()
        self._require_unfinished("be activated" if event.active else "be deactivated")
        self.finisher.input_ended = False
        self.operation = StateChange(self.shared, event.request, event.active, now, event.end_input)

    def _on_restart_requested(self, event: events.RestartRequested, now: float) -> None:
        self._require_idle()
        if self.finisher.done:
            raise RpcError(f"{self.shared.book.topology.name} has finished; kill it and submit it again")
        if self.checkpoints is not None:
            self.checkpoints.restorer.forgive(now)
        if event.moved:
            move = Move(self.shared, event.request, event.moved, now, self.checkpoints)
            self.operation = None if move.done else move
            return
        # With checkpoints, the topology is not emptied first: the tuples lost in the restart are restored.
        restart = Restart(self.shared, event, now, empties=self.checkpoints is None)
        if restart.of_all:
            self.readiness.hold(now, self.shared.book.bolts)
        self.operation = None if restart.done else restart

    def _on_update_requested(self, event: events.UpdateRequested, now: float) -> None:
        self._require_idle()
        self._require_unfinished("be updated")
        life = self.lifecycle
        name = self.shared.book.topology.name
        if life == control_pb2.LIFE_STARTING:
            raise RetryableRpcError(f"{name} is still starting; update it once it runs ({self.cause(now)})")
        if life == control_pb2.LIFE_FAILED:
            raise RpcError(f"{name} has failed ({self.cause(now)}); restart the failed parts, then update")
        current = event.message.expected_version == self.shared.book.packing.version
        if current and same(self.shared, event.message):
            self.shared.reply(event.request, control_pb2.UpdateReply(plan_version=self.shared.book.version))
            return
        if placement(self.shared.book.packing) == placement(event.message.packing_plan):
            self._resize(event.request, event.message, now)
            return
        self.operation = Update.begin(self.shared, event.request, event.message, now, self.checkpoints)

    def _resize(self, request: int, message: control_pb2.UpdateTopology, now: float) -> None:
        """Change sizes without moving tasks: executors follow the packing plan, and no task restarts.

        The packing plan is stored last, so its new version shows that the whole change is stored.
        """
        shared, book = self.shared, self.shared.book
        check_request(shared, message)
        message.topology.state, message.packing_plan.version = book.topology.state, book.packing.version + 2
        book.topology = message.topology
        shared.persist(Node.TOPOLOGY, book.topology)
        shared.persist(Node.PACKING_PLAN, message.packing_plan)
        book.use(message.packing_plan)
        shared.change_plan(now)
        shared.publish_if_due(now)
        shared.event_log.add(control_pb2.EVENT_UPDATE, "task sizes changed", reason="resize")
        shared.reply(request, control_pb2.UpdateReply(plan_version=book.version))

    def _on_config_requested(self, event: events.ConfigRequested, now: float) -> None:
        if isinstance(self.operation, Update):
            self._require_idle()
        shared = self.shared
        before = shared.book.topology
        shared.book.configure(event.settings)
        if shared.book.topology != before:
            shared.persist(Node.TOPOLOGY, shared.book.topology)
            shared.change_plan(now)
            shared.publish_if_due(now)
        count = len(event.settings)
        noun = "setting" if count == 1 else "settings"
        shared.event_log.add(control_pb2.EVENT_UPDATE, f"{count} {noun} changed", reason="settings")
        shared.confirm([event.request], f"{count} {noun} in plan {shared.book.version}")

    def _require_idle(self) -> None:
        if self.operation is not None:
            name = self.shared.book.topology.name
            raise RetryableRpcError(f"{self.operation.name} of {name} is running; try again when it is done")

    def _require_unfinished(self, what: str) -> None:
        if self.finisher.active:
            state = "has finished" if self.finisher.done else "is finishing"
            raise RpcError(f"{self.shared.book.topology.name} {state} and cannot {what}")

    # ---- checkpoints ------------------------------------------------------------------------

    def _on_checkpoint_event(self, event: Any, now: float) -> None:
        if self.checkpoints is not None:
            self.checkpoints.handle(event, now)

    def _on_checkpoint_requested(self, event: events.CheckpointRequested, now: float) -> None:
        checkpoints = self._require_checkpoints()
        self._require_going()
        checkpoints.on_requested(event.request, event.savepoint, now)

    def _on_rewind_requested(self, event: events.RewindRequested, now: float) -> None:
        checkpoints = self._require_checkpoints()
        self._require_going()
        checkpoints.on_rewind(event.request, event.checkpoint, now)
        # In this mode the spouts of a region always wait until its bolts are restored.
        self.readiness.hold(now, self.shared.book.asking)

    def _on_delete_requested(self, event: events.DeleteRequested, now: float) -> None:
        checkpoints = self._require_checkpoints()
        if isinstance(self.operation, Update):
            self._require_idle()
        checkpoints.on_delete(event.request, list(event.checkpoints))

    def _require_checkpoints(self) -> Checkpoints:
        if self.checkpoints is None:
            name = self.shared.book.topology.name
            raise RpcError(f"{name} has no checkpoints: they need topology.reliability.mode EFFECTIVELY_ONCE")
        return self.checkpoints

    def _require_going(self) -> None:
        if self.finisher.done:
            name = self.shared.book.topology.name
            raise RpcError(f"{name} has finished; 'heron checkpoints list' shows its last checkpoint")
        if isinstance(self.operation, Update):
            self._require_idle()

    def checkpoints_reply(self, now: float) -> control_pb2.CheckpointsReply:
        """Build the reply that `heron checkpoints` shows."""
        return self.checkpoints.reply(now) if self.checkpoints is not None else control_pb2.CheckpointsReply()

    # ---- other events -----------------------------------------------------------------------

    def _on_send_failed(self, event: events.SendFailed, now: float) -> None:
        if self.checkpoints is not None:
            self.checkpoints.on_send_failed(event.body, now)
        if isinstance(event.body, control_pb2.FinishTasks):
            self.finisher.forget(list(event.body.task_ids))
        elif isinstance(event.body, control_pb2.NewPlan):
            for entry in self.shared.registry.stmgrs.values():
                if entry.peer == event.peer:
                    entry.plan_sent_at = float("-inf")

    def _on_tick(self, event: events.Tick, now: float) -> None:
        """Do nothing: `_advance`, which is called after every event, handles the passing of time."""

    # ---- questions --------------------------------------------------------------------------

    @property
    def lifecycle(self) -> control_pb2.Lifecycle:
        return lifecycle.decide_lifecycle(self.shared, self.operation, self.finisher)

    @property
    def starts(self) -> bool:
        """Whether the topology is starting and no known problem keeps it from doing so."""
        return self.lifecycle == control_pb2.LIFE_STARTING and not lifecycle.startup_exceptions(self.shared)

    def cause(self, now: float) -> str:
        """Explain the state of the topology; "" if there is no problem."""
        if self.lifecycle == control_pb2.LIFE_WAITING:
            return self.readiness.cause(now)
        age_s = now - self._started_at
        return lifecycle.derive_cause(self.shared, self.operation, self.lifecycle, age_s, now)

    def totals(self, moment: float) -> control_pb2.TupleTotals:
        """Return the totals of the topology at a moment; 0 means the latest."""
        return self.shared.registry.totals.summed(moment, reliability_mode(self.shared.book.topology))

    def _is_drained(self) -> bool:
        """Whether a deactivated topology has processed all tuples that its spouts emitted."""
        shared = self.shared
        if shared.book.active or not shared.started or not shared.registry.spouts_rest:
            return False
        return shared.registry.drained(shared.book.wanted, self._resting_since)

    def status(self, now: float) -> control_pb2.StatusReply:
        """Build the reply that `heron status` shows."""
        shared, book, registry = self.shared, self.shared.book, self.shared.registry
        drained = self._is_drained()
        # Once no count changes any more, the last counts of all tasks are consistent.
        moment = 0.0 if self.finisher.done or drained else registry.totals.moment(registry.places)
        reply = control_pb2.StatusReply(
            topology=book.topology.name,
            topology_id=book.topology.id,
            lifecycle=self.lifecycle,
            cause=self.cause(now),
            plan_version=book.plan.version if book.plan is not None else 0,
            tmaster_epoch=self.epoch,
            uptime_s=max(0.0, now + self._wall_offset_s - registry.totals.started_at),
            discarded_tuples=registry.totals.discarded,
            dropped=registry.totals.dropped,
            totals=self.totals(moment),
            culprits=registry.culprits(),
            startup_exceptions=lifecycle.startup_exceptions(shared),
            exceptions=shared.exceptions.seen,
            drained=drained,
            outages=lifecycle.outages(shared),
            retired=registry.totals.retired(registry.places, moment),
        )
        for task, place in sorted(registry.places.items()):
            status = registry.tasks.get(task)
            if status is not None:
                reply.tasks.append(status)
                registry.totals.fill(reply.tasks[-1], moment)
                end = registry.end_of(task)
                if end is not None and status.state in UP_STATES:
                    reply.tasks[-1].state = control_pb2.TASK_LOST
                    reply.tasks[-1].error = f"its process has ended{f': {end}' if end else ''}"
            else:
                unheard = reply.tasks.add(task_id=task, component=place.component, instance_id=place.name)
                registry.totals.fill_unheard(unheard, moment)
                reply.totals.at_least = reply.totals.at_least or (unheard.at_least and registry.is_spout(task))
        reply.stmgrs.extend(entry.beat for _, entry in sorted(registry.stmgrs.items()))
        reply.executors.extend(entry.record for _, entry in sorted(registry.executors.items()))
        for executor in reply.executors:
            for process in executor.processes:
                process.restarts = min(registry.totals.restarts_of(process), (1 << 32) - 1)
        if book.plan is not None:
            reply.plan.CopyFrom(book.plan)
        return reply
