"""Records of bad ranges: their bytes and their errors."""

from __future__ import annotations

import base64
import json
import logging
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from heronpy.common.errors import HeronError
from heronpy.common.folders import make_folders, read_own
from heronpy.connectors.durable_files import write_record
from heronpy.growing.chunks import BLOCK_BYTES
from heronpy.ingest.ledger.commands import BadRange
from heronpy.ingest.ledger.requests import Bad, Chunk, Line
from heronpy.ingest.outputs.stages import Stages
from heronpy.ingest.unit import MovedError, opened

#: Maximum number of bytes kept from the beginning of a range.
BYTES_MAX = 64 * 1024
RECORD_MAX = 1 << 20


log = logging.getLogger("heron.ingest")

#: Maximum number of characters kept from the end of a traceback, also in the records of bad ranges.
TRACEBACK_MAX = 16 * 1024
_SIZE_MAX = 1 << 20
#: Seconds for which the traceback of an ended unit is kept, so that a keeper can write a missing record with it.
KEPT_S = 300.0


class Tries:
    """Tracebacks of failed tries. A traceback is kept until it is decided whether the bytes are bad.

    The folder of the stages contains one small file for each unit whose last try failed.
    """

    def __init__(self, home: Path) -> None:
        self._folder = home / "tries"

    def write(self, generation: int, unit: int, chunks: Sequence[Chunk], trace: str) -> None:
        """Write a traceback. If the disk is full, only the traceback is lost."""
        pieces = [[one.file, one.begin, one.end] for one in chunks]
        text = json.dumps({"pieces": pieces, "traceback": trace[-TRACEBACK_MAX:]})
        try:
            make_folders(self._folder)
            write_record(self._folder / f"g{generation}-u{unit}.json", text.encode())
        except (OSError, HeronError) as error:
            log.warning("the traceback of unit %d cannot be written: %s", unit, error)

    def of(self, generation: int, found: Line) -> str:
        """Return the traceback of the last try of the smallest unit that contains these bytes; "" if unknown."""
        best, trace = None, ""
        for number, _, path in self._all():
            if number != generation:
                continue
            try:
                record = json.loads(read_own(path, _SIZE_MAX))
                pieces = [(int(file), int(begin), int(end)) for file, begin, end in record["pieces"]]
                text = str(record["traceback"])
            except (OSError, HeronError, ValueError, TypeError, KeyError, RecursionError):
                continue
            size = sum(end - begin for _, begin, end in pieces)
            has = any(file == found.file and begin <= found.begin < end for file, begin, end in pieces)
            if has and (best is None or size < best):
                best, trace = size, text
        return trace

    def units(self, generation: int) -> tuple[int, ...]:
        """Return the units that have a traceback."""
        return tuple(unit for number, unit, _ in self._all() if number == generation)

    def forget(self, generation: int, live: Iterable[int]) -> None:
        """Remove the tracebacks of units that ended some time ago, and those of older generations."""
        kept = set(live)
        for number, unit, path in self._all():
            with suppress(FileNotFoundError):
                if (number < generation or unit not in kept) and time.time() - path.lstat().st_mtime > KEPT_S:
                    path.unlink()

    def _all(self) -> Iterator[tuple[int, int, Path]]:
        """Yield generation, unit and path of each traceback."""
        for path in sorted(self._folder.glob("g*-u*.json")):
            generation, _, unit = path.stem.removeprefix("g").partition("-u")
            if generation.isdecimal() and unit.isdecimal():
                yield int(generation), int(unit), path


def dead_bytes(root: str, chunk: Chunk, found: Line) -> tuple[bytes, bool]:
    """Return at most `BYTES_MAX` bytes of a bad range, and whether they could be read.

    The last line of the range is complete, even if it ends in the next range.
    """
    try:
        with opened(root, chunk) as descriptor:
            data = os.pread(descriptor, BYTES_MAX, found.begin)
            return data[: data.find(b"\n", found.end - found.begin - 1) + 1 or BYTES_MAX], True
    except (MovedError, OSError):
        return b"", False


def line_end(root: str, chunk: Chunk, end: int) -> int:
    """Return the end of the line that crosses the offset `end`; `end` itself if no line crosses it, or if the file is
    missing."""
    try:
        with opened(root, chunk) as descriptor:
            if os.pread(descriptor, 1, end - 1) == b"\n":
                return end
            at = end
            while piece := os.pread(descriptor, BLOCK_BYTES, at):
                found = piece.find(b"\n") + 1
                if found:
                    return at + found
                at += len(piece)
    except (MovedError, OSError):
        pass
    return end


def bad_record(
    pipeline: str,
    generation: int,
    answer: Bad,
    chunk: Chunk,
    found: Line,
    data: bytes,
    known: bool,
    trace: str,
) -> tuple[str, str]:
    """Return the name and the JSON of a record; equal ranges give equal names."""
    record = {
        "pipeline": pipeline,
        "generation": generation,
        "root": answer.root,
        "tries": answer.tries,
        "key": chunk.key,
        "file_generation": chunk.generation,
        "head": chunk.head,
        "begin": found.begin,
        "end": found.end,
        "error": answer.error,
        "traceback": trace[-TRACEBACK_MAX:],
        "bytes": base64.b64encode(data).decode() if known else None,
        "text": data.decode(errors="backslashreplace") if known else None,
        "cut": known and len(data) < found.end - found.begin,
    }
    return record_name(generation, found), json.dumps(record, ensure_ascii=True) + "\n"


def record_name(generation: int, found: Line) -> str:
    return f"g{generation}-f{found.file}-{found.begin}-{found.end}"


class BadRecord(Struct, frozen=True):
    """The record of a bad range, for display.

    `data` is None if the bytes could not be read; `cut`: whether `data` is only the beginning.
    """

    path: str
    traceback: str
    data: bytes | None
    cut: bool


class BadRecords:
    """A pipeline's records of bad ranges, looked up by range, because a rebuilt ledger may have other unit numbers."""

    def __init__(self, place: str) -> None:
        """`place`: the folder of the table, or the `home` of a pipeline without a table; "" if unknown."""
        self._stages = Stages(place) if place else None
        self._known: dict[tuple[str, int], list[tuple[int, int, BadRecord]]] | None = None

    def of(self, one: BadRange) -> BadRecord | None:
        """Return the record of a range; None if this host has no record."""
        if self._known is None:
            self._known = {}
            for key, generation, begin, end, record in self._read():
                self._known.setdefault((key, generation), []).append((begin, end, record))
        found = [
            (end - begin, record)
            for begin, end, record in self._known.get((one.key, one.generation), ())
            if begin <= one.span.begin and one.span.end <= end
        ]
        return min(found, key=lambda each: each[0])[1] if found else None

    def _read(self) -> Iterator[tuple[str, int, int, int, BadRecord]]:
        for path in self._stages.bad_records() if self._stages is not None else ():
            try:
                yield _record_of(path)
            except (OSError, HeronError, ValueError, TypeError, KeyError, RecursionError):
                continue  # `heron units rebuild` names a damaged record


def _record_of(path: Path) -> tuple[str, int, int, int, BadRecord]:
    raw = json.loads(read_own(path, RECORD_MAX))
    data = base64.b64decode(raw["bytes"], validate=True) if raw["bytes"] is not None else None
    record = BadRecord(str(path), str(raw["traceback"]), data, bool(raw["cut"]))
    return str(raw["key"]), int(raw["file_generation"]), int(raw["begin"]), int(raw["end"]), record
