"""What every program of `compare_peers.py --rates` shares: a source that paces itself by the clock, a sink that measures.

A program takes four arguments: tuples per second, seconds, the prefix of its result files, and a program-specific one. Tuple n
is due n / rate seconds after the start; a late one is sent at once, so nothing hides a stall. The source waits with
time.sleep, which is what one writes without a framework. All processes of a host share the monotonic clock.
"""

import json
import os
import time
from array import array

#: Most tuples that a source hands over at once.
BATCH = 500
PAYLOAD = bytes(100)


class Pace:
    """The numbers that are due."""

    def __init__(self, rate, seconds):
        self.interval_ns = 1e9 / rate
        self.total = round(rate * seconds)
        self.sent = 0
        self.start_ns = 0

    def due_ns(self):
        """When the next tuple is due."""
        if not self.start_ns:
            self.start_ns = time.monotonic_ns()
        return self.start_ns + int(self.sent * self.interval_ns)

    def take(self):
        """All tuples that are due now, as (number, due_ns, payload); none when the next one is not due yet."""
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
        """Write the result of this sink; `name` tells sinks of one process apart."""
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
