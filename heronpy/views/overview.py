"""The topologies of a cluster, and the first lines of a topology's page. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from heronpy.common.losses import losses_text, lost_text
from heronpy.proto import control_pb2


class Totals(Struct, kw_only=True):
    """The outcomes of a topology's tuples since it was submitted, summed over all of its processes."""

    acked: int
    failed: int
    #: Whether a spout's process ended without its last report, so that `acked` and `failed` are lower bounds.
    at_least: bool
    #: Failed tuples of spouts that do not resend them.
    not_resent: int
    #: Upper bound on the number of resent tuples; None if no bound is known, see `begun_again`.
    replayed: int | None
    #: Some tasks of spouts that may have emitted all tuples again.
    begun_again: list[str]
    dead_letters: int
    lost: int
    #: Whether a process died with uncounted tuples, so that `lost` is an estimate.
    lost_estimated: bool
    #: Whether there is no bound on `lost`, because the queues of a stream manager were lost.
    lost_unknown: bool = False
    #: Whether a task failed permanently without its last counts, so that `dead_letters` is a lower bound.
    letters_at_least: bool = False
    #: Tuples for full tasks that were discarded on purpose.
    discarded: int = 0
    #: Number of restores (EFFECTIVELY_ONCE); tuples that a restore replays count once.
    restores: int
    #: The number of tuples missing from the result as text: `12`, `about 12`, `at least 2`, `an unknown number`; None
    #: if none are missing.
    losses: str | None = None
    #: `lost` in the same form.
    lost_text: str = ""


class Topology(Struct, kw_only=True):
    """A topology as an entry of the list and as the head of its page."""

    cluster: str
    role: str
    environ: str
    name: str
    #: Id that distinguishes the topology from earlier and later topologies with its name.
    id: str
    #: STARTING, WAITING, RUNNING, PAUSED, UPDATING, FINISHING, FINISHED, DEGRADED, FAILED as reported by the topology
    #: master; FINISHED WITH LOSSES: tuples are missing from its result, see `totals`; NO ANSWER: the topology master
    #: does not answer; NO MASTER: it does not run; DEAD: no process of the topology runs.
    state: str
    #: The cause of a state other than RUNNING and PAUSED; may be empty.
    cause: str
    #: The leading finding of the doctor, such as `healthy`, `skew`, `down`; None while unknown.
    verdict: str | None
    #: The finding as one sentence without a full stop.
    sentence: str | None
    #: Whether the verdict needs no action.
    calm: bool | None
    #: The next step; empty if there is none.
    next: str | None
    #: Urgency, for ordering a list: 0 needs no action, higher is worse.
    rank: int
    submitted_at: float
    submission_user: str
    release: str
    #: Seconds since the submission's first topology master started.
    uptime_s: float | None
    #: ATMOST_ONCE, ATLEAST_ONCE, EFFECTIVELY_ONCE, or BATCH for a batch run.
    mode: str | None
    #: Version of the packing plan, as `Plan.version`.
    plan_version: int | None
    tasks: int | None
    tasks_up: int | None
    containers: int | None
    #: Tuples per second that the spouts emit.
    emitted_per_s: float | None
    #: 99th percentile of the time from emitting a spout tuple to the end of its tree.
    latency_p99_s: float | None
    #: Share of time in which the spouts were held back.
    held: float | None
    #: The highest number of an event, see `Event.number`.
    last_event: int | None
    totals: Totals | None
    #: Time of the figures above at the topology master; None if it has never answered.
    asked_at: float | None
    #: `emitted_per_s` of the last minutes, oldest first, one point per ten seconds; None where unknown. Empty if it is
    #: not kept.
    recent_per_s: list[float | None]
    #: Time of the end; the state is then FINISHED, FINISHED WITH LOSSES, KILLED or FAILED. None before the end.
    ended_at: float | None = None
    #: Component, task and machine of the leading finding; empty if it is about the topology.
    component: str = ""
    task: str = ""
    host: str = ""
    #: The sentence without quoted values; empty if it quotes no values. Without the scope `data` it equals `sentence`.
    unquoted: str = ""
    #: Whether the topology passes batches to Spark; None if unknown.
    spark: bool | None = None


class Topologies(Struct, kw_only=True):
    """`GET /topologies`: one page of at most 200, worst first, then by name."""

    topologies: list[Topology]
    #: Value of `after` for the next page; None on the last page.
    next: str | None
    #: Number of topologies that match the filters.
    total: int
    #: Clusters of this tracker.
    clusters: list[str]
    #: Clusters that cannot be read now: name and one sentence.
    unreachable: dict[str, str]


class History(Struct, kw_only=True):
    """`GET /history`: ended topologies, most recent first; at most 200."""

    topologies: list[Topology]


class Problem(Struct, kw_only=True):
    """An error, as `application/problem+json` (RFC 9457)."""

    #: HTTP status.
    status: int
    #: Machine-readable kind: `not-found`, `no-answer`, `forbidden`, `stale-plan`, `bad-request`, `too-large`, `busy`.
    type: str
    #: One sentence that names the object.
    title: str
    #: The fix as one sentence; may be empty.
    detail: str
    #: The nearest existing name, for an unknown name.
    nearest: str | None = None


class Me(Struct, kw_only=True):
    """`GET /me`: the identity and the rights of the client; a page hides forbidden actions."""

    #: `uid 1000` or `the token 'view'`.
    who: str
    #: `view`: figures; `all`: also logs, values, settings and every change.
    scope: str
    release: str


def totals_of(totals: control_pb2.TupleTotals, dropped: Mapping[str, int]) -> Totals:
    """Convert the outcomes of tuples; `dropped` contains the tuples discarded on purpose, by component."""
    return Totals(
        acked=totals.acked,
        at_least=totals.at_least,
        failed=totals.failed,
        not_resent=totals.not_resent,
        replayed=None if totals.spouts_begun_again else totals.replayed,
        begun_again=list(totals.begun_again),
        dead_letters=totals.dead_letters,
        lost=totals.lost,
        lost_estimated=totals.lost_estimated,
        lost_unknown=totals.lost_unknown,
        letters_at_least=totals.letters_at_least,
        discarded=sum(dropped.values()),
        restores=totals.restores,
        losses=losses_text(totals) or None,
        lost_text=lost_text(totals),
    )
