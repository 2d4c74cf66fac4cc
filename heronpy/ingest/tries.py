"""Tracebacks of failed tries, kept until it is known whether their bytes are bad: often another process finds out."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from heronpy.common.errors import HeronError
from heronpy.common.folders import make_folders, read_own
from heronpy.connectors.durable_files import write_record
from heronpy.ingest.ledger.requests import Chunk, Line

log = logging.getLogger("heron.ingest")

#: Of a traceback the end is kept, in the records of bad ranges, too.
TRACEBACK_MAX = 16 * 1024
_SIZE_MAX = 1 << 20
#: So long a keeper may take to write the records that a worker has left out.
KEPT_S = 300.0


class Tries:
    """One small file per unit whose last try has failed, in the folder of the stages."""

    def __init__(self, home: Path) -> None:
        self._folder = home / "tries"

    def write(self, generation: int, unit: int, chunks: Sequence[Chunk], trace: str) -> None:
        """Keep a traceback; a disk that is full costs it, and nothing else."""
        pieces = [[one.file, one.begin, one.end] for one in chunks]
        text = json.dumps({"pieces": pieces, "traceback": trace[-TRACEBACK_MAX:]})
        try:
            make_folders(self._folder)
            write_record(self._folder / f"g{generation}-u{unit}.json", text.encode())
        except (OSError, HeronError) as error:
            log.warning("the traceback of unit %d is not kept: %s", unit, error)

    def of(self, generation: int, found: Line) -> str:
        """The traceback of the last try of the smallest unit that had these bytes; "" when none is known."""
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
        """Units of which a traceback is kept."""
        return tuple(unit for number, unit, _ in self._all() if number == generation)

    def forget(self, generation: int, live: Iterable[int]) -> None:
        """Remove those of units that have ended some time ago, and of older generations."""
        kept = set(live)
        for number, unit, path in self._all():
            with suppress(FileNotFoundError):
                if (number < generation or unit not in kept) and time.time() - path.lstat().st_mtime > KEPT_S:
                    path.unlink()

    def _all(self) -> Iterator[tuple[int, int, Path]]:
        """Generation, unit and path."""
        for path in sorted(self._folder.glob("g*-u*.json")):
            generation, _, unit = path.stem.removeprefix("g").partition("-u")
            if generation.isdecimal() and unit.isdecimal():
                yield int(generation), int(unit), path
