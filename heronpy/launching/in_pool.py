"""Settings and checks for starting a pool, or a topology in the slots of a pool."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping
from typing import Final

from msgspec.structs import replace

from heronpy.clusters import pools, takedown
from heronpy.clusters.errors import ClusterError, NotThereError, RequestError
from heronpy.clusters.room import size_problem, slot_sizes
from heronpy.clusters.session import Session
from heronpy.common.engine_settings import EngineSettings
from heronpy.common.errors import DeadlineError, HeronError, NodeExistsError, NoNodeError, TopologyError
from heronpy.common.folders import heron_home
from heronpy.common.ids import topology_name_problem
from heronpy.common.settings import settings_for
from heronpy.common.topology_keys import TOPOLOGY_RELIABILITY_MODE
from heronpy.engines.lease import Fencing
from heronpy.launching import on_engine
from heronpy.launching.model import Planned
from heronpy.net import curve
from heronpy.packing.demand import ResourceRequest, size_text
from heronpy.plan.component_config import reliability_mode, set_key
from heronpy.plan.launch import LaunchSpec
from heronpy.plan.logical import LogicalPlan
from heronpy.pools.nodes import change_pool, plan_of, read_map, read_specs, remove_pool, reserved
from heronpy.pools.shards import SHARDS_PER_SLOT, Pool, Size, pack
from heronpy.proto import plan_pb2, topology_pb2
from heronpy.scheduler.leases import fencing_of
from heronpy.statemgr import paths

#: Time for the scheduler of the pool to accept a topology.
JOIN_S: Final = 60.0
_LEAVE_S: Final = 30.0


def engine_of(session: Session, pool: str) -> str:
    """Return the kind of engine of a pool. Raises NotThereError if the pool does not exist."""
    pools.record_of(session, pool)
    submitted = session.submitted(pool)
    return submitted.engine if submitted is not None else ""


def check(session: Session, planned: Planned, requests: dict[int, ResourceRequest]) -> None:
    """Refuse a topology that the slots of its pool cannot run. The check changes nothing."""
    name, mode = planned.pool, reliability_mode(planned.topology)
    pool, record = pools.find(session, name), pools.record_of(session, name)
    session.check_here(record, "its scheduler serves the packages of its topologies")
    pools.check_runs(session, name)
    submitted = session.submitted(name)
    if submitted is None:
        raise RequestError(f"the state manager has no submission of pool '{name}'; delete the pool and create it again")
    if submitted.engine != planned.engine:
        raise RequestError(
            f"pool '{name}' is on engine '{submitted.engine}', but the topology is for '{planned.engine}';"
            " set heron.engine.kind to the engine of the pool"
        )
    own = settings_for(submitted, EngineSettings)
    fencing = fencing_of(own.fencing, reliability_mode(session.topology(name)), submitted.state_type == "local")
    if mode == "ATMOST_ONCE" and fencing is Fencing.EPOCH:
        raise TopologyError(
            f"topology '{planned.topology.name}' is ATMOST_ONCE, but pool '{name}' fences by epoch: a lost slot may"
            " keep running, so a tuple could be processed twice; use another reliability mode, or run the topology"
            " outside the pool"
        )
    problem = size_problem(requests, slot_sizes(session, name))
    if problem:
        raise RequestError(problem)
    total = sum((Size(one.cpu, one.ram_bytes) for one in requests.values()), Size())
    found = read_map(session.state, name)
    specs = read_specs(session.state, name, found[0]) if found is not None else {}
    used = reserved({id_: spec for id_, spec in specs.items() if spec.topology != planned.topology.name})
    active = pool.slots - len(pool.drained)
    room = Size(pool.size.cpu * active, pool.size.ram_bytes * active)
    if (used + total).share_of(room) > 1:
        raise ClusterError(
            f"topology '{planned.topology.name}' needs {_text(total)}, but pool '{name}' has {_text(room)}, of which"
            f" {_text(used)} are in use; add slots: heron pool resize {session.target} {name} --slots N"
        )


def fitted(
    session: Session,
    pool: str,
    plan: plan_pb2.PackingPlan,
    repacked: Callable[[int], plan_pb2.PackingPlan],
    requests: Callable[[plan_pb2.PackingPlan], Mapping[int, ResourceRequest]],
) -> plan_pb2.PackingPlan:
    """Return a packing plan with enough containers for each to fit into a slot, or else the last plan tried."""
    sizes, found = slot_sizes(session, pool), plan
    for count in range(len(plan.containers) + 1, sum(len(one.instances) for one in plan.containers) + 1):
        if not size_problem(requests(found), sizes):
            return found
        found = repacked(count)
    return found


def _text(size: Size) -> str:
    return size_text(round(size.cpu, 2), size.ram_bytes, None)


def take_keys(session: Session, spec: LaunchSpec) -> None:
    """Give a topology the keys of its pool, which all topologies share, because the slots are one trust domain."""
    record = pools.record_of(session, spec.submitted.pool)
    keys = curve.load(record.working_dir, record.topology_id)
    curve.remove(spec.working_dir)
    curve.save(curve.folder_of(spec.working_dir), keys.server, keys.client)


def join(session: Session, record: plan_pb2.ExecutionState, pool: str) -> None:
    """Make a topology a member of a pool, and wait until the pool's scheduler has accepted it."""
    name = record.topology

    def joined(known: Pool) -> Pool:
        return replace(known, members=known.members | {name: record.topology_id})

    try:
        change_pool(session.state, pool, joined)
    except NoNodeError as error:
        raise NotThereError(str(error)) from None
    deadline = time.monotonic() + JOIN_S
    while session.scheduler_location(name) is None:
        pools.check_runs(session, pool)
        if time.monotonic() > deadline:
            raise DeadlineError(f"pool '{pool}' did not accept topology '{name}' within {JOIN_S:g} s; see its log")
        time.sleep(0.05)


def leave(session: Session, record: plan_pb2.ExecutionState, pool: str) -> None:
    """Undo `join`: remove the topology from the pool."""
    if session.scheduler_location(record.topology) is not None:
        takedown.take_down(session, record, _LEAVE_S)
        return

    def left(known: Pool) -> Pool:
        members = {name: id_ for name, id_ in known.members.items() if id_ != record.topology_id}
        return replace(known, members=members)

    try:
        change_pool(session.state, pool, left)
    except HeronError:
        return  # the pool and its processes are gone


def plan_pool(session: Session, name: str, slots: int, size: Size) -> Planned:
    """Plan a pool as a submission of slots. Refuses an invalid name or size, and a cluster without an engine."""
    problem = topology_name_problem(name)
    if problem:
        raise RequestError(f"the name of the pool, '{name}', {problem}")
    pools.check_slots(slots)
    if session.state.exists(paths.job(name)):
        raise NodeExistsError(f"a job of cluster {session.target.cluster} has the name '{name}'; choose another name")
    topology = topology_pb2.Topology(id=name + str(uuid.uuid4()), name=name, state=topology_pb2.RUNNING)
    resolved = session.resolve()
    # The mode and the cluster's settings decide how slots are fenced. The strictest mode costs nothing if the end of
    # each container is confirmed.
    mode = "ATMOST_ONCE" if settings_for(resolved, EngineSettings).on_one_host else "ATLEAST_ONCE"
    set_key(topology.topology_config, TOPOLOGY_RELIABILITY_MODE, mode)
    session.pin_folders(resolved)
    kind, root = session.state_place(resolved)
    resolved.settings["statemgr"]["root"] = root  # slots on this host need no scheduler to reach it
    if settings_for(resolved, EngineSettings).on_one_host and not resolved.settings["engine"]["home"]:
        resolved.settings["engine"]["home"] = str(heron_home() / "hosts")
    engine = on_engine.settle(topology, resolved, kind)
    if not engine:
        raise RequestError(
            f"cluster {session.target.cluster} has no engine that places the slots of a pool; set heron.engine.kind"
        )
    plan = plan_of(_pool(slots, size), 1)
    return Planned(topology, LogicalPlan.from_topology(topology), plan, resolved, False, engine, slot=size)


def _pool(slots: int, size: Size) -> Pool:
    return Pool(slots, slots * SHARDS_PER_SLOT, size)


def make_pool(session: Session, planned: Planned) -> None:
    """Write the description of a new pool, replacing the remains of an earlier pool with this name."""
    assert planned.slot is not None
    unmake_pool(session, planned)
    pool = _pool(len(planned.packing_plan.containers), planned.slot)
    session.state.set(paths.pool(planned.topology.name), pack(pool))


def unmake_pool(session: Session, planned: Planned) -> None:
    """Delete the description of a pool."""
    remove_pool(session.state, planned.topology.name, len(planned.packing_plan.containers))
