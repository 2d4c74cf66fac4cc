"""The figures of a topology over a time window, from the answers of its topology master. Pure.

Shares are between 0 and 1, rates per second, times in seconds, sizes in bytes. A figure that was not reported is None,
never 0.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct, field

from heronpy.common.ids import executor_id
from heronpy.common.states import UP_STATES, culprit_name, holds
from heronpy.common.topology_keys import TOPOLOGY_MAX_SPOUT_PENDING
from heronpy.plan.component_config import config_of, reliability_mode
from heronpy.proto import control_pb2, topology_pb2
from heronpy.views.load import LoadAnswer
from heronpy.views.past import Event, Timeline, series_name

#: A task whose share others took for so much of the window was full, whatever it is now.
AVOIDED_MS_PER_S = 100.0
#: The metrics to request: counters over the window, gauges as of now.
METRICS = (
    "__busy-time-ns", "__blocked-time-ns", "__idle-time-ns", "__pending-full-time-ns", "__execute-time-ns",
    "__execute-count", "__emit-count",
    "__dead-letters", "__gateway-lost-tuples", "__gateway-received-packets-size", "__py-physical-memory-byte",
    "__py-user-cpu-time-secs", "__py-sys-cpu-time-secs", "__process/__cpu_user_usec", "__process/__cpu_system_usec",
    "__py-cpu-wait-time-secs", "__time_spent_back_pressure_aggr", "__instance_dropped_tuples", "__tuples_by_instanceid",
    "__tuples_dropped_by_compid", "__time_spent_avoiding_by_compid",
    "spark-batches-waiting", "spark-lag-seconds", "spark-seconds", "spark-batches-committed",
    "spark-batches-failed", "spark-attempts-failed",
    "units-backlog-bytes", "units-published-bytes",
)  # fmt: skip
#: The series to request, and how far back.
SERIES = (
    "emitted", "executed", "busy", "tasks", "queue_bytes", "largest_bytes", "end_to_end_p99_s", "complete_p99_s",
    "held", "plan_version", "spark_waiting", "spark_done",
)  # fmt: skip
HISTORY_S = 3720.0
#: The window that a diagnosis is based on, and how long figures mix two configurations after a change, seconds.
WINDOW_S, SETTLE_S = 300.0, 180.0
#: Tuples per task, at least, that tell how evenly they are shared out.
SHARED_MIN = 20
#: A checkpoint that has been under way for so long waits for somebody.
CHECKPOINT_WAITS_S = 5.0

#: Groupings that may give one task more tuples than another.
_KEYED = frozenset({topology_pb2.FIELDS, topology_pb2.CUSTOM, topology_pb2.DIRECT, topology_pb2.LOWEST})

_ENDED = frozenset({control_pb2.TASK_EXHAUSTED, control_pb2.TASK_FINISHED})

#: Of a component ("": the topology), by series: minutes, the oldest first, None where unknown.
History = dict[str, dict[str, list[float | None]]]


class TaskSignals(Struct):
    """One task."""

    name: str
    component: str
    is_spout: bool
    up: bool
    #: Tuples per second executed and emitted.
    executed: float = 0.0
    emitted: float = 0.0
    #: Tuples per second that were sent to it, processed or not; None: its stream manager does not say.
    sent: float | None = None
    #: Share of the window spent in user code, and waiting for room to emit. Without `blocked`, `busy` includes it.
    busy: float | None = None
    blocked: float | None = None
    #: Share of the window in which a spout waited for acks, at topology.max.spout.pending.
    at_limit: float | None = None
    #: Busy seconds per second of the window: less than `busy` of a task that was down for a part of it.
    working: float | None = None
    #: CPU seconds per second.
    cpu: float | None = None
    #: Seconds per second in which its thread could run and got no CPU.
    cpu_wait: float | None = None
    queue_bytes: int = 0
    #: How long the queue takes at the rate of its busy time; None when nothing arrives, and nothing is done.
    lag_s: float | None = None
    pending: int = 0
    #: Time since its loop last made a turn.
    silent_s: float = 0.0
    memory_bytes: int | None = None
    host: str = ""
    #: Why it is not up, as far as it or its stream manager has said so.
    error: str = ""
    #: Whether it has output streams: a spout without, as a worker of work units that writes a table, emits nothing.
    emits: bool = True
    #: A spout whose input has ended.
    ended: bool = False
    #: Processes below its own, and their memory; its open descriptors, and the most there may be; 0: not known.
    descendants: int = 0
    descendant_bytes: int = 0
    descriptors: int = 0
    descriptors_max: int = 0
    threads: int = 0
    #: Bytes of log per second.
    log_per_s: float = 0.0

    @property
    def per_busy_s(self) -> float | None:
        """Tuples executed per busy second: the rate that one thread can sustain; None below 10 % busy."""
        working = self.working if self.working is not None else self.busy
        return self.executed / working if working is not None and working >= 0.1 and self.executed else None

    @property
    def per_served_s(self) -> float | None:
        """The same without the time in which it got no CPU, to be compared with that of other tasks."""
        working = self.working if self.working is not None else self.busy
        if self.per_busy_s is None or working is None or self.cpu_wait is None:
            return self.per_busy_s
        # Some of that time is none of the busy time: a task that waits for tuples gets its CPU late as well.
        return self.executed / max(working - self.cpu_wait, self.cpu or 0.0, 0.01)


class HostSignals(Struct):
    """One machine."""

    name: str
    cores: int
    #: Share of the last seconds in which something waited for a CPU.
    pressure: float
    #: CPU seconds per second of all its processes, and of the topology's.
    used: float
    own: float
    #: Of `own`: the Spark driver and its workers.
    spark: float = 0.0


class LookSignals(Struct):
    """Where a task was found in user code, a look a second, and which keys come; shares of looks. "": not known."""

    looks: int = 0
    keyed: int = 0
    line: str = ""
    at_line: float = 0.0
    #: What the fields of its grouping were most often.
    key: str = ""
    of_key: float = 0.0
    #: Where its last exception was raised.
    raised: str = ""
    #: Its type, and what most exceptions of that type and line say; how many of them do, and how many there are.
    alike: str = ""
    alike_times: int = 0
    raised_times: int = 0
    #: Seconds before now, and bytes: the memory of its process of late, the oldest first, and of the process before it.
    memory: list[tuple[float, float]] = field(default_factory=list)
    memory_before: list[tuple[float, float]] = field(default_factory=list)

    def has_raised(self, words: str) -> bool:
        """Whether a process with these last words ended of what it raised: one that was killed did not."""
        return not self.alike or _type_of(words) == _type_of(self.alike)

    def in_common(self, words: str) -> str:
        """What most of its exceptions say, if these last words are of one of several; else "".

        The last one names the tuple that came by; what all of them say is closer to the cause.
        """
        return self.alike if self.has_raised(words) and self.alike_times and self.raised_times > 1 else ""


def _type_of(exception: str) -> str:
    """`ValueError` of `ValueError: no number`."""
    return exception.partition(":")[0]


class Looks(Struct, kw_only=True):
    """What a topology master answers to `GetLooks`."""

    #: By task.
    tasks: dict[str, LookSignals]


class Signals(Struct):
    """One topology. `window_s` is the time covered by rates and shares."""

    topology: str
    lifecycle: control_pb2.Lifecycle
    cause: str
    window_s: float
    tasks: list[TaskSignals] = field(default_factory=list)
    #: Share of the window in which spouts were held, and the tasks or links that hold them now.
    held: float = 0.0
    culprits: list[str] = field(default_factory=list)
    #: Tasks that are full, and that senders leave out or for which tuples are discarded.
    avoided: list[str] = field(default_factory=list)
    #: Share of the last seconds in which spouts were held.
    held_now: float | None = None
    #: By spout: seconds since it has emitted last. Those that were never seen to emit are missing.
    still_s: dict[str, float] = field(default_factory=dict)
    #: The window that was asked for: of a young topology it is not reached yet. None: not known.
    asked_s: float | None = None
    #: Time since its figures began; None: not known.
    age_s: float | None = None
    #: Time since the last change by a user, or restore; None if none is known.
    changed_s: float | None = None
    change: str = ""
    #: The same of the last update or change of settings alone.
    updated_s: float | None = None
    update: str = ""
    events_known: bool = True
    #: What the topology master did not tell in time.
    unanswered: list[str] = field(default_factory=list)
    #: What processes wait for outside of the topology, such as room on a disk: a sentence each.
    outages: list[str] = field(default_factory=list)
    #: Processes that ended in the last minutes, out of memory and otherwise: name to (times, text).
    out_of_memory: dict[str, tuple[int, str]] = field(default_factory=dict)
    restarted: dict[str, tuple[int, str]] = field(default_factory=dict)
    #: Between two ends for lack of memory, of those that had several.
    memory_lasts_s: dict[str, float] = field(default_factory=dict)
    #: Tuples given up in the window, by component.
    given_up: dict[str, float] = field(default_factory=dict)
    #: Tuples per second emitted to a bolt, by component, whether they have reached it or not.
    arrivals: dict[str, float] = field(default_factory=dict)
    #: Components with a grouping that may give one task more tuples than another; None: not known.
    keyed: list[str] | None = None
    #: Tuples per second that were discarded because its tasks were full, by component.
    dropped: dict[str, float] = field(default_factory=dict)
    lost: float = 0.0
    #: Nobody has counted some of what was lost since the topology began: as its totals say.
    lost_unknown: bool = False
    #: What is lost on the way is sent again: at least and effectively once.
    sends_again: bool = False
    max_pending: int | None = None
    acking: bool = False
    #: Effectively once: age of the newest checkpoint, and the reason of the last one that did not complete.
    checkpoint_age_s: float | None = None
    checkpoint_every_s: float | None = None
    checkpoint_failure: str = ""
    checkpoint_waits: list[str] = field(default_factory=list)
    #: Spark: waiting batches, seconds per committed batch, age of the oldest waiting batch.
    spark_waiting: float = 0.0
    spark_batch_s: float | None = None
    spark_lag_s: float = 0.0
    #: Of the window: committed batches, failed ones, and attempts in which the function of a sink raised.
    spark_committed: float = 0.0
    spark_failed: float = 0.0
    spark_raised: float = 0.0
    #: Components that hand batches to Spark.
    spark_sinks: list[str] = field(default_factory=list)
    #: Work units: bytes of log files that are not published yet, and published per second; None without pipelines.
    units_backlog: float | None = None
    units_published: float = 0.0
    hosts: list[HostSignals] = field(default_factory=list)
    #: Memory of each machine.
    machine_memory: dict[str, int] = field(default_factory=dict)
    #: Size and free bytes of the disk with the topology's folder, by machine.
    disks: dict[str, tuple[int, int]] = field(default_factory=dict)
    #: Limit of the memory of one task, by component; those without a limit are missing.
    memory_limits: dict[str, int] = field(default_factory=dict)
    #: The last hour, and how long ago its last minute ended.
    history: History = field(default_factory=dict)
    history_age_s: float = 0.0
    #: By task.
    looks: dict[str, LookSignals] = field(default_factory=dict)

    def of(self, component: str) -> list[TaskSignals]:
        """The tasks of a component."""
        return [task for task in self.tasks if task.component == component]

    def gets(self, component: str) -> dict[str, float] | None:
        """Tuples per second that were sent to each task of a component; None: too few to compare the tasks.

        Where stream managers of an earlier release do not say it, what the tasks executed.
        """
        tasks = self.of(component)
        told = all(task.sent is not None for task in tasks)
        found = {task.name: (task.sent if told and task.sent is not None else task.executed) for task in tasks}
        return found if sum(found.values()) * self.window_s >= SHARED_MIN * len(found) else None

    @property
    def components(self) -> list[str]:
        """In the order of the topology, spouts first."""
        return list(dict.fromkeys(task.component for task in self.tasks))

    @property
    def arrival(self) -> float:
        """Tuples per second that the spouts emit."""
        return sum(task.emitted for task in self.tasks if task.is_spout)

    def minutes(self, component: str, series: str) -> list[float | None]:
        """A series of the last hour; empty if it is unknown."""
        return self.history.get(component, {}).get(series, [])


def window_of(window_s: float, age_s: float, events: Iterable[Event] | None, now: float) -> float:
    """The time to look at: no figure is older than the topology, nor than a change that has settled."""
    found = max(1.0, min(window_s, age_s))
    changes = [now - event.at for event in events or () if _is_change(event)]
    changed_s = min(changes, default=None)
    return changed_s if changed_s is not None and SETTLE_S <= changed_s < found else found


def signals_of(
    status: control_pb2.StatusReply,
    metrics: control_pb2.MetricsReply,
    events: Iterable[Event] | None = (),
    checkpoints: control_pb2.CheckpointsReply | None = None,
    timeline: Timeline | None = None,
    *,
    now: float,
    recent_s: float = WINDOW_S,
    asked_s: float = WINDOW_S,
    age_s: float | None = None,
    checkpoint_every_s: float | None = None,
    memory_limit: Callable[[str], int] = lambda component: 0,
    looks: Mapping[str, LookSignals] | None = None,
    load: LoadAnswer | None = None,
) -> Signals:
    """The figures from one set of answers. `now` is wall time, as there; events older than `recent_s` are ignored.
    `asked_s` is the window that was asked for, `age_s` the time since the figures of the topology began.

    Without events (None) it is unknown what ended or changed. `memory_limit` gives the bytes of a component's tasks.
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
    found.looks = dict(looks or {})
    found.memory_limits = {name: limit for name in found.components if (limit := memory_limit(name)) > 0}
    component_of = {task.name: task.component for task in found.tasks}
    _add_losses(found, metrics, component_of)
    for name, per_s in dropped.items():
        if per_s and name in component_of:
            component = component_of[name]
            found.dropped[component] = found.dropped.get(component, 0.0) + per_s
    found.lost_unknown = status.totals.lost_unknown
    found.keyed = [bolt.comp.name for bolt in topology.bolts if any(one.gtype in _KEYED for one in bolt.inputs)]
    # As heronpy.connectors.spark.requirements has it.
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
    found.culprits = [culprit_name(culprit) for culprit in status.culprits if holds(culprit)]
    found.avoided = [culprit_name(culprit) for culprit in status.culprits if not holds(culprit)]
    # A full task that is avoided has room now and then.
    avoiding = _by_task(metrics, "__time_spent_avoiding_by_compid", found.window_s)
    found.avoided += [name for name, ms in avoiding.items() if ms > AVOIDED_MS_PER_S and name not in found.avoided]
    mode = reliability_mode(topology)
    found.acking = mode == "ATLEAST_ONCE"
    found.sends_again = mode != "ATMOST_ONCE"
    pending = config_of(topology).get(TOPOLOGY_MAX_SPOUT_PENDING)
    found.max_pending = int(pending) if pending is not None and str(pending).isdigit() else None
    found.events_known = events is not None
    executors = {f"container {one.container}": executor_id(one.container) for one in status.executors}
    _add_events(found, events or (), now, recent_s, executors)
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
    """The series of an answer; one of another length than it says is left out."""
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
    busy, blocked, at_limit = _shares(values, is_spout, over_s)
    return TaskSignals(
        task.instance_id,
        task.component,
        is_spout,
        task.state in UP_STATES,
        executed=values.get("__execute-count", 0.0) / over_s,
        emitted=values.get("__emit-count", 0.0) / over_s,
        busy=busy,
        blocked=blocked,
        at_limit=at_limit if is_spout else None,
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
    """The longer one of its bytes at their rate, with what waits at its stream manager, and of its tuples at theirs: a
    large frame is received once, and keeps a task busy for minutes.

    Only while a task is busy does its rate say how fast it can be: one tuple a minute is no backlog.
    """
    found = [task.in_queue_bytes / received] if received else []
    found += [task.in_queue_tuples / executed] if executed else []
    return max(found) * (busy if busy is not None else 1.0) if found else None


def _arrivals(
    topology: topology_pb2.Topology, metrics: control_pb2.MetricsReply, component_of: Mapping[str, str], over_s: float
) -> dict[str, float]:
    """By bolt, from what is emitted on its input streams, where a tuple counts once per component that receives it."""
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
    """Tuples per second that stream managers count for each task; several may do so."""
    found: defaultdict[str, float] = defaultdict(float)
    for report in metrics.reports:
        for sample in report.samples:
            if sample.name == name:
                found[sample.label] += sample.value / over_s
    return found


def _shares(
    values: Mapping[str, float], is_spout: bool, over_s: float
) -> tuple[float | None, float | None, float | None]:
    """Busy, blocked, and of it at the limit of pending tuples.

    Tasks of an earlier release report only the time in `process`, which includes waiting.
    """
    times = [values.get(name) for name in ("__busy-time-ns", "__blocked-time-ns", "__idle-time-ns")]
    whole = sum(time for time in times if time is not None)
    if times[0] is not None and times[1] is not None and times[2] is not None:
        at_limit = values.get("__pending-full-time-ns", 0.0)
        return (times[0] / whole, times[1] / whole, at_limit / whole) if whole > 0 else (None, None, None)
    executing = values.get("__execute-time-ns")
    return None if is_spout or executing is None else min(1.0, executing / 1e9 / over_s), None, None


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
    for sample in (sample for report in metrics.reports for sample in report.samples if sample.label):
        if sample.name == "units-backlog-bytes":  # each keeper tells of all of its pipeline
            backlog[sample.label] = max(backlog.get(sample.label, 0.0), sample.value)
        elif sample.name == "units-published-bytes":
            found.units_published += sample.value / found.window_s
    found.units_backlog = sum(backlog.values()) if backlog else None


def _hosts_of_tasks(status: control_pb2.StatusReply) -> dict[int, str]:
    hosts = {executor.container: executor.host for executor in status.executors}
    return {instance.task_id: hosts.get(instance.container, "") for instance in status.plan.instances}


def _add_hosts(found: Signals, status: control_pb2.StatusReply, sums: dict[str, dict[str, float]]) -> None:
    counted = _counted(found, status, sums)
    hosts: dict[str, HostSignals] = {}
    #: Containers that say what they take, by host: those of an earlier release, and for a moment new ones, do not.
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
        # Each container measures at its own time.
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
    """CPU seconds per second by host, as far as tasks and stream managers report it themselves."""
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


def _add_events(
    found: Signals,
    events: Iterable[Event],
    now: float,
    recent_s: float,
    executors: Mapping[str, str],
) -> None:
    """`executors` gives the process whose log tells of the end of a container."""
    for event in events:
        age_s = max(0.0, now - event.at)
        if _is_change(event):
            if found.changed_s is None or age_s < found.changed_s:
                found.changed_s, found.change = age_s, event.text
            if event.kind == "update" and (found.updated_s is None or age_s < found.updated_s):
                found.updated_s, found.update = age_s, event.text
        elif age_s > recent_s:
            continue
        elif event.kind == "oom":
            _add_end(found.out_of_memory, event.subject, event)
            if event.times > 1 and event.at > event.first_at:
                found.memory_lasts_s[event.subject] = (event.at - event.first_at) / (event.times - 1)
        elif event.kind == "restart" and event.warning:
            _add_end(found.restarted, executors.get(event.subject, event.subject), event)


def _add_end(ends: dict[str, tuple[int, str]], name: str, event: Event) -> None:
    """Count the exits of a process, whatever their reason; the newest is quoted."""
    times, _ = ends.get(name, (0, ""))
    ends[name] = (times + event.times, event.detail or event.reason.replace("_", " ") or event.text)


def _add_checkpoints(found: Signals, reply: control_pb2.CheckpointsReply, now: float, every_s: float | None) -> None:
    newest = max((record.taken_at for record in reply.complete), default=0.0)
    found.checkpoint_every_s = every_s
    found.checkpoint_age_s = max(0.0, now - newest) if newest else None
    found.checkpoint_failure = reply.last_failure
    # One that has just begun waits for everybody.
    found.checkpoint_waits = list(reply.pending_names) if reply.pending_s >= CHECKPOINT_WAITS_S else []
