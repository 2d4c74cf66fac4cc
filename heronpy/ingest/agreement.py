"""Checks whether table, ledger and lineage agree, and derives the content of a rebuilt ledger. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from heronpy.common.units import counted, listed
from heronpy.ingest.ledger.commands import FoundFile, FoundRange
from heronpy.ingest.ledger.partitions import birth_of
from heronpy.ingest.ledger.ranges import Range as Bytes
from heronpy.ingest.ledger.ranges import overlaps as overlapping
from heronpy.ingest.ledger.ranges import subtract
from heronpy.ingest.ledger.requests import Given
from heronpy.ingest.ledger.types import PART, File, Pipeline, Row, Span, SpanState, Unit, UnitState
from heronpy.ingest.ledger.validate import validate
from heronpy.ingest.outputs.lineage import Lineage, Range, folder_name

#: Maximum number of units that one sentence names.
NAMES_MAX = 50

_File = tuple[str, int]
_Spans = dict[_File, list[Bytes]]


def behind(given: Iterable[Given], newest: int, units: Iterable[tuple[int, int]]) -> str:
    """Return a clause that explains why a ledger is older than its table; "" if no ledger is older.

    `given`: the ids that each ledger has handed out. `newest` and `units`, read before `given`: the highest generation
    of the table, and generation and id of each published unit. An id is handed out before its unit is published, even
    across a power cut. So a ledger that has not handed out a published id is an older ledger.
    """
    nexts = {}
    for one in given:
        if one.generation < newest:
            return f"the table is at generation {newest}, but the ledger is at generation {one.generation}"
        nexts[one.generation, one.next_unit // PART] = one.next_unit
    # `nexts` omits ledgers that are not in use any more. Their ids are ignored.
    later = [(one, unit) for one, unit in units if unit >= nexts.get((one, unit // PART), unit + 1)]
    if not later:
        return ""
    generation, unit = max(later)
    number = nexts[generation, unit // PART] % PART - 1
    return f"{folder_name(generation, unit)} is in the table, but the ledger has created only {counted(number, 'unit')}"


def disagreements(rows: Sequence[Row], earlier: Sequence[Lineage], later: Sequence[Lineage]) -> list[str]:
    """Return one sentence for each difference between a ledger and the lineage of its table.

    `rows`: the rows of one or several ledgers, each beginning with its `Pipeline`. `earlier` was read before the
    ledger's rows and `later` after them, so that the pipeline may keep running. Units in `earlier` must be done or
    committed in the ledger, and units that are done in the ledger must be in `later`.
    """
    found = [problem for part in _parts(rows) for problem in validate(part)]
    done, settled = _of_ledger(rows)
    found += overlaps(later)
    found += contradictions(later, rows=rows)
    for name, ranges in sorted(_of_lineage(earlier, _Forgotten(rows)).items()):
        for begin, end in subtract(ranges, settled.get(name, ())):
            found.append(f"{_shown(name)} {begin}-{end} is in the table, but unknown to the ledger")
    there = _of_lineage(later)
    for name, ranges in sorted(done.items()):
        for begin, end in subtract(ranges, there.get(name, ())):
            found.append(f"{_shown(name)} {begin}-{end} is done in the ledger, but not in the table")
    return found


def contradictions(
    lineages: Iterable[Lineage], bad: Iterable[Mapping[str, Any]] = (), rows: Iterable[Row] = ()
) -> list[str]:
    """Return one sentence for each file whose beginning differs between units, records of bad ranges and the ledger.

    These are different files that got the same name in two generations of a ledger. The first line of a file never
    changes. The known length of its beginning may grow, so only beginnings of equal length are compared.
    """
    heads: dict[_File, dict[str, list[str]]] = {}
    for lineage in lineages:
        for chunk in lineage.chunks:
            heads.setdefault((chunk.key, chunk.generation), {}).setdefault(chunk.head, []).append(_unit(lineage))
    for record in bad:
        name = str(record["key"]), int(record["file_generation"])
        source = f"record {record['begin']}-{record['end']}"
        heads.setdefault(name, {}).setdefault(str(record["head"]), []).append(source)
    for row in rows:
        if isinstance(row, File) and (row.key, row.generation) in heads:
            heads[row.key, row.generation].setdefault(row.head, []).append("the ledger")
    found = []
    for name, known in sorted(heads.items()):
        parts = _parts_of(known)
        if len(parts) > 1:
            first, *others = (listed(list(dict.fromkeys(part)), NAMES_MAX) for part in parts)
            found.append(
                f"{_shown(name)}: {first} record{'s' if len(parts[0]) == 1 else ''} a different beginning than"
                f" {', or than '.join(others)}, so these are different files"
            )
    return found


def _parts_of(heads: Mapping[str, list[str]]) -> list[list[str]]:
    """Group the sources by the file beginning that they record; one group if all agree."""
    by_line: dict[str, list[str]] = {}
    by_bytes: dict[tuple[str, str], list[str]] = {}
    for head, sources in heads.items():
        if head.count(":") == 2:
            first, size, beginning = head.split(":")
            by_line.setdefault(first, []).extend(sources)
            by_bytes.setdefault((size, beginning), []).extend(sources)
    if len(by_line) > 1:
        return list(by_line.values())
    sizes = [size for size, _ in by_bytes]
    parts = [sources for (size, _), sources in by_bytes.items() if sizes.count(size) > 1]
    return parts or list(by_line.values())


def waiting_bytes(rows: Iterable[Row]) -> int:
    """Return the number of bytes in the ledger that are neither done nor bad."""
    in_none = sum(row.size - row.cut for row in rows if isinstance(row, File))
    return in_none + sum(row.end - row.begin for row in rows if isinstance(row, Span) and row.state is SpanState.UNIT)


def bad_bytes(rows: Iterable[Row]) -> int:
    """Return the number of bytes in bad ranges, which belong to no unit and to no row of the table."""
    return sum(row.end - row.begin for row in rows if isinstance(row, Span) and row.state is SpanState.BAD)


def _parts(rows: Sequence[Row]) -> list[list[Row]]:
    parts: list[list[Row]] = []
    for row in rows:
        if isinstance(row, Pipeline) or not parts:
            parts.append([])
        parts[-1].append(row)
    return parts


def found_files(lineages: Iterable[Lineage], bad: Iterable[Mapping[str, Any]]) -> tuple[FoundFile, ...]:
    """Return the ranges of each file that are in a table or in the table's records of bad ranges.

    Raises KeyError, TypeError or ValueError for an invalid record.
    """
    heads: dict[_File, str] = {}
    done: dict[_File, list[FoundRange]] = {}
    for lineage in lineages:
        for chunk in lineage.chunks:
            name = chunk.key, chunk.generation
            # The longest known beginning belongs to the current file.
            heads[name] = max(heads.get(name, ""), chunk.head, key=_head_bytes)
            done.setdefault(name, []).append(FoundRange(chunk.begin, chunk.end, _unit(lineage)))
    wrong: dict[_File, list[FoundRange]] = {}
    for record in bad:
        name = str(record["key"]), int(record["file_generation"])
        begin, end = int(record["begin"]), int(record["end"])
        Range(*name, begin, end, "")  # raises ValueError for an invalid record
        heads[name] = max(heads.get(name, ""), str(record["head"]), key=_head_bytes)
        # These bytes may have been processed after a fix. They are then no longer bad.
        ranges = [(one.begin, one.end) for one in done.get(name, ())]
        for first, last in subtract([(begin, end)], ranges):
            wrong.setdefault(name, []).append(
                FoundRange(first, last, f"record {begin}-{end}", str(record["error"]), int(record["tries"]))
            )
    return tuple(
        FoundFile(*name, heads[name], tuple(done.get(name, ())), _apart(wrong.get(name, ())), birth_of(name[0]))
        for name in sorted(heads)
    )


def _apart(ranges: Iterable[FoundRange]) -> tuple[FoundRange, ...]:
    """Return the ranges without overlaps: a retry may have written a second record for part of a range."""
    kept: list[FoundRange] = []
    for one in sorted(ranges, key=lambda one: (one.begin, -one.end)):
        left = subtract([(one.begin, one.end)], [(other.begin, other.end) for other in kept])
        kept += [FoundRange(begin, end, one.source, one.error, one.tries) for begin, end in left]
    return tuple(sorted(kept, key=lambda one: one.begin))


def _head_bytes(head: str) -> int:
    text = head.split(":")[1] if head.count(":") == 2 else ""
    return int(text) if text.isdecimal() else -1


def _of_ledger(rows: Sequence[Row]) -> tuple[_Spans, _Spans]:
    """Return two maps from file to ranges: the done ranges, and the done or committed ranges."""
    names = {row.id: (row.key, row.generation) for row in rows if isinstance(row, File)}
    committed = {row.id for row in rows if isinstance(row, Unit) and row.state is UnitState.COMMITTED}
    done: _Spans = {}
    settled: _Spans = {}
    for row in rows:
        if not isinstance(row, Span) or row.file not in names:
            continue
        if row.state is SpanState.DONE:
            done.setdefault(names[row.file], []).append((row.begin, row.end))
        if row.state is SpanState.DONE or (row.state is SpanState.UNIT and row.unit in committed):
            settled.setdefault(names[row.file], []).append((row.begin, row.end))
    return done, settled


class _Forgotten:
    """Files that a ledger has forgotten, because they are fully processed and have been gone for longer than the
    horizon. Files of units that the ledger has never handed out do not count as forgotten."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._files = {(row.key, row.generation) for row in rows if isinstance(row, File)}
        self._next = {
            row.next_unit // PART: (row.generation, row.next_unit) for row in rows if isinstance(row, Pipeline)
        }

    def has(self, lineage: Lineage, chunk: Range) -> bool:
        """Whether the ledger has forgotten the file of this range."""
        if (chunk.key, chunk.generation) in self._files:
            return False
        generation, following = self._next.get(lineage.unit // PART, (0, 0))
        return lineage.generation < generation or (lineage.generation == generation and lineage.unit < following)


def _of_lineage(lineages: Iterable[Lineage], besides: _Forgotten | None = None) -> _Spans:
    found: _Spans = {}
    for lineage in lineages:
        for chunk in lineage.chunks:
            if besides is None or not besides.has(lineage, chunk):
                found.setdefault((chunk.key, chunk.generation), []).append((chunk.begin, chunk.end))
    return found


def overlaps(lineages: Iterable[Lineage]) -> list[str]:
    """Return one sentence for each byte range that belongs to two units, so that its rows are in the table twice."""
    owned: dict[_File, list[tuple[int, int, str]]] = {}
    for lineage in lineages:
        for chunk in lineage.chunks:
            owned.setdefault((chunk.key, chunk.generation), []).append((chunk.begin, chunk.end, _unit(lineage)))
    return [
        f"{_shown(name)} {begin}-{end} is in the table twice: in {one} and {other}"
        for name, mine in sorted(owned.items())
        for begin, end, one, other in overlapping(mine)
    ]


def _unit(lineage: Lineage) -> str:
    return lineage.batch or folder_name(lineage.generation, lineage.unit)


def _shown(name: _File) -> str:
    key, generation = name
    return key if generation == 1 else f"{key} (generation {generation})"
