"""The usual time that a tuple takes in each component: the median wall time of a day's healthy minutes. Pure.

A minute is healthy if the component caused no problem: it was not full, the spouts were not held back, and none of its
tasks ended. If a dependency is slower than usual, more tasks do not help. If the component waits long in every healthy
minute, the waits are usual, and more tasks help. The baseline counts minutes by hour and duration, so the number of
components bounds its memory. A new topology master gets one median per component.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from math import isfinite, log2

from heronpy.proto import control_pb2

#: A dependency is slow if it needs this multiple of its usual time.
SLOWED = 3.0
#: Minimum number of minutes for a usual time, and number of hours for which minutes count.
MINUTES_MIN, HOURS = 10, 24
#: Durations are grouped in steps of this part of an octave: 19 %.
_PARTS = 4
#: A minute is not healthy if tasks are busy, or spouts are held back, for a larger share than this.
BUSY, HELD = 0.8, 0.2


class Baseline:
    """The usual time that a tuple takes in each component; see the module."""

    def __init__(self) -> None:
        #: By hour: minutes by component and duration.
        self._hours: dict[int, Counter[tuple[str, int]]] = {}
        #: Seconds by component, for components with enough known minutes.
        self.usual_s: dict[str, float] = {}

    def add(self, number: int, rows: Mapping[str, Mapping[str, float | None]]) -> None:
        """Add a minute's series by component; "" is the topology."""
        if (rows.get("", {}).get("held") or 0.0) >= HELD:
            return
        for component, row in rows.items():
            wall_s, busy = row.get("wall_s"), row.get("busy")
            if wall_s and busy is not None and busy < BUSY and not row.get("restarts"):
                self._count(number, component, wall_s, 1)
        self._decide()

    def _decide(self) -> None:
        self.usual_s = {one.component: one.wall_s for one in self.kept() if one.minutes >= MINUTES_MIN}

    def _count(self, number: int, component: str, wall_s: float, minutes: int) -> None:
        hour = number // 60
        self._hours.setdefault(hour, Counter())[component, round(_PARTS * log2(wall_s))] += minutes
        newest = max(self._hours)
        for old in [one for one in self._hours if one <= newest - HOURS]:
            del self._hours[old]

    def kept(self) -> list[control_pb2.MinutesLedger.Usual]:
        """Return the data for a new topology master: each component's median, number of minutes, and newest minute."""
        found: defaultdict[str, Counter[int]] = defaultdict(Counter)
        newest: dict[str, int] = {}
        for hour, counts in sorted(self._hours.items()):
            for (component, size), minutes in counts.items():
                found[component][size] += minutes
                newest[component] = hour * 60
        return [
            control_pb2.MinutesLedger.Usual(
                component=component,
                wall_s=2.0 ** (sorted(sizes.elements())[(sizes.total() - 1) // 2] / _PARTS),
                minutes=sizes.total(),
                number=newest[component],
            )
            for component, sizes in found.items()
        ]

    def take_over(self, kept: Iterable[control_pb2.MinutesLedger.Usual]) -> None:
        """Continue with the previous topology master's baseline; invalid entries are ignored."""
        for one in kept:
            if one.component and isfinite(one.wall_s) and one.wall_s > 0 and 0 < one.minutes <= 60 * HOURS:
                self._count(one.number, one.component, one.wall_s, one.minutes)
        self._decide()
