"""One bad line in many, which raises or kills its worker: all other rows are there, and what it cost."""

from __future__ import annotations

import time
from contextlib import closing

from heronpy.ingest.checking import command_of
from heronpy.ingest.ledger.types import Span, SpanState
from heronpy.loadtest.checks import Check
from heronpy.loadtest.cluster import Cluster
from heronpy.loadtest.run import Say
from heronpy.loadtest.units import judge
from heronpy.loadtest.units.pipeline import NAME, Pipeline
from heronpy.loadtest.units.plan import Sizes

UNIT_BYTES = 4 << 20
PATIENCE_S = 120.0


def bad(where: Cluster, sizes: Sizes, number: int, say: Say) -> tuple[dict[str, float], list[Check]]:
    """The figures of one run."""
    values: dict[str, float] = {}
    checks: list[Check] = []
    for kind in ("bad", "crash"):
        attempts, seconds, found = _once(where, sizes.lines, f"{kind}-{number}", kind)
        values[f"{kind}_attempts"], values[f"{kind}_s"] = float(attempts), seconds
        checks += found
        say(f"bad: {'it kills' if kind == 'crash' else 'it raises'}: {attempts} attempts, {seconds:.1f} s")
    return values, checks


def _once(where: Cluster, lines: int, name: str, kind: str) -> tuple[int, float, list[Check]]:
    made = Pipeline(where, name)
    place = lines * 2 // 3
    before = "".join(f"{number:09d}\n" for number in range(place))
    after = "".join(f"{number:09d}\n" for number in range(place + 1, lines))
    text = f"bad {place}\n"
    made.log("clicks").write_text(before + text + after, encoding="ascii")
    with made.running(
        "bad", bad_line=text.rstrip(), deadly=kind == "crash", unit_bytes=UNIT_BYTES, unit_wait_s=0.5
    ) as topology:
        began = time.monotonic()
        made.until(lambda: made.rows() >= lines - 1, PATIENCE_S, f"{lines - 1:,} rows being visible", topology)
        seconds = time.monotonic() - began
        spans = _bad_spans(made.ledger)
    wanted = [(len(before), len(before) + len(text))]
    rows = [int(line) for _, found in made.texts() for line in found.splitlines()]
    return (
        len(made.attempts()) - len(made.seen),
        seconds,
        [
            judge.rows_check(kind, judge.wrong_numbers(rows, lines, [place]), lines - 1),
            Check(f"{kind} range", spans == wanted, f"bad ranges {_shown(spans)}, the line is at {_shown(wanted)}"),
        ],
    )


def _bad_spans(url: str) -> list[tuple[int, int]]:
    with closing(command_of(url, NAME)) as ledger:
        rows = ledger.snapshot()
    return [(row.begin, row.end) for row in rows if isinstance(row, Span) and row.state is SpanState.BAD]


def _shown(spans: list[tuple[int, int]]) -> str:
    return ", ".join(f"{begin}-{end}" for begin, end in spans[:5]) or "none"
