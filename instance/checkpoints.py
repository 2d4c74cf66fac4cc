"""A task's part in EFFECTIVELY_ONCE: restore, cut, snapshot, commit. Shared by all tasks; spouts use it unchanged.

Messages from the topology master and arriving barriers are only recorded (`note`, `ask`). The loop calls `work` between
two tuples, never inside user code, so a cut never happens in the middle of a call. A cut calls pre_save, sends all
buffers, sends a barrier to every downstream task, and captures the state. Writing continues in parallel with the task
(snapshots.py). `Checkpoints` separates the frames of one attempt from all other frames.

Invariants: nothing is sent before the region has started; every data frame that is sent is counted, so
that a barrier can state how many frames precede it; for each checkpoint a task sends at most one snapshot.
"""

from __future__ import annotations

import inspect
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from heronpy.api.state.stateful_component import StatefulComponent, call_pre_save
from heronpy.api.state.two_phase import TwoPhaseStatefulComponent
from heronpy.common import exit_codes
from heronpy.common.errors import TopologyError
from heronpy.common.setting_types import CheckpointSettings
from heronpy.common.settings import settings_for
from heronpy.plan.grouping import grouping_width
from heronpy.plan.launch import LaunchSpec
from heronpy.procs import exit_notice
from heronpy.proto import components_of, control_pb2, plan_pb2
from heronpy.proto.checkpoint_pb2 import TaskSnapshot
from heronpy.task.name import TaskName
from heronpy.wire.frames import BARRIER, Frame

from .control import CheckpointMessage, ControlThread, SnapshotWritten
from .metrics import TaskMetrics
from .snapshots import Job, SnapshotFailed, SnapshotWriter

if TYPE_CHECKING:
    from heronpy.ckpt.snapshot import TaskState


def region_of(plan: plan_pb2.PhysicalPlan, component: str) -> plan_pb2.RegionRecord | None:
    """Return the region of a component; None if the topology takes no checkpoints."""
    for region in plan.regions:
        if component in region.components:
            return region
    return None


class Attempt:
    """The attempt of one task; `leave` ends the process and does not return.

    A restore restarts every task of a region: the topology master raises the attempt in the plan, and each task with a
    lower attempt ends itself. The control thread ends the task, so that it ends even while user code hangs or the task
    is still starting. Invariant: only the task's thread writes `own`, and only the control thread writes `newest`. Each
    thread writes its value before it reads the other value, so at least one thread sees a newer attempt.
    """

    def __init__(self, component: str, leave: Callable[[int], Any] = exit_notice.leave) -> None:
        self._component = component
        self._leave = leave
        #: The attempt of the task; 0 until the task has taken an attempt.
        self.own = 0
        self.newest = 0

    def heard(self, plan: plan_pb2.PhysicalPlan) -> None:
        """Handle a plan that has arrived. Called by the control thread."""
        region = region_of(plan, self._component)
        if region is not None and region.attempt > self.newest:
            self.newest = region.attempt
            self._leave_if_old()

    def take(self, region: plan_pb2.RegionRecord) -> None:
        """Start this attempt. Called by the task's thread."""
        self.own = region.attempt
        self._leave_if_old()

    def _leave_if_old(self) -> None:
        # Nothing is logged here, because user code that hangs may hold the log's lock.
        if 0 < self.own < self.newest:
            self._leave(int(exit_codes.REWIND))


log = logging.getLogger("heron.instance")


class RestoreError(Exception):
    """The state of a region's attempt cannot be loaded; `__cause__` is the reason."""

    def __init__(self, region: plan_pb2.RegionRecord) -> None:
        super().__init__(f"checkpoint {region.checkpoint} cannot be restored")
        self.region = region


def open_state(
    launch: LaunchSpec, plan: plan_pb2.PhysicalPlan, component: str, task_id: int, allow_pickle: bool
) -> TaskState:
    """Create the empty state of a task, on the store to which it is saved."""
    # Imported only here, because most topologies take no checkpoints.
    from heronpy.ckpt.snapshot import TaskState
    from heronpy.storage.stores import open_stores

    settings = settings_for(launch, CheckpointSettings)
    part = components_of(plan.topology)[component]
    tasks = sorted(record.task_id for record in plan.instances if record.component == component)
    return TaskState(
        component,
        tasks.index(task_id),
        len(tasks),
        settings,
        open_stores(launch, settings, task_id),
        task_id=task_id,
        allow_pickle=allow_pickle,
        grouping_width=grouping_width(getattr(part, "inputs", ())),
    )


class Cut(Struct, frozen=True):
    """A cut to make at the next tuple boundary."""

    checkpoint: int
    savepoint: bool
    unaligned: bool
    #: The time when the first barrier arrived.
    since: float


class CutWork(Struct, frozen=True):
    """The parts of a task that its checkpoints save or call; used by the task's thread."""

    #: The user's object.
    component: Callable[[], Any]
    #: Facts about the task that a snapshot contains.
    describe: Callable[[], TaskSnapshot]
    #: Calls user code; an exception restarts the task.
    guard: Callable[..., Any]
    report_exception: Callable[[Exception], None]


class CutOutput(Struct, frozen=True):
    """The parts of a task's output that its checkpoints use, in the task's thread."""

    #: Sends everything that was emitted and is still buffered.
    flush: Callable[[], None]
    #: The tasks to which this task sends barriers.
    receivers: Callable[[], Iterable[int]]
    send: Callable[[bytes, int], None]
    send_control: Callable[[bytes], None]


class CutPorts(Struct, frozen=True):
    """The parts of a task that its checkpoints use."""

    name: TaskName
    metrics: TaskMetrics
    #: Output of initialize() waits for the start of the region: at most this number of bytes.
    early_bytes_max: int
    work: CutWork
    output: CutOutput
    control: ControlThread


class Checkpoints:
    """The checkpoints of one task in one attempt. All methods are for the task's thread."""

    def __init__(self, ports: CutPorts, region: plan_pb2.RegionRecord, state: TaskState) -> None:
        self.ports = ports
        self.settings = settings = state.settings
        self.attempt = int(region.attempt)
        self.restored_from = int(region.checkpoint)
        self.location = region.location
        self.started = False
        #: True if the state is loaded and the task initialised: from then on, the status contains the attempt.
        self.restored = False
        self.state = state
        self.writer = SnapshotWriter(
            state, settings.fork_above_bytes, settings.inline_max_bytes, self._written, state.uploads
        )
        #: True if there is something for `work`; always set once the region has started.
        self.pending = False
        self.due: Cut | None = None
        #: The highest checkpoint that was cut or aborted in this task.
        self.ended = 0
        #: The newest complete checkpoint whose post_save has returned.
        self.committed = 0
        #: True if the task had finished in the checkpoint from which it was restored, and has received no tuple since.
        self.finished_before = False
        #: True if this source has sent tuples but keeps nothing in its state, so that a restore cannot rewind it.
        self.saves_nothing = False
        self._notes: deque[CheckpointMessage] = deque()
        self._cut_here: set[int] = set()
        self._sent: dict[int, int] = {}
        self._early: list[tuple[bytes, int]] = []
        self._early_bytes = 0

    # ---- start --------------------------------------------------------------------------------

    def restore(self) -> list[bytes]:
        """Load the state; return the frames that were in flight to this task. Errors propagate."""
        start = time.monotonic()
        frames: list[bytes] = self.state.restore(self.location, self.attempt)
        if self.location:
            snapshot = self.state.restored
            self.finished_before = snapshot is not None and snapshot.finished
            self.ports.metrics.count("__stateful_restore_count", "", 1)
            self.ports.metrics.count("__stateful_restore_time", "", (time.monotonic() - start) * 1000)
            log.info("restored checkpoint %d as attempt %d", self.restored_from, self.attempt)
        return frames

    def check_component(self, component: Any) -> None:
        """Refuse components that cannot work under EFFECTIVELY_ONCE."""
        for name in ("pre_save", "post_save", "pre_restore"):
            if inspect.iscoroutinefunction(getattr(component, name, None)):
                raise TopologyError(
                    f"{name} of component {self.ports.name.component} is a coroutine; make it a plain method, "
                    "because it is called while no tuple is in progress"
                )

    def pre_restore(self, component: Any) -> None:
        """Make a two-phase component finish or drop the output of an earlier process."""
        if isinstance(component, TwoPhaseStatefulComponent):
            component.pre_restore(str(self.restored_from))

    def take_plan(self, plan: plan_pb2.PhysicalPlan) -> None:
        """Apply a new plan, which may start the region. A process that misses the start waits for the next attempt."""
        region = region_of(plan, self.ports.name.component)
        if region is None or region.attempt != self.attempt or not region.started or self.started:
            return
        name = self.ports.name
        self.started = self.restored and region.epochs.get(name.task_id, name.epoch) == name.epoch

    # ---- frames out ---------------------------------------------------------------------------

    def send(self, dest: int, data: bytes, tuples: int) -> None:
        """Send a data frame and count it; before the start of the region, keep it."""
        if not tuples:
            # This mode has no acks and no roots.
            self.ports.output.send_control(data)
            return
        self._sent[dest] = self._sent.get(dest, 0) + 1
        if self.started:
            self.ports.output.send(data, tuples)
            return
        self._early.append((data, tuples))
        self._early_bytes += len(data)
        limit = self.ports.early_bytes_max
        if self._early_bytes > limit:
            raise TopologyError(
                f"component {self.ports.name.component} emitted more than {limit} bytes in initialize(), where nothing "
                "can be sent yet; emit from next_tuple or process instead"
            )

    def release_early(self) -> None:
        """Send the output of initialize(), if the region has started."""
        if self.started:
            for data, tuples in self._early:
                self.ports.output.send(data, tuples)
            self._early.clear()

    def _send_barriers(self, cut: Cut) -> None:
        """Send the barriers in order with the data: everything sent before them belongs to the checkpoint."""
        ports = self.ports
        for dest in ports.output.receivers():
            barrier = Frame(
                kind=BARRIER,
                source_task=ports.name.task_id,
                dest_task=dest,
                attempt=self.attempt,
                checkpoint=cut.checkpoint,
                channel_frames=self._sent.get(dest, 0),
                unaligned=cut.unaligned,
                savepoint=cut.savepoint,
            )
            ports.output.send(barrier.SerializeToString(), 0)

    # ---- notes --------------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """True if `work` has something to do, so the loop must not sleep."""
        return self.pending and self.started

    def check(self, now: float) -> None:
        """Check whether a deadline has passed. Called periodically, even while user code waits in an emit."""

    def note(self, message: CheckpointMessage) -> None:
        """Record a message, which may arrive while user code waits in an emit; `work` acts on it."""
        self._notes.append(message)
        self.pending = True

    def ask(self, cut: Cut) -> None:
        """Request a cut. An aligned cut that waits for the end of a tuple may become unaligned."""
        due = self.due
        if cut.checkpoint > self.ended and (
            due is None or (cut.checkpoint, cut.unaligned) > (due.checkpoint, due.unaligned)
        ):
            self.due = cut
            self.pending = True

    @property
    def urgent(self) -> bool:
        """True if an unaligned cut is due: code that waits for the out-queue may then finish its tuple."""
        return self.pending and (
            (self.due is not None and self.due.unaligned)
            or any(isinstance(note, control_pb2.TriggerCheckpoint) and note.unaligned for note in self._notes)
        )

    def work(self, between: bool = True) -> None:
        """Act on the recorded messages, and make the requested cut. `between` means that no tuple is in progress."""
        while self._notes:
            match self._notes.popleft():
                case control_pb2.TriggerCheckpoint() as order:
                    self._triggered(order)
                case control_pb2.CheckpointComplete(checkpoint=checkpoint):
                    self._completed(checkpoint)
                case control_pb2.CheckpointAborted(checkpoint=checkpoint, reason=reason):
                    log.info("checkpoint %d was aborted: %s", checkpoint, reason)
                    self.aborted(checkpoint)
                case SnapshotWritten(checkpoint, snapshot):
                    self._persisted(checkpoint, snapshot)
        if self.due is not None and between:
            cut, self.due = self.due, None
            self._make(cut)
        self.pending = bool(self._notes) or self.due is not None

    def _triggered(self, body: control_pb2.TriggerCheckpoint) -> None:
        if self.started and (self.is_source or body.unaligned):
            self.ask(Cut(body.checkpoint, body.savepoint, body.unaligned, time.monotonic()))

    #: Spouts begin every checkpoint; bolts begin only unaligned checkpoints.
    is_source = True

    # ---- the cut ------------------------------------------------------------------------------

    def _make(self, cut: Cut) -> None:
        """Make the synchronous part of a checkpoint, which blocks the task."""
        start = time.monotonic()
        ports, checkpoint = self.ports, cut.checkpoint
        self.ended = max(self.ended, checkpoint)
        try:
            component = ports.work.component()
            if isinstance(component, StatefulComponent):
                call_pre_save(component, str(checkpoint))
        except Exception as error:
            self._decline_for(checkpoint, "pre_save", error)
            return
        self._cut_here.add(checkpoint)
        try:
            ports.output.flush()
            self._look_for_position()
            self._send_barriers(cut)
            job = self._job(cut, self.state.capture(checkpoint))
            job.records = cut.unaligned and not self.is_source
            self.writer.prepare(job)
            job.cut.sync_s = time.monotonic() - start
            self.writer.start(job)
            self.after_start(cut)
        except SnapshotFailed as error:
            self.decline(checkpoint, f"task {ports.name.instance_id} could not write its state: {error}")
        except Exception as error:
            self._decline_for(checkpoint, "the state", error)
        finally:
            self.after_cut(cut)
        ports.metrics.observe("__stateful_sync_time", "", (time.monotonic() - start) * 1e9, 1)
        ports.metrics.observe("__stateful_align_time", "", (start - cut.since) * 1e9, 1)

    def _look_for_position(self) -> None:
        if self.is_source and self._sent and not self.saves_nothing and self.state.is_empty:
            self.saves_nothing = True
            log.warning(
                "%s has emitted tuples, but its state is empty: after a failure it cannot be rewound, and replayed"
                " tuples may be counted twice; keep its position in the state that init_state receives",
                self.ports.name.component,
            )

    def _job(self, cut: Cut, capture: Any) -> Job:
        timeout_s = self.settings.savepoint_timeout_s if cut.savepoint else self.settings.timeout_s
        now = time.monotonic()
        snapshot = self.ports.work.describe()
        snapshot.component_index = self.state.index
        snapshot.attempt = self.attempt
        snapshot.align_s = now - cut.since
        snapshot.finished = snapshot.finished or self.finished_before
        snapshot.publishes = isinstance(self.ports.work.component(), TwoPhaseStatefulComponent)
        return Job(cut.checkpoint, capture, snapshot, deadline=now + timeout_s)

    def after_start(self, cut: Cut) -> None:
        """Called when the state has been captured; a bolt's unaligned cut begins to record here."""

    def after_cut(self, cut: Cut) -> None:
        """Called at the end of a cut, even if it failed."""

    def _decline_for(self, checkpoint: int, what: str, error: Exception) -> None:
        self.ports.work.report_exception(error)
        verb = "raised" if what == "pre_save" else "could not be saved:"
        cause = f"{type(error).__name__}: {str(error)[:500]}"
        self.decline(checkpoint, f"{what} of task {self.ports.name.instance_id} {verb} {cause}")

    def decline(self, checkpoint: int, error: str, lost_data: bool = False) -> None:
        """Report to the topology master that this task cannot take part in this checkpoint."""
        log.warning("checkpoint %d: %s", checkpoint, error)
        self.ports.control.tell(self._answer(checkpoint, error=error, lost_data=lost_data))
        self.aborted(checkpoint)

    def _answer(self, checkpoint: int, **content: Any) -> control_pb2.TaskCheckpoint:
        return control_pb2.TaskCheckpoint(
            checkpoint=checkpoint,
            task_id=self.ports.name.task_id,
            epoch=self.ports.name.epoch,
            attempt=self.attempt,
            **content,
        )

    def _written(self, checkpoint: int, snapshot: TaskSnapshot | None, error: str) -> None:
        """Handle the end of the writer, in any thread. The task is notified before the topology master answers."""
        if snapshot is None:
            problem = f"task {self.ports.name.instance_id} could not write its state: {error}"
            answer = self._answer(checkpoint, error=problem)
        else:
            answer = self._answer(checkpoint, snapshot=snapshot)
        self.ports.control.deliver(SnapshotWritten(checkpoint, snapshot))
        self.ports.control.tell(answer)

    def _persisted(self, checkpoint: int, snapshot: TaskSnapshot | None) -> None:
        if checkpoint not in self._cut_here:
            return
        if snapshot is None:
            self.aborted(checkpoint)
            return
        self.state.persisted(checkpoint, snapshot)
        metrics = self.ports.metrics
        metrics.observe("__stateful_async_time", "", snapshot.async_s * 1e9, 1)
        metrics.gauge("__stateful_state_size", "", snapshot.total_bytes)

    # ---- the end of a checkpoint --------------------------------------------------------------

    def aborted(self, checkpoint: int) -> None:
        """Abandon this checkpoint and older incomplete checkpoints."""
        self.ended = max(self.ended, checkpoint)
        if self.due is not None and self.due.checkpoint <= checkpoint:
            self.due = None
        self.writer.cancel(checkpoint)
        for cut in sorted(cut for cut in self._cut_here if cut <= checkpoint):
            self._cut_here.discard(cut)
            self.state.aborted(cut)

    def _completed(self, checkpoint: int) -> None:
        """Commit, because the checkpoint is complete and recorded. An exception in post_save restarts the task."""
        if checkpoint in self._cut_here:
            self._cut_here = {cut for cut in self._cut_here if cut > checkpoint}
            self.state.completed(checkpoint)
            component = self.ports.work.component()
            if isinstance(component, TwoPhaseStatefulComponent):
                self.ports.work.guard(component.post_save, str(checkpoint))
        self.committed = max(self.committed, checkpoint)
        self.ports.control.notify()

    def held_bytes(self) -> int:
        """Return the number of bytes held back by barriers."""
        return 0

    def close(self) -> None:
        """Stop the writers, because the process is about to exit."""
        self.writer.cancel(1 << 62)
