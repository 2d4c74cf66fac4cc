"""Describes jobs for display: desired and current state, the scaler's decisions, and how objectives were met."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from heronpy.clusters.errors import NotThereError
from heronpy.common.errors import HeronError
from heronpy.common.units import format_duration
from heronpy.jobs.allotting import goal_within
from heronpy.jobs.documents import LAYERS, Document, name_of, nested
from heronpy.jobs.manager import desired_of, minutes_of
from heronpy.jobs.merge import Found, pins_of
from heronpy.jobs.plans import Plan, Start
from heronpy.jobs.store import Scaled, Store, View
from heronpy.jobs.syncer import Running
from heronpy.scaling.capacity import BACK_S
from heronpy.scaling.estimate import shown_lag
from heronpy.scaling.explaining import explained
from heronpy.scaling.figures import Observation, Times
from heronpy.scaling.history import History
from heronpy.scaling.patterns import DAYS

#: Number of missed looks after which figures are old.
OLD_LOOKS: Final = 3


def plan_text(plan: Plan) -> str:
    """Return the progress of a plan, such as `plan 2 of 5: stop`."""
    step = "" if plan.step is None else f": {type(plan.step).__name__.lower()}"
    return f"{'undoing' if plan.undoing else 'plan'} {min(plan.at + 1, len(plan.steps))} of {len(plan.steps)}{step}"


def state_of(running: Running) -> str:
    """Return the state of a job, which is WAITING or PREEMPTED if the job does not fit into its pool."""
    allotted = running.allotted
    return running.state if allotted is None or allotted.runs or running.plan is not None else allotted.state


def why_less(running: Running) -> str:
    """Explain, with numbers, why a job gets less of its pool than desired; "" if it gets everything."""
    allotted = running.allotted
    if allotted is None or allotted.fits_since is None:
        return allotted.why if allotted is not None else ""
    left_s = allotted.fits_since + BACK_S - time.time()
    return allotted.why + (f", in {format_duration(round(left_s))}" if left_s > 0 else "")


def runs_text(running: Running) -> str:
    """Return which versions of the layers run because the last change failed; "" if none runs."""
    if not running.failure or running.plan is not None or not running.topology_id or not started_of(running):
        return ""
    versions = [f"{layer} v{running.versions[layer]}" for layer in LAYERS[1:] if running.versions.get(layer)]
    return f"{' with '.join(versions) or 'the version before the change'} runs"


def blamed(view: View, running: Running) -> list[str]:
    """Return the keys of layer oncall that are not in effect because a change to these keys has failed."""
    committed = dict(running.leaves)
    if not running.failure or committed.get(("definition",)) != view.document.definition:
        return []  # the program may be the cause
    return [
        name_of(path)
        for path, found in sorted(view.found.items())
        if found.layer == "oncall" and committed.get(path) != found.value
    ]


def row(store: Store, name: str) -> dict[str, Any]:
    """Return the row of a job in a list of jobs, even if the job cannot be read."""
    try:
        store.get(name)
        running, _ = store.running(name)
    except HeronError as error:
        return {"job": name, "state": "UNREADABLE", "plan": "", "drift_s": None, "why": str(error)}
    if running is None:
        return {"job": name, "state": "NEW", "plan": "", "drift_s": None, "why": ""}
    return {
        "job": name,
        "state": state_of(running),
        "plan": plan_text(running.plan) if running.plan is not None else "",
        "drift_s": round(running.drift_s(time.time()), 1),
        "why": running.failure or running.waits or why_less(running),
    }


def shown(store: Store, job: str) -> dict[str, Any]:
    """Return the full description of a job."""
    view, log = store.get(job), store.log(job)
    running = store.running(job)[0] or Running("")
    desired, _ = desired_of(store, job, running)
    started, scaler = started_of(running), evidence(store, job)
    if not started or _starts(running):  # the last figures are those of a topology that has ended
        scaler |= {"at": None, "components": {}, "lag_s": None}
    return {
        "job": job,
        "state": state_of(running),
        "capacity": why_less(running),
        "topology_id": running.topology_id,
        "plan": plan_text(running.plan) if running.plan is not None else None,
        "waits": running.waits,
        "failure": running.failure,
        "runs": runs_text(running),
        "blamed": blamed(view, running),
        "drift_s": round(running.drifted_s, 1),
        "started": started,
        "restarted": running.restarted,
        "restarts_avoidable": running.restarts_avoidable,
        "versions": view.versions,
        "document": nested(desired),
        "origin": {name_of(path): _origin(found) for path, found in sorted(view.found.items())},
        "ignored": [name_of(found.entry.path) for found in view.ignored],
        "changes": msgspec.to_builtins(log.changes),
        "decisions": msgspec.to_builtins(log.decisions),
        "scaler": scaler,
    }


def started_of(running: Running) -> dict[str, int]:
    """Return how many tasks of each component were last started; empty if the topology is stopped."""
    plan = running.plan
    has_begun = plan is not None and not plan.undoing and any(isinstance(one, Start) for one in plan.steps[: plan.at])
    leaves = dict(plan.target if plan is not None and has_begun else running.leaves)
    stopped = running.state == "STOPPED" or leaves.get(("run",), "stopped") == "stopped"
    stopped |= running.died and not has_begun
    return {} if stopped else {path[1]: int(str(n)) for path, n in leaves.items() if path[0] == "parallelism"}


def _starts(running: Running) -> bool:
    plan = running.plan
    return plan is not None and (running.died or any(isinstance(one, Start) for one in plan.steps[: plan.at + 1]))


def look_of(scaled: Scaled, running: Running | None) -> Observation | None:
    """Return the last figures of the running topology; None if the scaler has no figures since the topology's start."""
    look = scaled.look
    return look if look is not None and (running is None or look.at >= running.started_at) else None


def is_old(at: float, document: Document) -> bool:
    """Whether figures from this time are old, because the scaler has missed several looks since then."""
    return time.time() - at > OLD_LOOKS * Times.of(document.scale.day_s).look_s


def _origin(found: Found) -> dict[str, Any]:
    stamp, under = msgspec.to_builtins(found.entry.stamp), found.entry.under
    then = under.value if under is not None else None
    return {"layer": found.layer, "version": found.entry.version, "value": found.value, "then": then, **stamp}


def evidence(store: Store, job: str) -> dict[str, Any]:
    """Return the scaler's last figures and conclusion for each component."""
    view, scaled = store.get(job), store.scaled(job)[0]
    document, state, pins = view.document, scaled.state, pins_of(view.found)
    running = store.running(job)[0]
    look = look_of(scaled, running)
    if look is not None:  # a pin may have been set or have ended since the look
        components = (replace(one, pinned=pins.get(one.name, "")) for one in look.components)
        look = replace(look, components=tuple(components))
    goal = goal_within(document, running)
    evidences = explained(state, look, goal, Times.of(document.scale.day_s)) if look is not None else []
    return {
        "at": look.at if look is not None else None,
        "is_old": look is not None and is_old(look.at, document),
        "components": {one.component: msgspec.to_builtins(one) for one in evidences},
        "lag_s": shown_lag(look, state.kept_up_at) if look is not None else None,
        "slo_kept": state.slo.share if document.slo.lag_s else None,
        "slo_broken": msgspec.to_builtins(state.slo.intervals),
        "alerts": [one.text for one in state.alerts.values()],
    }


def promise(store: Store, cluster: str, job: str, now: float) -> dict[str, Any]:
    """Return how well a job met its objectives, overall and in the last hour, day and two weeks, and its misses.

    The windows scale with the job's day, by default 24 h. Their figures are available only on the scaler's host.
    """
    document, slo = store.get(job).document, store.scaled(job)[0].state.slo
    day_s, windows = document.scale.day_s, []
    with suppress(NotThereError), minutes(store, cluster, job) as history:
        for window_s in (day_s / 24, day_s, DAYS * day_s):
            measured_s, broken_s = history.kept(now - window_s)
            windows.append(_kept(window_s, measured_s, broken_s))
    return {
        "job": job,
        "lag_s": document.slo.lag_s,
        "all": _kept(None, slo.measured_s, slo.broken_s),
        "windows": windows,
        "broken": [*([begin, end] for begin, end in slo.intervals), *([[slo.since, None]] if slo.since else [])],
    }


def _kept(window_s: float | None, measured_s: float, broken_s: float) -> dict[str, Any]:
    share = 1 - broken_s / measured_s if measured_s else None
    return {"window_s": window_s, "measured_s": measured_s, "broken_s": broken_s, "kept": share}


@contextmanager
def minutes(store: Store, cluster: str, job: str, where: str = "") -> Iterator[History]:
    """Open the minutes of a job. Raises NotThereError on any host except the scaler's, which `where` names."""
    day_s, file = store.get(job).document.scale.day_s, minutes_of(cluster, job)
    if not file.exists():
        raise NotThereError(
            f"job '{job}' has no measurements on this host: the scaler{where or ' on another host'} has them;"
            " run the command there"
        )
    with closing(History(file, Times.of(day_s))) as history:
        yield history
