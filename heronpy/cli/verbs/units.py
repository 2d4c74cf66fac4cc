"""`heron units`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from heronpy.cli.flags.arguments import UnitId, json_flag

_pipeline = click.argument("pipeline")
_ledger = click.option("--ledger", "url", metavar="URL", default="",
                       help="sqlite:/folder/file or postgresql://user@host/database, or the entries of several"
                       " ledgers as JSON; default: heron.ingest.ledger of cluster local, else the ledger in"
                       " HERON_HOME.")  # fmt: skip


def _table(words: str, name: str = "--table") -> Callable[..., Any]:
    return click.option(name, "table", required=True, metavar="FOLDER", help=words,
                        type=click.Path(file_okay=False, resolve_path=True))  # fmt: skip


@click.group("units")
def units_command() -> None:
    """Inspect and repair pipelines of work units, even after their topology is gone.

    These verbs read the ledger, which records the state of each byte of the logs.
    """


@units_command.command("list")
@_ledger
@json_flag
def list_command(**flags: Any) -> None:
    """List the pipelines of a ledger with their progress."""
    from heronpy.cli.look.units import list_pipelines

    list_pipelines(**flags)


@units_command.command("show")
@_pipeline
@_ledger
@json_flag
def show_command(**flags: Any) -> None:
    """Show the figures of a pipeline, and its units in progress."""
    from heronpy.cli.look.units import show_pipeline

    show_pipeline(**flags)


@units_command.command("bad")
@_pipeline
@click.argument("unit", type=UnitId(), required=False)
@_ledger
@click.option("--retry", is_flag=True, help="Requeue the bad ranges, for example after a fix.")
@click.option("--traceback", "whole", is_flag=True, help="Print full tracebacks (default: the last lines).")
@json_flag
def bad_command(**flags: Any) -> None:
    """List the ranges of bytes that could not be processed, with bytes, error and traceback of the last attempt.

    With UNIT, list only the ranges found in that unit. The exit code is 1 if any range is listed. Each range has a
    record in the folder _units/bad of the table. 'heron dead-letters' lists the tuples that bolts have abandoned.
    """
    from heronpy.cli.look.bad_ranges import show_bad

    show_bad(**flags)


@units_command.command("retry")
@_pipeline
@click.argument("unit", type=UnitId(), required=False)
@_ledger
@json_flag
def retry_command(**flags: Any) -> None:
    """Retry all failed units, or one of them, for example after a fix.

    Without UNIT, dispatches that Spark has abandoned are retried as well.
    """
    from heronpy.cli.look.units import retry_failed

    retry_failed(**flags)


@units_command.command("site")
@_pipeline
@click.argument("site")
@click.argument("state", type=click.Choice(["down", "up", "gone"]))
@_ledger
@json_flag
def site_command(**flags: Any) -> None:
    """Take a site out of service, put it back, or remove it.

    down: the workers of the site get no more units. Other sites that have the bytes may take over its units
    immediately; a unit that the site finishes first still counts. A site that has not responded for 30 s loses its
    units in the same way.

    gone: the site will not return. Its copies of the files are ignored. The command refuses to remove an active site.
    """
    from heronpy.cli.look.units import set_site

    set_site(**flags)


@units_command.command("partition")
@_pipeline
@click.argument("urls", nargs=-1)
@click.option("--from", "since", metavar="TIME", default="",
              help="Start of the new entry, such as 2026-12-01T17:00 (UTC). Files whose names contain this time or a"
              " later time go to the ledgers of the entry.")  # fmt: skip
@_ledger
@json_flag
def partition_command(**flags: Any) -> None:
    """Show which ledgers hold which files of a pipeline, or add an entry that assigns later files to the ledgers URLS.

    All sites may keep running: each process uses the new entry at its next request. The time must be in the future.
    """
    from heronpy.cli.look.units import partition

    partition(**flags)


@units_command.command("check")
@_pipeline
@_table("The table of the pipeline.")
@_ledger
@json_flag
def check_command(**flags: Any) -> None:
    """Compare the table, the ledger and the bytes of the logs; exit code 1 when they disagree.

    The pipeline may keep running. Bytes that cannot be compared, such as those of deleted files, are counted by reason
    and do not count as a disagreement.
    """
    from heronpy.cli.look.units import check_pipeline

    check_pipeline(**flags)


@units_command.command("rebuild")
@_pipeline
@_table("The table to rebuild from.", "--from")
@_ledger
@json_flag
def rebuild_command(**flags: Any) -> None:
    """Rebuild the ledger from the table, when the ledger is lost or disagrees with the table.

    Bytes in the table count as done, bytes in recorded bad ranges count as bad, and all other bytes are processed
    again. The command refuses to run while workers are active.
    """
    from heronpy.cli.look.units import rebuild_ledger

    rebuild_ledger(**flags)
