"""Spark's ports answer nobody who does not know a secret: another user of the machine could reach them."""

from __future__ import annotations

import contextlib
import shutil
import socket
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.spark.support import GatewaySupervisor, make_launch
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

LOOPBACK = {"127.0.0.1", "::1", "::ffff:127.0.0.1"}
#: A Java object, the string "hello", for the endpoint that every Spark RPC port has.
HELLO = b"\xac\xed\x00\x05t\x00\x05hello"
PY4J = b"r\nu\njava.lang.Runtime\nrj\ne\n"
#: The begin of a Java object. Spark answers with one when it has deserialised the request.
ANSWERED = b"\xac\xed\x00\x05"


def rpc_request(receiver: tuple[str, int], body: bytes) -> bytes:
    """A request as Spark frames it: no sender, the address of the receiver, the name of an endpoint, an object."""
    host = receiver[0].encode()
    name = b"endpoint-verifier"
    message = b"\0\1" + struct.pack(">H", len(host)) + host + struct.pack(">i", receiver[1])
    message += struct.pack(">H", len(name)) + name + body
    head = struct.pack(">bqi", 3, 7, len(message))
    return struct.pack(">q", 8 + len(head) + len(message)) + head + message


def ask(port: int, data: bytes) -> tuple[bytes, bool]:
    """What a port answers, and whether it has hung up."""
    heard = b""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as sock:
        sock.sendall(data)
        sock.settimeout(5)
        try:
            while more := sock.recv(65536):
                heard += more
        except TimeoutError:
            return heard, False
        except ConnectionResetError:
            pass
    return heard, True


@contextlib.contextmanager
def spark(folder: Path, **conf: str) -> Iterator[GatewaySupervisor]:
    """A real gateway whose Spark has a session."""
    sockets = Path(tempfile.mkdtemp(prefix="hs"))
    supervisor = GatewaySupervisor(make_launch(folder, sockets, conf=conf))
    supervisor.start()
    try:
        assert supervisor.process is not None
        wait_for(lambda: "is ready after" in supervisor.log.read_text() or supervisor.process.poll() is not None, 300)
        assert supervisor.process.poll() is None, supervisor.log.read_text()
        yield supervisor
    finally:
        supervisor.stop()
        shutil.rmtree(sockets, ignore_errors=True)


def open_ports(supervisor: GatewaySupervisor) -> dict[str, list[int]]:
    """The TCP ports that the gateway's processes listen on, by the process; all of them on loopback."""
    assert supervisor.process is not None
    gateway = psutil.Process(supervisor.process.pid)
    found: dict[str, list[int]] = {"java": [], "python": []}
    for process in [gateway, *gateway.children(recursive=True)]:
        for connection in process.net_connections(kind="inet"):
            if connection.status == psutil.CONN_LISTEN:
                assert connection.laddr.ip in LOOPBACK, connection
                found["java" if process.name() == "java" else "python"].append(connection.laddr.port)
    return found


@pytest.mark.heavy
def test_a_stranger_is_refused_at_every_port(tmp_path: Path) -> None:
    with spark(tmp_path) as supervisor:
        ports = open_ports(supervisor)
        assert len(ports["java"]) >= 3 and ports["python"]
        refusals = []
        for port in ports["java"]:
            # One of them speaks py4j: "give me the class Runtime", without the token.
            rpc, py4j = ask(port, rpc_request(("127.0.0.1", port), HELLO)), ask(port, PY4J)
            assert ANSWERED not in rpc[0] and b"!y" not in py4j[0], (port, rpc, py4j)
            refusals.append(rpc[1] or (py4j[1] and py4j[0].startswith(b"!xsAuthentication error")))
        assert all(refusals), refusals
        for port in ports["python"]:
            heard, hung_up = ask(port, b"x" * 4096)
            assert hung_up and not heard, f"port {port} answered {heard!r}"
        process = psutil.Process(supervisor.process.pid)
        lines = [word for child in process.children() if child.name() == "java" for word in child.cmdline()]
        assert lines and not any(word.startswith("spark.") for word in lines), "properties are for all users to read"
        modes = {path: path.stat().st_mode & 0o077 for path in (tmp_path / "spark").rglob("*.properties")}
        assert modes and not any(modes.values())


@pytest.mark.heavy
def test_who_asks_for_it_gets_ports_without_a_secret(tmp_path: Path) -> None:
    """The same message is deserialised then: the test above can see the difference."""
    with spark(tmp_path, **{"spark.authenticate": "false"}) as supervisor:
        heard = [ask(port, rpc_request(("127.0.0.1", port), HELLO))[0] for port in open_ports(supervisor)["java"]]
        assert any(ANSWERED in answer for answer in heard), heard


def test_spark_that_cannot_start_says_why_in_its_own_words(tmp_path: Path) -> None:
    sockets = Path(tempfile.mkdtemp(prefix="hs"))
    supervisor = GatewaySupervisor(make_launch(tmp_path, sockets, driver_memory="1k"))
    supervisor.start()
    try:
        assert supervisor.process is not None and supervisor.process.wait(60) == 3, supervisor.log.read_text()
    finally:
        shutil.rmtree(sockets, ignore_errors=True)
    last = supervisor.log.read_text().splitlines()[-1]
    assert "Spark's JVM ended with exit code 1 while it was starting: " in last and "Too small maximum heap" in last
    assert "[jvm] Too small maximum heap" in supervisor.log.read_text()
