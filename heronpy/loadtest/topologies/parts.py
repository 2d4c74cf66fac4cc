"""The common parts of the load topologies: specification, reports of tasks, pacing.

A load topology is specified by one JSON file: `heron submit local PROGRAM.py - --spec FILE`. Each task gets its part
of the specification in its configuration. Every task writes one JSON report to the folder `out` of the specification:
a spout when it has emitted its last tuple, a bolt when its input has ended. Times are CLOCK_MONOTONIC, which all
processes on a host share; latencies between hosts cannot be measured this way.
"""

from __future__ import annotations

import argparse
import itertools
import json
import operator
import os
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from heronpy.api import api_constants
from heronpy.api.bolt.bolt import Bolt
from heronpy.api.spout.spout import Spout
from heronpy.api.state.state import HashMapState
from heronpy.api.state.stateful_component import StatefulComponent, refuse_old_state
from heronpy.api.topology import TopologyBuilder
from heronpy.api.topology_context import TopologyContext
from heronpy.common.folders import replace_file
from heronpy.loadtest.histogram import Histogram

#: Configuration key of the specification.
KEY = "load_test"
#: Interval at which sinks record their progress, without a cost per tuple.
TICK_MS = 100
MARK_S = 0.02
#: Number of lanes among which a spout's tuples are divided, evenly for 2 to 6 tasks, and the name of their log.
LANES, LOG = 120, "load"


def submit(describe: Callable[[dict[str, Any], TopologyBuilder], None], description: str | None) -> None:
    """Submit the topology specified by the file that the command line names."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--spec", required=True, help="JSON file with the specification of the load")
    spec: dict[str, Any] = json.loads(Path(parser.parse_args().spec).read_text(encoding="utf-8"))
    made = TopologyBuilder(spec["name"])
    made.set_config(
        {
            api_constants.TOPOLOGY_STMGRS: spec["containers"],
            api_constants.TOPOLOGY_RELIABILITY_MODE: spec["mode"],
            api_constants.TOPOLOGY_MAX_SPOUT_PENDING: spec["max_spout_pending"],
            api_constants.TOPOLOGY_MESSAGE_TIMEOUT_SECS: spec["message_timeout_s"],
            **spec["settings"],
        }
    )
    describe(spec, made)
    made.build_and_submit()


def config_of(spec: dict[str, Any], sink: bool = False) -> dict[str, Any]:
    ticks = {api_constants.TOPOLOGY_TICK_TUPLE_FREQ_MS: TICK_MS} if sink else {}
    return {KEY: spec, **ticks}


def acked(spec: dict[str, Any]) -> bool:
    """Whether the topology acknowledges tuples."""
    return bool(spec["mode"] == api_constants.TopologyReliabilityMode.ATLEAST_ONCE)


class Report:
    def __init__(self, config: dict[str, Any], context: TopologyContext, role: str) -> None:
        self.spec: dict[str, Any] = config[KEY]
        component, task = context.get_component_id(), context.get_task_id()
        tasks = sorted(context.get_component_tasks(component) or ())
        #: Index of this task in its component, and the component's number of tasks.
        self.place, self.tasks = tasks.index(task), len(tasks)
        self.facts: dict[str, Any] = {"component": component, "task": task, "role": role, "pid": os.getpid()}
        #: (monotonic seconds, tuples so far)
        self.timeline: list[tuple[float, int]] = []
        self._next_mark = 0.0
        #: Number of tuples that `passes` has yielded in complete passes.
        self.emitted = 0
        self._pass: Iterator[Any] = iter(())
        self._pass_size = 0

    def begin_pass(self, values: Sequence[Any]) -> Iterator[Any]:
        """Return an iterator over the values; `position` returns its progress."""
        self._pass, self._pass_size = iter(values), len(values)
        return self._pass

    def end_pass(self) -> None:
        """Record that all values of the pass have been yielded."""
        self.emitted += self._pass_size
        self._pass_size = 0

    def position(self) -> int:
        """Return the number of yielded tuples, computed from the iterator's remaining length."""
        return self.emitted + max(0, self._pass_size - operator.length_hint(self._pass))

    def mark(self, count: int, now: float | None = None) -> None:
        """Record the number of tuples so far."""
        now = time.monotonic() if now is None else now
        if now >= self._next_mark:
            self._next_mark = now + MARK_S
            self.timeline.append((now, count))

    def arrived(self, count: int, at: float) -> None:
        """Record that the last of `count` tuples arrived at this time; remove later marks, which repeat the count."""
        while self.timeline and self.timeline[-1][0] >= at:
            self.timeline.pop()
        self.timeline.append((at, count))

    def write(self, tuples: int, **facts: Any) -> None:
        """Write the report; `tuples` is the final count."""
        self.timeline.append((time.monotonic(), tuples))
        content = {**self.facts, "tuples": tuples, "timeline": self.timeline, **facts}
        name = f"{self.facts['component']}-{self.facts['task']}-{self.facts['pid']}.json"
        replace_file(Path(self.spec["out"]) / name, json.dumps(content).encode(), durable=False)


def share(total: int, lane: int) -> int:
    """Return one lane's share of `total` tuples."""
    return total // LANES + (lane < total % LANES)


def passes(values: Sequence[Any], limit: int, duration_s: float, report: Report) -> Iterator[Any]:
    """Yield the values repeatedly, until `limit` values have been yielded or, if `limit` is 0, for `duration_s`.

    The first `report.emitted` values, up to the position of a restored spout, are skipped. The clock is read once
    per pass through the values, so a value costs one step of a C iterator.
    """

    def chunks() -> Iterator[Iterable[Any]]:
        size = len(values)
        end = time.monotonic() + duration_s
        report.mark(report.emitted)
        offset = report.emitted % size
        while (report.emitted + size - offset <= limit) if limit else (time.monotonic() < end):
            yield report.begin_pass(values[offset:] if offset else values)
            offset = 0
            report.end_pass()
            report.mark(report.emitted)
        if limit > report.emitted:
            yield report.begin_pass(values[offset : offset + limit - report.emitted])
            report.end_pass()

    return itertools.chain.from_iterable(chunks())


class Pace:
    """The times at which tuples are due. The schedule does not wait for late tuples (no coordinated omission).

    Within [burst_at_s, burst_at_s + burst_s) the rate is `factor` times as high.
    """

    def __init__(self, rate: float, factor: float = 1.0, burst_at_s: float = 0.0, burst_s: float = 0.0) -> None:
        self.interval_ns = 1e9 / rate
        self.factor = factor
        self.before = round(rate * burst_at_s) if factor != 1.0 else 0
        self.within = round(rate * factor * burst_s) if factor != 1.0 else 0
        self.burst_ns = self.within * self.interval_ns / factor
        self.start_ns = 0

    def total(self, duration_s: float) -> int:
        """Return the number of tuples due within `duration_s`, including the whole burst."""
        plain = duration_s - self.burst_ns / 1e9
        return round(plain * 1e9 / self.interval_ns) + self.within

    def due_ns(self, number: int) -> int:
        """Return when tuple `number`, counted from 0, is due."""
        if number <= self.before:
            after = number * self.interval_ns
        elif number <= self.before + self.within:
            after = (self.before + (number - self.before) / self.factor) * self.interval_ns
        else:
            after = (number - self.within) * self.interval_ns + self.burst_ns
        return self.start_ns + int(after)


class Latencies:
    """Latencies of one sink, as a histogram and as percentiles per tick."""

    def __init__(self) -> None:
        self.fresh = array("q")
        self.total = Histogram()
        #: (monotonic seconds, count, p50, p99, max) in nanoseconds
        self.timeline: list[tuple[float, int, int, int, int]] = []
        #: Records one latency: a bound method, called per tuple.
        self.record = self.fresh.append

    def fold(self) -> None:
        """Add the latencies since the last call to the histogram."""
        if not self.fresh:
            return
        part = Histogram()
        part.record(self.fresh)
        self.total.merge(part)
        del self.fresh[:]
        self.timeline.append(
            (time.monotonic(), part.count, part.percentile(50), part.percentile(99), part.percentile(100))
        )

    def as_json(self) -> dict[str, Any]:
        self.fold()
        return {"histogram": self.total.as_json(), "timeline": self.timeline}


class LoadSpout(Spout, StatefulComponent):
    """A spout that ends after its last tuple; with acks, it replays failed tuples and ends after the last ack.

    Subclasses count in `self.sent` and define `message(number)`, the values of tuple `number`.
    With checkpoints, `kept` has the number of tuples of each lane that were emitted before the restored checkpoint.
    """

    sent = 0
    acked_count = 0
    replayed = 0
    ended_at = 0.0

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.report = Report(config, context, "spout")
        spec = self.report.spec
        self.tracked = acked(spec)
        self.again: list[int] = []
        self.kept = context.partitioned_state("sent")
        self.lanes = self.kept.own(LOG, LANES)
        if not self.lanes:
            raise ValueError(f"a load test has at most {LANES} tasks per spout, not {self.report.tasks}; use fewer")
        self.limit = sum(share(spec["tuples"], lane) for lane in self.lanes)
        self.duration_s = spec["duration_s"]
        self.pace = Pace(spec["rate"]) if spec["rate"] else None

    def init_state(self, stateful_state: HashMapState) -> None:
        refuse_old_state(stateful_state, "this spout")

    def pre_save(self, checkpoint_id: str) -> None:
        left = self.position()
        for lane in self.lanes:
            # Without a limit, the first lane has all tuples.
            part = min(left, share(self.report.spec["tuples"], lane)) if self.report.spec["tuples"] else left
            self.kept[LOG, lane] = part
            left -= part

    def position(self) -> int:
        return self.sent

    def kept_position(self) -> int:
        """Return the number of tuples that were emitted before the restored checkpoint."""
        return sum(self.kept.get((LOG, lane), 0) for lane in self.lanes)

    def message(self, number: int) -> list[Any]:
        """Return the values of tuple `number`, to emit the tuple again."""
        raise NotImplementedError(f"{type(self).__name__} must define message")

    def ack(self, tup_id: int) -> None:
        self.acked_count += 1

    def fail(self, tup_id: int) -> None:
        self.again.append(tup_id)

    def replay(self) -> None:
        """Emit one failed tuple again."""
        number = self.again.pop()
        self.replayed += 1
        self.emit(self.message(number), number)

    def finish_when_acked(self, **facts: Any) -> None:
        """End the input when all tuples are acked; called while there is no new tuple to emit."""
        if self.again:
            self.replay()
        elif not self.tracked or self.acked_count >= self.sent:
            self.end(**facts)
        else:
            self.note_end()

    def note_end(self) -> None:
        """Record that the last tuple has been emitted; acks may be outstanding."""
        if not self.ended_at:
            self.ended_at = time.monotonic()
            self.report.timeline.append((self.ended_at, self.sent))

    def end(self, **facts: Any) -> None:
        """Write the report and end the input."""
        self.note_end()
        self.report.write(self.sent, acked=self.acked_count, replayed=self.replayed, ended_at=self.ended_at, **facts)
        self.end_of_input()


class LoadSink(Bolt):
    """A bolt at the end of a topology, which counts received tuples."""

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.report = Report(config, context, "sink")
        self.received = 0

    def process_tick(self, tup: Any) -> None:
        self.report.mark(self.received)


class CountingSink(Bolt, StatefulComponent):
    """A bolt at the end of a topology, which counts by key; with checkpoints, the counts are its state."""

    counts: dict[Any, int]

    def init_state(self, stateful_state: Any) -> None:
        self.counts = stateful_state

    def pre_save(self, checkpoint_id: str) -> None:
        pass  # the counts are the state

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.report = Report(config, context, "sink")
        if self.report.spec["mode"] != api_constants.TopologyReliabilityMode.EFFECTIVELY_ONCE:
            self.counts = {}
