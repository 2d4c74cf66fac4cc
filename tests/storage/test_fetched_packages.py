"""A package that another host has: its archive is read once, and an entry is whole or absent."""

from __future__ import annotations

import hashlib
import io
import tarfile
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from heronpy.common.errors import DeadlineError, PackageError
from heronpy.storage.packages import PackageStore

DIGEST = "c3" * 32


def archive(files: dict[str, bytes]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return made.getvalue()


class Other:
    def __init__(self, data: bytes, piece: int = 1000) -> None:
        self.data, self.piece, self.reads = data, piece, 0
        self.digest = hashlib.sha256(data).digest()

    def read(self, offset: int) -> bytes:
        self.reads += 1
        return self.data[offset : offset + self.piece]


def left(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.suffix != ".lock")


def test_it_is_read_to_its_end_and_only_once(tmp_path: Path) -> None:
    other, store = Other(archive({"word": b"x" * 5000, "pkg/__init__.py": b""})), PackageStore(tmp_path / "p")
    entry = store.fetch(DIGEST, other.read, len(other.data), other.digest)
    assert (entry / "word").read_bytes() == b"x" * 5000 and (entry / "pkg/__init__.py").exists()
    reads = other.reads
    assert store.fetch(DIGEST, other.read, len(other.data), other.digest) == entry and other.reads == reads
    assert not list((tmp_path / "p" / ".tmp").iterdir())


def test_of_those_who_want_it_at_once_one_reads(tmp_path: Path) -> None:
    other, entries = Other(archive({"word": b"x" * 200_000})), []
    threads = [
        threading.Thread(
            target=lambda: entries.append(
                PackageStore(tmp_path).fetch(DIGEST, other.read, len(other.data), other.digest)
            )
        )
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert entries == [tmp_path / DIGEST] * 4 and other.reads == -(-len(other.data) // other.piece) + 1


def _whole(read: Callable[[int], bytes]) -> bytes:
    """The digest of what a reader gives."""
    found, offset = hashlib.sha256(), 0
    with suppress(DeadlineError):
        while piece := read(offset):
            found.update(piece)
            offset += len(piece)
    return found.digest()


def test_one_that_is_damaged_on_its_way_is_read_again(tmp_path: Path) -> None:
    other = Other(archive({"word": b"x" * 5000}))

    def read(offset: int) -> bytes:
        piece = other.read(offset)
        # One letter of the content is another one, the first time.
        return piece.replace(b"x", b"y", 1) if other.reads == 2 else piece

    entry = PackageStore(tmp_path).fetch(DIGEST, read, len(other.data), other.digest)
    assert (entry / "word").read_bytes() == b"x" * 5000


def test_one_that_stays_damaged_is_never_entered(tmp_path: Path) -> None:
    """It is whole, and a sound archive; only its content is another one than was announced."""
    other, announced = Other(archive({"word": b"y"})), Other(archive({"word": b"x"}))
    with pytest.raises(PackageError, match=f"arrived damaged 2 times: .* of digest {announced.digest.hex()[:16]} were"):
        PackageStore(tmp_path).fetch(DIGEST, other.read, len(other.data), announced.digest)
    assert left(tmp_path) == [".locks", ".manifests", ".tmp"]


def _away(offset: int) -> bytes:
    raise DeadlineError("the control endpoint does not answer")


@pytest.mark.parametrize(
    ("read", "size", "words"),
    [
        (Other(archive({"word": b"x"})).read, 99_999, "damaged 2 times: its archive arrived with 10240 of 99999 bytes"),
        (Other(archive({"word": b"x"}) + b"more").read, 10_240, r"its archive arrived with 10244 of 10240 bytes"),
        (Other(b"noise" * 1000).read, 5000, "damaged"),
        (Other(archive({"../out": b"x"})).read, 10_240, "leads out of the package"),
        (_away, 10, "does not answer"),
        (_away, 1 << 60, "leave some files out"),
    ],
)
def test_what_is_not_whole_is_no_entry(tmp_path: Path, read: Callable[[int], bytes], size: int, words: str) -> None:
    store = PackageStore(tmp_path)
    with pytest.raises((PackageError, DeadlineError), match=words):
        store.fetch(DIGEST, read, size, _whole(read))
    assert left(tmp_path) in ([".locks", ".manifests", ".tmp"], [])  # or refused before anything was made
    other = Other(archive({"word": b"x"}))
    assert (store.fetch(DIGEST, other.read, len(other.data), other.digest) / "word").read_bytes() == b"x"


def test_a_name_that_is_no_digest_leads_nowhere(tmp_path: Path) -> None:
    with pytest.raises(PackageError, match="is not named by its digest"):
        PackageStore(tmp_path).fetch("../../etc", _away, 10, b"")


def test_an_entry_that_was_changed_is_refused(tmp_path: Path) -> None:
    other, store = Other(archive({"word": b"x"})), PackageStore(tmp_path)
    (store.fetch(DIGEST, other.read, len(other.data), other.digest) / "word").write_bytes(b"y")
    with pytest.raises(PackageError, match="has 'word' with content that differs from the submitted file"):
        store.fetch(DIGEST, other.read, len(other.data), other.digest)


def test_bytecode_is_left_out(tmp_path: Path) -> None:
    other = Other(archive({"word.py": b"", "__pycache__/word.cpython-311.pyc": b""}))
    entry = PackageStore(tmp_path).fetch(DIGEST, other.read, len(other.data), other.digest)
    assert [path.name for path in entry.iterdir()] == ["word.py"]
