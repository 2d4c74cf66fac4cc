"""A topology whose containers Spark runs: a standalone master with two workers, real first processes, every tuple known.

YARN and Kubernetes as masters are not tried here.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest

from tests.support.judged import SMALL, Judged, kill_tree
from tests.support.standalone_spark import StandaloneSpark, standalone_spark
from tests.support.waiting import wait_for

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.spark,
    pytest.mark.timeout(900),
    pytest.mark.skipif(find_spec("pyspark") is None, reason="needs pyspark: heronpy[spark]"),
]
MODE = "EFFECTIVELY_ONCE"


@pytest.fixture
def spark() -> Iterator[StandaloneSpark]:
    """Either worker has room for all three containers."""
    with standalone_spark(workers=2, cores=3, memory="2g") as found:
        yield found


class World(Judged):
    timeout_s, patience_s = 300.0, 180.0

    def __init__(self, home: Path, shared: Path, spark: StandaloneSpark) -> None:
        self.spark, self.hosts = spark, shared / "hosts"
        rooms = {
            "engine": {"kind": "spark", "fence_s": 8, "lost_s": 15, "home": self.hosts},
            "spark_engine": {"master": spark.url},
            "packing": SMALL,
        }
        super().__init__("spark", home, shared, MODE, rooms, {}, rate=100.0)

    def first_process(self, container: int) -> psutil.Process:
        """Of the newest submission of a container."""
        found = []
        for process in bootstraps():
            with suppress(psutil.Error):
                variables = process.environ()
                if variables.get("HERON_CONTAINER") == str(container):
                    found.append((int(variables["HERON_SUBMISSION"]), process.pid))
        return psutil.Process(max(found)[1])

    def worker_of(self, container: int) -> subprocess.Popen[bytes]:
        above = {one.pid for one in self.first_process(container).parents()}
        return next(one for one in self.spark.workers if one.pid in above)

    def driver(self) -> psutil.Process:
        """The process that speaks for the application; its JVM is its child."""
        found = psutil.Process(self.location().pid).children()
        return next(one for one in found if "heronpy.spark.host" in one.cmdline())


def bootstraps() -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if "heronpy.executor.bootstrap" in process.cmdline():
                found.append(process)
    return found


def lose_container(world: World) -> None:
    """Its task returns, so its end is confirmed, and it is started again in the same executor."""
    executors = {one.pid for one in world.spark.executors()}
    again = world.later(2)
    kill_tree(world.first_process(2))
    world.when(again, "the successor of the killed container")
    assert {one.pid for one in world.spark.executors()} == executors, "no executor was replaced"
    others = [one.submission for name, one in world.records().items() if name != "executor-2"]
    assert others == [1, 1], "the others run on"


def lose_worker(world: World) -> None:
    """Nobody confirms an end: successors act in later epochs, on the other worker."""
    worker = world.worker_of(2)
    lost = [number for number in range(3) if world.worker_of(number) is worker]
    again = world.later(*lost)
    world.spark.lose(worker)
    world.when(again, "the successors of the containers of the lost worker")
    assert all(world.worker_of(number) is not worker for number in range(3))


def kill_driver(world: World) -> None:
    """All containers end with their application, and restart from the last checkpoint."""
    first, again, old = world.location().pid, world.later(0, 1, 2), bootstraps()
    kill_tree(world.driver())
    world.when(again, "the successors of all containers")
    assert world.location().pid == first, "the scheduler goes on"
    wait_for(lambda: not any(one.is_running() for one in old), 30, "the end of what the old application ran")


def kill_scheduler(world: World) -> None:
    """The driver is a child of the scheduler, so both end; another scheduler starts all containers again."""
    first, again = world.location().pid, world.later(0, 1, 2)
    os.kill(first, signal.SIGKILL)
    wait_for(lambda: world.location().pid != first, 60, "another scheduler")
    world.when(again, "the successors of all containers")


FAULTS = {one.__name__: one for one in (lose_container, lose_worker, kill_driver, kill_scheduler)}


@pytest.mark.parametrize("fault", FAULTS)
def test_every_tuple_counts_once_whatever_is_lost(home: Path, spark: StandaloneSpark, fault: str) -> None:
    with tempfile.TemporaryDirectory(prefix="hp-", dir="/var/tmp") as shared:
        world = World(home, Path(shared), spark)
        try:
            world.submit("--timeout", 120)
            assert len(world.records()) == 3
            world.flows()
            FAULTS[fault](world)
            world.flows()
            world.judge(stall_max_s=300.0)
        except BaseException:
            print(world.logs(world.hosts, world.spark.folder))
            raise
        finally:
            world.close()
        wait_for(lambda: not bootstraps(), 30, "the end of all containers")
        assert not list((world.hosts / "containers").glob("[!.]*")) or fault == "lose_worker"
