"""`GET /metrics`: all topologies for Prometheus, one target for all of them."""

from __future__ import annotations

import asyncio

from heronpy.tracker.calls import Call, Table, Text
from heronpy.tracker.guard import Scope
from heronpy.tracker.sources import Shared
from heronpy.tracker.tracker import Tracker

#: A page serves all who ask within this time.
KEEP_S = 1.0

table = Table()


@table.route("GET", "/metrics", Scope.VIEW, media="text/plain")
async def metrics(call: Call) -> Text:
    """All topologies and their components for Prometheus, one target for all."""
    from heronpy.tracker import exposition  # the library that writes it is of no use to a start

    tracker = call.tracker
    tracker.page = tracker.page or Shared(lambda: _written(tracker), KEEP_S)
    return Text(await tracker.page.get(), exposition.MEDIA)


async def _written(tracker: Tracker) -> bytes:
    from heronpy.tracker.exposition import Shown, page

    clusters = list(tracker.clusters.values())
    await asyncio.gather(*(cluster.refresh() for cluster in clusters))
    mine = [one for cluster in clusters for one in cluster.topologies.values()]
    await asyncio.gather(*(one.refresh() for one in mine))
    shown = []
    for one in sorted(mine, key=lambda one: one.record.topology_id):
        reply = one.reply if one.answers else None
        findings = reply.findings if reply is not None else []
        shown.append(Shown(one.summary(), one.load() if reply is not None else None, findings))
    unreadable = [one.name for one in clusters if one.trouble]
    # A hundred topologies take some tenths of a second, in which streams must go on.
    return await asyncio.to_thread(page, shown, unreadable, tracker.refused)
