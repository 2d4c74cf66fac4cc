"""The messages of `GET /api/v1/live`, each one server-sent event with `event:` its name and `id:` its number. Pure.

A snapshot contains all data of the level; deltas then contain the changes. A reader keeps the snapshot and applies
deltas: `fields` replaces fields of the snapshot's `topology` (or of `load` and `tasks`, by a path such as `load.held`),
`tables` sets cells, whose rows are positions in the lists of the last snapshot. When the length or order of a list
changes, a snapshot is sent instead of a delta.

Figures in a delta have the precision of a page: two decimals for shares, three significant digits for other figures.

After every 15 s without a message, the comment `: ping` is sent. A client reopens an ended stream with the header
`Last-Event-ID`; the answer begins with a snapshot unless the data is unchanged.
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

    #: `list` only contains topologies; `component` contains topology, plan and load; `tasks` also contains tasks.
    level: str
    topology: Topology | None
    #: Only at level `list`.
    topologies: list[Topology] | None
    #: None if the topology master has never answered.
    plan: Plan | None
    load: Load | None
    tasks: Tasks | None
    #: Seconds since the topology master's last answer, shown by the page above 10 s; None if it has never answered.
    silent_s: float | None


class Cells(Struct, kw_only=True, array_like=True):
    """Changed cells of one column, as the array `[rows, values]`."""

    #: Positions in the list; None for every row, in order.
    rows: list[int] | None
    #: Numbers, texts, booleans or null.
    values: list[Any]


class Delta(Struct, kw_only=True, omit_defaults=True):
    """`event: delta`: the changes since the last message."""

    #: Map from path to new value: `state`, `sentence`, `load.held`, `load.culprits`, `silent_s`.
    fields: dict[str, Any] = {}
    #: `topologies`, `components` and `edges` (of `load`), `tasks` and `processes` (of `tasks`) -> column -> cells.
    tables: dict[str, dict[str, Cells]] = {}


class NewEvents(Struct, kw_only=True):
    """`event: event`: the new events, oldest first."""

    events: list[Event]


class Gone(Struct, kw_only=True):
    """`event: gone`, the last message of a stream: the topology was killed, or replaced by one with the same name."""

    #: One sentence.
    text: str
