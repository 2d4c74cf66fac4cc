"""`heron dead-letters`: the tuples that the tasks of a topology have given up."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from heronpy.cli import complete
from heronpy.cli.output import clean, clean_block, print_json, say
from heronpy.cli.reading import Reading, reading_target
from heronpy.cli.target import Common, Target, common_flags, json_flag, topology_argument

if TYPE_CHECKING:
    from pathlib import Path

    from heronpy.cli.session import Session

FOLLOW_POLL_S = 0.2
PAYLOAD_SHOWN_CHARS = 400


@click.command("dead-letters", cls=Reading)
@reading_target
@topology_argument
@click.argument("what", required=False, metavar="[COMPONENT]", shell_complete=complete.components)
@click.option("--component", metavar="NAME", help="Only tuples that this component gave up.",
              shell_complete=complete.components)  # fmt: skip
@click.option("-n", "--last", type=click.IntRange(min=1), metavar="N", help="Only the last N.")
@click.option("-f", "--follow", is_flag=True, help="Go on with those to come; Ctrl-C ends it.")
@json_flag
@common_flags
def dead_letters_command(
    target: Target,
    topology: str,
    what: str | None,
    component: str | None,
    last: int | None,
    follow: bool,
    as_json: bool,
    common: Common,
) -> None:
    """Show the tuples that were given up, with payload, traceback, task and tries.

    A tuple is given up when its processing raised, hung or crashed the task heron.instance.poison_tries
    times; where nothing is tried again (at most once) at the first time. Also works after the topology was
    killed. With --json one array; with --json --follow one object per line.
    """
    from heronpy.cli.logs import log_dir
    from heronpy.cli.metrics import one_component
    from heronpy.cli.session import Session

    session = Session(target, common)
    folder = log_dir(session, topology).parent
    wanted = one_component(what, component)
    _check(session, topology, wanted)
    current = _topology_id(session, topology)
    found = sorted(letters(folder, wanted, current), key=_when)
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
            for letter in new_letters(folder, wanted, current, len(found)):
                _print(letter, as_json)


def letters(folder: Path, component: str | None, topology_id: str | None) -> Iterator[dict[str, Any]]:
    """The letters below a working folder; those of an earlier topology of the name are left out."""
    from heronpy.storage.dead_letters import files_of, read_letters

    for file in files_of(folder):
        for letter in read_letters(file):
            mine = component in (None, letter.get("component"))
            if mine and topology_id in (None, letter.get("topology_id")):
                yield letter


def new_letters(
    folder: Path, component: str | None, topology_id: str | None, known: int
) -> Iterator[dict[str, Any]]:
    """Letters beyond the first `known`, as they come."""
    seen = {_identity(letter) for letter in sorted(letters(folder, component, topology_id), key=_when)[:known]}
    while True:
        now = sorted(letters(folder, component, topology_id), key=_when)
        for letter in now:
            if _identity(letter) not in seen:
                yield letter
        # What was dropped from the files does not come back, so only what is there is kept in mind.
        seen = {_identity(letter) for letter in now}
        time.sleep(FOLLOW_POLL_S)


def _when(letter: dict[str, Any]) -> float:
    at = letter.get("at")
    return float(at) if isinstance(at, int | float) else 0.0


def _identity(letter: dict[str, Any]) -> str:
    return json.dumps(letter, sort_keys=True)


def _check(session: Session, topology: str, component: str | None) -> None:
    """A component that a running topology does not have is a mistake."""
    from heronpy.cli.metrics import check_component

    if session.record(topology) is not None:
        check_component(session, topology, component)


def _topology_id(session: Session, topology: str) -> str | None:
    record = session.record(topology)
    return record.topology_id if record is not None else None


def _print(letter: dict[str, Any], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(letter))
        return
    from heronpy.cli.output import moment

    payload = json.dumps(letter.get("payload"))
    if len(payload) > PAYLOAD_SHOWN_CHARS:
        payload = f"{payload[:PAYLOAD_SHOWN_CHARS]}... (whole with --json)"
    tries = letter.get("tries", 0)
    times = "once" if tries == 1 else f"{tries} times"
    source = f"{letter.get('source_component')}/{letter.get('source_stream')}"
    click.echo(f"{moment(_when(letter))}  {clean(str(letter.get('instance')))}, failed {times}")
    click.echo(f"  tuple of {clean(source)}: {clean(payload)}")
    click.echo(clean_block("\n".join(f"  {line}" for line in str(letter.get("traceback", "")).rstrip().splitlines())))
    click.echo()
