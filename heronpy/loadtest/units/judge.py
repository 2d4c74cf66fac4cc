"""Whether the rows of a profile are exactly the lines of its logs, and what its units took. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from heronpy.loadtest.checks import Check
from heronpy.loadtest.unit_lines import BASE_MS, USERS, Began


def wrong_numbers(found: Iterable[int], expected: int, left_out: Sequence[int] = ()) -> str:
    """How numbers differ from 0 to `expected`, each once, without those that were left out; "" when they do not."""
    numbers = np.asarray(found if isinstance(found, np.ndarray) else list(found), dtype=np.int64)
    counts: Any = np.bincount(numbers[(numbers >= 0) & (numbers < expected)], minlength=expected)
    wanted = np.ones(expected, dtype=np.int64)
    wanted[list(left_out)] = 0
    foreign = int(((numbers < 0) | (numbers >= expected)).sum())
    parts = [
        f"{int(count):,} {word}"
        for count, word in (
            ((counts < wanted).sum(), "missing"),
            (np.maximum(counts - np.maximum(wanted, 1), 0).sum(), "twice or more"),
            (((wanted == 0) & (counts > 0)).sum(), "which should not be there"),
            (foreign, "of no line"),
        )
        if count
    ]
    return f"{len(numbers):,} rows of {int(wanted.sum()):,}: {', '.join(parts)}" if parts else ""


def wrong_clicks(users: Sequence[str], times: Iterable[int], expected: int) -> str:
    """How a table of clicks differs from the first `expected` lines; "" when it does not."""
    numbers = np.asarray(times if isinstance(times, np.ndarray) else list(times), dtype=np.int64) - BASE_MS
    wrong = wrong_numbers(numbers, expected)
    if wrong:
        return wrong
    swapped = sum(user != f"user{number % USERS}" for user, number in zip(users, numbers.tolist(), strict=True))
    return f"{swapped:,} rows have the user of another line" if swapped else ""


def rows_check(name: str, wrong: str, expected: int) -> Check:
    """The check of a table."""
    return Check(name, not wrong, wrong or f"{expected:,} rows, each once")


def share(values: Sequence[float], percent: float) -> float:
    """The smallest value that so many percent do not exceed; 0 of none."""
    if not values:
        return 0.0
    ordered = sorted(values)
    return ordered[max(0, int(-(-len(ordered) * percent // 100)) - 1)]


def unit_seconds(began: Iterable[Began], visible_ns: Mapping[int, int]) -> list[float]:
    """From the first attempt at a unit until its rows are visible, by unit."""
    first: dict[int, int] = {}
    for one in began:
        first[one.unit] = min(one.at_ns, first.get(one.unit, one.at_ns))
    return [(visible_ns[unit] - at) / 1e9 for unit, at in sorted(first.items()) if unit in visible_ns]
