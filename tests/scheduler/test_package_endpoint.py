"""The archive of a package for other hosts: made once, the same each time, read in pieces."""

from __future__ import annotations

import asyncio
import hashlib
import os
from pathlib import Path

import pytest

from heronpy.common.errors import InvalidRpcError, PackageError, RetryableRpcError
from heronpy.scheduler.package_endpoint import ASKING_MAX, PIECE_BYTES, PackageEndpoint, pack_entry
from heronpy.storage.package_pieces import PackagePieces
from heronpy.storage.packages import PackageStore


def entry_in(folder: Path, name: str = "a") -> Path:
    source = folder / name / "topo"
    (source / "sub").mkdir(parents=True)
    (source / "main.py").write_text("print(1)\n")
    (source / "run.sh").write_text("#!/bin/sh\n")
    (source / "run.sh").chmod(0o755)
    (source / "sub" / "data").write_bytes(os.urandom(10) * PIECE_BYTES)
    return Path(PackageStore(folder / name / "packages").add(source).dir)


async def test_another_host_gets_the_same_package(tmp_path: Path) -> None:
    entry = entry_in(tmp_path)
    (tmp_path / "work").mkdir()
    endpoint = PackageEndpoint(str(entry), str(tmp_path / "work"))
    endpoint.start()
    made, pieces = await endpoint.archive(), [b""]
    while piece := await endpoint.read(entry.name, sum(map(len, pieces))):
        assert len(piece) <= PIECE_BYTES
        pieces.append(piece)
    archive = b"".join(pieces)
    assert len(archive) == made.size > 10 * PIECE_BYTES and hashlib.sha256(archive).digest() == made.sha256
    for package, offset in (("0" * 64, 0), ("", 0), ("../" + entry.name, 0)):
        with pytest.raises(InvalidRpcError, match="does not belong to this topology"):
            await endpoint.read(package, offset)
    assert await endpoint.read(entry.name, 2**64 - 1) == b""
    many = [asyncio.ensure_future(endpoint.read(entry.name, 0)) for _ in range(ASKING_MAX + 5)]
    answers = await asyncio.gather(*many, return_exceptions=True)
    assert sum(isinstance(one, RetryableRpcError) for one in answers) == 5
    there = PackageStore(tmp_path / "there")
    found = there.fetch(entry.name, lambda offset: archive[offset : offset + PIECE_BYTES], made.size, made.sha256)
    endpoint.remove()
    assert list((tmp_path / "work").iterdir()) == []
    for path in sorted(path.relative_to(entry) for path in entry.rglob("*") if path.is_file()):
        assert (found / path).read_bytes() == (entry / path).read_bytes()
    assert os.access(found / "run.sh", os.X_OK) == os.access(entry / "run.sh", os.X_OK)


async def test_the_archive_is_put_where_all_hosts_reach_it_and_goes_with_the_topology(tmp_path: Path) -> None:
    entry = entry_in(tmp_path)
    (tmp_path / "work").mkdir()
    place = tmp_path / "place"
    endpoint = PackageEndpoint(str(entry), str(tmp_path / "work"), "t-1", str(place))
    endpoint.start()
    made = await endpoint.archive()
    assert made.place == str(place)
    read = PackagePieces(str(place), "t-1").read
    assert hashlib.sha256(read(made.sha256, made.size, 0)).digest() == made.sha256
    endpoint.remove()
    assert not [path for path in place.rglob("*") if path.is_file()]


async def test_a_place_that_cannot_be_written_to_costs_the_place_alone(tmp_path: Path) -> None:
    entry = entry_in(tmp_path)
    (tmp_path / "work").mkdir()
    (tmp_path / "file").write_text("no folder")
    endpoint = PackageEndpoint(str(entry), str(tmp_path / "work"), "t-1", str(tmp_path / "file" / "place"))
    endpoint.start()
    made = await endpoint.archive()
    assert made.size and made.place == "" and await endpoint.read(entry.name, 0)
    endpoint.remove()


def test_equal_packages_give_equal_archives_and_one_is_made_once(tmp_path: Path) -> None:
    first = entry_in(tmp_path)
    sizes = [pack_entry(first, tmp_path / "1.tar"), pack_entry(first, tmp_path / "2.tar")]
    for path in first.rglob("*"):
        os.utime(path, (1, 1), follow_symlinks=False)
    sizes.append(pack_entry(first, tmp_path / "3.tar"))
    digests = {hashlib.sha256((tmp_path / f"{number}.tar").read_bytes()).digest() for number in (1, 2, 3)}
    assert len(digests) == len(set(sizes)) == 1
    assert (tmp_path / "1.tar").stat().st_mode & 0o777 == 0o600
    made = (tmp_path / "1.tar").stat().st_mtime_ns
    pack_entry(first, tmp_path / "1.tar")
    assert (tmp_path / "1.tar").stat().st_mtime_ns == made


def test_what_is_too_large_leaves_nothing(tmp_path: Path) -> None:
    entry = entry_in(tmp_path)
    with pytest.raises(PackageError, match="has grown"):
        pack_entry(entry, tmp_path / "x.tar", files_max=2)
    with pytest.raises(PackageError, match="cannot be packed"):
        pack_entry(tmp_path / "nowhere", tmp_path / "x.tar")
    assert not [path for path in tmp_path.iterdir() if "tar" in path.name]
