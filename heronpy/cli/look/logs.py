"""`heron logs`: the logs of processes, merged by time, even after the topology was killed."""

from __future__ import annotations

import contextlib
import datetime
import heapq
import json
import os
import queue
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from heronpy.cli import exits
from heronpy.cli.look.log_find import find_in_logs, hits
from heronpy.cli.output import clean_block, warning
from heronpy.clusters.archived_logs import archived_runs, not_reached
from heronpy.clusters.ended import last_ended
from heronpy.clusters.log_folders import component_of, log_dir, words_of
from heronpy.clusters.mirrored_logs import Mirror
from heronpy.clusters.searching import Wanted
from heronpy.clusters.session import Session
from heronpy.clusters.target import Common, Target
from heronpy.common.errors import ConfigError
from heronpy.common.log_files import log_processes, read_logs
from heronpy.common.log_format import Record
from heronpy.common.log_search import TEXT_MAX_BYTES, contains
from heronpy.common.nearest import suggestion
from heronpy.common.units import parse_duration_s
from heronpy.proto import plan_pb2
from heronpy.storage.log_archive import FOLDER

FOLLOW_POLL_S = 0.1
FOLLOWED_MAX = 200


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
    """Print the records of the chosen processes, past ones and new ones as they come."""
    _check_flags(find, ignore_case, context, follow)
    if earlier and since:
        raise click.UsageError("--earlier shows all that is older; it does not go with --since")
    session = Session(target, common)
    if find is not None and not follow:
        oldest = parse_since(since) if since else None if earlier else submitted_at(session, topology)
        wanted = Wanted(find, what, context, oldest, level, hits(lines), ignore_case=ignore_case)
        find_in_logs(session, topology, wanted, as_json)
        return
    running = session.record(topology)
    away = _on_other_hosts(session, running)
    folder = Path(running.working_dir, FOLDER) if running is not None and away else log_dir(session, topology)
    with ExitStack() as stack:
        archived = Path(stack.enter_context(TemporaryDirectory(prefix="heron-logs-")))
        runs = archived_runs(session, topology, folder.parent, archived, warning)
        folders = [folder, *(run / FOLDER for run in runs.values())]
        if running is not None and away:
            # What containers that have ended sent is here or in the archive, what the others write is on their hosts.
            copies = Path(stack.enter_context(TemporaryDirectory(prefix="heron-logs-")))
            mirror, stopped = Mirror(session, running, copies, warning), threading.Event()
            stack.callback(stopped.set)
            mirror.copy()
            if not _files(folders) and not log_processes(copies):
                session.check_here(running, f"its logs are, in {folder}")
            if lacking := not_reached(session, running):
                warning(lacking)
            folders.append(copies)
            if follow:
                mirror.follow(stopped)
        oldest = parse_since(since) if since else None if earlier else submitted_at(session, topology)
        if follow and lines is None and since is None:
            lines = 10
        _show(folders, what, topology, follow, oldest, level, lines, find, ignore_case, as_json)


def submitted_at(session: Session, topology: str) -> float | None:
    """When the topology, or the last one of its name, was submitted; None if that is not known.

    The files may also hold the logs of earlier ones.
    """
    record = session.record(topology) or last_ended(session, topology)
    return record.submitted_at or None if record is not None else None


def _on_other_hosts(session: Session, running: plan_pb2.ExecutionState | None) -> bool:
    """Whether logs of a topology are read through its executors: they lie on other hosts, or can.

    Without an engine all containers of this host write into one folder, which the doors would list and copy from.
    """
    if running is None:
        return False
    session.find(running.topology)  # it may be another role's
    if session.engine_of(running.topology):
        return True
    return bool(session.elsewhere(running)) and not Path(running.working_dir, FOLDER).is_dir()


def _show(
    folders: list[Path],
    what: tuple[str, ...],
    topology: str,
    follow: bool,
    oldest: float | None,
    level: str | None,
    lines: int | None,
    find: str | None,
    ignore_case: bool,
    as_json: bool,
) -> None:
    names = select(folders, what, topology)
    shown = Lines(as_json, coloured=follow and sys.stdout.isatty() and not os.environ.get("NO_COLOR"))
    try:
        if lines is not None or not follow:
            # Following takes over at this moment, so that no record is shown twice.
            now = time.time() if follow else float("inf")
            past = (
                record
                for record in past_records(folders, names, oldest, level)
                if record.when < now and (find is None or contains(record.text, find, ignore_case))
            )
            for record in deque(past, maxlen=lines) if lines is not None else past:
                shown.print(record)
            oldest = now
        if follow:
            for record in followed_records(folders, names, what, oldest, level):
                if find is None or contains(record.text, find, ignore_case):
                    shown.print(record)
    except KeyboardInterrupt:
        return


def _check_flags(find: str | None, ignore_case: bool, context: int, follow: bool) -> None:
    if find is not None and ("\n" in find or not 0 < len(find.encode()) <= TEXT_MAX_BYTES):
        raise click.UsageError(f"--find takes one line of 1 to {TEXT_MAX_BYTES} bytes")
    if ignore_case and find is None:
        raise click.UsageError("--ignore-case belongs to --find")
    if context and (find is None or follow):
        raise click.UsageError("--context belongs to --find without --follow")


def _files(folders: list[Path]) -> list[tuple[Path, str]]:
    """The folders in which a process has logs, with its name."""
    return [(folder, name) for folder in folders for name in log_processes(folder)]


def _processes(folders: list[Path]) -> list[str]:
    return sorted({name for _, name in _files(folders)})


def select(folders: list[Path], what: tuple[str, ...], topology: str) -> list[str]:
    """Names of the processes to show; a Failure that names the nearest when a word matches none."""
    known = _processes(folders)
    if not what:
        return known
    chosen: dict[str, None] = {}
    for word in what:
        fitting = [name for name in known if word in (name, component_of(name))]
        if not fitting:
            words = {one for folder in folders for one in words_of(folder)}
            hint = suggestion(word, words, f"; there are {', '.join(sorted(words)) or 'no logs yet'}")
            raise exits.Failure(f"topology '{topology}' has no log of '{word}'{hint}", exits.USAGE)
        chosen.update(dict.fromkeys(fitting))
    return list(chosen)


def parse_since(text: str) -> float:
    """Seconds since 1970 of an age ('5m', '90s', '250ms') or of an ISO time (local unless it says otherwise)."""
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
    """The present records of all the processes, by time."""
    streams = [read_logs(folder, name, since=since, level=level) for folder, name in _files(folders) if name in names]
    yield from heapq.merge(*streams, key=lambda record: record.when)


def followed_records(
    folders: list[Path], names: list[str], what: tuple[str, ...], since: float | None, level: str | None
) -> Iterator[Record]:
    """Records as they are written, without end; matching processes that appear later join in."""
    arrived: queue.Queue[Record] = queue.Queue(maxsize=10_000)
    stopped = threading.Event()

    def follow(folder: Path, name: str) -> None:
        for record in read_logs(folder, name, since, level, follow=True, stop=stopped.is_set, poll_s=FOLLOW_POLL_S):
            arrived.put(record)

    def start(folder: Path, name: str) -> None:
        threading.Thread(target=follow, args=(folder, name), daemon=True).start()

    running = {one for one in _files(folders) if one[1] in names[:FOLLOWED_MAX]}
    for folder, name in sorted(running):
        start(folder, name)
    look_at = time.monotonic()
    try:
        while True:
            with contextlib.suppress(queue.Empty):
                yield arrived.get(timeout=0.5)
            if time.monotonic() < look_at or len(running) >= FOLLOWED_MAX:
                continue
            look_at = time.monotonic() + 1.0
            for folder, name in _files(folders):
                if (folder, name) not in running and (not what or name in what or component_of(name) in what):
                    running.add((folder, name))
                    start(folder, name)
    finally:
        stopped.set()


class Lines:
    """Prints records; on a terminal each process has its colour, in turn as they appear."""

    #: Names of click's colours that can be read on light and on dark ground; red is left to errors.
    COLOURS = ("cyan", "green", "magenta", "yellow", "blue", "bright_cyan", "bright_green", "bright_magenta")

    def __init__(self, as_json: bool, coloured: bool) -> None:
        self._as_json, self._coloured = as_json, coloured
        self._colours: dict[str, str] = {}

    def print(self, record: Record) -> None:
        """One record."""
        if self._as_json:
            shown = {"time": record.when, "level": record.level, "process": record.process, "logger": record.logger,
                     "text": record.message}  # fmt: skip
            click.echo(json.dumps(shown))
            return
        text = clean_block(record.text)
        if self._coloured and record.process:
            # Cleaned first: a colour is the only thing that may control the terminal.
            text = text.replace(record.process, click.style(record.process, fg=self._colour(record.process)), 1)
        click.echo(text, color=self._coloured or None)

    def _colour(self, process: str) -> str:
        return self._colours.setdefault(process, self.COLOURS[len(self._colours) % len(self.COLOURS)])
