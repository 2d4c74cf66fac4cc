"""Everything `heron` prints: tables, JSON, plain lines.

Text that came from users' programs (names, exceptions, log lines) is cleaned before it reaches a
terminal, so that it cannot forge lines or move the cursor. rich is imported only when a table is drawn.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from heronpy.common.log_format import escape

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


#: Width of a line's label in cells.
LABEL_WIDTH = 10


def clean(text: str) -> str:
    """Return the text as one line, with its control characters escaped."""
    return escape(text).replace("\n", "\\n").replace("\t", "\\t")


def clean_block(text: str) -> str:
    """Return a text of several lines, such as a traceback, with its control characters escaped."""
    return escape(text)


def say(text: str = "") -> None:
    click.echo(clean_block(text))


def say_labelled(label: str, text: str, whole: bool = False, margin: str = "") -> None:
    """Print a line that begins with a margin and a label; on a terminal a long line is wrapped between words.

    `whole` leaves wrapping to the terminal: a command that the terminal wraps is still copied as one line.
    """
    line = f"{margin}{label:<{LABEL_WIDTH}} {clean(text)}"
    if whole:
        say(line)
    else:
        say_wrapped(line, len(margin) + LABEL_WIDTH + 1)


def say_wrapped(line: str, indent: int) -> None:
    """Print a line; on a terminal it is wrapped between words, with `indent` cells before the following lines."""
    import shutil
    import textwrap

    line = clean_block(line)
    if sys.stdout.isatty():
        width = max(shutil.get_terminal_size().columns, 2 * LABEL_WIDTH, 2 * indent)
        line = textwrap.fill(
            line, width, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False
        )  # fmt: skip
    click.echo(line)


def warn(text: str) -> None:
    """Print a line on stderr."""
    click.echo(clean_block(text), err=True)


def warning(text: str) -> None:
    """Print a warning to the user; the command continues."""
    warn(f"warning: {text}")


def command(*words: object) -> str:
    """Return a command line that can be pasted into a shell unchanged."""
    import shlex

    return shlex.join([str(word) for word in words])


def picked(message: object, *names: str) -> dict[str, Any]:
    """Return the named fields of a message, for JSON."""
    return {name: getattr(message, name) for name in names}


def print_json(value: Any) -> None:
    import json

    click.echo(json.dumps(value, indent=2))


def console(colour: bool | None = None) -> Console:
    """Return a console that wraps at the terminal's width; without a terminal, lines are not wrapped."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else 10_000
    return Console(
        width=width, markup=False, highlight=False, emoji=False, soft_wrap=False, force_terminal=colour or None
    )


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    title: str | None = None,
    right: Sequence[str] = (),
    boxed: bool = False,
) -> Table:
    """Return a table; the columns named in `right` are aligned to the right."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    grid = Table(
        title=Text(title) if title else None,
        title_justify="left",
        title_style="bold",
        box=box.ASCII2 if boxed else box.SIMPLE_HEAD,
        pad_edge=boxed,
        header_style="bold",
    )
    for name in columns:
        grid.add_column(Text(name), justify="right" if name in right else "left", overflow="fold")
    for row in rows:
        grid.add_row(*(cell if isinstance(cell, Text) else Text(clean(_cell(cell))) for cell in row))
    return grid


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.2f}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return str(value)


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    title: str | None = None,
    right: Sequence[str] = (),
    boxed: bool = False,
) -> None:
    console().print(table(columns, rows, title, right, boxed))


def moment(wall_s: float) -> str:
    """Return a wall-clock time as text in local time; "-" for 0."""
    import datetime

    if not wall_s:
        return "-"
    return datetime.datetime.fromtimestamp(wall_s).astimezone().isoformat(sep=" ", timespec="seconds")
