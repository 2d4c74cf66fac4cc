"""The parts that all tasks of a simulation share: plan, clock, tuple trees and records.

Task ids are numbered as in a first packing: from 1, spouts first, components in the order of
their definition.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from heronpy.api import api_constants, global_metrics
from heronpy.api.api_constants import TopologyReliabilityMode
from heronpy.api.config_values import decode_config
from heronpy.api.user_code import load_class
from heronpy.common.setting_types import CheckpointSettings, InstanceSettings, StmgrSettings
from heronpy.common.settings import resolve, settings_for
from heronpy.connectors.spark.requirements import spark_sinks
from heronpy.plan.component_config import drop_policy
from heronpy.plan.dropping import DropPolicy
from heronpy.plan.logical import LogicalPlan
from heronpy.plan.validation import validate
from heronpy.simulator.acking import AckTracker
from heronpy.simulator.clock import VirtualClock
from heronpy.simulator.records import MetricsCollector, Records
from heronpy.simulator.sinks import CollectingSink
from heronpy.simulator.tuples import Delivery

# Number of tuples queued in bolts above which spouts pause (backpressure). In a topology that drops tuples instead,
# a task with this number of tuples is full.
QUEUED_MAX = 1000


class Shared:
    """The parts that all tasks of a simulation share."""

    def __init__(self, topology: Any, seed: int, records_limit: int, collects: bool = False) -> None:
        self.topology = topology
        #: True if the rows of Spark sinks are kept instead of being passed to Spark.
        self.collects = collects
        self._sinks = spark_sinks(topology) if collects else frozenset[str]()
        self.plan = LogicalPlan.from_topology(topology)
        validate(self.plan)
        self.rng = random.Random(seed)
        self.clock = VirtualClock()
        self.tracker = AckTracker()
        self.records = Records(records_limit)
        self.queued = 0
        policy = drop_policy(self.plan.config)
        self.drops = DropPolicy(policy) if policy else None
        #: Component to tuples for it that were dropped upon backpressure.
        self.dropped: Counter[str] = Counter()
        self._last_edge = 0
        config = decode_config(topology.topology_config, unpickle=False)
        mode = config.get(api_constants.TOPOLOGY_RELIABILITY_MODE)
        self.is_acking = mode == TopologyReliabilityMode.ATLEAST_ONCE
        components = {name: component.config for name, component in self.plan.components.items()}
        self._settings = resolve("simulator", (), self.plan.config, components, ())
        self.frame_max_bytes: int = settings_for(self._settings, StmgrSettings).frame_max_bytes
        groups: int = settings_for(self._settings, CheckpointSettings).key_groups
        # As in the runtime, fields groupings follow the key groups of keyed state if the state is saved.
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
        # The global counters belong to the process: drop the values that other tests left in them.
        global_metrics.metricsContainer.get_value_and_reset()
        self.global_metrics = MetricsCollector()
        global_metrics.init(self.global_metrics, 1)

    def instance_settings(self, component: str) -> InstanceSettings:
        """The settings of heron.instance.* for the tasks of a component."""
        return settings_for(self._settings, InstanceSettings, component)

    @property
    def is_congested(self) -> bool:
        """True if spouts must pause."""
        return self.drops is None and self.queued > QUEUED_MAX

    def class_of(self, message: Any) -> type[Any]:
        """Return the class of a component's objects: the user's class, or the replacement of a Spark sink."""
        if message.comp.name in self._sinks:
            return CollectingSink
        return load_class(message.comp.class_name)

    def next_edge(self) -> int:
        """Return a new number for one copy of one tuple."""
        self._last_edge += 1
        return self._last_edge

    def deliver(self, task_id: int, delivery: Delivery) -> None:
        """Put a tuple into the queue of its task."""
        raise NotImplementedError(f"{type(self).__name__} must define deliver")
