"""Batch runs under faults, and the stream that goes on from their savepoint, with an oracle that knows every line."""

from __future__ import annotations

import pytest

from tests.fault.conftest import Verify

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(600)]

MODE = "batch"


@pytest.mark.parametrize(
    "faults",
    [
        ("worker", "worker-stops", "preempted", "kills"),
        ("keeper", "keeper-stops"),
        ("executor", "tmaster", "scheduler"),
        ("state", "monkey"),
    ],
    ids=lambda faults: faults[0],
)
def test_history_and_live_lines_count_once_whoever_dies(verify: Verify, faults: tuple[str, ...]) -> None:
    """Each fault strikes in both stages, and none is charged to a unit."""
    found = verify(MODE, *(f"batch-{fault}" for fault in faults), timeout_s=560)
    assert {one["fault"] for one in found} == {f"batch-{fault}" for fault in faults}
    assert all(one["faults"] for one in found)


def test_a_line_that_cannot_be_processed_fails_the_run_by_name_and_nothing_else_is_lost(verify: Verify) -> None:
    """Once its cause is fixed, the same command continues the run."""
    (found,) = verify(MODE, "batch-poison", timeout_s=560)
    assert [one["what"] for one in found["faults"]] and len(found["faults"]) == 2


def test_a_full_disk_fails_the_run_at_most_until_the_command_is_repeated(verify: Verify) -> None:
    verify(MODE, "batch-disk", timeout_s=560)
