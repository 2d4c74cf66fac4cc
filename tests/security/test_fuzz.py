"""Mutated messages and files at every parser: refused or taken, never a crash, memory flat, nothing unpickled."""

from __future__ import annotations

import asyncio
import logging
import random
import tracemalloc
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import zmq

from heronpy.api import api_constants
from heronpy.api.bolt.bolt import Bolt
from heronpy.api.spout.spout import Spout
from heronpy.api.stream import Grouping, Stream
from heronpy.api.topology import TopologyBuilder
from heronpy.common.errors import RemoteWireError
from heronpy.common.setting_types import StmgrSettings
from heronpy.connectors.spark.link import Ready, decode
from heronpy.connectors.spark.link import encode as encode_hint
from heronpy.executor.metrics_inbox import EXCEPTIONS_MAX, MetricsInbox
from heronpy.executor.metrics_page import MetricsPage
from heronpy.net.rpc_loop import ControlServer
from heronpy.plan.physical_plan import build_physical_plan
from heronpy.proto import control_pb2, frame_pb2, plan_pb2
from heronpy.scheduler.local import LocalScheduler
from heronpy.wire import codec
from heronpy.wire.frames import (
    ACK,
    COMPLETE,
    DATA,
    FAIL,
    LINK_HEADER,
    LINK_OPEN,
    REGISTER,
    Frame,
    message_of,
    pack16,
    pack32,
    pack64,
)
from instance.in_queue import STRANGE_WAIT_S
from stmgr.events import PlanReceived, Signal
from stmgr.shell import Stmgr
from stmgr.switch import Switch
from tests.security.messages import disfigured, envelopes, frames, payloads
from tests.security.mutate import CASES, SEED, cases
from tests.sim.run import cluster_of
from tests.sim.workload import AT_LEAST, AT_MOST, Program
from tests.tmaster.test_tmaster_shell import cluster
from tests.tmaster.tmaster_world import make_packing, make_topology

pytestmark = pytest.mark.usefixtures("nothing_is_unpickled")
ODD_ENVELOPES = partial(disfigured, kind=control_pb2.Envelope)


class Surprises(logging.Handler):
    """Tracebacks in the log: handlers may refuse with an error of heronpy, all else is a bug."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and len(self.found) < 100:
            self.found.append(logging.Formatter().format(record))


@pytest.fixture
def no_surprise() -> Iterator[None]:
    root, surprises = logging.getLogger(), Surprises()
    root.addHandler(surprises)
    try:
        yield
    finally:
        root.removeHandler(surprises)
    assert not surprises.found, "\n".join(sorted(set(surprises.found))[:5])


# ---- frames --------------------------------------------------------------------------------------------


def test_frames_at_a_switch() -> None:
    dice = random.Random(SEED)
    sent: list[bytes] = []
    switch = Switch(StmgrSettings(), lambda identity, header, data: not sent.append(data), lambda: 0.0)
    switch.take_places({1: "spout", 2: "bolt"}, {"spout"}, {9: "stmgr-2"})
    switch.add_peer("stmgr-2", 1, lambda header, data: True)
    names = {b"t:1:1": 100, b"t:2:1": 101, b"s:stmgr-2:1": 7}

    def begin(identity: bytes, epoch: int) -> None:
        if identity[:1] == b"t":
            switch.attach(switch.tasks[int(identity[2:3])], identity, 1, epoch)
        switch.receive([identity, LINK_HEADER.pack(epoch, 1), Frame(kind=LINK_OPEN).SerializeToString()])

    for number, data in enumerate(cases(frames(), "frames", 50, partial(disfigured, kind=Frame))):
        if number % 50 == 0:
            switch.open_peer("stmgr-2", 50)
            for identity, epoch in names.items():
                begin(identity, epoch)
            sent.clear()
        identity, epoch = dice.choice(list(names.items()))
        header = bytearray(LINK_HEADER.pack(epoch, number % 50 + 2, data if dice.random() < 0.5 else None))
        if dice.random() < 0.1:
            header[dice.randrange(len(header))] ^= 1 << dice.randrange(8)
        parts = message_of(bytes(header), data) if dice.random() < 0.5 else [bytes(header), data]
        switch.receive([identity, *parts])
        switch.peer_credit("stmgr-2", LINK_HEADER.pack(50, number), data)
        switch.settle_credit()
    assert switch.counts["garbage"] and switch.counts["damaged_links"] and switch.counts["malformed_frames"]
    # It goes on.
    for identity, epoch in names.items():
        begin(identity, epoch)
    switch.receive([b"t:2:1", LINK_HEADER.pack(101, 2), Frame(kind=4, granted_bytes=1).SerializeToString()])
    sent.clear()
    frame = Frame(kind=DATA, source_task=1, dest_task=2, count=1, payload=b"").SerializeToString()
    switch.receive([b"t:1:1", LINK_HEADER.pack(100, 2), frame])
    assert switch.tasks[2].link.queued_tuples or frame in sent


class Sink(Bolt):
    """Words are acked; one in three fails."""

    def process(self, tup: Any) -> None:
        (self.ack if len(repr(tup.values)) % 3 else self.fail)(tup)


class Silent(Spout):
    outputs = (Stream(["n"]), Stream(["a", "b"], "other"))

    def next_tuple(self) -> None: ...


@pytest.mark.parametrize("reliability", [AT_MOST, AT_LEAST])
def test_frames_at_a_task(reliability: str) -> None:
    """Whatever its stream manager sends, a task goes on and returns the credit of all of it."""
    made = TopologyBuilder("sim")
    spout = made.add_spout("spout", Silent, par=1)
    made.add_bolt("bolt", Sink, par=1, inputs={spout[name]: Grouping.SHUFFLE for name in ("default", "other")})
    made.set_config({api_constants.TOPOLOGY_RELIABILITY_MODE: reliability})
    patience = {"stmgr__instance_lost_s": 1000.0, "tmaster__stmgr_lost_s": 1000.0}
    with cluster_of(0, Program(made, None), instance__allow_pickle=False, **patience) as (cluster, _):
        cluster.until(control_pb2.LIFE_RUNNING)
        [stmgr] = cluster.processes("stmgr")
        stmgr.stop()
        tasks = cluster.processes("instance")
        links = [process.program.link for process in tasks]
        seeds = [*frames(), *bolt_frames()]
        for number, data in enumerate(cases(seeds, f"task-{reliability}", 20, partial(disfigured, kind=Frame))):
            for link in links:
                link.sock.take(message_of(LINK_HEADER.pack(link.epoch, number + 1000), data))
            if number % 50 == 0:
                cluster.run(lambda: not any(link.sock.inbox for link in links))
                for connection in cluster.network.connections:
                    connection.server.inbox.clear()
        cluster.world.run(cluster.world.now + STRANGE_WAIT_S + 10, lambda: False)
        assert all(process.alive for process in tasks)
        assert all(link.all_frames_received + link.stale_frames > number for link in links)
        [bolt] = (process.program for process in cluster.tasks("bolt"))
        assert bolt.metrics.counters["__malformed-frames", ""] and bolt.metrics.counters["__malformed-tuples", ""]
        assert not bolt.in_queue.waiting and not bolt.current and not bolt.opener.early_frames
        assert bolt.link.consumed_bytes == bolt.link.received_bytes
        assert (bolt.progress.in_tuples, bolt.progress.in_bytes) == (0, 0)
        assert bolt.progress.executed


def bolt_frames() -> list[bytes]:
    """Frames that a bolt of two streams takes."""
    flat = codec.encode(["word", 1, None, 2.5, b"x", 1 << 80])
    made = [
        Frame(kind=DATA, source_task=1, dest_task=2, count=6, payload=flat),
        Frame(kind=DATA, source_task=1, dest_task=2, stream=1, count=3, payload=flat, skip=1),
        Frame(kind=DATA, source_task=1, dest_task=2, count=4, payload=flat, streams=pack16([0, 1, 1, 0]), skip=2),
        Frame(kind=DATA, source_task=1, dest_task=2, count=6, payload=flat, tracked=True, root_base=4, root_task=1,
              edge=9, derived_edges=True),
        Frame(kind=DATA, source_task=1, dest_task=2, stream=1, count=3, payload=flat, tracked=True,
              roots=pack64([7, 8, 9, 10]), root_counts=pack32([2, 1, 1]), root_tasks=pack32([1, 1, 2, 1]), edge=3),
        Frame(kind=DATA, source_task=7, dest_task=2, count=6, payload=flat),
        Frame(kind=COMPLETE, dest_task=1, run_first=pack64([1, 9]), run_length=pack32([2, 1])),
    ]  # fmt: skip
    return [frame.SerializeToString() for frame in made]


def test_headers_and_payloads() -> None:
    seeds = [LINK_HEADER.pack(5, n, b"data") for n in range(9)] + [LINK_HEADER.pack(5, 6)]
    taken = 0
    for data in cases(seeds, "headers", 20):
        try:
            LINK_HEADER.unpack(data, b"data")
            taken += 1
        except RemoteWireError:
            pass
    assert taken < CASES * 20 / 3
    read, salvage = codec.decoder(allow_pickle=False), codec.salvager(allow_pickle=False)
    salvaged = 0
    for data in cases(payloads(), "payloads", 20):
        try:
            assert isinstance(read(data, codec.MSGPACK), list)
        except RemoteWireError:
            try:
                found = salvage(data, codec.MSGPACK)
            except RemoteWireError:
                continue
            salvaged += 1
            assert any(type(value) is codec.Undecodable for value in found)
    assert salvaged


# ---- control -------------------------------------------------------------------------------------------


class Fed:
    """A control server whose handler is given messages without a socket in between."""

    def __init__(self, on_request: Any, endpoint: str) -> None:
        self.context: zmq.Context[Any] = zmq.Context()
        self.server = ControlServer([endpoint], on_request, self.context)

    async def feed(self, seeds: list[bytes], name: str) -> None:
        for number, data in enumerate(cases(seeds, name, 10, ODD_ENVELOPES)):
            self.server.receive([b"peer-%d" % (number % 5), data])
            if number % 100 == 0:
                await asyncio.sleep(0)

    def close(self) -> None:
        self.server.close()
        self.context.destroy(linger=0)


async def test_control_messages_at_a_topology_master(no_surprise: None) -> None:
    async with cluster() as world:
        await world.join()
        server = world.shell._server
        assert server is not None
        for number, data in enumerate(cases(envelopes(), "tmaster", 10, ODD_ENVELOPES)):
            server.receive([b"peer-%d" % (number % 5), data])
            if number % 20 == 0:
                await asyncio.sleep(0)
        reply = await world.status()
        assert reply.topology == "wc"
        waiting = server.waiting
        assert waiting < 2000, f"{waiting} requests wait"


async def test_control_messages_at_a_stream_manager(no_surprise: None, home: Path) -> None:
    launch = SimpleNamespace(
        topology="wc", topology_id="wc-1", working_dir=str(home), sockets_dir=str(home), settings={},
        component_settings={},
    )  # fmt: skip
    manager = Stmgr(launch, 1, 1)
    fed = Fed(manager._on_control, f"ipc://{home}/c")
    manager._control = fed.server
    manager._export = lambda: None  # to a socket that is not open here
    topology = make_topology({"word": 2}, {"count": 2})
    record = plan_pb2.StmgrRecord(id="stmgr-1", container=1, epoch=1)
    plan = build_physical_plan(topology, make_packing(topology, 1), [record], 1, 1)
    manager.feed(PlanReceived(plan))
    await fed.feed(envelopes(), "stmgr")
    await asyncio.sleep(0)
    manager.machine.validate()
    assert manager.machine.plan is plan and len(manager.switch.tasks) < 5 + CASES
    manager.feed(Signal.STOPPED)
    fed.close()


async def test_control_messages_at_a_scheduler(no_surprise: None, home: Path) -> None:
    orders: list[str] = []
    scheduler = LocalScheduler.__new__(LocalScheduler)

    async def order(*arguments: object) -> list[str]:
        orders.append(repr(arguments))
        return []

    scheduler.kill = scheduler.restart_container = order  # type: ignore[method-assign, assignment]
    scheduler.containers = lambda: []  # type: ignore[method-assign]
    scheduler._launch = SimpleNamespace(topology="wc")  # type: ignore[assignment]
    scheduler._end = asyncio.Event()
    fed = Fed(scheduler._on_request, f"ipc://{home}/s")
    await fed.feed(envelopes(), "scheduler")
    await asyncio.sleep(0.01)
    fed.close()


async def test_reports_at_an_executor(home: Path) -> None:
    known = {"stmgr-1", "container_1_word_1"}
    inbox = MetricsInbox(f"ipc://{home}/m", 1, known.__contains__, lambda _: None, lambda: None)
    for data in cases(envelopes(), "executor", 10, ODD_ENVELOPES):
        inbox.receive([data])
        inbox.receive([data, data])
    assert inbox.invalid and len(inbox.reports()) <= len(known)
    batch = inbox.take_batch()
    assert batch is None or len(batch.exceptions) <= EXCEPTIONS_MAX
    inbox.close()


def test_hints_at_the_spark_gateway() -> None:
    kinds = {type(decode(data)) for data in cases([encode_hint(Ready("sink", "00000001-1-1"))], "gateway", 5)}
    assert kinds == {Ready, type(None)}


def test_requests_at_the_metrics_page() -> None:
    page = MetricsPage(
        "127.0.0.1", 0, {"/metrics": lambda: ("text/plain", "some"), "/health": lambda: ("text/plain", "")}
    )
    seeds = [
        b"GET /metrics HTTP/1.1\r\nHost: localhost:9\r\n\r\n",
        b"GET /health?x=1 HTTP/1.0\r\n\r\n",
        b"GET /../../etc/passwd HTTP/1.1\r\nHost: [::1]:80\r\nHost: evil.example\r\n\r\n",
        b"DELETE /metrics HTTP/1.1\r\nHost: a:b:c]\r\n\r\n",
    ]
    found = {page.answer(data)[0] for data in cases(seeds, "page", 10)}
    assert found == {200, 400, 403, 404, 405}


def test_the_handlers_were_really_asked() -> None:
    """The seeds reach every handler: an Envelope of each kind parses."""
    kinds = {control_pb2.Envelope.FromString(data).WhichOneof("body") for data in envelopes()}
    assert kinds == {field.name for field in control_pb2.Envelope.DESCRIPTOR.oneofs_by_name["body"].fields}


@pytest.mark.parametrize("kind", [DATA, ACK, FAIL, REGISTER])
def test_a_few_bytes_never_ask_for_much_memory(kind: frame_pb2.Kind) -> None:
    """A count, or counts of roots, from which arrays of gigabytes would be made."""
    switch = Switch(StmgrSettings(), lambda *_: True, lambda: 0.0)
    switch.take_places({1: "spout", 2: "bolt"}, {"spout"}, {})
    switch.attach(switch.tasks[1], b"t:1:1", 1, 100)
    switch.receive([b"t:1:1", LINK_HEADER.pack(100, 1), Frame(kind=LINK_OPEN).SerializeToString()])
    most = pack32([(1 << 32) - 1] * 2)
    claims = [
        Frame(kind=kind, dest_task=1, count=(1 << 32) - 1, tracked=True, root_task=1, derived_edges=True),
        Frame(kind=kind, dest_task=1, count=2, roots=pack64([1, 2]), root_counts=most, edge=3),
        Frame(kind=kind, dest_task=1, count=3, root_base=(1 << 64) - 2, tracked=True, root_task=1, source_task=1),
    ]
    tracemalloc.start()
    for seq, frame in enumerate(claims, 2):
        switch.receive([b"t:1:1", LINK_HEADER.pack(100, seq), frame.SerializeToString()])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16 << 20, f"{peak} bytes"
    assert switch.counts["garbage"] == 1
    # Roots that are not tracked are nobody's.
    assert switch.counts["malformed_frames"] == (1 if kind == DATA else 2)
