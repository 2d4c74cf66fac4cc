"""Reads the existing and new dead letters of a topology through its executors' file services."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from typing import Any

from heronpy.clusters.file_services import FileService
from heronpy.common.errors import HeronError
from heronpy.proto import control_pb2
from heronpy.storage.dead_letters import FOLDER, letter_of

#: A dead letter, in the format of its file.
Letter = dict[str, Any]

PIECE_BYTES = 256 * 1024
_OLDER = ".1"
#: Names of files of dead letters.
LETTERS = re.compile(re.escape(FOLDER) + r"/.+\.jsonl(\.1)?")


class Letters:
    """Returns each dead letter once. Positions are stored by inode number, which a rename does not change."""

    def __init__(
        self,
        services: Callable[[], Mapping[int, FileService]],
        component: str | None = None,
        topology_id: str | None = None,
    ) -> None:
        """`services` returns the file services by container. Letters of other components or runs are skipped."""
        self._services = services
        self._component, self._topology_id = component, topology_id
        #: By container and file number: the file's name at the last read, and the end of the last complete line.
        self._read: dict[tuple[int, int], tuple[str, int]] = {}
        #: Containers whose letters could not all be read by the last call, with the reason.
        self.unreachable: dict[int, str] = {}

    async def new(self) -> list[Letter]:
        """Letters added since the last call, oldest first; the first call returns all letters."""
        self.unreachable = {}
        services = self._services()
        # In parallel, because an executor that is down answers only after a while.
        looks = await asyncio.gather(*(self._look(container, service) for container, service in services.items()))
        return sorted((one for letters in looks for one in letters if self._wanted(one)), key=when)

    async def _look(self, container: int, service: FileService) -> list[Letter]:
        found: list[Letter] = []
        present: set[tuple[int, int]] = set()
        try:
            for file in (await service.ask(control_pb2.ListFiles())).files:
                if LETTERS.fullmatch(file.name):
                    present.add((container, file.file))
                    found += await self._rest(container, service, file)
        except HeronError as error:
            self.unreachable[container] = str(error)
        else:
            # The number of a removed file may be reused.
            for key in [key for key in self._read if key[0] == container and key not in present]:
                del self._read[key]
        return found

    async def _rest(self, container: int, service: FileService, file: control_pb2.FileEntry) -> list[Letter]:
        """The unread letters of a file. If it is renamed during the call, the next call returns the remaining ones."""
        key = (container, file.file)
        name, at = self._read.get(key, (file.name, 0))
        if file.bytes < at or (name.endswith(_OLDER) and not file.name.endswith(_OLDER)):
            # A new file reuses the number of a removed file. A rotated file never becomes the current file again.
            at = 0
        found, cut = list[Letter](), b""
        while at + len(cut) < file.bytes:
            request = control_pb2.ReadFile(name=file.name, offset=at + len(cut), bytes=PIECE_BYTES)
            reply = await service.ask(request)
            if reply.file != file.file or not reply.data:
                break
            whole, newline, rest = (cut + reply.data).rpartition(b"\n")
            found += [letter for line in whole.split(b"\n") if (letter := letter_of(line)) is not None]
            at += len(whole) + len(newline)
            self._read[key], cut = (file.name, at), rest
        return found

    def _wanted(self, letter: Letter) -> bool:
        mine = self._component in (None, letter.get("component"))
        return mine and self._topology_id in (None, letter.get("topology_id"))


def when(letter: Letter) -> float:
    """Wall time at which the tuple became a dead letter; 0 if unknown."""
    at = letter.get("at")
    return float(at) if isinstance(at, int | float) else 0.0
