"""The decisions of a stream manager's control half: events in, effects out. Pure.

Call `begin` first. `handle` takes an event and the monotonic time, and the shell sends a
TICK at `next_deadline`. Tuples are not events; the shell passes frames to the switch. Timed actions happen only on a
TICK, because other events may come from inside the switch.

Invariants: the topology master gets a report at least once per heartbeat interval while anything moves, at least once
per `silence_s` while nothing moves, and soon after a change; the log gets at most `LINES_PER_S` lines per second, and
reports the number of omitted lines; after STOPPED there are no effects.
"""

from __future__ import annotations

from google.protobuf.message import Message

from heronpy.common.clock import group_of, shared_moment
from heronpy.common.errors import HeronError
from heronpy.common.ids import incarnation_of, stmgr_id
from heronpy.common.setting_types import StmgrSettings
from heronpy.plan.component_config import config_of, drop_policy
from heronpy.plan.logical import LogicalPlan
from heronpy.proto import control_pb2, plan_pb2, topology_pb2

from . import events
from .backpressure import Backpressure, clamps
from .events import Duty, Note, Reply, Signal, Tell
from .sessions import Session, Sessions

#: Seconds after which a change is reported, together with other changes of the same moment.
DEBOUNCE_S = 0.003
#: Seconds after which a task that still reports an older plan gets the new plan again.
RESEND_PLAN_S = 2.0
#: Number of reports that follow a report about a change, and their interval, so that the end of work is visible soon.
FOLLOW_UPS = 4
FOLLOW_UP_S = 0.1
#: Shortest interval of these reports in seconds per task, because reports of many tasks are large.
FOLLOW_UP_PER_TASK_S = 0.002
#: Shortest interval in seconds at which backpressure is logged; the metrics contain every episode.
PRESSURE_LOG_S = 30.0
#: Seconds after which credit below a quarter window is returned.
CREDIT_DELAY_S = 0.02
#: Link epochs of one incarnation fill the bits below this one.
LINK_EPOCH_SHIFT, LINK_EPOCH_BITS = 24, 40
LINES_PER_S = 200
#: While nothing moves, metrics are sent once per this number of heartbeats, at the same time as those of resting tasks.
QUIET_EXPORTS = 3
_NOT_DUE = float("inf")


class Control:
    """The state machine of the control half.

    `pressure` is the switch's backpressure; `export_s` is the time between two metrics reports. While no task moves,
    and without peers to probe, heartbeats are up to `silence_s` apart, and metrics `QUIET_EXPORTS` times that.
    """

    def __init__(
        self,
        settings: StmgrSettings,
        container: int,
        epoch: int,
        pressure: Backpressure,
        export_s: float,
        silence_s: float = 0.0,
    ) -> None:
        self.name = stmgr_id(container)
        self.epoch = epoch
        self.sessions = Sessions(settings.instance_lost_s)
        self.plan: plan_pb2.PhysicalPlan | None = None
        #: Instances of the plan.
        self.instances: dict[int, plan_pb2.InstanceRecord] = {}
        self.peers: dict[str, plan_pb2.StmgrRecord] = {}
        self._spouts: frozenset[str] = frozenset()
        self._settings = settings
        self._container = container
        self._pressure = pressure
        self._export_s = export_s
        self._silence_s = silence_s
        #: True if something has moved since the last round.
        self._moved = True
        self._links = 0
        #: For each task, the registration that waits for the first plan, because its tuples would have no destination.
        self._waiting: dict[int, events.TaskRegistered] = {}
        self._round_at = self._report_at = self._export_at = self._credit_at = _NOT_DUE
        self._follow_ups = 0
        self._pressure_logged_at = -_NOT_DUE
        self._unlogged_episodes = 0
        self._second = -_NOT_DUE
        self._lines = self._lines_left_out = 0
        self._effects: list[events.Effect] = []
        self._stopped = False

    def next_link_epoch(self) -> int:
        """Return a link epoch, unique among all incarnations of this stream manager: a counter, not a clock."""
        self._links += 1
        return (incarnation_of(self.epoch, LINK_EPOCH_BITS) << LINK_EPOCH_SHIFT) + self._links

    # ---- the machine --------------------------------------------------------------------------

    def begin(self, now: float) -> None:
        """Start the intervals."""
        self._round_at = self._next(now, self._settings.heartbeat_interval_s)
        self._export_at = self._next(now, self._export_s)

    def _next(self, now: float, interval_s: float, every: int = 1) -> float:
        return shared_moment(now, interval_s, group_of(self._container), every)

    @property
    def export_pause_s(self) -> float:
        """Return the longest pause between two reports of metrics, with a margin."""
        return max(self._export_s, QUIET_EXPORTS * self._silence_s) + 1.0

    def _wake(self, now: float) -> None:
        """On activity, schedule rounds and metrics as early as allowed."""
        self._moved = True
        self._round_at = min(self._round_at, self._next(now, self._settings.heartbeat_interval_s))
        self._export_at = min(self._export_at, self._next(now, self._export_s))

    def _begin_round(self, now: float) -> None:
        """Schedule the next round and, if there is no activity, the next metrics."""
        interval_s, moved = self._settings.heartbeat_interval_s, self._moved
        self._moved = bool(self.peers) or self._pressure.holding
        self._round_at = self._next(now, interval_s)
        if not moved and not self._moved and self._silence_s > interval_s:
            rare_s = int(self._silence_s / interval_s) * interval_s
            self._round_at = max(self._round_at, min(self._next(now, rare_s), self.sessions.next_expiry()))
            self._export_at = max(self._export_at, self._next(now, rare_s, QUIET_EXPORTS))

    def handle(self, event: events.Event, now: float) -> list[events.Effect]:
        if self._stopped:
            return []
        match event:
            case Signal.TICK:
                self._tick(now)
            case events.TaskReported(identity, status):
                self._on_report(identity, status, now)
            case events.TaskRegistered():
                self._on_registration(event, now)
            case events.TaskRemoved(task):
                self.sessions.by_task.pop(task, None)
                self._report_soon(now)
            case events.PlanReceived(plan):
                self._on_plan(plan, now)
            case Signal.PLAN_IN_FORCE:
                self._on_plan_in_force(now)
            case Signal.REGISTERED:
                self._report_soon(now)
            case events.TasksOrdered(order):
                self._on_order(order)
            case events.PressureHeard(message):
                self._pressure.heard(message, now)
            case Signal.CREDIT_OWED:
                self._credit_at = min(self._credit_at, now + CREDIT_DELAY_S)
            case Signal.STOPPED:
                self._stopped = True
                return []
        self._regulate(now, event is Signal.PRESSURE_CHANGED)
        effects, self._effects = self._effects, []
        return effects

    def next_deadline(self) -> float | None:
        """Return the latest time for the next TICK; None if only an event can change anything."""
        if self._stopped:
            return None
        due = min(self._round_at, self._report_at, self._export_at, self._credit_at)
        due = min(due, self._pressure.next_deadline() or _NOT_DUE)
        return due if due != _NOT_DUE else None

    def validate(self) -> None:
        """Raise AssertionError if an invariant does not hold."""
        assert not self._effects, "effects were not performed"
        assert 0 <= self._follow_ups <= FOLLOW_UPS
        assert all(task == session.status.task_id for task, session in self.sessions.by_task.items())
        assert self._waiting.keys() <= self.sessions.by_task.keys(), "a task that is not registered is waiting"
        assert self.name not in self.peers, "this stream manager is its own peer"

    def _tick(self, now: float) -> None:
        if now >= self._credit_at:
            self._credit_at = _NOT_DUE
            self._effects.append(Duty.SETTLE_CREDIT)
        if now >= self._export_at:
            self._export_at = self._next(now, self._export_s)
            self._effects.append(Duty.EXPORT_METRICS)
        if now >= self._round_at:
            self._begin_round(now)
            self._look_around(now)
            self._report_at = now
        if now >= self._report_at:
            self._report_at = now + self._follow_up_s() if self._follow_ups else _NOT_DUE
            self._follow_ups = max(0, self._follow_ups - 1)
            self._effects.append(Duty.SEND_HEARTBEAT)

    def _look_around(self, now: float) -> None:
        for task in self.sessions.expire(now):
            if self.plan is not None and not self._is_here(task):
                self._effects.append(events.RemoveTask(task))
            else:
                self._note(f"task {task} sent no heartbeat; its tuples wait for it or its successor", now, warning=True)
        self._effects.append(Duty.PROBE_PEERS)
        if self._lines_left_out:
            count, self._lines_left_out = self._lines_left_out, 0
            self._note(f"{count} lines were omitted from this log (limit: {LINES_PER_S} a second)", now, warning=True)

    def _report_soon(self, now: float, delay_s: float = DEBOUNCE_S) -> None:
        self._follow_ups = FOLLOW_UPS
        self._wake(now)
        self._report_at = min(self._report_at, now + delay_s)

    def _follow_up_s(self) -> float:
        return max(FOLLOW_UP_S, FOLLOW_UP_PER_TASK_S * len(self.sessions.by_task))

    def _note(self, text: str, now: float, warning: bool = False) -> None:
        if now >= self._second + 1.0:
            self._second, self._lines = now, 0
        self._lines += 1
        if self._lines <= LINES_PER_S:
            self._effects.append(Note(text, warning))
        else:
            self._lines_left_out += 1

    # ---- tasks --------------------------------------------------------------------------------

    def _is_here(self, task: int) -> bool:
        record = self.instances.get(task)
        return record is not None and record.container == self._container

    def _on_registration(self, event: events.TaskRegistered, now: float) -> None:
        message = event.message
        try:
            self.sessions.register(event.identity, message, now)
        except HeronError as error:
            self._effects.append(Reply(event.request, error=error))
            return
        if not self.awaits_plan(message):  # otherwise the topology master has the task's state
            self._report_soon(now)
        if self.plan is not None:
            self._attach(event, now)
            return
        older = self._waiting.get(message.task_id)
        if older is not None:
            self._effects.append(Reply(older.request))
        self._waiting[message.task_id] = event

    def awaits_plan(self, message: control_pb2.RegisterInstance) -> bool:
        """Return whether a task repeats a registration that was accepted and will be answered once there is a plan."""
        known = self._waiting.get(message.task_id)
        return known is not None and known.message == message

    def _attach(self, event: events.TaskRegistered, now: float) -> None:
        message, link_epoch = event.message, self.next_link_epoch()
        reply = control_pb2.RegisterInstanceReply(stmgr_epoch=self.epoch, link_epoch=link_epoch, plan=self.plan)
        self._effects += (
            events.AttachTask(event, message.component in self._spouts, link_epoch),
            Reply(event.request, reply),
        )
        self._note(f"{message.instance_id} registered, pid {message.pid}, epoch {message.epoch}", now)

    def _on_report(self, identity: bytes, status: control_pb2.TaskStatus, now: float) -> None:
        known, changed = self.sessions.heard(identity, status, now)
        if not known:
            # Make the task register again, because this process started after its registration.
            self._effects.append(Tell(identity, control_pb2.RegisterAgain()))
            return
        session = self.sessions.by_task[status.task_id]
        if changed:
            self._report_soon(now)
        elif session.moved:
            self._report_soon(now, self._follow_up_s())
        outdated = self.plan is not None and status.plan_version < self.plan.version
        if outdated and now >= session.told_at + RESEND_PLAN_S:
            self._tell_plan(session, now)

    def _on_order(self, order: Message) -> None:
        if isinstance(order, control_pb2.FinishTasks | control_pb2.HoldTicks | control_pb2.TriggerCheckpoint):
            tasks = [task for task in order.task_ids if task in self.sessions.by_task]
        else:
            tasks = list(self.sessions.by_task)
        body = control_pb2.HoldTicks() if isinstance(order, control_pb2.HoldTicks) else order
        if isinstance(order, control_pb2.TriggerCheckpoint):
            self._effects.append(events.HoldCredit(not order.unaligned))
        elif isinstance(order, control_pb2.CheckpointComplete | control_pb2.CheckpointAborted):
            self._effects.append(events.HoldCredit(True))
        for task in tasks:
            if isinstance(order, control_pb2.FinishTasks):
                body = control_pb2.FinishTask(task_id=task)
            self._effects.append(Tell(self.sessions.by_task[task].identity, body))

    # ---- plan ---------------------------------------------------------------------------------

    def _on_plan(self, plan: plan_pb2.PhysicalPlan, now: float) -> None:
        """Apply a newer plan: update the routes, then the peers, and then send the plan to the tasks."""
        if self.plan is not None and plan.version <= self.plan.version:
            return
        self.plan = plan
        self._note(f"physical plan {plan.version}: {len(plan.instances)} tasks in {len(plan.stmgrs)} containers", now)
        self.instances = {i.task_id: i for i in plan.instances}
        self._spouts = frozenset(spout.comp.name for spout in plan.topology.spouts)
        self._pressure.alike = alike_of(plan)
        drops = drop_policy(config_of(plan.topology))
        self._effects.append(
            events.SwitchPlan(
                plan,
                here={i.task_id: i.component for i in plan.instances if self._is_here(i.task_id)},
                elsewhere={i.task_id: stmgr_id(i.container) for i in plan.instances if not self._is_here(i.task_id)},
                spouts=self._spouts,
                connected=frozenset(self.sessions.by_task),
                # In a cycle, a queue could wait for its own output.
                holds=not drops and not LogicalPlan.from_topology(plan.topology).cycle(),
                drops=drops,
            )
        )
        self._take_peers({record.id: record for record in plan.stmgrs if record.id != self.name})

    def _take_peers(self, records: dict[str, plan_pb2.StmgrRecord]) -> None:
        known, self.peers = self.peers, records
        for name in [name for name in known if name not in records]:
            self._pressure.lost(name)
            self._effects.append(events.DropPeer(name))
        for name, record in records.items():
            old = known.get(name)
            if old is not None and (old.epoch, old.data_endpoint) == (record.epoch, record.data_endpoint):
                continue
            self._pressure.lost(name)
            self._effects.append(events.ConnectPeer(record))

    def _on_plan_in_force(self, now: float) -> None:
        waiting, self._waiting = self._waiting, {}
        for event in waiting.values():
            self._attach(event, now)
        for session in self.sessions.by_task.values():
            self._tell_plan(session, now)
        self._report_soon(now)

    def _tell_plan(self, session: Session, now: float) -> None:
        session.told_at = now
        self._effects.append(Tell(session.identity, control_pb2.NewPlan(plan=self.plan)))

    # ---- backpressure -------------------------------------------------------------------------

    def _regulate(self, now: float, changed: bool) -> None:
        """Clamp spouts and announce culprits."""
        pressure = self._pressure
        pressure.expire(now)
        if pressure.clamp_changed(now):
            self._effects.append(events.Clamp(pressure.clamped))
            self._report_soon(now)
        on = pressure.announcement_due(now, changed)
        if on is None:
            return
        message = control_pb2.Backpressure(
            stmgr_id=self.name,
            epoch=self.epoch,
            episode=pressure.episodes_started,
            on=on,
            lease_s=pressure.lease_s,
            culprits=self.culprits(now) if on else (),
        )
        self._effects.append(events.Announce(message))
        if changed and on:
            self._note_pressure(message, now)

    def _note_pressure(self, message: control_pb2.Backpressure, now: float) -> None:
        """Log the culprits, at most every few seconds: a task at its limit starts many short episodes."""
        self._unlogged_episodes += 1
        if now < self._pressure_logged_at + PRESSURE_LOG_S:
            return
        held = [c.instance_id or c.peer for c in message.culprits if not (c.avoided or c.drops)]
        avoided = [c.instance_id or c.peer for c in message.culprits if c.avoided and not c.drops]
        parts = [f"the queue of {', '.join(held)} is full"] if held else []
        parts += [f"the queue of {', '.join(avoided)} is full, and its tuples go to other tasks"] if avoided else []
        drops = [c.instance_id or c.peer for c in message.culprits if c.drops]
        parts += [f"the queue of {', '.join(drops)} is full, and surplus tuples are discarded"] if drops else []
        self._note(
            f"backpressure: {'; '.join(parts)} ({self._unlogged_episodes} episodes since the last such line)", now
        )
        self._pressure_logged_at, self._unlogged_episodes = now, 0

    def culprits(self, now: float) -> list[control_pb2.Culprit]:
        """Return the queues that cause the backpressure which this stream manager announces."""
        nowhere = plan_pb2.InstanceRecord()
        found = [(e, self.instances.get(e.task, nowhere)) for e in self._pressure.local.values()]
        return [
            control_pb2.Culprit(
                task_id=episode.task,
                component=record.component,
                instance_id=record.instance_id,
                stmgr_id=self.name,
                peer=episode.link if episode.link in self.peers else "",
                queued_bytes=episode.queued_bytes,
                since_s=now - episode.since,
                avoided=episode.avoided,
                clamps=clamps(episode),
                pace=episode.pace,
                drops=self._pressure.drops,
            )
            for episode, record in found
        ]


def alike_of(plan: plan_pb2.PhysicalPlan) -> dict[int, frozenset[int]]:
    """Return, for each task of a bolt with only shuffled input, all tasks of the bolt."""
    shuffled = {
        bolt.comp.name
        for bolt in plan.topology.bolts
        if all(source.gtype in (topology_pb2.SHUFFLE, topology_pb2.NONE) for source in bolt.inputs)
    }
    tasks: dict[str, set[int]] = {}
    for record in plan.instances:
        if record.component in shuffled:
            tasks.setdefault(record.component, set()).add(record.task_id)
    return {task: frozenset(group) for group in tasks.values() if len(group) > 1 for task in group}
