"""The capacity of one thread, the demand on each component, and the number of tasks that it requires. Pure.

The formulas are those of Turbine (Mei et al., ICDE 2020). A thread's rate P is its work per busy second. If busy time
is measured wrongly, the ratio between the rate of a saturated thread and the measured rate corrects P. One plan sizes
the whole graph: the rates of the sources are propagated to each bolt by the measured selectivities.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from heronpy.health.pace import HELD
from heronpy.health.sizing import AIM, BUSY
from heronpy.health.trends import BUSY_MIN, FREE_LEAST
from heronpy.plan.component_config import CONCURRENCY_MAX
from heronpy.scaling.figures import Figures, Observation

#: Maximum deviation from the mean, as a share, at which the rates of tasks count as even.
EVEN = 0.25
#: Bounds of a plausible ratio; a measured ratio outside of them is ignored.
RATIO_MIN, RATIO_MAX = 0.05, 20.0
#: Minimum tuples per second of a thread; below it, the thread is stuck and its rate is not used.
RATE_MIN = 1e-3
#: Lag in seconds that is assumed if no tuples are processed.
ENDLESS_S = 1e9
#: Maximum lag in seconds of a topology that keeps up, unless half of the promise is larger.
LAG_S = 5.0
#: Minimum seconds that a queue must take to process to count as a lag.
QUEUE_S: Final = 2.0
#: Number of looks whose mean is the measured rate.
_LOOKS = 10
#: Minimum and maximum number of looks whose mean is the usual time of a tuple.
_USUAL_LOOKS_MIN, _USUAL_LOOKS = 3, 100
#: Factor by which the weight of older points of the memory line shrinks with each look.
_FADES = 0.99


class Line(Struct, frozen=True):
    """The memory of a task as a linear function of its number of keys, kept as weighted sums."""

    weight: float = 0.0
    keys: float = 0.0
    bytes: float = 0.0
    keys_keys: float = 0.0
    keys_bytes: float = 0.0

    def with_point(self, keys: float, size: float) -> Line:
        """Return the line with one more point."""
        new = (1.0, keys, size, keys * keys, keys * size)
        old = (self.weight, self.keys, self.bytes, self.keys_keys, self.keys_bytes)
        return Line(*(_FADES * was + now for was, now in zip(old, new, strict=True)))

    def bytes_at(self, keys: float) -> float:
        """Return the bytes of a task with this number of keys.

        If the number of keys was about the same at all looks, all memory is attributed to the keys.
        """
        if not self.weight or not self.keys:
            return 0.0
        x, y = self.keys / self.weight, self.bytes / self.weight
        variance = self.keys_keys / self.weight - x * x
        slope = (self.keys_bytes / self.weight - x * y) / variance if variance > (0.05 * x) ** 2 else y / x
        return max(0.0, y + max(0.0, slope) * (keys - x))


class Known(Struct, frozen=True):
    """The figures of a component from earlier looks."""

    #: Measured tuples per second of one busy thread; 0: unknown.
    measured: float = 0.0
    #: Number of looks that contributed to `measured` since a user changed the topology.
    looks: int = 0
    #: When `measured` was last updated.
    measured_at: float = 0.0
    #: The actual rate of a saturated thread as a share of `measured`.
    ratio: float = 1.0
    line: Line = Line()
    #: Tuples that the component receives per tuple that a source has processed.
    selectivity: dict[str, float] = {}
    #: Looks at which nothing was full: the mean time of a tuple in a busy thread, the number of these looks, and the
    #: time of the last of them.
    usual_s: float = 0.0
    usual_looks: int = 0
    usual_at: float = 0.0
    #: Time of the first of the consecutive looks at which the component held the spouts back.
    full_since: float | None = None
    #: Times in the last window, and numbers of tuples that were waiting for the component.
    waiting: tuple[tuple[float, float], ...] = ()

    @property
    def per_thread(self) -> float:
        """The rate P: tuples per second of one busy thread."""
        return self.measured * self.ratio

    def believing(self, per_thread: float) -> Known:
        """Return a copy with this value of P."""
        ratio = per_thread / self.measured if self.measured else 1.0
        return replace(self, ratio=min(RATIO_MAX, max(RATIO_MIN, ratio)))


def threads(one: Figures) -> int:
    """Return n k, the number of tasks times the simultaneous calls of each task."""
    return one.tasks * one.concurrency


def is_even(one: Figures) -> bool:
    """Whether all tasks of the component have about the same rate."""
    return one.tasks == 1 or (one.spread is not None and one.spread <= EVEN)


def busy_s(one: Figures) -> float | None:
    """Return the seconds that a busy thread needs for a tuple; None if unknown."""
    return threads(one) * one.busy / one.processed if one.busy and one.processed else None


def usual_s(one: Figures, known: Known, now: float, day_s: float) -> float | None:
    """Return the usual seconds for a tuple: from a day's healthy minutes or, until these are known, from earlier looks
    at this program.
    """
    if one.usual_s is not None:
        return one.usual_s
    is_known = known.usual_looks >= _USUAL_LOOKS_MIN and now - known.usual_at <= day_s
    return known.usual_s if is_known else None


def earlier_s(known: Known, now: float, day_s: float) -> float | None:
    """Return the mean seconds for a tuple at earlier looks, also while the component was full; None if unknown."""
    is_known = known.looks >= _USUAL_LOOKS_MIN and known.measured and now - known.measured_at <= day_s
    return 1 / known.measured if is_known else None


def used(one: Figures, known: Known) -> float | None:
    """Return the used share of the component's capacity; None if unknown."""
    if one.processed is None or not known.per_thread or not one.tasks:
        return None
    return one.processed / (threads(one) * known.per_thread)


def learned(known: Known, one: Figures, look: Observation, in_trouble: bool) -> Known:
    """Update the figures after a look. While another problem exists, a full component does not show its capacity."""
    sources = look.by_name
    passing = {
        source: rate / done
        for source, rate in one.inputs.items()
        if source in sources and (done := sources[source].processed)
    }
    known = replace(known, selectivity=known.selectivity | passing)
    if one.backlog is not None:
        recent = [point for point in known.waiting if point[0] >= look.at - look.window_s]
        known = replace(known, waiting=(*recent, (look.at, one.backlog)))
    if one.keys is not None and one.memory_mean is not None and not in_trouble:
        known = replace(known, line=known.line.with_point(one.keys, one.memory_mean))
    full_since = (look.at if known.full_since is None else known.full_since) if one.saturated else None
    known = replace(known, full_since=full_since)
    if one.busy is None or one.busy < BUSY_MIN or not one.processed or not one.tasks or in_trouble:
        return known
    rate = one.processed / (threads(one) * one.busy)
    if rate < RATE_MIN:
        return known
    if one.busy < BUSY and look.held < HELD:
        usual_looks = min(known.usual_looks + 1, _USUAL_LOOKS)
        mean_s = known.usual_s + (1 / rate - known.usual_s) / usual_looks
        known = replace(known, usual_s=mean_s, usual_looks=usual_looks, usual_at=look.at)
    looks = min(known.looks + 1, _LOOKS)
    measured = known.measured + (rate - known.measured) / looks
    known = replace(known, measured=measured, measured_at=look.at, looks=looks)
    if full_since is not None and look.at - full_since >= look.window_s and is_even(one):
        # The rate of a saturated thread is R / (n k), which is `busy` times its rate per busy second.
        known = replace(known, ratio=max(RATIO_MIN, one.busy))
    return known


def growth(known: Known) -> float:
    """Return the growth of the backlog in tuples per second."""
    if len(known.waiting) < 2:
        return 0.0
    (began, first), (ended, last) = known.waiting[0], known.waiting[-1]
    return (last - first) / (ended - began) if ended > began else 0.0


def left_s(look: Observation, known: Mapping[str, Known]) -> float | None:
    """Return the seconds until the sources' backlog is gone at the current rate; None if it does not shrink."""
    spouts = [one for one in look.components if one.is_spout]
    waits = [one.backlog for one in spouts if one.backlog is not None]
    grows = sum(growth(known[one.name]) for one in spouts)
    return sum(waits) / -grows if len(waits) == len(spouts) and grows < 0 else None


def asked_for(look: Observation, known: Mapping[str, Known]) -> dict[str, float] | None:
    """Return the demand X on each component; None if a spout does not report its rate."""
    found: dict[str, float] = {}
    for one in look.components:
        if one.is_spout:
            if one.processed is None:
                return None
            free = max(1 - look.held, FREE_LEAST)
            comes = one.processed + growth(known[one.name]) if one.backlog is not None else one.processed / free
            found[one.name] = max(0.0, comes)
    return _followed(found, look, known) if found else None


def with_backlog(
    asked: Mapping[str, float], look: Observation, known: Mapping[str, Known], drain_s: float
) -> dict[str, float]:
    """Return the rate at which each component clears its backlog B within t = `drain_s`: X + (B + X r) / t, where r is
    the duration of the last rescale.
    """
    waits = {one.name: one.backlog or 0.0 for one in look.components}
    comes = {
        one.name: asked[one.name] + (waits[one.name] + asked[one.name] * look.rescale_s) / drain_s
        for one in look.components
        if one.is_spout
    }
    found = _followed(comes, look, known)
    return {name: rate if name in comes else rate + waits[name] / drain_s for name, rate in found.items()}


def _followed(comes: Mapping[str, float], look: Observation, known: Mapping[str, Known]) -> dict[str, float]:
    """Propagate the rates of the spouts through the graph up to a fixed point."""
    found = {one.name: comes.get(one.name, 0.0) for one in look.components}
    for _ in found:
        after = {
            name: comes[name]
            if name in comes
            else sum(found.get(source, 0.0) * each for source, each in known[name].selectivity.items())
            for name in found
        }
        if after == found:
            break
        found = after
    return found


def tasks_for(rate: float, per_thread: float, concurrency: int) -> int:
    """Return the number of tasks for a rate: n' = ceil(X / (P k 0.7))."""
    return max(1, ceil(rate / (per_thread * concurrency * AIM) - 1e-9))


def concurrency_for(rate: float, per_thread: float, tasks: int) -> int:
    """Return the number of simultaneous calls that each task needs for a rate."""
    return max(1, min(CONCURRENCY_MAX, ceil(rate / (per_thread * tasks * AIM) - 1e-9)))


def tasks_for_memory(one: Figures, known: Known, keys: float, share: float) -> int | None:
    """Return the minimum number of tasks whose keys fit into this share of their memory limit; None if the limit or the
    keys are unknown.
    """
    if one.memory_limit is None or not keys or one.memory_mean is None:
        return None
    # The largest task uses more memory than the mean.
    room = share * one.memory_limit * min(1.0, one.memory_mean / (one.memory_max or one.memory_mean))
    base, each = known.line.bytes_at(0.0), (known.line.bytes_at(keys) - known.line.bytes_at(0.0)) / keys
    if room <= base:
        return None
    return max(1, ceil(keys * each / (room - base) - 1e-9))


def lag_of(look: Observation) -> float | None:
    """Return the lag in seconds: the reported lag, else the backlog divided by the processing rate.

    If the spouts were held back, tuples also wait in the queues, so the lag is at least the end-to-end latency. A queue
    that takes seconds to process counts even if it belongs to a single task.
    """
    found = []
    for one in look.components:
        if one.lag_s is not None:
            found.append(one.lag_s)
        elif one.is_spout and one.backlog is not None and one.processed is not None:
            rate = _drained(one, look)
            found.append(one.backlog / rate if rate else ENDLESS_S if one.backlog else 0.0)
    if look.end_to_end_s is not None and (not found or look.held >= HELD):
        found.append(look.end_to_end_s)
    if look.queue_s is not None and look.queue_s >= QUEUE_S:
        found.append(look.queue_s)
    return min(ENDLESS_S, max(found)) if found else None


def _drained(spout: Figures, look: Observation) -> float:
    """Return the rate at which the tuples of a spout are processed. A spout that is held back emits in bursts, so the
    rate of its slowest direct consumer counts.
    """
    rates = [
        one.processed for one in look.components if one.inputs.keys() == {spout.name} and one.processed is not None
    ]
    return min(rates) if rates and look.held >= HELD else spout.processed or 0.0


def shown_lag(look: Observation, kept_up_at: float) -> float | None:
    """Return the lag to show to users, which is limited by the time since the last look without a lag."""
    lag_s = lag_of(look) if look.components else None
    if lag_s is None or lag_s >= ENDLESS_S or not kept_up_at:
        return lag_s
    return min(lag_s, max(0.0, look.at - kept_up_at) + LAG_S)
