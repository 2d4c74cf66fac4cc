"""Creates and keeps the tasks of one simulation."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, Self

from heronpy.api.batch import Batch
from heronpy.api.bolt.bolt import takes_batches
from heronpy.api.component.component_spec import check_coroutines
from heronpy.common.errors import TopologyError
from heronpy.plan.emit_rules import declared
from heronpy.proto import components_of
from heronpy.simulator.async_tasks import AsyncBoltTask, AsyncSpoutTask
from heronpy.simulator.shared import QUEUED_MAX, Shared
from heronpy.simulator.tasks import BoltTask, SimTask, SpoutTask
from heronpy.simulator.tuples import Delivery, SimulatedTuple


class SimulatedBatch(Batch):
    """A batch given to `process_batch`; see `Batch`."""

    __slots__ = ("_made",)

    def __init__(
        self,
        fields: Sequence[str],
        tuples: list[SimulatedTuple],
        flat: list[Any] | None,
        of: tuple[Batch, list[int]] | None = None,
    ) -> None:
        # Only a part selected by user code can be empty.
        component, stream, task = (tuples[0].component, tuples[0].stream, tuples[0].task) if tuples else ("", "", 0)
        super().__init__(component, stream, task, fields, flat, len(tuples), of)
        self._made = tuples

    def _tuples(self) -> list[SimulatedTuple]:
        return self._made

    def _part(self, places: list[int]) -> Self:
        return type(self)(self.fields, [self._made[place] for place in places], None, (self, places))


class BatchBoltTask(BoltTask):
    """Processes batches: the tuples of one task and stream at the head of its queue, up to a full frame."""

    def step(self) -> None:
        if self.is_tick_due(self.world.clock.now):
            self.step_tick()
            return
        queue, first = self.queue, self.queue[0]
        tuples = [self._take()]
        while queue and len(tuples) < self.settings.batch_tuples:
            if (queue[0].source_task, queue[0].stream) != (first.source_task, first.stream):
                break
            tuples.append(self._take())
        stream = self.world.plan.streams[first.component, first.stream]
        flat = list(chain.from_iterable(tup.values for tup in tuples)) if stream.fields else [None] * len(tuples)
        batch = SimulatedBatch(stream.fields, tuples, flat)
        if stream.schema:
            batch.schema = declared(stream.schema)
        self.call("process_batch", self.user.process_batch, batch)
        for tup in tuples:
            self._executed(tup)


class World(Shared):
    """The tasks of a simulation, and their shared parts."""

    def __init__(self, topology: Any, seed: int, records_limit: int, collects: bool = False) -> None:
        super().__init__(topology, seed, records_limit, collects)
        self._messages = components_of(topology)
        self.tasks: dict[int, SimTask] = {}

    @property
    def spouts(self) -> list[SpoutTask]:
        return [task for task in self.tasks.values() if isinstance(task, SpoutTask)]

    @property
    def bolts(self) -> list[BoltTask]:
        return [task for task in self.tasks.values() if isinstance(task, BoltTask)]

    def tasks_named(self, component: str) -> list[SimTask]:
        """Return the tasks of a component by index. Raises TopologyError for an unknown name."""
        self.plan.component(component)
        return [self.tasks[task_id] for task_id in self.tasks_of[component]]

    def task_at(self, component: str, index: int) -> SimTask:
        """Return one task of a component. Raises TopologyError for an unknown name or index."""
        tasks = self.tasks_named(component)
        if not 0 <= index < len(tasks):
            raise TopologyError(f"component {component!r} has no task {index}; it has {len(tasks)}, counted from 0")
        return tasks[index]

    def make_task(self, task_id: int) -> SimTask:
        """Replace the task with this id by a new task with a newly constructed user object."""
        component = self.component_of[task_id]
        message = self._messages[component]
        index = self.tasks_of[component].index(task_id)
        cls, is_spout = self.class_of(message), self.plan.component(component).is_spout
        check_coroutines(cls, is_spout)
        is_async = getattr(cls, "is_async", False)
        kind: type[SimTask] = AsyncSpoutTask if is_async else SpoutTask
        if not is_spout:
            kind = AsyncBoltTask if is_async else BoltTask
            if takes_batches(cls):
                kind = BatchBoltTask
        task = self.tasks[task_id] = kind(self, message, task_id, index)
        return task

    def drop_task(self, task_id: int) -> None:
        """Drop a task with its object and queue, as if its process had died."""
        task = self.tasks[task_id]
        if isinstance(task, BoltTask):
            self.queued -= len(task.queue)
        if isinstance(task, AsyncBoltTask | AsyncSpoutTask):
            task.loop.end()
        if isinstance(task, SpoutTask):
            self.tracker.forget_owner(task_id)

    def deliver(self, task_id: int, delivery: Delivery) -> None:
        task = self.tasks[task_id]
        assert isinstance(task, BoltTask)
        if self.drops is not None and not self.drops.keeps(task_id, (len(task.queue) + 1) / QUEUED_MAX):
            self.dropped[task.component] += 1
            return
        task.queue.append(delivery)
        self.queued += 1
