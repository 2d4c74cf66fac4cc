"""The user's spout or bolt and everything around it that is the user's: config, context, serializer,
custom groupings, hooks.

Every call into user code that may raise is wrapped: its exceptions become a UserError with the
user's exception as its cause, so that tracebacks are complete.
"""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from heronpy.api.api_constants import (
    TOPOLOGY_AUTO_TASK_HOOKS,
    TOPOLOGY_RELIABILITY_MODE,
    TOPOLOGY_SERIALIZER_CLASSNAME,
    TopologyReliabilityMode,
)
from heronpy.api.config_values import decode_config
from heronpy.api.state.state import HashMapState
from heronpy.api.state.stateful_component import StatefulComponent
from heronpy.api.topology_context import TaskProcess, TopologyContext
from heronpy.api.user_code import load_class, load_hooks
from heronpy.common.logs import level_of
from heronpy.plan.component_config import tick_interval_s
from heronpy.plan.launch import LaunchSpec
from heronpy.proto import components_of, plan_pb2, topology_pb2

from .metrics import UserMetrics
from .progress import TaskName
from .routing import GroupingKey, component_of

if TYPE_CHECKING:
    from heronpy.ckpt.snapshot import TaskState

log = logging.getLogger("heron.instance")

_PICKLED = topology_pb2.PYTHON_SERIALIZED_VALUE
_DEFAULT_SERIALIZERS = ("", "heronpy.api.serializer.PythonSerializer")


class Delegate:
    """`self.delegate` of a spout or bolt: the runtime, as user code sees it.

    `emit`, `emit_batch`, `ack`, `fail` and `end_of_input` are set by the loop that runs the task, and for a spout
    `wait`, `wait_readable` and `busy`; `report_error` and `wait_outside` by every task.
    """

    emit: Callable[..., Any]
    emit_batch: Callable[..., Any]
    ack: Callable[[Any], None]
    fail: Callable[[Any], None]
    end_of_input: Callable[[], None]
    wait: Callable[[float], None]
    wait_readable: Callable[[int], None]
    busy: Callable[[], None]
    report_error: Callable[[Exception], None]
    wait_outside: Callable[[str, float], None]

    def __init__(self) -> None:
        # Beside "stdout" and "stderr"; each record names its process already.
        self.logger = logging.getLogger("log")

    def log(self, message: str, level: str | None = None) -> None:
        """Log a message; the level is trace, debug, info (default), warn or error."""
        self.logger.log(level_of(level), "%s", message)


class Saved(Protocol):
    """A task's part in EFFECTIVELY_ONCE, as user code meets it."""

    @property
    def state(self) -> TaskState: ...

    def check_component(self, component: Any) -> None: ...

    def pre_restore(self, component: Any) -> None: ...


class UserCode:
    """The user's object of one task with its configuration and context."""

    def __init__(
        self, name: TaskName, launch: LaunchSpec, user_metrics: UserMetrics, plan: plan_pb2.PhysicalPlan
    ) -> None:
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
            launch.package_archive or launch.package_dir,
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
        """Before any user code runs: which process of the task this is."""
        self.context._process = process

    def know_state(self, attempt: int, state: TaskState) -> None:
        """In EFFECTIVELY_ONCE, before any user code runs: the attempt, and keyed state that is saved."""
        self.context._attempt = attempt
        self.context.keyed_states = state.keyed

    def construct(self) -> None:
        """Load the class and make the object: `cls(delegate=...)`, as Apache heronpy does."""
        cls = load_class(self._part.comp.class_name, self._launch)
        self.object = cls(delegate=self.delegate)

    def initialize(self, saved: Saved | None) -> None:
        """Constructor, init_state, initialize, hooks, custom groupings: in Heron's order."""
        if saved is not None:
            saved.check_component(self.object)
        if isinstance(self.object, StatefulComponent):
            self.object.init_state(HashMapState() if saved is None else saved.state.plain)
        if saved is not None:
            saved.pre_restore(self.object)
        self.object.initialize(self.config, self.context)
        self.context.invoke_hook_prepare()
        self._prepare_groupings()
        self.initialized = True

    def _prepare_groupings(self) -> None:
        for (consumer, source, stream), grouping in self.custom_groupings.items():
            tasks = self.context.get_component_tasks(consumer) or []
            grouping.prepare(self.context, source, stream, tasks)

    def plan_changed(self, plan: plan_pb2.PhysicalPlan, components: dict[int, str]) -> None:
        """Take over the tasks and the live configuration of a new plan."""
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
            self._prepare_groupings()

    def tick_interval_s(self) -> float | None:
        """The tick interval; read after initialize, because window bolts set it there."""
        return tick_interval_s(self.config)

    def close(self) -> None:
        """Last calls into user code, each one tried."""
        for call in (getattr(self.object, "close", None), self.context.invoke_hook_cleanup):
            if callable(call):
                try:
                    call()
                except Exception:
                    log.exception("clean-up of user code raised")


def _plain(config: topology_pb2.Config) -> dict[str, Any]:
    """The plain values of a config, typed; pickled ones do not change while a topology runs."""
    plain = topology_pb2.Config()
    plain.kvs.extend(kv for kv in config.kvs if kv.type != _PICKLED)
    return decode_config(plain)
