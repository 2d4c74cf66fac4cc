"""Pieces of PromQL over our pages, made of registered names. Pure.

The executors' pages have a series per task, the tracker's page the sums of components. Whoever scrapes only one of them
must see the same: `either` takes what the executors say, else what the tracker says.
"""

from __future__ import annotations

from heronpy.metrics.names import METRICS, Kind
from heronpy.metrics.prometheus import own_name
from heronpy.metrics.sums import SUMS

#: What names a topology, and a component of it. The first three are labels of the targets of `heron metrics targets`.
TOPOLOGY = "cluster, role, environ, topology"
COMPONENT = f"{TOPOLOGY}, component"


def of_task(name: str) -> str:
    """The name on the executors' pages of a metric of Heron's name."""
    metric = METRICS[name]
    suffix = {Kind.COUNTER: "_total", Kind.HISTOGRAM: "_bucket", Kind.GAUGE: ""}[metric.kind]
    return own_name(metric) + suffix


def of_sum(name: str) -> str:
    """A name on the tracker's page; KeyError when there is none."""
    return SUMS[name].shown


def by(labels: str, aggregate: str, expression: str) -> str:
    """An aggregate over all but these labels."""
    return f"{aggregate} by ({labels}) ({expression})"


def either(executors: str, tracker: str) -> str:
    """What the executors' pages say, else what the tracker's says."""
    return f"{executors} or {tracker}"
