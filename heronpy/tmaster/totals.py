"""The counts of all processes of a topology, including those that have ended. Pure.

Tasks and stream managers count from 0 each time they start. This module keeps the last counts of each process and
adds them up, so a total belongs to the topology and not to a process. Invariants: no total ever decreases, whatever
the order of the reports; each process counts once, however often it reports.

Reports of different tasks may be seconds apart. A view is therefore taken at a moment (`moment`) after which all
tasks have reported. The view shows a task's emitted tuples at its first report after the moment, and its executed
tuples at its last report before the moment. So without losses no component shows more executed tuples than were emitted
to it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from math import isfinite

from msgspec import Struct, field

from heronpy.common.ids import container_epoch_of, is_first_start
from heronpy.common.states import UP_STATES
from heronpy.plan.physical_plan import emitters
from heronpy.proto import control_pb2, plan_pb2

#: The totals of a TaskStatus.
COUNTERS = ("emitted", "executed", "acked", "failed", "dead_letters", "lost_tuples")
#: The counter that grows first, before all others in the task and downstream.
_EMITTED = 0
_LETTERS = COUNTERS.index("dead_letters")
#: Seconds of silence after which a task is idle or has ended, so its last report counts.
SILENT_S = 3.0
#: Seconds before now until which a silent task was certainly idle: a later change would have been reported by now.
HEARD_S = 1.5
#: Reports of one task within this many seconds are merged.
_GAP_S = 0.1
#: Number of tasks removed by updates that are kept separately; the counts of older ones are summed.
RETIRED_MAX = 10_000
#: Maximum number of restarted spout tasks that are named.
BEGUN_AGAIN_NAMED = 3
#: Counters are u64 on the wire; a sum stays in this range, even if a broken process reports more.
_MOST = (1 << 64) - 1
#: Exit reasons of a process that has handed over or reported the tuples that it held.
ORDERLY_ENDS = frozenset(
    {
        control_pb2.EXIT_NONE,
        control_pb2.EXIT_PREEMPTED,
        control_pb2.EXIT_USER_EXCEPTION,
        control_pb2.EXIT_STARTUP_FAILURE,
        control_pb2.EXIT_GAVE_UP,
        control_pb2.EXIT_FINISHED,
        control_pb2.EXIT_REWOUND,
        control_pb2.EXIT_SPAWN_FAILED,
    }
)


#: Fields of a task in the record for a successor; the record uses the same names.
_TOLD = (
    "spout", "epoch", "before", "latest", "pending", "abandoned", "forgets_failed", "component", "begun_again",
    "container", "rewinds", "ends", "saves_nothing", "at_least", "has_run",
)  # fmt: skip


class TaskCounts(Struct):
    """The counters of one task across all of its processes."""

    spout: bool
    epoch: int
    #: Counts of the earlier processes, and of the current one.
    before: tuple[int, ...]
    latest: tuple[int, ...]
    #: Incomplete tuple trees at the last report, and those of earlier processes at their end.
    pending: int = 0
    abandoned: int = 0
    #: Times of the last reports, and the totals at these times.
    moments: list[float] = field(default_factory=list)
    reports: list[tuple[int, ...]] = field(default_factory=list)
    #: Whether the task is a spout that cannot send failed tuples again.
    forgets_failed: bool = False
    component: str = ""
    #: Whether the task is a spout that may have emitted before another process replaced it. The new process calls
    #: `initialize` again, and a spout that does not resume emits all tuples again.
    begun_again: bool = False
    #: Whether the spout goes back to a checkpoint with its region, so that repeated emits count once.
    rewinds: bool = False
    #: Whether the spout claims to be rewindable but keeps no state to go back to.
    saves_nothing: bool = False
    #: Whether the last report of the current process is final, because the process is ending.
    ends: bool = False
    #: Whether an earlier process ended without a final report, so that the totals lack its last counts.
    at_least: bool = False
    #: Whether the current process has ended without a final report and has no successor.
    given_up: bool = False
    #: Whether a process of the task has initialised.
    has_run: bool = False
    #: Container of the current process; 0 if unknown.
    container: int = 0
    #: Epoch of the stream manager that has counted all tuples of the current process; 0 if there is none.
    witness: int = 0

    def take_letters(self, before: int) -> None:
        """Record how many dead letters earlier processes left on disk; unlike reports, files lose no counts."""
        known = self.before[_LETTERS]
        self.before = (*self.before[:_LETTERS], max(known, before), *self.before[_LETTERS + 1 :])

    def totals(self) -> tuple[int, ...]:
        return tuple(map(_sum, self.before, self.latest))

    def keep(self, at: float) -> None:
        """Record the current totals for this moment."""
        moments, reports = self.moments, self.reports
        if moments and at < moments[-1]:  # the clock was set back
            moments.clear()
            reports.clear()
        again = moments and at == moments[-1]  # a stream manager repeats its last report
        if again or (len(moments) > 1 and at - moments[-2] < _GAP_S):
            moments.pop()
            reports.pop()
        moments.append(at)
        reports.append(self.totals())
        unneeded = bisect_right(moments, at - SILENT_S - HEARD_S) - 1
        if unneeded > 0:
            del moments[:unneeded]
            del reports[:unneeded]

    def totals_at(self, moment: float) -> tuple[int, ...]:
        """Return the totals at `moment`; emitted tuples may include a few from shortly afterwards."""
        if not self.moments:
            return self.totals()
        counted = self.reports[max(0, bisect_right(self.moments, moment) - 1)]
        later = bisect_left(self.moments, moment)
        emitted = self.reports[later] if later < len(self.reports) else self.totals()
        return (emitted[_EMITTED], *counted[_EMITTED + 1 :])


class _StmgrCounts(Struct):
    epoch: int
    latest: tuple[int, int]
    before: tuple[int, int] = (0, 0)
    #: Whether the stream manager left the plan. If its name returns with another epoch, it has not died.
    left: bool = False
    #: Whether `latest` is final and includes the tuples that the stream manager held at its end.
    ends: bool = False
    #: By component: the tuples that this stream manager and its predecessors have discarded on purpose.
    dropped: Mapping[str, int] = field(default_factory=dict)
    dropped_before: Mapping[str, int] = field(default_factory=dict)


class Totals(Struct):
    tasks: dict[int, TaskCounts] = field(default_factory=dict)
    stmgrs: dict[str, _StmgrCounts] = field(default_factory=dict)
    #: Whether a process died with tuples that were never counted.
    uncounted: bool = False
    #: Whether a stream manager died with uncounted tuples, so any number of tuples may have been lost.
    queues_lost: bool = False
    #: Stream managers that are empty and are being replaced as planned.
    emptied: frozenset[str] = frozenset()
    #: ATLEAST_ONCE: whether tuples were sent without a tuple tree. Such tuples are not sent again after a failure.
    untracked: bool = False
    #: EFFECTIVELY_ONCE: number of times that a region went back.
    restores: int = 0
    #: Wall time at which the first topology master of this topology started; 0 if unknown.
    started_at: float = 0.0
    #: Whether all tasks were up once, under this topology master or an earlier one.
    has_run: bool = False
    #: By process: the epoch of its executor, and its restarts under earlier executors and under this one.
    restarts: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    #: Number of changes that no process reports to a successor: the reports of a new process do not include the counts
    #: of the replaced process.
    changes: int = 0
    #: A number that grows when any count changes.
    growth: int = 0
    #: By spout task that a plan allowed to emit: the epoch of its stream manager at that time; 0 if unknown.
    let: dict[int, int] = field(default_factory=dict)
    _moment: float = 0.0
    _retired: control_pb2.TupleTotals = field(default_factory=control_pb2.TupleTotals)
    #: Tasks that updates have removed, as of the last plan.
    _gone: frozenset[int] = frozenset()
    #: The same tasks as `_retired`, by component.
    _retired_of: dict[str, control_pb2.RetiredTotals] = field(default_factory=dict)

    def let_emit(self, spouts: Mapping[int, int]) -> None:
        """Record that a plan allows these spout tasks to emit; each task is given with its stream manager's epoch (0 if
        unknown).
        """
        fresh = spouts.keys() - self.let.keys()
        self.let.update((task, spouts[task]) for task in fresh)
        self.changes += bool(fresh)

    def take_plan(self, previous: plan_pb2.PhysicalPlan) -> None:
        """Record the processes of a predecessor's last plan, whose counts the predecessor may not have stored."""
        # It is unknown which processes ran when that plan took effect: an older plan may have let them emit.
        self.let_emit(dict.fromkeys(emitters(previous), 0))
        for record in previous.stmgrs:
            self.take_stmgr(record.id, record.epoch)

    def take_task(self, status: control_pb2.TaskStatus, spout: bool, container: int = 0, stmgr_epoch: int = 0) -> None:
        """Record the status that a task's process reports.

        `stmgr_epoch` is the epoch of the stream manager that forwards the status. Epoch 0 and container 0 mean unknown.
        """
        told = (
            status.emitted,
            status.executed,
            status.acked,
            status.failed,
            status.dead_letters,
            status.lost_tuples,
        )
        if status.untracked and not self.untracked:
            self.untracked = True
            self.changes += 1
        known = self.tasks.get(status.task_id)
        if known is None:
            known = self.tasks[status.task_id] = TaskCounts(spout, status.epoch, (0,) * len(told), told, status.pending)
            known.forgets_failed, known.rewinds = status.forgets_failed, status.rewinds
            known.take_letters(status.letters_before)
            known.component, known.container = status.component, container
            known.begun_again = known.at_least = spout and self._follows_unseen(status)
            known.ends = status.ends
            known.witness = stmgr_epoch if self.let.get(status.task_id) in (None, stmgr_epoch) else 0
            known.has_run = status.state in UP_STATES
            known.keep(status.counted_at if isfinite(status.counted_at) else 0.0)
            self.changes += 1
            return
        # Epochs of different containers cannot be compared.
        moved = 0 < known.container != container > 0
        if status.epoch < known.epoch and not moved:
            return
        known.forgets_failed = known.forgets_failed or status.forgets_failed
        if status.rewinds and not known.rewinds:
            known.rewinds = True
            self.changes += 1
        if status.saves_nothing and not known.saves_nothing:
            known.saves_nothing = True
            self.changes += 1
        if status.state in UP_STATES and not known.has_run:
            known.has_run = True
            self.changes += 1
        known.component = status.component or known.component
        same_witness = known.witness == stmgr_epoch and not moved
        if status.epoch > known.epoch or moved:
            let = status.task_id in self.let
            # After the end of a process, only its stream manager reports its tuples.
            unsure = let and not (same_witness and stmgr_epoch)
            known.begun_again = known.begun_again or (spout and (unsure or known.totals()[_EMITTED] > 0))
            known.witness = stmgr_epoch if same_witness or not let else 0
            known.at_least = known.at_least or not known.ends
            known.ends, known.given_up = status.ends, False
            known.before, known.latest = known.totals(), told
            known.abandoned = _sum(known.abandoned, known.pending)
            known.epoch = status.epoch
            self.changes += 1
        else:
            # A stream manager that has just started has the task but not its counts.
            latest = tuple(map(max, known.latest, told))
            self.growth += latest != known.latest
            known.latest = latest
            known.witness = known.witness if same_witness else 0
            known.ends = known.ends or status.ends
        known.take_letters(status.letters_before)
        known.container = container or known.container
        known.pending = status.pending
        if status.counted_at > 0 and isfinite(status.counted_at):
            known.keep(status.counted_at)

    def take_stmgr(self, name: str, epoch: int, discarded: int = 0, lost: int = 0, ends: bool = False) -> None:
        """Record the tuples that a stream manager has discarded or lost; if none are given, only its incarnation.

        `ends` means that the report is final and includes the tuples that were still in the stream manager.
        """
        known = self.stmgrs.get(name)
        if known is None:
            self.stmgrs[name] = _StmgrCounts(epoch, (discarded, lost))
            self.changes += 1
            return
        if epoch < known.epoch:
            return
        if epoch > known.epoch:
            died = not (known.left or known.ends or name in self.emptied)
            self.uncounted, self.queues_lost = self.uncounted or died, self.queues_lost or died
            known.ends = False
            known.before = (_sum(known.before[0], known.latest[0]), _sum(known.before[1], known.latest[1]))
            known.dropped_before, known.dropped = _added(known.dropped_before, known.dropped), {}
            known.epoch, known.latest = epoch, (discarded, lost)
            self.changes += 1
        else:
            if ends and not known.ends:
                known.ends = True
                # Some of the tuples may have been in transit from a peer.
                self.uncounted = self.uncounted or lost > known.latest[1]
                self.changes += 1
            known.latest = (max(known.latest[0], discarded), max(known.latest[1], lost))
        known.left = False

    def take_dropped(self, name: str, dropped: Mapping[str, int]) -> None:
        """Record, by component, the tuples that one process of a stream manager has discarded on purpose."""
        known = self.stmgrs[name]
        known.dropped = max(known.dropped, dict(dropped), key=lambda counts: sum(counts.values()))

    def take_restarts(self, process: control_pb2.ProcessRecord, epoch: int) -> None:
        """Record how often the executor of this epoch has restarted a process; each executor counts from 0."""
        known, told = self.restarts.get(process.name), process.restarts
        found = (epoch, 0, told)
        if known is not None:
            executor, before, latest = known
            if epoch < executor:
                return
            # When an executor ends, its processes end, too, and get successors.
            found = (epoch, _sum(before, latest, 1), told) if epoch > executor else (epoch, before, max(latest, told))
        if found != known:
            self.restarts[process.name] = found
            self.changes += 1

    def restarts_of(self, process: control_pb2.ProcessRecord) -> int:
        """Return the number of restarts of a process, summed over all executors."""
        _, before, latest = self.restarts.get(process.name, (0, 0, process.restarts))
        return _sum(before, latest)

    def take_process(self, process: control_pb2.ProcessRecord) -> None:
        """Record how a task's previous process ended."""
        carries_tuples = process.kind != control_pb2.PROCESS_OTHER
        if not self.uncounted and carries_tuples and process.restarts and process.exit not in ORDERLY_ENDS:
            self.uncounted = True
            self.changes += 1
        task = self.tasks.get(process.task_id) if process.task_id else None
        if task is not None and process.state == control_pb2.PROC_FAILED and not (task.ends or task.given_up):
            task.at_least = task.given_up = True
            self.changes += 1

    def start(self, wall: float) -> None:
        """Record that the topology started at this wall time, unless a predecessor handed over an earlier time."""
        if not 0 < self.started_at <= wall:
            self.started_at = wall
            self.changes += 1

    def count_restores(self, regions: int) -> None:
        """Increase the number of times that a region went back to a checkpoint."""
        self.restores = _sum(self.restores, regions)
        self.changes += 1

    def start_all(self) -> None:
        """Record that all tasks are up."""
        self.changes += not self.has_run
        self.has_run = True

    def place(self, tasks: AbstractSet[int], stmgrs: AbstractSet[str], names: AbstractSet[str] = frozenset()) -> None:
        """Set the tasks and stream managers of the plan, and the names of tasks; the counts of all other tasks are
        kept.
        """
        others = [name for name in self.restarts if name not in names and name not in stmgrs]
        for name in others[: max(0, len(others) - RETIRED_MAX)]:
            del self.restarts[name]
        for name, known in self.stmgrs.items():
            known.left = known.left or name not in stmgrs
        gone = [task for task in self.tasks if task not in tasks]
        if not self._gone.issuperset(gone):
            self.changes += 1  # only this record hands their counts to a successor
        self._gone = frozenset(gone)
        self.let = {task: epoch for task, epoch in self.let.items() if task in tasks or task in self._gone}
        for task in gone[: max(0, len(gone) - RETIRED_MAX)]:
            counts = self.tasks.pop(task)
            _add(self._retired, task, counts, 0.0)
            _retire(self._retired_of, counts, 0.0)

    def _follows_unseen(self, status: control_pb2.TaskStatus) -> bool:
        """Whether an earlier process of a task may have emitted without a report."""
        then = self.let.get(status.task_id)
        # The first epoch of a container is 1.
        return then is not None and not is_first_start(status.epoch, container_epoch_of(then) if then else 1)

    @property
    def discarded(self) -> int:
        """Number of tuples that stream managers discarded, including tuples that are sent again."""
        return _sum(*(known.before[0] + known.latest[0] for known in self.stmgrs.values()))

    @property
    def dropped(self) -> dict[str, int]:
        """Return the tuples that stream managers discarded on purpose, by receiving component."""
        return _added(*(counts for known in self.stmgrs.values() for counts in (known.dropped_before, known.dropped)))

    def moment(self, tasks: Iterable[int]) -> float:
        """Return the newest moment after which all of these tasks, except silent ones, have reported."""
        newest = [known.moments[-1] for task in tasks if (known := self.tasks.get(task)) and known.moments]
        last = max(newest, default=0.0)
        talking = [at for at in newest if at >= last - SILENT_S]
        at = min(talking, default=0.0)
        if len(talking) < len(newest):
            at = min(at, last - HEARD_S)
        self._moment = max(self._moment, at)
        return self._moment

    def fill(self, status: control_pb2.TaskStatus, moment: float = 0.0) -> None:
        """Replace the current process's counts with the task's totals at `moment` (0: the latest totals)."""
        known = self.tasks.get(status.task_id)
        if known is not None:
            totals = known.totals_at(moment) if moment else known.totals()
            for name, value in zip(COUNTERS, totals, strict=True):
                setattr(status, name, value)
            status.at_least = known.at_least

    def fill_unheard(self, status: control_pb2.TaskStatus, moment: float = 0.0) -> None:
        """Fill in the counts of a task that has reported only to a predecessor, as lower bounds."""
        if status.task_id in self.tasks:
            self.fill(status, moment)
            status.at_least = True

    def retired(self, tasks: Collection[int], moment: float = 0.0) -> list[control_pb2.RetiredTotals]:
        """Return the counts, by component, of all tasks except these at a moment; 0 means the latest counts."""
        found: dict[str, control_pb2.RetiredTotals] = {}
        for component, summed in self._retired_of.items():
            found[component] = control_pb2.RetiredTotals()
            found[component].CopyFrom(summed)
        for task, known in self.tasks.items():
            if task not in tasks and known.component:
                _retire(found, known, moment)
        return list(found.values())

    def ledger(self, topology_id: str) -> control_pb2.TotalsLedger:
        """Return all counts, for a new topology master."""
        kept = control_pb2.TotalsLedger(topology_id=topology_id, uncounted=self.uncounted, retired=self._retired)
        kept.restores, kept.started_at, kept.queues_lost = self.restores, self.started_at, self.queues_lost
        kept.has_run, kept.untracked = self.has_run, self.untracked
        for name, (epoch, before, latest) in self.restarts.items():
            kept.restarts.add(name=name, executor_epoch=epoch, before=before, latest=latest)
        kept.retired_of.extend(self._retired_of.values())
        for number, task in self.tasks.items():
            told = {name: getattr(task, name) for name in _TOLD}
            let_emit = number in self.let
            kept.tasks.add(task_id=number, stmgr_epoch=task.witness, let_emit=let_emit, **told)
        for name, stmgr in self.stmgrs.items():
            kept.stmgrs.add(stmgr_id=name, epoch=stmgr.epoch, before=stmgr.before, latest=stmgr.latest)
            kept.stmgrs[-1].left, kept.stmgrs[-1].ends = stmgr.left, stmgr.ends
            kept.stmgrs[-1].dropped.update(stmgr.dropped)
            kept.stmgrs[-1].dropped_before.update(stmgr.dropped_before)
        return kept

    @classmethod
    def of(cls, kept: control_pb2.TotalsLedger | None, topology_id: str) -> Totals:
        """Restore a predecessor's totals; start new totals if no totals exist or they belong to another topology."""
        totals = cls()
        if kept is None or kept.topology_id != topology_id:
            return totals
        totals.uncounted, totals.queues_lost = kept.uncounted, kept.queues_lost
        totals.restores, totals.has_run, totals.untracked = kept.restores, kept.has_run, kept.untracked
        totals.restarts = {one.name: (one.executor_epoch, one.before, one.latest) for one in kept.restarts}
        totals.started_at = kept.started_at if isfinite(kept.started_at) else 0.0
        totals._retired.CopyFrom(kept.retired)
        totals._retired_of = {summed.component: summed for summed in kept.retired_of}
        for task in kept.tasks:
            if len(task.before) == len(task.latest) == len(COUNTERS):
                told = {name: getattr(task, name) for name in _TOLD}
                told |= {"before": tuple(task.before), "latest": tuple(task.latest)}
                totals.tasks[task.task_id] = TaskCounts(witness=task.stmgr_epoch, **told)
                if task.let_emit:
                    totals.let[task.task_id] = 0
        for stmgr in kept.stmgrs:
            if len(stmgr.before) == len(stmgr.latest) == 2:
                before, latest = (stmgr.before[0], stmgr.before[1]), (stmgr.latest[0], stmgr.latest[1])
                totals.stmgrs[stmgr.stmgr_id] = _StmgrCounts(
                    stmgr.epoch, latest, before, stmgr.left, stmgr.ends, dict(stmgr.dropped), dict(stmgr.dropped_before)
                )
        return totals

    def summed(self, moment: float = 0.0, mode: str = "ATMOST_ONCE") -> control_pb2.TupleTotals:
        """Return the totals of a topology with this reliability mode at a moment; 0 means the latest totals."""
        totals = control_pb2.TupleTotals()
        totals.CopyFrom(self._retired)
        for task, known in self.tasks.items():
            _add(totals, task, known, moment)
        totals.lost = _sum(totals.lost, *(known.before[1] + known.latest[1] for known in self.stmgrs.values()))
        totals.untracked = mode == "ATLEAST_ONCE" and self.untracked
        not_resent = totals.untracked or mode == "ATMOST_ONCE"
        # A topology without bolts sends no tuples. Its workers lease units, and the ledger of units accounts for
        # losses.
        sends = not self.tasks or not all(task.spout for task in self.tasks.values())
        totals.lost_estimated = not_resent and sends and self.uncounted
        totals.lost_unknown = not_resent and sends and self.queues_lost
        if mode == "EFFECTIVELY_ONCE":
            totals.restores = self.restores
        return totals


def _sum(*counts: int) -> int:
    return min(sum(counts), _MOST)


def _added(*counts: Mapping[str, int]) -> dict[str, int]:
    return {name: _sum(*(one.get(name, 0) for one in counts)) for name in {name for one in counts for name in one}}


def _retire(found: dict[str, control_pb2.RetiredTotals], task: TaskCounts, moment: float) -> None:
    summed = found.setdefault(task.component, control_pb2.RetiredTotals(component=task.component))
    emitted, executed, acked, failed, *_ = task.totals_at(moment) if moment else task.totals()
    summed.tasks += 1
    summed.at_least = summed.at_least or task.at_least
    summed.emitted, summed.executed = _sum(summed.emitted, emitted), _sum(summed.executed, executed)
    summed.acked, summed.failed = _sum(summed.acked, acked), _sum(summed.failed, failed)


def _add(totals: control_pb2.TupleTotals, number: int, task: TaskCounts, moment: float) -> None:
    _, _, acked, failed, dead_letters, lost = task.totals_at(moment) if moment else task.totals()
    totals.dead_letters = _sum(totals.dead_letters, dead_letters)
    totals.lost = _sum(totals.lost, lost)
    totals.letters_at_least = totals.letters_at_least or task.given_up
    if task.spout:
        totals.at_least = totals.at_least or task.at_least
        totals.acked = _sum(totals.acked, acked)
        totals.failed = _sum(totals.failed, failed)
        if task.forgets_failed:
            totals.not_resent = _sum(totals.not_resent, failed)
            failed = 0
        # A restarted spout may start over, even if it can resend failed tuples.
        totals.replayed = _sum(totals.replayed, failed, task.abandoned)
        if task.begun_again and (task.saves_nothing or not task.rewinds):
            totals.spouts_begun_again = _sum(totals.spouts_begun_again, 1)
            if len(totals.begun_again) < BEGUN_AGAIN_NAMED:
                totals.begun_again.append(f"task {number} of {task.component}" if task.component else f"task {number}")
