"""Rounds of the syncer over jobs without running topologies: the driver observes a stub."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from heronpy.api.api_constants import TOPOLOGY_COMPONENT_PARALLELISM
from heronpy.jobs import plans
from heronpy.jobs.documents import Leaves
from heronpy.jobs.manager import LOOKS, Syncing
from heronpy.jobs.plans import Seen, Step, pairs_of
from heronpy.jobs.store import Definition, Store
from heronpy.jobs.syncer import Running
from heronpy.plan.component_config import set_key
from heronpy.proto import topology_pb2
from heronpy.statemgr import open_state

#: How many tasks the bolt of a job has, and has after its change.
TASKS: Final = 2
MORE: Final = 3


class Stub:
    """Topologies on which each step takes effect at once."""

    def __init__(self) -> None:
        self.seen: dict[str, Seen] = {}
        self.updates = 0

    def see(self, job: str, leaves: Leaves) -> Seen:
        """As `heronpy.jobs.syncer.Driver`."""
        return self.seen[job]

    def perform(self, job: str, step: Step) -> Mapping[str, int]:
        """See `heronpy.jobs.syncer.Driver`; these jobs only change their numbers of tasks."""
        assert isinstance(step, plans.Update), step
        seen = self.seen[job]
        new = {one.path: one.new for one in step.differences if one.new is not None}
        self.seen[job] = replace(seen, leaves=seen.leaves | new, plan_version=seen.plan_version + 1)
        self.updates += 1
        return {}


def costs(folder: Path, changed: int, idle: int) -> tuple[float, float, int]:
    """CPU seconds of a round of `changed` jobs with a change each, of one of `idle` jobs, and how many were updated."""
    with closing(open_state("local", str(folder))) as state:
        store, stub = Store(state), Stub()
        names = [f"Job{number:05}" for number in range(max(changed, idle))]
        digest = store.define(_program())
        for name in names:
            _make(store, stub, name, digest)
        syncing = Syncing(store, stub, "load-test")
        for name in names:
            syncing.sync(name)  # the first time each is taken over
        idle_s = sum(_cpu_of(syncing, names[:idle], False) for _ in range(LOOKS)) / LOOKS
        for name in names[:changed]:
            version = store.get(name).versions["oncall"]
            store.set(name, "oncall", {"parallelism": {"work": MORE}}, version, "load-test", "a change")
        return _cpu_of(syncing, names[:changed], True), idle_s, stub.updates


def _cpu_of(syncing: Syncing, names: list[str], is_news: bool) -> float:
    began = time.process_time()
    for name in names:
        syncing.sync(name, is_news)
    return time.process_time() - began


def _program() -> Definition:
    topology = topology_pb2.Topology(id="", name="Job", state=topology_pb2.RUNNING)
    for part, name, tasks in ((topology.spouts.add(), "read", 1), (topology.bolts.add(), "work", TASKS)):
        part.comp.name, part.comp.spec, part.comp.class_name = name, topology_pb2.PYTHON_CLASS_NAME, f"stub.{name}"
        set_key(part.comp.config, TOPOLOGY_COMPONENT_PARALLELISM, str(tasks))
        output = part.outputs.add()
        output.stream.id, output.stream.component_name = "default", name
        output.schema.keys.add(key="value", type=topology_pb2.OBJECT)
    step = topology.bolts[0].inputs.add(gtype=topology_pb2.SHUFFLE)
    step.stream.id, step.stream.component_name = "default", "read"
    return Definition(topology.SerializeToString(deterministic=True), {})


def _make(store: Store, stub: Stub, name: str, digest: str) -> None:
    """A job that is in sync with a topology."""
    leaves: Leaves = {
        ("definition",): digest, ("run",): "running", ("parallelism", "read"): 1, ("parallelism", "work"): TASKS
    }  # fmt: skip
    running = Running("", f"{name}-1", pairs_of(leaves), state="IN_SYNC", tried=pairs_of(leaves))
    store.create(name, {"provisioner": {"definition": digest}}, "load-test", "a job", running)
    live = {path: value for path, value in leaves.items() if path != ("definition",)}
    stub.seen[name] = Seen(f"{name}-1", alive=True, leaves=live, plan_version=1, running_s=1e9)
