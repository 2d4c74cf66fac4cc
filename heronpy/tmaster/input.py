"""Decides when spouts begin to emit, and when a topology whose input has ended is finished. Pure.

When every spout task is exhausted and all queues are empty, FinishTasks is sent to the bolts, component by component in
the order of the streams, so that downstream bolts still process the tuples that a bolt emits when it finishes. A bolt
that emits on every tick would keep the queues from draining. So once every spout is exhausted, the bolts are ordered to
suspend their ticks. A bolt that still receives a tuple resumes its ticks and gets the order again. This state is not
stored. Finished tasks keep reporting that they are finished, so a restarted topology master reaches the same state.
FinishTasks is idempotent, so it is sent again to tasks that restarted or did not receive it.

"""

from __future__ import annotations

from collections.abc import Callable, Collection

from heronpy.common.ids import stmgr_id
from heronpy.common.states import UP_STATES
from heronpy.common.units import listed
from heronpy.plan.logical import LogicalPlan
from heronpy.proto import control_pb2
from heronpy.tmaster.shared_state import SharedState

RESEND_S = 10.0
#: Seconds after which a bolt that resumed its ticks because of a tuple is ordered again to suspend its ticks.
HOLD_TICKS_S = 1.0


class Readiness:
    """Decides when spouts begin to emit: when each bolt task has initialised and its `is_ready` has returned true.

    The plan records that the spouts are held back, for this master's successor and for restarted tasks. The spouts are
    released once per run, and held back again only when all tasks restart (`hold`): when a sink restarts alone,
    backpressure stops the spouts instead.
    """

    def __init__(self, shared: SharedState) -> None:
        self._shared = shared
        #: By task: the epoch up to which reports are ignored, because these processes are about to be replaced.
        self._replaced: dict[int, int] = {}

    def hold(self, now: float, waits_for: Collection[str]) -> None:
        """Hold back the spouts while all tasks restart, until the new tasks of these components are ready. Does nothing
        if there are no components.
        """
        shared = self._shared
        if waits_for:
            tasks = [task for task, place in shared.registry.places.items() if place.component in waits_for]
            self._replaced = {task: shared.registry.epoch_of(task) for task in tasks}
            shared.book.spouts_held = True
            shared.change_plan(now)

    def advance(self, now: float) -> None:
        """Release the spouts if every bolt is ready."""
        shared = self._shared
        if not shared.book.spouts_held or not shared.started or shared.publish_at is not None or self._missing():
            return
        shared.book.spouts_held = False
        self._replaced.clear()
        shared.note(f"every bolt of {shared.book.topology.name} is ready; starting the spouts")
        shared.change_plan(now)
        shared.publish_if_due(now)

    def cause(self, now: float) -> str:
        """Explain why the spouts wait, and how long they have been waiting."""
        registry = self._shared.registry
        since: dict[str, float] = {}
        for task in self._tasks():
            if task in registry.waiting and registry.is_up(task, 0):
                text, began = registry.waiting[task]
                since[text] = min(began, since.get(text, began))
        texts = [f"{text}, {max(0.0, now - began):.0f} s" for text, began in sorted(since.items())]
        return "; ".join(texts) or f"waiting for {listed(self._missing()) or 'the plan that starts the spouts'}"

    def _tasks(self) -> list[int]:
        bolts = self._shared.book.bolts
        return [task for task, place in self._shared.registry.places.items() if place.component in bolts]

    def _missing(self) -> list[str]:
        """Return the tasks that have not reported that they are ready."""
        registry = self._shared.registry
        return [
            registry.name_of(task)
            for task in self._tasks()
            if task in registry.waiting
            or not registry.is_up(task)
            or registry.epoch_of(task) <= self._replaced.get(task, -1)
        ]


class Finisher:
    def __init__(self, shared: SharedState) -> None:
        self._shared = shared
        #: The tasks of each bolt, in the order of the streams; None before finishing begins.
        self._stages: list[list[int]] | None = None
        self._stage = 0
        self._asked: dict[int, tuple[int, int, float]] = {}
        self._finished_at: float | None = None
        #: Time at which the last spout task became exhausted; infinite while a spout task is not exhausted.
        self._exhausted_at = float("inf")
        self._next_look = self._next_hold = float("-inf")
        #: Called when all bolts are finished: returns whether the last results are safe.
        self.sealed: Callable[[float], bool] | None = None
        self.done = False
        #: Whether the topology was deactivated to end it, so paused spouts count as exhausted. Not stored: the command
        #: that waits for the end repeats its request to the next topology master.
        self.input_ended = False

    @property
    def active(self) -> bool:
        return self._stages is not None

    @property
    def deadline(self) -> float | None:
        if self._stages is None or self.done or not self._shared.pace_s:
            return None
        return self._next_look

    def advance(self, now: float) -> None:
        """Take the next step of finishing if its condition is met."""
        if self.done or now < self._next_look:
            return
        registry = self._shared.registry
        if registry.unexhausted and not (self.input_ended and registry.spouts_rest):
            self._exhausted_at = float("inf")
            return
        self._exhausted_at = min(self._exhausted_at, now)
        self._next_look = now + self._shared.pace_s
        self._hold_ticks(now)
        if self._stages is None and not self._begin():
            return
        self._ask(now)
        while not self.done and self._stage_is_over(now):
            if self._stage + 1 >= len(self._stages or []):
                if self.sealed is None or self.sealed(now):
                    self.done = True
                    self._shared.note(f"{self._shared.book.topology.name} has finished")
                return
            self._stage += 1
            self._finished_at = None
            self._ask(now)

    def begin_again(self) -> None:
        """Start over after tasks have gone back to a checkpoint, so that no task counts as finished."""
        if self._stages is not None:
            self._shared.note(f"{self._shared.book.topology.name} is finishing again after a restore")
        self._stages, self._stage, self._finished_at = None, 0, None
        self._asked.clear()
        self._exhausted_at = float("inf")
        self._next_look = self._next_hold = float("-inf")
        self.done = False

    def forget(self, tasks: list[int]) -> None:
        """Send FinishTasks again soon to these tasks, which did not receive it."""
        for task in tasks:
            asked = self._asked.get(task)
            if asked is not None:
                # Wait before sending again, because the task's peer may be unreachable for a while.
                self._asked[task] = (*asked[:2], asked[2] - RESEND_S + 1.0)

    def _hold_ticks(self, now: float) -> None:
        """Make every unfinished bolt suspend its ticks, so that only tuples cause work."""
        shared = self._shared
        if now < self._next_hold or not shared.started or not (shared.book.active or self.input_ended):
            return
        self._next_hold = now + HOLD_TICKS_S
        bolts = {bolt.comp.name for bolt in shared.book.topology.bolts}
        orders: dict[bytes, list[int]] = {}
        for task, place in shared.registry.places.items():
            peer = shared.registry.peer_of_task(task)
            if place.component in bolts and peer is not None and not shared.registry.is_finished(task):
                orders.setdefault(peer, []).append(task)
        for peer, tasks in orders.items():
            shared.send((peer,), control_pb2.HoldTicks(task_ids=sorted(tasks)))

    def _begin(self) -> bool:
        shared = self._shared
        topology = shared.book.topology
        if not shared.started or not (shared.book.active or self.input_ended):
            return False
        if not shared.registry.drained(shared.book.wanted, self._exhausted_at):
            return False
        bolts = {bolt.comp.name for bolt in topology.bolts}
        order = [c for c in LogicalPlan.from_topology(topology).topological_order() if c in bolts]
        places = shared.registry.places
        self._stages = [sorted(t for t, p in places.items() if p.component == c) for c in order]
        why = "is paused permanently" if self.input_ended else "is exhausted"
        shared.note(f"every spout of {topology.name} {why}; finishing its bolts")
        return True

    def _ask(self, now: float) -> None:
        registry = self._shared.registry
        orders: dict[bytes, list[int]] = {}
        for tasks in (self._stages or [])[: self._stage + 1]:
            for task in tasks:
                peer = registry.peer_of_task(task)
                if peer is None or registry.is_finished(task) or not self._should_ask(task, now):
                    continue
                orders.setdefault(peer, []).append(task)
        for peer, tasks in orders.items():
            self._shared.send((peer,), control_pb2.FinishTasks(task_ids=tasks))

    def _should_ask(self, task: int, now: float) -> bool:
        """Return whether this incarnation of the task is due for a request; if so, record the request."""
        registry = self._shared.registry
        status = registry.tasks.get(task)
        if status is None or status.state not in UP_STATES:
            return False
        stmgr = registry.stmgrs[stmgr_id(registry.places[task].container)]
        asked = self._asked.get(task)
        epochs = (status.epoch, stmgr.record.epoch)
        if asked is not None and asked[:2] == epochs and now < asked[2] + RESEND_S:
            return False
        self._asked[task] = (*epochs, now)
        return True

    def _stage_is_over(self, now: float) -> bool:
        registry = self._shared.registry
        stages = self._stages or []
        if not all(registry.is_finished(t) for tasks in stages[: self._stage + 1] for t in tasks):
            self._finished_at = None
            return False
        if self._finished_at is None:
            self._finished_at = now
        return registry.drained(self._shared.book.wanted, self._finished_at)
