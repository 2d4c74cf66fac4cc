"""The lineage of a published unit: `_unit.json` in its folder lists its bytes; a ledger is rebuilt from it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from heronpy.common.errors import LedgerError
from heronpy.common.folders import read_own
from heronpy.connectors.spark.tables import LINEAGE
from heronpy.ingest.ledger.types import Config

FILE = "_unit.json"
PREFIX = "unit="
BATCH = "batch="
#: Maximum size of one record in bytes; a unit has at most 256 ranges.
_MAX_BYTES = 4 << 20
#: Maximum size in bytes of the record of a dispatch of at most 256 units.
BATCH_MAX_BYTES = 256 << 20
#: Maximum size of a file in bytes.
_SIZE_MAX = 1 << 50


class Range(Struct, frozen=True):
    """A range of a file, with the digest of the lines that begin in it. Raises ValueError for an invalid range."""

    key: str
    generation: int
    begin: int
    end: int
    head: str
    sha256: str = ""

    def __post_init__(self) -> None:
        if not 0 <= self.begin < self.end <= _SIZE_MAX or self.generation < 1:
            raise ValueError(f"{self.begin}-{self.end} of generation {self.generation} is not a range of a file")


class Lineage(Struct, frozen=True):
    """The bytes and rows of one attempt."""

    pipeline: str
    #: Generation of the ledger, not of a file.
    generation: int
    unit: int
    attempt: int
    rows: int
    chunks: tuple[Range, ...]
    #: The folder in which the unit was published with other units; "" for a separate folder.
    batch: str = ""
    #: See `Pipeline.ledger`.
    ledger: str = ""

    def to_json(self) -> str:
        """Return the lineage as one line of JSON."""
        return msgspec.json.encode(self).decode()


class BatchLineage(Struct, frozen=True):
    """The published content of a dispatch: `_batch.json` in its folders."""

    pipeline: str
    generation: int
    dispatch: int
    token: int
    #: The folder of the stages of its units, and of the records of bad ranges.
    home: str
    config: Config
    units: tuple[Lineage, ...]

    def to_json(self) -> bytes:
        """Return the lineage as one line of JSON."""
        return msgspec.json.encode(self)


def batches(table: str) -> Iterator[BatchLineage]:
    """Return the records of a table's dispatches, ordered by name. Raises LedgerError for a damaged record.

    A folder `batch=...` without a record belongs to a SparkSink.
    """
    for folder in _folders(table, BATCH):
        try:
            data = read_own(folder / LINEAGE, BATCH_MAX_BYTES)
            found = msgspec.json.decode(data, type=BatchLineage)
        except FileNotFoundError:
            continue
        except (OSError, ValueError, RecursionError, msgspec.MsgspecError) as error:
            raise _unreadable(folder / LINEAGE, error) from None
        name = f"{BATCH}{found.pipeline}-{found.generation}-{found.dispatch}"
        if folder.name != name:
            raise LedgerError(f"{folder} contains the record of {name}; rename it back")
        yield found


def units_of(batch: BatchLineage) -> list[Lineage]:
    """Return the units of a dispatch, each with the dispatch's folder."""
    name = f"{BATCH}{batch.pipeline}-{batch.generation}-{batch.dispatch}"
    return [replace(unit, batch=name) for unit in batch.units]


def folder_name(generation: int, unit: int) -> str:
    return f"{PREFIX}{generation}-{unit}"


def published(table: str) -> Iterator[tuple[Path, Lineage]]:
    """Yield a table's published units and their folders by folder name. Raises LedgerError for an unreadable record."""
    for folder in _folders(table, PREFIX):
        yield folder, record_of(folder)


def _folders(table: str, prefix: str) -> list[Path]:
    try:
        return sorted(path for path in Path(table).iterdir() if path.name.startswith(prefix))
    except FileNotFoundError:
        return []


def record_of(folder: Path) -> Lineage:
    """Return the record of a published unit. Raises LedgerError if the record is unreadable."""
    try:
        found = msgspec.json.decode(read_own(folder / FILE, _MAX_BYTES), type=Lineage)
    except (OSError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise _unreadable(folder / FILE, error) from None
    if folder.name != folder_name(found.generation, found.unit):
        raise LedgerError(f"{folder} has the record of {folder_name(found.generation, found.unit)}; rename it back")
    return found


def _unreadable(path: Path, error: Exception) -> LedgerError:
    return LedgerError(
        f"{path} cannot be read ({error}); restore it, or remove the folder and rebuild: its bytes are then processed"
        " again"
    )
