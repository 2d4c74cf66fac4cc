"""Logs of other hosts are copied for as long as they are followed, whatever happens to the disk meanwhile."""

from __future__ import annotations

import os
import resource
import signal
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from heronpy.clusters import mirrored_logs
from heronpy.clusters.mirrored_logs import Mirror, append
from heronpy.common.errors import DeadlineError
from heronpy.proto import control_pb2, plan_pb2
from tests.support.waiting import wait_for


class Files:
    """One container with one log, which grows."""

    def __init__(self, *_: Any) -> None:
        self.text = b""

    async def ask_executor(self, container: int, request: Any) -> Any:
        if isinstance(request, control_pb2.ReadFile):
            data = self.text[request.offset : request.offset + request.bytes]
            return control_pb2.ReadFileReply(data=data, size=len(self.text), file=7)
        files = [] if container else [control_pb2.FileEntry(name="log-files/a.log", bytes=len(self.text))]
        return control_pb2.ListFilesReply(files=files)

    def close(self) -> None:
        pass


def test_a_disk_that_is_full_for_a_while_ends_nothing_and_repeats_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, said, full = Files(), list[str](), threading.Event()
    monkeypatch.setattr(mirrored_logs, "Master", lambda *_: files)
    monkeypatch.setattr(mirrored_logs, "AGAIN_S", 0.01)
    monkeypatch.setattr(mirrored_logs, "PIECE_BYTES", 4)
    session = SimpleNamespace(packing_plan=lambda name: plan_pb2.PackingPlan(), containers=lambda name: None)
    mirror = Mirror(session, plan_pb2.ExecutionState(topology="wc"), tmp_path, said.append)  # type: ignore[arg-type]
    stopped, copy = threading.Event(), tmp_path / "a.log"
    real = mirrored_logs.open_private

    def opens(path: Path, flags: int) -> int:
        # A device that takes nothing stands for the disk.
        return os.open("/dev/full", os.O_WRONLY) if full.is_set() else real(path, flags)

    monkeypatch.setattr(mirrored_logs, "open_private", opens)
    files.text = b"one\ntwo\n"
    mirror.follow(stopped)
    try:
        wait_for(lambda: copy.exists() and copy.read_bytes() == files.text, 20, "the copy")
        full.set()
        files.text += b"three\nfour\n"
        wait_for(lambda: said, 20, "the sentence")
        full.clear()
        wait_for(lambda: copy.read_bytes() == files.text, 20, "the rest")
    finally:
        stopped.set()
    assert said == [f"logs cannot be copied to {tmp_path}: No space left on device; trying again"]


def test_a_container_that_is_away_for_a_moment_is_not_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A topology that is followed to its end is not there any more, either, before its end is known."""
    said, asked = list[str](), list[int]()

    class Away(Files):
        async def ask_executor(self, container: int, request: Any) -> Any:
            asked.append(container)
            raise DeadlineError("no answer")

    monkeypatch.setattr(mirrored_logs, "Master", Away)
    monkeypatch.setattr(mirrored_logs, "AGAIN_S", 0.01)
    session = SimpleNamespace(packing_plan=lambda name: plan_pb2.PackingPlan(), containers=lambda name: None)
    mirror = Mirror(session, plan_pb2.ExecutionState(topology="wc"), tmp_path, said.append)  # type: ignore[arg-type]
    stopped = threading.Event()
    mirror.follow(stopped)
    wait_for(lambda: len(asked) > 3, 20, "some looks")
    stopped.set()
    assert not said
    monkeypatch.setattr(mirrored_logs, "PATIENCE_S", 0.05)
    stopped = threading.Event()
    mirror.follow(stopped)
    try:
        wait_for(lambda: said, 20, "the sentence")
    finally:
        stopped.set()
    assert said == ["the logs of container 0 cannot be read: no answer"]


def test_what_was_written_in_part_is_taken_back(tmp_path: Path) -> None:
    file = tmp_path / "a.log"
    append(file, b"whole\n")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))
    try:
        with pytest.raises(OSError, match="large"):
            append(file, b"there is no room for it\n")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert file.read_bytes() == b"whole\n"
