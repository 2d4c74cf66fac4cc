"""The common part of spout tasks and bolt tasks: user object, plan, emitter, link, counters, life cycle.

The loop that runs the user's code is in spout_loop.py, bolt_loop.py or async_loop.py. All of a
task's state belongs to its one thread; the control thread reads `progress` and calls nothing else.
"""

from __future__ import annotations

import logging
import random
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from heronpy.api import global_metrics
from heronpy.api.topology_context import TaskProcess
from heronpy.api.user_code import UserCodeError, user_traceback
from heronpy.common.host import clock_id
from heronpy.common.setting_types import InstanceSettings, StmgrSettings
from heronpy.plan.launch import LaunchSpec
from heronpy.procs.exit_reason import ExitReason
from heronpy.proto import control_pb2, frame_pb2, plan_pb2, topology_pb2
from heronpy.proto.checkpoint_pb2 import TaskSnapshot
from heronpy.task.emitter import Emitter
from heronpy.task.name import TaskName
from heronpy.task.outlets import OutStream
from heronpy.task.routing import (
    arrow_schemas,
    choosers_for,
    component_of,
    downstream_tasks,
    output_streams,
    spout_tasks,
)
from heronpy.task.user_code import UserCode
from heronpy.wire.frames import LEAVE, Frame

from .checkpoints import Attempt, Checkpoints, CutOutput, CutPorts, CutWork, RestoreError, open_state, region_of
from .control import ControlThread, Refused
from .in_queue import IN_QUEUE_START_BYTES, IN_QUEUE_START_TUPLES, TunedCapacity
from .inbox import act, leave
from .link import DataLink
from .memory import explain
from .metrics import TaskMetrics, UserMetrics
from .progress import ASK_S, Progress
from .reports import Standing, exception_report
from .time_use import BLOCKED, IDLE, WORKING, Doing, TimeUse
from .tracing import LatencyMarkers, Tracer

if TYPE_CHECKING:
    from heronpy.ckpt.snapshot import TaskState

log = logging.getLogger("heron.instance")

#: The incarnation of a task fills the bits of a root number above this one.
ROOT_EPOCH_SHIFT, ROOT_EPOCH_BITS = 40, 23
#: Longest interval in seconds at which the loop publishes its progress while it runs.
PROGRESS_S = 0.05
#: Shortest interval in seconds between extra reports of changes.
NOTICE_S = 0.05
#: Interval in seconds at which heronpy.api.global_metrics are collected.
GLOBAL_METRICS_S = 1.0
#: Number of times that a call which keeps emitting after a stop request may fill the out-queue.
STOP_OVERSHOOT = 8
#: Output of initialize() waits for the start of the region: at most this multiple of the out-queue.
EARLY_MAX = 8
#: Shortest interval in seconds at which credit below a quarter window is returned.
CREDIT_EVERY_S = 0.02


# Both propagate through user code, so an `except Exception` there must not catch them.
class StopRequested(BaseException):
    """The task was asked to stop, but user code keeps emitting."""


class UserError(BaseException):
    """User code raised an exception; `__cause__` is that exception."""


class Task:
    """One task from registration to exit. Subclasses add `run_loop`."""

    tracked_as = "bolt"
    #: Why the previous incarnation ended, according to its executor; None without a predecessor.
    after: ExitReason | None = None
    #: The task's part in EFFECTIVELY_ONCE; None in other modes.
    checkpoints: Checkpoints | None = None

    def __init__(
        self,
        launch: LaunchSpec,
        settings: InstanceSettings,
        stmgr: StmgrSettings,
        name: TaskName,
        marks_per_s: float = 0.0,
    ) -> None:
        self.launch = launch
        self.settings = settings
        self.stmgr = stmgr
        self.name = name
        self.attempt = Attempt(name.component)
        self.standing = Standing()
        #: Set if the stream manager refuses this task.
        self.refused: Refused | None = None
        #: The newest plan that arrived before the task joined a plan.
        self.offered: plan_pb2.PhysicalPlan | None = None
        self.plan: plan_pb2.PhysicalPlan | None = None
        self.active = True
        self.stopping = False
        self.progress = Progress(turned_at=time.monotonic())
        self.metrics = TaskMetrics()
        self.user_metrics = UserMetrics(self.metrics)
        self.acking = False
        self.finish_requested = self.leaving = self._waiting = False
        self.marks_per_s = marks_per_s
        self.time_use = TimeUse(time.monotonic_ns())
        #: Time that user code has waited for space in the out-queue.
        self.waited_ns = 0
        self._next_progress = self._next_notice = 0.0
        tuned = partial(TunedCapacity, weight=settings.queue_ema_weight, sample_s=settings.queue_sample_ms / 1000)
        self.in_capacity = tuned(settings.in_queue_expected_tuples, settings.in_queue_tuples_max)
        self.out_capacity = tuned(settings.out_queue_expected_tuples, settings.out_queue_tuples_max)
        #: Limit of the incoming queue; smaller until the pace of the task is known.
        self.in_queue_bytes: int = settings.in_queue_bytes_max
        if stmgr.queue_target_ms:
            self.in_queue_bytes = min(IN_QUEUE_START_BYTES, self.in_queue_bytes)
            self.in_capacity.aim(IN_QUEUE_START_TUPLES)
        self.user: UserCode
        self.emitter: Emitter
        self.marks: LatencyMarkers
        self.tracer: Tracer
        self.link: DataLink
        self.control: ControlThread

    # ---- start --------------------------------------------------------------------------------

    def build(self, plan: plan_pb2.PhysicalPlan) -> None:
        """Create the user's object and the emitter, and initialise them. Raises UserError."""
        self.time_use.turn(WORKING, time.monotonic_ns())
        global_metrics.init(self.user_metrics, GLOBAL_METRICS_S)
        component = self.name.component
        self.user = UserCode(self.name, self.launch, self.user_metrics, plan)
        after = self.after.value if self.after is not None else ""
        self.user.know_process(TaskProcess(self.name.container, self.name.epoch, after))
        self.acking = self.user.reliability == "ATLEAST_ONCE"
        self.progress.sends_again = self.user.reliability != "ATMOST_ONCE"
        self._join_region(plan)
        streams = [
            OutStream(name, index, fields, direct, schema)
            for index, ((name, fields, direct), schema) in enumerate(
                zip(output_streams(plan.topology, component), arrow_schemas(plan.topology, component))
            )
        ]
        bits = _random_bits()
        self.emitter = Emitter(
            component,
            self.name.task_id,
            streams,
            self.settings,
            self.link_send if self.checkpoints is None else self.checkpoints.send,
            bits,
            tracked=self.tracked_as if self.acking else None,
            pending=getattr(self, "pending", None),
            serialize=self.user.serialize,
            room=self.wait_for_room,
            frame_max_bytes=self.stmgr.frame_max_bytes,
        )
        self.marks = LatencyMarkers(self.emitter, self.marks_per_s, bits)
        traces_per_s = self.marks_per_s if self.tracked_as == "spout" else 0.0
        self.tracer = Tracer(self.emitter, traces_per_s, bits, time.monotonic_ns, clock_id())
        self.emitter.batches.now = time.monotonic()
        self.emitter.batches.attempt = 0 if self.checkpoints is None else self.checkpoints.attempt
        self.user.construct()
        self.user.delegate.report_error = self.report_exception
        self.user.delegate.wait_outside = self.wait_outside
        self.prepare_delegate()
        self.take_plan(plan)
        self.user.initialize(self.checkpoints)

    def _join_region(self, plan: plan_pb2.PhysicalPlan) -> None:
        """If checkpoints are taken, load the state of the region's attempt. Raises RestoreError."""
        component = self.name.component
        region = region_of(plan, component)
        if region is None:
            return
        self.attempt.take(region)
        try:
            state = open_state(self.launch, plan, component, self.name.task_id, self.settings.allow_pickle)
            checkpoints = self.make_checkpoints(plan, region, state)
            checkpoints.restore()
            self.user.know_state(checkpoints.attempt, state)
        except Exception as error:
            raise RestoreError(region) from error

    def make_checkpoints(
        self, plan: plan_pb2.PhysicalPlan, region: plan_pb2.RegionRecord, state: TaskState
    ) -> Checkpoints:
        """Create and keep the task's part in EFFECTIVELY_ONCE."""
        self.checkpoints = Checkpoints(self.cut_ports(), region, state)
        return self.checkpoints

    def cut_ports(self) -> CutPorts:
        component = self.name.component
        return CutPorts(
            self.name,
            self.metrics,
            self.settings.out_queue_bytes_max * EARLY_MAX,
            CutWork(
                component=lambda: self.user.object,
                describe=lambda: TaskSnapshot(
                    task_id=self.name.task_id,
                    component=component,
                    finished=self.standing.state == control_pb2.TASK_FINISHED,
                    emitted=self.emitter.emitted(),
                    executed=self.progress.executed,
                ),
                guard=self.guard,
                report_exception=self.report_exception,
            ),
            CutOutput(
                flush=lambda: self.emitter.send_buffered(),
                receivers=lambda: downstream_tasks(self.plan, component),
                send=self.link.send,
                send_control=self.link.send_control,
            ),
            self.control,
        )

    @property
    def starting(self) -> bool:
        """True if the loop has not begun."""
        return self.standing.state in (control_pb2.TASK_STARTING, control_pb2.TASK_RESTORED)

    def bind_emit(self) -> None:
        """Create the fast `emit` once the task is initialised."""
        raise NotImplementedError(f"{type(self).__name__} must implement bind_emit")  # pragma: no cover

    def run_loop(self) -> None:
        """Run until a stop is requested; raises UserError if user code raises an exception."""
        raise NotImplementedError(f"{type(self).__name__} must implement run_loop")  # pragma: no cover

    def prepare_delegate(self) -> None:
        """Let user code emit from initialize on; `bind_emit` later makes emits fast."""
        raise NotImplementedError(f"{type(self).__name__} must implement prepare_delegate")  # pragma: no cover

    def link_send(self, dest: int, data: bytes, tuples: int) -> None:
        """Send a frame; without credit it waits in the out-queue."""
        if tuples:
            self.link.send(data, tuples)
        else:
            self.link.send_control(data)

    def wait_for_room(self) -> None:
        """If the out-queue is too full, block the emitting code until it is empty.

        Control messages are served during the wait, so that a rescale never waits for data. A task that must stop does
        not wait: its current call may finish, so that no tuple is half processed.
        """
        link = self.link
        if not link.outbox or self._waiting:
            return
        bytes_max = self.settings.out_queue_bytes_max
        if link.outbox_bytes <= bytes_max and link.outbox_tuples <= self.out_capacity.current:
            return
        self.metrics.count("__out-queue-full-count", "", 1)
        self._waiting = True
        since = time.monotonic_ns()
        self.time_use.turn(BLOCKED, since)
        try:
            while link.outbox and not self.stopping and not self._cut_is_urgent():
                now = self.emitter.batches.now = time.monotonic()
                self.turn(now)
                if self.control.inbox:
                    self.serve_inbox()
                link.receive(self.take_frame)
                if link.outbox and not self.stopping:
                    self.sleep(0.1)
        finally:
            self._waiting = False
            now_ns = time.monotonic_ns()
            self.time_use.turn(WORKING, now_ns)
            self.waited_ns += now_ns - since
        if self.stopping and not self.leaving and link.outbox_bytes > STOP_OVERSHOOT * bytes_max:
            raise StopRequested

    def wait_outside(self, outage: str, pause_s: float) -> None:
        """Pause user code that waits for an external condition, such as space on a disk, and serve control messages.

        `outage` names the reason, or is empty when the code continues. A waiting task does not count as hung. A task
        that must stop raises StopRequested instead of waiting.
        """
        if outage != self.standing.outage:
            self.standing.outage = outage
            self.control.notify(metrics=True)
        if self._waiting:  # user code that was called while another call waits
            time.sleep(pause_s)
            return
        self._waiting = True
        until = time.monotonic() + pause_s
        try:
            while not self.stopping:
                now = time.monotonic()
                self.turn(now)
                if self.control.inbox:
                    self.serve_inbox()
                if now >= until:
                    return
                self.sleep(until - now, frames=False, rest=BLOCKED)
        finally:
            self._waiting = False
        self.standing.outage = ""
        raise StopRequested

    def _cut_is_urgent(self) -> bool:
        """Return whether an unaligned checkpoint must not wait for the out-queue: its barriers are behind stuck
        frames."""
        checkpoints = self.checkpoints
        if checkpoints is None or not checkpoints.urgent:
            return False
        limit = STOP_OVERSHOOT * int(self.settings.out_queue_bytes_max)
        return self.link.outbox_bytes <= limit

    # ---- plan ---------------------------------------------------------------------------------

    def take_plan(self, plan: plan_pb2.PhysicalPlan) -> None:
        """Route by a (new) physical plan; ignore a stale plan."""
        if self.plan is not None and plan.version <= self.plan.version:
            return
        self.plan, self.standing.plan_version = plan, plan.version
        if self.checkpoints is not None:
            self.checkpoints.take_plan(plan)
        self.components = component_of(plan)
        self.tracer.shared_by(spout_tasks(plan))
        name = self.name
        # A spout that moved to another container must be paused here before its executor stops it.
        here = any(i.task_id == name.task_id and i.container == name.container for i in plan.instances)
        active = plan.topology.state != topology_pb2.PAUSED and here
        customs = self.user.custom_groupings
        key_groups = 0 if self.checkpoints is None else self.checkpoints.settings.key_groups
        self.emitter.route(choosers_for(plan, name.component, name.task_id, name.container, customs, key_groups))
        self.guard(self.user.plan_changed, plan, self.components)
        if self.plan is not plan:
            return  # user code emitted, and a newer plan came while it waited
        self.apply_active(active)
        self.control.notify()

    def apply_active(self, active: bool) -> None:
        """Pause or resume a spout; bolts keep running."""
        self.active = active

    # ---- messages -----------------------------------------------------------------------------

    def serve_inbox(self) -> None:
        """Act on the messages that the control thread received."""
        self.control.drain_wake()
        inbox = self.control.inbox
        while inbox:
            act(self, inbox.popleft())

    def stop(self, refused: Refused | None = None) -> None:
        """End at the next tuple boundary, after a request or because the stream manager has `refused` this task."""
        self.stopping = True
        if refused is not None:
            self.refused, self.standing.error = refused, refused.why

    def plan_came(self, plan: plan_pb2.PhysicalPlan) -> None:
        """Apply a new plan, or store it until this task joins a plan."""
        if self.plan is None:
            self.offered = plan
        else:
            self.take_plan(plan)

    def hold_ticks(self) -> None:
        """Stop ticks, because all input has ended: `finish` replaces them."""

    def trace_at(self, order: control_pb2.TraceRate) -> None:
        """Make a spout trace more often for a while."""

    def registered(self, reply: control_pb2.RegisterInstanceReply) -> None:
        if self.link.epoch:
            if self.plan is not None:  # without a plan, nothing has been emitted
                self.emitter.heed_nothing()
            self.on_link_lost()
        self.link.open(reply.link_epoch, self.in_queue_bytes, self.in_window(), reply.stmgr_epoch)

    def on_link_lost(self) -> None:
        """Handle a new stream manager process: frames in its predecessor are lost (tuples are replayed by timeout)."""

    def take_hint(self, frame: frame_pb2.Frame) -> None:
        """Apply a CLAMP about one task: whether the task is full, and the limit of its frames."""
        self.emitter.heed(frame.dest_task, frame.on, frame.count)

    def take_frame(self, frame: frame_pb2.Frame, size: int) -> None:
        """Handle a data frame for this task."""
        raise NotImplementedError(f"{type(self).__name__} must implement take_frame")  # pragma: no cover

    # ---- progress -----------------------------------------------------------------------------

    def look(self, now: float) -> float:
        """Called by the control thread periodically, at the latest at the time that the last call returned."""
        return float("inf")

    def fill(self, report: control_pb2.MetricsReport) -> None:
        """Add the spans of traces, and in a bolt its slow tuples, to a report; called by the control thread."""
        report.spans.extend(self.tracer.take())
        self.metrics.count_to("__discarded-spans", "", self.tracer.discarded)

    def turn(self, now: float) -> None:
        """Record a turn of the loop; publish counters at intervals."""
        self.progress.turned_at = now
        if now >= self._next_progress:
            self._next_progress = now + PROGRESS_S
            self.publish_progress(now)
            self.keep_pace()
            self.emitter.warm(now)
            if self.checkpoints is not None:
                self.checkpoints.check(now)
            self.ask_readiness(now)

    def in_window(self) -> int:
        """The number of tuples that the stream manager may send: those that may wait here and those in progress."""
        return self.in_capacity.current

    def in_waiting(self) -> int:
        """The number of tuples that have arrived and are not in progress."""
        return self.progress.in_tuples

    def keep_pace(self) -> None:
        """Update the pace of a task that receives tuples."""

    def ask_readiness(self, now: float) -> None:
        """Poll the readiness of a bolt while the plan holds back the spouts for it."""
        readiness = self.standing.readiness
        if readiness is None:
            return
        if self.guard(readiness.ask, now) or (self.plan is not None and not self.plan.spouts_held):
            self.standing.readiness = None
            self.control.notify()

    def publish_progress(self, now: float, resting: bool = False) -> None:
        """Copy the counters to where the control thread reads them; sample queues and user metrics.

        A task that wakes up, or becomes idle after work, reports this immediately.
        """
        p, link = self.progress, self.link
        p.count(self.emitter.emitted())
        p.untracked = self.emitter.batches.untracked
        p.out_tuples = link.out_tuples() + self.emitter.buffered()
        p.out_bytes = link.out_bytes()
        p.turned_at = now
        if self.in_capacity.sample(self.in_waiting(), now):
            link.window_tuples = self.in_window()
        self.out_capacity.sample(p.out_tuples, now)
        self.user_metrics.collect(now)
        if (resting or self.control.calm) and now >= self._next_notice:
            activity = (p.emitted, p.executed, p.acked, p.failed, self.standing.state, p.pending)
            if activity != self.control.sent:
                self._next_notice = now + NOTICE_S
                self.control.notify()

    def sleep(self, timeout_s: float, *, frames: bool = True, also: int = -1, rest: Doing = IDLE) -> bool:
        """Wait for a frame (if `frames` is set), a message or the timeout; a waiting task does not count as hung.

        The time of the wait counts as `rest`, or as blocked within an emit that waits for the out-queue. The descriptor
        `also` of user code ends the wait, too; returns whether this descriptor can be read. Returns immediately if an
        earlier wait consumed the wake-up of a message, or if the task must stop.
        """
        if self.stopping or self.control.inbox:
            return False
        if self.checkpoints is not None and self.checkpoints.ready and not self._waiting:
            return False
        if self.standing.readiness is not None:
            timeout_s = min(timeout_s, ASK_S)
        self.note_outgoing()
        before = self.time_use.doing
        self.time_use.turn(BLOCKED if before is BLOCKED else rest, time.monotonic_ns())
        self.progress.resting = True
        readable = self.link.wait(timeout_s, frames=frames, also=also)
        self.progress.resting = False
        self.time_use.turn(before, time.monotonic_ns())
        return readable

    def note_outgoing(self) -> None:
        """Publish the counts of emitted and waiting tuples; otherwise an update would consider the task empty."""
        self.progress.count(self.emitter.emitted())
        self.progress.out_tuples = self.link.out_tuples() + self.emitter.buffered()

    def set_state(self, state: control_pb2.TaskState) -> None:
        """Change the state and notify the stream manager immediately."""
        if self.standing.state != state:
            self.standing.state = state
            self.publish_progress(time.monotonic())
            self.control.notify()

    def guard(self, call: Any, *args: Any) -> Any:
        """Call user code; its exceptions become UserErrors."""
        try:
            return call(*args)
        except (StopRequested, UserError):
            raise
        except Exception as error:
            raise UserError from error

    def stream_named(self, stream: str) -> Any:
        """Return the declared output stream. Raises an error that lists the declared streams."""
        found = self.emitter.streams.get(stream)
        if found is None:
            raise self.emitter.rules.undeclared(stream, self.emitter.streams)
        return found

    # ---- errors and exit ----------------------------------------------------------------------

    def report_exception(self, error: BaseException, startup: bool = False) -> None:
        """Log the full traceback and send it to the executor."""
        text = user_traceback(error)
        if isinstance(error, UserCodeError) and isinstance(error.__cause__, Exception):
            error = error.__cause__
        log.error("%s", text.rstrip())
        out_of_memory = isinstance(error, MemoryError)
        kind, message = type(error).__name__, explain(error)
        self.control.publish(exception_report(self.name, kind, message, text, startup, out_of_memory))

    def leave(self) -> None:
        """Flush, send LEAVE to the stream manager and close; never raises."""
        self.stopping = self.leaving = True
        leave(self)

    def last_word(self) -> frame_pb2.Frame:
        """Return the LEAVE frame, which states the consumed tuples."""
        return Frame(
            kind=LEAVE,
            source_task=self.name.task_id,
            consumed_bytes=self.link.consumed_bytes,
            consumed_tuples=self.link.consumed_tuples,
            consumed_frames=self.link.consumed_frames,
        )


def _random_bits() -> Any:
    """Return a source of 64-bit edges, seeded from the system, even in a forked child."""
    return partial(random.Random(random.SystemRandom().getrandbits(128)).getrandbits, 64)
