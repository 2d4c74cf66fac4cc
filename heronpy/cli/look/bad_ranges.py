"""`heron units bad`: the ranges of logs that could not be processed, with their bytes and tracebacks."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import msgspec

from heronpy.cli import exits
from heronpy.cli.look.units import all_units, opened, say_retried
from heronpy.cli.output import clean, print_json, say
from heronpy.growing.patterns import join
from heronpy.ingest.bad import BadRecord, BadRecords, line_end
from heronpy.ingest.ledger.commands import BadRange, ListBad, RetryBad, Show
from heronpy.ingest.ledger.reaching import Reached
from heronpy.ingest.ledger.requests import Chunk
from heronpy.ingest.options import logs_at
from heronpy.ingest.unit import MovedError
from heronpy.ingest.unit import opened as opened_file

#: Maximum number of characters of the bytes, and of lines of the traceback, that are shown by default.
SHOWN_CHARS, SHOWN_LINES = 200, 6


def show_bad(pipeline: str, unit: int | None, url: str, retry: bool, whole: bool, as_json: bool) -> None:
    """Print or requeue the bad ranges of a pipeline, or of one unit."""
    with opened(url, pipeline) as ledger:
        if retry:
            say_retried(*all_units(ledger, RetryBad(unit)), as_json)
            return
        figures = ledger.ask(Show())
        ranges = [one for one in _ranges(ledger) if unit in (None, one.span.unit)]
    records = BadRecords(figures.place)
    if as_json:
        print_json({"pipeline": pipeline, "bad": [_as_json(one, records.of(one), figures.logs) for one in ranges]})
    elif unit is not None and not ranges:
        raise exits.Failure(f"pipeline '{pipeline}' has no bad ranges in unit {unit}", exits.NOT_FOUND)
    elif not ranges:
        failed = figures.units.get("failed", (0, 0))[0]
        units = "1 unit has" if failed == 1 else f"{failed:,} units have"
        hint = f", but {units} failed: heron units show {pipeline}" if failed else ""
        say(f"No bad ranges in pipeline '{pipeline}'{hint}")
    for one in ranges if not as_json else ():
        _print(one, records.of(one), figures.logs, whole or unit is not None)
    if ranges and not as_json and figures.rows_to == "bolts":
        say("Rows that bolts have abandoned are listed by: heron dead-letters")
    if ranges:
        raise SystemExit(1)


def _ranges(ledger: Reached) -> Iterator[BadRange]:
    more, after = True, ListBad()
    while more:
        page = ledger.ask(after)
        yield from page.ranges
        more = page.more
        if more:
            last = page.ranges[-1].span
            after = ListBad(last.file, last.begin)


def _as_json(one: BadRange, record: BadRecord | None, logs: str) -> dict[str, Any]:
    found, _ = _places_of(one, logs)
    data = record.data if record is not None else None
    return {
        **msgspec.to_builtins(one),
        "path": found,
        "length": one.span.end - one.span.begin,
        "line_end": _line_end(one, logs),
        "record": record.path if record is not None else None,
        "traceback": record.traceback if record is not None else None,
        "bytes": base64.b64encode(data).decode() if data is not None else None,
        "text": _text(data) if data is not None else None,
        "cut": record.cut if record is not None else False,
    }


def _places_of(one: BadRange, logs: str) -> tuple[str | None, list[str]]:
    """Return the range's file on this host, or None, and the paths at which the file was last seen."""
    seen = []
    for site, path in one.places:
        root = logs_at(logs, site).root
        seen.append(join(root, path))
        chunk = Chunk(one.span.file, one.key, one.generation, one.span.begin, one.span.end, one.head, path)
        with suppress(MovedError, OSError), opened_file(root, chunk):
            return seen[-1], seen
    return None, seen


def _line_end(one: BadRange, logs: str) -> int:
    """Return the offset at which the range's last line ends, which may be beyond the end of the range."""
    span = one.span
    for site, path in one.places:
        chunk = Chunk(span.file, one.key, one.generation, span.begin, span.end, one.head, path)
        end = line_end(logs_at(logs, site).root, chunk, span.end)
        if end != span.end:
            return end
    return span.end


def _place(one: BadRange, logs: str) -> str:
    found, seen = _places_of(one, logs)
    if found is None and not seen:
        return f"was {one.key}; the file is gone, or no keeper has scanned since the ledger was rebuilt"
    named = {path for _, path in one.places} == {one.key}
    was = "" if named else f", was {one.key}"
    if found is not None:
        return f"now {found}{was}"
    return f"last seen as {' and '.join(seen)}{was}; it is not on this host, or no keeper has scanned since"


def _text(data: bytes) -> str:
    return data.decode(errors="backslashreplace")


def _print(one: BadRange, record: BadRecord | None, logs: str, whole: bool) -> None:
    span = one.span
    tries = "1 try" if span.tries == 1 else f"{span.tries} tries"
    unit = f"u{span.unit}" if span.unit else "a unit from before the rebuild" if span.tries else "no unit"
    say(f"{clean(one.key)} {span.begin}-{span.end}  {unit}, {tries}  {clean(span.error)}")
    say(f"  {clean(_place(one, logs))}")
    size, end = f"{span.end - span.begin:,} bytes", _line_end(one, logs)
    if end != span.end:
        size += f" of the unit, and its line continues to byte {end:,}"
    if record is None:
        say(f"  {size}; this host has no record of these bytes")
        return
    say(f"  {size}: {_shown(record)}")
    say(f"  record: {clean(record.path)}")
    lines = record.traceback.rstrip().splitlines()
    if len(lines) > SHOWN_LINES and not whole:
        say("  end of the traceback (in full with --traceback):")
        lines = lines[-SHOWN_LINES:]
    for line in lines:
        say(f"  {clean(line)}")


def _shown(record: BadRecord) -> str:
    if record.data is None:
        return "these bytes could no longer be read"
    text = clean(_text(record.data.removesuffix(b"\n")))
    if len(text) <= SHOWN_CHARS and not record.cut:
        return text
    return f"{text[:SHOWN_CHARS]}... (more with --json)"
