"""Chooses the task that takes the next step, and advances the clock. Pure.

A step takes `step_s` of virtual time. The seeded generator chooses among the tasks that can take a
step; if no task can, the clock jumps to the next due event. So the same topology and seed give the
same run.
"""

from __future__ import annotations

from enum import Enum

from heronpy.simulator.async_tasks import AsyncBoltTask
from heronpy.simulator.clock import real_monotonic, real_sleep
from heronpy.simulator.errors import SimulationError
from heronpy.simulator.tasks import SimTask, SpoutTask
from heronpy.simulator.tuples import Injection
from heronpy.simulator.world import World

# Seconds of real time for which coroutines may wait for external events.
_OUTSIDE_MAX_S = 30.0
_OUTSIDE_GRACE_S = 0.05
_OUTSIDE_POLL_S = 0.001
# The owner of injected tuples in the tracker: no task has this id.
INJECTOR = 0


class Reason(Enum):
    """The reason why a run ended."""

    FINISHED = "finished"
    IDLE = "idle"
    SECONDS = "seconds"
    MAX_STEPS = "max_steps"
    STALLED = "stalled"


class StepScheduler:
    """Runs a world step by step, and ends its input component by component."""

    def __init__(self, world: World, step_s: float) -> None:
        self._world = world
        self._step_s = step_s
        self._unfinished: list[str] | None = None
        # Spouts whose external event did not occur in time and may never occur.
        self._in_vain: set[int] = set()
        self.steps = 0
        self.is_finished = False

    def run(self, until: float | None, until_idle: bool, max_steps: int) -> Reason:
        """Take steps until a limit is reached or no work is left."""
        world = self._world
        limit = self.steps + max_steps
        self._in_vain.clear()
        while True:
            self._settle()
            if until is not None and world.clock.now >= until:
                self._work_off(limit)
                return Reason.SECONDS
            now = world.clock.now
            runnable = [task for task in world.tasks.values() if task.is_runnable(now)]
            if runnable:
                if self.steps >= limit:
                    return Reason.MAX_STEPS
                self._step(world.rng.choice(runnable))
            elif self._await_outside():
                continue
            elif (reason := self._rest(until, until_idle)) is not None:
                return reason

    def finish(self) -> None:
        """End the input, even if the spouts have not declared its end."""
        if self._unfinished is None and not self.is_finished:
            order = self._world.plan.topological_order()
            self._unfinished = [name for name in order if name in self._world.plan.bolts()]

    def reopen(self) -> None:
        """Reopen the input, because tasks have gone back to a checkpoint taken before the input ended."""
        self._unfinished, self.is_finished = None, False

    def _step(self, task: SimTask) -> None:
        self.steps += 1
        task.step()
        clock = self._world.clock
        clock.advance_to(clock.now + self._step_s)

    def _settle(self) -> None:
        """Time out old trees, and notify the owners of all ended trees."""
        world = self._world
        world.tracker.expire(world.clock.now)
        owners = {spout.task_id: spout for spout in world.spouts}
        for tree, outcome in world.tracker.take_ended():
            if isinstance(tree.tup_id, Injection) and tree.owner == INJECTOR:
                tree.tup_id.state = outcome.value
            elif tree.owner in owners:
                owners[tree.owner].end(tree, outcome)

    def _rest(self, until: float | None, until_idle: bool) -> Reason | None:
        """End the input, end the run or advance the clock, because no task can run now."""
        if self._is_drained():
            if self.is_finished:
                return Reason.FINISHED
            if self._unfinished is None and all(s.is_exhausted for s in self._world.spouts):
                self.finish()
            if self._unfinished is not None:
                self._finish_next()
                return None
            if until is None and until_idle and all(s.is_silent() for s in self._world.spouts):
                return Reason.IDLE
        following = self._next_event()
        if following is None:
            if until is None:
                return Reason.STALLED
            following = until
        clock = self._world.clock
        clock.advance_to(following if until is None else min(following, until))
        return None

    def _is_drained(self) -> bool:
        """Return whether no tuple is queued and no tracked tuple is pending."""
        world = self._world
        if any(bolt.is_busy() for bolt in world.bolts):
            return False
        return not any(spout.is_busy() or world.tracker.pending(spout.task_id) for spout in world.spouts)

    def _finish_next(self) -> None:
        assert self._unfinished is not None
        if not self._unfinished:
            self._unfinished = None
            self.is_finished = True
            return
        for task in self._world.tasks_named(self._unfinished.pop(0)):
            task.finish()  # type: ignore[attr-defined]

    def _next_event(self) -> float | None:
        world = self._world
        now = world.clock.now
        times = [task.wake_time(now) for task in world.tasks.values()]
        times += [bolt.tick_at for bolt in world.bolts]
        times.append(world.tracker.next_deadline())
        return min((when for when in times if when is not None), default=None)

    def _work_off(self, limit: int) -> None:
        """At the end of a run, process due ticks and all tuples queued in bolts.

        Afterwards the results of the last window have arrived, and bolts have executed every emitted tuple.
        """
        world = self._world
        now = world.clock.now
        while self.steps < limit:
            runnable = [bolt for bolt in world.bolts if bolt.is_runnable(now)]
            if not runnable:
                break
            self.steps += 1
            world.rng.choice(runnable).step()
        self._settle()

    def _await_outside(self) -> bool:
        """Wait in real time until an external event occurs for which a coroutine or a descriptor is waiting."""
        waiting = self._waiting_for_outside()
        if not waiting:
            return False
        # A busy task ends, or is woken by a tick or another tuple, but a source may be silent forever.
        bound = [task for task in waiting if task.is_busy()]
        patience_s = _OUTSIDE_MAX_S if bound and self._next_event() is None else _OUTSIDE_GRACE_S
        deadline = real_monotonic() + patience_s
        while real_monotonic() < deadline:
            real_sleep(_OUTSIDE_POLL_S)
            for task in waiting:
                task.poll()
            if self._waiting_for_outside() != waiting:
                return True
        self._in_vain.update(task.task_id for task in waiting if not task.is_busy())
        if not bound or self._next_event() is not None:
            return False
        raise SimulationError(
            f"{bound[0].name} has awaited something outside the simulation for "
            f"{_OUTSIDE_MAX_S:.0f} seconds; replace the awaited object with a fake in the test",
            bound[0].name,
        )

    def _waiting_for_outside(self) -> list[AsyncBoltTask | SpoutTask]:
        world = self._world
        tasks: list[AsyncBoltTask | SpoutTask] = [spout for spout in world.spouts if spout.task_id not in self._in_vain]
        tasks += [bolt for bolt in world.bolts if isinstance(bolt, AsyncBoltTask)]
        return [task for task in tasks if task.waits_for_outside()]
