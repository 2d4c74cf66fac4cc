"""The end of a log, for a look."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from heronpy.clusters import log_ends
from heronpy.clusters.errors import ClusterError
from heronpy.clusters.session import Session
from heronpy.clusters.target import Common, Target
from heronpy.common.log_format import format_record
from heronpy.proto import control_pb2
from tests.cli.conftest import FakeTopology

TASK = "container_1_count_2"


def test_records_are_short_and_what_follows_them_stands_below() -> None:
    text = format_record(1e9, "WARN", TASK, "user", "first\nsecond \x1b[2J")
    data = f"half of a line\n{text}\nraw | crashed\n".encode()
    assert log_ends.lines_of(control_pb2.ReadFileReply(data=data, offset=10)) == [
        "01:46:40 WARN  first", "    second \\x1b[2J", "raw | crashed",
    ]  # fmt: skip
    assert log_ends.lines_of(control_pb2.ReadFileReply()) == []


def test_what_is_shown_is_bounded() -> None:
    data = b"x" * 100_000 + b"\n" + b"y\n" * 1000
    found = log_ends.lines_of(control_pb2.ReadFileReply(data=data))
    assert found == ["y"] * log_ends.LINES_MAX
    [line] = log_ends.lines_of(control_pb2.ReadFileReply(data=b"x" * 100_000, offset=5))
    assert line == "x" * log_ends.LINE_MAX


def test_without_its_executor_the_file_on_this_machine_is_read(wordy: FakeTopology, home: Path) -> None:
    session = Session(Target("local"), Common())
    status = control_pb2.StatusReply()
    with pytest.raises(ClusterError, match="executor of container 1 is not registered"):
        log_ends.log_tail(session, "wordy", status, TASK, 1.0)
    record = session.find("wordy")
    logs = Path(record.working_dir, "log-files")
    logs.mkdir(parents=True, mode=0o700, exist_ok=True)
    descriptor = os.open(logs / f"{TASK}.log", os.O_WRONLY | os.O_CREAT, 0o600)
    os.write(descriptor, b"the end\n")
    os.close(descriptor)
    assert log_ends.log_tail(session, "wordy", status, TASK, 1.0) == ["the end"]
