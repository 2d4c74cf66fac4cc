"""`heron events` and `heron exceptions`."""

from __future__ import annotations

from typing import Any

import click

from heronpy.cli.flags import complete
from heronpy.cli.flags.arguments import common_flags, component_flags, json_flag, topology_argument
from heronpy.cli.flags.reading import Reading, reading_target

#: What can be chosen; the names of EventKind in control.proto.
KINDS = ("life", "master", "restart", "oom", "silent", "backpressure", "checkpoint", "restore", "update")


@click.command("events", cls=Reading)
@reading_target
@topology_argument
@click.option("--kind", "kinds", type=click.Choice(KINDS), multiple=True, help="Only this kind; may be repeated.")
@click.option("-n", "--limit", type=click.IntRange(min=1), default=50, show_default=True, metavar="N",
              help="Only the newest N.")  # fmt: skip
@click.option("-f", "--follow", is_flag=True, help="Keep printing new events; Ctrl-C ends it.")
@click.option("--start", is_flag=True, help="How long the phases of the start took, instead of events.")
@json_flag
@common_flags
def events_command(**flags: Any) -> None:
    """Show what happened: restarts with their reason, backpressure, checkpoints, restores, updates, takeovers.

    The newest event is last. Repetitions within 2.5 minutes share one line with a count. The topology master keeps
    1,000 events, and hands the newest 200 to its successor.
    """
    from heronpy.cli.look.events import show_events

    show_events(**flags)


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
    from heronpy.cli.look.events import show_exceptions

    show_exceptions(**flags)
