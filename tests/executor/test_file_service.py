"""The file service opens what its container has written, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from heronpy.common.errors import InvalidRpcError
from heronpy.executor.file_service import READ_MAX_BYTES, ContainerFiles, belongs
from heronpy.proto import control_pb2


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("log-files", "dead-letters", "other"):
        (tmp_path / name).mkdir()
    for name in ("stmgr-1.log", "stmgr-1.log.1", "stmgr-2.log", "container_1_word_3.log", "tmaster.log", "x.txt"):
        (tmp_path / "log-files" / name).write_text(f"of {name}\n")
    (tmp_path / "dead-letters" / "container_1_word_3.jsonl").write_text("{}\n")
    (tmp_path / "launch.json").write_text("secret")
    return tmp_path


def names(folder: Path, container: int) -> list[str]:
    return [file.name for file in ContainerFiles(folder, container).listed().files]


def read(folder: Path, name: str, **more: int | bool) -> control_pb2.ReadFileReply:
    return ContainerFiles(folder, 1).read(control_pb2.ReadFile(name=name, **more))  # type: ignore[arg-type]


def test_each_container_lists_its_own(folder: Path) -> None:
    own = ["log-files/container_1_word_3.log", "log-files/stmgr-1.log", "log-files/stmgr-1.log.1"]
    assert names(folder, 1) == [*own, "dead-letters/container_1_word_3.jsonl"]
    assert names(folder, 2) == ["log-files/stmgr-2.log"]
    assert names(folder, 0) == ["log-files/tmaster.log"]
    assert names(folder / "nothing", 0) == []


@pytest.mark.parametrize(
    "name",
    ["launch.json", "../launch.json", "log-files/../launch.json", "/etc/passwd", "log-files//etc/passwd", "log-files/",
     "log-files/..", "log-files/x.txt", "log-files/stmgr-2.log", "log-files/tmaster.log", "other/stmgr-1.log", "",
     "log-files/stmgr-1.log\0", "log-files/stmgr-1.log.99999", "dead-letters/stmgr-1.log",
     "log-files/..\\launch.json", "log-files/%2e%2e/launch.json"],
)  # fmt: skip
def test_no_other_name_is_opened(name: str, folder: Path) -> None:
    with pytest.raises(InvalidRpcError):
        read(folder, name)


def test_links_and_what_is_no_file_are_refused(folder: Path) -> None:
    logs = folder / "log-files"
    (logs / "stmgr-1.log").unlink()
    (logs / "stmgr-1.log").symlink_to(folder / "launch.json")
    os.mkfifo(logs / "executor-1.log")
    (logs / "container_1_word_4.log").mkdir()
    for name in ("stmgr-1.log", "executor-1.log", "container_1_word_4.log"):
        with pytest.raises(InvalidRpcError):
            read(folder, f"log-files/{name}")
        assert f"log-files/{name}" not in names(folder, 1)
    logs.rename(folder / "moved")
    logs.symlink_to(folder / "moved")
    with pytest.raises(InvalidRpcError):
        read(folder, "log-files/container_1_word_3.log")
    assert names(folder, 1) == ["dead-letters/container_1_word_3.jsonl"]


def test_pieces_are_bounded(folder: Path) -> None:
    path = folder / "log-files" / "stmgr-1.log"
    path.write_bytes(bytes(range(256)) * 4096)
    assert len(read(folder, "log-files/stmgr-1.log", bytes=(1 << 32) - 1).data) == READ_MAX_BYTES
    last = read(folder, "log-files/stmgr-1.log", bytes=10, from_end=True)
    assert (last.offset, last.size, last.data) == ((1 << 20) - 10, 1 << 20, bytes(range(246, 256)))
    assert read(folder, "log-files/stmgr-1.log", offset=(1 << 64) - 1).data == b""
    path.rename(path.with_name("stmgr-1.log.1"))
    path.write_text("new")
    assert read(folder, "log-files/stmgr-1.log").file != last.file, "a rotated file is another one"


@pytest.mark.parametrize(
    ("process", "container", "mine"),
    [("stmgr-1", 1, True), ("stmgr-11", 1, False), ("container_1_x_2", 1, True), ("container_11_x_2", 1, False),
     ("tmaster", 0, True), ("tmaster", 1, False), ("executor-0", 0, True), ("executor-1", 0, False),
     ("stmgr-1", 0, False), ("container_1_x_2", 0, False), ("stmgr-x", 0, True)],
)  # fmt: skip
def test_whose_a_process_is(process: str, container: int, mine: bool) -> None:
    assert belongs(process, container) is mine


@pytest.mark.parametrize(
    ("process", "mine"),
    [("tmaster-standby-1", True), ("stmgr-1", True), ("stmgr-2", False), ("container_2_x_2", False)],
)
def test_in_a_folder_of_its_own_a_container_has_what_names_none(process: str, mine: bool) -> None:
    """As a standby topology master, which leads after a fault: its log is the one that matters then."""
    assert belongs(process, 1, alone=True) is mine


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("log-files/container_1_a_1.log", ""),
        ("log-files/container_1_a_1.log", "two\nlines"),
        ("log-files/container_1_a_1.log", "x" * 1001),
        ("log-files/../secret.log", "x"),
        ("log-files/container_2_a_1.log", "x"),
        ("dead-letters/container_1_a_1.jsonl", "x"),
        ("", "x"),
    ],
)
def test_only_listed_logs_are_searched_and_only_for_a_line(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / "log-files").mkdir()
    (tmp_path / "log-files" / "container_1_a_1.log").write_text("x\n")
    with pytest.raises(InvalidRpcError):
        ContainerFiles(tmp_path, 1).search(control_pb2.SearchFile(name=name, text=text, until=9, hits=9))


def test_a_link_in_place_of_a_log_is_not_searched(tmp_path: Path) -> None:
    (tmp_path / "log-files").mkdir()
    (tmp_path / "secret").write_text("password\n")
    (tmp_path / "log-files" / "container_1_a_1.log").symlink_to(tmp_path / "secret")
    request = control_pb2.SearchFile(name="log-files/container_1_a_1.log", text="password", until=99, hits=9)
    assert not ContainerFiles(tmp_path, 1).search(request).hits
