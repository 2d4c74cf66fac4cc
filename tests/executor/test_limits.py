"""A container that may open too few files says so before it starts anything (F26)."""

from __future__ import annotations

import resource

import pytest

from heronpy.common.errors import ConfigError
from heronpy.executor.shell import check_files, files_needed
from heronpy.procs.linux import FILES_MAX
from heronpy.proto import plan_pb2


def plan_of(tasks: int) -> plan_pb2.PackingPlan:
    plan = plan_pb2.PackingPlan()
    for number in (1, 2):
        container = plan.containers.add(id=number)
        for task in range(tasks):
            container.instances.add(task_id=task + 1, component="work")
    return plan


def test_the_stream_manager_needs_most_and_more_with_each_task() -> None:
    needs = [files_needed(plan_of(tasks), 1)[0] for tasks in (0, 1, 100)]
    assert needs == sorted(set(needs))
    assert files_needed(plan_of(100), 1)[1] == "stmgr-1"
    assert files_needed(plan_of(100), 0)[1] == files_needed(None, 3)[1] == "tmaster"


@pytest.mark.parametrize(
    ("soft", "hard", "lifted"),
    [(64, 4096, 4096), (4096, 4096, None), (2000, 4096, 4096), (-1, -1, None), (1024, -1, FILES_MAX)],
)
def test_the_soft_limit_is_lifted_to_the_hard_one(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, lifted: int | None
) -> None:
    calls: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: calls.append(limits))
    check_files(plan_of(20), 1)
    assert calls == ([(lifted, hard)] if lifted else [])


def test_a_hard_limit_below_that_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (64, 64))
    with pytest.raises(
        ConfigError, match=r"container 2 may open 64 files per process, but stmgr-2 needs \d+; raise 'ulimit -n'"
    ):
        check_files(plan_of(20), 2)
