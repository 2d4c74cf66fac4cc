"""The messages of `GET /api/v1/live`, each one server-sent event with `event:` its name and `id:` its number. Pure.

A snapshot has everything of the level; deltas then have the changes. A reader keeps the snapshot and applies deltas:
`fields` replaces fields of the snapshot's `topology` (of `load` and `tasks` by the path, `load.held`), `tables` sets
cells, whose rows are positions in the lists of the last snapshot. When the length or order of a list changes, a
snapshot is sent instead of a delta.

Figures of a delta have the digits that a page shows: two decimals for shares, three significant digits for others.

After every 15 s without news, the comment `: ping` is sent. A stream that ends is opened again with the header
`Last-Event-ID`; the answer begins with a snapshot, unless nothing has changed since.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from heronpy.views.load import Load, Tasks
from heronpy.views.overview import Topology
from heronpy.views.past import Event
from heronpy.views.plan import Plan


class Snapshot(Struct, kw_only=True):
    """`event: snapshot`, of `GET /live` (the list) or `GET /live?topology=C/R/E/NAME&level=component|tasks|fitting`."""

    #: `list` has only topologies; `component` has topology, plan and load; `tasks` also has tasks.
    level: str
    topology: Topology | None
    #: Only at level `list`.
    topologies: list[Topology] | None
    #: None if the topology master has never answered.
    plan: Plan | None
    load: Load | None
    tasks: Tasks | None
    #: Seconds since the topology master answered; None if it never did. Above 10 the page shows it.
    silent_s: float | None


class Cells(Struct, kw_only=True, array_like=True):
    """Changed cells of one column, as the array `[rows, values]`."""

    #: Positions in the list; None for every row, in order.
    rows: list[int] | None
    #: Numbers, texts, booleans or null.
    values: list[Any]


class Delta(Struct, kw_only=True, omit_defaults=True):
    """`event: delta`"""

    #: Path to its new value: `state`, `sentence`, `load.held`, `load.culprits`, `silent_s`.
    fields: dict[str, Any] = {}
    #: `topologies`, `components` and `edges` (of `load`), `tasks` and `processes` (of `tasks`) -> column -> cells.
    tables: dict[str, dict[str, Cells]] = {}


class NewEvents(Struct, kw_only=True):
    """`event: event`: the new events, oldest first."""

    events: list[Event]


class Gone(Struct, kw_only=True):
    """`event: gone`, the last message of a stream: the topology was killed, or replaced by another of its name."""

    #: One sentence.
    text: str
