"""The judge of a table of lines: it knows the seed, and reads only table, lineage and the records of bad ranges."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import pairwise
from pathlib import Path

from heronpy.common.errors import LedgerError
from heronpy.ingest.outputs.lineage import Lineage, published
from heronpy.verify.units.logs import Written, is_poison

ROWS = "part-0.txt"


@dataclass(slots=True)
class TableVerdict:
    """How a table differs from what was written."""

    expected: int = 0
    arrived: int = 0
    #: Lines that are neither rows nor, if they are poison, recorded as bad.
    missing: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    #: Rows of no line, or of poison.
    foreign: list[str] = field(default_factory=list)
    #: Bad ranges that are no line of poison.
    innocent: list[str] = field(default_factory=list)
    bad: int = 0
    units: int = 0
    #: One sentence for each unit whose lineage is wrong.
    wrong_units: list[str] = field(default_factory=list)
    #: Lines that were thrown away, and those of them that are not in the table.
    thrown: int = 0
    thrown_missing: int = 0

    @property
    def ok(self) -> bool:
        return not (self.missing or self.doubled or self.foreign or self.innocent or self.wrong_units)


def judge(table: Path, written: Written) -> TableVerdict:
    """The verdict over a table that is complete."""
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
    _count(verdict, rows, bad.keys(), written)
    return verdict


def read_rows(folder: Path) -> list[str]:
    """The rows of a published unit, in their order; a unit without rows may have no file."""
    try:
        return (folder / ROWS).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []


def _count(verdict: TableVerdict, rows: Counter[str], bad: Iterable[str], written: Written) -> None:
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
    """Why the rows of a unit are not those of its bytes: the digests of its ranges say which lines they had."""
    if lineage.rows != len(rows):
        return f"it has {len(rows):,} rows, and its lineage says {lineage.rows:,}"
    at = 0
    for chunk in lineage.chunks:
        digest = sha256()
        while digest.hexdigest() != chunk.sha256:
            if at == len(rows):
                return f"its rows are not the lines of {chunk.key} {chunk.begin}-{chunk.end}"
            digest.update(rows[at].encode() + b"\n")
            at += 1
    return "" if at == len(rows) else f"{len(rows) - at:,} rows are of none of its ranges"


def overlaps(lineages: Iterable[Lineage]) -> list[str]:
    """Bytes that two units say to have."""
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
    """The lines of the records of bad ranges."""
    for path in sorted((table / "_units" / "bad").glob("*.json")):
        text = json.loads(path.read_text(encoding="utf-8"))["text"]
        if text is not None:
            yield from str(text).splitlines()
