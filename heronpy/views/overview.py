"""The topologies of a cluster, and the first lines of a topology's page. Pure."""

from __future__ import annotations

from msgspec import Struct

from heronpy.common.losses import losses_text, lost_text
from heronpy.proto import control_pb2


class Totals(Struct, kw_only=True):
    """What became of the tuples of a topology since it was submitted, over all processes it has had."""

    acked: int
    failed: int
    #: A spout's process ended without its last report, so `acked` and `failed` are lower bounds.
    at_least: bool
    #: Failed tuples of spouts that do not send them again.
    not_resent: int
    #: Upper bound of the tuples that were sent a second time; None: no bound is known, see `begun_again`.
    replayed: int | None
    #: The first tasks of spouts that may have emitted everything again.
    begun_again: list[str]
    dead_letters: int
    lost: int
    #: A process died with tuples that nobody had counted, so `lost` is an estimate.
    lost_estimated: bool
    #: Nothing bounds it: the queues of a stream manager went with it.
    lost_unknown: bool = False
    #: A task failed for good without its last counts, so `dead_letters` is a lower bound.
    letters_at_least: bool = False
    #: Effectively once: what a restore replays counts once.
    restores: int
    #: How many tuples are missing from the result, in words: `12`, `about 12`, `at least 2`, `an unknown number`; None:
    #: none are.
    losses: str | None = None
    #: `lost` in the same words.
    lost_text: str = ""


class Topology(Struct, kw_only=True):
    """A topology in the list, and the head of its page."""

    cluster: str
    role: str
    environ: str
    name: str
    #: Tells it from others of its name, before and after it.
    id: str
    #: STARTING, WAITING, RUNNING, PAUSED, UPDATING, FINISHING, FINISHED, DEGRADED, FAILED as the topology master says;
    #: FINISHED WITH LOSSES: tuples are missing from its result, see `totals`;
    #: NO ANSWER: it does not answer; NO MASTER: it does not run; DEAD: nothing of the topology runs.
    state: str
    #: Why, of any state but RUNNING and PAUSED; may be empty.
    cause: str
    #: The leading finding of the doctor, as `healthy`, `skew`, `down`; None while it is not known.
    verdict: str | None
    #: The finding as one sentence without a full stop.
    sentence: str | None
    #: Whether the verdict needs no action.
    calm: bool | None
    #: What to do next; empty if nothing.
    next: str | None
    #: How urgent it is, to order a list: 0 needs nothing, higher is worse.
    rank: int
    submitted_at: float
    submission_user: str
    release: str
    #: Since the first topology master of this submit started.
    uptime_s: float | None
    #: ATMOST_ONCE, ATLEAST_ONCE or EFFECTIVELY_ONCE.
    mode: str | None
    #: Version of the packing plan, as `Plan.version`.
    plan_version: int | None
    tasks: int | None
    tasks_up: int | None
    containers: int | None
    #: Tuples that the spouts emit.
    emitted_per_s: float | None
    #: From emitting a spout tuple to the end of its tree, 99th percentile.
    latency_p99_s: float | None
    #: Share of time that the spouts were held back.
    held: float | None
    #: The highest number of an event, see `Event.number`.
    last_event: int | None
    totals: Totals | None
    #: When the figures above were made at the topology master; None: it has never answered.
    asked_at: float | None
    #: Oldest to newest, one point in ten seconds: `emitted_per_s` of the last minutes, None where unknown. Empty when
    #: nothing is kept.
    recent_per_s: list[float | None]
    #: When it ended; its state is then FINISHED, FINISHED WITH LOSSES, KILLED or FAILED. None: it
    #: has not.
    ended_at: float | None = None
    #: Component and task of the leading finding, and the task's machine; empty: the topology.
    component: str = ""
    task: str = ""
    host: str = ""
    #: The sentence without what may quote values; empty: it quotes none. Without the scope `data` it is `sentence`.
    unquoted: str = ""
    #: Whether it gives batches to Spark; None: not known.
    spark: bool | None = None


class Topologies(Struct, kw_only=True):
    """`GET /topologies`: one page of at most 200, the worst first, then by name."""

    topologies: list[Topology]
    #: Pass it as `after` to get the next page; None without a next page.
    next: str | None
    #: All that fit the filters.
    total: int
    #: Clusters that this tracker looks at.
    clusters: list[str]
    #: Clusters that cannot be read now: name and one sentence.
    unreachable: dict[str, str]


class History(Struct, kw_only=True):
    """`GET /history`: topologies that have ended, the last first; at most 200."""

    topologies: list[Topology]


class Problem(Struct, kw_only=True):
    """Each error, as `application/problem+json` (RFC 9457)."""

    #: HTTP status.
    status: int
    #: A word for programs: `not-found`, `no-answer`, `forbidden`, `stale-plan`, `bad-request`, `too-large`, `busy`.
    type: str
    #: One sentence that names the thing.
    title: str
    #: What to do, one sentence; may be empty.
    detail: str
    #: The nearest name that exists, when a name is unknown.
    nearest: str | None = None


class Me(Struct, kw_only=True):
    """`GET /me`: who the tracker takes the asker for, and what it may do; a page hides what is not allowed."""

    #: `uid 1000` or `the token 'view'`.
    who: str
    #: `view`: figures; `all`: also logs, values, settings and every change.
    scope: str
    release: str


def totals_of(totals: control_pb2.TupleTotals) -> Totals:
    """What became of the tuples."""
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
        restores=totals.restores,
        losses=losses_text(totals) or None,
        lost_text=lost_text(totals),
    )
