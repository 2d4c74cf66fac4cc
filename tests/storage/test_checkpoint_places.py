"""Checkpoints wherever they are: complete or absent, never without a file, and nothing left behind."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heronpy.ckpt import catalogue
from heronpy.ckpt.replication import Replicator
from heronpy.common.errors import ConfigError
from heronpy.common.setting_types import CheckpointSettings
from heronpy.proto.checkpoint_pb2 import SAVEPOINT, CheckpointRecord, FileRef, Metadata
from heronpy.storage import checkpoints, locations
from heronpy.storage.checkpoints import CheckpointStore, DamagedFileError, StoreError, files_of
from heronpy.storage.objects.folder import FolderObjects
from heronpy.storage.objects.opening import open_objects
from heronpy.storage.objects.port import Objects, ObjectsError, Trouble
from heronpy.storage.objects.url import Url
from heronpy.storage.spool import Spool
from heronpy.storage.store_limits import StoreLimits
from heronpy.storage.stores import check_stores, limits_of, object_store, replica_of, store_roots
from tests.support.azure_server import connected
from tests.support.memory_objects import MemoryObjects
from tests.support.object_server import ObjectServer
from tests.support.states import Taken, Tasks, fill
from tests.support.waiting import wait_for

SETTINGS = CheckpointSettings(inline_max_bytes=0, fork_above_bytes=1 << 30)
PLACE = Url("s3", "bucket", ("team", "wordy1"))


@pytest.fixture(params=["folder", "memory", "s3", "azure"])
def objects(
    request: pytest.FixtureRequest, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Objects]:
    """A folder, or the objects of PLACE for whoever opens it."""
    made: Objects
    match request.param:
        case "folder":
            made = FolderObjects(tmp_path / "objects", fsync=False)
        case "memory":
            made = MemoryObjects()
        case "s3":
            made = open_objects(Url("s3", bucket.removeprefix("s3://"), PLACE.parts))
        case _:
            container: str = request.getfixturevalue("azure_container")
            made = open_objects(Url("az", container.removeprefix("az://"), PLACE.parts))
    monkeypatch.setattr(locations, "open_objects", lambda place, patience_s=0.0: made)
    yield from connected(made)


@pytest.fixture
def store(objects: Objects) -> CheckpointStore:
    return CheckpointStore(objects.root if isinstance(objects, FolderObjects) else PLACE, objects=objects)


def whole(store: CheckpointStore, number: int) -> bool:
    return not store.problems(store.load_metadata(number))


# ---- a task's state ---------------------------------------------------------------------------------


def test_state_comes_back_and_only_changes_are_written(store: CheckpointStore) -> None:
    tasks = Tasks(store, SETTINGS, 2)
    fill(tasks, range(200), "one")
    first = tasks.checkpoint(1)
    fill(tasks, range(10), "two")
    second = tasks.checkpoint(2, SAVEPOINT)
    assert 0 < second.uploaded < first.uploaded / 2
    assert second.location == f"{store.folder}/chk-2"
    again = Tasks(store, SETTINGS, 2, second.location)
    assert again.content() == {key: "two" if key < 10 else "one" for key in range(200)}
    # It builds upon what it was restored from.
    fill(again, range(5), "three")
    assert again.checkpoint(3).uploaded < first.uploaded / 2
    # Rescaled, and in another instance, it is written again and names no file of this one.
    other = Tasks(store, SETTINGS, 3, second.location)
    assert other.content() == again.content() | dict.fromkeys(range(5), "two")


def test_a_piece_is_written_by_each_checkpoint_that_makes_it(store: CheckpointStore) -> None:
    """No look at what is there: a removal of the same content cannot meet its writer."""
    one, two = store.put_shared(1, b"the same"), store.put_shared(2, b"the same")
    assert one.path != two.path and one.sha256 == two.sha256
    assert store.sweep([], before=2) == [one.path], "what checkpoint 2 has written may be in progress"
    assert store.read(two) == b"the same"


def test_metadata_is_last_and_needs_every_object(store: CheckpointStore, objects: Objects) -> None:
    tasks = Tasks(store, SETTINGS)
    fill(tasks, range(50), "x")
    taken = tasks.begin(1)
    taken.persist()
    assert store.checkpoints() == []
    [key] = [key for key in objects.list("shared").objects]
    content = objects.get(key)
    objects.delete([key])
    with pytest.raises(StoreError, match=f"{key} is missing"):
        taken.write()
    assert store.checkpoints() == []
    objects.put(key, content)
    taken.write()
    assert store.checkpoints() == [1] and whole(store, 1)
    taken.write()
    other = Metadata.FromString(taken.metadata.SerializeToString())
    other.taken_at = 7.0
    with pytest.raises(StoreError, match="written by another process"):
        store.write_metadata(other)
    objects.put("chk-1/metadata", b"damaged")
    store.write_metadata(other)
    assert store.load_metadata(1).taken_at == 7.0


def test_damage_is_found_and_named(store: CheckpointStore, objects: Objects) -> None:
    tasks = Tasks(store, SETTINGS)
    fill(tasks, range(50), "x")
    location = tasks.checkpoint(1).location
    [key] = list(objects.list("shared").objects)
    content = objects.get(key)
    for damaged, words in ((content[:-1] + b"?", "has changed"), (content[:-1], "bytes instead of"), (b"", "0 bytes")):
        objects.put(key, damaged)
        with pytest.raises(DamagedFileError, match=words) as caught:
            Tasks(store, SETTINGS, 1, location)
        assert key in str(caught.value)
        [found] = catalogue.in_folder(store.folder)
        assert key in catalogue.verify(found)[0]
    objects.delete([key])
    assert catalogue.missing_files(found) == [f"{store.folder}/{key} is missing"]
    for damage in (b"", b"HERONCKP", objects.get("chk-1/metadata")[:-1]):
        objects.put("chk-1/metadata", damage)
        [found] = catalogue.in_folder(store.folder)
        assert found.metadata is None and "chk-1/metadata" in found.damage[0]


def test_a_piece_that_vanished_is_written_again(store: CheckpointStore, objects: Objects) -> None:
    tasks = Tasks(store, SETTINGS)
    fill(tasks, range(100), "x")
    tasks.checkpoint(1)
    fill(tasks, range(3), "y")
    taken = tasks.begin(2)
    objects.delete(objects.list("shared").objects)
    taken.persist()
    with pytest.raises(StoreError, match="is missing"):
        taken.write()
    taken.abort()
    wait_for(lambda: not [t for t in threading.enumerate() if t.name == "checkpoint-look"], 20, "the look")
    tasks.checkpoint(3)
    assert whole(store, 3)
    assert Tasks(store, SETTINGS, 1, f"{store.folder}/chk-3").content()[0] == "y"


def test_what_is_removed_and_what_stays(store: CheckpointStore, objects: Objects) -> None:
    tasks = Tasks(store, SETTINGS)
    for number in range(1, 7):
        fill(tasks, range(number * 10, number * 10 + 10), "x")
        tasks.checkpoint(number)
    store.mark_abandoned(5, True)
    assert store.is_abandoned(5) and not store.is_abandoned(6)
    store.mark_abandoned(5, False)
    assert not store.is_abandoned(5)
    metadata = {number: store.load_metadata(number) for number in store.checkpoints()}
    store.put_exclusive(7, "task-1-state", b"in progress")
    store.put_exclusive(3, "task-9-state", b"of a lost attempt")
    store.discard([metadata[1], metadata[2]], [metadata[number] for number in (3, 4, 5, 6)])
    assert store.checkpoints() == [3, 4, 5, 6] and all(whole(store, number) for number in (3, 4, 5, 6))
    store.sweep([metadata[6]])
    assert store.checkpoints() == [6] and whole(store, 6)
    needed = {ref.path for ref in files_of(metadata[6])}
    assert set(objects.list().objects) == needed | {"chk-6/metadata", "chk-7/task-1-state"}
    store.delete(6)
    store.sweep([], before=1 << 63)
    assert objects.list().objects == {}


@pytest.mark.parametrize(
    ("given_settings", "words"),
    [
        (
            {"stores": {"a": "s3://bucket/x", "b": "/tmp/y"}},
            "all stores of this setting must be folders; for a single store, set heron.checkpoint.root",
        ),
        ({"root": "s3://bucket/x", "replica": "s3://bucket/x/"}, "is the store s3://bucket/x itself"),
        ({"root": "s3://bucket/x", "retained": 1}, "heron.checkpoint.retained is 1"),
        ({"root": "ftp://bucket/x"}, "unknown scheme ftp://"),
        ({"replica": "ftp://bucket/x"}, "unknown scheme ftp://"),
    ],
)
def test_settings_that_make_no_sense_are_refused(given_settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_stores(CheckpointSettings(**given_settings))
    assert words in str(caught.value)


def test_a_file_url_is_its_folder() -> None:
    place = CheckpointSettings(root="file:///some/a%20folder", replica="file:///other")
    assert store_roots(place) == [Path("/some/a folder")] and replica_of(place) == Path("/other")
    assert object_store(place) is None


def test_uploads_keep_the_limits_of_the_store(tmp_path: Path) -> None:
    paid: list[int] = []

    class Limits(StoreLimits):
        def pay(self, count: int) -> None:
            paid.append(count)

    store = CheckpointStore(PLACE, limits=Limits(tmp_path / "limits", writers=1), objects=MemoryObjects())
    store.put_shared(1, b"123")
    store.put_exclusive(1, "task-1", b"12345")
    assert paid == [3, 5]
    url = Url("s3", "bucket", ("x",))
    assert limits_of(url, 0, 0.0) is None and limits_of(url, 2, 0.0) is not None


def test_a_path_that_leaves_the_folder_is_refused(store: CheckpointStore) -> None:
    for path in (
        "/etc/passwd", "../wordy2/chk-1/x", "chk-1/../../x", "shared/..", "shared/../../x", "shared/x", "chk-1/.hidden",
        "chk-x/y", "", f"shared/{'0' * 64}",
    ):  # fmt: skip
        ref = FileRef(path=path, bytes=1, sha256=b"?" * 32)
        for read in (
            store.read,
            store.path_of,
            lambda ref: store.copy(1, ref, store),
            lambda ref: store.missing([ref]),
        ):
            with pytest.raises(DamagedFileError, match="is not a file of a checkpoint"):
                read(ref)


# ---- copies ------------------------------------------------------------------------------------------


def records(store: CheckpointStore) -> list[CheckpointRecord]:
    return [
        CheckpointRecord(checkpoint=number, location=locations.location_of(store.folder, number))
        for number in store.checkpoints()
    ]


@pytest.mark.parametrize("to_objects", [True, False])
def test_copies_between_a_folder_and_objects(store: CheckpointStore, tmp_path: Path, to_objects: bool) -> None:
    folder = CheckpointStore(tmp_path / "files" / "wordy1", fsync=False)
    source, target = (folder, store) if to_objects else (store, folder)
    tasks = Tasks(source, SETTINGS)
    replicator = Replicator(target)
    try:
        for number in range(1, 6):
            fill(tasks, range(number * 10, number * 10 + 10), "x")
            tasks.checkpoint(number)
            kept = records(source)[-2:]
            while replicator.follow(kept) is not None:
                pass
        replicator.finish(kept)
    finally:
        replicator.close()
    # The copies were made one by one, and the older ones are retired with their records.
    assert set(target.checkpoints()) <= {4, 5} and 5 in target.checkpoints()
    assert not target.problems(target.load_metadata(5))
    assert replicator.counts.checkpoints_failed == 0
    assert Tasks(target, SETTINGS, 1, locations.location_of(target.folder, 5)).content() == tasks.content()


def test_a_removal_does_not_meet_a_copy_that_relies_on_the_file(objects: Objects) -> None:
    reached, go_on = threading.Event(), threading.Event()

    class Slow:
        def __getattr__(self, name: str) -> object:
            return getattr(objects, name)

        def delete(self, keys: object) -> None:
            reached.set()
            assert go_on.wait(20)
            objects.delete(keys)  # type: ignore[arg-type]

    store = CheckpointStore(PLACE, objects=Slow())  # type: ignore[arg-type]
    ref, kept = store.put_shared(1, b"wanted again"), store.put_shared(1, b"pinned before")
    store.pin(2, [kept])
    with ThreadPoolExecutor(2) as pool:
        removal = pool.submit(store.sweep, [], 5)
        assert reached.wait(20)
        pin = pool.submit(store.pin, 2, [ref])
        assert not pin.done(), "it has to know whether the file is there"
        go_on.set()
        assert removal.result(20) == [ref.path]
        pin.result(20)
    assert store.missing([ref, kept]) == [ref]


# ---- any order of events ---------------------------------------------------------------------------


STEPS = st.lists(
    st.sampled_from(["take", "take", "begin", "finish", "abort", "prune", "sweep"]), min_size=1, max_size=30
)


@pytest.mark.parametrize("in_folder", [False, True])
@given(steps=STEPS)
@settings(deadline=None)
def test_a_file_that_is_needed_is_never_removed_and_none_is_left(
    tmp_path_factory: pytest.TempPathFactory, in_folder: bool, steps: list[str]
) -> None:
    """Whatever the order: complete checkpoints that are kept, and the one in progress, keep their files."""
    place = tmp_path_factory.mktemp("s") if in_folder else PLACE
    objects: Objects = FolderObjects(place, fsync=False) if isinstance(place, Path) else MemoryObjects()
    store = CheckpointStore(place, objects=objects)
    tasks = Tasks(store, SETTINGS, 2)
    kept: dict[int, Metadata] = {}
    taken: Taken | None = None
    for number, step in enumerate(steps, 1):
        fill(tasks, range(number * 3 % 40, number * 3 % 40 + 5), number)
        if taken is None and step in ("take", "begin", "abort"):
            taken = tasks.begin(number)
            taken.persist()
        if taken is not None and step in ("take", "finish"):
            taken.write()
            kept[taken.number] = taken.metadata
            taken.complete()
            taken = None
        elif taken is not None and step == "abort":
            taken.abort()
            taken = None
        elif step == "prune":
            dropped = sorted(kept)[:-2]
            store.discard([kept.pop(old) for old in dropped], kept.values())
        elif step == "sweep":
            store.sweep(kept.values(), taken.number if taken else number)
        assert store.checkpoints() == sorted(kept)
        for metadata in [*kept.values(), *([taken.metadata] if taken else [])]:
            assert all(len(store.read(ref)) == ref.bytes for ref in files_of(metadata))
    store.sweep(kept.values(), 1 << 63)
    needed = {ref.path for item in kept.values() for ref in files_of(item)} | {f"chk-{old}/metadata" for old in kept}
    assert set(objects.list().objects) == needed


# ---- the spool --------------------------------------------------------------------------------------


def spooled(objects: Objects, folder: Path, max_bytes: int = 1000) -> CheckpointStore:
    return CheckpointStore(PLACE, objects=objects, spool=Spool(folder, max_bytes))


def test_files_wait_until_they_are_uploaded(objects: Objects, tmp_path: Path) -> None:
    store = spooled(objects, tmp_path / "spool")
    refs = [store.put_shared(1, b"%d" % number) for number in range(9)]
    assert objects.list().objects == {}
    store.upload(1)
    assert set(objects.list().objects) == {ref.path for ref in refs}
    assert [store.read(ref) for ref in refs] == [b"%d" % number for number in range(9)]
    store.put_shared(2, b"given up")
    store.drop(2)
    store.upload(2)
    assert len(objects.list().objects) == 9 and not [path for path in tmp_path.rglob("*@*")]


def test_a_full_spool_uploads_first_and_a_forked_copy_waits(tmp_path: Path) -> None:
    objects = MemoryObjects()
    store = spooled(objects, tmp_path / "spool")
    for number in range(20):
        store.put_exclusive(1, f"task-{number}", b"z" * 300)
        held = sum(path.stat().st_size for path in (tmp_path / "spool").rglob("*") if path.is_file())
        assert held <= 1000
    child = os.fork()
    if not child:
        try:
            for number in range(20):
                store.put_exclusive(2, f"task-{number}", b"y" * 300)
        finally:
            os._exit(0)

    def over() -> bool:
        store.upload(2)
        return os.waitpid(child, os.WNOHANG)[0] == child

    wait_for(over, 30, "the end of the child")
    store.upload(2)
    assert len(objects.list("chk-2").objects) == 20, "the child itself touched no store, and lost nothing"
    with pytest.raises(StoreError, match=r"too large for the spool.*heron.checkpoint.spool_bytes_max"):
        store.put_shared(3, b"x" * 1001)


def test_a_successor_removes_what_a_killed_task_left(tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    spooled(MemoryObjects(), folder).put_shared(1, b"left behind")
    Spool(folder, 1000)
    assert list(folder.iterdir()) == []


# ---- outages ----------------------------------------------------------------------------------------


class Away(MemoryObjects):
    """Cannot be reached for a while."""

    def __init__(self, trouble: Trouble = Trouble.AWAY, times: int = 3) -> None:
        super().__init__("s3://b/x")
        self.trouble, self.times = trouble, 0
        self.armed = times

    def get(self, key: str) -> bytes:
        if self.times < self.armed:
            self.times += 1
            raise ObjectsError(self.name, self.trouble)
        return super().get(key)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "LOOK_S", 0.01)


def test_a_restore_waits_for_a_store_that_is_away(quick: None) -> None:
    away = Away()
    store = CheckpointStore(PLACE, objects=away, patience_s=20.0)
    assert store.read(store.put_shared(1, b"x")) == b"x" and away.times == 3


@pytest.mark.parametrize("trouble", [Trouble.AWAY, Trouble.CREDENTIALS])
def test_it_does_not_wait_for_ever(quick: None, trouble: Trouble) -> None:
    store = CheckpointStore(PLACE, objects=Away(trouble, 1 << 30), patience_s=0.05)
    ref, began = store.put_shared(1, b"x"), time.monotonic()
    with pytest.raises(ObjectsError, match=trouble.value):
        store.read(ref)
    assert time.monotonic() - began < 10


def test_an_outage_is_no_damage_for_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    away = Away(times=1 << 30)
    away.put("chk-1/metadata", b"?")
    monkeypatch.setattr(locations, "open_objects", lambda place, patience_s=0.0: away)
    with pytest.raises(ObjectsError, match="cannot be reached"):
        catalogue.in_folder(PLACE)


def test_uploads_pass_a_flood_of_refusals(bucket: str, object_server: ObjectServer, tmp_path: Path) -> None:
    objects = open_objects(Url("s3", bucket.removeprefix("s3://"), ("x",)), 20.0)
    store = CheckpointStore(PLACE, objects=objects, spool=Spool(tmp_path, 1 << 20))
    refs = [store.put_shared(1, os.urandom(1000)) for _ in range(8)]
    object_server.set(busy=6, lose=2)
    store.upload(1)
    assert store.missing(refs) == []
