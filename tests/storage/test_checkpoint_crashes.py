"""A store that a process left at any point restores (F21, F22): every call that changes a file is one."""

from __future__ import annotations

import os
import random
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest

from heronpy.storage.checkpoints import CheckpointStore, StoreError, files_of
from tests.storage.checkpoint_crasher import RETAINED, SIZE, metadata_of, piece, work
from tests.support.faulty_files import NAMES, Killed, faults, short_writes

CRASHER = Path(__file__).with_name("checkpoint_crasher.py")


def whole(store: CheckpointStore) -> list[int]:
    """Complete checkpoints; every one of them must be readable down to the last byte."""
    numbers = store.checkpoints()
    for number in numbers:
        for ref in files_of(store.load_metadata(number)):
            assert len(store.read(ref)) == SIZE
    return numbers


def nothing_left_over(store: CheckpointStore) -> None:
    """A sweep leaves what complete checkpoints name, and nothing else."""
    kept = [store.load_metadata(number) for number in store.checkpoints()]
    store.sweep(kept, before=1 << 60)
    named = {ref.path for item in kept for ref in files_of(item)} | {f"chk-{item.checkpoint}/metadata" for item in kept}
    there = {str(path.relative_to(store.folder)) for path in store.folder.rglob("*") if path.is_file()}
    assert there == named


def test_a_kill_at_any_call_leaves_what_was_complete(tmp_path: Path) -> None:
    base = CheckpointStore(tmp_path / "base" / "wordy1", fsync=False)
    work(base, 1, 6)
    assert whole(base) == [3, 4, 5]
    at, points = 0, 0
    while True:
        at += 1
        store = CheckpointStore(tmp_path / str(at) / "wordy1", fsync=False)
        shutil.copytree(base.folder, store.folder)
        told: list[int] = []
        with faults(at, half_written=True) as fault:
            try:
                work(store, 6, 8, told.append)
            except Killed:
                points += 1
        found = whole(store)
        # What was reported complete stays until newer ones have taken its place.
        assert set(told) <= set(found) and len(found) >= RETAINED
        # Whoever comes next goes on, and finds no trace.
        work(store, 9, 12)
        assert whole(store) == [9, 10, 11]
        nothing_left_over(store)
        shutil.rmtree(store.folder.parent)
        if not fault.met:
            break
    assert points > 30


def test_a_real_kill_at_a_random_moment(tmp_path: Path) -> None:
    """The same with processes and signals, again and again on one store."""
    store = CheckpointStore(tmp_path / "wordy1")
    chooser = random.Random(11)
    newest = 0
    for _ in range(8):
        process = subprocess.Popen(
            [sys.executable, str(CRASHER), str(store.folder)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(chooser.randint(1, 6))]
        time.sleep(chooser.random() * 0.01)  # somewhere in the next one
        process.kill()
        rest = process.stdout.read().splitlines()
        process.wait()
        told = [int(line) for line in [*lines, *rest] if line.strip()]
        found = whole(store)
        assert told[-1] in found and told[0] > newest
        newest = max(found)
    nothing_left_over(store)


@pytest.mark.parametrize("number", list(NAMES), ids=list(NAMES.values()))
@pytest.mark.parametrize("lasting", [False, True], ids=["once", "lasting"])
def test_a_disk_that_fails_fails_the_checkpoint_and_no_other(tmp_path: Path, number: int, lasting: bool) -> None:
    """F21, F22: StoreError names the file; what is complete stays; with space again, the next one succeeds."""
    store = CheckpointStore(tmp_path / "wordy1")
    work(store, 1, 3)
    at, failed = 0, 0
    while True:
        at += 1
        checkpoint = 10 + at
        with faults(at, number, half_written=True, lasting=lasting) as fault:
            try:
                store.write_metadata(metadata_of(store, checkpoint))
                complete = True
            except StoreError as error:
                complete = False
                failed += 1
                assert str(store.folder) in str(error) and os.strerror(number) in str(error)
        # A call that only tidies up may fail without harm; all others must be told of.
        assert complete == (checkpoint in whole(store))
        if not fault.met:
            assert complete
            break
        store.write_metadata(metadata_of(store, checkpoint + 1000))
        assert checkpoint + 1000 in whole(store)
        store.delete(checkpoint + 1000)
    assert failed > 10
    nothing_left_over(store)


def test_success_is_never_reported_without_fsync(tmp_path: Path) -> None:
    """F22: a file is on disk before it has its name, its name is before anybody hears of it, metadata comes last."""
    store = CheckpointStore(tmp_path / "wordy1")
    paths: dict[int, str] = {}
    events: list[tuple[str, str]] = []
    real_open, real_fsync = os.open, os.fsync

    def opened(path: object, *arguments: object, **options: object) -> int:
        descriptor = real_open(path, *arguments, **options)  # type: ignore[arg-type]
        paths[descriptor] = str(path)
        return descriptor

    def synced(descriptor: int) -> None:
        events.append(("sync", paths[descriptor]))
        real_fsync(descriptor)

    def named(real: Callable[[Path, Path], None]) -> Callable[[Path, Path], None]:
        def call(source: Path, target: Path) -> None:
            assert ("sync", str(source)) in events
            events.append(("name", str(target)))
            real(source, target)

        return call

    with mock.patch.multiple(os, open=opened, fsync=synced, rename=named(os.rename), link=named(os.link)):
        location = store.write_metadata(metadata_of(store, 7))
    targets = [path for what, path in events if what == "name"]
    assert targets[-1] == f"{location}/metadata" and len(targets) == 4
    for target in targets:
        folder = os.path.dirname(target)
        assert ("sync", folder) in events[events.index(("name", target)) :]
        if folder.endswith("shared"):
            assert ("sync", folder) in events[: events.index(("name", targets[-1]))]
    for folder in (store.folder, store.folder.parent):
        assert ("sync", str(folder)) in events


def test_writes_that_take_few_bytes_write_everything(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "wordy1")
    with short_writes(7):
        work(store, 1, 3)
    assert whole(store) == [1, 2]


def test_a_full_disk_never_leaves_a_short_file_under_a_good_name(tmp_path: Path) -> None:
    """F21 for real: the kernel cuts the write off, here by a limit on the size of files."""
    store = CheckpointStore(tmp_path / "wordy1")
    work(store, 1, 2)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (SIZE // 2, hard))
    try:
        with pytest.raises(StoreError, match="cannot be written"):
            store.put_shared(2, piece(99))
        with pytest.raises(StoreError, match="cannot be written"):
            store.put_exclusive(2, "state", piece(99))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    files = [path for path in store.folder.rglob("*") if path.is_file() and path.name != "metadata"]
    assert {path.stat().st_size for path in files} == {SIZE}
    assert len(store.read(store.put_shared(2, piece(99)))) == SIZE and whole(store) == [1]


def test_a_file_that_is_gone_before_the_metadata_is_written_fails_the_checkpoint(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "wordy1")
    metadata = metadata_of(store, 1)
    victim = store.folder / files_of(metadata)[1].path
    victim.write_bytes(b"short")
    with pytest.raises(StoreError, match="has 5 bytes instead of 3000"):
        store.write_metadata(metadata)
    victim.unlink()
    with pytest.raises(StoreError, match="is missing"):
        store.write_metadata(metadata)
    assert store.checkpoints() == []
