"""Everything that the tasks of one simulation share, and the making of those tasks.

Task ids are those of a first packing: from 1 on, spouts first, components in the order of their
definition.
"""

from __future__ import annotations

import random
from typing import Any

from heronpy.api import api_constants, global_metrics
from heronpy.api.api_constants import TopologyReliabilityMode
from heronpy.api.config_values import decode_config
from heronpy.api.user_code import load_class
from heronpy.common.errors import TopologyError
from heronpy.common.rooms import InstanceSettings
from heronpy.common.settings import resolve, settings_for
from heronpy.plan.logical import LogicalPlan
from heronpy.simulator.acking import AckTracker
from heronpy.simulator.async_tasks import AsyncBoltTask
from heronpy.simulator.clock import VirtualClock
from heronpy.simulator.metrics import MetricsCollector
from heronpy.simulator.records import Records
from heronpy.simulator.sinks import CollectingSink, is_spark_sink
from heronpy.simulator.tasks import BoltTask, SimTask, SpoutTask
from heronpy.simulator.tuples import Delivery

# Spouts rest while more tuples than this wait in bolts: the simulator's backpressure.
QUEUED_MAX = 1000


class World:
    """Plan, clock, trees, records and tasks of a simulation."""

    def __init__(self, topology: Any, seed: int, records_limit: int, collects: bool = False) -> None:
        self.topology = topology
        #: Whether the rows of Spark sinks are kept instead of being handed over.
        self.collects = collects
        self.plan = LogicalPlan.from_topology(topology)
        self.plan.validate()
        self.rng = random.Random(seed)
        self.clock = VirtualClock()
        self.tracker = AckTracker()
        self.records = Records(records_limit)
        self.queued = 0
        self._last_edge = 0
        config = decode_config(topology.topology_config, unpickle=False)
        mode = config.get(api_constants.TOPOLOGY_RELIABILITY_MODE)
        self.is_acking = mode == TopologyReliabilityMode.ATLEAST_ONCE
        components = {name: component.config for name, component in self.plan.components.items()}
        self._settings = resolve("simulator", (), self.plan.config, components, ())
        self.frame_max_bytes: int = settings_for(self._settings, "stmgr").frame_max_bytes
        groups: int = settings_for(self._settings, "checkpoint").key_groups
        # As in the runtime, fields groupings follow the key groups of keyed state where that is saved.
        self.key_groups = groups if mode == TopologyReliabilityMode.EFFECTIVELY_ONCE else 0
        times_out = config.get(api_constants.TOPOLOGY_ENABLE_MESSAGE_TIMEOUTS, True)
        timeout_s = float(config.get(api_constants.TOPOLOGY_MESSAGE_TIMEOUT_SECS, 30))
        self.timeout_s = timeout_s if times_out and self.is_acking else float("inf")
        self.tasks_of: dict[str, list[int]] = {}
        self.component_of: dict[int, str] = {}
        for name, component in self.plan.components.items():
            first = len(self.component_of) + 1
            self.tasks_of[name] = list(range(first, first + component.parallelism))
            self.component_of.update(dict.fromkeys(self.tasks_of[name], name))
        self._messages = {part.comp.name: part for part in (*topology.spouts, *topology.bolts)}
        self.tasks: dict[int, SimTask] = {}
        # The global counters belong to the process: what other tests left in them is dropped.
        global_metrics.metricsContainer.get_value_and_reset()
        self.global_metrics = MetricsCollector()
        global_metrics.init(self.global_metrics, 1)

    def instance_settings(self, component: str) -> InstanceSettings:
        """The settings of heron.instance.* for the tasks of a component."""
        settings: InstanceSettings = settings_for(self._settings, "instance", component)
        return settings

    @property
    def is_congested(self) -> bool:
        """Whether spouts must rest."""
        return self.queued > QUEUED_MAX

    @property
    def spouts(self) -> list[SpoutTask]:
        """The tasks of all spouts."""
        return [task for task in self.tasks.values() if isinstance(task, SpoutTask)]

    @property
    def bolts(self) -> list[BoltTask]:
        """The tasks of all bolts."""
        return [task for task in self.tasks.values() if isinstance(task, BoltTask)]

    def tasks_named(self, component: str) -> list[SimTask]:
        """The tasks of a component, by index; TopologyError for an unknown name."""
        self.plan.component(component)
        return [self.tasks[task_id] for task_id in self.tasks_of[component]]

    def task_at(self, component: str, index: int) -> SimTask:
        """One task of a component."""
        tasks = self.tasks_named(component)
        if not 0 <= index < len(tasks):
            raise TopologyError(
                f"component {component!r} has no task {index}; it has {len(tasks)}, counted from 0"
            )
        return tasks[index]

    def make_task(self, task_id: int) -> SimTask:
        """A fresh task in the place of this id, with a newly constructed user object."""
        component = self.component_of[task_id]
        message = self._messages[component]
        index = self.tasks_of[component].index(task_id)
        kind: type[SimTask] = SpoutTask
        if not self.plan.component(component).is_spout:
            is_async = getattr(self.class_of(message), "is_async", False)
            kind = AsyncBoltTask if is_async else BoltTask
        task = self.tasks[task_id] = kind(self, message, task_id, index)
        return task

    def class_of(self, message: Any) -> type[Any]:
        """The class of a component's objects: the user's, or what stands in for a Spark sink."""
        if self.collects and is_spark_sink(message.comp):
            return CollectingSink
        return load_class(message.comp.class_name)

    def drop_task(self, task_id: int) -> None:
        """Forget a task with all that is in it, as when its process dies."""
        task = self.tasks[task_id]
        if isinstance(task, BoltTask):
            self.queued -= len(task.queue)
        if isinstance(task, AsyncBoltTask):
            task.stop_loop()
        if isinstance(task, SpoutTask):
            self.tracker.forget_owner(task_id)

    def next_edge(self) -> int:
        """A number for one copy of one tuple."""
        self._last_edge += 1
        return self._last_edge

    def deliver(self, task_id: int, delivery: Delivery) -> None:
        """Put a tuple into the queue of its task."""
        task = self.tasks[task_id]
        assert isinstance(task, BoltTask)
        task.queue.append(delivery)
        self.queued += 1
