"""Every shape of topology, real processes: the tallies at the end are exact, and nothing is left on the way."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from tests.runtime.programs.shapes import WORDS
from tests.support.command import Heron
from tests.support.inside import when_totals

PROGRAMS = Path(__file__).parent / "programs"
COUNT = 1000


def tally(out: Path, component: str) -> tuple[Counter[str], list[Counter[str]], int]:
    """All counts of a component, those of each task, and tuples out of order."""
    found = [json.loads(path.read_text()) for path in sorted(out.glob(f"{component}.*.json"))]
    parts = [Counter(one["counts"]) for one in found]
    return sum(parts, Counter()), parts, sum(one["disorder"] for one in found)


def disjoint(parts: list[Counter[str]]) -> bool:
    return sum(len(part) for part in parts) == len(set().union(*parts))


@pytest.mark.parametrize(
    ("mode", "containers"), [pytest.param("ATMOST_ONCE", 1, marks=pytest.mark.heavy), ("ATLEAST_ONCE", 2)]
)
def test_all_shapes_are_exact(heron: Heron, out: Path, mode: str, containers: int) -> None:
    words = ("--out", out, "--count", COUNT, "--guarantee", mode, "--containers", containers)
    heron.submit(PROGRAMS / "shapes.py", "shapes", *words)
    heron.when_state("shapes", "FINISHED")

    words = Counter(WORDS[n % len(WORDS)] for n in range(COUNT))
    found, parts, _ = tally(out, "word_count")
    assert found == words and disjoint(parts)
    sentences = Counter(w for n in range(COUNT) for w in WORDS[n % 7 : n % 7 + 5])
    found, parts, _ = tally(out, "split_count")
    assert found == sentences and disjoint(parts)

    disorder = 0
    found, parts, bad = tally(out, "fan_all")
    assert [sum(part.values()) for part in parts] == [COUNT] * 3
    disorder += bad
    found, parts, bad = tally(out, "fan_one")
    assert sum(found.values()) == COUNT and all(parts)
    disorder += bad
    for component in ("wide_tally", "chosen"):
        found, parts, bad = tally(out, component)
        assert list(found.values()) == [COUNT] * 4 and all(parts)
        disorder += bad
    found, _, bad = tally(out, "deep_tally")
    assert sum(found.values()) == COUNT
    disorder += bad
    found, parts, bad = tally(out, "two_tally")
    assert list(found.values()) == [COUNT]
    disorder += bad
    found, parts, _ = tally(out, "workers")
    assert found == Counter({str(n): 1 for n in range(COUNT)})
    assert [len(part) for part in parts] == [len(range(k, COUNT, 3)) for k in range(3)]
    assert disorder == 0

    # From the metrics: emitted = delivered + discarded, with nothing on its way any more.
    when_totals(
        heron,
        "shapes",
        lambda t: (
            t.emitted == t.executed == t.taken_from_tasks == t.consumed_by_tasks
            and t.discarded == t.in_flight == t.queued == 0
        ),
        "emitted = delivered",
    )
