"""Garbage sent to every socket of a running topology: it is counted, and nothing else happens."""

from __future__ import annotations

import contextlib
import random
import re
import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from heronpy.proto import control_pb2, plan_pb2
from heronpy.statemgr import open_state, paths
from heronpy.wire.frames import LINK_HEADER, message_of
from tests.support.command import EXAMPLES, Heron, component

#: Messages that are orders when they come from anybody; the sockets are the user's own.
ORDERS = frozenset(
    {"kill_topology", "restart_container", "restart_target", "set_state", "update_topology", "finish_tasks"}
)


def endpoints_of(heron: Heron, name: str) -> list[str]:
    """Every ZeroMQ endpoint of a topology."""
    state = open_state("local", str(heron.home / "state" / "local"))
    try:
        values = [state.get(path(name)) for path in (paths.tmaster, paths.scheduler, paths.physical_plan)]
    finally:
        state.close()
    tmaster = plan_pb2.TmasterLocation.FromString(values[0][0])  # type: ignore[index]
    scheduler = plan_pb2.SchedulerLocation.FromString(values[1][0])  # type: ignore[index]
    found = {tmaster.endpoint, scheduler.endpoint}
    for record in plan_pb2.PhysicalPlan.FromString(values[2][0]).stmgrs:  # type: ignore[index]
        found |= {record.data_endpoint, record.control_endpoint}
    folder = Path(scheduler.endpoint.removeprefix("ipc://")).parent
    found |= {f"ipc://{path}" for path in folder.iterdir() if path.is_socket()}
    return sorted(found)


def messages(dice: random.Random) -> Iterator[list[bytes]]:
    """Multipart messages, from noise to valid envelopes that make no sense here."""
    for size in (0, 1, 10, 5000):
        yield [dice.randbytes(size)]
    yield [b"", b""]
    yield [dice.randbytes(3) for _ in range(5)]
    yield [control_pb2.Envelope(request_id=1).SerializeToString()]
    yield [control_pb2.Envelope(request_id=1, reply=True, error="x").SerializeToString()]
    for field in control_pb2.Envelope.DESCRIPTOR.oneofs_by_name["body"].fields:
        if field.name in ORDERS:
            continue
        envelope = control_pb2.Envelope(request_id=dice.randrange(2))
        getattr(envelope, field.name).SetInParent()
        yield [envelope.SerializeToString()]
        yield [envelope.SerializeToString() + dice.randbytes(20)]
    # The data socket takes a link header before each frame, in the same part or in one of its own.
    for size in (0, 8, 16):
        yield [dice.randbytes(size), dice.randbytes(40)]
        yield [bytes(size), dice.randbytes(40)]
        yield [LINK_HEADER.pack(1, 1)[:size] + dice.randbytes(40)]
    yield message_of(LINK_HEADER.pack(1, 1), dice.randbytes(40))


def attack(endpoint: str, dice: random.Random) -> None:
    context = zmq.Context()
    try:
        for kind in (zmq.DEALER, zmq.PUSH, zmq.ROUTER, zmq.SUB, zmq.REQ):
            sender = context.socket(kind)
            sender.connect(endpoint)
            for message in messages(dice) if kind in (zmq.DEALER, zmq.PUSH) else ():
                with contextlib.suppress(zmq.Again):
                    sender.send_multipart(message, zmq.DONTWAIT)
            sender.close(linger=300)
    finally:
        context.term()
    greeting = b"\xff\0\0\0\0\0\0\0\x01\x7f\x03\0NULL" + bytes(100)
    for noise in (b"", b"GET / HTTP/1.1\r\n\r\n", dice.randbytes(100_000), greeting):
        scheme, _, place = endpoint.partition("://")
        if scheme == "tcp":
            host, _, port = place.rpartition(":")
            raw: socket.socket = socket.create_connection((host, int(port)), timeout=5)
        else:
            raw = socket.socket(socket.AF_UNIX)
            raw.connect(place)
        with raw, contextlib.suppress(OSError):
            raw.sendall(noise)


def attack_page(port: int, dice: random.Random) -> None:
    """The HTTP server of an executor."""
    for noise in (b"", dice.randbytes(20_000), b"\r\n\r\n", b"POST / HTTP/1.1\r\n\r\n", b"GET " + b"x" * 100_000):
        with socket.create_connection(("127.0.0.1", port), timeout=5) as raw, contextlib.suppress(OSError):
            raw.sendall(noise)
            raw.recv(1000)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as page:
        assert page.status == 200


def counted_by_executor(port: int) -> float:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as page:
        text = page.read().decode()
    return sum(float(value) for value in re.findall(r"^\S*messages_invalid\S*\{.*\} ([\d.e+]+)$", text, re.MULTILINE))


@pytest.mark.heavy
def test_garbage_is_counted_and_changes_nothing(heron: Heron) -> None:
    heron.submit(EXAMPLES / "multi_stream.py", "ms")
    before = heron.status("ms")
    processes = {process.pid for process in heron.processes()}
    ports = [container["metrics_port"] for container in before["containers"]]
    endpoints = endpoints_of(heron, "ms")
    assert len(endpoints) == 10, endpoints
    dice = random.Random(7)
    for endpoint in endpoints:
        attack(endpoint, dice)
    for port in ports:
        attack_page(port, dice)

    seen = component(heron.status("ms"), "report")["executed"]
    after = heron.when("ms", lambda now: component(now, "report")["executed"] > seen + 5, "readings being reported")
    assert after["lifecycle"] == "RUNNING"
    assert [(task["instance_id"], task["pid"], task["epoch"]) for task in after["tasks"]] == [
        (task["instance_id"], task["pid"], task["epoch"]) for task in before["tasks"]
    ]
    assert {process.pid for process in heron.processes()} == processes, "a process was replaced"
    assert all(not p["restarts"] for c in after["containers"] for p in c["processes"])
    for process in ("tmaster", "scheduler", "stmgr-1"):
        assert "malformed control messages" in heron.log_text("ms", process)
    assert all(counted_by_executor(port) > 0 for port in ports)
    heron.when_logged("ms", "degrees on average", "*report*")
    shown = heron("metrics", "local", "ms", "--instance", "stmgr-1", "--name", "__stmgr_garbage").ok().out
    assert re.search(r"__stmgr_garbage +- +[1-9]", shown), shown
    heron.kill("ms")
    heron.check_clean()
