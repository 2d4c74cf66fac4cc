"""The progress of a batch run as text."""

from __future__ import annotations

from heronpy.cli.output import clean, print_table, say, say_labelled
from heronpy.views.progress import Progress, table_of
from heronpy.views.units import Table


def print_progress(found: Progress) -> None:
    """Print the input of the run, its stages, and why it failed."""
    began = f", which reads {found.boundary}" if found.boundary else ""
    say(f"Batch run {clean(found.run)} is {found.state}{clean(began)}")
    print_units(table_of(found))
    if found.cause:
        say_labelled("cause", found.cause)


def print_units(found: Table) -> None:
    """Print a table of work units."""
    print_table(found.titles, found.rows)
