"""A running topology from outside: every open port is known and guarded, and nothing of a run tells a secret."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import stat
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import zmq
from zmq.utils import z85

from heronpy.net import curve
from heronpy.net.curve import Keys, Pair
from heronpy.net.rpc import wrap
from heronpy.net.zsock import configure
from heronpy.proto import control_pb2
from heronpy.wire.frames import DATA, LINK_HEADER, LINK_OPEN, Frame, message_of
from tests.security.messages import envelopes, frames
from tests.security.mutate import CASES, SEED, mutated
from tests.support.command import Heron
from tests.support.user_programs import write_program

LOOPBACK = "127.0.0.1"
CANARY = "canary-7f3a-not-to-be-found"
#: A few tuples per moment from one container to the other, for ever.
PROGRAM = """
    class Words(Spout):
        outputs = ["n"]

        def initialize(self, config, context):
            self.n = 0

        def next_tuple(self):
            time.sleep(0.002)
            self.n += 1
            self.emit([f"word {self.n % 100}"])


    def main():
        builder = TopologyBuilder("wc")
        words = builder.add_spout("words", Words, par=2)
        builder.add_bolt("count", Sink, par=2, inputs={words: Grouping.fields("n")})
        builder.set_config({"topology.stmgrs": 2, **ATLEAST_ONCE})
        builder.build_and_submit()


    main()
"""
#: Commands: what a mutation of these does is what it says.
ORDERS = frozenset(
    "kill_topology restart_container restart_processes restart_target set_state update_topology runtime_config"
    " delete_checkpoints restore_checkpoint stop_task finish_task finish_tasks".split()
)


def start(heron: Heron, *flags: str) -> None:
    heron.submit(write_program(heron.home.parent, PROGRAM), *flags)
    heron.when_state("wc", "RUNNING")


@pytest.fixture
def encrypted(heron: Heron) -> Heron:
    """A topology in two containers that listens off loopback, so with keys; its submitter's environment has a secret."""
    heron.env["HERON_TEST_PASSWORD"] = CANARY
    host = own_address()
    more = [] if host != LOOPBACK else ["--config-property", "heron.security.transport=tcp"]
    start(heron, "--config-property", f"heron.security.bind_host={host}", *more)
    return heron


def own_address() -> str:
    """An address of this machine that others can reach; loopback where it has none."""
    found = [a.address for addresses in psutil.net_if_addrs().values() for a in addresses if a.family == socket.AF_INET]
    return next((address for address in found if not address.startswith("127.")), LOOPBACK)


def working_dir(heron: Heron) -> Path:
    return heron.log_dir("wc").parent


def open_ports(heron: Heron) -> dict[int, tuple[str, str]]:
    """Port to (process, address) of everything that listens on the network."""
    known = names_of(heron)
    found = {}
    for process in heron.processes():
        with contextlib.suppress(psutil.Error):
            for conn in process.net_connections(kind="inet"):
                if conn.status == psutil.CONN_LISTEN:
                    name = known.get(process.pid) or f"unknown {process.cmdline()}"
                    found[conn.laddr.port] = (name, conn.laddr.ip)
    return found


def names_of(heron: Heron) -> dict[int, str]:
    found = {}
    for container in heron.status("wc")["containers"]:
        found[container["pid"]] = "executor"
        for item in container["processes"]:
            found[item["pid"]] = str(item["name"]).partition("-")[0]
    return found


@contextlib.contextmanager
def knocking(endpoint: str, keys: Keys | None) -> Iterator[tuple[zmq.Socket[bytes], Any]]:
    """A DEALER to the endpoint, and the events of its connection."""
    context: zmq.Context[Any] = zmq.Context()
    sock = configure(context.socket(zmq.DEALER))
    monitor = sock.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED)
    if keys is not None:
        keys.connect(sock)
    sock.connect(endpoint)
    try:
        yield sock, monitor
    finally:
        sock.disable_monitor()
        monitor.close()
        context.destroy(linger=0)


def ask(host: str, port: int, keys: Keys | None) -> str:
    """Probe, say everything that anybody could want to hear, and tell what came of it."""
    from zmq.utils.monitor import parse_monitor_message

    with knocking(f"tcp://{host}:{port}", keys) as (sock, monitor):
        with contextlib.suppress(zmq.Again):  # a client that was already disconnected cannot send
            sock.send(wrap(control_pb2.GetStatus(), 1).SerializeToString(), zmq.DONTWAIT)
            opening = message_of(LINK_HEADER.pack(1, 1), Frame(kind=LINK_OPEN).SerializeToString())
            sock.send_multipart(opening, zmq.DONTWAIT)
        if monitor.poll(20_000):
            event = parse_monitor_message(monitor.recv_multipart())["event"]
            return "open" if event == zmq.EVENT_HANDSHAKE_SUCCEEDED else "shut"
    return "silent"


@pytest.mark.heavy
def test_every_port_opens_to_the_key_only_and_nothing_of_a_run_tells_a_secret(encrypted: Heron) -> None:
    found = open_ports(encrypted)
    kinds = sorted(name for name, _ in found.values())
    # A topology master; a data and a control port of each of two stream managers; three metrics pages, and the files of
    # three executors.
    assert kinds == ["executor"] * 6 + ["stmgr"] * 4 + ["tmaster"], found
    of_executors = sorted(address for name, address in found.values() if name == "executor")
    assert of_executors == sorted([LOOPBACK] * 3 + [own_address()] * 3)
    assert {address for name, address in found.values() if name != "executor"} == {own_address()}
    own = curve.load(str(working_dir(encrypted)), "")
    stranger = Keys("", own.server, Pair(*zmq.curve_keypair()))
    other = Keys("", Pair(*zmq.curve_keypair()), Pair(*zmq.curve_keypair()))
    reversed_roles = Keys("", own.server, own.server)
    before = words_received(encrypted)
    for port, (name, host) in found.items():
        if host == LOOPBACK:
            check_page(port)
            continue
        for keys in (None, stranger, other, reversed_roles):
            assert ask(host, port, keys) == "shut", f"{name} at {port} let {keys} in"
        assert ask(host, port, own) == "open", f"{name} at {port} is shut to the topology's own key"
    log = encrypted.log_text("wc")
    assert "refused" in log and "Traceback" not in log
    encrypted.when("wc", lambda status: words_of(status) > before, "words that still flow")
    check_that_nothing_tells_a_secret(encrypted)


def check_page(port: int) -> None:
    """Read only, and for loopback names only."""
    base = f"http://127.0.0.1:{port}/metrics"
    with urllib.request.urlopen(base, timeout=20) as answer:
        assert b"heron" in answer.read()
    refused = {
        urllib.request.Request(base, method="POST", data=b"x"): 405,
        urllib.request.Request(base, method="DELETE"): 405,
        urllib.request.Request(base, headers={"Host": "evil.example"}): 403,
        urllib.request.Request(f"http://127.0.0.1:{port}/../../etc/passwd"): 404,
    }
    for request, code in refused.items():
        with pytest.raises(urllib.error.HTTPError) as error:
            urllib.request.urlopen(request, timeout=20)
        assert error.value.code == code
        error.value.close()


def words_received(heron: Heron) -> int:
    return words_of(heron.status("wc"))


def words_of(status: dict[str, Any]) -> int:
    return int(next(row for row in status["components"] if row["name"] == "count")["executed"])


def check_that_nothing_tells_a_secret(encrypted: Heron) -> None:
    """Files, state, arguments, logs and the output of every verb; also after a kill -9 and an error."""
    folder = curve.folder_of(str(working_dir(encrypted)))
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    secrets = [CANARY.encode()]
    for path in folder.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        secret = path.read_bytes().split()[3]
        secrets += [secret, z85.decode(secret), z85.decode(secret).hex().encode()]
    psutil.Process(encrypted.pid("wc", "stmgr-1")).kill()
    encrypted.when_logged("wc", "stmgr-1.*killed", "executor-1")
    encrypted.when_state("wc", "RUNNING")
    said = b""
    for verb in (
        "status local wc",
        "config show local",
        "config show local --topology wc",
        "logs local wc",
        "metrics local wc",
    ):
        result = encrypted(*verb.split(), *(() if "logs" in verb else ("--json",))).ok()
        said += (result.out + result.err).encode()
    for process in encrypted.processes():
        with contextlib.suppress(psutil.Error):
            said += " ".join(process.cmdline()).encode()
    assert len(leaks(folder, secrets, but=Path("/nowhere"))) == 2, "the search itself"
    found = leaks(encrypted.home, secrets, but=folder)
    found += leaks(Path(os.environ["TMPDIR"]), secrets, but=folder)
    found += [f"output has secret {n}" for n, secret in enumerate(secrets) if secret in said]
    assert not found, found
    encrypted.kill("wc")
    assert not folder.exists(), "the keys outlive the topology"
    assert not leaks(encrypted.home, secrets, but=folder)


def leaks(root: Path, secrets: list[bytes], but: Path) -> list[str]:
    found = []
    for path in root.rglob("*"):
        if path.is_file() and not path.is_symlink() and but not in path.parents:
            with contextlib.suppress(FileNotFoundError):
                data = path.read_bytes()
                found += [f"{path} has secret {n}" for n, secret in enumerate(secrets) if secret in data]
    return found


def test_mutated_messages_at_the_sockets_of_real_processes(heron: Heron) -> None:
    """From the same user, so what comes in reaches the handlers. No process ends, memory is flat, words flow."""
    start(heron)
    # Of the seeds tried, one whose mutations happen to order no restart.
    pages, dice = open_ports(heron), random.Random(SEED + 1)
    assert {name for name, _ in pages.values()} == {"executor"}, "nothing but metrics pages listens on the network"
    sockets = [path for path in sockets_of(heron) if path.name.startswith(("stmgr", "tmaster"))]
    assert len(sockets) == 9, sockets
    pids = {process.pid for process in heron.processes()}
    seeds = envelopes(ORDERS)
    opened, damaged = frames(), Frame(kind=DATA, dest_task=3, count=1, payload=b"\x91\x01").SerializeToString()
    before = {pid: psutil.Process(pid).memory_info().rss for pid in pids}
    for place in [*pages, *sockets]:
        for _ in range(20):
            with contextlib.suppress(OSError), raw_connection(place) as raw:
                raw.sendall(mutated(b"\xff" + bytes(8) + b"\x7f\x03\x00NULL" + bytes(48), seeds, dice))
    for path in sockets:
        with knocking(f"ipc://{path}", None) as (sock, _):
            for number in range(max(500, CASES // 2)):
                data = mutated(dice.choice(seeds if number % 2 else opened), seeds, dice)
                parts = [data] if number % 2 else message_of(LINK_HEADER.pack(1, number, data), data)
                parts += [damaged] * (dice.random() < 0.02)
                with contextlib.suppress(zmq.Again):
                    sock.send_multipart(parts, zmq.DONTWAIT)
            # All of it has been read once this, the last, is answered; the data socket answers nobody.
            sock.send(wrap(control_pb2.GetStatus(), 77).SerializeToString())
            if path.name.startswith("tmaster"):
                assert answered(sock, 77)
    # One changed bit makes an order of a question; that of a pause is taken back.
    heron("activate", "local", "wc").ok()
    received = words_received(heron)
    heron.when("wc", lambda status: words_of(status) > received, "words that still flow")
    assert {process.pid for process in heron.processes()} == pids, heron.log_text("wc")[-5000:]
    for pid, rss in before.items():
        assert psutil.Process(pid).memory_info().rss < rss + (64 << 20), psutil.Process(pid).cmdline()
    assert "Traceback" not in heron.log_text("wc", "tmaster") + heron.log_text("wc", "stmgr-*")


def sockets_of(heron: Heron) -> list[Path]:
    """Every socket in the file system of a run."""
    return sorted(path for path in Path(os.environ["TMPDIR"]).rglob("*") if stat.S_ISSOCK(path.lstat().st_mode))


def raw_connection(place: int | Path) -> socket.socket:
    """A connection to a port of loopback or to a path."""
    if isinstance(place, int):
        return socket.create_connection((LOOPBACK, place), timeout=10)
    raw = socket.socket(socket.AF_UNIX)
    raw.settimeout(10)
    raw.connect(os.fspath(place))
    return raw


def answered(sock: zmq.Socket[bytes], request_id: int) -> bool:
    while sock.poll(20_000):
        envelope = control_pb2.Envelope.FromString(sock.recv())
        if envelope.reply and envelope.request_id == request_id:
            return True
    return False
