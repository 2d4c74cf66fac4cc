"""The loop of a bolt task.

Frames wait in `queue` in the order they came. A frame is processed in chunks that adapt to a few
milliseconds each, so that ticks, control and acks never wait behind a large frame of slow tuples.
Output is flushed at once when there is nothing more to do, by size and age under load.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from typing import Any

from heronpy.common.errors import TopologyError, WireError
from heronpy.proto import control_pb2 as control
from heronpy.proto import frame_pb2
from heronpy.wire import codec
from heronpy.wire.frames import DATA

from .acks import BoltAcks
from .emitter import mark_of
from .routing import schemas_of
from .task import IDLE_CREDIT_S, StopRequested, Task, UserError
from .tuples import HeronTuple, InFrame, make_tuples

log = logging.getLogger("heron.instance")

CHUNK_MAX = 8192
CHUNK_SHORT_S, CHUNK_LONG_S = 1e-3, 4e-3
IDLE_WAIT_S = 5.0
TICK_STREAM, TICK_COMPONENT = "__tick", "__system"


class BoltTask(Task):
    """One task of a bolt."""

    tracked_as = "bolt"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.queue: deque[tuple[frame_pb2.Frame, int]] = deque()
        self.current: list[HeronTuple] = []
        self._place = 0
        self._current_bytes = 0
        self._chunk = 64
        self._tick_s: float | None = None
        self._next_tick = 0.0
        self._flushed_at = 0.0
        self._finished = False
        self.malformed_frames = 0
        self.known_tasks: dict[int, str] = {}

    # ---- emit, ack ------------------------------------------------------------------------------

    def build(self, plan: Any) -> None:
        super().build(plan)
        self.decode = codec.decoder(self.user.deserialize, self.settings.allow_pickle)

    def prepare_delegate(self) -> None:
        self.acks = BoltAcks(self.task_id, self.link.send_control, self.emitter.settle)
        delegate = self.user.delegate
        delegate.emit = self._emit_any
        delegate.ack = self.acks.acked.append
        delegate.fail = self._fail
        delegate.end_of_input = self._no_end_of_input

    def bind_emit(self) -> None:
        """Make the emit, ack and fail closures; they shadow the class's methods unless overridden."""
        from heronpy.api.bolt.base_bolt import BaseBolt

        delegate, bolt, acks = self.user.delegate, self.user.object, self.acks
        context = self.user.context
        compiled = self.emitter.compile_emit("bolt", self._emit_special, context, _never)
        emit = compiled or self._emit_any
        hooked = context.has_hooks
        delegate.emit = emit
        if hooked:
            delegate.ack = self._hooked_ack
        if getattr(bolt, "delegate", None) is not delegate:
            return
        if type(bolt).emit is BaseBolt.emit:
            bolt.emit = emit
        if type(bolt).ack is BaseBolt.ack:
            bolt.ack = delegate.ack
        if type(bolt).fail is BaseBolt.fail:
            bolt.fail = self._fail

    def _emit_any(
        self,
        tup: Any,
        stream: str = "default",
        anchors: Any = None,
        direct_task: int | None = None,
        need_task_ids: bool = False,
    ) -> list[int] | None:
        """`emit` without a fast path, and before it is compiled."""
        return self._emit_special(tup, stream, anchors, direct_task, need_task_ids)

    def _emit_special(
        self, tup: Any, stream: str, anchors: Any, direct_task: int | None, need_task_ids: bool
    ) -> list[int] | None:
        out = self.stream_named(stream)
        mark = mark_of(anchors) if anchors is not None and self.acking else None
        context = self.user.context
        if direct_task is None and not need_task_ids and not context.has_hooks:
            self.emitter.push(out, tup, mark)
            return None
        tasks = self.emitter.emit_to(out, tup, mark, direct_task)
        if context.has_hooks:
            context.invoke_hook_emit(tup, stream, tasks)
        return tasks if need_task_ids else None

    def _hooked_ack(self, tup: HeronTuple) -> None:
        self.acks.acked.append(tup)
        self.user.context.invoke_hook_bolt_ack(tup, (time.monotonic() - tup.creation_time) * 1e9)

    def _fail(self, tup: HeronTuple) -> None:
        self.acks.failed.append(tup)
        if self.user.context.has_hooks:
            self.user.context.invoke_hook_bolt_fail(tup, (time.monotonic() - tup.creation_time) * 1e9)

    def _no_end_of_input(self) -> None:
        raise TopologyError(f"end_of_input() is for spouts; {self.component} is a bolt")

    # ---- frames ---------------------------------------------------------------------------------

    def take_frame(self, frame: frame_pb2.Frame, size: int) -> None:
        if frame.kind != DATA:
            return
        self.queue.append((frame, size))
        self.link.received_bytes += size
        self.link.received_tuples += frame.count
        self.progress.in_tuples += frame.count
        self.progress.in_bytes += size

    def on_link_lost(self) -> None:
        """Frames in the queue are kept: they were delivered, only their credit is void."""
        self._stale_frames = len(self.queue) + bool(self.current)

    _stale_frames = 0

    def take_plan(self, plan: Any) -> None:
        super().take_plan(plan)
        self._schemas = schemas_of(plan.topology)
        # Frames of a task that a rescale removed may still be on their way.
        self.known_tasks.update(self.components)

    def open_frame(self, frame: frame_pb2.Frame, now: float) -> list[HeronTuple]:
        """The tuples of a frame."""
        component = self.known_tasks.get(frame.source_task, "")
        streams = self._schemas.get(component, ())
        if frame.stream >= len(streams):
            raise WireError(f"frame of task {frame.source_task} has unknown stream number {frame.stream}")
        name, width = streams[frame.stream]
        flat = self.decode(frame.payload, frame.codec)
        if len(flat) != max(1, width) * frame.count:
            raise WireError(
                f"frame of {frame.count} tuples on {component}/{name} holds {len(flat)} values, expected {width} each"
            )
        inner = InFrame(component, name, frame.source_task, frame.count, now)
        if frame.tracked and self.acking:
            inner.track(frame)
        tuples = make_tuples(flat, width, inner)
        return tuples[frame.skip :] if frame.skip else tuples

    # ---- the loop -------------------------------------------------------------------------------

    def run_loop(self) -> None:
        """Run until asked to stop; raises UserError when user code raises."""
        self._tick_s = self.user.tick_interval_s()
        self._next_tick = time.monotonic() + (self._tick_s or 0)
        self.set_state(control.TASK_RUNNING)
        while not self.stopping:
            try:
                self._turns()
            except StopRequested:
                return

    def _turns(self) -> None:
        link, queue, inbox, emitter = self.link, self.queue, self.control.inbox, self.emitter
        monotonic = time.monotonic
        age_s = self.settings.batch_age_ms / 1000
        while not self.stopping:
            if inbox:
                self.serve_inbox()
                if self.stopping:
                    return
            link.receive(self.take_frame)
            now = monotonic()
            self.turn(now)
            if self._tick_s is not None and now >= self._next_tick:
                self._tick(now)
            if link.outbox:
                self._rest(now, busy=True)
            elif self.current or queue:
                self._step(now)
                if not queue and not self.current or monotonic() - self._flushed_at >= age_s:
                    emitter.flush()
                    self._flushed_at = monotonic()
            else:
                emitter.flush()
                self._flushed_at = now
                if self.finish_requested and not self._finished:
                    self._finish()
                self._rest(now, busy=False)

    def _step(self, now: float) -> None:
        """Process the next chunk of the current frame."""
        if not self.current:
            frame, size = self.queue.popleft()
            try:
                self.current = self.open_frame(frame, now)
            except WireError as error:
                log.error("dropped a frame of %d tuples: %s", frame.count, error)
                self.malformed_frames += 1
                self._frame_done(size, frame.count)
                return
            self._place, self._current_bytes = 0, size
        current, place = self.current, self._place
        whole = place == 0 and len(current) <= self._chunk
        part = current if whole else current[place : place + self._chunk]
        self._process(part)
        after = time.monotonic()
        count = len(part)
        self._place = place + count
        self._account(part[0].frame, count, after - now)
        self.acks.flush(current if whole else None)
        self.progress.acked, self.progress.failed = self.acks.ack_count, self.acks.fail_count
        took = after - now
        if took < CHUNK_SHORT_S:
            self._chunk = min(CHUNK_MAX, self._chunk * 2)
        elif took > CHUNK_LONG_S:
            self._chunk = max(1, self._chunk // 2)
        if self._place >= len(current):
            self.current = []
            self._frame_done(self._current_bytes, current[0].frame.count)

    def _process(self, part: list[HeronTuple]) -> None:
        bolt = self.user.object
        process = bolt.process
        tup = part[0]
        try:
            if self.user.context.has_hooks:
                for tup in part:
                    start = time.monotonic()
                    process(tup)
                    self.user.context.invoke_hook_bolt_execute(tup, (time.monotonic() - start) * 1e9)
            else:
                for tup in part:
                    process(tup)
        except StopRequested:
            self._place += part.index(tup) + 1 if tup in part else 0
            raise
        except Exception as error:
            self._raised(part, tup)
            raise UserError from error

    def _raised(self, part: list[HeronTuple], tup: HeronTuple) -> None:
        """The tuple fails and counts as processed; what comes after it goes to the next incarnation."""
        place = next((i for i, t in enumerate(part) if t is tup), len(part) - 1)
        self._place += place + 1
        self.progress.executed += place + 1
        self.acks.failed.append(tup)
        self.acks.flush()
        self.progress.acked, self.progress.failed = self.acks.ack_count, self.acks.fail_count
        frame = tup.frame
        self.metrics.count("__fail-count", frame.stream, 1)

    def _account(self, frame: InFrame, count: int, took: float) -> None:
        self.progress.executed += count
        metrics = self.metrics
        source = f"{frame.component}/{frame.stream}"
        each = took * 1e9 / count
        metrics.count("__execute-count", source, count)
        metrics.count("__execute-time-ns", source, took * 1e9)
        metrics.observe("__execute-latency", source, each, count)

    def _frame_done(self, size: int, tuples: int) -> None:
        self.progress.in_tuples -= tuples
        self.progress.in_bytes -= size
        if self._stale_frames:
            # It came over an earlier incarnation of the link, which nobody counts any more.
            self._stale_frames -= 1
        else:
            self.link.consumed(size, tuples)

    def _tick(self, now: float) -> None:
        """Ticks that were missed while user code was busy are not made up for."""
        assert self._tick_s is not None
        self._next_tick = max(self._next_tick + self._tick_s, now)
        frame = InFrame(TICK_COMPONENT, TICK_STREAM, 0, 1, now)
        tick = HeronTuple([], frame, 0)
        self.guard(self.user.object.process_tick, tick)
        self.acks.flush()
        self.progress.acked, self.progress.failed = self.acks.ack_count, self.acks.fail_count

    def _finish(self) -> None:
        """All input has ended: the bolt's last word."""
        self._finished = True
        self.guard(self.user.object.finish)
        self.acks.flush()
        self.emitter.flush()
        self.set_state(control.TASK_FINISHED)

    def _rest(self, now: float, busy: bool) -> None:
        """Wait for a frame, a message or a tick; return outstanding credit after a moment of idleness."""
        deadline = IDLE_WAIT_S
        if self._tick_s is not None:
            deadline = min(deadline, max(0.0, self._next_tick - now))
        if self.link.unreported() and not busy:
            self.sleep(min(IDLE_CREDIT_S, deadline))
            if self.link.receive(self.take_frame):
                return
            self.link.grant()
            deadline = max(0.0, deadline - IDLE_CREDIT_S)
        self.publish_progress(now, resting=True)
        self.sleep(deadline)

    def last_word(self) -> frame_pb2.Frame:
        frame = super().last_word()
        if self.current and not self._stale_frames:
            frame.skip = self._place + (self.current[0].frame.count - len(self.current))
        return frame


def _never(tup_id: Any) -> None:
    """Bolts have no ids to ack at once."""
