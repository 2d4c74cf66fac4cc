"""Exit statuses and what they are taken for."""

from __future__ import annotations

from pathlib import Path

import pytest

from heronpy.procs.exit_reason import ExitHints, ExitReason, classify, describe_status
from heronpy.procs.oom import OomCounter, counter_files
from heronpy.procs.supervision import EXITS
from heronpy.proto import control_pb2


@pytest.mark.parametrize(
    ("status", "hints", "reason"),
    [
        (0, ExitHints(user_code=True), ExitReason.OK),
        (0, ExitHints(), ExitReason.PREEMPTED),
        (143 << 8, ExitHints(user_code=True), ExitReason.PREEMPTED),
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
        (9 << 8, ExitHints(user_code=True), ExitReason.LOST_HOST),
        (6, ExitHints(), ExitReason.CRASHED),
        (6, ExitHints(memory_error=True), ExitReason.OOM),
        (0, ExitHints(overgrown=True), ExitReason.OOM),
        (7 << 8, ExitHints(), ExitReason.FINISHED),
        (1 << 8, ExitHints(user_code=True), ExitReason.OWN_BUG),
        (42 << 8, ExitHints(user_code=True), ExitReason.USER_EXCEPTION),
        (42 << 8, ExitHints(), ExitReason.OWN_BUG),
    ],
)
def test_classify(status: int, hints: ExitHints, reason: ExitReason) -> None:
    assert classify(status, hints) is reason


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
