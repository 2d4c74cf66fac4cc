"""The tables of `heron top`: the columns, and how a view sorts and filters rows. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from heronpy.common.units import format_bytes, format_duration
from heronpy.views.load import ComponentLoad, TaskLoad

R = TypeVar("R")
Value = float | str | None


@dataclass(frozen=True, slots=True)
class Column(Generic[R]):
    """A column of a table whose rows have the type R."""

    key: str
    title: str
    #: Cells, without the space before it.
    width: int
    #: Sort key of a row; None comes last.
    value: Callable[[R], Value]
    #: Text of the cell.
    text: Callable[[R], str]


def short(count: float | None) -> str:
    """Return a count in at most five characters: 950, 12.3k, 1.86M; "-" if it is unknown."""
    if count is None:
        return "-"
    for unit in ("", "k", "M", "G", "T"):
        if count < 999.5 or unit == "T":
            break
        count /= 1000
    digits = 0 if not unit or count >= 99.95 else 1 if count >= 9.995 else 2
    return f"{count:.{digits}f}{unit}"


def rate(per_s: float | None) -> str:
    """Return a rate in tuples per second as text; small values have one decimal."""
    return f"{per_s:.1f}" if per_s is not None and 0 < per_s < 9.95 else short(per_s)


def part(ratio: float | None) -> str:
    """Return a ratio as text, with one decimal if it is below 100."""
    return f"{ratio:.1f}" if ratio is not None and ratio < 99.95 else short(ratio)


def share(part: float | None) -> str:
    """Return text such as `98%`; "-" if the share is unknown."""
    return "-" if part is None else f"{part * 100:.0f}%"


def duration(seconds: float | None) -> str:
    """Return text such as `12ms`; "-" if the duration is unknown."""
    return "-" if seconds is None else format_duration(seconds)


def _p99(row: ComponentLoad | TaskLoad) -> str:
    return latency(row.latency_p99_s, row.latency_at_least)


def latency(seconds: float | None, at_least: bool) -> str:
    """Return text such as `12ms`, or `>1m40s` if only a lower bound is known."""
    return (">" if at_least and seconds is not None else "") + duration(seconds)


def size(count: int | None) -> str:
    """Return text such as `1.5MB`; "-" if the size is unknown."""
    return "-" if count is None else format_bytes(count)


def _backlog(row: ComponentLoad) -> str:
    """Return a spout's backlog in tuples, or in bytes if the number of tuples is unknown."""
    if not _spout(row):
        return ""
    return size(row.backlog_bytes) if row.backlog_tuples is None else short(row.backlog_tuples)


def cores(used: float | None) -> str:
    """Return CPU seconds per second as text; "-" if unknown."""
    return "-" if used is None else f"{used:.2f}"


def number(count: int | None) -> str:
    """Return a small count as text; "-" if it is unknown."""
    return "-" if count is None else str(count)


#: Most important first: on a narrow screen, columns that do not fit are dropped from the end.
COMPONENTS: tuple[Column[ComponentLoad], ...] = (
    Column("out", "out/s", 6, lambda row: row.emitted_per_s, lambda row: rate(row.emitted_per_s)),
    Column(
        "in", "in/s", 6, lambda row: row.executed_per_s, lambda row: "" if _spout(row) else rate(row.executed_per_s)
    ),
    Column("busy", "busy", 4, lambda row: row.busy_max, lambda row: share(row.busy_max)),
    Column("queue", "queue", 7, lambda row: row.queue_bytes, lambda row: "" if _spout(row) else size(row.queue_bytes)),
    Column("p99", "p99", 6, lambda row: row.latency_p99_s, _p99),
    Column("up", "up", 5, lambda row: row.up - row.tasks, lambda row: f"{row.up}/{row.tasks}"),
    Column("blocked", "blkd", 4, lambda row: row.blocked_max, lambda row: share(row.blocked_max)),
    Column("cpu", "cpu", 5, lambda row: row.cpu, lambda row: cores(row.cpu)),
    Column("backlog", "backlog", 7, lambda row: row.backlog_tuples or row.backlog_bytes, _backlog),
    Column("failed", "fail/s", 6, lambda row: row.failed_per_s, lambda row: rate(row.failed_per_s)),
    Column("frames", "frm/s", 6, lambda row: row.frames_per_s, lambda row: rate(row.frames_per_s)),
    Column("per frame", "t/frm", 5, lambda row: row.tuples_per_frame, lambda row: part(row.tuples_per_frame)),
    Column("restarts", "rst", 3, lambda row: row.restarts, lambda row: number(row.restarts)),
    Column("memory", "memory", 7, lambda row: row.memory_bytes, lambda row: size(row.memory_bytes)),
    Column("pending", "pend", 6, lambda row: row.pending, lambda row: short(row.pending) if _spout(row) else ""),
)
TASKS: tuple[Column[TaskLoad], ...] = (
    Column("out", "out/s", 6, lambda row: row.emitted_per_s, lambda row: rate(row.emitted_per_s)),
    Column("in", "in/s", 6, lambda row: row.executed_per_s, lambda row: rate(row.executed_per_s)),
    Column("busy", "busy", 4, lambda row: row.busy, lambda row: share(row.busy)),
    Column("queue", "queue", 7, lambda row: row.queue_bytes, lambda row: size(row.queue_bytes)),
    Column("p99", "p99", 6, lambda row: row.latency_p99_s, _p99),
    Column("state", "state", 9, lambda row: row.state, lambda row: row.state if row.up else row.state + "!"),
    Column("blocked", "blkd", 4, lambda row: row.blocked, lambda row: share(row.blocked)),
    Column("cpu", "cpu", 5, lambda row: row.cpu, lambda row: cores(row.cpu)),
    Column("frames", "frm/s", 6, lambda row: row.frames_per_s, lambda row: rate(row.frames_per_s)),
    Column("per frame", "t/frm", 5, lambda row: row.tuples_per_frame, lambda row: part(row.tuples_per_frame)),
    Column("restarts", "rst", 3, lambda row: row.restarts, lambda row: number(row.restarts)),
    Column("memory", "memory", 7, lambda row: row.memory_bytes, lambda row: size(row.memory_bytes)),
    Column("container", "ctr", 4, lambda row: row.container, lambda row: str(row.container)),
    Column("pid", "pid", 7, lambda row: row.pid, lambda row: number(row.pid)),
)


def _spout(row: ComponentLoad) -> bool:
    return row.kind == "spout"


def ordered(rows: Iterable[R], columns: Iterable[Column[R]], sort: str) -> list[R]:
    """Sort by the column with this key: numbers descending, text ascending; a "-" before the key reverses the order.

    Unknown values come last. An empty key keeps the order.
    """
    found, key = list(rows), sort.removeprefix("-")
    column = next((one for one in columns if one.key == key), None)
    if column is None:
        return found
    value, back = column.value, sort.startswith("-")
    numbers = [(one, row) for row in found if isinstance(one := value(row), int | float)]
    words = [(one, row) for row in found if isinstance(one := value(row), str)]
    unknown = [row for row in found if value(row) is None]
    numbers.sort(key=lambda pair: pair[0] if back else -pair[0])
    words.sort(key=lambda pair: pair[0], reverse=back)
    return [*(row for _, row in numbers), *(row for _, row in words), *unknown]


def fits(filter_: str, name: str) -> bool:
    """Whether the name contains all words of the filter, ignoring case."""
    folded = name.casefold()
    return all(word in folded for word in filter_.casefold().split())
