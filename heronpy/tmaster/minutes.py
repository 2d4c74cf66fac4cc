"""The minutes of the last day, by component, for charts and for diagnoses. Pure.

A minute has one row of float32 per component, and one row with component "" for the topology. A row has a column per
series. NaN and missing minutes mean unknown, not 0. A component has no values before the update that adds it or after
the update that removes it. Invariants: Numbers of minutes increase. At most `KEPT_MAX` minutes and `VALUES_MAX` values
are kept, so a topology of more than about 100 components keeps less than a day. The oldest minutes are dropped first.

"""

from __future__ import annotations

import struct
import sys
from array import array
from collections import deque
from collections.abc import Callable, Mapping
from math import ceil, isfinite, isnan, nan

from msgspec import Struct

from heronpy.common.errors import InvalidRpcError
from heronpy.health.baseline import Baseline
from heronpy.proto import control_pb2
from heronpy.views.past import Series, Timeline, metric_name

#: Maximum number of minutes (one day), and of values, with 4 bytes each.
KEPT_MAX, VALUES_MAX = 1_440, 4_000_000
#: Maximum number of minutes and bytes for a successor, written to the state manager in each active minute.
HANDED_OVER_MAX, HANDED_OVER_BYTES_MAX = 30, 64 << 10
POINTS_MAX = 1_000
MINUTE_S = 60.0

_MEAN, _MOST, _SUM, _LAST = "mean", "most", "sum", "last"
#: Series that make a minute active; a minute without a positive value in any of them is idle.
MOVES = ("emitted", "executed", "acked", "failed", "restarts", "dead_letters", "lost")
#: Name of each series, and the function that joins several minutes into one point.
SERIES: dict[str, str] = {
    "emitted": _MEAN,  # tuples per second, all tasks together
    "executed": _MEAN,
    "acked": _MEAN,
    "failed": _MEAN,
    "busy": _MEAN,  # mean shares of the tasks
    "blocked": _MEAN,
    "idle": _MEAN,
    "busiest": _MOST,  # the largest busy share of a task
    "queue_bytes": _MEAN,  # at the end of the minute, all tasks together
    "fullest_bytes": _MOST,  # the largest in-queue of a task
    "wall_s": _MEAN,  # in user code, per tuple
    "execute_p50_s": _MEAN,
    "execute_p99_s": _MOST,
    "end_to_end_p50_s": _MEAN,
    "end_to_end_p99_s": _MOST,
    "complete_p50_s": _MEAN,
    "complete_p99_s": _MOST,
    "cpu": _MEAN,  # CPU seconds per second, all tasks together
    "memory_bytes": _MEAN,  # resident, all tasks together, shared pages counted once
    "largest_bytes": _MOST,  # the largest resident memory of a task
    "tasks": _LAST,
    "up": _LAST,
    "pending": _MEAN,
    "restarts": _SUM,  # in the minute
    "dead_letters": _SUM,
    "lost": _SUM,
    "held": _MEAN,  # of the topology only, like the following series: share of time with spouts held back
    "plan_version": _LAST,
    "spark_waiting": _MEAN,
    "spark_lag_s": _MOST,
    "spark_done": _MEAN,  # batches per second
    "spark_batch_s": _MEAN,
}
NAMES = tuple(SERIES)
_INDEX = {name: index for index, name in enumerate(NAMES)}
_WIDTH = len(NAMES)
_F32_MAX = 3.0e38

Row = Mapping[str, float | None]


_JOINS: dict[str, Callable[[list[float]], float]] = {
    _MEAN: lambda values: sum(values) / len(values),
    _MOST: lambda values: max(values),
    _SUM: lambda values: sum(values),
    _LAST: lambda values: values[-1],
}


class _Minute(Struct, frozen=True):
    number: int
    #: Rows that minutes with equal values share.
    components: tuple[str, ...]
    values: array[float]


class Minutes:
    """The minutes of a topology. `baseline` contains the usual values, and is also handed to a new topology master."""

    def __init__(self, kept_max: int = KEPT_MAX, values_max: int = VALUES_MAX) -> None:
        self._kept_max = kept_max
        self._values_max = values_max
        self._minutes: deque[_Minute] = deque()
        self._values = 0
        self.baseline = Baseline()
        #: Number of the newest active minute since this process began; 0 if there is none.
        self.moved = 0

    def __len__(self) -> int:
        return len(self._minutes)

    @property
    def last(self) -> int:
        """The number of the newest minute; 0 if there are none."""
        return self._minutes[-1].number if self._minutes else 0

    @property
    def known_since(self) -> float:
        """Wall time at which the oldest minute begins; 0 if there are none."""
        return self._minutes[0].number * MINUTE_S if self._minutes else 0.0

    @property
    def used_bytes(self) -> int:
        return self._values * 4

    def add(self, number: int, rows: Mapping[str, Row]) -> None:
        """Add a minute, given as rows by component. A minute whose number is not above the last one is ignored."""
        if number <= self.last or not rows:
            return
        components = tuple(rows)
        if self._minutes and self._minutes[-1].components == components:
            components = self._minutes[-1].components
        values = array("f", [nan]) * (len(components) * _WIDTH)
        self.baseline.add(number, rows)
        for place, row in enumerate(rows.values()):
            for name, value in row.items():
                if value is not None and abs(value) <= _F32_MAX:
                    values[place * _WIDTH + _INDEX[name]] = value
        if any((row.get(name) or 0.0) > 0.0 for row in rows.values() for name in MOVES):
            self.moved = number
        self._append(_Minute(number, components, values))

    def _append(self, minute: _Minute) -> None:
        self._minutes.append(minute)
        self._values += len(minute.values)
        while len(self._minutes) > self._kept_max or (len(self._minutes) > 1 and self._values > self._values_max):
            self._values -= len(self._minutes.popleft().values)

    # ---- questions --------------------------------------------------------------------------

    def query(self, asked: control_pb2.GetTimeline) -> Timeline:
        """Return the requested series. Raises InvalidRpcError, with the name, for an unknown component or series."""
        components, names = self._chosen(asked)
        found = Timeline(times=[], step_s=MINUTE_S, series=[], kept_from=self.known_since or None)
        first, end = self._span(asked.since, asked.until) if self._minutes else (0, 0)
        if first >= end:
            return found
        most, count = min(asked.points, POINTS_MAX) or end - first, end - first
        step = 1 if count <= most else count if most == 1 else ceil(count / (most - 1))
        if 1 < step < count:
            # Align to whole steps, so that a later request joins the same minutes and only the last point may differ.
            first = first // step * step
        found.step_s = step * MINUTE_S
        found.times = [first * MINUTE_S + point * found.step_s for point in range(ceil((end - first) / step))]
        for component in components:
            rows = self._rows(component, first, end)
            for name in names:
                values = rows[_INDEX[name] :: _WIDTH]
                if step > 1:
                    values = _joined(values, step, _JOINS[SERIES[name]])
                if not all(map(isnan, values)):
                    known = [None if isnan(value) else value for value in values]
                    found.series.append(Series(component=component, metric=metric_name(name), values=known))
        return found

    def _rows(self, component: str, first: int, end: int) -> array[float]:
        """Return the rows of a component for these minutes, concatenated."""
        found, unknown = array("f"), array("f", [nan]) * _WIDTH
        number, place = first, -1
        components: tuple[str, ...] | None = None
        for minute in self._minutes:
            if not first <= minute.number < end:
                continue
            found.extend(unknown * (minute.number - number))
            if minute.components is not components:
                components = minute.components
                place = components.index(component) * _WIDTH if component in components else -1
            found.extend(minute.values[place : place + _WIDTH] if place >= 0 else unknown)
            number = minute.number + 1
        found.extend(unknown * (end - number))
        return found

    def _chosen(self, asked: control_pb2.GetTimeline) -> tuple[list[str], list[str]]:
        known = dict.fromkeys(name for minute in reversed(self._minutes) for name in minute.components)
        for component in asked.components:
            if self._minutes and component not in known:
                listed = ", ".join(name for name in known if name)
                raise InvalidRpcError(f"no component '{component}' is known; the components are {listed}")
        for name in asked.names:
            if name not in SERIES:
                raise InvalidRpcError(f"there is no series '{name}'; the series are {', '.join(SERIES)}")
        return list(dict.fromkeys(asked.components)) or list(known), list(dict.fromkeys(asked.names)) or list(NAMES)

    def _span(self, since: float, until: float) -> tuple[int, int]:
        """Return the first known minute of a request, and the minute after the last."""
        first, end = self._minutes[0].number, self.last + 1
        if isfinite(since) and since > 0:
            first = max(first, min(int(since // MINUTE_S), end))
        if isfinite(until) and until > 0:
            end = min(end, max(ceil(min(until, end * MINUTE_S) / MINUTE_S), 0))
        return first, end

    # ---- a successor ------------------------------------------------------------------------

    def ledger(
        self, topology_id: str, minutes_max: int = HANDED_OVER_MAX, bytes_max: int = HANDED_OVER_BYTES_MAX
    ) -> control_pb2.MinutesLedger:
        """Return the newest minutes: at most `minutes_max`, and at most `bytes_max` in total."""
        kept = control_pb2.MinutesLedger(topology_id=topology_id, series=NAMES)
        kept.usual.extend(self.baseline.kept())
        chosen: list[_Minute] = []
        size = 0
        for minute in reversed(self._minutes):
            size += len(minute.values) * 4
            if len(chosen) >= minutes_max or size > bytes_max:
                break
            chosen.append(minute)
        places: dict[tuple[str, ...], int] = {}
        for minute in reversed(chosen):
            place = places.setdefault(minute.components, len(places))
            if place == len(kept.names):
                kept.names.add(components=minute.components)
            kept.minutes.add(number=minute.number, names=place, values=_packed(minute.values))
        return kept

    def take_over(self, kept: control_pb2.MinutesLedger | None, topology_id: str) -> None:
        """Continue with a predecessor's minutes. Minutes beyond the limits, or of another topology, are ignored."""
        if kept is None or kept.topology_id != topology_id:
            return
        self.baseline.take_over(kept.usual)
        columns = [(_INDEX[name], column) for column, name in enumerate(kept.series) if name in _INDEX]
        width = len(kept.series)
        for minute in kept.minutes:
            if minute.names >= len(kept.names) or minute.number <= self.last:
                continue
            components = tuple(kept.names[minute.names].components)
            if not components or len(minute.values) != 4 * width * len(components):
                continue
            if len(set(components)) != len(components):
                continue
            told = struct.unpack(f"<{width * len(components)}f", minute.values)
            values = array("f", [nan]) * (len(components) * _WIDTH)
            for place in range(len(components)):
                for mine, theirs in columns:
                    value = told[place * width + theirs]
                    values[place * _WIDTH + mine] = value if isfinite(value) else nan
            if self._minutes and self._minutes[-1].components == components:
                components = self._minutes[-1].components
            self._append(_Minute(minute.number, components, values))

    def validate(self) -> None:
        """Raise AssertionError when an invariant does not hold."""
        numbers = [minute.number for minute in self._minutes]
        assert numbers == sorted(set(numbers)) and len(numbers) <= self._kept_max, "minutes out of order, or too many"
        assert self._values == sum(len(minute.values) for minute in self._minutes), "the values are counted wrongly"
        assert len(numbers) <= 1 or self._values <= self._values_max, "too many values"
        assert all(len(one.values) == len(one.components) * _WIDTH for one in self._minutes), "a row is incomplete"


def _joined(values: array[float], step: int, join: Callable[[list[float]], float]) -> array[float]:
    """Join each `step` minutes into one value."""
    found = array("f")
    for start in range(0, len(values), step):
        known = [value for value in values[start : start + step] if not isnan(value)]
        found.append(join(known) if known else nan)
    return found


def _packed(values: array[float]) -> bytes:
    """Encode the values as little-endian bytes on any machine."""
    if sys.byteorder == "big":
        values = values[:]
        values.byteswap()
    return values.tobytes()
