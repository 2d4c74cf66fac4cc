"""The page of `GET /metrics`, as prometheus-client writes it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from heronpy.metrics.sums import COMPONENT, DISCARDED, FINDING, REFUSED, STATE, TOPOLOGY, TOTALS, UNREADABLE, Sum
from heronpy.views.findings import CALM, Finding
from heronpy.views.load import Load
from heronpy.views.overview import Topology

MEDIA = CONTENT_TYPE_LATEST
#: Series on the page: those of a hundred topologies of twenty components. They take 0.7 s of CPU, in a thread.
SERIES_MAX = 60_000


@dataclass(frozen=True, slots=True)
class Shown:
    """One topology. `load` and `findings` are None and empty while its topology master does not answer."""

    topology: Topology
    load: Load | None
    findings: list[Finding]


def page(shown: Iterable[Shown], unreadable: Iterable[str], refused: int = 0) -> bytes:
    """The page of these topologies, and of the clusters that cannot be read.

    The tracker has refused `refused` requests.
    """
    return generate_latest(_Sums(shown, unreadable, refused))


class _Sums(Collector):
    """The topologies as metric families."""

    def __init__(self, shown: Iterable[Shown], unreadable: Iterable[str], refused: int) -> None:
        self._shown, self._unreadable, self._refused = shown, unreadable, refused
        self._families: dict[str, Family] = {}
        self._series = self._discarded = 0

    def collect(self) -> Iterable[Family]:
        """See `Collector`."""
        for cluster in self._unreadable:
            self._add(UNREADABLE, {"cluster": cluster}, 1)
        for one in self._shown:
            self._add_topology(one)
        # Outside the bound: what was left out must not leave out itself.
        for own, value in ((REFUSED, self._refused), *([(DISCARDED, self._discarded)] if self._discarded else ())):
            family = self._families[own.name] = Family(own.name, own.help, own.kind.value)
            family.add_sample(own.shown, {}, value)
        return [self._families[name] for name in sorted(self._families)]

    def _add_topology(self, one: Shown) -> None:
        topology = one.topology
        place = {
            "cluster": topology.cluster, "role": topology.role, "environ": topology.environ, "topology": topology.name,
        }  # fmt: skip
        self._add(STATE, place | {"state": topology.state}, 1)
        # Several tasks of a component may have the same trouble; a series is named once.
        for verdict, component in sorted(
            {(f.verdict.value, f.component) for f in one.findings if f.verdict not in CALM}
        ):
            self._add(FINDING, place | {"verdict": verdict, "component": component}, 1)
        if one.load is None:
            return  # its last figures are not those of now
        for sum_ in TOPOLOGY:
            self._add(sum_, place, getattr(topology, sum_.of))
        for sum_ in TOTALS:
            self._add(sum_, place, getattr(topology.totals, sum_.of, None))
        for load in one.load.components:
            for sum_ in COMPONENT:
                self._add(sum_, place | {"component": load.name}, getattr(load, sum_.of))

    def _add(self, one: Sum, labels: dict[str, str], value: float | None) -> None:
        if value is None:
            return
        if self._series >= SERIES_MAX:
            self._discarded += 1
            return
        self._series += 1
        family = self._families.get(one.name)
        if family is None:
            family = self._families[one.name] = Family(one.name, one.help, one.kind.value)
        family.add_sample(one.shown, labels, value)
