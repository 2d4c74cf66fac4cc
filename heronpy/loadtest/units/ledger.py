"""Eight processes in one SQLite ledger: six lease and commit, two report growth, cut and publish.

They do what workers and keepers ask of it, without reading a byte, so that the ledger is the bottleneck.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from heronpy.ingest.ledger.client import Ledger
from heronpy.ingest.ledger.opening import open_store
from heronpy.ingest.ledger.requests import Open, Who
from heronpy.ingest.ledger.types import Config, File, Kind, Row, Span, SpanState, Unit, UnitState
from heronpy.ingest.ledger.validate import validate
from heronpy.loadtest.checks import Check
from heronpy.loadtest.cluster import Cluster, LoadTestError
from heronpy.loadtest.histogram import Histogram
from heronpy.loadtest.run import Say
from heronpy.loadtest.units.pipeline import NAME, Pipeline
from heronpy.loadtest.units.plan import Sizes

WORKERS, KEEPERS = 6, 2
UNIT_BYTES = 1 << 20
START_S = 60.0
FSYNCS = 100


def ledger(where: Cluster, sizes: Sizes, number: int, say: Say) -> tuple[dict[str, float], list[Check]]:
    """The figures of one run."""
    made = Pipeline(where, f"ledger-{number}")
    with closing(open_store(made.ledger)) as store:
        opened = Ledger(store, NAME, Who("load-test", "1", Kind.COMMAND)).ask(
            Open(Config(pattern=str(made.logs / "*.log"), unit_bytes=UNIT_BYTES, unit_wait_s=0.0))
        )
        reports = _run(made.ledger, opened.generation, sizes.seconds)
        fsync_ms = _fsync_ms(made.folder / "fsync")
        rows = store.snapshot(NAME)
    took = Histogram.merged(report["took_ns"] for report in reports)
    rate = took.count / max(report["seconds"] for report in reports)
    values = {
        "ledger_rate": rate,
        "ledger_p50_ms": took.percentile(50) / 1e6,
        "ledger_p99_ms": took.percentile(99) / 1e6,
        "ledger_max_ms": took.max / 1e6,
        "ledger_fsync_ms": fsync_ms,
        # One after the other: a ledger has one writer at a time.
        "ledger_vs_fsync": 1000 / rate / fsync_ms if rate else 0.0,
    }
    say(f"ledger: {values['ledger_rate']:,.0f} transactions/s, p99 {values['ledger_p99_ms']:.1f} ms")
    return values, [Check("ledger", *judged(rows, reports))]


def judged(rows: tuple[Row, ...], reports: list[dict[str, Any]]) -> tuple[bool, str]:
    """Whether the rows are what the processes were told: each commit counts once, and every byte is somewhere once."""
    wrong = list(validate(rows))
    committed = [unit for report in reports for unit in report["committed"]]
    published = sum(report["published"] for report in reports)
    waiting = sum(isinstance(row, Unit) and row.state is UnitState.COMMITTED for row in rows)
    known = sum(row.cut for row in rows if isinstance(row, File))
    done = sum(row.end - row.begin for row in rows if isinstance(row, Span) and row.state is SpanState.DONE)
    live = sum(row.bytes for row in rows if isinstance(row, Unit))
    if len(set(committed)) != len(committed):
        wrong.append(f"{len(committed) - len(set(committed))} units were committed twice")
    if len(committed) != published + waiting:
        wrong.append(f"{len(committed)} commits, but {published} published and {waiting} waiting")
    if done + live != known or done != published * UNIT_BYTES:
        wrong.append(f"{done} bytes done and {live} in units, of {known}; {published} units published")
    return not wrong, "; ".join(wrong[:3]) or f"{published:,} units published once, every byte in one place"


def _fsync_ms(path: Path) -> float:
    """What one page that is appended and synced takes on this disk."""
    page = os.urandom(4096)
    with open(path, "wb", buffering=0) as out:
        began = time.perf_counter()
        for _ in range(FSYNCS):
            out.write(page)
            os.fsync(out.fileno())
        return (time.perf_counter() - began) / FSYNCS * 1000


def _run(url: str, generation: int, seconds: float) -> list[dict[str, Any]]:
    kinds = ["worker"] * WORKERS + ["keeper"] * KEEPERS
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "heronpy.loadtest.units.ledger_client", url, kind, str(place), str(generation),
             str(seconds)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for place, kind in enumerate(kinds)
    ]  # fmt: skip
    try:
        for process in processes:
            assert process.stdout is not None
            process.stdout.readline()  # it is ready, or has ended
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        reports = []
        for process in processes:
            said, errors = process.communicate(timeout=seconds + START_S)
            if process.returncode:
                raise LoadTestError(f"a process of the profile 'ledger' failed: {errors.strip()[-2000:]}")
            reports.append(json.loads(said))
        return reports
    except (BrokenPipeError, subprocess.TimeoutExpired) as error:
        raise LoadTestError(f"a process of the profile 'ledger' failed or hangs: {error}") from None
    finally:
        for process in processes:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()
