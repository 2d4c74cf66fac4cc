"""`/api/v1/jobs/...` and `/api/v1/pools/...`: the data of `heron job show` and `heron pool show`, and changes to jobs.

The request to change a layer names the layer in its path, and in If-Match the version that the client has read. Changes
made after that version are kept; if one of them concerns the same key, the request is refused. The token 'view' shows
numbers and names, but neither settings nor reasons, which may quote values.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar, cast

from msgspec import Struct

from heronpy.common.errors import ConfigError, HeronError, NoNodeError
from heronpy.common.redaction import redacted, redacted_texts
from heronpy.tracker.calls import TIME_MAX, Call, Param, Table
from heronpy.tracker.guard import Problem, Scope
from heronpy.tracker.reading import V1
from heronpy.views.past import Timeline

# Imported by the first request, in its thread, because the import takes a long time and most trackers do not need it.
if TYPE_CHECKING:
    from heronpy.clusters.session import Session
    from heronpy.jobs.store import Store, View

T = TypeVar("T")
JOBS, POOLS = V1 + "/jobs", V1 + "/pools"
JOB, POOL = JOBS + "/{cluster}/{job}", POOLS + "/{cluster}/{pool}"
#: Keys of a document whose values are settings, which are shown for the token 'all' only.
SETTINGS = frozenset(("config", "component_config", "settings"))
#: Fields of jobs, decisions and changes that people or user code have written.
_REASONS = frozenset(("failure", "alerts", "why", "text"))
#: Replaces a reason.
UNSEEN = "the token 'all' shows the reason"
_CLUSTER = Param("cluster", "only this cluster")

table = Table()


class LayerBody(Struct, kw_only=True, forbid_unknown_fields=True):
    """Body of a request to change a layer: exactly one of `set`, `unset` and `revert`."""

    #: Keys and values, as a map of maps; with `for_s` they apply for this number of seconds.
    set: dict[str, Any] | None = None
    for_s: float | None = None
    #: Keys to remove, with all keys below them, such as `parallelism.work`.
    unset: list[str] | None = None
    #: The version of the layer to restore.
    revert: int | None = None
    why: str = ""


class ReleaseBody(Struct, forbid_unknown_fields=True):
    """Body of a request to release a job: an empty object."""


async def _of(call: Call, cluster: str, do: Callable[[Session], T]) -> T:
    """Read or change a cluster's jobs in a thread. Raises Problem if the request is invalid."""
    source = await call.tracker.cluster(cluster)

    def asked() -> T:
        from heronpy.jobs.merge import ConflictError

        with source.own_session() as session:
            try:
                return do(session)
            except NoNodeError as error:
                raise Problem(404, "not-found", str(error)) from None
            except ConfigError as error:
                raise Problem(400, "bad-request", str(error)) from None
            except ConflictError as error:
                raise Problem(412, "stale", str(error), "check what has changed, and repeat the request") from None

    return await asyncio.to_thread(asked)


async def _of_each(call: Call, do: Callable[[Session], list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Read the jobs of the cluster that the query names, or of all clusters."""
    wanted = call.query["cluster"]
    found = []
    for cluster in list(call.tracker.clusters) if wanted is None else [wanted]:
        try:
            found += [{"cluster": cluster, **one} for one in await _of(call, cluster, do)]
        except Problem as problem:
            if wanted is not None or problem.status != 503:  # the list of topologies names unreadable clusters
                raise
    return found


def _store(session: Session) -> Store:
    from heronpy.jobs.allotting import store_of

    return store_of(session)


@table.route(
    "GET", JOBS, Scope.VIEW, _CLUSTER, Param("job", "only this job, with all details"), returns=list[dict[str, Any]]
)
async def jobs(call: Call) -> list[dict[str, Any]]:
    """The jobs, each with state, wanted and running tasks, lag, SLO and last decision. The list may be empty."""

    def asked(session: Session) -> list[dict[str, Any]]:
        store, only = _store(session), call.query["job"]
        names = store.names()
        if only is not None:
            return [_shown(session, only)] if only in names else []
        kept = bool(names) and _is_kept(session)
        return [_row(store, name) | {"kept": kept} for name in names]

    return await _seen(call, await _of_each(call, asked))


@table.route("GET", JOB, Scope.VIEW, returns=dict[str, Any])
async def job(call: Call) -> dict[str, Any]:
    """The intended and actual state of a job, with the layers' versions and origins, changes, decisions and figures."""
    cluster, name = call.path["cluster"], call.path["job"]
    found = await _of(call, cluster, lambda session: _shown(session, name))
    return (await _seen(call, [{"cluster": cluster, **found}]))[0]


@table.route(
    "GET", JOB + "/minutes", Scope.VIEW,
    Param("since", "from this time on, seconds since 1970", float, 0.0, low=0, high=TIME_MAX),
    Param("points", "at most this many points", int, 300, low=2, high=1000),
    returns=Timeline,
)  # fmt: skip
async def minutes(call: Call) -> Timeline:
    """The scaler's figures of the last day: load and tasks by component, and lag. Available only on the job's host."""

    def asked(session: Session) -> Timeline:
        from heronpy.jobs.manager import minutes_of
        from heronpy.scaling.history import recorded_since
        from heronpy.scaling.replaying import timeline_of

        name = call.path["job"]
        slo = _store(session).get(name).document.slo
        looks = list(recorded_since(minutes_of(call.path["cluster"], name), call.query["since"]))
        step = -(-len(looks) // call.query["points"]) or 1
        return timeline_of(looks[::-step][::-1], slo.lag_s or None)  # with the newest

    return await _of(call, call.path["cluster"], asked)


@table.route("POST", JOB + "/layers/{layer}", Scope.ALL, takes=LayerBody, returns=dict[str, Any])
async def change_layer(call: Call) -> dict[str, Any]:
    """Change a job's layer `oncall` or `provisioner`; needs If-Match with the layer's version."""
    return await _change(call, f"a change to layer {call.path['layer']}", _changed)


@table.route("POST", JOB + "/release", Scope.ALL, takes=ReleaseBody, returns=dict[str, Any])
async def release(call: Call) -> dict[str, Any]:
    """Retry a job that is QUARANTINED or WAITING; needs If-Match with the job's `version`."""
    return await _change(call, "a release", _released)


async def _change(call: Call, what: str, do: Callable[[Call, Store], dict[str, Any]]) -> dict[str, Any]:
    """Carry out a change, and log the client and the outcome."""
    outcome = "was interrupted"
    try:
        found = await _of(call, call.path["cluster"], lambda session: do(call, _store(session)))
        outcome = "done"
        return found
    except Exception as error:
        outcome = f"failed: {error.type}" if isinstance(error, Problem) else "failed"  # the text may quote values
        raise
    finally:
        call.tracker.changed(call.asker, what, f"job {call.path['cluster']}/{call.path['job']}", outcome)


def _version(call: Call, of: str) -> int:
    """Return the version in the header If-Match."""
    seen = call.headers.get("if-match", "").strip().strip('"')
    if not (seen.isascii() and seen.isdecimal()):
        fix = f"set it to the version of the {of} that GET .../jobs/{{cluster}}/{{job}} returns"
        raise Problem(428, "no-version", f"a change to a {of} needs the header If-Match", fix)
    return int(seen[:9])


def _changed(call: Call, store: Store) -> dict[str, Any]:
    from heronpy.jobs.documents import check_by_hand, nested
    from heronpy.jobs.merge import values_of

    name, layer, body = call.path["job"], call.path["layer"], call.body
    store.get(name)
    version = _version(call, "layer")
    given = [one for one in (body.set, body.unset, body.revert) if one is not None]
    if len(given) != 1 or (body.for_s is not None and body.set is None):
        raise Problem(400, "bad-request", "a change contains exactly one of set, unset and revert; for_s needs set")
    if "settings" in (body.set or ()):
        # Some settings name programs to run, so they need more than a token.
        fix = f"use the command: heron job set {call.path['cluster']} {name} settings.KEY=VALUE"
        raise Problem(403, "forbidden", "settings cannot be set at the tracker", fix)
    check_by_hand(layer, body.set or ())
    who = f"{call.asker.who} at the tracker"[-100:]
    view: View
    if body.set is not None:
        view = store.set(name, layer, body.set, version, who, body.why, body.for_s)
    elif body.unset is not None:
        view = store.unset(name, layer, body.unset, version, who, body.why)
    else:
        view = store.revert(name, layer, body.revert or 0, version, who, body.why)
    return {"job": name, "versions": view.versions, "document": redacted(nested(values_of(view.found)))}


def _released(call: Call, store: Store) -> dict[str, Any]:
    name = call.path["job"]
    now, seen = sum(store.get(name).versions.values()), _version(call, "job")
    if seen != now:
        text = f"job '{name}' has version {now} now, not {seen}"
        raise Problem(412, "stale", text, "check what has changed, and repeat the request")
    return {"job": name, "released": store.release(name)}


# ---- views ----------------------------------------------------------------------------------


def _is_kept(session: Session) -> bool:
    """Whether the cluster's jobs have an acting manager."""
    from heronpy.jobs.manager import acting_of

    return acting_of(session.state) is not None


def _shown(session: Session, name: str) -> dict[str, Any]:
    from heronpy.jobs.report import shown

    found = shown(_store(session), name)
    return without_secrets(found) | {"version": sum(found["versions"].values()), "kept": _is_kept(session)}


def _row(store: Store, name: str) -> dict[str, Any]:
    """Return a job's row for the list, even if parts of the job cannot be read."""
    from heronpy.jobs.manager import desired_of
    from heronpy.jobs.report import is_old, look_of, row, started_of
    from heronpy.jobs.syncer import Running
    from heronpy.scaling.estimate import shown_lag

    found = row(store, name) | dict.fromkeys(("tasks", "old_at", "lag_s", "slo_lag_s", "slo_kept", "decided"))
    with suppress(HeronError):
        running = store.running(name)[0] or Running("")
        wanted, _ = desired_of(store, name, running)
        scaled, decisions = store.scaled(name)[0], store.log(name).decisions
        look = look_of(scaled, running) if started_of(running) else None
        found |= {
            "tasks": sum(int(str(value)) for path, value in wanted.items() if path[0] == "parallelism"),
            "old_at": look.at if look is not None and is_old(look.at, store.get(name).document) else None,
            "lag_s": shown_lag(look, scaled.state.kept_up_at) if look is not None else None,
            "slo_lag_s": wanted.get(("slo", "lag_s")),
            "slo_kept": scaled.state.slo.share if wanted.get(("slo", "lag_s")) else None,
            "decided": {"at": decisions[-1].at, "text": decisions[-1].text} if decisions else None,
        }
    return found


async def _seen(call: Call, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the parts of these jobs that the client may see, with the number of running tasks."""
    watched = [call.tracker.clusters[one["cluster"]].topologies.get(one["job"]) for one in found]
    await asyncio.gather(*(one.refresh() for one in watched if one is not None))
    for row, one in zip(found, watched, strict=True):
        row["running"] = one.summary().tasks_up if one is not None else 0
        row["place"] = {"role": one.record.role, "environ": one.record.environ} if one is not None else None
    return found if call.asker.may_all else [without_settings(one) for one in found]


def without_secrets(found: dict[str, Any]) -> dict[str, Any]:
    """Return a job without passwords and keys, which no token shows."""

    def shown(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [shown(one) for one in value]
        if not isinstance(value, dict):
            return redacted_texts(value)
        found = {key: shown(one) for key, one in value.items()}
        if isinstance(value.get("path"), list | tuple):  # an entry of a layer
            found["value"] = redacted(value.get("value"), ".".join(map(str, value["path"])))
        return found

    origin = {name: one | {"value": redacted(one["value"], name)} for name, one in found["origin"].items()}
    return {**shown(found), "document": redacted(found["document"]), "origin": origin}


def without_settings(job: dict[str, Any]) -> dict[str, Any]:
    """Return a job without its settings, and without texts from users and user code."""
    names = {"document", "origin", "blamed", "ignored"} & job.keys()
    kept = {
        key: {name: one for name, one in job[key].items() if name.partition(".")[0] not in SETTINGS}
        if isinstance(job[key], dict)
        else [name for name in job[key] if name.partition(".")[0] not in SETTINGS]
        for key in names
    }
    return cast(dict[str, Any], without_reasons(job | kept))


def without_reasons(found: Any) -> Any:
    """Return a part of a job without settings, and without texts from users and user code."""
    if isinstance(found, list | tuple):
        return [without_reasons(one) for one in found if not (isinstance(one, dict) and _is_setting(one.get("path")))]
    if not isinstance(found, dict):
        return found
    shown: dict[str, Any] = {}
    for key, value in found.items():
        if key in _REASONS and value and not isinstance(value, dict):
            shown[key] = [UNSEEN for _ in value] if isinstance(value, list | tuple) else UNSEEN
        else:
            shown[key] = without_reasons(value)
    return shown


def _is_setting(path: Any) -> bool:
    return bool(path) and path[0] in SETTINGS


# ---- pools ----------------------------------------------------------------------------------


@table.route("GET", POOLS, Scope.VIEW, _CLUSTER, returns=list[dict[str, Any]])
async def pools(call: Call) -> list[dict[str, Any]]:
    """The pools, each with its slots, shards, slot size and topologies. The list may be empty."""

    def asked(session: Session) -> list[dict[str, Any]]:
        from heronpy.clusters.pools import listed

        return listed(session)

    return await _of_each(call, asked)


@table.route("GET", POOL, Scope.VIEW, returns=dict[str, Any])
async def pool(call: Call) -> dict[str, Any]:
    """A pool, with each slot's state, shards and load."""

    def asked(session: Session) -> dict[str, Any]:
        from heronpy.clusters.pools import shown

        return shown(session, call.path["pool"])

    return await _of(call, call.path["cluster"], asked)
