"""`heron logs --find`: the lines that contain a text, searched beside the files."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from heronpy.cli.output import clean_block, warn, warning
from heronpy.clusters.archived_logs import archived_runs, not_reached
from heronpy.clusters.doors import doors_of
from heronpy.clusters.log_folders import log_dir
from heronpy.clusters.masters import Master
from heronpy.clusters.searching import LIMIT_MAX, Match, Search, Wanted
from heronpy.clusters.session import Session
from heronpy.common.log_format import RAW_LOGGER, format_record
from heronpy.common.units import format_bytes
from heronpy.storage.log_archive import Run


def hits(lines: int | None) -> int:
    """How many hits are shown at most."""
    return LIMIT_MAX if lines is None else min(lines, LIMIT_MAX)


def find_in_logs(session: Session, topology: str, wanted: Wanted, as_json: bool) -> None:
    """Print the matches as they are found, newest first; stderr says whether that was all."""
    folder = log_dir(session, topology)
    with contextlib.suppress(KeyboardInterrupt), TemporaryDirectory(prefix="heron-logs-") as copies:
        runs = archived_runs(session, topology, folder.parent, Path(copies), warning)
        asyncio.run(_find(session, topology, folder, runs, wanted, as_json))


async def _find(
    session: Session, topology: str, folder: Path, runs: Mapping[Run, Path], wanted: Wanted, as_json: bool
) -> None:
    record = session.record(topology)
    search, shown = Search(wanted), 0
    master = Master(session, record) if record is not None else None
    try:
        async for match in search.run(doors_of(session, topology, folder.parent, master, runs)):
            if shown and wanted.context and not as_json:
                click.echo("--")
            shown += 1
            click.echo(_as_json(match) if as_json else clean_block(_as_text(match, wanted.context)))
    finally:
        if master is not None:
            master.close()
    for container, why in sorted(search.unreachable.items()):
        warning(f"not all logs of container {container} were searched: {why}")
    if record is not None and (lacking := not_reached(session, record)):
        warning(lacking)
    size = format_bytes(search.searched_bytes)
    if search.stopped:
        warn(f"stopped {search.stopped}; {size} were searched, what is older was not")
    elif not shown:
        warn(f"nothing found in {size} of logs")


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
