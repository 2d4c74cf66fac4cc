"""The scheduler of containers on an engine, with an engine in memory and containers that only speak at its door."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import zmq

from heronpy.common import exit_codes
from heronpy.common.errors import FencedRpcError, InvalidRpcError, LateRpcError, RetryableRpcError, RpcError
from heronpy.engines.contract import Request, Traits
from heronpy.net import curve, door_keys
from heronpy.net.rpc import ControlClient, seal, wrap
from heronpy.procs.exit_reason import ExitReason
from heronpy.proto import control_pb2, door_pb2, plan_pb2
from heronpy.scheduler import keeper, keeper_setup
from heronpy.scheduler.guardian import Pulse
from heronpy.scheduler.keeper import EngineScheduler
from heronpy.scheduler.placement import Placement
from heronpy.statemgr import paths
from tests.security.messages import envelopes
from tests.support.memory_engine import MemoryEngine, Pretend
from tests.support.topologies import Deployed, deploy, packing_plan
from tests.support.waiting import eventually

NAME = "word-count"
PLAN = packing_plan({1: [("word", 1)], 2: [("count", 2)]})
FAST = {"renew_s": 0.2, "fence_s": 1.0, "lost_s": 2.0, "permit_s": 10.0, "poll_s": 0.2, "start_s": 5.0}
SETTINGS: dict[str, dict[str, Any]] = {
    "engine": FAST,
    "security": {"transport": "tcp"},
    "scheduler": {"kill_grace_s": 0.5, "container_restart_backoff_s": 0.05},
}


class World:
    """One topology on an engine; schedulers come and go."""

    def __init__(self, home: Path, shared: str = "") -> None:
        settings = {**SETTINGS, "engine": {**FAST, "shared": shared}}
        self.deployed: Deployed = deploy(home, PLAN, settings, engine="memory")
        self.engine = MemoryEngine()
        self.engine.started, self.engine.ended = self._started, self._ended
        self.containers: dict[str, Pretend] = {}
        self._loop = asyncio.get_running_loop()
        self.make: Callable[[Request, str], Pretend] = Pretend

    def _started(self, engine_id: str, request: Request, host: str) -> None:
        def start() -> None:
            self.containers[engine_id] = self.make(request, host)
            self.containers[engine_id].run()

        self._loop.call_soon_threadsafe(start)

    def _ended(self, engine_id: str) -> None:
        def stop() -> None:
            if engine_id in self.containers:
                self.containers[engine_id].stop()

        self._loop.call_soon_threadsafe(stop)

    @asynccontextmanager
    async def scheduler(self) -> AsyncIterator[Running]:
        running = Running(self)
        try:
            await running.begin()
            yield running
        finally:
            await running.end()

    def of(self, container: int) -> Pretend:
        """The newest of a container."""
        found = [one for one in self.containers.values() if one.request.container == container]
        return max(found, key=lambda one: one.request.submission)

    def close(self) -> None:
        for one in self.containers.values():
            one.stop()
        self.deployed.clean_up()


class Running:
    """One scheduler that runs in this process."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.pulse = Pulse()
        self.itself = EngineScheduler(world.deployed.launch, self.pulse)
        self.task = asyncio.create_task(self.itself.run())

    async def begin(self) -> None:
        state = self.world.deployed.state
        await eventually(lambda: self.task.done() or state.get(paths.scheduler(NAME)), what="the scheduler's permit")
        self.client = ControlClient(f"ipc://{self.world.deployed.launch.sockets_dir}/scheduler", lambda _: None)

    async def ask(self, body: Any, timeout_s: float = 5.0) -> Any:
        return await self.client.call(body, timeout_s)

    async def records(self) -> dict[str, control_pb2.ProcessRecord]:
        reply = await self.ask(control_pb2.GetContainers())
        return {one.name: one for one in reply.containers}

    async def when(
        self, holds: Callable[[dict[str, control_pb2.ProcessRecord]], bool], what: str, timeout_s: float = 10.0
    ) -> dict[str, control_pb2.ProcessRecord]:
        async with asyncio.timeout(timeout_s):
            while True:
                found = await self.records()
                if holds(found):
                    return found
                await asyncio.sleep(0.02)

    async def all_run(self) -> dict[str, control_pb2.ProcessRecord]:
        return await self.when(
            lambda found: len(found) == 3 and all(one.phase == "RUNNING" for one in found.values()), "all running"
        )

    async def end(self) -> int:
        self.client.close()
        if not self.task.done():
            self.itself.end()
        code = await asyncio.wait_for(self.task, 10)
        self.pulse.close()
        loop = asyncio.get_running_loop()
        for signum in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(signum)
        return code


@pytest.fixture
def play(home: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Run a story with a world of its own."""
    monkeypatch.setattr(keeper, "PROVE_S", 0.1)

    def run(story: Callable[[World], Awaitable[None]], shared: str = "") -> None:
        async def tell() -> None:
            world = World(home, shared)
            monkeypatch.setattr(keeper_setup, "open_engine", lambda *_: world.engine)
            try:
                await story(world)
            finally:
                world.close()

        asyncio.run(tell())

    return run


def test_all_containers_run_and_a_kill_leaves_nothing(play: Callable[..., None]) -> None:
    async def story(world: World) -> None:
        async with world.scheduler() as scheduler:
            found = await scheduler.all_run()
            assert sorted(found) == ["executor-0", "executor-1", "executor-2"]
            assert {one.host for one in found.values()} == {"n1", "n2", "n3"}
            assert all(one.engine_id in world.engine.objects and one.submission == 1 for one in found.values())
            assert [world.of(number).epochs for number in range(3)] == [[1], [1], [1]]
            # Each has a size, container 0 a small one of its own.
            sizes = {one.container: one.ram_bytes for one in world.engine.requests.values()}
            assert 0 < sizes[0] < sizes[1]
            await eventually(lambda: world.of(1).granted >= 2, what="a lease that is renewed")
            reply = await scheduler.ask(control_pb2.KillTopology(grace_s=0.5), 10.0)
            assert reply.text == "killed topology word-count"
            assert await asyncio.wait_for(scheduler.task, 5) == exit_codes.OK
        assert world.engine.alive() == []
        state = world.deployed.state
        for path in (paths.execution_state, paths.placement, paths.scheduler, paths.packing_plan):
            assert state.get(path(NAME)) is None
        assert not curve.folder_of(world.deployed.launch.working_dir).exists()
        assert not Path(world.deployed.launch.sockets_dir).exists()
        assert not list(world.deployed.working_dir.glob("door.json"))

    play(story)


def test_the_ticket_and_the_secrets_appear_nowhere(play: Callable[..., None]) -> None:
    async def story(world: World) -> None:
        async with world.scheduler() as scheduler:
            await scheduler.all_run()
        one = world.of(1)
        assert one.welcome is not None
        secrets = [one.ticket.client.secret, one.welcome.server.secret, one.welcome.member.hex().encode()]
        text = b"".join(path.read_bytes() for path in world.deployed.working_dir.rglob("*.log"))
        state = world.deployed.state.get(paths.placement(NAME))
        assert state is not None
        assert not any(secret in text + state[0] for secret in secrets)

    play(story)


def test_a_container_that_ends_is_submitted_again_alone(play: Callable[..., None]) -> None:
    async def story(world: World) -> None:
        async with world.scheduler() as scheduler:
            found = await scheduler.all_run()
            world.engine.end(found["executor-1"].engine_id, ExitReason.OOM, "OUT_OF_MEMORY")
            world.engine.changed()
            after = await scheduler.when(
                lambda found: found["executor-1"].submission == 2 and found["executor-1"].phase == "RUNNING", "again"
            )
            assert (after["executor-1"].epoch, after["executor-1"].restarts) == (2, 1)
            assert after["executor-1"].exit == control_pb2.EXIT_OOM
            assert [after[name].submission for name in ("executor-0", "executor-2")] == [1, 1]
            assert len(world.engine.requests) == 4

    play(story)


def test_a_scheduler_adopts_what_its_predecessor_left(play: Callable[..., None]) -> None:
    async def story(world: World) -> None:
        async with world.scheduler() as first:
            before = await first.all_run()
            doors = first.itself.door.endpoints
        assert len(world.engine.alive()) == 3, "a scheduler that ends leaves its containers"
        assert all(not one.fenced for one in world.containers.values())
        async with world.scheduler() as second:
            assert second.itself.door.endpoints == doors
            after = await second.all_run()
            granted = {key: one.granted for key, one in world.containers.items()}
            await eventually(
                lambda: all(one.granted > granted[key] + 1 for key, one in world.containers.items()), what="renewals"
            )
        key = [(one.name, one.engine_id, one.submission, one.epoch) for one in before.values()]
        assert [(one.name, one.engine_id, one.submission, one.epoch) for one in after.values()] == key
        assert len(world.engine.requests) == 3

    play(story)


def test_a_hung_engine_stops_nothing(play: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heronpy.scheduler.keeper.ENGINE_DEADLINE_S", 0.5)

    async def story(world: World) -> None:
        async with world.scheduler() as scheduler:
            await scheduler.all_run()
            world.engine.hangs.set()
            try:
                async with asyncio.timeout(10):
                    while not (away := (await scheduler.ask(control_pb2.GetContainers())).engine_away):
                        await asyncio.sleep(0.02)
                assert "hung" in away or "not answered" in away
                granted = world.of(1).granted
                await eventually(lambda: world.of(1).granted > granted + 10, what="renewals go on")
            finally:
                world.engine.hangs.clear()
            async with asyncio.timeout(10):
                while (await scheduler.ask(control_pb2.GetContainers())).engine_away:
                    await asyncio.sleep(0.02)
            assert {one.submission for one in (await scheduler.all_run()).values()} == {1}

    play(story)


def test_a_container_that_waits_says_why(play: Callable[..., None]) -> None:
    async def story(world: World) -> None:
        world.engine.full = True
        async with world.scheduler() as scheduler:
            found = await scheduler.when(lambda found: any(one.words for one in found.values()), "words")
            one = next(one for one in found.values() if one.words)
            assert (one.phase, one.words, one.starts_at) == ("QUEUED", "Resources", 2e9)
            assert one.state == control_pb2.PROC_STARTING

    play(story)


def test_a_refusal_for_good_is_shown_and_a_restart_tries_again(play: Callable[..., None]) -> None:
    async def story(world: World) -> None:
        world.engine.refuses = "sbatch refuses: Invalid account"
        async with world.scheduler() as scheduler:
            found = await scheduler.when(
                lambda found: len(found) == 3 and all(one.phase == "FAILED" for one in found.values()), "refused"
            )
            assert {one.words for one in found.values()} == {"sbatch refuses: Invalid account"}
            world.engine.refuses = ""
            reply = await scheduler.ask(control_pb2.RestartContainer(container=-1), 20.0)
            assert reply.text == "restarted executor-0, executor-1, executor-2"
            assert world.engine.calls.count("submit") <= 6

    play(story)


def test_restart_replaces_one_container_and_waits_for_it(play: Callable[..., None]) -> None:
    async def story(world: World) -> None:
        async with world.scheduler() as scheduler:
            await scheduler.all_run()
            reply = await scheduler.ask(control_pb2.RestartContainer(container=2), 20.0)
            assert reply.text == "restarted executor-2"
            found = await scheduler.records()
            assert (found["executor-2"].submission, found["executor-2"].phase) == (2, "RUNNING")
            assert found["executor-1"].submission == 1
            with pytest.raises(RpcError, match="has no container 9; its containers are 0, 1, 2"):
                await scheduler.ask(control_pb2.RestartContainer(container=9), 5.0)

    play(story)


def test_drain_moves_the_containers_of_a_host_elsewhere(play: Callable[..., None]) -> None:
    async def story(world: World) -> None:
        world.engine.hosts = ["n1"]
        async with world.scheduler() as scheduler:
            await scheduler.all_run()
            world.engine.hosts = ["n1", "n2"]
            reply = await scheduler.ask(control_pb2.DrainHost(host="n1", by="ann on login1"), 30.0)
            assert "moved container 0, container 1, container 2" in reply.text
            said = {(one.reason, one.text) for number in range(3) for one in world.of(number).after}
            assert said == {("moved", "ann on login1 has moved it away from host n1")}
            found = await scheduler.all_run()
            assert {one.host for one in found.values()} == {"n2"}
            again = await scheduler.ask(control_pb2.DrainHost(host="n1"), 5.0)
            assert "no container was there" in again.text
            with pytest.raises(RpcError, match="has a name"):
                await scheduler.ask(control_pb2.DrainHost(), 5.0)

    play(story)


def test_a_drain_is_carried_on_by_the_next_scheduler(play: Callable[..., None]) -> None:
    async def story(world: World) -> None:
        world.engine.hosts = ["n1"]
        async with world.scheduler() as first:
            await first.all_run()
            asked = asyncio.create_task(
                first.ask(control_pb2.DrainHost(host="n1", by="ann on login1", wait_s=60), 60.0)
            )
            await eventually(lambda: len(world.engine.requests) == 4, what="the first successor")
            asked.cancel()
        world.engine.hosts = ["n1", "n2"]
        world.engine.make_room()
        async with world.scheduler() as second:
            await second.when(
                lambda found: {(one.host, one.phase) for one in found.values()} == {("n2", "RUNNING")},
                "all on the other host",
            )
            said = {(one.reason, one.text) for number in range(3) for one in world.of(number).after}
            assert said == {("moved", "ann on login1 has moved it away from host n1")}

    play(story)


def test_a_drain_that_finds_no_other_host_fails_and_all_go_on_where_they_are(play: Callable[..., None]) -> None:
    """One that the engine refuses, and one that waits in its queue for longer than the user does."""

    async def story(world: World) -> None:
        world.engine.hosts = ["n1"]
        async with world.scheduler() as scheduler:
            before = await scheduler.all_run()
            with pytest.raises(LateRpcError) as late:
                await scheduler.ask(control_pb2.DrainHost(host="n1", wait_s=1.0), 30.0)
            assert "container 0 cannot be moved away from host n1 within 1 s: its successor is QUEUED" in str(
                late.value
            )
            assert "it and container 1, container 2 stay there, and host n1 may get containers as before" in str(
                late.value
            )
            world.engine.away = "squeue has not answered within 10 s"
            async with asyncio.timeout(10):
                while not (await scheduler.ask(control_pb2.GetContainers())).engine_away:
                    await asyncio.sleep(0.02)
            with pytest.raises(RpcError, match="within 1 s: the engine does not answer: squeue has not answered"):
                await scheduler.ask(control_pb2.DrainHost(host="n1", wait_s=1.0), 30.0)
            world.engine.away = ""
            world.engine.refuses = "sbatch refuses: no such configuration"
            with pytest.raises(
                RpcError, match=r"container 0 cannot be moved .*: sbatch refuses: no such configuration;"
            ):
                await scheduler.ask(control_pb2.DrainHost(host="n1", wait_s=60.0), 30.0)
            world.engine.refuses = ""
            after = await scheduler.all_run()
            key = [(one.name, one.engine_id, one.epoch, one.host) for one in before.values()]
            assert [(one.name, one.engine_id, one.epoch, one.host) for one in after.values()] == key
            await eventually(lambda: len(world.engine.alive()) == 3, what="what waited is gone")
            assert [world.of(number).epochs for number in range(3)] == [[1], [1], [1]]

    play(story)


def test_a_drain_waits_for_the_queue_as_long_as_the_user_does(
    play: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Far longer than a restart is given; those that wait act meanwhile."""
    monkeypatch.setattr(keeper, "RESTART_MAX_S", -1e6)

    async def story(world: World) -> None:
        world.engine.hosts = ["n1"]
        async with world.scheduler() as scheduler:
            await scheduler.all_run()
            world.engine.hosts, world.engine.full = ["n1", "n2"], True
            drain = asyncio.create_task(scheduler.ask(control_pb2.DrainHost(host="n1", wait_s=30.0), 40.0))
            await scheduler.when(lambda found: found["executor-0"].phase == "QUEUED", "a successor in the queue")
            granted = world.of(0).granted
            await eventually(lambda: world.of(0).granted > granted + 2, what="the container acting on")
            assert not drain.done() and world.of(0).epochs == [1]
            world.engine.make_room()
            assert "moved container 0, container 1, container 2" in (await drain).text
            assert {one.host for one in (await scheduler.all_run()).values()} == {"n2"}

    play(story)


def test_an_engine_that_tells_no_container_to_end_and_avoids_no_host(play: Callable[..., None]) -> None:
    """Then the door tells it, at once, and a drain is refused."""

    async def story(world: World) -> None:
        world.engine.traits = Traits(avoids_hosts=False, tells_to_end=False)
        async with world.scheduler() as scheduler:
            await scheduler.all_run()
            with pytest.raises(RpcError, match="cannot keep containers away from a host"):
                await scheduler.ask(control_pb2.DrainHost(host="n1"), 5.0)
            await scheduler.ask(control_pb2.RestartContainer(container=2), 30.0)
            assert (await scheduler.all_run())["executor-2"].submission == 2

    play(story)


def test_a_silent_container_waits_for_its_end_or_for_a_user(play: Callable[..., None]) -> None:
    """ATMOST_ONCE with the state at the door: nobody acts beside one that may still run."""

    async def story(world: World) -> None:
        async with world.scheduler() as scheduler:
            before = (await scheduler.all_run())["executor-1"]
            world.of(1).stop()  # the engine goes on listing it
            after = await scheduler.when(lambda found: found["executor-1"].phase == "STANDBY", "a successor")
            assert after["executor-1"].host != before.host, "the host is avoided"
            assert "until the end of submission 1 is confirmed" in after["executor-1"].words
            await scheduler.ask(control_pb2.RestartContainer(container=1, force=True), 20.0)
            after = await scheduler.all_run()
            assert (after["executor-1"].submission, after["executor-1"].epoch) == (2, 2)
            await eventually(lambda: before.engine_id not in world.engine.alive(), what="the old one is cancelled")

    play(story)


def test_a_container_that_has_to_leave_gets_a_successor_first(play: Callable[..., None]) -> None:
    async def story(world: World) -> None:
        async with world.scheduler() as scheduler:
            await scheduler.all_run()
            leaver = world.of(1)
            await leaver.client.call(door_pb2.Leave(member=leaver.member, why="preemption"))
            await eventually(lambda: world.of(1) is not leaver and world.of(1).epoch == 2, what="the successor acts")
            assert leaver.epochs == [1]

    play(story)


def test_who_has_lost_the_permit_ends_and_carries_out_nothing(play: Callable[..., None]) -> None:
    async def story(world: World) -> None:
        async with world.scheduler() as scheduler:
            await scheduler.all_run()
            calls = world.engine.calls.count("submit")
            state = world.deployed.state
            other = plan_pb2.SchedulerLocation(topology=NAME, endpoint="ipc:///nowhere", permit="another")
            state.set(paths.scheduler(NAME), other.SerializeToString())
            assert await asyncio.wait_for(scheduler.task, 5) == exit_codes.FENCED
            assert world.engine.calls.count("submit") == calls
            assert world.engine.calls.count("cancel") == 0
            assert len(world.engine.alive()) == 3

    play(story)


def test_a_second_scheduler_is_refused(play: Callable[..., None]) -> None:
    async def story(world: World) -> None:
        state = world.deployed.state
        other = plan_pb2.SchedulerLocation(topology=NAME, endpoint="ipc:///nowhere", permit="another")
        state.set(paths.scheduler(NAME), other.SerializeToString())
        pulse = Pulse()
        assert await EngineScheduler(world.deployed.launch, pulse).run() == exit_codes.FENCED
        pulse.close()
        assert world.engine.calls == []

    play(story)


def test_the_door_refuses_who_does_not_belong_there(play: Callable[..., None]) -> None:
    async def story(world: World) -> None:
        async with world.scheduler() as scheduler:
            await scheduler.all_run()
            door, one = scheduler.itself.door, world.of(1)
            call = one.client.call
            for change, words in (
                ({"topology_id": "another"}, "this is the door of topology word-count-1"),
                ({"heronpy": "9.9"}, "release 9.9, but the topology was submitted with 0"),
                ({"python": "2.7"}, "Python on host n.* is 2.7"),
                ({"submission": 1 << 31}, "container 1 has no submission 2147483648"),
            ):
                hello = one.hello()
                for name, value in change.items():
                    setattr(hello, name, value)
                with pytest.raises(InvalidRpcError, match=words):
                    await call(hello)
            stranger = one.hello()
            stranger.container = 7
            with pytest.raises(FencedRpcError, match="no container 7"):
                await call(stranger)
            mine = door_pb2.Member(container=1, submission=1, secret=one.welcome.member)  # type: ignore[union-attr]
            for numbers in ({"epoch": 1 << 60}, {"stopped": 1 << 60}):
                with pytest.raises(InvalidRpcError, match="an epoch that nobody gave it"):
                    await call(door_pb2.Renew(member=mine, number=10**6, **numbers))
            unknown = door.unknown
            for body in (
                door_pb2.Renew(member=door_pb2.Member(container=2, submission=1, secret=one.welcome.member)),  # type: ignore[union-attr]
                door_pb2.Leave(member=door_pb2.Member(container=2, submission=1)),
                door_pb2.ReadPackage(),
                door_pb2.StateOpen(),
            ):
                with pytest.raises(InvalidRpcError, match="is no member of this topology; say hello first"):
                    await call(body)
            assert door.unknown == unknown + 4
            for body in (control_pb2.KillTopology(), control_pb2.GetContainers(), control_pb2.Ok()):
                with pytest.raises(InvalidRpcError, match="does not know the request"):
                    await call(body)
            sock = zmq.Context.instance().socket(zmq.DEALER)
            one.ticket.keys().connect(sock)
            sock.connect(door.endpoints[0])
            sock.send(b"no envelope")
            await eventually(lambda: door.garbage == 1, what="garbage is counted")
            sock.close(0)
            with zmq.Context.instance().socket(zmq.DEALER) as plain:
                plain.connect(door.endpoints[0])
                await eventually(lambda: door.strangers >= 1, what="a stranger is counted")
            assert (await scheduler.all_run())["executor-1"].submission == 1
            told = (await scheduler.ask(control_pb2.GetContainers())).refused
            assert (told.garbage, told.unknown, told.releases) == (1, door.unknown, 2)
            assert told.strangers >= 1 and not told.oversized

    play(story)


def test_a_submission_is_the_process_that_said_hello_first(play: Callable[..., None]) -> None:
    """The ticket alone is not enough to act for a container that acts already, also after the scheduler's restart."""

    async def story(world: World) -> None:
        async with world.scheduler() as scheduler:
            await scheduler.all_run()
        async with world.scheduler() as scheduler:
            await scheduler.all_run()
            one = world.of(1)
            again = await one.client.call(one.hello())
            assert again.member == one.member.secret, "its own hello may come twice"
            for nonce, words in (
                (os.urandom(32), "is another process, which has said hello before"),
                (b"", "32 bytes"),
            ):
                impostor = one.hello()
                impostor.nonce = nonce
                with pytest.raises(InvalidRpcError, match=words):
                    await one.client.call(impostor)
            assert scheduler.itself.admission.impostors == 1
            early = one.hello()
            early.submission = 2
            with pytest.raises(RetryableRpcError, match="has no submission 2 yet"):
                await one.client.call(early)
            granted = one.granted
            await eventually(lambda: one.granted > granted + 2, what="the true one goes on")
            file = door_keys.folder_of(world.deployed.launch.working_dir) / "bound.json"
            assert file.stat().st_mode & 0o777 == 0o600 and one.nonce.hex() not in file.read_text()

    play(story)


def test_only_the_submission_that_acts_has_rights_at_the_state(play: Callable[..., None]) -> None:
    async def story(world: World) -> None:
        async with world.scheduler() as scheduler:
            await scheduler.all_run()
            old = world.of(1)
            session = (await old.client.call(door_pb2.StateOpen(member=old.member, session_s=5.0))).session
            read = door_pb2.StateCall(session=session, member=old.member.secret, get=paths.topology(NAME))
            assert (await old.client.call(read)).found
            # It renews no more, and its processes go on.
            old.stop()
            other = ControlClient(old.ticket.addresses[0], lambda _: None, keys=old.ticket.keys())
            await scheduler.when(lambda found: found["executor-1"].phase == "STANDBY", "a successor")
            new = world.of(1)
            await eventually(lambda: new.welcome, what="its welcome")
            opening = door_pb2.StateOpen(member=new.member, session_s=5.0)
            with pytest.raises(RetryableRpcError, match="was not activated yet"):
                await new.client.call(opening)
            await scheduler.ask(control_pb2.RestartContainer(container=1, force=True), 20.0)
            await new.client.call(opening)
            for body in (read, door_pb2.StateOpen(member=old.member, session_s=5.0)):
                with pytest.raises(FencedRpcError, match="submission 1, was replaced by submission 2"):
                    await other.call(body)
            other.close()
            assert scheduler.itself.door.replaced == 2

    play(story)


def test_what_an_ended_submission_had_sent_counts_as_no_refusal(play: Callable[..., None]) -> None:
    """It may be read after the last word of its container, which came over another connection."""

    async def story(world: World) -> None:
        async with world.scheduler() as scheduler:
            await scheduler.all_run()
            old = world.of(1)
            session = (await old.client.call(door_pb2.StateOpen(member=old.member, session_s=5.0))).session
            late = ControlClient(old.ticket.addresses[0], lambda _: None, keys=old.ticket.keys())
            world.engine.cancel = lambda engine_ids, grace_s: old.stop()  # type: ignore[method-assign]
            restart = asyncio.create_task(scheduler.ask(control_pb2.RestartContainer(container=1), 20.0))
            await eventually(lambda: world.of(1) is not old and world.of(1).welcome, what="its successor")
            await late.call(door_pb2.Renew(member=old.member, number=1000, stopped=1))
            await restart
            with pytest.raises(FencedRpcError, match="submission 1, was replaced by submission 2"):
                await late.call(door_pb2.StateCall(session=session, member=old.member.secret, get=paths.topology(NAME)))
            late.close()
            assert scheduler.itself.door.replaced == 0

    play(story)


def test_what_is_heard_at_once_is_looked_at_once(play: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0
    views = Placement.views

    def counted(self: Placement) -> Any:
        nonlocal looks
        looks += 1
        return views(self)

    async def story(world: World) -> None:
        nonlocal looks
        async with world.scheduler() as scheduler:
            await scheduler.all_run()
            monkeypatch.setattr(Placement, "views", counted)
            looks = 0
            for _ in range(200):
                await scheduler.itself.admission.renew((1, 1), door_pb2.Renew(number=1, epoch=1))
            assert looks <= 2
            await asyncio.sleep(0)
            assert looks >= 1

    play(story)


def test_large_requests_are_refused_and_counted(play: Callable[..., None]) -> None:
    async def story(world: World) -> None:
        async with world.scheduler() as scheduler:
            await scheduler.all_run()
            one = world.of(1)
            for body in (
                door_pb2.Leave(member=one.member, why="x" * (1 << 20)),
                door_pb2.ReadPackage(member=one.member, package="x" * (1 << 20)),
            ):
                with pytest.raises(InvalidRpcError, match="has 64 KiB at most"):
                    await one.client.call(body)
            assert scheduler.itself.door.oversized == 2

    play(story)


def test_logs_and_spans_are_kept_and_bounded(play: Callable[..., None]) -> None:
    async def story(world: World) -> None:
        async with world.scheduler() as scheduler:
            await scheduler.all_run()
            one = world.of(1)
            end = door_pb2.LogEnd(member=one.member, process="stmgr-1", data=b"cut off\nlast line", cut=True)
            await one.client.call(end)
            text = (world.deployed.launch.log_dir / "stmgr-1.log").read_text()
            assert f"the end of the log of stmgr-1 on host {one.host}, container 1, submission 1" in text
            assert text.endswith("last line\n") and "cut off" not in text
            for name in ("../x", "scheduler", "a/b", "", "x" * 300, "scheduler.old"):
                end.process = name
                with pytest.raises(InvalidRpcError, match="is not the name of a process"):
                    await one.client.call(end)
            end.process, end.data = "stmgr-1", b"x" * ((1 << 20) + 1)
            with pytest.raises(InvalidRpcError, match="MB at most"):
                await one.client.call(end)
            spans = [door_pb2.StartSpan(name="fetch", took_s=1.5) for _ in range(40)]
            await one.client.call(door_pb2.StartSpans(member=one.member, spans=spans))
            kept = (await scheduler.records())["executor-1"].start_spans
            assert len(kept) == 16 and kept[0].name == "fetch"

    play(story)


def test_logs_that_did_not_arrive_are_said_to_be_lost(
    play: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper, "LOG_CHECK_S", 0.1)

    async def story(world: World) -> None:
        async with world.scheduler() as scheduler:
            found = await scheduler.all_run()
            logs, two = world.deployed.launch.log_dir, world.of(2)
            await two.client.call(door_pb2.LogEnd(member=two.member, process="bootstrap-2", data=b"it ends\n"))
            for number in (1, 2):
                world.engine.end(found[f"executor-{number}"].engine_id, ExitReason.CRASHED)
            world.engine.changed()
            said = "container 1, submission 1, has ended without sending its logs; they are on host n2, if it still has"
            file = logs / "executor-1.log"
            await eventually(lambda: file.exists() and said in file.read_text(), what="the sentence")
            await scheduler.when(lambda found: found["executor-2"].submission == 2, "another submission")
            await scheduler.all_run()
            await scheduler.ask(control_pb2.KillTopology(grace_s=0.5), 30.0)
        assert file.read_text().count(said) == 1
        assert "submission 2, has ended without" in file.read_text(), "those of a kill, too"
        assert "submission 1," not in (logs / "executor-2.log").read_text()

    play(story)


def test_a_container_of_another_release_fails_in_its_own_words(play: Callable[..., None]) -> None:
    async def story(world: World) -> None:
        def make(request: Request, host: str) -> Pretend:
            return Pretend(request, host, release="9.9" if request.container == 1 else "0")

        world.make = make
        async with world.scheduler() as scheduler:
            await eventually(lambda: any(one.refused for one in world.containers.values()), what="the refusal")
            engine_id = next(key for key, one in world.containers.items() if one.request.container == 1)
            world.engine.end(engine_id, ExitReason.STARTUP_FAILURE, "FAILED, exit code 3")
            found = await scheduler.when(lambda found: found["executor-1"].phase == "FAILED", "it has failed")
            assert "heronpy on host n2 is of release 9.9, but the topology" in found["executor-1"].words
            assert found["executor-1"].exit_detail == found["executor-1"].words
            assert (await scheduler.records())["executor-2"].phase != "FAILED"

    play(story)


def test_a_kill_while_the_engine_is_away_goes_on_until_it_is_back(play: Callable[..., None]) -> None:
    async def story(world: World) -> None:
        state = world.deployed.state
        async with world.scheduler() as scheduler:
            await scheduler.all_run()
            world.engine.away = "squeue has not answered within 10 s"
            said = await scheduler.ask(control_pb2.KillTopology(grace_s=0.3, wait_s=4.0), 60.0)
            assert isinstance(said, control_pb2.KillUnderWay)
            assert said.engine_away == "squeue has not answered within 10 s"
            assert [one.partition(" (")[0] for one in said.left] == [f"container {n}, submission 1" for n in range(3)]
            assert all("asked to end" in one.fenced for one in world.containers.values()), "the door ends them"
            assert state.get(paths.execution_state(NAME)) is not None
            for body in (control_pb2.RestartContainer(container=-1), control_pb2.DrainHost(host="n1")):
                with pytest.raises(RpcError, match="was killed"):
                    await scheduler.ask(body)
        # The one that follows it neither adopts nor submits.
        async with world.scheduler() as second:
            assert (await second.ask(control_pb2.GetContainers())).killing
            submitted = world.engine.calls.count("submit")
            world.engine.away = ""
            reply = await second.ask(control_pb2.KillTopology(wait_s=30.0), 60.0)
            assert reply.text == "killed topology word-count"
            assert await asyncio.wait_for(second.task, 5) == exit_codes.OK
        assert world.engine.calls.count("submit") == submitted
        assert world.engine.alive() == [] and state.get(paths.execution_state(NAME)) is None

    play(story)


def test_a_user_may_remove_what_nobody_confirms(play: Callable[..., None]) -> None:
    async def story(world: World) -> None:
        async with world.scheduler() as scheduler:
            await scheduler.all_run()
            world.engine.away = "squeue has not answered within 10 s"
            await scheduler.ask(control_pb2.KillTopology(grace_s=0.3, wait_s=0.5), 60.0)
            await scheduler.ask(control_pb2.KillTopology(force=True), 60.0)
            assert await asyncio.wait_for(scheduler.task, 5) == exit_codes.OK
        assert world.deployed.state.get(paths.execution_state(NAME)) is None

    play(story)


def test_a_folder_that_cannot_be_shared_is_refused_and_everything_closed(play: Callable[..., None]) -> None:
    async def story(world: World) -> None:
        for _ in range(2):  # what the first one leaves open would be in the way of the second
            pulse = Pulse()
            assert await EngineScheduler(world.deployed.launch, pulse).run() == exit_codes.REFUSED
            pulse.close()
        assert world.deployed.state.get(paths.scheduler(NAME)) is None
        assert world.engine.calls == []

    play(story, "/nowhere/at/all")


def test_a_shared_folder_proves_itself_to_containers(play: Callable[..., None], tmp_path: Path) -> None:
    async def story(world: World) -> None:
        async with world.scheduler() as scheduler:
            await scheduler.all_run()
            welcome = world.of(1).welcome
            assert welcome is not None
            (proof,) = welcome.shared
            file = Path(proof.path) / proof.name
            assert (proof.path, file.read_bytes()) == (str(tmp_path), proof.content)
            assert file.stat().st_mode & 0o777 == 0o600
            await scheduler.ask(control_pb2.KillTopology(grace_s=0.5), 10.0)
        assert not file.exists()

    play(story, str(tmp_path))


def test_what_was_opened_is_closed_when_a_later_step_fails(play: Callable[..., None]) -> None:
    async def story(world: World) -> None:
        state = world.deployed.state
        state.set(paths.placement(NAME), b"\xff\xff")
        for _ in range(2):
            pulse = Pulse()
            assert await EngineScheduler(world.deployed.launch, pulse).run() == exit_codes.STARTUP_FAILURE
            pulse.close()
        state.delete(paths.placement(NAME))
        async with world.scheduler() as scheduler:
            await scheduler.all_run()

    play(story)


def test_whatever_a_holder_of_the_ticket_sends_the_door_goes_on(
    play: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    async def story(world: World) -> None:
        async with world.scheduler() as scheduler:
            await scheduler.all_run()
            one, dice = world.of(1), random.Random(14)
            member = one.member
            own = [
                one.hello(),
                door_pb2.Renew(member=member, number=2**64 - 1, epoch=1, wait_s=float("nan")),
                door_pb2.Renew(member=member, wait_s=-1e300),
                door_pb2.ReadPackage(member=member, package="a" * 64, offset=2**64 - 1),
                door_pb2.LogEnd(member=member, process="stmgr-1\n", data=b"x"),
                door_pb2.StartSpans(member=member, spans=[door_pb2.StartSpan(name="\x1b[2J", took_s=float("inf"))]),
                door_pb2.StateOpen(member=member, session_s=float("nan")),
                door_pb2.StateCall(session=1, member=one.welcome.member if one.welcome else b""),
            ]
            seeds = [*envelopes(), *(seal(wrap(body, 7)) for body in own)]
            sock = zmq.Context.instance().socket(zmq.DEALER)
            one.ticket.keys().connect(sock)
            sock.connect(scheduler.itself.door.endpoints[0])
            for seed in seeds:
                sock.send(seed)
                damaged = bytearray(seed)
                for _ in range(3):
                    damaged[dice.randrange(len(damaged))] = dice.randrange(256)
                sock.send(bytes(damaged))
                await asyncio.sleep(0)
            granted = world.of(2).granted
            await eventually(lambda: world.of(2).granted > granted + 3, what="others are served")
            sock.close(0)
            found = await scheduler.all_run()
            assert {found[name].submission for name in ("executor-0", "executor-2")} == {1}
            assert not scheduler.task.done()
            assert not [record.getMessage() for record in caplog.records if record.exc_info]

    play(story)
