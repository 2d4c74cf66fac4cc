"""The lines of the profile `aggregate`: the same for every run and every process (pure).

They have the shape of flights.csv of the flight demo: as long, with a carrier, an origin and a delay in minutes
somewhere in the middle.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from heronpy.loadtest.vocabulary import expected_counts

SEED = 20_130_101
KINDS = ("carrier", "origin")
#: The columns of a line that are counted.
CARRIER, ORIGIN, DELAY = 3, 4, 6


class Flight(NamedTuple):
    """The counted columns of a line."""

    carrier: str
    origin: str
    delay: int


def flight_lines(count: int, carriers: int, origins: int, delays: int) -> list[str]:
    """`count` lines with this many different carriers, origins and delays; some are far more frequent than others."""
    chooser = random.Random(SEED)
    lines = []
    for number in range(count):
        carrier = min(int(chooser.expovariate(4 / carriers)), carriers - 1)
        delay = min(int(chooser.expovariate(6 / delays)), delays - 1)
        start = f"2013,{number % 12 + 1},{number % 28 + 1},C{carrier:02},JFK{chooser.randrange(origins)}"
        lines.append(
            f"{start},{chooser.randrange(2400)},{delay},N{chooser.randrange(99999):05},ORD,{number:08},719,EWR,LGA"
        )
    return lines


def parse(line: str) -> Flight:
    """The counted columns of a line."""
    fields = line.split(",")
    return Flight(fields[CARRIER], fields[ORIGIN], int(fields[DELAY]))


def expected_totals(lines: list[str], emitted: Iterable[int]) -> Counter[tuple[str, str, int]]:
    """Lines by kind, key and delay if each spout emits this many lines, from the start."""
    totals: Counter[tuple[str, str, int]] = Counter()
    for line, times in expected_counts(lines, emitted).items():
        flight = parse(line)
        totals["carrier", flight.carrier, flight.delay] += times
        totals["origin", flight.origin, flight.delay] += times
    return totals
