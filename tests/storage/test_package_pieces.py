"""The archive of a package in a shared folder or an object store: in pieces, whole, and gone with its topology."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from heronpy.common.errors import RetryableRpcError
from heronpy.storage import package_pieces
from heronpy.storage.objects.port import MissingObjectError
from heronpy.storage.package_pieces import PackagePieces, either
from tests.support.object_server import ObjectServer

PIECE = 1000


@pytest.fixture(params=["folder", "store"])
def place(request: pytest.FixtureRequest, tmp_path: Path, object_server: ObjectServer) -> str:
    """The server is of the whole run, so it starts before a test is watched for what it leaves."""
    return request.getfixturevalue("bucket") if request.param == "store" else str(tmp_path / "place")


@pytest.mark.parametrize("size", [0, 1, PIECE, 3 * PIECE + 7])
def test_what_is_put_is_read_in_pieces(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(package_pieces, "PIECE_BYTES", PIECE)
    data = os.urandom(size)
    (tmp_path / "archive").write_bytes(data)
    digest = hashlib.sha256(data).digest()
    for topology in ("t-1", "t-2"):
        PackagePieces(place, topology).put(tmp_path / "archive", digest)
    there = PackagePieces(place, "t-1")
    there.put(tmp_path / "archive", digest)  # again, as by the next scheduler
    found = b""
    while piece := there.read(digest, size, len(found)):
        assert len(piece) <= PIECE
        found += piece
    assert found == data
    assert there.read(digest, size, max(0, size - 1)) == data[-1:]
    there.remove()
    if size:
        with pytest.raises(MissingObjectError):
            there.read(digest, size, 0)
        assert PackagePieces(place, "t-2").read(digest, size, 0) == data[:PIECE], "another topology keeps its own"


def test_the_other_source_goes_on_where_the_first_one_failed() -> None:
    failed: list[Exception] = []

    def first(offset: int) -> bytes:
        if offset:
            raise RetryableRpcError("away")
        return b"ab"

    read = either(first, lambda offset: b"abcd"[offset : offset + 1], failed.append)
    assert [read(offset) for offset in (0, 2, 3, 4)] == [b"ab", b"c", b"d", b""]
    assert len(failed) == 1, "it is not asked again"


def test_whoever_begins_again_has_the_other_source() -> None:
    read = either(lambda offset: b"wrong", lambda offset: b"right", lambda error: None)
    assert read(0) == b"wrong"
    assert read(0) == b"right"
