"""What the control endpoint of an engine's scheduler lets in, keeps and refuses."""

from __future__ import annotations

import asyncio
import os
import random
from typing import Any

import pytest
import zmq

from heronpy.common.errors import FencedRpcError, InvalidRpcError, RetryableRpcError
from heronpy.net import endpoint_keys
from heronpy.net.rpc import seal, wrap
from heronpy.net.rpc_loop import ControlClient
from heronpy.procs.exit_reason import ExitReason
from heronpy.proto import control_pb2, endpoint_pb2
from heronpy.scheduler import reconciler
from heronpy.scheduler.placement import Placement
from heronpy.statemgr import paths
from tests.scheduler.reconciler_world import NAME, World
from tests.security.messages import envelopes
from tests.support.waiting import eventually

SESSION = 4711


def opening(credential: endpoint_pb2.SessionCredential, session_s: float = 5.0) -> endpoint_pb2.StateCall:
    return endpoint_pb2.StateCall(
        session=SESSION, credential=credential, call=1, open=endpoint_pb2.StateOpen(session_s=session_s)
    )


async def test_the_endpoint_refuses_who_does_not_belong_there(world: World) -> None:
    async with world.scheduler() as scheduler:
        await scheduler.all_run()
        endpoint, one = scheduler.itself.endpoint, world.of(1)
        call = one.client.call
        for change, words in (
            ({"topology_id": "another"}, "this is the control endpoint of topology word-count-1"),
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
        mine = endpoint_pb2.SessionCredential(container=1, submission=1, secret=one.welcome.secret)  # type: ignore[union-attr]
        for numbers in ({"epoch": 1 << 60}, {"stopped": 1 << 60}):
            with pytest.raises(InvalidRpcError, match="an epoch that it never received"):
                await call(endpoint_pb2.Renew(credential=mine, number=10**6, **numbers))
        unknown = endpoint.unknown
        for body in (
            endpoint_pb2.Renew(
                credential=endpoint_pb2.SessionCredential(container=2, submission=1, secret=one.welcome.secret)
            ),  # type: ignore[union-attr]
            endpoint_pb2.Leave(credential=endpoint_pb2.SessionCredential(container=2, submission=1)),
            endpoint_pb2.ReadPackage(),
            endpoint_pb2.StateCall(open=endpoint_pb2.StateOpen()),
        ):
            with pytest.raises(InvalidRpcError, match="has no session credential of this topology; send a hello first"):
                await call(body)
        assert endpoint.unknown == unknown + 4
        for body in (control_pb2.KillTopology(), control_pb2.GetContainers(), control_pb2.Ok()):
            with pytest.raises(InvalidRpcError, match="does not support the request"):
                await call(body)
        sock = zmq.Context.instance().socket(zmq.DEALER)
        one.token.keys().connect(sock)
        sock.connect(endpoint.listens_at[0])
        sock.send(b"no envelope")
        await eventually(lambda: endpoint.garbage == 1, what="garbage is counted")
        sock.close(0)
        with zmq.Context.instance().socket(zmq.DEALER) as plain:
            plain.connect(endpoint.listens_at[0])
            await eventually(lambda: endpoint.strangers >= 1, what="a stranger is counted")
        assert (await scheduler.all_run())["executor-1"].submission == 1
        told = (await scheduler.ask(control_pb2.GetContainers())).refused
        assert (told.garbage, told.unknown, told.releases) == (1, endpoint.unknown, 2)
        assert told.strangers >= 1 and not told.oversized


async def test_a_submission_is_the_process_that_said_hello_first(world: World) -> None:
    """The join token alone is not enough to act for a container that acts already, also after the scheduler's restart."""
    async with world.scheduler() as scheduler:
        await scheduler.all_run()
    async with world.scheduler() as scheduler:
        await scheduler.all_run()
        one = world.of(1)
        again = await one.client.call(one.hello())
        assert again.secret == one.credential.secret, "its own hello may come twice"
        for nonce, words in (
            (os.urandom(32), "was already claimed by another process"),
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
        file = endpoint_keys.folder_of(world.deployed.launch.working_dir) / "bound.json"
        assert file.stat().st_mode & 0o777 == 0o600 and one.nonce.hex() not in file.read_text()


async def test_only_the_submission_that_acts_has_rights_at_the_state(world: World) -> None:
    async with world.scheduler() as scheduler:
        await scheduler.all_run()
        old = world.of(1)
        await old.client.call(opening(old.credential))
        read = endpoint_pb2.StateCall(session=SESSION, credential=old.credential, get=paths.topology(NAME))
        assert (await old.client.call(read)).found
        # It renews no more, and its processes go on.
        old.stop()
        other = ControlClient(old.token.addresses[0], lambda _: None, keys=old.token.keys())
        await scheduler.when(lambda found: found["executor-1"].phase == "STANDBY", "a successor")
        new = world.of(1)
        await eventually(lambda: new.welcome, what="its welcome")
        with pytest.raises(RetryableRpcError, match="has not been activated yet"):
            await new.client.call(opening(new.credential))
        await scheduler.ask(control_pb2.RestartContainer(container=1, force=True), 20.0)
        await new.client.call(opening(new.credential))
        for body in (read, opening(old.credential)):
            with pytest.raises(FencedRpcError, match="submission 1, was replaced by submission 2"):
                await other.call(body)
        other.close()
        assert scheduler.itself.endpoint.replaced == 2


async def test_what_an_ended_submission_had_sent_counts_as_no_refusal(world: World) -> None:
    """It may be read after the last word of its container, which came over another connection."""
    async with world.scheduler() as scheduler:
        await scheduler.all_run()
        old = world.of(1)
        await old.client.call(opening(old.credential))
        late = ControlClient(old.token.addresses[0], lambda _: None, keys=old.token.keys())
        world.engine.cancel = lambda engine_ids, grace_s: old.stop()  # type: ignore[method-assign]
        restart = asyncio.create_task(scheduler.ask(control_pb2.RestartContainer(container=1), 20.0))
        await eventually(lambda: world.of(1) is not old and world.of(1).welcome, what="its successor")
        await late.call(endpoint_pb2.Renew(credential=old.credential, number=1000, stopped=1))
        await restart
        with pytest.raises(FencedRpcError, match="submission 1, was replaced by submission 2"):
            await late.call(
                endpoint_pb2.StateCall(session=SESSION, credential=old.credential, get=paths.topology(NAME))
            )
        late.close()
        assert scheduler.itself.endpoint.replaced == 0


async def test_what_is_heard_at_once_is_looked_at_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0
    views = Placement.views

    def counted(self: Placement) -> Any:
        nonlocal looks
        looks += 1
        return views(self)

    async with world.scheduler() as scheduler:
        await scheduler.all_run()
        monkeypatch.setattr(Placement, "views", counted)
        looks = 0
        for _ in range(200):
            await scheduler.itself.admission.renew((1, 1), endpoint_pb2.Renew(number=1, epoch=1))
        assert looks <= 2
        await asyncio.sleep(0)
        assert looks >= 1


async def test_large_requests_are_refused_and_counted(world: World) -> None:
    async with world.scheduler() as scheduler:
        await scheduler.all_run()
        one = world.of(1)
        for body in (
            endpoint_pb2.Leave(credential=one.credential, why="x" * (1 << 20)),
            endpoint_pb2.ReadPackage(credential=one.credential, package="x" * (1 << 20)),
        ):
            with pytest.raises(InvalidRpcError, match=r"the request '[a-z_]+' may not be larger than 64 KiB"):
                await one.client.call(body)
        assert scheduler.itself.endpoint.oversized == 2


async def test_logs_and_spans_are_kept_and_bounded(world: World) -> None:
    async with world.scheduler() as scheduler:
        await scheduler.all_run()
        one = world.of(1)
        end = endpoint_pb2.LogEnd(credential=one.credential, process="stmgr-1", data=b"cut off\nlast line", cut=True)
        await one.client.call(end)
        text = (world.deployed.launch.log_dir / "stmgr-1.log").read_text()
        assert f"the last part of the log of stmgr-1 on host {one.host}, container 1, submission 1" in text
        assert text.endswith("last line\n") and "cut off" not in text
        for name in ("../x", "scheduler", "a/b", "", "x" * 300, "scheduler.old"):
            end.process = name
            with pytest.raises(InvalidRpcError, match="is not the name of a container's process"):
                await one.client.call(end)
        end.process = "stmgr-2"
        with pytest.raises(InvalidRpcError, match="stmgr-2 is not a process of container 1"):
            await one.client.call(end)
        end.process, end.data = "stmgr-1", b"x" * ((1 << 20) + 1)
        with pytest.raises(InvalidRpcError, match="at most 1MB"):
            await one.client.call(end)
        spans = [endpoint_pb2.StartSpan(name="fetch", took_s=1.5) for _ in range(40)]
        await one.client.call(endpoint_pb2.StartSpans(credential=one.credential, spans=spans))
        kept = (await scheduler.records())["executor-1"].start_spans
        assert len(kept) == 16 and kept[0].name == "fetch"


async def test_a_submission_that_was_replaced_writes_no_log(world: World) -> None:
    async with world.scheduler() as scheduler:
        found = await scheduler.all_run()
        old = world.of(1).credential
        world.engine.end(found["executor-1"].engine_id, ExitReason.CRASHED)
        world.engine.changed()
        await scheduler.when(lambda found: found["executor-1"].submission == 2, "another submission")
        await scheduler.all_run()
        with pytest.raises(FencedRpcError, match="submission 1, was replaced by submission 2"):
            await world.of(1).client.call(endpoint_pb2.LogEnd(credential=old, process="stmgr-1", data=b"forged"))
        assert not (world.deployed.launch.log_dir / "stmgr-1.log").exists()


async def test_logs_that_did_not_arrive_are_said_to_be_lost(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconciler, "LOG_CHECK_S", 0.1)
    async with world.scheduler() as scheduler:
        found = await scheduler.all_run()
        logs, two = world.deployed.launch.log_dir, world.of(2)
        await two.client.call(endpoint_pb2.LogEnd(credential=two.credential, process="bootstrap-2", data=b"it ends\n"))
        for number in (1, 2):
            world.engine.end(found[f"executor-{number}"].engine_id, ExitReason.CRASHED)
        world.engine.changed()
        said = "container 1, submission 1, has ended without sending its logs; they are on host n2, if they still exist"
        file = logs / "executor-1.log"
        await eventually(lambda: file.exists() and said in file.read_text(), what="the sentence")
        await scheduler.when(lambda found: found["executor-2"].submission == 2, "another submission")
        await scheduler.all_run()
        await scheduler.ask(control_pb2.KillTopology(grace_s=0.5), 30.0)
    assert file.read_text().count(said) == 1
    assert "submission 2, has ended without" in file.read_text(), "those of a kill, too"
    assert "submission 1," not in (logs / "executor-2.log").read_text()


async def test_whatever_a_holder_of_the_token_sends_the_endpoint_goes_on(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    async with world.scheduler() as scheduler:
        await scheduler.all_run()
        one, dice = world.of(1), random.Random(14)
        credential = one.credential
        own = [
            one.hello(),
            endpoint_pb2.Renew(credential=credential, number=2**64 - 1, epoch=1, wait_s=float("nan")),
            endpoint_pb2.Renew(credential=credential, wait_s=-1e300),
            endpoint_pb2.ReadPackage(credential=credential, package="a" * 64, offset=2**64 - 1),
            endpoint_pb2.LogEnd(credential=credential, process="stmgr-1\n", data=b"x"),
            endpoint_pb2.StartSpans(
                credential=credential, spans=[endpoint_pb2.StartSpan(name="\x1b[2J", took_s=float("inf"))]
            ),
            opening(credential, float("nan")),
            endpoint_pb2.StateCall(session=1, credential=credential),
            opening(credential),
            *(
                endpoint_pb2.StateCall(session=SESSION, credential=credential, call=call, lock="x")
                for call in (0, 1, 1, 2**64 - 1)
            ),
        ]
        seeds = [*envelopes(), *(seal(wrap(body, 7)) for body in own)]
        sock = zmq.Context.instance().socket(zmq.DEALER)
        one.token.keys().connect(sock)
        sock.connect(scheduler.itself.endpoint.listens_at[0])
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
