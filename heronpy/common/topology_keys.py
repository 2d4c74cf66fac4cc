"""The `topology.*` keys of a topology's configuration, with the kind of their values. Pure.

Names are those of Apache Heron; keys that only Apache Heron has are in apache_keys.py. The constants are the keys that
the runtime itself reads; `heronpy.api.api_constants` has all for users, these among them.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final

TOPOLOGY_COMPONENT_PARALLELISM: Final = "topology.component.parallelism"
TOPOLOGY_ENABLE_MESSAGE_TIMEOUTS: Final = "topology.enable.message.timeouts"
TOPOLOGY_MAX_SPOUT_PENDING: Final = "topology.max.spout.pending"
TOPOLOGY_MESSAGE_TIMEOUT_SECS: Final = "topology.message.timeout.secs"
TOPOLOGY_NAME: Final = "topology.name"
TOPOLOGY_RELIABILITY_MODE: Final = "topology.reliability.mode"
TOPOLOGY_SERIALIZER_CLASSNAME: Final = "topology.serializer.classname"
TOPOLOGY_STMGRS: Final = "topology.stmgrs"
TOPOLOGY_TICK_TUPLE_FREQ_MS: Final = "topology.tick.tuple.freq.ms"
TOPOLOGY_TICK_TUPLE_FREQ_SECS: Final = "topology.tick.tuple.freq.secs"

#: In the configuration of a spout that has no output on purpose: its work is what it does itself.
NO_OUTPUTS: Final = "spout.no.outputs"

#: In the configuration of a spout that works in mode ATLEAST_ONCE only: why, as the rest of a sentence.
NEEDS_ACKS: Final = "spout.needs.acks"

RELIABILITY_MODES: Final = ("ATMOST_ONCE", "ATLEAST_ONCE", "EFFECTIVELY_ONCE")


class KeyKind(enum.Enum):
    """What the value of a known key must be."""

    TEXT = "text"
    BOOL = "true or false"
    COUNT = "a whole number of 1 or more"
    NUMBER = "a number of 0 or more"
    POSITIVE = "a number above 0"
    BYTES = "an amount of bytes such as 512MB"
    MODE = "one of " + ", ".join(RELIABILITY_MODES)
    ANY = "any value"


_NAMES: Final[Mapping[KeyKind, str]] = {
    KeyKind.TEXT: """name team.name team.email cap.ticket project.name serializer.classname
        additional.classpath worker.childopts component.jvmopts environment
        component.cpumap component.rammap component.diskmap packing.ffd.sorting.strategy
        stateful.spill.state.location initial.state component.resourcemap
        bolts.tuple.timestamp.field.name bolts.late.tuple.stream""",
    KeyKind.BOOL: """debug enable.message.timeouts stateful.start.clean
        droptuples.upon.backpressure stateful.spill.state remote.debugging.enable acking""",
    KeyKind.COUNT: """stmgrs component.parallelism max.spout.pending
        container.max.num.instances bolts.window.length.count
        bolts.window.sliding.interval.count""",
    KeyKind.NUMBER: """container.padding.percentage component.output.bps
        update.deactivate.wait.secs update.reactivate.wait.secs
        bolts.tuple.timestamp.max.lag.ms""",
    KeyKind.POSITIVE: """message.timeout.secs stateful.checkpoint.interval.seconds
        tick.tuple.freq.secs tick.tuple.freq.ms container.cpu.requested container.max.cpu.hint
        bolts.window.length.duration.ms bolts.window.sliding.interval.duration.ms
        bolts.watermark.event.interval.ms""",
    KeyKind.BYTES: """container.ram.requested container.disk.requested container.max.ram.hint
        container.max.disk.hint container.ram.padding stmgr.ram metricsmgr.ram
        stateful.checkpointmanager.ram stateful.ckptmgr.ram""",
    KeyKind.MODE: "reliability.mode",
    KeyKind.ANY: "auto.task.hooks timer.events bolts.window.custom.config",
}

KINDS: Final[Mapping[str, KeyKind]] = {
    f"topology.{name}": kind for kind, names in _NAMES.items() for name in names.split()
}
"""Every known `topology.*` key, with the kind of its value."""
