"""The tables that a load test prints."""

from __future__ import annotations

import json
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from heronpy.loadtest import steps
from heronpy.loadtest.results import Change, compare, different_options, label_of, shown

_STYLES = {"better": "green", "worse": "red", "same": "dim"}


def print_result(console: Console, result: dict[str, Any], before: dict[str, Any] | None = None) -> None:
    """Everything about one result document."""
    console.print(Text(f"{result['profile']}: {result['about']}", style="bold"))
    console.print(_line(result), style="dim", markup=False, highlight=False)
    if "steps" in result["runs"][-1]:
        print_steps(console, result)
    else:
        console.print(_figures(result))
    if "figures" in result["runs"][-1]:
        console.print(_roles(result))
    for check in [check for run in result["runs"] for check in run["checks"]]:
        mark = Text("ok    " if check["ok"] else "FAILED", style="green" if check["ok"] else "bold red")
        console.print(Text.assemble("  ", mark, f"  {check['name']}: {check['text']}"))
    for goal in result.get("goals", ()):
        mark = Text("met   ", style="green") if goal["met"] else Text("missed", style="yellow")
        console.print(Text.assemble("  ", mark, f"  {goal['text']}"))
    calibration = result["calibration"]
    console.print(
        Text(
            f"  {calibration['text']}; the calibration loop needs"
            f" {calibration['loop_s_per_million']:.4f} CPU-s per million",
            style="yellow" if calibration["noisy"] else "dim",
        )
    )
    if before is not None:
        print_comparison(console, result, before)


def print_steps(console: Console, result: dict[str, Any]) -> None:
    """The table of `rates`: a row per mode and rate; drawn tight, so that it fits 100 columns."""
    columns, rows = steps.table_of(result)
    grid = _grid((columns[0], "left"), *((name, "right") for name in columns[1:]))
    grid.padding = (0, 0, 0, 0)
    for row in rows:
        grid.add_row(*map(Text, row))
    console.print(grid)
    for note in steps.notes_of(result):
        console.print(Text(f"  {note}", style="dim"))


def _line(result: dict[str, Any]) -> str:
    host, options = result["host"], result["options"]
    parts = [f"{key} {_plain(value)}" for key, value in options.items() if value not in ({}, "", 0, 0.0, None)]
    return (
        f"heronpy {result['heronpy']}, Python {result['python']}, {host['cores']} cores, {result['date']}\n"
        + ", ".join(parts)
    )


def _plain(value: Any) -> str:
    return json.dumps(value) if isinstance(value, dict) else str(value)


def _grid(*columns: tuple[str, str]) -> Table:
    from rich import box

    grid = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for name, side in columns:
        grid.add_column(Text(name), justify="right" if side == "right" else "left")
    return grid


def _figures(result: dict[str, Any]) -> Table:
    several = len(result["runs"]) > 1
    columns = [("figure", "left"), ("median" if several else "value", "right")]
    grid = _grid(*columns, *([("smallest", "right"), ("largest", "right")] if several else []))
    for name, row in result["summary"].items():
        cells = [label_of(name), shown(name, row["median"])]
        if several:
            cells += [shown(name, row["min"]), shown(name, row["max"])]
        grid.add_row(*map(Text, cells))
    return grid


def _roles(result: dict[str, Any]) -> Table:
    """CPU and memory by role, of the last run."""
    run = result["runs"][-1]
    grid = _grid(
        ("role", "left"),
        ("processes", "right"),
        ("CPU-s per million", "right"),
        ("own memory", "right"),
        ("with shared", "right"),
    )
    for role, cpu in run["figures"]["cpu"].items():
        memory = run["memory"].get(role, {"processes": 0, "uss": 0, "pss": 0})
        grid.add_row(
            Text(role),
            str(memory["processes"] or "-"),
            f"{cpu['per_million']:.4f}",
            f"{memory['uss'] / 2**20:,.1f} MB",
            f"{memory['pss'] / 2**20:,.1f} MB",
        )
    return grid


def print_comparison(console: Console, now: dict[str, Any], before: dict[str, Any]) -> None:
    """Ratios to an earlier result."""
    changes = compare(now, before)
    for text in different_options(now, before):
        console.print(Text(f"  options differ: {text}", style="yellow"))
    grid = _grid(
        ("against the earlier run", "left"), ("before", "right"), ("now", "right"), ("ratio", "right"), ("", "left")
    )
    for change in changes:
        grid.add_row(*_cells(change))
    console.print(grid)
    loops = [document["calibration"]["loop_s_per_million"] for document in (before, now)]
    if abs(loops[1] / loops[0] - 1) > 0.05:
        console.print(Text(f"  the machine itself was {loops[1] / loops[0]:.2f} times as slow as then", style="yellow"))


def _cells(change: Change) -> list[Text]:
    name = change.figure.name
    ratio = "-" if change.ratio is None else f"{change.ratio:.3f}"
    verdict = change.verdict
    return [
        Text(change.figure.label),
        Text(shown(name, change.before)),
        Text(shown(name, change.now)),
        Text(ratio),
        Text(verdict, style=_STYLES[verdict]),
    ]
