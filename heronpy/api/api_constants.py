"""The configuration keys of a topology and the values of its reliability mode.

Names and values are those of Apache heronpy, with one exception: the keys for container resources contain `.requested`.
Apache heronpy lacks the last block of keys. A key may be set in the topology's `config` or in a component's `config`;
the component's value takes precedence.
"""

from __future__ import annotations

from heronpy.common import topology_keys


class TopologyReliabilityMode:
    """The delivery guarantee of a topology."""

    ATMOST_ONCE = "ATMOST_ONCE"
    ATLEAST_ONCE = "ATLEAST_ONCE"
    EFFECTIVELY_ONCE = "EFFECTIVELY_ONCE"


class TopologyDropPolicy:
    """Selects the tuples that are discarded for a full task if TOPOLOGY_DROPTUPLES_UPON_BACKPRESSURE is set."""

    DROP_NEWEST = topology_keys.DROP_NEWEST
    SAMPLE = topology_keys.SAMPLE


TOPOLOGY_WORKER_CHILDOPTS = "topology.worker.childopts"
TOPOLOGY_COMPONENT_JVMOPTS = "topology.component.jvmopts"
TOPOLOGY_TICK_TUPLE_FREQ_SECS = topology_keys.TOPOLOGY_TICK_TUPLE_FREQ_SECS
TOPOLOGY_ENABLE_MESSAGE_TIMEOUTS = topology_keys.TOPOLOGY_ENABLE_MESSAGE_TIMEOUTS
TOPOLOGY_DEBUG = "topology.debug"
TOPOLOGY_STMGRS = topology_keys.TOPOLOGY_STMGRS
TOPOLOGY_MESSAGE_TIMEOUT_SECS = topology_keys.TOPOLOGY_MESSAGE_TIMEOUT_SECS
TOPOLOGY_COMPONENT_PARALLELISM = topology_keys.TOPOLOGY_COMPONENT_PARALLELISM
TOPOLOGY_MAX_SPOUT_PENDING = topology_keys.TOPOLOGY_MAX_SPOUT_PENDING
TOPOLOGY_AUTO_TASK_HOOKS = "topology.auto.task.hooks"
TOPOLOGY_SERIALIZER_CLASSNAME = topology_keys.TOPOLOGY_SERIALIZER_CLASSNAME
TOPOLOGY_RELIABILITY_MODE = topology_keys.TOPOLOGY_RELIABILITY_MODE
TOPOLOGY_STATEFUL_CHECKPOINT_INTERVAL_SECONDS = "topology.stateful.checkpoint.interval.seconds"
TOPOLOGY_STATEFUL_START_CLEAN = "topology.stateful.start.clean"

TOPOLOGY_CONTAINER_CPU_REQUESTED = "topology.container.cpu.requested"
TOPOLOGY_CONTAINER_RAM_REQUESTED = "topology.container.ram.requested"
TOPOLOGY_CONTAINER_DISK_REQUESTED = "topology.container.disk.requested"
TOPOLOGY_CONTAINER_MAX_RAM_HINT = "topology.container.max.ram.hint"
TOPOLOGY_CONTAINER_MAX_CPU_HINT = "topology.container.max.cpu.hint"
TOPOLOGY_CONTAINER_MAX_DISK_HINT = "topology.container.max.disk.hint"
TOPOLOGY_CONTAINER_PADDING_PERCENTAGE = "topology.container.padding.percentage"
TOPOLOGY_CONTAINER_RAM_PADDING = "topology.container.ram.padding"

TOPOLOGY_COMPONENT_CPUMAP = "topology.component.cpumap"
TOPOLOGY_COMPONENT_RAMMAP = "topology.component.rammap"
TOPOLOGY_COMPONENT_DISKMAP = "topology.component.diskmap"
TOPOLOGY_NAME = topology_keys.TOPOLOGY_NAME
TOPOLOGY_TEAM_NAME = "topology.team.name"
TOPOLOGY_TEAM_EMAIL = "topology.team.email"
TOPOLOGY_CAP_TICKET = "topology.cap.ticket"
TOPOLOGY_PROJECT_NAME = "topology.project.name"
TOPOLOGY_ADDITIONAL_CLASSPATH = "topology.additional.classpath"
TOPOLOGY_COMPONENT_OUTPUT_BPS = "topology.component.output.bps"
TOPOLOGY_DROPTUPLES_UPON_BACKPRESSURE = topology_keys.TOPOLOGY_DROPTUPLES_UPON_BACKPRESSURE

# Not in Apache heronpy: ticks more often than once a second.
TOPOLOGY_TICK_TUPLE_FREQ_MS = topology_keys.TOPOLOGY_TICK_TUPLE_FREQ_MS
