"""A topology whose containers Spark runs: a standalone master with two workers, real first processes, every tuple known.

YARN and Kubernetes as masters are not tried here.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import asdict, replace
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest

from heronpy.cli import exits
from heronpy.net.rpc import RpcClient
from heronpy.proto import control_pb2, plan_pb2
from heronpy.statemgr import open_state, paths
from heronpy.verify import topology as program
from heronpy.verify.oracle import Limits, verify
from heronpy.verify.records import RECORD, TRACE, write_end
from heronpy.verify.run import Run
from heronpy.verify.stream import InputSpec
from tests.support.standalone_spark import StandaloneSpark, standalone_spark
from tests.support.waiting import wait_for

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.spark,
    pytest.mark.timeout(900),
    pytest.mark.skipif(find_spec("pyspark") is None, reason="needs pyspark: heronpy[spark]"),
]
ROOT = Path(__file__).parents[2]
NAME = "verified"
INPUT = InputSpec(seed=7, partitions=2, count=0, keys=50, payload_bytes=50, rate=100.0)
MODE = "EFFECTIVELY_ONCE"


@pytest.fixture
def spark() -> Iterator[StandaloneSpark]:
    """Either worker has room for all three containers."""
    with standalone_spark(workers=2, cores=3, memory="2g") as found:
        yield found


class World:
    """`heron` on that cluster, and one topology whose every tuple is known."""

    def __init__(self, home: Path, shared: Path, spark: StandaloneSpark) -> None:
        self.home, self.spark, self.hosts = home, spark, shared / "hosts"
        self.out = shared / "out"
        self.out.mkdir(mode=0o700)
        rooms = {
            "engine": {
                "kind": "spark", "renew_s": 1, "fence_s": 8, "lost_s": 15, "permit_s": 20, "poll_s": 0.5,
                "shared": shared, "home": self.hosts,
            },
            "spark_engine": {"master": spark.url},
            "packing": {"instance_ram_bytes": "100MB", "instance_cpu": 0.1},
            "checkpoint": {"root": shared / "checkpoints", "interval_s": 1},
        }  # fmt: skip
        conf = home / "conf" / "spark"
        conf.mkdir(parents=True, mode=0o700)
        for room, values in rooms.items():
            (conf / f"{room}.yaml").write_text("".join(f"{name}: {value}\n" for name, value in values.items()))
        self.env = {**os.environ, "HERON_CONF": str(conf.parent)}

    def heron(self, *words: object, codes: tuple[int, ...] = (exits.OK,)) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "heronpy.cli", *map(str, words)],
            env=self.env, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        assert done.returncode in codes, done.stdout + done.stderr
        return done.stdout + done.stderr

    def submit(self) -> None:
        run = Run(mode=MODE, containers=2, tasks=2, message_timeout_s=20, input=INPUT)
        (self.out / "spec").write_text(json.dumps({**asdict(run), "name": NAME, "out": str(self.out)}))
        (self.out / "topology.py").write_bytes(Path(program.__file__).read_bytes())
        began = time.monotonic()
        self.heron("submit", "spark", self.out / "topology.py", "-", "--spec", self.out / "spec", "--timeout", 120)
        print(f"submit: {time.monotonic() - began:.1f} s")
        self._timed(lambda: self._arrived() > 0, "the first tuple after that")

    def location(self) -> plan_pb2.SchedulerLocation:
        with closing(open_state("local", str(self.home / "state" / "spark"))) as state:
            found = wait_for(lambda: state.get(paths.scheduler(NAME)), 60, "the scheduler's permit")
        return plan_pb2.SchedulerLocation.FromString(found[0])

    def containers(self) -> dict[str, control_pb2.ProcessRecord]:
        with RpcClient(self.location().endpoint) as client:
            reply = client.call(control_pb2.GetContainers(), 30.0)
        return {one.name: one for one in reply.containers}

    def when(self, holds: Callable[[dict[str, control_pb2.ProcessRecord]], bool], what: str) -> None:
        self._timed(lambda: holds(self.containers()), what)

    def _timed(self, holds: Callable[[], bool], what: str) -> None:
        """Wait, and print for how long: `pytest -s` shows the figures."""
        began = time.monotonic()
        wait_for(holds, 180, what)
        print(f"{what}: after {time.monotonic() - began:.1f} s")

    def later(self, *numbers: int) -> Callable[[dict[str, control_pb2.ProcessRecord]], bool]:
        """Whether these containers act in a later epoch than now, and all run."""
        before = {name: one.epoch for name, one in self.containers().items()}
        names = [f"executor-{number}" for number in numbers]
        return lambda found: (
            all(one.phase == "RUNNING" for one in found.values())
            and all(found[name].epoch > before[name] for name in names)
        )

    def flows(self) -> None:
        """Further tuples arrive."""
        before = self._arrived()
        self._timed(lambda: self._arrived() > before + 300, "300 further tuples")

    def _arrived(self) -> int:
        return sum(path.stat().st_size for path in (self.out / TRACE).glob("*.seg")) // RECORD.size

    def first_process(self, container: int) -> psutil.Process:
        """Of the newest submission of a container."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                words, variables = process.cmdline(), process.environ()
                if "heronpy.executor.bootstrap" in words and variables.get("HERON_CONTAINER") == str(container):
                    found.append((int(variables["HERON_SUBMISSION"]), process.pid))
        return psutil.Process(max(found)[1])

    def worker_of(self, container: int) -> subprocess.Popen[bytes]:
        above = {one.pid for one in self.first_process(container).parents()}
        return next(one for one in self.spark.workers if one.pid in above)

    def driver(self) -> psutil.Process:
        """The process that speaks for the application; its JVM is its child."""
        found = psutil.Process(self.location().pid).children()
        return next(one for one in found if "heronpy.spark.host" in one.cmdline())

    def bootstraps(self) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if "heronpy.executor.bootstrap" in process.cmdline():
                    found.append(process)
        return found

    def finish(self) -> InputSpec:
        """End the input, and wait until the topology has ended; what the input was."""
        count = write_end(self.out, INPUT.partitions, INPUT.rate)
        wait_for(lambda: '"FINISHED"' in self.heron("status", "spark", NAME, "--json"), 240, "the end of the topology")
        return replace(INPUT, count=count)

    def close(self) -> None:
        with suppress(subprocess.TimeoutExpired):
            self.heron("kill", "spark", NAME, "--force", "--timeout", "30", codes=(exits.OK, exits.NOT_FOUND))

    def logs(self) -> str:
        """What hosts, scheduler and Spark say, for a test that fails."""
        found = [*self.home.rglob("*.log"), *self.hosts.rglob("*.log"), *self.spark.folder.glob("*.log")]
        return "\n".join(f"==== {log}\n{log.read_text(errors='replace')[-4000:]}" for log in sorted(found))


def kill_tree(process: psutil.Process) -> None:
    for one in (process, *process.children(recursive=True)):
        with suppress(psutil.Error):
            one.kill()


def lose_container(world: World) -> None:
    """Its task returns, so its end is confirmed, and it is started again in the same executor."""
    executors = {one.pid for one in world.spark.executors()}
    again = world.later(2)
    kill_tree(world.first_process(2))
    world.when(again, "the successor of the killed container")
    assert {one.pid for one in world.spark.executors()} == executors, "no executor was replaced"
    others = [one.submission for name, one in world.containers().items() if name != "executor-2"]
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
    """All containers end with their application, and start anew from the last checkpoint."""
    first, again, old = world.location().pid, world.later(0, 1, 2), world.bootstraps()
    kill_tree(world.driver())
    world.when(again, "the successors of all containers")
    assert world.location().pid == first, "the scheduler goes on"
    wait_for(lambda: not any(one.is_running() for one in old), 30, "the end of what the old application ran")


def kill_scheduler(world: World) -> None:
    """Its driver is its child, so it is the same; another scheduler starts them anew."""
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
            world.submit()
            assert len(world.containers()) == 3
            world.flows()
            FAULTS[fault](world)
            world.flows()
            verdict = verify(world.out, world.finish(), MODE, Limits(stall_max_s=300.0))
        except BaseException:
            print(world.logs())
            raise
        finally:
            world.close()
        wait_for(lambda: not world.bootstraps(), 30, "the end of all containers")
        assert not list((world.hosts / "containers").glob("[!.]*")) or fault == "lose_worker"
    assert verdict.ok, json.dumps(verdict.as_json(), indent=1)
    assert verdict.arrived >= verdict.expected > 500
