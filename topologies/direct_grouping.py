"""Direct grouping: the emitting code chooses the task that gets a tuple.

    heron submit local topologies/direct_grouping.py DirectGrouping

A dispatcher tracks the outstanding work of each worker, and sends each job to the worker with the
least work. Built-in groupings do not have this information.
"""

from __future__ import annotations

import argparse
from typing import Any

from heronpy.api.bolt.bolt import Bolt
from heronpy.api.component.component_spec import GlobalStreamId
from heronpy.api.spout.spout import Spout
from heronpy.api.stream import Grouping, Stream
from heronpy.api.topology import TopologyBuilder
from heronpy.api.topology_context import TopologyContext
from heronpy.api.tuple import Tuple


class JobSpout(Spout):
    """Emits jobs of different sizes, twenty a second."""

    outputs = ["job", "size"]

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.job = 0

    def next_tuple(self) -> None:
        self.job += 1
        self.emit([self.job, self.job * 7 % 5 + 1])
        self.wait(0.05)


class DispatchBolt(Bolt):
    """Sends each job to the worker with the least outstanding work."""

    # direct=True: each tuple of this stream goes only to the task given as `direct_task`.
    outputs = [Stream(fields=["job", "size"], name="jobs", direct=True)]

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.load = dict.fromkeys(context.get_component_tasks("worker") or [], 0)

    def process(self, tup: Tuple) -> None:
        job, size = tup.values
        worker = min(self.load, key=lambda task: self.load[task])
        self.load[worker] += size
        self.emit([job, size], stream="jobs", anchors=[tup], direct_task=worker)
        self.ack(tup)

    def process_tick(self, tup: Tuple) -> None:
        """Assume, once a second, that half of the work is done."""
        self.load = {task: load // 2 for task, load in self.load.items()}


class WorkerBolt(Bolt):
    """Adds up the sizes of its jobs."""

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.done = 0

    def process(self, tup: Tuple) -> None:
        job, size = tup.values
        self.done += size
        self.logger.info("job %d of size %d done, %d in total", job, size, self.done)
        self.ack(tup)


def direct_grouping(name: str) -> TopologyBuilder:
    """Return the topology jobs -> dispatch -> three workers."""
    builder = TopologyBuilder(name)
    jobs = builder.add_spout("jobs", JobSpout, par=1)
    builder.add_bolt(
        "dispatch",
        DispatchBolt,
        par=1,
        inputs={jobs: Grouping.SHUFFLE},
        config={"topology.tick.tuple.freq.secs": 1},
    )
    direct = {GlobalStreamId("dispatch", "jobs"): Grouping.DIRECT}
    builder.add_bolt("worker", WorkerBolt, par=3, inputs=direct)
    return builder


def main() -> None:
    """Describe the topology and submit it."""
    parser = argparse.ArgumentParser(description="Choose the receiving task in the sender.")
    parser.add_argument("name", nargs="?", default="DirectGrouping", help="name of the topology")
    direct_grouping(parser.parse_args().name).build_and_submit()


if __name__ == "__main__":
    main()
