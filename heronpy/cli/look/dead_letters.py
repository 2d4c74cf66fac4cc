"""`heron dead-letters`: the tuples that the tasks of a topology abandoned."""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path
from typing import Any

import click

from heronpy.cli.output import clean, clean_block, moment, print_json, say, warning
from heronpy.clusters.errors import ClusterError
from heronpy.clusters.file_services import file_services_of
from heronpy.clusters.letters import Letters, when
from heronpy.clusters.log_folders import log_dir
from heronpy.clusters.masters import Master
from heronpy.clusters.session import Session
from heronpy.clusters.target import Common, Target
from heronpy.ingest.keys import pipelines_of
from heronpy.proto import plan_pb2

FOLLOW_POLL_S = 0.5
PAYLOAD_SHOWN_CHARS = 400


def show_letters(
    target: Target, topology: str, component: str | None, last: int | None, follow: bool, as_json: bool, common: Common
) -> None:
    """Print past dead letters and, with `follow`, new ones as they arrive."""
    session = Session(target, common)
    working_dir = log_dir(session, topology).parent
    record = session.record(topology)
    if record is not None:  # the components of a topology that was killed are not known
        session.check_component(topology, component)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_show(session, topology, working_dir, record, component, last, follow, as_json))


async def _show(
    session: Session,
    topology: str,
    working_dir: Path,
    record: plan_pb2.ExecutionState | None,
    component: str | None,
    last: int | None,
    follow: bool,
    as_json: bool,
) -> None:
    master = Master(session, record) if record is not None else None
    # An earlier topology of the same name may have left dead letters there.
    current = record.topology_id if record is not None else None
    letters = Letters(lambda: file_services_of(session, topology, working_dir, master), component, current)
    try:
        found = await letters.new()
        shown = found[-last:] if last else found
        if as_json and not follow:
            print_json(shown)
        else:
            for letter in shown:
                _print(letter, as_json)
        for container, why in sorted(letters.unreachable.items()):
            warning(f"not all dead letters of container {container} were read: {why}")
        if not (found or follow or as_json or letters.unreachable):
            say(f"'{clean(topology)}' has no dead letters")
        if record is not None and not as_json:
            _point_to_units(session, topology)
        while follow:
            await asyncio.sleep(FOLLOW_POLL_S)
            for letter in await letters.new():
                _print(letter, as_json)
    finally:
        if master is not None:
            master.close()


def _point_to_units(session: Session, topology: str) -> None:
    """Mention `heron units bad`, which lists the bytes of logs that never became a tuple."""
    try:
        pipelines = pipelines_of(session.topology(topology))
    except ClusterError:
        return  # the plan is missing or damaged; other verbs report it
    for pipeline in pipelines:
        say(f"Lines of logs that could not be processed are listed by: heron units bad {clean(pipeline)}")


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
    click.echo(f"{moment(when(letter))}  {clean(str(letter.get('instance')))}, failed {times}")
    click.echo(f"  tuple of {clean(source)}: {clean(payload)}")
    click.echo(clean_block("\n".join(f"  {line}" for line in str(letter.get("traceback", "")).rstrip().splitlines())))
    click.echo()
