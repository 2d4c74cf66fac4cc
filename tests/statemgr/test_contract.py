"""The contract of `heronpy.statemgr.base`, over every kind of state manager."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from heronpy.common.errors import (
    DeadlineError,
    NodeExistsError,
    NoNodeError,
    StateError,
    VersionMismatchError,
)
from heronpy.statemgr import paths
from heronpy.statemgr.base import StateManager

Open = Callable[[], StateManager]
DEADLINE_S = 10.0
#: At the scheduler's control endpoint nobody lists nodes.
LISTING = pytest.mark.parametrize("open_manager", ["local", "local-polling", "memory", "zookeeper"], indirect=True)


class Calls:
    """Collects the calls of a watch."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self._changed = threading.Condition()

    def __call__(self, path: str) -> None:
        with self._changed:
            self.paths.append(path)
            self._changed.notify_all()

    def wait(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.paths) >= count, DEADLINE_S), self.paths


def test_a_created_node_is_seen_by_others_with_version_1(open_manager: Open) -> None:
    first, second = open_manager(), open_manager()
    assert second.get("topologies/a") is None
    assert not second.exists("topologies/a")
    first.create("topologies/a", b"\x00data\n")
    assert second.get("topologies/a") == (b"\x00data\n", 1)
    assert second.exists("topologies/a")


def test_create_refuses_a_node_that_exists(state: StateManager) -> None:
    state.create("topologies/a", b"old")
    with pytest.raises(NodeExistsError, match="topologies/a"):
        state.create("topologies/a", b"new")
    assert state.get("topologies/a") == (b"old", 1)


def test_set_without_version_creates_and_overwrites(state: StateManager) -> None:
    assert state.set("pplans/a", b"1") == 1
    assert state.set("pplans/a", b"2") == 2
    assert state.get("pplans/a") == (b"2", 2)


def test_set_with_version_is_compare_and_set(state: StateManager) -> None:
    assert state.set("pplans/a", b"1", version=0) == 1
    assert state.set("pplans/a", b"2", version=1) == 2
    with pytest.raises(VersionMismatchError, match="has version 2, not 1"):
        state.set("pplans/a", b"3", version=1)
    with pytest.raises(VersionMismatchError):
        state.set("pplans/a", b"3", version=0)
    with pytest.raises(NoNodeError, match="pplans/b"):
        state.set("pplans/b", b"3", version=1)
    assert state.get("pplans/a") == (b"2", 2)


def test_of_many_writers_with_one_version_exactly_one_succeeds(open_manager: Open) -> None:
    managers = [open_manager() for _ in range(4)]
    managers[0].create("pplans/a", b"")

    def write(manager: StateManager) -> bool:
        try:
            manager.set("pplans/a", b"mine", version=1)
        except VersionMismatchError:
            return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(write, managers)) == 1
    assert managers[0].get("pplans/a") == (b"mine", 2)


def test_delete(state: StateManager) -> None:
    state.create("topologies/a", b"")
    with pytest.raises(VersionMismatchError):
        state.delete("topologies/a", version=7)
    state.delete("topologies/a", version=1)
    assert not state.exists("topologies/a")
    with pytest.raises(NoNodeError, match="topologies/a"):
        state.delete("topologies/a")
    state.create("topologies/a", b"again")
    assert state.get("topologies/a") == (b"again", 1)


@LISTING
def test_children_are_the_names_one_level_below(state: StateManager) -> None:
    assert state.children("") == []
    assert state.children("epochs") == []
    for path in ("epochs/b/x", "epochs/a/y", "epochs/a/x", "epochs/a", "topologies/t", "single"):
        state.create(path, b"")
    assert state.children("") == ["epochs", "single", "topologies"]
    assert state.children("epochs") == ["a", "b"]
    assert state.children("epochs/a") == ["x", "y"]
    assert state.children("epochs/a/x") == []
    state.delete("epochs/b/x")
    state.delete("topologies/t")
    assert state.children("epochs") == ["a"]
    assert state.children("") == ["epochs", "single"]
    with state.lock("locks/a"):
        assert state.children("locks") == []


ODD = pytest.mark.parametrize("name", ["a.node", ".hidden", "50%", "%2F", "%252F", "a b", "größe", "x~", "-", "%2E"])


@ODD
def test_odd_names_stay_apart(state: StateManager, name: str) -> None:
    state.create(paths.topology(name), b"1")
    state.create(f"{name}/below", b"2")
    state.create(name, b"3")
    assert state.get(paths.topology(name)) == (b"1", 1)
    assert state.get(f"{name}/below") == (b"2", 1)
    assert state.get(name) == (b"3", 1)


@LISTING
@ODD
def test_odd_names_are_listed(state: StateManager, name: str) -> None:
    for path in (paths.topology(name), f"{name}/below", name):
        state.create(path, b"")
    assert state.children("topologies") == [name]
    assert state.children(name) == ["below"]
    assert state.children("") == sorted([name, "topologies"])


@pytest.mark.parametrize(
    "path",
    [
        *("", "/", "/a", "a/", "a//b", "..", "a/../b", "a/./b", "a\0b", "a\nb", "\x1b[31m"),
        *("a/\u2028", "a/" + "x" * 181, "/".join(["x" * 100] * 3), "a/\udc80"),
    ],
)
def test_malformed_paths_are_refused(state: StateManager, path: str) -> None:
    for use in (state.get, state.exists, state.delete, state.counter):
        with pytest.raises(StateError):
            use(path)
    with pytest.raises(StateError):
        state.create(path, b"")
    with pytest.raises(StateError):
        state.set(path, b"")
    with pytest.raises(StateError):
        state.watch(path, lambda path: None)
    with pytest.raises(StateError), state.lock(path):
        pass


def test_names_with_a_slash_are_no_path() -> None:
    for build in (paths.topology, paths.tmaster, paths.execution_state, paths.lock):
        with pytest.raises(StateError, match="'/'"):
            build("a/b")
    with pytest.raises(StateError):
        paths.epoch("a", "../b")


def test_an_ephemeral_ends_with_its_manager(open_manager: Open) -> None:
    first, second = open_manager(), open_manager()
    first.create("tmasters/a", b"first", ephemeral=True)
    first.create("topologies/a", b"")
    assert second.get("tmasters/a") == (b"first", 1)
    with pytest.raises(NodeExistsError):
        second.create("tmasters/a", b"second", ephemeral=True)
    first.close()
    assert second.get("tmasters/a") is None
    assert second.exists("topologies/a")
    second.create("tmasters/a", b"second", ephemeral=True)
    assert second.get("tmasters/a") == (b"second", 1)


def test_writing_an_ephemeral_keeps_it_so(open_manager: Open) -> None:
    first, second = open_manager(), open_manager()
    first.create("tmasters/a", b"1", ephemeral=True)
    assert second.set("tmasters/a", b"2") == 2
    assert first.get("tmasters/a") == (b"2", 2)
    first.close()
    assert not second.exists("tmasters/a")


def test_a_closed_manager_leaves_what_others_own_now(open_manager: Open) -> None:
    first, second = open_manager(), open_manager()
    first.create("tmasters/a", b"1", ephemeral=True)
    second.delete("tmasters/a")
    second.create("tmasters/a", b"2", ephemeral=True)
    first.close()
    assert second.get("tmasters/a") == (b"2", 1)


def test_a_watch_fires_on_creation_change_and_removal(open_manager: Open) -> None:
    first, second = open_manager(), open_manager()
    calls = Calls()
    watch = first.watch("pplans/a", calls)
    second.create("pplans/a", b"1")
    calls.wait(1)
    second.set("pplans/a", b"2")
    calls.wait(2)
    second.delete("pplans/a")
    calls.wait(3)
    watch.cancel()
    watch.cancel()
    other = Calls()
    first.watch("pplans/a", other)
    second.create("pplans/a", b"3")
    other.wait(1)
    assert calls.paths == ["pplans/a"] * 3


def test_a_watch_ignores_other_nodes_and_sees_the_end_of_an_ephemeral(open_manager: Open) -> None:
    first, second = open_manager(), open_manager()
    second.create("tmasters/a", b"1", ephemeral=True)
    calls = Calls()
    first.watch("tmasters/a", calls)
    second.create("tmasters/b", b"1")
    second.create("topologies/a", b"1")
    second.close()
    calls.wait(1)
    assert not first.exists("tmasters/a")
    assert calls.paths == ["tmasters/a"]


def test_a_raising_callback_does_not_end_the_others(open_manager: Open) -> None:
    first, second = open_manager(), open_manager()

    def broken(path: str) -> None:
        raise ValueError(path)

    calls = Calls()
    first.watch("pplans/a", broken)
    first.watch("pplans/a", calls)
    second.create("pplans/a", b"1")
    calls.wait(1)
    second.set("pplans/a", b"2")
    calls.wait(2)


def test_a_callback_may_use_the_manager(open_manager: Open) -> None:
    first, second = open_manager(), open_manager()
    seen: list[object] = []
    calls = Calls()

    def read(path: str) -> None:
        seen.append(first.get(path))
        first.set("pplans/b", b"written")
        calls(path)

    first.watch("pplans/a", read)
    second.create("pplans/a", b"1")
    calls.wait(1)
    assert seen == [(b"1", 1)]
    assert second.get("pplans/b") == (b"written", 1)


def test_a_counter_never_repeats(open_manager: Open) -> None:
    managers = [open_manager() for _ in range(3)]
    path = paths.epoch("a", "tmaster")
    assert managers[0].counter(path) == 1
    with ThreadPoolExecutor(3) as pool:
        numbers = list(pool.map(lambda at: managers[at % 3].counter(path), range(12)))
    assert sorted(numbers) == list(range(2, 14))
    managers[0].set(path, b"not a number")
    with pytest.raises(StateError, match="epochs/a/tmaster"):
        managers[0].counter(path)


def test_a_lock_excludes_and_ends_with_its_holder(open_manager: Open) -> None:
    first, second = open_manager(), open_manager()
    with first.lock(paths.lock("a")):
        with pytest.raises(DeadlineError, match="locks/a"), second.lock("locks/a", timeout_s=0.03):
            pass
        with second.lock("locks/b", timeout_s=0):
            pass
        assert second.get("locks/a") is None
    with second.lock("locks/a", timeout_s=0):
        pass


def test_a_lock_is_free_after_an_error(open_manager: Open) -> None:
    first, second = open_manager(), open_manager()
    with pytest.raises(ValueError, match="boom"), first.lock("locks/a"):
        raise ValueError("boom")
    with second.lock("locks/a", timeout_s=0):
        pass


def test_locks_serialise_many_threads(open_manager: Open) -> None:
    managers = [open_manager() for _ in range(3)]
    inside = 0

    def work(at: int) -> None:
        nonlocal inside
        with managers[at % 3].lock("locks/a", timeout_s=DEADLINE_S):
            inside += 1
            assert inside == 1
            inside -= 1

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(12)))


def test_a_closed_manager_refuses(state: StateManager) -> None:
    state.close()
    state.close()
    with pytest.raises(StateError, match="closed"):
        state.get("topologies/a")
    with pytest.raises(StateError, match="closed"):
        state.children("")


def test_large_values_are_whole_and_too_large_ones_refused(
    state: StateManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = bytes(range(256)) * 4096
    state.create("topologies/a", data)
    assert state.get("topologies/a") == (data, 1)
    modules = (
        "heronpy.statemgr.localfs",
        "tests.support.memory_state",
        "heronpy.statemgr.znode",
        "heronpy.net.endpoint_state",
    )
    for module in modules:
        monkeypatch.setattr(f"{module}.MAX_BYTES", 10)
    with pytest.raises(StateError, match="exceeds 10 bytes"):
        state.set("topologies/a", b"x" * 11)
