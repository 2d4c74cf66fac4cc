"""What only ZooKeeper can get wrong: outages, sessions, lost answers, large values, access."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("kazoo", reason="kazoo is not installed; run pip install 'heronpy[zookeeper]'")

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss

from heronpy.common.errors import (
    ConfigError,
    NodeExistsError,
    NoNodeError,
    RetryableError,
    StateError,
    VersionMismatchError,
)
from heronpy.common.rooms import StatemgrSettings
from heronpy.statemgr import open_state, owner, zk_session, znode
from heronpy.statemgr.off_loop import get_off_loop
from heronpy.statemgr.zookeeper import ZooKeeperStateManager
from tests.support.waiting import wait_for
from tests.support.zookeeper import ZooKeeperServer, classpath

DEADLINE_S = 20.0
ROOT = Path(__file__).resolve().parents[2]
Make = Callable[..., ZooKeeperStateManager]


@pytest.fixture
def make(zookeeper_root: str) -> Iterator[Make]:
    """Opens managers on one root; settings may be given."""
    opened: list[ZooKeeperStateManager] = []

    def make_one(root: str = zookeeper_root, **settings: Any) -> ZooKeeperStateManager:
        manager = ZooKeeperStateManager(root, StatemgrSettings(**settings))
        opened.append(manager)
        return manager

    yield make_one
    for manager in opened:
        manager.close()


@pytest.fixture
def raw(zookeeper: ZooKeeperServer) -> Iterator[KazooClient]:
    """A client that sees the znodes themselves."""
    client = KazooClient(zookeeper.hosts)
    client.start()
    yield client
    client.stop()
    client.close()


@pytest.fixture
def own_server(zookeeper: ZooKeeperServer) -> Iterator[ZooKeeperServer]:
    """A server that a test may stop."""
    server = ZooKeeperServer(classpath()[0])
    yield server
    server.close()


def expire(manager: ZooKeeperStateManager) -> None:
    """End the manager's session as the server does when it has heard nothing for too long."""
    client = manager._session.client
    thief = KazooClient(manager._session.hosts, client_id=client.client_id)
    thief.start()
    thief.stop()
    thief.close()


def start(code: str, root: str) -> subprocess.Popen[bytes]:
    """Run code in a process of its own until it prints its first line."""
    head = "import sys, os, signal\nfrom heronpy.statemgr import open_state\n"
    head += "state = open_state('zookeeper', sys.argv[1])\n"
    process = subprocess.Popen(
        [sys.executable, "-c", head + code, root],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert process.stdout
    assert select.select([process.stdout], [], [], DEADLINE_S)[0], "the process did not start"
    assert process.stdout.readline() == b"ready\n"
    return process


def kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait(DEADLINE_S)
    if process.stdout:
        process.stdout.close()


# ---- sessions -----------------------------------------------------------------------------------


def test_a_restart_of_the_server_costs_nothing(own_server: ZooKeeperServer, make: Make) -> None:
    root = f"{own_server.hosts}/heron"
    first, second = make(root), make(root)
    first.create("tmasters/a", b"1", ephemeral=True)
    heard = threading.Event()
    first.watch("pplans/a", lambda path: heard.set())
    number = first._session.number
    with first.lock("locks/a"), ThreadPoolExecutor(1) as pool:
        own_server.stop()
        read = pool.submit(second.get, "tmasters/a")  # during the outage
        own_server.start()
        assert read.result(DEADLINE_S) == (b"1", 1)
        with pytest.raises(Exception, match="still held by process"), second.lock("locks/a", 0):
            pass
    assert first._session.number == number, "a lost connection is not a lost session"
    assert not heard.is_set()
    second.set("pplans/a", b"changed")
    assert heard.wait(DEADLINE_S), "the watch did not survive the outage"


def test_an_outage_is_one_sentence_and_does_not_stop_an_event_loop(
    own_server: ZooKeeperServer, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zk_session, "PATIENCE_S", 0.5)
    state = make(f"{own_server.hosts}/heron")
    state.create("topologies/a", b"")
    own_server.stop()
    wait_for(lambda: not state._session.client.connected, DEADLINE_S)
    calls: list[str] = []
    state.watch("topologies/a", calls.append)
    with pytest.raises(StateError, match=rf"ZooKeeper at {own_server.hosts} does not answer .*/heron/topologies/a"):
        state.get("topologies/a")

    async def look() -> float:
        before = time.monotonic()
        with pytest.raises(RetryableError):
            state.set("topologies/a", b"")
        took = time.monotonic() - before
        assert await get_off_loop(state, "topologies/a") is None
        return took

    assert asyncio.run(look()) < 0.4
    with pytest.raises(StateError, match="does not answer"):
        open_state("zookeeper", f"{own_server.hosts}/heron")
    assert not calls
    own_server.start()
    wait_for(lambda: calls, DEADLINE_S, "a call for what was missed before the watch was set")
    assert state.get("topologies/a") == (b"", 1)


def test_an_expired_session_is_replaced_and_gets_its_ephemerals_back(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = make(), make()
    first.create("schedulers/a", b"1", ephemeral=True)
    first.set("schedulers/a", b"2")
    first.create("tmasters/a", b"mine", ephemeral=True)
    changes: list[object] = []
    second.watch("schedulers/a", lambda path: changes.append(second.get(path)))
    heard = threading.Event()
    first.watch("pplans/a", lambda path: heard.set())
    number = first._session.number
    # Takes the place of the topology master while its session is gone.
    second.watch("tmasters/a", lambda path: second.exists(path) or second.create(path, b"theirs", ephemeral=True))
    with caplog.at_level(logging.INFO), first.lock("locks/a"):
        expire(first)
        wait_for(lambda: second.get("schedulers/a") == (b"2", 1) and changes, DEADLINE_S)
        assert first._session.number != number
        with second.lock("locks/a", timeout_s=DEADLINE_S):
            pass
    assert "lock 'locks/a' was lost" in caplog.text
    second.set("pplans/a", b"")
    assert heard.wait(DEADLINE_S), "the watch did not survive the session"
    found = wait_for(lambda: second.get("tmasters/a"), DEADLINE_S)
    if found == (b"theirs", 1):  # whoever is first has it, and the other knows
        wait_for(lambda: "'tmasters/a', lost with the session, belongs to" in caplog.text, DEADLINE_S)
        first.close()
        assert second.get("tmasters/a") == (b"theirs", 1)
    else:
        assert found == (b"mine", 1)


def test_the_ephemeral_of_a_killed_process_is_gone_at_once(make: Make, zookeeper_root: str) -> None:
    state = make()
    code = """
state.create('tmasters/a', b'x', ephemeral=True)
with state.lock('locks/a'):
    print('ready', flush=True)
    signal.pause()
"""
    process = start(code, zookeeper_root)
    assert state.get("tmasters/a") == (b"x", 1)
    began = time.monotonic()
    kill(process)
    assert state.get("tmasters/a") is None
    state.create("tmasters/a", b"y", ephemeral=True)
    with state.lock("locks/a", timeout_s=DEADLINE_S):
        pass
    assert time.monotonic() - began < 5.0, "its session, of 10 s, was waited for"


def test_the_ephemeral_of_another_machine_is_gone_when_its_session_is(make: Make, zookeeper_root: str) -> None:
    state = make()
    code = """
from heronpy.statemgr import owner
owner._machine = lambda: "0123456789abcdef"
from heronpy.common.rooms import StatemgrSettings
state = open_state('zookeeper', sys.argv[1], StatemgrSettings(session_timeout_s=0.5))
state.create('tmasters/a', b'x', ephemeral=True)
print('ready', flush=True)
signal.pause()
"""
    process = start(code, zookeeper_root)
    gone = threading.Event()
    state.watch("tmasters/a", lambda path: gone.set())
    kill(process)
    assert state.get("tmasters/a") == (b"x", 1)
    assert gone.wait(DEADLINE_S)
    assert state.get("tmasters/a") is None


def test_a_forked_child_leaves_the_session_alone(make: Make, zookeeper_root: str) -> None:
    code = """
import threading
state.create('tmasters/a', b'x', ephemeral=True)
before = len(os.listdir('/proc/self/fd'))
child = os.fork()
if child == 0:
    try:
        state.get('tmasters/a')
    except Exception as error:
        assert 'before a fork' in str(error), error
        assert threading.active_count() == 1
        assert len(os.listdir('/proc/self/fd')) < before, 'the connection is still open here'
        mine = open_state('zookeeper', sys.argv[1])
        assert mine.get('tmasters/a') == (b'x', 1)
        mine.create('tmasters/b', b'of the child', ephemeral=True)
        state.close()
        mine.close()
        os._exit(7)
    os._exit(1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert state.get('tmasters/a') == (b'x', 1)
assert state.get('tmasters/b') is None
print('ready', flush=True)
signal.pause()
"""
    process = start(code, zookeeper_root)
    assert make().get("tmasters/a") == (b"x", 1)
    kill(process)


def test_a_process_that_ends_takes_its_ephemerals_along(make: Make, zookeeper_root: str) -> None:
    state = make()
    process = start("state.create('tmasters/a', b'', ephemeral=True); print('ready', flush=True)", zookeeper_root)
    assert process.wait(DEADLINE_S) == 0
    assert process.stdout
    process.stdout.close()
    assert state.children("tmasters") == []


def test_a_callback_may_close_the_manager(make: Make) -> None:
    first, second = make(), make()
    closed = threading.Event()

    def close(path: str) -> None:
        first.close()
        closed.set()

    first.create("tmasters/a", b"", ephemeral=True)
    first.watch("pplans/a", close)
    second.create("pplans/a", b"")
    assert closed.wait(DEADLINE_S)
    wait_for(lambda: not second.exists("tmasters/a"), DEADLINE_S)


def test_nothing_is_written_while_nothing_happens(own_server: ZooKeeperServer, make: Make) -> None:
    root = f"{own_server.hosts}/heron"
    managers = [make(root, session_timeout_s=1.0) for _ in range(3)]
    for number, manager in enumerate(managers):
        manager.create(f"tmasters/{number}", b"", ephemeral=True)
        manager.watch("tmasters/0", lambda path: None)
    before = own_server.writes()
    deadline = time.monotonic() + 1.5
    wait_for(lambda: time.monotonic() > deadline)
    assert managers[0].get("tmasters/1") == (b"", 1)
    assert own_server.writes() == before


# ---- lost answers -------------------------------------------------------------------------------


class Interrupted:
    """Lets an operation happen but not its answer, as when the connection breaks in between."""

    def __init__(self, state: ZooKeeperStateManager, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.times = 0
        real = getattr(KazooClient, name)

        def interrupted(client: KazooClient, *args: Any, **options: Any) -> Any:
            result = real(client, *args, **options)
            if client is state._session.client and not self.times:
                self.times += 1
                result.get(timeout=DEADLINE_S)
                result = client.handler.async_result()
                result.set_exception(ConnectionLoss())
            return result

        monkeypatch.setattr(KazooClient, name, interrupted)


def test_a_write_whose_answer_was_lost_is_not_mistaken(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    state = make()
    state.set("pplans/a", b"1")
    with monkeypatch.context() as patch:
        lost = Interrupted(state, "set_async", patch)
        assert state.set("pplans/a", b"2", version=1) == 2
        assert lost.times == 1
    with monkeypatch.context() as patch:
        Interrupted(state, "create_async", patch)
        state.create("tmasters/a", b"", ephemeral=True)
    with monkeypatch.context() as patch:
        Interrupted(state, "set_async", patch)
        assert [state.counter("epochs/a/x") for _ in range(3)] == [1, 2, 3]
    with monkeypatch.context() as patch:
        Interrupted(state, "create_async", patch)
        with state.lock("locks/a", timeout_s=0):
            pass
    with monkeypatch.context() as patch:
        Interrupted(state, "delete_async", patch)
        state.delete("pplans/a", version=2)
    assert state.get("pplans/a") is None


def test_a_write_that_another_overtook_is_told(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = make(), make()
    first.set("pplans/a", b"1")
    real = ZooKeeperStateManager._commit

    def late(manager: ZooKeeperStateManager, *args: Any, **options: Any) -> None:
        if manager is first and second.get("pplans/a") == (b"1", 1):
            second.set("pplans/a", b"theirs")
        real(manager, *args, **options)

    monkeypatch.setattr(ZooKeeperStateManager, "_commit", late)
    with pytest.raises(VersionMismatchError, match="has version 2, not 1"):
        first.set("pplans/a", b"mine", version=1)
    assert first.set("pplans/a", b"mine") == 3


# ---- large values -------------------------------------------------------------------------------


def test_large_values_are_replaced_whole_and_leave_nothing(make: Make, raw: KazooClient, zookeeper_root: str) -> None:
    writer, reader = make(), make()
    base = znode.parse_root(zookeeper_root)[1]
    values = [random.Random(seed).randbytes(size) for seed, size in enumerate((1_700_000, 900_000, 3_000_000))]
    writer.create("topologies/a", values[0])
    with ThreadPoolExecutor(2) as pool:
        stop = threading.Event()

        def read() -> int:
            last = count = 0
            while not stop.is_set():
                found = reader.get("topologies/a")
                assert found is not None and found[0] in values, "a mixture"
                assert found[1] >= last
                last, count = found[1], count + 1
            return count

        def write(manager: ZooKeeperStateManager) -> None:
            for turn in range(4):
                manager.set("topologies/a", values[turn % 3])

        reads = pool.submit(read)
        other = pool.submit(write, make())
        write(writer)
        other.result(DEADLINE_S)
        stop.set()
        assert reads.result(DEADLINE_S) > 0
    assert reader.get("topologies/a") == (values[0], 9)
    with pytest.raises(VersionMismatchError):
        writer.set("topologies/a", values[0], version=3)
    assert len(raw.get_children(f"{base}/%pieces/topologies%2Fa")) == 1
    assert writer.set("topologies/a", b"small", version=9) == 10
    assert raw.get_children(f"{base}/%pieces") == []
    writer.set("topologies/a", values[2])
    writer.delete("topologies/a")
    assert raw.get_children(f"{base}/%pieces") == []
    assert writer.children("") == []


def test_pieces_of_a_writer_that_died_are_removed_by_the_next(
    make: Make, raw: KazooClient, zookeeper_root: str
) -> None:
    state = make()
    folder = f"{znode.parse_root(zookeeper_root)[1]}/%pieces/topologies%2Fa"
    data = b"x" * (znode.PIECE_BYTES + 1)
    state._store("topologies/a", "0" * 32, data)
    assert raw.get_children(folder) == ["0" * 32]
    state.create("topologies/a", data)
    [live] = raw.get_children(folder)
    assert live != "0" * 32
    raw.delete(f"{folder}/{live}/1")
    with pytest.raises(StateError, match=r"'topologies/a' lacks pieces of its value below ZooKeeper node /"):
        state.get("topologies/a")
    state.delete("topologies/a")
    assert raw.exists(folder) is None


def test_a_swept_writer_starts_over(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = make(), make()
    data = b"x" * (znode.PIECE_BYTES + 1)
    real = ZooKeeperStateManager._store
    swept: list[str] = []

    def store(manager: ZooKeeperStateManager, path: str, write: str, data: bytes) -> Any:
        pieces = real(manager, path, write, data)
        if manager is first and not swept:
            swept.append(write)
            second.set(path, data[1:] + b"yy")
        return pieces

    monkeypatch.setattr(ZooKeeperStateManager, "_store", store)
    assert first.set("topologies/a", data) == 2
    assert second.get("topologies/a") == (data, 2)


def test_a_value_that_the_server_does_not_take_is_named(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    state = make()
    with pytest.raises(StateError, match=r"ephemeral state node 'tmasters/a' has 600000 bytes"):
        state.create("tmasters/a", b"x" * 600_000, ephemeral=True)
    state.create("tmasters/a", b"", ephemeral=True)
    with pytest.raises(StateError, match=r"ephemeral state node 'tmasters/a' has 600000 bytes"):
        state.set("tmasters/a", b"x" * 600_000)
    # As if the servers had a smaller limit than the default.
    monkeypatch.setattr(znode, "PIECE_BYTES", 3_000_000)
    monkeypatch.setattr(zk_session, "PATIENCE_S", 1.0)
    with pytest.raises(StateError, match=r"/topologies/a .*jute\.maxbuffer is too small for the 20000\d\d bytes"):
        state.create("topologies/a", b"x" * 2_000_000)


# ---- access and configuration -------------------------------------------------------------------


def test_state_with_a_login_is_closed_to_others(make: Make, tmp_path: Path) -> None:
    logins = []
    for name, text in (("one", "one:secret\n"), ("two", "two:other")):
        file = tmp_path / name
        file.write_text(text)
        file.chmod(0o600)
        logins.append(str(file))
    state = make(auth_file=logins[0])
    state.create("topologies/a", b"x" * (znode.PIECE_BYTES + 1))
    state.create("tmasters/a", b"", ephemeral=True)
    with state.lock("locks/a"):
        pass
    assert make(auth_file=logins[0]).get("tmasters/a") == (b"", 1)
    for stranger in (make(), make(auth_file=logins[1])):
        for use in (stranger.get, stranger.delete, stranger.counter):
            with pytest.raises(StateError, match=r"refuses access to .*/topologies/a; set heron\.statemgr\.auth_file"):
                use("topologies/a")
        with pytest.raises(StateError, match="refuses access"):
            stranger.children("topologies")


@pytest.mark.parametrize(
    ("text", "mode", "message"),
    [
        ("a:b", 0o644, "chmod 600"),
        ("no colon", 0o600, "one line user:password"),
        ("a:b\nc:d", 0o600, "one line user:password"),
        ("", 0o600, "one line user:password"),
    ],
)
def test_a_file_with_a_login_is_checked(tmp_path: Path, text: str, mode: int, message: str) -> None:
    file = tmp_path / "login"
    file.write_text(text)
    file.chmod(mode)
    with pytest.raises(ConfigError, match=message):
        zk_session.read_login(str(file))
    with pytest.raises(ConfigError, match="No such file"):
        zk_session.read_login(str(tmp_path / "none"))
    with pytest.raises(ConfigError, match="absolute"):
        zk_session.read_login("login")


@pytest.mark.parametrize(
    ("root", "hosts", "chroot"),
    [
        ("127.0.0.1:2181/heron", "127.0.0.1:2181", "/heron"),
        ("a:1, b:2,c/x/y/", "a:1,b:2,c", "/x/y"),
        ("[::1]:2181", "[::1]:2181", "/heron"),
        ("zoo-1.example.org", "zoo-1.example.org", "/heron"),
    ],
)
def test_a_root_is_hosts_and_path(root: str, hosts: str, chroot: str) -> None:
    assert znode.parse_root(root) == (hosts, chroot)


@pytest.mark.parametrize("root", ["/home/me/state", "a:b/c", "a:1,,b:2", "a b", "a:1/../b", "a/b//c", "http://a:1/b"])
def test_a_wrong_root_is_one_sentence(root: str) -> None:
    with pytest.raises(ConfigError, match=r"heron\.statemgr\.root.*127\.0\.0\.1:2181/heron"):
        open_state("zookeeper", root)


def test_a_missing_kazoo_is_one_sentence(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['kazoo'] = None\n"
        "from heronpy.common.errors import ConfigError; from heronpy.statemgr import open_state\n"
        "try: open_state('zookeeper', 'localhost')\n"
        "except ConfigError as error: print(error)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.stdout == (
        "The 'zookeeper' state manager needs kazoo, which is not installed; run pip install 'heronpy[zookeeper]'.\n"
    ), done


def test_a_foreign_znode_is_an_error_that_names_it(make: Make, raw: KazooClient, zookeeper_root: str) -> None:
    state = make()
    base = znode.parse_root(zookeeper_root)[1]
    raw.create(f"{base}/topologies/a", b"who knows", makepath=True)
    for use in (state.get, state.exists, state.delete, state.counter):
        with pytest.raises(StateError, match=f"{base}/topologies/a does not hold state of heron"):
            use("topologies/a")


def test_a_missing_node_of_a_missing_root_is_missing(make: Make) -> None:
    state = make()
    assert state.children("topologies") == state.children("") == []
    with pytest.raises(NoNodeError):
        state.delete("topologies/a")
    state.create("topologies/a", b"")
    with pytest.raises(NodeExistsError):
        state.create("topologies/a", b"")


# ---- owners -------------------------------------------------------------------------------------


def test_only_a_dead_process_of_this_machine_is_called_dead() -> None:
    mine = owner.own_token()
    machine, pid, started = mine.split(":")
    assert not owner.is_dead(mine)
    assert owner.is_dead(f"{machine}:{pid}:{int(started) - 1}"), "an earlier process of this number"
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    token = f"{machine}:{process.pid}:{owner._started(process.pid)}"
    assert not owner.is_dead(token)
    process.send_signal(signal.SIGKILL)
    wait_for(lambda: owner.is_dead(token), DEADLINE_S, "a zombie being dead")
    assert process.stdin
    process.stdin.close()
    process.wait(DEADLINE_S)
    assert owner.is_dead(token)
    assert not owner.is_dead("0" * 16 + token[16:]), "nothing is known of other machines"
    assert not owner.is_dead(f"{machine}:1:0")
