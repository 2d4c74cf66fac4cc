"""The files of checkpoints: where they lie, what moves, what is damaged, and what a sweep may take (F23)."""

from __future__ import annotations

import os
import pickle
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heronpy.common.errors import ConfigError, HeronError
from heronpy.common.setting_types import CheckpointSettings
from heronpy.proto import checkpoint_pb2
from heronpy.storage.checkpoints import CheckpointStore, DamagedFileError, files_of
from heronpy.storage.locations import check_trusted, location_of, open_location
from tests.storage.checkpoint_crasher import metadata_of, piece
from tests.support.states import Tasks, fill


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(tmp_path / "store" / "wordy1", fsync=False)


def taken(store: CheckpointStore, *numbers: int) -> list[checkpoint_pb2.Metadata]:
    found = []
    for number in numbers:
        found.append(metadata_of(store, number))
        store.write_metadata(found[-1])
    return found


def files(store: CheckpointStore) -> set[str]:
    return {str(path.relative_to(store.folder)) for path in store.folder.rglob("*") if path.is_file()}


# ---- layout -----------------------------------------------------------------------------------


def test_the_layout_is_the_documented_one_and_private(store: CheckpointStore) -> None:
    """Exclusive files in chk-N, shared ones under their hash and who wrote them, one metadata file."""
    [metadata] = taken(store, 7)
    shared = {ref.path for ref in files_of(metadata) if ref.path.startswith("shared/")}
    assert files(store) == {"chk-7/metadata", "chk-7/task-1-state-1"} | shared
    assert all(ref.path == f"shared/{ref.sha256.hex()}-7" for ref in files_of(metadata) if ref.path in shared)
    for path in [store.folder, *store.folder.rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600)


def test_metadata_alone_names_all_files_relatively(store: CheckpointStore, tmp_path: Path) -> None:
    """Copying exactly what it names restores, at another path."""
    taken(store, 3)
    [metadata] = taken(store, 7)
    target = tmp_path / "another site" / "somewhere"
    for path in [*(ref.path for ref in files_of(metadata)), "chk-7/metadata"]:
        assert not os.path.isabs(path)
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(store.folder / path, target / path)
    shutil.rmtree(store.folder)
    for location in (f"{target}/chk-7", f"{target}/chk-7/", f"{target}/chk-7/metadata"):
        copy, read = open_location(location)
        assert read == metadata and read.topology_id == "wordy1" and location_of(copy.folder, 7) == f"{target}/chk-7"
        assert all(len(copy.read(ref)) == ref.bytes for ref in files_of(read))


def test_a_location_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not the location of a checkpoint; give the path of a folder chk-<id>"):
        open_location(str(tmp_path))
    with pytest.raises(DamagedFileError, match="chk-5/metadata is missing"):
        open_location(str(tmp_path / "chk-5"))


def test_a_piece_of_the_last_complete_checkpoint_is_not_written_again_unless_it_is_gone(store: CheckpointStore) -> None:
    ref = store.put_shared(1, b"piece")
    before, complete = store.bytes_written, {ref.sha256: ref}
    assert store.put_shared(2, b"piece", complete) == ref and store.bytes_written == before
    for damage in (b"short", None):
        path = store.path_of(ref)
        path.unlink() if damage is None else path.write_bytes(damage[:-1])
        again = store.put_shared(3, b"piece", complete)
        assert again != ref and store.read(again) == b"piece"


def test_metadata_that_is_not_finished_is_no_checkpoint(store: CheckpointStore) -> None:
    metadata_of(store, 1)
    (store.folder / "chk-1" / ".tmp-half").write_bytes(b"HERONCKP")
    assert store.checkpoints() == []
    [metadata] = taken(store, 1)
    assert not (store.folder / "chk-1" / ".tmp-half").exists() and store.load_metadata(1) == metadata


@pytest.mark.parametrize("name", ["metadata", "abandoned", ".x", "a/b", "", "x" * 201])
def test_a_name_that_means_something_else_is_refused(store: CheckpointStore, name: str) -> None:
    with pytest.raises(ValueError, match="cannot be the name"):
        store.put_exclusive(1, name, b"")


def test_a_link_in_place_of_a_file_is_not_followed(store: CheckpointStore, tmp_path: Path) -> None:
    ref = store.put_shared(1, b"piece")
    elsewhere = tmp_path / "elsewhere"
    shutil.move(store.folder / ref.path, elsewhere)
    (store.folder / ref.path).symlink_to(elsewhere)
    with pytest.raises(DamagedFileError, match="cannot be read"):
        store.read(ref)


# ---- damage (F23) -----------------------------------------------------------------------------

FILES = CheckpointSettings(key_groups=8, inline_max_bytes=0, fsync=False)


def spoil(path: Path, how: str) -> None:
    data = path.read_bytes()
    middle = len(data) // 2
    if how == "flipped":
        data = data[:middle] + bytes((data[middle] ^ 0x10,)) + data[middle + 1 :]
    elif how == "truncated":
        data = data[:middle]
    elif how == "longer":
        data += b"x"
    elif how == "empty":
        data = b""
    if how == "deleted":
        path.unlink()
    else:
        path.write_bytes(data)


@pytest.mark.parametrize("how", ["flipped", "truncated", "longer", "empty", "deleted"])
@pytest.mark.parametrize("which", ["metadata", "plain", "channel", "shared"])
def test_each_damage_to_each_file_is_found_and_named(store: CheckpointStore, which: str, how: str) -> None:
    tasks = Tasks(store, FILES)
    fill(tasks, range(20), "v")
    tasks.tasks[0].plain["offset"] = 1
    one = tasks.begin(4)
    one.persist()
    snapshot = one.metadata.tasks[0]
    tasks.tasks[0].write_channel(4, snapshot, [b"frame"], 1)
    one.write()
    path = (
        store.folder
        / {
            "metadata": "chk-4/metadata",
            "plain": snapshot.state_file.path,
            "channel": snapshot.channel_file.path,
            "shared": snapshot.keyed[0].segments[0].file.path,
        }[which]
    )
    Tasks(store, FILES, 1, one.location)
    spoil(path, how)
    with pytest.raises(DamagedFileError) as caught:
        Tasks(store, FILES, 1, one.location)
    assert caught.value.path == str(path) and str(path) in str(caught.value)


def test_swapped_metadata_is_found(store: CheckpointStore) -> None:
    taken(store, 1, 2)
    one, two = (store.folder / f"chk-{number}" / "metadata" for number in (1, 2))
    first, second = one.read_bytes(), two.read_bytes()
    one.write_bytes(second)
    two.write_bytes(first)
    for number, other in ((1, 2), (2, 1)):
        with pytest.raises(DamagedFileError, match=f"chk-{number}/metadata has the metadata of checkpoint {other}"):
            store.load_metadata(number)


@given(data=st.binary(max_size=300), keep_head=st.booleans())
@settings(max_examples=200, deadline=None)
def test_any_bytes_as_metadata_are_damage_and_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, keep_head: bool
) -> None:
    store = CheckpointStore(tmp_path_factory.getbasetemp() / "any" / "wordy1", fsync=False)
    path = store.folder / "chk-1" / "metadata"
    if not path.exists():
        taken(store, 1)
        (path.parent / "good").write_bytes(path.read_bytes())
    path.write_bytes((path.parent / "good").read_bytes()[:20] + data if keep_head else data)
    with pytest.raises(DamagedFileError, match="chk-1/metadata"):
        store.load_metadata(1)


@pytest.mark.parametrize("other", [1, 9])
def test_metadata_of_another_format_says_so(store: CheckpointStore, other: int) -> None:
    taken(store, 1)
    path = store.folder / "chk-1" / "metadata"
    data = bytearray(path.read_bytes())
    data[8] = other
    path.write_bytes(data)
    with pytest.raises(DamagedFileError, match=f"has format {other}, but this release of heronpy reads format 2"):
        store.load_metadata(1)


# ---- whose work it is -------------------------------------------------------------------


class Bomb:
    def __init__(self, fuse: Path) -> None:
        self.fuse = fuse

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return os.mkdir, (str(self.fuse),)


def test_no_pickle_is_loaded_from_a_file_that_is_not_what_was_written(store: CheckpointStore, tmp_path: Path) -> None:
    """Content is compared with its hash before any of it is decoded."""
    fuse = tmp_path / "fuse"
    tasks = Tasks(store, FILES)
    tasks.state("key")["key"] = {"a": "value"}
    one = tasks.checkpoint(1)
    path = store.folder / one.metadata.tasks[0].keyed[0].segments[0].file.path
    good, bad = pickle.dumps({"a": "value"}, 5), pickle.dumps(Bomb(fuse), 5)
    data = path.read_bytes()
    assert good in data
    path.write_bytes(data.replace(good, bad))
    with pytest.raises(DamagedFileError):
        Tasks(store, FILES, 1, one.location)
    path.write_bytes(data.replace(good, bad)[: len(data)])
    with pytest.raises(DamagedFileError, match="checksum differs"):
        Tasks(store, FILES, 1, one.location)
    assert not fuse.exists()
    pickle.loads(bad)
    assert fuse.exists(), "the bomb would have gone off"


def test_a_topology_without_pickle_loads_none(store: CheckpointStore, tmp_path: Path) -> None:
    fuse = tmp_path / "fuse"
    tasks = Tasks(store, FILES)
    tasks.state("key")["key"] = Bomb(fuse)
    location = tasks.checkpoint(1).location
    with pytest.raises(
        HeronError, match=r"keyed state 'counts' of count in checkpoint 1 cannot be read: .*forbids pickle"
    ):
        Tasks(store, FILES, 1, location, allow_pickle=False)
    tasks = Tasks(store, FILES)
    tasks.tasks[0].plain["key"] = Bomb(fuse)
    location = tasks.checkpoint(2).location
    with pytest.raises(HeronError, match=r"State of count in checkpoint 2 cannot be read: .*forbids pickle"):
        Tasks(store, FILES, 1, location, allow_pickle=False)
    assert not fuse.exists()


def test_metadata_that_others_may_write_is_not_restored(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It vouches for all other files, pickles among them, so it has to be one's own."""
    tasks = Tasks(store, FILES)
    fill(tasks, range(3), [1])
    location = tasks.checkpoint(1).location
    path = Path(location) / "metadata"
    path.chmod(0o666)
    with pytest.raises(DamagedFileError, match="can be changed by other users, so it is not restored"):
        Tasks(store, FILES, 1, location)
    path.chmod(0o600)
    check_trusted(location)
    owner = path.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    if owner == 0:
        check_trusted(location)  # what root has written is fine for everybody
        os.chown(path, 12345, -1)
    with pytest.raises(DamagedFileError, match=r"belongs to another user .* make a copy that you own"):
        Tasks(store, FILES, 1, location)


def test_a_class_that_is_gone_is_one_sentence(store: CheckpointStore, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = Tasks(store, FILES)
    tasks.state("key")["key"] = Gone()
    location = tasks.checkpoint(1).location
    monkeypatch.delattr(f"{__name__}.Gone")
    with pytest.raises(HeronError, match="submit the code that defines the classes of its values"):
        Tasks(store, FILES, 1, location)


class Gone:
    """A class of user code that a later version of it does not have."""


# ---- what goes --------------------------------------------------------------------------


def test_discard_takes_what_only_the_dropped_ones_name(store: CheckpointStore) -> None:
    """Pieces 1 and 2 are those of several checkpoints (2 = 4 // 2 = 5 // 2)."""
    one, two, four, five = taken(store, 1, 2, 4, 5)
    gone = store.discard([one, two], [four, five])
    assert store.checkpoints() == [4, 5]
    assert files(store) == {ref.path for m in (four, five) for ref in files_of(m)} | {
        "chk-4/metadata",
        "chk-5/metadata",
    }
    kept = files(store)
    assert set(gone) == {ref.path for m in (one, two) for ref in files_of(m) if ref.path.startswith("shared/")} - kept


def test_nothing_in_progress_is_swept(store: CheckpointStore) -> None:
    """What a checkpoint in progress has written, or counts on, stays; taskowned is not ours."""
    old, kept = taken(store, 1, 4)
    (store.folder / "taskowned").mkdir()
    (store.folder / "taskowned" / "thing").write_bytes(b"x")
    again = store.put_shared(6, piece(1))  # a piece that only checkpoint 1 has
    own = store.put_exclusive(6, "task-1-state-1", b"state")
    removed = store.discard([old], [kept]) + store.sweep([kept])
    assert again.path not in removed
    assert store.read(again) == piece(1) and store.read(own) == b"state"
    assert (store.folder / "taskowned" / "thing").exists()
    metadata = checkpoint_pb2.Metadata(checkpoint=6)
    metadata.tasks.add().keyed.add().segments.add(file=again)
    store.write_metadata(metadata)
    # Complete, and not yet in anybody's record.
    store.sweep([kept])
    assert store.read(again) == piece(1)
    store.sweep([kept], before=7)
    assert files(store) - {"taskowned/thing"} == {ref.path for ref in files_of(kept)} | {"chk-4/metadata"}
