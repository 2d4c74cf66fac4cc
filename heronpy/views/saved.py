"""Checkpoints, and the micro-batches of Spark sinks. Pure."""

from __future__ import annotations

from msgspec import Struct

from heronpy.metrics.quantiles import quantile
from heronpy.proto import checkpoint_pb2, control_pb2

GATEWAY = "spark-gateway"


class Checkpoint(Struct, kw_only=True):
    """A complete checkpoint or savepoint."""

    number: int
    #: `checkpoint` or `savepoint`.
    kind: str
    taken_at: float
    duration_s: float
    total_bytes: int
    #: Bytes written for this checkpoint; the rest is shared with earlier checkpoints.
    written_bytes: int
    #: One sentence about the damage; empty if no damage is known.
    damage: str
    #: Whether the topology was later restored from an older checkpoint.
    abandoned: bool


class PendingCheckpoint(Struct, kw_only=True):
    """The checkpoint in progress."""

    number: int
    for_s: float
    #: Number of tasks that take part, and of tasks that have not answered.
    tasks: int
    missing: int
    #: The first 100 tasks that have not answered.
    waits_for: list[str]


class Region(Struct, kw_only=True):
    """Components that are restored together."""

    components: list[str]
    attempt: int
    #: The checkpoint that the attempt started from; 0 for empty state.
    checkpoint: int
    started: bool


class Checkpoints(Struct, kw_only=True):
    """`GET /checkpoints`: newest first. Counts are those of the current topology master."""

    mode: str
    #: Interval between checkpoints; None if the topology takes no automatic checkpoints.
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
    """One task's part in a complete checkpoint."""

    task_id: int
    component: str
    total_bytes: int
    written_bytes: int
    #: Time from the first barrier to the cut; pause of the task; time of writing in the background.
    align_s: float
    sync_s: float
    async_s: float
    #: Unaligned: saved tuples that were in transit.
    channel_tuples: int


class CheckpointDetail(Struct, kw_only=True):
    """`GET /checkpoints/{n}`: tasks by duration, longest first."""

    checkpoint: Checkpoint
    unaligned: bool
    #: Version of the tasks' physical plan, which also grows when a container moves.
    plan_version: int
    tasks: list[CheckpointTask]


class Sink(Struct, kw_only=True):
    """The micro-batches of one Spark sink."""

    component: str
    rows: int
    committed: int
    failed: int
    #: Number of attempts that raised an exception and are repeated.
    retried: int
    running: int
    #: Number of waiting batches, over all sinks of the topology.
    waiting: int | None
    #: Spark's mean time for one batch.
    seconds_per_batch: float | None
    #: Age of the oldest batch without an outcome.
    lag_s: float | None
    #: For ended batches: time until Spark took the batch, time in the sink's function, and time until the output was
    #: visible, as quantiles since the Spark gateway started.
    wait_p50_s: float | None
    wait_p99_s: float | None
    run_p50_s: float | None
    run_p99_s: float | None
    publish_p50_s: float | None
    publish_p99_s: float | None


class Batches(Struct, kw_only=True):
    """`GET /batches`: the micro-batches of the Spark sinks."""

    sinks: list[Sink]
    #: Address of Spark's own pages; None if they are disabled.
    spark_ui: str | None


def kind_name(kind: int) -> str:
    """Return `checkpoint` or `savepoint`."""
    return "savepoint" if kind == checkpoint_pb2.SAVEPOINT else "checkpoint"


def checkpoint_of(record: checkpoint_pb2.CheckpointRecord) -> Checkpoint:
    """Convert a complete checkpoint of the topology master."""
    return Checkpoint(
        number=record.checkpoint,
        kind=kind_name(record.kind),
        taken_at=record.taken_at,
        duration_s=record.duration_s,
        total_bytes=record.total_bytes,
        written_bytes=record.uploaded_bytes,
        damage=(record.damage or "it is damaged") if record.damaged else "",
        abandoned=record.abandoned,
    )


def checkpoints_of(
    reply: control_pb2.CheckpointsReply | None, mode: str, interval_s: float | None, tasks: int
) -> Checkpoints:
    """Return the answer to `GET /checkpoints`, for this number of tasks. Without `reply`, no checkpoints are taken."""
    reply = reply if reply is not None else control_pb2.CheckpointsReply()
    pending = PendingCheckpoint(
        number=reply.pending,
        for_s=reply.pending_s,
        tasks=tasks,
        missing=reply.pending_tasks,
        waits_for=list(reply.pending_names),
    )
    return Checkpoints(
        mode=mode,
        interval_s=interval_s,
        complete=[checkpoint_of(one) for one in sorted(reply.complete, key=lambda one: -one.checkpoint)],
        pending=pending if reply.pending else None,
        completed=reply.completed,
        aborted=reply.aborted,
        failed=reply.failed,
        restores=reply.restores,
        last_failure=reply.last_failure,
        last_restore=reply.last_restore,
        last_restore_s=reply.last_restore_s,
        regions=[
            Region(
                components=list(region.components),
                attempt=region.attempt,
                checkpoint=region.checkpoint,
                started=region.started,
            )
            for region in reply.regions
        ],
    )


def detail_of(metadata: checkpoint_pb2.Metadata, total_bytes: int, written_bytes: int) -> CheckpointDetail:
    """Return the answer to `GET /checkpoints/{n}`, from the checkpoint's own file."""
    tasks = [
        CheckpointTask(
            task_id=task.task_id,
            component=task.component,
            total_bytes=task.total_bytes,
            written_bytes=task.uploaded_bytes,
            align_s=task.align_s,
            sync_s=task.sync_s,
            async_s=task.async_s,
            channel_tuples=task.channel_tuples,
        )
        for task in metadata.tasks
    ]
    return CheckpointDetail(
        checkpoint=Checkpoint(
            number=metadata.checkpoint,
            kind=kind_name(metadata.kind),
            taken_at=metadata.taken_at,
            duration_s=metadata.duration_s,
            total_bytes=total_bytes,
            written_bytes=written_bytes,
            damage="",
            abandoned=False,
        ),
        unaligned=metadata.unaligned,
        plan_version=metadata.plan_version,
        tasks=sorted(tasks, key=lambda task: -(task.align_s + task.sync_s + task.async_s)),
    )


def of_sinks(
    reply: control_pb2.MetricsReply,
) -> tuple[dict[str, dict[str, float]], dict[str, dict[str, list[control_pb2.Sample]]]]:
    """Return the counts, gauges and distributions by sink and metric; sink "" has the metrics without a sink."""
    values: dict[str, dict[str, float]] = {}
    times: dict[str, dict[str, list[control_pb2.Sample]]] = {}
    for sample in (sample for report in reply.reports for sample in report.samples):
        if sample.type == control_pb2.Sample.HISTOGRAM:
            times.setdefault(sample.label, {}).setdefault(sample.name, []).append(sample)
        else:
            found = values.setdefault(sample.label, {})
            found[sample.name] = found.get(sample.name, 0.0) + sample.value
    return values, times


def batches_of(reply: control_pb2.MetricsReply, host: str) -> Batches:
    """Return the answer to `GET /batches`; `host` serves Spark's own pages."""
    values, times = of_sinks(reply)
    own = values.pop("", {})
    port, waiting = own.get("spark-ui-port"), own.get("spark-batches-waiting")
    ui = f"http://{host}:{port:.0f}" if port else None
    sinks = [
        _sink(name, values.get(name, {}), times.get(name, {}), None if waiting is None else int(waiting))
        for name in sorted({*values, *times} - {""})
    ]
    return Batches(sinks=sinks, spark_ui=ui)


def _sink(
    component: str, values: dict[str, float], times: dict[str, list[control_pb2.Sample]], waiting: int | None
) -> Sink:
    ended = values.get("spark-batches-committed", 0.0) + values.get("spark-batches-failed", 0.0)
    wait, run, publish = (times.get(f"spark-{word}-seconds", []) for word in ("wait", "run", "publish"))
    return Sink(
        component=component,
        rows=int(values.get("spark-rows-committed", 0)),
        committed=int(values.get("spark-batches-committed", 0)),
        failed=int(values.get("spark-batches-failed", 0)),
        retried=int(values.get("spark-attempts-failed", 0)),
        running=int(values.get("spark-batches-running", 0)),
        waiting=waiting,
        seconds_per_batch=values.get("spark-seconds", 0.0) / ended if ended else None,
        lag_s=values.get("spark-lag-seconds"),
        wait_p50_s=_bound(wait, 0.5),
        wait_p99_s=_bound(wait, 0.99),
        run_p50_s=_bound(run, 0.5),
        run_p99_s=_bound(run, 0.99),
        publish_p50_s=_bound(publish, 0.5),
        publish_p99_s=_bound(publish, 0.99),
    )


def _bound(samples: list[control_pb2.Sample], part: float) -> float | None:
    found = quantile(samples, part)
    return found.value if found is not None else None


def spark_figures(found: Batches, before: Batches | None, apart_s: float) -> dict[str, float | None]:
    """Return sums over all sinks, named like the series; empty without a sink.

    Figures that need an earlier measurement are None if `before` is None.
    """
    if not found.sinks:
        return {}
    lags = [sink.lag_s for sink in found.sinks if sink.lag_s is not None]
    ended, took = _ended(found)
    ended_before, took_before = _ended(before) if before is not None else (0, 0.0)
    more = ended - ended_before
    # A new Spark gateway counts from 0.
    known = before is not None and apart_s > 0 and more >= 0
    return {
        "spark_waiting": next((float(sink.waiting) for sink in found.sinks if sink.waiting is not None), None),
        "spark_lag_s": max(lags, default=None),
        "spark_done": more / apart_s if known else None,
        "spark_batch_s": (took - took_before) / more if more > 0 and took >= took_before else None,
    }


def _ended(batches: Batches) -> tuple[int, float]:
    """Return the number of ended batches and Spark's total time for them in seconds."""
    counts = [(sink.committed + sink.failed, sink.seconds_per_batch or 0.0) for sink in batches.sinks]
    return sum(count for count, _ in counts), sum(count * each for count, each in counts)
