"""The registered stream managers, executors and tasks, with the states from their heartbeats. Pure.

The registry checks epochs, so that replaced processes are ignored, and maintains sets, so that
queries about large topologies take constant time. Invariants: A status is kept only for a task of the placement, and
only from the stream manager in the task's container. The epoch of a name never decreases. `lagging` contains exactly
the expected tasks that are not up with the expected plan version.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet

from msgspec import Struct, field

from heronpy.common.errors import ReplacedError, TopologyError
from heronpy.common.ids import executor_id, instance_id, stmgr_id
from heronpy.common.states import UP_STATES
from heronpy.proto import control_pb2, plan_pb2
from heronpy.tmaster.totals import Totals

_DONE_STATES = frozenset({control_pb2.TASK_EXHAUSTED, control_pb2.TASK_FINISHED})
_FINAL_STATES = frozenset({control_pb2.TASK_FINISHED, control_pb2.TASK_FAILED})


class Place(Struct, frozen=True):
    task_id: int
    component: str
    container: int

    @property
    def name(self) -> str:
        return instance_id(self.container, self.component, self.task_id)


class Stmgr(Struct):
    """A registered stream manager."""

    record: plan_pb2.StmgrRecord
    peer: bytes
    last_seen: float
    beat: control_pb2.StmgrHeartbeat
    lost: bool = False
    plan_sent_at: float = float("-inf")
    counters: tuple[tuple[int, int, int, int], ...] = ()
    #: Number of consecutive heartbeats without waiting or moving tuples, and the time of the first one.
    quiet_beats: int = 0
    quiet_since: float = 0.0


class Executor(Struct):
    record: control_pb2.RegisterExecutor
    peer: bytes
    last_seen: float
    lost: bool = False


class Registry(Struct):
    """The known processes and tasks of a topology."""

    stmgr_lost_s: float
    executor_lost_s: float
    places: dict[int, Place] = field(default_factory=dict)
    stmgrs: dict[str, Stmgr] = field(default_factory=dict)
    executors: dict[int, Executor] = field(default_factory=dict)
    tasks: dict[int, control_pb2.TaskStatus] = field(default_factory=dict)
    failed_processes: dict[str, control_pb2.ProcessRecord] = field(default_factory=dict)
    failed_tasks: set[int] = field(default_factory=set)
    #: By task: the process whose failure is being handled, because its region goes back to an older checkpoint.
    excused: dict[int, int] = field(default_factory=dict)
    lagging: set[int] = field(default_factory=set)
    unexhausted: set[int] = field(default_factory=set)
    #: By task that is not ready for tuples: the awaited condition and the start of the wait.
    waiting: dict[int, tuple[str, float]] = field(default_factory=dict)
    #: Expected tasks that are not up with any plan version.
    down: set[int] = field(default_factory=set)
    #: By container: processes that have ended and wait for their restart.
    resting: dict[int, dict[str, control_pb2.ProcessRecord]] = field(default_factory=dict)
    #: Stream managers and executors that have been silent for too long.
    silent: set[str] = field(default_factory=set)
    #: By task: the epoch below which all of its processes are reported as ended, and the reason of the last end.
    ended: dict[int, tuple[int, str]] = field(default_factory=dict)
    totals: Totals = field(default_factory=Totals)
    _spouts: frozenset[int] = frozenset()
    _expected: frozenset[int] = frozenset()
    _version: int = 0
    _containers: frozenset[int] = frozenset()
    _by_container: dict[int, list[int]] = field(default_factory=dict)
    _next_sweep: float = float("inf")
    #: Time before which silence proves nothing, because this master was stopped or has just started.
    _awake_since: float = float("-inf")

    # ---- expectations -----------------------------------------------------------------------

    def place(self, packing: plan_pb2.PackingPlan, spouts: AbstractSet[str]) -> None:
        """Set the tasks of the packing plan, and forget all other tasks and processes."""
        places = {
            instance.task_id: Place(instance.task_id, instance.component, container.id)
            for container in packing.containers
            for instance in container.instances
        }
        for task in [t for t in self.tasks if self.places.get(t) != places.get(t)]:
            del self.tasks[task]
        self.ended = {t: end for t, end in self.ended.items() if self.places.get(t) == places.get(t)}
        self.places = places
        self._containers = frozenset(c.id for c in packing.containers)
        self._by_container = {c.id: [i.task_id for i in c.instances] for c in packing.containers}
        self._spouts = frozenset(t for t, place in places.items() if place.component in spouts)
        for name in [n for n, s in self.stmgrs.items() if s.record.container not in self._containers]:
            del self.stmgrs[name]
            self.silent.discard(name)
        for number in [n for n in self.executors if n and n not in self._containers]:
            del self.executors[number]
            self.silent.discard(executor_id(number))
        names, stmgrs = {place.name for place in places.values()}, set(map(stmgr_id, self._containers))
        self.failed_processes = {
            name: record
            for name, record in self.failed_processes.items()
            if name in names or name in stmgrs or record.kind == control_pb2.PROCESS_OTHER
        }
        self.failed_tasks &= self.tasks.keys()
        self.waiting = {t: what for t, what in self.waiting.items() if t in self.tasks}
        self.resting = {n: found for n, found in self.resting.items() if not n or n in self._containers}
        self.totals.place(places.keys(), stmgrs, names)
        self.excused = {t: epoch for t, epoch in self.excused.items() if t in self.tasks}
        self.unexhausted = {t for t in self._spouts if not self._is_exhausted(t)}
        self.expect(self._expected & places.keys(), self._version)

    def expect(self, tasks: Iterable[int], version: int) -> None:
        """Record that these tasks should be up with this version of the plan."""
        self._expected = frozenset(tasks)
        self._version = version
        self.lagging = {t for t in self._expected if not self.is_up(t)}
        self.down = {t for t in self._expected if not self._works(t)}

    @property
    def containers(self) -> frozenset[int]:
        return self._containers

    def tasks_of(self, container: int) -> list[int]:
        return self._by_container.get(container, [])

    # ---- questions --------------------------------------------------------------------------

    def is_up(self, task: int, version: int | None = None) -> bool:
        """Whether a task has initialised and applied the plan."""
        status = self.tasks.get(task)
        wanted = self._version if version is None else version
        return status is not None and status.state in UP_STATES and status.plan_version >= wanted

    def _works(self, task: int) -> bool:
        status = self.tasks.get(task)
        return status is not None and status.state in UP_STATES and self.end_of(task) is None

    def end_of(self, task: int) -> str | None:
        """Return why the task's last known process has ended; None if it has not ended, or has finished its work.

        Executors detect an end immediately; stream managers detect only silence. Restores rely on the stream managers.
        The reason from the executor is shown to users.
        """
        status = self.tasks.get(task)
        below, why = self.ended.get(task, (0, ""))
        over = status is not None and status.state not in _FINAL_STATES and status.epoch < below
        return why if over else None

    def rests(self, task: int) -> bool:
        """Whether a task's process has ended and is waiting to be restarted."""
        place = self.places.get(task)
        return place is not None and place.name in self.resting.get(place.container, ())

    @property
    def degraded(self) -> bool:
        """Whether a process that should run is down."""
        return bool(self.down or self.resting or self.silent)

    def is_finished(self, task: int) -> bool:
        status = self.tasks.get(task)
        return status is not None and status.state == control_pb2.TASK_FINISHED

    def epoch_of(self, task: int) -> int:
        status = self.tasks.get(task)
        return status.epoch if status is not None else 0

    def name_of(self, task: int) -> str:
        place = self.places.get(task)
        return place.name if place is not None else f"task {task}"

    def peer_of_task(self, task: int) -> bytes | None:
        place = self.places.get(task)
        entry = self.stmgrs.get(stmgr_id(place.container)) if place is not None else None
        return entry.peer if entry is not None else None

    def drained(self, stmgrs: Iterable[str], after: float = float("-inf")) -> bool:
        """Whether no tuple is queued or in transit in the topology.

        Each stream manager must have reported twice in a row that it has no tuples, the last time after every stream
        manager had reported it once. A tuple in transit between two of them would appear in one of these reports.
        """
        entries = [self.stmgrs.get(name) for name in stmgrs]
        latest = after
        for entry in entries:
            if entry is None or entry.lost or entry.quiet_beats < 2:
                return False
            latest = max(latest, entry.quiet_since)
        return all(entry.last_seen > latest for entry in entries if entry is not None)

    @property
    def spouts_rest(self) -> bool:
        """Whether every spout task is paused or exhausted."""
        return all(
            (status := self.tasks.get(task)) is not None and status.state == control_pb2.TASK_PAUSED
            for task in self.unexhausted
        )

    def culprits(self) -> list[control_pb2.Culprit]:
        return [c for entry in self.stmgrs.values() if not entry.lost for c in entry.beat.culprits]

    def _is_exhausted(self, task: int) -> bool:
        status = self.tasks.get(task)
        return status is not None and status.state in _DONE_STATES

    # ---- stream managers --------------------------------------------------------------------

    def register_stmgr(self, peer: bytes, message: control_pb2.RegisterStmgr, now: float) -> set[int]:
        """Register a stream manager; return the tasks in its registration."""
        record = message.stmgr
        if record.container not in self._containers or record.id != stmgr_id(record.container):
            raise TopologyError(f"{record.id} of container {record.container} is not in the packing plan")
        known = self.stmgrs.get(record.id)
        if known is not None and record.epoch < known.record.epoch:
            raise ReplacedError(record.id, record.epoch, known.record.epoch)
        beat = control_pb2.StmgrHeartbeat(stmgr_id=record.id, epoch=record.epoch)
        if known is not None and known.record.epoch == record.epoch:
            beat.discarded_tuples = known.beat.discarded_tuples
        self.totals.take_stmgr(record.id, record.epoch)
        self.stmgrs[record.id] = Stmgr(plan_pb2.StmgrRecord(), peer, now, beat)
        self.silent.discard(record.id)
        self.stmgrs[record.id].record.CopyFrom(record)
        self._next_sweep = min(self._next_sweep, now + self.stmgr_lost_s)
        return self._take_tasks(record.container, message.tasks, now)

    def beat(self, peer: bytes, message: control_pb2.StmgrHeartbeat, now: float) -> set[int] | None:
        """Process a heartbeat; return the tasks in it, or None if the sender must register first."""
        entry = self.stmgrs.get(message.stmgr_id)
        if entry is None or message.epoch > entry.record.epoch:
            return None
        if message.epoch < entry.record.epoch:
            return set()
        entry.peer, entry.last_seen, entry.lost = peer, now, False
        self.silent.discard(message.stmgr_id)
        self._next_sweep = min(self._next_sweep, now + self.stmgr_lost_s)
        self.totals.take_stmgr(
            message.stmgr_id, message.epoch, message.discarded_tuples, message.lost_tuples, message.ends
        )
        self.totals.take_dropped(message.stmgr_id, message.dropped)
        self._judge_quiet(entry, message, now)
        changed = self._take_tasks(entry.record.container, message.tasks, now)
        kept = control_pb2.StmgrHeartbeat()
        kept.CopyFrom(message)
        kept.ClearField("tasks")
        entry.beat = kept
        return changed

    def _judge_quiet(self, entry: Stmgr, message: control_pb2.StmgrHeartbeat, now: float) -> None:
        counters = tuple((t.task_id, t.epoch, t.emitted, t.executed) for t in message.tasks)
        waiting = message.queued_tuples or message.in_flight_tuples or message.unacked_roots
        if waiting or any(t.in_queue_tuples or t.out_queue_tuples or t.pending for t in message.tasks):
            entry.quiet_beats = 0
        elif entry.quiet_beats and counters == entry.counters:
            entry.quiet_beats += 1
        else:
            entry.quiet_beats, entry.quiet_since = 1, now
        entry.counters = counters

    def _take_tasks(self, container: int, statuses: Iterable[control_pb2.TaskStatus], now: float) -> set[int]:
        told: set[int] = set()
        stmgr = self.stmgrs[stmgr_id(container)].record.epoch
        for status in statuses:
            task = status.task_id
            place = self.places.get(task)
            if place is None or place.container != container or status.epoch < self.epoch_of(task):
                continue
            kept = control_pb2.TaskStatus()
            kept.CopyFrom(status)
            kept.component, kept.instance_id = place.component, place.name
            self.tasks[task] = kept
            self.totals.take_task(kept, task in self._spouts, container, stmgr)
            told.add(task)
            self._index(task)
            if status.waiting_for:
                self.waiting[task] = status.waiting_for, now - status.waiting_s
            else:
                self.waiting.pop(task, None)
        for task in self.tasks_of(container):
            known = self.tasks.get(task)
            if task in told or known is None or known.state in _FINAL_STATES:
                continue
            self._lose(task, f"{self.name_of(task)} is not connected to {stmgr_id(container)}")
        return told

    def _lose(self, task: int, why: str) -> None:
        status = self.tasks.get(task)
        if status is not None and status.state != control_pb2.TASK_LOST:
            status.state, status.error = control_pb2.TASK_LOST, why
            self._index(task)

    def _index(self, task: int) -> None:
        status = self.tasks[task]
        if task in self._expected:
            if self.is_up(task):
                self.lagging.discard(task)
            else:
                self.lagging.add(task)
            self._index_down(task)
        if task in self._spouts:
            if status.state in _DONE_STATES:
                self.unexhausted.discard(task)
            else:
                self.unexhausted.add(task)
        if self._has_failed(task):
            self.failed_tasks.add(task)
        else:
            self.failed_tasks.discard(task)

    def _index_down(self, task: int) -> None:
        if self._works(task):
            self.down.discard(task)
        else:
            self.down.add(task)

    def _has_failed(self, task: int) -> bool:
        status = self.tasks[task]
        return status.state == control_pb2.TASK_FAILED and status.epoch > self.excused.get(task, -1)

    def is_spout(self, task: int) -> bool:
        return task in self._spouts

    def excuse(self, task: int, epoch: int) -> None:
        """Ignore failures of a task's processes up to this epoch, because these processes are about to be replaced."""
        if task in self.places:
            self.excused[task] = max(epoch, self.excused.get(task, -1))
        if task in self.tasks:
            self._index(task)

    # ---- executors --------------------------------------------------------------------------

    def register_executor(self, peer: bytes, message: control_pb2.RegisterExecutor, now: float) -> None:
        number = message.container
        if number and number not in self._containers:
            raise TopologyError(f"container {number} is not in the packing plan")
        known = self.executors.get(number)
        if known is not None and message.epoch < known.record.epoch:
            raise ReplacedError(f"the executor of container {number}", message.epoch, known.record.epoch)
        record = control_pb2.RegisterExecutor()
        record.CopyFrom(message)
        self._next_sweep = min(self._next_sweep, now + self.executor_lost_s)
        self.executors[number] = Executor(record, peer, now)
        self.silent.discard(executor_id(number))
        self._take_processes(number, record.processes, record.epoch)

    def executor_beat(self, peer: bytes, message: control_pb2.ExecutorHeartbeat, now: float) -> bool:
        """Process a heartbeat; return False if its sender is no longer an executor of this topology."""
        known = self.executors.get(message.container)
        if known is None or message.epoch > known.record.epoch:
            # A heartbeat contains all data for supervision, so an executor that registered with the predecessor counts
            # even before it registers again.
            if message.container and message.container not in self._containers:
                return False
            record = control_pb2.RegisterExecutor(container=message.container, epoch=message.epoch)
            known = self.executors[message.container] = Executor(record, peer, now)
        elif message.epoch < known.record.epoch:
            return False
        known.peer, known.last_seen, known.lost = peer, now, False
        self.silent.discard(executor_id(message.container))
        self._next_sweep = min(self._next_sweep, now + self.executor_lost_s)
        del known.record.processes[:]
        known.record.processes.extend(message.processes)
        known.record.usage.CopyFrom(message.usage)
        self._take_processes(message.container, message.processes, message.epoch)
        return True

    def _take_processes(self, container: int, processes: Iterable[control_pb2.ProcessRecord], epoch: int) -> None:
        tasks, resting = self.tasks_of(container), {}
        for name in [stmgr_id(container), *map(self.name_of, tasks)]:
            self.failed_processes.pop(name, None)
        for process in processes:
            foreign = process.task_id and self.name_of(process.task_id) != process.name
            if process.task_id in self.places and not foreign:
                self._take_end(process)
            self.totals.take_process(process)
            self.totals.take_restarts(process, epoch)
            if process.state == control_pb2.PROC_BACKOFF and not foreign:
                resting[process.name] = process
            if process.state == control_pb2.PROC_FAILED and not foreign:
                self.failed_processes[process.name] = process
            else:
                self.failed_processes.pop(process.name, None)
        self.resting.pop(container, None)
        if resting:
            self.resting[container] = resting

    def _take_end(self, process: control_pb2.ProcessRecord) -> None:
        """Record that a task's earlier processes have ended. This process has ended too, unless it is running."""
        task, runs = process.task_id, process.state in (control_pb2.PROC_STARTING, control_pb2.PROC_RUNNING)
        if self.ended.get(task, (-1, ""))[0] == process.epoch + (not runs):
            return  # true for nearly all heartbeats
        why = next(iter(process.exit_detail.strip().splitlines()), "") or process.exit_reason.replace("_", " ")
        self.ended[task] = process.epoch + (not runs), why
        if task in self._expected:
            self._index_down(task)

    # ---- time -------------------------------------------------------------------------------

    @property
    def next_sweep(self) -> float:
        """The earliest time at which a process may have been silent for too long."""
        return self._next_sweep

    def overslept(self, now: float) -> None:
        """Record that this master was stopped for a while: messages from that time may still be in its socket."""
        self._awake_since = now

    def sweep(self, now: float) -> list[str]:
        """Mark processes that have been silent for too long; return the names of newly marked processes."""
        lost: list[str] = []
        next_sweep = float("inf")
        for name, stmgr in self.stmgrs.items():
            if stmgr.lost:
                continue
            due = max(stmgr.last_seen, self._awake_since) + self.stmgr_lost_s
            if now < due:
                next_sweep = min(next_sweep, due)
                continue
            stmgr.lost, stmgr.quiet_beats = True, 0
            lost.append(name)
            for task in self.tasks_of(stmgr.record.container):
                status = self.tasks.get(task)
                if status is not None and status.state not in _FINAL_STATES:
                    self._lose(task, f"{name} has been silent for {self.stmgr_lost_s:g} s")
        for number, executor in self.executors.items():
            if executor.lost:
                continue
            due = max(executor.last_seen, self._awake_since) + self.executor_lost_s
            if now < due:
                next_sweep = min(next_sweep, due)
                continue
            executor.lost = True
            lost.append(executor_id(number))
        self._next_sweep = next_sweep
        self.silent.update(lost)
        return lost

    def validate(self) -> None:
        """Raise AssertionError when an invariant does not hold."""
        assert self.tasks.keys() <= self.places.keys(), "status of a task that is placed nowhere"
        assert self.lagging == {t for t in self._expected if not self.is_up(t)}, "lagging is wrong"
        assert self.down == {t for t in self._expected if not self._works(t)}, "down is wrong"
        assert self.unexhausted == {t for t in self._spouts if not self._is_exhausted(t)}
        failed = {t for t in self.tasks if self._has_failed(t)}
        assert self.failed_tasks == failed, "failed tasks are wrong"
        silent = {name for name, stmgr in self.stmgrs.items() if stmgr.lost}
        silent |= {executor_id(number) for number, executor in self.executors.items() if executor.lost}
        assert self.silent == silent, "the silent processes are wrong"
        for name, stmgr in self.stmgrs.items():
            assert stmgr.record.container in self._containers, f"{name} is placed nowhere"
            assert stmgr.beat.epoch == stmgr.record.epoch, f"{name} has a heartbeat of another epoch"
