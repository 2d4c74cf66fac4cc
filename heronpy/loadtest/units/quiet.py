"""Many files that do not grow: what the keepers cost, and how large the ledger is."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path

from heronpy.loadtest.checks import Check
from heronpy.loadtest.cluster import Cluster, Topology
from heronpy.loadtest.processes import Tree
from heronpy.loadtest.run import Say
from heronpy.loadtest.units import judge
from heronpy.loadtest.units.pipeline import Pipeline
from heronpy.loadtest.units.plan import Sizes

PATIENCE_S, SETTLE_S = 120.0, 2.0
KEEPER = "task units-keeper"


def quiet(where: Cluster, sizes: Sizes, number: int, say: Say) -> tuple[dict[str, float], list[Check]]:
    """The figures of one run."""
    made = Pipeline(where, f"quiet-{number}")
    files = sizes.files
    for place in range(files):
        made.log(f"quiet-{place:06d}").write_text(f"{place}\n", encoding="ascii")
    with made.running("line", unit_wait_s=0.5) as topology:
        _settled(made, files, topology)
        once = _used_bytes(made.ledger) / files
        for place in range(files):
            with made.log(f"quiet-{place:06d}").open("a", encoding="ascii") as log:
                log.write(f"{files + place}\n")
        _settled(made, 2 * files, topology)
        time.sleep(SETTLE_S)
        tree = Tree(topology.scheduler())
        tree.refresh()
        before, began = tree.cpu(), time.monotonic()
        time.sleep(sizes.seconds)
        after, seconds = tree.cpu(), time.monotonic() - began
        grown = _used_bytes(made.ledger) / files
    rows = [int(line) for _, text in made.texts() for line in text.splitlines()]
    values = {
        "quiet_cpu_percent": (after.get(KEEPER, 0.0) - before.get(KEEPER, 0.0)) / seconds * 100,
        "quiet_all_cpu_percent": (sum(after.values()) - sum(before.values())) / seconds * 100,
        "quiet_file_bytes": once,
        "quiet_grown_file_bytes": grown,
    }
    say(
        f"quiet: {files:,} files, keepers {values['quiet_cpu_percent']:.1f} % of a core,"
        f" {grown:,.0f} bytes of ledger per file"
    )
    return values, [judge.rows_check("quiet", judge.wrong_numbers(rows, 2 * files), 2 * files)]


def _settled(made: Pipeline, rows: int, topology: Topology) -> None:
    """All lines are in the table, and the ledger has no live unit."""
    made.until(lambda: made.rows() >= rows, PATIENCE_S, f"{rows:,} rows being visible", topology)
    made.until(lambda: not _live_units(made.ledger), PATIENCE_S, "the ledger having no live unit", topology)


def _read(url: str, *statements: str) -> list[int]:
    path = Path(url.removeprefix("sqlite:"))
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=10.0)) as connection:
        return [int(connection.execute(statement).fetchone()[0]) for statement in statements]


def _live_units(url: str) -> int:
    return _read(url, "SELECT count(*) FROM units")[0]


def _used_bytes(url: str) -> float:
    """Bytes of the pages that are in use."""
    pages, free, size = _read(url, "PRAGMA page_count", "PRAGMA freelist_count", "PRAGMA page_size")
    return float((pages - free) * size)
