"""`heron logs`: the logs of processes, merged by time, even after the topology was killed."""

from __future__ import annotations

import contextlib
import datetime
import heapq
import json
import queue
import threading
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import click

from heronpy.cli import exits
from heronpy.cli.output import clean_block
from heronpy.clusters.log_folders import component_of, log_dir, words_of
from heronpy.clusters.session import Session
from heronpy.clusters.target import Common, Target
from heronpy.common.errors import ConfigError
from heronpy.common.log_files import log_processes, read_logs
from heronpy.common.log_format import Record
from heronpy.common.nearest import suggestion
from heronpy.common.units import parse_duration_s

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
    as_json: bool,
    common: Common,
) -> None:
    """Print the records of the chosen processes, past ones and new ones as they come."""
    session = Session(target, common)
    folder = log_dir(session, topology)
    names = select(folder, what, topology)
    running = session.record(topology)
    # The files may also hold the logs of an earlier topology of the same name.
    oldest = parse_since(since) if since else running.submitted_at or None if running is not None else None
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


def select(folder: Path, what: tuple[str, ...], topology: str) -> list[str]:
    """Names of the processes to show; a Failure that names the nearest when a word matches none."""
    known = log_processes(folder)
    if not what:
        return known
    chosen: dict[str, None] = {}
    for word in what:
        fitting = [name for name in known if word in (name, component_of(name))]
        if not fitting:
            words = words_of(folder)
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


def past_records(folder: Path, names: list[str], since: float | None, level: str | None) -> Iterator[Record]:
    """The present records of all the processes, by time."""
    streams = [read_logs(folder, name, since=since, level=level) for name in names]
    yield from heapq.merge(*streams, key=lambda record: record.when)


def followed_records(
    folder: Path, names: list[str], what: tuple[str, ...], since: float | None, level: str | None
) -> Iterator[Record]:
    """Records as they are written, without end; matching processes that appear later join in."""
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
