"""Builds the page of `GET /metrics`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from heronpy.metrics.prometheus import CONTENT_TYPE, about_text, number_text, series_text
from heronpy.metrics.sums import COMPONENT, DISCARDED, FINDING, REFUSED, STATE, TOPOLOGY, TOTALS, UNREADABLE, Sum
from heronpy.views.findings import CALM, Finding
from heronpy.views.load import Load
from heronpy.views.overview import Topology

MEDIA = CONTENT_TYPE
#: Maximum number of series on the page: enough for a hundred topologies of twenty components.
SERIES_MAX = 60_000


@dataclass(frozen=True, slots=True)
class Shown:
    """One topology. While its topology master does not answer, `load` is None and `findings` is empty."""

    topology: Topology
    load: Load | None
    findings: list[Finding]


def page(shown: Iterable[Shown], unreadable: Iterable[str], refused: int = 0) -> bytes:
    """Return the page with these topologies and unreadable clusters; `refused` is the number of refused requests."""
    sums = _Sums()
    for cluster in unreadable:
        sums.add(UNREADABLE, {"cluster": cluster}, 1)
    for one in shown:
        sums.add_topology(one)
    # Not bounded: the number of omitted series must not be omitted itself.
    for own, value in ((REFUSED, refused), *([(DISCARDED, sums.discarded)] if sums.discarded else ())):
        sums.put(own, {}, value)
    return "".join(line for name in sorted(sums.families) for line in sums.families[name]).encode()


class _Sums:
    """Lines by metric family, with HELP and TYPE first."""

    def __init__(self) -> None:
        self.families: dict[str, list[str]] = {}
        self._series = self.discarded = 0

    def add_topology(self, one: Shown) -> None:
        topology = one.topology
        place = {
            "cluster": topology.cluster, "role": topology.role, "environ": topology.environ, "topology": topology.name,
        }  # fmt: skip
        self.add(STATE, place | {"state": topology.state}, 1)
        # Several tasks of a component may have the same finding, but a series may appear only once.
        for verdict, component in sorted(
            {(f.verdict.value, f.component) for f in one.findings if f.verdict not in CALM}
        ):
            self.add(FINDING, place | {"verdict": verdict, "component": component}, 1)
        if one.load is None:
            return  # its last figures are outdated
        for sum_ in TOPOLOGY:
            self.add(sum_, place, getattr(topology, sum_.of))
        for sum_ in TOTALS:
            self.add(sum_, place, getattr(topology.totals, sum_.of, None))
        for load in one.load.components:
            for sum_ in COMPONENT:
                self.add(sum_, place | {"component": load.name}, getattr(load, sum_.of))

    def add(self, one: Sum, labels: dict[str, str], value: float | None) -> None:
        """Add a series, or count it as discarded if there are too many."""
        if value is None:
            return
        if self._series >= SERIES_MAX:
            self.discarded += 1
            return
        self._series += 1
        self.put(one, labels, value)

    def put(self, one: Sum, labels: dict[str, str], value: float) -> None:
        lines = self.families.setdefault(one.shown, [about_text(one.shown, one.help, one.kind)])
        lines.append(f"{series_text(one.shown, labels)} {number_text(value)}\n")
