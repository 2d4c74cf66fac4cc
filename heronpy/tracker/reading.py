"""`GET /api/v1/...` for topologies: their current, live and past figures. Also `GET /metrics` for Prometheus."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec.structs import replace

from heronpy.batch.run import BatchRunError, Run
from heronpy.batch.topology import run_folder
from heronpy.clusters.summary import DEAD
from heronpy.common.setting_types import CheckpointSettings, SparkSettings
from heronpy.common.settings import settings_for
from heronpy.common.version import VERSION
from heronpy.health.doctor import doctor_of
from heronpy.ingest.keys import has_units
from heronpy.metrics.names import BATCH_METRICS, UNIT_METRICS
from heronpy.proto import control_pb2
from heronpy.tracker.calls import TIME_MAX, Call, Param, Route, Table, Text
from heronpy.tracker.guard import SAFE, STREAMS_MAX, Problem, Scope
from heronpy.tracker.sources import Shared, Watched
from heronpy.tracker.tracker import Tracker
from heronpy.views.advice import Doctor
from heronpy.views.build_ended import FIGURES_S, doctor_of_ended
from heronpy.views.load import Load, Tasks
from heronpy.views.overview import History, Me, Topologies, Topology
from heronpy.views.past import (
    Events,
    Exceptions,
    Slow,
    Timeline,
    exceptions_of,
    series_name,
)
from heronpy.views.plan import Plan
from heronpy.views.progress import ShownProgress, stopped, table_of
from heronpy.views.quotes import without_values
from heronpy.views.saved import (
    GATEWAY,
    Batches,
    CheckpointDetail,
    Checkpoints,
    batches_of,
    checkpoints_of,
    detail_of,
)
from heronpy.views.traces import Traces
from heronpy.views.units import Pipelines, pipelines_of

if TYPE_CHECKING:
    from heronpy.ckpt.catalogue import Found

V1 = "/api/v1"
TOPOLOGY = V1 + "/topologies/{cluster}/{role}/{environ}/{name}"
#: Routes below this path show the current activity of one process.
TASK = TOPOLOGY + "/tasks/{id}/"
PAGE_MAX = 200
EFFECTIVELY_ONCE = "EFFECTIVELY_ONCE"
EVENTS_MAX = 1000
#: With more tasks than this, a page gets their figures only on request.
TASKS_MAX = 600
#: Minimum number of seconds between two versions of the page for Prometheus.
KEEP_S = 1.0

table = Table()
_COMPONENT = Param("component", "only this component")
_PLACE = tuple(Param(name, f"only this {name}") for name in ("cluster", "role", "environ"))
_TASK = Param("task", "only the task with this id", int, 0, low=0, high=(1 << 32) - 1)


def no_answer(call: Call) -> Problem:
    """Return the Problem to raise if the topology master has never answered."""
    shown = without_values(call.watched.summary())  # errors are shown to every client that may read the topology
    if shown.ended_at is not None:
        return Problem(410, "ended", f"{shown.cause}; its figures were not kept")
    cause = f": {shown.cause}" if shown.cause else ""
    return Problem(503, "no-answer", f"topology '{shown.name}' is {shown.state}{cause}", "try again in a few seconds")


@table.route("GET", V1 + "/me", Scope.VIEW, returns=Me)
async def me(call: Call) -> Me:
    """The client that sends the request, and the client's rights."""
    asker = call.asker
    return Me(who=asker.who, scope=asker.scope.value, release=VERSION)


@table.route(
    "GET", V1 + "/topologies", Scope.VIEW,
    *_PLACE,
    Param("state", "only topologies in this state, such as RUNNING"), Param("after", "the page that follows this id"),
    returns=Topologies,
)  # fmt: skip
async def topologies(call: Call) -> Topologies:
    """The topologies, most urgent first."""
    tracker, wanted = call.tracker, call.query
    clusters = list(tracker.clusters.values())
    if wanted["cluster"] is not None:
        clusters = [await tracker.cluster(wanted["cluster"])]
    await asyncio.gather(*(cluster.refresh() for cluster in clusters))
    mine = [one for cluster in clusters for one in cluster.topologies.values()]
    await asyncio.gather(*(one.refresh() for one in mine))
    found = [one.summary() for one in mine]
    for field in ("role", "environ", "state"):
        if wanted[field] is not None:
            found = [one for one in found if getattr(one, field) == wanted[field]]
    found.sort(key=lambda one: (-one.rank, one.cluster, one.role, one.environ, one.name))
    ids = [one.id for one in found]
    begin = ids.index(wanted["after"]) + 1 if wanted["after"] in ids else 0
    page = found[begin : begin + PAGE_MAX]
    return Topologies(
        topologies=page,
        next=page[-1].id if begin + PAGE_MAX < len(found) else None,
        total=len(found),
        clusters=[one.name for one in clusters],
        unreachable={one.name: one.trouble for one in clusters if one.trouble},
    )


@table.route(
    "GET", V1 + "/history", Scope.VIEW,
    *_PLACE,
    Param("name", "only topologies with this name"),
    returns=History,
)  # fmt: skip
async def history(call: Call) -> History:
    """The topologies that have ended, newest first; in later requests, use the id instead of the name."""
    clusters, wanted = call.tracker.clusters, call.query
    await asyncio.gather(*(cluster.refresh() for cluster in clusters.values()))
    running = {one.record.topology_id for cluster in clusters.values() for one in cluster.topologies.values()}
    found = await asyncio.to_thread(call.tracker.ended.listed, list(clusters), running)
    for name in ("cluster", "role", "environ", "name"):
        if wanted[name] is not None:
            found = [one for one in found if getattr(one, name) == wanted[name]]
    return History(topologies=found)


def check_ended(call: Call, route: Route) -> None:
    """Raise Problem for a request that an ended topology cannot answer."""
    gone = call.watched.gone
    if route.path.startswith(TASK):
        raise Problem(410, "ended", f"{gone}, and all its processes have ended", "its logs are kept")
    if route.method not in SAFE:
        raise Problem(410, "ended", f"{gone}; it can no longer be changed", "submit it again")


@table.route("GET", TOPOLOGY, Scope.VIEW, returns=Topology)
async def topology(call: Call) -> Topology:
    """One topology, with its state, the doctor's sentence and totals."""
    await call.watched.refresh()
    return call.watched.summary()


@table.route("GET", TOPOLOGY + "/plan", Scope.VIEW, returns=Plan)
async def plan(call: Call) -> Plan:
    """The graph and the places of the tasks; actions accept the plan's version as If-Match."""
    await call.watched.refresh()
    return await call.watched.read_plan()


@table.route("GET", TOPOLOGY + "/load", Scope.VIEW, returns=Load)
async def load(call: Call) -> Load:
    """The current figures, by component and stream."""
    await call.watched.refresh()
    found = call.watched.load()
    if found is None:
        raise no_answer(call)
    return found


@table.route("GET", TOPOLOGY + "/tasks", Scope.VIEW, _COMPONENT, returns=Tasks)
async def tasks(call: Call) -> Tasks:
    """The figures of each task and of the other processes."""
    found = await call.watched.tasks()
    component = call.query["component"]
    if component is None:
        return found
    return replace(found, tasks=[one for one in found.tasks if one.component == component])


@table.route("GET", TOPOLOGY + "/doctor", Scope.VIEW, returns=Doctor)
async def doctor(call: Call) -> Doctor:
    """The doctor's findings, each with the next step; for an ended topology, from its last minutes and events."""
    watched = call.watched
    if watched.ended_at is not None:
        past = await watched.master.look(control_pb2.GetEvents(limit=EVENTS_MAX), Events)
        asked = control_pb2.GetTimeline(since=watched.ended_at - 2 * FIGURES_S)
        minutes = await watched.master.look(asked, Timeline)
        return doctor_of_ended(watched.summary(), past.events, minutes)
    signals, findings = await call.watched.diagnosis()
    return doctor_of(signals, findings, call.watched.record.cluster)


@table.route(
    "GET", TOPOLOGY + "/timeline", Scope.VIEW,
    Param(
        "since", "from this time on, seconds since 1970; negative: seconds before now", float, 0.0,
        low=-TIME_MAX, high=TIME_MAX,
    ),
    Param("until", "up to this time", float, 0.0, low=0, high=TIME_MAX),
    Param("points", "at most this many points; minutes are combined to fit", int, 0, low=0, high=1000),
    Param("component", "only this component; may be repeated", list),
    Param("metric", "only this series; may be repeated", list),
    Param(
        "samples", "1: the figures that this tracker has read every few seconds in the last ten minutes; only while the"
        " topology is running", int, 0, low=0, high=1,
    ),
    returns=Timeline,
)  # fmt: skip
async def timeline(call: Call) -> Timeline:
    """Series of the last day, one point per minute or longer step; for an ended topology, of its last day."""
    wanted, watched = call.query, call.watched
    now = watched.ended_at or time.time()
    since = wanted["since"] if wanted["since"] >= 0 else now + wanted["since"]
    if wanted["samples"] and watched.ended_at is None:
        await watched.refresh()
        return watched.samples.timeline(since, wanted["points"], wanted["component"], wanted["metric"])
    request = control_pb2.GetTimeline(
        components=wanted["component"], since=since, until=wanted["until"], points=wanted["points"],
        names=[series_name(name) for name in wanted["metric"]],
    )  # fmt: skip
    return await watched.master.look(request, Timeline)


@table.route(
    "GET", TOPOLOGY + "/events", Scope.VIEW,
    Param("after", "only events after the event with this number", int, 0, low=0, high=(1 << 63) - 1),
    Param("limit", "at most this many events, the newest ones", int, EVENTS_MAX, low=1, high=EVENTS_MAX),
    returns=Events,
)  # fmt: skip
async def events(call: Call) -> Events:
    """Restarts, backpressure, checkpoints and updates, oldest first, and the duration of the start."""
    request = control_pb2.GetEvents(after=call.query["after"], limit=call.query["limit"])
    return await call.watched.master.look(request, Events)


@table.route("GET", TOPOLOGY + "/exceptions", Scope.ALL, _COMPONENT, _TASK, returns=Exceptions)
async def exceptions(call: Call) -> Exceptions:
    """The exceptions of user code, grouped by type and line."""
    request = control_pb2.GetExceptions(component=call.query["component"] or "", task_id=call.query["task"])
    return exceptions_of(await call.watched.master.ask(request))


@table.route("GET", TOPOLOGY + "/slow", Scope.ALL, _COMPONENT, _TASK, returns=Slow)
async def slow(call: Call) -> Slow:
    """The slow tuples with their values, slowest first."""
    request = control_pb2.GetSlow(component=call.query["component"] or "", task_id=call.query["task"])
    return await call.watched.master.look(request, Slow)


@table.route(
    "GET", TOPOLOGY + "/traces", Scope.VIEW,
    Param(
        "since", "only traces that began after this time, seconds since 1970; negative: seconds before now", float, 0.0,
        low=-TIME_MAX, high=TIME_MAX,
    ),
    Param("min_ms", "only traces that took at least this many milliseconds", float, 0.0, low=0, high=TIME_MAX),
    Param("limit", "at most this many traces, the slowest ones", int, 50, low=0, high=200),
    returns=Traces,
)  # fmt: skip
async def traces(call: Call) -> Traces:
    """The time that sampled tuples took, by hop, and the slowest tuples span by span."""
    wanted = call.query
    since = wanted["since"] if wanted["since"] >= 0 else time.time() + wanted["since"]
    request = control_pb2.GetTraces(since=since, min_s=wanted["min_ms"] / 1000, limit=wanted["limit"])
    return await call.watched.master.look(request, Traces)


@table.route("GET", TOPOLOGY + "/checkpoints", Scope.VIEW, returns=Checkpoints)
async def checkpoints(call: Call) -> Checkpoints:
    """The checkpoints, and the tasks for which the checkpoint in progress waits."""
    watched = call.watched
    plan = await watched.plan()
    count = sum(len(container.tasks) for container in plan.containers)
    if plan.mode != EFFECTIVELY_ONCE:
        return checkpoints_of(None, plan.mode, None, count)
    interval_s = settings_for(await watched.master.launch(), CheckpointSettings).interval_s
    return checkpoints_of(await watched.master.ask(control_pb2.GetCheckpoints()), plan.mode, interval_s or None, count)


def _found_of(watched: Watched) -> list[Found]:
    """Return the topology's checkpoints on disk; blocking."""
    from heronpy.clusters.places import found_of  # imported here, because it imports object stores

    return found_of(watched.session, watched.name)


@table.route("GET", TOPOLOGY + "/checkpoints/{number}", Scope.VIEW, returns=CheckpointDetail)
async def checkpoint(call: Call) -> CheckpointDetail:
    """One checkpoint of this run, with each task's time and written bytes."""
    watched, text = call.watched, call.path["number"]
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise Problem(404, "not-found", f"'{watched.name}' has no checkpoint {text[:40]}", "checkpoints are numbers")
    number = int(text)
    found = await asyncio.to_thread(_found_of, watched)
    mine = [one for one in found if one.folder.name == watched.record.topology_id]
    chosen = next((one for one in mine if one.checkpoint == number), None)
    if chosen is None:
        known = ", ".join(str(one.checkpoint) for one in mine[:10]) or "none"
        raise Problem(404, "not-found", f"'{watched.name}' has no checkpoint {text[:40]}", f"there are: {known}")
    if chosen.metadata is None:
        raise Problem(500, "damaged", f"checkpoint {number} cannot be read: {chosen.damage[0]}")
    return detail_of(chosen.metadata, chosen.total_bytes, chosen.uploaded_bytes)


@table.route("GET", TOPOLOGY + "/batches", Scope.VIEW, returns=Batches)
async def batches(call: Call) -> Batches:
    """The micro-batches of the Spark sinks."""
    watched = call.watched
    launch = await watched.master.launch()
    if not launch.needs_spark:
        return Batches(sinks=[], spark_ui=None)
    reply = await watched.master.ask(control_pb2.GetMetrics(names=BATCH_METRICS, instances=[GATEWAY]))
    plan = await watched.plan()
    local = settings_for(launch, SparkSettings).master.startswith("local")
    hosts = [one.host for one in plan.containers if one.container == 0 and one.host]
    found = batches_of(reply, "127.0.0.1" if local or not hosts else hosts[0])
    if watched.ended_at is not None:
        found.spark_ui = None
    watched.samples.see_batches(found, time.time())
    return found


@table.route("GET", TOPOLOGY + "/units", Scope.VIEW, returns=Pipelines)
async def units(call: Call) -> Pipelines:
    """The pipelines of work units, with the backlog, units and bad ranges that their tasks report."""
    return pipelines_of(await call.watched.master.ask(control_pb2.GetMetrics(names=UNIT_METRICS)))


@table.route("GET", TOPOLOGY + "/progress", Scope.VIEW, returns=ShownProgress)
async def progress(call: Call) -> ShownProgress:
    """The progress of work units: the stages of a batch run, or the pipelines of a stream."""
    watched = call.watched
    await watched.plan()
    definition = watched.definition
    if definition is not None and (folder := run_folder(definition)):
        with suppress(BatchRunError):
            found = await asyncio.to_thread(lambda: Run(folder).progress)
            await watched.refresh()
            if watched.ended_at is not None:
                found = stopped(found)
            elif watched.summary().state == DEAD:
                found = stopped(found, await asyncio.to_thread(watched.session.cure_of_dead, watched.name))
            return ShownProgress(run=found, table=table_of(found))
    if definition is None or not has_units(definition):
        return ShownProgress(run=None, table=pipelines_of(control_pb2.MetricsReply()).table)
    return ShownProgress(run=None, table=(await units(call)).table)


@table.route(
    "GET", V1 + "/live", Scope.VIEW,
    Param("topology", "cluster/role/environ/name; default: the list of all topologies"),
    Param(
        "level",
        f"level of detail; 'fitting' means 'tasks' if there are at most {TASKS_MAX} tasks, otherwise 'component'",
        default="component",
        choices=("component", "tasks", "fitting"),
    ),
    media="text/event-stream",
)  # fmt: skip
async def live(call: Call) -> AsyncIterator[bytes]:
    """A live stream of changes."""
    tracker, wanted = call.tracker, call.query["topology"]
    who = call.asker.who
    if tracker.feeds.streams_of(who) >= STREAMS_MAX:
        text = f"{STREAMS_MAX} pages of {who} are already open"
        raise Problem(503, "busy", text, "close a tab, or try again later")
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


@table.route("GET", "/metrics", Scope.VIEW, media="text/plain")
async def metrics(call: Call) -> Text:
    """Metrics of all topologies and their components, as one Prometheus target."""
    from heronpy.tracker import exposition  # imported here, because the start of the tracker does not need it

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
    # For a hundred topologies this takes some tenths of a second, during which streams must continue.
    return await asyncio.to_thread(page, shown, unreadable, tracker.refused)
