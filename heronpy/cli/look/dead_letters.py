"""`heron dead-letters`: the tuples that the tasks of a topology have given up."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from heronpy.cli.output import clean, clean_block, moment, print_json, say
from heronpy.clusters.log_folders import log_dir
from heronpy.clusters.session import Session
from heronpy.clusters.target import Common, Target
from heronpy.storage.dead_letters import files_of, read_letters

FOLLOW_POLL_S = 0.2
PAYLOAD_SHOWN_CHARS = 400


def show_letters(
    target: Target, topology: str, component: str | None, last: int | None, follow: bool, as_json: bool, common: Common
) -> None:
    """Print the tuples that were given up, past ones and new ones as they come."""
    session = Session(target, common)
    folder = log_dir(session, topology).parent
    record = session.record(topology)
    if record is not None:  # the components of a topology that was killed are not known
        session.check_component(topology, component)
    current = record.topology_id if record is not None else None
    found = sorted(letters(folder, component, current), key=_when)
    shown = found[-last:] if last else found
    if as_json and not follow:
        print_json(shown)
        return
    for letter in shown:
        _print(letter, as_json)
    if not found and not follow:
        say(f"No tuple of '{clean(topology)}' was given up")
    with contextlib.suppress(KeyboardInterrupt):
        if follow:
            for letter in new_letters(folder, component, current, len(found)):
                _print(letter, as_json)


def letters(folder: Path, component: str | None, topology_id: str | None) -> Iterator[dict[str, Any]]:
    """The letters below a working folder, without those of an earlier topology of the same name."""
    for file in files_of(folder):
        for letter in read_letters(file):
            mine = component in (None, letter.get("component"))
            if mine and topology_id in (None, letter.get("topology_id")):
                yield letter


def new_letters(folder: Path, component: str | None, topology_id: str | None, known: int) -> Iterator[dict[str, Any]]:
    """Letters beyond the first `known`, as they come."""
    seen = {_identity(letter) for letter in sorted(letters(folder, component, topology_id), key=_when)[:known]}
    while True:
        now = sorted(letters(folder, component, topology_id), key=_when)
        for letter in now:
            if _identity(letter) not in seen:
                yield letter
        # What was dropped from the files does not come back, so only the present ones are remembered.
        seen = {_identity(letter) for letter in now}
        time.sleep(FOLLOW_POLL_S)


def _when(letter: dict[str, Any]) -> float:
    at = letter.get("at")
    return float(at) if isinstance(at, int | float) else 0.0


def _identity(letter: dict[str, Any]) -> str:
    return json.dumps(letter, sort_keys=True)


def _print(letter: dict[str, Any], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(letter))
        return

    payload = json.dumps(letter.get("payload"))
    if len(payload) > PAYLOAD_SHOWN_CHARS:
        payload = f"{payload[:PAYLOAD_SHOWN_CHARS]}... (in full with --json)"
    tries = letter.get("tries", 0)
    times = "once" if tries == 1 else f"{tries} times"
    source = f"{letter.get('source_component')}/{letter.get('source_stream')}"
    click.echo(f"{moment(_when(letter))}  {clean(str(letter.get('instance')))}, failed {times}")
    click.echo(f"  tuple of {clean(source)}: {clean(payload)}")
    click.echo(clean_block("\n".join(f"  {line}" for line in str(letter.get("traceback", "")).rstrip().splitlines())))
    click.echo()
