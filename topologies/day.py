"""The load of a day in twenty minutes, for a job with a scaler, which adapts the number of tasks.

    heron job create local topologies/day.py --slo lag=5s --max work=8
    heron job show local Day --watch

The load is 300 tuples a second at night and 4,000 at noon. `work` waits 1 ms for each tuple, so one task processes
about 900 tuples a second, and the CPU stays idle. While the file /tmp/heron-day-is-slow exists, the wait is 41 ms: more
tasks would not help, and the scaler reports this.
"""

from __future__ import annotations

import math
import os
import time
from typing import Any

from heronpy import Bolt, Grouping, Spout, TopologyBuilder, TopologyContext, Tuple

DAY_S = 1200.0
NIGHT, NOON = 300.0, 4000.0
SLOW = "/tmp/heron-day-is-slow"


class Visits(Spout):
    """Emits a day's load; a new day begins every `DAY_S` seconds."""

    outputs = ["number"]

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.number = 0
        self.owed = 0.0
        self.then = time.time()

    def next_tuple(self) -> None:
        self.count()
        for _ in range(min(100, int(self.owed))):
            self.emit([self.number])
            self.number += 1
            self.owed -= 1

    def backlog(self) -> int:
        """Return the number of tuples that are due but not emitted yet."""
        self.count()  # next_tuple is not called while a full queue holds the spout back
        return int(self.owed)

    def count(self) -> None:
        """Add the tuples that have become due since the last call."""
        now = time.time()
        part = now % DAY_S / DAY_S
        rate = NIGHT + (NOON - NIGHT) * (1 - math.cos(2 * math.pi * part)) / 2
        self.owed += rate * min(60.0, now - self.then)
        self.then = now


class Work(Bolt):
    """Simulates a call to a service for each tuple."""

    def process(self, tup: Tuple) -> None:
        time.sleep(0.041 if os.path.exists(SLOW) else 0.001)


builder = TopologyBuilder("Day")
visits = builder.add_spout("visits", Visits, par=1)
builder.add_bolt("work", Work, par=1, inputs={visits: Grouping.SHUFFLE})
builder.set_config({"scale.day_s": DAY_S})  # the scaler of a job adapts its times to the length of a day
builder.build_and_submit()
