"""The scheduler of a pool: runs the pool's slots as containers on an engine. The slots run topologies' containers.

Placement manages the slots, and `heronpy.pools.keeping` assigns shards to slots. This module connects both with the
state manager and the clients of the pool's topologies. Invariants: a map is written only over the version that this
scheduler last read or wrote, so two schedulers never act on the same pool; a topology is removed only when no slot runs
any of its containers.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Sequence
from typing import Final

from google.protobuf.message import Message
from msgspec.structs import replace

from heronpy.common.engine_settings import EngineSettings
from heronpy.common.errors import (
    DamagedStateError,
    DeadlineError,
    FencedError,
    HeronError,
    NodeExistsError,
    NoNodeError,
    RpcError,
    VersionMismatchError,
)
from heronpy.common.ids import executor_id
from heronpy.common.settings import settings_for
from heronpy.net.rpc import body_of
from heronpy.plan.launch import LaunchSpec
from heronpy.pools.keeping import Keeper, SlotView, first_map
from heronpy.pools.nodes import change_pool, plan_of, read_answer, read_map, read_pool, read_specs, remove_pool
from heronpy.pools.shards import BUCKETS, Answer, Map, Pool, Size, Spec, bucket_of, loads_of, pack
from heronpy.proto import control_pb2
from heronpy.scheduler.guardian import Pulse
from heronpy.scheduler.placement_events import RestartAsked
from heronpy.scheduler.pool_members import Member, holders_of, read_member, records_of
from heronpy.scheduler.pool_moves import PoolMoves
from heronpy.scheduler.reconciler import RESTART_MAX_S, EngineScheduler
from heronpy.scheduler.state_rules import ContainerRules, PoolRules
from heronpy.scheduler.waiting import wait_until
from heronpy.statemgr import paths

log = logging.getLogger("heronpy.scheduler")

ROUND_S: Final = 1.0
#: All nodes are read again after this time, in case a notification was missed.
LOOK_AGAIN_S: Final = 10.0
_SILENT: Final = "it sends no reports"
_LATE: Final = "it has not applied the map of its pool in time"


class PoolScheduler(EngineScheduler):
    """The scheduler of one pool; `await run()` returns the exit code."""

    def __init__(self, launch: LaunchSpec, pulse: Pulse) -> None:
        super().__init__(launch, pulse)
        self._pool_rules = PoolRules(launch.topology)
        #: A slot that does not apply the map counts as lost after the same time as a silent slot.
        self._keeper = Keeper(settings_for(launch, EngineSettings).lost_s)
        self._members: dict[str, Member] = {}
        #: Members that answer requests; members that have left the pool still answer for a moment.
        self._answering: set[Member] = set()
        self._answers: dict[int, Answer] = {}
        #: The specifications that slots have, by topology id.
        self._published: dict[str, Spec] = {}
        #: Shards whose slot was chosen before any topology runs in them.
        self._placed: frozenset[int] = frozenset()
        #: Shards that move once their topologies are ready to move.
        self._leaving: frozenset[int] = frozenset()
        self._pool: Pool | None = None
        self._map: Map | None = None
        self._map_version = 0
        self._stale: set[str] = set()
        self._followed: set[str] = set()
        self._complaint = ""

    def _rules(self) -> ContainerRules | PoolRules:
        return self._pool_rules

    def _works(self) -> Sequence[Awaitable[None]]:
        return (self._keep(),)

    # ---- loops ---------------------------------------------------------------------------------
    async def _keep(self) -> None:
        self._turn = asyncio.Event()
        self._pool_moves = PoolMoves(self._state, self._turn.set)
        self._opened.callback(self._pool_moves.close)
        self._opened.callback(lambda: self._close(*self._answering))
        read_at = float("-inf")
        while not self._removing:
            self._turn.clear()
            try:
                if self._map is None:
                    await self._take()
                if self._now() - read_at >= LOOK_AGAIN_S:
                    read_at = self._now()
                    self._stale |= {paths.pool(self._launch.topology), *self._slot_nodes()}
                await self._round()
                self._complaint = ""
            except (VersionMismatchError, NoNodeError, FencedError) as error:
                self._on_lost(FencedError(f"another scheduler is acting for pool {self._launch.topology!r} ({error})"))
                return
            except (HeronError, OSError) as error:
                if str(error) != self._complaint:
                    self._complaint = str(error)
                    log.warning("cannot update the pool, trying again: %s", error)
            self._changed.set()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(ROUND_S):
                    await self._turn.wait()

    async def _take(self) -> None:
        """Read the predecessor's records and write a map, so that later writes by the predecessor are refused."""
        name = self._launch.topology
        pool = await asyncio.to_thread(read_pool, self._state, name)
        if pool is None:
            raise DamagedStateError(f"the state manager contains no pool {name!r}; delete it and create it again")
        found = await asyncio.to_thread(read_map, self._state, name)
        known, version = found or (first_map(pool), 0)
        self._published = await asyncio.to_thread(read_specs, self._state, name, known)
        self._map_version = version
        await self._write(replace(known, number=known.number + 1))

    async def _write(self, new: Map) -> None:
        await self._prove_once()
        path = paths.pool_map(self._launch.topology)
        self._map_version = await asyncio.to_thread(self._state.set, path, pack(new), self._map_version)
        self._map = new

    def _slot_nodes(self) -> list[str]:
        return [paths.pool_slot(self._launch.topology, slot) for slot in self._slots()]

    def _slots(self) -> list[int]:
        """The numbers of all existing and intended slots."""
        return [view.container for view in self._acting().views()]

    def _on_node(self, path: str) -> None:
        def note() -> None:
            self._stale.add(path)
            self._turn.set()

        with contextlib.suppress(RuntimeError):  # the loop is closed, because this process is ending
            self._loop.call_soon_threadsafe(note)

    async def _read(self) -> None:
        name, self._loop = self._launch.topology, asyncio.get_running_loop()
        for path in {paths.pool(name), *self._slot_nodes()} - self._followed:
            await asyncio.to_thread(self._state.watch, path, self._on_node)
            self._followed.add(path)
            self._stale.add(path)
        stale, self._stale = self._stale, set()
        try:
            if paths.pool(name) in stale:
                self._pool = await asyncio.to_thread(read_pool, self._state, name)
            for slot in self._slots():
                if paths.pool_slot(name, slot) in stale:
                    answer = await asyncio.to_thread(read_answer, self._state, name, slot)
                    if answer is not None:
                        self._answers[slot] = answer
        except BaseException:
            self._stale |= stale
            raise

    async def _round(self) -> None:
        await self._read()
        pool, placement = self._pool, self._acting()
        if pool is None:
            raise NoNodeError("it was deleted")
        await self._sync_members(pool)
        if not placement.has_listed or self._map is None:
            return
        now = self._now()
        slots = {slot: SlotView(*placement.slot(slot, now), self._answers.get(slot)) for slot in self._slots()}
        found = {id_: member.spec() for id_, member in self._members.items()}
        wanted = {id_: spec for id_, spec in found.items() if spec is not None}
        wanted |= {id_: spec for id_, spec in self._published.items() if self._is_opening(id_, pool)}
        both, shards = list((self._published | wanted).values()), len(self._map.owners)
        loads = loads_of(both, self._measured(), shards)
        idle = loads.keys() - loads_of(self._published.values(), {}, shards).keys()
        new, self._placed = frozenset(idle - self._placed), frozenset(idle)
        launches = {id_: member.launch for id_, member in self._members.items() if not member.is_killed}
        ready = self._pool_moves.ready(self._leaving, self._published, launches, shards)
        decided = self._keeper.decide(self._map, pool, slots, loads, now, new, ready)
        self._leaving = decided.leaving
        for note in decided.notes:
            log.warning("%s", note)
        if decided.map is not None:
            await self._write(decided.map)
        for slot in decided.late:
            why = _SILENT if slots[slot].is_silent else _LATE
            log.error("ending slot %d: %s", slot, why)
            self._handle(RestartAsked((slot,), why))
        if not any(self._map.owners[shard].to for shard in idle):
            await self._publish(wanted)
        await self._end_members(slots)
        await self._resize(pool)

    def _is_opening(self, topology_id: str, pool: Pool) -> bool:
        """Whether the topology is in the pool, but this scheduler has just taken over and has not read it yet."""
        member = self._members.get(topology_id)
        is_unknown = member is None or (member.spec() is None and not member.is_killed)
        return is_unknown and topology_id in pool.members.values()

    def _measured(self) -> dict[str, Size]:
        return {name: load for answer in self._answers.values() for name, load in answer.loads.items()}

    async def _publish(self, wanted: dict[str, Spec]) -> None:
        """Write the changed buckets, and then the map that refers to them."""
        assert self._map is not None
        ids = {id_ for id_ in self._published.keys() | wanted.keys() if self._published.get(id_) != wanted.get(id_)}
        if ids:
            counts = list(self._map.buckets)
            for bucket in sorted({bucket_of(id_) for id_ in ids}):
                specs = tuple(spec for id_, spec in sorted(wanted.items()) if bucket_of(id_) == bucket)
                await asyncio.to_thread(self._state.set, paths.pool_specs(self._launch.topology, bucket), pack(specs))
                counts[bucket] += 1
            assert len(counts) == BUCKETS
            await self._write(replace(self._map, number=self._map.number + 1, buckets=tuple(counts)))
        before, self._published = self._published, wanted
        for id_, member in self._members.items():
            if member.is_killed and member.holders is None:
                member.holders = holders_of(self._map, before[id_]) if id_ in before else {}

    async def _resize(self, pool: Pool) -> None:
        """Request one container per slot of the pool, and keep surplus slots while they have shards."""
        assert self._map is not None
        have = len(self._slots())
        used = max((owner.slot for owner in self._map.owners), default=0)
        used = max([used, *(owner.to for owner in self._map.owners)])
        wanted = max(pool.slots, min(used, have))
        if wanted != have and have:
            plan = plan_of(replace(pool, slots=wanted), self._plan_version + 1)
            path = paths.packing_plan(self._launch.topology)
            await asyncio.to_thread(self._state.set, path, plan.SerializeToString())

    # ---- topologies -------------------------------------------------------------------------
    async def _sync_members(self, pool: Pool) -> None:
        ids = set(pool.members.values())
        for id_, member in list(self._members.items()):
            if id_ not in ids:
                member.is_killed = True  # the command that submitted it has stopped waiting
        for name, id_ in pool.members.items():
            if id_ in self._members or self._acting().is_killed:
                continue
            try:
                await self._open_member(name, id_)
            except (HeronError, OSError) as error:
                text = f"topology '{name}' cannot run in the pool yet: {error}"
                if text != self._complaint:
                    self._complaint = text
                    log.warning("%s", text)
        self._pool_rules.members = {
            one.launch.topology: ContainerRules(one.launch.topology) for one in self._members.values()
        }
        self.admission.packages = {
            one.package.digest: one.package for one in self._members.values() if one.package.digest
        }

    async def _open_member(self, name: str, topology_id: str) -> None:
        launch, topology = await asyncio.to_thread(read_member, self._state, name, topology_id)
        known = self._published.get(topology_id)
        place = settings_for(self._launch, EngineSettings).packages
        restarts = dict(known.restarts) if known is not None else {}
        member = Member(launch, topology, self._state, restarts, place, self._on_member, self._turn.set)
        self._answering.add(member)  # before the wait, during which the scheduler may end
        try:
            location = member.location()
            await asyncio.to_thread(self._state.create, paths.scheduler(name), location, True)
        except NodeExistsError:
            self._close(member)
            raise
        self._members[topology_id] = member
        log.info("topology %s is running in the pool", name)

    async def _end_members(self, slots: dict[int, SlotView]) -> None:
        """Remove killed topologies that no longer run in any slot."""
        for id_, member in list(self._members.items()):
            if member.holders is None:
                continue
            member.holders = {
                who: number
                for who, number in member.holders.items()
                if (view := slots.get(who[0])) is not None
                and who[1] > view.over
                and not view.has_carried_out(number, who[1])
            }
            if not member.holders:
                await self._forget(id_, member)

    async def _forget(self, topology_id: str, member: Member) -> None:
        name = member.launch.topology

        def left(pool: Pool) -> Pool:
            return replace(pool, members={one: id_ for one, id_ in pool.members.items() if id_ != topology_id})

        pool = self._pool
        if pool is not None and topology_id in pool.members.values():
            self._pool = await asyncio.to_thread(change_pool, self._state, self._launch.topology, left)
            await asyncio.to_thread(member.remove)
        else:
            with contextlib.suppress(NoNodeError):  # the command that stopped waiting removes the rest
                await asyncio.to_thread(self._state.delete, paths.scheduler(name))
        del self._members[topology_id]
        log.info("topology %s has left the pool", name)
        member.gone.set()
        asyncio.get_running_loop().call_later(ROUND_S, self._close, member)

    def _close(self, *members: Member) -> None:
        for member in self._answering & {*members}:
            self._answering.remove(member)
            member.close()

    # ---- requests ---------------------------------------------------------------------------
    def _on_request(self, who: bytes, envelope: control_pb2.Envelope) -> Message | Awaitable[Message]:
        field, body = body_of(envelope)
        if field == "kill_topology" and self._members and not body.force:
            raise RpcError(f"pool {self._launch.topology!r} contains topologies; stop their jobs first")
        return super()._on_request(who, envelope)

    async def _remove(self) -> None:
        self._removing = True
        slots = max([*self._answers, *self._slots()], default=0)
        await asyncio.to_thread(remove_pool, self._state, self._launch.topology, slots)
        await super()._remove()

    def _on_member(self, member: Member, envelope: control_pb2.Envelope) -> Message | Awaitable[Message]:
        field, body = body_of(envelope)
        if field == "get_containers":
            return control_pb2.ContainersReply(containers=self._records(member), killing=member.is_killed)
        if field == "kill_topology":
            return self._kill_member(member, body)
        if field == "restart_container" and body.standing_by:
            return control_pb2.Ok(text=f"container {body.container} keeps the size of its slot")
        if field == "restart_container":
            return self._restart_member(member, body.container, body.wait_s)
        raise RpcError(
            f"topology {member.launch.topology!r} runs in pool {self._launch.topology!r}, which does not answer"
            f" {field!r} for one topology"
        )

    def _records(self, member: Member) -> list[control_pb2.ProcessRecord]:
        spec = member.spec() or self._published.get(member.launch.topology_id)
        if spec is None:
            return []
        views = {view.container: view for view in self._acting().views()}
        answered = {
            name: (slot, record)
            for slot, answer in sorted(self._answers.items(), key=lambda item: item[1].epoch)
            if slot in views and views[slot].epoch == answer.epoch
            for name, record in answer.records.items()
        }
        return records_of(spec, answered, {slot: view.host for slot, view in views.items()})

    async def _kill_member(self, member: Member, asked: control_pb2.KillTopology) -> Message:
        member.is_killed = True
        self._turn.set()
        if asked.force:
            member.holders = {}
        try:
            async with asyncio.timeout(asked.wait_s or None):
                await member.gone.wait()
        except TimeoutError:
            slots = sorted({slot for slot, _ in member.holders or {}})
            return control_pb2.KillUnderWay(left=[f"its containers in slot {slot}" for slot in slots])
        return control_pb2.Ok(text=f"killed topology {member.launch.topology}")

    async def _restart_member(self, member: Member, container: int, wait_s: float) -> control_pb2.Ok:
        before = {record.name: record.epoch for record in self._records(member)}
        names = sorted(before) if container < 0 else [executor_id(container)]
        if any(name not in before for name in names):
            raise RpcError(f"topology {member.launch.topology!r} has no container {container}")
        for name in names:
            member.ask_restart(int(name.rpartition("-")[2]))
        limit_s = wait_s or RESTART_MAX_S
        until = time.monotonic() + limit_s

        def done() -> bool:
            return all(
                record.epoch > before[record.name] and record.state == control_pb2.PROC_RUNNING
                for record in self._records(member)
                if record.name in names
            )

        if not await wait_until(done, self._changed, lambda: until):
            raise DeadlineError(f"containers did not restart in {limit_s:g} s: {', '.join(names)}")
        return control_pb2.Ok(text=f"restarted {', '.join(names)}")
