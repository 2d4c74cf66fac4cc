"""Seeds of the deterministic simulation that run with every test (F39); `make sim N=1000` runs more."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sim.cluster import Cluster
from tests.sim.planted import passes
from tests.sim.run import run_seed, simulator
from tests.sim.ways import COUNTS, RELAYS, SINKS, SOURCES, AsyncSource
from tests.sim.workload import AT_LEAST, AT_MOST, EFFECTIVELY

#: Each has found a bug of the product once; where it is False, nobody asked for anything in those days.
FOUND = {16: False, 388: False, 916: False, 1013: False, 80: True, 1741: True}


@pytest.mark.parametrize("first", [0, *(pytest.param(first, marks=pytest.mark.heavy) for first in (3, 6, 9, 12))])
def test_seeds_come_to_the_right_end(first: int) -> None:
    passes(run_seed, range(first, first + 3))


@pytest.mark.parametrize("mode", [EFFECTIVELY, AT_LEAST, AT_MOST])
def test_each_mode_keeps_its_promise(mode: str) -> None:
    passes(run_seed, (30, 31), mode=mode)


def test_a_cancellation_that_comes_with_a_reply_is_not_lost() -> None:
    """A stream manager that was asked to end went on without its heartbeats: before 3.12 asyncio.wait_for does that."""
    passes(run_seed, (2063,), mode=AT_LEAST, ways=False)


@pytest.mark.parametrize(("seed", "asked"), FOUND.items())
def test_seeds_that_found_a_bug_pass(seed: int, asked: bool) -> None:
    passes(run_seed, (seed,), mode=EFFECTIVELY, asked=asked, ways=False)


USERS = [
    (source, RELAYS[place % 3], COUNTS[(place + 1) % 3], SINKS[(place + 2) % 3]) for place, source in enumerate(SOURCES)
]


@pytest.mark.parametrize("mode", [EFFECTIVELY, AT_LEAST, AT_MOST])
@pytest.mark.parametrize(
    "users", [pytest.param(users, marks=pytest.mark.heavy if users[0] is not AsyncSource else ()) for users in USERS]
)
def test_each_way_of_the_api_keeps_the_promise_of_each_mode(mode: str, users: tuple[Any, ...]) -> None:
    """Spouts that wait, that have a descriptor, that are coroutines; acks of lists, and batches; under faults.

    Of the three of a coroutine's mode one found a topology master that kept a core busy until it was found itself.
    """
    passes(run_seed, (3,), mode=mode, users=users)


def test_seeds_differ() -> None:
    with simulator() as folder:
        assert run_seed(21, folder).digest != run_seed(22, folder).digest


def test_a_failure_says_how_to_see_it_again() -> None:
    def spoil(cluster: Cluster) -> None:
        cluster.world.later(1.0, cluster.world.wrong, "this is wrong")

    with simulator() as folder:
        result = run_seed(5, folder, adapt=spoil)
    assert not result.ok
    report = result.report()
    assert "this is wrong" in report
    assert "make sim SEED=5" in report
    assert "topology master of sim" in report


def test_the_machine_is_itself_again_afterwards() -> None:
    """The stand-ins are taken out of the product when a simulation is over."""
    import os
    import time

    import zmq

    import instance.control
    import instance.link
    import stmgr.shell

    with simulator():
        assert instance.link.zmq is not zmq
    assert instance.link.zmq is zmq
    assert instance.control.os is os
    assert stmgr.shell.time is time
