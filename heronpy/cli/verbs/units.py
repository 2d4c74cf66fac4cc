"""`heron units`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from heronpy.cli.flags.arguments import UnitId, json_flag

_pipeline = click.argument("pipeline")
_ledger = click.option("--ledger", "url", metavar="URL", default="",
                       help="sqlite:/folder/file or postgresql://user@host/database, or the entries of several"
                       " ledgers as JSON; the default is heron.ingest.ledger of cluster local, else the one in"
                       " HERON_HOME.")  # fmt: skip


def _table(words: str, name: str = "--table") -> Callable[..., Any]:
    return click.option(name, "table", required=True, metavar="FOLDER", help=words,
                        type=click.Path(file_okay=False, resolve_path=True))  # fmt: skip


@click.group("units")
def units_command() -> None:
    """Look at pipelines of work units, and mend them; also when their topology is gone.

    What became of each byte of the logs is in a ledger, which these verbs read.
    """


@units_command.command("list")
@_ledger
@json_flag
def list_command(**flags: Any) -> None:
    """List the pipelines of a ledger, with how far they are."""
    from heronpy.cli.look.units import list_pipelines

    list_pipelines(**flags)


@units_command.command("show")
@_pipeline
@_ledger
@json_flag
def show_command(**flags: Any) -> None:
    """Show the figures of a pipeline, and its units that are under way."""
    from heronpy.cli.look.units import show_pipeline

    show_pipeline(**flags)


@units_command.command("bad")
@_pipeline
@click.argument("unit", type=UnitId(), required=False)
@_ledger
@click.option("--retry", is_flag=True, help="Make units of them: after a fix.")
@click.option("--traceback", "whole", is_flag=True, help="Print all of each traceback; without, its end.")
@json_flag
def bad_command(**flags: Any) -> None:
    """List the ranges of bytes that could not be processed, with bytes, error and traceback of the last try.

    With the number of a UNIT only what was found in that one. Exit code 1 when there are some. Each has a record in the
    folder _units/bad of the table. Tuples that bolts have given up are listed by: heron dead-letters.
    """
    from heronpy.cli.look.bad_ranges import show_bad

    show_bad(**flags)


@units_command.command("retry")
@_pipeline
@click.argument("unit", type=UnitId(), required=False)
@_ledger
@json_flag
def retry_command(**flags: Any) -> None:
    """Try failed units again, or one of them: after a fix.

    Without a unit also what Spark has given up: failed dispatches.
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
    """Take a site out of work, let it work again, or forget it.

    Down: its workers get no more units, and others may take at once what it has, if they have the bytes. What it
    finishes first still counts. A site that falls silent loses its units the same way after 30 s.

    Gone: it will not come back, so its copies of the files count no more; refused while it works.
    """
    from heronpy.cli.look.units import set_site

    set_site(**flags)


@units_command.command("partition")
@_pipeline
@click.argument("urls", nargs=-1)
@click.option("--from", "since", metavar="TIME", default="",
              help="When the new entry begins, such as 2026-12-01T17:00 (UTC): files whose names say that time or a"
              " later one go to its ledgers.")  # fmt: skip
@_ledger
@json_flag
def partition_command(**flags: Any) -> None:
    """Show which ledgers have which files of a pipeline, or add an entry: the ledgers URLS from a time on.

    All sites may run meanwhile: each process follows at its next request. The time must be a later one than now.
    """
    from heronpy.cli.look.units import partition

    partition(**flags)


@units_command.command("check")
@_pipeline
@_table("The table of the pipeline.")
@_ledger
@json_flag
def check_command(**flags: Any) -> None:
    """Compare table, ledger and the bytes of the logs; exit code 1 when they do not agree.

    The pipeline may run meanwhile. Bytes that cannot be compared, such as those of files that are gone, are counted by
    their reason, and are no disagreement.
    """
    from heronpy.cli.look.units import check_pipeline

    check_pipeline(**flags)


@units_command.command("rebuild")
@_pipeline
@_table("The table to rebuild from.", "--from")
@_ledger
@json_flag
def rebuild_command(**flags: Any) -> None:
    """Make the ledger anew from the table: when the ledger is lost, or does not agree with it.

    What is in the table is done, what has a record of being bad is bad, and all else is processed again. Refused
    while workers are seen.
    """
    from heronpy.cli.look.units import rebuild_ledger

    rebuild_ledger(**flags)
