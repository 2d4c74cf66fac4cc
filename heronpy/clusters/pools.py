"""Lists, shows, changes and deletes the pools of a cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from msgspec.structs import replace

from heronpy.clusters import takedown
from heronpy.clusters.errors import ClusterError, NotThereError, PartlyDoneError, RequestError
from heronpy.clusters.records import Doing
from heronpy.clusters.session import Session
from heronpy.clusters.takedown_outcome import what_remains
from heronpy.common.errors import HeronError, NoNodeError
from heronpy.common.nearest import suggestion
from heronpy.common.units import counted
from heronpy.plan.launch import SLOT
from heronpy.pools.keeping import spread
from heronpy.pools.nodes import change_pool, read_answer, read_map, read_pool, read_specs
from heronpy.pools.shards import SHARDS_PER_SLOT, SLOTS_MAX, Pool, Size, Spec, loads_of
from heronpy.proto import plan_pb2
from heronpy.statemgr import paths

POOLS_SHOWN: Final = 5


def names(session: Session) -> list[str]:
    return sorted(session.state.children(paths.POOLS))


def record_of(session: Session, name: str) -> plan_pb2.ExecutionState:
    """The execution state of a pool; raises NotThereError if there is no such pool."""
    record = session.record(name)
    if record is None or record.program != SLOT:
        known = names(session)
        some = ", ".join(known[:POOLS_SHOWN]) + (f" and {len(known) - POOLS_SHOWN} more" * (len(known) > POOLS_SHOWN))
        hint = suggestion(name, known, f"; its pools are {some}" if known else "; it has no pools")
        raise NotThereError(f"cluster {session.target.cluster} has no pool '{name}'{hint}")
    return record


def find(session: Session, name: str) -> Pool:
    """The specification of a pool; raises NotThereError if there is no such pool."""
    record_of(session, name)
    pool = read_pool(session.state, name)
    if pool is None:
        raise ClusterError(f"the specification of pool '{name}' is missing from the state manager; delete the pool")
    return pool


def listed(session: Session) -> list[dict[str, Any]]:
    """A summary of each pool of the cluster."""
    known = {name: read_pool(session.state, name) for name in names(session)}
    return [_facts(name, pool) for name, pool in known.items() if pool is not None]


def shown(session: Session, name: str) -> dict[str, Any]:
    """The state of a pool for users: its slots, their loads, and its topologies."""
    known, state = find(session, name), session.state
    found = read_map(state, name)
    specs: dict[str, Spec] = read_specs(state, name, found[0]) if found is not None else {}
    told = session.containers(name)
    records = {int(one.name.rpartition("-")[2]): one for one in (told.containers if told is not None else ())}
    answers = {slot: read_answer(state, name, slot) for slot in sorted({*records, *range(1, known.slots + 1)})}
    measured = {key: load for one in answers.values() if one is not None for key, load in one.loads.items()}
    loads = loads_of(specs.values(), measured, known.shards)
    used: dict[int, Size] = {}
    for shard, owner in enumerate(found[0].owners if found is not None else ()):
        used[owner.slot] = used.get(owner.slot, Size()) + loads.get(shard, Size())
    shares = spread(found[0], loads, known) if found is not None else {}
    slots = []
    for slot, answer in answers.items():
        shards, share = shares.get(slot, (0, 0.0))
        state_of = records[slot].phase if slot in records else "not there" if told is not None else "unknown"
        lives = answer.life if answer is not None else 0
        reason = records[slot].exit_reason if slot in records else ""
        slots.append(
            {
                "slot": slot,
                "state": "drained" if slot in known.drained else state_of,
                "host": records[slot].host if slot in records else "",
                "shards": shards,
                "containers": len(answer.records) if answer is not None else 0,
                "load": round(share, 3),
                "cpu": round(used.get(slot, Size()).cpu, 3),
                "ram_bytes": used.get(slot, Size()).ram_bytes,
                "restarts": (records[slot].restarts if slot in records else 0) + lives,
                # Only the container knows why, and its log says it.
                "exit_reason": reason or ("process ended" if lives else ""),
            }
        )
    return _facts(name, known) | {"scheduler": session.scheduler_location(name) is not None, "slots": slots}


def _facts(name: str, pool: Pool) -> dict[str, Any]:
    size = {"cpu": pool.size.cpu, "ram_bytes": pool.size.ram_bytes}
    return {
        "pool": name,
        "slots_wanted": pool.slots,
        "shards": pool.shards,
        "size": size,
        "topologies": sorted(pool.members),
    }


def check_runs(session: Session, name: str) -> None:
    """Raise ClusterError unless the scheduler of a pool is running."""
    if session.scheduler_location(name) is None:
        raise ClusterError(
            f"the scheduler of pool '{name}' is not running; start it: heron scheduler start {session.target} {name}"
        )


def check_slots(slots: int, shards: int = SLOTS_MAX * SHARDS_PER_SLOT) -> None:
    """Raise RequestError for a number of slots that a pool cannot have."""
    most = min(SLOTS_MAX, shards)
    if not 1 <= slots <= most:
        raise RequestError(f"a pool cannot have {counted(slots, 'slot')}; give 1 to {most}")


def resize(session: Session, name: str, slots: int) -> Pool:
    """Change the number of slots of a pool; removed slots hand over their shards first."""

    find(session, name)
    return _changed(session, name, lambda pool: resized(pool, slots))


def resized(pool: Pool, slots: int) -> Pool:
    """A pool's specification with another number of slots; raises RequestError if the pool cannot have this number."""
    check_slots(slots, pool.shards)
    return replace(pool, slots=slots, drained=tuple(one for one in pool.drained if one <= slots))


def drain(session: Session, name: str, slot: int, lift: bool) -> Pool:
    """Move all shards away from a slot, which then gets no new shards; with `lift`, it gets shards again."""

    find(session, name)
    return _changed(session, name, lambda pool: drained(pool, name, slot, lift))


def drained(pool: Pool, name: str, slot: int, lift: bool) -> Pool:
    """A pool's specification with one slot drained or not; raises RequestError if the slot cannot be drained."""
    if not 1 <= slot <= pool.slots:
        raise RequestError(f"pool '{name}' has no slot {slot}; its slots are 1 to {pool.slots}")
    others = {*pool.drained} - {slot}
    if not lift and len(others) + 1 >= pool.slots:
        raise RequestError(f"slot {slot} is the last slot of pool '{name}' that is not drained; add a slot first")
    return replace(pool, drained=tuple(sorted(others if lift else others | {slot})))


def _changed(session: Session, name: str, change: Callable[[Pool], Pool]) -> Pool:
    try:
        return change_pool(session.state, name, change)
    except NoNodeError as error:
        raise ClusterError(str(error)) from None


def delete(session: Session, name: str, waits: Callable[[str], None] = lambda text: None) -> None:
    """Stop the slots of a pool and remove the pool. Raises ClusterError while topologies run in it."""
    limit_s = takedown.limit_s(session, name)
    with session.operation(name, limit_s + 30.0, Doing.KILLING, waits):
        record = record_of(session, name)
        pool = read_pool(session.state, name)
        if pool is not None and pool.members:
            some = ", ".join(sorted(pool.members)[:5])
            raise ClusterError(
                f"pool '{name}' contains {counted(len(pool.members), 'topology')}: {some}; stop their jobs first"
            )
        outcome = takedown.take_down(session, record, limit_s, waits=waits)
    if outcome.remains:
        raise PartlyDoneError(f"pool '{name}' is not removed, because {what_remains(outcome)}")


def has_member(session: Session, topology: str, topology_id: str) -> bool:
    """Whether a topology belongs to an existing pool, which restarts the topology automatically."""
    submitted = session.submitted(topology)
    if submitted is None or not submitted.pool:
        return False
    try:
        return find(session, submitted.pool).members.get(topology) == topology_id
    except HeronError:
        return False
