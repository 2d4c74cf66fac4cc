"""The server's own limits, over real sockets."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from heronpy.common.errors import ConfigError
from heronpy.tracker import peer, place
from heronpy.tracker.app import routes
from heronpy.tracker.folder import folder_of
from heronpy.tracker.guard import CONNECTIONS_OF_ONE, Scope
from heronpy.tracker.serve import LOOPBACK, Options, check, hosts_of, listen
from heronpy.tracker.tokens import Tokens
from tests.support.waiting import wait_for

PROGRAM = """
from heronpy.tracker import guard, serve
from heronpy.tracker.serve import Options
serve.REQUEST_MAX_S, guard.CONNECTIONS_MAX = {limits}
raise SystemExit(serve.run(Options(port=0, idle_exit_s={idle})))
"""


#: Becomes another user, asks, and prints the statuses of the answers.
STRANGER = """
import encodings.idna, http.client, json, os, sys  # what it needs is read while it may
[at, port, host], uid, asked = json.load(sys.stdin)
os.setgroups([])
os.setgid(uid)
os.setuid(uid)
found = []
for method, path in asked:
    connection = http.client.HTTPConnection(at, port, timeout=60)
    connection.request(method, path, "{}", {"Host": host, "X-Heron": "1", "Content-Type": "application/json"})
    found.append(connection.getresponse().status)
    connection.close()
print(json.dumps(found))
"""
#: Becomes another user, opens as many connections as it is told, and prints how many are open, at each line that it reads.
CROWD = """
import encodings.idna, os, select, socket, sys, time
at, port, uid, wanted = sys.argv[1], *map(int, sys.argv[2:])
os.setgroups([])
os.setgid(uid)
os.setuid(uid)
crowd = [socket.create_connection((at, port), 60) for _ in range(wanted)]
while True:
    gone = set(select.select(crowd, [], [], 0)[0])
    print(len(crowd) - len(gone), flush=True)
    if not sys.stdin.readline():
        break
"""
NOBODY = 65534


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir(mode=0o700)
    return folder


def start(home: Path, idle: float = 0.0, limits: str = "0.5, 4") -> tuple[subprocess.Popen[bytes], str]:
    """The process, and what its Host header is for the user's browser."""
    program = textwrap.dedent(PROGRAM.format(idle=idle, limits=limits))
    process = subprocess.Popen([sys.executable, "-c", program], env={**os.environ, "HERON_HOME": str(home)})
    found = wait_for(lambda: place.read(folder_of(home)), 30.0, "the tracker's record")
    return process, found.address.removeprefix("http://")


@pytest.fixture
def host(home: Path) -> Iterator[str]:
    process, host = start(home)
    yield host
    process.terminate()
    assert process.wait(10) == 0
    assert place.read(folder_of(home)) is None


@pytest.fixture
def server(host: str) -> tuple[str, int]:
    return "127.0.0.1", int(host.rpartition(":")[2])


def rest(sock: socket.socket) -> bytes:
    """What the server sends until it closes."""
    sock.settimeout(20)
    found = b""
    try:
        while data := sock.recv(65536):
            found += data
    except ConnectionError:
        pass
    return found


@pytest.mark.parametrize(
    "sent",
    [b"", b"GET / HT", b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nab"],
    ids=["nothing", "half a head", "half a body"],
)
def test_a_request_that_does_not_arrive_is_cut_off(sent: bytes, server: tuple[str, int]) -> None:
    with socket.create_connection(server) as sock:
        sock.sendall(sent)
        answer = rest(sock)
    assert b"200 OK" not in answer


def test_connections_are_bounded_and_the_tracker_goes_on(server: tuple[str, int]) -> None:
    host = f"Host: 127.0.0.1:{server[1]}\r\n".encode()

    def healthy() -> bool:
        with socket.create_connection(server) as sock:
            sock.sendall(b"GET /health HTTP/1.1\r\nConnection: close\r\n" + host + b"\r\n")
            return b"200 OK" in rest(sock)

    many = [socket.create_connection(server) for _ in range(20)]
    for sock in many:
        rest(sock)  # each is closed: at once, or when its time is over
        sock.close()
    wait_for(healthy, 10.0, "an answer after the crowd")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_a_stranger_with_many_connections_does_not_shut_out_the_owner(home: Path) -> None:
    process, host = start(home, limits="60, 256")
    server = ("127.0.0.1", int(host.rpartition(":")[2]))
    words = [sys.executable, "-c", CROWD, *map(str, (*server, NOBODY, 300))]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as crowd:
        assert crowd.stdin is not None and crowd.stdout is not None

        def left() -> int:
            """Connections of the crowd that the tracker has not closed."""
            return int(crowd.stdout.readline()) if crowd.stdin.write("\n") and not crowd.stdin.flush() else 300  # type: ignore[union-attr]

        wait_for(lambda: left() <= CONNECTIONS_OF_ONE, 30.0, "the end of those that are too many")
        with socket.create_connection(server) as sock:
            sock.sendall(f"GET /api/v1/me HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
            assert b"200 OK" in rest(sock)
        assert left() == CONNECTIONS_OF_ONE, "they were there"
        crowd.stdin.close()
    process.terminate()
    assert process.wait(10) == 0


def test_a_large_head_and_garbage_are_refused(server: tuple[str, int]) -> None:
    for sent in (b"GET / HTTP/1.1\r\nX: " + b"x" * 100_000, b"\x16\x03\x01\x02\x00" * 10, b"GET /\r\n\r\n\r\n"):
        with socket.create_connection(server) as sock:
            sock.sendall(sent)
            assert b"200 OK" not in rest(sock)


@pytest.mark.parametrize("at", LOOPBACK)
def test_the_kernel_says_who_asks(at: str, host: str, server: tuple[str, int]) -> None:
    """On every address that the name has in a browser."""
    request = f"GET /api/v1/me HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()
    try:
        sock = socket.create_connection((at, server[1]))
    except OSError:
        pytest.skip(f"{at} is not there")
    with sock:
        sock.sendall(request)
        assert f"uid {os.getuid()}".encode() in rest(sock)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_another_user_of_the_machine_gets_the_pages_and_nothing_else(host: str, server: tuple[str, int]) -> None:
    asked = [["GET", "/"], ["GET", "/health"], ["GET", "/static/js/main.js"]]
    asked += [[route.method, re.sub(r"\{\w+\}", "x", route.path)] for route in routes()]
    given = json.dumps([[*server, host], NOBODY, asked])
    done = subprocess.run([sys.executable, "-c", STRANGER], input=given, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    statuses = json.loads(done.stdout)
    assert statuses[:3] == [200, 200, 200]
    assert set(statuses[3:]) == {401} and len(statuses) == len(asked)


def test_it_ends_when_nobody_asks(home: Path) -> None:
    process, _ = start(home, idle=0.5)
    assert process.wait(20) == 0


# ---- who is at the other end ------------------------------------------------------------------


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_socket_on_its_way_out_has_no_owner(host: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, 0), family=family)
    except OSError:
        pytest.skip(f"{host} is not there")
    with listener, socket.create_connection(listener.getsockname()[:2]) as client:
        accepted, address = listener.accept()
        ends = (address[0], address[1]), (host, listener.getsockname()[1])
        assert peer.uid_of(*ends) == os.getuid()
        assert peer.uid_of(ends[1], ends[0]) == os.getuid(), "our own end"
        assert peer.uid_of((host, 1), ends[1]) is None, "nobody has this port"
        client.shutdown(socket.SHUT_WR)
        wait_for(lambda: peer.uid_of(*ends) is None, 5.0, "the kernel forgetting its owner")
        accepted.close()


def test_only_loopback_is_looked_up() -> None:
    assert peer.uid_of(("10.0.0.1", 5), ("127.0.0.1", 6)) is None
    assert peer.is_loopback("::ffff:127.0.0.1") and not peer.is_loopback("128.0.0.1") and not peer.is_loopback("x")


# ---- where it may listen ----------------------------------------------------------------------


def test_others_are_served_with_tls_and_a_token_only(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path)
    check(Options(), tokens)
    check(Options(host="localhost"), tokens)
    tls = ("cert", "key")
    for options in (Options(host="10.0.0.7"), Options(host="0.0.0.0"), Options(host="host.example")):
        with pytest.raises(ConfigError, match="without TLS"):
            check(options, tokens)
    for options in (Options(host="10.0.0.7", tls=tls), Options(behind_proxy="x")):
        with pytest.raises(ConfigError, match="no token exists"):
            check(options, tokens)
    tokens.create(Scope.VIEW)
    check(Options(host="10.0.0.7", tls=tls), tokens)


def test_the_names_that_it_answers_to() -> None:
    assert hosts_of(Options(), 8889) == {"127.0.0.1:8889", "localhost:8889", "[::1]:8889"}
    assert hosts_of(Options(behind_proxy="Heron.example"), 8889) == {"heron.example"}
    assert "10.0.0.7:443" in hosts_of(Options(host="10.0.0.7", tls=("c", "k")), 443)
    assert "10.0.0.7" in hosts_of(Options(host="10.0.0.7", tls=("c", "k")), 443)


def test_a_tracker_takes_the_port_of_the_last_one_if_it_is_free(tmp_path: Path) -> None:
    assert place.last_port(tmp_path) is None
    with listening(0) as port:
        place.remove(tmp_path, place.write(tmp_path, f"http://x.localhost:{port}", "1", by_ui=True))
        assert place.last_port(tmp_path) == port
        with listening(None, port) as other:
            assert other != port
    with listening(None, port) as again:
        assert again == port


@contextlib.contextmanager
def listening(wanted: int | None, last: int | None = None) -> Iterator[int]:
    """The port of a tracker that listens."""
    socks = listen(LOOPBACK, wanted, last)
    ports = {sock.getsockname()[1] for sock in socks}
    assert len(ports) == 1
    yield ports.pop()
    for sock in socks:
        sock.close()


@pytest.mark.parametrize("taken", LOOPBACK)
def test_a_port_that_others_have_on_one_loopback_address_is_not_taken(taken: str) -> None:
    """A browser asks both, and whoever answers first is the tracker."""
    with listening(0) as port:
        pass
    family = socket.AF_INET6 if ":" in taken else socket.AF_INET
    try:
        other = socket.create_server((taken, port), family=family)
    except OSError:
        pytest.skip(f"{taken} is not there")
    with other:
        with listening(None, port) as found:
            assert found != port
        with pytest.raises(ConfigError, match="in use"):
            listen(LOOPBACK, port)


@pytest.mark.parametrize("number", [errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL])
def test_a_machine_without_ipv6_has_one_loopback_address(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    class Socket(socket.socket):
        def bind(self, address: Any) -> None:
            if self.family == socket.AF_INET6:
                raise OSError(number, "no IPv6")
            super().bind(address)

    monkeypatch.setattr("heronpy.tracker.serve.socket.socket", Socket)
    [sock] = listen(LOOPBACK, 0)
    assert sock.family == socket.AF_INET
    sock.close()


def test_a_taken_port_is_said(tmp_path: Path) -> None:
    with listening(0) as port, pytest.raises(ConfigError, match="in use"):
        listen(LOOPBACK, port)
    with pytest.raises(ConfigError, match="cannot listen"):
        listen(["192.0.2.1"], 0)
    with pytest.raises(ConfigError, match="leave out --host"):
        check(Options(host="127.0.0.2"), Tokens(tmp_path))


def test_a_start_imports_nothing_that_only_a_change_or_a_diagnosis_needs() -> None:
    code = "import sys, heronpy.tracker.serve, heronpy.tracker.app; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    needless = ("heronpy.packing", "heronpy.clusters.room", "heronpy.clusters.scaling", "heronpy.health.signals",
                "heronpy.health.diagnose", "xml.sax")  # fmt: skip
    assert not {name for name in done.stdout.split() if name.startswith(needless)}
