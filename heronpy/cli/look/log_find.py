"""`heron logs --find`: the lines that contain a text, searched beside the files."""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import replace
from pathlib import Path

import click

from heronpy.cli.output import clean_block, warn, warning
from heronpy.clusters.log_folders import container_of, log_dir
from heronpy.clusters.masters import Master
from heronpy.clusters.searching import LIMIT_MAX, Door, MasterDoor, Match, Search, Wanted
from heronpy.clusters.session import Session
from heronpy.common.errors import HeronError
from heronpy.common.log_files import log_processes
from heronpy.common.log_format import RAW_LOGGER, format_record
from heronpy.common.units import format_bytes
from heronpy.executor.files_door import ContainerFiles
from heronpy.proto import control_pb2


def hits(lines: int | None) -> int:
    """How many hits are shown at most."""
    return LIMIT_MAX if lines is None else min(lines, LIMIT_MAX)


def find_in_logs(session: Session, topology: str, wanted: Wanted, as_json: bool) -> None:
    """Print the matches as they are found, newest first; stderr says whether that was all."""
    folder = log_dir(session, topology)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_find(session, topology, folder, wanted, as_json))


async def _find(session: Session, topology: str, folder: Path, wanted: Wanted, as_json: bool) -> None:
    record = session.record(topology)
    if wanted.since is None and record is not None:
        # The files may also hold the logs of an earlier topology of the same name.
        wanted = replace(wanted, since=record.submitted_at or None)
    search, shown = Search(wanted), 0
    master = Master(session, record) if record is not None else None
    try:
        doors: dict[int, Door] = {number: _LocalDoor(folder, number) for number in _local(folder)}
        if master is not None:
            doors |= {
                number: _EitherDoor(MasterDoor(master, number), _LocalDoor(folder, number))
                for number in _planned(session, topology)
            }
        async for match in search.run(doors):
            if shown and wanted.context and not as_json:
                click.echo("--")
            shown += 1
            click.echo(_as_json(match) if as_json else clean_block(_as_text(match, wanted.context)))
    finally:
        if master is not None:
            master.close()
    for container, why in sorted(search.unreachable.items()):
        warning(f"not all logs of container {container} were searched: {why}")
    size = format_bytes(search.searched_bytes)
    if search.stopped:
        warn(f"stopped {search.stopped}; {size} were searched, what is older was not")
    elif not shown:
        warn(f"nothing found in {size} of logs")


def _planned(session: Session, topology: str) -> list[int]:
    try:
        return [0, *(container.id for container in session.packing_plan(topology).containers)]
    except HeronError:
        return []  # it starts or ends; what is on this machine is searched


def _local(folder: Path) -> list[int]:
    """Containers of which there are logs on this machine."""
    return sorted({container_of(name) for name in log_processes(folder)})


class _LocalDoor:
    """The logs of a container on this machine: of a topology that has ended, or whose executor is down."""

    def __init__(self, folder: Path, container: int) -> None:
        self._files = ContainerFiles(folder.parent, container)

    async def list_files(self) -> control_pb2.ListFilesReply:
        return await asyncio.to_thread(self._files.listed)

    async def search_file(self, request: control_pb2.SearchFile) -> control_pb2.SearchFileReply:
        return await asyncio.to_thread(self._files.search, request)


class _EitherDoor:
    """The door of an executor; when that does not answer, the files on this machine, if there are any."""

    def __init__(self, door: Door, local: Door) -> None:
        self._door, self._local = door, local

    async def list_files(self) -> control_pb2.ListFilesReply:
        try:
            return await self._door.list_files()
        except HeronError:
            found = await self._local.list_files()
            if not found.files:
                raise
        self._door = self._local
        return found

    async def search_file(self, request: control_pb2.SearchFile) -> control_pb2.SearchFileReply:
        return await self._door.search_file(request)


def _as_text(match: Match, context: int) -> str:
    """The line as it stands in the file, with the time and the process of its record; context as grep has it."""
    if context:
        before = [f"{match.process}- {line}" for line in match.before]
        after = [f"{match.process}- {line}" for line in match.after]
        return "\n".join([*before, f"{match.process}: {match.line}", *after])
    if match.begins or match.at is None or match.logger == RAW_LOGGER:
        return match.line
    return format_record(match.at, match.level or "-", match.process, match.logger, match.text)


def _as_json(match: Match) -> str:
    return json.dumps(
        {
            "time": match.at,
            "level": match.level,
            "process": match.process,
            "logger": match.logger,
            "text": match.text,
            "before": list(match.before),
            "after": list(match.after),
        }
    )
