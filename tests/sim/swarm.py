"""What a seed draws: the topology, its settings, how the machines behave, and which faults come when.

Each seed leaves out some kinds of faults, so that every mixture comes up: a kind that is always there
hides what happens without it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from heronpy.proto import control_pb2
from tests.sim.auditor import Auditor
from tests.sim.cluster import Cluster
from tests.sim.kernel import START_S, Process
from tests.sim.workload import AT_LEAST, AT_MOST, EFFECTIVELY, Shape

#: Faults come in this time; then they stop.
FAULTS_S = (6.0, 18.0)


def draw_shape(rng: random.Random, mode: str = "") -> Shape:
    """A topology, and its input."""
    records = rng.choice((30, 100, 200, 300))
    # Most inputs last as long as the faults do.
    lasts_s = rng.choice((0.0, 8.0, 12.0, 16.0))
    return Shape(
        mode=mode or rng.choices((EFFECTIVELY, AT_LEAST, AT_MOST), (6, 3, 1))[0],
        sources=rng.randint(1, 2),
        relays=rng.randint(1, 3),
        counts=rng.randint(1, 2),
        sinks=rng.randint(1, 2),
        records=records,
        keys=rng.choice((1, 3, 20)),
        pad=rng.choice((0, 0, 50, 400)),
        diamond=rng.random() < 0.4,
        shuffled=rng.random() < 0.5,
        containers=rng.randint(1, 3),
        cost_s=rng.choice((0.0, 0.002, 0.01, 0.02)),
        burst=rng.choice((1, 10, 50)),
        pace_s=lasts_s / records,
        max_pending=rng.choice((3, 20, 100)),
    )


def draw_settings(rng: random.Random, standby: random.Random) -> dict[str, Any]:
    """Settings of all rooms; some windows are so small that credit and backpressure matter.

    What is drawn here later gets a source of chance of its own, so that the seeds that are known keep their meaning.
    """
    small = rng.random() < 0.6
    high = rng.choice((2500, 6000)) if small else 1 << 20
    return {
        "heron.stmgr.backpressure_high_bytes": high,
        "heron.stmgr.backpressure_low_bytes": high // 2,
        "heron.stmgr.link_window_bytes": 2000 if small else 1 << 20,
        "heron.stmgr.instance_out_window_bytes": rng.choice((1500, 4000)) if small else 1 << 20,
        "heron.stmgr.instance_lost_s": 3.0,
        "heron.instance.batch_tuples": rng.choice((1, 4, 16, 2000)),
        "heron.instance.in_queue_bytes_max": rng.choice((1500, 4000)) if small else 512 << 10,
        "heron.instance.out_queue_bytes_max": rng.choice((2500, 8000)) if small else 1 << 20,
        "heron.instance.spout_idle_max_ms": 50.0,
        "heron.instance.poison_tries": 0,
        "heron.instance.hang_timeout_s": 0.0,
        "heron.tmaster.stmgr_lost_s": 4.0,
        "heron.tmaster.standbys": standby.choice((0, 0, 1, 2)),
        "heron.tmaster.takeover_s": standby.choice((1.5, 4.0)),
        "heron.tmaster.start_timeout_s": standby.choice((4.0, 20.0)),
        "heron.tmaster.executor_lost_s": 100_000.0,
        "heron.executor.restart_backoff_max_s": 1.0,
        "heron.metrics.export_interval_s": 100_000.0,
        "heron.checkpoint.interval_s": rng.choice((0.3, 0.8, 2.0)),
        "heron.checkpoint.timeout_s": rng.choice((2.0, 5.0, 15.0)),
        "heron.checkpoint.aligned_timeout_s": rng.choice((0.0, 0.1, 0.5, 1.0, 3600.0)),
        "heron.checkpoint.alignment_bytes_max": rng.choice((3000, 1 << 20, 1 << 20)),
        "heron.checkpoint.key_groups": rng.choice((4, 32)),
        "heron.checkpoint.inline_max_bytes": rng.choice((0, 200, 20 << 10)),
        "heron.checkpoint.fork_above_bytes": 1 << 30,
        "heron.checkpoint.compact_ratio": rng.choice((0.2, 0.5, 5.0)),
        "heron.checkpoint.retained": rng.randint(1, 4),
        "heron.checkpoint.restore_budget": 10_000,
    }


@dataclass
class Faults:
    """The faults of one run."""

    cluster: Cluster
    auditor: Auditor
    rng: random.Random
    #: Times of all, from the start.
    until: float = 0.0

    def plan(self) -> None:
        """Draw all faults now; they come by themselves."""
        rng, world = self.rng, self.cluster.world
        self._draw_conditions()
        self.until = START_S + rng.uniform(*FAULTS_S)
        kinds = self._kinds()
        chosen = [kind for kind in kinds if rng.random() < 0.5]
        if not chosen or rng.random() < 0.05:
            return
        for _ in range(rng.choice((1, 3, 6, 10, 14))):
            kind = rng.choice(chosen)
            world.at(rng.uniform(START_S + 0.05, self.until), None, self._strike, kind, kinds[kind])

    def _draw_conditions(self) -> None:
        rng, cluster = self.rng, self.cluster
        if rng.random() < 0.3:
            cluster.world.hiccups = (rng.choice((0.01, 0.05)), rng.choice((0.005, 0.05)))
        if rng.random() < 0.3:
            cluster.network.spikes = (rng.choice((0.01, 0.05)), rng.choice((0.02, 0.3)))
        if rng.random() < 0.3:
            cluster.disk.slow = (rng.choice((0.02, 0.1)), rng.choice((0.5, 5.0)))
        if rng.random() < 0.5:
            cluster.state.session_s = rng.uniform(1.0, 4.0)
        if rng.random() < 0.4:
            cluster.network.tcp_delay_s = rng.choice(((0.001, 0.02), (0.02, 0.08)))
        cluster.state.slow_s = rng.choice((0.0005, 0.005, 0.1))

    def end(self) -> None:
        """No more faults, and good conditions."""
        world, cluster = self.cluster.world, self.cluster
        world.hiccups = cluster.network.spikes = cluster.disk.slow = (0.0, 0.0)
        cluster.disk.full = False
        for connection in cluster.network.connections:
            connection.fuse = None
        for process in cluster.processes():
            process.fuse = None
            process.proceed()
        world.trace.note("faults", "are over")

    def _kinds(self) -> dict[str, Callable[[], str]]:
        return {
            "kill": self._kill,
            "fuse": self._fuse,
            "stop": self._stop,
            "terminate": self._terminate,
            "container": self._container,
            "power": self._power,
            "reset": self._reset,
            "partition": self._partition,
            "state": self._state,
            "full": self._full,
            "damage": self._damage,
        }

    def _strike(self, kind: str, strike: Callable[[], str]) -> None:
        if self.cluster.life() == control_pb2.LIFE_FINISHED:
            return
        self.auditor.stats[f"fault_{kind}"] += 1
        text = strike()
        self.cluster.world.trace.note("fault", f"{kind} {text}")

    def _victim(self) -> Process | None:
        role = self.rng.choice(("instance", "instance", "instance", "stmgr", "stmgr", "tmaster"))
        found = self.cluster.masters() if role == "tmaster" else self.cluster.processes(role)
        return self.rng.choice(found) if found else None

    def _died(self) -> None:
        self.auditor.stats["deaths"] += 1

    def _kill(self) -> str:
        victim = self._victim()
        if victim is not None:
            self._died()
            victim.kill()
        return str(victim)

    def _fuse(self) -> str:
        victim = self._victim()
        if victim is not None:
            self._died()
            victim.fuse = self.rng.randint(1, 40)
        return f"{victim}, {victim.fuse if victim else 0} operations"

    def _stop(self) -> str:
        victim = self._victim()
        if victim is None:
            return "nobody"
        duration_s = self.rng.choice((self.rng.uniform(0.01, 1.0), self.rng.uniform(1.0, 8.0)))
        victim.stop()
        self._died()
        self.cluster.network.stopped(victim)
        self.cluster.state.stopped(victim)
        self.cluster.world.later(duration_s, victim.proceed)
        return f"{victim} for {duration_s:.2f} s"

    def _terminate(self) -> str:
        victim = self._victim()
        if victim is not None:
            self._died()
            victim.terminate()
        return str(victim)

    def _container(self) -> str:
        container = self.rng.choice(self.cluster.containers)
        self._died()
        if container.supervisor is not None:
            container.die()
        return container.host

    def _power(self) -> str:
        self._died()
        for container in self.cluster.containers:
            if container.supervisor is not None:
                container.die()
        self.cluster.disk.power_cut()
        return "everywhere"

    def _reset(self) -> str:
        """Mostly of the data between two stream managers."""
        self._died()
        stmgrs = self.cluster.processes("stmgr")
        if len(stmgrs) > 1 and self.rng.random() < 0.8:
            return self.cluster.network.reset_some(stmgrs, stmgrs, self.rng.randint(1, 4))
        return self.cluster.network.reset_some(stmgrs, self.cluster.masters(), 1)

    def _partition(self) -> str:
        hosts = [container.host for container in self.cluster.containers]
        one, other = self.rng.sample(hosts, 2)
        duration_s = self.rng.choice((self.rng.uniform(0.05, 2.0), self.rng.uniform(2.0, 8.0)))
        both = self.rng.random() < 0.6
        self._died()
        self.cluster.network.partition(one, other, duration_s, both)
        return f"{one} {'and' if both else 'to'} {other} for {duration_s:.2f} s"

    def _state(self) -> str:
        duration_s = self.rng.uniform(0.1, 6.0)
        self.cluster.state.outage(duration_s)
        return f"away for {duration_s:.2f} s"

    def _full(self) -> str:
        duration_s = self.rng.uniform(0.1, 4.0)
        if not self.cluster.outside.complete:
            return "not yet: a topology that has no checkpoint is refused where none can be written"
        self.cluster.disk.full = True
        self.cluster.world.later(duration_s, self._space)
        return f"for {duration_s:.2f} s"

    def _damage(self) -> str:
        return self.cluster.disk.damage()

    def _space(self) -> None:
        self.cluster.disk.full = False
