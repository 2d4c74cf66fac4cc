"""File sinks that let a spout stand still, because they ack late what it may have pending.

Pure. At least once, a FileSink acks the tuples of a file when it publishes it: once it has `roll_bytes`, or when its
first row is `roll_interval_s` old. Until then they are pending at their spout, which emits nothing beyond
`topology.max.spout.pending`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from heronpy.common.topology_keys import TOPOLOGY_MAX_SPOUT_PENDING, TOPOLOGY_RELIABILITY_MODE

if TYPE_CHECKING:
    from heronpy.plan.logical import LogicalPlan

#: Set by a FileSink, in seconds.
ROLL_INTERVAL_S: Final = "file.sink.roll_interval_s"
#: Few users want less than so many tuples per second of a spout task, and only the sink's pause holds it there.
SLOW_PER_S: Final = 100.0
_DEFAULT_PENDING: Final = 100.0


def warnings(plan: LogicalPlan) -> Iterator[str]:
    """A sentence for each spout that a file sink keeps below `SLOW_PER_S`."""
    if plan.config.get(TOPOLOGY_RELIABILITY_MODE) != "ATLEAST_ONCE":
        return
    sinks = {one.name: _number(one.config.get(ROLL_INTERVAL_S)) for one in plan.definitions}
    for spout in plan.spouts():
        config = {**plan.config, **plan.components[spout].config}
        pending = _number(config.get(TOPOLOGY_MAX_SPOUT_PENDING, _DEFAULT_PENDING))
        reached = plan.reachable([spout])
        held = [(seconds, name) for name, seconds in sinks.items() if seconds and name in reached]
        if not held or pending <= 0:
            continue
        seconds, sink = max(held)
        if pending / seconds < SLOW_PER_S:
            yield (
                f"file sink '{sink}' acks what it has published, each {seconds:g} s, and a task of spout '{spout}' may"
                f" have {pending:g} tuples pending: it emits about {pending / seconds:g} tuples a second, unless files"
                f" are full before; raise {TOPOLOGY_MAX_SPOUT_PENDING}, or lower the sink's roll_interval_s"
            )


def _number(value: object) -> float:
    """0 for what is no number; its component refuses it."""
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return 0.0
