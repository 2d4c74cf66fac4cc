"""Every damage that a fault does to a checkpoint is found and named, in a folder and in an object store (F23)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from heronpy.ckpt import catalogue
from heronpy.common.setting_types import CheckpointSettings
from heronpy.proto.checkpoint_pb2 import CheckpointRecord
from heronpy.storage.locations import open_store
from heronpy.storage.objects.url import Place, place_of
from heronpy.verify.damage import DAMAGES, newest_to_restore, victim_of
from tests.support.object_server import ObjectServer
from tests.support.states import Tasks, fill

SETTINGS = CheckpointSettings(inline_max_bytes=0, fork_above_bytes=1 << 30)


@pytest.fixture(params=["folder", "s3"])
def root(request: pytest.FixtureRequest, object_server: ObjectServer, tmp_path: Path) -> Place:
    place = tmp_path if request.param == "folder" else place_of(request.getfixturevalue("bucket"))
    return place / "instance"


@pytest.mark.parametrize(("what", "which", "change"), DAMAGES, ids=[f"{what} {which}" for what, which, _ in DAMAGES])
def test_what_is_damaged_is_found_and_named(
    root: Place, what: str, which: str, change: Callable[[Place], None]
) -> None:
    store = open_store(root)
    tasks = Tasks(store, SETTINGS)
    fill(tasks, range(100), "one")
    tasks.checkpoint(1)
    fill(tasks, range(100), "two")
    location = tasks.checkpoint(2).location
    assert not _damage(root, 2)
    place = victim_of(CheckpointRecord(checkpoint=2, location=location), which)
    change(place)
    assert place.name in _damage(root, 2), what
    if "swapped" not in what:
        assert not _damage(root, 1), "the one before is intact"


def _damage(root: Place, number: int) -> str:
    found = catalogue.read(root, number)
    return " ".join(
        [*found.damage, *catalogue.missing_files(found), *(catalogue.verify(found) if found.metadata else [])]
    )


def test_what_is_restored_after_all_were_damaged_is_the_one_that_was_tried_last() -> None:
    tried = [CheckpointRecord(checkpoint=1, damaged=True)]
    tried += [CheckpointRecord(checkpoint=number, damaged=True, abandoned=True) for number in (2, 3)]
    assert newest_to_restore(tried) == 1
    assert newest_to_restore([*tried, CheckpointRecord(checkpoint=4)]) == 4
