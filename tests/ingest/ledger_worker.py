"""A worker as a process of its own: leases and commits until nothing is left, and prints what it has committed.

`python -m tests.ingest.ledger_worker URL TASK`
"""

from __future__ import annotations

import sys
import time

from heronpy.common.errors import LedgerAwayError
from heronpy.ingest.ledger.client import Ledger
from heronpy.ingest.ledger.reaching import open_store
from heronpy.ingest.ledger.requests import Commit, Idle, Lease, Request, Who, Work
from heronpy.ingest.ledger.types import Kind


def main(url: str, task: str) -> None:
    ledger = Ledger(open_store(url), "p", Who(task, "1", Kind.WORKER, container=task))

    def ask(request: Request[object]) -> object:
        while True:
            try:
                return ledger.ask(request)
            except LedgerAwayError:
                time.sleep(0.05)

    while True:
        work = ask(Lease())
        if isinstance(work, Idle):
            if work.open == 0:
                return
            time.sleep(0.01)
        elif isinstance(work, Work):
            answer = ask(Commit(work.unit, work.attempt, work.generation, 1, 0.01))
            if getattr(answer, "lost", "") is None:
                print(work.unit, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
