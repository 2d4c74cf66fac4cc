"""The files of a FileSink in a batch run: one per work unit, published at the end of the run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from heronpy.api.batch import Batch
from heronpy.common.errors import StateError
from heronpy.common.folders import make_output
from heronpy.connectors.durable_files import run_token, safe_name, sync_path
from heronpy.connectors.files.options import SUFFIXES, FileOptions
from heronpy.connectors.files.writers import writer_of
from heronpy.connectors.unit_output import SinkWriter, StageFile, UnitOutput, drop_hidden, publish_file

#: Pattern of the name of a unit's folder, which contains the unit's generation and id.
_UNIT = re.compile(r"unit=(\d+)-(\d+)")


class FileUnits(UnitOutput):
    """Stages and publishes the files `part-<component>-<generation>-<unit>-<run>.0.<suffix>`. Their names
    have the same form as in a streaming run, which does not touch the files of other runs.
    """

    def __init__(self, component: str, options: FileOptions) -> None:
        super().__init__(component, options.folder)
        self._options = options
        self._suffix = SUFFIXES[options.format]

    def open(self, stage: Path) -> SinkWriter:
        """Return a writer of one file in the format of the sink."""
        return _Writer(StageFile(stage / f"{self.prefix}{self._suffix}"), self._options)

    def publish(self, run: str, folders: Sequence[Path]) -> int:
        """Rename each staged file to its final name in the folder of the sink."""
        folder, count = Path(self._options.folder), 0
        beginning = f"part-{safe_name(self.component)}-"
        make_output(folder)
        for unit, source in self.staged(folders):
            found = _UNIT.fullmatch(unit.name)
            if found is None:
                raise StateError(f"{unit} is not the folder of a unit; remove it, and run the command again")
            numbers = f"{found[1]}-{found[2]}"
            target = folder / f"{beginning}{numbers}-{run_token(run)}.0.{self._suffix}"
            count += publish_file(source, target)
        drop_hidden(folder, beginning)
        sync_path(folder)
        return count


class _Writer(SinkWriter):
    def __init__(self, file: StageFile, options: FileOptions) -> None:
        self._file, self._writer = file, writer_of(options, file)

    def batch(self, batch: Batch) -> dict[int, str]:
        return self._writer.batch(batch)

    def close(self) -> None:
        self._writer.close()
        self._file.close()
