"""VerifiedSink: a bolt that keeps a record of everything that arrives, for the verifier.

In every mode each tuple is appended to a trace that is never rolled back. In EFFECTIVELY_ONCE the sink also
counts per key in keyed state, and writes its rows in transactions: rows go to an open segment, which
`pre_save` closes as pending and `post_save` commits; `pre_restore` commits what belongs to the checkpoint
and drops everything later, so the committed rows are exact whatever happened.
"""

from __future__ import annotations

import re
import time
import zlib
from pathlib import Path
from typing import Any

from heronpy.api.api_constants import TOPOLOGY_RELIABILITY_MODE
from heronpy.api.bolt.bolt import Bolt
from heronpy.api.state.two_phase import TwoPhaseStatefulComponent
from heronpy.api.topology_context import TopologyContext
from heronpy.common.folders import make_folders
from heronpy.verify.records import (
    ATTEMPT_BITS,
    ATTEMPT_MAX,
    RECORD,
    ROWS,
    TOTALS,
    TRACE,
    Segment,
    incarnation,
    write_atomically,
)
from heronpy.verify.stream import KEY, spec_of

#: Name of the keyed state: key -> (tuples, sum of checksums).
STATE = "totals"
_ROWS = re.compile(r"(\d+)-(\d+)\.(pending|committed)")


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
        self._open: Segment | None = None

    def append(self, row: bytes) -> None:
        if self._open is None:
            self._number += 1
            self._open = Segment(self._folder / f"{self._task}-{self._epoch}-{self._number}.open")
        self._open.append(row)

    def prepare(self, checkpoint: int) -> None:
        """Assign everything appended so far to this checkpoint."""
        if self._open is not None:
            self._open.sync()
            self._open.close()
            self._open.path.rename(self._folder / f"{self._task}-{checkpoint}.pending")
            self._open = None

    def commit(self, checkpoint: int) -> None:
        """Idempotent: committed rows have another name."""
        for path, number, state in self._files():
            if state == "pending" and number <= checkpoint:
                path.rename(path.with_suffix(".committed"))

    def rewind(self, checkpoint: int) -> None:
        """Keep only the rows of this checkpoint; a restore may undo later commits."""
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
        found = []
        for path in sorted(self._folder.glob(f"{self._task}-*")):
            name = _ROWS.fullmatch(path.name)
            if name is not None:
                found.append((path, int(name[2]), name[3]))
        return found


class VerifiedSink(Bolt, TwoPhaseStatefulComponent):
    """Takes the six values of a SeededSource and records what arrived."""

    _transaction: Transaction | None = None
    _restored: int | None = None

    def init_state(self, state: Any) -> None:
        """All state is keyed state; there is no other."""

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        values = config[KEY]
        spec_of(values)
        self.out = Path(values["out"])
        self.task = context.get_task_id()
        self.mode = config.get(TOPOLOGY_RELIABILITY_MODE, "ATMOST_ONCE")
        self.epoch = incarnation(self.out, self.task)
        self.trace = Segment(self.out / TRACE / f"{self.task}-{self.epoch:06d}.seg")
        self.totals: Any = {}
        if self.mode == "EFFECTIVELY_ONCE":
            self.totals = context.keyed_state(STATE)
            self._transaction = Transaction(self.out / ROWS, self.task, self.epoch)
            if self._restored is not None:
                self._transaction.rewind(self._restored)
        self.logger.info("process %d of this sink begins", self.epoch)

    def process(self, tup: Any) -> None:
        partition, seq, key, payload, _crc, emission = tup.values
        arrived = zlib.crc32(payload)
        source, attempt = emission >> ATTEMPT_BITS, emission & ATTEMPT_MAX
        # A payload that does not match its checksum is recorded as it is: the verifier knows the right one.
        row = RECORD.pack(seq, time.monotonic(), partition, arrived, source, attempt, self.task, self.epoch)
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
        # Comes before `initialize`, which knows where the rows are.
        self._restored = int(checkpoint_id)

    def finish(self) -> None:
        content = {"task": self.task, "epoch": self.epoch, "mode": self.mode}
        write_atomically(self.out / TOTALS / f"{self.task}.json", {**content, "totals": dict(self.totals.items())})

    def close(self) -> None:
        self.trace.close()
        if self._transaction is not None:
            self._transaction.close()
