"""The engine of Spark over drivers that are programs of this test: what it hands over, believes and gives up."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from heronpy.engines.contract import Ended, EngineFatalError, EnginePhase, Request, Seen
from heronpy.engines.spark import driver as drivers
from heronpy.engines.spark import engine as engines
from heronpy.engines.spark.application import SparkOptions
from heronpy.engines.spark.engine import APPLICATIONS, SparkEngine
from tests.support.waiting import alive, wait_for

#: Says what it heard into a file; runs each container, and ends one that is cancelled. Words in a file steer it.
_DRIVER = """
import json, os, subprocess, sys
folder = os.environ["TEST_DRIVERS"]
def say(**words):
    print(json.dumps(words), flush=True)
if "--check" in sys.argv:
    say(what="Spark's master", ok=False, detail="cannot be reached", fix="start it")
    sys.exit(1)
first = json.loads(sys.stdin.readline())
with open(os.path.join(folder, f"{os.getpid()}.start"), "w") as file:
    json.dump(first, file)
how = open(os.path.join(folder, "how")).read()
if how == "fails":
    say(failed="all masters are unresponsive")
    sys.exit(1)
open(os.path.join(os.environ["HERON_SPARK_SCRATCH"], "half"), "w").close()
open(os.path.join(folder, "scratch"), "w").write(os.environ["HERON_SPARK_SCRATCH"])
if how == "has a child":
    child = subprocess.Popen(["sleep", "600"])
    open(os.path.join(folder, f"{child.pid}.child"), "w").close()
if how == "has few":
    say(ready=True, application="app-1", executors=1)
    sys.stdin.read()
jobs = {}
say(ready=True, application="app-1", executors=2)
for line in sys.stdin:
    told = json.loads(line)
    if told["do"] == "submit":
        jobs[told["id"]] = {"id": told["id"], "phase": "running", "words": told["join_token"]}
    else:
        jobs[told["id"]] = {"id": told["id"], "phase": "returned", "status": 0}
    say(ready=True, application="app-1", executors=2, jobs=list(jobs.values()))
"""


class Drivers:
    """The engine, and what its drivers were told."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "driver.py").write_text(_DRIVER)
        self.how("runs")
        argv = [sys.executable, str(folder / "driver.py")]
        options = SparkOptions("spark://127.0.0.1:7077", lost_s=3.0)
        self.engine = SparkEngine("wc-1", options, ["python"], poll_s=0.1, driver_argv=argv)

    def how(self, words: str) -> None:
        (self.folder / "how").write_text(words)

    def pids(self) -> list[int]:
        return [int(file.stem) for file in self.folder.glob("*.start")]

    def slots(self) -> list[str]:
        files = sorted(self.folder.glob("*.start"), key=lambda file: file.stat().st_mtime)
        return [json.loads(file.read_text())["properties"]["spark.cores.max"] for file in files]

    def submit(self, container: int, submission: int = 1) -> None:
        one = Request("wc-1", container, submission, 0.5, 10**8, token=f"token of {container}")
        assert self.engine.submit([one]) == {(container, submission): f"{container}.{submission}"}

    def seen(self) -> dict[str, Seen]:
        return {one.engine_id: one for one in self.engine.list()}

    def until(self, engine_id: str, what: Callable[[Seen], object]) -> Seen:
        def found() -> Seen | None:
            one = self.seen().get(engine_id)
            return one if one is not None and what(one) else None

        return wait_for(found, 20, f"job {engine_id}")


@pytest.fixture
def it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Drivers]:
    monkeypatch.setenv("TEST_DRIVERS", str(tmp_path))
    made = Drivers(tmp_path)
    yield made
    made.engine.close()
    wait_for(lambda: not any(alive(pid) for pid in made.pids()), 20, "the end of the drivers")
    names = ("spark-driver", "spark-driver-log")
    wait_for(lambda: not [one for one in threading.enumerate() if one.name in names], 20, "the end of their readers")


def runs(one: Seen) -> bool:
    return one.phase is EnginePhase.RUNNING


def test_containers_that_are_submitted_together_share_an_application(it: Drivers) -> None:
    it.submit(0)
    it.submit(1)
    assert {one.phase for one in it.seen().values()} == {EnginePhase.STARTING}
    assert it.until("0.1", runs).words == "token of 0"
    it.until("1.1", runs)
    # Another one, as after an update, and a successor, which stays with its application.
    it.submit(2)
    it.submit(1, 2)
    it.until("2.1", runs)
    it.until("1.2", runs)
    assert it.slots() == ["2", "1"]
    assert it.engine.topologies() == {"wc-1": 4}


def test_executors_that_may_still_be_starting_are_no_want_of_room(it: Drivers, monkeypatch: pytest.MonkeyPatch) -> None:
    it.how("has few")
    it.submit(0)
    it.submit(1)
    young = it.until("1.1", lambda one: "1 of 2 executors" in one.words)
    assert young.phase is EnginePhase.STARTING and young.words.endswith(": the other executors are starting")
    assert it.engine.explain("1.1").words == young.words
    monkeypatch.setattr(engines, "LAUNCH_S", 0.0)
    old = it.seen()["1.1"]
    assert old.phase is EnginePhase.QUEUED and old.words.endswith(": no worker in the cluster has these resources free")


def test_what_was_not_handed_over_is_cancelled_here(it: Drivers) -> None:
    it.submit(0)
    it.engine.cancel(["0.1", "no id"], 1.0)
    assert it.seen()["0.1"].ended is Ended.CONFIRMED
    assert not it.pids()
    it.submit(1)
    it.until("1.1", runs)
    it.engine.cancel(["1.1"], 1.0)
    assert it.until("1.1", lambda one: one.ended is not Ended.NO).ended is Ended.CONFIRMED


def test_the_end_of_a_driver_confirms_nothing_and_is_forgotten_in_time(it: Drivers) -> None:
    it.submit(0)
    it.until("0.1", runs)
    os.kill(it.pids()[0], signal.SIGKILL)
    lost = it.until("0.1", lambda one: one.ended is not Ended.NO)
    assert lost.ended is Ended.UNCONFIRMED and "was killed by signal 9" in lost.words
    it.submit(0, 2)
    it.until("0.2", runs)
    wait_for(lambda: "0.1" not in it.seen(), 20, "that nobody tells of the lost one any more")


@pytest.mark.heavy
def test_applications_that_are_ended_again_and_again_are_given_up(it: Drivers) -> None:
    for number in range(1, APPLICATIONS.budget + 2):
        it.submit(0, number)
        it.until(f"0.{number}", runs)
        (living,) = [pid for pid in it.pids() if alive(pid)]
        os.kill(living, signal.SIGKILL)
        it.until(f"0.{number}", lambda one: one.ended is Ended.UNCONFIRMED)
    with pytest.raises(EngineFatalError, match="ended 4 times within 5 minutes"):
        it.submit(0, 9)


def test_a_driver_that_never_had_an_application_has_run_nothing(it: Drivers) -> None:
    it.how("fails")
    it.submit(0)
    failed = it.until("0.1", lambda one: one.ended is not Ended.NO)
    assert failed.ended is Ended.CONFIRMED and failed.words == "all masters are unresponsive"


def test_a_driver_that_hangs_is_ended_with_its_jvm(it: Drivers, monkeypatch: pytest.MonkeyPatch) -> None:
    it.how("has a child")
    it.submit(0)
    it.until("0.1", runs)
    [child] = [int(file.stem) for file in it.folder.glob("*.child")]
    monkeypatch.setattr(drivers, "SILENT_S", 0.0)
    with pytest.raises(drivers.EngineAwayError, match="has not answered"):
        wait_for(lambda: it.seen() and False, 10, "a list")
    monkeypatch.undo()
    monkeypatch.setenv("TEST_DRIVERS", str(it.folder))
    it.until("0.1", lambda one: one.ended is Ended.UNCONFIRMED)
    wait_for(lambda: not alive(child), 20, "the end of what it had started")
    scratch = Path((it.folder / "scratch").read_text())
    wait_for(lambda: not scratch.exists(), 20, "the end of its files")


def test_a_list_may_be_new_as_soon_as_a_driver_tells_something(it: Drivers) -> None:
    told: list[bool] = []
    with it.engine.watch(lambda: told.append(True)):
        it.submit(0)
        it.until("0.1", runs)
        wait_for(lambda: told, 10, "a word of the driver")


def test_a_check_shows_what_the_driver_says(it: Drivers) -> None:
    (found,) = it.engine.check()
    assert (found.ok, found.detail, found.fix) == (False, "cannot be reached", "start it")
    assert it.engine.reach() == ("127.0.0.1",)
    assert "wc-1" in it.engine.look_command()
    assert it.engine.node_sizes() == []
