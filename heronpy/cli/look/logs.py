"""`heron logs`: the logs of processes, merged by time; works even after the topology was killed."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import heapq
import json
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from heronpy.cli import exits
from heronpy.cli.look.following import EndWatch, followed_records
from heronpy.cli.output import clean_block, command, picked, warn, warning
from heronpy.clusters.archived_logs import archived_runs, not_reached
from heronpy.clusters.ended import last_ended
from heronpy.clusters.ending import AWAY_S, End
from heronpy.clusters.file_services import file_services_of
from heronpy.clusters.log_folders import is_meant, log_dir, words_of
from heronpy.clusters.masters import Master
from heronpy.clusters.mirrored_logs import Mirror
from heronpy.clusters.searching import LIMIT_MAX, Match, Search, Wanted
from heronpy.clusters.session import Session
from heronpy.clusters.target import Common, Target
from heronpy.common.errors import ConfigError
from heronpy.common.log_files import last_logs, log_processes, read_logs
from heronpy.common.log_format import RAW_LOGGER, Record, format_record
from heronpy.common.log_search import TEXT_MAX_BYTES, contains
from heronpy.common.nearest import suggestion
from heronpy.common.units import format_bytes, parse_duration_s
from heronpy.proto import plan_pb2
from heronpy.storage.log_archive import FOLDER, Run
from heronpy.views.files import LogHit


async def _find(
    session: Session, topology: str, folder: Path, runs: Mapping[Run, Path], wanted: Wanted, as_json: bool
) -> None:
    """Print matches as they are found, newest first; stderr reports whether the search was complete."""
    record = session.record(topology)
    search, shown = Search(wanted), 0
    master = Master(session, record) if record is not None else None
    try:
        async for match in search.run(file_services_of(session, topology, folder.parent, master, runs)):
            if shown and wanted.context and not as_json:
                click.echo("--")
            shown += 1
            click.echo(_as_json(match.hit) if as_json else clean_block(_as_text(match, wanted.context)))
    finally:
        if master is not None:
            master.close()
    for container, why in sorted(search.unreachable.items()):
        warning(f"not all logs of container {container} were searched: {why}")
    if record is not None and (lacking := not_reached(session, record)):
        warning(lacking)
    size = format_bytes(search.searched_bytes)
    if search.stopped:
        warn(f"stopped {search.stopped}; searched {size}, but no older text")
    elif not shown:
        warn(f"nothing found in {size} of logs")


def _as_text(match: Match, context: int) -> str:
    """Return the line with the time and process of its record or, with `context`, all lines in the format of grep."""
    hit = match.hit
    if context:
        before = [f"{hit.process}- {line}" for line in hit.before]
        after = [f"{hit.process}- {line}" for line in hit.after]
        return "\n".join([*before, f"{hit.process}: {match.line}", *after])
    if match.begins or hit.at is None or hit.logger == RAW_LOGGER:
        return match.line
    return format_record(hit.at, hit.level or "-", hit.process, hit.logger, hit.text)


def _as_json(hit: LogHit) -> str:
    shown = {"time": hit.at, "level": hit.level or "", **picked(hit, "process", "logger", "text", "before", "after")}
    return json.dumps(shown)


def show_logs(
    target: Target,
    topology: str,
    what: tuple[str, ...],
    follow: bool,
    since: str | None,
    level: str | None,
    lines: int | None,
    find: str | None,
    ignore_case: bool,
    context: int,
    earlier: bool,
    as_json: bool,
    common: Common,
) -> None:
    """Print past records of the chosen processes and, with `follow`, new records as they arrive."""
    _check_flags(find, ignore_case, context, follow)
    if earlier and since:
        raise click.UsageError("--earlier and --since are mutually exclusive; leave out one of them")
    session = Session(target, common)
    if find is not None and not follow:
        oldest = parse_since(since) if since else None if earlier else submitted_at(session, topology)
        most = LIMIT_MAX if lines is None else min(lines, LIMIT_MAX)
        wanted = Wanted(find, what, context, oldest, level, most, ignore_case=ignore_case)
        folder = log_dir(session, topology)
        with contextlib.suppress(KeyboardInterrupt), TemporaryDirectory(prefix="heron-logs-") as copied:
            runs = archived_runs(session, topology, folder.parent, Path(copied), warning)
            asyncio.run(_find(session, topology, folder, runs, wanted, as_json))
        return
    running = session.record(topology)
    away = _on_other_hosts(session, running)
    folder = Path(running.working_dir, FOLDER) if running is not None and away else log_dir(session, topology)
    with ExitStack() as stack:
        archived = Path(stack.enter_context(TemporaryDirectory(prefix="heron-logs-")))
        runs = archived_runs(session, topology, folder.parent, archived, warning)
        folders = [folder, *(run / FOLDER for run in runs.values())]
        if running is not None and away:
            # Logs of ended containers are here or in the archive; logs of running containers are on their hosts.
            copies = Path(stack.enter_context(TemporaryDirectory(prefix="heron-logs-")))
            mirror, stopped = Mirror(session, running, copies, warning), threading.Event()
            stack.callback(stopped.set)
            mirror.copy()
            if not _files(folders) and not log_processes(copies):
                session.check_here(running, f"its logs are in {folder}")
            if lacking := not_reached(session, running):
                warning(lacking)
            folders.append(copies)
            if follow:
                mirror.follow(stopped)
        oldest = parse_since(since) if since else None if earlier else submitted_at(session, topology)
        if follow and lines is None and since is None:
            lines = 10
        watch = EndWatch(session, topology, running) if follow else None
        if watch is not None:
            stack.callback(watch.stop)
        _show(folders, what, topology, watch, oldest, level, lines, find, ignore_case, as_json)
        if watch is not None and watch.end is not None:
            _say_end(session, topology, watch.end)


def show_past_logs(
    session: Session,
    folder: Path,
    topology: str,
    between: tuple[float, float],
    what: tuple[str, ...],
    level: str | None,
    lines: int | None,
    find: str | None,
    ignore_case: bool,
    as_json: bool,
) -> None:
    """Print the records of a time span from a working folder, and from the archive of its containers."""
    _check_flags(find, ignore_case, 0, False)
    with TemporaryDirectory(prefix="heron-logs-") as copied:
        runs = archived_runs(session, topology, folder, Path(copied), warning)
        folders = [folder / FOLDER, *(run / FOLDER for run in runs.values())]
        _show(folders, what, topology, None, between[0], level, lines, find, ignore_case, as_json, until=between[1])


def submitted_at(session: Session, topology: str) -> float | None:
    """Return when the topology, or else the last ended topology of that name, was submitted; None if unknown.

    The files may also hold the logs of earlier topologies of that name.
    """
    record = session.record(topology) or last_ended(session, topology)
    return record.submitted_at or None if record is not None else None


def _on_other_hosts(session: Session, running: plan_pb2.ExecutionState | None) -> bool:
    """Whether to read a topology's logs through its executors, because the logs may be on other hosts.

    Without an engine, all containers on this host write to one folder, which can be read directly.
    """
    if running is None:
        return False
    session.find(running.topology)  # it may belong to another role
    if session.engine_of(running.topology):
        return True
    return bool(session.elsewhere(running)) and not Path(running.working_dir, FOLDER).is_dir()


def _show(
    folders: list[Path],
    what: tuple[str, ...],
    topology: str,
    watch: EndWatch | None,
    oldest: float | None,
    level: str | None,
    lines: int | None,
    find: str | None,
    ignore_case: bool,
    as_json: bool,
    until: float = float("inf"),
) -> None:
    follow = watch is not None
    names = select(folders, what, topology)
    shown = Lines(as_json, coloured=follow and sys.stdout.isatty() and not os.environ.get("NO_COLOR"))
    try:
        if lines is not None or not follow:
            # Following begins at this moment, so that no record is shown twice.
            now = time.time() if follow else until

            def wanted(record: Record) -> bool:
                return record.when < now and (find is None or contains(record.text, find, ignore_case))

            if lines is not None:
                past = last_records(folders, names, lines, oldest, level, wanted)
            else:
                past = filter(wanted, past_records(folders, names, oldest, level))
            for record in past:
                shown.print(record)
            oldest = now
        if watch is not None:
            watch.start()
            for record in followed_records(folders, names, what, oldest, level, lambda: watch.end is not None):
                if find is None or contains(record.text, find, ignore_case):
                    shown.print(record)
    except KeyboardInterrupt:
        return


def _say_end(session: Session, topology: str, end: End) -> None:
    """Print why no more records arrive; raises a Failure if the reason is unknown."""
    again = command("heron", "logs", session.target, topology)
    match end:
        case End.FINISHED:
            warn(f"topology '{topology}' has finished; {command('heron', 'kill', session.target, topology)} removes it")
        case End.REPLACED:
            warn(f"topology '{topology}' has ended, and a new one uses its name; to follow the new one: {again} -f")
        case End.REMOVED:
            kept = f"; its logs are kept: {again}" if session.logs_of_ended(topology) else ""
            warn(f"topology '{topology}' has ended{kept}")
        case End.KILLED:
            warn(f"topology '{topology}' was killed")
        case End.AWAY:
            raise exits.Failure(
                f"the scheduler of '{topology}' has not answered this host for {AWAY_S:g} s, so it is unknown whether"
                f" the topology still runs; try again: {again} -f"
            )


def _check_flags(find: str | None, ignore_case: bool, context: int, follow: bool) -> None:
    if find is not None and ("\n" in find or not 0 < len(find.encode()) <= TEXT_MAX_BYTES):
        raise click.UsageError(f"--find needs one line of 1 to {TEXT_MAX_BYTES} bytes")
    if ignore_case and find is None:
        raise click.UsageError("--ignore-case needs --find")
    if context and (find is None or follow):
        raise click.UsageError("--context needs --find, and does not work with --follow")


def _files(folders: list[Path]) -> list[tuple[Path, str]]:
    """Return pairs of a folder and the name of a process that has logs in it."""
    return [(folder, name) for folder in folders for name in log_processes(folder)]


def select(folders: list[Path], what: tuple[str, ...], topology: str) -> list[str]:
    """Return the names of the processes to show; for a word without a match, raises a Failure with the nearest name."""
    known = sorted({name for _, name in _files(folders)})
    if not what:
        return known
    chosen: dict[str, None] = {}
    for word in what:
        fitting = [name for name in known if is_meant(name, word)]
        if not fitting:
            words = {one for folder in folders for one in words_of(folder)}
            hint = suggestion(word, words, f"; there are {', '.join(sorted(words)) or 'no logs yet'}")
            raise exits.Failure(f"topology '{topology}' has no log of '{word}'{hint}", exits.USAGE)
        chosen.update(dict.fromkeys(fitting))
    return list(chosen)


def parse_since(text: str) -> float:
    """Convert an age ('5m', '90s', '250ms') or an ISO time (local if it has no offset) to seconds since 1970."""
    try:
        return time.time() - parse_duration_s(text)
    except ConfigError:
        pass
    try:
        return datetime.datetime.fromisoformat(text).timestamp()
    except ValueError:
        raise exits.Failure(
            f"--since {text} is neither an age such as 5m nor a time such as 2026-11-21T10:00:00", exits.USAGE
        ) from None


def past_records(folders: list[Path], names: list[str], since: float | None, level: str | None) -> Iterator[Record]:
    """Yield the existing records of all these processes, in order of time."""
    streams = [read_logs(folder, name, since=since, level=level) for folder, name in _files(folders) if name in names]
    yield from heapq.merge(*streams, key=lambda record: record.when)


def last_records(
    folders: list[Path],
    names: list[str],
    lines: int,
    since: float | None,
    level: str | None,
    wanted: Callable[[Record], bool],
) -> Iterator[Record]:
    """Yield the last matching records of all these processes together, in order of time."""
    streams = [
        last_logs(folder, name, lines, since, level, wanted) for folder, name in _files(folders) if name in names
    ]
    yield from deque(heapq.merge(*streams, key=lambda record: record.when), maxlen=lines)


class Lines:
    """Prints records; on a terminal each process gets the next colour when it first appears."""

    #: Names of click's colours that are legible on light and dark backgrounds; red is reserved for errors.
    COLOURS = ("cyan", "green", "magenta", "yellow", "blue", "bright_cyan", "bright_green", "bright_magenta")

    def __init__(self, as_json: bool, coloured: bool) -> None:
        self._as_json, self._coloured = as_json, coloured
        self._colours: dict[str, str] = {}

    def print(self, record: Record) -> None:
        if self._as_json:
            shown = {"time": record.when, "level": record.level, "process": record.process, "logger": record.logger,
                     "text": record.message}  # fmt: skip
            click.echo(json.dumps(shown))
            return
        text = clean_block(record.text)
        if self._coloured and record.process:
            # Cleaned first: the colour must be the only escape sequence.
            text = text.replace(record.process, click.style(record.process, fg=self._colour(record.process)), 1)
        click.echo(text, color=self._coloured or None)

    def _colour(self, process: str) -> str:
        return self._colours.setdefault(process, self.COLOURS[len(self._colours) % len(self.COLOURS)])
