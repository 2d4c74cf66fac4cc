"""SeededSource, whose tuples are determined by a seed, and VerifiedSink, which records every arrival.

    EFFECTIVELY_ONCE  The source's positions are state. After a restore, the source continues from the checkpoint.
    ATLEAST_ONCE      The source emits failed tuples again. A new process starts at the first unacked tuple.
    ATMOST_ONCE       A new process continues after the last emitted tuple.

The source keeps its positions in partitioned state, so its input is the same with any parallelism.

In every mode the sink appends each tuple to a trace that is never rolled back. In effectively-once mode it also counts
per key in keyed state, and writes its rows in transactions. Rows are appended to an open segment, which `pre_save`
closes as pending and `post_save` commits. `pre_restore` commits the rows up to the checkpoint and drops all later rows,
so the committed rows are exact after any fault.
"""

from __future__ import annotations

import re
import time
import zlib
from collections import deque
from dataclasses import asdict
from pathlib import Path
from typing import Any

from heronpy.api.api_constants import TOPOLOGY_RELIABILITY_MODE
from heronpy.api.bolt.bolt import Bolt
from heronpy.api.spout.spout import Spout
from heronpy.api.state.state import HashMapState
from heronpy.api.state.stateful_component import StatefulComponent, refuse_old_state
from heronpy.api.state.two_phase import TwoPhaseStatefulComponent
from heronpy.api.topology_context import TopologyContext
from heronpy.common.folders import make_folders
from heronpy.verify import records
from heronpy.verify.stream import KEY, Partition, spec_of

#: Seconds between two checks for the end of an input without a count and for the partitions of a task.
ENDLESS, LOOK_S = 1 << 62, 0.1
#: Name of the partitioned state: partition of this log -> next sequence number.
POSITIONS, LOG = "positions", "input"
#: Name of the keyed state: key -> (tuples, sum of checksums).
STATE = "totals"
#: Index of the payload in the values.
_PAYLOAD = 3
_ROWS = re.compile(r"(\d+)-(\d+)\.(pending|committed)")


class Undecodable:
    """A payload that can be sent, but not decoded."""

    def __reduce__(self) -> tuple[Any, ...]:
        return int, ("the verification made this value undecodable",)


class _Reader:
    """One partition: its position, and its unacked tuples."""

    def __init__(self, partition: Partition, progress: records.Progress, position: int) -> None:
        self.partition = partition
        self.progress = progress
        self.next = position
        #: Sequence number below which all tuples are acked, and the acked tuples above it.
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
        """Return when the next tuple is due. The schedule depends only on the rate, not on the spout's delay."""
        return float(self.progress.started + self.next / rate)


class SeededSource(Spout, StatefulComponent):
    """Emits (partition, seq, key, payload, crc, emission).

    `emission` combines the process that emitted the tuple and how often the tuple was emitted before:
    two records with the same emission are a duplicate that the product has caused.
    """

    outputs = ["partition", "seq", "key", "payload", "crc", "emission"]

    def init_state(self, state: HashMapState) -> None:
        refuse_old_state(state, "this source")

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
        self.count = spec.count or records.read_end(out) or ENDLESS
        self.next_look = 0.0
        self.epoch = records.incarnation(out, task)
        if task == tasks[0]:
            records.write_atomically(out / "spec.json", {**asdict(spec), "mode": self.mode})
        self.positions = context.partitioned_state(POSITIONS)
        self.readers: dict[int, _Reader] = {}
        self.again: deque[tuple[int, int]] = deque()
        self.attempts: dict[tuple[int, int], int] = {}
        self.pending = 0
        self._divide()
        positions = {number: reader.next for number, reader in self.readers.items()}
        self.logger.info("incarnation %d of this source begins at %s", self.epoch, positions)

    def _divide(self) -> None:
        """Open the partitions that currently belong to this task, and close all others."""
        own = self.positions.own(LOG, self.input.partitions)
        for number in [number for number in self.readers if number not in own]:
            self.readers.pop(number).progress.close()
        for number in [number for number in own if number not in self.readers]:
            progress = records.Progress(records.progress_path(self.out, number), self.epoch)
            self.readers[number] = _Reader(Partition(self.input, number), progress, self._position(number, progress))
        self.turn = deque(self.readers.values())

    def _position(self, number: int, progress: records.Progress) -> int:
        if self.rewound:
            return int(self.positions.get((LOG, number), 0))
        return int(progress.acked if self.tracked else progress.next)

    def pre_save(self, checkpoint_id: str) -> None:
        for number, reader in self.readers.items():
            self.positions[LOG, number] = reader.next

    def backlog(self) -> int | None:
        """Return the number of due but unemitted tuples; None for an endless input without a rate."""
        if self.count == ENDLESS and not self.rate:
            return None
        now, found = time.monotonic(), 0
        for reader in self.readers.values():
            due = int((now - reader.progress.started) * self.rate) if self.rate else self.count
            found += max(0, min(due, self.count) - reader.next)
        return found

    def next_tuple(self) -> None:
        if self.again:
            self._replay()
            return
        if time.monotonic() >= self.next_look:
            self.next_look = time.monotonic() + LOOK_S
            self._look()
        for _ in range(len(self.turn)):
            reader = self.turn[0]
            self.turn.rotate(-1)
            if reader.next < self.count and (not self.rate or time.monotonic() >= reader.due_s(self.rate)):
                self._emit_next(reader)
                return
        if not self.pending and self.count != ENDLESS and all(r.next >= self.count for r in self.readers.values()):
            self.end_of_input()

    def _look(self) -> None:
        """Check whether an input without a count has ended, and whether the task's partitions have changed."""
        if self.count == ENDLESS:
            self.count = records.read_end(self.out) or ENDLESS
            if self.count != ENDLESS:
                # The checks below only ensure that no source has passed the end.
                self.rate = 0.0
        if self.readers.keys() != set(self.positions.own(LOG, self.input.partitions)):
            self._divide()

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
        attempt = min(self.attempts.get(tup_id, 0) + 1, records.ATTEMPT_MAX)
        self.attempts[tup_id] = attempt
        reader = self.readers.get(number)
        if reader is None:
            self.pending -= 1  # the new task of its partition emits it
            return
        reader.progress.note_replay()
        self.emit(self._values(reader, seq, attempt), tup_id=tup_id)

    def _values(self, reader: _Reader, seq: int, attempt: int) -> list[Any]:
        values: list[Any] = [*reader.partition.tuple(seq), self._emission(seq, attempt)]
        if self.input.undecodable and self.input.poisoned(seq):
            values[_PAYLOAD] = Undecodable()
        return values

    def _emission(self, seq: int, attempt: int) -> int:
        """Return emitting process and number of earlier emissions as one number; 0 for an unchanged repetition.

        A tuple is repeated unchanged after a rewind, if tuples are equal, and if it is poison. The failures of a poison
        tuple can be counted only if the tuple is recognised.
        """
        if self.rewound or self.input.distinct or self.input.poisoned(seq):
            return 0
        return self.epoch << records.ATTEMPT_BITS | attempt

    def ack(self, tup_id: Any) -> None:
        if self.tracked:
            self.pending -= 1
            self.attempts.pop(tup_id, None)
            if tup_id[0] in self.readers:
                self.readers[tup_id[0]].ack(tup_id[1])

    def fail(self, tup_id: Any) -> None:
        self.again.append(tup_id)

    def close(self) -> None:
        for reader in self.readers.values():
            reader.progress.close()


class Transaction:
    """Rows of one sink task between two checkpoints.

    Invariant: a file `<task>-<checkpoint>.committed` holds rows of a complete checkpoint only.
    """

    def __init__(self, folder: Path, task: int, epoch: int) -> None:
        make_folders(folder)
        self._folder = folder
        self._task = task
        self._epoch = epoch
        self._number = 0
        self._open: records.Segment | None = None

    def append(self, row: bytes) -> None:
        if self._open is None:
            self._number += 1
            self._open = records.Segment(self._folder / f"{self._task}-{self._epoch}-{self._number}.open")
        self._open.append(row)

    def prepare(self, checkpoint: int) -> None:
        """Assign all rows since the last checkpoint to this checkpoint."""
        if self._open is not None:
            self._open.sync()
            self._open.close()
            self._open.path.rename(self._folder / f"{self._task}-{checkpoint}.pending")
            self._open = None

    def commit(self, checkpoint: int) -> None:
        """Publish the rows up to this checkpoint. Idempotent, because committed rows have another name."""
        for path, number, state in self._files():
            if state == "pending" and number <= checkpoint:
                path.rename(path.with_suffix(".committed"))

    def rewind(self, checkpoint: int) -> None:
        """Keep only the rows up to this checkpoint; a restore may undo later commits."""
        self.commit(checkpoint)
        for path, number, _ in self._files():
            if number > checkpoint:
                path.unlink()
        for path in self._folder.glob(f"{self._task}-*.open"):
            path.unlink()

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None

    def _files(self) -> list[tuple[Path, int, str]]:
        named = ((path, _ROWS.fullmatch(path.name)) for path in sorted(self._folder.glob(f"{self._task}-*")))
        return [(path, int(name[2]), name[3]) for path, name in named if name is not None]


class VerifiedSink(Bolt, TwoPhaseStatefulComponent):
    """Receives the six values of a SeededSource, and records each arrival."""

    _transaction: Transaction | None = None
    _restored: int | None = None

    def init_state(self, state: Any) -> None:
        """Do nothing, because all state is keyed state."""

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        values = config[KEY]
        spec_of(values)
        self.out = Path(values["out"])
        self.task = context.get_task_id()
        self.mode = config.get(TOPOLOGY_RELIABILITY_MODE, "ATMOST_ONCE")
        self.epoch = records.incarnation(self.out, self.task)
        self.trace = records.Segment(self.out / records.TRACE / f"{self.task}-{self.epoch:06d}.seg")
        self.totals: Any = {}
        if self.mode == "EFFECTIVELY_ONCE":
            self.totals = context.keyed_state(STATE)
            self._transaction = Transaction(self.out / records.ROWS, self.task, self.epoch)
            if self._restored is not None:
                self._transaction.rewind(self._restored)
        self.logger.info("incarnation %d of this sink begins", self.epoch)

    def process(self, tup: Any) -> None:
        partition, seq, key, payload, _crc, emission = tup.values
        arrived = zlib.crc32(payload)
        source, attempt = emission >> records.ATTEMPT_BITS, emission & records.ATTEMPT_MAX
        # A payload that does not match its checksum is recorded unchanged: the verifier recomputes the checksum.
        row = records.RECORD.pack(seq, time.monotonic(), partition, arrived, source, attempt, self.task, self.epoch)
        self.trace.append(row)
        if self._transaction is not None:
            self._transaction.append(row)
        count, total = self.totals.get(key, (0, 0))
        self.totals[key] = (count + 1, total + arrived)
        self.ack(tup)

    def pre_save(self, checkpoint_id: str) -> None:
        if self._transaction is not None:
            self._transaction.prepare(int(checkpoint_id))

    def post_save(self, checkpoint_id: str) -> None:
        if self._transaction is not None:
            self._transaction.commit(int(checkpoint_id))

    def pre_restore(self, checkpoint_id: str) -> None:
        # Keep the checkpoint, because only `initialize`, which is called later, gets the folder of the rows.
        self._restored = int(checkpoint_id)

    def finish(self) -> None:
        totals = dict(self.totals.items())
        content = {"task": self.task, "epoch": self.epoch, "mode": self.mode, "totals": totals}
        records.write_atomically(self.out / records.TOTALS / f"{self.task}.json", content)

    def close(self) -> None:
        self.trace.close()
        if self._transaction is not None:
            self._transaction.close()
