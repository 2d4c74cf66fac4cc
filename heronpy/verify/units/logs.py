"""Seeded logs that grow and are rotated, truncated and copied, and a judge that checks the table made from them.

Each line is unique and follows from seed, log and number. So the judge needs only the seed and the number of lines of
each log, and reads only the table, the lineage and the records of bad ranges. Every act leaves the files as a real
writer or logrotate would between two system calls.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b, sha256
from itertools import pairwise
from pathlib import Path

from heronpy.common.errors import LedgerError
from heronpy.ingest.outputs.lineage import Lineage, published

#: First words of lines that cannot be processed, and of lines that end their process.
BAD, DEADLY = "bad", "deadly"
#: Lines are discarded only in the first seconds, before faults begin; later a unit may wait too long for them.
THROW_S = 2.0
TICK_S = 0.02


def line_of(seed: int, log: str, number: int, poison: int = 0) -> str:
    """Return line `number` (from 0) of a log: 20 to 90 characters, without a line ending.

    `poison`: about one line in `poison` is bad, and some of the bad lines are deadly; 0 means that no line is bad.
    """
    code = blake2b(f"{seed} {log} {number}".encode(), digest_size=36).hexdigest()
    line = f"{log} {number} {code[: int(code[:2], 16) % 72]}."
    chance = int(code[2:12], 16)
    if not poison or chance % poison:
        return line
    return f"{DEADLY if chance // poison % 3 == 0 else BAD} {line}"


def is_poison(line: str) -> bool:
    """Whether a line cannot be processed."""
    return line.startswith((f"{BAD} ", f"{DEADLY} "))


@dataclass(slots=True)
class Written:
    """The lines that a writer has written."""

    seed: int
    poison: int = 0
    #: Number of lines of each log, including an unfinished one.
    lines: dict[str, int] = field(default_factory=dict)
    #: Ranges of lines that were thrown away, and that a slow reader may have missed.
    thrown: list[tuple[str, int, int]] = field(default_factory=list)

    def all_lines(self) -> Iterator[str]:
        for log, count in self.lines.items():
            for number in range(count):
                yield line_of(self.seed, log, number, self.poison)

    def thrown_lines(self) -> set[str]:
        """Return the lines that may be missing from the table."""
        return {line_of(self.seed, log, n, self.poison) for log, first, last in self.thrown for n in range(first, last)}


class RotatedLogs:
    """Logs in one folder that can be appended to, rotated, truncated and copied."""

    def __init__(self, folder: Path, seed: int, logs: Iterable[str], poison: int = 0, banner: str = "") -> None:
        """`banner`: complete lines at the beginning of each new file, which do not belong to the logs."""
        self.folder = folder
        self._banner = banner
        self.written = Written(seed, poison, dict.fromkeys(logs, 0))
        self._half: dict[str, str] = {}
        #: The first line of each content by path, and the initial content of a live log.
        self._first: dict[Path, int] = {}

    def append(self, log: str, lines: int = 1) -> None:
        """Append complete lines; an unfinished line is finished first."""
        self.finish(log)
        first = self.written.lines[log]
        numbers = range(first, first + lines)
        self._write(log, "".join(self._line(log, number) + "\n" for number in numbers), first)
        self.written.lines[log] += lines

    def begin(self, log: str) -> None:
        """Write the first part of a line."""
        if log in self._half:
            return
        number = self.written.lines[log]
        line = self._line(log, number)
        self._write(log, line[: len(line) // 2], number)
        self.written.lines[log] += 1
        self._half[log] = line[len(line) // 2 :] + "\n"

    def finish(self, log: str) -> None:
        """Write the rest of an unfinished line."""
        rest = self._half.pop(log, None)
        if rest is not None:
            self._write(log, rest, self.written.lines[log])

    def _line(self, log: str, number: int) -> str:
        return line_of(self.written.seed, log, number, self.written.poison)

    def _write(self, log: str, text: str, number: int) -> None:
        path = self.folder / log
        if not path.exists() or not path.stat().st_size:
            self._first[path] = number
            text = self._banner + text
        with open(path, "a", encoding="utf-8") as file:
            file.write(text)

    def rename(self, log: str) -> None:
        """app.log becomes app.log.1, app.log.1 becomes app.log.2, and so on; the writer makes a new file."""
        self._shift(log)
        self._move(self.folder / log, self.folder / f"{log}.1")

    def copytruncate(self, log: str) -> None:
        """Copy the log and truncate it, as logrotate does for writers that never reopen their file."""
        live = self.folder / log
        if live.exists():
            self._shift(log)
            shutil.copyfile(live, self.folder / f"{log}.1")
            self._first[self.folder / f"{log}.1"] = self._first.get(live, 0)
            os.truncate(live, 0)

    def reuse(self, log: str) -> None:
        """Rotate by renaming; the new file gets the inode of a removed copy."""
        backup, live = self.folder / f"{log}.bak", self.folder / log
        if not backup.exists() or not live.exists():
            return
        aside = self.folder / f".{log}.removed"
        os.rename(backup, aside)
        self.rename(log)
        os.truncate(aside, 0)
        # One system call, as for a new file, so that the name never has the old content.
        os.rename(aside, live)

    def truncate(self, log: str) -> None:
        """Discard the content of a log."""
        self.finish(log)
        live = self.folder / log
        if live.exists():
            self._throw(log, live)
            os.truncate(live, 0)

    def copy(self, log: str) -> None:
        """Make a copy of a log next to it, as users do."""
        if (self.folder / log).exists():
            shutil.copyfile(self.folder / log, self.folder / f"{log}.bak")

    def _shift(self, log: str) -> None:
        self.finish(log)
        for number in range(self._rotated(log), 0, -1):
            self._move(self.folder / f"{log}.{number}", self.folder / f"{log}.{number + 1}")

    def _move(self, old: Path, new: Path) -> None:
        if old.exists():
            os.rename(old, new)
            self._first[new] = self._first.pop(old, 0)

    def _rotated(self, log: str) -> int:
        number = 0
        while (self.folder / f"{log}.{number + 1}").exists():
            number += 1
        return number

    def _throw(self, log: str, path: Path) -> None:
        size, first = path.stat().st_size, self._first.pop(path, None)
        if size and first is not None:
            with open(path, "rb") as file:
                count = sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))
            self.written.thrown.append((log, first, first + count))

    def rotate(self, log: str, chance: random.Random, may_throw: bool = True) -> None:
        """Perform a random rotation, or another operation that users perform on logs."""
        acts = [self.rename, self.copytruncate, self.copy, self.begin, self.reuse, self.truncate]
        chance.choices(acts, weights=(6, 6, 4, 6, 4, may_throw))[0](log)


class Writer(threading.Thread):
    """Writes lines at a rate and rotates logs at random times, determined by the seed, until `stop`."""

    def __init__(self, logs: RotatedLogs, lines_per_s: float, rotations_per_s: float) -> None:
        super().__init__(name="log-writer", daemon=True)
        self._logs, self._rate, self._rotations = logs, lines_per_s, rotations_per_s
        self._chance = random.Random(logs.written.seed)
        self._stopped = threading.Event()
        self._error: OSError | None = None

    def run(self) -> None:
        try:
            self._run()
        except OSError as error:
            self._error = error

    def _run(self) -> None:
        began, names = time.monotonic(), list(self._logs.written.lines)
        while not self._stopped.wait(TICK_S):
            due = int((time.monotonic() - began) * self._rate)
            for log in names:
                missing = due - self._logs.written.lines[log]
                if missing > 0:
                    self._logs.append(log, missing)
                if self._chance.random() < self._rotations * TICK_S:
                    self._logs.rotate(log, self._chance, time.monotonic() - began < THROW_S)
        for log in names:
            self._logs.finish(log)

    def stop(self) -> Written:
        """Stop writing; return the written lines. Raises OSError if writing failed."""
        self._stopped.set()
        self.join()
        if self._error is not None:
            raise self._error
        return self._logs.written


ROWS = "part-0.txt"


@dataclass(slots=True)
class TableVerdict:
    """Differences between a table and the written lines."""

    expected: int = 0
    arrived: int = 0
    #: Lines that are neither rows nor, for poison, recorded as bad.
    missing: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    #: Rows that correspond to no line, or to poison.
    foreign: list[str] = field(default_factory=list)
    #: Bad ranges with a line that is not poison.
    innocent: list[str] = field(default_factory=list)
    bad: int = 0
    units: int = 0
    #: One sentence for each unit whose lineage is wrong.
    wrong_units: list[str] = field(default_factory=list)
    #: Lines that were thrown away, and how many of them are not in the table.
    thrown: int = 0
    thrown_missing: int = 0

    @property
    def ok(self) -> bool:
        return not (self.missing or self.doubled or self.foreign or self.innocent or self.wrong_units)


def judge(table: Path, written: Written) -> TableVerdict:
    """Return the verdict on a complete table."""
    verdict = TableVerdict()
    rows: Counter[str] = Counter()
    lineages: list[Lineage] = []
    try:
        for folder, lineage in published(str(table)):
            lines = read_rows(folder)
            rows.update(lines)
            lineages.append(lineage)
            wrong = wrong_lineage(lineage, lines)
            if wrong:
                verdict.wrong_units.append(f"{folder.name}: {wrong}")
    except LedgerError as error:
        verdict.wrong_units.append(str(error))
    verdict.units = len(lineages)
    verdict.wrong_units += overlaps(lineages)
    bad = Counter(_bad_texts(table))
    verdict.bad = sum(bad.values())
    verdict.innocent = sorted(text for text in bad if not is_poison(text))
    _count_lines(verdict, rows, bad.keys(), written)
    return verdict


def read_rows(folder: Path) -> list[str]:
    """Return the rows of a published unit, in order; a unit without rows may have no file."""
    try:
        return (folder / ROWS).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []


def _count_lines(verdict: TableVerdict, rows: Counter[str], bad: Iterable[str], written: Written) -> None:
    known_bad, thrown, known = set(bad), written.thrown_lines(), set()
    for line in written.all_lines():
        known.add(line)
        verdict.expected += 1
        there = line in known_bad if is_poison(line) else line in rows
        if line in thrown:
            verdict.thrown += 1
            verdict.thrown_missing += not there
        elif not there:
            verdict.missing.append(line)
    verdict.arrived = sum(rows.values())
    verdict.doubled = sorted(row for row, count in rows.items() if count > 1)
    verdict.foreign = sorted(row for row in rows if row not in known or is_poison(row))


def wrong_lineage(lineage: Lineage, rows: list[str]) -> str:
    """Return why the rows of a unit do not match the digests of its ranges; "" if they match."""
    if lineage.rows != len(rows):
        return f"it has {len(rows):,} rows, but its lineage has {lineage.rows:,}"
    at = 0
    for chunk in lineage.chunks:
        digest = sha256()
        while digest.hexdigest() != chunk.sha256:
            if at == len(rows):
                return f"its rows are not the lines of {chunk.key} {chunk.begin}-{chunk.end}"
            digest.update(rows[at].encode() + b"\n")
            at += 1
    return "" if at == len(rows) else f"{len(rows) - at:,} rows belong to none of its ranges"


def overlaps(lineages: Iterable[Lineage]) -> list[str]:
    """Return a sentence for each byte range that two units claim."""
    owned: dict[tuple[str, int], list[tuple[int, int, str]]] = {}
    for one in lineages:
        for chunk in one.chunks:
            name = f"unit={one.generation}-{one.unit}"
            owned.setdefault((chunk.key, chunk.generation), []).append((chunk.begin, chunk.end, name))
    found = []
    for (key, _), ranges in sorted(owned.items()):
        ranges.sort()
        for before, behind in pairwise(ranges):
            if behind[0] < before[1]:
                found.append(f"{key}: byte {behind[0]} is in {before[2]} and {behind[2]}")
    return found


def _bad_texts(table: Path) -> Iterable[str]:
    """Yield the lines in the records of bad ranges."""
    for path in sorted((table / "_units" / "bad").glob("*.json")):
        text = json.loads(path.read_text(encoding="utf-8"))["text"]
        if text is not None:
            yield from str(text).splitlines()
