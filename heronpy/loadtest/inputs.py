"""The inputs of the load tests, identical for every run, process and contender.

The inputs are words for the word counts; lines for the profile `aggregate`, in the format of flights.csv of the flight
demo; and lines of logs for work units, with the records that the profiles' functions write.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

SEED = 20_140_623
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
#: Words per sentence.
SENTENCE = 10


def word_list(distinct: int, length: int, zipf: float = 0.0) -> list[str]:
    """Return `length` words, of which `distinct` differ; with `zipf`, word k is 1/k**zipf as frequent as word 1."""
    chooser = random.Random(SEED)
    known: dict[str, None] = {}
    while len(known) < distinct:
        known["".join(chooser.choices(_LETTERS, k=chooser.randint(3, 10)))] = None
    words = list(known)
    if zipf:
        weights = list(itertools.accumulate(rank**-zipf for rank in range(1, distinct + 1)))
        # Equal words are the same object, from the list of known words.
        return chooser.choices(words, cum_weights=weights, k=length)
    repeated = (words * (length // distinct + 1))[:length]
    chooser.shuffle(repeated)
    return repeated


def sentences(words: Sequence[str]) -> list[str]:
    """Join the words into sentences; a shorter last sentence is omitted."""
    whole = len(words) // SENTENCE * SENTENCE
    return [" ".join(words[at : at + SENTENCE]) for at in range(0, whole, SENTENCE)]


def expected_counts(words: Sequence[str], emitted: Iterable[int]) -> Counter[str]:
    """Return how often each word is emitted. `emitted`: words per spout; a spout starts at the first word and loops."""
    once = Counter(words)
    total: Counter[str] = Counter()
    for number in emitted:
        full, rest = divmod(number, len(words))
        for word, times in once.items():
            total[word] += times * full
        total.update(words[:rest])
    return +total


FLIGHT_SEED = 20_130_101
KINDS = ("carrier", "origin")
#: Indexes of the counted columns.
CARRIER, ORIGIN, DELAY = 3, 4, 6


class Flight(NamedTuple):
    """The counted columns of a line."""

    carrier: str
    origin: str
    delay: int


def flight_lines(count: int, carriers: int, origins: int, delays: int) -> list[str]:
    """Return `count` lines with at most these numbers of carriers, origins and delays, in uneven frequencies."""
    chooser = random.Random(FLIGHT_SEED)
    lines = []
    for number in range(count):
        carrier = min(int(chooser.expovariate(4 / carriers)), carriers - 1)
        delay = min(int(chooser.expovariate(6 / delays)), delays - 1)
        start = f"2013,{number % 12 + 1},{number % 28 + 1},C{carrier:02},JFK{chooser.randrange(origins)}"
        lines.append(
            f"{start},{chooser.randrange(2400)},{delay},N{chooser.randrange(99999):05},ORD,{number:08},719,EWR,LGA"
        )
    return lines


def flight(line: str) -> Flight:
    fields = line.split(",")
    return Flight(fields[CARRIER], fields[ORIGIN], int(fields[DELAY]))


def expected_totals(lines: list[str], emitted: Iterable[int]) -> Counter[tuple[str, str, int]]:
    """Return the number of emitted lines by kind, key and delay; `emitted` is the number of lines per spout."""
    totals: Counter[tuple[str, str, int]] = Counter()
    for line, times in expected_counts(lines, emitted).items():
        found = flight(line)
        totals["carrier", found.carrier, found.delay] += times
        totals["origin", found.origin, found.delay] += times
    return totals


#: The time of line 0 and the number of users; a line is `user7<tab>1700000000007`.
BASE_MS = 1_700_000_000_000
USERS = 997
COLUMNS = {"user": "string", "ms": "int64"}


def click_lines(first: int, after: int, users: int = USERS) -> str:
    """Return the lines from number `first` up to, but excluding, `after`."""
    return "".join(f"user{number % users}\t{BASE_MS + number}\n" for number in range(first, after))


def click(line: str) -> tuple[str, int]:
    """Parse a line into user and time, as every contender does."""
    user, ms = line.split("\t")
    return user, int(ms)


@dataclass(frozen=True, slots=True)
class Began:
    """The start of an attempt at a unit, as recorded by a profile's function."""

    unit: int
    attempt: int
    pid: int
    at_ns: int


def attempts_of(text: str) -> list[Began]:
    """Parse attempts from lines `unit attempt pid ns`; an unfinished line of a killed process is ignored."""
    return [Began(*map(int, line.split())) for line in text.split("\n")[:-1]]


def attempt_line(unit: int, attempt: int, pid: int, at_ns: int) -> str:
    return f"{unit} {attempt} {pid} {at_ns}\n"


def stamped_lines(first: int, count: int, at_ns: int, line_bytes: int) -> str:
    """Return lines `number ns ...` of `line_bytes` bytes; `at_ns` is the time at which they are appended."""
    found = []
    for number in range(first, first + count):
        text = f"{number} {at_ns} "
        found.append(text + "." * (line_bytes - len(text) - 1) + "\n")
    return "".join(found)


def stamps_of(text: str) -> Iterator[tuple[int, int]]:
    """Yield number and time of each line."""
    for line in text.splitlines():
        number, at_ns, _ = line.split(" ", 2)
        yield int(number), int(at_ns)
