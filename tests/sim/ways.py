"""Other ways in which user code does what that of workload.py does, so that each way of the API is under fire."""

from __future__ import annotations

import asyncio
import os
import random
from typing import Any

from heronpy.api import api_constants
from heronpy.api.spout.async_spout import AsyncSpout
from heronpy.api.spout.spout import Spout
from tests.sim.kernel import current_process
from tests.sim.modules import Os
from tests.sim.workload import Count, Counting, Records, Relay, Relaying, Sink, Sinking, Source

#: Tuples that a bolt holds at most before it acks them, and how long.
HELD_MAX, HELD_MS = 7, 100
#: Records of one emit_batch.
ROWS_MAX = 5


class WaitingSource(Source):
    """Says when it wants to be called again."""

    def next_tuple(self) -> None:
        super().next_tuple()
        if self.next_due() is None and not self.over:
            self.wait(self.wait_s())


class BusySource(Source):
    """Says now and then that it has worked without emitting."""

    def next_tuple(self) -> None:
        super().next_tuple()
        if self.next_due() is None and current_process().rng.random() < 0.05:
            self.busy()


class ReadableSource(Source):
    """Waits for a descriptor that can be read when its next record is due."""

    _pipe: tuple[int, int] | None = None

    def next_tuple(self) -> None:
        if self._pipe is None:
            self._pipe = Os.pipe2(os.O_NONBLOCK)
        try:
            Os.read(self._pipe[0], 1000)
        except BlockingIOError:
            pass
        super().next_tuple()
        if self.next_due() is None and not self.over:
            process, fd = current_process(), self._pipe[1]
            process.later(self.wait_s(), Os.write, fd, b"!")
            # Not by the method of Spout, which asks the real system whether that is a descriptor.
            self.delegate.wait_readable(self._pipe[0])


class BatchSource(Records, Spout):
    """Emits a few records at once."""

    def next_tuple(self) -> None:
        self.take_time()
        seqs: list[int] = []
        while len(seqs) < ROWS_MAX and (seq := self.next_due()) is not None:
            self.went(seq)
            seqs.append(seq)
        if seqs:
            ids = [self.id_of(seq) for seq in seqs]
            columns = [list(values) for values in zip(*map(self.row, seqs), strict=True)]
            self.emit_batch(columns, ids=ids if self.id_of(0) is not None else None)
        elif self.over:
            self.end_of_input()


class AsyncSource(Records, AsyncSpout):
    async def run(self) -> None:
        while not self.over:
            seq = self.next_due()
            if seq is None:
                await asyncio.sleep(self.wait_s())
                continue
            self.take_time()
            await self.emit(self.row(seq), tup_id=self.id_of(seq))
            self.went(seq)


class Late:
    """Acks several tuples at once, in another order than they came."""

    _held: tuple[Any, ...] = ()

    def process(self, tup: Any) -> None:
        made = self.one(tup.values)  # type: ignore[attr-defined]
        if made is not None:
            self.emit(made, anchors=[tup])  # type: ignore[attr-defined]
        self._held += (tup,)
        if len(self._held) >= HELD_MAX:
            self._let_go()

    def process_tick(self, tup: Any) -> None:
        self._let_go()

    def _let_go(self) -> None:
        held, self._held = list(self._held), ()
        current_process().rng.shuffle(held)
        self.ack(held)  # type: ignore[attr-defined]


class Batches:
    """Takes the tuples of a frame at once."""

    def process_batch(self, batch: Any) -> None:
        made = [self.one(values) for values in batch.rows()]  # type: ignore[attr-defined]
        if made[0] is not None:
            columns = [list(values) for values in zip(*made, strict=True)]
            self.emit_batch(columns, anchors=batch)  # type: ignore[attr-defined]
        self.ack(batch)  # type: ignore[attr-defined]


class LateRelay(Late, Relaying):
    """See above."""


class BatchRelay(Batches, Relaying):
    """See above."""


class LateCount(Late, Counting):
    """See above."""


class BatchCount(Batches, Counting):
    """See above."""


class LateSink(Late, Sinking):
    """See above."""


class BatchSink(Batches, Sinking):
    """See above."""


SOURCES = (Source, WaitingSource, BusySource, ReadableSource, BatchSource, AsyncSource)
RELAYS, COUNTS, SINKS = (Relay, LateRelay, BatchRelay), (Count, LateCount, BatchCount), (Sink, LateSink, BatchSink)


def draw_users(rng: random.Random) -> tuple[Any, ...]:
    """Classes of source, relay, count and sink."""
    return tuple(rng.choice(classes) for classes in (SOURCES, RELAYS, COUNTS, SINKS))


def draw_batching(rng: random.Random) -> dict[str, Any]:
    """How long tuples wait for company, and ticks for those that hold some back."""
    found: dict[str, Any] = {api_constants.TOPOLOGY_TICK_TUPLE_FREQ_MS: HELD_MS}
    found["heron.instance.profile"] = rng.choice(("balanced", "balanced", "latency", "thrift"))
    if rng.random() < 0.5:
        found["heron.instance.linger_max_us"] = rng.choice((0.0, 200.0, 1000.0, 20_000.0))
    return found
