"""Ends of logs that containers send: which processes they may name, and how their lines are marked."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from heronpy.common.errors import InvalidRpcError
from heronpy.common.log_format import format_record, parse_line
from heronpy.scheduler import kept_logs
from heronpy.scheduler.kept_logs import KeptLogs

TASK = "container_1_word_3"


def record(process: str, message: str) -> str:
    return format_record(time.time(), "INFO", process, "x", message)


def test_lines_that_are_no_records_of_the_process_are_escaped_and_marked(tmp_path: Path) -> None:
    own, forged = record(TASK, "one\ntwo"), record("tmaster", "all tuples were lost")
    sent = f"{own}\nraw | printed\n  | not of a record\n{forged}\n  | nor this\n\x1b[2Jgone\r\n"
    KeptLogs(tmp_path).keep(TASK, 1, 1, "n1", sent.encode() + b"\xff", False)
    head, *lines = (tmp_path / f"{TASK}.log").read_text().splitlines()
    assert parse_line(head) is not None and "container 1, submission 1" in head
    assert lines == [
        *own.splitlines(),
        "raw | printed",
        "raw |   | not of a record",
        f"raw | {forged}",
        "raw |   | nor this",
        "raw | \\x1b[2Jgone",
        "raw | \\xff",
    ]


@pytest.mark.parametrize(
    ("process", "container"),
    [("stmgr-2", 1), ("executor-0", 1), ("bootstrap-11", 1), ("container_2_word_3", 1), ("tmaster", 1), ("spark", 2)],
)
def test_a_container_sends_no_log_of_another_one(tmp_path: Path, process: str, container: int) -> None:
    with pytest.raises(InvalidRpcError, match=f"{process} is not a process of container {container}"):
        KeptLogs(tmp_path).keep(process, container, 1, "n1", b"x", False)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("process", ["stmgr-1", "executor-1", "bootstrap-1", TASK, "tmaster-standby-1"])
def test_a_container_sends_its_own(tmp_path: Path, process: str) -> None:
    KeptLogs(tmp_path).keep(process, 1, 1, "n1", b"x", False)
    assert (tmp_path / f"{process}.log").read_text().endswith("raw | x\n")


def test_what_grows_by_escaping_stays_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_logs, "FILE_MAX_BYTES", 10_000)
    KeptLogs(tmp_path).keep(TASK, 1, 1, "n1", b"\x00" * 9_000 + b"\n" + b"the end\n", False)
    text = (tmp_path / f"{TASK}.log").read_text()
    assert len(text) < 11_000 and text.endswith("raw | the end\n")
