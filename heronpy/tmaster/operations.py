"""Activate, deactivate, restart and move: operations that wait for their effect and report it. Pure.

Each operation ends by its deadline. The answer of a failed operation names the processes that did not respond.
"""

from __future__ import annotations

from collections.abc import Iterable

from heronpy.common.errors import HeronError, InvalidRpcError, RetryableRpcError, RpcError
from heronpy.common.ids import stmgr_id
from heronpy.common.states import UP_STATES
from heronpy.common.units import counted, listed
from heronpy.proto import control_pb2
from heronpy.tmaster import events
from heronpy.tmaster.events import Node
from heronpy.tmaster.registry import Executor
from heronpy.tmaster.shared_state import SharedState
from heronpy.tmaster.update import Saver

_ALL = -1
#: Queues that have not become shorter for this long are considered stuck.
NO_PROGRESS_S = 5.0


class Emptying:
    """Empties a topology's queues before stream managers are replaced, because a stream manager that stops loses its
    tuples.

    The spouts are held back from the construction until `release`. The wait ends when no tuple is left, at the drain
    timeout, or if the queues stop shrinking because a task is down or hangs, or because bolts emit on each tick.
    """

    def __init__(self, shared: SharedState, now: float) -> None:
        self._shared = shared
        self._limit = now + shared.settings.drain_timeout_s
        self._least: int | None = None
        self._give_up_at = now + NO_PROGRESS_S
        self._applied_at: float | None = None
        #: Whether no tuple is left.
        self.empty = False
        shared.book.held_to_empty = True
        self._version = shared.change_plan(now)

    @property
    def deadline(self) -> float:
        """The latest time for the next call to `is_over`."""
        return min(self._limit, self._give_up_at)

    def is_over(self, now: float) -> bool:
        """Whether the wait is over: the topology is empty, or waiting longer would not empty it."""
        registry, book = self._shared.registry, self._shared.book
        if self._applied_at is None and self.spouts_wait():
            self._applied_at = now
        if self._applied_at is not None:
            self.empty = registry.drained(book.wanted, self._applied_at)
            # The queues may have grown before this moment.
            left = self._left()
            if self._least is None or left < self._least:
                self._least, self._give_up_at = left, now + NO_PROGRESS_S
        return self.empty or now >= self.deadline

    def release(self, now: float) -> None:
        self._shared.book.held_to_empty = False
        self._shared.change_plan(now)
        self._shared.publish_if_due(now)

    def spouts_wait(self) -> bool:
        """Whether every spout has applied the plan that holds it back."""
        registry = self._shared.registry
        spouts = [task for task in registry.places if registry.is_spout(task)]
        return all(task in registry.tasks and registry.tasks[task].plan_version >= self._version for task in spouts)

    def _left(self) -> int:
        """Return the last reported number of tuples in progress; counting a tuple twice is harmless."""
        registry = self._shared.registry
        beats = [entry.beat for entry in registry.stmgrs.values()]
        moving = sum(beat.queued_tuples + beat.in_flight_tuples + beat.unacked_roots for beat in beats)
        tasks = registry.tasks.values()
        return moving + sum(task.in_queue_tuples + task.out_queue_tuples for task in tasks)


class StateChange:
    """Activation or deactivation: done when every spout task runs or is paused, as the new plan requires."""

    def __init__(self, shared: SharedState, request: int, active: bool, now: float, end_input: bool = False) -> None:
        self._shared = shared
        self.active = active
        self.end_input = end_input and not active
        #: Whether every spout has applied the new state.
        self.applied = False
        self.requests = [request]
        self.name = "activate" if active else "deactivate"
        self.done = False
        wanted = control_pb2.TASK_RUNNING if active else control_pb2.TASK_PAUSED
        self._states = frozenset({wanted, control_pb2.TASK_EXHAUSTED, control_pb2.TASK_FINISHED})
        self._spouts = {s.comp.name for s in shared.book.topology.spouts}
        self._deadline = now + shared.settings.start_timeout_s
        self._next_look = now
        self._changed = shared.book.set_active(active)
        if self._changed:
            shared.persist(Node.TOPOLOGY, shared.book.topology)
            self._version = shared.change_plan(now)
        else:
            self._version = shared.book.version

    @property
    def deadline(self) -> float | None:
        return min(self._deadline, self._next_look) if self._shared.pace_s else self._deadline

    def advance(self, now: float) -> None:
        if now < self._next_look:
            return
        self._next_look = now + self._shared.pace_s
        waiting = self._waiting()
        topology = self._shared.book.topology.name
        verb = "active" if self.active else "inactive"
        if not waiting:
            self.done = self.applied = True
            already = "" if self._changed else " already"
            self._shared.confirm(self.requests, f"{topology} is{already} {verb}")
        elif now >= self._deadline:
            self.done = True
            why = (
                f"{topology} is {verb}, but within {self._shared.settings.start_timeout_s:g} s these"
                f" spouts did not report the change: {listed(waiting)}; see their logs"
            )
            self._shared.refuse(self.requests, RpcError(why))

    def _waiting(self) -> list[str]:
        registry = self._shared.registry
        waiting = []
        for task, place in registry.places.items():
            if place.component not in self._spouts:
                continue
            status = registry.tasks.get(task)
            if status is None or status.state not in self._states or status.plan_version < self._version:
                waiting.append(place.name)
        return sorted(waiting)


class Restart:
    """Restart of a task, a component, a container or everything: done when every task runs again.

    The tasks of a component restart together: tuples in transit to them wait in their stream managers. A container
    restarts with its stream manager; if `empties`, the topology is emptied first, so that the stream manager holds no
    tuples.
    """

    def __init__(self, shared: SharedState, event: events.RestartRequested, now: float, empties: bool = False) -> None:
        container, task_id = event.container, event.task_id
        self._shared = shared
        self._request = event.request
        self._deadline = now + shared.settings.start_timeout_s
        self._next_look = now
        self.done = False
        some_tasks = bool(task_id or event.component)
        self.of_all = self._last_container_0 = container == _ALL and not some_tasks
        registry = shared.registry
        if event.component and not task_id:
            tasks = sorted(t for t, place in registry.places.items() if place.component == event.component)
            if not tasks:
                raise InvalidRpcError(f"there is no component {event.component} in {shared.book.topology.name}")
            orders: dict[int, list[str]] = {}
            for task in tasks:
                orders.setdefault(registry.places[task].container, []).append(registry.name_of(task))
            self._target = f"component {event.component}"
        elif task_id:
            place = registry.places.get(task_id)
            if place is None:
                raise InvalidRpcError(f"there is no task {task_id} in {shared.book.topology.name}")
            orders = {place.container: [place.name]}
            tasks, self._target = [task_id], place.name
        else:
            numbers = sorted(registry.containers) if container == _ALL else [container]
            if container > 0 and container not in registry.containers:
                raise InvalidRpcError(f"there is no container {container} in {shared.book.topology.name}")
            if container < _ALL:
                raise InvalidRpcError(f"{container} is not a container; use -1 for all containers")
            orders = {number: [] for number in numbers}
            tasks = [task for number in numbers for task in registry.tasks_of(number)]
            self._target = "all containers" if container == _ALL else f"container {container}"
        self.name = f"restart of {self._target}"
        absent = [n for n in orders if n not in registry.executors or registry.executors[n].lost]
        if absent:
            raise RetryableRpcError(
                f"the executor of container {listed([str(n) for n in absent])} is not reporting; try again when the"
                " scheduler has replaced it"
            )
        #: The container with tasks in which this master runs, if it was a standby; otherwise 0. This container ends
        #: last.
        self._own = 0 if some_tasks else self._own_of(orders)
        self._orders = orders
        self._tasks = dict.fromkeys(tasks, 0)
        names = [stmgr_id(number) for number in orders if not some_tasks]
        self._stmgrs = {name: 0 for name in names if name in registry.stmgrs}
        self._emptying: Emptying | None = None
        #: Whether the executors were requested to restart the processes.
        self._ordered = False
        if empties and self._stmgrs and shared.has_run and not registry.degraded and not registry.failed_processes:
            self._emptying = Emptying(shared, now)
        else:
            self._give_orders(now)
        if container == 0 and not some_tasks:
            self._finish("container 0 is restarting", now)

    def _give_orders(self, now: float) -> None:
        registry = self._shared.registry
        self._ordered, self._deadline = True, now + self._shared.settings.start_timeout_s
        self._tasks = {task: registry.epoch_of(task) for task in self._tasks}
        self._stmgrs = {name: registry.stmgrs[name].record.epoch for name in self._stmgrs}
        if self._emptying is not None and self._emptying.empty:
            registry.totals.emptied = frozenset(self._stmgrs)
        for number, names in self._orders.items():
            self._order(number, names)

    def _own_of(self, containers: Iterable[int]) -> int:
        known = self._shared.registry.executors
        return next((one for one in containers if one and self._shared.process in _names_of(known[one])), 0)

    def _order(self, container: int, names: list[str], last: bool = False) -> None:
        entry = self._shared.registry.executors.get(container)
        if entry is not None and container == self._own and container and not last:
            names = [name for name in _names_of(entry) if name != self._shared.process]
        if entry is not None:
            body = control_pb2.RestartProcesses(names=names, reason="on request, by heron restart")
            self._shared.send((entry.peer,), body)

    def _finish(self, text: str, now: float) -> None:
        self._end(now)
        self._shared.confirm([self._request], text)

    def _end(self, now: float) -> None:
        self.done = True
        self._shared.registry.totals.emptied = frozenset()
        if self._emptying is not None:
            self._emptying.release(now)

    @property
    def is_emptying(self) -> bool:
        """Whether the topology is still being emptied, before any process restarts."""
        return not self._ordered

    @property
    def deadline(self) -> float | None:
        if self._emptying is not None and not self._ordered:
            return self._emptying.deadline
        return min(self._deadline, self._next_look) if self._shared.pace_s else self._deadline

    def advance(self, now: float) -> None:
        if self._emptying is not None and not self._ordered:
            if self._emptying.is_over(now):
                self._give_orders(now)
            return
        if now < self._next_look:
            return
        self._next_look = now + self._shared.pace_s
        registry = self._shared.registry
        broken = [t for t in self._tasks if t in registry.failed_tasks and self._is_new(t)]
        waiting = [t for t, epoch in self._tasks.items() if not is_back(self._shared, t, epoch)]
        if broken:
            status = registry.tasks[broken[0]]
            self._refuse(f"{registry.name_of(broken[0])} cannot start: {status.error}", now)
        elif not waiting and not self._old_stmgrs():
            late = "; queues were not empty before" if self._emptying is not None and not self._emptying.empty else ""
            self._finish(f"restarted {self._target}: {counted(len(self._tasks), 'task')} back{late}", now)
            if self._last_container_0:
                # Restart this master's own container last, after the answer.
                self._order(0, [])
            if self._own:
                self._order(self._own, [self._shared.process], last=True)
        elif now >= self._deadline:
            names = [*self._old_stmgrs(), *map(registry.name_of, waiting)]
            self._refuse(
                f"restarted {self._target}, but within {self._shared.settings.start_timeout_s:g} s these"
                f" did not start again: {listed(names)}; see their logs",
                now,
            )

    def _refuse(self, why: str, now: float) -> None:
        self._end(now)
        self._shared.refuse([self._request], RpcError(why))

    def _is_new(self, task: int) -> bool:
        return self._shared.registry.epoch_of(task) > self._tasks[task]

    def _old_stmgrs(self) -> list[str]:
        known = self._shared.registry.stmgrs
        return [name for name, epoch in self._stmgrs.items() if name not in known or known[name].record.epoch <= epoch]


class Move:
    """A planned move of containers, which the requester stops and starts elsewhere: done when every task runs again.

    The request is answered when the containers may stop: a checkpoint that their tasks can restore is complete, or the
    topology is empty. If neither is possible, the answer says so. The spouts wait until the tasks run again.
    """

    def __init__(
        self, shared: SharedState, request: int, moved: Iterable[int], now: float, saver: Saver | None
    ) -> None:
        registry, self._shared, self._request, self._saver = shared.registry, shared, request, saver
        self.name = f"move of container {listed([str(number) for number in sorted(moved)])}"
        tasks = [task for task, place in registry.places.items() if place.container in moved]
        self._tasks = {task: registry.epoch_of(task) for task in tasks}
        self._token = 0
        self._emptying: Emptying | None = None
        self._deadline = now
        self.done = not (tasks and shared.has_run and not registry.degraded and not registry.failed_processes)
        if self.done:
            shared.confirm([request], f"not all tasks of {shared.book.topology.name} are up, so its spouts still emit")
        else:
            self._emptying = Emptying(shared, now)
            self._deadline = now + shared.settings.drain_timeout_s

    @property
    def deadline(self) -> float | None:
        if self._request and self._saver is None and self._emptying is not None:
            return self._emptying.deadline
        return min(self._deadline, self._shared.registry.next_sweep)

    def advance(self, now: float) -> None:
        assert self._emptying is not None
        registry = self._shared.registry
        if self._request:
            ended = self._is_ready(now)
            if ended or now >= self._deadline:
                stmgrs = {stmgr_id(registry.places[task].container) for task in self._tasks if task in registry.places}
                registry.totals.emptied = frozenset(stmgrs if self._emptying.empty else ())
                self._shared.confirm([self._request], ended or "it is not empty yet")
                self._request, self._deadline = 0, now + self._shared.settings.start_timeout_s
            return
        known = [task for task in self._tasks if task in registry.places]
        if all(is_back(self._shared, task, self._tasks[task]) for task in known) or now >= self._deadline:
            self.done = True
            registry.totals.emptied = frozenset()
            self._emptying.release(now)

    def _is_ready(self, now: float) -> str:
        """Return the text of the answer; "" until it is known."""
        assert self._emptying is not None
        if self._saver is None:
            over = self._emptying.is_over(now)
            return ("it is empty" if self._emptying.empty else "it is not empty") if over else ""
        if not self._token and self._emptying.spouts_wait():
            self._token = self._saver.ask(now)
        answer = self._saver.outcome(self._token) if self._token else None
        if answer is None:
            return ""
        return f"no checkpoint: {answer.outcome}" if isinstance(answer.outcome, HeronError) else "a checkpoint exists"


def is_back(shared: SharedState, task: int, epoch: int) -> bool:
    """Whether a process of the task with an epoch above `epoch` is up with the newest plan."""
    status, plan = shared.registry.tasks.get(task), shared.book.plan
    return (
        status is not None
        and shared.registry.epoch_of(task) > epoch
        and status.state in UP_STATES
        and plan is not None
        and status.plan_version >= plan.version
    )


def _names_of(executor: Executor) -> list[str]:
    return [process.name for process in executor.record.processes]
