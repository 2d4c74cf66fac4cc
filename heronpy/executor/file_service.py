"""The file service of a container, which returns logs and dead letters by their listed names, and evidence of
processes.

Only regular files that are directly in one of two folders are opened. They are opened through a descriptor of the
folder and never through a link, so that no name leads elsewhere. A name that the service does not list is refused. An
answer has at most `READ_MAX_BYTES` and `LISTED_MAX` names. On one machine all containers write into one folder, and
each service lists the files of its container. The service of container 0 also lists files that belong to no container.
"""

from __future__ import annotations

import asyncio
import os
import re
import stat
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from google.protobuf.message import Message

from heronpy.common.errors import InvalidRpcError, RetryableRpcError
from heronpy.common.ids import bootstrap_id, executor_id, stmgr_id
from heronpy.common.log_search import TEXT_MAX_BYTES, search_back
from heronpy.net.rpc import body_of
from heronpy.net.rpc_loop import ControlServer
from heronpy.net.transport import authenticator_of, endpoint_of, keys_of
from heronpy.plan.launch import LaunchSpec
from heronpy.proto import control_pb2
from heronpy.storage.dead_letters import FOLDER as LETTERS

LOGS = "log-files"
READ_MAX_BYTES = 256 * 1024
LISTED_MAX = 20_000
#: Maximum number of concurrent requests; further requests are refused.
ANSWERING_MAX = 8
#: Maximum number of concurrent searches, which read whole files.
SEARCHING_MAX = 2
#: A log or a file of dead letters, and its rotated files: `P.log`, `P.log.1`.
_FILE = re.compile(r"(?P<process>[^\x00-\x1f/\\.][^\x00-\x1f/\\]*?)\.(?P<kind>log|jsonl)(\.[0-9]{1,4})?")
_SUFFIXES = {LOGS: "log", LETTERS: "jsonl"}


def socket_name(container: int) -> str:
    return f"{executor_id(container)}.files"


def belongs(process: str, container: int, alone: bool = False) -> bool:
    """Whether a process with this name belongs to this container; a process without a container belongs to container 0.

    `alone` means that no other container writes into the folder, so a process without a container (a standby topology
    master) also belongs to this container.
    """
    own = (stmgr_id(container), executor_id(container), bootstrap_id(container))
    if process in own or process.startswith(f"container_{container}_"):
        return True
    return (alone or container == 0) and not re.match(r"(stmgr-|executor-|bootstrap-|container_)\d+(_|$)", process)


class ContainerFiles:
    """The files of one container below a working folder. Each method opens and closes the files that it reads."""

    def __init__(self, working_dir: str | os.PathLike[str], container: int, alone: bool = False) -> None:
        self._folder = Path(working_dir)
        self._container = container
        self._alone = alone

    def answer(self, request: Message) -> Message:
        """Answer `ListFiles`, `ReadFile` or `SearchFile`."""
        if isinstance(request, control_pb2.ReadFile):
            return self.read(request)
        return self.search(request) if isinstance(request, control_pb2.SearchFile) else self.listed()

    def listed(self) -> control_pb2.ListFilesReply:
        """All files, sorted by name."""
        reply = control_pb2.ListFilesReply()
        for folder in (LOGS, LETTERS):
            for name, status in sorted(self._entries(folder), key=lambda entry: entry[0]):
                if len(reply.files) == LISTED_MAX:
                    return reply
                reply.files.add(
                    name=f"{folder}/{name}", bytes=status.st_size, changed_at=status.st_mtime, file=status.st_ino
                )
        return reply

    def read(self, request: control_pb2.ReadFile) -> control_pb2.ReadFileReply:
        """A piece of a file; raises InvalidRpcError for a name that is not listed."""
        folder, slash, name = request.name.partition("/")
        if not slash or folder not in _SUFFIXES or not self._is_ours(folder, name):
            raise InvalidRpcError(f"container {self._container} has no file {request.name!r}")
        descriptor = self._open(folder, name)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise InvalidRpcError(f"{request.name!r} of container {self._container} is not a file")
            count = min(request.bytes or READ_MAX_BYTES, READ_MAX_BYTES)
            offset = max(0, status.st_size - count) if request.from_end else request.offset
            data = os.pread(descriptor, count, offset) if offset < status.st_size else b""
        finally:
            os.close(descriptor)
        return control_pb2.ReadFileReply(data=data, offset=offset, size=status.st_size, file=status.st_ino)

    def search(self, request: control_pb2.SearchFile) -> control_pb2.SearchFileReply:
        """Hits in a log, newest first; raises InvalidRpcError for an unlisted name or a text with a line break."""
        text = request.text.encode("utf-8", "surrogatepass")
        if not text or len(text) > TEXT_MAX_BYTES or b"\n" in text:
            raise InvalidRpcError(f"the text to find must be one line of 1 to {TEXT_MAX_BYTES} bytes")
        folder, _, name = request.name.partition("/")
        if folder != LOGS or not self._is_ours(folder, name):
            raise InvalidRpcError(f"container {self._container} has no log {request.name!r}")
        descriptor = self._open_same(name, request.file)
        if descriptor < 0:
            return control_pb2.SearchFileReply()  # rotated away
        try:
            found = search_back(descriptor, text, request.until, request.hits, request.context, request.ignore_case)
        finally:
            os.close(descriptor)
        reply = control_pb2.SearchFileReply(until=found.until, searched=found.searched)
        for hit in found.hits:
            reply.hits.add(offset=hit.offset, line=hit.line, head=hit.head, before=hit.before, after=hit.after)
        return reply

    def _open_same(self, name: str, file: int) -> int:
        """A descriptor for the log with this inode, which rotation may have renamed; -1 if the log is gone."""
        base, _, digits = name.rpartition(".")
        later = f"{base}.{int(digits) + 1}" if digits.isdigit() else f"{name}.1"
        for one in (name, later):
            try:
                descriptor = self._open(LOGS, one)
            except InvalidRpcError:
                continue
            status = os.fstat(descriptor)
            if stat.S_ISREG(status.st_mode) and file in (0, status.st_ino):
                return descriptor
            os.close(descriptor)
        return -1

    def _is_ours(self, folder: str, name: str) -> bool:
        match = _FILE.fullmatch(name)
        return match is not None and match["kind"] == _SUFFIXES[folder] and self._owns(match["process"])

    def _owns(self, process: str) -> bool:
        return belongs(process, self._container, self._alone)

    def _open_folder(self, folder: str) -> int:
        return os.open(self._folder / folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)

    def _open(self, folder: str, name: str) -> int:
        try:
            above = self._open_folder(folder)
            try:
                # O_NONBLOCK, so that a FIFO in its place cannot block this process.
                flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
                return os.open(name, flags, dir_fd=above)
            finally:
                os.close(above)
        except OSError as error:
            raise InvalidRpcError(
                f"container {self._container} cannot open {folder}/{name!r}: {error.strerror or error}"
            ) from None

    def _entries(self, folder: str) -> Iterator[tuple[str, os.stat_result]]:
        try:
            above = self._open_folder(folder)
        except OSError:
            return  # nothing was written yet
        try:
            with os.scandir(above) as entries:
                for entry in entries:
                    if self._is_ours(folder, entry.name) and entry.is_file(follow_symlinks=False):
                        try:
                            yield entry.name, entry.stat(follow_symlinks=False)
                        except FileNotFoundError:
                            continue  # rotated away
        finally:
            os.close(above)


class FileService:
    """Answers `ListFiles`, `ReadFile`, `SearchFile` and the requests whose field names are in `more`. Requires a
    running loop.

    TCP connections are admitted only if the client has the topology's key.
    """

    def __init__(
        self,
        launch: LaunchSpec,
        container: int,
        more: Mapping[str, Callable[[Any], Awaitable[Message]]] | None = None,
    ) -> None:
        self._more = more or {}
        self._files = ContainerFiles(launch.working_dir, container, alone=bool(launch.submitted.engine))
        keys = keys_of(launch)
        self._authenticator = authenticator_of(keys)
        self._server = ControlServer([endpoint_of(launch, socket_name(container))], self._on_request, keys=keys)
        if self._authenticator is not None:
            self._authenticator.watch(self._server.sock)
        self._answering = self._searching = 0

    @property
    def endpoint(self) -> str:
        """The address at which the service listens."""
        return self._server.endpoints[0]

    async def _on_request(self, identity: bytes, envelope: control_pb2.Envelope) -> Message:
        field, body = body_of(envelope)
        if field in self._more:
            return await self._more[field](body)
        if field not in ("list_files", "read_file", "search_file"):
            raise InvalidRpcError(f"the file service of an executor does not support the request {field}")
        searches = field == "search_file"
        if self._answering >= ANSWERING_MAX or (searches and self._searching >= SEARCHING_MAX):
            raise RetryableRpcError("the executor is reading other files; try again")
        self._answering += 1
        self._searching += searches
        try:
            # A slow disk must not delay the heartbeats of the container.
            return await asyncio.to_thread(self._files.answer, body)
        finally:
            self._answering -= 1
            self._searching -= searches

    def close(self) -> None:
        """Close the service. Idempotent."""
        if self._authenticator is not None:
            self._authenticator.close()
        self._server.close()
