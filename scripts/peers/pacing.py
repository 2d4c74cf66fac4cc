"""Shared by the programs of `compare_peers.py --rates`: a source paced by the clock, and a sink that measures.

A program takes four arguments: tuples per second, seconds, the prefix of its result files, and a program-specific
argument. Tuple n is due n / rate seconds after the start; a late tuple is sent immediately and keeps its due time, so a
stall counts as latency. The source waits with time.sleep. All processes of a host share the monotonic clock.
"""

import json
import os
import time
from array import array

#: Maximum number of tuples that a source returns at a time.
BATCH = 500
PAYLOAD = bytes(100)


class Pace:
    """Computes which tuples are due."""

    def __init__(self, rate, seconds):
        self.interval_ns = 1e9 / rate
        self.total = round(rate * seconds)
        self.sent = 0
        self.start_ns = 0

    def due_ns(self):
        """Return the time at which the next tuple is due."""
        if not self.start_ns:
            self.start_ns = time.monotonic_ns()
        return self.start_ns + int(self.sent * self.interval_ns)

    def take(self):
        """Return the tuples that are due now, as (number, due_ns, payload)."""
        found = []
        now = time.monotonic_ns()
        while self.sent < self.total and len(found) < BATCH and (due := self.due_ns()) <= now:
            found.append((self.sent, due, PAYLOAD))
            self.sent += 1
        return found

    def wait(self):
        """Sleep until the next tuple is due."""
        time.sleep(max(0, self.due_ns() - time.monotonic_ns()) / 1e9)

    def done(self):
        return self.sent >= self.total

    def write(self, prefix):
        """Write the result of the source."""
        write(
            f"{prefix}.source",
            {"started_at": self.start_ns / 1e9, "ended_at": time.monotonic_ns() / 1e9, "sent": self.sent},
        )


class Arrivals:
    """The tuples of one sink."""

    def __init__(self):
        self.latencies = array("q")
        self.numbers = 0
        self.last_ns = 0

    def take(self, number, due_ns):
        self.last_ns = now = time.monotonic_ns()
        self.latencies.append(now - due_ns)
        self.numbers += number

    def write(self, prefix, name=""):
        """Write the result of this sink; `name` distinguishes the sinks of one process."""
        path = f"{prefix}.sink-{os.getpid()}{name}"
        with open(f"{path}.latencies", "wb") as file:
            self.latencies.tofile(file)
        received = {"received": len(self.latencies), "numbers": self.numbers, "last_at": self.last_ns / 1e9}
        write(path, {**received, **self.facts()})

    def facts(self):
        return {}


def write(path, content):
    with open(f"{path}.json", "w") as file:
        json.dump(content, file)
