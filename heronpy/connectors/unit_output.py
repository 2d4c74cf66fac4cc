"""The output of a sink in a batch run: attempts stage rows, and all rows are published once, when the run ends.

A sink class that supports this defines `unit_output(component, config)`, a class method that returns a `UnitOutput`.
"""

from __future__ import annotations

import errno
import glob
import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final
from uuid import uuid4

from heronpy.api.batch import Batch
from heronpy.common.errors import ConfigError
from heronpy.connectors.durable_files import safe_name, sync_path

#: Files of a stage with rows of a sink have this prefix, the component's name, and a suffix that no name contains.
PREFIX, _END = "sink-", "@."
#: The prefix of the name of a file that is about to be published.
_HIDDEN: Final = ".unit-"


def prefix_of(component: str) -> str:
    """Return the prefix of the names of a sink's files in a stage; files of other sinks do not have this prefix."""
    return f"{PREFIX}{safe_name(component)}{_END}"


class SinkWriter(ABC):
    """Writes the rows of one sink during one attempt at a unit."""

    @abstractmethod
    def batch(self, batch: Batch) -> dict[int, str]:
        """Add the tuples of a batch; return the indices of tuples that do not fit, with the reasons."""

    @abstractmethod
    def close(self) -> None:
        """Complete the files of the stage; the caller syncs them."""


class StagedRows(ABC):
    """The rows of one sink in a batch run, until the run ends."""

    #: Whether Spark gets the rows at the end. Any other sink publishes its rows itself: see `UnitOutput`.
    for_spark = False

    def __init__(self, component: str) -> None:
        self.component = component

    @abstractmethod
    def open(self, stage: Path) -> SinkWriter:
        """Return a writer of files in `stage` whose names begin with `self.prefix`. Without rows, the writer
        creates no file."""

    @property
    def prefix(self) -> str:
        """The prefix of the names of this sink's files in a stage."""
        return prefix_of(self.component)

    def staged(self, folders: Sequence[Path]) -> Iterator[tuple[Path, Path]]:
        """Yield each folder with rows of this sink, together with a file of these rows."""
        for folder in folders:
            for name in sorted(os.listdir(folder)):
                if name.startswith(self.prefix):
                    yield folder, folder / name


class UnitOutput(StagedRows):
    """The output of one sink in a batch run, if the sink itself publishes its rows."""

    def __init__(self, component: str, place: str) -> None:
        """`place`: the folder where readers find the published rows."""
        super().__init__(component)
        self.place = place

    @abstractmethod
    def publish(self, run: str, folders: Sequence[Path]) -> int:
        """Publish the rows of a run in the order of `folders`; return the number of newly published files.

        Calling it again after an interruption publishes the missing files.
        """


def unit_output_of(kind: type, component: str, config: Mapping[str, Any]) -> StagedRows | None:
    """Return the output of a sink of this class in a batch run; None if the class does not support batch runs."""
    make = getattr(kind, "unit_output", None)
    if make is None:
        return None
    found = make(component, config)
    if not isinstance(found, UnitOutput) and not (isinstance(found, StagedRows) and found.for_spark):
        raise ConfigError(f"unit_output of {kind.__name__} must return a UnitOutput, not {found!r:.100}")
    return found


class StageFile:
    """A sink's file in a stage, created for the first row."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self.bytes = 0

    def append(self, line: bytes) -> None:
        self.stream().write(line)
        self.bytes += len(line)

    def stream(self) -> BinaryIO:
        if self._file is None:
            self._file = open(self._path, "xb")
        return self._file

    def close(self) -> None:
        """Close the file; idempotent."""
        if self._file is not None:
            self._file.close()
            self._file = None


def publish_file(source: Path, target: Path) -> bool:
    """Make a staged file visible under its final name; return False if it was already visible.

    Another host may do the same at the same time. Call `drop_hidden` when all files of a sink are visible.
    """
    while not target.exists():
        hidden = target.with_name(f"{_HIDDEN}{target.name}.{uuid4().hex}")
        try:
            _link(source, hidden)
            os.rename(hidden, target)
        except FileNotFoundError:
            # If only the hidden file is missing, another host has published everything and removed the hidden files.
            if not (source.exists() and target.parent.exists()):
                raise
        else:
            return True
    return False


def drop_hidden(folder: Path, beginning: str) -> None:
    """Remove hidden files with this prefix that interrupted calls to `publish_file` have left."""
    for path in folder.glob(f"{_HIDDEN}{glob.escape(beginning)}*"):
        path.unlink(missing_ok=True)


def _link(source: Path, hidden: Path) -> None:
    try:
        os.link(source, hidden)
    except OSError as error:
        if error.errno not in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP):
            raise
        shutil.copyfile(source, hidden)
        sync_path(hidden)
