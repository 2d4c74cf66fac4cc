"""Which store a topology gets, what each store takes at once, and what happens when one is full."""

from __future__ import annotations

import math
import multiprocessing
import os
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from heronpy.common.errors import ConfigError
from heronpy.common.setting_types import CheckpointSettings
from heronpy.storage import stores as module
from heronpy.storage.checkpoints import CheckpointStore, StoreError
from heronpy.storage.store_limits import DEBT_MAX_S, StoreLimits
from heronpy.storage.stores import StoreChoice, by_hash, check_stores, specs_of, store_roots
from tests.support.states import Tasks, fill, launch_of


def settings_of(folder: Path, *names: str, **fields: Any) -> CheckpointSettings:
    return CheckpointSettings(stores={name: str(folder / name) for name in names}, fsync=False, **fields)


def choice(folder: Path, config: CheckpointSettings, topology_id: str = "wordy1") -> StoreChoice:
    return StoreChoice(launch_of(folder / "work" / topology_id, topology_id), config)


@pytest.fixture
def disks(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Free bytes of the stores, by name; those that are not named have plenty."""
    free: dict[str, int] = {}
    real = module.free_bytes
    monkeypatch.setattr(module, "free_bytes", lambda root: real(root) and free.get(root.name, 1 << 40))
    return free


# ---- policies ---------------------------------------------------------------------------------


def test_thirty_topologies_on_three_stores_are_even(tmp_path: Path) -> None:
    config = settings_of(tmp_path, "a", "b", "c")
    choices = [StoreChoice(launch_of(tmp_path / f"w{n}", f"wordy{n}"), config) for n in range(30)]
    used = Counter(choice.store.folder.parent.name for choice in choices)
    assert max(used.values()) / min(used.values()) <= 1.5 and sum(used.values()) == 30


def test_a_store_of_twice_the_weight_gets_twice_the_topologies(tmp_path: Path) -> None:
    config = CheckpointSettings(
        stores={"a": str(tmp_path / "a"), "b": {"folder": str(tmp_path / "b"), "weight": 2}}, fsync=False
    )
    choices = [StoreChoice(launch_of(tmp_path / f"w{n}", f"wordy{n}"), config) for n in range(30)]
    used = Counter(choice.store.folder.parent.name for choice in choices)
    assert used == {"a": 10, "b": 20}


@given(st.lists(st.text(min_size=1, max_size=5), min_size=2, max_size=5, unique=True), st.text(max_size=8))
def test_by_hash_only_topologies_of_a_store_that_went_move(names: list[str], topology: str) -> None:
    specs = specs_of(CheckpointSettings(stores={name: f"/stores/{n}" for n, name in enumerate(names)}))
    order = by_hash(topology, specs)
    assert sorted(order) == sorted(spec.root for spec in specs)
    for gone in specs:
        rest = by_hash(topology, [spec for spec in specs if spec is not gone])
        assert rest == [root for root in order if root != gone.root]


def test_shares_by_hash_follow_the_weights() -> None:
    specs = specs_of(CheckpointSettings(stores={"a": "/a", "b": {"folder": "/b", "weight": 3}}))
    first = Counter(str(by_hash(f"topology{n}", specs)[0]) for n in range(4000))
    assert 0.7 < first["/b"] / 4000 < 0.8


def test_most_free(tmp_path: Path, disks: dict[str, int]) -> None:
    disks.update(a=1 << 30, b=3 << 30, c=2 << 30)
    assert (
        choice(tmp_path, settings_of(tmp_path, "a", "b", "c", store_policy="most_free")).store.folder.parent.name == "b"
    )


@pytest.mark.parametrize(
    ("stores", "reason"),
    [
        ({"a": ""}, "store 'a' does not name a folder"),
        ({"a": {"weight": 1}}, "store 'a' does not name a folder"),
        ({"a": {"folder": "/a", "wieght": 1}}, "store 'a' has 'wieght', which is not one of folder,"),
        ({"a": {"folder": "/a", "weight": 0}}, "store 'a' needs a weight above 0"),
        ({"a": {"folder": "/a", "weight": "much"}}, "store 'a' has a value that is not a number"),
        ({"a": {"folder": "/a", "writers": -1}}, "store 'a' needs a weight above 0, and limits that are not negative"),
        ({"a": "/a", "b": "/a"}, "'b' and 'a' are the same folder /a"),
    ],
)
def test_a_wrong_description_of_a_store_is_one_sentence(stores: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        check_stores(CheckpointSettings(stores=stores))


def test_a_replica_in_the_store_itself_is_refused() -> None:
    with pytest.raises(ConfigError, match="replica is the store /a itself"):
        check_stores(CheckpointSettings(root="/a", replica="/a/"))
    check_stores(CheckpointSettings(root="/a", replica="/b"))


def test_the_default_is_in_herons_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERON_HOME", "/somewhere")
    assert store_roots(CheckpointSettings()) == [Path("/somewhere/checkpoints")]


# ---- the same one in every process ------------------------------------------------------------


def _choose(folder: Path, number: int, config: CheckpointSettings, barrier: Any, answers: Any) -> None:
    barrier.wait()
    # Each would choose another one.
    real = module.free_bytes
    module.free_bytes = lambda root: real(root) and (1 << 30) + (root.name == "abcd"[number % 4])
    answers.put(str(StoreChoice(launch_of(folder / "work"), config).store.folder))


def test_processes_that_start_at_once_agree(tmp_path: Path) -> None:
    config = settings_of(tmp_path, "a", "b", "c", "d", store_policy="most_free")
    context = multiprocessing.get_context("fork")
    for turn in range(5):
        barrier, answers = context.Barrier(8), context.SimpleQueue()
        folder = tmp_path / str(turn)
        processes = [
            context.Process(target=_choose, args=(folder, number, config, barrier, answers)) for number in range(8)
        ]
        for process in processes:
            process.start()
        found = {answers.get() for _ in processes}
        for process in processes:
            process.join()
        assert len(found) == 1


def test_a_topology_stays_where_its_checkpoints_are(tmp_path: Path, disks: dict[str, int]) -> None:
    config = settings_of(tmp_path, "a", "b", store_policy="most_free")
    disks.update(a=1 << 30, b=2 << 30)
    first = choice(tmp_path, config).store
    assert first.folder == tmp_path / "b" / "wordy1"
    disks.update(a=4 << 30)
    assert choice(tmp_path, config).store.folder == first.folder
    # Also on another host, which has not seen the claim.
    shutil.rmtree(tmp_path / "work")
    assert choice(tmp_path, config).store.folder == first.folder


def test_a_new_topology_of_the_name_chooses_anew(tmp_path: Path, disks: dict[str, int]) -> None:
    config = settings_of(tmp_path, "a", "b", store_policy="most_free")
    disks.update(a=1 << 30, b=2 << 30)
    work = tmp_path / "work"
    assert StoreChoice(launch_of(work, "wordy1"), config).store.folder.parent.name == "b"
    disks.update(a=4 << 30)
    assert StoreChoice(launch_of(work, "wordy2"), config).store.folder == tmp_path / "a" / "wordy2"


# ---- a store that is full or gone -------------------------------------------------------------


def test_when_a_store_is_full_all_processes_move_to_the_next(tmp_path: Path, disks: dict[str, int]) -> None:
    """New checkpoints go elsewhere, in full; old ones are restorable, and retired where they are."""
    config = settings_of(tmp_path, "a", "b", key_groups=8, inline_max_bytes=0)
    one, other = choice(tmp_path, config), choice(tmp_path, config)
    tasks = Tasks(one.store, config, stores=one)
    fill(tasks, range(50), "v" * 100)
    before = tasks.checkpoint(1)
    fill(tasks, [1], "w")
    assert tasks.checkpoint(2).uploaded < before.uploaded / 10
    disks["a"] = 0
    other.failed()
    assert other.store.folder.parent.name == "b"
    # The task itself has noticed nothing; it follows with its next checkpoint.
    fill(tasks, [2], "w")
    after = tasks.checkpoint(3)
    assert after.location.startswith(f"{tmp_path}/b/") and after.uploaded > before.uploaded / 2
    content = tasks.content()
    assert Tasks(one.store, config, 1, after.location).content() == content
    assert Tasks(one.store, config, 1, f"{tmp_path}/a/wordy1/chk-2").content() != content
    assert [store.folder.parent.name for store in other.homes()] == ["b", "a"]


def test_what_fails_while_it_is_written_moves_the_topology(tmp_path: Path, disks: dict[str, int]) -> None:
    config = settings_of(tmp_path, "a", "b", key_groups=8, inline_max_bytes=0)
    one = choice(tmp_path, config)
    tasks = Tasks(one.store, config, stores=one)
    fill(tasks, range(5), "v")
    taken = tasks.begin(1)
    disks["a"] = 0
    shutil.rmtree(tmp_path / "a")
    (tmp_path / "a").write_bytes(b"no folder any more")
    with pytest.raises(StoreError, match="cannot be written"):
        taken.persist()
    taken.abort()
    assert Tasks(one.store, config, 1, tasks.checkpoint(2).location).content() == dict.fromkeys(range(5), "v")
    assert choice(tmp_path, config).store.folder.parent.name == "b"


def test_a_full_store_that_is_the_only_one_still_serves_restores(tmp_path: Path, disks: dict[str, int]) -> None:
    """F21: the topology keeps running, and its tasks come back, while no checkpoint can be written."""
    config = CheckpointSettings(root=str(tmp_path / "only"), fsync=False)
    first = choice(tmp_path, config).store
    disks["only"] = 0
    assert choice(tmp_path, config).store.folder == first.folder
    with pytest.raises(StoreError, match=r"no checkpoint store of topology wordy can be written .*/only\); free space"):
        choice(tmp_path, config, "wordy9")


# ---- limits -----------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(1, 1000), st.floats(0, 20)), min_size=1, max_size=30))
def test_over_any_time_no_more_than_the_rate_is_written(
    tmp_path_factory: pytest.TempPathFactory, writes: list[tuple[int, float]]
) -> None:
    limits = StoreLimits(tmp_path_factory.mktemp("r"), bytes_per_s=100.0)
    now, spans = 50.0, []
    for count, pause in writes:
        now += pause
        start = now + limits.wait_s(count, now)
        assert now <= start <= now + DEBT_MAX_S
        spans.append((start, count))
    for first in range(len(spans)):
        written = sum(count for _, count in spans[first:-1])
        waited = spans[-1][0] - spans[first][0]
        assert waited >= min(written / 100.0, 0) and (waited >= written / 100.0 - 1e-6 or waited >= DEBT_MAX_S - 21)


def test_an_account_of_another_life_is_begun_anew(tmp_path: Path) -> None:
    limits = StoreLimits(tmp_path, bytes_per_s=10.0)
    assert limits.wait_s(100, 1e9) == 0 and limits.wait_s(1, 1e9) == 10
    assert limits.wait_s(100, 5.0) == 0  # the clock started again
    (tmp_path / ".limits" / "account").write_bytes(b"\xff" * 8)
    assert limits.wait_s(1, 5.0) == 0
    (tmp_path / ".limits" / "account").write_bytes(b"abc")
    assert limits.wait_s(1, 5.0) == 0 and math.isclose(limits.wait_s(1, 5.0), 0.1)


def _hold(root: Path, ready: Any, leave: Any) -> None:
    with StoreLimits(root, writers=2).writing():
        ready.send(os.getpid())
        leave.recv()


def test_no_more_writers_than_allowed_and_a_dead_one_holds_nothing(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    leave, let = context.Pipe(duplex=False)
    receive, send = context.Pipe(duplex=False)
    processes = [context.Process(target=_hold, args=(tmp_path, send, leave)) for _ in range(4)]
    for process in processes:
        process.start()
    inside = {receive.recv(), receive.recv()}
    assert not receive.poll(0.2)
    victim = next(process for process in processes if process.pid in inside)
    victim.kill()
    victim.join()
    assert receive.recv() not in inside
    for _ in range(3):
        let.send("go")
    assert receive.recv() not in inside
    for process in processes:
        process.join()


def test_a_store_writes_through_its_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = CheckpointSettings(
        stores={"a": {"folder": str(tmp_path / "a"), "writers": 3, "rate_bytes": "1MB"}}, store_writers=7, fsync=False
    )
    [spec] = specs_of(config)
    assert (spec.limits.writers, spec.limits.bytes_per_s) == (3, 1_000_000) or spec.limits.bytes_per_s == 1 << 20
    slept: list[float] = []
    monkeypatch.setattr("heronpy.storage.store_limits.time.sleep", slept.append)
    store = CheckpointStore(tmp_path / "a" / "wordy1", False, replace(spec.limits, bytes_per_s=1000.0))
    for number in range(3):
        last = store.put_shared(1, bytes([number]) * 500)
    assert slept[0] == 0 and 0.4 < slept[1] <= 0.5 and 0.8 < slept[2] <= 1.0
    store.put_shared(2, bytes([number]) * 500, {last.sha256: last})
    assert len(slept) == 3, "what is there already costs nothing"
