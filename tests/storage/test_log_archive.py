"""Logs in a shared folder or an object store: whole, by run, and nothing but logs."""

from __future__ import annotations

from pathlib import Path

import pytest

from heronpy.storage.log_archive import LogArchive, Run, newest_first
from heronpy.storage.objects.port import ObjectsError
from tests.support.object_server import ObjectServer


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
