"""Builds the messages of a live stream: a snapshot, then changes. Pure.

A change always leads from the last state that was sent to a viewer to the newest state. A slow viewer therefore skips
states, and never has more than one waiting message.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import floor, isfinite, log10
from operator import attrgetter
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from heronpy.views.live import Cells, Delta, Snapshot
from heronpy.views.load import ComponentLoad, Load

#: Significant digits of a live figure, as many as a page shows; all digits would take three times the bytes.
DIGITS = 3
#: Figures that are shown with two digits after the point.
_SHARES = frozenset(("busy", "blocked", "idle", "busy_max", "blocked_max", "held"))
#: Whole numbers that are shown rounded; all other whole numbers are exact counts.
_ROUGH = frozenset(("queue_tuples", "pending"))
#: Smallest value that counts as a time in seconds since 1970; it is in 2001.
_TIME_OF_DAY = 1e9
#: Largest change that `settled` ignores: of a share, and relative for any other figure.
SHARE_STEP, STEP = 0.015, 0.01
#: Fields that identify a row, and limits; they change only when the topology changes.
_EXACT = frozenset(("name", "id", "task_id", "container", "queue_bound_bytes", "memory_limit_bytes"))
#: The fields that `stands_out` compares, and the smallest relative change that counts.
_RATES, JUMP = ("emitted_per_s", "executed_per_s", "failed_per_s"), 0.5
Row = TypeVar("Row", bound=Struct)
#: Tables of a snapshot: name, attribute path, fields that identify a row.
_TABLES: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    ("topologies", ("topologies",), ("cluster", "role", "environ", "name", "id")),
    ("components", ("load", "components"), ("name",)),
    ("edges", ("load", "edges"), ("id",)),
    ("tasks", ("tasks", "tasks"), ("task_id", "container")),
    ("processes", ("tasks", "processes"), ("container", "name")),
)
_IN_TABLES = frozenset(path for _, path, _ in _TABLES)


def rounded(name: str, value: Any) -> Any:
    """Return the value of a field, rounded to the digits that the pages show.

    A float without a fraction becomes an int, which is shorter in JSON. Counts, texts and lists are not changed. Times
    of day keep their milliseconds.
    """
    if isinstance(value, float):
        if not value:
            return 0
        if not isfinite(value):
            return value
        if name in _SHARES:
            value = round(value, 2)
        elif name == "cpu":
            value = round(value, 2 if abs(value) >= 0.1 else 3)
        elif name == "silent_s":
            return round(value)  # below a second, the value only shows the time of the request
        else:
            size = abs(value)
            value = round(value, 3 if size >= _TIME_OF_DAY else DIGITS - 1 - floor(log10(size)))
        whole = int(value)
        return whole if value == whole else value
    if type(value) is int and value and (name in _ROUGH or "_bytes" in name):
        return round(value, DIGITS - 1 - floor(log10(abs(value))))
    return value


def settled(old: Snapshot | None, new: Snapshot) -> Snapshot:
    """Return `new`, but with the table figures of `old` wherever the two differ by less than STEP.

    Little is sent for a steady topology, and a shown figure is never wrong by more than STEP. Changes to and from 0,
    and the summary of the topology, are always sent.
    """
    if old is None or old.load is None or new.load is None:
        return new
    load, tasks = new.load, new.tasks
    load = msgspec.structs.replace(
        load, components=_settled(old.load.components, load.components), edges=_settled(old.load.edges, load.edges)
    )
    if old.tasks is not None and tasks is not None:
        tasks = msgspec.structs.replace(tasks, tasks=_settled(old.tasks.tasks, tasks.tasks))
    return msgspec.structs.replace(new, load=load, tasks=tasks)


def stands_out(shown: Load, now: Load) -> bool:
    """Whether there is a significant change, which is sent immediately and not with the next poll.

    A change is significant if work begins, ends or changes by half, if a task appears or disappears, or if other
    culprits hold back the spouts. Queues and latencies change too often to be significant.
    """
    if (shown.state, shown.cause, shown.plan_version) != (now.state, now.cause, now.plan_version):
        return True
    full = [[one.name for one in (*load.culprits, *load.avoided, *load.dropping)] for load in (shown, now)]
    if full[0] != full[1]:
        return True
    if [one.name for one in shown.components] != [one.name for one in now.components]:
        return True
    return any(map(_row_stands_out, shown.components, now.components))


def _row_stands_out(was: ComponentLoad, now: ComponentLoad) -> bool:
    if (was.tasks, was.up, was.restarts) != (now.tasks, now.up, now.restarts):
        return True
    rates = ((getattr(was, name) or 0.0, getattr(now, name) or 0.0) for name in _RATES)
    return any(abs(one - other) > JUMP * max(one, other) for one, other in rates)


def _settled(before: list[Row], after: list[Row]) -> list[Row]:
    if len(before) != len(after) or not after:
        return after
    names = [name for name in after[0].__struct_fields__ if name not in _EXACT]
    return [_settled_row(one, other, names) for one, other in zip(before, after)]


def _settled_row(one: Row, other: Row, names: list[str]) -> Row:
    kept = {}
    for name in names:
        was, now = getattr(one, name), getattr(other, name)
        if was != now and was and now and _is_figure(name, was) and _is_figure(name, now):
            if abs(now - was) < (SHARE_STEP if name in _SHARES else STEP * abs(was)):
                kept[name] = was
    # A median that is kept must not exceed a 99th percentile that is new, and vice versa.
    for low in [name for name in kept if "_p50_" in name or "_p99_" in name]:
        median, high = low.replace("_p99_", "_p50_"), low.replace("_p50_", "_p99_")
        pair = [kept.get(name, getattr(other, name)) for name in (median, high)]
        if None not in pair and pair[0] > pair[1]:
            kept.pop(median, None)
            kept.pop(high, None)
    return msgspec.structs.replace(other, **kept) if kept else other


def _is_figure(name: str, value: Any) -> bool:
    return isinstance(value, float) or (type(value) is int and (name in _ROUGH or "_bytes" in name))


def delta(old: Snapshot, new: Snapshot) -> Delta | None:
    """Return the change from `old` to `new`; None if rows or the plan changed, so that a snapshot is needed."""
    if old.level != new.level or (old.plan is None) != (new.plan is None) or not _same_plan(old, new):
        return None
    found = Delta(fields={}, tables={})
    for name, path, key in _TABLES:
        before, after = _at(old, path), _at(new, path)
        if (before is None) != (after is None):
            return None
        if before is not None and after is not None:
            columns = _columns(before, after, key)
            if columns is None:
                return None
            if columns:
                found.tables[name] = columns
    found.fields.update(_changed("silent_s", old.silent_s, new.silent_s))
    for part in ("topology", "load", "tasks"):
        prefix = "" if part == "topology" else f"{part}."
        if not _add_fields(found, prefix, part, getattr(old, part), getattr(new, part)):
            return None
    return found


def _same_plan(old: Snapshot, new: Snapshot) -> bool:
    return old.plan is new.plan or old.plan == new.plan


def _at(snapshot: Snapshot, path: tuple[str, ...]) -> Sequence[Struct] | None:
    found: Any = snapshot
    for name in path:
        found = getattr(found, name) if found is not None else None
    rows: Sequence[Struct] | None = found
    return rows


def _columns(before: Sequence[Struct], after: Sequence[Struct], key: tuple[str, ...]) -> dict[str, Cells] | None:
    """Return the changed cells by column; None if the rows or their order differ."""
    if len(before) != len(after):
        return None
    identity = attrgetter(*key)
    if any(identity(one) != identity(other) for one, other in zip(before, after)):
        return None
    # This runs on the tracker's loop, for thousands of cells, while other requests wait.
    pairs = [(number, one, other) for number, (one, other) in enumerate(zip(before, after)) if one != other]
    found: dict[str, Cells] = {}
    for name in before[0].__struct_fields__ if pairs else ():
        value = attrgetter(name)
        changed: dict[int, Any] = {}
        for number, one, other in pairs:
            was, now = value(one), value(other)
            if was != now and rounded(name, was) != (shown := rounded(name, now)):
                changed[number] = shown
        if 2 * len(changed) > len(after):
            # With most rows changed, the row numbers would be longer than the values of the unchanged rows.
            values = [
                changed[number] if number in changed else rounded(name, value(row)) for number, row in enumerate(after)
            ]
            found[name] = Cells(rows=None, values=values)
        elif changed:
            found[name] = Cells(rows=list(changed), values=list(changed.values()))
    return found


def _add_fields(found: Delta, prefix: str, part: str, old: Struct | None, new: Struct | None) -> bool:
    """Add the changed fields of a part; return False if the part was added or removed."""
    if old is None or new is None:
        return old is new
    for name in old.__struct_fields__:
        if (part, name) not in _IN_TABLES:
            found.fields.update(_changed(prefix + name, getattr(old, name), getattr(new, name)))
    return True


def _changed(path: str, old: Any, new: Any) -> dict[str, Any]:
    name = path.rpartition(".")[2]
    value = rounded(name, new)
    return {path: value} if rounded(name, old) != value else {}


def message(event: str, body: Struct, number: str) -> bytes:
    """Return a server-sent event; JSON has no line breaks, so it is one `data:` line."""
    return b"event: %s\nid: %s\ndata: %s\n\n" % (event.encode(), number.encode(), msgspec.json.encode(body))


PING = b": ping\n\n"
