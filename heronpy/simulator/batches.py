"""A simulated task of a bolt with `process_batch`: tuples queued from one task on one stream are one call."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, Self

from heronpy.api.batch import Batch
from heronpy.plan.arrow_columns import declared
from heronpy.simulator.tasks import BoltTask
from heronpy.simulator.tuples import SimulatedTuple


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
        # Only a part that the user took can be empty.
        component, stream, task = (tuples[0].component, tuples[0].stream, tuples[0].task) if tuples else ("", "", 0)
        super().__init__(component, stream, task, fields, flat, len(tuples), of)
        self._made = tuples

    def _tuples(self) -> list[SimulatedTuple]:
        return self._made

    def _part(self, places: list[int]) -> Self:
        return type(self)(self.fields, [self._made[place] for place in places], None, (self, places))


class BatchBoltTask(BoltTask):
    """Takes the tuples of one task and stream at the head of its queue, up to a full frame."""

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
