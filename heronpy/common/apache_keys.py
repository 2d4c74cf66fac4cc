"""Configuration keys that Apache Heron 0.20 knows and this release does not. Pure.

They come with topologies and configuration folders written for Apache's release. None of them changes the
answer of a topology here, so they are not refused: a command that starts something names them once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

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
"""Keys of topologies that have the effect of another key."""

TOPOLOGY_KEYS: Final[frozenset[str]] = frozenset(f"topology.{name}" for name in _TOPOLOGY.split()) | set(OTHER_NAMES)
"""Keys of a topology's configuration that only Apache Heron has."""

#: Families of keys that share no name with our rooms.
_FAMILIES: Final = frozenset(
    """directory config build class jars internals package topology proxy resources statefulstorage classpath
    runtime downloader uploader release apiserver binaries command check streammgr tmanager metricsmgr metricscache
    metricscachemgr healthmgr ckptmgr aurora kubernetes mesos marathon nomad slurm yarn ecs dlog""".split()
)
#: Keys of heron_internals.yaml, scheduler.yaml, packing.yaml and statemgr.yaml that begin like ours.
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
#: The key or option that replaces one of them.
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
"""Files of an Apache configuration folder, without `.yaml`, that belong to no room."""


def is_system_key(key: str) -> bool:
    """Whether this `heron.*` key exists only in Apache Heron."""
    parts = key.split(".")
    return key in _SINGLE or (len(parts) > 2 and parts[0] == "heron" and parts[1] in _FAMILIES)


def without_effect(key: str, origin: str) -> str:
    """The warning about a `heron.*` key of Apache Heron."""
    instead = f"; {_INSTEAD[key]} has the effect that it had" if key in _INSTEAD else ""
    return f"{origin}: {key} is a key of Apache Heron without effect here{instead}"
