"""Copies in a second store: always some complete checkpoint, only the necessary files, nothing left."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.ckpt.replication import CACHED_MAX, Replicator, compare
from heronpy.common.setting_types import CheckpointSettings
from heronpy.proto.checkpoint_pb2 import SAVEPOINT, CheckpointRecord, FileRef, Metadata
from heronpy.storage.checkpoints import CheckpointStore, StoreError, files_of
from heronpy.storage.locations import location_of
from tests.ckpt.copier import records_of
from tests.storage.checkpoint_crasher import metadata_of
from tests.support.states import Tasks, fill

COPIER = Path(__file__).with_name("copier.py")


@pytest.fixture
def source(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(tmp_path / "source" / "wordy1", fsync=False)


@pytest.fixture
def target(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(tmp_path / "replica" / "wordy1", fsync=False)


@pytest.fixture
def replicator(target: CheckpointStore) -> Iterator[Replicator]:
    found = Replicator(target, threads=2)
    yield found
    found.close()


def take(source: CheckpointStore, *numbers: int) -> None:
    for number in numbers:
        source.write_metadata(metadata_of(source, number))


def follow(replicator: Replicator, records: list[CheckpointRecord]) -> list[int]:
    """Everything that one look at the record leads to."""
    copied = []
    while (number := replicator.follow(records)) is not None:
        copied.append(number)
    return copied


def whole(store: CheckpointStore) -> list[int]:
    numbers = store.checkpoints()
    for number in numbers:
        for ref in files_of(store.load_metadata(number)):
            store.read(ref)
    return numbers


def named(store: CheckpointStore) -> set[str]:
    found = {f"chk-{number}/metadata" for number in store.checkpoints()}
    return found | {ref.path for number in store.checkpoints() for ref in files_of(store.load_metadata(number))}


def files(store: CheckpointStore) -> set[str]:
    return {str(path.relative_to(store.folder)) for path in store.folder.rglob("*") if path.is_file()}


# ---- what is copied ---------------------------------------------------------------------------

NAMES = st.sets(st.sampled_from([f"shared/{letter}" for letter in "abcdefgh"]))


def naming(paths: set[str]) -> Metadata:
    metadata = Metadata(checkpoint=1)
    for path in sorted(paths):
        metadata.tasks.add(state_file=FileRef(path=path))
    return metadata


@given(new=NAMES, old=st.lists(NAMES, max_size=3), kept=st.lists(NAMES, max_size=2))
def test_three_sets(new: set[str], old: list[set[str]], kept: list[set[str]]) -> None:
    """Only new is copied, only old deleted, both skipped; nothing that is needed is deleted."""
    sets = compare(naming(new), [naming(paths) for paths in old], [naming(paths) for paths in kept])
    there = set().union(*old)
    assert {ref.path for ref in sets.copy} == new - there
    assert {ref.path for ref in sets.skip} == new & there
    assert set(sets.delete) == there - new - set().union(*kept)


def test_a_copy_takes_only_what_is_missing(
    source: CheckpointStore, target: CheckpointStore, replicator: Replicator
) -> None:
    config = CheckpointSettings(fsync=False)
    tasks = Tasks(source, config)
    fill(tasks, range(5000), "v" * 100)
    tasks.checkpoint(1)
    assert follow(replicator, records_of(source)) == [1]
    whole_bytes = replicator.counts.bytes_copied
    fill(tasks, range(50), "w" * 100)
    tasks.checkpoint(2)
    tasks.checkpoint(3, SAVEPOINT)
    assert follow(replicator, records_of(source)) == [3]
    assert replicator.counts.bytes_copied - whole_bytes < 0.03 * whole_bytes
    assert replicator.newest == 3 and replicator.counts.checkpoints_copied == 2
    assert Tasks(target, config, 1, location_of(target.folder, 3)).content() == tasks.content()


def test_the_newest_comes_first_and_savepoints_are_never_left_out(
    source: CheckpointStore, target: CheckpointStore, replicator: Replicator
) -> None:
    """What was missed meanwhile is older and of no interest."""
    take(source, 1, 2, 3, 4, 5)
    records = records_of(source)
    records[1].kind = SAVEPOINT
    assert follow(replicator, records) == [5, 2]
    assert whole(target) == [2, 5]


def test_a_copy_knows_what_the_topology_has_gone_back_behind(
    source: CheckpointStore, target: CheckpointStore, replicator: Replicator
) -> None:
    take(source, 1, 2, 3)
    records = records_of(source)
    assert follow(replicator, records) == [3]
    for record in records[1:]:
        record.abandoned = True
    assert follow(replicator, records) == [1], "the one that a restore would start from"
    assert target.is_abandoned(3) and not target.is_abandoned(1)
    records[2].abandoned = False
    follow(replicator, records)
    assert not target.is_abandoned(3)
    replicator.finish(records)
    assert whole(target) == [1, 3]


def test_retired_checkpoints_go_and_orphans_too(
    source: CheckpointStore, target: CheckpointStore, replicator: Replicator
) -> None:
    for number in range(1, 12):
        take(source, number)
        follow(replicator, records_of(source)[-3:])
    replicator.finish(records_of(source)[-3:])
    replicator.close()
    assert whole(target)[-1] == 11 and set(whole(target)) <= {9, 10, 11} and files(target) == named(target)


def test_a_checkpoint_that_vanishes_while_it_is_copied_is_no_trouble(
    source: CheckpointStore, target: CheckpointStore, replicator: Replicator
) -> None:
    take(source, 1, 2)
    records = records_of(source)
    assert follow(replicator, records[:1]) == [1]
    source.delete(2)
    assert follow(replicator, records) == [2]
    assert replicator.counts.checkpoints_failed == 1 and whole(target) == [1]
    assert follow(replicator, records) == []  # not again and again
    take(source, 2)
    replicator.retry()
    assert follow(replicator, records) == [2] and whole(target) == [1, 2]


def test_damage_is_not_copied(source: CheckpointStore, target: CheckpointStore, replicator: Replicator) -> None:
    take(source, 1, 2)
    follow(replicator, records_of(source)[:1])
    ref = next(ref for ref in files_of(source.load_metadata(2)) if ref.path.startswith("chk-2"))
    (source.folder / ref.path).write_bytes(b"\0" * ref.bytes)
    assert follow(replicator, records_of(source)) == [2]
    assert replicator.counts.checkpoints_failed == 1 and whole(target) == [1]


def test_a_copy_outlives_the_damage_of_its_source(
    source: CheckpointStore, target: CheckpointStore, replicator: Replicator
) -> None:
    """The replica may be what is left to restore from."""
    take(source, 1, 2)
    records = records_of(source)
    follow(replicator, records)
    records[1].damaged = True
    take(source, 3)
    follow(replicator, [*records, *records_of(source)[2:]])
    replicator.finish([*records, *records_of(source)[2:]])
    replicator.close()
    assert {2, 3} <= set(whole(target))


def test_an_empty_record_removes_nothing(
    source: CheckpointStore, target: CheckpointStore, replicator: Replicator
) -> None:
    take(source, 1)
    follow(replicator, records_of(source))
    assert follow(replicator, []) == []
    replicator.finish([])
    replicator.close()
    assert whole(target) == [1]


def test_parsed_metadata_is_remembered_and_not_without_bound(
    source: CheckpointStore, target: CheckpointStore, replicator: Replicator, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[int] = []
    real = CheckpointStore.load_metadata

    def counted(store: CheckpointStore, number: int) -> Metadata:
        if store is target:
            reads.append(number)
        return real(store, number)

    monkeypatch.setattr(CheckpointStore, "load_metadata", counted)
    for number in range(1, CACHED_MAX + 10):
        take(source, number)
        follow(replicator, records_of(source)[-2:])
    assert len(replicator._cache) <= CACHED_MAX
    # Without memory it would be all of them, each time: some thousands.
    assert len(reads) < 4 * CACHED_MAX


# ---- when it goes wrong -----------------------------------------------------------------------


def test_killed_at_random_fifty_times_there_is_always_something_to_restore(tmp_path: Path) -> None:
    """Metadata comes last, so half a copy is no checkpoint."""
    source = CheckpointStore(tmp_path / "source" / "wordy1", fsync=False)
    target = CheckpointStore(tmp_path / "replica" / "wordy1", fsync=False)
    with_first = Replicator(target)
    take(source, 1)
    follow(with_first, records_of(source))
    with_first.close()
    chooser = random.Random(3)
    read, write = os.pipe()
    number = 1
    for turn in range(50):
        for _ in range(3):
            number += 1
            take(source, number)
        kept = [source.load_metadata(n) for n in source.checkpoints()]
        source.discard(kept[:-3], kept[-3:])
        child = os.fork()
        if not child:
            _copy_until_killed(source, target, write)
        os.read(read, 1)
        time.sleep(chooser.random() * 0.008)
        os.kill(child, 9)
        os.waitpid(child, 0)
        assert whole(target), f"nothing to restore after kill {turn}"
    last = Replicator(target)
    follow(last, records_of(source))
    last.finish(records_of(source))
    last.close()
    assert whole(target)[-1] == number and files(target) == named(target)
    os.close(read)
    os.close(write)


def _copy_until_killed(source: CheckpointStore, target: CheckpointStore, ready: int) -> None:
    try:
        replicator = Replicator(target, threads=2)
        os.write(ready, b"x")
        while replicator.follow(records_of(source)) is not None:
            pass
        replicator.finish(records_of(source))
        replicator.close()
        while True:
            time.sleep(1)
    finally:
        os._exit(1)


def test_a_process_of_its_own_copies_everything(tmp_path: Path) -> None:
    source = CheckpointStore(tmp_path / "source" / "wordy1", fsync=False)
    take(source, 1, 2)
    command = [sys.executable, str(COPIER), str(source.folder), str(tmp_path / "replica" / "wordy1")]
    subprocess.run(command, check=True, timeout=30, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    assert whole(CheckpointStore(tmp_path / "replica" / "wordy1")) == [2]


def test_deletes_that_fail_are_made_up_for(
    source: CheckpointStore, target: CheckpointStore, replicator: Replicator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """30 % of the deletes fail; the sweep at the end leaves no orphan, and nothing needed ever goes."""
    chooser = random.Random(5)
    real = os.unlink

    def unlink(path: Any, **options: Any) -> None:
        if "replica" in str(path) and chooser.random() < 0.3:
            raise OSError(5, "Input/output error")
        real(path, **options)

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", unlink)
        for number in range(1, 40):
            take(source, number)
            follow(replicator, records_of(source)[-3:])
            for ref in files_of(target.load_metadata(number)):
                target.read(ref)
        assert replicator.counts.removals_failed > 0
    records = records_of(source)[-3:]
    replicator.finish(records)
    replicator.close()
    assert set(whole(target)) <= {37, 38, 39} and 39 in whole(target) and files(target) == named(target)


def test_a_replica_that_cannot_be_written_costs_nothing_but_the_copy(
    source: CheckpointStore, target: CheckpointStore, replicator: Replicator
) -> None:
    take(source, 1, 2)
    target.folder.parent.mkdir(parents=True)
    target.folder.write_bytes(b"not a folder")
    assert follow(replicator, records_of(source)) == [2]
    assert replicator.counts.checkpoints_failed == 1 and whole(source) == [1, 2]
    target.folder.unlink()
    take(source, 3)
    assert follow(replicator, records_of(source)) == [3] and whole(target) == [3]


def test_who_is_asked_to_stop_begins_no_file(
    source: CheckpointStore, target: CheckpointStore, replicator: Replicator
) -> None:
    take(source, 1)
    replicator.give_up()
    assert follow(replicator, records_of(source)) == [1]
    assert target.checkpoints() == [] and replicator.counts.files_copied == 0
    with pytest.raises(StoreError, match="was abandoned"):
        replicator._copy_file(1, FileRef(path="shared/" + "0" * 64), source)
