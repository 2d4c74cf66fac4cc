"""`GET /api/v1/history`, and what a topology that has ended answers."""

from __future__ import annotations

from typing import Any

from heronpy.common.ids import parse_instance_id
from heronpy.tracker.calls import Call, Param, Route, Table
from heronpy.tracker.guard import SAFE, Scope
from heronpy.tracker.history_ended import TOPOLOGY as SUMMARY
from heronpy.tracker.history_ended import decoded
from heronpy.tracker.history_store import Store
from heronpy.tracker.problems import Problem
from heronpy.tracker.reading import TASK, TOPOLOGY, V1
from heronpy.views.overview import History, Topology
from heronpy.views.past import ExceptionGroup, Exceptions

#: Routes that are answered with what they have answered last, and the kind of the document.
KINDS = {f"{TOPOLOGY}/{kind}": kind for kind in ("exceptions", "checkpoints", "batches", "units", "config")}

table = Table()


@table.route(
    "GET", V1 + "/history", Scope.VIEW,
    Param("cluster", "only this cluster"), Param("role", "only this role"), Param("environ", "only this environ"),
    Param("name", "only topologies of this name"),
    returns=History,
)  # fmt: skip
async def history(call: Call) -> History:
    """The topologies that have ended, the last first; each is reached by its id in place of its name."""
    kept, wanted = call.tracker.history, call.query

    def look(store: Store) -> list[Topology]:
        found = []
        for run in store.runs():
            if run.ended_at is None:
                continue
            summary = decoded(store.document(run.id, SUMMARY), Topology)
            if summary is not None:
                found.append(summary)
        return found

    found = await kept.do(look)
    for name in ("cluster", "role", "environ", "name"):
        if wanted[name] is not None:
            found = [one for one in found if getattr(one, name) == wanted[name]]
    return History(topologies=found, trouble=kept.store.trouble)


async def answer_ended(call: Call, route: Route) -> Any:
    """What a route answers for a topology that has ended."""
    watched = call.watched
    if route.path.startswith(TASK):
        raise Problem(410, "ended", f"{watched.gone}, and all its processes have ended", "its logs are kept")
    if route.method not in SAFE:
        raise Problem(410, "ended", f"{watched.gone}; nothing of it can be changed", "submit it again")
    kind = KINDS.get(route.path)
    if kind is None:
        return await route.answer(call)
    key = watched.record.topology_id
    found = decoded(await call.tracker.history.do(lambda store: store.document(key, kind)), route.returns)
    if found is None:
        raise Problem(404, "not-kept", f"{watched.gone}; its {kind} were not kept", "no tracker saw them")
    if isinstance(found, Exceptions):
        return _chosen(found, call.query["component"], call.query["task"])
    return found


def _chosen(found: Exceptions, component: str | None, task: int) -> Exceptions:
    """The exceptions of a component or a task."""

    def fits(group: ExceptionGroup) -> bool:
        return any(component in (None, part[0]) and task in (0, part[1]) for part in map(_parts, group.tasks))

    return Exceptions(groups=[group for group in found.groups if fits(group)], discarded=found.discarded)


def _parts(instance: str) -> tuple[str, int]:
    try:
        _, component, task = parse_instance_id(instance)
        return component, task
    except ValueError:
        return instance, 0
