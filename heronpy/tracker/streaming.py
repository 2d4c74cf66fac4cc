"""`GET /api/v1/live`: server-sent events, see `heronpy.views.live`."""

from __future__ import annotations

from collections.abc import AsyncIterator

from heronpy.tracker.calls import Call, Param, Table
from heronpy.tracker.guard import STREAMS_MAX, Scope
from heronpy.tracker.problems import Problem
from heronpy.tracker.reading import V1

#: Above so many tasks a page gets their figures only where it asks for them.
TASKS_MAX = 600

table = Table()


@table.route(
    "GET", V1 + "/live", Scope.VIEW,
    Param("topology", "cluster/role/environ/name; without it the list of all"),
    Param(
        "level",
        f"how much of a topology; fitting: tasks, if there are at most {TASKS_MAX}",
        default="component",
        choices=("component", "tasks", "fitting"),
    ),
    media="text/event-stream",
)  # fmt: skip
async def live(call: Call) -> AsyncIterator[bytes]:
    """What changes, as it changes."""
    tracker, wanted = call.tracker, call.query["topology"]
    who = call.asker.who
    if tracker.feeds.streams_of(who) >= STREAMS_MAX:
        text = f"{STREAMS_MAX} pages of {who} are watching already"
        raise Problem(503, "busy", text, "close a tab, or ask again later")
    last_id = call.headers.get("last-event-id", "")
    if wanted is None:
        feed = tracker.feeds.of_list(list(tracker.clusters.values()))
        return feed.stream(last_id, who, values=call.asker.may_all)
    parts = wanted.split("/")
    if len(parts) != 4:
        raise Problem(400, "bad-request", f"topology is {wanted[:200]!r}; it must be cluster/role/environ/name")
    cluster, role, environ, name = parts
    watched = await tracker.topology(cluster, role, environ, name)
    level = call.query["level"]
    if level == "fitting":
        await watched.refresh()
        level = "tasks" if 0 < (watched.summary().tasks or 0) <= TASKS_MAX else "component"
    feed = tracker.feeds.of_topology(tracker.clusters[cluster], watched, level)
    return feed.stream(last_id, who, values=call.asker.may_all)
