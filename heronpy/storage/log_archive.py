"""Archives logs of ended containers, so that they outlive their hosts, in a shared folder or an object store.

An object is one log file: `<topology id>/<container>.<submission>@<host>/log-files/<name>`. It is complete or absent.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from msgspec import Struct

from heronpy.storage.objects.folder import FolderObjects
from heronpy.storage.objects.opening import COMMAND_S, open_own

FOLDER: Final = "log-files"
#: Size in bytes above which files are not read as a whole.
LOG_MAX_BYTES: Final = 1 << 30
_RUN: Final = re.compile(r"(?P<container>\d{1,9})\.(?P<submission>\d{1,9})@(?P<host>[A-Za-z0-9._-]{1,100})")
#: Pattern of the names of logs and rotated logs; excludes names that lead to another folder.
_FILE: Final = re.compile(r"[^\x00-\x1f/\\.][^\x00-\x1f/\\]*\.log(\.[0-9]{1,4})?")


class Run(Struct, frozen=True, order=True):
    """One submission of a container, on its host."""

    container: int
    submission: int
    host: str

    @property
    def name(self) -> str:
        """The run's name in keys: `<container>.<submission>@<host>`."""
        return f"{self.container}.{self.submission}@{re.sub(r'[^A-Za-z0-9._-]', '_', self.host)[:100] or 'unknown'}"


class LogArchive:
    """The archive of one topology below `place`, a folder or a URL. Raises ConfigError if this host cannot open it.

    Calls raise ObjectsError if the place does not answer or refuses the request.
    """

    def __init__(self, place: str, topology_id: str, patience_s: float = COMMAND_S) -> None:
        self._objects = open_own(place, topology_id, LOG_MAX_BYTES, patience_s)
        self._prefix = topology_id

    @property
    def name(self) -> str:
        """The name of the place, for messages."""
        return self._objects.name

    def put(self, run: Run, file: Path) -> None:
        """Store a log under its file name."""
        self._objects.put(f"{self._prefix}/{run.name}/{FOLDER}/{file.name}", file)

    def runs(self) -> dict[Run, dict[str, int]]:
        """Return the log files of each run with their sizes; other files are left out."""
        found: dict[Run, dict[str, int]] = {}
        for key, size in self._objects.list(self._prefix).objects.items():
            run, slash, name = key.removeprefix(f"{self._prefix}/").partition(f"/{FOLDER}/")
            match = _RUN.fullmatch(run)
            if match is not None and slash and _FILE.fullmatch(name):
                of = Run(int(match["container"]), int(match["submission"]), match["host"])
                found.setdefault(of, {})[name] = size
        return found

    def get(self, run: Run, name: str) -> bytes:
        """Return the content of a file."""
        return self._objects.get(f"{self._prefix}/{run.name}/{FOLDER}/{name}")

    def folder_of(self, run: Run) -> Path | None:
        """Return the folder of a run's log files, if the files are on this host; otherwise None."""
        return self._objects.root / self._prefix / run.name if isinstance(self._objects, FolderObjects) else None


def newest_first(names: Iterable[str]) -> list[str]:
    """Return the names of log files, current files before rotated files."""
    return sorted(names, key=lambda name: (int(name.rpartition(".log")[2].removeprefix(".") or 0), name))
