"""Files of a verification: segments of fixed-size records, progress of sources, aggregates of sinks.

    <out>/spec.json                       the specification, for `heron verify check`
    <out>/incarnations/<task>-<n>         one empty file per process that ever ran this task
    <out>/end                             the end of an input without a count, written by the verifier
    <out>/progress-<partition>            position of its source; a mapped file that survives kill -9
    <out>/trace/<task>-<n>.seg            all arrivals in order, never removed
    <out>/rows/<task>-<checkpoint>.{pending,committed}   rows of a transaction (EFFECTIVELY_ONCE)
    <out>/totals/<task>.json              aggregates of a sink task at the end of its input

Segments are append-only, each written by one process. A record is written by one write call; a short
write is undone, so a segment always consists of whole records.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from heronpy.common.folders import make_folders, replace_file
from heronpy.loadtest.errors import LabError

#: seq, CLOCK_MONOTONIC of arrival, partition, crc of the received payload, source incarnation, attempt, task, epoch
RECORD = struct.Struct("<QdIIIIII")
DTYPE = np.dtype(
    [
        ("seq", "<u8"),
        ("time", "<f8"),
        ("partition", "<u4"),
        ("crc", "<u4"),
        ("source", "<u4"),
        ("attempt", "<u4"),
        ("task", "<u4"),
        ("epoch", "<u4"),
    ]
)
Records = npt.NDArray[Any]

#: A tuple carries source incarnation and attempt in one number.
ATTEMPT_BITS = 16
ATTEMPT_MAX = (1 << ATTEMPT_BITS) - 1

#: Distance between the decision to end an input and its end: in seconds, and in tuples.
TAIL_S, TAIL_TUPLES = 1.5, 3000
#: Duration of a measurement of an input's speed.
SPEED_S = 0.2

TRACE, ROWS, TOTALS, INCARNATIONS, END = "trace", "rows", "totals", "incarnations", "end"


def incarnation(out: Path, task: int) -> int:
    """Reserve a number that is unique among the processes of this task: 1, 2, ..."""
    folder = out / INCARNATIONS
    make_folders(folder)
    number = 1
    while True:
        try:
            os.close(os.open(folder / f"{task}-{number}", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            return number
        except FileExistsError:
            number += 1


def write_atomically(path: Path, content: Any) -> None:
    make_folders(path.parent)
    replace_file(path, json.dumps(content).encode(), durable=False)


class Segment:
    def __init__(self, path: Path) -> None:
        make_folders(path.parent)
        self.path = path
        self._file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND, 0o600)
        self.count = 0

    def append(self, data: bytes) -> None:
        """Write one or more records. On an OSError, no record is written."""
        written = os.write(self._file, data)
        if written != len(data):
            os.ftruncate(self._file, self.count * RECORD.size)
            raise OSError(f"{self.path} cannot be written: the disk is full")
        self.count += len(data) // RECORD.size

    def sync(self) -> None:
        os.fsync(self._file)

    def close(self) -> None:
        os.close(self._file)


def read_segments(folder: Path, pattern: str) -> list[Records]:
    """Return the records of each matching file, in the order of file names."""
    found = []
    for path in sorted(folder.glob(pattern)):
        data = path.read_bytes()
        found.append(np.frombuffer(data[: len(data) // RECORD.size * RECORD.size], dtype=DTYPE))
    return found


class Progress:
    """The source's position in a partition, in a file that outlives the source's process.

    Fields: owner (incarnation), next sequence number, sequence number below which all tuples are acked, replays, time
    of the first start. Only the owner writes, so a replaced process that continues has no effect.
    """

    LAYOUT = struct.Struct("<QQQQd")

    def __init__(self, path: Path, owner: int = 0) -> None:
        make_folders(path.parent)
        file = os.open(path, os.O_RDWR | os.O_CREAT if owner else os.O_RDONLY, 0o600)
        try:
            if owner and os.fstat(file).st_size < self.LAYOUT.size:
                os.ftruncate(file, self.LAYOUT.size)
            access = mmap.ACCESS_WRITE if owner else mmap.ACCESS_READ
            self._map = mmap.mmap(file, self.LAYOUT.size, access=access)
        finally:
            os.close(file)
        self._words = memoryview(self._map).cast("Q")
        self.owner = owner
        #: Incarnation of the previous process of the source.
        self.last_owner, self.next, self.acked, self.replays, self.started = self.LAYOUT.unpack_from(self._map)
        if owner:
            self.started = self.started or time.monotonic()
            self.LAYOUT.pack_into(self._map, 0, owner, self.next, self.acked, self.replays, self.started)

    def note_next(self, seq: int) -> None:
        """Record the next tuple; called before it is emitted."""
        if self._words[0] == self.owner:
            self._words[1] = seq

    def note_acked(self, seq: int) -> None:
        if self._words[0] == self.owner:
            self._words[2] = seq

    def note_replay(self) -> None:
        if self._words[0] == self.owner:
            self._words[3] += 1

    def close(self) -> None:
        self._words.release()
        self._map.close()


def progress_path(out: Path, partition: int) -> Path:
    return out / f"progress-{partition}"


def read_progress(out: Path, partitions: int) -> list[Progress]:
    """Return the positions of the partitions that have started."""
    found = [Progress(path) for path in (progress_path(out, number) for number in range(partitions)) if path.exists()]
    for one in found:
        one.close()
    return found


def read_end(out: Path) -> int:
    """Return the number of tuples in each partition of an ended input; 0 if the input has not ended."""
    try:
        return int((out / END).read_text(encoding="ascii"))
    except FileNotFoundError:
        return 0


def write_end(out: Path, partitions: int, rate: float) -> int:
    """End an input a few tuples after the position of its most advanced partition; return the end.

    A source that is behind its schedule emits fast, and must not pass the end before reading it.
    """

    def reached() -> int:
        return max((one.next for one in read_progress(out, partitions)), default=0)

    before = reached()
    time.sleep(SPEED_S)
    farthest = reached()
    # A source that catches up after an outage continues at this speed, not at the rate of its schedule.
    per_s = max(rate, (farthest - before) / SPEED_S)
    end = farthest + max(1, int(per_s * TAIL_S)) + TAIL_TUPLES
    write_atomically(out / END, end)
    if reached() > end:
        raise LabError(f"the input of {out} continued beyond its end, {end:,} tuples; this host is too busy")
    return end
