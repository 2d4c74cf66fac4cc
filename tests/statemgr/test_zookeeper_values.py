"""Values, access and configuration of state in ZooKeeper."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("kazoo", reason="kazoo is not installed; run pip install 'heronpy[zookeeper]'")

from kazoo.client import KazooClient

from heronpy.common.errors import ConfigError, NodeExistsError, NoNodeError, StateError, VersionMismatchError
from heronpy.statemgr import open_state, zk_session, znode
from heronpy.statemgr.zookeeper import ZooKeeperStateManager

DEADLINE_S = 20.0
ROOT = Path(__file__).resolve().parents[2]
Make = Callable[..., ZooKeeperStateManager]


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
        "the 'zookeeper' state manager needs kazoo, which is not installed; run pip install 'heronpy[zookeeper]'\n"
    ), done


def test_a_foreign_znode_is_an_error_that_names_it(make: Make, raw: KazooClient, zookeeper_root: str) -> None:
    state = make()
    base = znode.parse_root(zookeeper_root)[1]
    raw.create(f"{base}/topologies/a", b"who knows", makepath=True)
    for use in (state.get, state.exists, state.delete, state.counter):
        with pytest.raises(StateError, match=f"{base}/topologies/a does not contain heron state"):
            use("topologies/a")


def test_a_missing_node_of_a_missing_root_is_missing(make: Make) -> None:
    state = make()
    assert state.children("topologies") == state.children("") == []
    with pytest.raises(NoNodeError):
        state.delete("topologies/a")
    state.create("topologies/a", b"")
    with pytest.raises(NodeExistsError):
        state.create("topologies/a", b"")
