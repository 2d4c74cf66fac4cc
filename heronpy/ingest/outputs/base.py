"""The contract of an output: where the rows of a unit go.

A *writer* writes the rows of one attempt into a folder of its own, the *stage*, which nobody reads; what happens to the
stage afterwards (commit, publication, removal) is `stages`, the same for every output.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from heronpy.common.errors import ConfigError


class Writer(ABC):
    """Writes the rows of one attempt at a unit."""

    @abstractmethod
    def write(self, row: Any) -> int:
        """Add what `rows(unit)` has given; the number of rows in it. An error is one of the row, and is a try."""

    def write_many(self, rows: list[Any]) -> int:
        """Add several of them, as `write` would one by one. After an error the attempt begins anew with `write`, which
        tells at which row it is; so a writer may check rows later than here, but not later than in `prepare`."""
        return sum(map(self.write, rows))

    @abstractmethod
    def prepare(self) -> None:
        """All rows are written: finish the files, so that only their `fsync` is missing."""

    @abstractmethod
    def discard(self) -> None:
        """The attempt is given up: close what is open. The stage is removed by others."""


class Output(ABC):
    """A table: a folder in which each published unit is a folder `unit=<generation>-<id>`."""

    def __init__(self, table: str) -> None:
        path = Path(table)
        if not path.is_absolute() or ".." in path.parts:
            raise ConfigError(f"the table of an output must be an absolute path without '..', not {table!r}")
        self.table = str(path)

    @abstractmethod
    def open(self, stage: Path, lineage: str) -> Writer:
        """A writer of files in `stage`, which exists and is empty.

        `lineage` is JSON that says which bytes the rows are made of, without the digests, which are known at the end.
        """
