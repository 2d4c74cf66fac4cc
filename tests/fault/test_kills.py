"""Processes killed, stopped and kept from starting, under the oracle (F01-F06, F09-F11), and updates (F44).

Each run is a topology of real processes with a seeded input; loss, duplicates, exactness per key, order,
liveness and memory are judged from the seed, so a test here fails when anything promised is not kept.
"""

from __future__ import annotations

import pytest

from tests.fault.conftest import Verify

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(300)]

#: What may be stopped: a process of the containers, alone or with all others; or a process that only starts others.
IN_CONTAINERS = ("task", "stmgr", "tmaster", "executor", "all")
STARTERS = ("guardian", "scheduler", "fork-server", "fork-servers")
TASKS = ("F01-spout", "F01-bolt", "F01-sink")


@pytest.mark.parametrize(
    "mode",
    ["ATMOST_ONCE", "ATLEAST_ONCE", "EFFECTIVELY_ONCE"],
)
def test_kill_9_of_tasks_and_a_stream_manager(verify: Verify, mode: str) -> None:
    """F01, F02; siblings of a killed task are not touched where nothing has to be rewound."""
    [document] = verify(mode, *TASKS, "F02", together=True)
    assert len(document["faults"]) == 4
    assert document["restart_p99_s"] is not None


@pytest.mark.parametrize("mode", ["ATLEAST_ONCE", "EFFECTIVELY_ONCE"])
def test_kill_9_of_master_executor_and_containers(verify: Verify, mode: str) -> None:
    """F03 (also with a standby, and without any master for a while), F04 (no orphans), F05 (also all containers)."""
    of_tuples, of_units = verify(mode, "F03", "F04", "F05", together=True)
    assert (len(of_tuples["faults"]), len(of_units["faults"])) == (7, 1)


def test_what_only_watches_is_killed(verify: Verify) -> None:
    """F06: commands killed in a loop and pages of metrics left half read lose not one tuple at most once."""
    [document] = verify("ATMOST_ONCE", "F06")
    assert document["verdict"]["loss"] == 0
    assert document["notes"]["watchers_killed"] > 0


def test_kills_during_restore_and_checkpoint(verify: Verify) -> None:
    """F09: never half of a state."""
    verify("EFFECTIVELY_ONCE", "F09", times=2)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("mode", "kinds"),
    [("ATLEAST_ONCE", IN_CONTAINERS), ("EFFECTIVELY_ONCE", IN_CONTAINERS), ("EFFECTIVELY_ONCE", STARTERS)],
)
def test_processes_that_stop_and_go_on(verify: Verify, mode: str, kinds: tuple[str, ...]) -> None:
    """F10: SIGSTOP, SIGCONT of a process of each kind, for 3 s and for 30 s, one after the other in one run.

    Tuples do not pass through the starters, so one mode is enough for these.
    """
    faults = [f"F10-{kind}" for kind in kinds]
    [document] = verify(mode, *faults, together=True, timeout_s=560, full=True, times=2)
    assert len(document["faults"]) == 2 * len(kinds)


def test_a_crash_loop_fails_the_topology_names_the_cause_and_burns_no_cpu(verify: Verify) -> None:
    """F11: then the cause is removed, the task restarted, and nothing is lost."""
    [document] = verify("EFFECTIVELY_ONCE", "F11")
    assert "container_" in document["notes"]["cause"]


def test_updates_of_adjacent_components_lose_nothing_at_most_once(verify: Verify) -> None:
    """F44: what comes from a task that a receiver does not know yet waits for the plan."""
    [document] = verify("ATMOST_ONCE", "F44")
    assert document["verdict"]["loss"] == 0
