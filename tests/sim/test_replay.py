"""A seed replays independently of the real machine: the simulation does not see how often its thread has slept."""

from __future__ import annotations

import itertools
import os
import resource
import shutil
from types import SimpleNamespace
from typing import Any

import pytest

from heronpy.api.bolt.bolt import Bolt
from heronpy.api.spout.spout import Spout
from heronpy.api.stream import Grouping
from heronpy.api.topology import TopologyBuilder
from heronpy.proto import control_pb2
from tests.sim.kernel import World, spend
from tests.sim.run import cluster_of, simulator
from tests.sim.units import run_units, units_simulator
from tests.sim.workload import Program


class Source(Spout):
    """Always has something; a call takes a moment."""

    outputs = ["n"]

    def next_tuple(self) -> None:
        spend(0.0003)
        self.emit([1])


class Slow(Bolt):
    """Is always behind."""

    outputs = ["n"]

    def process(self, tup: Any) -> None:
        spend(0.0004)
        self.emit(tup.values)


class Sink(Bolt):
    def process(self, tup: Any) -> None: ...


def trace_of_saturated_tasks() -> str:
    made = TopologyBuilder("sim")
    source = made.add_spout("source", Source, par=1)
    slow = made.add_bolt("slow", Slow, par=1, inputs={source: Grouping.SHUFFLE})
    made.add_bolt("sink", Sink, par=1, inputs={slow: Grouping.SHUFFLE})
    with cluster_of(0, Program(made, None)) as (cluster, _):
        cluster.until(control_pb2.LIFE_RUNNING)
        begun = cluster.world.now
        cluster.run(lambda: cluster.world.now >= begun + 0.5)
        return cluster.world.trace.digest()


def test_saturated_tasks_replay_bit_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    traces = []
    for switches in (itertools.repeat(0), itertools.count()):

        def usage(who: int, switches: Any = switches) -> Any:
            return SimpleNamespace(ru_nvcsw=next(switches), ru_utime=0.0, ru_stime=0.0, ru_maxrss=0)

        monkeypatch.setattr(resource, "getrusage", usage)
        traces.append(trace_of_saturated_tasks())
    assert traces[0] == traces[1]


def test_runs_leave_no_open_file_behind() -> None:
    with units_simulator() as folder:
        before = len(os.listdir("/proc/self/fd"))
        for seed in range(2):
            assert run_units(seed, folder).ok
        assert len(os.listdir("/proc/self/fd")) == before


def test_the_folder_of_a_run_is_no_part_of_its_story() -> None:
    digests = set()
    for number in range(2):
        world = World(0)
        world.trace.note("raised", f"/tmp/heronpy-sim-0/{number}/units-000001/table is taken")
        digests.add(world.trace.digest())
    assert len(digests) == 1


def test_what_a_killed_simulation_has_left_is_in_nobodys_way(monkeypatch: pytest.MonkeyPatch) -> None:
    nobody = 10**9 + os.getpid()
    monkeypatch.setattr("tests.sim.run.os.getuid", lambda: nobody)
    with simulator() as folder:
        pass
    (folder / "units-000003").mkdir()
    try:
        with simulator() as again:
            assert again == folder and not list(again.iterdir())
    finally:
        shutil.rmtree(folder.parent)
