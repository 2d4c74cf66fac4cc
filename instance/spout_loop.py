"""The loop of a spout task.

One thread handles credits, completions and clamps from the socket, and then makes a chunk of `next_tuple` calls. The
number of calls adapts so that a chunk takes a few hundred microseconds. A spout that emitted nothing sleeps, a little
longer each time (see linger.py), so an idle topology costs little; a spout that requests its next call (`wait`,
`wait_readable`, `busy`) is called at that time.
"""

from __future__ import annotations

import time
from functools import partial
from itertools import repeat
from operator import length_hint
from typing import Any

from heronpy.api.api_constants import (
    TOPOLOGY_ENABLE_MESSAGE_TIMEOUTS,
    TOPOLOGY_MAX_SPOUT_PENDING,
    TOPOLOGY_MESSAGE_TIMEOUT_SECS,
)
from heronpy.api.spout.async_spout import AsyncSpout
from heronpy.api.spout.base_spout import BaseSpout
from heronpy.api.spout.spout import Spout
from heronpy.api.state.stateful_component import StatefulComponent
from heronpy.common.ids import incarnation_of
from heronpy.proto import control_pb2, frame_pb2, plan_pb2
from heronpy.task.roots import Batch, PendingRoots
from heronpy.task.user_code import columns_of, emit_columns, emit_one
from heronpy.wire.frames import CLAMP, COMPLETE, FORGET, Frame, fits

from .awake import Sleeps
from .linger import FULL, LONGER, OPEN, SEVERAL, Linger, poll_pause_s, room
from .task import ROOT_EPOCH_BITS, ROOT_EPOCH_SHIFT, StopRequested, Task, UserError
from .time_use import AT_LIMIT, BLOCKED, IDLE

CHUNK_MAX = 4096
#: Times in seconds: a chunk that took less than the first is doubled, a chunk that took more than the second is halved.
CHUNK_SHORT_S, CHUNK_LONG_S = 1e-4, 4e-4
#: A spout is waiting for its source if some calls emit nothing and the others take more seconds per tuple than this.
CALM_TUPLE_S = 4e-5
#: Number of single calls after which a spout that always emits is called in chunks.
SINGLE_CALLS = 64
#: A spout is dry when this many calls in a row emitted nothing, because a single call may skip part of its input. One
#: such call is enough if all earlier calls of the turn emitted, and the same was true when the spout was last dry.
DRY_CALLS = 8
BLOCKED_WAIT_S = 5.0
#: The name of the user metric that calls a spout's `backlog`.
BACKLOG = "heron.backlog"
#: Seconds by which tuples that may be sent wait longer, to be sent with tuples of the next calls.
MORE_S = 2e-4
#: Pauses up to this number of seconds are not reported, and frames do not end them.
SHORT_PAUSE_S = 0.005


def has_own(spout: object, method: str) -> bool:
    """Return whether the spout overrides `ack` or `fail`. Without its own `fail`, it cannot replay failed tuples."""
    # Not by vars(): in CPython 3.11 it makes each `self.x` of the object slower.
    found = getattr(spout, method, None)
    return getattr(found, "__func__", found) not in (getattr(Spout, method), getattr(AsyncSpout, method), None)


class SpoutTask(Task):
    tracked_as = "spout"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.pending = PendingRoots((incarnation_of(self.name.epoch, ROOT_EPOCH_BITS) << ROOT_EPOCH_SHIFT) + 1)
        self._tells_acks = True
        self.clamped = False
        self.exhausted = False
        #: True if the plan reports that a sink is not ready.
        self.held = False
        self._activated = True
        self._completed: list[frame_pb2.Frame] = []
        #: Batches whose acker has ended.
        self._given_up: list[tuple[list[Any], Batch]] = []
        self._immediate: list[Any] = []
        self._next_expiry = 0.0
        #: The time at which a spout that has reached its limit on pending tuples continues; see linger.py.
        self._resume_at = OPEN
        #: True if the limit on pending tuples is the only reason why nothing may be emitted.
        self._at_limit = False
        #: The last requests of next_tuple: the time of its next call (0: no request), the descriptor to wait for, and
        #: whether it called `busy`.
        self._call_at = 0.0
        self._call_on = -1
        self._busy = False
        #: Number of calls without a tuple after which the spout is dry, if all earlier calls of the turn emitted.
        self._dry_calls = DRY_CALLS
        #: The largest number of tuples that one call has emitted.
        self._most = 1
        #: The delay with which next_tuple may be called, so that its tuples are sent together; the delay of the last
        #: call.
        self._slack_s = self._late_s = 0.0
        #: The longest time without a turn.
        self._rest_max_s = BLOCKED_WAIT_S
        self._linger = Linger(self.settings.linger_max_us * 1e-6)
        self._sleeps = Sleeps()

    # ---- emit ---------------------------------------------------------------------------------

    def build(self, plan: plan_pb2.PhysicalPlan) -> None:
        super().build(plan)
        self._read_limits()

    def take_plan(self, plan: plan_pb2.PhysicalPlan) -> None:
        context, component = self.user.context, self.name.component
        before = context.get_component_tasks(component)
        super().take_plan(plan)
        if self.exhausted and context.keyed_states.has_partitions and context.get_component_tasks(component) != before:
            # The task may have new partitions: the spout must declare its end again after it has read them.
            self.exhausted = False
            if not self.starting:
                self._show_state()
        self.held = self.plan is not None and self.plan.spouts_held
        if not self.starting:
            # A live change of the configuration arrives with a new plan.
            self._read_limits()

    def _read_limits(self) -> None:
        config = self.user.config
        self.max_pending = int(config.get(TOPOLOGY_MAX_SPOUT_PENDING, 100)) if self.acking else 0
        timeout = float(config.get(TOPOLOGY_MESSAGE_TIMEOUT_SECS, 30))
        enabled = config.get(TOPOLOGY_ENABLE_MESSAGE_TIMEOUTS, True)
        self.timeout_s = timeout if enabled and self.acking else 0.0
        self._expiry_s = max(0.01, self.timeout_s / self.settings.ack_timeout_buckets)

    def prepare_delegate(self) -> None:
        self.user.delegate.emit = self._emit_any
        self.user.delegate.emit_batch = self.emit_batch
        self.user.delegate.end_of_input = self._end_of_input
        self.user.delegate.wait = self._wait
        self.user.delegate.wait_readable = self._wait_readable
        self.user.delegate.busy = self._stay_busy
        self.progress.forgets_failed = not has_own(self.user.object, "fail")
        self.progress.rewinds = self.checkpoints is not None and isinstance(self.user.object, StatefulComponent)
        self._tells_acks = has_own(self.user.object, "ack")

    def bind_emit(self) -> None:
        """Create the emit closure, which shadows the class's method unless the user has overridden it."""
        compiled = self.emitter.compile_emit("spout", self._emit_any, self.user.context, self._immediate.append)
        emit = compiled or self._emit_any
        delegate, spout = self.user.delegate, self.user.object
        delegate.emit = emit
        if type(spout).emit is BaseSpout.emit and getattr(spout, "delegate", None) is delegate:
            spout.emit = emit

    def _emit_any(
        self,
        tup: Any,
        tup_id: Any = None,
        stream: str = "default",
        direct_task: int | None = None,
        need_task_ids: bool = False,
    ) -> list[int] | None:
        """Emit without a fast path, or before the fast path is compiled."""
        out = self.stream_named(stream)
        if tup_id is not None and not self.acking:
            self._immediate.append(tup_id)
        return emit_one(self.emitter, self.user.context, out, tup, tup_id, direct_task, need_task_ids)

    def emit_batch(self, columns: Any, *, rows: Any, ids: Any, stream: str, direct_task: int | None) -> Any:
        out = self.stream_named(stream)
        given = columns_of(self.emitter, out, columns, rows, "ids", None if ids is None else len(ids))
        marks = None if ids is None else list(ids)
        if marks is not None and not self.acking:
            self._immediate += [tup_id for tup_id in marks if tup_id is not None]
        emit_columns(self.emitter, self.user.context, out, given, marks, direct_task)

    def _end_of_input(self) -> None:
        self.exhausted = True
        self.control.interrupt()

    # ---- when to call again -------------------------------------------------------------------

    def _wait(self, seconds: float) -> None:
        # Counted from the requested time of the call; otherwise each wait would add the delay of the call.
        self._call_at = time.monotonic() - self._late_s + seconds
        self.control.interrupt()  # ends a chunk of calls

    def _wait_readable(self, fd: int) -> None:
        self._call_on = fd
        self.control.interrupt()

    def _stay_busy(self) -> None:
        self._busy = True

    # ---- frames -------------------------------------------------------------------------------

    def take_frame(self, frame: frame_pb2.Frame, size: int) -> None:
        if frame.kind == COMPLETE:
            if fits(frame):
                self._completed.append(frame)
            else:
                self.metrics.count("__malformed-frames", "", 1)
        elif frame.kind == CLAMP and frame.dest_task:
            self.take_hint(frame)
        elif frame.kind == CLAMP:
            self.clamped = frame.on

    def on_link_lost(self) -> None:
        """Fail the pending roots, because their acker has ended; tuples that have not been sent yet stay here."""
        self.clamped = False
        if self.acking and self.pending.total:
            self._given_up += self.pending.expire(float("inf"))
            self.link.withdraw(_is_tracked)

    def trace_at(self, order: control_pb2.TraceRate) -> None:
        self.tracer.lend(order.per_s, order.lease_s, time.monotonic())

    def apply_active(self, active: bool) -> None:
        super().apply_active(active)
        # User code that waits in an emit is not called; the loop calls it afterwards.
        if not self.starting and not self._waiting:
            self._switch_active()

    def _switch_active(self) -> None:
        if self.active == self._activated:
            return
        self._activated = self.active
        spout = self.user.object
        self.guard(spout.activate if self.active else spout.deactivate)
        self._show_state()

    def _show_state(self) -> None:
        if self.exhausted and not self.pending.total and not self.emitter.dirty() and not self._immediate:
            if self.standing.state != control_pb2.TASK_EXHAUSTED:
                # The counts of the task are final. They are collected now, because the task may end only days later.
                self.user_metrics.collect(time.monotonic(), force=True)
                self.set_state(control_pb2.TASK_EXHAUSTED)
                self.control.notify(metrics=True)
        else:
            self.set_state(control_pb2.TASK_RUNNING if self.active else control_pb2.TASK_PAUSED)

    # ---- acks ---------------------------------------------------------------------------------

    def _deliver_completed(self, now: float) -> None:
        given_up, self._given_up = self._given_up, []
        for ids, batch in given_up:
            self._fail_ids(ids, batch, now, "__fail-latency")
        completed, self._completed = self._completed, []
        for frame in completed:
            if self.tracer.roots:
                self.tracer.completed(frame)
            for ids, batch in self.pending.complete_runs((frame.run_first, frame.run_length)):
                if frame.failed:
                    self._fail_ids(ids, batch, now, "__fail-latency")
                else:
                    self._ack_ids(ids, batch.stream, (now - batch.emitted_at) * 1e9)

    def _ack_ids(self, ids: list[Any], stream: int, latency_ns: float) -> None:
        self.progress.acked += len(ids)
        self.metrics.count("__ack-count", self._stream_names[stream], len(ids))
        self.metrics.observe("__complete-latency", self._stream_names[stream], latency_ns, len(ids))
        ack, hooks = self.user.object.ack, self.user.context.has_hooks
        if not hooks and not self._tells_acks:
            return
        for tup_id in ids:
            ack(tup_id)
            if hooks:
                self.user.context.invoke_hook_spout_ack(tup_id, latency_ns)

    def _fail_ids(self, ids: list[Any], batch: Any, now: float, latency: str) -> None:
        latency_ns = (now - batch.emitted_at) * 1e9
        self.progress.failed += len(ids)
        self.metrics.count("__fail-count", self._stream_names[batch.stream], len(ids))
        self.metrics.observe(latency, self._stream_names[batch.stream], latency_ns, len(ids))
        fail, hooks = self.user.object.fail, self.user.context.has_hooks
        for tup_id in ids:
            fail(tup_id)
            if hooks:
                self.user.context.invoke_hook_spout_fail(tup_id, latency_ns)

    def _deliver_immediate(self) -> None:
        """Ack tuples with ids in ATMOST_ONCE mode, and tracked tuples without a consumer, immediately and in order."""
        for waiting in (self._immediate, self.emitter.unrouted):
            if waiting:
                ids = list(waiting)
                waiting.clear()
                self._ack_ids(ids, 0, 0.0)

    def _expire(self, now: float) -> None:
        """Fail tuples that have been pending longer than the message timeout, and notify the acker."""
        self._next_expiry = now + self._expiry_s
        for ids, batch in self.pending.expire(now - self.timeout_s):
            forget = Frame(
                kind=FORGET,
                source_task=self.name.task_id,
                dest_task=self.name.task_id,
                count=len(batch.ids),
                root_base=batch.base,
            )
            self.link.send_control(forget.SerializeToString())
            if self.tracer.roots:
                self.tracer.gave_up(batch.base, len(batch.ids))
            self.metrics.count("__timeout-count", self._stream_names[batch.stream], len(ids))
            self._fail_ids(ids, batch, now, "__fail-latency")

    # ---- the loop -----------------------------------------------------------------------------

    def run_loop(self) -> None:
        """Run until a stop is requested; raises UserError if user code raises an exception."""
        self._begin()
        self._switch_active()
        self._show_state()
        self._turns()

    def _begin(self) -> None:
        self._stream_names = list(self.emitter.streams)
        self._activated = True
        kind = type(self.user.object)
        if getattr(kind, "backlog", BaseSpout.backlog) is not BaseSpout.backlog:
            from .backlog import ASK_S, BacklogMetric  # imported only if it is used

            ask = partial(kind.backlog, self.user.object)
            self.user_metrics.register_metric(BACKLOG, BacklogMetric(ask, self.metrics), ASK_S)
            self._rest_max_s = ASK_S

    def _turns(self) -> None:
        link, emitter, linger, interrupted = self.link, self.emitter, self._linger, self.control.interrupted
        monotonic, marks = time.monotonic, self.marks
        #: Calls to next_tuple in a turn; 0: one by one, until it is dry.
        chunk = 0
        idle_since = monotonic()
        emitted = emitter.emitted()
        while not self.stopping:
            if interrupted:
                self._serve_interrupt()
                if self.stopping:
                    return
            if self.active != self._activated:
                self._switch_active()
            link.receive(self.take_frame)
            now = emitter.batches.now = monotonic()
            self._do_what_came(now)
            self.turn(now)
            if now >= marks.due:
                marks.open(now, time.time_ns())
            if now < self._call_at and not self.exhausted:
                self._flush_due(now)
                self._idle(now, idle_since)
                continue
            free = 0 if self.exhausted else self.may_emit()
            if not free:
                self._flush(now)
                self._rest(now)
                idle_since = monotonic()
                continue
            waited_ns = self.waited_ns
            self._late_s = min(now - self._call_at, self._slack_s) if self._call_at else 0.0
            made, dry = self._call(free, chunk, now)
            after = monotonic()
            total = emitter.emitted()
            fresh, emitted = total - emitted, total
            if fresh:
                idle_since, took = after, after - now
                self.metrics.count("__next-tuple-count", "", made)
                worked_ns = took * 1e9 - (self.waited_ns - waited_ns)
                self.metrics.observe("__next-tuple-latency", "", worked_ns / made, made)
                if fresh < made and took > fresh * CALM_TUPLE_S:
                    dry = True
                elif took < CHUNK_SHORT_S:
                    chunk = min(CHUNK_MAX, made * 2)
                elif took > CHUNK_LONG_S:
                    chunk = max(1, made // 2)
                elif not chunk:
                    chunk = made
            if self._is_behind(after):
                chunk = 0  # tuples of due calls are sent together with these
                self._flush_due(after - MORE_S)
            elif dry or not fresh:
                chunk = 0
                self._flush_due(after)
                if not self._busy:
                    self._idle(after, idle_since, fresh)
            elif emitter.buffered() < fresh:
                self._sent(after)  # a full batch was sent in this chunk
            elif linger.over(after - MORE_S, self._sleeps.any):
                self._flush(after)

    def _call(self, free: int, chunk: int, now: float) -> tuple[int, bool]:
        """Call next_tuple until it has emitted `free` tuples; return the number of calls, and whether the spout is dry.

        Without a limit on pending tuples, `free` limits only the number of calls. `chunk` is the maximum number of
        calls; with 0, calls are made one by one until the spout is dry. If it is time for a trace, the first call is
        traced separately.
        """
        traced, calls = 0, min(chunk or SINGLE_CALLS, free)
        count = self.emitter.emitted
        before = count()
        if now >= self.tracer.due:
            span = self.tracer.open()
            traced = self.call_user(1)
            self.tracer.close(span, now, time.time())
            free -= count() - before
            if traced == calls or self.control.interrupted or self._busy or self._call_at or self._call_on >= 0:
                return traced, bool(self._call_at or self._call_on >= 0)
        if chunk and not self.max_pending:
            return traced + self.call_user(calls - traced), False
        if chunk and calls * self._most <= free:
            made = traced + self.call_user(calls - traced)
            self._most = max(self._most, (count() - before) // made)
            return made, False
        made, dry = self._call_until_dry(calls - traced, free, now, traced)
        return traced + made, dry

    def _serve_interrupt(self) -> None:
        """Serve the inbox, unless the interrupt means only that user code has ended its chunk of calls."""
        if self.control.inbox:
            self.serve_inbox()
        else:
            self.control.interrupted.clear()
            if self.control.inbox:
                self.control.interrupt()  # a message arrived in between

    def _do_what_came(self, now: float) -> None:
        """Process acks and fails, then the work that waits for them."""
        if self._completed or self._given_up:
            self.guard(self._deliver_completed, now)
            self._may_replay()
        if self._immediate or self.emitter.unrouted:
            self.guard(self._deliver_immediate)
        if self.checkpoints is not None and self.checkpoints.pending:
            # After the acks, because tuples emitted before the cut are handled before the cut.
            self.checkpoints.work()
        if self.timeout_s and now >= self._next_expiry:
            self.guard(self._expire, now)
            self._may_replay()
        self.progress.pending = self.pending.total

    def _may_replay(self) -> None:
        """Call the spout without waiting for its source, because failed tuples may be queued for a replay."""
        if self._call_on >= 0:
            self._call_at, self._call_on = 0.0, -1

    def _flush_due(self, now: float) -> None:
        if now >= self._linger.due:
            self._flush(now)

    def _flush(self, now: float) -> None:
        if self.emitter.dirty():
            self._sent(now)
            self.emitter.flush()

    def _sent(self, now: float) -> None:
        self._linger.sent(now)
        self._sleeps.forget()

    def may_emit(self, more: int = 0) -> int:
        """Return the number of tuples that may be emitted now; `more` is added to the pending tuples."""
        if not self.active or self.held or self.clamped or self.link.blocked():
            if self._resume_at != FULL:
                self._resume_at = OPEN
            self._at_limit = False
            return 0
        if not self.max_pending:
            return self.emitter.burst
        batches, pending = self.emitter.batches, self.pending.total + self.emitter.buffered() + more
        free, self._resume_at = room(self.max_pending, pending, batches.limit, self._resume_at, batches.now)
        self._at_limit = not free
        return min(free, self.emitter.burst)

    def call_user(self, calls: int) -> int:
        """Call next_tuple this many times, or fewer if the loop is interrupted; return the number of calls."""
        next_tuple, interrupted = self.user.object.next_tuple, self.control.interrupted
        self._call_at, self._call_on, self._busy = 0.0, -1, False
        turns = repeat(None, calls)
        try:
            for _ in turns:
                next_tuple()
                if interrupted:
                    break
        except (StopRequested, UserError):
            raise
        except Exception as error:
            raise UserError from error
        return calls - length_hint(turns)

    def _call_until_dry(self, calls: int, free: int, now: float, gaps: int = 0) -> tuple[int, bool]:
        """Call next_tuple up to `calls` times, until it has emitted `free` tuples, is dry, requests a call or is slow.

        `gaps` is the number of earlier calls of the turn that may have emitted nothing. Returns the number of calls,
        and whether the spout is dry.
        """
        count, interrupted, until = self.emitter.emitted, self.control.interrupted, now + CHUNK_LONG_S
        first = before = count()
        empty = 0
        for made in range(1, calls + 1):
            self.call_user(1)
            emitted = count()
            if emitted == before:
                empty += 1
            else:
                gaps += empty
                empty = 0
                self._most = max(self._most, emitted - before)
            moment = time.monotonic()
            if self._call_on >= 0 or (self._call_at and not self._is_behind(moment)):
                return made, True
            if empty == (DRY_CALLS if gaps or emitted == first else self._dry_calls):
                self._dry_calls = 1 if emitted != first and not gaps else DRY_CALLS
                return made, True
            if self._call_at:
                self._late_s = min(moment - self._call_at, self._slack_s)
                if not self.control.inbox:
                    self._serve_interrupt()
            if interrupted or self._busy or moment > until or emitted - first >= free:
                return made, empty > 0
            before = emitted
        return calls, False

    def _is_behind(self, now: float) -> bool:
        """Return whether a requested call is late, because the spout was called late to send more tuples together."""
        return self._slack_s > 0 and 0 < self._call_at <= now

    def _rest(self, now: float) -> None:
        """Wait for a frame, a message or the next timer, because nothing may be emitted now."""
        if self.exhausted:
            self._show_state()
        self.publish_progress(now, resting=True)
        pause = self._rest_max_s
        if self._resume_at and not self.exhausted:
            pause = min(pause, max(0.0, self._resume_at - now))
        may_not = self.active and not self.exhausted  # it may have a tuple to emit
        rest = AT_LIMIT if may_not and self._at_limit else BLOCKED if may_not or self.link.outbox else IDLE
        self.sleep(self._until_timer(pause, now), rest=rest)
        self._sleeps.forget()

    def _until_timer(self, pause_s: float, now: float) -> float:
        """Return the pause, shortened to end at the next check of pending tuples."""
        if self.timeout_s and self.pending.total:
            return min(pause_s, max(0.0, self._next_expiry - now))
        return pause_s

    def _idle(self, now: float, idle_since: float, fresh: int = 0) -> None:
        """Sleep as long as next_tuple requested; by default in proportion to the time without an emit.

        `fresh` is the number of tuples that were just emitted.
        """
        if self._call_on >= 0 and not self._call_at:
            self._call_at = float("inf")
        if self._call_at:
            pause = min(self._rest_max_s, max(0.0, self._call_at - now))
            # The call waits until sending is possible, as below; only this extra delay is compensated.
            self._slack_s = max(0.0, self._linger.due - now - pause) if pause else 0.0
            # The next turn delivers immediate acks, and then waits.
            pause = 0.0 if self._immediate or self.emitter.unrouted else pause + self._slack_s
        else:
            shortest, longest = self.settings.spout_idle_min_us * 1e-6, self.settings.spout_idle_max_ms * 1e-3
            if self._dry_calls == 1 and fresh < SEVERAL and self.settings.linger_max_us:
                shortest *= LONGER
            # Tuples that are emitted before sending is possible again would only wait, so one wake-up emits and sends.
            pause = max(poll_pause_s(now - idle_since, shortest, longest), min(longest, self._linger.due - now))
        if pause > SHORT_PAUSE_S:
            self.publish_progress(now, resting=True)
            if self.exhausted:
                self._show_state()
        if self.emitter.dirty():
            pause = min(pause, max(0.0, self._linger.due - now))
        pause = self._until_timer(pause, now)
        if self.sleep(pause, frames=pause > SHORT_PAUSE_S, also=self._call_on):
            self._call_at, self._call_on = 0.0, -1


def _is_tracked(data: bytes) -> bool:
    return bool(Frame.FromString(data).tracked)
