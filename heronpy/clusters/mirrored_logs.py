"""Copies logs of containers on other hosts into a folder on this host.

The logs come through the file services of their executors, in pieces. Only the end of a long log is copied, and
files that were already rotated are not. The copy has the layout of a local topology's log folder, so the same code
reads both.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from heronpy.clusters.file_services import planned
from heronpy.clusters.masters import Master
from heronpy.clusters.session import Session
from heronpy.common.errors import HeronError
from heronpy.common.folders import open_private
from heronpy.proto import control_pb2, plan_pb2

#: How much of each log is copied at first; later output is copied completely.
FIRST_MAX_BYTES = 8 << 20
PIECE_BYTES = 256 << 10
#: Maximum number of consecutive pieces of one log, so that a busy log does not delay the others.
PIECES_MAX = 64
AGAIN_S = 0.3
#: While following, a container that is unreachable for this time is reported; before that, it may be moving or ending.
PATIENCE_S = 5.0
_LOGS = "log-files/"


class Mirror:
    """The logs of one topology; `folder` is the caller's private, empty folder.

    `said` is called once for each container with unreadable logs, and once for each log that is copied only in part.
    """

    def __init__(
        self, session: Session, record: plan_pb2.ExecutionState, folder: Path, said: Callable[[str], None]
    ) -> None:
        self._session = session
        self._record = record
        self._folder = folder
        self._say = said
        self._told: set[str] = set()
        #: By container: the time of the first failed attempt to read its logs.
        self._away_since: dict[int, float] = {}
        self._patience_s = 0.0
        #: Map from the name of a log to its file and the number of bytes read.
        self._read: dict[str, tuple[int, int]] = {}

    def copy(self) -> None:
        """Copy the current content of the logs."""
        asyncio.run(self._run(lambda: True))

    def follow(self, stopped: threading.Event) -> None:
        """Start copying new content in the background, until stopped."""
        self._patience_s = PATIENCE_S
        threading.Thread(target=lambda: asyncio.run(self._run(stopped.is_set)), daemon=True).start()

    async def _run(self, over: Callable[[], bool]) -> None:
        master = Master(self._session, self._record)
        try:
            while True:
                # In parallel, because an executor that is down answers only after a while.
                containers = planned(self._session, self._record.topology)
                await asyncio.gather(*(self._copy(master, container) for container in containers))
                if over():
                    return
                await asyncio.sleep(AGAIN_S)
        finally:
            master.close()

    async def _copy(self, master: Master, container: int) -> None:
        try:
            for entry in (await master.ask_executor(container, control_pb2.ListFiles())).files:
                if entry.name.startswith(_LOGS) and entry.name.endswith(".log"):
                    await self._copy_log(master, container, entry)
            self._told.discard(f"container {container}")
            self._told.discard("folder")
            self._away_since.pop(container, None)
        except HeronError as error:
            now = time.monotonic()
            if now - self._away_since.setdefault(container, now) < self._patience_s:
                return
            where = self._host_of(container)
            self._tell(f"container {container}", f"the logs of container {container}{where} cannot be read: {error}")
        except OSError as error:
            self._tell("folder", f"logs cannot be copied to {self._folder}: {error.strerror}; trying again")

    def _host_of(self, container: int) -> str:
        found = self._session.containers(self._record.topology)
        hosts = [one.host for one in found.containers if one.name == f"executor-{container}"] if found else []
        return f" on host {hosts[0]}" if hosts and hosts[0] else ""

    def _tell(self, what: str, text: str) -> None:
        if what not in self._told:
            self._told.add(what)
            self._say(text)

    async def _copy_log(self, master: Master, container: int, entry: control_pb2.FileEntry) -> None:
        name = entry.name.removeprefix(_LOGS)
        path = self._folder / name
        if os.path.basename(name) != name or name.startswith("."):
            return  # an executor does not list such a name
        file, at = self._read.get(name, (0, 0))
        if file and (entry.file, entry.bytes) == (file, at):
            return  # the file has not grown
        cut = False
        if file == 0 and entry.bytes > FIRST_MAX_BYTES:
            at, cut = entry.bytes - FIRST_MAX_BYTES, True
            self._tell(name, f"only the last {FIRST_MAX_BYTES >> 20} MB of the log of {name[:-4]} are shown")
        for _ in range(PIECES_MAX):
            reply = await master.ask_executor(
                container, control_pb2.ReadFile(name=entry.name, offset=at, bytes=PIECE_BYTES)
            )
            if file not in (0, reply.file) or reply.size < at:
                if path.exists():
                    os.replace(path, path.with_name(f"{name}.1"))
                at, file = 0, reply.file  # another file has taken the name
                self._read[name] = file, at
                continue
            data = reply.data.partition(b"\n")[2] if cut else reply.data
            cut, file = False, reply.file
            if reply.data:
                append(path, data)
            at += len(reply.data)
            self._read[name] = file, at
            if not reply.data or at >= reply.size:
                break


def append(path: Path, data: bytes) -> None:
    """Append all data or none: a partial write, as on a full disk, is undone, because its data is fetched again."""
    with open(open_private(path, os.O_WRONLY | os.O_APPEND), "ab", buffering=0) as out:
        before = os.fstat(out.fileno()).st_size
        try:
            while data:
                data = data[out.write(data) :]
        except OSError:
            with suppress(OSError):
                os.ftruncate(out.fileno(), before)
            raise
