"""The contract of an output, which stores the rows of a unit.

A *writer* writes the rows of one attempt into the *stage*, a separate folder that readers skip. Afterwards, `stages`
commits, publishes or removes the stage, in the same way for every output. `docs/howto/units-output.md` describes this
for users; `tests/ingest/test_units_outputs.py` tests all outputs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar

from heronpy.common.errors import ConfigError
from heronpy.ingest.ledger.types import Config


class Writer(ABC):
    """Writes the rows of one attempt at a unit."""

    @abstractmethod
    def write(self, row: Any) -> int:
        """Add an item of `rows(unit)`; return its number of rows. An error counts as a failed try."""

    def write_many(self, rows: list[Any]) -> int:
        """Add several items, as `write` would one by one; return their number of rows. After an error, the attempt
        restarts with `write` to identify the row, so a writer may check rows as late as in `prepare`."""
        return sum(map(self.write, rows))

    @abstractmethod
    def prepare(self) -> None:
        """Finish the files after the last row; the caller syncs them. The stage must then contain only plain files, no
        subfolders, and no names that begin with `_`."""

    @abstractmethod
    def discard(self) -> None:
        """Abandon the attempt, possibly after `prepare`: close open files. The caller removes the stage."""


class Output(ABC):
    """A table: a folder in which each published unit is a folder `unit=<generation>-<id>`."""

    #: Seconds that the oldest byte waits until a unit is cut, unless the pipeline sets another time.
    unit_wait_s: ClassVar[float | None] = None

    def __init__(self, table: str) -> None:
        path = Path(table)
        if not path.is_absolute() or ".." in path.parts:
            raise ConfigError(f"the table of an output must be an absolute path without '..', not {table!r}")
        self.table = str(path)

    def of_pipeline(self, pipeline: str) -> Output:
        return self

    def tuned(self, config: Config) -> Config:
        """Return the pipeline's configuration, adapted to this output."""
        return config

    def keeper_config(self) -> dict[str, str]:
        """Return keys to add to the keepers' configuration; `heron submit` reads these keys."""
        return {}

    def load(self) -> None:
        """Import the writers' modules. Each worker calls this at its start, so that the first unit need not wait."""
        return

    @abstractmethod
    def open(self, stage: Path, lineage: str) -> Writer:
        """Return a writer of files in `stage`, which exists and is empty.

        `lineage` is JSON that lists the source bytes of the rows, without digests, which are known only at the end.
        """
