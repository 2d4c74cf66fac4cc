"""Rows of the history, how they are joined, and how a topology has ended. Pure.

A row holds one minute, or ten, of one topology: float32 for every series of every component, `NaN` where unknown. Rows
of a topology do not overlap; what is missing is unknown.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import ceil, isnan, nan

from heronpy.proto import control_pb2
from heronpy.tmaster.minutes import MINUTE_S, SERIES
from heronpy.views.past import Event

#: Minutes of a row that is kept for long.
STEP = 10
#: How long minutes are kept, and rows of ten.
MINUTES_KEPT, KEPT = 48 * 60, 14 * 24 * 60
#: Minutes that are asked for at once.
ASKED_MAX = 900

_JOINS: dict[str, Callable[[list[float]], float]] = {
    "mean": lambda values: sum(values) / len(values),
    "most": max,
    "sum": sum,
    "last": lambda values: values[-1],
}


@dataclass(frozen=True, slots=True)
class Layout:
    """What the values of a row are: for each component all series, in this order."""

    components: tuple[str, ...]
    series: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """One or more minutes."""

    #: Minutes since 1970.
    number: int
    #: How many it sums up.
    step: int
    layout: Layout
    #: float32, little-endian.
    data: bytes

    def values(self) -> array[float]:
        """One float for each component and series."""
        found = array("f", self.data)
        if sys.byteorder == "big":
            found.byteswap()
        return found


def _packed(values: array[float]) -> bytes:
    if sys.byteorder == "big":
        values = values[:]
        values.byteswap()
    return values.tobytes()


def _join(name: str, values: list[float]) -> float:
    """Several values of a series as one; what a series of another release is, is not known: its mean."""
    known = [value for value in values if not isnan(value)]
    return _JOINS[SERIES.get(name, "mean")](known) if known else nan


def rows_of(reply: control_pb2.TimelineReply) -> list[Row]:
    """The minutes of an answer; empty unless it has one point per minute."""
    if not reply.points or reply.step_s != MINUTE_S:
        return []
    components = tuple(dict.fromkeys(series.component for series in reply.series))
    names = tuple(dict.fromkeys(series.name for series in reply.series))
    layout = Layout(components, names)
    places = {
        (one, name): at * len(names) + column for at, one in enumerate(components) for column, name in enumerate(names)
    }
    width = len(components) * len(names)
    table = [array("f", [nan]) * width for _ in range(reply.points)]
    for series in reply.series:
        place = places[series.component, series.name]
        for values, (value,) in zip(table, struct.iter_unpack("<f", series.values[: 4 * (len(series.values) // 4)])):
            values[place] = value
    first = int(reply.first // MINUTE_S)
    return [
        Row(first + number, 1, layout, _packed(values))
        for number, values in enumerate(table)
        if not all(map(isnan, values))
    ]


def rows_of_ledger(kept: control_pb2.MinutesLedger) -> list[Row]:
    """The minutes that the state manager held; rows that do not fit their names are left out."""
    found = []
    for minute in kept.minutes:
        if minute.names < len(kept.names):
            layout = Layout(tuple(kept.names[minute.names].components), tuple(kept.series))
            if len(minute.values) == 4 * len(layout.components) * len(layout.series) > 0:
                found.append(Row(minute.number, 1, layout, minute.values))
    return found


def compacted(rows: Sequence[Row]) -> list[Row]:
    """Rows of `STEP` minutes, one for each span that has rows."""
    spans: dict[int, list[Row]] = {}
    for row in rows:
        spans.setdefault(row.number // STEP, []).append(row)
    return [_joined(span * STEP, some) for span, some in sorted(spans.items())]


def _joined(number: int, rows: list[Row]) -> Row:
    components = tuple(dict.fromkeys(name for row in rows for name in row.layout.components))
    series = tuple(dict.fromkeys(name for row in rows for name in row.layout.series))
    wanted = [(component, name) for component in components for name in series]
    columns = _columns(rows, wanted)
    values = array("f", [_join(name, columns[component, name]) for component, name in wanted])
    return Row(number, STEP, Layout(components, series), _packed(values))


def _columns(rows: Iterable[Row], wanted: Iterable[tuple[str, str]]) -> dict[tuple[str, str], list[float]]:
    """The values of some series, one for each row."""
    keys = list(wanted)
    found: dict[tuple[str, str], list[float]] = {key: [] for key in keys}
    layout, places = None, [-1]
    for row in rows:
        if row.layout is not layout:
            layout = row.layout
            at = {name: number for number, name in enumerate(layout.components)}
            column = {name: number for number, name in enumerate(layout.series)}
            width = len(layout.series)
            places = [at[one] * width + column[name] if one in at and name in column else -1 for one, name in keys]
        values = row.values()
        for key, place in zip(keys, places, strict=True):
            found[key].append(values[place] if 0 <= place < len(values) else nan)
    return found


def timeline(
    rows: Sequence[Row], components: Sequence[str], names: Sequence[str], points: int
) -> control_pb2.TimelineReply:
    """The rows as a topology master would answer, at most so many points; empty: all components, all series."""
    reply = control_pb2.TimelineReply(step_s=MINUTE_S)
    if not rows:
        return reply
    first, end = rows[0].number, rows[-1].number + rows[-1].step
    count = end - first
    step = 1 if count <= points else count if points == 1 else ceil(count / (points - 1))
    step = max(step, rows[0].step)
    if step < count:
        # Whole steps, so that a later request joins the same minutes.
        first = first // step * step
    reply.first, reply.step_s, reply.points = first * MINUTE_S, step * MINUTE_S, ceil((end - first) / step)
    known = [name for row in rows for name in row.layout.components]
    chosen = list(dict.fromkeys(components or known))
    series = list(dict.fromkeys(names or [name for row in rows for name in row.layout.series]))
    slots = [(row.number - first) // step for row in rows]
    for (component, name), values in _columns(rows, [(one, name) for one in chosen for name in series]).items():
        groups: list[list[float]] = [[] for _ in range(reply.points)]
        for slot, value in zip(slots, values, strict=True):
            groups[slot].append(value)
        joined = array("f", [_join(name, group) for group in groups])
        if not all(map(isnan, joined)):
            reply.series.add(component=component, name=name, values=_packed(joined))
    return reply


def origin_of(event: Event) -> tuple[str, str, str, float]:
    """What a repetition has in common with the event that it repeats: it has a new number, and counts both."""
    return event.kind, event.subject, event.reason, event.first_at


def how_ended(last_state: str) -> str:
    """`finished`, `failed` or `killed`, from the last state of the life cycle that is known, as `running`."""
    return last_state if last_state in ("finished", "failed") else "killed"


#: What is said of a topology that has ended.
SENTENCES = {
    "finished": "has finished",
    "failed": "has failed and was removed",
    "killed": "was killed",
    "ended": "ended while no tracker looked",
}
