"""`heron slow`."""

from __future__ import annotations

from typing import Any

import click

from heronpy.cli.flags import complete
from heronpy.cli.flags.arguments import common_flags, component_flags, json_flag, topology_argument
from heronpy.cli.flags.reading import Reading, reading_target


@click.command("slow", cls=Reading)
@reading_target
@topology_argument
@component_flags("Only this component.")
@click.option("--task", type=click.IntRange(min=1), metavar="ID", help="Only the task with this id.",
              shell_complete=complete.tasks)  # fmt: skip
@json_flag
@common_flags
def slow_command(**flags: Any) -> None:
    """Show the tuples whose process() took longer than heron.instance.slow_ms, with their values, the slowest first.

    Each task keeps the 16 slowest of the last hour; the metric __slow-tuples counts all.
    """
    from heronpy.cli.look.trace import show_slow

    show_slow(**flags)
