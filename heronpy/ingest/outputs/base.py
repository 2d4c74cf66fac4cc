"""The contract of an output: where the rows of a unit go.

A *writer* writes the rows of one attempt into a folder of its own, the *stage*, which nobody reads; what happens to the
stage afterwards (commit, publication, removal) is `stages`, the same for every output. For users it is described in
`docs/howto/units-output.md`; `tests/ingest/test_units_outputs.py` runs over all outputs.
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
        """Add what `rows(unit)` has given; the number of rows in it. An error is one of the row, and is a try."""

    def write_many(self, rows: list[Any]) -> int:
        """Add several of them, as `write` would one by one. After an error the attempt begins anew with `write`, which
        tells at which row it is; so a writer may check rows later than here, but not later than in `prepare`."""
        return sum(map(self.write, rows))

    @abstractmethod
    def prepare(self) -> None:
        """All rows are written: finish the files, so that only their `fsync` is missing. Only plain files are there
        then, directly in the stage, and none whose name begins with `_`."""

    @abstractmethod
    def discard(self) -> None:
        """The attempt is given up, maybe after `prepare`: close what is open. The stage is removed by others."""


class Output(ABC):
    """A table: a folder in which each published unit is a folder `unit=<generation>-<id>`."""

    #: How long the oldest byte waits until a unit is cut, if the pipeline does not say.
    unit_wait_s: ClassVar[float | None] = None

    def __init__(self, table: str) -> None:
        path = Path(table)
        if not path.is_absolute() or ".." in path.parts:
            raise ConfigError(f"the table of an output must be an absolute path without '..', not {table!r}")
        self.table = str(path)

    def of_pipeline(self, pipeline: str) -> Output:
        """The output of the pipeline of this name."""
        return self

    def tuned(self, config: Config) -> Config:
        """The numbers of the pipeline as this output needs them."""
        return config

    def keeper_config(self) -> dict[str, str]:
        """What a submit must see of it, as configuration of the keepers."""
        return {}

    def load(self) -> None:
        """Import what its writers need. Each worker calls it as it starts, so that the first unit does not wait."""
        return

    @abstractmethod
    def open(self, stage: Path, lineage: str) -> Writer:
        """A writer of files in `stage`, which exists and is empty.

        `lineage` is JSON that says which bytes the rows are made of, without the digests, which are known at the end.
        """
