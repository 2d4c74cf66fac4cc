"""Reads the tails of a topology's logs through its executors' file services, or else on this machine."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from heronpy.clusters.errors import ClusterError
from heronpy.clusters.file_services import FileService, LogFile, file_services_of, logs_of
from heronpy.clusters.log_folders import container_of
from heronpy.clusters.masters import Master
from heronpy.clusters.session import Session
from heronpy.common.errors import HeronError
from heronpy.common.log_format import CONTINUATION, escape, parse_line
from heronpy.executor.file_service import ContainerFiles
from heronpy.proto import control_pb2, plan_pb2

#: For the newest lines of one log: bytes that are read, and the limits of the output.
TAIL_BYTES, LINES_MAX, LINE_MAX = 32 * 1024, 200, 1000


@dataclass(frozen=True, slots=True)
class End:
    """The tail of one log."""

    data: bytes = b""
    #: Whether the start of the log is missing. The text then usually begins in the middle of a line.
    cut: bool = False
    #: Why the log could not be read; empty if it was read.
    error: str = ""


@dataclass(frozen=True, slots=True)
class LogEnds:
    """The logs that were read."""

    #: The end of each process's log, in the requested order.
    found: Mapping[str, End] = field(default_factory=dict)
    #: Containers whose logs could not be listed, with the reason.
    unreachable: Mapping[int, str] = field(default_factory=dict)


async def log_ends(
    session: Session, record: plan_pb2.ExecutionState, first: Sequence[str], logs_max: int, tail_bytes: int
) -> LogEnds:
    """The last `tail_bytes` of up to `logs_max` logs: logs of the processes in `first`, then others, sorted by name."""
    master = Master(session, record)
    try:
        return await _ends(
            file_services_of(session, record.topology, Path(record.working_dir), master), first, logs_max, tail_bytes
        )
    finally:
        master.close()


async def _ends(services: Mapping[int, FileService], first: Sequence[str], logs_max: int, tail_bytes: int) -> LogEnds:
    unreachable: dict[int, str] = {}
    newest: dict[str, LogFile] = {}
    # An empty log has just been rotated, or is the new log of a restarted container.
    for file in sorted(await logs_of(services, unreachable), key=lambda file: (file.entry.bytes == 0, file.back)):
        newest.setdefault(file.process, file)
    wanted = list(dict.fromkeys([*(name for name in first if name in newest), *sorted(newest)]))[:logs_max]
    ends = await asyncio.gather(
        *(_end(services[newest[name].container], newest[name].entry.name, tail_bytes) for name in wanted)
    )
    return LogEnds(dict(zip(wanted, ends, strict=True)), unreachable)


async def _end(service: FileService, name: str, tail_bytes: int) -> End:
    try:
        reply = await service.ask(control_pb2.ReadFile(name=name, bytes=tail_bytes, from_end=True))
    except HeronError as error:
        return End(error=str(error))
    return End(reply.data, reply.offset > 0)


def log_tail(
    session: Session, topology: str, status: control_pb2.StatusReply, process: str, timeout_s: float
) -> list[str]:
    """The last lines of a log, oldest first. HeronError if neither the executor nor this machine has them. Blocking."""
    container = container_of(process)
    request = control_pb2.ReadFile(name=f"log-files/{process}.log", bytes=TAIL_BYTES, from_end=True)
    service = next((one.file_service for one in status.executors if one.container == container), "")
    try:
        if not service:
            raise ClusterError(
                f"the executor of container {container} is not registered, so its logs cannot be read now"
            )
        reply: control_pb2.ReadFileReply = session.ask_executor(topology, container, service, request, timeout_s)
    except HeronError:
        record = session.record(topology)
        with suppress(HeronError, OSError):
            if record is not None:  # the executor of a task that is down may be down as well
                return lines_of(ContainerFiles(record.working_dir, container).read(request))
        raise
    return lines_of(reply)


def lines_of(reply: control_pb2.ReadFileReply) -> list[str]:
    """The last lines of a log; a record is shown as its time of day (UTC), level and message."""
    data = reply.data
    if reply.offset:  # the piece begins inside a line
        data = data.partition(b"\n")[2] or data
    found = []
    for line in data.decode("utf-8", "backslashreplace").removesuffix("\n").split("\n")[-LINES_MAX:]:
        if line.startswith(CONTINUATION):
            shown = f"    {line.removeprefix(CONTINUATION)}"
        else:
            record = parse_line(line)
            shown = f"{line[11:19]} {record.level:<5} {record.message}" if record is not None else line
        found.append(escape(shown[:LINE_MAX]))
    return found if data else []
