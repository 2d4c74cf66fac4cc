"""Computes a topology's signals over a time window from the answers of its topology master. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from heronpy.common.ids import executor_id
from heronpy.common.states import UP_STATES, culprit_name, holds
from heronpy.common.topology_keys import TOPOLOGY_MAX_SPOUT_PENDING
from heronpy.health.signals import History, HostSignals, HotSpots, Signals, TaskSignals
from heronpy.health.times import TIMES, Times
from heronpy.plan.component_config import config_of, reliability_mode
from heronpy.proto import control_pb2, topology_pb2
from heronpy.views.load import LoadAnswer
from heronpy.views.past import Event, Timeline, series_name

#: A task was full if other tasks took over its share for this part of the window, even if it is not full now.
AVOIDED_MS_PER_S = 100.0
#: The metrics to request: counters over the window, gauges as of now.
METRICS = (
    "__busy-time-ns", "__blocked-time-ns", "__idle-time-ns", "__pending-full-time-ns", "__execute-time-ns",
    "__execute-count", "__emit-count", "__ack-count", "__fail-count",
    "__dead-letters", "__gateway-lost-tuples", "__gateway-received-packets-size", "__py-physical-memory-byte",
    "__py-user-cpu-time-secs", "__py-sys-cpu-time-secs", "__process/__cpu_user_usec", "__process/__cpu_system_usec",
    "__py-cpu-wait-time-secs", "__time_spent_back_pressure_aggr", "__instance_dropped_tuples", "__tuples_by_instanceid",
    "__tuples_dropped_by_compid", "__time_spent_avoiding_by_compid", "__time_spent_back_pressure_by_compid",
    "spark-batches-waiting", "spark-lag-seconds", "spark-seconds", "spark-batches-committed",
    "spark-batches-failed", "spark-attempts-failed",
    "units-backlog-bytes", "units-published-bytes",
)  # fmt: skip
#: The series to request, and how far back.
SERIES = (
    "emitted", "executed", "busy", "tasks", "queue_bytes", "largest_bytes", "end_to_end_p99_s", "complete_p99_s",
    "held", "plan_version", "spark_waiting", "spark_done",
)  # fmt: skip
#: Groupings that may give one task more tuples than another.
_KEYED = frozenset({topology_pb2.FIELDS, topology_pb2.CUSTOM, topology_pb2.DIRECT, topology_pb2.LOWEST})

_ENDED = frozenset({control_pb2.TASK_EXHAUSTED, control_pb2.TASK_FINISHED})


def window_of(window_s: float, age_s: float, events: Iterable[Event] | None, now: float, times: Times = TIMES) -> float:
    """Return the window to use, in seconds; it begins after the topology's start and after the last settled change."""
    found = max(1.0, min(window_s, age_s))
    for event in events or ():
        age_s = now - event.at
        if _is_change(event) and _settles_s(event, times) <= age_s < found:
            found = age_s
    return found


def signals_of(
    status: control_pb2.StatusReply,
    metrics: control_pb2.MetricsReply,
    events: Iterable[Event] | None = (),
    checkpoints: control_pb2.CheckpointsReply | None = None,
    timeline: Timeline | None = None,
    *,
    now: float,
    asked_s: float = TIMES.window_s,
    age_s: float | None = None,
    checkpoint_every_s: float | None = None,
    hot_spots: Mapping[str, HotSpots] | None = None,
    load: LoadAnswer | None = None,
) -> Signals:
    """Return the figures from one set of answers.

    `now` is wall time. `asked_s` is the requested window, and `age_s` is the time since the topology's first figures.
    Exits of processes count for `TIMES.window_s`. If `events` is None, exits and changes are unknown.
    """
    topology = status.plan.topology
    spouts = {spout.comp.name for spout in topology.spouts}
    found = Signals(
        status.topology, status.lifecycle, status.cause, max(min(metrics.interval_s or status.uptime_s, 86400.0), 1.0)
    )
    found.asked_s, found.age_s = asked_s, age_s
    found.outages = list(status.outages)
    sums = _sums(metrics)
    silent = {spout.comp.name for spout in topology.spouts if not spout.outputs}
    names = [*(spout.comp.name for spout in topology.spouts), *(bolt.comp.name for bolt in topology.bolts)]
    order = {name: number for number, name in enumerate(names)}
    hosts, dropped = _hosts_of_tasks(status), _by_task(metrics, "__tuples_dropped_by_compid", found.window_s)
    sent = _by_task(metrics, "__tuples_by_instanceid", found.window_s)
    for task in sorted(status.tasks, key=lambda task: (order.get(task.component, len(order)), task.task_id)):
        values = sums.get(task.instance_id, {})
        found.tasks.append(_task(task, values, task.component in spouts, found.window_s))
        found.tasks[-1].host = hosts.get(task.task_id, "")
        if task.instance_id in sent:
            found.tasks[-1].sent = sent[task.instance_id] + dropped.get(task.instance_id, 0.0)
        found.tasks[-1].emits = task.component not in silent
        found.tasks[-1].ended = task.component in spouts and task.state in _ENDED
    found.hot_spots = dict(hot_spots or {})
    component_of = {task.name: task.component for task in found.tasks}
    _add_losses(found, metrics, component_of)
    for name, per_s in dropped.items():
        if per_s and name in component_of:
            component = component_of[name]
            found.dropped[component] = found.dropped.get(component, 0.0) + per_s
    found.lost_unknown = status.totals.lost_unknown
    found.keyed = [bolt.comp.name for bolt in topology.bolts if any(one.gtype in _KEYED for one in bolt.inputs)]
    # heronpy.connectors.spark.requirements sets this key.
    found.spark_sinks = [
        bolt.comp.name
        for bolt in topology.bolts
        if any(pair.key == "spark.sink" and pair.value == "true" for pair in bolt.comp.config.kvs)
    ]
    found.arrivals = _arrivals(topology, metrics, component_of, found.window_s)
    held = [values.get("__time_spent_back_pressure_aggr", 0.0) for values in sums.values()]
    found.held = min(1.0, max(held, default=0.0) / 1000 / found.window_s)
    if load is not None:
        found.held_now, found.still_s = load.load.held, load.still_s
        rows = load.load.components
        found.memory_limits = {row.name: row.memory_limit_bytes for row in rows if row.memory_limit_bytes}
        found.usual_s = {row.name: row.usual_s for row in rows if row.usual_s}
        # Tuples that wait at a source, if the spout reports them, and tuples that it emits per second.
        found.backlogs = {
            row.name: (row.backlog_tuples, row.emitted_per_s or 0.0) for row in rows if row.backlog_tuples
        }
    found.culprits = [culprit_name(culprit) for culprit in status.culprits if holds(culprit)]
    found.avoided = [culprit_name(culprit) for culprit in status.culprits if not holds(culprit)]
    found.dropping = [culprit.component for culprit in status.culprits if culprit.drops]
    paces = {culprit.instance_id: culprit.pace for culprit in status.culprits if culprit.pace}
    # A task that waits for a full task downstream is slow as well. Only tasks of the last component are certainly the
    # cause.
    last = next((task.component for task in reversed(found.tasks) if task.name in paces), "")
    for one in found.of(last):
        one.pace = paces.get(one.name)
    # A full task that senders avoid has free space at times.
    avoiding = _by_task(metrics, "__time_spent_avoiding_by_compid", found.window_s)
    found.avoided += [name for name, ms in avoiding.items() if ms > AVOIDED_MS_PER_S and name not in found.avoided]
    holding = _by_task(metrics, "__time_spent_back_pressure_by_compid", found.window_s)
    found.held_by = [name for name, ms in holding.items() if ms > AVOIDED_MS_PER_S]
    mode = reliability_mode(topology)
    found.acking = mode == "ATLEAST_ONCE"
    found.sends_again = mode != "ATMOST_ONCE"
    pending = config_of(topology).get(TOPOLOGY_MAX_SPOUT_PENDING)
    found.max_pending = int(pending) if pending is not None and str(pending).isdigit() else None
    found.events_known = events is not None
    executors = {f"container {one.container}": executor_id(one.container) for one in status.executors}
    _add_events(found, events or (), now, executors)
    if checkpoints is not None:
        _add_checkpoints(found, checkpoints, now, checkpoint_every_s)
    _add_units(found, metrics)
    _add_hosts(found, status, sums)
    _add_footprints(found, status)
    if timeline is not None:
        found.history = history_of(timeline)
        ended_at = timeline.times[-1] + timeline.step_s if timeline.times else 0.0
        found.history_age_s = max(0.0, now - ended_at)
    gateway = sums.get("spark-gateway", {})
    found.spark_waiting = gateway.get("spark-batches-waiting", 0.0)
    found.spark_lag_s = gateway.get("spark-lag-seconds", 0.0)
    found.spark_committed = gateway.get("spark-batches-committed", 0.0)
    found.spark_failed = gateway.get("spark-batches-failed", 0.0)
    found.spark_raised = gateway.get("spark-attempts-failed", 0.0)
    if gateway.get("spark-batches-committed"):
        found.spark_batch_s = gateway.get("spark-seconds", 0.0) / gateway["spark-batches-committed"]
    return found


def history_of(timeline: Timeline) -> History:
    """Return the series of an answer, without series of a wrong length."""
    found: History = {}
    for series in timeline.series:
        if len(series.values) == len(timeline.times):
            found.setdefault(series.component, {})[series_name(series.metric)] = series.values
    return found


def _sums(metrics: control_pb2.MetricsReply) -> dict[str, dict[str, float]]:
    found: defaultdict[str, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    for report in metrics.reports:
        for sample in report.samples:
            found[report.process][sample.name] += sample.value
    return {process: dict(values) for process, values in found.items()}


def _task(task: control_pb2.TaskStatus, values: Mapping[str, float], is_spout: bool, over_s: float) -> TaskSignals:
    received = values.get("__gateway-received-packets-size", 0.0) / over_s
    cpu = [values[name] for name in ("__py-user-cpu-time-secs", "__py-sys-cpu-time-secs") if name in values]
    memory = values.get("__py-physical-memory-byte")
    busy, blocked, at_limit = _shares(values)
    return TaskSignals(
        task.instance_id,
        task.component,
        is_spout,
        task.state in UP_STATES,
        executed=values.get("__execute-count", 0.0) / over_s,
        emitted=values.get("__emit-count", 0.0) / over_s,
        acked=(values.get("__ack-count", 0.0) + values.get("__fail-count", 0.0)) / over_s,
        busy=busy,
        blocked=blocked,
        at_limit=at_limit if is_spout else None,
        wall_s=values["__execute-time-ns"] / 1e9 / done
        if (done := values.get("__execute-count")) and "__execute-time-ns" in values
        else None,
        working=values["__busy-time-ns"] / 1e9 / over_s if "__busy-time-ns" in values else None,
        cpu=sum(cpu) / over_s if cpu else None,
        cpu_wait=values["__py-cpu-wait-time-secs"] / over_s if "__py-cpu-wait-time-secs" in values else None,
        queue_bytes=task.in_queue_bytes,
        lag_s=_lag_s(task, received, values.get("__execute-count", 0.0) / over_s, busy),
        pending=task.pending,
        silent_s=task.loop_age_s,
        memory_bytes=int(memory) if memory is not None else None,
        error="" if task.state in UP_STATES else next(iter(task.error.strip().splitlines()[-1:]), ""),
    )


def _lag_s(task: control_pb2.TaskStatus, received: float, executed: float, busy: float | None) -> float | None:
    """Return the seconds until the queue is processed, judged by its bytes or by its tuples, whichever takes longer.

    Bytes include frames that wait at the stream manager. Tuples matter for a large frame, which is received once but
    keeps a task busy for minutes. The rates are scaled by the busy share, because one tuple a minute is not a backlog.
    """
    found = [task.in_queue_bytes / received] if received else []
    found += [task.in_queue_tuples / executed] if executed else []
    return max(found) * (busy if busy is not None else 1.0) if found else None


def _arrivals(
    topology: topology_pb2.Topology, metrics: control_pb2.MetricsReply, component_of: Mapping[str, str], over_s: float
) -> dict[str, float]:
    """Return the tuples per second sent to each bolt: the emits on its input streams, once per receiving component."""
    inputs = {
        bolt.comp.name: {(one.stream.component_name, one.stream.id) for one in bolt.inputs} for bolt in topology.bolts
    }
    receivers = Counter(stream for streams in inputs.values() for stream in streams)
    emitted: defaultdict[tuple[str, str], float] = defaultdict(float)
    for report in metrics.reports:
        for sample in report.samples:
            if sample.name == "__emit-count":
                emitted[component_of.get(report.process, report.component), sample.label] += sample.value
    return {
        bolt: sum(emitted[stream] / receivers[stream] for stream in streams) / over_s
        for bolt, streams in inputs.items()
        if any(stream in emitted for stream in streams)
    }


def _by_task(metrics: control_pb2.MetricsReply, name: str, over_s: float) -> dict[str, float]:
    """Return the tuples per second of each task, summed over the stream managers that count them."""
    found: defaultdict[str, float] = defaultdict(float)
    for report in metrics.reports:
        for sample in report.samples:
            if sample.name == name:
                found[sample.label] += sample.value / over_s
    return found


def _shares(values: Mapping[str, float]) -> tuple[float | None, float | None, float | None]:
    """Return the shares of time: busy, blocked, and blocked by the limit of pending tuples."""
    times = [values.get(name) for name in ("__busy-time-ns", "__blocked-time-ns", "__idle-time-ns")]
    whole = sum(time for time in times if time is not None)
    if times[0] is not None and times[1] is not None and times[2] is not None:
        at_limit = values.get("__pending-full-time-ns", 0.0)
        return (times[0] / whole, times[1] / whole, at_limit / whole) if whole > 0 else (None, None, None)
    return None, None, None


def _add_losses(found: Signals, metrics: control_pb2.MetricsReply, component_of: dict[str, str]) -> None:
    for report in metrics.reports:
        for sample in report.samples:
            if sample.name == "__dead-letters" and sample.value:
                component = component_of.get(report.process, report.component)
                found.given_up[component] = found.given_up.get(component, 0.0) + sample.value
            elif sample.name == "__gateway-lost-tuples":
                found.lost += sample.value


def _add_units(found: Signals, metrics: control_pb2.MetricsReply) -> None:
    backlog: dict[str, float] = {}
    published: defaultdict[str, float] = defaultdict(float)
    for sample in (sample for report in metrics.reports for sample in report.samples if sample.label):
        if sample.name == "units-backlog-bytes":  # each keeper reports the whole pipeline
            backlog[sample.label] = max(backlog.get(sample.label, 0.0), sample.value)
        elif sample.name == "units-published-bytes":
            published[sample.label] += sample.value / found.window_s
    found.units_published = sum(published.values())
    found.units_backlog = sum(backlog.values()) if backlog else None
    # heronpy.ingest.spec uses this name for the component that processes the units.
    found.backlogs |= {f"{name}-worker": (size, published[name]) for name, size in backlog.items()}


def _hosts_of_tasks(status: control_pb2.StatusReply) -> dict[int, str]:
    hosts = {executor.container: executor.host for executor in status.executors}
    return {instance.task_id: hosts.get(instance.container, "") for instance in status.plan.instances}


def _add_hosts(found: Signals, status: control_pb2.StatusReply, sums: dict[str, dict[str, float]]) -> None:
    counted = _counted(found, status, sums)
    hosts: dict[str, HostSignals] = {}
    #: Containers that have reported their usage, by host; new containers report it a moment later.
    told: defaultdict[str, list[bool]] = defaultdict(list)
    for executor in status.executors:
        usage = executor.usage
        if usage.memory_bytes:
            found.machine_memory[executor.host] = usage.memory_bytes
        if usage.disk_bytes:
            found.disks[executor.host] = usage.disk_bytes, usage.disk_free_bytes
        if not usage.cores or not usage.HasField("cpu_pressure") or not usage.HasField("cpu_used"):
            continue
        host = hosts.setdefault(
            executor.host, HostSignals(executor.host, usage.cores, usage.cpu_pressure, usage.cpu_used, 0.0)
        )
        told[executor.host].append(usage.HasField("own_used"))
        host.own += usage.own_used
        host.spark += usage.spark_used
    for name, host in hosts.items():
        if not all(told[name]):
            host.own = max(host.own, counted[name])
        # Each container measures at a different time.
        host.own = min(host.own, host.used)
        host.spark = min(host.spark, host.own)
    found.hosts = list(hosts.values())


def _add_footprints(found: Signals, status: control_pb2.StatusReply) -> None:
    tasks = {task.name: task for task in found.tasks}
    for process in (process for executor in status.executors for process in executor.processes):
        task, taken = tasks.get(process.name), process.footprint
        if task is not None and process.HasField("footprint"):
            task.descendants, task.descendant_bytes = taken.descendants, taken.descendant_bytes
            task.descriptors, task.descriptors_max = taken.descriptors, taken.descriptors_max
            task.threads, task.log_per_s = taken.threads, taken.log_per_s


def _counted(
    found: Signals, status: control_pb2.StatusReply, sums: dict[str, dict[str, float]]
) -> defaultdict[str, float]:
    """Return the CPU seconds per second on each host, as reported by tasks and stream managers."""
    own: defaultdict[str, float] = defaultdict(float)
    for task in found.tasks:
        own[task.host] += task.cpu or 0.0
    for executor in status.executors:
        for process in executor.processes:
            if process.kind == control_pb2.PROCESS_STMGR:
                values = sums.get(process.name, {})
                used_us = (
                    values.get(name, 0.0) for name in ("__process/__cpu_user_usec", "__process/__cpu_system_usec")
                )
                own[executor.host] += sum(used_us) / 1e6 / found.window_s
    return own


def _is_change(event: Event) -> bool:
    return event.kind in ("update", "restore")


def _settles_s(event: Event, times: Times) -> float:
    return times.restored_s if event.kind == "restore" else times.settle_s


def _add_events(found: Signals, events: Iterable[Event], now: float, executors: Mapping[str, str]) -> None:
    """Add events; `executors` names the process whose log shows why a container ended."""
    last_s = None
    for event in events:
        age_s = max(0.0, now - event.at)
        if _is_change(event):
            left_s = _settles_s(event, found.times) - age_s
            if last_s is None or left_s > last_s:
                last_s, found.changed_s, found.change = left_s, age_s, event.text
                found.restored = event.kind == "restore"
            if event.kind == "update" and (found.updated_s is None or age_s < found.updated_s):
                found.updated_s, found.update = age_s, event.text
        elif age_s > TIMES.window_s:
            continue
        elif event.kind == "oom":
            _add_end(found.out_of_memory, event.subject, event)
            if event.times > 1 and event.at > event.first_at:
                found.memory_lasts_s[event.subject] = (event.at - event.first_at) / (event.times - 1)
        elif event.kind == "restart" and event.warning:
            _add_end(found.restarted, executors.get(event.subject, event.subject), event)


def _add_end(ends: dict[str, tuple[int, str]], name: str, event: Event) -> None:
    """Count a process's exits, whatever the reason; the newest exit is quoted."""
    times, _ = ends.get(name, (0, ""))
    ends[name] = (times + event.times, event.detail or event.reason.replace("_", " ") or event.text)


def _add_checkpoints(found: Signals, reply: control_pb2.CheckpointsReply, now: float, every_s: float | None) -> None:
    newest = max((record.taken_at for record in reply.complete), default=0.0)
    found.checkpoint_every_s = every_s
    found.checkpoint_age_s = max(0.0, now - newest) if newest else None
    found.checkpoint_failure = reply.last_failure
    # A checkpoint that has just begun waits for all tasks.
    found.checkpoint_waits = list(reply.pending_names) if reply.pending_s >= found.times.checkpoint_waits_s else []
