"""A task ends itself for a newer attempt of its region, whichever of its threads sees it."""

from __future__ import annotations

import threading

import pytest

from heronpy.common import exit_codes
from heronpy.proto import plan_pb2
from instance.checkpoints import Attempt, region_of
from instance.lifecycle import may_join


def plan(attempt: int, started: bool = False, components: tuple[str, ...] = ("word", "count")) -> plan_pb2.PhysicalPlan:
    made = plan_pb2.PhysicalPlan()
    made.regions.add(components=components, attempt=attempt, started=started)
    made.instances.add(task_id=3, component="count")
    return made


def region(attempt: int) -> plan_pb2.RegionRecord:
    return plan_pb2.RegionRecord(attempt=attempt)


def test_a_newer_attempt_ends_the_task() -> None:
    left: list[int] = []
    attempt = Attempt("count", left.append)
    attempt.heard(plan(1))
    attempt.take(region(1))
    attempt.heard(plan(1, started=True))
    attempt.heard(plan_pb2.PhysicalPlan())
    attempt.heard(plan(7, components=("other",)))
    assert left == []
    attempt.heard(plan(2))
    assert left == [int(exit_codes.REWIND)]


def test_a_plan_that_comes_while_the_task_starts_ends_it_as_soon_as_it_joins() -> None:
    left: list[int] = []
    attempt = Attempt("count", left.append)
    attempt.heard(plan(2))
    assert left == [], "it has not joined any attempt yet"
    attempt.take(region(1))
    assert left == [int(exit_codes.REWIND)]


def test_an_older_plan_says_nothing() -> None:
    left: list[int] = []
    attempt = Attempt("count", left.append)
    attempt.take(region(5))
    attempt.heard(plan(4))
    assert left == [] and attempt.newest == 4


def test_both_threads_at_once_cannot_miss_it() -> None:
    for _ in range(200):
        left: list[int] = []
        attempt = Attempt("count", left.append)
        threads = [
            threading.Thread(target=attempt.heard, args=(plan(2),)),
            threading.Thread(target=attempt.take, args=(region(1),)),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert left


@pytest.mark.parametrize(
    ("made", "task_id", "joins"),
    [
        (plan(1), 3, True),
        (plan(1, started=True), 3, False),
        (plan(1), 4, False),
        (plan(1, started=True, components=("other",)), 3, True),
    ],
)
def test_a_region_that_has_started_is_not_joined(made: plan_pb2.PhysicalPlan, task_id: int, joins: bool) -> None:
    """Its other tasks have gone on from the checkpoint: this process waits for the next attempt."""
    assert may_join(made, task_id, "count") is joins


def test_regions_are_found_by_component() -> None:
    found = region_of(plan(3), "word")
    assert found is not None and found.attempt == 3
    assert region_of(plan(3), "elsewhere") is None
