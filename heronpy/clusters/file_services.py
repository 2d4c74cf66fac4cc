"""Reads the files of a topology's containers, through the executors' file services or on this machine.

An ended topology has no executors; its files on this machine are read directly, with the same checks and limits.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, overload

from heronpy.clusters.log_folders import container_of
from heronpy.clusters.masters import Master
from heronpy.clusters.session import Session
from heronpy.common.errors import HeronError
from heronpy.common.log_files import log_processes
from heronpy.executor.file_service import ContainerFiles
from heronpy.proto import control_pb2
from heronpy.storage.dead_letters import files_of

if TYPE_CHECKING:
    from heronpy.storage.log_archive import Run

_LOG: Final = re.compile(r"log-files/(?P<process>.+)\.log(?:\.(?P<back>\d{1,6}))?")
#: Files of earlier runs are numbered from EARLIER, above the numbers of rotated files. EARLIER_MAX runs are searched.
EARLIER: Final = 10_000
EARLIER_MAX: Final = 50


class FileService(Protocol):
    """Lists, reads and searches the files of one container. Requests raise HeronError."""

    @overload
    async def ask(self, request: control_pb2.ListFiles) -> control_pb2.ListFilesReply: ...
    @overload
    async def ask(self, request: control_pb2.ReadFile) -> control_pb2.ReadFileReply: ...
    @overload
    async def ask(self, request: control_pb2.SearchFile) -> control_pb2.SearchFileReply: ...


class LogFile(NamedTuple):
    """One file of a process's log; `back` is 0 for the current file and increases with the file's age."""

    container: int
    process: str
    back: int
    entry: control_pb2.FileEntry


async def listed(
    services: Mapping[int, FileService], unreachable: dict[int, str]
) -> dict[int, list[control_pb2.FileEntry]]:
    """The files of each container. If a container's files cannot be listed, the reason is added to `unreachable`."""

    async def of(container: int, service: FileService) -> list[control_pb2.FileEntry]:
        try:
            return list((await service.ask(control_pb2.ListFiles())).files)
        except HeronError as error:
            unreachable[container] = str(error)
            return []

    # In parallel, because an executor that is down answers only after a while.
    answers = await asyncio.gather(*(of(container, service) for container, service in services.items()))
    return dict(zip(services, answers, strict=True))


async def logs_of(services: Mapping[int, FileService], unreachable: dict[int, str]) -> list[LogFile]:
    """The log files of all containers; for `unreachable` see `listed`."""
    return [
        LogFile(container, match["process"], int(match["back"] or 0), entry)
        for container, entries in (await listed(services, unreachable)).items()
        for entry in entries
        if (match := _LOG.fullmatch(entry.name)) is not None
    ]


class MasterFileService:
    """The file service of an executor, reached through a `Master`."""

    def __init__(self, master: Master, container: int) -> None:
        self._master, self._container = master, container

    async def ask(self, request: Any) -> Any:
        return await self._master.ask_executor(self._container, request)


class LocalFileService:
    """Reads a container's files on this machine, for a topology that has ended or an executor that is down."""

    def __init__(self, working_dir: Path, container: int) -> None:
        self._files = ContainerFiles(working_dir, container)

    async def ask(self, request: Any) -> Any:
        return await asyncio.to_thread(self._files.answer, request)


class EitherFileService:
    """The file service of an executor or, if it does not answer, the files on this machine."""

    def __init__(self, service: FileService, local: FileService) -> None:
        self._service, self._local = service, local

    async def ask(self, request: Any) -> Any:
        """Send a request. If the executor fails to answer a list request, later requests read this machine's files."""
        if not isinstance(request, control_pb2.ListFiles):
            return await self._service.ask(request)
        try:
            return await self._service.ask(request)
        except HeronError:
            found = await self._local.ask(request)
            if not found.files:
                raise
        self._service = self._local
        return found


class WithEarlier:
    """The file service of a container; lists the logs of earlier runs as older files of the same processes."""

    def __init__(self, service: FileService, earlier: Sequence[FileService]) -> None:
        self._services = (service, *earlier)
        self._where: dict[str, tuple[FileService, str]] = {}

    async def ask(self, request: Any) -> Any:
        """Send a request. A request for a file goes to the service that listed the file."""
        if isinstance(request, control_pb2.ListFiles):
            return await self._list(request)
        service, request.name = self._where.get(request.name, (self._services[0], request.name))
        return await service.ask(request)

    async def _list(self, request: control_pb2.ListFiles) -> control_pb2.ListFilesReply:
        found = control_pb2.ListFilesReply()
        for back, service in enumerate(self._services):
            for entry in (await service.ask(request)).files:
                match = _LOG.fullmatch(entry.name)
                if back and match is None:
                    continue  # only logs are kept
                name = entry.name
                if back and match is not None:
                    name = f"log-files/{match['process']}.log.{back * EARLIER + int(match['back'] or 0)}"
                self._where[name] = service, entry.name
                entry.name = name
                found.files.append(entry)
        return found


def file_services_of(
    session: Session,
    topology: str,
    working_dir: Path,
    master: Master | None,
    runs: Mapping[Run, Path] = MappingProxyType({}),
) -> dict[int, FileService]:
    """Map from container to file service, for the containers in the plan and those with files on this machine.

    `runs` has the folders of archived runs, which are listed after the current files of their container.
    """
    found: dict[int, FileService] = {number: LocalFileService(working_dir, number) for number in _local(working_dir)}
    if master is not None:
        for number in planned(session, topology):
            found[number] = EitherFileService(MasterFileService(master, number), LocalFileService(working_dir, number))
    earlier: dict[int, list[FileService]] = {}
    if master is not None and session.engine_of(topology):
        # Logs that earlier runs of these containers have sent to the scheduler's host.
        earlier = {number: [LocalFileService(working_dir, number)] for number in _local(working_dir) if number in found}
    for run, folder in sorted(runs.items(), reverse=True):
        earlier.setdefault(run.container, []).append(LocalFileService(folder, run.container))
    for number, kept in earlier.items():
        found[number] = WithEarlier(found.get(number, LocalFileService(working_dir, number)), kept[:EARLIER_MAX])
    return found


def planned(session: Session, topology: str) -> list[int]:
    """The containers of a topology; empty while it is starting or ending, or if its state cannot be read."""
    try:
        return [0, *(container.id for container in session.packing_plan(topology).containers)]
    except (HeronError, OSError):
        return []


def _local(working_dir: Path) -> set[int]:
    """Containers that have files on this machine."""
    letters = (file.name.partition(".jsonl")[0] for file in files_of(working_dir))
    return {container_of(name) for name in (*log_processes(working_dir / "log-files"), *letters)}
