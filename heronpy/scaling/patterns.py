"""Two patterns of Turbine: estimates that the tasks have disproved, and days that resemble each other. Pure."""

from __future__ import annotations

from collections.abc import Callable
from statistics import fmean

from msgspec import Struct

from heronpy.scaling.estimate import Known, threads
from heronpy.scaling.figures import Figures, Past, Times

#: Number of past days that are used.
DAYS = 14
#: Other days are not used if today's last half hour differs from theirs by more than this share.
UNUSUAL = 0.3
#: With fewer days, tasks are not reduced to the predicted number at once.
DAYS_MIN = 2
#: A day counts if it has this share of the minutes of the compared hours.
_MINUTES_MIN = 0.5


def raised(known: Known, one: Figures) -> Known:
    """P := X / n if the tasks do more than P allows."""
    done = (one.processed or 0.0) / threads(one) if one.tasks else 0.0
    return known.believing(done) if known.measured and done > known.per_thread else known


def lowered(known: Known, asked: float, threads_before: int) -> Known:
    """P := (X / n + P) / 2 after fewer threads did not do the work of the former ones."""
    done = asked / threads_before
    return known.believing((done + known.per_thread) / 2) if 0 < done < known.per_thread else known


def is_usual(past: Past) -> bool:
    """Whether other days may predict the demand."""
    if past.days < DAYS_MIN or past.ahead is None or past.usual is None or past.recent is None:
        return False
    return abs(past.recent - past.usual) <= UNUSUAL * past.usual


class Span(Struct, frozen=True):
    """Minutes of a component between two times: their number, mean and highest rate, and highest number of keys."""

    minutes: int = 0
    mean: float = 0.0
    most: float = 0.0
    keys: float | None = None


def past_of(between: Callable[[float, float], Span], now: float, times: Times) -> Past:
    """The past of one component; `between` returns the minutes from one time up to another."""
    least = _MINUTES_MIN * times.ahead_s / times.look_s
    ahead, before = [], []
    for days in range(1, DAYS + 1):
        then = now - days * times.day_s
        came, was = between(then, then + times.ahead_s), between(then - times.recent_s, then)
        if came.minutes >= least and was.minutes:
            ahead.append(came)
            before.append(was.mean)
    recent = between(now - times.recent_s, now)
    return Past(
        days=len(ahead),
        ahead=max((span.most for span in ahead), default=None),
        ahead_keys=max((span.keys for span in ahead if span.keys is not None), default=None),
        usual=fmean(before) if before else None,
        recent=recent.mean if recent.minutes else None,
    )
