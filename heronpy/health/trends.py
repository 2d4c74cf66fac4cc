"""Evaluates the minutes of the last hour, beyond the window of a diagnosis. Pure.

Unknown minutes are ignored; if too few minutes are known, there is no result.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import ceil, inf
from statistics import median

from msgspec import Struct

from heronpy.health.signals import Signals
from heronpy.health.times import TIMES

#: Minimum and maximum number of minutes on each side of an update.
SIDE_MIN, SIDE_MAX = 3, 30
#: Below this busy share a rate per busy second is unreliable.
BUSY_MIN = 0.1
#: The share of the examined minutes that must be known.
KNOWN = 0.91
#: Minutes for the recent latency, and the minimum number of earlier minutes for the usual latency.
LATE_MIN, USUAL_MIN = 3, 10
#: Minimum share of its time in which a spout counts as free to emit.
FREE_LEAST = 0.1
#: Minutes of memory use, and of a queue or backlog that grows or falls.
MEMORY_MIN, TREND_MIN = 5, 5

#: The required similarity of the thirds of a memory trail that grows steadily.
STEADY, NO_SLOWER = 0.5, 0.75

Minutes = Sequence[float | None]


class Shift(Struct, frozen=True):
    """Tuples per busy second of one task before and after an update."""

    before: float
    after: float


def shift(signals: Signals, component: str) -> Shift | None:
    """Return how an update has changed the work per busy second of a component's tasks (medians over minutes)."""
    rates = _per_busy_s(signals, component)
    if signals.updated_s is None or not rates:
        return None
    # That minute and the next one mix both configurations.
    changed = _updated_in(signals, len(rates))
    before = [rate for rate in rates[max(0, changed - SIDE_MAX) : max(0, changed)] if rate is not None]
    after = [rate for rate in rates[changed + 2 :][:SIDE_MAX] if rate is not None]
    if changed < 0 or len(before) < SIDE_MIN or len(after) < SIDE_MIN:
        return None
    newest = [rate for rate in rates[-SIDE_MIN:] if rate is not None]
    # A slowdown that is over has another cause, such as a dependency that was slow for some minutes.
    return Shift(median(before), max([median(after), *newest[-1:], _per_busy_s_now(signals, component)]))


def _per_busy_s_now(signals: Signals, component: str) -> float:
    """Return the rate per busy second in the window; 0 if unknown, infinite if the tasks are hardly busy."""
    tasks = [task for task in signals.of(component) if task.busy is not None and task.executed]
    busy = sum(task.busy or 0.0 for task in tasks)
    if not tasks:
        return 0.0
    return sum(task.executed for task in tasks) / busy if busy >= BUSY_MIN * len(tasks) else inf


def _updated_in(signals: Signals, minutes: int) -> int:
    """Return the index of the minute of the last update; negative if the update was before the first minute."""
    passed_s = (signals.updated_s or 0.0) - signals.history_age_s
    return minutes - 1 - int(max(0.0, passed_s) // 60)


class Before(Struct, frozen=True):
    """The state before an update: the plan versions, and the old task counts of components whose counts changed."""

    plan: int
    plan_now: int
    tasks: dict[str, int]


def before_update(signals: Signals) -> Before | None:
    """Return the state before the last update; None if the plan at that time is unknown or still current."""
    plans = signals.minutes("", "plan_version")
    changed = _updated_in(signals, len(plans))
    known = [int(version) for version in plans[: max(0, changed)] if version]
    now = [int(version) for version in plans[max(0, changed) :] if version]
    if signals.updated_s is None or not known or not now or known[-1] == now[-1]:
        return None
    tasks = {}
    for component in signals.components:
        numbers = signals.minutes(component, "tasks")
        had = [int(number) for number in numbers[: max(0, _updated_in(signals, len(numbers)))] if number]
        if had and had[-1] != len(signals.of(component)):
            tasks[component] = had[-1]
    return Before(known[-1], now[-1], tasks)


class Latency(Struct, frozen=True):
    """Recent and usual 99th percentile of the time from emit to the sink `component`, in seconds.

    If `acked`, the time runs to the full ack at the spout `component` instead.
    """

    component: str
    now_s: float
    usual_s: float
    acked: bool = False


def latency(signals: Signals) -> Latency | None:
    """Return the latency of the slowest sink, or of full acks if slower; None while the usual latency is unknown."""
    found = []
    for series in ("end_to_end_p99_s", "complete_p99_s"):
        for component in signals.components:
            minutes = signals.minutes(component, series)
            late = [value for value in minutes[-LATE_MIN:] if value is not None]
            before = [value for value in minutes[:-LATE_MIN] if value is not None]
            if len(late) == LATE_MIN and len(before) >= USUAL_MIN:
                now_s = min(median(late), late[-1])  # a latency that has fallen again needs no cause
                found.append(Latency(component, now_s, median(before), series == "complete_p99_s"))
    return max(found, key=lambda one: one.now_s, default=None)


def usual_demand(signals: Signals) -> float | None:
    """Return the median emit rate of the last minutes as a share of the rate in the window, at most 1.

    Both rates assume that spouts are never held back. None while too little is known.
    """
    spouts = {task.component for task in signals.tasks if task.is_spout}
    emitted = [signals.minutes(spout, "emitted")[-TREND_MIN:] for spout in spouts]
    held = signals.minutes("", "held")[-TREND_MIN:]
    known = [
        sum(rates) / max(1 - share, FREE_LEAST)
        for *rates, share in zip(*emitted, held, strict=False)
        if share is not None and None not in rates
    ]
    over_window = signals.arrival / max(1 - signals.held, FREE_LEAST)
    if len(known) < SIDE_MIN or not over_window:
        return None
    share: float = median(known) / over_window
    return min(1.0, share)


def _per_busy_s(signals: Signals, component: str) -> list[float | None]:
    series = [signals.minutes(component, name) for name in ("executed", "busy", "tasks")]
    return [
        executed / (busy * tasks) if executed and busy is not None and busy >= BUSY_MIN and tasks else None
        for executed, busy, tasks in zip(*series, strict=False)
    ]


def memory_p95(signals: Signals, component: str) -> float | None:
    """Return the 95th percentile, over the last minutes, of the resident bytes of a component's largest task."""
    known = sorted(value for value in signals.minutes(component, "largest_bytes")[-MEMORY_MIN:] if value is not None)
    return known[ceil(0.95 * len(known)) - 1] if len(known) >= SIDE_MIN else None


class Growth(Struct, frozen=True):
    """Memory growth: bytes per second, and the seconds for which it was observed.

    `most` is the remaining growth in bytes if the growth keeps slowing down; inf if it does not slow down.
    """

    per_s: float
    seen_s: float
    most: float = inf


def memory_growth(signals: Signals, component: str) -> Growth | None:
    """Return the growth of the memory of the largest task; None unless this memory grew in each of the last minutes.

    The slower half of these minutes counts, because the growth of a cache or of state slows down and ends, but the
    growth of a leak does not.
    """
    known = _known(signals.minutes(component, "largest_bytes"))
    grown = [later - earlier for earlier, later in pairwise(known)]
    if len(grown) < SIDE_MIN or min(grown) <= 0:
        return None
    half = len(grown) // 2
    first, last = sum(grown[:half]) / half, sum(grown[-half:]) / half
    between = len(grown) - half
    # The factor by which growth falls each minute.
    slower = (last / first) ** (1 / between)
    most = last * slower / (1 - slower) if slower < 1 else inf
    return Growth(min(first, last) / 60, 60.0 * len(grown), most)


def steady_growth(trail: Sequence[tuple[float, float]]) -> Growth | None:
    """Return the memory growth of one process; None unless it has been steady for half a minute, up to the last point.

    Growth is steady if all thirds of the time have similar growth, the last not much less than the first, and hardly
    any memory is freed. The growth of a cache or a warm-up slows down, and a garbage collector frees memory.
    """
    known = [(-age_s, size) for age_s, size in trail]
    known = [point for point in known if point[0] >= known[0][0] + TIMES.warm_s]
    for place, (began, size) in enumerate(known):
        seen_s, grown = known[-1][0] - began, known[-1][1] - size
        if seen_s < TIMES.seen_s:
            return None
        if grown > 0 and _is_steady(known[place:], grown / seen_s):
            return Growth(grown / seen_s, seen_s)
    return None


def _is_steady(points: Sequence[tuple[float, float]], per_s: float) -> bool:
    began, ended = points[0][0], points[-1][0]
    edges = [min(points, key=lambda point: abs(point[0] - began - (ended - began) * third / 3)) for third in range(4)]
    rates = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in pairwise(edges) if b[0] > a[0]]
    given_back = sum(max(0.0, a[1] - b[1]) for a, b in pairwise(points))
    return (
        len(rates) == 3
        and min(rates) >= STEADY * per_s
        and rates[-1] >= NO_SLOWER * rates[0]
        and given_back <= 0.1 * per_s * (ended - began)
    )


def lasts_s(signals: Signals, component: str, busy: float, held: float) -> float:
    """Return how many seconds, up to the last full minute, the busy or held share has been at least its threshold."""
    shares, holds = signals.minutes(component, "busy")[::-1], signals.minutes("", "held")[::-1]
    found = 0
    for number in range(max(len(shares), len(holds))):
        full = number < len(shares) and (shares[number] or 0.0) >= busy
        if not full and not (number < len(holds) and (holds[number] or 0.0) >= held):
            break
        found += 1
    # The first of these minutes may be partial.
    return 60.0 * max(0, found - 1)


def empties_s(signals: Signals, component: str) -> float | None:
    """Return the seconds until a component's queues are empty at their current rate; None if they do not shrink."""
    known = _known(signals.minutes(component, "queue_bytes"))
    # Begin at the last rise, because a burst some minutes ago made the queues longer.
    rose = max((at for at, (earlier, later) in enumerate(pairwise(known), 1) if later > earlier), default=0)
    known = known[rose:]
    if len(known) < SIDE_MIN:
        return None
    fallen_per_s = (known[0] - known[-1]) / (60.0 * (len(known) - 1))
    return known[-1] / fallen_per_s if fallen_per_s > 0 else None


def spark_comes_s(signals: Signals) -> float | None:
    """Return the seconds between two new Spark batches; None unless more batches are waiting than some minutes ago."""
    waiting = _known(signals.minutes("", "spark_waiting"))
    done = _known(signals.minutes("", "spark_done"))
    if len(waiting) < SIDE_MIN or len(done) < SIDE_MIN:
        return None
    grown = (waiting[-1] - waiting[0]) / (60.0 * (len(waiting) - 1))
    return 1 / (sum(done) / len(done) + grown) if grown > 0 else None


def _known(minutes: Minutes) -> list[float]:
    """Return the known minutes after the last gap."""
    found: list[float] = []
    for value in reversed(minutes[-TREND_MIN:]):
        if value is None:
            break
        found.append(value)
    return found[::-1]
