"""The settings that a submit makes for Spark: components whose tuples wait for Spark's batches anyway may send them
less often.

A frame costs the same whether it holds one tuple or hundreds, and tuples that reach only Spark wait there for up to a
second or more. So these components gather tuples as long as in the profile `thrift`, unless the user has chosen
otherwise.
"""

from __future__ import annotations

from heronpy.common.settings import Resolved, prefer
from heronpy.connectors.spark.requirements import spark_sinks
from heronpy.plan.logical import LogicalPlan
from heronpy.proto import topology_pb2

PROFILE = "thrift"


def settle(topology: topology_pb2.Topology, logical: LogicalPlan, resolved: Resolved) -> None:
    """Let the components whose tuples go only to Spark send less often."""
    for component in sorted(only_for(logical, spark_sinks(topology))):
        prefer(resolved, component, PROFILE, "linger_max_us", "every tuple waits for a batch of Spark")


def only_for(logical: LogicalPlan, sinks: frozenset[str]) -> set[str]:
    """The sinks, and the components whose tuples end only in these sinks (pure)."""
    found = set(sinks)
    growing = bool(found)
    while growing:
        fresh = {
            name
            for name in logical.components
            if name not in found and (after := logical.downstream(name)) and found.issuperset(after)
        }
        found |= fresh
        growing = bool(fresh)
    return found
