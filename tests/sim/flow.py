"""Slow, frozen and recovering tasks: queues stay bounded, and nobody waits for a task that others can stand for.

source -> work -> end. In each round tasks become slow, freeze and recover, and processes and links end; then nothing
changes for a while. Always a queue holds at most a few times the high mark and something for each sender, and spouts
are stopped no longer than for a lease after nothing is full. At the end of a round, if each component can go on (a
shuffled one with a healthy task, a keyed one of healthy tasks alone), each source emits, and each task that is not
frozen gets tuples, also one that has just recovered.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from heronpy.api.bolt.bolt import Bolt
from heronpy.api.spout.spout import Spout
from heronpy.api.stream import Grouping
from heronpy.api.topology import TopologyBuilder
from heronpy.proto import control_pb2
from tests.sim.auditor import LOOK_S, Auditor
from tests.sim.cluster import WAIT_S, Cluster
from tests.sim.kernel import World, active_world, spend
from tests.sim.run import Result, describe, played
from tests.sim.swarm import draw_settings
from tests.sim.workload import AT_MOST, Program

#: Seconds that a task takes for a tuple.
HEALTHY_S, SLOW_S, FROZEN_S = 0.002, 0.1, math.inf
#: Of a round: changes, the time until all is settled, what is measured. A stop of spouts may outlive what was full.
ROUNDS, STRIKES_S, SETTLE_S, MEASURED_S, STOP_MAX_S = 2, 4.0, 8.0, 3.0, 4.0
#: A queue stops spouts at four times the high mark at the latest; what a sender's window and its last frame add.
MARKS_MAX, SENDER_BYTES = 4, 4000
WINDOW_BYTES, BATCH_MAX, KEYS = 2000, 4, 100
WINDOWS = ("heron.stmgr.link_window_bytes", "heron.stmgr.instance_out_window_bytes",
           "heron.instance.in_queue_bytes_max", "heron.instance.out_queue_bytes_max")  # fmt: skip
LOCAL, SHUFFLE, KEYED = Grouping.LOCAL_OR_SHUFFLE, Grouping.SHUFFLE, Grouping.fields("key")


@dataclass
class Paces:
    """What user code finds outside of its process; by task, tuples emitted by a source or processed by a bolt."""

    every_s: float
    pad: int
    cost_s: dict[int, float] = field(default_factory=dict)
    done: Counter[int] = field(default_factory=Counter)
    over: bool = False


class Source(Spout):
    outputs = ["key", "pad"]

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        self.task, self.paces = context.get_task_id(), active_world().outside  # type: ignore[attr-defined]

    def next_tuple(self) -> None:
        spend(self.paces.every_s)
        if self.paces.over:
            self.end_of_input()
            return
        self.paces.done[self.task] += 1
        self.emit([self.paces.done[self.task] % KEYS, b"x" * self.paces.pad])


class Work(Bolt):
    outputs = ["key", "pad"]
    initialize = Source.initialize

    def process(self, tup: Any) -> None:
        while self.paces.cost_s[self.task] == FROZEN_S:
            spend(0.05)
        spend(self.paces.cost_s[self.task])
        self.paces.done[self.task] += 1
        self.emit(tup.values)


class Flow:
    """One run."""

    def __init__(self, folder: Path, world: World, result: Result) -> None:
        self.world, result.mode = world, AT_MOST
        rng = self.rng = world.chance("flow")
        self.paces = Paces(rng.choice((0.01, 0.02)), rng.choice((100, 300)))
        made = TopologyBuilder("sim")
        made.set_config({"topology.reliability.mode": AT_MOST, "topology.stmgrs": rng.randint(1, 3)})
        self.groupings = {"work": rng.choice((SHUFFLE, SHUFFLE, LOCAL, KEYED)), "end": rng.choice((SHUFFLE, KEYED))}
        source = made.add_spout("source", Source, par=rng.randint(1, 2))
        work = made.add_bolt("work", Work, par=rng.randint(2, 4), inputs={source: self.groupings["work"]})
        made.add_bolt("end", Work, par=rng.randint(1, 3), inputs={work: self.groupings["end"]})
        self.high = rng.choice((4000, 10_000))
        settings = {
            **draw_settings(world.chance("swarm"), world.chance("standby")),
            "heron.stmgr.backpressure_high_bytes": self.high,
            "heron.stmgr.backpressure_low_bytes": self.high // 2,
            "heron.instance.batch_tuples": rng.choice((1, BATCH_MAX)),
            **dict.fromkeys(WINDOWS, WINDOW_BYTES),
        }
        self.cluster = Cluster(world, Program(made, self.paces, self.paces.pad, BATCH_MAX), folder, settings)
        self.auditor = Auditor(self.cluster)
        self.stats = result.stats = self.auditor.stats
        placed = [instance for container in self.cluster.packing.containers for instance in container.instances]
        names = ("source", "work", "end")
        self.tasks = {name: [one.task_id for one in placed if one.component == name] for name in names}
        self._heal()
        self._full_at = world.now
        world.later(LOOK_S, self._look)

    def play(self) -> None:
        """See the module."""
        world = self.world
        for _ in range(ROUNDS):
            self._heal()
            for _ in range(self.rng.randint(2, 6)):
                world.later(self.rng.uniform(0, STRIKES_S), self._strike)
            world.later(STRIKES_S, self._strike, "renew")
            world.run(world.now + STRIKES_S + SETTLE_S, lambda: False)
            before = self.paces.done.copy()
            world.run(world.now + MEASURED_S, lambda: False)
            self._judge(before)
        self._heal()
        self.paces.over = True
        if world.run(world.now + WAIT_S, lambda: self.cluster.life() == control_pb2.LIFE_FINISHED):
            self.auditor.drained()
        elif not world.violations:
            world.wrong(f"not finished {WAIT_S:g} s after the last fault: {describe(self.cluster)}")

    def _heal(self) -> None:
        self.paces.cost_s = dict.fromkeys(self.tasks["work"] + self.tasks["end"], HEALTHY_S)

    def _strike(self, what: str = "") -> None:
        """Mostly another pace of one task, or of all tasks of a component; at last a source has a new link."""
        rng, cluster = self.rng, self.cluster
        what = what or rng.choice(("one", "one", "one", "all", "recover", "kill", "kill", "reset"))
        self.stats[f"strike_{what}"] += 1
        if what == "recover":
            self._heal()
        elif what in ("kill", "renew"):
            others = rng.choice((cluster.processes("instance"), cluster.processes("stmgr")))
            found = cluster.tasks("source") if what == "renew" else others
            if found:
                rng.choice(found).kill()
        elif what == "reset":
            cluster.network.reset_some(cluster.processes("stmgr"), cluster.processes("stmgr"), 2)
        else:
            tasks = rng.choice((self.tasks["work"], self.tasks["end"]))
            some = tasks if what == "all" else [rng.choice(tasks)]
            self.paces.cost_s.update(dict.fromkeys(some, rng.choice((SLOW_S, FROZEN_S))))
        self.world.trace.note("strike", f"{what}: {self.paces.cost_s}")

    def _look(self) -> None:
        world, switches = self.world, self.cluster.switches()
        world.later(LOOK_S, self._look)
        for switch in switches:
            limit = MARKS_MAX * self.high + len(switch.sources) * SENDER_BYTES
            for link in (one.link for one in (*switch.tasks.values(), *switch.peers.values())):
                if link.queued_bytes > limit:
                    world.wrong(f"the queue {link.name} holds {link.queued_bytes} bytes, above {limit}")
        if any(switch.backpressure.local for switch in switches):
            self._full_at = world.now
        stopped = [process.name for process in self.cluster.tasks("source") if process.program.clamped]
        self.stats["stops_seen"] += bool(stopped)
        if stopped and world.now > self._full_at + STOP_MAX_S:
            world.wrong(f"{stopped[0]} is stopped, and nothing has been full for {STOP_MAX_S:g} s")

    def _goes_on(self, component: str) -> bool:
        healthy = [self.paces.cost_s[task] == HEALTHY_S for task in self.tasks[component]]
        return all(healthy) if self.groupings[component] is KEYED else any(healthy)

    def _judge(self, before: Counter[int]) -> None:
        if self.world.violations or not (self._goes_on("work") and self._goes_on("end")):
            return
        self.stats["judged"] += 1
        self.stats["judged_with_frozen"] += FROZEN_S in self.paces.cost_s.values()
        for component, tasks in self.tasks.items():
            # Of a local shuffle, those in containers without a source get nothing.
            for task in tasks if self.groupings.get(component) is not LOCAL else ():
                if self.paces.done[task] == before[task] and self.paces.cost_s.get(task) != FROZEN_S:
                    self.world.wrong(f"task {task} of {component} rests, and can go on: {self.paces.cost_s}")


def run_flow(seed: int, folder: Path, *, story: bool = False) -> Result:
    """One run, inside `simulator()`."""
    return played(seed, lambda *args: Flow(folder, *args).play(), story=story, again="make sim WHAT=flow")
