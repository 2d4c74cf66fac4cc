"""Verifies a batch run over files of seeded lines, and then the stream that continues from the run's savepoint."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from heronpy.batch.record import RunRecord, RunState
from heronpy.batch.run import Run, Runs
from heronpy.common.folders import make_folders
from heronpy.loadtest.checks import Check
from heronpy.loadtest.cluster import submitted
from heronpy.loadtest.errors import LabError
from heronpy.proto import control_pb2
from heronpy.verify.batch.topology import BAD, COUNT, KILLS, PARSE, RAISES, SEEN, SLOW
from heronpy.verify.oracle import Limits, Verdict, memory_checks
from heronpy.verify.stream import Partition, Totals, expected_totals, key_text
from heronpy.verify.world import END_S, EXACT, World

PROGRAM = Path(__file__).with_name("topology.py")
#: Seconds that the input would take if all of it were slow.
INPUT_S, INPUT_FULL_S = 30.0, 600.0
#: Number of lines appended to each file while the batch is running, and after its end.
LATER = 500
UNIT_BYTES = 16_384
#: The mode of a verification.
BATCH = "batch"


class BadLine(NamedTuple):
    """A line that cannot be processed."""

    text: str
    #: File of the line, and the offsets of its first byte and after its last byte.
    place: str
    does: str


@dataclass(slots=True)
class BatchWorld(World):
    settle_s: ClassVar[float] = 0.0
    #: Lines of each file that belong to the batch.
    lines: int = 0
    #: Whether the disk was full, which counts as a failure of a unit.
    may_charge: bool = False
    bad: list[BadLine] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    _next: int = 0
    _has_half: bool = False
    #: Number of arrivals, time of the last arrival, and longest time without an arrival.
    _arrived: int = 0
    _arrived_at: float = field(default_factory=time.monotonic)
    _stall_s: float = 0.0

    def begin(self, spec: dict[str, Any], stack: ExitStack) -> None:
        """Write the files, and submit the topology as a batch."""
        for name in ("logs", SLOW, SEEN):
            make_folders(self.out / name)
        for name in (PARSE, COUNT):
            (self.out / SLOW / name).touch()
        self.lines = int(self.input.rate * (INPUT_S if self.short else INPUT_FULL_S))
        self._append(self.lines, half=True)
        if spec["poison"]:
            self.bad = [self._bad_line(number, does) for number, does in enumerate((RAISES, KILLS))]
            self._tell_bad()
        spec = {
            **spec,
            "mode": EXACT,
            "logs": f"{self.out}/logs/*.log*",
            "rows": str(self.out / "rows"),
            "records": str(self.out),
            "pause_s": 1.0 / self.input.rate,
            "settings": {
                "heron.batch.unit_bytes": UNIT_BYTES,
                "heron.batch.workers": spec["tasks"],
                "heron.checkpoint.interval_s": 0.5,
                **spec["settings"],
            },
        }
        self.topology = stack.enter_context(submitted(self.topology.cluster, PROGRAM, spec, "--mode", BATCH))

    # ---- the input ------------------------------------------------------------------------------
    def _log(self, partition: int) -> Path:
        return self.out / "logs" / f"lines-{partition}.log"

    def _append(self, last: int, half: bool = False) -> None:
        """Append all lines of each partition before `last`; with `half`, also the first half of line `last`."""
        for number in range(self.input.partitions):
            partition = Partition(self.input, number)
            text = "".join(_line(partition, seq) for seq in range(self._next, last))
            with open(self._log(number), "a", encoding="ascii") as file:
                file.write(text[len(_half(partition, self._next)) if self._has_half else 0 :])
                file.write(_half(partition, last) if half else "")
        self._next, self._has_half = last, half

    def _bad_line(self, number: int, does: str) -> BadLine:
        """Return one of the last complete lines of the batch."""
        partition = Partition(self.input, number % self.input.partitions)
        log, line = self._log(partition.number), _line(partition, self.lines - 1 - number)
        begin = log.read_text(encoding="ascii").index(f"\n{line}") + 1
        return BadLine(line[:-1], f"{log.name} bytes {begin}-{begin + len(line)}: ", does)

    def _tell_bad(self) -> None:
        new = self.out / f".{BAD}"
        new.write_text(json.dumps({one.text: one.does for one in self.bad}), encoding="ascii")
        os.rename(new, self.out / BAD)

    def mend_line(self) -> None:
        """Repair the line that the failed run names. Raises LabError if the run names no line."""
        cause = self.record.cause
        found = [one for one in self.bad if one.place in cause]
        if len(found) != 1:
            wanted = " or ".join(one.place for one in self.bad)
            raise LabError(f"the cause of the failed run does not name {wanted}: {cause}")
        self.note(f"a line that {found[0].does}", disruptive=False)
        self.bad.remove(found[0])
        self._tell_bad()

    def end_input(self) -> None:
        """End the slow phase, and append lines that the batch must leave for the stream."""
        if not self.input.count:
            self.input = replace(self.input, count=self.lines)
            self._append(self.lines + LATER, half=True)
        for name in (PARSE, COUNT):
            (self.out / SLOW / name).unlink(missing_ok=True)

    def to_next_stage(self) -> None:
        """End the slow phase of the first stage, and wait until the second, slow stage processes tuples."""
        (self.out / SLOW / PARSE).unlink(missing_ok=True)
        self.until(lambda: len(self.stages()) > 1 and self.stages()[1]["state"] == "running", END_S, "the second stage")
        self.until_arrived(1)

    def arrived(self) -> int:
        """Return the number of tuples that bolts have seen, including wasted attempts."""
        return sum(path.stat().st_size for path in (self.out / SEEN).iterdir())

    def look(self) -> None:
        World.look(self)
        now, arrived = time.monotonic(), self.arrived()
        if arrived != self._arrived:
            # The time before the first tuple does not count.
            self._stall_s = max(self._stall_s, now - self._arrived_at if self._arrived else 0.0)
            self._arrived, self._arrived_at = arrived, now

    # ---- the run --------------------------------------------------------------------------------
    @property
    def run(self) -> Run:
        """Return the newest run of the topology."""
        cluster = self.topology.cluster
        newest = Runs(cluster.home / "batch" / cluster.name, self.topology.name).newest()
        if newest is None:
            raise LabError(f"'{self.topology.name}' has no batch run")
        return newest

    @property
    def record(self) -> RunRecord:
        return self.run.record

    def stages(self) -> list[dict[str, Any]]:
        """Return the stages, as shown by `heron progress`."""
        found: list[dict[str, Any]] = json.loads(self.heron("progress", *self.address, "--json"))["stages"]
        return found

    def go_on(self) -> None:
        """Repeat the command if the run has failed, and wait until the run is active."""

        def works() -> bool:
            return self.arrived() > before or self.has_failed()

        before = self.arrived()
        self.until(works, END_S, "progress of the run")
        if self.has_failed():
            self.repeat()
            self.until_arrived(1)

    def repeat(self) -> None:
        """Repeat the command of the failed run."""
        self.notes["failed"] = self.record.cause
        self.topology.disconnect()
        self.heron("kill", *self.address)
        self.heron(*self.submission(self.out, "--mode", BATCH))

    def has_failed(self) -> bool:
        return self.record.state is RunState.FAILED or self.is_in(control_pb2.LIFE_FAILED)

    def settled(self) -> None:
        """Wait for the end of the batch, judge it, and wait until the continuing stream has processed all lines."""
        World.settled(self)
        self._judge_batch()
        self.topology.disconnect()
        self.heron("kill", *self.address)
        # One file is rotated between batch and stream, and its last line is only completed now.
        self._append(self._next + 1)
        os.rename(self._log(0), self.out / "logs" / "lines-0.log.1")
        self._append(self.lines + 2 * LATER)
        self.input = replace(self.input, count=self._next)
        self.heron(*self.submission(self.out, "--restore", "latest"))
        expected = expected_totals(self.input)
        with suppress(LabError):  # the verdict reports missing lines
            self.until(lambda: not self._newest().wrong(expected).size, END_S, "the counts of all lines")

    # ---- checks -------------------------------------------------------------------------
    def _rows(self) -> Iterator[tuple[str, int, int]]:
        for path in sorted((self.out / "rows").glob("part-*")):
            for line in path.read_text(encoding="utf-8").splitlines():
                row = json.loads(line)
                yield row["key"], row["count"], row["sum"]

    def _newest(self) -> Totals:
        """Return the newest count and sum of each key; counts only grow."""
        newest = {key: (count, total) for key, count, total in sorted(self._rows())}
        found = [newest.get(key_text(number), (0, 0)) for number in range(self.input.keys)]
        counts, sums = np.array(found, dtype=np.int64).reshape(-1, 2).T
        return Totals(counts, sums)

    def _judge_batch(self) -> None:
        """Check that all lines before the boundary are counted once, with one row for each key."""
        expected = expected_totals(self.input)
        wrong = self._newest().wrong(expected).size
        self._check("batch", not wrong, f"{wrong:,} of {self.input.keys:,} keys do not match the lines of the batch")
        rows, keys = sum(1 for _ in self._rows()), int(np.count_nonzero(expected.counts))
        self._check("rows", rows == keys, f"{rows:,} rows for {keys:,} keys")
        record = self.record
        done = record.state is RunState.FINISHED and record.keys == keys
        self._check("record", done, f"run {record.run} is {record.state}, with {record.keys:,} saved keys")
        self.notes["stages"] = stages = self.stages()
        charged = sum(stage["tries_failed"] for stage in stages)
        self._check("charged", not charged or self.may_charge, f"{charged} attempts were charged as failures")

    def _check(self, name: str, is_ok: bool, text: str) -> None:
        self.checks.append(Check(name, is_ok, text))

    def verdict(self, limits: Limits) -> Verdict:
        """Return the verdict on the rows of batch and stream; lost and duplicate lines are derived from the counts."""
        expected, found = expected_totals(self.input), self._newest()
        missing = expected.counts - found.counts
        verdict = Verdict(self.mode, self.input.expected, self.complete, memory=self.memory, keys=self.input.keys)
        verdict.arrived, verdict.loss = int(found.counts.sum()), int(missing.clip(0).sum())
        verdict.duplicates = verdict.unexplained = int((-missing).clip(0).sum())
        verdict.wrong_keys = int(found.wrong(expected).size)
        doubled = [row for row, times in Counter(self._rows()).items() if times > 1]
        self._check("loss", not verdict.loss, f"{verdict.loss:,} lines lost of {verdict.expected:,}")
        self._check("duplicates", not verdict.duplicates, f"{verdict.duplicates:,} lines were counted twice")
        self._check("keys", not verdict.wrong_keys, f"{verdict.wrong_keys:,} of {verdict.keys:,} keys are wrong")
        verdict.stall_s = self._stall_s
        is_alive = verdict.stall_s <= limits.stall_max_s
        self._check("liveness", is_alive, f"longest time without a tuple {verdict.stall_s:.2f} s")
        self._check("published", not doubled, f"{len(doubled):,} rows were published twice")
        verdict.checks = [*self.checks, *memory_checks(verdict, limits)]
        return verdict


def _line(partition: Partition, seq: int) -> str:
    number, _, key, _, crc = partition.whole(seq)
    return f"{number} {seq} {key} {crc}\n"


def _half(partition: Partition, seq: int) -> str:
    line = _line(partition, seq)
    return line[: len(line) // 2]
