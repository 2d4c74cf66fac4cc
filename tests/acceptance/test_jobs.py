"""Jobs, as a user has them: topologies that are what their layers say, whoever dies and whatever is deployed."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from heronpy.statemgr import open_state, paths
from tests.acceptance.test_checkpoints import EXAMPLE, RATE, TEXT, TIMES, counts, expected, when_checkpoints
from tests.support.command import EXISTS, FAILED, NOT_FOUND, USAGE, Heron
from tests.support.waiting import wait_for

DAY = Path(__file__).parents[2] / "topologies" / "day.py"

pytestmark = [pytest.mark.slow, pytest.mark.heavy, pytest.mark.timeout(420)]


@pytest.fixture
def jobs(heron: Heron) -> Iterator[Heron]:
    """The command; the manager and what it keeps are ended after the test."""
    yield heron
    heron("manager", "stop", "local")
    state = open_state("local", str(heron.home / "state" / "local"))
    try:
        for folder in (paths.JOBS, paths.RUNNING_JOBS, "joblog", "scaled", paths.DEFINITIONS):
            for name in state.children(folder):
                state.delete(f"{folder}/{name}")
        if state.exists(paths.JOB_NEWS):
            state.delete(paths.JOB_NEWS)
    finally:
        state.close()
    for name in heron.names():
        heron.kill(name)


def job(heron: Heron) -> Any:
    return heron("job", "show", "local", "Counts", "--json").json()


def in_state(heron: Heron, state: str, known: str = "") -> Any:
    """The job once it has this state, with another topology than the one known."""

    def look() -> Any:
        found = job(heron)
        return found if found["state"] == state and found["topology_id"] != known else None

    return wait_for(look, 120.0, f"the job being {state}")


def acting(heron: Heron) -> str | None:
    found = heron("manager", "status", "local", "--json").json()["acting"]["syncer"]
    return found and str(found["id"])


def tasks(heron: Heron) -> Counter[str]:
    return Counter(task["component"] for task in heron.status("Counts")["tasks"])


def kill_process(heron: Heron, module: str) -> int:
    """SIGKILL all processes that run a module; how many they were."""
    found = [one for one in heron.processes() if module in one.cmdline()]
    for one in found:
        one.send_signal(signal.SIGKILL)
    psutil.wait_procs(found, 10.0)
    return len(found)


def program(folder: Path, name: str, before: str, after: str) -> Path:
    """The example with a change."""
    text = EXAMPLE.read_text()
    assert before in text
    path = folder / name
    path.write_text(text.replace(before, after))
    return path


def words(out: Path) -> tuple[object, ...]:
    return ("-", "Counts", "--file", TEXT, "--out", out, "--times", TIMES, "--rate", RATE)


def test_a_job_is_kept_true_whoever_dies_and_whatever_is_deployed(jobs: Heron, tmp_path: Path) -> None:
    """The counts are exact at the end of all of it."""
    heron, out = jobs, tmp_path / "out"
    made = heron("job", "create", "local", EXAMPLE, *words(out), "--config-property", "heron.checkpoint.interval_s=0.5")
    assert "job Counts: created" in made.ok().out and "The manager of local is running" in made.out
    heron("job", "create", "local", EXAMPLE, *words(out)).refused(EXISTS, "job 'Counts' exists", "heron job deploy")
    first = in_state(heron, "IN_SYNC")["topology_id"]

    heron("job", "set", "local", "Counts", "parallelism.split=3", "--for", "2h", "--why", "backfill").ok()
    assert tasks(heron)["split"] == 3 and job(heron)["topology_id"] == first
    heron("submit", "local", EXAMPLE, *words(out)[1:]).refused(FAILED, "heron job deploy local Counts PROGRAM")
    for verb in (("kill",), ("stop", "--drain"), ("deactivate",), ("update", "--runtime-config", "a:b")):
        heron(verb[0], "local", "Counts", *verb[1:]).refused(FAILED, "is controlled by its job", "heron job ")

    # The guardian starts the manager again, but not one that is killed with it; then a verb does.
    when_checkpoints(heron, 1)
    assert kill_process(heron, "heronpy.jobs") >= 2 and kill_process(heron, "heronpy.scheduler") >= 2
    heron("job", "set", "local", "Counts", "component_config.line.counts.rate=400", "--detach").ok()
    second = in_state(heron, "IN_SYNC", first)["topology_id"]
    assert tasks(heron)["split"] == 3
    killed = heron("manager", "status", "local", "--json").json()["acting"]["syncer"]
    os.kill(killed["pid"], signal.SIGKILL)
    wait_for(lambda: acting(heron) not in (None, killed["id"]), 30.0, "another manager that acts")

    broken = program(tmp_path, "broken.py", "import argparse", "import argparse, nothere")
    heron("job", "deploy", "local", "Counts", broken, *words(out)).refused(FAILED, "job Counts is unchanged")
    late = program(tmp_path, "late.py", "import os\n", "import os\nif __name__ != '__main__':\n    import nothere\n")
    heron("job", "deploy", "local", "Counts", late, *words(out)).refused(FAILED, "cannot be imported", "nothere")
    assert job(heron)["topology_id"] == second
    heron("job", "revert", "local", "Counts").ok()
    crashing = program(tmp_path, "crashing.py", 'self.turns = config["counts.times"]', "self.turns = 1 // 0")
    heron("job", "deploy", "local", "Counts", crashing, *words(out)).refused(FAILED, "QUARANTINED", "Zero", " runs; ")
    heron("job", "revert", "local", "Counts").ok()
    third = in_state(heron, "IN_SYNC", second)["topology_id"]
    assert third.endswith("-back") and tasks(heron)["split"] == 3

    heron("job", "stop", "local", "Counts").ok()
    assert heron.names() == []
    heron("job", "start", "local", "Counts").ok()
    in_state(heron, "IN_SYNC", third)
    heron("job", "delete", "local", "Counts").refused(FAILED, "stop the job first")
    heron("job", "set", "local", "Counts", "component_config.line.counts.rate=0", "--detach").ok()
    in_state(heron, "FINISHED")
    assert counts(out) == expected()
    heron("job", "stop", "local", "Counts").ok()
    heron("job", "delete", "local", "Counts").ok()
    assert heron.names() == [] and heron("job", "list", "local", "--json").json() == []


def test_what_is_wrong_is_one_sentence_and_changes_nothing(jobs: Heron, tmp_path: Path) -> None:
    heron, out = jobs, tmp_path / "out"
    heron("job", "show", "local", "Counts").refused(NOT_FOUND, "there is no job 'Counts'")
    heron("submit", "local", EXAMPLE, *words(out)[1:]).ok()
    heron("job", "create", "local", EXAMPLE, *words(out)).refused(
        EXISTS, "already running", "heron job adopt local Counts"
    )
    assert heron("job", "list", "local", "--json").json() == []
    heron.kill("Counts")
    heron("job", "create", "local", EXAMPLE, *words(out)).ok()
    before = job(heron)

    def refused(*said: object, code: int = USAGE, layer: str = "oncall", key: str) -> None:
        heron("job", "set", "local", "Counts", key, "--as", layer).refused(code, *map(str, said))

    refused("there is no layer 'oncal'", "did you mean", layer="oncal", key="run=paused")
    refused("cannot be written by hand", "oncall", layer="scaler", key="parallelism.split=2")
    refused("unknown key 'paralelism'", "parallelism", key="paralelism.split=2")
    refused("component 'splt'", "split", key="parallelism.splt=2")
    refused("a whole number", key="parallelism.split=0")
    refused("a whole number from 0 to 1000", key="priority=5000")
    refused("heron job deploy", key="definition=12")
    refused("is not KEY=VALUE", key="parallelism.split")
    refused("heron.nothing", key="settings.heron.nothing=1")
    heron("job", "revert", "local", "Counts").refused(USAGE, "no earlier version")
    heron("job", "unset", "local", "Counts", "run").refused(USAGE, "does not set 'run'")
    assert job(heron) | {"plan": None, "state": ""} == before | {"plan": None, "state": ""}

    # A program that cannot be unpacked is refused before anything stops.
    running = in_state(heron, "IN_SYNC")["topology_id"]
    [package] = [one for one in (heron.home / "packages").iterdir() if len(one.name) == 64]
    package.rename(package.with_name("gone"))
    key = "settings.heron.checkpoint.interval_s=7"
    heron("job", "set", "local", "Counts", key).refused(FAILED, "QUARANTINED", "not stored on this host")
    assert job(heron)["topology_id"] == running and heron.status("Counts")["lifecycle"] == "RUNNING"
    package.with_name("gone").rename(package)
    heron("job", "unset", "local", "Counts", "settings").ok()
    assert job(heron)["topology_id"] == running
    heron("manager", "start", "local").refused(EXISTS, "a manager is already running")
    heron("manager", "stop", "local").ok()
    heron("manager", "stop", "local").refused(NOT_FOUND, "no manager is running")
    heron("job", "set", "local", "Counts", "run=stopped", "--detach").ok()
    heron("manager", "stop", "local").ok()
    assert "The manager of local is running" in heron("job", "stop", "local", "Counts").ok().out, (
        "it is written, not done"
    )
    package.rename(package.with_name("gone"))
    heron("job", "start", "local", "Counts").refused(FAILED, "QUARANTINED", "not stored on this host")
    package.with_name("gone").rename(package)
    heron("job", "release", "local", "Counts").ok()
    heron("job", "stop", "local", "Counts").ok()
    heron("job", "delete", "local", "Counts").ok()


def test_a_topology_that_runs_becomes_a_job_as_it_is(jobs: Heron, tmp_path: Path) -> None:
    """Nothing is restarted, and a start later is of what runs: tasks and settings that only its commands had."""
    heron, setting = jobs, "heron.tmaster.drain_timeout_s"
    heron("job", "adopt", "local", "Counts").refused(NOT_FOUND, "has no topology 'Counts'")
    heron("submit", "local", EXAMPLE, *words(tmp_path / "out")[1:], "--config-property", f"{setting}=7").ok()
    heron("update", "local", "Counts", "--component-parallelism", "split:3").ok()
    [package] = [one for one in (heron.home / "packages").iterdir() if len(one.name) == 64]
    package.rename(package.with_name("gone"))
    heron("job", "adopt", "local", "Counts").refused(USAGE, "not stored on this host; submit the topology again")
    package.with_name("gone").rename(package)
    assert heron("job", "list", "local", "--json").json() == []

    before = heron.status("Counts")["tasks"]
    heron("job", "adopt", "local", "Counts", "--why", "keep it").ok()
    heron("job", "adopt", "local", "Counts").refused(EXISTS, "already has a job")
    heron("kill", "local", "Counts").refused(FAILED, "is controlled by its job", "heron job stop")
    found = in_state(heron, "IN_SYNC")
    assert found["document"]["settings"] == {setting: 7.0} and found["document"]["parallelism"]["split"] == 3
    epochs = [{task["task_id"]: task["epoch"] for task in those} for those in (before, heron.status("Counts")["tasks"])]
    assert epochs[0] == epochs[1]
    assert kill_process(heron, "heronpy.scheduler") >= 2
    in_state(heron, "IN_SYNC", found["topology_id"])
    assert tasks(heron)["split"] == 3
    launch = next((heron.home / "topologies").rglob("launch.json"))
    assert json.loads(launch.read_text())["settings"]["tmaster"]["drain_timeout_s"] == 7
    heron("job", "stop", "local", "Counts").ok()
    heron("job", "delete", "local", "Counts").ok()
    heron("job", "adopt", "local", "Counts").refused(NOT_FOUND, "has no topology 'Counts'")


def test_the_scaler_gives_a_job_the_tasks_that_its_load_needs(jobs: Heron, tmp_path: Path) -> None:
    """A task does about 900 tuples a second, and 2,500 come."""
    steady = tmp_path / "steady.py"
    steady.write_text(DAY.read_text().replace("NIGHT, NOON = 300.0, 4000.0", "NIGHT, NOON = 2500.0, 2500.0"))
    jobs("job", "create", "local", steady, "--slo", "lag=5s", "--max", "work=8").ok()

    def follows() -> Any:
        found = jobs("job", "show", "local", "Day", "--json").json()
        enough = found["document"]["parallelism"].get("work", 1) >= 3
        return found if enough and found["scaler"]["lag_s"] is not None and found["scaler"]["lag_s"] < 5 else None

    found = wait_for(follows, 300.0, "three tasks, and a lag below what is promised")
    assert any(one["who"] == "scaler" and "work 1 -> " in one["text"] for one in found["decisions"])
    assert found["origin"]["parallelism.work"]["layer"] == "scaler"
    running = Counter(task["component"] for task in jobs.status("Day")["tasks"])
    assert running["work"] >= 3
