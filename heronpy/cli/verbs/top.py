"""`heron top`."""

from __future__ import annotations

from typing import Any

import click

from heronpy.cli.flags.arguments import common_flags, json_flag, topology_argument
from heronpy.cli.flags.reading import Reading, reading_target


@click.command("top", cls=Reading)
@reading_target
@topology_argument
@click.option(
    "--interval",
    "interval_s",
    type=click.FloatRange(min=0.1),
    default=1.0,
    show_default=True,
    metavar="S",
    help="Seconds between two snapshots.",
)
@click.option("-n", "--iterations", type=click.IntRange(min=1), metavar="N", help="Stop after N snapshots.")
@json_flag
@common_flags
def top_command(**flags: Any) -> None:
    """Watch the components of a topology: counts, rates, queues, and the cause of backpressure.

    Ctrl-C ends it. Without a terminal, snapshots are printed one after the other; with --json, one line of JSON each.
    """
    from heronpy.cli.look.top import watch

    watch(**flags)
