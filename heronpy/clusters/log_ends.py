"""Reads the ends of a topology's logs through its executors' file services, or else on this machine."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from heronpy.clusters.file_services import FileService, file_services_of
from heronpy.clusters.masters import Master
from heronpy.clusters.session import Session
from heronpy.common.errors import HeronError
from heronpy.proto import control_pb2, plan_pb2

_LOG: Final = re.compile(r"log-files/(?P<process>.+)\.log(?:\.(?P<back>\d{1,6}))?")


@dataclass(frozen=True, slots=True)
class End:
    """The end of one log."""

    data: bytes = b""
    #: Whether it begins inside the log, mostly inside a line.
    cut: bool = False
    #: Why it could not be read; empty if it was read.
    error: str = ""


@dataclass(frozen=True, slots=True)
class LogEnds:
    """What was read."""

    #: Process to the end of its log, in the requested order.
    found: Mapping[str, End] = field(default_factory=dict)
    #: Containers whose logs could not be listed, and why.
    unreachable: Mapping[int, str] = field(default_factory=dict)


async def log_ends(
    session: Session, record: plan_pb2.ExecutionState, first: Sequence[str], logs_max: int, tail_bytes: int
) -> LogEnds:
    """The last `tail_bytes` of at most `logs_max` logs: those of the processes `first`, then the others by name."""
    master = Master(session, record)
    try:
        return await _ends(
            file_services_of(session, record.topology, Path(record.working_dir), master), first, logs_max, tail_bytes
        )
    finally:
        master.close()


async def _ends(services: Mapping[int, FileService], first: Sequence[str], logs_max: int, tail_bytes: int) -> LogEnds:
    unreachable: dict[int, str] = {}

    async def listed(container: int, service: FileService) -> list[control_pb2.FileEntry]:
        try:
            return list((await service.ask(control_pb2.ListFiles())).files)
        except HeronError as error:
            unreachable[container] = str(error)
            return []

    # In parallel, because an executor that is down answers only after a while.
    answers = await asyncio.gather(*(listed(container, service) for container, service in services.items()))
    newest: dict[str, tuple[bool, int, FileService, str]] = {}
    for service, entries in zip(services.values(), answers, strict=True):
        for entry in entries:
            match = _LOG.fullmatch(entry.name)
            if match is None:
                continue
            # An empty log has just been rotated, or belongs to a restarted container.
            rank = entry.bytes == 0, int(match["back"] or 0)
            if match["process"] not in newest or rank < newest[match["process"]][:2]:
                newest[match["process"]] = (*rank, service, entry.name)
    wanted = list(dict.fromkeys([*(name for name in first if name in newest), *sorted(newest)]))[:logs_max]
    ends = await asyncio.gather(*(_end(*newest[name][2:], tail_bytes) for name in wanted))
    return LogEnds(dict(zip(wanted, ends, strict=True)), unreachable)


async def _end(service: FileService, name: str, tail_bytes: int) -> End:
    try:
        reply = await service.ask(control_pb2.ReadFile(name=name, bytes=tail_bytes, from_end=True))
    except HeronError as error:
        return End(error=str(error))
    return End(reply.data, reply.offset > 0)
