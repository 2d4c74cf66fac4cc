"""Clients on other hosts at the endpoint: what is passed on and how it comes back, and what is refused and counted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from typing import Any

import pytest
import zmq

from heronpy.common.errors import (
    ConfigError,
    DeadlineError,
    FencedRpcError,
    HeronError,
    InvalidRpcError,
    ReplacedError,
    RetryableRpcError,
    RpcError,
    StateError,
    TopologyError,
)
from heronpy.net import access, curve
from heronpy.net.access import EndpointPlace
from heronpy.net.authenticator import Authenticator
from heronpy.net.curve import Pair
from heronpy.net.endpoint_state import EndpointStateManager
from heronpy.net.join_token import SessionCredential
from heronpy.net.relaying import SCHEDULER, TMASTER, RelayClient, To, relayed
from heronpy.net.rpc import body_of
from heronpy.net.rpc_loop import ControlClient, ControlServer
from heronpy.proto import control_pb2, endpoint_pb2, plan_pb2
from heronpy.scheduler import relay as relay_module
from heronpy.statemgr import paths
from tests.scheduler.reconciler_world import NAME, Running, World
from tests.support.waiting import eventually

CLUSTER = "local"


class Masters:
    """A topology master and an executor that answer as they are told, at TCP with the topology's keys."""

    def __init__(self, world: World) -> None:
        self.context = zmq.Context()
        keys = curve.load(world.deployed.launch.working_dir, world.deployed.launch.topology_id)
        self.authenticator = Authenticator(keys, self.context)
        self.error: HeronError | None = None
        self.slow = asyncio.Event()
        self.slow.set()
        self.asked: list[str] = []
        self.server, self.files = (
            ControlServer(["tcp://127.0.0.1:*"], on_request, self.context, keys)
            for on_request in (self.on_request, self.on_file)
        )
        location = plan_pb2.TmasterLocation(endpoint=self.server.endpoints[0])
        world.deployed.state.create(paths.tmaster(NAME), location.SerializeToString())

    async def on_request(self, _: bytes, envelope: control_pb2.Envelope) -> Any:
        field, _body = body_of(envelope)
        self.asked.append(field)
        await self.slow.wait()
        if self.error is not None:
            raise self.error
        if field == "get_status":
            reply = control_pb2.StatusReply(topology=NAME)
            reply.executors.add(container=1, file_service=self.files.endpoints[0])
            return reply
        return control_pb2.Ok(text=field)

    async def on_file(self, _: bytes, envelope: control_pb2.Envelope) -> Any:
        field, body = body_of(envelope)
        return control_pb2.ReadFileReply(data=b"x" * body.bytes) if field == "read_file" else control_pb2.Ok()

    def close(self) -> None:
        self.authenticator.close()
        self.server.close()
        self.files.close()
        self.context.term()


def place(running: Running) -> EndpointPlace:
    found = access.known_endpoint(CLUSTER, NAME)
    assert found is not None and found.addresses == tuple(running.itself.endpoint.listens_at)
    return found


def client(running: Running, pair: Pair | None = None) -> ControlClient:
    mine = pair or access.client_of(CLUSTER)
    assert mine is not None
    found = place(running)
    return ControlClient(found.addresses[0], lambda _: None, keys=found.token(mine).keys())


async def ask(at: ControlClient, to: To, body: Any, timeout_s: float = 30.0) -> Any:
    relay = to.request(body, timeout_s)
    relay.awaits = at.awaits
    return relayed(await at.call(relay, timeout_s + 2.0))


def grants(world: World) -> int:
    """Leases that were granted to any container."""
    return sum(one.granted for one in world.containers.values())


@asynccontextmanager
async def told(world: World) -> AsyncIterator[tuple[Running, Masters]]:
    async with world.scheduler() as running:
        await running.all_run()
        with closing(Masters(world)) as masters:
            yield running, masters


async def test_each_process_is_asked_by_the_endpoint_and_answers_as_itself(world: World) -> None:
    async with told(world) as (running, masters):
        with closing(client(running)) as mine:
            assert len((await ask(mine, SCHEDULER, control_pb2.GetContainers())).containers) == 3
            assert (await ask(mine, TMASTER, control_pb2.GetStatus())).topology == NAME
            read = control_pb2.ReadFile(name="log-files/x.log", bytes=256 << 10)
            for _ in range(300):  # more than may wait for a client that does not read
                assert len((await ask(mine, To("executor", 1), read)).data) == 256 << 10
            kinds: list[tuple[HeronError, type[RpcError]]] = [
                (ReplacedError("tmaster", 1, 2), FencedRpcError),
                (RetryableRpcError("later"), RetryableRpcError),
                (TopologyError("no such component"), InvalidRpcError),
                (RpcError("it failed"), RpcError),
            ]
            for error, kind in kinds:
                masters.error = error
                with pytest.raises(kind) as found:
                    await ask(mine, TMASTER, control_pb2.SetState(active=True))
                assert type(found.value) is kind and str(found.value) == str(error)
            masters.error = None
            with pytest.raises(RpcError, match="has no container 77"):
                await ask(mine, SCHEDULER, control_pb2.RestartContainer(container=77))

            def block() -> str:
                found = place(running)
                pair = access.client_of(CLUSTER)
                assert pair is not None
                with RelayClient(found.addresses[0], TMASTER, "the master", found.token(pair).keys()) as blocking:
                    return str(blocking.call(control_pb2.SetState(active=True)).text)

            assert await asyncio.to_thread(block) == "set_state"
        refused = (await running.ask(control_pb2.GetContainers(), 30.0)).refused
        none = (refused.strangers, refused.busy, refused.oversized, refused.not_theirs, refused.garbage)
        assert not any(none)


async def test_a_process_that_does_not_answer_or_run_is_said_to(world: World) -> None:
    async with told(world) as (running, masters):
        with closing(client(running)) as mine:
            masters.slow.clear()
            began = time.monotonic()
            with pytest.raises(DeadlineError, match=r"the topology master did not answer within 0\.3 s"):
                await ask(mine, TMASTER, control_pb2.GetMetrics(), 0.3)
            assert time.monotonic() - began < 10.0
            masters.slow.set()
            with pytest.raises(RetryableRpcError, match="executor-7 is not registered"):
                await ask(mine, To("executor", 7), control_pb2.ListFiles())
            world.deployed.state.delete(paths.tmaster(NAME))
            with pytest.raises(RetryableRpcError, match="the topology master is not running"):
                await ask(mine, TMASTER, control_pb2.GetStatus())


async def test_whoever_has_another_key_is_not_let_in(world: World) -> None:
    async with told(world) as (running, _):
        endpoint, found = running.itself.endpoint, place(running)
        links = curve.load(world.deployed.launch.working_dir, "x")
        others = [Pair(*zmq.curve_keypair()), links.client, links.server]  # another user's; those of the links
        for count, other in enumerate(others, 1):
            with closing(client(running, other)) as stranger:
                with pytest.raises(DeadlineError):
                    await ask(stranger, SCHEDULER, control_pb2.KillTopology(), -1.5)
                await eventually(lambda count=count: endpoint.strangers >= count, what="the stranger is counted")
        plain = zmq.Context.instance().socket(zmq.DEALER)
        before = endpoint.strangers
        plain.connect(found.addresses[0])
        await eventually(lambda: endpoint.strangers > before, what="one without a key is counted")
        plain.close(0)
        assert len(await running.all_run()) == 3, "nothing was killed"


async def test_clients_are_no_containers_and_containers_no_clients(world: World) -> None:
    async with told(world) as (running, masters):
        endpoint, one = running.itself.endpoint, world.of(1)
        with closing(client(running)) as mine:
            refused: list[Any] = [
                one.hello(),
                endpoint_pb2.Renew(credential=one.credential, number=1),
                endpoint_pb2.Leave(credential=one.credential),
                endpoint_pb2.ReadPackage(credential=one.credential),
                endpoint_pb2.LogEnd(credential=one.credential, process="stmgr-1"),
                control_pb2.KillTopology(),
                control_pb2.GetStatus(),
            ]
            for body in refused:
                with pytest.raises(InvalidRpcError, match="from containers only"):
                    await mine.call(body)
            with pytest.raises(InvalidRpcError, match="from clients only"):
                await one.client.call(SCHEDULER.request(control_pb2.KillTopology(), 5.0))
            # Containers and clients do not use each other's sessions, though they are told the number.
            opening = endpoint_pb2.StateOpen(session_s=10.0)
            await one.client.call(endpoint_pb2.StateCall(session=1, credential=one.credential, open=opening))
            await mine.call(endpoint_pb2.StateCall(session=2, open=opening))
            for sender, call in (
                (mine, endpoint_pb2.StateCall(session=1, credential=one.credential, get=paths.tmaster(NAME))),
                (one.client, endpoint_pb2.StateCall(session=2, credential=one.credential, open=opening)),
            ):
                with pytest.raises(InvalidRpcError, match="each other's state sessions"):
                    await sender.call(call)
            assert endpoint.not_theirs == len(refused) + 3
            # What is for nobody to ask by a relay.
            for to, body in (
                (TMASTER, control_pb2.RegisterStmgr()),
                (TMASTER, control_pb2.MetricsBatch()),
                (TMASTER, control_pb2.KillTopology()),
                (To("executor", 1), control_pb2.RestartProcesses()),
                (SCHEDULER, control_pb2.GetStatus()),
            ):
                with pytest.raises(InvalidRpcError, match="does not forward request"):
                    await ask(mine, to, body)
            for relay in (
                endpoint_pb2.Relay(tmaster=True, request=b"no envelope", timeout_s=1.0),
                endpoint_pb2.Relay(request=TMASTER.request(control_pb2.GetStatus(), 1.0).request, timeout_s=1.0),
            ):
                with pytest.raises(InvalidRpcError, match="does not forward request"):
                    await mine.call(relay)
            for timeout_s in (0.0, -1.0, float("inf"), float("nan"), 1e9):
                relay = TMASTER.request(control_pb2.GetStatus(), timeout_s)
                with pytest.raises(InvalidRpcError, match="may wait for its answer for at most"):
                    await mine.call(relay)
        assert not masters.asked
        refused_in_all = (await running.ask(control_pb2.GetContainers(), 30.0)).refused.not_theirs
        assert refused_in_all == endpoint.not_theirs + 12


async def test_what_is_too_large_or_too_much_is_refused_and_containers_do_not_wait(world: World) -> None:
    async with told(world) as (running, masters):
        with closing(client(running)) as mine, closing(client(running)) as other:
            large = control_pb2.RuntimeConfig(settings=["x" * (5 << 20)])
            with pytest.raises(InvalidRpcError, match="a forwarded request may have at most 4 MB"):
                await ask(mine, TMASTER, large)
            masters.slow.clear()
            flood = [asyncio.create_task(ask(mine, TMASTER, control_pb2.GetMetrics(), 120.0)) for _ in range(100)]
            most = relay_module.CLIENT_MAX
            await eventually(
                lambda: sum(one.done() for one in flood) == 100 - most, timeout_s=60.0, what="the flood being refused"
            )
            assert all(isinstance(one.exception(), RetryableRpcError) for one in flood if one.done())
            await eventually(lambda: len(masters.asked) == most, timeout_s=60.0, what="those that are passed on")
            # Meanwhile others are served, and containers renew.
            granted = grants(world)
            assert len((await ask(other, SCHEDULER, control_pb2.GetContainers())).containers) == 3
            await eventually(lambda: grants(world) > granted + 3, timeout_s=60.0, what="leases that are renewed")
            masters.slow.set()
            await asyncio.gather(*flood, return_exceptions=True)
            assert sum(not isinstance(one.exception(), HeronError) for one in flood) == most
            refused = (await running.ask(control_pb2.GetContainers(), 30.0)).refused
            assert (refused.oversized, refused.busy) == (1, 100 - most)

            # Answers that nobody says to have read are not made without end.
            read = To("executor", 1).request(control_pb2.ReadFile(bytes=1 << 20), 5.0)
            got = 0
            with pytest.raises(RetryableRpcError, match="read them first"):
                for _ in range(100):
                    got += len((await other.call(read)).reply)
            assert got <= relay_module.CLIENT_MAX_BYTES
            read.awaits = other.awaits
            assert (await other.call(read)).reply


async def test_clients_read_the_state_and_write_nothing(world: World) -> None:
    async with told(world) as (running, _):
        pair = access.client_of(CLUSTER)
        assert pair is not None
        token = place(running).token(pair)

        def use() -> None:
            with closing(EndpointStateManager.of(token, SessionCredential(0, 0, b""))) as state:
                for node in (paths.execution_state, paths.scheduler, paths.topology, paths.tmaster):
                    assert state.get(node(NAME)) == world.deployed.state.get(node(NAME))
                for path in (paths.placement(NAME), paths.ephemerals(NAME), paths.topology("other")):
                    with pytest.raises(StateError, match="may not read"):
                        state.get(path)
                for path in (paths.topology(NAME), paths.packing_plan(NAME), paths.checkpoints(NAME)):
                    with pytest.raises(StateError, match="may not write"):
                        state.set(path, b"mine")
                with pytest.raises(StateError, match="may not count"):
                    state.counter(paths.epoch(NAME, "tmaster"))
                with state.lock(f"operations/{NAME}", 1.0):
                    state.create(paths.operation(NAME), b"killing", ephemeral=True)
                    assert world.deployed.state.get(paths.operation(NAME)) == (b"killing", 1)
                    with pytest.raises(DeadlineError), world.deployed.state.lock(f"operations/{NAME}", 0.0):
                        pass

        await asyncio.to_thread(use)
        state = world.deployed.state
        await eventually(lambda: state.get(paths.operation(NAME)) is None, what="the end of what it said")


async def test_a_kill_by_the_endpoint_removes_the_access_as_well(world: World) -> None:
    async with told(world) as (running, _):
        with closing(client(running)) as mine:
            assert access.topologies_of(CLUSTER) == [NAME]
            reply = await ask(mine, SCHEDULER, control_pb2.KillTopology(grace_s=0.5), 20.0)
            assert reply.text == f"killed topology {NAME}"
        assert await asyncio.wait_for(running.task, 10) == 0
        assert access.topologies_of(CLUSTER) == [] and access.client_of(CLUSTER) is not None


async def test_the_key_of_clients_is_private(world: World) -> None:
    async with told(world):
        folder = access.folder_of(CLUSTER)
        assert folder.stat().st_mode & 0o777 == 0o700
        assert {file.stat().st_mode & 0o777 for file in folder.iterdir()} == {0o600}
        (folder / "client.key").chmod(0o644)
        with pytest.raises(ConfigError, match="must be readable by you alone"):
            access.client_of(CLUSTER)
