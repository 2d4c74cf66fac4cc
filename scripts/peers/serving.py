"""Shared by the programs of `compare_peers.py --slow`: a source that records its stops, and steps of fixed capacity.

As in the scene `slow` of `heron load-test slow_bolt`, three steps serve CAPACITY tuples a second each, and one step
serves a tenth of that. After some seconds, all steps serve as fast as possible, and each writes its result.
"""

import time

from pacing import Arrivals, write

STEPS = 4
CAPACITY = 1000
PAYLOAD = "x" * 20
#: Seconds for which the source continues after the slow phase.
FAST_S = 5
#: Minimum nanoseconds of a recorded stop.
STOP_NS = 10_000_000


class Emits:
    """Records the stops of the source between its emits."""

    def __init__(self, seconds, prefix):
        self.prefix, self.left_ns = prefix, int(1e9 * (seconds + FAST_S))
        self.first_ns = self.last_ns = 0
        self.stops = []
        self.done = False

    def note(self):
        """Record an emit; return its time in ns."""
        now = time.monotonic_ns()
        self.first_ns = self.first_ns or now
        if self.last_ns and now - self.last_ns >= STOP_NS:
            self.stops.append((now / 1e9, (now - self.last_ns) / 1e9))
        self.last_ns = now
        if not self.done and now - self.first_ns >= self.left_ns:
            self.done = True
            write(f"{self.prefix}.source", {"stops": self.stops})
        return now


class Step(Arrivals):
    """A step; with `slow`, it serves at a tenth of the capacity."""

    def __init__(self, seconds, prefix, number, slow):
        super().__init__()
        self.seconds, self.prefix, self.number = seconds, prefix, number
        self.capacity = CAPACITY / 10 if slow else CAPACITY
        self.first_at = self.free_at = self.fast_at = 0.0

    def serve(self, emitted_ns):
        """During the slow phase, wait for the service time of one tuple. A late timer does not reduce the capacity."""
        if self.fast_at:
            return
        now = time.monotonic()
        self.first_at = self.first_at or now
        if now - self.first_at >= self.seconds:
            self.fast_at = now
            self.write(self.prefix, f"-{self.number}")
            return
        self.take(0, emitted_ns)
        # While there is no input, the capacity is lost.
        self.free_at = (self.free_at if now <= self.free_at + 0.1 else now) + 1 / self.capacity
        if self.free_at > now:
            time.sleep(self.free_at - now)

    def facts(self):
        return {"capacity": self.capacity, "first_at": self.first_at, "fast_at": self.fast_at}
