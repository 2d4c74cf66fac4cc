"""The tuple as user code sees it.

The runtime's tuple is another class with the same attributes. Read attributes; do not check the type.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple


class Tuple(NamedTuple):
    """One message between components.

    `id` identifies the tuple within its task; `component`, `stream` and `task` say who emitted it
    and where; `values` is the payload, one value for each declared field.
    """

    id: Any
    component: str
    stream: str
    task: int | None
    values: Sequence[Any]


class TupleHelper:
    """Creates and recognises the tuples that the runtime itself sends."""

    TICK_TUPLE_ID = "__tick"
    TICK_SOURCE_COMPONENT = "__system"

    @staticmethod
    def make_tick_tuple() -> Tuple:
        """A tick tuple, which has no sending task and no values."""
        tick = TupleHelper.TICK_TUPLE_ID
        return Tuple(tick, TupleHelper.TICK_SOURCE_COMPONENT, tick, None, ())

    @staticmethod
    def is_tick(tup: Tuple) -> bool:
        """Whether `tup` is a tick, judged by its stream."""
        return tup.stream == TupleHelper.TICK_TUPLE_ID
