"""The tables that a load test prints."""

from __future__ import annotations

import json
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from heronpy.loadtest import rates, scenes
from heronpy.loadtest.results import compare, different_options, shown, table_of_figures, table_of_roles

_STYLES = {"better": "green", "worse": "red", "same": "dim"}


def print_result(console: Console, result: dict[str, Any], before: dict[str, Any] | None = None) -> None:
    """Everything about one result document."""
    host, last = result["host"], result["runs"][-1]
    shown_options = ", ".join(
        f"{key} {json.dumps(value) if isinstance(value, dict) else value}"
        for key, value in result["options"].items()
        if value not in ({}, "", 0, 0.0, None)
    )
    about = f"heronpy {result['heronpy']}, Python {result['python']}, {host['cores']} cores, {result['date']}"
    console.print(Text(f"{result['profile']}: {result['about']}", style="bold"))
    console.print(Text(f"{about}\n{shown_options}", style="dim"))
    if "steps" in last:
        # Drawn tight, so that it fits 100 columns.
        _print_table(console, *rates.table_of(result), padding=(0, 0, 0, 0))
        for note in rates.notes_of(result):
            console.print(Text(f"  {note}", style="dim"))
    elif "scenes" in last:
        _print_table(console, *scenes.table_of(result), padding=(0, 0, 0, 0))
    else:
        _print_table(console, *table_of_figures(result))
    if "figures" in last:
        _print_table(console, *table_of_roles(last))
    for check in [check for run in result["runs"] for check in run["checks"]]:
        mark = Text("ok    " if check["ok"] else "FAILED", style="green" if check["ok"] else "bold red")
        console.print(Text.assemble("  ", mark, f"  {check['name']}: {check['text']}"))
    for goal in result.get("goals", ()):
        mark = Text("met   ", style="green") if goal["met"] else Text("missed", style="yellow")
        console.print(Text.assemble("  ", mark, f"  {goal['text']}"))
    noise = result["calibration"]
    loop = f"the calibration loop needs {noise['loop_s_per_million']:.4f} CPU-s per million"
    console.print(Text(f"  {noise['text']}; {loop}", style="yellow" if noise["noisy"] else "dim"))
    if before is not None:
        _print_comparison(console, result, before)


def _print_table(
    console: Console, head: list[str], rows: list[list[Any]], padding: tuple[int, int, int, int] = (0, 1, 0, 1)
) -> None:
    """The first column is text, the others are numbers."""
    from rich import box

    grid = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False, padding=padding)
    for place, name in enumerate(head):
        grid.add_column(Text(name), justify="right" if place else "left")
    for row in rows:
        grid.add_row(*(cell if isinstance(cell, Text) else Text(cell) for cell in row))
    console.print(grid)


def _print_comparison(console: Console, now: dict[str, Any], before: dict[str, Any]) -> None:
    """Ratios to an earlier result."""
    changes = compare(now, before)
    for text in different_options(now, before):
        console.print(Text(f"  options differ: {text}", style="yellow"))
    rows = [
        [
            change.figure.label,
            shown(change.figure.name, change.before),
            shown(change.figure.name, change.now),
            "-" if change.ratio is None else f"{change.ratio:.3f}",
            Text(change.verdict, style=_STYLES[change.verdict]),
        ]
        for change in changes
    ]
    _print_table(console, ["against the earlier run", "before", "now", "ratio", ""], rows)
    slower = now["calibration"]["loop_s_per_million"] / before["calibration"]["loop_s_per_million"]
    if abs(slower - 1) > 0.05:
        console.print(Text(f"  the machine itself was {slower:.2f} times as slow as then", style="yellow"))
