"""Serves the URLs and JSON of Apache Heron's tracker, for programs that were written for that tracker.

The history is kept per component, so timelines have one series `*` for all instances. Two parts of Heron's tracker are
missing: the metrics query language, and the requests that it forwarded to a heron-shell.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from heronpy.clusters.session import Session
from heronpy.common.errors import HeronError
from heronpy.common.nearest import nearest, suggestion
from heronpy.proto import control_pb2
from heronpy.tmaster.minutes import MINUTE_S, SERIES
from heronpy.tracker.calls import Call, Param, Table
from heronpy.tracker.guard import Problem, Scope
from heronpy.tracker.sources import Watched
from heronpy.views import heron_info
from heronpy.views.heron_info import Json, Parts
from heronpy.views.past import Timeline, metric_name, series_name

table = Table()
_CLUSTERS, _ENVIRONS = (
    Param("cluster", "only this cluster; may be repeated", list),
    Param("environ", "only this environ; may be repeated", list),
)
_ROLE = Param("role", "only this role")
_FILTERS = (_CLUSTERS, _ENVIRONS, _ROLE)
NAMED = (
    Param("cluster", "its cluster", required=True),
    Param("environ", "its environ", required=True),
    Param("topology", "its name", required=True),
    _ROLE,
)
COMPONENT = Param("component", "the component", required=True)
INSTANCES = Param("instance", "only this instance; may be repeated", list)


async def _chosen(call: Call) -> list[Watched]:
    """Return the topologies that match the filters."""
    tracker, wanted = call.tracker, call.query
    clusters = list(tracker.clusters.values())
    clusters = [one for one in clusters if not wanted["cluster"] or one.name in wanted["cluster"]]
    await asyncio.gather(*(cluster.refresh() for cluster in clusters))
    found = [one for cluster in clusters for one in cluster.topologies.values()]
    return [
        one
        for one in sorted(found, key=lambda one: one.name)
        if (not wanted["environ"] or one.record.environ in wanted["environ"])
        and wanted["role"] in (None, one.record.role)
    ]


async def named(call: Call) -> Watched:
    """Return the topology that the query names."""
    wanted = call.query
    source = await call.tracker.cluster(wanted["cluster"])
    known = {one.name: one for one in source.topologies.values()}
    found = known.get(wanted["topology"])
    if found is None or found.record.environ != wanted["environ"] or wanted["role"] not in (None, found.record.role):
        where = f"{wanted['cluster']}/{wanted['environ']}"
        text = f"there is no topology '{wanted['topology']}' in {where}"
        raise Problem(404, "not-found", text, "GET /topologies lists them", nearest(wanted["topology"], list(known)))
    return found


def _read(session: Session, watched: Watched) -> Parts:
    """Return the state manager's records of a topology. Blocking."""
    name, definition, packing = watched.name, None, None
    with suppress(HeronError):  # the topology is being submitted, or is damaged: then the part is shown as missing
        definition, packing = session.topology(name), session.packing_plan(name)
    return Parts(
        watched.record, definition, packing, session.physical_plan(name), session.scheduler_location(name),
        session.tmaster_location(name),
    )  # fmt: skip


async def _parts(call: Call) -> Parts:
    watched = await named(call)
    return await asyncio.to_thread(_read, watched.session, watched)


@table.route("GET", "/clusters", Scope.VIEW, returns=list[str])
async def clusters(call: Call) -> list[str]:
    """Names of the clusters."""
    return list(call.tracker.clusters)


@table.route("GET", "/topologies", Scope.VIEW, *_FILTERS, returns=dict[str, dict[str, dict[str, list[str]]]])
async def topologies(call: Call) -> Json:
    """Names of the topologies, by cluster, role and environ."""
    found: Json = {}
    for one in await _chosen(call):
        record = one.record
        environs = found.setdefault(record.cluster, {}).setdefault(record.role, {})
        environs.setdefault(record.environ, []).append(one.name)
    return found


@table.route("GET", "/topologies/states", Scope.VIEW, *_FILTERS, returns=dict[str, dict[str, dict[str, Any]]])
async def states(call: Call) -> Json:
    """The execution states, by cluster, environ and name."""
    found: Json = {}
    for one in await _chosen(call):
        parts = await asyncio.to_thread(_read, one.session, one)
        environs = found.setdefault(one.record.cluster, {})
        environs.setdefault(one.record.environ, {})[one.name] = heron_info.execution_state(parts)
    return found


@table.route("GET", "/machines", Scope.VIEW, *_FILTERS, returns=dict[str, dict[str, dict[str, list[str]]]])
async def machines(call: Call) -> Json:
    """The hosts of each topology, by cluster, environ and name."""
    found: Json = {}
    for one in await _chosen(call):
        plan = await asyncio.to_thread(one.session.physical_plan, one.name)
        environs = found.setdefault(one.record.cluster, {}).setdefault(one.record.environ, {})
        environs[one.name] = [stmgr.host for stmgr in plan.stmgrs] if plan is not None else []
    return found


@table.route("GET", "/topologies/config", Scope.ALL, *NAMED, returns=dict[str, str])
async def config(call: Call) -> Json:
    """The configuration of a topology; values that may be secrets are hidden."""
    parts = await _parts(call)
    found: Json = heron_info.physical_plan(parts.physical, parts.record.working_dir)["config"]
    return found


def _declare_part(name: str, scope: Scope, summary: str, shown: Callable[[Parts], Json]) -> None:
    async def part(call: Call) -> Json:
        return shown(await _parts(call))

    part.__doc__ = summary
    table.route("GET", f"/topologies/{name}", scope, *NAMED, returns=dict[str, Any])(part)


for _name, _scope, _summary, _shown in (
    ("info", Scope.ALL, "All records of a topology, in one document.", heron_info.info),
    ("packingplan", Scope.VIEW, "The tasks of each container.",
     lambda parts: heron_info.packing_plan(parts.packing)),
    ("physicalplan", Scope.ALL, "The current container of each task, with the configuration.",
     lambda parts: heron_info.physical_plan(parts.physical, parts.record.working_dir)),
    ("logicalplan", Scope.ALL, "Spouts, bolts and streams, with the configuration.",
     lambda parts: heron_info.logical_plan(parts.definition)),
    ("executionstate", Scope.VIEW, "Who submitted a topology and when, and its status.", heron_info.execution_state),
    ("metadata", Scope.VIEW, "Who submitted a topology, and when.", heron_info.metadata),
    ("schedulerlocation", Scope.VIEW, "The address of a topology's scheduler.",
     lambda parts: heron_info.scheduler_location(parts.scheduler)),
):  # fmt: skip
    _declare_part(_name, _scope, _summary, _shown)


@table.route("GET", "/topologies/runtimestate", Scope.VIEW, *NAMED, returns=dict[str, Any])
async def runtime_state(call: Call) -> Json:
    """The registered stream managers."""
    watched = await named(call)
    parts = await asyncio.to_thread(_read, watched.session, watched)
    status = await watched.master.ask(control_pb2.GetStatus())
    known = {stmgr.stmgr_id for stmgr in status.stmgrs}
    planned = [f"stmgr-{container.id}" for container in parts.packing.containers] if parts.packing is not None else []
    return heron_info.runtime_state(parts, {name: name in known for name in planned})


@table.route(
    "GET", "/topologies/metrics", Scope.VIEW, *NAMED, COMPONENT, INSTANCES,
    Param("metricname", "only this metric; may be repeated", list),
    Param("interval", "number of most recent seconds to count; -1: since the start", int, -1, low=-1, high=86400),
    returns=dict[str, Any],
)  # fmt: skip
async def metrics(call: Call) -> Json:
    """Metrics of a component, by instance."""
    watched, wanted = await named(call), call.query
    request = control_pb2.GetMetrics(
        component=wanted["component"], names=wanted["metricname"], instances=wanted["instance"],
        interval_s=max(0, wanted["interval"]),
    )  # fmt: skip
    return heron_info.metrics(await watched.master.ask(request), wanted["component"])


#: Series of the topology, which components do not have.
_OF_TOPOLOGY = ("held", "plan_version", "spark_waiting", "spark_lag_s", "spark_done", "spark_batch_s")
#: Map from Heron's counter to the topology master's series, a rate from which a minute's count is computed.
_COUNTS = {"__emit-count": "emitted", "__execute-count": "executed", "__ack-count": "acked", "__fail-count": "failed"}
#: Maximum number of minutes that a topology master returns in one answer.
MINUTES_MAX = 1000
_TIMELINE = (
    *NAMED, COMPONENT, INSTANCES,
    Param("starttime", "seconds since 1970", int, required=True, low=0, high=1 << 40),
    Param("endtime", "seconds since 1970", int, required=True, low=0, high=1 << 40),
    Param("metricname", "such as __execute-count or busy; may be repeated; default: Heron's counters", list),
)  # fmt: skip


#: The first path is that of Heron before 0.20.5.
@table.route("GET", "/topologies/metricstimeline", Scope.VIEW, *_TIMELINE, returns=dict[str, Any])
@table.route("GET", "/topologies/metrics/timeline", Scope.VIEW, *_TIMELINE, returns=dict[str, Any])
async def metrics_timeline(call: Call) -> Json:
    """Metrics of a component by minute, summed over all instances."""
    wanted = call.query
    component, start, end = wanted["component"], wanted["starttime"], wanted["endtime"]
    if any(one != "*" for one in wanted["instance"]):
        raise Problem(400, "bad-request", "history is kept per component, not per instance", "leave out instance")
    if start > end:
        raise Problem(400, "bad-request", f"starttime ({start}) is after endtime ({end})")
    if end - start > MINUTES_MAX * MINUTE_S:
        told = f"the time range is {(end - start) // 60} minutes, but the limit is {MINUTES_MAX}"
        raise Problem(
            400, "bad-request", told, "request a shorter range, or use GET /api/v1/.../timeline, which combines minutes"
        )
    names = {name: _series_name(name) for name in wanted["metricname"] or _COUNTS}
    watched = await named(call)
    known = [node.name for node in (await watched.plan()).nodes]
    if component not in known:
        told = f"topology '{watched.name}' has no component {component[:100]!r}"
        raise Problem(404, "not-found", told, f"it has {', '.join(known)[:500]}", nearest(component, known))
    # A request ends with its last minute.
    request = control_pb2.GetTimeline(
        components=[component], names=sorted(set(names.values())), since=start, until=end + MINUTE_S
    )
    found = await watched.master.look(request, Timeline)
    values = {series_name(one.metric): one.values for one in found.series if one.component == component}
    timeline: Json = {}
    for name, series in names.items():
        factor = MINUTE_S if name in _COUNTS else 1.0
        data = {
            str(int(at)): str(value * factor)
            for at, value in zip(found.times, values.get(series, ()))
            if value is not None and start <= at <= end
        }
        timeline[name] = {"*": data} if data else {}
    return {"component": component, "starttime": start, "endtime": end, "timeline": timeline}


def _series_name(metric: str) -> str:
    """Return the name of a metric's series; raises Problem for an unknown metric."""
    name = _COUNTS.get(metric, series_name(metric))
    if name in SERIES and name not in _OF_TOPOLOGY:
        return name
    known = [*_COUNTS, *(metric_name(name) for name in SERIES if name not in _OF_TOPOLOGY)]
    text = f"no history is kept for the metric {metric[:100]!r}{suggestion(metric, known)}"
    raise Problem(400, "bad-request", text, f"metrics are {', '.join(known)}")


async def _exceptions(call: Call) -> tuple[Watched, list[control_pb2.ExceptionReport]]:
    watched, wanted = await named(call), call.query
    reply = await watched.master.ask(control_pb2.GetExceptions(component=wanted["component"]))
    return watched, [one for one in reply.exceptions if not wanted["instance"] or one.instance_id in wanted["instance"]]


@table.route("GET", "/topologies/exceptions", Scope.ALL, *NAMED, COMPONENT, INSTANCES, returns=list[dict[str, str]])
async def exceptions(call: Call) -> list[Json]:
    """The exceptions of a component's tasks, with their stack traces."""
    watched, found = await _exceptions(call)
    plan = await watched.plan()
    return heron_info.exceptions(found, {one.container: one.host for one in plan.containers if one.host})


@table.route(
    "GET", "/topologies/exceptionsummary", Scope.ALL, *NAMED, COMPONENT, INSTANCES, returns=list[dict[str, Any]]
)
async def exception_summary(call: Call) -> list[Json]:
    """The number of exceptions of a component, by class."""
    return heron_info.exception_summary((await _exceptions(call))[1])
