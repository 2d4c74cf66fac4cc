"""`heron dead-letters`."""

from __future__ import annotations

from typing import Any

import click

from heronpy.cli.flags.arguments import common_flags, component_flags, json_flag, topology_argument
from heronpy.cli.flags.reading import Reading, reading_target


@click.command("dead-letters", cls=Reading)
@reading_target
@topology_argument
@component_flags("Only tuples that this component gave up.")
@click.option("-n", "--last", type=click.IntRange(min=1), metavar="N", help="Only the last N.")
@click.option("-f", "--follow", is_flag=True, help="Keep printing new ones; Ctrl-C ends it.")
@json_flag
@common_flags
def dead_letters_command(**flags: Any) -> None:
    """Show the tuples that were given up, with payload, traceback, task and tries.

    A tuple is given up when its processing raised, hung or crashed the task heron.instance.poison_tries
    times; under ATMOST_ONCE, where nothing is retried, the first time. Also works after the topology was
    killed. With --json one array; with --json --follow one object per line.
    """
    from heronpy.cli.look.dead_letters import show_letters

    show_letters(**flags)
