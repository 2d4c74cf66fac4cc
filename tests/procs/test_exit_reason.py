"""Exit statuses and what they are taken for."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from heronpy.procs.exit_reason import (
    ExitHints,
    ExitReason,
    by_user_code,
    classify,
    describe_end,
    describe_status,
    detail_of,
)
from heronpy.procs.host import OomCounter, counter_files
from heronpy.procs.supervision import EXITS
from heronpy.proto import control_pb2


@pytest.mark.parametrize(
    ("status", "hints", "reason"),
    [
        (0, ExitHints(user_code=True), ExitReason.OK),
        (0, ExitHints(), ExitReason.PREEMPTED),
        (143 << 8, ExitHints(user_code=True, announced=True), ExitReason.PREEMPTED),
        (0, ExitHints(asked=True), ExitReason.PREEMPTED),
        (9, ExitHints(), ExitReason.KILLED),
        (9, ExitHints(oom_moved=True), ExitReason.OOM),
        (9, ExitHints(asked=True, oom_moved=True), ExitReason.PREEMPTED),
        (9, ExitHints(at_limit=True), ExitReason.OOM),
        (15, ExitHints(at_limit=True), ExitReason.PREEMPTED),
        (9, ExitHints(hung=True), ExitReason.HUNG),
        (15, ExitHints(), ExitReason.PREEMPTED),
        (11, ExitHints(), ExitReason.CRASHED),
        (11 | 0x80, ExitHints(), ExitReason.CRASHED),
        (137 << 8, ExitHints(), ExitReason.OOM),
        (3 << 8, ExitHints(), ExitReason.STARTUP_FAILURE),
        (3 << 8, ExitHints(asked=True), ExitReason.STARTUP_FAILURE),
        (4 << 8, ExitHints(), ExitReason.USER_EXCEPTION),
        (4 << 8, ExitHints(memory_error=True), ExitReason.OOM),
        (5 << 8, ExitHints(), ExitReason.FENCED),
        (6 << 8, ExitHints(), ExitReason.LOST_HOST),
        (8 << 8, ExitHints(), ExitReason.REWOUND),
        (9 << 8, ExitHints(user_code=True, announced=True), ExitReason.LOST_HOST),
        (6, ExitHints(), ExitReason.CRASHED),
        (6, ExitHints(memory_error=True), ExitReason.OOM),
        (0, ExitHints(overgrown=True), ExitReason.OOM),
        (7 << 8, ExitHints(), ExitReason.FINISHED),
        (1 << 8, ExitHints(user_code=True), ExitReason.OWN_BUG),
        (12 << 8, ExitHints(), ExitReason.CRASHED),
        (42 << 8, ExitHints(), ExitReason.OWN_BUG),
    ],
)
def test_classify(status: int, hints: ExitHints, reason: ExitReason) -> None:
    assert classify(status, hints) is reason


@given(st.integers(2, 255).filter(lambda code: code != 137), st.booleans(), st.booleans())
def test_a_code_that_user_code_chose_is_a_crash_whatever_it_means_to_us(
    code: int, asked: bool, memory_error: bool
) -> None:
    hints = ExitHints(user_code=True, asked=asked, memory_error=memory_error)
    crashed = ExitReason.OOM if memory_error else ExitReason.CRASHED
    assert classify(code << 8, hints) is (ExitReason.PREEMPTED if asked else crashed)
    assert describe_end(code << 8, hints) == f"user code ended the process with exit code {code}"


@given(st.integers(0, 255), st.booleans(), st.booleans())
def test_an_announced_code_means_what_it_means_from_a_process_without_user_code(
    code: int, asked: bool, memory_error: bool
) -> None:
    hints = ExitHints(asked=asked, memory_error=memory_error)
    ours = classify(code << 8, hints)
    announced = replace(hints, user_code=True, announced=True)
    # User code may end its input with sys.exit(0); a daemon ends in order only when a signal asks it to.
    in_order = code == 0 and not asked
    assert classify(code << 8, announced) is ((ExitReason.OOM if memory_error else ExitReason.OK) if in_order else ours)
    assert describe_end(code << 8, announced) == describe_status(code << 8)


@pytest.mark.parametrize("status", [0, 1 << 8, 9, 11, 15, 137 << 8])
def test_what_means_the_same_from_everyone_needs_no_announcement(status: int) -> None:
    hints = ExitHints(user_code=True)
    assert classify(status, hints) is classify(status, replace(hints, announced=True))
    assert not by_user_code(status, hints)


def test_an_exit_code_0_of_user_code_is_told_as_its_own() -> None:
    """It was told by the last line of its log, such as "task 2 of work starts"."""
    mine = ExitHints(user_code=True)
    assert detail_of(0, mine, "") == "user code ended the process with exit code 0"
    told = detail_of(0, mine, "task 2 of work, epoch 65537, starts")
    assert told == "user code ended the process with exit code 0; its last output: task 2 of work, epoch 65537, starts"
    assert detail_of(7 << 8, mine, "bye") == "user code ended the process with exit code 7; its last output: bye"
    assert detail_of(0, ExitHints(user_code=True, announced=True), "at its end") == "at its end"
    assert detail_of(0, ExitHints(), "stopped") == "stopped", "a daemon's"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("SystemExit: 0", "user code called sys.exit(0)"),
        ("SystemExit", "user code called sys.exit()"),
        ("SystemExit: no input: x", "user code called sys.exit(no input: x)"),
        ("SystemExitWanted: 0", "SystemExitWanted: 0"),
        ("ValueError: 7", "ValueError: 7"),
    ],
)
def test_sys_exit_is_told_as_a_call(words: str, told: str) -> None:
    assert detail_of(4 << 8, ExitHints(user_code=True, announced=True), words) == told


def test_describe_status() -> None:
    assert describe_status(11) == "signal SIGSEGV"
    assert describe_status(4 << 8).startswith("exit code 4")


def test_oom_counter_of_both_versions(tmp_path: Path) -> None:
    groups = tmp_path / "cgroup"
    groups.write_text("4:memory:/a/b\n0::/c\n")
    v1 = tmp_path / "fs" / "memory" / "a" / "b"
    v2 = tmp_path / "fs" / "unified" / "c"
    for folder in (v1, v2):
        folder.mkdir(parents=True)
    (v1 / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 1\n")
    (v2 / "memory.events").write_text("low 0\noom 3\noom_kill 3\n")
    files = counter_files(str(groups), str(tmp_path / "fs"))
    assert sorted(files) == sorted([str(v1 / "memory.oom_control"), str(v2 / "memory.events")])
    counter = OomCounter(files)
    assert not counter.moved()
    (v2 / "memory.events").write_text("oom_kill 4\n")
    assert counter.moved()
    assert not counter.moved()


def test_no_cgroup_never_moves() -> None:
    assert not OomCounter([]).moved()
    assert counter_files("/nonexistent") == []


def test_every_reason_has_its_value_on_the_wire() -> None:
    assert sorted(EXITS.values()) == sorted(control_pb2.ExitReason.values())
    names = {control_pb2.ExitReason.Name(value) for reason, value in EXITS.items() if reason is not None}
    assert names == {f"EXIT_{reason.value.upper()}" for reason in ExitReason}
