"""What a container's processes leave behind: last words, whether they lacked memory, stacks on request."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from heronpy.common.log_format import parse_line
from heronpy.common.setting_types import InstanceSettings, LoggingSettings, StmgrSettings
from heronpy.executor import child_logs
from heronpy.executor.child_logs import STACKS_MARK, ChildLogs
from heronpy.executor.desired import INSTANCE, REPLICATOR, SPARK_GATEWAY, STANDBY, STMGR, TMASTER
from heronpy.executor.records import process_record
from heronpy.procs.exit_reason import ExitReason
from heronpy.procs.supervision import Ended, ProcessSpec, ProcessState, ProcessView
from heronpy.procs.usage import Usage
from heronpy.proto import control_pb2
from heronpy.task.name import TaskName
from instance.bolt_loop import BoltTask
from tests.support.control import FakeControl

Report = control_pb2.ExceptionReport


class Exhausted(MemoryError):
    """A library's own name for it."""


def termination_report(folder: Path, output: bytes, exception: Report | None, killed: bool = False) -> tuple[str, bool]:
    async def main() -> tuple[str, bool]:
        logs = ChildLogs(folder, LoggingSettings())
        with os.fdopen(logs.open_output("word"), "wb") as out:
            out.write(output)
        try:
            return logs.termination_report("word", exception, killed)
        finally:
            logs.close()

    return asyncio.run(main())


@pytest.mark.parametrize(
    ("exception", "words"),
    [
        (Report(type="MemoryError", message="no more", out_of_memory=True), ("MemoryError: no more", True)),
        (Report(type="Exhausted", out_of_memory=True), ("Exhausted", True)),
        (Report(type="billing.MemoryError", message="of a customer"), ("billing.MemoryError: of a customer", False)),
        (None, ("the end", False)),
    ],
)
def test_memory_is_known_from_the_report_and_not_from_its_words(
    tmp_path: Path, exception: Report | None, words: tuple[str, bool]
) -> None:
    assert termination_report(tmp_path, b"the end\n", exception) == words


@pytest.mark.parametrize("raised", [False, True])
async def test_the_log_of_a_task_says_why_it_was_killed(tmp_path: Path, raised: bool) -> None:
    """It ended in the middle of its work: who read the log of the task saw the next start, and no word of memory."""
    echoed: list[bytes] = []
    logs = ChildLogs(tmp_path, LoggingSettings(), lambda name, data: echoed.append(data))
    with os.fdopen(logs.open_output("word"), "wb") as out:
        out.write(b"at work\n")
    logs.termination_report("word", None, True)
    why = "its resident memory peaked at 122MB, above the limit of 120MB"
    logs.ended(Ended(ProcessSpec("word", INSTANCE), ExitReason.OOM, why, raised))
    logs.ended(Ended(ProcessSpec("word", INSTANCE), ExitReason.STARTUP_FAILURE, "as its last line says"))
    logs.ended(Ended(ProcessSpec("gone", INSTANCE), ExitReason.KILLED, "SIGKILL"))
    os.close(logs.open_output("word"))
    assert logs.termination_report("word", None, False)[0] == "", "these are no words of the next one"
    logs.close()
    lines = (tmp_path / "word.log").read_text().splitlines()
    assert lines[0] == "raw | at work" and b"".join(echoed).decode().splitlines() == lines
    told = [parse_line(line) for line in lines[1:]]
    if raised:
        assert told == [], "its traceback says it"
    else:
        [record] = told
        assert record is not None and (record.level, record.logger) == ("WARN", "heronpy.executor")
        assert record.message == ("word has ended: oom: its resident memory peaked at 122MB, above the limit of 120MB")


def test_what_was_reported_at_some_time_has_not_caused_a_kill(tmp_path: Path) -> None:
    """A worker reports each failed try and goes on; whoever kills it later is not user code."""
    report = Report(type="UserCodeError", message="unit 3, try 1: ValueError")
    assert termination_report(tmp_path, b"the end\n", report, killed=True) == ("", False)
    exhausted = Report(type="MemoryError", out_of_memory=True)
    assert termination_report(tmp_path, b"", exhausted, killed=True) == ("MemoryError", True)


def test_who_reported_nothing_is_judged_by_what_the_interpreter_printed(tmp_path: Path) -> None:
    assert termination_report(tmp_path, b"terminate called after throwing 'std::bad_alloc'\n", None)[1]
    assert termination_report(tmp_path, b"the end\n", None, killed=True) == ("", False)


@pytest.mark.parametrize(
    ("error", "out_of_memory"), [(MemoryError(), True), (Exhausted(), True), (ValueError("MemoryError"), False)]
)
def test_a_task_tells_whether_it_lacked_memory(error: Exception, out_of_memory: bool) -> None:
    task: Any = BoltTask(None, InstanceSettings(), StmgrSettings(), TaskName(2, 7, "sink", 1))  # type: ignore[arg-type]
    task.control = FakeControl()
    task.report_exception(error)
    [report] = task.control.reports
    assert report.out_of_memory == out_of_memory and report.type == type(error).__name__


async def test_stacks_are_what_comes_after_asking(tmp_path: Path) -> None:
    logs = ChildLogs(tmp_path, LoggingSettings())
    with os.fdopen(logs.open_output("word"), "wb", buffering=0) as out:
        dumped = await logs.stacks("word", lambda: out.write(b"Thread 1 (" + STACKS_MARK + b"):\n") and None)
        unknown = await logs.stacks("other", lambda: pytest.fail("it does not run"))
    logs.close()
    assert dumped is not None and STACKS_MARK.decode() in dumped and unknown is None


def test_a_process_that_cannot_print_yet_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_logs, "STACKS_WAIT_S", 0.05)
    monkeypatch.setattr(child_logs, "STACKS_QUIET_S", 0.01)
    asked: list[None] = []

    async def main() -> str | None:
        logs = ChildLogs(tmp_path, LoggingSettings())
        with os.fdopen(logs.open_output("word"), "wb", buffering=0) as out:

            def ask() -> None:
                asked.append(None)
                if len(asked) == 3:
                    out.write(b"Thread 1 (" + STACKS_MARK + b"):\n")

            printed = await logs.stacks("word", ask)
        logs.close()
        return printed

    assert STACKS_MARK.decode() in (asyncio.run(main()) or "") and len(asked) >= 3


@pytest.mark.parametrize(
    ("role", "kind"),
    [
        (STMGR, control_pb2.PROCESS_STMGR),
        (INSTANCE, control_pb2.PROCESS_TASK),
        *((role, control_pb2.PROCESS_OTHER) for role in (TMASTER, STANDBY, SPARK_GATEWAY, REPLICATOR)),
    ],
)
def test_the_record_of_a_process_tells_its_kind(role: str, kind: Any) -> None:
    view = ProcessView(ProcessSpec("stmgr-like-name", role), ProcessState.RUNNING, 1, 1, 0, None, "")
    assert process_record(view, Usage(), 0.0, 1, 0.0).kind == kind
