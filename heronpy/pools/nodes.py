"""The nodes of a pool in the state manager, as documents. All calls block, so an event loop must use threads."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from heronpy.common.errors import NoNodeError, VersionMismatchError
from heronpy.pools.shards import BUCKETS, Answer, Map, Pool, Size, Spec, pack, unpack
from heronpy.proto import plan_pb2
from heronpy.statemgr import paths
from heronpy.statemgr.base import StateManager

#: Maximum number of attempts of a change while other writers are faster.
TRIES_MAX = 50


def read_pool(state: StateManager, name: str) -> Pool | None:
    """Read the description of a pool; returns None if the pool does not exist."""
    found = state.get(paths.pool(name))
    return unpack(Pool, found[0], f"pool '{name}'") if found is not None else None


def change_pool(state: StateManager, name: str, change: Callable[[Pool], Pool]) -> Pool:
    """Change the description of a pool with compare-and-set. `change` may raise; it is called again if another writer
    was faster.
    """
    for _ in range(TRIES_MAX):
        found = state.get(paths.pool(name))
        if found is None:
            break
        before = unpack(Pool, found[0], f"pool '{name}'")
        after = change(before)
        if after == before:
            return after
        try:
            state.set(paths.pool(name), pack(after), found[1])
            return after
        except VersionMismatchError:
            continue
        except NoNodeError:
            break
    raise NoNodeError(f"pool '{name}' no longer exists, or too many processes are changing it; try again")


def read_map(state: StateManager, name: str) -> tuple[Map, int] | None:
    """Read the map of a pool and the version of its node; returns None before the first map."""
    found = state.get(paths.pool_map(name))
    return (unpack(Map, found[0], f"the map of pool '{name}'"), found[1]) if found is not None else None


def read_specs(state: StateManager, name: str, known: Map) -> dict[str, Spec]:
    """Read the published specifications, by topology id."""
    specs: dict[str, Spec] = {}
    for bucket in (one for one in range(BUCKETS) if known.buckets[one]):
        found = state.get(paths.pool_specs(name, bucket))
        content = unpack(tuple[Spec, ...], found[0], f"bucket {bucket} of pool '{name}'") if found is not None else ()
        specs |= {spec.topology_id: spec for spec in content}
    return specs


def read_answer(state: StateManager, name: str, slot: int) -> Answer | None:
    """Read the last answer of a slot; returns None before the first answer."""
    found = state.get(paths.pool_slot(name, slot))
    return unpack(Answer, found[0], f"the answer of slot {slot} of pool '{name}'") if found is not None else None


def remove_pool(state: StateManager, name: str, slots: int) -> None:
    nodes = [paths.pool(name), paths.pool_map(name)]
    nodes += [paths.pool_specs(name, bucket) for bucket in range(BUCKETS)]
    nodes += [paths.pool_slot(name, slot) for slot in range(1, slots + 1)]
    for node in nodes:
        try:
            state.delete(node)
        except NoNodeError:
            continue


def plan_of(pool: Pool, version: int) -> plan_pb2.PackingPlan:
    """Return the packing plan of a pool: a container for each slot, and no tasks."""
    plan = plan_pb2.PackingPlan(version=version)
    for slot in range(1, pool.slots + 1):
        plan.containers.add(id=slot, required=plan_pb2.Resource(cpu=pool.size.cpu, ram_bytes=pool.size.ram_bytes))
    return plan


def reserved(specs: Mapping[str, Spec]) -> Size:
    """Return the sum of the reservations for all topologies."""
    return sum((size for spec in specs.values() for size in spec.containers.values()), Size())
