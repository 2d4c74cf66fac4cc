"""Which bytes a published unit is made of (Ubiq's lineage): `_unit.json` in its folder; a ledger is rebuilt from it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from heronpy.common.errors import LedgerError
from heronpy.common.folders import read_own

FILE = "_unit.json"
_PREFIX = "unit="
#: Of one record; a unit has at most 256 ranges.
_MAX_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Range:
    """A range of a file, and the digest of the lines that begin in it."""

    key: str
    generation: int
    begin: int
    end: int
    head: str
    sha256: str = ""


@dataclass(frozen=True, slots=True)
class Lineage:
    """What one attempt has processed."""

    pipeline: str
    #: Of the ledger, not of a file.
    generation: int
    unit: int
    attempt: int
    rows: int
    chunks: tuple[Range, ...]

    def to_json(self) -> str:
        """One line of JSON."""
        return msgspec.json.encode(self).decode()


def folder_name(generation: int, unit: int) -> str:
    """The name of a published unit below its table."""
    return f"{_PREFIX}{generation}-{unit}"


def published(table: str) -> Iterator[tuple[Path, Lineage]]:
    """All published units of a table with their folders, by name; LedgerError for a record that cannot be read."""
    try:
        folders = sorted(path for path in Path(table).iterdir() if path.name.startswith(_PREFIX))
    except FileNotFoundError:
        return
    for folder in folders:
        yield folder, record_of(folder)


def record_of(folder: Path) -> Lineage:
    """The record of a published unit; LedgerError when it cannot be read."""
    try:
        found = msgspec.json.decode(read_own(folder / FILE, _MAX_BYTES), type=Lineage)
    except (OSError, msgspec.MsgspecError, json.JSONDecodeError, UnicodeDecodeError) as error:
        raise LedgerError(
            f"{folder / FILE} cannot be read ({error}); restore it, or remove the folder and rebuild: its bytes are"
            " then processed again"
        ) from None
    if folder.name != folder_name(found.generation, found.unit):
        raise LedgerError(f"{folder} has the record of {folder_name(found.generation, found.unit)}; one was renamed")
    return found
