"""The tracker's state: its clusters, streams and tokens, without HTTP."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable
from pathlib import Path

from heronpy.clusters.target import Common
from heronpy.common.nearest import nearest
from heronpy.tracker.ended import Ended, EndedTopology
from heronpy.tracker.evidence_cache import EvidenceCache
from heronpy.tracker.feeds import Feeds
from heronpy.tracker.guard import Asker, House, Problem
from heronpy.tracker.sources import ClusterSource, Shared, Watched
from heronpy.tracker.tokens import Tokens

#: Maximum number of simultaneous changes; each change occupies a thread.
CHANGES_MAX = 8
#: Maximum number of characters of a change's outcome in the log.
OUTCOME_MAX = 500

log = logging.getLogger("heronpy.tracker")


class Tracker:
    """The state that all requests share. `folder` is private to the user."""

    def __init__(
        self,
        clusters: Iterable[str],
        common: Common,
        house: House,
        folder: Path,
    ) -> None:
        self.clusters = {name: ClusterSource(name, common) for name in clusters}
        self.house = house
        self.feeds = Feeds()
        self.tokens = Tokens(folder)
        #: Requests that the guard has refused.
        self.refused = 0
        self.evidence = EvidenceCache()
        self.ended = Ended()
        #: Topologies that are being changed, by id.
        self.changing: set[str] = set()
        #: The page for Prometheus, once it was requested.
        self.page: Shared[bytes] | None = None
        #: Number of searches of logs in progress.
        self.searches = 0
        self.asked_at = time.monotonic()

    async def cluster(self, name: str) -> ClusterSource:
        """Return the cluster with this name, with an up-to-date list of topologies."""
        found = self.clusters.get(name)
        if found is None:
            known = list(self.clusters)
            raise Problem(
                404, "not-found", f"there is no cluster '{name}'", f"clusters are {', '.join(known) or 'none'}",
                nearest(name, known),
            )  # fmt: skip
        await found.refresh()
        if found.trouble:
            raise Problem(503, "no-answer", f"cluster {name} cannot be read: {found.trouble}", "try again")
        return found

    async def topology(self, cluster: str, role: str, environ: str, name: str) -> Watched:
        """Return the topology with this name or id.

        A running topology takes precedence over ended ones, and the last ended topology over earlier ones.
        """
        source = await self.cluster(cluster)
        mine = {one.name: one for one in source.topologies.values()}
        ids = {one.record.topology_id: one for one in mine.values()}
        found = mine.get(name) or ids.get(name)
        if found is None or (found.record.role, found.record.environ) != (role, environ):
            ended = await self._ended(source, role, environ, name)
            if ended is not None:
                return ended
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

    async def _ended(self, source: ClusterSource, role: str, environ: str, name: str) -> EndedTopology | None:
        """Return the ended topology with this id, or the last ended topology with this name."""
        here = [one.record.topology_id for one in source.topologies.values()]
        return await asyncio.to_thread(self.ended.find, source.session, role, environ, name, here)

    @staticmethod
    def changed(who: Asker, action: str, place: str, outcome: str) -> None:
        """Log the client and the outcome of a change, but not the given values, such as a setting."""
        log.info("%s requested %s of %s: %s", who.who, action, place, outcome[:OUTCOME_MAX])

    def close(self) -> None:
        self.evidence.close()
        for cluster in self.clusters.values():
            cluster.close()
