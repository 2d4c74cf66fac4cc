"""What a death costs, and how soon it is known: at least once fails it at once, acks off counts it exactly."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from heronpy.api import api_constants
from heronpy.api.bolt.bolt import Bolt
from heronpy.api.spout.spout import Spout
from heronpy.api.stream import Grouping
from heronpy.api.topology import TopologyBuilder
from heronpy.proto import control_pb2
from tests.sim.cluster import Cluster
from tests.sim.kernel import START_S, Process, active_world, spend
from tests.sim.run import cluster_of
from tests.sim.verbs import Verbs
from tests.sim.workload import AT_LEAST, AT_MOST, Program, Shape
from tests.support.seeds import seeds

SHAPE = Shape(
    AT_MOST, sources=2, relays=2, counts=2, sinks=2, records=150, keys=20, pad=0, diamond=False, shuffled=True,
    containers=2, cost_s=0.001, max_pending=40,
)  # fmt: skip


class Patient(Shape):
    """No tuple times out."""

    message_timeout_s = 100_000


def kill_with_something_on_its_way(cluster: Cluster, role: str) -> None:
    """Kill a sink, or its stream manager, when a sink has not taken all that was sent to it."""
    cluster.until(control_pb2.LIFE_RUNNING)
    sinks = cluster.tasks("sink")
    links = [(sink, s.tasks[sink.program.name.task_id].link) for s in cluster.switches() for sink in sinks]

    def victims() -> list[Process]:
        """Sinks that have received, or are about to, what they have not processed: its credit alone may be late."""
        done = {sink: sink.program.progress.executed for sink in sinks}
        return [sink for sink, link in links if link.in_flight() and link.total_tuples > done[sink]]

    cluster.run(lambda: bool(victims()))
    cluster.world.run(cluster.world.now + 0.02, lambda: False)
    cluster.run(lambda: bool(victims()))
    victim = victims()[0]
    (victim if role == "sink" else cluster.processes("stmgr")[0]).kill()


@pytest.mark.parametrize("role", ["sink", "stmgr"])
@pytest.mark.parametrize("seed", seeds(2, 5))
def test_what_was_on_its_way_to_a_dead_process_fails_at_once(role: str, seed: int) -> None:
    shape = Patient(**{**vars(SHAPE), "mode": AT_LEAST, "containers": 1})
    with cluster_of(seed, shape) as (cluster, auditor):
        kill_with_something_on_its_way(cluster, role)
        cluster.until(control_pb2.LIFE_FINISHED)
        auditor.at_end()
        assert sum(task.program.progress.failed for task in cluster.tasks("source"))


@pytest.mark.parametrize("seed", seeds(6, 30))
def test_without_acking_losses_are_counted(seed: int) -> None:
    """emitted = delivered + discarded, when all has come to rest after kills of sinks."""
    rng = random.Random(seed)
    with cluster_of(seed, replace(SHAPE, containers=1 + seed % 2)) as (cluster, auditor):
        for _ in range(8):
            cluster.world.at(rng.uniform(START_S + 0.05, START_S + 0.8), None, lambda: kill_one(cluster, rng))
        cluster.until(control_pb2.LIFE_FINISHED)
        auditor.drained()
        emitted = sum(task.program.emitter.emitted() for task in cluster.processes("instance"))
        delivered = sum(task.link.total_consumed for switch in cluster.switches() for task in switch.tasks.values())
        discarded = sum(sum(switch.discarded.values()) for switch in cluster.switches())
        assert emitted == delivered + discarded
        assert emitted == 2 * SHAPE.records * 3, "from sources, relays and counts"


class Ticker(Spout):
    """Emits a hundred numbers, with an id or without."""

    outputs = ["n"]

    def initialize(self, config: Any, context: Any) -> None:
        self.n = 0

    def next_tuple(self) -> None:
        spend(0.01)
        if self.n < 100:
            self.n += 1
            self.emit([self.n], tup_id=self.n if active_world().outside["ids"] else None)  # type: ignore[attr-defined]


class Drain(Bolt):
    def process(self, tup: Any) -> None:
        self.ack(tup)


@pytest.mark.parametrize("ids", [True, False])
def test_at_least_once_a_death_may_lose_what_has_no_id(ids: bool) -> None:
    """What a stream manager had queued: nobody has counted it, and nobody sends it again."""
    made = TopologyBuilder("sim")
    made.add_bolt("drain", Drain, par=1, inputs={made.add_spout("ticker", Ticker, par=1): Grouping.SHUFFLE})
    made.set_config({api_constants.TOPOLOGY_RELIABILITY_MODE: AT_LEAST})
    with cluster_of(0, Program(made, {"ids": ids})) as (cluster, _):
        cluster.until(control_pb2.LIFE_RUNNING)
        [ticker] = cluster.tasks("ticker")
        cluster.run(lambda: ticker.program.progress.emitted > 20)
        cluster.processes("stmgr")[0].kill()
        cluster.world.run(cluster.world.now + 5.0, lambda: False)
        cluster.until(control_pb2.LIFE_RUNNING)
        totals = cluster.master().totals(0.0)
        assert totals.untracked == totals.lost_estimated == totals.lost_unknown != ids


def kill_one(cluster: Cluster, rng: random.Random) -> None:
    sinks = cluster.tasks("sink")
    if sinks:
        rng.choice(sinks).kill()


@pytest.mark.parametrize("seed", [*seeds(3, 10), 27, 38, 53, 65, 116])
def test_rescale_under_load_keeps_order_and_loses_nothing(seed: int) -> None:
    """The relays look at the order (workload.Relay).

    The seeds above 10 lost what was on its way to a container that went, or had a moved spout go on in its old place.
    """
    with cluster_of(seed, SHAPE) as (cluster, auditor):
        verbs = Verbs(cluster, auditor, cluster.world.chance("verbs"))
        for _ in range(8):
            cluster.world.at(verbs.rng.uniform(START_S + 0.05, START_S + 2.0), None, verbs.update, 100.0)
        cluster.until(control_pb2.LIFE_FINISHED)
        auditor.at_end()
        auditor.drained()
        assert auditor.stats["done_update_topology"]
        assert cluster.outside.delivered == cluster.outside.emitted
