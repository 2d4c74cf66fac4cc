"""What a slot keeps on its disk: the newest map that it has taken, whole, of one epoch, or nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from heronpy.executor import slot_disk
from heronpy.executor.slot_disk import MAP, SlotDisk
from heronpy.pools.shards import BUCKETS, Map, Owner, Size, Spec, bucket_of

SPEC = Spec("Day", "Day-1", "submitted", {1: Size(1.0, 1 << 20)})
BUCKET = bucket_of("Day-1")


def known(number: int) -> Map:
    counts = tuple(1 if bucket == BUCKET else 0 for bucket in range(BUCKETS))
    return Map(number, (Owner(1, 7, number),), counts)


def test_the_newest_map_is_read_again_in_its_epoch_alone(tmp_path: Path) -> None:
    disk = SlotDisk(tmp_path / "pool", 7)
    assert disk.read() is None
    disk.keep(known(1), {BUCKET: (SPEC,)})
    disk.keep(known(2), {})
    disk.keep(known(1), {BUCKET: ()})
    again = SlotDisk(tmp_path / "pool", 7)
    assert again.read() == (known(2), {BUCKET: (SPEC,)})
    again.keep(known(1), {BUCKET: ()})
    assert SlotDisk(tmp_path / "pool", 7).read() == (known(2), {BUCKET: (SPEC,)}), "an older one is not kept"
    assert SlotDisk(tmp_path / "pool", 8).read() is None


@pytest.mark.parametrize("name", [MAP, f"specs-{BUCKET}"])
def test_what_is_damaged_or_incomplete_counts_for_nothing(tmp_path: Path, name: str) -> None:
    disk = SlotDisk(tmp_path / "pool", 7)
    disk.keep(known(1), {BUCKET: (SPEC,)})
    (tmp_path / "pool" / name).chmod(0o666)  # others may have written what it would start
    assert disk.read() is None
    (tmp_path / "pool" / name).chmod(0o600)
    assert disk.read() is not None
    (tmp_path / "pool" / name).write_bytes(b"\xc1")
    assert disk.read() is None
    (tmp_path / "pool" / name).unlink()
    assert disk.read() is None


def test_on_a_full_disk_no_older_map_stays_and_what_was_not_written_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, write = SlotDisk(tmp_path / "pool", 7), slot_disk.replace_file
    disk.keep(known(1), {BUCKET: (SPEC,)})

    def full(path: Path, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(slot_disk, "replace_file", full)
    newer = replace(SPEC, restarts={1: 1})
    disk.keep(known(2), {BUCKET: (newer,)})
    assert disk.read() is None
    monkeypatch.setattr(slot_disk, "replace_file", write)
    disk.keep(known(3), {})
    assert disk.read() == (known(3), {BUCKET: (newer,)})
