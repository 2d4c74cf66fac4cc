"""Every metric that heronpy itself reports: its name, meaning, unit and type, and the meaning of its label. Pure.

The names are those of Apache Heron, so that dashboards can be reused. Heron appends the subject of a value
to some names ("<name>/<instance>"); in heronpy this part is a label. Invariant: a name is registered once.
"""

from __future__ import annotations

from enum import Enum

from msgspec import Struct


class Kind(Enum):
    """The type of a metric, which determines how its values combine."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Metric(Struct, frozen=True):
    name: str
    kind: Kind
    #: "" for plain counts.
    unit: str
    #: The meaning of `Sample.label`: "stream", "source" ("component/stream"), "peer", "reason", "component",
    #: "sink", "pipeline", or "".
    label: str
    help: str
    #: Whether several tasks are combined by the largest value instead of the sum.
    largest: bool = False


_C, _G, _H = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM

_INSTANCE = (
    Metric("__emit-count", _C, "", "stream", "Tuples emitted."),
    Metric("__ack-count", _C, "", "source", "Tuples that a bolt acked; for a spout, tuples that were fully acked."),
    Metric("__fail-count", _C, "", "source", "Tuples that a bolt failed; for a spout, tuples that failed."),
    Metric("__fail-latency", _H, "ns", "source", "Time from receiving or emitting a tuple to its failure."),
    Metric("__timeout-count", _C, "", "source", "Spout tuples whose message timeout expired."),
    Metric("__complete-latency", _H, "ns", "stream", "Time from emitting a spout tuple to its full ack."),
    Metric("__next-tuple-latency", _H, "ns", "", "Time spent in one call to next_tuple."),
    Metric("__next-tuple-count", _C, "", "", "Calls to next_tuple."),
    Metric("__pending-acked-count", _G, "", "", "Spout tuples emitted but neither acked nor failed yet."),
    Metric(
        "__pending-full-time-ns",
        _C,
        "ns",
        "",
        "Time a spout spent waiting for acks at topology.max.spout.pending; this is part of the blocked time.",
    ),
    Metric("__backlog-tuples", _G, "", "", "Tuples that the spout has yet to emit, according to its `backlog` method."),
    Metric(
        "__backlog-bytes", _G, "bytes", "", "Bytes that the spout has yet to emit, according to its `backlog` method."
    ),
    Metric("__backlog-errors", _C, "", "", "Calls to the spout's `backlog` method that raised an exception."),
    Metric(
        "__execute-count",
        _C,
        "",
        "source",
        "Tuples that were processed or became dead letters; counted per edge of the graph, by its source.",
    ),
    Metric(
        "__execute-latency",
        _H,
        "ns",
        "source",
        "Time spent in one call to process, excluding waits for space in the outgoing queue. Calls that take longer"
        " than 0.1 ms on average are timed one by one; quicker calls are timed together.",
    ),
    Metric("__execute-time-ns", _C, "ns", "source", "Total time spent in process, excluding waits for space."),
    Metric("__execute-max-ns", _G, "ns", "source", "Slowest call to process in the last minute.", largest=True),
    Metric("__slow-tuples", _C, "", "source", "Calls to process that took longer than heron.instance.slow_ms."),
    Metric(
        "__end-to-end-latency",
        _H,
        "ns",
        "source",
        "Time from emitting a spout's tuple to the end of the last process call for its tree, for a sample of"
        " tuples (heron.trace.per_s).",
    ),
    Metric(
        "__busy-time-ns",
        _C,
        "ns",
        "",
        "Time that the task spent in user code or in the runtime's code for its tuples. Busy, blocked and idle time add"
        " up to the time since the task's process started.",
    ),
    Metric(
        "__blocked-time-ns",
        _C,
        "ns",
        "",
        "Time in which the task could not work because the outgoing queue was full. For a spout, also because of"
        " backpressure, topology.max.spout.pending, or a sink that is not ready.",
    ),
    Metric("__idle-time-ns", _C, "ns", "", "Time that the task spent idle or paused."),
    Metric("__out-queue-full-count", _C, "", "", "Pauses of the task because its outgoing queue was full."),
    Metric("__gateway-received-packets-count", _C, "", "", "Frames received from the stream manager."),
    Metric("__gateway-received-packets-size", _C, "bytes", "", "Bytes received from the stream manager."),
    Metric("__gateway-sent-packets-count", _C, "", "", "Frames sent to the stream manager."),
    Metric("__gateway-sent-packets-size", _C, "bytes", "", "Bytes sent to the stream manager."),
    Metric("__gateway-sent-tuples-count", _C, "", "", "Tuples in the frames sent to the stream manager."),
    Metric("__gateway-sent-packets-per-sec", _G, "", "", "Frames with tuples sent per second, since the last report."),
    Metric("__gateway-sent-tuples-per-packet", _G, "", "", "Tuples per frame sent, since the last report."),
    Metric("__gateway-consumed-packets-count", _C, "", "", "Frames with tuples received and processed."),
    Metric("__gateway-consumed-tuples-count", _C, "", "", "Tuples in the frames received and processed."),
    Metric("__gateway-consumed-packets-per-sec", _G, "", "", "Frames processed per second, since the last report."),
    Metric("__gateway-consumed-tuples-per-packet", _G, "", "", "Tuples per frame processed, since the last report."),
    Metric("__gateway-sent-messages-count", _C, "", "", "Frames of every kind sent: tuples, acks, credit."),
    Metric("__gateway-received-messages-count", _C, "", "", "Frames of every kind received: tuples, acks, credit."),
    Metric("__gateway-in-stream-queue-size", _G, "", "", "Tuples in the incoming queue."),
    Metric("__gateway-out-stream-queue-size", _G, "", "", "Tuples in the outgoing queue."),
    Metric("__gateway-in-stream-queue-expected-capacity", _G, "", "", "Current capacity of the incoming queue."),
    Metric("__gateway-out-stream-queue-expected-capacity", _G, "", "", "Current capacity of the outgoing queue."),
    Metric("__gateway-link-gaps", _C, "", "", "Gaps in the sequence numbers of received frames: frames were lost."),
    Metric("__gateway-lost-tuples", _C, "", "reason", "Tuples lost with frames that never arrived or were discarded."),
    Metric("__gateway-stale-frames", _C, "", "", "Frames of an earlier incarnation that were refused."),
    Metric("__malformed-tuples", _C, "", "", "Tuples discarded because they could not be decoded."),
    Metric("__malformed-frames", _C, "", "", "Frames refused because their counts and arrays do not match."),
    Metric("__discarded-spans", _C, "", "", "Calls for traced tuples omitted from reports with too many calls."),
    Metric("__dead-letters", _C, "", "source", "Tuples that became dead letters."),
    Metric("__cancelled-tuples", _C, "", "", "Tuples that failed because their asynchronous bolt ended first."),
    Metric("__stateful_sync_time", _H, "ns", "", "Time a task was paused to capture its state for a checkpoint."),
    Metric("__stateful_align_time", _H, "ns", "", "Time from a checkpoint's first barrier at a task to the snapshot."),
    Metric("__stateful_async_time", _H, "ns", "", "Time to write a task's state in the background."),
    Metric("__stateful_state_size", _G, "bytes", "", "Size of the state in the task's last snapshot."),
    Metric("__stateful_stale_tuples", _C, "", "", "Tuples of another attempt, dropped because a restore replays them."),
)
_PYTHON = (
    Metric("__py-sys-cpu-time-secs", _C, "seconds", "", "System CPU time of the process."),
    Metric("__py-user-cpu-time-secs", _C, "seconds", "", "User CPU time of the process."),
    Metric("__py-cpu-wait-time-secs", _C, "seconds", "", "Time in which the task's thread could run but got no CPU."),
    Metric("__py-physical-memory-byte", _G, "bytes", "", "Resident memory of the process."),
    Metric("__py-virtual-memory-byte", _G, "bytes", "", "Virtual memory of the process."),
    Metric("__py-file-descriptors-count", _G, "", "", "Open file descriptors of the process."),
    *(
        metric
        for generation in (1, 2, 3)
        for metric in (
            Metric(f"__py-generation-{generation}-count", _C, "", "", "Garbage collections of the generation."),
            Metric(
                f"__py-generation-{generation}-collection-threshold",
                _G,
                "",
                "",
                "Number of objects that triggers a garbage collection.",
            ),
        )
    ),
)
_STMGR = (
    Metric("__tuples_from_workers", _C, "", "", "Tuples received from local tasks."),
    Metric("__tuples_to_workers", _C, "", "", "Tuples sent to local tasks."),
    Metric("__tuples_from_stmgrs", _C, "", "", "Tuples received from other stream managers."),
    Metric("__tuples_to_stmgrs", _C, "", "", "Tuples sent to other stream managers."),
    Metric("__bytes_to_workers", _C, "bytes", "", "Bytes sent to local tasks."),
    Metric("__bytes_to_stmgrs", _C, "bytes", "", "Bytes sent to other stream managers."),
    Metric("__frames_to_workers", _C, "", "", "Frames with tuples sent to local tasks."),
    Metric("__frames_to_stmgrs", _C, "", "", "Frames with tuples sent to other stream managers."),
    Metric("__frames_to_stmgrs_by_peer", _C, "", "peer", "Frames with tuples sent to one stream manager."),
    Metric("__tuples_to_stmgrs_by_peer", _C, "", "peer", "Tuples sent to one stream manager."),
    Metric("__ack_tuples_from_workers", _C, "", "", "Acks received for the spouts of this container."),
    Metric("__fail_tuples_from_workers", _C, "", "", "Fails received for the spouts of this container."),
    Metric(
        "__ack_tuples_to_stmgrs_lost",
        _C,
        "",
        "",
        "Acks that could not be delivered because a stream manager was lost; the acked tuples time out.",
    ),
    Metric("__instance_dropped_tuples", _C, "", "reason", "Tuples abandoned, such as the tuples of a task that died."),
    Metric(
        "__stmgr_rewound_tuples",
        _C,
        "",
        "reason",
        "Tuples of an earlier attempt that were dropped; a restore replays them.",
    ),
    Metric("__tuples_consumed_by_workers", _C, "", "", "Tuples that local tasks have processed."),
    Metric("__tuples_queued", _G, "", "", "Tuples waiting in this stream manager."),
    Metric("__tuples_in_flight", _G, "", "", "Tuples sent to tasks or stream managers but not confirmed yet."),
    Metric("__time_spent_back_pressure_aggr", _C, "ms", "", "Time for which this container's spouts were held back."),
    Metric("__time_spent_back_pressure_by_compid", _C, "ms", "peer", "Time that a task spent causing backpressure."),
    Metric(
        "__time_spent_avoiding_by_compid",
        _C,
        "ms",
        "peer",
        "Time for which a task was full and other tasks took over its share.",
    ),
    Metric("__tuples_dropped_by_compid", _C, "", "peer", "Tuples for a full task that were discarded on purpose."),
    Metric("__tuples_by_instanceid", _C, "", "peer", "Tuples received for a local task, including waiting tuples."),
    Metric("__connection_buffer_by_instanceid", _G, "bytes", "peer", "Bytes waiting for a local task."),
    Metric("__connection_buffer_length_by_instanceid", _G, "", "peer", "Frames waiting for a local task."),
    Metric("__stmgr_link_gaps", _C, "", "", "Gaps in the sequence numbers of received frames: frames were lost."),
    Metric("__stmgr_stale_frames", _C, "", "", "Frames of an earlier incarnation that were refused."),
    Metric("__stmgr_garbage", _C, "", "", "Messages that were not frames."),
    Metric("__stmgr_malformed_frames", _C, "", "", "Frames refused because their counts and arrays do not match."),
    Metric("__stmgr_damaged_links", _C, "", "", "Links reopened because a frame was damaged in transit."),
    Metric("__stmgr_refused_connections", _C, "", "", "Connections refused because they lack the topology's key."),
    Metric("__stmgr_refused_links", _C, "", "", "Link messages whose sender is not a stream manager of the plan."),
    Metric("__stmgr_fenced_links", _C, "", "", "Connections refused because a newer incarnation exists."),
    Metric("__stmgr_lost_links", _C, "", "", "Broken links to other stream managers."),
    Metric("__stmgr_refused_tasks", _C, "", "", "Refused registrations of tasks of other containers."),
    Metric("__stmgr_fenced_tasks", _C, "", "", "Tasks refused because a newer incarnation exists."),
    Metric("__stmgr_unacked_roots", _G, "", "", "Spout tuples whose tuple tree is not complete."),
    Metric("__state-keys", _G, "", "", "Keys in the keyed state of a task."),
    Metric("__stateful_gateway_size", _G, "bytes", "", "Bytes held back by checkpoint barriers."),
    Metric("__stateful_restore_count", _C, "", "", "Restores from a checkpoint."),
    Metric("__stateful_restore_time", _C, "ms", "", "Time spent restoring checkpoints."),
)
_DAEMON = (
    Metric("__process/__cpu_system_usec", _C, "us", "", "System CPU time of the process."),
    Metric("__process/__cpu_user_usec", _C, "us", "", "User CPU time of the process."),
    Metric("__process/__mem_used_bytes", _G, "bytes", "", "Memory used by the process."),
    Metric("__process/__uptime_sec", _G, "seconds", "", "Time since the process started."),
    Metric("__process/__up", _G, "", "", "1 while the process runs."),
    Metric("__process/__restarts", _C, "", "", "Restarts of the process by its executor."),
    Metric("__process/__out_of_memory", _C, "", "", "Number of times that the process ran out of memory and ended."),
    Metric("__process/__peak_resident_bytes", _G, "bytes", "", "Peak resident memory of the previous incarnation."),
    Metric("__process/__cpu_seconds", _C, "seconds", "", "CPU time of the process, measured by its executor."),
    Metric("__process/__resident_bytes", _G, "bytes", "", "Resident memory of the process, measured by its executor."),
    Metric("__process/__unshared_bytes", _G, "bytes", "", "Memory of the process that no other process shares."),
    Metric("__replica/__checkpoints_copied", _C, "", "", "Checkpoints copied to the replica."),
    Metric("__replica/__checkpoints_failed", _C, "", "", "Checkpoints that could not be copied to the replica."),
    Metric("__replica/__files_copied", _C, "", "", "Files of checkpoints copied to the replica."),
    Metric("__replica/__bytes_copied", _C, "bytes", "", "Bytes of checkpoints copied to the replica."),
    Metric("__replica/__files_removed", _C, "", "", "Files removed from the replica because no checkpoint needs them."),
    Metric("__replica/__removals_failed", _C, "", "", "Failed removals from the replica, which are retried."),
    Metric("__replica/__newest", _G, "", "", "Id of the newest complete checkpoint in the replica."),
    Metric("__executor/__exceptions_discarded", _C, "", "", "Exceptions dropped while no topology master answered."),
    Metric("__executor/__spans_discarded", _C, "", "", "Calls for traced tuples that the executor had to drop."),
    Metric("__executor/__messages_invalid", _C, "", "", "Messages on the metrics socket that were not reports."),
    Metric("__executor/__sink_samples_written", _C, "", "sink", "Samples that a metrics sink has accepted."),
    Metric(
        "__executor/__sink_samples_discarded",
        _C,
        "",
        "sink",
        "Samples that a metrics sink could not deliver in time.",
    ),
    Metric("__executor/__series_discarded", _G, "", "", "Series left out of this page because there are too many."),
)
_TMASTER = (
    Metric("__tmaster/__discarded_spans", _C, "", "", "Calls omitted from traces that have too many calls."),
    Metric(
        "__tmaster/__timeline_bytes",
        _G,
        "bytes",
        "",
        "Memory used by the topology master's history of minutes; only in `heron metrics`.",
    ),
)
_SPARK = (
    Metric("spark-batches-committed", _C, "", "component", "Micro-batches of a Spark sink that were committed."),
    Metric("spark-rows-committed", _C, "", "component", "Rows of the committed micro-batches."),
    Metric("spark-batches-failed", _C, "", "component", "Micro-batches that failed permanently."),
    Metric("spark-attempts-failed", _C, "", "component", "Attempts at a micro-batch that raised an exception."),
    Metric("spark-seconds", _C, "seconds", "component", "Time that Spark spent on micro-batches that have an outcome."),
    Metric("spark-wait-seconds", _H, "seconds", "component", "Time for which a written micro-batch waited for Spark."),
    Metric("spark-run-seconds", _H, "seconds", "component", "Time in the function of the sink, over all attempts."),
    Metric("spark-publish-seconds", _H, "seconds", "component", "Time to make the output of a micro-batch visible."),
    Metric("spark-lag-seconds", _G, "seconds", "component", "Age of the oldest micro-batch without an outcome."),
    Metric("spark-batches-running", _G, "", "component", "Micro-batches that Spark is processing."),
    Metric("spark-batches-waiting", _G, "", "", "Micro-batches without an outcome."),
    Metric("spark-batches-refused", _C, "", "", "Micro-batches of replaced processes that were refused."),
    Metric("spark-messages-refused", _C, "", "", "Messages and connections that do not come from a sink."),
    Metric("spark-ui-port", _G, "", "", "Port of Spark's own web pages; 0 if they are off."),
)

_PIPELINE = "pipeline"
#: Metrics of work units; each keeper reports its whole pipeline, and each site as `<pipeline>/<site>`.
_UNITS = (
    *(
        Metric(name, _G, unit, _PIPELINE, text, largest=True)
        for name, unit, text in (
            ("units-backlog-bytes", "bytes", "Bytes of log files that are not published yet."),
            ("units-waiting-bytes", "bytes", "Bytes of log files that belong to no unit yet."),
            ("units-oldest-seconds", "seconds", "Age of the oldest unpublished byte; 0 if all are published."),
            ("units-unfinished-bytes", "bytes", "Bytes of unfinished last lines."),
            ("units-ready", "", "Units that are waiting for a worker."),
            ("units-leased", "", "Units that workers are processing."),
            ("units-committed", "", "Units whose rows are complete but not published yet."),
            ("units-failed", "", "Units that failed permanently; `heron units retry` retries them."),
            ("units-bad-bytes", "bytes", "Bytes that could not be processed; `heron units bad` lists them."),
            ("units-bad-ranges", "", "Ranges of bytes that could not be processed."),
        )
    ),
    *(
        Metric(name, _G, unit, "site", text, largest=True)
        for name, unit, text in (
            ("units-site-bytes", "bytes", "Bytes of complete lines in the log files of a site."),
            ("units-site-workers", "", "Active workers of a site."),
            ("units-site-leased", "", "Units that workers of a site are processing."),
            ("units-site-silent-seconds", "seconds", "Time since the last report of any process of a site."),
        )
    ),
    Metric("units-published", _C, "", _PIPELINE, "Units whose rows became visible."),
    Metric("units-published-bytes", _C, "bytes", _PIPELINE, "Bytes of log files in the published units."),
    Metric("units-published-rows", _C, "", _PIPELINE, "Rows of the published units."),
    Metric("units-attempts", _C, "", _PIPELINE, "Attempts at units that workers have begun."),
    Metric("units-tries-failed", _C, "", _PIPELINE, "Attempts in which the user's function raised an exception."),
    Metric("units-backups", _C, "", _PIPELINE, "Backup attempts, begun because an earlier attempt took too long."),
    Metric("units-backups-won", _C, "", _PIPELINE, "Backups that finished before the earlier attempt."),
    Metric(
        "units-attempts-in-vain",
        _C,
        "",
        _PIPELINE,
        "Attempts, including backups, at units that another attempt committed first.",
    ),
    Metric("batch-tuples-failed", _C, "", "component", "Tuples that a bolt failed in a batch run, without a replay."),
)

#: Metrics of batches that the Spark gateway reports.
BATCH_METRICS = (
    "spark-rows-committed", "spark-batches-committed", "spark-batches-failed", "spark-attempts-failed", "spark-seconds",
    "spark-lag-seconds", "spark-batches-running", "spark-batches-waiting", "spark-ui-port", "spark-wait-seconds",
    "spark-run-seconds", "spark-publish-seconds",
)  # fmt: skip
#: The CPU time that a process has measured itself, user and system.
CPU_METRICS = ("__py-user-cpu-time-secs", "__py-sys-cpu-time-secs")
#: Metrics of pipelines that keepers and workers report.
UNIT_METRICS = tuple(one.name for one in _UNITS if one.label == _PIPELINE)

#: Every metric of heronpy, by name.
METRICS: dict[str, Metric] = {m.name: m for m in (*_INSTANCE, *_PYTHON, *_STMGR, *_DAEMON, *_TMASTER, *_SPARK, *_UNITS)}


def find(name: str) -> tuple[Metric, str] | None:
    """Return the registered metric and the label contained in the name; None for a user's metric."""
    metric = METRICS.get(name)
    if metric is not None:
        return metric, ""
    head, slash, rest = name.partition("/")
    metric = METRICS.get(head) if slash else None
    return (metric, rest) if metric is not None else None
