"""Checks the invariants of a ledger's rows. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from heronpy.ingest.ledger.types import (
    Copy,
    Dispatch,
    File,
    FileState,
    Pipeline,
    Row,
    Span,
    SpanState,
    Unit,
    UnitState,
)


def validate(rows: Iterable[Row]) -> list[str]:
    """Return one sentence for each invariant of `heronpy.ingest.ledger.machine` that a pipeline's rows violate."""
    kinds: dict[type, list[Any]] = defaultdict(list)
    for row in rows:
        kinds[type(row)].append(row)
    files: dict[int, File] = {file.id: file for file in kinds[File]}
    units: dict[int, Unit] = {unit.id: unit for unit in kinds[Unit]}
    spans: dict[int, list[Span]] = {}
    for span in sorted(kinds[Span], key=lambda span: (span.file, span.begin)):
        spans.setdefault(span.file, []).append(span)
    found = [f"spans of file {number} exist, but the file is missing" for number in spans.keys() - files.keys()]
    found += [
        f"a copy of file {copy.file} exists, but the file is missing" for copy in kinds[Copy] if copy.file not in files
    ]
    for file in files.values():
        found += _of_file(file, spans.get(file.id, []), units)
    found += _of_units(units, [span for of_file in spans.values() for span in of_file])
    found += _of_dispatches(units, kinds[Dispatch])
    names = Counter((file.key, file.generation) for file in files.values())
    found += [f"{name} occurs twice" for name, count in names.items() if count > 1]
    for pipeline in kinds[Pipeline]:
        found += [
            f"file {number} has an id that was not assigned yet" for number in files if number >= pipeline.next_file
        ]
        found += [
            f"unit {number} has an id that was not assigned yet" for number in units if number >= pipeline.next_unit
        ]
    return found


def _of_file(file: File, spans: list[Span], units: dict[int, Unit]) -> list[str]:
    what, found, at = f"file {file.id}", [], 0
    for span in spans:
        if span.begin != at or span.end <= span.begin:
            found.append(f"{what}: span {span.begin}-{span.end} must begin at {at} and must not be empty")
        at = span.end
        if span.state is SpanState.UNIT and span.unit not in units:
            found.append(f"{what}: span {span.begin}-{span.end} is in unit {span.unit}, which is missing")
    if at != file.cut:
        found.append(f"{what}: its spans end at {at}, but its cut is {file.cut}")
    if file.cut > file.size:
        found.append(f"{what}: its cut {file.cut} is above its size {file.size}")
    for before, behind in pairwise(spans):
        if before.state is SpanState.DONE and behind.state is SpanState.DONE:
            found.append(
                f"{what}: done spans {before.begin}-{before.end} and {behind.begin}-{behind.end} are not merged"
            )
    waits = file.state is FileState.LIVE and file.cut < file.size and file.gone is None
    if waits is not (file.since is not None):
        found.append(f"{what}: it {'waits without a' if waits else 'does not wait, but has a'} start time")
    return found


def _of_units(units: dict[int, Unit], spans: list[Span]) -> list[str]:
    sizes = dict.fromkeys(units, 0)
    for span in spans:
        if span.state is SpanState.UNIT and span.unit in sizes:
            sizes[span.unit] += span.end - span.begin
    found = []
    for unit in units.values():
        if sizes[unit.id] != unit.bytes or not unit.bytes:
            found.append(f"unit {unit.id} has {unit.bytes} bytes, but its spans have {sizes[unit.id]}")
        if (unit.state is UnitState.LEASED) is not bool(unit.holder):
            found.append(f"unit {unit.id} is {unit.state}, but its holder is {unit.holder!r}")
        if (unit.state is UnitState.COMMITTED) is not bool(unit.winner) or unit.winner > unit.attempt:
            found.append(f"unit {unit.id} is {unit.state}, but attempt {unit.winner} of {unit.attempt} has won")
    return found


def _of_dispatches(units: dict[int, Unit], dispatches: list[Dispatch]) -> list[str]:
    expected = {number: dispatch.id for dispatch in dispatches for number in dispatch.units}
    actual = {unit.id: unit.dispatch for unit in units.values() if unit.dispatch}
    return [] if expected == actual else [f"dispatches have units {expected}, but units are in dispatches {actual}"]
