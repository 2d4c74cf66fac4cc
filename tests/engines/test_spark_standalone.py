"""The Spark engine on a real cluster of Spark's own, a master and two workers: submitted, seen, ended, lost."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import pytest

from heronpy.engines.contract import Ended, EngineAwayError, EnginePhase, Request, Seen
from heronpy.engines.spark import driver as drivers
from heronpy.engines.spark import engine as engines
from heronpy.engines.spark.application import SparkOptions
from heronpy.engines.spark.engine import SparkEngine
from heronpy.procs.exit_reason import ExitReason
from tests.support.standalone_spark import StandaloneSpark, standalone_spark
from tests.support.waiting import alive, wait_for

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.spark,
    pytest.mark.timeout(300),
    pytest.mark.skipif(find_spec("pyspark") is None, reason="needs pyspark: heronpy[spark]"),
]
TOPOLOGY = "WordCount0d1f"
PATIENCE_S = 120.0
TOKEN = "token-7f3a9c51"
#: A container: it leaves a file that names it, shows what it got, and does what its join token says.
CONTAINER = """
import os, signal, sys, time
_, verb, rest = sys.stdin.read().split(" ")
def end(signum, frame):
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
me = [os.environ["HERON_" + name] for name in ("TOPOLOGY_ID", "CONTAINER", "SUBMISSION")]
print(*me, [name for name in os.environ if name.startswith(("SPARK_", "PYSPARK"))], flush=True)
open(os.path.join(sys.argv[1], f"{me[1]}.{me[2]}.{os.getpid()}"), "w").close()
if verb == "exit":
    sys.exit(int(rest))
if verb == "die":
    os.kill(os.getpid(), signal.SIGKILL)
while not os.path.exists(os.path.join(sys.argv[1], "end")):
    time.sleep(0.05)
sys.exit(3)
"""


@pytest.fixture(scope="module")
def spark() -> Iterator[StandaloneSpark]:
    """Room for three containers on either worker; no test takes a daemon away from the next one."""
    with standalone_spark(workers=2, cores=3, memory="2g") as found:
        yield found


@pytest.fixture
def losing() -> Iterator[StandaloneSpark]:
    """A cluster of one test, which may take away what it likes."""
    with standalone_spark(workers=2, cores=3, memory="2g") as found:
        yield found


class World:
    """Engines on a cluster, and the processes of their containers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.engines: list[SparkEngine] = []
        self.topologies: set[str] = set()

    def engine(self, spark: StandaloneSpark, topology: str = TOPOLOGY, **options: Any) -> SparkEngine:
        command = [sys.executable, "-c", CONTAINER, str(self.folder)]
        given = SparkOptions(spark.url, **{"lost_s": 60.0, "python": sys.executable, **options})
        self.topologies.add(topology)
        self.engines.append(SparkEngine(topology, given, command, poll_s=0.2))
        return self.engines[-1]

    def begun(self, container: int, submission: int = 1) -> list[int]:
        """Pids of all processes that ever ran for a submission."""
        return [int(one.suffix[1:]) for one in self.folder.glob(f"{container}.{submission}.*")]

    def pid(self, container: int, submission: int = 1) -> int:
        def one() -> int:
            found = self.begun(container, submission)
            return found[0] if found else 0

        return wait_for(one, PATIENCE_S, f"the process of container {container}, submission {submission}")

    def living(self) -> list[int]:
        return [pid for one in self.folder.glob("*.*.*") if alive(pid := int(one.suffix[1:]))]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    found = World(tmp_path)
    yield found
    processes = [one for topology in found.topologies for one in drivers_of(topology)]
    for engine in found.engines:
        engine.close()
    wait_for(lambda: not any(one.is_running() for one in processes), 60, "the end of the drivers")
    wait_for(lambda: not found.living(), 60, "the end of all containers")


def drivers_of(topology: str = TOPOLOGY) -> list[psutil.Process]:
    """The drivers of this process for a topology, each with its JVM."""
    found = []
    for one in psutil.Process().children():
        with suppress(psutil.Error):
            if "heronpy.spark.host" in (words := one.cmdline()) and topology in words and "--check" not in words:
                found += [one, *one.children(recursive=True)]
    return found


def ask(container: int, submission: int = 1, what: str = "run -", topology: str = TOPOLOGY, **size: Any) -> Request:
    given = {"cpu": 0.5, "ram_bytes": 100 << 20, **size}
    return Request(topology, container, submission, token=f"{TOKEN} {what}", **given)


def seen_by(engine: SparkEngine) -> dict[tuple[int, int], Seen]:
    return {(seen.container, seen.submission): seen for seen in engine.list()}


def when(
    engine: SparkEngine, holds: Callable[[dict[tuple[int, int], Seen]], bool], what: str, away: bool = False
) -> dict[tuple[int, int], Seen]:
    """`away`: the engine may not answer for a while."""
    found: dict[tuple[int, int], Seen] = {}

    def look() -> bool:
        nonlocal found
        try:
            found = seen_by(engine)
        except EngineAwayError:
            if not away:
                raise
            return False
        return bool(found) and holds(found)

    wait_for(look, PATIENCE_S, what)
    return found


def all_run(seen: dict[tuple[int, int], Seen]) -> bool:
    return all(one.phase is EnginePhase.RUNNING for one in seen.values())


def all_ended(seen: dict[tuple[int, int], Seen]) -> bool:
    return all(one.ended is not Ended.NO for one in seen.values())


def test_containers_run_and_leave_nothing(world: World, spark: StandaloneSpark) -> None:
    engine = world.engine(spark)
    ids = engine.submit([ask(0, cpu=0.1), ask(1), ask(3)])
    assert ids == {(0, 1): "0.1", (1, 1): "1.1", (3, 1): "3.1"}
    seen = when(engine, all_run, "three running")
    assert set(seen) == {(0, 1), (1, 1), (3, 1)}
    assert all(one.ended is Ended.NO and "executor" in one.words for one in seen.values())
    assert len(spark.executors()) == 3 and engine.topologies() == {TOPOLOGY: 3}
    assert world.engine(spark, "another").list() == []
    processes = drivers_of()
    assert any("java" in one.name() for one in processes)
    pids = [world.pid(number) for number in (0, 1, 3)]
    # They end by themselves, as when the endpoint tells them to.
    (world.folder / "end").touch()
    seen = when(engine, all_ended, "all ended")
    assert all((one.ended, one.exit_code) == (Ended.CONFIRMED, 3) for one in seen.values())
    assert not any(alive(pid) for pid in pids) and engine.topologies() == {}
    assert engine.termination_report(ids[3, 1]).strip() == f"{TOPOLOGY} 3 1 []"
    engine.close()
    wait_for(lambda: not any(one.is_running() for one in processes), 60, "the end of the driver")
    wait_for(lambda: not spark.executors(), 60, "the end of the application")


def test_ends_have_their_reasons(world: World, spark: StandaloneSpark) -> None:
    engine = world.engine(spark)
    engine.submit([ask(number, what=what) for number, what in enumerate(("exit 0", "exit 4", "die -"))])
    seen = when(engine, all_ended, "all ended")
    assert all(one.ended is Ended.CONFIRMED and not one.cancelled for one in seen.values())
    assert [(seen[number, 1].reason, seen[number, 1].exit_code) for number in range(3)] == [
        (ExitReason.PREEMPTED, 0), (ExitReason.USER_EXCEPTION, 4), (ExitReason.KILLED, None),
    ]  # fmt: skip
    # A successor runs in the executor of its predecessor.
    executors = {one.pid for one in spark.executors()}
    engine.submit([ask(2, 2)])
    when(engine, lambda seen: seen[2, 2].phase is EnginePhase.RUNNING, "the successor running")
    assert {one.pid for one in spark.executors()} == executors and len(world.begun(2, 1)) == 1


def test_the_token_is_in_the_closure_alone(world: World, spark: StandaloneSpark) -> None:
    engine = world.engine(spark)
    engine.submit([ask(1)])
    when(engine, all_run, "the container running")
    world.pid(1)
    told = TOKEN.encode()
    for process in psutil.process_iter():
        with suppress(OSError):
            for name in ("cmdline", "environ"):
                assert told not in Path(f"/proc/{process.pid}/{name}").read_bytes(), process
    [driver] = [one for one in drivers_of() if one.status() != "zombie" and "heronpy.spark.host" in one.cmdline()]
    opened = [Path(words.split("=", 1)[1]) for words in driver_files(driver)]
    files = [one for folder in (spark.folder, *opened) for one in folder.rglob("*") if one.is_file()]
    assert any("stderr" in one.name for one in files), "the log of an executor is among them"
    assert not [one for one in files if told in one.read_bytes()]


def driver_files(driver: psutil.Process) -> list[str]:
    """The folder of a driver, as its JVM was told it: `spark.local.dir=...`."""
    words = [word for one in driver.children(recursive=True) for word in one.cmdline()]
    [properties] = [word for word in words if word.endswith("spark.properties")]
    return [line for line in Path(properties).read_text().splitlines() if line.startswith("spark.local.dir=")]


def test_a_container_that_hears_nothing_is_killed_after_the_grace(
    world: World, spark: StandaloneSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark kills its task without asking what that has started, so that confirms nothing; it ends all the same."""
    monkeypatch.setattr(engines, "ENDPOINT_S", 0.5)
    engine = world.engine(spark)
    ids = engine.submit([ask(1), ask(2)])
    when(engine, all_run, "both running")
    pid, other = world.pid(1), world.pid(2)
    engine.cancel([ids[1, 1], "9.9", "no id"], 0.5)
    engine.cancel([ids[1, 1]], 0.5)
    seen = when(engine, lambda seen: seen[1, 1].ended is not Ended.NO, "its end")
    assert seen[1, 1].ended is Ended.UNCONFIRMED and "Spark has killed its task" in seen[1, 1].words
    wait_for(lambda: not alive(pid), 30, "the end of its process")
    assert seen_by(engine)[2, 1].phase is EnginePhase.RUNNING and alive(other)
    assert len(world.begun(1)) == 1, "Spark does not repeat it"


def test_what_waits_says_why_and_is_cancelled(world: World, spark: StandaloneSpark) -> None:
    engine = world.engine(spark, cores=3)
    ids = engine.submit([ask(number) for number in range(3)])
    words = "has 2 of 3 executors, each with 3 cores and 512MB: no worker in the cluster has these resources free"
    seen = when(
        engine,
        lambda seen: (
            [one.phase for one in seen.values()].count(EnginePhase.RUNNING) == 2
            and any(words in engine.explain(one.engine_id).words for one in seen.values())
        ),
        "two running",
    )
    [waits] = [one for one in seen.values() if one.phase is not EnginePhase.RUNNING]
    seen = when(engine, lambda seen: any(one.phase is EnginePhase.QUEUED for one in seen.values()), "one queued")
    assert words in seen[waits.container, 1].words and not seen[waits.container, 1].hopeless
    engine.cancel([waits.engine_id], 1.0)
    seen = when(engine, lambda seen: seen[waits.container, 1].ended is not Ended.NO, "its end")
    assert seen[waits.container, 1].ended is Ended.CONFIRMED
    assert not world.begun(waits.container) and len(ids) == 3
    # Another application has to wait for all of its executors.
    late = world.engine(spark, "late")
    late.submit([ask(1, topology="late")])
    when(late, lambda seen: seen[1, 1].phase is EnginePhase.QUEUED, "the late one waiting")
    (world.folder / "end").touch()
    when(engine, all_ended, "all ended")
    engine.close()
    when(late, lambda seen: seen[1, 1].ended is Ended.CONFIRMED, "the late one's turn")


def test_a_python_that_is_not_there_is_told(world: World, spark: StandaloneSpark) -> None:
    engine = world.engine(spark, python="/no/python")
    engine.submit([ask(1)])
    seen = when(engine, all_ended, "its end")[1, 1]
    assert (seen.ended, seen.reason) == (Ended.CONFIRMED, ExitReason.SPAWN_FAILED), seen
    assert "/no/python" in seen.words and not world.begun(1)


def test_a_lost_executor_confirms_nothing_and_starts_nothing_again(world: World, spark: StandaloneSpark) -> None:
    engine = world.engine(spark)
    engine.submit([ask(1), ask(2)])
    when(engine, all_run, "both running")
    pids = {number: world.pid(number) for number in (1, 2)}
    executor_of(spark, pids[1]).kill()
    seen = when(engine, lambda seen: seen[1, 1].ended is not Ended.NO, "Spark giving it up")
    assert seen[1, 1].ended is Ended.UNCONFIRMED and seen[1, 1].reason is None
    assert "its executor is lost" in seen[1, 1].words
    wait_for(lambda: not alive(pids[1]), 30, "the end of its orphan")
    engine.submit([ask(1, 2)])
    seen = when(engine, lambda seen: seen[1, 2].phase is EnginePhase.RUNNING, "the successor in another executor")
    assert alive(pids[2]) and seen[2, 1].phase is EnginePhase.RUNNING
    world.pid(1, 2)
    assert (len(world.begun(1)), len(world.begun(2)), len(world.begun(1, 2))) == (1, 1, 1), "nothing ran twice"


def executor_of(spark: StandaloneSpark, pid: int) -> psutil.Process:
    above = {one.pid for one in psutil.Process(pid).parents()}
    return next(one for one in spark.executors() if one.pid in above)


def test_a_lost_worker_confirms_nothing(world: World, losing: StandaloneSpark) -> None:
    """It and its executors stand still, as on a host that no network reaches; what it had to run goes on there."""
    engine = world.engine(losing)
    engine.submit([ask(number) for number in range(3)])
    when(engine, all_run, "three running")
    pids = {number: world.pid(number) for number in range(3)}
    worker = losing.workers[0]
    executors = {one.pid for one in psutil.Process(worker.pid).children(recursive=True)}
    lost = {number for number, pid in pids.items() if executor_of(losing, pid).pid in executors}
    assert lost and lost != set(pids), "either worker has some"
    losing.lose(worker, but=[*pids.values()])
    seen = when(engine, lambda seen: all(seen[number, 1].ended is not Ended.NO for number in lost), "the loss")
    assert all(seen[number, 1].ended is Ended.UNCONFIRMED for number in lost)
    assert all(seen[number, 1].phase is EnginePhase.RUNNING for number in set(pids) - lost)
    engine.submit([ask(number, 2) for number in lost])
    when(engine, lambda seen: all(seen[number, 2].phase is EnginePhase.RUNNING for number in lost), "successors")
    living = {one.pid for one in losing.executors()}
    assert all(executor_of(losing, world.pid(number, 2)).pid in living for number in lost)


def test_without_a_master_what_runs_goes_on(world: World, losing: StandaloneSpark) -> None:
    engine = world.engine(losing)
    engine.submit([ask(1), ask(2)])
    when(engine, all_run, "both running")
    pids = [world.pid(number) for number in (1, 2)]
    losing.lose(losing.master)
    os.kill(pids[0], signal.SIGTERM)
    seen = when(engine, lambda seen: seen[1, 1].ended is not Ended.NO, "the end of one")
    assert (seen[1, 1].ended, seen[1, 1].exit_code) == (Ended.CONFIRMED, 0)
    assert seen[2, 1].phase is EnginePhase.RUNNING and alive(pids[1])
    engine.submit([ask(1, 2)])
    when(engine, lambda seen: seen[1, 2].phase is EnginePhase.RUNNING, "its successor in the same executor")
    [bad] = [one for one in engine.check() if not one.ok]
    assert bad.what == "Spark's master" and "cannot be reached" in bad.detail and bad.fix
    # A new application finds none.
    other = world.engine(losing, "other")
    other.submit([ask(1, topology="other")])
    seen = when(other, all_ended, "the failure of its application")
    assert (seen[1, 1].ended, seen[1, 1].reason) == (Ended.CONFIRMED, ExitReason.SPAWN_FAILED), seen
    assert alive(pids[1])


@pytest.mark.parametrize("what", ["driver", "JVM"])
def test_all_containers_end_with_their_driver(world: World, spark: StandaloneSpark, what: str) -> None:
    engine = world.engine(spark)
    engine.submit([ask(1), ask(2)])
    when(engine, all_run, "both running")
    pids = [world.pid(number) for number in (1, 2)]
    processes = drivers_of()
    victim = next(one for one in processes if ("java" in one.name()) == (what == "JVM"))
    victim.kill()
    seen = when(engine, all_ended, "the end of the application")
    assert all(one.ended is Ended.UNCONFIRMED and one.words for one in seen.values())
    wait_for(lambda: not any(alive(pid) for pid in pids), 30, "the end of its containers")
    wait_for(lambda: not any(one.is_running() for one in processes), 30, "the end of all of the driver")
    engine.submit([ask(1, 2)])
    when(engine, lambda seen: seen[1, 2].phase is EnginePhase.RUNNING, "one in an application of its own")


def test_a_driver_that_hangs_is_away_and_ended(
    world: World, spark: StandaloneSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = world.engine(spark)
    engine.submit([ask(1)])
    when(engine, all_run, "it running")
    pid, processes = world.pid(1), drivers_of()
    next(one for one in processes if "java" in one.name()).suspend()
    monkeypatch.setattr(drivers, "SILENT_S", 4.0)
    with pytest.raises(EngineAwayError, match="has not answered for"):
        when(engine, lambda seen: False, "a refusal")
    wait_for(lambda: not any(one.is_running() for one in processes), 30, "the end of its JVM")
    # It is away until the end of the driver is known.
    seen = when(engine, all_ended, "the end of its driver", away=True)[1, 1]
    assert seen.ended is Ended.UNCONFIRMED
    wait_for(lambda: not alive(pid), 30, "the end of its container")


def test_an_application_that_is_killed_at_the_master_is_replaced(world: World, spark: StandaloneSpark) -> None:
    engine = world.engine(spark)
    engine.submit([ask(1)])
    when(engine, all_run, "it running")
    pid = world.pid(1)
    spark.kill_application()
    seen = when(engine, all_ended, "its end")[1, 1]
    assert seen.ended is Ended.UNCONFIRMED and "the cluster has removed the application" in seen.words, seen
    wait_for(lambda: not alive(pid), 30, "the end of its container")
    engine.submit([ask(1, 2)])
    when(engine, lambda seen: seen[1, 2].phase is EnginePhase.RUNNING, "its successor")


def test_an_application_without_containers_is_given_back(
    world: World, spark: StandaloneSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "IDLE_S", 1.0)
    engine = world.engine(spark)
    engine.submit([ask(1, what="exit 0")])
    when(engine, all_ended, "its end")
    wait_for(lambda: engine.list() is not None and not drivers_of(), 60, "the end of the application")
    wait_for(lambda: not spark.executors(), 60, "no executor")


def test_check_and_reach(world: World, spark: StandaloneSpark) -> None:
    engine = world.engine(spark)
    found = engine.check()
    assert [one.what for one in found] == ["Spark's driver", "Spark's master"] and all(one.ok for one in found), found
    assert engine.reach() == ("127.0.0.1",)
    assert TOPOLOGY in engine.look_command()
