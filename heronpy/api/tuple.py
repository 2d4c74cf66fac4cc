"""Tuples as user code sees them. The runtime has another class with the same attributes: rely on the attributes, not on
the type.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple


class Tuple(NamedTuple):
    """One message between components.

    `id` identifies the tuple within its task; `component`, `task` and `stream` say where the tuple
    was emitted; `values` is the payload, one value for each declared field.
    """

    id: Any
    component: str
    stream: str
    task: int | None
    values: Sequence[Any]


class TupleHelper:
    """Creates and recognises tick tuples, which the runtime itself sends."""

    TICK_TUPLE_ID = "__tick"
    TICK_SOURCE_COMPONENT = "__system"

    @staticmethod
    def make_tick_tuple() -> Tuple:
        """Return a tick tuple, which has no sending task and no values."""
        tick = TupleHelper.TICK_TUPLE_ID
        return Tuple(tick, TupleHelper.TICK_SOURCE_COMPONENT, tick, None, ())

    @staticmethod
    def is_tick(tup: Tuple) -> bool:
        """Return whether `tup` arrived on the tick stream."""
        return tup.stream == TupleHelper.TICK_TUPLE_ID
