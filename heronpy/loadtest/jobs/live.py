"""Measures the duration of changes to a running job, and the cost of many topologies in the slots of a pool."""

from __future__ import annotations

import json
import math
import shutil
import time
from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
from msgspec import Struct

from heronpy.common.folders import make_folders
from heronpy.engines.local.engine import MARK
from heronpy.loadtest.cluster import Cluster, Topology
from heronpy.loadtest.processes import machine_busy_s
from heronpy.loadtest.startup import PROGRAM, spec_of
from heronpy.proto import control_pb2, plan_pb2
from heronpy.statemgr import paths

POOL, JOB = "load-pool", "load-job"
#: Slots of the pool. A topology of two tasks needs one container and the master's container.
SLOTS = 3
READY_S, MANY_READY_S = 60.0, 600.0
#: Timeouts for a lost slot, about a tenth of the defaults; the 3 s grace period of a stop is not shortened.
FAST = ("engine.lost_s=8", "engine.fence_s=4", "engine.renew_s=1")


class Changes(Struct, frozen=True):
    """Seconds from a command until its last new process is ready."""

    simple_s: float
    """Change to a component's configuration, 95th percentile."""
    rescale_s: float
    """Change between two and four tasks, 95th percentile."""
    deploy_s: float
    """Deployment of another program, without a savepoint because the topology has no state."""


class Side(Struct, frozen=True):
    """CPU and memory of some topologies with two tasks each."""

    cpu_s: float
    pss_bytes: int


class Pooled(Struct, frozen=True):
    """The cost of topologies in a pool, and of the same topologies submitted one by one."""

    pool: Side
    alone: Side
    lost_s: float
    """Seconds from killing all processes of a slot until all tasks run again."""


def changes_cost(where: Cluster, times: int) -> Changes:
    """Measure `times` changes to a job's configuration and to its parallelism, and one deployment."""
    program = _program(where, JOB)
    with _job(where, *program) as topology:
        _until_ready(topology)
        simple = [_changed(topology, f"component_config.sink.turn={turn}") for turn in range(times)]
        rescaled = [_changed(topology, f"parallelism.sink={(4, 2)[turn % 2]}") for turn in range(times)]
        file = Path(program[0])
        file.write_text(file.read_text(encoding="utf-8") + "\n# another version\n", encoding="utf-8")
        old, began = _topology_id(topology), time.monotonic()
        where.heron("job", "deploy", where.target, JOB, *program, "--detach")
        _until_ready(topology, old_id=old)
        return Changes(_p95(simple), _p95(rescaled), time.monotonic() - began)


def pooled_cost(where: Cluster, topologies: int) -> Pooled:
    """Start topologies with `heron submit`, then as jobs in a pool; finally kill one slot."""
    names = [f"load-{number:03}" for number in range(topologies)]
    program = [_program(where, name) for name in names]
    found = [Topology(where, name, where.scratch) for name in names]
    with _many(where, names, "kill"):
        alone = _started(where, found, lambda: [where.heron("submit", where.target, *words) for words in program])
    with _pool(where, topologies), _many(where, names, "job", "stop"):
        pool = _started(where, found, lambda: [
            where.heron("job", "create", where.target, *words, "--pool", POOL, "--detach") for words in program
        ])  # fmt: skip
        lost_s = _slot_lost(where, found)
    return Pooled(pool, alone, lost_s)


def _program(where: Cluster, name: str) -> tuple[str, ...]:
    """Write a program with two idle tasks; return the command-line arguments for this program."""
    out = where.scratch / name
    make_folders(out)
    spec = {**spec_of(name, out, 2, 1, beat=False), "mode": "ATMOST_ONCE"}
    (out / "spec").write_text(json.dumps(spec), encoding="utf-8")
    shutil.copy(PROGRAM, out / PROGRAM.name)
    return str(out / PROGRAM.name), "-", "--spec", str(out / "spec")


@contextmanager
def _job(where: Cluster, *words: str) -> Iterator[Topology]:
    try:
        where.heron("job", "create", where.target, *words)
        topology = Topology(where, JOB, where.scratch)
        yield topology
        topology.disconnect()
    finally:
        with suppress(Exception):
            where.heron("job", "stop", where.target, JOB)
        where.heron("manager", "stop", where.name)


@contextmanager
def _pool(where: Cluster, topologies: int) -> Iterator[None]:
    """Create a pool; two of its slots have enough capacity for all topologies."""
    cpu, ram_gb = 4 * topologies, 4 * topologies
    settings = [word for one in FAST for word in ("--config-property", f"heron.{one}")]
    size = ("--slots", SLOTS, "--cpu", cpu, "--ram", f"{ram_gb}GB")
    where.heron("pool", "create", where.target, POOL, *size, *settings)
    try:
        yield
    finally:
        where.heron("manager", "stop", where.name)
        where.heron("pool", "delete", where.target, POOL)


@contextmanager
def _many(where: Cluster, names: list[str], *verb: str) -> Iterator[None]:
    """At the end of the test, run `heron VERB` for each name."""
    try:
        yield
    finally:
        for name in names:
            with suppress(Exception):
                where.heron(*verb, where.target, name)


def _started(where: Cluster, topologies: list[Topology], start: Callable[[], object]) -> Side:
    """Start topologies; return their memory, and the CPU of the whole machine until all tasks run."""
    before = machine_busy_s()
    start()
    for topology in topologies:
        _until_ready(topology, timeout_s=MANY_READY_S)
    used = machine_busy_s() - before
    return Side(used, sum(one.memory_full_info().pss for one in _processes("HERON_HOME", str(where.home))))


def _processes(name: str, value: str) -> list[psutil.Process]:
    """Return the processes whose environment variable `name` begins with `value`."""
    found = []
    for one in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if one.environ().get(name, "").startswith(value) and one.status() != psutil.STATUS_ZOMBIE:
                found.append(one)
    return found


def _slot_lost(where: Cluster, topologies: list[Topology]) -> float:
    """Kill all processes of the slot with the most containers; return the seconds until all tasks run again."""
    slots = json.loads(where.heron("pool", "show", where.target, POOL, "--json"))["slots"]
    slot = max(slots, key=lambda one: one["containers"])["slot"]
    marks = {one.environ()[MARK] for one in _processes(MARK, str(where.home))}
    began = time.monotonic()
    gone = set[int]()
    for mark in (one for one in marks if Path(one).name.startswith(f"{slot}-")):
        for one in _processes(MARK, mark):
            with suppress(psutil.Error):
                one.kill()
                gone.add(one.pid)
    for topology in topologies:
        _until_ready(topology, gone, MANY_READY_S)
    return time.monotonic() - began


def _until_ready(
    topology: Topology, gone: Set[int] = frozenset(), timeout_s: float = READY_S, old_id: str = ""
) -> None:
    """Wait until all tasks run, none in a process of `gone`, and the topology's id is not `old_id`."""

    def is_ready() -> bool:
        status = topology.status()
        tasks = status.tasks if status is not None else []
        is_up = bool(tasks) and all(task.state == control_pb2.TASK_RUNNING and task.pid not in gone for task in tasks)
        return is_up and (not old_id or _topology_id(topology) not in ("", old_id))

    topology.until(is_ready, timeout_s, f"the start of '{topology.name}'", every_s=0.05, may_fail=lambda: True)


def _topology_id(topology: Topology) -> str:
    found = topology.cluster.state.get(paths.execution_state(topology.name))
    return plan_pb2.ExecutionState.FromString(found[0]).topology_id if found else ""


def _changed(topology: Topology, key: str) -> float:
    began = time.monotonic()
    topology.cluster.heron("job", "set", topology.cluster.target, topology.name, key)
    took_s = time.monotonic() - began
    _until_ready(topology)
    return took_s


def _p95(seconds: list[float]) -> float:
    return sorted(seconds)[math.ceil(0.95 * len(seconds)) - 1]
