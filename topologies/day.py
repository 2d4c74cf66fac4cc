"""A day's load in twenty minutes, for a job whose number of tasks the scaler adapts to it.

    heron job create local topologies/day.py --slo lag=5s --max work=8
    heron job show local Day --watch

The load follows a day: 300 tuples a second at night, 4,000 at noon. `work` waits 1 ms for each tuple, so one task does
about 900 a second, and the machine stays idle. While the file /tmp/heron-day-is-slow exists, the wait is forty times as
long: more tasks would not help, and the scaler says so.
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
    """Emits the load of a day; a day begins at each multiple of its length."""

    outputs = ["number"]

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.number = 0
        self.owed = 0.0
        self.then = time.time()

    def next_tuple(self) -> None:
        now = time.time()
        part = now % DAY_S / DAY_S
        rate = NIGHT + (NOON - NIGHT) * (1 - math.cos(2 * math.pi * part)) / 2
        self.owed += rate * min(60.0, now - self.then)
        self.then = now
        for _ in range(min(100, int(self.owed))):
            self.emit([self.number])
            self.number += 1
            self.owed -= 1

    def backlog(self) -> int:
        """The tuples that are due and were not emitted yet."""
        return int(self.owed)


class Work(Bolt):
    """Waits for a service."""

    def process(self, tup: Tuple) -> None:
        time.sleep(0.041 if os.path.exists(SLOW) else 0.001)


builder = TopologyBuilder("Day")
visits = builder.add_spout("visits", Visits, par=1)
builder.add_bolt("work", Work, par=1, inputs={visits: Grouping.SHUFFLE})
builder.set_config({"scale.day_s": DAY_S})  # a job scales its times by it
builder.build_and_submit()
