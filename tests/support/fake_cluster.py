"""Simulated topologies, of which only the topology masters run: with state, changing figures and real RPC.

    python -m tests.support.fake_cluster HOME --topologies 100 --components 20 --tasks 100

runs until its standard input ends, and prints a line when all masters answer. Figures change every second, as in a
loaded topology. They depend only on the time and the task's number.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf.message import Message

from heronpy.common import settings
from heronpy.common.ids import edge_id, instance_id
from heronpy.health.signals import AllHotSpots
from heronpy.net.answers import packed
from heronpy.net.rpc import body_of
from heronpy.net.rpc_loop import ControlServer
from heronpy.proto import control_pb2, plan_pb2, topology_pb2
from heronpy.statemgr import open_state, paths
from heronpy.tmaster.minutes import SERIES
from heronpy.views.findings import Finding, Verdict
from heronpy.views.load import ComponentLoad, EdgeLoad
from heronpy.views.overview import totals_of
from heronpy.views.past import Series, Slow, Timeline, metric_name
from tests.support.launch import launch_spec
from tests.support.views import component_load, events, load_answer
from tests.support.wires import new_endpoint

PER_CONTAINER = 10
#: One component in this number is a spout.
SPOUTS = 10
MINUTES = 120
PLAN_VERSION = 3
WINDOW_S = 10
BUCKETS_MS = (0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)


@dataclass(frozen=True)
class Shape:
    """The size of a topology."""

    components: int = 20
    tasks: int = 100


def noise(number: int, second: int) -> float:
    """Return a value from 0 to 1 that differs for each task and second."""
    mixed = (number * 2654435761 + second * 40503 + 12345) & 0xFFFFFFFF
    mixed ^= mixed >> 15
    mixed = (mixed * 2246822519) & 0xFFFFFFFF
    return (mixed ^ (mixed >> 13)) % 10_000 / 10_000


def smooth(number: int, second: int) -> float:
    """Return the mean of the noise over the window of a rate, because a topology master reports such means."""
    return sum(noise(number, second - ago) for ago in range(WINDOW_S)) / WINDOW_S


class FakeTopology:
    """A simulated topology: its records, and the answers of its topology master."""

    def __init__(self, name: str, shape: Shape) -> None:
        self.name = name
        self.id = f"{name}-1"
        self.spouts = max(1, shape.components // SPOUTS)
        self.components = [f"{'spout' if n < self.spouts else 'bolt'}-{n:02d}" for n in range(shape.components)]
        self.tasks = [(task, self.components[task % shape.components]) for task in range(shape.tasks)]
        self.submitted_at = time.time() - 3600.0
        self.definition = self._definition()
        self.packing = plan_pb2.PackingPlan(id=name, version=1)
        for task, component in self.tasks:
            if task % PER_CONTAINER == 0:
                container = self.packing.containers.add(id=task // PER_CONTAINER + 1)
            container.instances.add(component=component, task_id=task + 1, component_index=task // shape.components)
        self.physical = plan_pb2.PhysicalPlan(version=PLAN_VERSION)
        self.physical.topology.CopyFrom(self.definition)
        for one in self.packing.containers:
            self.physical.stmgrs.add(id=f"stmgr-{one.id}", container=one.id, host="here", epoch=1, pid=10 + one.id)
            for task in one.instances:
                name = instance_id(one.id, task.component, task.task_id)
                self.physical.instances.add(
                    instance_id=name, task_id=task.task_id, component=task.component, container=one.id
                )

    def _definition(self) -> topology_pb2.Topology:
        topology = topology_pb2.Topology(id=self.id, name=self.name, state=topology_pb2.RUNNING)
        for number, name in enumerate(self.components):
            one = topology.spouts.add() if number < self.spouts else topology.bolts.add()
            one.comp.name, one.comp.class_name = name, f"topo.{name.title()}"
            count = sum(component == name for _, component in self.tasks)
            one.comp.config.kvs.add(key="topology.component.parallelism", value=str(count))
            output = one.outputs.add()
            output.stream.id, output.stream.component_name = "default", name
            output.schema.keys.add(key="word", type=topology_pb2.OBJECT)
            if number >= self.spouts:
                # Chains of three components, so that the graph has several levels.
                item = one.inputs.add(gtype=topology_pb2.FIELDS if number % 2 else topology_pb2.SHUFFLE)
                item.stream.id = "default"
                item.stream.component_name = self.components[max(number - 3, number % self.spouts)]
                if number % 2:
                    item.grouping_fields.keys.add(key="word", type=topology_pb2.OBJECT)
        topology.topology_config.kvs.add(key="topology.stmgrs", value=str((len(self.tasks) - 1) // PER_CONTAINER + 1))
        return topology

    # ---- answers ------------------------------------------------------------------------------

    def answer(self, _: bytes, envelope: control_pb2.Envelope) -> Message:
        """Return the body of the answer to a request."""
        name, body = body_of(envelope)
        made: dict[str, Any] = {
            "get_load": self._load, "get_status": self._status, "get_metrics": self._metrics,
            "get_timeline": self._timeline,
        }  # fmt: skip
        if name in made:
            reply: Message = made[name](body)
            return reply
        empty: dict[str, Message] = {
            "get_events": packed(events()), "get_exceptions": control_pb2.ExceptionsReply(),
            "get_checkpoints": control_pb2.CheckpointsReply(), "get_containers": control_pb2.ContainersReply(),
            "get_slow": packed(Slow(tuples=[])), "get_hot_spots": packed(AllHotSpots(tasks={})),
        }  # fmt: skip
        return empty.get(name, control_pb2.Ok(text="done"))

    def _load(self, request: control_pb2.GetLoad) -> Message:
        now, each = time.time(), len(self.tasks) // len(self.components)
        edges = []
        for bolt in self.definition.bolts:
            rate = 1000.0 * each * (0.95 + 0.1 * smooth(self.components.index(bolt.comp.name), int(now)))
            source = bolt.inputs[0].stream.component_name
            edges.append(EdgeLoad(id=edge_id(source, "", bolt.comp.name), tuples_per_s=rate))
        rows = [self._row(number, name, each, int(now)) for number, name in enumerate(self.components)]
        acked = int(1e6 + 1000 * each * (now - self.submitted_at))
        healthy = Finding(Verdict.HEALTHY, figures={"arrival": 1000.0, "held": 0, "busy": 0.5})
        answer = load_answer(
            *rows, topology_id=self.id, state="RUNNING", plan_version=PLAN_VERSION, uptime_s=now - self.submitted_at,
            at=now, window_s=10.0, since=self.submitted_at, held=0.0, edges=edges, findings=[healthy], found_at=now,
            plan=self.physical.SerializeToString() if request.plan_version < PLAN_VERSION else None,
            totals=totals_of(control_pb2.TupleTotals(acked=acked), {}),
            latency_p99_s=max((one.complete_p99_s or 0.0 for one in rows), default=None),
        )  # fmt: skip
        return packed(answer)

    def _row(self, number: int, name: str, each: int, second: int) -> ComponentLoad:
        spout, wobble, queue = number < self.spouts, smooth(number, second), noise(number, second)
        busy, emitted = 0.4 + 0.2 * wobble, 1000.0 * each * (0.95 + 0.1 * wobble)
        worst = instance_id(number // PER_CONTAINER + 1, name, number + 1)
        mine: dict[str, Any] = {
            "kind": "spout", "acked_per_s": emitted, "pending": int(500 * queue), "complete_p50_s": 0.004,
            "complete_p99_s": 0.02 + 0.01 * wobble,
        } if spout else {
            "executed_per_s": emitted, "queue_tuples": int(100 * queue), "queue_bytes": int(20_000 * queue),
            "queue_bytes_max": int(20_000 * queue), "fullest": worst, "queue_bound_bytes": 1 << 20,
        }  # fmt: skip
        return component_load(
            name, tasks=each, up=each, emitted_per_s=emitted, busy=busy, blocked=0.0, idle=1 - busy, busiest=worst,
            busy_max=busy + 0.1, blocked_max=0.0, most_blocked=worst, cpu=each * busy * 0.9, largest=worst,
            memory_bytes=each * (60 << 20), memory_bytes_max=61 << 20, memory_limit_bytes=512 << 20, restarts=0,
            latency_p50_s=2e-5, latency_p99_s=1e-3 * (1 + wobble), dead_letters=0, lost=0, **mine,
        )  # fmt: skip

    def _status(self, _: control_pb2.GetStatus) -> control_pb2.StatusReply:
        now = time.time()
        second = int(now)
        reply = control_pb2.StatusReply(
            topology=self.name, topology_id=self.id, lifecycle=control_pb2.LIFE_RUNNING, plan_version=PLAN_VERSION,
            uptime_s=now - self.submitted_at, plan=self.physical,
        )  # fmt: skip
        executors = {}
        for one in self.packing.containers:
            executor = reply.executors.add(container=one.id, epoch=1, pid=1000 + one.id, host="here")
            executor.processes.add(
                name=f"stmgr-{one.id}", pid=2000 + one.id, state=control_pb2.PROC_RUNNING, cpu_s=second % 10_000 * 0.2,
                rss_bytes=40 << 20, started_at=self.submitted_at,
            )  # fmt: skip
            executors[one.id] = executor
        for place in self.physical.instances:
            wobble = noise(place.task_id, second)
            reply.tasks.add(
                task_id=place.task_id, component=place.component, instance_id=place.instance_id, epoch=1,
                state=control_pb2.TASK_RUNNING, pid=3000 + place.task_id, in_queue_tuples=int(20 * wobble),
                in_queue_bytes=int(4000 * wobble), loop_age_s=wobble * 0.05, pending=int(50 * wobble),
            )  # fmt: skip
            executors[place.container].processes.add(
                name=place.instance_id, task_id=place.task_id, pid=3000 + place.task_id,
                state=control_pb2.PROC_RUNNING, cpu_s=second % 10_000 * 0.5, started_at=self.submitted_at,
                rss_bytes=(60 << 20) + (second // 10 + place.task_id) % 64 * 8192,
            )  # fmt: skip
        return reply

    def _metrics(self, request: control_pb2.GetMetrics) -> control_pb2.MetricsReply:
        second, over_s = int(time.time()), request.interval_s or 60.0
        reply = control_pb2.MetricsReply(interval_s=over_s)
        for place in self.physical.instances:
            if request.component not in ("", place.component):
                continue
            report = reply.reports.add(
                process=place.instance_id, task_id=place.task_id, component=place.component, container=place.container
            )
            wobble = smooth(place.task_id, second)
            rate, busy = 1000.0 * (0.95 + 0.1 * wobble), 0.4 + 0.2 * wobble
            spout = place.component.startswith("spout")
            values = {
                "__emit-count": rate * over_s, "__busy-time-ns": busy * over_s * 1e9, "__blocked-time-ns": 0.0,
                "__idle-time-ns": (1 - busy) * over_s * 1e9, "__py-user-cpu-time-secs": busy * 0.8 * over_s,
                "__py-sys-cpu-time-secs": busy * 0.1 * over_s,
                "__ack-count" if spout else "__execute-count": rate * over_s,
            }  # fmt: skip
            for name, value in values.items():
                if not request.names or name in request.names:
                    report.samples.add(name=name, type=control_pb2.Sample.COUNTER, value=value)
            latency = "__next-tuple-latency" if spout else "__execute-latency"
            if not request.names or latency in request.names:
                sample = report.samples.add(name=latency, type=control_pb2.Sample.HISTOGRAM, count=1000, sum=1e9)
                for part, le in enumerate(BUCKETS_MS):
                    sample.buckets.add(le=le * 1e6, count=min(1000, 200 * (part + 1)))
        return reply

    def _timeline(self, request: control_pb2.GetTimeline) -> Message:
        now = time.time()
        first = max(request.since, self.submitted_at) // 60 * 60
        points = max(0, min(request.points or MINUTES, MINUTES, int((now - first) / 60)))
        series = [
            Series(
                component=component,
                metric=metric_name(name),
                values=[_LEVELS[name] * (0.9 + 0.2 * noise(minute, 7)) for minute in range(points)],
            )
            for component in ["", *self.components]
            if not request.components or component in request.components
            for name in SERIES
            if (not request.names or name in request.names)
            and (name in _LEVELS)
            and (component == "") == (name == "held")
        ]
        times = [first + 60.0 * point for point in range(points)]
        return packed(Timeline(times=times, step_s=60.0, series=series, kept_from=self.submitted_at))

    def close(self) -> None:
        """Do nothing, because there is nothing to close."""


#: Series with figures, and their typical values.
_LEVELS = {
    "emitted": 5000.0, "executed": 5000.0, "busy": 0.5, "blocked": 0.0, "idle": 0.5, "busiest": 0.6, "cpu": 0.5,
    "queue_bytes": 10_000.0, "execute_p50_s": 2e-5, "execute_p99_s": 1e-3, "memory_bytes": 3e8, "held": 0.0,
    "tasks": 25.0, "up": 25.0,
}  # fmt: skip


def _register(home: Path, one: FakeTopology, endpoint: str) -> Any:
    """Write the topology's state; return the state manager that owns the ephemeral nodes."""
    working = home / "topologies" / "local" / "me" / one.name
    (working / "log-files").mkdir(parents=True, mode=0o700)
    root = str(home / "state" / "local")
    launch = launch_spec(
        one.name, one.id, working, sockets_dir="/nonexistent", state_root=root, release="1",
        settings=settings.resolve("local", [], {}, {}, []).settings,
    )  # fmt: skip
    launch.save(working / "launch.json")
    record = plan_pb2.ExecutionState(
        topology=one.name, topology_id=one.id, cluster="local", role="me", environ="default", submission_user="me",
        working_dir=str(working), launch_file=str(working / "launch.json"), submitted_at=one.submitted_at,
    )  # fmt: skip
    state = open_state("local", root)
    here = plan_pb2.TmasterLocation(topology=one.name, endpoint=endpoint)
    there = plan_pb2.SchedulerLocation(topology=one.name, endpoint=endpoint)
    for path, message in (
        (paths.topology(one.name), one.definition), (paths.packing_plan(one.name), one.packing),
        (paths.physical_plan(one.name), one.physical), (paths.execution_state(one.name), record),
    ):  # fmt: skip
        state.create(path, message.SerializeToString())
    state.create(paths.tmaster(one.name), here.SerializeToString(), ephemeral=True)
    state.create(paths.scheduler(one.name), there.SerializeToString(), ephemeral=True)
    return state


async def serve(home: Path, topologies: Iterable[FakeTopology], ready: Any, over: asyncio.Event) -> None:
    """Answer for all topologies until `over`; call `ready()` when all can answer."""
    with ExitStack() as stack:
        for one in topologies:
            server = ControlServer([new_endpoint(one.id)], one.answer)
            stack.callback(server.close)
            stack.callback(_register(home, one, server.endpoints[0]).close)
        ready()
        await over.wait()


@contextmanager
def running(home: Path, topologies: int = 1, components: int = 20, tasks: int = 100) -> Iterator[None]:
    """Run the masters in a separate process, so that their CPU does not count as the client's."""
    command = [sys.executable, "-m", "tests.support.fake_cluster", str(home), "--topologies", str(topologies)]
    command += ["--components", str(components), "--tasks", str(tasks)]
    repo = Path(__file__).resolve().parents[2]
    process = subprocess.Popen(command, cwd=repo, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise RuntimeError("the fake topologies did not start")
        yield
    finally:
        process.communicate()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("home", type=Path)
    parser.add_argument("--topologies", type=int, default=1)
    parser.add_argument("--components", type=int, default=20)
    parser.add_argument("--tasks", type=int, default=100)
    given = parser.parse_args()
    os.environ["HERON_HOME"] = str(given.home)
    shape = Shape(given.components, given.tasks)
    fakes = [FakeTopology(f"fake-{number:03d}", shape) for number in range(given.topologies)]

    async def run() -> None:
        over = asyncio.Event()
        asyncio.get_running_loop().add_reader(sys.stdin.fileno(), over.set)
        await serve(given.home, fakes, lambda: print("ready", flush=True), over)

    asyncio.run(run())


if __name__ == "__main__":
    main()
