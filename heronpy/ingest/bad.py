"""Records of bad ranges: what the bytes were, and what happened to them."""

from __future__ import annotations

import base64
import json
import os

from heronpy.ingest.ledger.requests import Bad, Chunk, Line
from heronpy.ingest.unit import MovedError, opened

#: Of a range that is longer, the beginning is kept.
BYTES_MAX = 64 * 1024
_TRACEBACK_MAX = 16 * 1024


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
        "traceback": trace[-_TRACEBACK_MAX:],
        "bytes": base64.b64encode(data).decode() if known else None,
        "text": data.decode(errors="backslashreplace") if known else None,
        "cut": known and len(data) < found.end - found.begin,
    }
    return record_name(generation, found), json.dumps(record, ensure_ascii=True) + "\n"


def record_name(generation: int, found: Line) -> str:
    """The name of the record of a bad range."""
    return f"g{generation}-f{found.file}-{found.begin}-{found.end}"
