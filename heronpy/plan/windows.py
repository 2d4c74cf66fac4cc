"""Computes how long windows keep tuples pending, and whether the limits of the spouts allow this. Pure.

In mode ATLEAST_ONCE, a tuple tree ends when its tuples have left all their windows and the window results anchored to
them have left the windows downstream. Window times therefore add up along a path. A message timeout below the sum is
refused, because tuples would be replayed and counted again in each window. `topology.max.spout.pending` should allow
for all tuples that are pending in that time. Otherwise the spouts stall until a window ends. This leads only to a
warning, because such topologies run, but slowly.

Streamlets anchor the results of a window. Whether a user's own window bolt anchors its results is unknown here, so
windows downstream of it only lead to a warning, while windows of streamlets lead to a refusal.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from heronpy.common.topology_keys import (
    TOPOLOGY_ENABLE_MESSAGE_TIMEOUTS,
    TOPOLOGY_MAX_SPOUT_PENDING,
    TOPOLOGY_MESSAGE_TIMEOUT_SECS,
    TOPOLOGY_RELIABILITY_MODE,
    TOPOLOGY_TICK_TUPLE_FREQ_MS,
    TOPOLOGY_TICK_TUPLE_FREQ_SECS,
)

if TYPE_CHECKING:
    from heronpy.plan.logical import ComponentDef, LogicalPlan

SLIDING_KEY = "slidingwindowbolt_duration_secs"
SLIDE_KEY = "slidingwindowbolt_slideinterval_secs"
TUMBLING_KEY = "tumblingwindowbolt_duration_secs"
SECONDS_MIN = 0.001

DEFAULT_TIMEOUT_S = 30.0
DEFAULT_PENDING = 100
#: Time that a timeout needs beyond the windows, for ticks and queues: as a share, and the minimum in seconds.
SLACK_SHARE, SLACK_MIN_S = 0.1, 1.0
#: Tuples per second of a spout task below which it practically stalls during a window.
RATE_MIN = 10
#: The assumptions of the limit for streamlets: tuples per second of one spout task, and tuples in total.
DERIVED_RATE, DERIVED_PENDING_MAX = 10_000, 1_000_000

_STREAMLET_BOLTS = "heronpy.streamlet."


class Hold(Struct, frozen=True):
    """The longest time that windows keep the tuples of a spout pending."""

    seconds: float
    #: The windows on the slowest path, as component and added seconds.
    windows: tuple[tuple[str, float], ...]

    @property
    def needs_s(self) -> float:
        """The minimum message timeout in seconds for this hold."""
        return self.seconds + max(SLACK_MIN_S, SLACK_SHARE * self.seconds)

    @property
    def timeout_s(self) -> int:
        """`needs_s`, rounded up to whole seconds."""
        return math.ceil(self.needs_s)

    @property
    def pending(self) -> int:
        """The minimum number of pending tuples with which a spout task does not stall."""
        return min(math.ceil(self.seconds * RATE_MIN), DERIVED_PENDING_MAX)


def window_s(component: ComponentDef) -> float:
    """Return the longest time in seconds that a window bolt keeps a tuple; 0 for other components."""
    config = component.config
    tumbling = _seconds(config.get(TUMBLING_KEY))
    if tumbling:
        return tumbling
    duration, slide = _seconds(config.get(SLIDING_KEY)), _seconds(config.get(SLIDE_KEY))
    return sliding_hold_s(duration, slide) if duration else 0.0


def sliding_hold_s(duration_s: float, slide_s: float) -> float:
    """Return the longest time in seconds that a sliding window keeps a tuple.

    A tuple leaves at a slide: the first slide after its last window if windows overlap, otherwise the first slide after
    its arrival.
    """
    return duration_s + slide_s if slide_s < duration_s else slide_s


def seconds_problem(value: Any) -> str | None:
    """Return the problem with a window's duration, as a clause that follows its name; None if it is valid."""
    try:
        seconds = float(value)
    except (TypeError, ValueError, OverflowError):
        return f"must be a number of seconds, given: {value!r}"
    return None if SECONDS_MIN <= seconds < math.inf else f"must be at least {SECONDS_MIN:g} seconds, given: {value!r}"


def duration_problems(component: ComponentDef) -> Iterator[str]:
    """Yield a sentence for each window duration that the bolt would refuse."""
    for key in (SLIDING_KEY, SLIDE_KEY, TUMBLING_KEY):
        wrong = seconds_problem(component.config[key]) if key in component.config else None
        if wrong and not component.is_spout:
            yield f"bolt '{component.name}': {key} {wrong}"


def holds(plan: LogicalPlan, *, certain: bool) -> dict[str, Hold]:
    """Return how long the downstream windows of each spout hold its tuples, for spouts with such windows.

    `certain` excludes windows that count only if a user's own window bolt anchors its results.
    """
    following: dict[str, Hold] = {}
    for group in reversed(plan.groups()):
        behind = [following[name] for member in group for name in plan.downstream(member) if name in following]
        rest = max(behind, key=lambda hold: hold.seconds, default=Hold(0.0, ()))
        own = [(name, window_s(plan.components[name])) for name in group]
        own = [(name, seconds) for name, seconds in own if seconds]
        if certain and any(not _anchors(plan.components[name]) for name, _ in own):
            rest = Hold(0.0, ())
        # A tuple may pass a cycle several times, but certainly passes it once.
        hold = Hold(rest.seconds + sum(seconds for _, seconds in own), (*own, *rest.windows))
        following.update(dict.fromkeys(group, hold))
    return {name: following[name] for name in plan.spouts() if following[name].seconds}


def limits_for(plan: LogicalPlan) -> dict[str, int]:
    """Return the timeout and the pending limit that the windows of a topology need; empty if there are no windows."""
    found = holds(plan, certain=False).values()
    if not found:
        return {}
    longest = max(found, key=lambda hold: hold.seconds)
    pending = max(DEFAULT_PENDING, min(math.ceil(longest.seconds * DERIVED_RATE), DERIVED_PENDING_MAX))
    timeout_s = int(DEFAULT_TIMEOUT_S) + longest.timeout_s
    return {TOPOLOGY_MESSAGE_TIMEOUT_SECS: timeout_s, TOPOLOGY_MAX_SPOUT_PENDING: pending}


def problems(plan: LogicalPlan) -> Iterator[str]:
    """Yield a sentence for each spout limit that windows certainly exceed."""
    if not _acking(plan):
        return
    for name, hold in holds(plan, certain=True).items():
        config = {**plan.config, **plan.components[name].config}
        if _timeout_s(config) <= hold.seconds:
            yield f"{_timeout_text(name, config, hold)} so they would be replayed and counted again; {_fix(hold)}"


def warnings(plan: LogicalPlan) -> Iterator[str]:
    """Yield a sentence for each path that may exceed the message timeout, and each spout that windows slow down."""
    if not _acking(plan):
        return
    certain = holds(plan, certain=True)
    for name, hold in holds(plan, certain=False).items():
        config = {**plan.config, **plan.components[name].config}
        sure = certain.get(name)
        if sure is not None:
            yield from _slow(name, config, sure)
        if sure is not None and _too_late(config, sure):
            if _timeout_s(config) > sure.seconds:
                yield (
                    f"{_timeout_text(name, config, sure)} which leaves little time for ticks and queues: some tuples"
                    f" may be replayed and counted again; {_fix(sure)}"
                )
        elif _too_late(config, hold):
            yield (
                f"{_timeout_text(name, config, hold)} if their windows anchor the emitted tuples: they would be"
                f" replayed and counted again; {_fix(hold)}"
            )
    timeout_s = _timeout_s(plan.config)
    for component in plan.definitions:
        every_s = _tick_s({**plan.config, **component.config})
        if not component.is_spout and every_s >= timeout_s:
            yield (
                f"bolt '{component.name}' gets a tick every {every_s:g} s, and tuples time out after {timeout_s:g} s:"
                f" tuples that it acks at a tick are replayed; raise {TOPOLOGY_MESSAGE_TIMEOUT_SECS} or tick more often"
            )


def _slow(name: str, config: Mapping[str, Any], hold: Hold) -> Iterator[str]:
    """Yield a warning if the pending limit of a spout is too low for a useful rate."""
    pending = _number(config.get(TOPOLOGY_MAX_SPOUT_PENDING), DEFAULT_PENDING)
    if pending < hold.pending:
        yield (
            f"tuples of spout '{name}' stay pending until they have left {_listed(hold)}, and "
            f"{TOPOLOGY_MAX_SPOUT_PENDING} is {pending:g}, so each of its tasks emits about {pending:g} in "
            f"{hold.seconds:g} s and then waits; for a higher rate raise the limit to the number of tuples that a task"
            f" should emit in that time, such as {hold.pending}, which is {_rate(hold)}"
        )


def _acking(plan: LogicalPlan) -> bool:
    return plan.config.get(TOPOLOGY_RELIABILITY_MODE) == "ATLEAST_ONCE"


def _anchors(component: ComponentDef) -> bool:
    return component.class_name.startswith(_STREAMLET_BOLTS)


def _rate(hold: Hold) -> str:
    """Explain how the minimum number of pending tuples was computed."""
    if hold.pending == DERIVED_PENDING_MAX:
        return "the maximum for streamlets"
    return f"{RATE_MIN:g} tuples a second for {hold.seconds:g} s"


def _too_late(config: Mapping[str, Any], hold: Hold) -> bool:
    return _timeout_s(config) < hold.needs_s


def _timeout_text(name: str, config: Mapping[str, Any], hold: Hold) -> str:
    return (
        f"tuples of spout '{name}' stay pending for up to {hold.seconds:g} s, until they have left {_listed(hold)}, "
        f"but {TOPOLOGY_MESSAGE_TIMEOUT_SECS} is {_timeout_s(config):g},"
    )


def _fix(hold: Hold) -> str:
    shorter = "the window" if len(hold.windows) == 1 else "the windows"
    return f"set it to {hold.timeout_s} or more, or shorten {shorter}"


def _listed(hold: Hold) -> str:
    shown = [f"'{name}' ({seconds:g} s)" for name, seconds in hold.windows]
    return f"the window of {shown[0]}" if len(shown) == 1 else f"the windows of {', '.join(shown)}"


def _timeout_s(config: Mapping[str, Any]) -> float:
    if config.get(TOPOLOGY_ENABLE_MESSAGE_TIMEOUTS) is False:
        return math.inf
    return _number(config.get(TOPOLOGY_MESSAGE_TIMEOUT_SECS), DEFAULT_TIMEOUT_S)


def _tick_s(config: Mapping[str, Any]) -> float:
    millis = _number(config.get(TOPOLOGY_TICK_TUPLE_FREQ_MS), 0.0)
    return millis / 1000 or _number(config.get(TOPOLOGY_TICK_TUPLE_FREQ_SECS), 0.0)


def _seconds(value: Any) -> float:
    """Return the duration of a window in seconds; 0 for a duration that the bolt will refuse."""
    return 0.0 if seconds_problem(value) else float(value)


def _number(value: Any, default: float) -> float:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else default
