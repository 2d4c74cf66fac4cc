"""Bolts that process tuples in windows of processing time.

A tuple's time is its time of arrival. A window covers (start, end]. If windows touch or overlap, every tuple is in
at least one window, even if ticks are late. If they do not overlap, a tuple is in at most one window. A tuple is acked
when no later window can contain it. So under ATLEAST_ONCE, the message timeout must exceed the window length (plus the
slide, if windows overlap), and `topology.max.spout.pending` must exceed the number of tuples in a window.

Durations are in seconds and may be fractions. The bolt sets its own tick interval in `config`, so the runtime
must read `config` after `initialize`.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from heronpy.api import api_constants
from heronpy.api.bolt.bolt import Bolt
from heronpy.api.state.state import HashMapState
from heronpy.api.state.stateful_component import StatefulComponent
from heronpy.api.tuple import Tuple, TupleHelper
from heronpy.plan.windows import seconds_problem, sliding_hold_s

if TYPE_CHECKING:
    from heronpy.api.topology_context import TopologyContext

_WALL_AT_START = time.time() - time.monotonic()


def steady_time() -> float:
    """Return a monotonic time in seconds since 1970: the time of day at import plus the monotonic time since then."""
    return _WALL_AT_START + time.monotonic()


class WindowContext(NamedTuple):
    """The bounds of a window in seconds since 1970."""

    start: float
    end: float


class RestoredTuple(Tuple):
    """A tuple restored from a checkpoint: it was acked before, so it is not acked again."""

    __slots__ = ()


class _WindowBolt(Bolt, StatefulComponent):
    """Base of both window bolts: it keeps arrival times and state, and handles ticks."""

    clock: Callable[[], float] = staticmethod(steady_time)

    def init_state(self, stateful_state: HashMapState) -> None:
        """Keep the state until `initialize` restores the window from it."""
        self.saved_state = stateful_state

    def pre_save(self, checkpoint_id: str) -> None:
        """Copy the current window's tuples to the state, in a form that can be pickled."""
        if not hasattr(self, "saved_state"):
            return
        self.saved_state["tuples"] = [
            (RestoredTuple(tup.id, tup.component, tup.stream, tup.task, tup.values), arrived)
            for tup, arrived in self.current_tuples
        ]
        self.saved_state["last_end"] = self.last_end

    def processWindow(self, window_info: WindowContext, tuples: list[Tuple]) -> None:
        """Process one window. Define it in your bolt; do not ack the tuples."""
        raise NotImplementedError(f"{type(self).__name__} must define processWindow(window_info, tuples)")

    def process(self, tup: Tuple) -> None:
        """Add a tuple to the current window."""
        self._add(tup)

    def _add(self, tup: Tuple) -> float:
        now = self.clock()
        if now <= self.last_end:
            # The window that ended at this moment is already processed, so the tuple belongs to the next window.
            now = math.nextafter(self.last_end, math.inf)
        if self.current_tuples:
            now = max(now, self.current_tuples[-1][1])
        self.current_tuples.append((tup, now))
        return now

    def _end_now(self) -> float:
        """Return the time at which a window that closes now ends: never before its last tuple arrived."""
        now = self.clock()
        return max(now, self.current_tuples[-1][1]) if self.current_tuples else now

    def _setup(self, config: dict[str, Any], period: float, held_s: float) -> None:
        """Restore or begin the window, with a tick every `period` seconds. Tuples are acked within `held_s` seconds."""
        self.current_tuples: deque[tuple[Tuple, float]] = deque()
        self.last_end = self.clock()
        saved = getattr(self, "saved_state", None)
        if saved is not None and "tuples" in saved:
            self.current_tuples.extend(saved["tuples"])
            if "last_end" in saved:
                self.last_end = saved["last_end"]
        _set_tick_period(config, period)
        mode = config.get(api_constants.TOPOLOGY_RELIABILITY_MODE)
        timeout = config.get(api_constants.TOPOLOGY_MESSAGE_TIMEOUT_SECS)
        enabled = config.get(api_constants.TOPOLOGY_ENABLE_MESSAGE_TIMEOUTS, True)
        if (
            mode == api_constants.TopologyReliabilityMode.ATLEAST_ONCE
            and timeout is not None
            and str(enabled).lower() == "true"
            and float(timeout) <= held_s
        ):
            self.logger.warning(
                "%s is %s s, but tuples are acked only when they have left their windows, after up to %g s, so they "
                "will be replayed repeatedly; set a longer timeout.",
                api_constants.TOPOLOGY_MESSAGE_TIMEOUT_SECS,
                timeout,
                held_s,
            )

    window_duration: float
    saved_state: HashMapState

    def _ack_live(self, tup: Tuple) -> None:
        if not isinstance(tup, RestoredTuple):
            self.ack(tup)


class SlidingWindowBolt(_WindowBolt):
    """Calls `processWindow` once per slide interval, with the tuples that arrived in the last window duration."""

    WINDOW_DURATION_SECS = "slidingwindowbolt_duration_secs"
    WINDOW_SLIDEINTERVAL_SECS = "slidingwindowbolt_slideinterval_secs"

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        """Read both durations and start the window. An override must call `super().initialize(config, context)`."""
        self.window_duration = _seconds(config, SlidingWindowBolt.WINDOW_DURATION_SECS, self)
        self.slide_interval = _seconds(config, SlidingWindowBolt.WINDOW_SLIDEINTERVAL_SECS, self)
        self._setup(config, self.slide_interval, sliding_hold_s(self.window_duration, self.slide_interval))

    def process(self, tup: Tuple) -> None:
        """Add a tuple, and ack the tuples that no later window can contain."""
        self._expire(self._add(tup))

    def process_tick(self, tup: Tuple) -> None:
        """Process the windows that a late tick missed, then the window that ends now."""
        now = self._end_now()
        start = now - self.window_duration
        if self.slide_interval <= self.window_duration:
            for arrived in self._unseen_before(start):
                if arrived <= self.last_end:
                    continue
                slides = -(-(arrived - self.last_end) // self.slide_interval)
                end = min(self.last_end + slides * self.slide_interval, now)
                self._fire(max(end, arrived))
        self._fire(now)

    def finish(self) -> None:
        """Process the last window if it contains tuples that no earlier window contained, and ack all tuples."""
        if any(arrived > self.last_end for _, arrived in self.current_tuples):
            self.process_tick(TupleHelper.make_tick_tuple())
        while self.current_tuples:
            self._ack_live(self.current_tuples.popleft()[0])

    def _unseen_before(self, start: float) -> list[float]:
        return [arrived for _, arrived in self.current_tuples if self.last_end < arrived <= start]

    def _fire(self, end: float) -> None:
        start = end - self.window_duration
        window = [tup for tup, arrived in self.current_tuples if start < arrived <= end]
        self.last_end = end
        self.processWindow(WindowContext(start, end), window)
        self._expire(end)

    def _expire(self, now: float) -> None:
        # Tuples that were in no window yet wait for the next tick, unless there are gaps between windows. Tuples
        # that were in a window are dropped with it, unless windows overlap.
        horizon = now - self.window_duration
        if self.slide_interval <= self.window_duration:
            horizon = min(horizon, self.last_end)
        if self.slide_interval >= self.window_duration:
            horizon = max(horizon, self.last_end)
        while self.current_tuples and self.current_tuples[0][1] <= horizon:
            self._ack_live(self.current_tuples.popleft()[0])


class TumblingWindowBolt(_WindowBolt):
    """Calls `processWindow` once per window duration, with the tuples that arrived since the last call."""

    WINDOW_DURATION_SECS = "tumblingwindowbolt_duration_secs"

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        """Read the duration and start the window. An override must call `super().initialize(config, context)`."""
        self.window_duration = _seconds(config, TumblingWindowBolt.WINDOW_DURATION_SECS, self)
        self._setup(config, self.window_duration, self.window_duration)

    def process_tick(self, tup: Tuple) -> None:
        """Process the window that ends now, and ack its tuples."""
        window = list(self.current_tuples)
        window_info = WindowContext(self.last_end, self._end_now())
        self.last_end = window_info.end
        self.processWindow(window_info, [tup for tup, _ in window])
        self.current_tuples.clear()
        for member, _ in window:
            self._ack_live(member)

    def finish(self) -> None:
        """Process the last window if it contains tuples."""
        if self.current_tuples:
            self.process_tick(TupleHelper.make_tick_tuple())


def _seconds(config: dict[str, Any], key: str, bolt: Bolt) -> float:
    if key not in config:
        raise ValueError(f"{type(bolt).__name__} needs {key} in its configuration; give it in the config of its spec()")
    wrong = seconds_problem(config[key])
    if wrong:
        raise ValueError(f"{key} {wrong}")
    return float(config[key])


def _set_tick_period(config: dict[str, Any], seconds: float) -> None:
    config.pop(api_constants.TOPOLOGY_TICK_TUPLE_FREQ_SECS, None)
    config.pop(api_constants.TOPOLOGY_TICK_TUPLE_FREQ_MS, None)
    if seconds == int(seconds):
        config[api_constants.TOPOLOGY_TICK_TUPLE_FREQ_SECS] = int(seconds)
    else:
        config[api_constants.TOPOLOGY_TICK_TUPLE_FREQ_MS] = max(1, round(seconds * 1000))
