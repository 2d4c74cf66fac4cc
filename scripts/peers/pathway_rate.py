"""Tuples at a rate through Pathway: paced Python source, subscriber in Python.

Pathway passes tuples on when it commits; COMMIT_MS is a compromise between its latency and its CPU.
"""

import sys

import pathway as pw
from pacing import Arrivals, Pace

COMMIT_MS = 5


class Numbers(pw.io.python.ConnectorSubject):
    def __init__(self, rate, seconds, prefix):
        super().__init__()
        self.pace, self.prefix = Pace(rate, seconds), prefix

    def run(self):
        pace = self.pace
        while not pace.done():
            for number, due_ns, payload in pace.take():
                self.next(number=number, due_ns=due_ns, payload=payload)
            if not pace.done():
                pace.wait()
        pace.write(self.prefix)


class Schema(pw.Schema):
    number: int
    due_ns: int
    payload: bytes


def main():
    rate, seconds, prefix = float(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
    table = pw.io.python.read(Numbers(rate, seconds, prefix), schema=Schema, autocommit_duration_ms=COMMIT_MS)
    arrivals = Arrivals()

    def changed(key, row, time, is_addition):
        if is_addition:
            arrivals.take(row["number"], row["due_ns"])

    pw.io.subscribe(table, changed)
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    arrivals.write(prefix)


if __name__ == "__main__":
    main()
