"""The user's spout or bolt with its config, context, serializer, custom groupings and hooks, and the functions that
emit without compiled code.

Every call into user code that may raise is wrapped: its exceptions become a UserError with the
user's exception as its cause, so that tracebacks are complete.
"""

from __future__ import annotations

import logging
import pickle
import time
from collections.abc import Callable
from typing import Any, Protocol

from heronpy.api.api_constants import (
    TOPOLOGY_AUTO_TASK_HOOKS,
    TOPOLOGY_RELIABILITY_MODE,
    TOPOLOGY_SERIALIZER_CLASSNAME,
    TopologyReliabilityMode,
)
from heronpy.api.config_values import decode_config
from heronpy.api.metrics import MetricsCollector
from heronpy.api.state.keyed_state import KeyedStates
from heronpy.api.state.state import HashMapState
from heronpy.api.state.stateful_component import StatefulComponent
from heronpy.api.topology_context import TaskProcess, TopologyContext
from heronpy.api.user_code import load_class, load_hooks
from heronpy.common.errors import TopologyError
from heronpy.common.logs import level_of
from heronpy.plan.component_config import tick_interval_s
from heronpy.plan.emit_rules import ArrowColumns, ColumnRules, Columns, travels_as_arrow
from heronpy.plan.launch import LaunchSpec
from heronpy.proto import components_of, plan_pb2, topology_pb2

from .acks import OneOrMany, several
from .emitter import Emitter, mark_of, marks_of
from .name import TaskName
from .outlets import Mark, OutStream
from .routing import GroupingKey, component_of
from .tuples import HeronTuple

log = logging.getLogger("heron.instance")

_PICKLED = topology_pb2.PYTHON_SERIALIZED_VALUE
_DEFAULT_SERIALIZERS = ("", "heronpy.api.serializer.PythonSerializer")


class OwnState(Protocol):
    """The plain and keyed state of a task."""

    plain: HashMapState
    keyed: KeyedStates


class Saved(Protocol):
    """The saved state of a task, which the user's object receives before its first call."""

    @property
    def state(self) -> OwnState:
        """The plain and keyed state."""

    def check_component(self, component: Any) -> None:
        """Refuse an object that does not fit the saved state."""

    def pre_restore(self, component: Any) -> None:
        """Call the object's `pre_restore` with the checkpoint from which it is restored."""


class Delegate:
    """`self.delegate` of a spout or bolt: the runtime, as user code sees it.

    `emit`, `emit_batch`, `ack`, `fail` and `end_of_input` are set by the loop that runs the task. A spout's loop also
    sets `wait`, `wait_readable` and `busy`, a bolt's loop `abandon`. Every task sets `report_error` and `wait_outside`.
    """

    emit: Callable[..., Any]
    emit_batch: Callable[..., Any]
    ack: Callable[[Any], None]
    fail: Callable[[Any], None]
    end_of_input: Callable[[], None]
    wait: Callable[[float], None]
    wait_readable: Callable[[int], None]
    busy: Callable[[], None]
    abandon: Callable[[Any, str], None]
    report_error: Callable[[Exception], None]
    wait_outside: Callable[[str, float], None]

    def __init__(self) -> None:
        # In addition to "stdout" and "stderr"; each record names its process already.
        self.logger = logging.getLogger("log")

    def log(self, message: str, level: str | None = None) -> None:
        """Log a message; the level is trace, debug, info (default), warn or error."""
        self.logger.log(level_of(level), "%s", message)


class UserCode:
    """The user's object in one task, with its configuration and context."""

    def __init__(
        self, name: TaskName, launch: LaunchSpec | None, user_metrics: MetricsCollector, plan: plan_pb2.PhysicalPlan
    ) -> None:
        """`launch` is None in a simulation, because classes need no package there."""
        self._component = name.component
        self._launch = launch
        self._part = components_of(plan.topology)[name.component]
        self.config: dict[str, Any] = {
            **decode_config(plan.topology.topology_config),
            **decode_config(self._part.comp.config),
        }
        self.reliability = str(self.config.get(TOPOLOGY_RELIABILITY_MODE, TopologyReliabilityMode.ATMOST_ONCE))
        self.context = TopologyContext(
            self.config,
            plan.topology,
            component_of(plan),
            name.task_id,
            name.component,
            user_metrics,
            None if launch is None else launch.package_archive or launch.package_dir,
            load_hooks(self.config.get(TOPOLOGY_AUTO_TASK_HOOKS)),
        )
        self.delegate = Delegate()
        self.object: Any = None
        self.initialized = False
        self._plain = {**_plain(plan.topology.topology_config), **_plain(self._part.comp.config)}
        self.serializer: Any = None
        self.serialize: Callable[[Any], bytes] | None = None
        self.deserialize: Callable[[bytes], Any] | None = None
        self.custom_groupings: dict[GroupingKey, Any] = {}
        self._prepare_serializer()
        self._load_groupings(plan)

    def _prepare_serializer(self) -> None:
        path = str(self.config.get(TOPOLOGY_SERIALIZER_CLASSNAME, ""))
        if path in _DEFAULT_SERIALIZERS:
            return
        serializer = load_class(path, self._launch)()
        serializer.initialize(self.config)
        self.serializer = serializer
        self.serialize, self.deserialize = serializer.serialize, serializer.deserialize

    def _load_groupings(self, plan: plan_pb2.PhysicalPlan) -> None:
        """Load the custom groupings of this component's consumers; they run here, at the sender."""
        for bolt in plan.topology.bolts:
            for source in bolt.inputs:
                if source.gtype != topology_pb2.CUSTOM or source.stream.component_name != self._component:
                    continue
                grouping = pickle.loads(source.custom_grouping_object)
                if isinstance(grouping, str):
                    grouping = load_class(grouping, self._launch)()
                key = (bolt.comp.name, self._component, source.stream.id)
                self.custom_groupings[key] = grouping

    def know_process(self, process: TaskProcess) -> None:
        """Set the description of the task's process, before any user code runs."""
        self.context._process = process

    def know_state(self, attempt: int, state: OwnState) -> None:
        """Set the attempt and the saved keyed state under EFFECTIVELY_ONCE, before any user code runs."""
        self.context._attempt = attempt
        self.context.keyed_states = state.keyed

    def construct(self) -> None:
        """Load the class and create the object: `cls(delegate=...)`, as Apache heronpy does."""
        cls = load_class(self._part.comp.class_name, self._launch)
        self.object = cls(delegate=self.delegate)

    def initialize(self, saved: Saved | None) -> None:
        """Call the constructor, init_state, initialize, hooks and custom groupings, in Heron's order."""
        if saved is not None:
            saved.check_component(self.object)
        if isinstance(self.object, StatefulComponent):
            self.object.init_state(HashMapState() if saved is None else saved.state.plain)
        if saved is not None:
            saved.pre_restore(self.object)
        self.object.initialize(self.config, self.context)
        self.context.invoke_hook_prepare()
        self.prepare_groupings()
        self.initialized = True

    def prepare_groupings(self) -> None:
        """Call `prepare` of the custom groupings with their target tasks."""
        for (consumer, source, stream), grouping in self.custom_groupings.items():
            tasks = self.context.get_component_tasks(consumer) or []
            grouping.prepare(self.context, source, stream, tasks)

    def plan_changed(self, plan: plan_pb2.PhysicalPlan, components: dict[int, str]) -> None:
        """Apply the tasks and the live configuration of a new plan."""
        self.context.update(components)
        part = components_of(plan.topology)[self._component]
        plain = {**_plain(plan.topology.topology_config), **_plain(part.comp.config)}
        changed = {key: value for key, value in plain.items() if self._plain.get(key) != value}
        self._plain = plain
        if changed:
            self.config.update(changed)
            update = getattr(self.object, "update", None)
            if callable(update):
                update(changed)
        if self.initialized:
            self.prepare_groupings()

    def tick_interval_s(self) -> float | None:
        """Return the tick interval in seconds; read it after initialize, because window bolts set it there."""
        return tick_interval_s(self.config)

    def close(self) -> None:
        """Make the last calls into user code; a failed call does not prevent the next call."""
        for call in (getattr(self.object, "close", None), self.context.invoke_hook_cleanup):
            if callable(call):
                try:
                    call()
                except Exception:
                    log.exception("the clean-up of user code raised an exception")


def _plain(config: topology_pb2.Config) -> dict[str, Any]:
    """Return the plain values of a config, converted to their types. Pickled values are omitted, because they do not
    change while a topology runs.
    """
    plain = topology_pb2.Config()
    plain.kvs.extend(kv for kv in config.kvs if kv.type != _PICKLED)
    return decode_config(plain)


def columns_of(
    emitter: Emitter, stream: OutStream, columns: Any, rows: Any, what: str, count: int | None
) -> Columns | ArrowColumns:
    """Return the tuples of one `emit_batch` call. Raises TopologyError unless they are valid and match `count`."""
    rules = ColumnRules(emitter.component, stream.name, stream.fields, stream.schema)
    given = rules.columns(columns, rows)
    if count is not None:
        rules.check_count(what, count, given.size)
    return given


def emit_one(
    emitter: Emitter,
    context: TopologyContext,
    stream: OutStream,
    values: Any,
    mark: Mark | None,
    direct_task: int | None,
    need_task_ids: bool,
) -> list[int] | None:
    """Emit a tuple without a fast path; return the receiving tasks if they are requested."""
    if direct_task is None and not need_task_ids and not context.has_hooks:
        emitter.push(stream, values, mark)
        return None
    tasks = emitter.emit_to(stream, values, mark, direct_task)
    if context.has_hooks:
        context.invoke_hook_emit(values, stream.name, tasks)
    return tasks if need_task_ids else None


def emit_columns(
    emitter: Emitter,
    context: TopologyContext,
    stream: OutStream,
    columns: Columns | ArrowColumns,
    marks: list[Mark] | None,
    direct_task: int | None,
) -> None:
    """Emit tuples together, or one by one if there are hooks or a direct task."""
    if isinstance(columns, ArrowColumns):
        hooked, serializes = context.has_hooks, emitter.serializes
        if travels_as_arrow(stream.choosers, direct_task, serializes=serializes, hooked=hooked):
            emitter.push_arrow(stream, columns, marks)
            return
        columns = Columns([column.to_pylist() for column in columns.batch.columns], columns.size)
    if direct_task is None and not context.has_hooks:
        emitter.push_columns(stream, columns, marks)
        return
    for row, mark in zip(columns.rows(), marks or [None] * columns.size):
        tasks = emitter.emit_to(stream, row, mark, direct_task)
        if context.has_hooks:
            context.invoke_hook_emit(row, stream.name, tasks)


class Acks(Protocol):
    """Receives the acks and fails of a bolt."""

    acking: bool

    @property
    def ack(self) -> Callable[[OneOrMany], None]:
        """Record the ack of one or several tuples."""

    def fail(self, tup: OneOrMany) -> None:
        """Record the fail of one or several tuples."""


class BoltCalls:
    """The methods that the user code of one bolt task calls: emit, ack and fail."""

    def __init__(
        self,
        component: str,
        user: UserCode,
        emitter: Emitter,
        acks: Acks,
        stream_named: Callable[[str], OutStream],
    ) -> None:
        """`stream_named` returns a declared output stream; for an unknown name it raises an error that lists the
        declared streams.
        """
        self._component = component
        self._user = user
        self._emitter = emitter
        self._acks = acks
        self._stream_named = stream_named

    def prepare(self) -> None:
        """Enable these methods for user code from `initialize` on; `bind` later replaces them with fast methods."""
        delegate = self._user.delegate
        delegate.emit = self._emit_any
        delegate.emit_batch = self._emit_batch
        delegate.ack = self._acks.ack
        delegate.fail = self._fail
        delegate.end_of_input = self._no_end_of_input

    def bind(self) -> None:
        """Create the emit, ack and fail closures, which shadow the class's methods unless overridden."""
        from heronpy.api.bolt.base_bolt import BaseBolt

        delegate, bolt, context = self._user.delegate, self._user.object, self._user.context
        emit = self._emitter.compile_emit("bolt", self._emit_any, context, _never) or self._emit_any
        delegate.emit = emit
        if context.has_hooks:
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
        """Emit without a fast path, or before the fast path is compiled."""
        out = self._stream_named(stream)
        mark = mark_of(anchors) if anchors is not None and self._acks.acking else None
        return emit_one(self._emitter, self._user.context, out, tup, mark, direct_task, need_task_ids)

    def _emit_batch(self, columns: Any, *, rows: Any, stream: str, anchors: Any, direct_task: int | None) -> None:
        size = None if anchors is None or type(anchors) is HeronTuple else len(anchors)
        out = self._stream_named(stream)
        given = columns_of(self._emitter, out, columns, rows, "anchors", size)
        marks = marks_of(anchors, given.size) if anchors is not None and self._acks.acking else None
        emit_columns(self._emitter, self._user.context, out, given, marks, direct_task)

    def _hooked_ack(self, tup: OneOrMany) -> None:
        for one in several(tup, "ack"):
            self._acks.ack(one)
            self._user.context.invoke_hook_bolt_ack(one, (time.monotonic() - one.creation_time) * 1e9)

    def _fail(self, tup: OneOrMany) -> None:
        if not self._user.context.has_hooks:
            self._acks.fail(tup)
            return
        for one in several(tup, "fail"):
            self._acks.fail(one)
            self._user.context.invoke_hook_bolt_fail(one, (time.monotonic() - one.creation_time) * 1e9)

    def _no_end_of_input(self) -> None:
        raise TopologyError(f"end_of_input() is for spouts; {self._component} is a bolt")


def _never(tup_id: Any) -> None:
    """Do nothing: bolts have no ids that are acked immediately."""
