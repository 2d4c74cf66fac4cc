"""Makes committed units visible. A unit whose stage is gone is passed over, looked for again later and later, and told
once, so that it neither holds up the others nor fills the log."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from heronpy.common.units import counted
from heronpy.ingest.ledger.requests import Finished
from heronpy.ingest.outputs.stages import StageGoneError

#: A stage that is gone is looked for again after so long, doubled each time: somebody may restore it.
AGAIN_S, AGAIN_MAX_S = 1.0, 30.0
#: Units that are passed over at once, and how often people are told of new ones.
GONE_MAX, TELL_S = 512, 10.0


@dataclass(slots=True)
class _Gone:
    due: float
    pause_s: float


class Publisher:
    """See the module. Times are monotonic."""

    def __init__(self, publish: Callable[[Finished], Any], report: Callable[[Exception], Any]) -> None:
        """`publish` makes one unit visible, or raises StageGoneError."""
        self._publish, self._report = publish, report
        self._gone: dict[int, _Gone] = {}
        #: Why new ones cannot be published, by unit, until it is told.
        self._untold: dict[int, StageGoneError] = {}
        self._tell_at = float("-inf")

    def besides(self, now: float) -> tuple[int, ...]:
        """Units that need not be listed yet."""
        return tuple(unit for unit, one in self._gone.items() if now < one.due)

    def publish(self, units: Iterable[Finished], now: float) -> list[int]:
        """Publish what is listed; the units that are visible now."""
        units = list(units)
        listed, done = {one.unit for one in units}, []
        for number in [unit for unit, one in self._gone.items() if now >= one.due and unit not in listed]:
            del self._gone[number]  # another keeper has found it, or the ledger was rebuilt
        for unit in units:
            try:
                self._publish(unit)
            except StageGoneError as error:
                self._pass_over(unit.unit, error, now)
                continue
            self._gone.pop(unit.unit, None)
            self._untold.pop(unit.unit, None)
            done.append(unit.unit)
        self._tell(now)
        return done

    def _pass_over(self, unit: int, error: StageGoneError, now: float) -> None:
        known = self._gone.pop(unit, None)
        if known is None:
            self._untold[unit] = error
            pause_s = AGAIN_S
        else:
            pause_s = min(AGAIN_MAX_S, known.pause_s * 2)
        if len(self._gone) >= GONE_MAX:
            del self._gone[next(iter(self._gone))]
        self._gone[unit] = _Gone(now + pause_s, pause_s)

    def _tell(self, now: float) -> None:
        if not self._untold or now < self._tell_at:
            return
        self._tell_at = now + TELL_S
        first, *others = self._untold.values()
        more = f"; so it is with {counted(len(others), 'more unit')}" if others else ""
        self._report(StageGoneError(f"{first}{more}"))
        self._untold.clear()
