"""One of the processes of the profile `ledger`.

python -m heronpy.loadtest.units.ledger_client URL worker|keeper NUMBER GENERATION SECONDS
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import closing
from typing import Any, TypeVar

from heronpy.growing.identity import digest
from heronpy.ingest.ledger.client import Ledger
from heronpy.ingest.ledger.opening import open_store
from heronpy.ingest.ledger.requests import (
    Commit,
    Cut,
    Lease,
    ListFinished,
    Published,
    ReportScan,
    Request,
    SeenFile,
    ShowAlive,
    Who,
    Work,
)
from heronpy.ingest.ledger.types import Kind
from heronpy.loadtest.histogram import Histogram
from heronpy.loadtest.units.ledger import UNIT_BYTES
from heronpy.loadtest.units.pipeline import NAME

A = TypeVar("A")

#: How long one rests that finds nothing to do.
REST_S = 0.005
_GROWTH = 8 * UNIT_BYTES
_MARK = f"{digest(b'')}:0:{digest(b'')}"


class Client:
    """Asks, and notes how long what wrote something took."""

    def __init__(self, ledger: Ledger, number: str, generation: int) -> None:
        self.ledger = ledger
        self.number = number
        self.generation = generation
        self.took = Histogram()
        self.committed: list[int] = []
        self.published = 0
        self._size = 0
        self._known = ""

    def timed(self, request: Request[A]) -> tuple[A, int]:
        """The answer, and the nanoseconds until it came."""
        began = time.perf_counter_ns()
        answer = self.ledger.ask(request)
        return answer, time.perf_counter_ns() - began

    def work(self) -> bool:
        """A unit from lease to commit; whether there was one."""
        answer, took = self.timed(Lease())
        if not isinstance(answer, Work):
            return False
        self.took.record(took)
        settled, took = self.timed(Commit(answer.unit, answer.attempt, answer.generation, 1, 0.001))
        self.took.record(took)
        if settled.lost is None:
            self.committed.append(answer.unit)
        return True

    def keep(self) -> bool:
        """Growth of a file, a cut, a publication; whether there was something to do."""
        finished = self.ledger.ask(ListFinished()).units
        if finished:
            settled, took = self.timed(Published(tuple(unit.unit for unit in finished), self.generation))
            if settled.units:
                self.took.record(took)
            self.published += settled.units
        cut, took = self.timed(Cut())
        if cut.units:
            self.took.record(took)
        else:
            self._grow()
        return bool(finished or cut.units)

    def _grow(self) -> None:
        size = self._size + _GROWTH
        key = f"{self.number}.log"
        seen = SeenFile(key, 1, key, size, f"1:{self.number}", _MARK, compared=self._known)
        if size > 1 << 40:
            return
        _, took = self.timed(ReportScan((seen,)))
        self.took.record(took)
        self._size, self._known = size, _MARK


def main() -> None:
    """Work until the time is over, then report."""
    url, kind, number, generation, seconds = sys.argv[1:]
    is_worker = kind == "worker"
    with closing(open_store(url)) as store:
        who = Who(f"load-{kind}-{number}", "1", Kind.WORKER if is_worker else Kind.KEEPER)
        client = Client(Ledger(store, NAME, who), number, int(generation))
        client.ledger.ask(ShowAlive())
        print("ready", flush=True)
        if not sys.stdin.readline():
            return
        began = time.monotonic()
        until = began + float(seconds)
        step = client.work if is_worker else client.keep
        while time.monotonic() < until:
            if not step():
                time.sleep(REST_S)
        report: dict[str, Any] = {
            "seconds": time.monotonic() - began,
            "took_ns": client.took.as_json(),
            "committed": client.committed,
            "published": client.published,
        }
        print(json.dumps(report))


if __name__ == "__main__":
    main()
