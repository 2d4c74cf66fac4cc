"""Checkpoints, and the micro-batches of Spark sinks. Pure."""

from __future__ import annotations

from msgspec import Struct


class Checkpoint(Struct, kw_only=True):
    """A complete checkpoint or savepoint."""

    number: int
    #: `checkpoint` or `savepoint`.
    kind: str
    taken_at: float
    duration_s: float
    total_bytes: int
    #: Written for this one; the rest is shared with earlier ones.
    written_bytes: int
    #: One sentence; empty: it is whole as far as known.
    damage: str
    #: The topology was sent back to an older one since.
    abandoned: bool


class PendingCheckpoint(Struct, kw_only=True):
    """The one under way."""

    number: int
    for_s: float
    #: All tasks that take part, and those that have not answered.
    tasks: int
    missing: int
    #: The first hundred of those that have not answered.
    waits_for: list[str]


class Region(Struct, kw_only=True):
    """Components that are restored together."""

    components: list[str]
    attempt: int
    #: What the attempt started from; 0: empty state.
    checkpoint: int
    started: bool


class Checkpoints(Struct, kw_only=True):
    """`GET /checkpoints`: newest first. Counts are those of the present topology master."""

    mode: str
    #: How often one is due; None: the topology takes none.
    interval_s: float | None
    complete: list[Checkpoint]
    pending: PendingCheckpoint | None
    completed: int
    aborted: int
    failed: int
    restores: int
    last_failure: str
    last_restore: str
    last_restore_s: float
    regions: list[Region]


class CheckpointTask(Struct, kw_only=True):
    """One task's part of a complete checkpoint."""

    task_id: int
    component: str
    total_bytes: int
    written_bytes: int
    #: From the first barrier to the cut; the pause of the task; writing behind its back.
    align_s: float
    sync_s: float
    async_s: float
    #: Unaligned: tuples on their way that it holds.
    channel_tuples: int


class CheckpointDetail(Struct, kw_only=True):
    """`GET /checkpoints/{n}`: tasks by the time they took, longest first."""

    checkpoint: Checkpoint
    unaligned: bool
    #: Of the physical plan that the tasks had, which also grows when a container moves.
    plan_version: int
    tasks: list[CheckpointTask]


class Sink(Struct, kw_only=True):
    """The micro-batches of one Spark sink."""

    component: str
    rows: int
    committed: int
    failed: int
    #: Attempts that raised and are repeated.
    retried: int
    running: int
    #: Of all sinks of the topology together.
    waiting: int | None
    #: Spark's mean time for one batch.
    seconds_per_batch: float | None
    #: Age of the oldest batch without outcome.
    lag_s: float | None
    #: Of the batches that have ended: the time until Spark took it, in the function of the sink, and until its output
    #: was visible. Quantiles since the Spark gateway started.
    wait_p50_s: float | None
    wait_p99_s: float | None
    run_p50_s: float | None
    run_p99_s: float | None
    publish_p50_s: float | None
    publish_p99_s: float | None


class Batches(Struct, kw_only=True):
    """`GET /batches`"""

    sinks: list[Sink]
    #: Address of Spark's own pages; None when they are off.
    spark_ui: str | None
