"""`GET /metrics`: the topologies that the asker may see, for Prometheus; one target for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from heronpy.health.findings import CALM, Finding
from heronpy.metrics.sums import COMPONENT, DISCARDED, FINDING, STATE, TOPOLOGY, TOTALS, UNREADABLE, Sum
from heronpy.tracker.calls import Call, Table, Text
from heronpy.tracker.guard import Asker, Scope
from heronpy.tracker.sources import Shared
from heronpy.tracker.tracker import Tracker
from heronpy.views.build_advice import findings_of
from heronpy.views.load import Load
from heronpy.views.overview import Topology

#: Series on the page: those of a hundred topologies of twenty components. They take 0.7 s of CPU, in a thread.
SERIES_MAX = 60_000
#: A page serves all who ask within this time.
KEEP_S = 1.0

table = Table()


@dataclass(frozen=True, slots=True)
class Shown:
    """One topology. `load` and `findings` are None and empty while its topology master does not answer."""

    topology: Topology
    load: Load | None
    findings: list[Finding]


@table.route("GET", "/metrics", Scope.VIEW, media="text/plain")
async def metrics(call: Call) -> Text:
    """All topologies and their components for Prometheus, one target for all."""
    tracker, asker = call.tracker, call.asker
    # The page depends on nothing else of the asker.
    pages = tracker.pages.setdefault(asker.where, Shared(lambda: _written(tracker, asker), KEEP_S))
    return Text(await pages.get(), CONTENT_TYPE_LATEST)


async def _written(tracker: Tracker, asker: Asker) -> bytes:
    clusters = [one for one in tracker.clusters.values() if asker.sees(one.name)]
    await asyncio.gather(*(cluster.refresh() for cluster in clusters))
    mine = [one for cluster in clusters for one in cluster.topologies.values() if tracker.sees(asker, one)]
    await asyncio.gather(*(one.refresh() for one in mine))
    shown = []
    for one in sorted(mine, key=lambda one: one.record.topology_id):
        reply = one.reply if one.answers else None
        findings = findings_of(reply.findings) if reply is not None else []
        shown.append(Shown(one.summary(), one.load() if reply is not None else None, findings))
    unreadable = [one.name for one in clusters if one.trouble]
    # A hundred topologies take some tenths of a second, in which streams must go on.
    return await asyncio.to_thread(page, shown, unreadable)


def page(shown: Iterable[Shown], unreadable: Iterable[str]) -> bytes:
    """The page of these topologies, and of the clusters that cannot be read."""
    return generate_latest(_Sums(shown, unreadable))


class _Sums(Collector):
    """The topologies as metric families."""

    def __init__(self, shown: Iterable[Shown], unreadable: Iterable[str]) -> None:
        self._shown, self._unreadable = shown, unreadable
        self._families: dict[str, Family] = {}
        self._series = self._discarded = 0

    def collect(self) -> Iterable[Family]:
        """See `Collector`."""
        for cluster in self._unreadable:
            self._add(UNREADABLE, {"cluster": cluster}, 1)
        for one in self._shown:
            self._add_topology(one)
        if self._discarded:
            family = self._families[DISCARDED.name] = Family(DISCARDED.name, DISCARDED.help, DISCARDED.kind.value)
            family.add_sample(DISCARDED.shown, {}, self._discarded)
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
