"""Logs in a shared folder or an object store: whole, by run, and nothing but logs."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from heronpy.storage import log_archive
from heronpy.storage.log_archive import LogArchive, Run, newest_first
from heronpy.storage.objects.port import ObjectsError
from heronpy.storage.package_pieces import PackagePieces
from tests.security.other_user import needs_root, run_as_nobody
from tests.support.object_server import ObjectServer

RUN = Run(1, 1, "n1")


@pytest.fixture(params=["folder", "store"])
def place(request: pytest.FixtureRequest, tmp_path: Path, object_server: ObjectServer) -> str:
    """The server is of the whole run, so it starts before a test is watched for what it leaves."""
    return request.getfixturevalue("bucket") if request.param == "store" else str(tmp_path / "archive")


def test_what_is_put_is_found_by_run(place: str, tmp_path: Path) -> None:
    archive, run, other = LogArchive(place, "wc-1"), Run(1, 2, "n1"), Run(0, 1, "n2 (odd/../host)")
    for name, content in (("a.log", b"new"), ("a.log.1", b"old")):
        (tmp_path / name).write_bytes(content)
        archive.put(run, tmp_path / name)
    archive.put(run, tmp_path / "a.log")  # again, as after an answer that was lost
    archive.put(other, tmp_path / "a.log")
    LogArchive(place, "wc-2").put(run, tmp_path / "a.log")
    found = LogArchive(place, "wc-1").runs()
    assert found == {run: {"a.log": 3, "a.log.1": 3}, Run(0, 1, "n2__odd_.._host_"): {"a.log": 3}}
    assert archive.get(run, "a.log.1") == b"old"
    here = archive.folder_of(run)
    if here is not None:
        assert (here / "log-files" / "a.log").read_bytes() == b"new"
        assert here.stat().st_mode & 0o777 == 0o700 and (here / "log-files" / "a.log").stat().st_mode & 0o777 == 0o600
    assert LogArchive(place, "none").runs() == {}


def test_what_others_have_put_there_is_left_out(tmp_path: Path) -> None:
    for name in ("1.1@n1/log-files/.hidden.log", "1.1@n1/log-files/a.txt", "1.1/log-files/a.log", "1.1@n1/a.log"):
        (tmp_path / "wc-1" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "wc-1" / name).touch()
    assert LogArchive(str(tmp_path), "wc-1").runs() == {}


def test_a_place_that_takes_nothing_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ObjectsError, match="file"):
        LogArchive(str(tmp_path / "file"), "wc-1").put(Run(1, 1, "n"), tmp_path / "file")


def test_what_is_written_to_goes_first() -> None:
    assert newest_first(["b.log.2", "b.log", "a.log.10", "a.log.1", "a.log"]) == [
        "a.log", "b.log", "a.log.1", "b.log.2", "a.log.10",
    ]  # fmt: skip


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder in which each user may make files, as /tmp."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        os.chmod(folder, 0o1777)
        yield Path(folder)


@needs_root
@pytest.mark.parametrize("of", ["all", "the topology"])
def test_a_folder_of_another_user_is_neither_read_nor_written(tmp_path: Path, shared: Path, of: str) -> None:
    place = shared / "archive" if of == "all" else shared
    run_as_nobody(
        "import os, sys; os.umask(0); os.makedirs(sys.argv[1]); open(sys.argv[1] + '/a.log', 'w').write('forged')",
        str(place / "wc-1" / Run(1, 2, "n1").name / "log-files"),
    )
    (tmp_path / "a.log").write_bytes(b"mine")
    archive = LogArchive(str(place), "wc-1")
    forged = Run(1, 2, "n1")
    put = partial(archive.put, RUN, tmp_path / "a.log")
    for call in (archive.runs, lambda: archive.get(forged, "a.log"), put):
        with pytest.raises(ObjectsError, match="belongs to another user"):
            call()
    pieces = PackagePieces(str(place), "wc-1")
    for call in (pieces.remove, lambda: pieces.put(tmp_path / "a.log", b"d"), lambda: pieces.read(b"d", 4, 0)):
        with pytest.raises(ObjectsError, match="belongs to another user"):
            call()
    assert (place / "wc-1" / "1.2@n1" / "log-files" / "a.log").read_text() == "forged"
    assert not (place / "wc-1" / RUN.name).exists()


def test_links_and_what_is_no_file_are_not_read(tmp_path: Path) -> None:
    archive = LogArchive(str(tmp_path / "archive"), "wc-1")
    (tmp_path / "a.log").write_bytes(b"mine")
    archive.put(RUN, tmp_path / "a.log")
    folder = tmp_path / "archive" / "wc-1" / RUN.name / "log-files"
    (folder / "b.log").symlink_to(tmp_path / "a.log")
    os.mkfifo(folder / "c.log")
    assert archive.runs() == {RUN: {"a.log": 4}}
    for name in ("b.log", "c.log"):
        with pytest.raises(ObjectsError):
            archive.get(RUN, name)


def test_what_is_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_archive, "LOG_MAX_BYTES", 3)
    archive = LogArchive(str(tmp_path / "archive"), "wc-1")
    (tmp_path / "a.log").write_bytes(b"mine")
    archive.put(RUN, tmp_path / "a.log")
    with pytest.raises(ObjectsError, match="larger than 3 bytes"):
        archive.get(RUN, "a.log")
