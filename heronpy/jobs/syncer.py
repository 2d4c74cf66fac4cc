"""The syncer of one job: decides when to make a plan, how the plan continues and ends, and when to stop retrying. Pure.

`Running` is the whole state, in one node that only the syncer writes. A round is `advance`, a compare-and-set, the
running step, `succeeded` or `failed`, and another compare-and-set. Invariants: The committed document changes only in
the write that ends a plan. A plan that fails is undone. A syncer that takes over rewrites the node, so the next write
of its predecessor fails.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, Protocol, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from heronpy.common.backoff import backoff_s
from heronpy.jobs.documents import FORMAT, Leaves
from heronpy.jobs.plans import Commit, End, Pairs, Plan, Prove, Seen, Start, Step, Stop, pairs_of, plan_of
from heronpy.scaling.capacity import Allotted

RETRY_S: Final = 30.0
RETRY_MAX_S: Final = 3600.0
TRIES_MAX: Final = 5
#: Pause before another attempt to start the previous version, after its start has failed.
AGAIN_S: Final = 300.0
DIED: Final = "the topology died; it is being restarted"
#: Seconds after which a start fails if the topology has not run without trouble.
PROVE_MAX_S: Final = 600.0

State: TypeAlias = Literal["IN_SYNC", "STOPPED", "FINISHED", "SYNCING", "UNDOING", "WAITING", "QUARANTINED"]


class Running(Struct, frozen=True, forbid_unknown_fields=True):
    """The state of a job, and its running plan. Times are seconds since 1970."""

    owner: str
    """The active syncer."""
    topology_id: str = ""
    """The id of the job's current or last topology; "" if there is none."""
    leaves: Pairs = ()
    """The most recently committed document."""
    versions: dict[str, int] = {}
    """The versions of the layers from which `leaves` was merged."""
    state: State = "STOPPED"
    plan: Plan | None = None
    tried: Pairs = ()
    """The document that was attempted `tries` times."""
    tries: int = 0
    retry_at: float = 0.0
    failure: str = ""
    """Why the last plan failed, in one sentence."""
    drift_since: float | None = None
    drifted_s: float = 0.0
    """Seconds in which the job differed from its desired state, not counting the time since `drift_since`."""
    allotted: Allotted | None = None
    """The allotment in the job's pool; None if the job is in no pool or does not run."""
    started_at: float = 0.0
    """When the manager last started a topology."""
    waits: str = ""
    """What the started topology waits for, such as the queue of an engine."""
    died: bool = False
    """Whether the topology has died, should run, and does not run yet."""
    restarted: int = 0
    """Number of running tasks that had to restart, including those of a topology that died."""
    restarts_avoidable: int = 0
    """Number of the tasks in `restarted` whose own specification did not change."""
    format: int = FORMAT

    def drift_s(self, now: float) -> float:
        """Return the value of the metric `config_drift_seconds`."""
        return self.drifted_s + (max(0.0, now - self.drift_since) if self.drift_since is not None else 0.0)


class StepError(Exception):
    """A step has failed; the message is the reason in one sentence. A fatal error recurs when the step is retried."""

    def __init__(self, text: str, fatal: bool = False) -> None:
        super().__init__(text)
        self.fatal = fatal


class Driver(Protocol):
    """Interface to topologies: observes them and performs steps.

    A partly performed step can be repeated, even after the driver that began it was killed. Steps of different
    jobs may run at the same time; steps of one job never do.
    """

    def see(self, job: str, leaves: Leaves) -> Seen:
        """Observe the topology with this name, including its values for all paths of `leaves`.

        Raises StateError if the state cannot be determined now; the syncer then decides nothing.
        """

    def perform(self, job: str, step: Step) -> Mapping[str, int]:
        """Perform a step to its end; returns how many running tasks of each component had to restart.

        Raises StepError if the step fails. Never called with `Prove` or `Commit`.
        """


def is_measured(running: Running) -> bool:
    """Whether the scaler can measure a job: its topology runs, and is not being changed."""
    runs_on = running.state == "QUARANTINED" and not (running.plan or running.died) and ("run",) in dict(running.leaves)
    return running.state == "IN_SYNC" or (runs_on and dict(running.leaves)["run",] == "running")


def barred(running: Running | None) -> str:
    """Return why the scaler may only measure a job, as a clause; "" if it may act."""
    failed = running is not None and running.state == "QUARANTINED"
    return "the last change has failed, and a change by the scaler would retry it" if failed else ""


def taken_over(running: Running, owner: str) -> Running:
    """Return the record that a syncer writes before it takes over a job from another syncer."""
    return replace(running, owner=owner)


def advance(
    running: Running, desired: Leaves, versions: Mapping[str, int], seen: Seen, now: float, fresh_id: str
) -> Running:
    """Return the job after a look at it: its plan may begin, skip completed steps, or end.

    `desired` contains the program's own values for leaves that no layer sets. `fresh_id` is an id that was never used
    for a topology.
    """
    if running.plan is not None and running.state == "QUARANTINED" and running.tried != pairs_of(desired):
        running = released(running)
    if running.plan is None:
        running = _begun(running, desired, versions, seen, now, fresh_id)
    while (plan := running.plan) is not None:
        if plan.step is None or isinstance(plan.step, Commit):
            return _ended(running, plan, seen, now)
        if plan.is_done(seen):
            running = replace(running, plan=replace(plan, at=plan.at + 1, since=now, tries=0))
        elif isinstance(plan.step, Prove) and seen.waits != running.waits:
            running = replace(running, waits=seen.waits)
        elif isinstance(plan.step, Prove) and seen.waits and plan.since != now:
            running = replace(running, plan=replace(plan, since=now))  # the time limit begins after the wait
        elif isinstance(plan.step, Prove) and (problem := _unproved(plan, plan.step, seen, now)):
            running = failed(running, problem, False, now)
        elif isinstance(plan.step, Prove) and desired.get(("run",)) == "stopped":
            running = _unproven(running, plan, seen)  # it will be stopped, so the proof is not needed
            running = _begun(running, desired, versions, seen, now, fresh_id)
        else:
            break
    return running


def waits(running: Running, now: float) -> bool:
    """Whether a job waits for its next attempt. A pause never exceeds `RETRY_MAX_S`, even if the clock was set back."""
    return now < running.retry_at <= now + RETRY_MAX_S


def to_perform(running: Running, now: float) -> Step | None:
    given_up = running.state == "QUARANTINED" and not running.retry_at
    if running.plan is None or given_up or waits(running, now):
        return None
    return None if isinstance(running.plan.step, (Prove, Commit)) else running.plan.step


def succeeded(running: Running, restarted: Mapping[str, int], now: float) -> Running:
    """Return the job after the running step has been performed; `restarted` is the result of `Driver.perform`."""
    plan = running.plan
    assert plan is not None
    avoidable = 0 if "" in plan.changed else sum(n for part, n in restarted.items() if part not in plan.changed)
    return replace(
        running,
        plan=replace(plan, at=plan.at + 1, since=now, tries=0),
        started_at=now if isinstance(plan.step, Start) else running.started_at,
        restarted=running.restarted + sum(restarted.values()),
        restarts_avoidable=running.restarts_avoidable + avoidable,
    )


def failed(running: Running, failure: str, fatal: bool, now: float) -> Running:
    """Return the job after the running step has failed: completed steps are undone, and a failed undo is retried.

    A version that fails after its start is not retried if another version was stopped for it, because each retry would
    stop the other version again. The start of the previous version is retried until it succeeds.
    """
    plan = running.plan
    assert plan is not None
    if not plan.undoing:
        stopped = any(isinstance(step, Stop) and step.again is not None for step in plan.steps[: plan.at])
        fatal |= stopped and isinstance(plan.step, Prove)
        tries = TRIES_MAX if fatal else running.tries + 1
        if dict(plan.target).get(("run",)) == "stopped" and not fatal:
            tries = min(tries, TRIES_MAX - 1)  # a topology that should not run is stopped as soon as this is possible
        if plan.target != running.tried:
            failure = f"{running.failure.partition(_NOT_EITHER)[0]}{_NOT_EITHER}{failure}"
        return replace(running, plan=plan.undone(now), state="UNDOING", tries=tries, failure=failure)
    if fatal or plan.tries + 1 >= TRIES_MAX:
        text = f"{running.failure.partition(_NOT_UNDONE)[0]}{_NOT_UNDONE}{failure}"
        again_at = now + AGAIN_S if isinstance(plan.step, (End, Start)) else 0.0
        return replace(running, state="QUARANTINED", tries=TRIES_MAX, retry_at=again_at, failure=text)
    return replace(running, plan=replace(plan, tries=plan.tries + 1), retry_at=now + _pause_s(plan.tries))


def left_alone(running: Running, tried: Pairs) -> Running:
    """Return the state of a job that has no topology and should have none; its document counts as attempted."""
    return replace(running, state="STOPPED", tried=tried, tries=0, retry_at=0.0, failure="", died=False)


def released(running: Running) -> Running:
    """Return a waiting or quarantined job ready for an immediate retry, which continues an undo; other jobs as they
    are."""
    if running.state not in ("WAITING", "QUARANTINED"):
        return running
    if running.plan is not None:
        return replace(running, plan=replace(running.plan, tries=0), tries=0, retry_at=0.0, state="UNDOING")
    return replace(running, tries=0, retry_at=0.0, state="WAITING")


#: In the text of a job's failure: precedes the failure of the undo.
_NOT_UNDONE: Final = ", and the change could not be undone: "
#: In the text of a job's failure: precedes the failure of the previous version.
_NOT_EITHER: Final = "; the previous version does not start either: "


def _begun(
    running: Running, desired: Leaves, versions: Mapping[str, int], seen: Seen, now: float, fresh_id: str
) -> Running:
    wanted = pairs_of(desired)
    if running.tried != wanted:
        running = replace(running, tried=wanted, tries=0, retry_at=0.0, failure="")
    if waits(running, now):
        return running
    if running.tries >= TRIES_MAX:
        return _kept_up(running, seen, now, fresh_id)
    if seen.alive and seen.topology_id != running.topology_id:
        text = f"topology {seen.topology_id} has the name of the job but does not belong to it"
        text += "; kill that topology and release the job"
        running = replace(running, topology_id="", drift_since=_since(running, now), died=False)
        return replace(running, state="QUARANTINED", tries=TRIES_MAX, failure=text)
    plan = plan_of(desired, dict(versions), dict(running.leaves), seen, now, fresh_id)
    if plan is not None:
        return _planned(running, plan, seen, now)
    return _settled(running, seen, now)


def _planned(running: Running, plan: Plan, seen: Seen, now: float) -> Running:
    """Return the job at the beginning of a plan. All tasks of a topology that has died count once as restarted."""
    died = _should_run(running) and not seen.alive and not seen.finished
    tasks = sum(int(str(n)) for path, n in running.leaves if path[0] == "parallelism")
    return replace(
        running,
        plan=plan,
        state="SYNCING",
        drift_since=_since(running, now),
        died=died,
        restarted=running.restarted + (tasks if died and not running.died else 0),
    )


def _should_run(running: Running) -> bool:
    """Whether neither the last committed document nor the last attempted one stops the topology."""
    return all(dict(leaves).get(("run",), "stopped") != "stopped" for leaves in (running.leaves, running.tried))


def _kept_up(running: Running, seen: Seen, now: float, fresh_id: str) -> Running:
    """Return a job whose document is no longer retried; if the topology has ended, plan to restart its last version."""
    before = dict(running.leaves)
    if not _should_run(running) or seen.alive or seen.finished:
        return running
    plan = plan_of(before, dict(running.versions), before, seen, now, fresh_id)
    return _planned(running, plan, seen, now) if plan is not None else running


def _ended(running: Running, plan: Plan, seen: Seen, now: float) -> Running:
    """Return the job at the end of a plan: the plan is committed, or the previous state is restored."""
    failure = running.failure.partition(_NOT_UNDONE)[0]  # an undo that had failed has succeeded
    died = running.died and not seen.alive and not seen.finished
    running = replace(
        running, plan=None, topology_id=seen.topology_id, retry_at=0.0, failure=failure, died=died, waits=""
    )
    if not plan.undoing and plan.target == running.tried:
        return _settled(replace(running, leaves=plan.target, versions=plan.versions), seen, now)
    if running.tries < TRIES_MAX:
        return replace(running, state="WAITING", retry_at=now + _pause_s(max(0, running.tries - 1)))
    again_at = now + AGAIN_S if died and plan.target == running.leaves else 0.0
    return replace(running, state="QUARANTINED", retry_at=again_at)


def _settled(running: Running, seen: Seen, now: float) -> Running:
    """Return the job in its desired state, without a pending failure or retry."""
    state: State = "FINISHED" if seen.finished else "IN_SYNC" if seen.alive else "STOPPED"
    drifted_s = running.drift_s(now)
    return replace(
        running, state=state, tries=0, retry_at=0.0, failure="", drifted_s=drifted_s, drift_since=None, died=False
    )


def _unproved(plan: Plan, step: Prove, seen: Seen, now: float) -> str:
    """Explain why a started topology is not accepted; "" while it may still be accepted."""
    if seen.topology_id == step.topology_id and seen.trouble:
        return seen.trouble
    if seen.topology_id != step.topology_id or not seen.alive:
        return "the topology has ended right after its start"
    late = abs(now - plan.since) >= PROVE_MAX_S  # a time before `since` means that the clock was set back
    return f"the topology did not run without trouble within {PROVE_MAX_S:g} s" if late else ""


def _unproven(running: Running, plan: Plan, seen: Seen) -> Running:
    """Return the job without its plan, before the topology that the plan started is proved."""
    running = replace(running, plan=None, topology_id=seen.topology_id, waits="")
    return replace(running, leaves=plan.target, versions=plan.versions)


def _since(running: Running, now: float) -> float:
    return now if running.drift_since is None else running.drift_since


def _pause_s(attempt: int) -> float:
    return backoff_s(attempt, initial_s=RETRY_S, max_s=RETRY_MAX_S)
