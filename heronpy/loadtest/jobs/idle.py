"""What a manager costs with many idle jobs: one running topology represents the topology of each job."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import psutil
from msgspec import Struct

from heronpy.jobs.documents import Leaves
from heronpy.jobs.driver import own_leaves
from heronpy.jobs.manager import PARTS, acting_of
from heronpy.jobs.plans import pairs_of
from heronpy.jobs.store import Definition, Store
from heronpy.jobs.syncer import Running
from heronpy.loadtest.cluster import Cluster, Topology, submitted
from heronpy.loadtest.errors import LabError
from heronpy.loadtest.profiles import Load
from heronpy.loadtest.startup import PROGRAM
from heronpy.proto import plan_pb2, topology_pb2
from heronpy.statemgr import paths

BOLT: Final = "sink"
#: Rounds are 30 s, looks of the scaler 60 s.
LOOKED_S, MEASURED_S = 150.0, 60.0


class Costs(Struct, frozen=True):
    """Costs of the processes of a manager, with their guardians."""

    percent: float
    """Of one core."""
    uss_bytes: int
    in_sync: int


def costs(where: Cluster, jobs: int) -> Costs:
    """The CPU and memory of the managers while they watch this number of idle jobs."""
    out = where.scratch / "jobs"
    load = Load("load-jobs", "", "startup", containers=1, max_spout_pending=100, message_timeout_s=30)
    spec = {**load.spec("load-jobs", str(out)), "parameters": {"tasks": 2, "beat": False}}
    with submitted(where, PROGRAM, spec) as topology, _manager(where):
        store, names = Store(where.state), [f"Job{number:05}" for number in range(jobs)]
        for name in names:
            _copy(topology, store, name)

        def is_seen() -> bool:
            found = [store.running(name)[0] for name in names]
            return all(one is not None and one.owner for one in found) and all(acting_of(where.state, p) for p in PARTS)

        topology.until(is_seen, LOOKED_S, "a look of the manager at each job", every_s=1.0)
        processes = _processes(where)
        before = _cpu_s(processes)
        time.sleep(MEASURED_S)
        used = _cpu_s(processes) - before
        uss = sum(process.memory_full_info().uss for process in processes)
        found = [store.running(name)[0] for name in names]
    return Costs(used / MEASURED_S * 100, uss, sum(1 for one in found if one is not None and one.state == "IN_SYNC"))


@contextmanager
def _manager(where: Cluster) -> Iterator[None]:
    where.heron("manager", "start", where.name)
    try:
        yield
    finally:
        where.heron("manager", "stop", where.name)


def _copy(topology: Topology, store: Store, name: str) -> None:
    """A job in sync, whose topology is this one under another name."""
    state, old = topology.cluster.state, topology.name
    for kind, path in (
        (plan_pb2.ExecutionState, paths.execution_state), (topology_pb2.Topology, paths.topology),
        (plan_pb2.PackingPlan, paths.packing_plan), (plan_pb2.TmasterLocation, paths.tmaster),
        (plan_pb2.SchedulerLocation, paths.scheduler),
    ):  # fmt: skip
        content = state.get(path(old))
        if content is None:
            raise LabError(f"the state manager has no {path(old)}")
        message = kind.FromString(content[0])
        if isinstance(message, plan_pb2.ExecutionState):
            message.topology, message.topology_id = name, f"{name}-1"
        elif isinstance(message, topology_pb2.Topology):
            message.name, message.id = name, f"{name}-1"
            program = message
        state.create(path(name), message.SerializeToString())
    digest = store.define(Definition(program.SerializeToString(deterministic=True), {}))
    leaves: Leaves = {("definition",): digest, ("scale", "max", BOLT): 4}
    leaves = own_leaves(program, leaves) | leaves
    running = Running("", f"{name}-1", pairs_of(leaves), state="IN_SYNC", tried=pairs_of(leaves))
    layer = {"definition": digest, "scale": {"max": {BOLT: 4}}}
    store.create(name, {"provisioner": layer}, "load-test", "a job", running)


def _processes(where: Cluster) -> list[psutil.Process]:
    found = []
    for part in PARTS:
        acting = acting_of(where.state, part)
        if acting is None:
            raise LabError(f"the {part} has ended")
        found += [psutil.Process(acting.guardian), psutil.Process(acting.pid)]
    return found


def _cpu_s(processes: list[psutil.Process]) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in processes)
