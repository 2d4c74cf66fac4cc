"""The bolts of the windowed operators.

If the slide equals the length, windows tumble: each begins exactly where the previous one ended, even if a
tick comes early or late, so no element is in two windows. Results are anchored to their elements, so under
ATLEAST_ONCE an element is fully processed only when all results of its windows are fully processed. The message timeout
must be longer than a window.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from heronpy.api.bolt.window_bolt import SlidingWindowBolt, WindowContext
from heronpy.api.topology_context import TopologyContext
from heronpy.api.tuple import Tuple
from heronpy.streamlet.context import OUTPUT_STREAM
from heronpy.streamlet.errors import StreamletError
from heronpy.streamlet.keyedwindow import KeyedWindow
from heronpy.streamlet.operators import StreamletBoltBase, key_and_value, part_of
from heronpy.streamlet.window import Window

#: A value of one side of a join with its tuple; both are None for a missing side.
Member = tuple[Any, Tuple | None]
_MISSING: list[Member] = [(None, None)]


class WindowedBolt(StreamletBoltBase, SlidingWindowBolt):
    """A window bolt that applies a user function. Subclasses define `processWindow`."""

    #: The key of the function in the component's configuration.
    FUNCTION = "function"
    WINDOWDURATION = SlidingWindowBolt.WINDOW_DURATION_SECS
    SLIDEINTERVAL = SlidingWindowBolt.WINDOW_SLIDEINTERVAL_SECS

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        """Start the window, and load the function from the configuration."""
        super().initialize(config, context)
        self.function: Callable[[Any, Any], Any] = part_of(config, self.FUNCTION, self)

    def process_tick(self, tup: Tuple) -> None:
        """Process the windows that have ended."""
        if self.slide_interval < self.window_duration:
            super().process_tick(tup)
            return
        window = list(self.current_tuples)
        bounds = WindowContext(self.last_end, self.clock())
        self.last_end = bounds.end
        self.processWindow(bounds, [member for member, _ in window])
        self.current_tuples.clear()
        for member, _ in window:
            self._ack_live(member)

    def emit_result(self, window: Window | KeyedWindow[Any], result: Any, tuples: Sequence[Tuple]) -> None:
        """Emit a pair (window, result), anchored to the tuples that it was computed from."""
        self.emit([(window, result)], stream=OUTPUT_STREAM, anchors=list(tuples))


class ReduceByWindowBolt(WindowedBolt):
    """Folds the elements that this partition received in a window."""

    def processWindow(self, window_info: WindowContext, tuples: list[Tuple]) -> None:
        """Emit (Window, result); None is the result of a window without elements."""
        elements = [tup.values[0] for tup in tuples]
        result = functools.reduce(self.function, elements) if elements else None
        self.emit_result(Window(window_info.start, window_info.end), result, tuples)


class ReduceByKeyAndWindowBolt(WindowedBolt):
    """Folds the values of each key in a window."""

    def processWindow(self, window_info: WindowContext, tuples: list[Tuple]) -> None:
        """Emit (KeyedWindow, result) for each key of the window."""
        for key, group in by_key(tuples, "reduce_by_key_and_window").items():
            result = functools.reduce(self.function, [value for value, _ in group])
            self.emit_result(keyed(key, window_info), result, [tup for _, tup in group])


class JoinBolt(WindowedBolt):
    """Joins two streamlets of (key, value) elements: each left value of a key with each right value.

    The outer joins also emit the values of keys that only one side has, with None for the other side. Elements that
    are in several overlapping windows are joined in each of them.
    """

    OUTER_LEFT = 1
    INNER = 2
    OUTER_RIGHT = 3
    OUTER = 4

    JOINFUNCTION = "__join_function__"
    FUNCTION = JOINFUNCTION
    JOINTYPE = "__join_type__"
    JOINEDCOMPONENT = "__joined_component__"

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        """Read the kind of join and the name of the right component from the configuration."""
        super().initialize(config, context)
        kind = part_of(config, self.JOINTYPE, self)
        self._keeps_left = kind in (self.OUTER_LEFT, self.OUTER)
        self._keeps_right = kind in (self.OUTER_RIGHT, self.OUTER)
        self._right = str(part_of(config, self.JOINEDCOMPONENT, self))

    def processWindow(self, window_info: WindowContext, tuples: list[Tuple]) -> None:
        """Emit (KeyedWindow, joined) for each pair."""
        for key, group in by_key(tuples, "a join").items():
            left: list[Member] = [pair for pair in group if pair[1].component != self._right]
            right: list[Member] = [pair for pair in group if pair[1].component == self._right]
            if not left and self._keeps_right:
                left = _MISSING
            if not right and self._keeps_left:
                right = _MISSING
            for (left_value, left_tuple), (right_value, right_tuple) in itertools.product(left, right):
                made_from = [tup for tup in (left_tuple, right_tuple) if tup is not None]
                self.emit_join(key, (left_value, right_value), window_info, made_from)

    def emit_join(
        self, key: Any, values: Sequence[Any], window_config: WindowContext, made_from: Sequence[Tuple] = ()
    ) -> None:
        """Emit (KeyedWindow, joined) for a left and a right value, anchored to their tuples."""
        self.emit_result(keyed(key, window_config), self.function(values[0], values[1]), made_from)

    def inner_join_and_emit(self, key: Any, values: Sequence[Iterable[Any]], window_config: WindowContext) -> None:
        """Emit all pairs of the left and right values of a key."""
        for pair in itertools.product(*values):
            self.emit_join(key, pair, window_config)

    def outer_left_join_and_emit(self, key: Any, values: Sequence[Iterable[Any]], window_config: WindowContext) -> None:
        """Emit the left values of a key, each with None."""
        self.inner_join_and_emit(key, (values[0], [None]), window_config)

    def outer_right_join_and_emit(
        self, key: Any, values: Sequence[Iterable[Any]], window_config: WindowContext
    ) -> None:
        """Emit None with each of the right values of a key."""
        self.inner_join_and_emit(key, ([None], values[1]), window_config)


def keyed(key: Any, window_info: WindowContext) -> KeyedWindow[Any]:
    """Return a KeyedWindow of this key and window."""
    return KeyedWindow(key, Window(window_info.start, window_info.end))


def by_key(tuples: Iterable[Tuple], operator: str) -> dict[Any, list[tuple[Any, Tuple]]]:
    """Return (value, tuple) pairs by key, with keys and values in the order of arrival."""
    groups: dict[Any, list[tuple[Any, Tuple]]] = {}
    for tup in tuples:
        key, value = key_and_value(tup.values[0], f"an element of {operator}")
        try:
            group = groups.setdefault(key, [])
        except TypeError:
            raise StreamletError(
                f"the key {key!r} is a {type(key).__name__}, which cannot be a key; use a str, a number or a tuple"
            ) from None
        group.append((value, tup))
    return groups
