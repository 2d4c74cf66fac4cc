"""`heron exceptions`."""

from __future__ import annotations

from typing import Any

import click

from heronpy.cli.flags import complete
from heronpy.cli.flags.arguments import common_flags, component_flags, json_flag, topology_argument
from heronpy.cli.flags.reading import Reading, reading_target


@click.command("exceptions", cls=Reading)
@reading_target
@topology_argument
@component_flags("Only this component.")
@click.option("--task", type=click.IntRange(min=1), metavar="ID", help="Only the task with this id.",
              shell_complete=complete.tasks)  # fmt: skip
@click.option("--summary", is_flag=True, help="A table without tracebacks.")
@click.option("--all", "everything", is_flag=True, help="List the tasks separately, with all tracebacks.")
@json_flag
@common_flags
def exceptions_command(**flags: Any) -> None:
    """Show the exceptions that user code raised, grouped by type and line, each with one full traceback."""
    from heronpy.cli.look.exceptions import show_exceptions

    show_exceptions(**flags)
