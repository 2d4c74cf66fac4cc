"""Emitter, acks, links, switch and acker together: random topologies whose trees the test knows by itself."""

from __future__ import annotations

import random

import pytest

from heronpy.api import api_constants
from heronpy.proto import control_pb2
from tests.sim.auditor import Auditor
from tests.sim.cluster import Cluster
from tests.sim.kernel import START_S
from tests.sim.run import cluster_of
from tests.sim.trees import TUPLES, Book
from tests.sim.workload import AT_LEAST, AT_MOST, Program
from tests.support.seeds import seeds

SEEDS = pytest.mark.parametrize("seed", seeds(5, 20))
RESTARTS = 12


def finish(book: Book, cluster: Cluster, auditor: Auditor) -> None:
    """Come to the end, where each tuple was processed once and nothing is left."""
    cluster.until(control_pb2.LIFE_FINISHED)
    auditor.drained()
    assert book.processed == +book.emitted
    assert not any(switch.discarded for switch in cluster.switches())


def check_outcomes(book: Book) -> None:
    for one in {*book.outcome, *book.open}:
        assert book.outcome[one] == ["fail" if one in book.failed else "ack"], one


@SEEDS
def test_every_tuple_ends_acked_or_failed_exactly_once(seed: int) -> None:
    book = Book(seed, AT_LEAST)
    pending = book.rng.choice((3, 20, 100))
    with cluster_of(seed, Program(book.draw(**{api_constants.TOPOLOGY_MAX_SPOUT_PENDING: pending}), book)) as running:
        finish(book, *running)
        check_outcomes(book)


@SEEDS
def test_without_acking_every_tuple_comes_once_and_in_order(seed: int) -> None:
    book = Book(seed, AT_MOST)
    with cluster_of(seed, Program(book.draw(), book)) as running:
        finish(book, *running)
        # Ids given to emit are acked at once.
        assert all(how == ["ack"] for how in book.outcome.values())


@SEEDS
@pytest.mark.parametrize("mode", [AT_MOST, AT_LEAST])
def test_orderly_restarts_lose_nothing_and_repeat_nothing(seed: int, mode: str) -> None:
    """Where acks are counted, bolts that raise are the only restarts: a stop does not ack what a bolt keeps."""
    book = Book(seed, mode)
    book.raise_rate, book.calm = 0.02, mode == AT_LEAST
    book.pace_s = book.rng.choice((0.0, 0.002))
    with cluster_of(seed, Program(book.draw(**{api_constants.TOPOLOGY_MAX_SPOUT_PENDING: 20}), book)) as running:
        cluster = running[0]
        rng = random.Random(seed)

        def restart() -> None:
            bolts = [p for p in cluster.processes("instance") if p.on_sigterm and "_bolt" in p.name]
            if bolts:
                rng.choice(bolts).terminate()

        for _ in range(RESTARTS if mode == AT_MOST else 0):
            cluster.world.at(rng.uniform(START_S, START_S + 0.1 + TUPLES * book.pace_s), None, restart)
        finish(book, *running)
        if mode == AT_LEAST:
            check_outcomes(book)
