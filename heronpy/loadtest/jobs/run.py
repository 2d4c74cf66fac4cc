"""`heron load-test jobs`: the costs of jobs, pools and the scaler, and the scaler's wrong decisions, with goals.

The syncer's rounds use a stub driver without topologies. A pool's keeper decides about simulated slots. One running
topology stands in for the topologies of all idle jobs of a manager. Changes to a job, and the topologies in a pool,
are real.
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import psutil
from msgspec import Struct
from msgspec.structs import replace

from heronpy.common.errors import ConfigError
from heronpy.jobs import plans
from heronpy.jobs.documents import Leaves
from heronpy.jobs.driver import own_leaves
from heronpy.jobs.manager import LOOKS, PARTS, Syncing, acting_of
from heronpy.jobs.plans import Seen, Step, pairs_of
from heronpy.jobs.store import Definition, Store
from heronpy.jobs.syncer import Running
from heronpy.loadtest.checks import Check
from heronpy.loadtest.cluster import Cluster, Topology, submitted
from heronpy.loadtest.control_plane import topology_of
from heronpy.loadtest.errors import LabError
from heronpy.loadtest.jobs.live import changes_cost, pooled_cost
from heronpy.loadtest.jobs.model import Model, Part
from heronpy.loadtest.jobs.scenarios import DAY, HOUR, TIMES, Drawn, Scene, daily, is_worse, is_wrong, noise
from heronpy.loadtest.processes import cpu_s
from heronpy.loadtest.run import Say, repeated, run_of
from heronpy.loadtest.startup import PROGRAM, spec_of
from heronpy.pools.keeping import Decision, Keeper, SlotView, first_map
from heronpy.pools.shards import SHARDS_PER_SLOT, Answer, Map, Pool, Size, Spec, loads_of
from heronpy.proto import plan_pb2, topology_pb2
from heronpy.scaling.history import History
from heronpy.statemgr import open_state, paths

#: Goals for the default sizes, in CPU seconds, shares and bytes.
CHANGED_MAX_S, IDLE_MAX_S = 5.0, 1.0
MAP_MAX_S, LOSS_MAX_S, MEMORY_MAX_BYTES = 5.0, 2.0, 1 << 30
MANAGERS_MAX_PERCENT, MANAGERS_MAX_BYTES = 3.0, 150 << 20
WRONG_MAX, CHANGES_A_DAY_MAX = 0.01, 2
#: Goals in seconds for changes and for a lost slot with shortened timeouts; goal for the cost ratio of pool to submits.
SIMPLE_MAX_S, RESCALE_MAX_S, DEPLOY_MAX_S, SLOT_MAX_S, POOLED_MAX = 2.0, 5.0, 6.0, 10.0, 0.67
#: A folder in memory, so that the disk does not affect the results.
_IN_MEMORY: Final = Path("/dev/shm")
#: `rounds_cost`: number of tasks of a job's bolt before and after its change.
TASKS, MORE = 2, 3
#: `pool_cost`: containers per topology, without the master's; rounds over which the cost of an idle keeper is averaged.
CONTAINERS, ROUNDS = 10, 5
SLOT, TASK_CONTAINER = Size(8.0, 32 << 30), Size(0.5, 2 << 30)
#: `managers_cost`: rounds take 30 s, looks of the scaler 60 s.
LOOKED_S, MEASURED_S = 150.0, 60.0


class Sizes(Struct, frozen=True):
    changed: int = 1000
    jobs: int = 10_000
    idle: int = 100
    slots: int = 2000
    scenarios: int = 200
    days: int = 3
    times: int = 20
    pooled: int = 100


def run_jobs(where: Cluster, sizes: Sizes, repeat: int, say: Say) -> dict[str, Any]:
    """Return the result document. Raises ConfigError for a user's cluster, because the test creates jobs."""
    if not where.temporary:
        raise ConfigError("'heron load-test jobs' runs in its own cluster; leave out --cluster")

    def once(number: int, begin: str) -> dict[str, Any]:
        values: dict[str, float] = {}
        checks: list[Check] = []
        for part in (_rounds, _pool, _scenarios, _days, _managers, _changes, _pooled):
            found, told = part(where, sizes)
            values |= found
            checks += told
            say(begin + "; ".join(one.text for one in told))
        return run_of(values, checks)

    return repeated(
        once,
        repeat,
        profile="jobs",
        about="costs of jobs, pools and the scaler, and wrong decisions of the scaler",
        unit="jobs",
        options={name: getattr(sizes, name) for name in Sizes.__struct_fields__},
    )


_Part = tuple[dict[str, float], list[Check]]


def _rounds(where: Cluster, sizes: Sizes) -> _Part:
    with tempfile.TemporaryDirectory(dir=_IN_MEMORY if _IN_MEMORY.is_dir() else None) as folder:
        changed_s, idle_s, updates = rounds_cost(Path(folder), sizes.changed, sizes.jobs)
    return {"changed_round_s": changed_s, "idle_round_s": idle_s}, [
        Check("changes", updates == sizes.changed, f"{updates:,} of {sizes.changed:,} changed jobs were updated"),
        _below("changed round", changed_s, CHANGED_MAX_S, f"a syncer round with {sizes.changed:,} changed jobs"),
        _below("idle round", idle_s, IDLE_MAX_S, f"a syncer round with {sizes.jobs:,} unchanged jobs"),
    ]


def _pool(where: Cluster, sizes: Sizes) -> _Part:
    lost = max(1, sizes.slots // 20)
    found = pool_cost(sizes.slots, 10 * sizes.slots, lost)
    values = {
        "map_s": found.map_s, "keeper_round_s": found.round_s, "loss_s": found.loss_s,
        "keeper_bytes": float(found.memory_bytes),
    }  # fmt: skip
    of = f"{sizes.slots:,} slots"
    moved = f"{found.moved:,} shards of {lost:,} lost slots were reassigned, {found.left} were not"
    return values, [
        Check("shards", not found.left and found.moved > 0, moved),
        _below("map", found.map_s, MAP_MAX_S, f"the first map for {of}"),
        _below("keeper round", found.round_s, 0.1, f"a keeper round for {of}"),
        _below("loss", found.loss_s, LOSS_MAX_S, f"the loss of {lost:,} of {of}"),
        Check(
            "keeper memory", found.memory_bytes < MEMORY_MAX_BYTES,
            f"the keeper used {found.memory_bytes >> 20} MB, limit {MEMORY_MAX_BYTES >> 20} MB",
        ),
    ]  # fmt: skip


def _scenarios(where: Cluster, sizes: Sizes) -> _Part:
    wrong, worse = list[str](), list[str]()
    for seed in range(sizes.scenarios):
        drawn = Drawn(seed)
        scene = drawn.scene("act")
        wrong += [f"{drawn.kind} with seed {seed}"] if is_wrong(drawn, scene) else []
        worse += [f"seed {seed}"] if is_worse(drawn, scene) else []
    share = len(wrong) / sizes.scenarios
    text = f"{len(wrong)} of {sizes.scenarios:,} random scenarios got a wrong diagnosis, limit {WRONG_MAX:.0%}"
    return {"wrong_causes": share, "worse_lags": len(worse) / sizes.scenarios}, [
        Check("causes", share <= WRONG_MAX, f"{text}{_first(wrong)}"),
        Check("lag", not worse, f"{len(worse)} scenarios had longer waits with the scaler than without{_first(worse)}"),
    ]


def _first(found: list[str]) -> str:
    return f": {', '.join(found[:5])}" if found else ""


def _days(where: Cluster, sizes: Sizes) -> _Part:
    """Simulate similar days with 1000 to 4000 tuples per second."""
    parts = [
        Part(name="read", per_s=60_000.0),
        Part(name="work", per_s=1000.0, tasks=6, inputs={"read": 1.0}),
        Part(name="store", per_s=4000.0, tasks=2, inputs={"work": 1.0}),
    ]
    with closing(History(where.scratch / "days.minutes", TIMES)) as history:
        model = Model(parts, daily(1000, 4000), noise=noise(1, 0.02), step_s=60.0)
        scene = Scene(model, sizes.days * DAY / HOUR, minutes=history)
    by_day = Counter(int(at // DAY) for at, _ in scene.changes())
    most, broken = max(by_day.values(), default=0), scene.state.slo.broken_s
    return {"changes_a_day": float(most)}, [
        Check("changes a day", most <= CHANGES_A_DAY_MAX,
              f"at most {most} changes per day in {sizes.days} days, limit {CHANGES_A_DAY_MAX}"),
        Check("slo", not broken, f"the lag exceeded its SLO for {broken:g} s"),
    ]  # fmt: skip


def _managers(where: Cluster, sizes: Sizes) -> _Part:
    found = managers_cost(where, sizes.idle)
    of = f"the manager of {sizes.idle} idle jobs uses"
    return {"managers_percent": found.percent, "managers_bytes": float(found.uss_bytes)}, [
        Check("manager", found.in_sync == sizes.idle, f"{found.in_sync} of {sizes.idle} jobs are in sync"),
        Check("manager CPU", found.percent < MANAGERS_MAX_PERCENT,
              f"{of} {found.percent:.2f} % of a core, limit {MANAGERS_MAX_PERCENT:g} %"),
        Check("manager memory", found.uss_bytes < MANAGERS_MAX_BYTES,
              f"{of} {found.uss_bytes >> 20} MB of memory, limit {MANAGERS_MAX_BYTES >> 20} MB"),
    ]  # fmt: skip


def _changes(where: Cluster, sizes: Sizes) -> _Part:
    found = changes_cost(where, sizes.times)
    values = {"set_s": found.simple_s, "rescale_s": found.rescale_s, "deploy_s": found.deploy_s}
    of = f"p95 of {sizes.times}"
    return values, [
        _within("set", found.simple_s, SIMPLE_MAX_S, f"'job set' of a configuration ({of}) took"),
        _within("rescale", found.rescale_s, RESCALE_MAX_S, f"'job set' between 2 and 4 tasks ({of}) took"),
        _within("deploy", found.deploy_s, DEPLOY_MAX_S, "'job deploy' took"),
    ]


def _pooled(where: Cluster, sizes: Sizes) -> _Part:
    found = pooled_cost(where, sizes.pooled)
    memory, cpu = found.pool.pss_bytes / found.alone.pss_bytes, found.pool.cpu_s / found.alone.cpu_s
    of = f"{sizes.pooled} pooled topologies take"
    return {"pooled_memory": memory, "pooled_cpu": cpu, "slot_s": found.lost_s}, [
        Check("pool memory", memory <= POOLED_MAX,
              f"{of} {memory:.2f} times the memory of separate ones "
              f"({found.pool.pss_bytes >> 20} MB), limit {POOLED_MAX:g}"),
        Check("pool CPU", cpu <= POOLED_MAX,
              f"{of} {cpu:.2f} times the start CPU of separate ones ({found.pool.cpu_s:.1f} s), limit {POOLED_MAX:g}"),
        _within("slot", found.lost_s, SLOT_MAX_S, "after a slot was killed, all tasks were running again within"),
    ]  # fmt: skip


def _within(name: str, seconds: float, limit_s: float, what: str) -> Check:
    return Check(name, seconds <= limit_s, f"{what} {seconds:.2f} s, limit {limit_s:g} s")


def _below(name: str, cpu_s: float, limit_s: float, what: str) -> Check:
    return Check(name, cpu_s < limit_s, f"{what} took {cpu_s:.2f} s of CPU, limit {limit_s:g} s")


# ---- rounds of the syncer -------------------------------------------------------------------
class Stub:
    """A driver with simulated topologies, on which each step takes effect immediately."""

    def __init__(self) -> None:
        self.seen: dict[str, Seen] = {}
        self.updates = 0

    def see(self, job: str, leaves: Leaves) -> Seen:
        """See `heronpy.jobs.syncer.Driver`."""
        return self.seen[job]

    def perform(self, job: str, step: Step) -> Mapping[str, int]:
        """See `heronpy.jobs.syncer.Driver`; in this test only numbers of tasks change."""
        assert isinstance(step, plans.Update), step
        seen = self.seen[job]
        new = {one.path: one.new for one in step.differences if one.new is not None}
        self.seen[job] = replace(seen, leaves=seen.leaves | new, plan_version=seen.plan_version + 1)
        self.updates += 1
        return {}


def rounds_cost(folder: Path, changed: int, idle: int) -> tuple[float, float, int]:
    """Return the CPU seconds for a round over changed jobs and over idle jobs, and the number of updated jobs."""
    with closing(open_state("local", str(folder))) as state:
        store, stub = Store(state), Stub()
        names = [f"Job{number:05}" for number in range(max(changed, idle))]
        program = topology_of("Job", "", ("read", 1), ("work", TASKS))
        digest = store.define(Definition(program.SerializeToString(deterministic=True), {}))
        for name in names:
            _make(store, stub, name, digest)
        syncing = Syncing(store, stub, "load-test")
        for name in names:
            syncing.sync(name)  # the first sync adopts the job
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


def _make(store: Store, stub: Stub, name: str, digest: str) -> None:
    """Create a job that is in sync with a topology."""
    leaves: Leaves = {
        ("definition",): digest, ("run",): "running", ("parallelism", "read"): 1, ("parallelism", "work"): TASKS
    }  # fmt: skip
    running = Running("", f"{name}-1", pairs_of(leaves), state="IN_SYNC", tried=pairs_of(leaves))
    store.create(name, {"provisioner": {"definition": digest}}, "load-test", "a job", running)
    live = {path: value for path, value in leaves.items() if path != ("definition",)}
    stub.seen[name] = Seen(f"{name}-1", alive=True, leaves=live, plan_version=1, running_s=1e9)


# ---- a pool -------------------------------------------------------------------------------
class PoolCost(Struct, frozen=True):
    """CPU seconds and memory of a keeper, and the shards that it has moved."""

    map_s: float
    round_s: float
    loss_s: float
    memory_bytes: int
    moved: int
    """Number of shards of lost slots that were assigned to other slots."""
    left: int
    """Number of shards that belong to a lost slot or to no slot."""


def pool_cost(slots: int, containers: int, lost: int) -> PoolCost:
    """Measure the costs of a keeper whose slots answer each map immediately."""
    before = psutil.Process().memory_info().rss
    pool = Pool(slots, SHARDS_PER_SLOT * slots, SLOT)
    specs = [
        Spec(f"T{number}", f"T{number}-1", "", dict.fromkeys(range(1, CONTAINERS + 1), TASK_CONTAINER))
        for number in range(containers // CONTAINERS)
    ]
    keeper, known, now = Keeper(), first_map(pool), 0.0

    def step(gone: int = 0) -> Decision:
        nonlocal known, now
        now += 1.0
        decided = keeper.decide(known, pool, _views(slots, gone, known), loads_of(specs, {}, pool.shards), now)
        known = decided.map or known
        return decided

    began = time.process_time()
    step()
    map_s = time.process_time() - began
    step()
    began = time.process_time()
    for _ in range(ROUNDS):
        step()
    round_s = (time.process_time() - began) / ROUNDS
    owned = known.owners
    began = time.process_time()
    while step(lost).map is not None:
        pass
    loss_s = time.process_time() - began
    moved = sum(1 for old, new in zip(owned, known.owners, strict=True) if old.slot != new.slot)
    left = sum(1 for owner in known.owners if owner.slot <= lost or owner.to)
    return PoolCost(map_s, round_s, loss_s, psutil.Process().memory_info().rss - before, moved, left)


def _views(slots: int, gone: int, known: Map) -> dict[int, SlotView]:
    """Return the views of all slots; the first `gone` slots are lost."""
    acts, is_over = SlotView(1, answer=Answer(1, known.number)), SlotView(over=1)
    return {slot: is_over if slot <= gone else acts for slot in range(1, slots + 1)}


# ---- managers of idle jobs ---------------------------------------------------------------
class ManagersCost(Struct, frozen=True):
    """CPU and memory of a manager's processes and guardians, and the number of jobs in sync."""

    percent: float
    """CPU in percent of one core."""
    uss_bytes: int
    in_sync: int


def managers_cost(where: Cluster, jobs: int) -> ManagersCost:
    """Measure the managers' CPU and memory while they manage `jobs` idle jobs."""
    out = where.scratch / "jobs"
    with submitted(where, PROGRAM, spec_of("load-jobs", out, 2, 1, beat=False)) as topology, _manager(where):
        store, names = Store(where.state), [f"Job{number:05}" for number in range(jobs)]
        for name in names:
            _copy(topology, store, name)

        def is_seen() -> bool:
            found = [store.running(name)[0] for name in names]
            return all(one is not None and one.owner for one in found) and all(acting_of(where.state, p) for p in PARTS)

        topology.until(is_seen, LOOKED_S, "the manager's first look at every job", every_s=1.0)
        processes = _processes(where)
        before = cpu_s(processes)
        time.sleep(MEASURED_S)
        used = cpu_s(processes) - before
        uss = sum(process.memory_full_info().uss for process in processes)
        found = [store.running(name)[0] for name in names]
    in_sync = sum(1 for one in found if one is not None and one.state == "IN_SYNC")
    return ManagersCost(used / MEASURED_S * 100, uss, in_sync)


@contextmanager
def _manager(where: Cluster) -> Iterator[None]:
    where.heron("manager", "start", where.name)
    try:
        yield
    finally:
        where.heron("manager", "stop", where.name)


def _copy(topology: Topology, store: Store, name: str) -> None:
    """Create a job that is in sync with a copy of this topology under another name."""
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
    leaves: Leaves = {("definition",): digest, ("scale", "max", "sink"): 4}
    leaves = own_leaves(program, leaves) | leaves
    running = Running("", f"{name}-1", pairs_of(leaves), state="IN_SYNC", tried=pairs_of(leaves))
    layer = {"definition": digest, "scale": {"max": {"sink": 4}}}
    store.create(name, {"provisioner": layer}, "load-test", "a job", running)


def _processes(where: Cluster) -> list[psutil.Process]:
    found = []
    for part in PARTS:
        acting = acting_of(where.state, part)
        if acting is None:
            raise LabError(f"the {part} has ended")
        found += [psutil.Process(acting.guardian), psutil.Process(acting.pid)]
    return found
