"""Ticks that the topology master has held come back with the next tuple."""

from __future__ import annotations

from typing import Any

from heronpy.api import api_constants
from heronpy.api.bolt.bolt import Bolt
from heronpy.api.spout.spout import Spout
from heronpy.api.stream import Grouping
from heronpy.api.topology import TopologyBuilder
from heronpy.proto import control_pb2
from tests.sim.run import cluster_of
from tests.sim.workload import Program


class Once(Spout):
    """Emits one tuple when the test wants it."""

    outputs = ["n"]
    wanted = False

    def next_tuple(self) -> None:
        if self.wanted:
            self.wanted = False
            self.emit([1])


class Ticked(Bolt):
    ticks = 0

    def process(self, tup: Any) -> None: ...

    def process_tick(self, tup: Any) -> None:
        self.ticks += 1


def test_held_ticks_come_back_with_the_next_tuple() -> None:
    made = TopologyBuilder("sim")
    spout = made.add_spout("spout", Once, par=1)
    made.add_bolt("bolt", Ticked, par=2, inputs={spout: Grouping.SHUFFLE})
    made.set_config({api_constants.TOPOLOGY_TICK_TUPLE_FREQ_MS: 100})
    with cluster_of(1, Program(made, None)) as (cluster, _):
        world = cluster.world
        cluster.until(control_pb2.LIFE_RUNNING)
        [source], bolts = cluster.tasks("spout"), cluster.tasks("bolt")
        objects = [bolt.program.user.object for bolt in bolts]
        cluster.run(lambda: all(one.ticks for one in objects))
        for bolt in bolts:
            with world.acting(bolt):
                bolt.program.control.deliver(control_pb2.HoldTicks())
        world.run(world.now + 0.05, lambda: False)
        held = [one.ticks for one in objects]
        world.run(world.now + 5.0, lambda: False)
        assert [one.ticks for one in objects] == held
        source.program.user.object.wanted = True
        world.run(world.now + 5.0, lambda: False)
        assert sum(one.ticks > before for one, before in zip(objects, held, strict=True)) == 1, "the one with the tuple"
