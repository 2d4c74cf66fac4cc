"""The joins of two streamlets of (key, value) elements, within a window.

For each key of a window every left value is paired with every right one. The outer joins also give
the values of keys that only one side has, with None for the other. Elements that are in several
overlapping windows are joined in each of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from heronpy.api.component.component_spec import GlobalStreamId
from heronpy.api.stream import Grouping
from heronpy.api.topology import TopologyBuilder
from heronpy.streamlet.errors import StreamletError
from heronpy.streamlet.impl.keygrouping import KeyGrouping
from heronpy.streamlet.impl.streamletboltbase import part_of
from heronpy.streamlet.impl.windowbolt import (
    WindowedBolt,
    by_key,
    checked_window,
    keyed,
    window_settings,
)
from heronpy.streamlet.streamlet import Streamlet, checked_callable
from heronpy.streamlet.windowconfig import WindowConfig

# The side that is missing, shaped like the others: one value, from no tuple.
_NOBODY: list[tuple[Any, Any]] = [(None, None)]


class JoinBolt(WindowedBolt):
    """Joins what is routed here."""

    OUTER_LEFT = 1
    INNER = 2
    OUTER_RIGHT = 3
    OUTER = 4

    JOINFUNCTION = "__join_function__"
    FUNCTION = JOINFUNCTION
    JOINTYPE = "__join_type__"
    JOINEDCOMPONENT = "__joined_component__"

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Learn the kind of join, and which component is the right side."""
        super().initialize(config, context)
        kind = part_of(config, self.JOINTYPE, self)
        self._keeps_left = kind in (self.OUTER_LEFT, self.OUTER)
        self._keeps_right = kind in (self.OUTER_RIGHT, self.OUTER)
        self._right = str(part_of(config, self.JOINEDCOMPONENT, self))

    def processWindow(self, window_config: Any, tuples: list[Any]) -> None:
        """Emit (KeyedWindow, joined) for each pair."""
        for key, group in by_key(tuples, "a join").items():
            left = [pair for pair in group if pair[1].component != self._right]
            right = [pair for pair in group if pair[1].component == self._right]
            if not left and self._keeps_right:
                left = _NOBODY
            if not right and self._keeps_left:
                right = _NOBODY
            for left_value, left_tuple in left:
                for right_value, right_tuple in right:
                    made_from = [tup for tup in (left_tuple, right_tuple) if tup is not None]
                    self.emit_join(key, (left_value, right_value), window_config, made_from)

    def emit_join(self, key: Any, values: Sequence[Any], window_config: Any, made_from: Sequence[Any] = ()) -> None:
        """Emit (KeyedWindow, joined) for a left and a right value, anchored to what they came with."""
        self.emit_result(keyed(key, window_config), self.function(values[0], values[1]), made_from)

    def inner_join_and_emit(self, key: Any, values: Sequence[Iterable[Any]], window_config: Any) -> None:
        """Emit all pairs of the left and right values of a key."""
        for pair in itertools.product(*values):
            self.emit_join(key, pair, window_config)

    def outer_left_join_and_emit(self, key: Any, values: Sequence[Iterable[Any]], window_config: Any) -> None:
        """Emit the left values of a key, each with None."""
        self.inner_join_and_emit(key, (values[0], [None]), window_config)

    def outer_right_join_and_emit(self, key: Any, values: Sequence[Iterable[Any]], window_config: Any) -> None:
        """Emit None with each of the right values of a key."""
        self.inner_join_and_emit(key, ([None], values[1]), window_config)


class JoinGrouping(KeyGrouping):
    """Equal keys of both sides meet in one partition."""


class JoinStreamlet(Streamlet):
    """The streamlet that the joins of `Streamlet` return; it has the partitions of the left one."""

    def __init__(
        self,
        join_type: int,
        window_config: WindowConfig,
        join_function: Callable[[Any, Any], Any],
        left: Streamlet,
        right: Streamlet,
    ) -> None:
        super().__init__()
        kinds = (JoinBolt.INNER, JoinBolt.OUTER_LEFT, JoinBolt.OUTER_RIGHT, JoinBolt.OUTER)
        if join_type not in kinds:
            raise StreamletError(
                f"unknown join type {join_type!r}; use JoinBolt.INNER, OUTER_LEFT, OUTER_RIGHT "
                "or OUTER"
            )
        self._join_type = join_type
        self._window_config = checked_window(window_config, "a join")
        self._function = checked_callable(join_function, "a join")
        self._left = left
        self._right = right
        self.set_num_partitions(left.get_num_partitions())

    def _calculate_inputs(self) -> dict[GlobalStreamId, Any]:
        return {
            self._left._stream_id(): Grouping.custom(JoinGrouping()),
            self._right._stream_id(): Grouping.custom(JoinGrouping()),
        }

    def _build_this(self, builder: TopologyBuilder, stage_names: set[str]) -> bool:
        if not self._left._built or not self._right._built:
            return False
        builder.add_bolt(
            self._claim_name("join", stage_names),
            JoinBolt,
            par=self.get_num_partitions(),
            inputs=self._calculate_inputs(),
            config={
                JoinBolt.JOINFUNCTION: self._function,
                JoinBolt.JOINTYPE: self._join_type,
                JoinBolt.JOINEDCOMPONENT: self._right.get_name(),
                **window_settings(self._window_config),
            },
        )
        return True
