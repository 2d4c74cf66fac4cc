"""What a live stream sends: a snapshot, then what has changed (pure).

A viewer is always brought from what it has seen last to the newest state, whatever was in between: so a slow one skips
states and never has more than one message waiting.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import floor, log10
from typing import Any

import msgspec
from msgspec import Struct

from heronpy.views.live import Cells, Delta, Snapshot

#: Digits of a live figure: a third of the bytes, and nobody reads more.
DIGITS = 4
#: Tables of a snapshot: name, attribute path, fields that name a row.
_TABLES: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    ("topologies", ("topologies",), ("cluster", "role", "environ", "name", "id")),
    ("components", ("load", "components"), ("name",)),
    ("edges", ("load", "edges"), ("id",)),
    ("tasks", ("tasks", "tasks"), ("task_id", "container")),
    ("processes", ("tasks", "processes"), ("container", "name")),
)
_IN_TABLES = frozenset(path for _, path, _ in _TABLES)


def rounded(value: Any) -> Any:
    """The same value with floats of at most DIGITS significant digits; times of day and lists stay."""
    if isinstance(value, float) and value and abs(value) < 1e9:
        return round(value, DIGITS - 1 - floor(log10(abs(value))))
    return value


def delta(old: Snapshot, new: Snapshot) -> Delta | None:
    """What brings `old` to `new`; None if only a snapshot can, because rows came or went or the plan changed."""
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
    """Changed cells by column; None when the rows are not the same ones in the same order."""
    if len(before) != len(after):
        return None
    found: dict[str, Cells] = {}
    names = before[0].__struct_fields__ if before else ()
    for number, (one, other) in enumerate(zip(before, after)):
        if any(getattr(one, name) != getattr(other, name) for name in key):
            return None
        if one is other or one == other:
            continue
        for name in names:
            value = rounded(getattr(other, name))
            if rounded(getattr(one, name)) != value:
                cells = found.setdefault(name, Cells(rows=[], values=[]))
                assert cells.rows is not None
                cells.rows.append(number)
                cells.values.append(value)
    for cells in found.values():
        if len(cells.values) == len(after):
            cells.rows = None
    return found


def _add_fields(found: Delta, prefix: str, part: str, old: Struct | None, new: Struct | None) -> bool:
    """Add the changed fields of a part; False when the part has come or gone."""
    if old is None or new is None:
        return old is new
    for name in old.__struct_fields__:
        if (part, name) not in _IN_TABLES:
            found.fields.update(_changed(prefix + name, getattr(old, name), getattr(new, name)))
    return True


def _changed(path: str, old: Any, new: Any) -> dict[str, Any]:
    value = rounded(new)
    return {path: value} if rounded(old) != value else {}


def message(event: str, body: Struct, number: str) -> bytes:
    """A server-sent event; JSON has no line breaks, so it is one `data:` line."""
    return b"event: %s\nid: %s\ndata: %s\n\n" % (event.encode(), number.encode(), msgspec.json.encode(body))


PING = b": ping\n\n"
