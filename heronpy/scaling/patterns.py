"""Two patterns of Turbine: correcting estimates that tasks have disproved, and predicting from similar days. Pure."""

from __future__ import annotations

from collections.abc import Callable
from statistics import fmean

from msgspec import Struct
from msgspec.structs import replace

from heronpy.scaling.estimate import Known, threads
from heronpy.scaling.figures import Figures, Past, Times

#: Number of past days that are compared.
DAYS = 14
#: Maximum difference, as a share, between today's last half hour and the same time of the days used for a prediction.
UNUSUAL = 0.3
#: Number of days below which tasks are not reduced to the predicted number in one step.
DAYS_MIN = 2
#: Minimum share of recorded minutes in the compared hours for a day to count.
_MINUTES_MIN = 0.5


def raised(known: Known, one: Figures) -> Known:
    """Raise P to X / n if the tasks process more than P allows, until later looks measure less, as after a burst."""
    done = (one.processed or 0.0) / threads(one) if one.tasks else 0.0
    return replace(known, measured=done / known.ratio) if known.measured and done > known.per_thread else known


def lowered(known: Known, asked: float, threads_before: int) -> Known:
    """Lower P to (X / n + P) / 2 if fewer threads could not handle the load of the previous number."""
    done = asked / threads_before
    return known.believing((done + known.per_thread) / 2) if 0 < done < known.per_thread else known


def is_usual(past: Past) -> bool:
    """Whether today resembles the other days, so that they can predict the demand."""
    if past.days < DAYS_MIN or past.ahead is None or past.usual is None or past.recent is None:
        return False
    return abs(past.recent - past.usual) <= UNUSUAL * past.usual


class Span(Struct, frozen=True):
    """Summary of a component's minutes between two times: number, mean and highest rate, highest number of keys."""

    minutes: int = 0
    mean: float = 0.0
    most: float = 0.0
    keys: float | None = None


def past_of(between: Callable[[float, float], Span], now: float, times: Times) -> Past:
    """Return the past demand on one component; `between` summarises the minutes between two times."""
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
