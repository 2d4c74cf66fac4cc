"""Records of bad ranges: what the bytes were, and what happened to them."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from heronpy.common.errors import HeronError
from heronpy.common.folders import read_own
from heronpy.growing.chunks import BLOCK_BYTES
from heronpy.ingest.ledger.requests import Bad, BadRange, Chunk, Line
from heronpy.ingest.outputs.stages import Stages
from heronpy.ingest.tries import TRACEBACK_MAX
from heronpy.ingest.unit import MovedError, opened

#: Of a range that is longer, the beginning is kept.
BYTES_MAX = 64 * 1024
RECORD_MAX = 1 << 20


def dead_bytes(root: str, chunk: Chunk, found: Line) -> tuple[bytes, bool]:
    """The beginning of a bad range, and whether it could be read.

    The last line is whole, also where it ends in the next range, to which its first byte does not belong.
    """
    try:
        with opened(root, chunk) as descriptor:
            data = os.pread(descriptor, BYTES_MAX, found.begin)
            return data[: data.find(b"\n", found.end - found.begin - 1) + 1 or BYTES_MAX], True
    except (MovedError, OSError):
        return b"", False


def line_end(root: str, chunk: Chunk, end: int) -> int:
    """Where the line ends that goes on behind a range, which ends with its unit; `end` when none does, or the file is
    not there."""
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
    """The name and the JSON of a record; the same range has the same name."""
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
    """The name of the record of a bad range."""
    return f"g{generation}-f{found.file}-{found.begin}-{found.end}"


@dataclass(frozen=True, slots=True)
class BadRecord:
    """What the record of a bad range has, for people. `data`: None when the bytes could not be read; `cut`: it is the
    beginning of them."""

    path: str
    traceback: str
    data: bytes | None
    cut: bool


class BadRecords:
    """The records of a pipeline by range: a rebuilt ledger has other numbers than they were written with."""

    def __init__(self, place: str) -> None:
        """`place`: the folder of the table, or the one that stands in for it; "" when it is not known."""
        self._stages = Stages(place) if place else None
        self._known: dict[tuple[str, int], list[tuple[int, int, BadRecord]]] | None = None

    def of(self, one: BadRange) -> BadRecord | None:
        """The record of a range; None when there is none here."""
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
                continue  # `heron units rebuild` names a damaged one


def _record_of(path: Path) -> tuple[str, int, int, int, BadRecord]:
    raw = json.loads(read_own(path, RECORD_MAX))
    data = base64.b64decode(raw["bytes"], validate=True) if raw["bytes"] is not None else None
    record = BadRecord(str(path), str(raw["traceback"]), data, bool(raw["cut"]))
    return str(raw["key"]), int(raw["file_generation"]), int(raw["begin"]), int(raw["end"]), record
