"""Eight processes on one SQLite ledger: six lease and commit units, two report growth, cut units and publish.

The processes send the requests of workers and keepers, without reading any data, so that the ledger is the bottleneck.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

from heronpy.growing.identity import digest
from heronpy.ingest.ledger import requests
from heronpy.ingest.ledger.client import Ledger
from heronpy.ingest.ledger.reaching import open_store
from heronpy.ingest.ledger.types import Config, File, Kind, Row, Span, SpanState, Unit, UnitState
from heronpy.ingest.ledger.validate import validate
from heronpy.loadtest.checks import Check
from heronpy.loadtest.cluster import Cluster
from heronpy.loadtest.histogram import Histogram
from heronpy.loadtest.run import Say
from heronpy.loadtest.units.contenders import work_at_once
from heronpy.loadtest.units.pipeline import NAME, Pipeline
from heronpy.loadtest.units.plan import Sizes

A = TypeVar("A")

KINDS = (Kind.WORKER,) * 6 + (Kind.KEEPER,) * 2
UNIT_BYTES = 1 << 20
START_S = 60.0
FSYNCS = 100
#: Pause in seconds of a process that finds no work.
REST_S = 0.005
_GROWTH = 8 * UNIT_BYTES
_MARK = f"{digest(b'')}:0:{digest(b'')}"


def ledger(where: Cluster, sizes: Sizes, number: int, say: Say) -> tuple[dict[str, float], list[Check]]:
    """Measure one run; return its figures."""
    made = Pipeline(where, f"ledger-{number}")
    with closing(open_store(made.ledger)) as store:
        opened = Ledger(store, NAME, requests.Who("load-test", "1", Kind.COMMAND)).ask(
            requests.Open(Config(pattern=str(made.logs / "*.log"), unit_bytes=UNIT_BYTES, unit_wait_s=0.0))
        )
        processes = [
            (f"ledger {kind}", _client, made.ledger, kind, str(place), opened.generation, sizes.seconds)
            for place, kind in enumerate(KINDS)
        ]
        reports, _ = work_at_once(processes, sizes.seconds + START_S)
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
        # Compare with sequential appends, because a ledger has one writer at a time.
        "ledger_vs_fsync": 1000 / rate / fsync_ms if rate else 0.0,
    }
    say(f"ledger: {values['ledger_rate']:,.0f} transactions/s, p99 {values['ledger_p99_ms']:.1f} ms")
    return values, [Check("ledger", *judged(rows, reports))]


def judged(rows: tuple[Row, ...], reports: list[dict[str, Any]]) -> tuple[bool, str]:
    """Check that the ledger's rows agree with its answers to the processes: each commit and each byte counts once."""
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
        wrong.append(f"{done} bytes done and {live} in units, of {known} known bytes; {published} units published")
    return not wrong, "; ".join(wrong[:3]) or f"{published:,} units published once, every byte counted once"


def _fsync_ms(path: Path) -> float:
    """Return the mean milliseconds to append a page and sync it on this disk."""
    page = os.urandom(4096)
    with open(path, "wb", buffering=0) as out:
        began = time.perf_counter()
        for _ in range(FSYNCS):
            out.write(page)
            os.fsync(out.fileno())
        return (time.perf_counter() - began) / FSYNCS * 1000


class Client:
    """Sends requests to the ledger, and records the duration of each write transaction."""

    def __init__(self, ledger: Ledger, number: str, generation: int) -> None:
        self.ledger = ledger
        self.number = number
        self.generation = generation
        self.took_ns: list[int] = []
        self.committed: list[int] = []
        self.published = 0
        self._size = 0
        self._known = ""

    def timed(self, request: requests.Request[A]) -> tuple[A, int]:
        """Send a request; return the answer and the nanoseconds until it arrived."""
        began = time.perf_counter_ns()
        answer = self.ledger.ask(request)
        return answer, time.perf_counter_ns() - began

    def work(self) -> bool:
        """Process a unit from lease to commit; return False if there was no unit."""
        answer, took = self.timed(requests.Lease())
        if not isinstance(answer, requests.Work):
            return False
        self.took_ns.append(took)
        settled, took = self.timed(requests.Commit(answer.unit, answer.attempt, answer.generation, 1, 0.001))
        self.took_ns.append(took)
        if settled.lost is None:
            self.committed.append(answer.unit)
        return True

    def keep(self) -> bool:
        """Report growth, cut a unit and publish; return False if there was no work."""
        finished = self.ledger.ask(requests.ListFinished()).units
        if finished:
            settled, took = self.timed(requests.Published(tuple(unit.unit for unit in finished), self.generation))
            if settled.units:
                self.took_ns.append(took)
            self.published += settled.units
        cut, took = self.timed(requests.Cut())
        if cut.units:
            self.took_ns.append(took)
        elif self._size + _GROWTH <= 1 << 40:
            self._grow()
        return bool(finished or cut.units)

    def _grow(self) -> None:
        self._size += _GROWTH
        key = f"{self.number}.log"
        seen = requests.SeenFile(key, 1, key, self._size, f"1:{self.number}", _MARK, compared=self._known)
        self.took_ns.append(self.timed(requests.ReportScan((seen,)))[1])
        self._known = _MARK

    def until(self, seconds: float, is_worker: bool) -> dict[str, Any]:
        """Work for `seconds`; return the report."""
        began = time.monotonic()
        step = self.work if is_worker else self.keep
        while time.monotonic() < began + seconds:
            if not step():
                time.sleep(REST_S)
        took = Histogram()
        took.record(self.took_ns)
        return {
            "seconds": time.monotonic() - began,
            "took_ns": took.as_json(),
            "committed": self.committed,
            "published": self.published,
        }


def _client(url: str, kind: Kind, number: str, generation: int, seconds: float) -> Callable[[], dict[str, Any]]:
    """Register one process with the ledger; return its work."""
    store = open_store(url)
    client = Client(Ledger(store, NAME, requests.Who(f"load-{kind}-{number}", "1", kind)), number, generation)
    client.ledger.ask(requests.ShowAlive())

    def work() -> dict[str, Any]:
        with closing(store):
            return client.until(seconds, kind is Kind.WORKER)

    return work
