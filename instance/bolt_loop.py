"""The loop of a bolt task.

Frames wait in `in_queue` in the order of their arrival. A frame is processed in chunks that adapt to a few
milliseconds each, so that ticks, control and acks never wait behind a large frame of slow tuples.
Output is sent when a batch is full, and at the end of a chunk if linger.py allows it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from heronpy.proto import components_of, control_pb2, frame_pb2, plan_pb2
from heronpy.task.acks import BoltAcks
from heronpy.task.routing import input_streams, pending_max, schemas_of, upstream_tasks
from heronpy.task.tuples import HeronTuple, InFrame, Part
from heronpy.task.user_code import BoltCalls
from heronpy.wire.frames import BARRIER, CLAMP, DATA, fits, root_tasks_of, roots_of

from . import dead_letters
from .awake import Sleeps
from .barriers import BoltCheckpoints
from .dead_letters import DeadLetters
from .executed import FEW, Executed, ExecuteWatch, Looks, SlowTuples, in_hand, keys_of
from .in_queue import IN_QUEUE_SHARE, Entry, InQueue, Pace
from .linger import AckLinger, Linger
from .opening import FrameOpener
from .poison import PoisonGuard
from .progress import Readiness
from .task import CREDIT_EVERY_S, StopRequested, Task, UserError
from .time_use import BLOCKED, IDLE

if TYPE_CHECKING:
    from heronpy.ckpt.snapshot import TaskState

log = logging.getLogger("heron.instance")

CHUNK_MAX = 8192
CHUNK_SHORT_S, CHUNK_LONG_S = 1e-3, 4e-3
#: Seconds for which a bolt waits, before its next tuple, for one in-flight frame of a checkpoint, and for all of them.
GATHER_S, GATHER_MAX_S = 5e-3, 0.2
IDLE_WAIT_S = 5.0
#: Longest wait in seconds of an idle bolt that has no timers.
CALM_WAIT_S = 15.0
NEVER = float("inf")
TICK_STREAM, TICK_COMPONENT = "__tick", "__system"


class BoltTask(Task):
    tracked_as = "bolt"
    checkpoints: BoltCheckpoints | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.in_queue = InQueue(lambda size, tuples: self.link.consumed(size, tuples, self._send_held), self.progress)
        #: The open frame of the next tuple, the frame's tuples, and how many of these were given to user code.
        self.entry: Entry
        self.current: list[HeronTuple] = []
        #: The unprocessed parts of the open frame, if the bolt takes batches; see batch_loop.py.
        self.parts: deque[Part] = deque()
        self._place = 0
        self._chunk = 1
        self._pace = Pace()
        self._tick_s: float | None = None
        self._next_tick = 0.0
        self._linger = Linger(self.settings.linger_max_us * 1e-6)
        self._sleeps = Sleeps()
        self._ack_linger = AckLinger(self.settings.linger_max_us * 1e-6)
        self._granted_at = 0.0
        self._finished = False
        self.opener: FrameOpener
        self.poison: PoisonGuard
        self.account = Executed(self.metrics)
        self.slow = SlowTuples(self.settings.slow_ms, self.metrics.count)
        self.looks = Looks()
        self._execute_watch: ExecuteWatch | None = None

    # ---- emit, ack ------------------------------------------------------------------------------

    def build(self, plan: plan_pb2.PhysicalPlan) -> None:
        super().build(plan)
        if plan.spouts_held and components_of(plan.topology)[self.name.component].comp.asks_readiness:
            now = time.monotonic()
            limit_s = self.settings.ready_timeout_s
            asked, changed = self.user.object.is_ready, self.control.notify
            self.standing.readiness = Readiness(self.name.component, asked, limit_s, changed, now)
            self.ask_readiness(now)

    def make_checkpoints(
        self, plan: plan_pb2.PhysicalPlan, region: plan_pb2.RegionRecord, state: TaskState
    ) -> BoltCheckpoints:
        sources = upstream_tasks(plan, self.name.component)
        self.checkpoints = BoltCheckpoints(self.cut_ports(), region, state, sources, self.in_queue)
        return self.checkpoints

    def prepare_delegate(self) -> None:
        self.acks = BoltAcks(
            self.name.task_id,
            self.link.send_control,
            self.emitter.settle,
            self.acking,
            self.metrics.count,
            self.stmgr.frame_max_bytes,
        )
        self.opener = FrameOpener(
            self.acks,
            self.in_queue,
            self.progress,
            self.metrics.count,
            self.report_exception,
            lambda component, stream, task: self.poison.watch_decoding(component, stream, task),
            # If checkpoints are taken, all tasks of an attempt start with its plan.
            may_wait=self.checkpoints is None,
            deserialize=self.user.deserialize,
            allow_pickle=self.settings.allow_pickle,
        )
        delegate, launch, tries_max = self.user.delegate, self.launch, self.settings.poison_tries
        letters = DeadLetters(self.name, launch, self.settings.dead_letters_max_bytes, self.metrics, self.progress)
        if tries_max:
            letters.emit_by(lambda *args: delegate.emit(*args), self.emitter.streams.get(dead_letters.STREAM))
        self.poison = PoisonGuard(
            self.name, launch.sockets_dir, tries_max, self.user, letters, self._settle, self._heard
        )
        delegate.abandon = self.poison.abandon
        self._calls = BoltCalls(self.name.component, self.user, self.emitter, self.acks, self.stream_named)
        self._calls.prepare()

    def bind_emit(self) -> None:
        """Create the fast `emit`, and check how the predecessor ended."""
        self._calls.bind()
        self.poison.begin(self.after, self.asynchronous)
        limit_s, code = self.settings.execute_timeout_s, self.process_function.__code__
        thread = threading.get_ident()
        self.slow.in_hand = lambda: in_hand(thread, code)[0]
        self.looks.in_hand = lambda: in_hand(thread, code)
        if limit_s:
            watch = ExecuteWatch(self.name, self.progress, limit_s, code, self.poison.overran, self.control)
            watch.start()
            self._execute_watch = watch

    def _settle(self, tup: HeronTuple) -> None:
        """Ack an abandoned tuple, so that its spout does not emit it again even if user code failed it before."""
        if self.acking:
            # Sent immediately, because the next tuple may end the process.
            self.acks.ack_at_once(tup)
            self.emitter.flush()

    def _heard(self, tup: HeronTuple) -> dict[int, int]:
        """Return the highest root of each spout task, in this tuple's frame and in the waiting frames."""
        heard: dict[int, int] = {}
        frames = [] if tup.frame.envelope is None else [tup.frame.envelope]
        for frame in (*frames, *(entry.frame for entry in self.in_queue.waiting)):
            if frame.tracked:
                roots = roots_of(frame)
                for task, root in zip(root_tasks_of(frame, len(roots)).tolist(), roots.tolist(), strict=True):
                    heard[task] = max(root, heard.get(task, 0))
        return heard

    def leave(self) -> None:
        """Unregister from the stream manager; no tuple is processed afterwards."""
        if self._execute_watch is not None:
            self._execute_watch.stop()
        self.poison.end()
        super().leave()

    def flush_acks(self, current: list[HeronTuple] | None = None) -> None:
        """Send the acks and fails; `current` is the frame just processed, if it is complete."""
        self.acks.flush(current)
        self.progress.acked, self.progress.failed = self.acks.ack_count, self.acks.fail_count

    def look(self, now: float) -> float:
        return self.slow.look(now)

    def fill(self, report: control_pb2.MetricsReport) -> None:
        super().fill(report)
        report.slow.extend(self.slow.kept)
        now = time.monotonic()
        self.looks.look(now)
        if found := self.looks.told(now):
            report.found.CopyFrom(found)

    # ---- frames ---------------------------------------------------------------------------------

    def take_frame(self, frame: frame_pb2.Frame, size: int) -> None:
        if not fits(frame):
            self.opener.refuse_misfit(frame, size)
            return
        if frame.kind == CLAMP:
            self.take_hint(frame)
            return
        if frame.kind == DATA and self._next_tick == NEVER:
            self._next_tick = time.monotonic() + (self._tick_s or 0.0)
        if self.checkpoints is not None:
            self.checkpoints.admit(frame, size)
        elif frame.kind == DATA:
            self.in_queue.put(frame, size)
        elif frame.kind == BARRIER:
            self.in_queue.refuse(size, 0)

    def keep_pace(self) -> None:
        now_ns, target_s = time.monotonic_ns(), self.stmgr.queue_target_ms / 1000
        use = self.time_use.totals(now_ns)
        if target_s and self._pace.sample(self.progress.executed, use.busy + use.blocked):
            self.link.pace = self._pace.rate
            self.in_capacity.aim(self._pace.rate * target_s * IN_QUEUE_SHARE)
            self.link.window_tuples = self.in_window()
            self.in_queue_bytes = self.link.window_bytes = self.settings.in_queue_bytes_max

    def arm_tick(self, now: float) -> None:
        """Schedule the next tick: in step with earlier ticks, or one interval from now if ticks were missed."""
        interval = self._tick_s or 0.0
        self._next_tick += interval
        if self._next_tick <= now:
            self._next_tick = now + interval

    def hold_ticks(self) -> None:
        """Stop ticks until the next tuple, because a bolt that emits on every tick would keep the topology busy."""
        self._next_tick = NEVER

    def on_link_lost(self) -> None:
        self.in_queue.lose_link()

    def take_plan(self, plan: plan_pb2.PhysicalPlan) -> None:
        super().take_plan(plan)
        self.in_queue.put_first(self.opener.take_plan(plan, self.components))
        for source in input_streams(plan.topology, self.name.component):
            self.metrics.count("__execute-count", source, 0)  # an edge without tuples has a rate, too
        self.looks.keys = keys_of(plan, self.name.component, schemas_of(plan.topology))
        tasks = sum(record.component == self.name.component for record in plan.instances)
        self._ack_linger.limit(pending_max(plan.topology), tasks)
        if not self.starting:
            # A live change of the configuration arrives with a new plan.
            interval = self.user.tick_interval_s()
            if interval != self._tick_s:
                self._tick_s = interval
                self._next_tick = time.monotonic() + (interval or 0.0)

    def take_next(self, now: float) -> bool:
        """Take the first frame of the queue. Returns True if it is open now, False if there is nothing to do."""
        queue = self.in_queue
        entry = queue.next() if self.checkpoints is None else self.checkpoints.next()
        if entry is None:
            return False
        self.entry = entry
        if self.opener.withholds(entry, now):
            return False
        self._place = 0
        try:
            found = self.open_frame(entry.frame, now)
        except Exception as error:
            self.opener.refuse(entry.frame, error)
            found = False
        if not found:
            queue.done(entry, entry.left)
            return False
        if self.checkpoints is None:
            del entry.frame  # only checkpoints need the payload later
        return True

    def open_frame(self, frame: frame_pb2.Frame, now: float) -> bool:
        """Put a frame's tuples into `current`; return whether there are any. Errors propagate."""
        self.current = self.opener.open(frame, now)
        return bool(self.current)

    # ---- the loop -------------------------------------------------------------------------------

    def run_loop(self) -> None:
        """Run until a stop is requested; raises UserError if user code raises an exception."""
        self._tick_s = self.user.tick_interval_s()
        self._next_tick = time.monotonic() + (self._tick_s or 0)
        self.set_state(control_pb2.TASK_RUNNING)
        self._turns()
        self.flush_acks()

    def _turns(self) -> None:
        link, queue, emitter, linger = self.link, self.in_queue.waiting, self.emitter, self._linger
        interrupted = self.control.interrupted
        monotonic = time.monotonic
        came = 0
        while not self.stopping:
            if interrupted:
                self.serve_inbox()
                if self.stopping:
                    return
            # Checking the socket costs a system call, so a turn that processes arrived frames skips the check.
            came = 0 if came else link.receive(self.take_frame)
            if self.checkpoints is not None:
                if self.checkpoints.pending:
                    self.checkpoints.work()
                if self.checkpoints.recorder is not None:
                    self._gather(self.checkpoints)
            now = monotonic()
            self.turn(now)
            if self._tick_s is not None and now >= self._next_tick:
                self._tick(now)
            if link.outbox:
                if self.acks.waiting:
                    self.flush_acks()
                self._rest(now, busy=True)
            elif self.current or queue or self.parts:
                self.step(now)
                after = monotonic()
                if emitter.dirty() and linger.over(after, self._sleeps.any):
                    linger.sent(after)
                    self._sleeps.forget()
                    emitter.flush()
            else:
                if now >= linger.due and emitter.dirty():
                    linger.sent(now)
                    self._sleeps.forget()
                    emitter.flush()
                if self.acks.waiting and now >= self._ack_linger.due:
                    self._ack_linger.sent(now)
                    self.flush_acks()
                if self.finish_requested and not self._finished and not self.opener.early_frames:
                    emitter.flush()
                    self._finish()
                self._rest(now, busy=False)

    def _gather(self, checkpoints: BoltCheckpoints) -> None:
        """Before the next tuple, receive in-flight frames that belong to a checkpoint."""
        until = time.monotonic() + GATHER_MAX_S
        while checkpoints.recorder is not None and time.monotonic() < until:
            if not self.link.receive(self.take_frame):
                if self.link.unreported():
                    self.link.grant()
                self.sleep(GATHER_S)
                if not self.link.receive(self.take_frame):
                    return

    def step(self, now: float) -> None:
        """Process the next chunk of the current frame."""
        if not self.current:
            if not self.take_next(now):
                return
        current, place = self.current, self._place
        whole = place == 0 and len(current) <= self._chunk
        part = current if whole else current[place : place + self._chunk]
        first, waited_ns = part[0], self.waited_ns
        frame, span = first.frame, None
        if frame.trace is not None:
            part, alone = frame.trace.next_part(part, place)
            if alone:
                span, frame.trace = self.tracer.begin(frame.trace), None
        if self.looks.wished > 0:
            self.looks.note(first, now)
        origin_ns, source = frame.origin_ns, f"{frame.component}/{frame.stream}"
        timed = self.account.singly(source)
        stamps: list[int] | None = [] if timed or len(part) <= FEW else None
        if stamps is None:
            self.slow.blind_at = now
        if origin_ns:
            self.marks.begin(origin_ns, now)
        count = self._process(part, stamps)
        after = time.monotonic()
        if span is not None:
            self.tracer.end(span)
        self.progress.executed += count
        took_ns = (after - now) * 1e9 - (self.waited_ns - waited_ns)
        samples = self.account.chunk(source, first, count, took_ns, stamps or () if timed else (), after)
        if took_ns > self.slow.limit_ns:
            self.slow.chunk(part[:count], took_ns, samples, stamps or (), time.time())
        if origin_ns and self.marks.end(after):
            self.account.path_ended(first, count, time.time_ns())
        self.flush_due_acks(after, current if whole and count == len(current) else None)
        took = after - now
        if took < CHUNK_SHORT_S:
            self._chunk = min(CHUNK_MAX, self._chunk * 2)
        elif took > CHUNK_LONG_S:
            self._chunk = max(1, self._chunk // 2)
        self.advance(count)

    def flush_due_acks(self, now: float, current: list[HeronTuple] | None = None) -> None:
        """Send the acks after a chunk of tuples, unless they are few and may wait; `current` as in `flush_acks`."""
        if not self.acking:
            self.flush_acks()
            return
        acks, linger = self.acks, self._ack_linger
        linger.came(now)
        if current is not None and acks.keep(current):
            current = None
        if acks.waiting >= linger.room or now >= linger.due or acks.urgent:
            linger.sent(now)
            self.flush_acks(current)

    def advance(self, count: int) -> None:
        """Record that `count` tuples of the open frame are done."""
        self._place += count
        if self._place >= len(self.current):
            self.current = []
        self.in_queue.done(self.entry, count)

    def _process(self, part: list[HeronTuple], stamps: list[int] | None = None) -> int:
        """Process tuples; return the number of processed tuples, which is smaller if the loop was interrupted.

        If each call is to be timed, `stamps` gets the times of the calls, without the waits for the out-queue.
        """
        process, interrupted = self.poison.careful or self.user.object.process, self.control.interrupted
        if self.opener.damaged:
            process = self.poison.sparing(process)
        tup = part[0]
        try:
            if self.user.context.has_hooks:
                for tup in part:
                    start = time.monotonic()
                    process(tup)
                    self.user.context.invoke_hook_bolt_execute(tup, (time.monotonic() - start) * 1e9)
                    if interrupted:
                        break
            elif stamps is not None:
                clock = time.monotonic_ns
                stamps.append(clock() - self.waited_ns)
                for tup in part:
                    process(tup)
                    stamps.append(clock() - self.waited_ns)
                    if interrupted:
                        break
            else:
                for tup in part:
                    process(tup)
                    if interrupted:
                        break
        except (StopRequested, UserError):
            self.broke_off(part.index(tup) + 1)
            raise
        except (Exception, SystemExit) as error:
            if self.poison.raised(tup, error):
                return part.index(tup) + 1
            self.acks.fail(tup)
            self.broke_off(part.index(tup) + 1)
            raise UserError from error
        return len(part) if tup is part[-1] else part.index(tup) + 1

    #: The function whose local `tup` is the tuple in user code, and whether several tuples may be in progress.
    process_function: Callable[..., Any] = _process
    asynchronous = False

    def broke_off(self, count: int) -> None:
        """Record an interruption: the tuple counts as the last processed tuple; the successor gets all later tuples."""
        self.progress.executed += count
        self.flush_acks()
        self.advance(count)

    def _tick(self, now: float) -> None:
        """Call `process_tick` if its time has come; skip ticks that were missed while user code was busy."""
        self.arm_tick(now)
        frame = InFrame(TICK_COMPONENT, TICK_STREAM, 0, 1, now)
        tick = HeronTuple([], frame, 0)
        self.guard(self.user.object.process_tick, tick)
        self.flush_acks()

    def _finish(self) -> None:
        self._finished = True
        self.hold_ticks()
        if self.checkpoints is None or not self.checkpoints.finished_before:
            self.guard(self.user.object.finish)
        self.acks.flush()
        self.emitter.flush()
        self.set_state(control_pb2.TASK_FINISHED)

    def _send_held(self) -> None:
        """Under ATLEAST_ONCE, send buffered tuples and acks before credit, which reports that their frames are done.

        If credit were sent first and the task were then killed, only the message timeout would detect the lost tuples.
        """
        if self.acking:
            self.emitter.flush()
            self.flush_acks()

    def _rest(self, now: float, busy: bool) -> None:
        """Wait for a frame, a message, a tick or the end of a linger. First return outstanding credit that is due."""
        deadline = now + (IDLE_WAIT_S if busy or self._has_timers() else CALM_WAIT_S)
        if self._tick_s is not None:
            deadline = min(deadline, self._next_tick)
        if not busy and self.emitter.dirty():
            deadline = min(deadline, self._linger.due)
        if not busy and self.acks.waiting:
            deadline = min(deadline, self._ack_linger.latest)
        if self.link.unreported() and not busy:
            credit_at = self._granted_at + CREDIT_EVERY_S
            held = self.acking and (bool(self.acks.waiting) or self.emitter.dirty())
            if now < credit_at or held:
                self.sleep(max(0.0, (deadline if held else min(deadline, credit_at)) - now))
                return
            self._granted_at = now
            self.link.grant()
        self.publish_progress(now, resting=True)
        self.sleep(max(0.0, deadline - now), rest=BLOCKED if busy else IDLE)

    def _has_timers(self) -> bool:
        """Return whether a turn may have work without an arrival; user metrics may also change outside of calls."""
        return self.checkpoints is not None or bool(self.opener.early_frames) or self.user_metrics.used

    def turn(self, now: float) -> None:
        super().turn(now)
        if self.opener.early_frames:
            self.opener.give_up_late(now)

    def last_word(self) -> frame_pb2.Frame:
        frame = super().last_word()
        if self.checkpoints is not None:
            # The successor starts from a checkpoint.
            return frame
        self.opener.give_up_all()
        frame.skip = self.in_queue.skip()
        lost = self.in_queue.unreturnable()
        if lost:
            # The stream manager of these tuples is gone, so they cannot be sent again.
            log.warning("%d tuples from an earlier stream manager were not processed", lost)
            self.metrics.count("__gateway-lost-tuples", "unprocessed", lost)
            if not self.acking:
                self.progress.lost += lost
        return frame
