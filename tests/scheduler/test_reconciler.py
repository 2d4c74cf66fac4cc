"""The scheduler of containers on an engine, with an engine in memory and containers that only speak at its endpoint."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from heronpy.common import exit_codes
from heronpy.common.errors import LateRpcError, RpcError
from heronpy.engines.contract import Request, Traits
from heronpy.net import curve
from heronpy.procs.exit_reason import ExitReason
from heronpy.proto import control_pb2, endpoint_pb2, plan_pb2
from heronpy.scheduler import reconciler
from heronpy.scheduler.guardian import Pulse
from heronpy.scheduler.reconciler import EngineScheduler
from heronpy.statemgr import paths
from tests.scheduler.conftest import MakeWorld
from tests.scheduler.reconciler_world import NAME, World
from tests.support.memory_engine import Pretend
from tests.support.waiting import eventually


async def test_all_containers_run_and_a_kill_leaves_nothing(world: World) -> None:
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
    assert not list(world.deployed.working_dir.glob("endpoint.json"))


async def test_the_token_and_the_secrets_appear_nowhere(world: World) -> None:
    async with world.scheduler() as scheduler:
        await scheduler.all_run()
    one = world.of(1)
    assert one.welcome is not None
    secrets = [one.token.client.secret, one.welcome.server.secret, one.welcome.secret.hex().encode()]
    text = b"".join(path.read_bytes() for path in world.deployed.working_dir.rglob("*.log"))
    state = world.deployed.state.get(paths.placement(NAME))
    assert state is not None
    assert not any(secret in text + state[0] for secret in secrets)


async def test_a_container_that_ends_is_submitted_again_alone(world: World) -> None:
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


async def test_a_scheduler_adopts_what_its_predecessor_left(world: World) -> None:
    async with world.scheduler() as first:
        before = await first.all_run()
        endpoints = first.itself.endpoint.listens_at
    assert len(world.engine.alive()) == 3, "a scheduler that ends leaves its containers"
    assert all(not one.fenced for one in world.containers.values())
    async with world.scheduler() as second:
        assert second.itself.endpoint.listens_at == endpoints
        after = await second.all_run()
        granted = {key: one.granted for key, one in world.containers.items()}
        await eventually(
            lambda: all(one.granted > granted[key] + 1 for key, one in world.containers.items()), what="renewals"
        )
    key = [(one.name, one.engine_id, one.submission, one.epoch) for one in before.values()]
    assert [(one.name, one.engine_id, one.submission, one.epoch) for one in after.values()] == key
    assert len(world.engine.requests) == 3


async def test_a_hung_engine_stops_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heronpy.scheduler.reconciler.ENGINE_DEADLINE_S", 0.5)
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


async def test_a_container_that_waits_says_why(world: World) -> None:
    world.engine.full = True
    async with world.scheduler() as scheduler:
        found = await scheduler.when(lambda found: any(one.words for one in found.values()), "words")
        one = next(one for one in found.values() if one.words)
        assert (one.phase, one.words, one.starts_at) == ("QUEUED", "Resources", 2e9)
        assert one.state == control_pb2.PROC_STARTING


async def test_a_refusal_for_good_is_shown_and_a_restart_tries_again(world: World) -> None:
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


async def test_restart_replaces_one_container_and_waits_for_it(world: World) -> None:
    async with world.scheduler() as scheduler:
        await scheduler.all_run()
        reply = await scheduler.ask(control_pb2.RestartContainer(container=2), 20.0)
        assert reply.text == "restarted executor-2"
        found = await scheduler.records()
        assert (found["executor-2"].submission, found["executor-2"].phase) == (2, "RUNNING")
        assert found["executor-1"].submission == 1
        with pytest.raises(RpcError, match="has no container 9; its containers are 0, 1, 2"):
            await scheduler.ask(control_pb2.RestartContainer(container=9), 5.0)


async def test_a_container_gets_another_size_and_its_old_one_ends_when_it_stands_by(world: World) -> None:
    async with world.scheduler() as scheduler:
        await scheduler.all_run()
        larger = control_pb2.RestartContainer(container=2, standing_by=True, plan_version=1, wait_s=20.0, by="ann")
        reply = await scheduler.ask(larger, 25.0)
        assert reply.text == "container 2 now has the size that packing plan 1 specifies"
        found = await scheduler.records()
        assert (found["executor-2"].submission, found["executor-2"].phase) == (2, "RUNNING")
        assert found["executor-1"].submission == 1
        unseen = control_pb2.RestartContainer(container=2, standing_by=True, plan_version=9, wait_s=0.3)
        with pytest.raises(RpcError, match="within 0 s: the scheduler has not seen the new size"):
            await scheduler.ask(unseen, 5.0)


async def test_drain_moves_the_containers_of_a_host_elsewhere(world: World) -> None:
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
        assert "the host had no containers" in again.text
        with pytest.raises(RpcError, match="name the host to drain, as heron status shows it"):
            await scheduler.ask(control_pb2.DrainHost(), 5.0)


async def test_a_drain_is_carried_on_by_the_next_scheduler(world: World) -> None:
    world.engine.hosts = ["n1"]
    async with world.scheduler() as first:
        await first.all_run()
        asked = asyncio.create_task(first.ask(control_pb2.DrainHost(host="n1", by="ann on login1", wait_s=60), 60.0))
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


async def test_a_drain_that_finds_no_other_host_fails_and_all_go_on_where_they_are(world: World) -> None:
    """One that the engine refuses, and one that waits in its queue for longer than the user does."""
    world.engine.hosts = ["n1"]
    async with world.scheduler() as scheduler:
        before = await scheduler.all_run()
        with pytest.raises(LateRpcError) as late:
            await scheduler.ask(control_pb2.DrainHost(host="n1", wait_s=1.0), 30.0)
        assert "container 0 cannot be moved away from host n1 within 1 s: its successor is QUEUED" in str(late.value)
        assert "it and container 1, container 2 stay there, and host n1 may get containers again" in str(late.value)
        world.engine.away = "squeue has not answered within 10 s"
        async with asyncio.timeout(10):
            while not (await scheduler.ask(control_pb2.GetContainers())).engine_away:
                await asyncio.sleep(0.02)
        with pytest.raises(RpcError, match="within 1 s: the engine does not answer: squeue has not answered"):
            await scheduler.ask(control_pb2.DrainHost(host="n1", wait_s=1.0), 30.0)
        world.engine.away = ""
        world.engine.refuses = "sbatch refuses: no such configuration"
        with pytest.raises(RpcError, match=r"container 0 cannot be moved .*: sbatch refuses: no such configuration;"):
            await scheduler.ask(control_pb2.DrainHost(host="n1", wait_s=60.0), 30.0)
        world.engine.refuses = ""
        after = await scheduler.all_run()
        key = [(one.name, one.engine_id, one.epoch, one.host) for one in before.values()]
        assert [(one.name, one.engine_id, one.epoch, one.host) for one in after.values()] == key
        await eventually(lambda: len(world.engine.alive()) == 3, what="what waited is gone")
        assert [world.of(number).epochs for number in range(3)] == [[1], [1], [1]]


async def test_a_drain_waits_for_the_queue_as_long_as_the_user_does(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Far longer than a restart is given; those that wait act meanwhile."""
    monkeypatch.setattr(reconciler, "RESTART_MAX_S", -1e6)
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


async def test_an_engine_that_tells_no_container_to_end_and_avoids_no_host(world: World) -> None:
    """Then the endpoint tells it, at once, and a drain is refused."""
    world.engine.traits = Traits(avoids_hosts=False, tells_to_end=False)
    async with world.scheduler() as scheduler:
        await scheduler.all_run()
        with pytest.raises(RpcError, match="cannot keep containers away from a host"):
            await scheduler.ask(control_pb2.DrainHost(host="n1"), 5.0)
        await scheduler.ask(control_pb2.RestartContainer(container=2), 30.0)
        assert (await scheduler.all_run())["executor-2"].submission == 2


async def test_a_silent_container_waits_for_its_end_or_for_a_user(world: World) -> None:
    """ATMOST_ONCE with the state at the endpoint: no successor acts while the old container may run."""
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


async def test_a_container_that_has_to_leave_gets_a_successor_first(world: World) -> None:
    async with world.scheduler() as scheduler:
        await scheduler.all_run()
        leaver = world.of(1)
        await leaver.client.call(endpoint_pb2.Leave(credential=leaver.credential, why="preemption"))
        await eventually(lambda: world.of(1) is not leaver and world.of(1).epoch == 2, what="the successor acts")
        assert leaver.epochs == [1]


async def test_who_has_lost_the_permit_ends_and_carries_out_nothing(world: World) -> None:
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


async def test_a_second_scheduler_is_refused(world: World) -> None:
    state = world.deployed.state
    other = plan_pb2.SchedulerLocation(topology=NAME, endpoint="ipc:///nowhere", permit="another")
    state.set(paths.scheduler(NAME), other.SerializeToString())
    pulse = Pulse()
    assert await EngineScheduler(world.deployed.launch, pulse).run() == exit_codes.FENCED
    pulse.close()
    assert world.engine.calls == []


async def test_a_container_of_another_release_fails_in_its_own_words(world: World) -> None:
    def make(request: Request, host: str) -> Pretend:
        return Pretend(request, host, release="9.9" if request.container == 1 else "0")

    world.make = make
    async with world.scheduler() as scheduler:
        await eventually(lambda: any(one.refused for one in world.containers.values()), what="the refusal")
        engine_id = next(key for key, one in world.containers.items() if one.request.container == 1)
        world.engine.end(engine_id, ExitReason.STARTUP_FAILURE, "FAILED, exit code 3")
        found = await scheduler.when(lambda found: found["executor-1"].phase == "FAILED", "it has failed")
        assert "heronpy on host n2 has release 9.9, but the topology" in found["executor-1"].words
        assert found["executor-1"].exit_detail == found["executor-1"].words
        assert (await scheduler.records())["executor-2"].phase != "FAILED"


async def test_a_kill_while_the_engine_is_away_goes_on_until_it_is_back(world: World) -> None:
    state = world.deployed.state
    async with world.scheduler() as scheduler:
        await scheduler.all_run()
        world.engine.away = "squeue has not answered within 10 s"
        said = await scheduler.ask(control_pb2.KillTopology(grace_s=0.3, wait_s=4.0), 60.0)
        assert isinstance(said, control_pb2.KillUnderWay)
        assert said.engine_away == "squeue has not answered within 10 s"
        assert [one.partition(" (")[0] for one in said.left] == [f"container {n}, submission 1" for n in range(3)]
        by_endpoint = ["asked to end" in one.fenced for one in world.containers.values()]
        assert all(by_endpoint), "the control endpoint ends them"
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


async def test_a_user_may_remove_what_nobody_confirms(world: World) -> None:
    async with world.scheduler() as scheduler:
        await scheduler.all_run()
        world.engine.away = "squeue has not answered within 10 s"
        await scheduler.ask(control_pb2.KillTopology(grace_s=0.3, wait_s=0.5), 60.0)
        await scheduler.ask(control_pb2.KillTopology(force=True), 60.0)
        assert await asyncio.wait_for(scheduler.task, 5) == exit_codes.OK
    assert world.deployed.state.get(paths.execution_state(NAME)) is None


async def test_a_folder_that_cannot_be_shared_is_refused_and_everything_closed(make_world: MakeWorld) -> None:
    async with make_world("/nowhere/at/all") as world:
        for _ in range(2):  # what the first one leaves open would be in the way of the second
            pulse = Pulse()
            assert await EngineScheduler(world.deployed.launch, pulse).run() == exit_codes.REFUSED
            pulse.close()
        assert world.deployed.state.get(paths.scheduler(NAME)) is None
        assert world.engine.calls == []


async def test_a_shared_folder_proves_itself_to_containers(make_world: MakeWorld, tmp_path: Path) -> None:
    async with make_world(str(tmp_path)) as world:
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


async def test_what_was_opened_is_closed_when_a_later_step_fails(world: World) -> None:
    state = world.deployed.state
    state.set(paths.placement(NAME), b"\xff\xff")
    for _ in range(2):
        pulse = Pulse()
        assert await EngineScheduler(world.deployed.launch, pulse).run() == exit_codes.STARTUP_FAILURE
        pulse.close()
    state.delete(paths.placement(NAME))
    async with world.scheduler() as scheduler:
        await scheduler.all_run()
