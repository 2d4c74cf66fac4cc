"""Tasks that are slow, greedy, stopped or poisoned, and hot keys, under the oracle (F17-F19, F25, F35, F36, F38, F42, F43)."""

from __future__ import annotations

import pytest

from tests.fault.conftest import Verify

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(300)]


def test_a_slow_bolt(verify: Verify) -> None:
    """F17: the spouts wait, memory stays bounded, nothing is dropped."""
    verify("ATLEAST_ONCE", "F17")


def test_sinks_that_do_not_read_and_the_backlog_behind_them(verify: Verify) -> None:
    """F18, F35: nothing lost, and the order of keys kept."""
    [document] = verify("EFFECTIVELY_ONCE", "F18", "F35", together=True)
    rate = document["options"]["input"]["rate"] * document["options"]["input"]["partitions"]
    assert document["notes"]["drain_rate"] > rate, "a backlog is caught up with"


def test_poison(verify: Verify) -> None:
    """F19: exception, exit, recursion, segfault, 64 MB of output and a loop become dead letters; all others arrive."""
    [document] = verify("EFFECTIVELY_ONCE", "F19")
    assert document["notes"]["dead_letters"] == 6
    assert document["verdict"]["foreign"] == 0, "no poison has passed"


@pytest.mark.parametrize("mode", ["ATLEAST_ONCE", "EFFECTIVELY_ONCE"])
def test_kills_of_bolts_that_work_on_equal_tuples(verify: Verify, mode: str) -> None:
    """F42: no content is taken for poison, whatever kills its tasks from outside."""
    [document] = verify(mode, "F42")
    assert len(document["faults"]) == 10
    assert document["options"]["input"]["distinct"] == 16


def test_values_that_cannot_be_decoded(verify: Verify) -> None:
    """F43: each costs its own tuple only, which is a dead letter; at most once, where nothing would come again."""
    [document] = verify("ATMOST_ONCE", "F43")
    assert document["notes"]["dead_letters"] == 6
    assert (document["verdict"]["foreign"], document["verdict"]["loss"]) == (0, 0)


def test_a_memory_leak_ends_only_its_task(verify: Verify) -> None:
    """F25: the reason says so, its siblings are not touched, and a successor works."""
    verify("ATLEAST_ONCE", "F25")


def test_hot_keys(verify: Verify) -> None:
    """F36: 90 % of the tuples of one key, and Zipf 1.2."""
    verify("EFFECTIVELY_ONCE", "F36")


def test_checkpoints_under_total_backpressure(verify: Verify) -> None:
    """F38: aligned ones are aborted and counted, unaligned ones complete; the next after relief completes in any case."""
    aligned, unaligned = verify("EFFECTIVELY_ONCE", "F38")
    assert aligned["notes"]["checkpoints"]["aborted"] > 0
    assert unaligned["notes"]["checkpoints"]["completed"] > 0
