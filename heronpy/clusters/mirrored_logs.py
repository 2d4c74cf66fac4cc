"""The logs of containers on other hosts, copied into a folder of this one as far as they are read.

They come through the file services of their executors, in pieces; a process whose log is long is copied from near its
end. What is copied looks like the folder of logs of a topology on this machine, so the same code reads it. What a log
had rotated away before is not copied.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from heronpy.clusters.masters import Master
from heronpy.clusters.session import Session
from heronpy.common.errors import HeronError
from heronpy.common.folders import open_private
from heronpy.proto import control_pb2, plan_pb2

#: Of each log this much is copied at first; what is written later is copied whole.
FIRST_MAX_BYTES = 8 << 20
PIECE_BYTES = 256 << 10
#: Pieces of one log in a row, so that a busy one does not keep the others from being read.
PIECES_MAX = 64
AGAIN_S = 0.3
#: While they are followed, a container may be moved, or end with its topology, before anybody is told of it.
PATIENCE_S = 5.0
_LOGS = "log-files/"


class Mirror:
    """The logs of one topology; `folder` is the caller's, private and empty.

    `said` is told once of each container whose logs cannot be read, and of each log of which only the end is copied.
    """

    def __init__(
        self, session: Session, record: plan_pb2.ExecutionState, folder: Path, said: Callable[[str], None]
    ) -> None:
        self._session = session
        self._record = record
        self._folder = folder
        self._say = said
        self._told: set[str] = set()
        #: By container: since when its logs cannot be read.
        self._away_since: dict[int, float] = {}
        self._patience_s = 0.0
        #: By name: which file it is, and how much of it is read.
        self._read: dict[str, tuple[int, int]] = {}

    def copy(self) -> None:
        """What there is now."""
        asyncio.run(self._run(lambda: True))

    def follow(self, stopped: threading.Event) -> None:
        """Also what comes, until it is stopped; returns at once."""
        self._patience_s = PATIENCE_S
        threading.Thread(target=lambda: asyncio.run(self._run(stopped.is_set)), daemon=True).start()

    async def _run(self, over: Callable[[], bool]) -> None:
        master = Master(self._session, self._record)
        try:
            while True:
                # At the same time: an executor that is down answers only after a while.
                await asyncio.gather(*(self._copy(master, container) for container in self._containers()))
                if over():
                    return
                await asyncio.sleep(AGAIN_S)
        finally:
            master.close()

    def _containers(self) -> list[int]:
        try:
            plan = self._session.packing_plan(self._record.topology)
        except (HeronError, OSError):
            return []  # it starts or ends, or its state cannot be read right now
        return [0, *(container.id for container in plan.containers)]

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
            return  # not a name that an executor lists
        file, at = self._read.get(name, (0, 0))
        if file and (entry.file, entry.bytes) == (file, at):
            return  # nothing was written since
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
    """All of it or nothing: what is written in part, as on a full disk, is taken back, because it will come again."""
    with open(open_private(path, os.O_WRONLY | os.O_APPEND), "ab", buffering=0) as out:
        before = os.fstat(out.fileno()).st_size
        try:
            while data:
                data = data[out.write(data) :]
        except OSError:
            with suppress(OSError):
                os.ftruncate(out.fileno(), before)
            raise
