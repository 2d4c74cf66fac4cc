"""SeededSource: a spout whose tuples follow from a seed, and that can be rewound to any of them.

    EFFECTIVELY_ONCE  its position is state: after a restore it continues from the checkpoint.
    ATLEAST_ONCE      it emits failed tuples again; a new process starts at the first unacked tuple.
    ATMOST_ONCE       a new process continues after the last emitted tuple.

Partition p is emitted by task number p modulo the number of tasks, so any parallelism emits the same input.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import asdict
from pathlib import Path
from typing import Any

from heronpy.api.api_constants import TOPOLOGY_RELIABILITY_MODE
from heronpy.api.spout.spout import Spout
from heronpy.api.state.stateful_component import StatefulComponent
from heronpy.api.topology_context import TopologyContext
from heronpy.verify.records import (
    ATTEMPT_BITS,
    ATTEMPT_MAX,
    Progress,
    incarnation,
    progress_path,
    read_end,
    write_atomically,
)
from heronpy.verify.stream import KEY, Partition, spec_of

#: Interval of checks for the end of an input without a count.
ENDLESS, LOOK_S = 1 << 62, 0.1
#: Key of the state: partition -> next sequence number.
POSITIONS = "positions"


#: Index of the payload in the values.
_PAYLOAD = 3


class Undecodable:
    """A payload that can be sent, but not decoded."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _refuse, ()


def _refuse() -> None:
    raise ValueError("this value was made so that it cannot be decoded")


class _Reader:
    """One partition: its position, and its unacked tuples."""

    def __init__(self, partition: Partition, progress: Progress, position: int) -> None:
        self.partition = partition
        self.progress = progress
        self.next = position
        #: All below are acked; above it, those acked already.
        self.acked = position
        self.acked_above: set[int] = set()

    def ack(self, seq: int) -> None:
        above = self.acked_above
        above.add(seq)
        if seq == self.acked:
            while self.acked in above:
                above.discard(self.acked)
                self.acked += 1
            self.progress.note_acked(self.acked)

    def due_s(self, rate: float) -> float:
        """When the next tuple is due: the schedule does not wait."""
        return float(self.progress.started + self.next / rate)


class SeededSource(Spout, StatefulComponent):
    """Emits (partition, seq, key, payload, crc, emission).

    `emission` identifies the process of the source that emitted the tuple and the number of earlier
    emissions: two records of one emission are a duplicate that the source did not cause.
    """

    outputs = ["partition", "seq", "key", "payload", "crc", "emission"]
    _state: Any = None

    def init_state(self, state: Any) -> None:
        self._state = state

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        values = config[KEY]
        spec = spec_of(values)
        out = self.out = Path(values["out"])
        task = context.get_task_id()
        tasks = sorted(context.get_component_tasks(context.get_component_id()) or ())
        self.mode = config.get(TOPOLOGY_RELIABILITY_MODE, "ATMOST_ONCE")
        self.tracked = self.mode == "ATLEAST_ONCE"
        self.rewound = self.mode == "EFFECTIVELY_ONCE"
        self.input = spec
        self.rate = spec.rate
        self.count = spec.count or read_end(out) or ENDLESS
        self.next_look = 0.0
        self.epoch = incarnation(out, task)
        if task == tasks[0]:
            write_atomically(out / "spec.json", {**asdict(spec), "mode": self.mode})
        self.readers: dict[int, _Reader] = {}
        for number in range(tasks.index(task), spec.partitions, len(tasks)):
            progress = Progress(progress_path(out, number), self.epoch)
            self.readers[number] = _Reader(Partition(spec, number), progress, self._position(number, progress))
        self.turn = deque(self.readers.values())
        self.again: deque[tuple[int, int]] = deque()
        self.attempts: dict[tuple[int, int], int] = {}
        self.pending = 0
        self.logger.info(
            "process %d of this source begins at %s", self.epoch, {n: r.next for n, r in self.readers.items()}
        )

    def _position(self, number: int, progress: Progress) -> int:
        if self.rewound:
            positions: dict[int, int] = self._state.get(POSITIONS, {}) if self._state is not None else {}
            return int(positions.get(number, 0))
        return int(progress.acked if self.tracked else progress.next)

    def pre_save(self, checkpoint_id: str) -> None:
        if self._state is not None:
            self._state.put(POSITIONS, {number: reader.next for number, reader in self.readers.items()})

    def next_tuple(self) -> None:
        if self.again:
            self._replay()
            return
        if self.count == ENDLESS and time.monotonic() >= self.next_look:
            self.next_look = time.monotonic() + LOOK_S
            self.count = read_end(self.out) or ENDLESS
            if self.count != ENDLESS:
                # The rest only ensures that no source can have passed the end.
                self.rate = 0.0
        for _ in range(len(self.turn)):
            reader = self.turn[0]
            self.turn.rotate(-1)
            if reader.next < self.count and (not self.rate or time.monotonic() >= reader.due_s(self.rate)):
                self._emit_next(reader)
                return
        if not self.pending and self.count != ENDLESS and all(r.next >= self.count for r in self.readers.values()):
            self.end_of_input()

    def _emit_next(self, reader: _Reader) -> None:
        seq = reader.next
        reader.next = seq + 1
        reader.progress.note_next(seq + 1)
        values = self._values(reader, seq, 0)
        if self.tracked:
            self.pending += 1
            self.emit(values, tup_id=(reader.partition.number, seq))
        else:
            self.emit(values)

    def _replay(self) -> None:
        number, seq = tup_id = self.again.popleft()
        attempt = min(self.attempts.get(tup_id, 0) + 1, ATTEMPT_MAX)
        self.attempts[tup_id] = attempt
        reader = self.readers[number]
        reader.progress.note_replay()
        self.emit(self._values(reader, seq, attempt), tup_id=tup_id)

    def _values(self, reader: _Reader, seq: int, attempt: int) -> list[Any]:
        values: list[Any] = [*reader.partition.tuple(seq), self._emission(seq, attempt)]
        if self.input.undecodable and self.input.poisoned(seq):
            values[_PAYLOAD] = Undecodable()
        return values

    def _emission(self, seq: int, attempt: int) -> int:
        """The emitting process and the number of earlier emissions; 0 if the same tuple must come again unchanged.

        That is so after a rewind, for equal tuples, and for poison: the count of a tuple's failures
        depends on recognising it.
        """
        if self.rewound or self.input.distinct or self.input.poisoned(seq):
            return 0
        return self.epoch << ATTEMPT_BITS | attempt

    def ack(self, tup_id: Any) -> None:
        if self.tracked:
            self.pending -= 1
            self.attempts.pop(tup_id, None)
            self.readers[tup_id[0]].ack(tup_id[1])

    def fail(self, tup_id: Any) -> None:
        self.again.append(tup_id)

    def close(self) -> None:
        for reader in self.readers.values():
            reader.progress.close()
