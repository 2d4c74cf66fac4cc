"""`heron job explain`, `slo` and `replay`, of a job whose looks the model has made."""

from __future__ import annotations

import json
from contextlib import closing, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from heronpy.cli.change import jobs
from heronpy.cli.look.doctor import job_alerts
from heronpy.cli.output import moment
from heronpy.clusters.errors import ClusterError
from heronpy.clusters.records import Records
from heronpy.common.folders import make_folders
from heronpy.common.host import this_host
from heronpy.health.signals import Signals
from heronpy.jobs.manager import folder_of, minutes_of
from heronpy.jobs.plans import pairs_of
from heronpy.jobs.store import Scaled, Store
from heronpy.jobs.syncer import Running
from heronpy.loadtest.jobs.model import START_S, Model
from heronpy.loadtest.jobs.scenarios import HOUR, Scene
from heronpy.proto import control_pb2, plan_pb2
from heronpy.scaling.capacity import Allotted
from heronpy.scaling.decisions import Alert
from heronpy.scaling.figures import Goal, Times
from heronpy.scaling.history import History, remove_history
from heronpy.scaling.replaying import Minute
from heronpy.scaling.state import State
from heronpy.statemgr import open_state, paths
from tests.cli.conftest import Heron
from tests.jobs.job_worlds import Clock, make_job
from tests.scaling.scenes import parts
from tests.support.command import NOT_FOUND, USAGE
from tests.support.memory_state import MemoryStateManager, MemoryStore

GOAL = Goal(lag_s=5.0, max={"work": 24})


@pytest.fixture
def scene(home: Path) -> Scene:
    """Job Day after three hours; after the first one twice as much comes, and the scaler has followed."""
    state = open_state("local", str(home / "state" / "local"))
    given = {"slo": {"lag_s": 5}, "scale": {"max": {"work": 24}}}
    store = make_job(state, given=given)
    scene = Scene(Model(parts(), lambda at: 2500.0 if at < HOUR else 6000.0), 3, GOAL)
    make_folders(folder_of("local"))
    with closing(History(minutes_of("local", "Day"), Times())) as history:
        before = State()
        for look, outcome in scene.looks:
            slo, was = outcome.state.slo, before.slo
            minute = msgspec.json.encode(Minute(look, GOAL, Times().day_s, before))
            history.look(look.at, slo.measured_s - was.measured_s, slo.broken_s - was.broken_s, minute)
            before = outcome.state
            for decision in outcome.decisions:
                store.decided("Day", "scaler", decision.component, decision.text)
    scaled, version = store.scaled("Day")
    store.put_scaled("Day", Scaled(scaled.created, before, scene.looks[-1][0]), version)
    state.close()
    return scene


def test_each_component_has_its_evidence_and_its_last_decision(heron: Heron, scene: Scene) -> None:
    found = json.loads(heron("job", "explain", "local", "Day", "--json").out)
    work, read = found["components"]["work"], found["components"]["read"]
    assert work["arrives_per_s"] == pytest.approx(6000, rel=0.05) and work["each_per_s"] == pytest.approx(1000, rel=0.1)
    assert (work["low"], work["high"], work["tasks"]) == (1, 24, scene.model.parts["work"].tasks)
    assert work["needed"] <= work["tasks"] and work["verdict"] == "it has enough tasks"
    assert "work 4 -> " in heron("job", "explain", "local", "Day").out
    assert work["decided"][0]["text"] == [one.text for _, one in scene.decisions if one.component == "work"][-1]
    assert read["verdict"] == "not scaled: scale.max.read is not set" and read["decided"] == []


def test_a_pin_and_a_state_of_single_tasks_are_both_told_and_a_pin_only_while_it_holds(
    heron: Heron, scene: Scene, home: Path
) -> None:
    def verdict() -> str:
        return str(json.loads(heron("job", "explain", "local", "Day", "--json").out)["components"]["work"]["verdict"])

    state = open_state("local", str(home / "state" / "local"))
    store = Store(state)
    scaled, version = store.scaled("Day")
    assert scaled.look is not None
    parts = tuple(replace(one, fixed=f"{one.name} keeps plain State") for one in scaled.look.components)
    store.put_scaled("Day", replace(scaled, look=replace(scaled.look, components=parts)), version)
    assert verdict() == "not scaled: work keeps plain State"
    store.set("Day", "oncall", {"parallelism": {"work": 4}, "resources": {"work": {"cpu": 1}}}, 0, "ann", "")
    pins = "layer oncall sets parallelism.work and resources.work"
    assert verdict() == f"not scaled: {pins}, and work keeps plain State"
    store.unset("Day", "oncall", ["parallelism", "resources"], 1, "ann", "")
    state.close()
    assert verdict() == "not scaled: work keeps plain State"


def test_what_was_recorded_decides_the_same_each_time(heron: Heron, scene: Scene, tmp_path: Path) -> None:
    file = tmp_path / "day"
    assert heron("job", "explain", "local", "Day", "--record", str(file)).code == 0
    first, again = (json.loads(heron("job", "replay", str(file), "--json").out) for _ in range(2))
    assert first == again and [one["text"] for one in first] == [one.text for _, one in scene.decisions] != []
    assert "--record" not in (said := heron("job", "explain", "local", "Day", "--record", str(file))).out
    assert said.code == USAGE and "name a file that does not exist yet" in said.err

    # From the middle on, with what was remembered then, it is the same as well.
    lines = file.read_bytes().splitlines(keepends=True)
    half = len(lines) // 2
    minute = msgspec.json.decode(lines[half], type=Minute)
    state = scene.looks[half - 1][1].state
    file.write_bytes(
        msgspec.json.encode(msgspec.structs.replace(minute, state=state)) + b"\n" + b"".join(lines[half + 1 :])
    )
    late = json.loads(heron("job", "replay", str(file), "--json").out)
    assert late == [one for one in first if one["at"] >= minute.look.at]

    file.write_bytes(lines[0] + b"{}\n")
    said = heron("job", "replay", str(file))
    assert said.code == USAGE and "line 2 of" in said.err and "heron job explain CLUSTER JOB --record" in said.err


def test_a_promise_is_kept_for_a_share_of_the_time(heron: Heron, scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: START_S + 3 * HOUR)
    found = json.loads(heron("job", "slo", "local", "Day", "--json").out)
    hour, day, fortnight = found["windows"]
    [[begin, end]] = found["broken"]
    assert START_S + HOUR < begin < end < START_S + 2 * HOUR
    assert hour["kept"] == 1.0 and day == found["all"] | {"window_s": 86_400.0} == fortnight | {"window_s": 86_400.0}
    assert day["broken_s"] == pytest.approx(end - begin) and day["kept"] == pytest.approx(
        1 - (end - begin) / day["measured_s"]
    )
    text = heron("job", "slo", "local", "Day").out
    assert "promises a lag of at most 5s" in text and "last 1h00m: kept 100.00 % of the time" in text

    remove_history(minutes_of("local", "Day"))
    assert "the scaler on another host has the measurements" in heron("job", "slo", "local", "Day").out
    said = heron("job", "explain", "local", "Day", "--record", "x")
    assert said.code == NOT_FOUND and "the scaler on another host has them; run the command there" in said.err
    assert heron("job", "slo", "local", "Dya").code == NOT_FOUND


def test_a_job_that_is_watched_is_shown_once_and_then_what_changes(
    heron: Heron, scene: Scene, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = open_state("local", str(home / "state" / "local"))
    steps = iter([lambda: Store(state).decided("Day", "scaler", "work", "not scaled: it waits"), lambda: None])

    def sleep(seconds: float) -> None:
        step = next(steps, None)
        if step is None:
            raise KeyboardInterrupt
        step()

    monkeypatch.setattr(jobs.time, "sleep", sleep)
    lines = heron("job", "show", "local", "Day", "--watch").out.splitlines()
    state.close()
    assert sum("job Day is" in line for line in lines) == 1
    assert sum("not scaled: it waits" in line for line in lines) == 1 and "scaler: not scaled: it waits" in lines[-1]


def test_tasks_that_do_not_run_earlier_changes_and_old_figures_are_said(heron: Heron, scene: Scene, home: Path) -> None:
    state = open_state("local", str(home / "state" / "local"))
    store = Store(state)
    for number in range(6):
        store.set("Day", "oncall", {"config": {"size": number}}, number, "ann", "")
    work = ("parallelism", "work")
    started = {("run",): "running", work: 3, ("parallelism", "call"): 1}
    store.put_running("Day", Running("", "Day-1", pairs_of(started), {}, "IN_SYNC"), store.running("Day")[1])
    lines = heron("job", "show", "local", "Day").out.splitlines()
    assert any(line.startswith("  work  1 task (3 run), from the program, input ") for line in lines)
    assert any(line.startswith("  call  1 task, ") for line in lines)
    assert any(line.startswith("  these figures are ") and line.endswith(" old") for line in lines)
    assert "  2 earlier changes, with their versions: heron job show --json" in lines
    store.put_running(
        "Day", Running("", "", pairs_of({**started, ("run",): "stopped"}), {}, "STOPPED"), store.running("Day")[1]
    )
    lines = heron("job", "show", "local", "Day").out.splitlines()
    state.close()
    assert "  work  0 of 1 task, from the program" in lines and not any("figures" in line for line in lines)
    assert not any(line.startswith("  lag ") for line in lines)


def test_the_history_says_who_changed_what_from_which_value_to_which_and_why_once_and_by_time() -> None:
    clock = Clock(1000.0)
    store = make_job(MemoryStateManager(MemoryStore()), clock, given={"scale": {"max": {"work": 9}}})
    clock.now = 2000.0
    store.set("Day", "oncall", {"parallelism": {"work": 4}}, 0, "ann", "backfill", for_s=100)
    store.set("Day", "scaler", {"parallelism": {"work": 6}}, 0, "scaler", "work 1 -> 6 tasks: 9/s arrive")
    store.decided("Day", "scaler", "work", "work 1 -> 6 tasks: 9/s arrive")
    for at in (2010.0, 2020.0, 2030.0):
        clock.now = at
        store.decided("Day", "manager", "", "it failed")
    clock.now = 3000.0
    store.set("Day", "oncall", {"resources": {"work": {"ram": "1GB"}}}, 1, "bob", "")
    clock.now = 4000.0
    store.unset("Day", "oncall", ["resources"], 2, "bob", "enough")
    log = msgspec.to_builtins(store.log("Day"))
    digest = store.get("Day").document.definition[:12]
    until = moment(2100.0)
    assert jobs.history_of(log, 4000.0) == [
        (1000.0, f"provisioner v1, deploy: definition: not set -> {digest}, scale.max.work: not set -> 9  first"),
        (2000.0, f"oncall v1, ann: parallelism.work: not set -> 4 until {until}  backfill"),
        (2000.0, "scaler v1, scaler: parallelism.work: not set -> 6  work 1 -> 6 tasks: 9/s arrive"),
        (2030.0, "manager: it failed (3 times)"),
        (2100.0, "oncall: parallelism.work: 4 -> not set  (expired)"),
        (3000.0, "oncall v2, bob: resources.work.ram: not set -> 1GB"),
        (4000.0, "oncall v3, bob: resources.work.ram: 1GB -> not set  enough"),
    ]
    assert len(jobs.history_of(log, 2050.0)) == 7, "what was booked later has ended"


def test_the_history_says_which_value_applies_again_after_a_temporary_one() -> None:
    clock = Clock(1000.0)
    store = make_job(MemoryStateManager(MemoryStore()), clock)
    store.set("Day", "oncall", {"role": "ads"}, 0, "ann", "")
    store.set("Day", "oncall", {"role": "web"}, 1, "bob", "", for_s=100)
    assert jobs.history_of(msgspec.to_builtins(store.log("Day")), 1100.0)[-2:] == [
        (1000.0, f"oncall v2, bob: role: ads -> web until {moment(1100.0)}"),
        (1100.0, "oncall: role: web -> ads  (expired)"),
    ]


def test_a_job_without_a_promise_says_how_to_make_one_and_a_job_without_a_manager_says_so(
    heron: Heron, home: Path
) -> None:
    state = open_state("local", str(home / "state" / "local"))
    store = make_job(state)
    assert heron("job", "slo", "local", "Day").out == (
        "job Day has no promise; to set one: heron job set local Day slo.lag_s=5\n"
    )
    told = heron("job", "show", "local", "Day")
    assert "no manager runs, so changes to jobs have no effect; start a manager: heron manager start local" in told.err
    waits = Running("", allotted=Allotted("PREEMPTED", why="it needs at least 2 cores"))
    store.put_running("Day", waits, store.running("Day")[1])
    assert heron("job", "release", "local", "Day").out == (
        "job Day is waiting for capacity: it needs at least 2 cores; nothing changed\n"
    )
    state.close()


def test_figures_of_a_topology_that_has_just_died_are_not_shown(
    heron: Heron, scene: Scene, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = open_state("local", str(home / "state" / "local"))
    record = plan_pb2.ExecutionState(topology="Day", topology_id="Day-1", cluster="local", host=this_host().to_text())
    state.create(paths.execution_state("Day"), record.SerializeToString())
    store = Store(state)
    started = {("run",): "running", ("parallelism", "work"): 1}
    store.put_running("Day", Running("", "Day-1", pairs_of(started), {}, "IN_SYNC"), store.running("Day")[1])
    for alive in (True, False):
        monkeypatch.setattr(jobs, "is_alive", lambda *_, alive=alive: alive)
        lines = heron("job", "show", "local", "Day").out.splitlines()
        assert any(", one task " in line for line in lines) == alive == any("figures" in line for line in lines)
        assert ("  its topology is not running; the manager starts it again" in lines) != alive
    state.close()


def test_the_minutes_are_private(scene: Scene) -> None:
    file = minutes_of("local", "Day")
    file.chmod(0o644)
    with closing(History(file, Times())) as history:
        history.look(START_S, 1.0, 0.0, b"")
        assert {path.stat().st_mode & 0o777 for path in file.parent.glob("Day.minutes*")} == {0o600}


def test_the_doctor_shows_the_open_alerts_of_the_job() -> None:
    """They remain while the doctor waits for rates after a change."""
    state = MemoryStateManager(MemoryStore())
    store = make_job(state)
    session: Any = SimpleNamespace(state=state)
    told, waits = Alert("work", "dependency", "work waits", told=True), Alert("work", "slow task", "one is slow")
    store.put_scaled("Day", Scaled(store.get("Day").created, State(alerts={"a": told, "b": waits})), 0)
    seen = Signals("Day", control_pb2.LIFE_RUNNING, "", 60.0, job=True)
    assert job_alerts(session, seen) == ["work waits"]
    assert job_alerts(session, replace(seen, job=False)) == job_alerts(session, replace(seen, topology="Night")) == []


@pytest.mark.parametrize("run", ["stopped", "running"])
def test_the_topology_of_a_job_may_be_killed_once_the_job_is_being_stopped(run: str) -> None:
    state = MemoryStateManager(MemoryStore())
    make_job(state)
    tried = ((("run",), run),)
    state.create(paths.running_job("Day"), msgspec.json.encode(Running("a", "Day-1", tried=tried)))
    session: Any = SimpleNamespace(state=state, record=lambda name: SimpleNamespace(topology_id="Day-1"))
    refused: Any = nullcontext() if run == "stopped" else pytest.raises(ClusterError, match="controlled by its job")
    with refused:
        Records.refuse_job(session, "Day", "stop local Day", kills=True)
    with pytest.raises(ClusterError, match="change the job: heron job stop local Day"):
        Records.refuse_job(session, "Day", "stop local Day")
