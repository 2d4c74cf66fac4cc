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
@click.option("--once", is_flag=True, help="One snapshot, then end; the same as -n 1.")
@json_flag
@common_flags
def top_command(once: bool, **flags: Any) -> None:
    """Watch a topology: what holds it back, its components and tasks, rates, queues, busy time.

    On a terminal: Enter opens the tasks of a component and the figures of a task, Esc goes back, s orders, / filters,
    ? shows all keys, q ends it. With -n or --once, or without a terminal, snapshots of the components with their counts
    are printed one after the other; with --json, one line of JSON each.
    """
    from heronpy.cli.look.top import watch

    if once:
        flags["iterations"] = 1
    watch(**flags)
