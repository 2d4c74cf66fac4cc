"""The lines of the logs of work units' load tests, and what their functions write down. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

#: The time of line 0, and how many users there are: a line is `user7<tab>1700000000007`.
BASE_MS = 1_700_000_000_000
USERS = 997
COLUMNS = {"user": "string", "ms": "int64"}


def click_lines(first: int, after: int) -> str:
    """The lines of these numbers."""
    return "".join(f"user{number % USERS}\t{BASE_MS + number}\n" for number in range(first, after))


def click(line: str) -> tuple[str, int]:
    """What every contender does with a line."""
    user, ms = line.split("\t")
    return user, int(ms)


# ---- attempts -----------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Began:
    """An attempt at a unit, as the function of a profile has written it down."""

    unit: int
    attempt: int
    pid: int
    at_ns: int


def attempts_of(text: str) -> list[Began]:
    """The attempts of lines `unit attempt pid ns`; a line that a killed process has not finished is left out."""
    return [Began(*map(int, line.split())) for line in text.split("\n")[:-1]]


def attempt_line(unit: int, attempt: int, pid: int, at_ns: int) -> str:
    """The line of an attempt."""
    return f"{unit} {attempt} {pid} {at_ns}\n"


# ---- stamps -------------------------------------------------------------------------------------
def stamped_lines(first: int, count: int, at_ns: int, line_bytes: int) -> str:
    """Lines `number ns ...` of so many bytes each, appended at this time."""
    found = []
    for number in range(first, first + count):
        text = f"{number} {at_ns} "
        found.append(text + "." * (line_bytes - len(text) - 1) + "\n")
    return "".join(found)


def stamps_of(text: str) -> Iterator[tuple[int, int]]:
    """Number and time of each line."""
    for line in text.splitlines():
        number, at_ns, _ = line.split(" ", 2)
        yield int(number), int(at_ns)
