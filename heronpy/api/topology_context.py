"""A task's information about itself and its topology, and its hooks.

The runtime creates the context and passes it to `initialize`. All methods are cheap. `has_hooks` is a plain
attribute, so that the code that runs for each tuple can skip the hooks with one test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from heronpy.api.metrics import IMetric, MetricsCollector
from heronpy.api.state.keyed_state import KeyedState, KeyedStates, PartitionedState, PartitionOwner
from heronpy.api.tuple import Tuple
from heronpy.proto import topology_pb2

_MS_PER_NS = 1e-6


class EmitInfo(NamedTuple):
    """A tuple was emitted; `out_tasks` are the tasks chosen by direct or custom grouping."""

    values: Sequence[Any]
    stream_id: str
    task_id: int
    out_tasks: list[int] | None


class SpoutAckInfo(NamedTuple):
    """A spout's tuple was fully processed."""

    message_id: Any
    spout_task_id: int
    complete_latency_ms: float


class SpoutFailInfo(NamedTuple):
    """A spout's tuple failed or timed out."""

    message_id: Any
    spout_task_id: int
    fail_latency_ms: float


class BoltExecuteInfo(NamedTuple):
    """A bolt has returned from `process`."""

    heron_tuple: Tuple
    executing_task_id: int
    execute_latency_ms: float


class BoltAckInfo(NamedTuple):
    """A bolt acked a tuple."""

    heron_tuple: Tuple
    acking_task_id: int
    process_latency_ms: float


class BoltFailInfo(NamedTuple):
    """A bolt failed a tuple."""

    heron_tuple: Tuple
    failing_task_id: int
    fail_latency_ms: float


class ITaskHook:
    """User code that is called at every step of a tuple's life in a task. Every method is optional.

    Hooks are added with `context.add_task_hook(hook)` in `initialize`, or for all components with the
    configuration key `topology.auto.task.hooks`, a list of class paths. Without hooks there is no overhead.
    """

    def prepare(self, conf: dict[str, Any], context: TopologyContext) -> None:
        """Called after the component's `initialize`."""

    def clean_up(self) -> None:
        """Called before the task ends."""

    def emit(self, emit_info: EmitInfo) -> None:
        """Called after every emit."""

    def spout_ack(self, spout_ack_info: SpoutAckInfo) -> None:
        """Called when a spout's tuple is acked."""

    def spout_fail(self, spout_fail_info: SpoutFailInfo) -> None:
        """Called when a spout's tuple fails."""

    def bolt_execute(self, bolt_execute_info: BoltExecuteInfo) -> None:
        """Called after a bolt has processed a tuple."""

    def bolt_ack(self, bolt_ack_info: BoltAckInfo) -> None:
        """Called after a bolt has acked a tuple."""

    def bolt_fail(self, bolt_fail_info: BoltFailInfo) -> None:
        """Called after a bolt has failed a tuple."""


class StreamId(NamedTuple):
    """A stream, identified by its name and the component that emits it."""

    id: str
    component_name: str


class TaskProcess(NamedTuple):
    """The process that currently runs a task."""

    #: The number of the container in which the process runs.
    container: int = 0
    #: A number that increases with each process of the task. It begins with 1, unless the container was replaced
    #: earlier.
    incarnation: int = 1
    #: The reason why the previous process ended, as `heron status` shows it ("crashed", "oom", "hung", "preempted"
    #: ...); "" for the first process.
    after: str = ""


class TopologyContext:
    """Gives a task access to the topology's data, and to the task's metrics, states and hooks."""

    def __init__(
        self,
        config: dict[str, Any],
        topology: topology_pb2.Topology,
        task_to_component: Mapping[int, str],
        task_id: int,
        component: str,
        metrics_collector: MetricsCollector | None = None,
        package_path: str | None = None,
        task_hooks: Iterable[ITaskHook] = (),
    ) -> None:
        self._config = config
        self._topology = topology
        self._task_id = task_id
        self._component = component
        self._metrics_collector = metrics_collector
        self._package_path = package_path
        # Under EFFECTIVELY_ONCE, the runtime sets this before any user code runs.
        self._attempt = 0
        self._process = TaskProcess()
        #: Creates keyed and partitioned states. The runtime replaces this factory if the states are saved.
        self.keyed_states = KeyedStates(partitions=PartitionOwner(component, self._place, saved=False))
        self._sources = {
            bolt.comp.name: {StreamId(i.stream.id, i.stream.component_name): i.gtype for i in bolt.inputs}
            for bolt in topology.bolts
        }
        self._hooks: list[ITaskHook] = []
        self.has_hooks = False
        self.update(task_to_component)
        for hook in task_hooks:
            self.add_task_hook(hook)

    def update(self, task_to_component: Mapping[int, str]) -> None:
        """Replace the tasks with those of a new plan."""
        tasks: dict[str, list[int]] = {}
        for task_id in sorted(task_to_component):
            tasks.setdefault(task_to_component[task_id], []).append(task_id)
        self._task_to_component = dict(task_to_component)
        self._component_tasks = tasks

    def get_task_id(self) -> int:
        """Return the id of this task, unique in the topology."""
        return self._task_id

    def get_component_id(self) -> str:
        """Return the name of this task's component."""
        return self._component

    def get_cluster_config(self) -> dict[str, Any]:
        """Return the topology's configuration, overridden by the component's. It is the live dict and not a copy."""
        return self._config

    def get_topology_name(self) -> str:
        """Return the topology's name."""
        return str(self._topology.name)

    def get_topology_id(self) -> str:
        """Return the id of this submission of the topology; a new submission has another id."""
        return str(self._topology.id)

    def keyed_state(self, name: str, ttl_s: float | None = None) -> KeyedState:
        """Return a mapping from this task's keys to values, saved with checkpoints under EFFECTIVELY_ONCE.

        The keys are the values of the field by which the component's input is grouped, or tuples of
        values if there are several fields. Keys move with their tuples when the parallelism changes. With
        `ttl_s`, a key expires that many seconds after its last write. In other modes the state is in
        memory only.
        """
        return self.keyed_states(name, ttl_s)

    def partitioned_state(self, name: str) -> PartitionedState:
        """Return a mapping from the source partitions that this task reads to values, saved with checkpoints.

        A key is a pair (log, number). A log is a unit of the source, such as a topic or a file; its partitions are
        numbered from 0. Partition p of log L belongs to task `(stable_hash(L) + p) mod n` of the component's n tasks;
        `own(L, count)` of the mapping returns the numbers that belong to this task. When the parallelism changes under
        EFFECTIVELY_ONCE, a partition moves to its new task with its value. In the other modes the mapping is in memory
        only: `own` reflects each change, and a partition that moves to this task has the value that this task most
        recently stored, if any. `next_tuple` is called again after each change, even after `end_of_input`.
        """
        return self.keyed_states.partitioned(name)

    def _place(self) -> tuple[int, int]:
        """This task's index in its component (-1 if the plan no longer contains the task), and the number of tasks."""
        tasks = self._component_tasks.get(self._component, [])
        return tasks.index(self._task_id) if self._task_id in tasks else -1, max(1, len(tasks))

    @property
    def process(self) -> TaskProcess:
        """The process that runs this task, and the reason why the previous process ended."""
        return self._process

    @property
    def attempt(self) -> int:
        """The number of starts of this task's region under EFFECTIVELY_ONCE, including this start; 0 in other modes.

        The number grows with every restore, so it distinguishes this process's output from that of earlier processes.
        """
        return self._attempt

    def register_metric(self, name: str, metric: IMetric, time_bucket_in_sec: float) -> None:
        """Register a metric; `metric.get_value_and_reset()` is collected every `time_bucket_in_sec` seconds."""
        if self._metrics_collector is None:
            raise RuntimeError(f"metric {name!r} cannot be registered: this context has no metrics collector")
        self._metrics_collector.register_metric(name, metric, time_bucket_in_sec)

    def get_sources(self, component_id: str) -> dict[StreamId, int] | None:
        """Return the grouping of each input stream of a bolt; None for a spout or an unknown name."""
        sources = self._sources.get(component_id)
        return None if sources is None else dict(sources)

    def get_this_sources(self) -> dict[StreamId, int] | None:
        """Return the grouping of each input stream of this task's component."""
        return self.get_sources(self._component)

    def get_component_tasks(self, component_id: str) -> list[int] | None:
        """Return the task ids of a component in ascending order; None for an unknown name."""
        tasks = self._component_tasks.get(component_id)
        return None if tasks is None else list(tasks)

    def get_topology_pex_path(self) -> str | None:
        """Return the path of the user's package on this machine; None if there is no package.

        The path is a file that `zipfile` and `zipimport` can open, or a folder if a folder was submitted.
        """
        return self._package_path

    def get_metrics_collector(self) -> MetricsCollector | None:
        """Return the runtime's metrics collector."""
        return self._metrics_collector

    def add_task_hook(self, task_hook: ITaskHook) -> None:
        """Add a hook, which is called for all later events. Raises TypeError if it is not an ITaskHook."""
        if not isinstance(task_hook, ITaskHook):
            raise TypeError(f"a task hook must be an ITaskHook instance, given: {task_hook!r}")
        self._hooks.append(task_hook)
        self.has_hooks = True

    # The runtime calls these methods with its own tuple class. Latencies are in nanoseconds.

    def invoke_hook_prepare(self) -> None:
        """Call the hooks after the component's `initialize`."""
        for hook in self._hooks:
            hook.prepare(self._config, self)

    def invoke_hook_cleanup(self) -> None:
        """Call the hooks before the task ends."""
        for hook in self._hooks:
            hook.clean_up()

    def invoke_hook_emit(self, values: Sequence[Any], stream_id: str, out_tasks: list[int] | None) -> None:
        """Call the hooks after an emit."""
        self._invoke(lambda hook: hook.emit, EmitInfo(values, stream_id, self._task_id, out_tasks))

    def invoke_hook_spout_ack(self, message_id: Any, complete_latency_ns: float) -> None:
        """Call the hooks after a tuple of this spout has been acked."""
        self._invoke(
            lambda hook: hook.spout_ack, SpoutAckInfo(message_id, self._task_id, complete_latency_ns * _MS_PER_NS)
        )

    def invoke_hook_spout_fail(self, message_id: Any, fail_latency_ns: float) -> None:
        """Call the hooks after a tuple of this spout has failed."""
        self._invoke(
            lambda hook: hook.spout_fail, SpoutFailInfo(message_id, self._task_id, fail_latency_ns * _MS_PER_NS)
        )

    def invoke_hook_bolt_execute(self, heron_tuple: Any, execute_latency_ns: float) -> None:
        """Call the hooks after this bolt has processed a tuple."""
        self._invoke(
            lambda hook: hook.bolt_execute, BoltExecuteInfo(heron_tuple, self._task_id, execute_latency_ns * _MS_PER_NS)
        )

    def invoke_hook_bolt_ack(self, heron_tuple: Any, process_latency_ns: float) -> None:
        """Call the hooks after this bolt has acked a tuple."""
        self._invoke(
            lambda hook: hook.bolt_ack, BoltAckInfo(heron_tuple, self._task_id, process_latency_ns * _MS_PER_NS)
        )

    def invoke_hook_bolt_fail(self, heron_tuple: Any, fail_latency_ns: float) -> None:
        """Call the hooks after this bolt has failed a tuple."""
        self._invoke(
            lambda hook: hook.bolt_fail, BoltFailInfo(heron_tuple, self._task_id, fail_latency_ns * _MS_PER_NS)
        )

    def _invoke(self, method_of: Callable[[ITaskHook], Callable[[Any], None]], info: Any) -> None:
        for hook in self._hooks:
            method_of(hook)(info)
