"""One simulated task: the user's object, its delegate, and the steps of the task.

A step is one call into user code, for a next_tuple, an ack or fail, a tuple, or a tick. Between steps the task does not
run. Tuples emitted in a step are delivered immediately, in the order of their emits.
"""

from __future__ import annotations

import logging
import pickle
import select
from collections import deque
from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any

from heronpy.api import api_constants
from heronpy.api.bolt.window_bolt import SlidingWindowBolt, TumblingWindowBolt
from heronpy.api.config_values import decode_config
from heronpy.api.state.keyed_state import KeyedStates, KeyOwner, PartitionedState, PartitionOwner
from heronpy.api.state.state import HashMapState
from heronpy.api.state.stateful_component import StatefulComponent, call_pre_save
from heronpy.api.state.two_phase import TwoPhaseStatefulComponent
from heronpy.api.topology_context import TopologyContext
from heronpy.api.tuple import TupleHelper
from heronpy.api.user_code import load_hooks
from heronpy.common.errors import RetryableError, TopologyError
from heronpy.common.logs import level_of
from heronpy.plan.component_config import tick_interval_s
from heronpy.plan.emit_rules import EmitRules
from heronpy.plan.grouping import grouping_width
from heronpy.simulator.acking import Outcome, Tree
from heronpy.simulator.errors import SimulationError
from heronpy.simulator.outputs import ArrowRow, Outputs, ValueCodec
from heronpy.simulator.records import MetricsCollector
from heronpy.simulator.shared import Shared
from heronpy.simulator.tuples import Delivery, SimulatedTuple, is_tuple, roots_of, several
from heronpy.wire.codec import ARROW

_NS = 1_000_000_000
# First and maximum pause in seconds after a call to a spout that emits nothing; the pause grows with each such call.
_IDLE_MIN_S = 50e-6
_IDLE_MAX_S = 0.05
# Number of calls without an emit after which a spout counts as idle.
_IDLE_CALLS = 3


class SimTask:
    """The common part of spout and bolt tasks."""

    is_spout = False

    def __init__(self, world: Shared, message: Any, task_id: int, index: int) -> None:
        self.world = world
        self.task_id = task_id
        self.index = index
        self.component: str = message.comp.name
        self.name = f"{self.component}[{index}] (task {task_id})"
        self.logger = logging.getLogger(f"heron.simulator.{self.component}.{index}")
        self.config: dict[str, Any] = {
            **decode_config(world.topology.topology_config),
            **decode_config(message.comp.config),
        }
        self.metrics = MetricsCollector()
        self.settings = settings = world.instance_settings(self.component)
        self.codec = ValueCodec(self.config, settings.allow_pickle)
        rules = EmitRules(self.component, settings, world.frame_max_bytes, self.codec.serialize)
        self.outputs = Outputs(world.plan, self.component, rules, world.tasks_of, world.rng, world.key_groups)
        self.context = TopologyContext(
            self.config,
            world.topology,
            world.component_of,
            task_id,
            self.component,
            self.metrics,
            task_hooks=load_hooks(self.config.get(api_constants.TOPOLOGY_AUTO_TASK_HOOKS)),
        )
        parallelism = len(world.tasks_of[self.component])
        width = grouping_width(getattr(message, "inputs", ()))
        owner = KeyOwner(self.component, index, parallelism, world.key_groups, width)
        partitions = PartitionOwner(self.component, lambda: (index, parallelism))
        self.keyed = KeyedStates(owner if world.key_groups else None, partitions=partitions)
        self.context.keyed_states = self.keyed
        self.wake_at = 0.0
        self.emit_calls = 0
        self.state: Any = None
        cls = world.class_of(message)
        self.user: Any = self.call("its constructor", lambda: cls(delegate=self))

    # -- life cycle ---------------------------------------------------------------------------

    def start(self, saved: bytes | None = None, checkpoint: int = 0) -> None:
        """Initialise the user's object in the same order as the runtime; `saved` is a return value of `save`."""
        user = self.user
        state, keyed = (None, {}) if saved is None else pickle.loads(saved)
        for name, (partitioned, entries) in keyed.items():
            for key, value, expires in entries:
                self.keyed.restored(name, partitioned).load(key, value, expires)
        if isinstance(user, SlidingWindowBolt | TumblingWindowBolt):
            # Window bolts have a separate clock, which does not follow time.time.
            user.clock = self.world.clock.wall
        if isinstance(user, StatefulComponent):
            self.state = HashMapState() if state is None else state
            self.call("init_state", user.init_state, self.state)
        if isinstance(user, TwoPhaseStatefulComponent) and (self.world.key_groups or checkpoint):
            self.call("pre_restore", user.pre_restore, str(checkpoint))
        self.call("initialize", user.initialize, self.config, self.context)
        self.call("a task hook", self.context.invoke_hook_prepare)
        self.call("a custom grouping", self.outputs.prepare_customs, self.context)

    def save(self, checkpoint: int) -> bytes:
        """Return the task's complete state."""
        if isinstance(self.user, StatefulComponent):
            self.call("pre_save", call_pre_save, self.user, str(checkpoint))
        states = self.keyed.states.items()
        keyed = {name: (isinstance(state, PartitionedState), state.dump()) for name, state in states}
        saved: bytes = self.call("saving its state", pickle.dumps, (self.state, keyed))
        return saved

    def commit(self, checkpoint: int) -> None:
        """Notify the user's object that the checkpoint is complete."""
        if isinstance(self.user, TwoPhaseStatefulComponent):
            self.call("post_save", self.user.post_save, str(checkpoint))

    def close(self) -> None:
        """Call the hooks' clean-up methods."""
        self.call("a task hook", self.context.invoke_hook_cleanup)

    def is_runnable(self, now: float) -> bool:
        """Return whether the task has a step to take now."""
        raise NotImplementedError(f"{type(self).__name__} must define is_runnable")

    def step(self) -> None:
        """Make one call into user code."""
        raise NotImplementedError(f"{type(self).__name__} must define step")

    def wake_time(self, now: float) -> float | None:
        """Return the time at which the task may become runnable without another event; None if never."""
        raise NotImplementedError(f"{type(self).__name__} must define wake_time")

    # -- calls into user code -----------------------------------------------------------------

    def call(self, what: str, function: Callable[..., Any], *args: Any) -> Any:
        """Call user code; an exception becomes a SimulationError that names this task."""
        clock = self.world.clock
        clock.slept = 0.0
        try:
            return function(*args)
        except SimulationError:
            raise
        except (Exception, SystemExit) as error:
            raise self.failure(what, error) from error
        finally:
            # A task that sleeps is not runnable until it wakes; other tasks continue.
            self.wake_at = max(self.wake_at, clock.now + clock.slept)
            clock.slept = 0.0

    def failure(self, what: str, error: BaseException) -> SimulationError:
        """Return the error that names this task, to be raised from the original error."""
        text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        return SimulationError(f"{self.name} failed in {what}: {text}", self.name)

    # -- the delegate of the user's object ----------------------------------------------------

    def log(self, message: str, level: str | None = None) -> None:
        self.logger.log(level_of(level), "%s", message)

    def report_error(self, error: Exception) -> None:
        """Log an error that user code has handled."""
        self.logger.error("%s: %s", type(error).__name__, error)

    def wait_outside(self, outage: str, pause_s: float) -> None:
        """Raise an error immediately, because external conditions do not change while virtual time passes."""
        if outage:
            raise RetryableError(outage)

    def _send(
        self,
        values: Sequence[Any],
        stream: str,
        direct_task: int | None,
        roots: tuple[int, ...],
    ) -> list[int]:
        """Check, route and deliver one tuple; return the receiving tasks."""
        tasks = self.outputs.targets(values, stream, direct_task)
        payload = self.outputs.encode(values, stream)
        kind = ARROW if type(values) is ArrowRow else self.codec.kind
        world = self.world
        self.emit_calls += 1
        world.records.emit(self.component, stream, self.task_id, payload, kind)
        for task in tasks:
            edge = world.next_edge()
            world.tracker.add(roots, edge)
            world.deliver(task, Delivery(payload, kind, self.component, stream, self.task_id, roots, edge))
        if self.context.has_hooks:
            self.context.invoke_hook_emit(values, stream, tasks)
        return tasks


class SpoutTask(SimTask):
    is_spout = True

    def __init__(self, world: Shared, message: Any, task_id: int, index: int) -> None:
        super().__init__(world, message, task_id, index)
        self.is_exhausted = False
        self.is_active = True
        self.outcomes: deque[tuple[Any, Outcome, float]] = deque()
        self._idle_calls = 0
        # The time and the descriptor that next_tuple requested for its next call; any event of the task clears both.
        self._call_at: float | None = None
        self._call_on: int | None = None
        self._is_busy = False
        config = self.config
        self._max_pending = int(config.get(api_constants.TOPOLOGY_MAX_SPOUT_PENDING, 100))

    def close(self) -> None:
        self.call("close", self.user.close)
        super().close()

    def set_active(self, active: bool) -> None:
        """Pause or resume the task, and notify the user's spout."""
        if active != self.is_active:
            self.is_active = active
            if active:
                self.call("activate", self.user.activate)
            else:
                self.call("deactivate", self.user.deactivate)

    def is_runnable(self, now: float) -> bool:
        if now < self.wake_at:
            return False
        return bool(self.outcomes) or (self._may_emit() and self._is_due(now))

    def wake_time(self, now: float) -> float | None:
        if self.outcomes:
            when = self.wake_at
        elif not self._may_emit() or (self._call_at is None and self._waits_for_fd()):
            return None
        else:
            when = max(self.wake_at, self._call_at or 0.0)
        return when if when > now else None

    def is_silent(self) -> bool:
        """Return whether the spout is waiting for another event."""
        is_idle = self.idles() or (self._call_at is None and self._waits_for_fd())
        return not self.outcomes and (not self._may_emit() or is_idle)

    def idles(self) -> bool:
        """Return whether the last calls to the spout emitted nothing."""
        return self._idle_calls >= _IDLE_CALLS

    def count_call(self, has_worked: bool) -> None:
        """Record that a call to user code has returned."""
        self._idle_calls = 0 if has_worked else self._idle_calls + 1

    def is_busy(self) -> bool:
        """Return whether the outcome of a tuple is still to be reported to the user's spout."""
        return bool(self.outcomes)

    def waits_for_outside(self) -> bool:
        """Return whether the task is waiting for an event outside the simulation."""
        return not self.outcomes and self._may_emit() and self._waits_for_fd()

    def poll(self) -> None:
        """Do nothing, because `is_runnable` polls for external events."""

    def _is_due(self, now: float) -> bool:
        """Return whether next_tuple is due, or the descriptor that it waits for can be read."""
        if self._call_on is None:
            return self._call_at is None or now >= self._call_at
        return not self._waits_for_fd() or (self._call_at is not None and now >= self._call_at)

    def _waits_for_fd(self) -> bool:
        if self._call_on is None:
            return False
        poller = select.poll()
        poller.register(self._call_on, select.POLLIN)
        return not poller.poll(0)

    def end(self, tree: Tree, outcome: Outcome) -> None:
        """Record that a tracked tuple ended; a later step notifies the user's spout."""
        self.outcomes.append((tree.tup_id, outcome, tree.opened_at))

    def step(self) -> None:
        if self.outcomes:
            # The task may now have a tuple to emit, such as a replay.
            if self._call_on is not None:
                self._call_at = self._call_on = None
            self._report(*self.outcomes.popleft())
            return
        emitted, slept_until = self.emit_calls, self.wake_at
        self._call_at, self._call_on, self._is_busy = None, None, False
        self.call("next_tuple", self.user.next_tuple)
        self.world.records.count(self.task_id, "__next-tuple-count")
        has_worked = self.emit_calls != emitted or self._is_busy
        pause = min(_IDLE_MAX_S, _IDLE_MIN_S * 2 ** min(self._idle_calls, 16))
        self.count_call(has_worked)
        has_said = self._call_at is not None or self._call_on is not None
        if not has_worked and not has_said and self.wake_at <= max(slept_until, self.world.clock.now):
            self.wake_at = self.world.clock.now + pause

    def _may_emit(self) -> bool:
        return not self.is_exhausted and self._has_room()

    def _has_room(self) -> bool:
        world = self.world
        if not self.is_active or world.is_congested:
            return False
        return not world.is_acking or world.tracker.pending(self.task_id) < self._max_pending

    def _report(self, tup_id: Any, outcome: Outcome, opened_at: float) -> None:
        self._idle_calls = 0
        records, context = self.world.records, self.context
        records.spout_end(self.component, self.task_id, tup_id, outcome)
        latency_ns = (self.world.clock.now - opened_at) * _NS
        if outcome is Outcome.ACKED:
            self.call("ack", self.user.ack, tup_id)
            if context.has_hooks:
                self.call("a task hook", context.invoke_hook_spout_ack, tup_id, latency_ns)
        else:
            self.call("fail", self.user.fail, tup_id)
            if context.has_hooks:
                self.call("a task hook", context.invoke_hook_spout_fail, tup_id, latency_ns)

    # -- the delegate -------------------------------------------------------------------------

    def emit(
        self,
        tup: Sequence[Any],
        tup_id: Any = None,
        stream: str = "default",
        direct_task: int | None = None,
        need_task_ids: bool = False,
    ) -> list[int] | None:
        world = self.world
        roots: tuple[int, ...] = ()
        if tup_id is not None and world.is_acking:
            now = world.clock.now
            roots = (world.tracker.open(self.task_id, tup_id, now, now + world.timeout_s),)
        try:
            tasks = self._send(tup, stream, direct_task, roots)
        except Exception:
            for root in roots:
                world.tracker.cancel(root)
            raise
        for root in roots:
            world.tracker.seal(root)
        if tup_id is not None and not roots:
            # Tuples are not tracked in this mode: a tuple counts as acked once it is emitted.
            self.outcomes.append((tup_id, Outcome.ACKED, world.clock.now))
        return tasks if need_task_ids else None

    def emit_batch(self, columns: Any, *, rows: Any, ids: Any, stream: str, direct_task: int | None) -> Any:
        count, hooked = None if ids is None else len(ids), self.context.has_hooks
        given = self.outputs.rows(stream, columns, rows, "ids", count, direct_task, hooked)
        for row, tup_id in zip(given, repeat(None) if ids is None else ids):
            self.emit(row, tup_id, stream, direct_task)

    def end_of_input(self) -> None:
        """Record that the user's spout has reached the end of its input."""
        self.is_exhausted = True

    def wait(self, seconds: float) -> None:
        """Postpone the next call to next_tuple by this many virtual seconds."""
        self._call_at = self.world.clock.task_now() + seconds

    def wait_readable(self, fd: int) -> None:
        """Call next_tuple only when this real descriptor can be read, or after another event of this task."""
        self._call_on = fd

    def busy(self) -> None:
        """Call next_tuple again immediately."""
        self._is_busy = True


class BoltTask(SimTask):
    def __init__(self, world: Shared, message: Any, task_id: int, index: int) -> None:
        super().__init__(world, message, task_id, index)
        self.queue: deque[Delivery] = deque()
        self.tick_at: float | None = None
        self._tick_s: float | None = None

    def start(self, saved: bytes | None = None, checkpoint: int = 0) -> None:
        super().start(saved, checkpoint)
        # Window bolts set their tick in initialize.
        self._tick_s = tick_interval_s(self.config)
        if self._tick_s is not None:
            self.tick_at = self.world.clock.now + self._tick_s

    def is_runnable(self, now: float) -> bool:
        return now >= self.wake_at and (bool(self.queue) or self.is_tick_due(now))

    def wake_time(self, now: float) -> float | None:
        return self.wake_at if self.wake_at > now else None

    def is_tick_due(self, now: float) -> bool:
        return self.tick_at is not None and self.tick_at <= now

    def is_busy(self) -> bool:
        """Return whether this task has queued tuples, or sleeps while processing one."""
        return bool(self.queue) or self.wake_at > self.world.clock.now

    def step(self) -> None:
        if self.is_tick_due(self.world.clock.now):
            self.step_tick()
        else:
            self._execute(self._take())

    def step_tick(self) -> None:
        """Process the due tick; missed ticks are not repeated."""
        assert self.tick_at is not None
        assert self._tick_s is not None
        missed = int((self.world.clock.now - self.tick_at) / self._tick_s)
        self.tick_at += (missed + 1) * self._tick_s
        self._process_tick(TupleHelper.make_tick_tuple())

    def finish(self) -> None:
        """Call the bolt's `finish`, after all of its input has been processed."""
        self.call("finish", self.user.finish)

    def _take(self) -> SimulatedTuple:
        delivery = self.queue.popleft()
        self.world.queued -= 1
        self.world.records.execute(self.component, self.task_id, delivery)
        values = self.codec.decode(delivery.payload, delivery.codec)
        return SimulatedTuple(values, delivery, self.world.clock.now)

    def _process_tick(self, tick: Any) -> None:
        self.call("process_tick", self.user.process_tick, tick)

    def _execute(self, tup: SimulatedTuple) -> None:
        self.call("process", self.user.process, tup)
        self._executed(tup)

    def _executed(self, tup: SimulatedTuple) -> None:
        if self.context.has_hooks:
            latency_ns = (max(self.wake_at, self.world.clock.now) - tup.creation_time) * _NS
            self.call("a task hook", self.context.invoke_hook_bolt_execute, tup, latency_ns)

    # -- the delegate -------------------------------------------------------------------------

    def emit(
        self,
        tup: Sequence[Any],
        stream: str = "default",
        anchors: Any = None,
        direct_task: int | None = None,
        need_task_ids: bool = False,
    ) -> list[int] | None:
        roots = roots_of(anchors) if anchors is not None and self.world.is_acking else ()
        tasks = self._send(tup, stream, direct_task, roots)
        return tasks if need_task_ids else None

    def emit_batch(self, columns: Any, *, rows: Any, stream: str, anchors: Any, direct_task: int | None) -> None:
        is_one = anchors is None or is_tuple(anchors)
        count, hooked = None if is_one else len(anchors), self.context.has_hooks
        given = self.outputs.rows(stream, columns, rows, "anchors", count, direct_task, hooked)
        for row, anchor in zip(given, repeat(anchors) if is_one else anchors):
            self.emit(row, stream, anchor, direct_task)

    def ack(self, tup: Any) -> None:
        """Record that the user's bolt acked one or several tuples. Acks of ticks and repeated acks have no effect."""
        for one in several(tup, "ack"):
            if self._end(one):
                self.world.tracker.ack(one.roots, one.edge)
                self.world.records.bolt_ack(self.task_id, one.component, one.stream)
                if self.context.has_hooks:
                    self.context.invoke_hook_bolt_ack(one, self._age_ns(one))

    def abandon(self, tup: Any, why: str) -> None:
        """Log why the user's bolt can never process a tuple, and fail it; a real task makes a dead letter of it."""
        self.logger.error("a tuple from %s/%s was rejected: %s", tup.component, tup.stream, why)
        self.fail(tup)

    def fail(self, tup: Any) -> None:
        """Record that the user's bolt failed one or several tuples."""
        for one in several(tup, "fail"):
            if self._end(one):
                self.world.tracker.fail(one.roots)
                self.world.records.bolt_fail(self.task_id, one.component, one.stream)
                if self.context.has_hooks:
                    self.context.invoke_hook_bolt_fail(one, self._age_ns(one))

    def end_of_input(self) -> None:
        """Raise an error, because only spouts have external input."""
        raise TopologyError(f"end_of_input() is for spouts; {self.component} is a bolt")

    def _end(self, tup: Any) -> bool:
        if not isinstance(tup, SimulatedTuple) or tup.is_done:
            return False
        tup.is_done = True
        return True

    def _age_ns(self, tup: SimulatedTuple) -> float:
        return (self.world.clock.task_now() - tup.creation_time) * _NS
