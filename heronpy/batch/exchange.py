"""The files of a unit of a batch run: frames for later stages, saved state, and rows of sinks.

    to-<stage>           frames by bucket, for a later stage
    state-<component>    saved state by task, as TaskSnapshot messages
    sink-<component>...  rows, in the sink's own format

The first two have the same layout: chunks of length-prefixed records, each chunk of one bucket; then an index with the
offset, size and checksum of each chunk; then a footer. A unit writes such a file even if the file is empty, so a
missing file counts as damage. The extra bucket after the last bucket contains frames for all buckets.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from heronpy.api.batch import Batch
from heronpy.batch.stages import Stage
from heronpy.common.errors import HeronError
from heronpy.common.folders import open_private
from heronpy.common.units import format_bytes
from heronpy.connectors.durable_files import safe_name
from heronpy.ingest.outputs.base import Output, Writer
from heronpy.ingest.outputs.lineage import Lineage, published
from heronpy.proto.checkpoint_pb2 import TaskSnapshot

_MAGIC = b"HXB1"
#: Bucket, offset, bytes, tuples, checksum of each chunk.
_ENTRY = np.dtype([("bucket", "<u4"), ("offset", "<u8"), ("size", "<u8"), ("tuples", "<u8"), ("crc", "<u4")])
#: Offset and checksum of the index, and number of its entries.
_FOOTER = struct.Struct("<QII4s")
_LENGTH = struct.Struct("<I")
#: Number of buffered bytes of a unit at which its records are written to disk.
SPILL_BYTES = 64 << 20
Index = NDArray[np.void]


class DamagedExchangeError(HeronError):
    """A file of a published unit is missing or damaged; `unit` is the unit's folder."""

    def __init__(self, file: Path, why: str) -> None:
        super().__init__(f"{file} is damaged: {why}; run the same command again to rebuild the file")
        self.unit = file.parent


class EndlessError(HeronError):
    """A spout may be endless, so the run fails immediately."""


class UnfitRowError(HeronError):
    """Rows do not fit their sink. The unit fails, because a run without these rows would look complete."""

    def __init__(self, sink: str, unfit: Mapping[int, str]) -> None:
        """`unfit`: map from row number to the reason why the row does not fit."""
        count, why = len(unfit), next(iter(unfit.values()))
        rows = "a row does not fit" if count == 1 else f"{count:,} rows do not fit"
        super().__init__(f"{rows} sink '{sink}'{':' if count == 1 else '; the first row:'} {why}")


class LargeUnitError(EndlessError):
    """A single unit has written more bytes than the limit for a whole exchange."""

    def __init__(self, bytes_max: int) -> None:
        super().__init__(
            f"a single unit has written more than heron.batch.exchange_bytes_max, which is {format_bytes(bytes_max)};"
            " a batch needs a spout that calls end_of_input(): use --mode stream for other spouts, or raise the limit"
        )


class ForStage(NamedTuple):
    """A frame for a bucket of a later stage."""

    stage: int
    bucket: int
    frame: bytes
    tuples: int


class ForSink(NamedTuple):
    sink: str
    batch: Batch


class Saved(NamedTuple):
    """A piece of the saved state of a task."""

    component: str
    task: int
    snapshot: bytes


Piece = ForStage | ForSink | Saved


class BucketWriter:
    """Writes one file of buckets."""

    def __init__(self, path: Path) -> None:
        self._file = open(open_private(path, os.O_WRONLY | os.O_EXCL), "wb")
        self._entries: list[tuple[int, int, int, int, int]] = []
        self._waiting: dict[int, list[bytes]] = {}
        self._tuples: Counter[int] = Counter()
        self._offset = 0

    def add(self, bucket: int, record: bytes, tuples: int) -> int:
        """Add a record; return the number of bytes by which memory use has grown."""
        self._waiting.setdefault(bucket, []).append(record)
        self._tuples[bucket] += tuples
        return len(record) + _LENGTH.size

    def spill(self) -> None:
        """Write the buffered records, by bucket."""
        for bucket, records in sorted(self._waiting.items()):
            chunk = b"".join([part for record in records for part in (_LENGTH.pack(len(record)), record)])
            self._file.write(chunk)
            self._entries.append((bucket, self._offset, len(chunk), self._tuples[bucket], zlib.crc32(chunk)))
            self._offset += len(chunk)
        self._waiting.clear()
        self._tuples.clear()

    def finish(self) -> None:
        """Write the buffered records and the index."""
        self.spill()
        index = np.array(self._entries, dtype=_ENTRY).tobytes()
        self._file.write(index + _FOOTER.pack(self._offset, zlib.crc32(index), len(self._entries), _MAGIC))
        self._file.close()

    def discard(self) -> None:
        """Close the file without finishing it."""
        self._file.close()


class BucketFile:
    """Reads one file of buckets. Raises DamagedExchangeError if the file is damaged."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.index: Index = self._read(self._read_index)

    def _read(self, read: Callable[[int], Any]) -> Any:
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError as error:
            raise DamagedExchangeError(self._path, f"it cannot be opened ({error.strerror})") from None
        try:
            if os.fstat(descriptor).st_uid != os.geteuid():
                raise DamagedExchangeError(self._path, "it belongs to another user")
            return read(descriptor)
        finally:
            os.close(descriptor)

    def _read_index(self, descriptor: int) -> Index:
        end = os.fstat(descriptor).st_size - _FOOTER.size
        footer = os.pread(descriptor, _FOOTER.size, end) if end >= 0 else b""
        if len(footer) != _FOOTER.size:
            raise DamagedExchangeError(self._path, "it is too short")
        offset, crc, count, magic = _FOOTER.unpack(footer)
        size = count * _ENTRY.itemsize
        if magic != _MAGIC or offset + size != end:
            raise DamagedExchangeError(self._path, "its footer is missing")
        data = os.pread(descriptor, size, offset)
        if zlib.crc32(data) != crc:
            raise DamagedExchangeError(self._path, "its index does not match the checksum")
        index = np.frombuffer(data, dtype=_ENTRY)
        ends = np.concatenate(([0], np.cumsum(index["size"])))
        if (len(index) and (ends[:-1] != index["offset"]).any()) or ends[-1] != offset:
            raise DamagedExchangeError(self._path, "its index does not match the file")
        return index

    def records(self, bucket: int) -> Iterator[bytes]:
        """Yield the records of a bucket in the order in which they were added."""
        for entry in self.index[self.index["bucket"] == bucket]:
            chunk = self._read(partial(_chunk, entry))
            if zlib.crc32(chunk) != int(entry["crc"]):
                raise DamagedExchangeError(self._path, f"bucket {bucket} does not match its checksum")
            place = 0
            while place < len(chunk):
                (size,) = _LENGTH.unpack_from(chunk, place)
                place += _LENGTH.size
                yield chunk[place : place + size]
                place += size


def _chunk(entry: np.void, descriptor: int) -> bytes:
    return os.pread(descriptor, int(entry["size"]), int(entry["offset"]))


class StageOutput(Output):
    """The output of one stage. Its items are the pieces that `StageRows` yields."""

    def __init__(
        self, table: str, stage: Stage, sinks: Mapping[str, Any], saves: bool = False, bytes_max: int = 0
    ) -> None:
        """`sinks`: the UnitOutput of each sink. `saves`: a savepoint will be written. `bytes_max`: the
        maximum that a unit may write; 0 means no limit."""
        super().__init__(table)
        self._stage = stage
        self._sinks = sinks
        self._saved = stage.components if saves else ()
        self._bytes_max = bytes_max

    def open(self, stage: Path, lineage: str) -> Writer:
        exchanges = {number: f"to-{number}" for number in sorted({one.consuming for one in self._stage.outputs})}
        states = {component: _state_file(component) for component in self._saved}
        files: dict[int | str, BucketWriter] = {}
        for names in (exchanges, states):
            files |= {key: BucketWriter(stage / name) for key, name in names.items()}
        sinks = {name: output.open(stage) for name, output in self._sinks.items()}
        return _StageWriter(files, sinks, self._bytes_max)


class _StageWriter(Writer):
    def __init__(self, files: dict[int | str, BucketWriter], sinks: dict[str, Any], bytes_max: int) -> None:
        self._files = files
        self._sinks = sinks
        self._bytes_max = bytes_max
        self._held = self._written = 0

    def write(self, row: list[Piece]) -> int:
        """Write the pieces of one step; return the number of tuples that left the stage."""
        count = 0
        for piece in row:
            match piece:
                case ForStage():
                    self._held += self._files[piece.stage].add(piece.bucket, piece.frame, piece.tuples)
                    count += piece.tuples
                case ForSink():
                    unfit = self._sinks[piece.sink].batch(piece.batch)
                    if unfit:
                        raise UnfitRowError(piece.sink, unfit)
                    count += len(piece.batch)
                case Saved():
                    self._held += self._files[piece.component].add(piece.task, piece.snapshot, 0)
        if self._held >= SPILL_BYTES:
            for file in self._files.values():
                file.spill()
            self._written += self._held
            self._held = 0
            if 0 < self._bytes_max < self._written:
                raise LargeUnitError(self._bytes_max)
        return count

    def prepare(self) -> None:
        for file in self._files.values():
            file.finish()
        for sink in self._sinks.values():
            sink.close()

    def discard(self) -> None:
        for one in self._files.values():
            one.discard()
        for sink in self._sinks.values():
            sink.close()


def _state_file(component: str) -> str:
    return f"state-{safe_name(component)}"


# ---- the content of published units ----------------------------------------------------------------


def unit_folders(table: Path) -> list[Path]:
    """Return the published units of a stage in input order, even if units were halved or finished out of order."""
    found = list(published(str(table)))
    return [path for path, _ in sorted(found, key=lambda one: _order(one[1]))]


def _order(lineage: Lineage) -> tuple[str, int, int]:
    first = min(lineage.chunks, key=lambda chunk: (chunk.key, chunk.begin))
    return first.key, first.begin, lineage.unit


class Exchanges:
    """All exchange files that a stage reads."""

    def __init__(self, folder: Path, stages: Sequence[Stage], number: int, buckets: int) -> None:
        producing = sorted({one.producing for one in stages[number - 1].inputs})
        self._files = [
            BucketFile(unit / f"to-{number}") for before in producing for unit in unit_folders(folder / str(before))
        ]
        self._buckets = buckets

    def frames(self, bucket: int) -> Iterator[bytes]:
        """Yield the frames for a bucket, in the order of the producing units."""
        for file in self._files:
            yield from file.records(self._buckets)
            yield from file.records(bucket)

    def sizes(self) -> list[int]:
        """Return the number of bytes to read for each bucket."""
        total = np.zeros(self._buckets + 1, dtype=np.int64)
        for file in self._files:
            np.add.at(total, file.index["bucket"], file.index["size"].astype(np.int64))
        sizes: list[int] = (total[:-1] + total[-1]).tolist()
        return sizes


def bucket_lines(folder: Path, stages: Sequence[Stage], number: int, buckets: int) -> list[tuple[bytes, int]]:
    """Return the input list for a stage that reads exchanges: a line and a size in bytes for each bucket.

    An empty bucket has a line only if the stage's number of tasks is declared.
    """
    sizes = Exchanges(folder, stages, number, buckets).sizes()
    declared = stages[number - 1].tasks
    return [(_line(bucket=place), max(1, size)) for place, size in enumerate(sizes) if size or declared]


def task_lines(stage: Stage) -> list[tuple[bytes, int]]:
    """Return the input list for a stage whose spout does not divide its input into units: a line for each task."""
    return [(_line(task=index), 1) for index in range(stage.tasks)]


def _line(**values: int) -> bytes:
    return json.dumps(values).encode() + b"\n"


def states(folder: Path, stage: Stage, tasks: int) -> Iterator[TaskSnapshot]:
    """Yield a finished stage's saved state in pieces: each is `state_inline` or a segment of a keyed state."""
    for component in stage.components:
        files = [BucketFile(unit / _state_file(component)) for unit in unit_folders(folder / str(stage.number))]
        for index in range(tasks):
            for file in files:
                for record in file.records(index):
                    yield TaskSnapshot.FromString(record)
