"""`heron history`."""

from __future__ import annotations

from typing import Any

import click

from heronpy.cli.flags import complete
from heronpy.cli.flags.arguments import cluster_flag, common_flags, json_flag
from heronpy.cli.flags.reading import reading

_run = click.argument("run", metavar="RUN", shell_complete=complete.past_runs)


@click.group("history")
def history_command() -> None:
    """Show runs of topologies that have ended, even if all their processes were killed.

    RUN is the name of a topology (for its last run), the id of a run, as 'heron history list' shows it, or the name of
    a batch run, such as visits/3. The verb only reads files on this host and contacts no processes. A run that ended
    more than seven days ago is kept only while it is among the last five runs of its name.
    """


@reading("list", history_command, topology=None)
@click.option("-n", "--limit", type=click.IntRange(min=1), default=50, show_default=True, metavar="N",
              help="Show only the newest N runs.")  # fmt: skip
def list_command(**flags: Any) -> None:
    """List the runs of a cluster, a role or an environ, newest first."""
    from heronpy.cli.look.history import list_runs

    list_runs(**flags)


@reading("show", history_command, topology=_run)
def show_command(**flags: Any) -> None:
    """Show how a run ended: the cause, figures, work units, the doctor's findings, and the last events."""
    from heronpy.cli.look.history import show_run

    show_run(**flags)


@reading("progress", history_command, topology=_run)
def progress_command(**flags: Any) -> None:
    """Show the progress of the work units of a run: the stages of a batch run, or the pipelines of a stream."""
    from heronpy.cli.look.history import show_progress

    show_progress(**flags)


@reading("exceptions", history_command, topology=_run)
@click.option("--summary", is_flag=True, help="Print a table without tracebacks.")
@click.option("--all", "everything", is_flag=True, help="List the tasks separately, with all tracebacks.")
def exceptions_command(**flags: Any) -> None:
    """Show the exceptions that user code raised in a run, grouped by type and line, each with one full traceback."""
    from heronpy.cli.look.history import show_exceptions

    show_exceptions(**flags)


@reading("logs", history_command, topology=_run)
@click.argument("what", nargs=-1, metavar="[INSTANCE|PROCESS|COMPONENT]...")
@click.option("--level", metavar="LEVEL", help="Show only this level and above: DEBUG, INFO, WARNING, ERROR, CRITICAL.")
@click.option("-n", "--lines", type=click.IntRange(min=0), metavar="N", help="Show only the last N records.")
@click.option("--find", metavar="TEXT", help="Show only records that contain TEXT literally.")
@click.option("-i", "--ignore-case", is_flag=True,
              help="With --find: treat upper and lower case as equal (letters A to Z only).")  # fmt: skip
def logs_command(**flags: Any) -> None:
    """Show the log records of a run's processes, merged by time."""
    from heronpy.cli.look.history import show_logs

    show_logs(**flags)


@click.command("compare")
@click.argument("first", metavar="A")
@click.argument("second", metavar="B")
@cluster_flag("The cluster of the runs; default: the only one that is configured.")
@json_flag
@common_flags
def compare_command(**flags: Any) -> None:
    """Compare the results of two batch runs, such as visits/3 and visits/4, or of two output folders of a sink.

    Rows are compared for each sink, as text. The number of equal rows matters; their order does not. A run that was
    submitted with --hold can be compared as well. For runs, time, CPU, memory and attempts are shown side by side.
    The path of a folder must not have the form NAME/NUMBER; write ./out or /data/out. Exit code 1: rows differ.

    \b
    heron submit local visits_new.py --mode batch --as visits/3 --hold
    heron compare visits/3 visits/4
    """
    from heronpy.cli.look.compare import show_comparison

    show_comparison(**flags)
