"""Keys of a topology and the authenticator in front of its TCP sockets: a process without a key gets no message in."""

from __future__ import annotations

import asyncio
import logging
import os
import pwd
import re
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import zmq

from heronpy.common.errors import ConfigError
from heronpy.common.setting_types import SecuritySettings
from heronpy.common.settings import resolve
from heronpy.net import curve, transport
from heronpy.net.authenticator import PEERS_MAX, Authenticator
from heronpy.net.curve import Keys, Pair
from heronpy.net.private import check_private, make_private, read_private
from heronpy.net.rpc import RpcClient
from heronpy.net.rpc_loop import ControlClient, ControlServer
from heronpy.net.transport import Transport
from heronpy.proto import control_pb2
from tests.support.waiting import eventually

QUESTION = control_pb2.GetContainers()


def some_keys(domain: str = "wc-1") -> Keys:
    return Keys(domain, Pair(*zmq.curve_keypair()), Pair(*zmq.curve_keypair()))


# ---- keys in files -------------------------------------------------------------------------------------


def test_keys_are_for_the_owner_only_and_new_for_each_submit(tmp_path: Path) -> None:
    curve.generate(str(tmp_path))
    folder = curve.folder_of(str(tmp_path))
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    first = curve.load(str(tmp_path), "wc-1")
    curve.generate(str(tmp_path))
    second = curve.load(str(tmp_path), "wc-2")
    pairs = [first.server, first.client, second.server, second.client]
    assert len({pair.secret for pair in pairs}) == len({pair.public for pair in pairs}) == 4
    assert not any(pair.secret.decode() in repr((first, second)) for pair in pairs)
    curve.remove(str(tmp_path))
    assert not folder.exists()


def _wide_folder(folder: Path) -> None:
    folder.chmod(0o750)


def _wide_file(folder: Path) -> None:
    (folder / "client.key").chmod(0o640)


def _damaged(folder: Path) -> None:
    data = bytearray((folder / "client.key").read_bytes())
    data[60] ^= 1
    (folder / "client.key").write_bytes(data)


def _large(folder: Path) -> None:
    (folder / "client.key").write_bytes(b"x" * 5000)


def _link(folder: Path) -> None:
    (folder / "client.key").rename(folder / "elsewhere")
    (folder / "client.key").symlink_to(folder / "elsewhere")


def _pipe(folder: Path) -> None:
    (folder / "client.key").unlink()
    os.mkfifo(folder / "client.key", 0o600)


def _missing(folder: Path) -> None:
    (folder / "server.key").unlink()


@pytest.mark.parametrize("harm", [_wide_folder, _wide_file, _damaged, _large, _link, _pipe, _missing])
def test_keys_that_others_may_know_or_that_are_damaged_are_refused(tmp_path: Path, harm: Any) -> None:
    curve.generate(str(tmp_path))
    harm(curve.folder_of(str(tmp_path)))
    with pytest.raises(ConfigError):
        curve.load(str(tmp_path), "wc-1")


def launch_with(folder: Path, **security: str) -> Any:
    return SimpleNamespace(
        topology_id="wc-1",
        working_dir=str(folder),
        sockets_dir="/run/wc",
        address="",
        settings={"security": security},
        component_settings={},
    )


def test_missing_keys_never_mean_plain_links(tmp_path: Path) -> None:
    launch = launch_with(tmp_path, transport="tcp")
    with pytest.raises(ConfigError, match="cannot check folder"):
        transport.keys_of(launch)
    curve.generate(str(tmp_path))
    found = transport.keys_of(launch)
    assert found is not None and found.domain == "wc-1"
    assert transport.endpoint_of(launch, "tmaster.1f.control") == "tcp://127.0.0.1:*"
    launch = launch_with(tmp_path)
    assert transport.keys_of(launch) is None
    assert transport.endpoint_of(launch, "tmaster.1f.control") == "ipc:///run/wc/tmaster.1f.control"


@pytest.mark.parametrize("endpoint", ["tcp://127.0.0.1:*", "tcp://127.0.0.1:9", "inproc://x", "ws://127.0.0.1:9"])
def test_there_is_no_network_link_without_keys(endpoint: str) -> None:
    context: zmq.Context[Any] = zmq.Context()
    sock = context.socket(zmq.DEALER)
    for use in (transport.bind, transport.connect):
        with pytest.raises(ConfigError, match="without keys"):
            use(sock, endpoint)
    with pytest.raises(ConfigError, match="without keys"):
        RpcClient(endpoint, context)
    sock.close()
    context.term()


# ---- when ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "host", "chosen"),
    [
        ("auto", "127.0.0.1", Transport.IPC),
        ("auto", "127.8.8.8", Transport.IPC),
        ("auto", "localhost", Transport.IPC),
        ("auto", "10.0.0.7", Transport.TCP),
        ("auto", "no address", Transport.TCP),
        ("tcp", "127.0.0.1", Transport.TCP),
        ("ipc", "127.0.0.1", Transport.IPC),
    ],
)
def test_how_processes_reach_each_other(wanted: str, host: str, chosen: Transport) -> None:
    assert transport.choose(SecuritySettings(transport=wanted, bind_host=host)) is chosen


@pytest.mark.parametrize(
    ("wanted", "host", "words"),
    [
        ("ipc", "192.0.2.77", "works on one machine only"),
        ("auto", "0.0.0.0", "not an address that other hosts can reach"),
        ("auto", "224.0.0.1", "not an address that other hosts can reach"),
        ("auto", "*", "IPv4 address"),
        ("auto", "eth0", "IPv4 address"),
        ("auto", "::1", "IPv4 address"),
    ],
)
def test_an_endpoint_left_open_is_refused(wanted: str, host: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        transport.check(SecuritySettings(transport=wanted, bind_host=host))


def test_an_address_is_looked_for_where_it_is_listened_on() -> None:
    elsewhere = SecuritySettings(transport="tcp", bind_host="203.0.113.9")
    transport.check(elsewhere)  # the host of the submit need not have it
    with pytest.raises(ConfigError, match=r"203.0.113.9 cannot be bound on this machine"):
        transport.check_address(elsewhere)
    transport.check_address(SecuritySettings(transport="tcp", bind_host="localhost"))


def test_the_transport_is_a_setting(tmp_path: Path) -> None:
    transport.check(SecuritySettings())
    (tmp_path / "local").mkdir()
    for word in ("ipc", "tcp", "auto"):
        (tmp_path / "local" / "security.yaml").write_text(f"transport: {word}\n")
        assert resolve("local", [tmp_path], {}, {}, []).settings["security"]["transport"] == word
    with pytest.raises(ConfigError, match="one of auto, ipc, tcp"):
        resolve("local", [], {}, {}, ["heron.security.transport=plain"])


# ---- the authenticator ------------------------------------------------------------------------------------------


class World:
    """A control server with keys in a context of its own, and those who come."""

    def __init__(self, guarded: bool = True) -> None:
        self.keys = some_keys()
        self.asked: list[str] = []
        self.context: zmq.Context[Any] = zmq.Context()
        self.outside: zmq.Context[Any] = zmq.Context()
        self.authenticator = Authenticator(self.keys, self.context) if guarded else None
        self.server = ControlServer(["tcp://127.0.0.1:*"], self.answer, self.context, keys=self.keys)
        if self.authenticator is not None:
            self.authenticator.watch(self.server.sock)
        self.endpoint = self.server.endpoints[0]

    def answer(self, identity: bytes, envelope: control_pb2.Envelope) -> control_pb2.ContainersReply:
        self.asked.append(envelope.WhichOneof("body") or "")
        return control_pb2.ContainersReply()

    def client(self, keys: Keys) -> ControlClient:
        return ControlClient(self.endpoint, lambda _: None, context=self.outside, keys=keys)

    async def __aenter__(self) -> World:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self.authenticator is not None:
            self.authenticator.close()
        self.server.close()
        self.context.term()
        self.outside.destroy(linger=0)


async def test_the_right_key_opens() -> None:
    async with World() as world:
        client = world.client(world.keys)
        for _ in range(3):
            await client.call(QUESTION, 10)
        client.close()
        assert world.authenticator is not None
        assert (len(world.asked), world.authenticator.admitted, world.authenticator.refused) == (3, 1, 0)


async def test_who_leaves_while_it_connects_is_not_refused(caplog: pytest.LogCaptureFixture) -> None:
    """A process with the right key that ends then is allowed; a silent or wrong client is refused."""
    caplog.set_level(logging.WARNING)
    async with World() as world:
        assert world.authenticator is not None
        authenticator, address = world.authenticator, ("127.0.0.1", int(world.endpoint.rpartition(":")[2]))
        for _ in range(3):
            leaver = socket.create_connection(address)
            assert leaver.recv(10), "the greeting: the handshake has begun"
            leaver.close()
        await eventually(lambda: authenticator.left == 3, what="that they have left")
        assert (authenticator.refused, caplog.messages) == (0, [])
        with socket.create_connection(address):
            await eventually(lambda: authenticator.refused == 1, 10, "the silent one being refused")
        assert "does not use the encryption" in caplog.text and authenticator.left == 3


def unknown_key(keys: Keys) -> Keys:
    return Keys(keys.domain, keys.server, some_keys().client)


def another_topology(keys: Keys) -> Keys:
    return some_keys("other-1")


def swapped(keys: Keys) -> Keys:
    return Keys(keys.domain, keys.server, keys.server)


class Plain:
    """Has no key, and connects all the same."""

    def connect(self, sock: object) -> None:
        """As a program of anybody's."""


def plain(keys: Keys) -> Any:
    return Plain()


@pytest.mark.parametrize("disguise", [unknown_key, another_topology, swapped, plain])
async def test_others_are_refused_counted_and_logged_once(disguise: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    async with World() as world:
        assert world.authenticator is not None
        authenticator, disguised = world.authenticator, disguise(world.keys)
        clients = [world.client(disguised) for _ in range(3)]
        for client in clients * 20:
            client.send(QUESTION)
        # Who speaks no encryption closes the connection itself, and may do so before it is refused.
        await eventually(lambda: authenticator.refused + authenticator.left >= len(clients), what="refusals")
        for client in clients:
            client.close()
        # Who has the key is served all the while.
        friend = world.client(world.keys)
        await friend.call(QUESTION, 10)
        friend.close()
        assert (world.asked, authenticator.admitted) == (["get_containers"], 1)
        refused = authenticator.refused
    lines = [record.message for record in caplog.records if "refused" in record.message]
    assert refused or disguise is plain
    assert len(lines) == min(refused, 1), lines


@pytest.mark.parametrize("guarded", [True, False])
async def test_without_the_same_keys_or_without_a_gate_nobody_gets_in(guarded: bool) -> None:
    """The client has keys of a topology that ran here before; a server that forgot its authenticator is closed, not open."""
    async with World(guarded) as world:
        if guarded:
            world.keys = some_keys()
        client = world.client(world.keys)
        sock = client._socket.sock
        monitor = sock.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        client.send(QUESTION)
        await eventually(lambda: monitor.poll(0), what="the end of the handshake")
        sock.disable_monitor()
        monitor.close()
        client.close()
        assert not world.asked


@pytest.mark.parametrize("seed", range(3))
async def test_noise_and_a_replayed_handshake_are_refused(seed: int) -> None:
    async with World() as world:
        assert world.authenticator is not None
        port = int(world.endpoint.rpartition(":")[2])
        recorded = await record_handshake(world, port)
        assert world.asked == ["get_containers"]
        noise = [recorded, recorded[:64], b"\xff" + bytes(63), b"GET / HTTP/1.1\r\n\r\n", os.urandom(10_000)]

        def say(data: bytes) -> None:
            with socket.create_connection(("127.0.0.1", port), timeout=5) as raw, suppress(OSError):
                raw.sendall(data)
                while raw.recv(4096):  # until it is refused
                    pass

        await asyncio.gather(*(asyncio.to_thread(say, data) for data in noise))
        authenticator = world.authenticator
        await eventually(lambda: authenticator.refused >= 2, what="refusals")
        friend = world.client(world.keys)
        await friend.call(QUESTION, 10)
        friend.close()
        assert len(world.asked) == 2


async def record_handshake(world: World, port: int) -> bytes:
    """The bytes of a whole session of a friend, as somebody in between sees them."""
    recorded = bytearray()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to_server, out = await asyncio.open_connection("127.0.0.1", port)

        async def back() -> None:
            while data := await to_server.read(4096):
                writer.write(data)

        answers = asyncio.ensure_future(back())
        while data := await reader.read(4096):
            recorded.extend(data)
            out.write(data)
        answers.cancel()
        for stream in (out, writer):
            stream.close()
        over.set()

    over = asyncio.Event()
    between = await asyncio.start_server(relay, "127.0.0.1", 0)
    endpoint = f"tcp://127.0.0.1:{between.sockets[0].getsockname()[1]}"
    client = ControlClient(endpoint, lambda _: None, context=world.outside, keys=world.keys)
    await client.call(QUESTION, 10)
    client.close()
    await over.wait()
    between.close()
    assert b"get" not in recorded and world.keys.client.public not in recorded
    return bytes(recorded)


async def test_the_log_of_refusals_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    async with World() as world:
        assert world.authenticator is not None
        for number in range(PEERS_MAX + 50):
            key = zmq.utils.z85.decode(some_keys().client.public)
            address = b"10.0.%d.%d" % divmod(number, 256)
            world.authenticator.answer([b"e", b"", b"1.0", b"1", b"wc-1", address, b"", b"CURVE", key])
        for odd in ([], [b"e"], [b"e", b"", b"1.0"], [b"e", b"", b"1.0", b"1"]):
            world.authenticator.answer(odd)
        assert world.authenticator.refused == PEERS_MAX + 51 and not world.authenticator.admitted
    assert len([record for record in caplog.records if "refused" in record.message]) == PEERS_MAX


# ---- ipc -----------------------------------------------------------------------------------------------


def test_a_folder_of_sockets_is_the_users_own(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    make_private(folder)
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o770)
    problem = r"b does not belong to you alone: other users can enter it \(mode 0770\); remove it, or make it a folder that you own"
    for look in (check_private, make_private):
        with pytest.raises(ConfigError, match=problem):
            look(folder)
    folder.chmod(0o700)
    (tmp_path / "link").symlink_to(folder)
    with pytest.raises(ConfigError, match="does not belong to you alone: it is a symbolic link"):
        check_private(tmp_path / "link")
    with pytest.raises(ConfigError, match="cannot check"):
        check_private(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="cannot read"):
        read_private(tmp_path / "nowhere", 10)


def test_a_folder_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_private(tmp_path / "a")
    own = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000)
    owner = re.escape(f"it belongs to another user ({pwd.getpwuid(own).pw_name}, uid {own});")
    with pytest.raises(ConfigError, match=f"does not belong to you alone: {owner}"):
        make_private(tmp_path / "a")


@pytest.mark.parametrize(("shift", "heard"), [(0, True), (1, False)])
def test_the_kernel_names_who_connects(home: Path, monkeypatch: pytest.MonkeyPatch, shift: int, heard: bool) -> None:
    """Were the folder ever open, another user would still be refused (SO_PEERCRED)."""
    own = os.getuid()
    monkeypatch.setattr(transport, "check_private", lambda _: None)
    monkeypatch.setattr(os, "getuid", lambda: own + shift)
    context: zmq.Context[Any] = zmq.Context()
    router, dealer = context.socket(zmq.ROUTER), context.socket(zmq.DEALER)
    endpoint = transport.bind(router, f"ipc://{home}/s")
    monitor = dealer.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED)
    dealer.connect(endpoint)
    dealer.send(b"hello")
    assert monitor.poll(10_000)
    assert bool(router.poll(5000 if heard else 0)) is heard
    dealer.disable_monitor()
    monitor.close()
    context.destroy(linger=0)


def test_no_socket_is_bound_in_a_folder_that_others_may_enter(home: Path) -> None:
    home.chmod(0o755)
    context: zmq.Context[Any] = zmq.Context()
    router = context.socket(zmq.ROUTER)
    with pytest.raises(ConfigError, match="does not belong to you alone"):
        transport.bind(router, f"ipc://{home}/s")
    assert not (home / "s").exists()
    context.destroy(linger=0)


def _symlink(folder: Path) -> None:
    folder.rename(folder.with_name("elsewhere"))
    folder.symlink_to(folder.with_name("elsewhere"))


def _loose_parent(folder: Path) -> None:
    folder.parent.chmod(0o777)


@pytest.mark.parametrize("harm", [_wide_folder, _symlink, _loose_parent])
def test_a_client_does_not_connect_where_others_could_listen(home: Path, harm: Callable[[Path], None]) -> None:
    folder = home / "of" / "sockets"
    make_private(folder)
    folder.parent.chmod(0o700)
    context: zmq.Context[Any] = zmq.Context()
    trap = context.socket(zmq.ROUTER)
    transport.bind(trap, f"ipc://{folder}/scheduler")
    with RpcClient(f"ipc://{folder}/scheduler", context):
        """As it is, it may."""
    harm(folder)
    with pytest.raises(ConfigError, match=r"does not belong to you alone|can replace"):
        RpcClient(f"ipc://{folder}/scheduler", context)
    assert not trap.poll(100)
    context.destroy(linger=0)


def test_a_client_with_keys_connects_to_no_socket_of_this_host(home: Path) -> None:
    make_private(home / "sockets")
    context: zmq.Context[Any] = zmq.Context()
    trap = context.socket(zmq.ROUTER)
    transport.bind(trap, f"ipc://{home}/sockets/tmaster")
    pair = Pair(*zmq.curve_keypair())
    with pytest.raises(ConfigError, match="so no process of topology wc-1 listens there"):
        RpcClient(f"ipc://{home}/sockets/tmaster", context, keys=Keys("wc-1", pair, pair))
    context.destroy(linger=0)


def test_a_client_does_not_connect_into_a_folder_of_another_user(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_private(home / "sockets")
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000)
    with pytest.raises(ConfigError, match="does not belong to you alone"):
        RpcClient(f"ipc://{home}/sockets/scheduler")


def test_sockets_of_dead_incarnations_go(home: Path) -> None:
    for name in ("stmgr-1.1000a.data", "stmgr-1.data", "stmgr-1.10001.control", "stmgr-11.1.data"):
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(home / name))
    with socket.socket(socket.AF_UNIX) as alive:
        alive.bind(str(home / "stmgr-1.10002.data"))
        alive.listen()
        transport.remove_stale(str(home), "stmgr-1")
    assert {path.name for path in home.iterdir()} == {"stmgr-1.data", "stmgr-11.1.data", "stmgr-1.10002.data"}
