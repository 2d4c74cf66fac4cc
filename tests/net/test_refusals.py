"""Fenced, to be tried again, or invalid: the class of an error decides, not its sentence."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from heronpy.common import errors
from heronpy.common.errors import (
    ConfigError,
    DeadlineError,
    FencedError,
    FencedRpcError,
    HeronError,
    InvalidRpcError,
    LateRpcError,
    LostReplyError,
    ReplacedError,
    RetryableError,
    RetryableRpcError,
    RpcError,
    StateAwayError,
    StateError,
    TopologyError,
)
from heronpy.net.follower import MasterFollower
from heronpy.net.rpc import RpcClient, body_of
from heronpy.net.rpc_loop import ControlClient, ControlServer
from heronpy.proto import control_pb2
from heronpy.proto.plan_pb2 import TmasterLocation
from heronpy.statemgr import paths
from heronpy.tmaster import events
from tests.support.memory_state import MemoryStateManager
from tests.support.waiting import eventually
from tests.support.wires import new_endpoint
from tests.support.wordless import WORDINGS, classes, reword
from tests.tmaster.tmaster_world import World

REPLACED = ReplacedError("stmgr-1", 1, 2)
#: What a server raises, and what its client does.
KINDS: list[tuple[HeronError, type[RpcError]]] = [
    (REPLACED, FencedRpcError),
    (FencedError("x"), FencedRpcError),
    (RetryableRpcError("x"), RetryableRpcError),
    (StateAwayError("x"), RetryableRpcError),
    (TopologyError("x"), InvalidRpcError),
    (ConfigError("x"), InvalidRpcError),
    (InvalidRpcError("x"), InvalidRpcError),
    (RpcError("x"), RpcError),
    (StateError("x"), RpcError),
    (DeadlineError("x"), LateRpcError),
    (LostReplyError("x"), RpcError),
]


@pytest.fixture(params=WORDINGS, autouse=True)
def reworded(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    reword(monkeypatch, request.param)


class Master:
    """A topology master that answers each registration with the next of `answers`, and the last of them for ever."""

    def __init__(self, *answers: HeronError | control_pb2.Ok) -> None:
        self.answers = list(answers)
        self.registrations = 0
        self.beats = 0
        self.peer = b""
        self.asked = 0
        self.silent = asyncio.Event()
        self.server = ControlServer([new_endpoint()], self._on_request)
        self.endpoint = self.server.endpoints[0]

    def _on_request(self, peer: bytes, envelope: control_pb2.Envelope) -> Any:
        field = body_of(envelope)[0]
        self.peer = peer
        if field == "data_lost":
            self.asked += 1
            return self.silent.wait()
        if field != "register_stmgr":
            self.beats += 1
            return None
        self.registrations += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, HeronError):
            raise answer
        return answer


class Follower:
    """A process that follows the topology master of `wc`."""

    def __init__(self) -> None:
        self.state = MemoryStateManager()
        self.replies: list[Any] = []
        self.messages: list[str] = []
        self.link = MasterFollower(
            "wc",
            b"stmgr-1",
            control_pb2.RegisterStmgr,
            lambda envelope: self.messages.append(body_of(envelope)[0]),
            self.replies.append,
        )
        self.job = asyncio.ensure_future(self.link.follow(self.state, None))

    def locate(self, master: Master, epoch: int = 1) -> None:
        location = TmasterLocation(topology="wc", endpoint=master.endpoint, epoch=epoch)
        self.state.set(paths.tmaster("wc"), location.SerializeToString())

    async def registered(self) -> None:
        await eventually(lambda: self.link.registered or self.job.done())
        assert not self.job.done(), self.job.exception()


@asynccontextmanager
async def following(*masters: Master) -> AsyncIterator[Follower]:
    follower = Follower()
    try:
        follower.locate(masters[0])
        yield follower
    finally:
        follower.job.cancel()
        await asyncio.gather(follower.job, return_exceptions=True)
        follower.link.close()
        for master in masters:
            master.server.close()


async def test_each_kind_of_error_is_raised_as_its_kind() -> None:
    waiting = [error for error, _ in KINDS]

    def refuse(peer: bytes, envelope: control_pb2.Envelope) -> None:
        raise waiting.pop(0)

    server = ControlServer([new_endpoint()], refuse)
    client = ControlClient(server.endpoints[0], lambda _: None)
    for error, expected in KINDS:
        with pytest.raises(RpcError) as caught:
            await client.call(control_pb2.Ok())
        assert type(caught.value) is expected, error
    waiting.append(REPLACED)
    with RpcClient(server.endpoints[0]) as blocking, pytest.raises(FencedRpcError):
        await asyncio.to_thread(blocking.call, control_pb2.Ok())
    client.close()
    server.close()


def test_each_class_that_a_peer_raises_tells_what_to_do_next() -> None:
    assert issubclass(FencedRpcError, FencedError) and not issubclass(FencedRpcError, RetryableError)
    assert issubclass(RetryableRpcError, RetryableError) and not issubclass(InvalidRpcError, RetryableError)
    assert {c for c in classes(errors.FencedError) if c.__module__ == errors.__name__} == {
        FencedError,
        FencedRpcError,
        ReplacedError,
    }


def test_the_machine_refuses_with_types() -> None:
    world = World()
    world.until(lambda: world.status().lifecycle == control_pb2.LIFE_RUNNING)
    sim = world.sims[1]
    old = control_pb2.RegisterStmgr(stmgr=sim.record())
    sim.epoch += 1
    sim.register()
    assert isinstance(world.ask(events.StmgrRegistered, b"zombie", old).error, ReplacedError)
    stranger = sim.record()
    stranger.id, stranger.container = "stmgr-9", 9
    reply = world.ask(events.StmgrRegistered, b"s9", control_pb2.RegisterStmgr(stmgr=stranger))
    assert isinstance(reply.error, TopologyError)
    world.sims[2].tasks[2].stuck = True
    world.request(events.StateRequested, False)
    busy = world.request(events.RestartRequested, -1, 0)
    assert isinstance(world.replies[busy].error, RetryableRpcError)


@pytest.mark.parametrize("error", [error for error, expected in KINDS if expected is not FencedRpcError])
async def test_whoever_is_refused_for_another_reason_registers_again(error: HeronError) -> None:
    master = Master(error, error, control_pb2.Ok())
    async with following(master) as follower:
        await follower.registered()
        assert master.registrations == 3


async def test_only_who_is_fenced_ends() -> None:
    master = Master(TopologyError("not in the packing plan"), REPLACED)
    async with following(master) as follower:
        with pytest.raises(FencedRpcError):
            await asyncio.wait_for(follower.job, 10)
        assert master.registrations == 2 and not follower.link.registered


async def test_it_follows_a_new_master_and_registers_again_when_asked() -> None:
    old, new = Master(control_pb2.Ok()), Master(control_pb2.Ok())
    async with following(old, new) as follower:
        await follower.registered()
        assert old.server.send(old.peer, control_pb2.RegisterAgain())
        await eventually(lambda: old.registrations == 2 and follower.link.registered)
        assert old.server.send(old.peer, control_pb2.NewPlan())
        await eventually(lambda: follower.messages == ["new_plan"])
        follower.locate(new, epoch=3)
        await eventually(lambda: new.registrations == 1 and follower.link.registered)
        assert follower.link.send(control_pb2.StmgrHeartbeat())
        await eventually(lambda: new.beats == 1)
        follower.locate(old, epoch=2)  # it was asleep, and puts itself back
        follower.link.send(control_pb2.StmgrHeartbeat())
        await eventually(lambda: new.beats == 2)
        follower.state.delete(paths.tmaster("wc"))
        await eventually(lambda: not follower.link.registered)
        assert not follower.link.send(control_pb2.StmgrHeartbeat()), "nobody is there"
        assert len(follower.replies) == 3 and old.beats == 0


async def test_whoever_waits_for_the_answer_of_a_master_that_is_replaced_hears_of_it() -> None:
    """A report to the master would otherwise be neither answered nor sent again."""
    old, new = Master(control_pb2.Ok()), Master(control_pb2.Ok())
    async with following(old, new) as follower:
        await follower.registered()
        report = asyncio.ensure_future(follower.link.call(control_pb2.DataLost(task_id=1)))
        await eventually(lambda: old.asked)
        follower.locate(new, epoch=2)
        with pytest.raises(LostReplyError):
            await report


async def test_a_state_manager_that_is_away_changes_nothing() -> None:
    master = Master(control_pb2.Ok())
    async with following(master) as follower:
        await follower.registered()

        looks = []

        def away(path: str) -> None:
            looks.append(path)
            raise StateAwayError("the state manager is away")

        follower.state.get = away  # type: ignore[method-assign,assignment]
        follower.locate(master, epoch=2)
        await eventually(lambda: looks)
        assert follower.link.send(control_pb2.StmgrHeartbeat())
        await eventually(lambda: master.beats == 1)
