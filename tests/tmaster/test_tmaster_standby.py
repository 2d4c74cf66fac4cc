"""Standby topology masters: who takes over, when, and what the one before can still do (F03, F10)."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.common.clock import MonotonicClock
from heronpy.common.errors import FencedError, RpcError, StateError
from heronpy.common.exit_codes import FENCED
from heronpy.net.rpc import RpcClient
from heronpy.proto import checkpoint_pb2, control_pb2, plan_pb2
from heronpy.statemgr import open_state, paths
from heronpy.statemgr.base import StateManager
from heronpy.tmaster.events import Node
from heronpy.tmaster.standby import MISSED_MIN, FailureDetector, Standby
from heronpy.tmaster.store import Store
from tests.support.launch import launch_spec
from tests.support.memory_state import MemoryStateManager, MemoryStore
from tests.support.waiting import wait_for
from tests.tmaster.tmaster_world import make_packing, make_topology

TAKEOVER_S = 5
PATIENCE_S = 30.0

# ---- how long to wait (pure) --------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(1, 2 * TAKEOVER_S), st.sampled_from(["answer", "miss", "other"])), max_size=60))
def test_a_holder_is_overdue_after_enough_silence_that_we_were_awake_for(steps: list[tuple[int, str]]) -> None:
    """Never sooner, never because this process was paused itself, and then always."""
    detector = FailureDetector(TAKEOVER_S)
    now, holder, heard_at, missed = 100, 0, 100, 0
    detector.look(b"0", now)
    for gap, what in steps:
        now += gap
        holder += what == "other"
        if what == "other" or gap > TAKEOVER_S:
            heard_at, missed = now, 0
        detector.look(b"%d" % holder, now)
        if what == "answer":
            detector.answered(now)
            heard_at, missed = now, 0
        elif what == "miss":
            detector.missed()
            missed += 1
        assert detector.overdue(now) == (missed >= MISSED_MIN and now - heard_at >= TAKEOVER_S)


# ---- the store ----------------------------------------------------------------------------------


def stored(state: StateManager) -> StateManager:
    """A topology that has been rewound and checkpointed."""
    topology = make_topology({"word": 1}, {"count": 1})
    packing = make_packing(topology, 1)
    state.create(paths.topology("wc"), topology.SerializeToString())
    state.create(paths.packing_plan("wc"), packing.SerializeToString())
    state.create(paths.checkpoints("wc"), LOG.SerializeToString())
    return state


LOG = checkpoint_pb2.CheckpointLog(topology_id="wc-1", next_checkpoint=17, next_attempt=5)


def location(state: StateManager) -> plan_pb2.TmasterLocation | None:
    found = state.get(paths.tmaster("wc"))
    return plan_pb2.TmasterLocation.FromString(found[0]) if found else None


def test_who_was_replaced_can_write_nothing_and_what_it_wrote_is_read() -> None:
    """Plan, attempts and checkpoint ids go on; every node has a version that the old one does not know."""
    shared = MemoryStore()
    state = stored(MemoryStateManager(shared))
    old, new = Store(state, "wc", 0), Store(MemoryStateManager(shared), "wc", 0)
    assert old.take_over(None, "tcp://old", 1, "h") and old.epoch == 1
    old.outdate()
    loaded = old.load()
    assert loaded.checkpoints == LOG
    old.write(Node.CHECKPOINTS, checkpoint_pb2.CheckpointLog(topology_id="wc-1", next_checkpoint=18, next_attempt=6))
    old.write(Node.PHYSICAL_PLAN, plan_pb2.PhysicalPlan(version=3, tmaster_epoch=1, topology=loaded.topology))

    silent = new.holder()
    assert not new.take_over(b"somebody else", "tcp://new", 2, "h"), "only in place of the silent master that it found"
    assert new.take_over(silent, "tcp://new", 2, "h") and new.epoch == 2
    new.outdate()
    found = new.load()
    assert found.checkpoints is not None and (found.checkpoints.next_checkpoint, found.checkpoints.next_attempt) == (
        18,
        6,
    )
    assert found.previous is not None and found.previous.version == 3
    before = dict(shared.nodes)
    for node, value in (
        (Node.CHECKPOINTS, LOG),
        (Node.PHYSICAL_PLAN, plan_pb2.PhysicalPlan(version=4)),
        (Node.PACKING_PLAN, loaded.packing),
        (Node.TOPOLOGY, loaded.topology),
        (Node.UPDATE, plan_pb2.UpdateIntent()),
        (Node.UPDATE, None),
    ):
        with pytest.raises(FencedError):
            old.write(node, value)
    assert shared.nodes == before
    with pytest.raises(FencedError, match="of epoch 1 was replaced by epoch 2"):
        old.reclaim()
    old.release()
    assert location(state) == plan_pb2.TmasterLocation.FromString(new.holder() or b""), (
        "its end removes nothing of ours"
    )
    new.write(Node.UPDATE, plan_pb2.UpdateIntent())
    new.write(Node.UPDATE, None)
    assert new.load().intent is None


class Removing(MemoryStateManager):
    """Somebody removes the topology right before a location is put back."""

    lost = False

    def create(self, path: str, data: bytes, ephemeral: bool = False) -> None:
        if self.lost:
            super().delete(paths.topology("wc"))
        super().create(path, data, ephemeral=ephemeral)


def test_a_location_is_not_put_back_into_a_topology_that_is_being_removed() -> None:
    state = Removing(MemoryStore())
    stored(state)
    master = Store(state, "wc", 1)
    assert not master.claim("tcp://one", 1, "h")
    state.delete(paths.tmaster("wc"))
    state.lost = True
    master.reclaim()
    assert state.get(paths.tmaster("wc")) is None


class GoesAway(MemoryStateManager):
    """Out of reach right behind the creation of a node: before its answer, or before the next question."""

    def __init__(self, store: MemoryStore, answered: bool) -> None:
        super().__init__(store)
        self.away, self._answered = False, answered

    def create(self, path: str, data: bytes, ephemeral: bool = False) -> None:
        super().create(path, data, ephemeral=ephemeral)
        self.away = True
        if not self._answered:
            raise StateError("away")

    def get(self, path: str) -> tuple[bytes, int] | None:
        if self.away:
            raise StateError("away")
        return super().get(path)


@pytest.mark.parametrize("answered", [True, False])
def test_who_loses_the_state_manager_in_the_middle_of_taking_over_goes_on_when_it_is_back(answered: bool) -> None:
    """Its location is there then: nobody else takes over, and it must not take itself for another master."""
    memory = MemoryStore()
    stored(MemoryStateManager(memory))
    state = GoesAway(memory, answered)
    store = Store(state, "wc", 0)
    claims: list[int] = []

    def claim(silent: bytes | None) -> bool:
        claims.append(store.epoch)
        return store.take_over(silent, "tcp://127.0.0.1:9", 2, "h")

    async def check() -> None:
        standby = Standby(store, 4.0, MonotonicClock(), None)
        assert not await standby.turn(claim) and state.away
        state.away = False
        assert await standby.turn(claim) and len(claims) == 2

    asyncio.run(check())
    assert location(state) is not None and store.is_ours(store.holder() or b"") and store.epoch == 1


class Paused(MemoryStateManager):
    """Its process is stopped for a while right behind the counter."""

    def __init__(self, store: MemoryStore, meanwhile: Callable[[], None]) -> None:
        super().__init__(store)
        self._meanwhile = meanwhile

    def counter(self, path: str) -> int:
        number = super().counter(path)
        self._meanwhile()
        return number


def test_epochs_are_in_the_order_of_the_claims() -> None:
    """Who took its epoch long ago withdraws: others may have seen a master of a later one."""
    shared = MemoryStore()
    stored(MemoryStateManager(shared))

    def another_comes_and_goes() -> None:
        other = MemoryStateManager(shared)
        assert Store(other, "wc", 0).take_over(None, "tcp://other", 2, "h")
        other.die()

    slow = Store(Paused(shared, another_comes_and_goes), "wc", 0)
    assert not slow.take_over(None, "tcp://slow", 1, "h")
    assert slow.holder() is None


def test_of_several_that_wait_one_takes_over() -> None:
    shared = MemoryStore()
    stored(MemoryStateManager(shared))
    stores = [Store(MemoryStateManager(shared), "wc", 0) for _ in range(4)]
    assert [store.take_over(None, f"tcp://{n}", n, "h") for n, store in enumerate(stores)] == [
        True,
        False,
        False,
        False,
    ]
    assert stores[1].holder() == stores[0].holder()


class Away(MemoryStateManager):
    """A state manager that cannot be reached."""

    away = True

    def get(self, path: str) -> tuple[bytes, int] | None:
        if self.away:
            raise StateError("the state manager does not answer")
        return super().get(path)


def test_losing_sight_of_the_state_manager_is_no_reason_to_take_over() -> None:
    async def scenario() -> None:
        state = Away(MemoryStore())
        stored(state)
        store = Store(state, "wc", 0)
        claims: list[bytes | None] = []

        def claim(silent: bytes | None) -> bool:
            claims.append(silent)
            return True

        end: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        standby = Standby(store, 0.1, MonotonicClock(), None)
        waiting = asyncio.ensure_future(standby.wait(claim, end))
        await asyncio.sleep(0.5)  # five times as long as a silent master has
        assert not claims and not waiting.done()
        state.away = False
        assert await asyncio.wait_for(waiting, PATIENCE_S)
        assert claims == [None]

    asyncio.run(scenario())


# ---- processes ----------------------------------------------------------------------------------


class Masters:
    """Topology masters of one topology, each a process."""

    def __init__(self, folder: Path, standbys: int, kind: tuple[str, str]) -> None:
        settings = {"tmaster": {"standbys": standbys, "takeover_s": 0.5}}
        launch = launch_spec("wc", "wc-1", folder, state_root=kind[1], state_type=kind[0], settings=settings)
        self._file = folder / "launch.json"
        launch.save(self._file)
        self.processes: list[subprocess.Popen[bytes]] = []
        self.logs: list[Path] = []

    def start(self) -> subprocess.Popen[bytes]:
        log = self._file.with_name(f"{len(self.logs)}.log")
        command = [sys.executable, "-m", "heronpy.tmaster", "--launch", str(self._file)]
        with open(log, "wb") as output:
            process = subprocess.Popen(command, stdout=output, stderr=output)
        self.processes.append(process)
        self.logs.append(log)
        return process

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait(PATIENCE_S)


@pytest.fixture
def masters(tmp_path: Path) -> Iterator[tuple[Masters, StateManager]]:
    root = str(tmp_path / "state")
    state = stored(open_state("local", root))
    made = Masters(tmp_path, 2, ("local", root))
    try:
        yield made, state
    finally:
        made.close()
        state.close()


def active(state: StateManager, but: int = 0) -> plan_pb2.TmasterLocation:
    def look() -> plan_pb2.TmasterLocation | None:
        found = location(state)
        return found if found is not None and found.pid != but else None

    found = wait_for(look, PATIENCE_S, "an active topology master")
    # One that is stopped in the middle of a write would keep all others from writing.
    with RpcClient(found.endpoint) as client:
        wait_for(lambda: answers(client), PATIENCE_S, "its answer")
    return found


def answers(client: RpcClient) -> bool:
    try:
        return bool(client.call(control_pb2.GetStatus()))
    except RpcError:
        return False  # it is starting


def nodes(state: StateManager) -> dict[str, Any]:
    kinds: tuple[Callable[[str], str], ...] = (
        paths.topology, paths.packing_plan, paths.physical_plan, paths.update_intent, paths.checkpoints, paths.tmaster
    )  # fmt: skip
    return {path: state.get(path) for path in (kind("wc") for kind in kinds)}


def test_killed_and_stopped_masters_are_replaced_and_the_stopped_one_ends_fenced(
    masters: tuple[Masters, StateManager],
) -> None:
    made, state = masters
    first = made.start()
    assert active(state).pid == first.pid
    by_pid = {process.pid: process for process in [made.start(), made.start()]}
    wait_for(lambda: all(b"standing by" in log.read_bytes() for log in made.logs), PATIENCE_S, "two that stand by")
    first.kill()
    second = active(state, but=first.pid)
    assert second.epoch > 1

    os.kill(second.pid, signal.SIGSTOP)
    try:
        third = active(state, but=second.pid)
        assert third.epoch > second.epoch
        before = nodes(state)
    finally:
        with suppress(ProcessLookupError):
            os.kill(second.pid, signal.SIGCONT)
    assert by_pid[second.pid].wait(PATIENCE_S) == FENCED
    assert "was replaced by epoch" in made.logs[made.processes.index(by_pid[second.pid])].read_text()
    assert nodes(state) == before, "a fenced master wrote"
    assert checkpoint_pb2.CheckpointLog.FromString(state.get(paths.checkpoints("wc"))[0]) == LOG  # type: ignore[index]

    # In order, as an executor ends it: at once, without waiting for anybody's silence.
    by_pid[third.pid].terminate()
    assert by_pid[third.pid].wait(PATIENCE_S) == 0
    assert location(state) is None
    state.delete(paths.topology("wc"))
    late = made.start()
    wait_for(lambda: b"was removed from the state manager" in made.logs[-1].read_bytes(), PATIENCE_S)
    assert location(state) is None and late.poll() is None
    late.terminate()
    assert late.wait(PATIENCE_S) == 0
