"""`heron logs`: the logs of processes, merged by time, also after the topology was killed."""

from __future__ import annotations

import contextlib
import heapq
import queue
import threading
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from heronpy.cli import complete, exits
from heronpy.cli.output import clean_block
from heronpy.cli.reading import Reading, reading_target
from heronpy.cli.target import Common, Target, common_flags, topology_argument

if TYPE_CHECKING:
    from heronpy.cli.session import Session
    from heronpy.common.log_format import Record

FOLLOW_POLL_S = 0.1
FOLLOWED_MAX = 200


@click.command("logs", cls=Reading)
@reading_target
@topology_argument
@click.argument("what", nargs=-1, metavar="[INSTANCE|PROCESS|COMPONENT]...",
                shell_complete=complete.logged)  # fmt: skip
@click.option("-f", "--follow", is_flag=True, help="Go on with what is written from now on; Ctrl-C ends it.")
@click.option("--since", metavar="TIME", help="Only what is newer: an age such as 5m, or an ISO time.")
@click.option("--level", metavar="LEVEL", help="Only this level and above: DEBUG, INFO, WARNING, ERROR, CRITICAL.")
@click.option(
    "-n",
    "--lines",
    type=click.IntRange(min=0),
    metavar="N",
    help="Only the last N records (with --follow: 10 unless --since is given).",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per record.")
@common_flags
def logs_command(
    target: Target,
    topology: str,
    what: tuple[str, ...],
    follow: bool,
    since: str | None,
    level: str | None,
    lines: int | None,
    as_json: bool,
    common: Common,
) -> None:
    """Show the logs of a topology, or of the named instances, processes and components.

    Logs of earlier topologies of the same name are shown with --since only.

    \b
    heron logs local word_count                        everything
    heron logs local word_count count --level ERROR    tasks of the component 'count'
    heron logs local word_count container_1_count_2 -f
    heron logs local word_count tmaster scheduler --since 5m
    """
    from heronpy.cli.session import Session

    session = Session(target, common)
    folder = log_dir(session, topology)
    names = select(folder, what, topology)
    oldest = parse_since(since) if since else submitted_at(session, topology)
    if follow and lines is None and since is None:
        lines = 10
    try:
        if lines is not None or not follow:
            # Following takes over at this moment, so that no record is shown twice.
            now = time.time() if follow else float("inf")
            past = (record for record in past_records(folder, names, oldest, level) if record.when < now)
            for record in deque(past, maxlen=lines) if lines is not None else past:
                _print(record, as_json)
            oldest = now
        if follow:
            for record in followed_records(folder, names, what, oldest, level):
                _print(record, as_json)
    except KeyboardInterrupt:
        return


def submitted_at(session: Session, topology: str) -> float | None:
    """The begin of a running topology: the files may also hold the logs of an earlier one of its name."""
    record = session.record(topology)
    return record.submitted_at or None if record is not None else None


def log_dir(session: Session, topology: str) -> Path:
    """The folder of a topology's logs, also when the topology was killed."""
    from heronpy.cli.session import heron_home

    record = session.record(topology)
    if record is not None:
        return Path(session.find(topology).working_dir) / "log-files"
    found = session.logs_of_ended(topology)
    if len(found) > 1:
        owners = ", ".join(path.parent.parent.name for path in found)
        raise exits.Failure(
            f"several roles had a topology '{topology}' ({owners}); name one as {session.target.cluster}/ROLE",
            exits.USAGE,
        )
    if not found:
        base = heron_home() / "topologies" / session.target.cluster
        roles = [session.target.role] if session.target.role else _folders(base)
        known = {name for role in roles for name in _folders(base / role)}
        hint = exits.nearest(topology, known | set(session.names()), f"; run 'heron list {session.target}'")
        raise exits.Failure(
            f"cluster {session.target.cluster} has no logs of a topology '{topology}'{hint}", exits.NOT_FOUND
        )
    return found[0]


def _folders(path: Path) -> list[str]:
    return [entry.name for entry in path.iterdir() if entry.is_dir()] if path.is_dir() else []


def component_of(process: str) -> str | None:
    """The component of an instance id, None for other processes."""
    from heronpy.common.ids import parse_instance_id

    try:
        return parse_instance_id(process)[1]
    except ValueError:
        return None


def select(folder: Path, what: tuple[str, ...], topology: str) -> list[str]:
    """Names of the processes to show; a Failure that names the nearest when a word fits none."""
    from heronpy.common.log_files import log_processes

    known = log_processes(folder)
    if not what:
        return known
    chosen: dict[str, None] = {}
    for word in what:
        fitting = [name for name in known if word in (name, component_of(name))]
        if not fitting:
            words = {*known, *(component for name in known if (component := component_of(name)))}
            hint = exits.nearest(word, words, f"; there are {', '.join(sorted(words)) or 'no logs yet'}")
            raise exits.Failure(f"topology '{topology}' has no log of '{word}'{hint}", exits.USAGE)
        chosen.update(dict.fromkeys(fitting))
    return list(chosen)


def parse_since(text: str) -> float:
    """Seconds since 1970 of an age ('5m', '90s', '250ms') or of an ISO time (local unless it says otherwise)."""
    import datetime

    from heronpy.common.errors import ConfigError
    from heronpy.common.units import parse_duration_s

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


def past_records(folder: Path, names: list[str], since: float | None, level: str | None) -> Iterator[Record]:
    """Records that are there now, of all the processes, by time."""
    from heronpy.common.log_files import read_logs

    streams = [read_logs(folder, name, since=since, level=level) for name in names]
    yield from heapq.merge(*streams, key=lambda record: record.when)


def followed_records(
    folder: Path, names: list[str], what: tuple[str, ...], since: float | None, level: str | None
) -> Iterator[Record]:
    """Records as they are written, for ever; processes that appear later and fit the words join in."""
    from heronpy.common.log_files import log_processes, read_logs

    arrived: queue.Queue[Record] = queue.Queue(maxsize=10_000)
    stopped = threading.Event()

    def follow(name: str) -> None:
        for record in read_logs(folder, name, since, level, follow=True, stop=stopped.is_set, poll_s=FOLLOW_POLL_S):
            arrived.put(record)

    def start(name: str) -> None:
        threading.Thread(target=follow, args=(name,), daemon=True).start()

    running = set(names[:FOLLOWED_MAX])
    for name in sorted(running):
        start(name)
    look_at = time.monotonic()
    try:
        while True:
            with contextlib.suppress(queue.Empty):
                yield arrived.get(timeout=0.5)
            if time.monotonic() < look_at or len(running) >= FOLLOWED_MAX:
                continue
            look_at = time.monotonic() + 1.0
            for name in log_processes(folder):
                if name not in running and (not what or name in what or component_of(name) in what):
                    running.add(name)
                    start(name)
    finally:
        stopped.set()


def _print(record: Record, as_json: bool) -> None:
    if not as_json:
        click.echo(clean_block(record.text))
        return
    import json

    click.echo(
        json.dumps(
            {
                "time": record.when,
                "level": record.level,
                "process": record.process,
                "logger": record.logger,
                "text": record.message,
            }
        )
    )
