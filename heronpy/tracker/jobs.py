"""`GET` and `POST /api/v1/jobs/...`: jobs as `heron job show` has them, and changes of a layer by the same function.

A change names its layer in the path, and in If-Match the version of it that the asker has seen. What others have
written since is kept, and refused where it is about the same key.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct

from heronpy.common.errors import ConfigError, NoNodeError
from heronpy.tracker.calls import Call, Param, Table
from heronpy.tracker.guard import Problem, Scope
from heronpy.tracker.reading import V1

# Imported by the first request, in its thread: it is much, and most trackers need none of it.
if TYPE_CHECKING:
    from heronpy.jobs.store import Store, View

T = TypeVar("T")
JOB = V1 + "/jobs/{cluster}/{job}"

table = Table()


class LayerBody(Struct, kw_only=True, forbid_unknown_fields=True):
    """Body of a change of a layer: one of `set`, `unset` and `revert`."""

    #: Keys and their values, as a map of maps; with `for_s` they end by themselves.
    set: dict[str, Any] | None = None
    for_s: float | None = None
    #: Keys to take out, with all below them, as `parallelism.work`.
    unset: list[str] | None = None
    #: The version that the layer becomes again.
    revert: int | None = None
    why: str = ""


async def _of(call: Call, cluster: str, do: Callable[[Store], T]) -> T:
    """Ask the jobs of a cluster, in a thread; what is wrong with the request as a Problem."""
    source = await call.tracker.cluster(cluster)

    def asked() -> T:
        from heronpy.jobs.merge import ConflictError
        from heronpy.jobs.store import Store

        with source.own_session() as session:
            try:
                return do(Store(session.state))
            except NoNodeError as error:
                raise Problem(404, "not-found", str(error)) from None
            except ConfigError as error:
                raise Problem(400, "bad-request", str(error)) from None
            except ConflictError as error:
                raise Problem(412, "stale", str(error), "look at what has changed, and ask again") from None

    return await asyncio.to_thread(asked)


@table.route(
    "GET", V1 + "/jobs", Scope.ALL,
    Param("cluster", "only this cluster"), Param("job", "only this job, with all of it"),
    returns=list[dict[str, Any]],
)  # fmt: skip
async def jobs(call: Call) -> list[dict[str, Any]]:
    """The jobs, and whether they are what they should be; none is no error."""

    def asked(store: Store) -> list[dict[str, Any]]:
        from heronpy.jobs.report import row, shown

        names, only = store.names(), call.query["job"]
        return [row(store, name) for name in names] if only is None else [shown(store, only)] if only in names else []

    found = []
    for cluster in call.tracker.clusters if call.query["cluster"] is None else [call.query["cluster"]]:
        found += [{"cluster": cluster, **one} for one in await _of(call, cluster, asked)]
    return found


@table.route("GET", JOB, Scope.ALL, returns=dict[str, Any])
async def job(call: Call) -> dict[str, Any]:
    """What a job should be and is, its layers' versions and origins, changes, decisions, and what the scaler sees."""

    def asked(store: Store) -> dict[str, Any]:
        from heronpy.jobs.report import shown

        return shown(store, call.path["job"])

    return await _of(call, call.path["cluster"], asked)


@table.route("POST", JOB + "/layers/{layer}", Scope.ALL, takes=LayerBody, returns=dict[str, Any])
async def change_layer(call: Call) -> dict[str, Any]:
    """Change layer oncall or provisioner of a job; needs If-Match with its version."""
    return await _of(call, call.path["cluster"], lambda store: _changed(call, store, call.body))


def _changed(call: Call, store: Store, body: LayerBody) -> dict[str, Any]:
    from heronpy.jobs.documents import check_by_hand, nested
    from heronpy.jobs.merge import values_of

    name, layer = call.path["job"], call.path["layer"]
    store.get(name)
    seen = call.headers.get("if-match", "").strip().strip('"')
    if not (seen.isascii() and seen.isdecimal()):
        fix = "give it the version of the layer that GET .../jobs/{cluster}/{job} has"
        raise Problem(428, "no-version", "a change of a layer needs the header If-Match", fix)
    given = [one for one in (body.set, body.unset, body.revert) if one is not None]
    if len(given) != 1 or (body.for_s is not None and body.set is None):
        raise Problem(400, "bad-request", "a change has one of set, unset and revert, and for_s with set alone")
    check_by_hand(layer, body.set or ())
    version = int(seen[:9])
    who = f"{call.asker.who} at the tracker"[-100:]
    view: View
    if body.set is not None:
        view = store.set(name, layer, body.set, version, who, body.why, body.for_s)
    elif body.unset is not None:
        view = store.unset(name, layer, body.unset, version, who, body.why)
    else:
        view = store.revert(name, layer, body.revert or 0, version, who, body.why)
    return {"job": name, "versions": view.versions, "document": nested(values_of(view.found))}
