"""What only files and processes can get wrong: crashes, forks, damage, full disks; a container in doubt."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from heronpy.common import exit_codes
from heronpy.common.errors import ConfigError, DeadlineError, InvalidRpcError, NoNodeError, StateError
from heronpy.statemgr import open_state, paths
from heronpy.statemgr.localfs import LocalStateManager
from tests.statemgr.processes import kill, start
from tests.support.containers import at_endpoint, left_in, submitted, tmp
from tests.support.waiting import alive, eventually

__all__ = ["tmp"]

DEADLINE_S = 20.0
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def state(tmp_path: Path) -> Iterator[LocalStateManager]:
    manager = LocalStateManager(tmp_path / "state")
    yield manager
    manager.close()


def test_deleting_what_a_dead_owner_left_removes_its_file(tmp_path: Path) -> None:
    """A takedown deletes all nodes of a name that may never be used again."""
    state = LocalStateManager(tmp_path / "state")
    code = "state.create('tmasters/a', b'x', ephemeral=True); print('ready', flush=True)\n"
    process = start("local", code + "signal.pause()", tmp_path / "state")
    kill(process)
    with pytest.raises(NoNodeError):
        state.delete("tmasters/a")
    assert not list((tmp_path / "state/tmasters").iterdir())
    state.close()


@pytest.mark.parametrize("inotify", [True, False])
def test_watchers_hear_when_the_owner_of_an_ephemeral_is_killed(
    tmp_path: Path, inotify: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not inotify:

        def unavailable(self: object) -> None:
            raise OSError(24, "inotify is exhausted")

        monkeypatch.setattr("heronpy.statemgr.watcher._Inotify.__init__", unavailable)
    state = LocalStateManager(tmp_path / "state")
    code = "state.create('tmasters/a', b'x', ephemeral=True); print('ready', flush=True)\n"
    process = start("local", code + "signal.pause()", tmp_path / "state")
    gone = threading.Event()
    state.watch("tmasters/a", lambda path: gone.set())
    assert state.get("tmasters/a") == (b"x", 1)
    kill(process)
    assert gone.wait(DEADLINE_S)
    assert state.get("tmasters/a") is None
    assert state.children("tmasters") == []
    assert not list((tmp_path / "state/tmasters").iterdir()), "the dead node was not removed"
    state.create("tmasters/a", b"y", ephemeral=True)
    assert state.get("tmasters/a") == (b"y", 1)
    assert len(list((tmp_path / "state/.owners").iterdir())) == 1
    state.close()
    assert not list((tmp_path / "state/.owners").iterdir())


def test_a_forked_child_does_not_keep_the_parents_ephemerals_alive(state: LocalStateManager, tmp_path: Path) -> None:
    code = """
state.create('tmasters/a', b'x', ephemeral=True)
state.watch('tmasters/b', print)
with state.lock('locks/a'):
    if os.fork() == 0:
        try:
            state.get('tmasters/a')
        except Exception as error:
            assert 'before a fork' in str(error)
            sys.stdout.write('ready\\n')
        sys.stdout.flush()
        signal.pause()
    signal.pause()
"""
    process = start("local", code, tmp_path / "state")
    assert state.exists("tmasters/a")
    with pytest.raises(DeadlineError, match=f"process {process.pid}"), state.lock("locks/a", 0):
        pass
    child = int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text())
    try:
        kill(process)
        assert not state.exists("tmasters/a")
        with state.lock("locks/a", timeout_s=DEADLINE_S):
            pass
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_write_that_is_killed_leaves_the_old_or_the_new_value(state: LocalStateManager, tmp_path: Path) -> None:
    code = """
print('ready', flush=True)
for number in range(1_000_000):
    state.set('pplans/a', b'%d ' % number * 20_000)
"""
    jitter = random.Random(7)
    version = state.set("pplans/a", b"-1 " * 20_000)
    for _ in range(20):
        process = start("local", code, tmp_path / "state")
        changed = threading.Event()
        watch = state.watch("pplans/a", lambda path, changed=changed: changed.set())
        assert changed.wait(DEADLINE_S)
        watch.cancel()
        changed.clear()
        changed.wait(jitter.random() * 0.01)  # anywhere within a write
        kill(process)
        found = state.get("pplans/a")
        assert found is not None
        words = set(found[0].split())
        assert len(words) == 1
        assert len(found[0]) == 20_000 * (len(words.pop()) + 1)
        assert found[1] > version
        version = found[1]
    assert state.set("pplans/a", b"", version=version) == version + 1


def test_a_lock_ends_with_a_killed_holder(state: LocalStateManager, tmp_path: Path) -> None:
    code = "with state.lock('locks/a'):\n    print('ready', flush=True)\n    signal.pause()"
    process = start("local", code, tmp_path / "state")
    with pytest.raises(DeadlineError, match=f"process {process.pid}"), state.lock("locks/a", 0.02):
        pass
    kill(process)
    with state.lock("locks/a", timeout_s=DEADLINE_S):
        pass
    assert not list((tmp_path / "state/.locks").iterdir())


def test_a_stopped_writer_is_an_error_that_names_the_lock(state: LocalStateManager, tmp_path: Path) -> None:
    code = "with state._writing():\n    print('ready', flush=True)\n    signal.pause()"
    process = start("local", code, tmp_path / "state")
    with pytest.raises(StateError, match=r"\.lock has been locked"), state._writing(timeout_s=0.05):
        pass
    kill(process)
    assert state.set("topologies/a", b"") == 1


@pytest.mark.parametrize(
    "damage", [b"", b"garbage", b"heronstate1 1 4 00000000 -\ndata", b"heronstate1 1 9", b"x" * 999]
)
def test_a_damaged_file_is_an_error_that_names_it(state: LocalStateManager, tmp_path: Path, damage: bytes) -> None:
    state.create("topologies/a", b"data")
    file = tmp_path / "state/topologies/a.node"
    heard = threading.Event()
    state.watch("topologies/a", lambda path: heard.set())
    file.write_bytes(damage)
    assert heard.wait(DEADLINE_S)
    for use in (state.get, state.exists, state.delete, state.counter):
        with pytest.raises(StateError, match=str(file)):
            use("topologies/a")
    with pytest.raises(StateError, match="damaged"):
        state.set("topologies/a", b"")
    assert state.children("topologies") == ["a"]


def test_a_bit_flip_is_noticed(state: LocalStateManager, tmp_path: Path) -> None:
    state.create("topologies/a", b"data" * 100)
    file = tmp_path / "state/topologies/a.node"
    content = bytearray(file.read_bytes())
    content[-7] ^= 4
    file.write_bytes(content)
    with pytest.raises(StateError, match="damaged"):
        state.get("topologies/a")


def test_an_owner_that_leads_elsewhere_is_not_followed(state: LocalStateManager, tmp_path: Path) -> None:
    state.create("topologies/a", b"")
    file = tmp_path / "state/topologies/a.node"
    file.write_bytes(b"heronstate1 1 0 00000000 ../../x.owner\n")
    with pytest.raises(StateError, match="damaged"):
        state.get("topologies/a")


def test_a_full_disk_is_an_error_and_leaves_the_old_value(
    state: LocalStateManager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state.set("topologies/a", b"old")
    with monkeypatch.context() as patch:

        def full(descriptor: int) -> None:
            raise OSError(28, "No space left on device")

        patch.setattr(os, "fsync", full)
        with pytest.raises(StateError, match=r"topologies/a\.node: No space left on device"):
            state.set("topologies/a", b"new")
    assert not list((tmp_path / "state/.tmp").iterdir())
    assert state.get("topologies/a") == (b"old", 1)
    assert state.set("topologies/a", b"new") == 2


def test_files_are_for_their_owner_only(state: LocalStateManager, tmp_path: Path) -> None:
    state.create("topologies/a", b"")
    state.create("tmasters/a", b"", ephemeral=True)
    for path in (tmp_path / "state").rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700


def test_a_removed_root_is_made_anew(state: LocalStateManager, tmp_path: Path) -> None:
    state.create("tmasters/a", b"", ephemeral=True)
    (tmp_path / "state").rename(tmp_path / "elsewhere")
    assert state.get("tmasters/a") is None
    assert state.children("") == []
    state.create("tmasters/a", b"again", ephemeral=True)
    other = LocalStateManager(tmp_path / "state")
    assert other.get("tmasters/a") == (b"again", 1)
    other.close()


def test_open_state_names_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"unknown state manager type 'locall'.*mean 'local'"):
        open_state("locall", str(tmp_path))
    with pytest.raises(ConfigError, match=r"heron\.statemgr\.root"):
        open_state("local", "")
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"root of the state .* is not a folder"):
        open_state("local", str(tmp_path / "file"))


def test_opening_loads_neither_ctypes_nor_another_kind(tmp_path: Path) -> None:
    code = (
        "import sys; before = set(sys.modules); from heronpy.statemgr import open_state;"
        "open_state('local', sys.argv[1]).get('a/b'); new = set(sys.modules) - before;"
        "assert not new & {'ctypes', 'asyncio', 'google.protobuf', 'heronpy.statemgr.znode',"
        " 'heronpy.statemgr.watcher', 'yaml'}, new"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", code, str(tmp_path)]
    assert subprocess.run(command, env=environment, timeout=DEADLINE_S).returncode == 0


FENCE_S = 4.0
RENEW_S = 0.5


@pytest.mark.heavy
async def test_without_any_scheduler_it_goes_on_and_with_one_that_is_silent_it_stops(
    tmp: Path, zookeeper_root: str
) -> None:
    async with at_endpoint(
        tmp,
        submitted=submitted(state_type="zookeeper", state_root=zookeeper_root),
        fencing="lease",
        renew_s=RENEW_S,
        fence_s=FENCE_S,
    ) as (endpoint, host):
        process, started = await host.run()
        endpoint.refuses = InvalidRpcError("no answer for anybody")
        asked = len(endpoint.all("renew"))
        await eventually(
            lambda: len(endpoint.all("renew")) >= asked + 2.5 * FENCE_S / RENEW_S, 30, "many requests in vain"
        )
        assert alive(started["pid"]), "there is no scheduler that could have replaced it"
        with closing(open_state("zookeeper", zookeeper_root)) as state:
            state.create(paths.scheduler("wc"), b"", ephemeral=True)
            await eventually(lambda: not alive(started["pid"]), 2 * FENCE_S + 5, "the end of its lease")
        assert process.poll() is None
        endpoint.refuses = None
        await eventually(lambda: endpoint.all("renew")[-1].stopped == 1, 5, "word of it")
        process.terminate()
        assert await host.ended(process) == exit_codes.TERMINATED and left_in(tmp) == []
