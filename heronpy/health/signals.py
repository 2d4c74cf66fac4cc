"""The figures of a topology over a time window; see `gathering`. Pure.

Shares are between 0 and 1, rates per second, times in seconds, sizes in bytes. A figure that was not reported is None,
never 0.
"""

from __future__ import annotations

from msgspec import Struct, field

from heronpy.health.times import TIMES, Times
from heronpy.proto import control_pb2
from heronpy.views.load import Load

#: Minimum tuples per task for a comparison of the tasks.
SHARED_MIN = 20

#: By component ("": the topology) and series: values by minute, oldest first, None if unknown.
History = dict[str, dict[str, list[float | None]]]


class TaskSignals(Struct):
    """The figures of one task."""

    name: str
    component: str
    is_spout: bool
    up: bool
    #: Tuples executed and emitted per second.
    executed: float = 0.0
    emitted: float = 0.0
    #: Tuples acked and failed per second; None: unknown.
    acked: float | None = None
    #: Tuples per second that were sent to the task, processed or not; None: the stream manager does not report them.
    sent: float | None = None
    #: Shares of the window spent in user code, and waiting for room to emit. If `blocked` is None, `busy` includes it.
    busy: float | None = None
    blocked: float | None = None
    #: Share of the window in which a spout waited for acks, at topology.max.spout.pending.
    at_limit: float | None = None
    #: Seconds in user code per tuple; None: nothing was executed.
    wall_s: float | None = None
    #: Busy seconds per second of the whole window: less than `busy` if the task was down for a part of it.
    working: float | None = None
    #: CPU seconds per second.
    cpu: float | None = None
    #: Seconds per second in which the task's thread was runnable but got no CPU.
    cpu_wait: float | None = None
    queue_bytes: int = 0
    #: Seconds to process the queue at the rate of the busy time; None when nothing arrives and nothing is processed.
    lag_s: float | None = None
    pending: int = 0
    #: Tuples per second of the time with work, in the newest seconds. None: unknown, or the task is not full, or it
    #: waits for a full task downstream.
    pace: float | None = None
    #: Seconds since the last turn of the task's loop.
    silent_s: float = 0.0
    memory_bytes: int | None = None
    host: str = ""
    #: Why the task is not up, as reported by the task or its stream manager.
    error: str = ""
    #: Whether the task has output streams. A worker of work units that writes a table has none, and emits nothing.
    emits: bool = True
    #: Whether the task belongs to a spout whose input has ended.
    ended: bool = False
    #: Number and memory of the descendant processes; open descriptors and their limit; 0: unknown.
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
        """Tuples executed per busy second in which the task had a CPU, for comparison with other tasks."""
        working = self.working if self.working is not None else self.busy
        if self.per_busy_s is None or working is None or self.cpu_wait is None:
            return self.per_busy_s
        # Not all of that time is busy time: a task that waits for tuples may also get its CPU late.
        return self.executed / max(working - self.cpu_wait, self.cpu or 0.0, 0.01)


class HostSignals(Struct):
    """The figures of one machine."""

    name: str
    cores: int
    #: Share of the last seconds in which a thread waited for a CPU.
    pressure: float
    #: CPU seconds per second of all processes, and of the topology's processes.
    used: float
    own: float
    #: The part of `own` for the Spark driver and its workers.
    spark: float = 0.0


class HotSpots(Struct):
    """A task's hottest code line and most frequent key, each with its share of the samples; "" means unknown."""

    samples: int = field(default=0, name="looks")
    keyed: int = 0
    line: str = ""
    at_line: float = 0.0
    #: The most frequent values of the grouping's fields.
    key: str = ""
    of_key: float = 0.0
    #: The line that raised the task's last exception.
    raised: str = ""
    #: The exception's type with the common text of most exceptions of this type and line, the number of exceptions
    #: with this text, and the number of all exceptions of this type and line.
    alike: str = ""
    alike_times: int = 0
    raised_times: int = 0
    #: Seconds before now, and bytes: the recent memory of the task's process and of its previous one, oldest first.
    memory: list[tuple[float, float]] = field(default_factory=list)
    memory_before: list[tuple[float, float]] = field(default_factory=list)

    def has_raised(self, words: str) -> bool:
        """Whether a process with this last message was ended by its own exception, not by a kill."""
        return not self.alike or _type_of(words) == _type_of(self.alike)

    def in_common(self, words: str) -> str:
        """Return the text that most of the task's exceptions share; "" unless the last message is one of several.

        The last message names one tuple; the shared text is closer to the cause.
        """
        return self.alike if self.has_raised(words) and self.alike_times and self.raised_times > 1 else ""


def _type_of(exception: str) -> str:
    """Return the type of an exception with this text, such as `ValueError` for `ValueError: no number`."""
    return exception.partition(":")[0]


class AllHotSpots(Struct, kw_only=True):
    """The answer of a topology master to `GetHotSpots`."""

    #: By task.
    tasks: dict[str, HotSpots]


class Signals(Struct):
    """The figures of one topology. `window_s` is the time covered by rates and shares."""

    topology: str
    lifecycle: control_pb2.Lifecycle
    cause: str
    window_s: float
    tasks: list[TaskSignals] = field(default_factory=list)
    #: Share of the window in which spouts were held back, and the tasks or links that hold them back now.
    held: float = 0.0
    culprits: list[str] = field(default_factory=list)
    #: Tasks or links that held back spouts for a part of the window.
    held_by: list[str] = field(default_factory=list)
    #: Full tasks that senders avoid, or whose tuples are discarded.
    avoided: list[str] = field(default_factory=list)
    #: Share of the last seconds in which spouts were held back.
    held_now: float | None = None
    #: By spout: seconds since its last emit. Spouts that were never seen to emit are missing.
    still_s: dict[str, float] = field(default_factory=dict)
    #: The requested window, which a young topology has not reached yet. None: unknown.
    asked_s: float | None = None
    #: Time since the topology's figures began; None: unknown.
    age_s: float | None = None
    #: Time since the change by a user, or the restore, whose figures settle last; None without a change or restore.
    changed_s: float | None = None
    #: Whether the change was a restore.
    restored: bool = False
    change: str = ""
    #: Time since the last update or change of settings, without restores.
    updated_s: float | None = None
    update: str = ""
    events_known: bool = True
    #: Requests that the topology master did not answer in time.
    unanswered: list[str] = field(default_factory=list)
    #: External conditions that processes wait for, such as free disk space; one sentence each.
    outages: list[str] = field(default_factory=list)
    #: Recently ended processes, out of memory and otherwise: map from name to (times, text).
    out_of_memory: dict[str, tuple[int, str]] = field(default_factory=dict)
    restarted: dict[str, tuple[int, str]] = field(default_factory=dict)
    #: Seconds between two ends for lack of memory, for processes with several.
    memory_lasts_s: dict[str, float] = field(default_factory=dict)
    #: Tuples that became dead letters in the window, by component.
    given_up: dict[str, float] = field(default_factory=dict)
    #: Tuples per second emitted to a bolt, by component, including tuples that have not reached it.
    arrivals: dict[str, float] = field(default_factory=dict)
    #: Components with a grouping that may give one task more tuples than another; None: unknown.
    keyed: list[str] | None = None
    #: Tuples per second that were discarded because tasks were full, by component.
    dropped: dict[str, float] = field(default_factory=dict)
    #: Components with a task that is full now, and for which tuples are discarded.
    dropping: list[str] = field(default_factory=list)
    lost: float = 0.0
    #: Whether some losses since the topology began were never counted, according to its totals.
    lost_unknown: bool = False
    #: Whether lost tuples are sent again: in at-least-once and effectively-once mode.
    sends_again: bool = False
    max_pending: int | None = None
    acking: bool = False
    #: In effectively-once mode: age of the newest checkpoint, and why the last incomplete one failed.
    checkpoint_age_s: float | None = None
    checkpoint_every_s: float | None = None
    checkpoint_failure: str = ""
    checkpoint_waits: list[str] = field(default_factory=list)
    #: Spark: waiting batches, seconds per committed batch, age of the oldest waiting batch.
    spark_waiting: float = 0.0
    spark_batch_s: float | None = None
    spark_lag_s: float = 0.0
    #: In the window: committed batches, failed batches, and attempts in which a sink's function raised.
    spark_committed: float = 0.0
    spark_failed: float = 0.0
    spark_raised: float = 0.0
    #: Components that hand batches to Spark.
    spark_sinks: list[str] = field(default_factory=list)
    #: Work units: unpublished bytes of log files, and bytes published per second; None without pipelines.
    units_backlog: float | None = None
    units_published: float = 0.0
    hosts: list[HostSignals] = field(default_factory=list)
    #: Memory of each machine.
    machine_memory: dict[str, int] = field(default_factory=dict)
    #: Size and free bytes of the disk with the topology's folder, by machine.
    disks: dict[str, tuple[int, int]] = field(default_factory=dict)
    #: Memory limit of one task, by component; components without a limit are missing.
    memory_limits: dict[str, int] = field(default_factory=dict)
    #: By component: the usual time of a tuple in user code, from the healthy minutes of a day. Components whose usual
    #: time is unknown are missing.
    usual_s: dict[str, float] = field(default_factory=dict)
    #: By spout: the backlog at its source, and the processed part of it per second, in the same unit.
    backlogs: dict[str, tuple[float, float]] = field(default_factory=dict)
    #: The last hour, and how long ago its last minute ended.
    history: History = field(default_factory=dict)
    history_age_s: float = 0.0
    #: By task.
    hot_spots: dict[str, HotSpots] = field(default_factory=dict, name="looks")
    #: Constants of the rules.
    times: Times = TIMES
    #: The figures by component, as the topology master sent them.
    load: Load | None = None
    #: Whether a job controls the topology.
    job: bool = False

    def of(self, component: str) -> list[TaskSignals]:
        return [task for task in self.tasks if task.component == component]

    def gets(self, component: str) -> dict[str, float] | None:
        """Return the tuples per second sent to each task of a component; None if too few to compare the tasks.

        If stream managers of an earlier release do not report sent tuples, executed tuples are used.
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
        """Return a series of the last hour; empty if it is unknown."""
        return self.history.get(component, {}).get(series, [])
