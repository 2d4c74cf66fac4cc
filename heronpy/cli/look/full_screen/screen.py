"""The screen of `heron top` as lines of styled text: a function of view, figures and size. Pure.

Invariants for all figures and sizes: there are as many lines as the screen has, each exactly as wide as the screen,
and no line contains a terminal control character.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from rich.cells import cell_len, set_cell_size

from heronpy.cli.look.full_screen.rows import (
    COMPONENTS,
    TASKS,
    Column,
    cores,
    duration,
    latency,
    number,
    rate,
    share,
    short,
    size,
)
from heronpy.cli.look.full_screen.view import KEYS, Figures, Level, View, position, rows_of, title_of
from heronpy.cli.output import clean
from heronpy.common.ids import short_name
from heronpy.common.units import format_bytes, format_duration
from heronpy.views.load import ComponentLoad, TaskLoad

R = TypeVar("R")

#: Styles of a piece of text; a terminal without colours shows only the first three.
PLAIN, BOLD, CHOSEN, ALARM, WARN, GOOD, QUIET = "plain", "bold", "chosen", "alarm", "warn", "good", "quiet"
NAME_LEAST, TREND_LEAST, TREND_MOST = 10, 9, 60
BARS, ASCII_BARS = "▁▂▃▄▅▆▇█", "_.-~=+*#"
#: Shares of time above which a figure is notable, and urgent.
HIGH, FULL = 0.7, 0.9


@dataclass(frozen=True, slots=True)
class Size:
    """Size of a terminal in cells."""

    width: int
    height: int


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the screen: pieces of text with their styles."""

    pieces: tuple[tuple[str, str], ...]

    @property
    def text(self) -> str:
        """The line without its styles."""
        return "".join(text for text, _ in self.pieces)


def _line(text: str, style: str = PLAIN) -> Line:
    return Line(((clean(text), style),))


def draw(view: View, figures: Figures, screen: Size, ascii_only: bool = False) -> list[Line]:
    """Return the whole screen; `ascii_only` is for terminals that show only ASCII characters."""
    width, height = max(screen.width, 1), max(screen.height, 1)
    head = _head(view, figures, width)
    # On a low screen, the table gets at least half of the lines.
    head = head[: max(height // 2, 1)]
    body = max(height - len(head) - 1, 0)
    if view.help:
        lines = [_line(f"  {keys:<16}{text}") for keys, text in KEYS][:body]
    elif view.level is Level.TASK:
        lines = _task(view, figures, width, body)
    elif view.level is Level.TASKS:
        lines = _table(_Table(TASKS, view.sort_tasks, _task_row), view, figures, width, body, "")
    else:
        bars = ASCII_BARS if ascii_only else BARS
        lines = _table(_Table(COMPONENTS, view.sort, _component_row), view, figures, width, body, bars)
    lines = [*head, *lines, *[_line("")] * (body - len(lines))][: height - 1]
    return [_fitted(line, width, ascii_only) for line in [*lines, _help_line(view)][:height]]


def _fitted(line: Line, width: int, ascii_only: bool) -> Line:
    pieces, left = [], width
    for text, style in line.pieces:
        shown = text.encode("ascii", "replace").decode() if ascii_only else text
        # A character without width would change the character before it; a surrogate cannot be written.
        shown = "".join(one if one.isprintable() else "?" for one in shown)
        cells = cell_len(shown)
        if cells > left:
            shown, cells = set_cell_size(shown, left), left
        pieces.append((shown, style))
        left -= cells
        if left <= 0:
            break
    if left > 0:
        pieces.append((" " * left, pieces[-1][1] if pieces and pieces[-1][1] == CHOSEN else PLAIN))
    return Line(tuple(pieces))


# ---- head and foot ----------------------------------------------------------------------------


def _head(view: View, figures: Figures, width: int) -> list[Line]:
    load = figures.load
    if load is None:
        return [_line(f"{figures.topology}  waiting for figures", BOLD), *_wrapped(figures.trouble, WARN, width, 2)]
    tasks, up = sum(one.tasks for one in load.components), sum(one.up for one in load.components)
    bad, known = load.state in ("FAILED", "DEGRADED"), load.latency_p99_s is not None
    p99 = f"  end-to-end p99 {latency(load.latency_p99_s, load.latency_at_least)}" if known else ""
    facts = f"  {up}/{tasks} tasks up  {format_duration(figures.uptime_s)}  physical plan {load.plan_version}{p99}"
    lines = [
        Line(
            (
                (clean(figures.topology), BOLD),
                (f"  {clean(load.state)}", ALARM if bad else PLAIN),
                (facts, PLAIN),
                ("  FROZEN" if view.frozen else "", BOLD),
            )
        )
    ]
    # The cause has separate lines, because a long cause in the first line would cut off the other facts.
    lines += _wrapped(load.cause, ALARM if bad else PLAIN, width, 2)
    lines += _wrapped(figures.trouble, WARN, width, 2)
    if figures.sentence:
        mark = "" if figures.calm else "! "
        lines += _wrapped(
            f"{mark}{figures.verdict.upper()} {figures.sentence}", GOOD if figures.calm else ALARM, width, 3
        )
        lines += _wrapped(f"next: {figures.advice}" if figures.advice else "", PLAIN, width, 2)
    if load.culprits:
        one = load.culprits[0]
        more = f" and {len(load.culprits) - 1} more" if len(load.culprits) > 1 else ""
        held = f"spouts held back {share(load.held)} of the time" if load.held is not None else "spouts held back"
        waits = f"for {format_duration(one.since_s)}, {format_bytes(one.queued_bytes)} queued"
        lines += _wrapped(f"{held}, now by {one.name} ({waits}){more}", WARN, width, 2)
    for one in load.avoided[:1]:
        more = f" and {len(load.avoided) - 1} more" if len(load.avoided) > 1 else ""
        goes = f"its tuples go to the other tasks of {one.component}"
        lines += _wrapped(f"full: {one.name}{more}; {goes}", WARN, width, 2)
    for one in load.dropping[:1]:
        more = f" and {len(load.dropping) - 1} more" if len(load.dropping) > 1 else ""
        lines += _wrapped(f"full: {one.name}{more}; tuples that do not fit are discarded", WARN, width, 2)
    if load.dropped:
        counts = ", ".join(f"{tuples:,} for {name}" for name, tuples in sorted(load.dropped.items()))
        lines += _wrapped(f"tuples dropped because of backpressure: {counts}", PLAIN, width, 2)
    if figures.losses:
        lines.append(_line(f"tuples missing from the result: {figures.losses}", ALARM))
    for text in figures.units:
        lines += _wrapped(f"units {text}", PLAIN, width, 2)
    return lines


def _wrapped(text: str, style: str, width: int, most: int) -> list[Line]:
    """Return the text in at most `most` lines; the last line ends with … if text was cut off."""
    rows = textwrap.wrap(clean(text), max(width, 2), max_lines=most, placeholder=" …" if width > 2 else "")
    return [Line(((row, style),)) for row in rows]


def _help_line(view: View) -> Line:
    if view.typing:
        return Line((("/", BOLD), (clean(view.filter), PLAIN), ("_", BOLD)))
    if view.help:
        return _line("any key: back", QUIET)
    if view.level is Level.TASK:
        return _line("q quit  Esc back  x stacks  l log  j k scroll  Space freeze  ? keys", QUIET)
    deeper = "Enter open  " if view.level is Level.COMPONENTS else "Enter open  Esc back  "
    return _line(f"q quit  {deeper}t tasks  s r order  / filter  Space freeze  ? keys", QUIET)


# ---- tables -----------------------------------------------------------------------------------


def trend(values: Sequence[float | None], cells: int, bars: str = BARS) -> str:
    """Return the latest values as text bars, one cell each, newest at the right; a space is an unknown value.

    Bars are relative to the largest value shown: 0 has the lowest bar and the largest value the highest.
    """
    shown = list(values[-cells:]) if cells > 0 else []
    most = max((value for value in shown if value is not None), default=0.0)

    def bar(value: float | None) -> str:
        if value is None:
            return " "
        return bars[min(int(value / most * len(bars)), len(bars) - 1)] if most > 0 and value > 0 else bars[0]

    return "".join(map(bar, shown)).rjust(max(cells, 0))


@dataclass(frozen=True, slots=True)
class _Row:
    """A row of a table: its name, its problem, and its cells by column key."""

    name: str
    style: str
    cells: dict[str, tuple[str, str]]
    trend: tuple[float | None, ...] = ()


@dataclass(frozen=True, slots=True)
class _Table:
    columns: Sequence[Column[ComponentLoad]] | Sequence[Column[TaskLoad]]
    sort: str
    row: Callable[[Figures, str], _Row]


def _heat(part: float | None) -> str:
    return PLAIN if part is None or part < HIGH else WARN if part < FULL else ALARM


def _cells(row: R, columns: Sequence[Column[R]]) -> dict[str, tuple[str, str]]:
    found = {}
    for column in columns:
        value = column.value(row)
        hot = column.key in ("busy", "blocked") and isinstance(value, float)
        bad = column.key in ("failed", "restarts") and isinstance(value, int | float) and value > 0
        style = _heat(value) if hot and isinstance(value, float) else WARN if bad else PLAIN
        found[column.key] = (column.text(row), style)
    return found


def _component_row(figures: Figures, name: str) -> _Row:
    assert figures.load is not None
    load = next(one for one in figures.load.components if one.name == name)
    style = ALARM if load.up < load.tasks else PLAIN
    if any(one.component == name for one in figures.load.culprits):
        style = ALARM
    return _Row(name, style, _cells(load, COMPONENTS), figures.trends.get(name, ()))


def _task_row(figures: Figures, name: str) -> _Row:
    assert figures.tasks is not None
    task = next(one for one in figures.tasks.tasks if one.instance_id == name)
    return _Row(short_name(name), ALARM if task.culprit or not task.up else PLAIN, _cells(task, TASKS))


def _table(table: _Table, view: View, figures: Figures, width: int, height: int, bars: str) -> list[Line]:
    """Return the title, the column titles, and the rows around the chosen row; without `bars`, trends are left out."""
    names = rows_of(view, figures)
    chosen, room = position(view, names), max(height - 2, 0)
    first = max(0, min(chosen - room // 2, len(names) - room))
    shown = [table.row(figures, name) for name in names[first : first + room]]
    longest = max((cell_len(clean(row.name)) for row in shown), default=0)
    known = rows_of_all(view, figures)
    name_width = min(max(longest, NAME_LEAST), max(NAME_LEAST, width // 3))
    columns, left = _columns(table, width - 2 - name_width - (TREND_LEAST + 1 if bars else 0))
    trend_width = min(left + TREND_LEAST, TREND_MOST) if bars else 0
    lines = [_title(view, table, names, known, first, len(shown), figures)]
    head = ["  ", set_cell_size("name", name_width)]
    head += [column.title.rjust(column.width + 1) for column in columns]
    if bars:
        head.append(" " + ("last minutes" if trend_width >= 12 else "minutes").rjust(trend_width))
    lines.append(_line("".join(head), BOLD))
    for place, row in enumerate(shown):
        lines.append(_row(row, columns, name_width, trend_width, bars, first + place == chosen))
    return lines[:height]


def rows_of_all(view: View, figures: Figures) -> int:
    """Return the number of rows that the view would show without its filter."""
    if view.level is Level.COMPONENTS:
        return len(figures.load.components) if figures.load is not None else 0
    tasks = figures.tasks.tasks if figures.tasks is not None else []
    return sum(view.component in ("", row.component) for row in tasks)


def _title(
    view: View, table: _Table, names: Sequence[str], known: int, first: int, shown: int, figures: Figures
) -> Line:
    what = clean(title_of(view))
    if view.level is Level.TASKS and figures.tasks is None:
        return _line(f"{what}: loading", BOLD)
    part = f"  {first + 1}-{first + shown} of {len(names)}" if shown < len(names) else f"  {len(names)}"
    kept = f"  with '{clean(view.filter)}', of {known}" if view.filter else ""
    column = next((one.title for one in table.columns if one.key == table.sort.removeprefix("-")), "")
    reverse = ", reversed" if table.sort.startswith("-") else ""
    # Rates of tasks cover a longer time than rates of components, so their sum differs while rates change.
    of_what = figures.tasks if view.level is Level.TASKS else figures.load
    over_s = of_what.window_s if of_what is not None else None
    window = f"  over {format_duration(round(over_s))}" if over_s else ""
    order = f"  by {column}{reverse}" if column else ""
    return Line(((what, BOLD), (part, PLAIN), (order, PLAIN), (kept, WARN), (window, QUIET)))


def _columns(table: _Table, room: int) -> tuple[list[Column[ComponentLoad] | Column[TaskLoad]], int]:
    """Return the columns that fit, and the number of cells left over."""
    chosen: list[Column[ComponentLoad] | Column[TaskLoad]] = []
    for column in table.columns:
        if column.width + 1 > room:
            break
        chosen.append(column)
        room -= column.width + 1
    return chosen, max(room, 0)


def _row(
    row: _Row,
    columns: Sequence[Column[ComponentLoad] | Column[TaskLoad]],
    name_width: int,
    trend_width: int,
    bars: str,
    chosen: bool,
) -> Line:
    mark = "!" if row.style == ALARM else " "
    pieces = [(f"{'>' if chosen else ' '}{mark}", row.style), (set_cell_size(clean(row.name), name_width), row.style)]
    for column in columns:
        text, style = row.cells[column.key]
        pieces.append((" " + clean(text)[: column.width].rjust(column.width), style))
    if bars:
        pieces.append((" " + trend(row.trend, trend_width, bars), QUIET))
    return Line(tuple((text, CHOSEN if chosen else style) for text, style in pieces))


# ---- one task ---------------------------------------------------------------------------------


def _task(view: View, figures: Figures, width: int, height: int) -> list[Line]:
    """Return a task's figures, suggested commands, and the tail of the task's log or, if requested, its stacks."""
    found = next((one for one in figures.tasks.tasks if one.instance_id == view.task), None) if figures.tasks else None
    title = _line(f"task {view.task}", BOLD)
    if found is None:
        why = "loading" if figures.tasks is None else "this task is no longer in the plan; Esc goes back"
        return [title, _line(why)][:height]
    lines = [title]
    cells = [f"{name:<9} {text}" for name, text in _facts(found)]
    per_row = max(1, min(4, width // 26))
    for start in range(0, len(cells), per_row):
        lines.append(_line("".join(cell.ljust(26) for cell in cells[start : start + per_row])))
    if found.culprit:
        lines.append(_line("this task is holding back the spouts", ALARM))
    if found.error:
        lines += _wrapped(found.error, ALARM, width, 3)
    if found.exit_reason:
        detail = f": {found.exit_detail}" if found.exit_detail else ""
        lines += _wrapped(f"last exit: {found.exit_reason.replace('_', ' ')}{detail}", WARN, width, 3)
    where = f"{figures.cluster} {figures.topology} {found.instance_id}"
    lines += [_line(f"log      heron logs {where} -f"), _line(f"time     heron profile {where}")]
    if not view.asked:
        return [*lines, *_log(view, figures, max(height - len(lines), 0))][:height]
    stacks = figures.stacks
    if stacks is None or stacks[0] != view.task:
        return [*lines, _line("stacks   loading", QUIET)][:height]
    text = [row.expandtabs(4) for row in stacks[1].splitlines()]
    room = max(height - len(lines) - 1, 0)
    first = max(0, min(view.scroll, len(text) - room))
    lines.append(_line(f"stacks, lines {first + 1}-{min(first + room, len(text))} of {len(text)}", BOLD))
    return [*lines, *(_line(row) for row in text[first : first + room])][:height]


def _log(view: View, figures: Figures, height: int) -> list[Line]:
    """Return the tail of the log, newest line last."""
    if figures.log is None or figures.log[0] != view.task:
        return [_line("log      loading", QUIET)]
    text = [row.expandtabs(4) for row in figures.log[1]]
    room = max(height - 1, 0)
    end = len(text) - max(0, min(view.scroll, len(text) - room))
    shown = text[max(0, end - room) : end]
    title = f"log, lines {end - len(shown) + 1}-{end} of the last {len(text)}" if text else "log, nothing yet"
    return [_line(title, BOLD), *map(_line, shown)]


def _facts(task: TaskLoad) -> list[tuple[str, str]]:
    return [
        ("state", task.state),
        ("busy", share(task.busy)),
        ("blocked", share(task.blocked)),
        ("idle", share(task.idle)),
        ("in/s", rate(task.executed_per_s)),
        ("out/s", rate(task.emitted_per_s)),
        ("fail/s", rate(task.failed_per_s)),
        ("pending", short(task.pending)),
        ("p50", duration(task.latency_p50_s)),
        ("p99", latency(task.latency_p99_s, task.latency_at_least)),
        ("queue", f"{size(task.queue_bytes)}, {short(task.queue_tuples)}"),
        ("silent", duration(task.silent_s)),
        ("cpu", cores(task.cpu)),
        ("memory", size(task.memory_bytes)),
        ("restarts", number(task.restarts)),
        ("pid", number(task.pid)),
        ("container", str(task.container)),
        ("host", task.host or "-"),
    ]


# ---- for a terminal ---------------------------------------------------------------------------

_SGR = {BOLD: "1", CHOSEN: "7", ALARM: "1;31", WARN: "33", GOOD: "32", QUIET: "2"}
_GREY = {BOLD: "1", CHOSEN: "7", ALARM: "1"}


def painted(line: Line, colour: bool) -> str:
    """Return the line with terminal escape sequences for its styles."""
    codes = _SGR if colour else _GREY
    return "".join(f"\x1b[{codes[style]}m{text}\x1b[0m" if style in codes else text for text, style in line.pieces)


def changes(before: Sequence[str], after: Sequence[str]) -> str:
    """Return the text that turns a screen showing `before` into one showing `after`; only changed lines are written."""
    return "".join(
        f"\x1b[{place + 1};1H{text}"
        for place, text in enumerate(after)
        if place >= len(before) or before[place] != text
    )
