"""The `topology.*` keys of a topology's configuration, with the kind of their values. Pure.

The names are those of Apache Heron. Keys that only Apache Heron uses are at the end. The constants are the keys that
the runtime itself reads; `heronpy.api.api_constants` contains all keys for users.

Topologies and configuration folders written for Apache Heron 0.20 may contain keys that heronpy does not use.
None of these keys changes the results of a topology in heronpy, so they are accepted: a command that starts a
topology lists them once.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final

TOPOLOGY_COMPONENT_CPU: Final = "topology.component.cpu"
TOPOLOGY_COMPONENT_PARALLELISM: Final = "topology.component.parallelism"
TOPOLOGY_COMPONENT_RAM: Final = "topology.component.ram"
TOPOLOGY_DROPTUPLES_UPON_BACKPRESSURE: Final = "topology.droptuples.upon.backpressure"
TOPOLOGY_ENABLE_MESSAGE_TIMEOUTS: Final = "topology.enable.message.timeouts"
TOPOLOGY_MAX_SPOUT_PENDING: Final = "topology.max.spout.pending"
TOPOLOGY_MESSAGE_TIMEOUT_SECS: Final = "topology.message.timeout.secs"
TOPOLOGY_NAME: Final = "topology.name"
TOPOLOGY_RELIABILITY_MODE: Final = "topology.reliability.mode"
TOPOLOGY_SERIALIZER_CLASSNAME: Final = "topology.serializer.classname"
TOPOLOGY_STMGRS: Final = "topology.stmgrs"
TOPOLOGY_TICK_TUPLE_FREQ_MS: Final = "topology.tick.tuple.freq.ms"
TOPOLOGY_TICK_TUPLE_FREQ_SECS: Final = "topology.tick.tuple.freq.secs"

#: Key in the configuration of a spout that has no output on purpose, because its work is a side effect.
NO_OUTPUTS: Final = "spout.no.outputs"

#: Key in the configuration of the spouts of a topology in a batch run; the value is the folder of the run.
BATCH_RUN: Final = "batch.run"

#: Key in the configuration of a spout that only supports ATLEAST_ONCE; the value is the reason, as a clause.
NEEDS_ACKS: Final = "spout.needs.acks"

RELIABILITY_MODES: Final = ("ATMOST_ONCE", "ATLEAST_ONCE", "EFFECTIVELY_ONCE")

#: Key that selects the tuples to discard upon backpressure; see `heronpy.plan.dropping`.
DROP_NEWEST: Final = "drop_newest"
SAMPLE: Final = "sample"


class KeyKind(enum.Enum):
    """The type of a known key's value."""

    TEXT = "text"
    BOOL = "true or false"
    COUNT = "a whole number of 1 or more"
    NUMBER = "a number of 0 or more"
    POSITIVE = "a number above 0"
    BYTES = "a size in bytes, such as 512MB"
    MODE = "one of " + ", ".join(RELIABILITY_MODES)
    DROP = f"false, true, {DROP_NEWEST} or {SAMPLE}"
    ANY = "any value"


_NAMES: Final[Mapping[KeyKind, str]] = {
    KeyKind.TEXT: """name team.name team.email cap.ticket project.name serializer.classname
        additional.classpath worker.childopts component.jvmopts environment
        component.cpumap component.rammap component.diskmap packing.ffd.sorting.strategy
        stateful.spill.state.location initial.state component.resourcemap
        bolts.tuple.timestamp.field.name bolts.late.tuple.stream""",
    KeyKind.BOOL: """debug enable.message.timeouts stateful.start.clean
        stateful.spill.state remote.debugging.enable acking""",
    KeyKind.COUNT: """stmgrs component.parallelism max.spout.pending
        container.max.num.instances bolts.window.length.count
        bolts.window.sliding.interval.count""",
    KeyKind.NUMBER: """container.padding.percentage component.cpu component.output.bps
        update.deactivate.wait.secs update.reactivate.wait.secs
        bolts.tuple.timestamp.max.lag.ms""",
    KeyKind.POSITIVE: """message.timeout.secs stateful.checkpoint.interval.seconds
        tick.tuple.freq.secs tick.tuple.freq.ms container.cpu.requested container.max.cpu.hint
        bolts.window.length.duration.ms bolts.window.sliding.interval.duration.ms
        bolts.watermark.event.interval.ms""",
    KeyKind.BYTES: """component.ram container.ram.requested container.disk.requested container.max.ram.hint
        container.max.disk.hint container.ram.padding stmgr.ram metricsmgr.ram
        stateful.checkpointmanager.ram stateful.ckptmgr.ram""",
    KeyKind.MODE: "reliability.mode",
    KeyKind.DROP: "droptuples.upon.backpressure",
    KeyKind.ANY: "auto.task.hooks timer.events bolts.window.custom.config",
}

KINDS: Final[Mapping[str, KeyKind]] = {
    f"topology.{name}": kind for kind, names in _NAMES.items() for name in names.split()
}
"""Every known `topology.*` key, with the kind of its value."""


_TOPOLOGY: Final = """
    container.cpu.padding team.environment component.output.tps
    kryo.factory kryo.register kryo.decorators
    skip.missing.kryo.registrations fall.back.on.java.serialization
"""

OTHER_NAMES: Final[Mapping[str, str]] = {
    "topology.container.cpu": "topology.container.cpu.requested",
    "topology.container.ram": "topology.container.ram.requested",
    "topology.container.disk": "topology.container.disk.requested",
    "topology.container.max.instances": "topology.container.max.num.instances",
}
"""Topology keys that are aliases of another key."""

TOPOLOGY_KEYS: Final[frozenset[str]] = frozenset(f"topology.{name}" for name in _TOPOLOGY.split()) | set(OTHER_NAMES)
"""Keys of a topology's configuration that only Apache Heron uses."""

#: Families of keys for which heronpy has no settings file.
_FAMILIES: Final = frozenset(
    """directory config build class jars internals package topology proxy resources statefulstorage classpath
    runtime downloader uploader release apiserver binaries command check streammgr tmanager metricsmgr metricscache
    metricscachemgr healthmgr ckptmgr aurora kubernetes mesos marathon nomad slurm yarn ecs dlog""".split()
)
#: Keys of heron_internals.yaml, scheduler.yaml, packing.yaml and statemgr.yaml with the same prefix as heronpy's keys.
_SINGLE: Final = frozenset(
    f"heron.{name}"
    for name in """
    logging.directory logging.maximum.size.mb logging.maximum.files logging.prune.interval.sec
    logging.flush.interval.sec logging.err.threshold
    metrics.export.interval.sec metrics.max.exceptions.per.message.count
    scheduler.is.service scheduler.properties scheduler.local.working.directory
    statemgr.connection.string statemgr.root.path statemgr.tunnel.host statemgr.tunnel.connection.timeout.ms
    statemgr.zookeeper.is.initialize.tree statemgr.zookeeper.session.timeout.ms
    statemgr.zookeeper.connection.timeout.ms statemgr.zookeeper.retry.count statemgr.zookeeper.retry.interval.ms
    statemgr.localfs.is.initialize.file.tree
    tmaster.metrics.collector.maximum.interval.min tmaster.metrics.collector.purge.interval.sec
    tmaster.metrics.collector.maximum.exception tmaster.metrics.network.bindallinterfaces
    tmaster.establish.retry.times tmaster.establish.retry.interval.sec tmaster.stmgr.state.timeout.sec
    tmaster.network.master.options.maximum.packet.mb tmaster.network.controller.options.maximum.packet.mb
    tmaster.network.stats.options.maximum.packet.mb
    instance.internal.bolt.read.queue.capacity instance.internal.bolt.write.queue.capacity
    instance.internal.spout.read.queue.capacity instance.internal.spout.write.queue.capacity
    instance.internal.metrics.write.queue.capacity
    instance.network.read.batch.time.ms instance.network.read.batch.size.bytes
    instance.network.write.batch.time.ms instance.network.write.batch.size.bytes
    instance.network.options.socket.send.buffer.size.bytes
    instance.network.options.socket.received.buffer.size.bytes instance.network.options.maximum.packetsize.bytes
    instance.set.data.tuple.capacity instance.set.data.tuple.size.bytes instance.set.control.tuple.capacity
    instance.ack.batch.time.ms instance.emit.batch.time.ms instance.emit.batch.size.bytes
    instance.execute.batch.time.ms instance.execute.batch.size.bytes
    instance.state.check.interval.sec instance.force.exit.timeout.ms
    instance.reconnect.streammgr.interval.sec instance.reconnect.streammgr.times
    instance.reconnect.metricsmgr.interval.sec instance.reconnect.metricsmgr.times
    instance.metrics.system.sample.interval.sec instance.slave.fetch.pplan.interval.sec
    instance.acknowledgement.nbuckets
    instance.tuning.expected.bolt.read.queue.size instance.tuning.expected.bolt.write.queue.size
    instance.tuning.expected.spout.read.queue.size instance.tuning.expected.spout.write.queue.size
    instance.tuning.expected.metrics.write.queue.size instance.tuning.current.sample.weight
    instance.tuning.interval.ms
    """.split()
)
#: The key or option that replaces an Apache key.
_INSTEAD: Final[Mapping[str, str]] = {
    "heron.streammgr.network.backpressure.highwatermark.mb": "heron.stmgr.backpressure_high_bytes",
    "heron.streammgr.network.backpressure.lowwatermark.mb": "heron.stmgr.backpressure_low_bytes",
    "heron.streammgr.cache.drain.frequency.ms": "heron.instance.linger_max_us",
    "heron.instance.set.data.tuple.capacity": "heron.instance.batch_tuples",
    "heron.instance.set.data.tuple.size.bytes": "heron.instance.batch_bytes",
    "heron.instance.internal.bolt.read.queue.capacity": "heron.instance.in_queue_tuples_max",
    "heron.instance.tuning.expected.bolt.read.queue.size": "heron.instance.in_queue_expected_tuples",
    "heron.instance.acknowledgement.nbuckets": "heron.instance.ack_timeout_buckets",
    "heron.instance.force.exit.timeout.ms": "heron.instance.force_exit_s",
    "heron.metrics.export.interval.sec": "heron.metrics.export_interval_s",
    "heron.logging.maximum.size.mb": "heron.logging.file_max_bytes",
    "heron.logging.maximum.files": "heron.logging.files_max",
    "heron.statemgr.root.path": "heron.statemgr.root",
    "heron.class.packing.algorithm": "heron.packing.algorithm",
}

FILES: Final = frozenset(
    "client cluster downloader healthmgr heron_internals metrics_sinks override stateful uploader".split()
)
"""Files of an Apache configuration folder, without `.yaml`, that correspond to no settings group."""


def is_system_key(key: str) -> bool:
    """Whether only Apache Heron uses this `heron.*` key."""
    parts = key.split(".")
    return key in _SINGLE or (len(parts) > 2 and parts[0] == "heron" and parts[1] in _FAMILIES)


def without_effect(key: str, origin: str) -> str:
    """Return the warning about a `heron.*` key of Apache Heron."""
    instead = f"; {_INSTEAD[key]} replaces it" if key in _INSTEAD else ""
    return f"{origin}: {key} is a key of Apache Heron and has no effect here{instead}"
