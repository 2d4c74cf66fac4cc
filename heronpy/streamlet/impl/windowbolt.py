"""What the windowed operators share: a sliding window over elements, its bounds and its anchoring.

Where the slide equals the length, windows tumble: each begins exactly where the one before ended, even
if a tick comes early or late, so no element is ever in two of them. Results are anchored to the
elements that they were made from, so under ATLEAST_ONCE an element is done only when all results of
its windows are; the message time-out must be longer than a window.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from heronpy.api.bolt.window_bolt import SlidingWindowBolt, WindowContext
from heronpy.streamlet.errors import StreamletError
from heronpy.streamlet.impl.keygrouping import key_and_value
from heronpy.streamlet.impl.streamletboltbase import StreamletBoltBase, part_of
from heronpy.streamlet.keyedwindow import KeyedWindow
from heronpy.streamlet.streamlet import OUTPUT_STREAM
from heronpy.streamlet.window import Window
from heronpy.streamlet.windowconfig import WindowConfig


class WindowedBolt(StreamletBoltBase, SlidingWindowBolt):
    """A window bolt that applies the user's function. Subclasses define `processWindow`."""

    #: The key of the user's function in the component's configuration.
    FUNCTION = "function"
    WINDOWDURATION = SlidingWindowBolt.WINDOW_DURATION_SECS
    SLIDEINTERVAL = SlidingWindowBolt.WINDOW_SLIDEINTERVAL_SECS

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Start the window and pick up the user's function."""
        super().initialize(config, context)
        self.function = part_of(config, self.FUNCTION, self)

    def process_tick(self, tup: Any) -> None:
        """Process the windows that end now."""
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

    def emit_result(self, window: Any, result: Any, tuples: Sequence[Any]) -> None:
        """Emit a pair (window, result), anchored to the tuples that it was made from."""
        self.emit([(window, result)], stream=OUTPUT_STREAM, anchors=list(tuples))


def window_of(window_info: Any) -> Window:
    """The window that users see, from that of the window bolt."""
    return Window(window_info.start, window_info.end)


def keyed(key: Any, window_info: Any) -> KeyedWindow:
    """The key's window."""
    return KeyedWindow(key, window_of(window_info))


def by_key(tuples: Iterable[Any], operator: str) -> dict[Any, list[tuple[Any, Any]]]:
    """(value, tuple) pairs by key, in the order in which keys and values came."""
    groups: dict[Any, list[tuple[Any, Any]]] = {}
    for tup in tuples:
        key, value = key_and_value(tup.values[0], f"an element of {operator}")
        groups.setdefault(hashable(key), []).append((value, tup))
    return groups


def hashable(key: Any) -> Any:
    """The key if it can be a key of a dict, else a sentence that says so."""
    try:
        hash(key)
    except TypeError:
        raise StreamletError(
            f"the key {key!r} is a {type(key).__name__}, which cannot be a key; "
            "use a str, a number or a tuple"
        ) from None
    return key


def window_settings(window_config: WindowConfig) -> dict[str, Any]:
    """The window in the configuration of its bolt."""
    return {
        WindowedBolt.WINDOWDURATION: window_config.duration_s,
        WindowedBolt.SLIDEINTERVAL: window_config.slide_s,
    }


def checked_window(window_config: Any, operator: str) -> WindowConfig:
    """The window of an operator, if it is one."""
    if not isinstance(window_config, WindowConfig):
        raise StreamletError(f"{operator} takes a WindowConfig, not {type(window_config).__name__}")
    return window_config
