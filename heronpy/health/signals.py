"""The figures of a topology over a time window; see `gathering`. Pure.

Shares are between 0 and 1, rates per second, times in seconds, sizes in bytes. A figure that was not reported is None,
never 0.
"""

from __future__ import annotations

from msgspec import Struct, field

from heronpy.health.times import TIMES, Times
from heronpy.proto import control_pb2
from heronpy.views.load import Load

#: Tuples per task, at least, that tell how evenly they are shared out.
SHARED_MIN = 20

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
    #: Tuples per second acked and failed; None: not known.
    acked: float | None = None
    #: Tuples per second that were sent to it, processed or not; None: its stream manager does not say.
    sent: float | None = None
    #: Share of the window spent in user code, and waiting for room to emit. Without `blocked`, `busy` includes it.
    busy: float | None = None
    blocked: float | None = None
    #: Share of the window in which a spout waited for acks, at topology.max.spout.pending.
    at_limit: float | None = None
    #: In user code, for one tuple; None: nothing was executed.
    wall_s: float | None = None
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
    #: Tuples per second of the time with work, of the newest seconds; None: not known, it is not full, or waits for a
    #: full task behind it.
    pace: float | None = None
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
        # Not all of that time is busy time: a task that waits for tuples also gets its CPU late.
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


class HotSpots(Struct):
    """Where a task was in user code, sampled each second, and which keys came; shares of samples. "": not known."""

    samples: int = field(default=0, name="looks")
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
    """The type in the text of an exception: `ValueError` of `ValueError: no number`."""
    return exception.partition(":")[0]


class AllHotSpots(Struct, kw_only=True):
    """The answer of a topology master to `GetHotSpots`."""

    #: By task.
    tasks: dict[str, HotSpots]


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
    #: Time since the change by a user, or restore, whose figures settle last; None if none is known.
    changed_s: float | None = None
    #: Whether this was a restore.
    restored: bool = False
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
    #: Components with a task that is full now, and for which tuples are discarded.
    dropping: list[str] = field(default_factory=list)
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
    #: By component: the time of a tuple in user code, in the healthy minutes of a day; missing ones are not known.
    usual_s: dict[str, float] = field(default_factory=dict)
    #: By spout: what waits at its source, and how much of that is done per second, in one unit.
    backlogs: dict[str, tuple[float, float]] = field(default_factory=dict)
    #: The last hour, and how long ago its last minute ended.
    history: History = field(default_factory=dict)
    history_age_s: float = 0.0
    #: By task.
    hot_spots: dict[str, HotSpots] = field(default_factory=dict, name="looks")
    #: Of the rules.
    times: Times = TIMES
    #: The figures by component, as they were answered.
    load: Load | None = None

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
        """Components in the order of the topology, spouts first."""
        return list(dict.fromkeys(task.component for task in self.tasks))

    @property
    def arrival(self) -> float:
        """Tuples per second that the spouts emit."""
        return sum(task.emitted for task in self.tasks if task.is_spout)

    def minutes(self, component: str, series: str) -> list[float | None]:
        """A series of the last hour; empty if it is unknown."""
        return self.history.get(component, {}).get(series, [])
