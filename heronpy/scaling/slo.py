"""Records when a job broke its promise, and for which share of the time the promise was kept. Pure."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

#: Maximum number of kept intervals, the newest ones.
INTERVALS_MAX = 100


class Attainment(Struct, frozen=True):
    """Record of how a promise was kept. Times are seconds since 1970."""

    #: Seconds in which the lag was known, and seconds in which it was above the promise.
    measured_s: float = 0.0
    broken_s: float = 0.0
    #: Time and lag of the last look; None: the lag was unknown.
    at: float = 0.0
    lag_s: float | None = None
    #: Time since which the promise is broken; None if it is kept.
    since: float | None = None
    #: Earlier intervals in which the promise was broken, as (from, until).
    intervals: tuple[tuple[float, float], ...] = ()

    @property
    def share(self) -> float | None:
        """Share of the measured time in which the promise was kept; None if the lag was never known."""
        return 1 - self.broken_s / self.measured_s if self.measured_s else None


def observed(before: Attainment, lag_s: float | None, promised_s: float, now: float, gap_s: float) -> Attainment:
    """Update the record after a look. Between two looks the lag is interpolated; a gap longer than `gap_s` counts as
    not measured.
    """
    if not promised_s and before.since is not None:
        before = replace(before, since=None, intervals=_with(before, before.at))
    if lag_s is None or not promised_s:
        return replace(before, lag_s=None)
    known = before.lag_s is not None and before.at < now <= before.at + gap_s
    crossed = now
    if known and before.lag_s is not None and before.lag_s != lag_s:
        share = (promised_s - before.lag_s) / (lag_s - before.lag_s)
        crossed = before.at + min(1.0, max(0.0, share)) * (now - before.at)
    begins, ends = lag_s > promised_s and before.since is None, lag_s <= promised_s and before.since is not None
    broken_s = 0.0
    if known:
        was_s, is_s = crossed - before.at, now - crossed
        broken_s = is_s if begins else was_s if ends else now - before.at if before.since is not None else 0.0
    after = replace(
        before,
        measured_s=before.measured_s + (now - before.at if known else 0.0),
        broken_s=before.broken_s + broken_s,
        at=now,
        lag_s=lag_s,
    )
    if begins:
        return replace(after, since=crossed)
    if ends:
        # Without the previous look, the end of the interval is unknown.
        return replace(after, since=None, intervals=_with(before, crossed if known else before.at))
    return after


def _with(before: Attainment, until: float) -> tuple[tuple[float, float], ...]:
    """Return the broken intervals, including the interval that ends now."""
    return before.intervals if before.since is None else (*before.intervals, (before.since, until))[-INTERVALS_MAX:]
