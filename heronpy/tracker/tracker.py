"""The tracker's state: its clusters, streams, tokens and audit; apart from HTTP."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

from heronpy.clusters.target import Common
from heronpy.common.nearest import nearest
from heronpy.tracker.audit import Audit
from heronpy.tracker.feeds import Feeds
from heronpy.tracker.guard import Asker, House
from heronpy.tracker.history_ended import History, ended_topology, record_of
from heronpy.tracker.history_store import Run
from heronpy.tracker.problems import Problem
from heronpy.tracker.rates import BURST_S, REFUSED_BURST, REFUSED_PER_S, REQUESTS_PER_S, Rates
from heronpy.tracker.shelf import Shelf
from heronpy.tracker.sources import ClusterSource, Shared, Watched
from heronpy.tracker.tokens import Tokens

#: Changes at once; each holds a thread.
CHANGES_MAX = 8


class Tracker:
    """Everything that requests share. `folder` is private to the user."""

    def __init__(
        self,
        clusters: Iterable[str],
        common: Common,
        house: House,
        folder: Path,
        requests_per_s: float = REQUESTS_PER_S,
    ) -> None:
        """`requests_per_s` is what one asker may send in the long run; 0: no limit."""
        self.clusters = {name: ClusterSource(name, common) for name in clusters}
        self.house = house
        self.feeds = Feeds()
        self.tokens = Tokens(folder)
        self.audit = Audit(folder, time.time)
        #: Of those who were let in, and of those who were not.
        self.rates = Rates(requests_per_s, requests_per_s * BURST_S)
        self.refused_rates = Rates(REFUSED_PER_S if requests_per_s else 0.0, REFUSED_BURST)
        self.shelf = Shelf()
        self.history = History(folder)
        #: Topologies that are being changed, by id.
        self.changing: set[str] = set()
        #: The page for Prometheus, by what its asker may see.
        self.pages: dict[str, Shared[bytes]] = {}
        #: Searches of logs that are under way.
        self.searches = 0
        self.asked_at = time.monotonic()

    async def cluster(self, name: str, asker: Asker) -> ClusterSource:
        """A cluster that the asker may see, freshly read."""
        found = self.clusters.get(name)
        if found is None or not asker.sees(name):
            known = [one for one in self.clusters if asker.sees(one)]
            raise Problem(
                404, "not-found", f"there is no cluster '{name}'", f"clusters are {', '.join(known) or 'none'}",
                nearest(name, known),
            )  # fmt: skip
        await found.refresh()
        if found.trouble:
            raise Problem(503, "no-answer", f"cluster {name} cannot be read: {found.trouble}", "try again")
        return found

    async def topology(self, cluster: str, role: str, environ: str, name: str, asker: Asker) -> Watched:
        """A topology that the asker may see; for others it is as if it were not there.

        A name is also a topology's id. What runs goes before what has ended, and this before what ended earlier.
        """
        source = await self.cluster(cluster, asker)
        mine = {one.name: one for one in source.topologies.values() if self.sees(asker, one)}
        ids = {one.record.topology_id: one for one in mine.values()}
        found = mine.get(name) or ids.get(name)
        if found is None or (found.record.role, found.record.environ) != (role, environ):
            run = await self._ended(source, role, environ, name)
            if run is not None and asker.sees(cluster, role, environ):
                return await ended_topology(self.history, source.session, run)
        if found is None:
            raise Problem(
                404, "not-found", f"cluster {cluster} has no topology '{name}'", f"see 'heron list {cluster}'",
                nearest(name, list(mine)),
            )  # fmt: skip
        record = found.record
        if (record.role, record.environ) != (role, environ):
            raise Problem(
                404, "not-found", f"topology '{name}' is not in {cluster}/{role}/{environ}",
                f"it is in {record.cluster}/{record.role}/{record.environ}", name,
            )  # fmt: skip
        return found

    async def _ended(self, source: ClusterSource, role: str, environ: str, name: str) -> Run | None:
        """The run of this id, or the last of this name, that is not there any more."""
        here = {one.record.topology_id for one in source.topologies.values()}
        runs = [
            run
            for run in await self.history.do(lambda store: store.runs())
            if run.cluster == source.name and run.id not in here and name in (run.id, run.name)
        ]
        places = [(record_of(run), run) for run in runs]
        mine = [run for record, run in places if (record.role, record.environ) == (role, environ)]
        return next((run for run in mine if run.id == name), mine[0] if mine else None)

    @staticmethod
    def sees(asker: Asker, topology: Watched) -> bool:
        """Whether the asker may see a topology."""
        record = topology.record
        return asker.sees(record.cluster, record.role, record.environ)

    def close(self) -> None:
        """Close all connections."""
        self.shelf.close()
        for cluster in self.clusters.values():
            cluster.close()
        self.history.close()
