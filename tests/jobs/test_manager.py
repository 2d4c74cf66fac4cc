"""The shell of the syncers: one job as far as it goes, another one's node left alone, a deleted one ended."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from heronpy.clusters.errors import ClusterError, NotThereError
from heronpy.clusters.session import Session
from heronpy.clusters.stopping import EFFECTIVELY_ONCE
from heronpy.clusters.target import Common, Target
from heronpy.common.errors import (
    ConfigError,
    DamagedStateError,
    NoSpaceError,
    PackageError,
    StateAwayError,
    StateError,
    TopologyError,
)
from heronpy.common.folders import make_folders
from heronpy.common.setting_types import PackingSettings
from heronpy.common.topology_keys import TOPOLOGY_RELIABILITY_MODE
from heronpy.jobs.alerting import Alerts
from heronpy.jobs.allotting import Allotting, allotting_of
from heronpy.jobs.base import read_base, read_command
from heronpy.jobs.differ import Difference
from heronpy.jobs.documents import Leaves
from heronpy.jobs.driver import TopologyDriver, _seen_leaves, ended_text, own_leaves, topology_of, wish_of
from heronpy.jobs.manager import LOOK_S, Syncing, folder_of, take_file
from heronpy.jobs.plans import Check, Commit, Configure, Resize, Seen, Start, Step, pairs_of, plan_of
from heronpy.jobs.report import shown
from heronpy.jobs.scaler import Scaler
from heronpy.jobs.store import Scaled, Store
from heronpy.jobs.syncer import Running, StepError, barred, is_measured, released
from heronpy.launching import importing
from heronpy.packing import pack, resize
from heronpy.plan.component_config import ASYNC_CONCURRENCY, set_key
from heronpy.plan.logical import LogicalPlan
from heronpy.proto import components_of, control_pb2, plan_pb2
from heronpy.scaling.capacity import Allotted, Amount
from heronpy.scaling.decisions import Alert
from heronpy.scaling.figures import Figures, Observation
from heronpy.scaling.state import State
from heronpy.statemgr import paths
from tests.jobs.job_worlds import Clock, definition_of, make_job
from tests.jobs.test_job_syncer import World
from tests.support.launch import launch_spec
from tests.support.memory_state import MemoryStateManager, MemoryStore


class Driver:
    """A world as the driver of one job; `meanwhile` happens after a step."""

    def __init__(self) -> None:
        self.world = World()
        self.meanwhile = lambda: None

    def see(self, job: str, leaves: Leaves) -> Seen:
        return self.world.see()

    def perform(self, job: str, step: Step) -> Mapping[str, int]:
        done = self.world.perform(step)
        self.meanwhile()
        return done


@pytest.fixture
def state() -> MemoryStateManager:
    return MemoryStateManager(MemoryStore())


def test_a_job_becomes_what_it_says_and_ends_when_it_is_deleted(state: MemoryStateManager) -> None:
    store, driver = make_job(state, given={"parallelism": {"work": 10}}), Driver()
    syncing = Syncing(store, driver, "m1")
    assert syncing.sync("Day") is None
    running, version = store.running("Day")
    assert running is not None and running.state == "IN_SYNC" and driver.world.performed == ["Check", "Start"]
    assert driver.world.leaves["parallelism", "work"] == 10 and driver.world.leaves["parallelism", "call"] == 1
    assert syncing.sync("Day") is None and store.running("Day")[1] == version, "a job at rest is not written"

    state.delete(paths.job("Day"))
    assert syncing.sync("Day") is None
    assert not driver.world.alive and store.known() == []


def test_a_topology_that_died_leaves_a_line_and_is_counted(state: MemoryStateManager) -> None:
    store, driver = make_job(state, given={"parallelism": {"work": 10}}), Driver()
    syncing = Syncing(store, driver, "m1")
    syncing.sync("Day")
    assert not store.log("Day").decisions
    look = Observation(topology="Day", at=time.time(), components=(Figures(name="work", is_spout=False, tasks=10),))
    store.put_scaled("Day", Scaled(store.scaled("Day")[0].created, State(), look), 0)
    assert list(shown(store, "Day")["scaler"]["components"]) == ["work"]
    driver.world.alive, lines = False, list[Any]()
    driver.meanwhile = lambda: lines.append(shown(store, "Day")["scaler"]["components"])
    syncing.sync("Day")
    assert [(one.who, one.text) for one in store.log("Day").decisions] == [
        ("manager", "the topology died; it is being restarted")
    ]
    found = shown(store, "Day")
    assert found["restarted"] == 12 and lines == [{}, {}], "figures of what has died are not shown"
    assert (found["state"], found["scaler"]["at"]) == ("IN_SYNC", None), "nor are they shown after the start"


def test_a_job_is_looked_at_when_a_temporary_change_ends(state: MemoryStateManager) -> None:
    store, driver = make_job(state, Clock(time.time())), Driver()
    store.set("Day", "oncall", {"parallelism": {"work": 12}}, 0, "ann", "", for_s=10)
    pause_s = Syncing(store, driver, "m1").sync("Day")
    assert pause_s is not None and 0 < pause_s <= 10


def gone(*_: Any) -> None:
    raise ClusterError("no process of topology 'Day' is running")


def test_a_topology_that_does_not_answer_has_no_figures_and_the_syncer_looks_at_it(
    state: MemoryStateManager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERON_HOME", str(tmp_path))
    monkeypatch.setattr("heronpy.jobs.scaler.look", gone)
    make_folders(folder_of("local"))
    store = make_job(state)
    store.put_running(
        "Day", Running("", "Day-1", ((("parallelism", "work"), 10), (("run",), "running")), state="IN_SYNC"), 0
    )
    session: Any = SimpleNamespace(target=Target("local"))
    scaler = Scaler(session, store, Alerts("local"))
    before, _ = store.news(0)
    assert scaler.scale("Day") == 60.0
    scaler.close()
    assert store.news(before)[1] == ["Day"]
    found = shown(store, "Day")["scaler"]
    assert found["components"] == {} and found["lag_s"] is None and found["at"] is not None


@pytest.mark.parametrize("how", ["stopped", "without a maximum", "without capacity", "deleted"])
def test_an_alert_of_the_scaler_is_closed_when_the_scaler_observes_the_job_no_longer(
    state: MemoryStateManager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setenv("HERON_HOME", str(tmp_path))
    store, told = make_job(state), list[Any]()
    alerts = {
        name: Alert(name, "dependency", "it waits", told=name == "work", seen=1000.0) for name in ("work", "call")
    }
    store.put_scaled("Day", Scaled(store.get("Day").created, State(at=1000.0, alerts=alerts)), 0)
    session: Any = SimpleNamespace(target=Target("local"))
    teller: Any = SimpleNamespace(tell=told.extend)
    scaler = Scaler(session, store, teller)
    if how == "stopped":
        store.set("Day", "oncall", {"run": "stopped"}, 0, "ann", "")
    elif how == "without a maximum":
        store.unset("Day", "provisioner", ["scale.max"], 1, "ann", "")
    elif how == "without capacity":
        store.put_running("Day", Running("", allotted=Allotted("PREEMPTED")), 0)
    if how == "deleted":
        monkeypatch.setattr("heronpy.jobs.scaler.look", gone)
        make_folders(folder_of("local"))
        leaves = pairs_of({("run",): "running", ("parallelism", "work"): 10})
        store.put_running("Day", Running("", "Day-1", leaves, state="IN_SYNC"), 0)
        monkeypatch.setattr("heronpy.jobs.scaler.time", SimpleNamespace(time=lambda: 1060.0))
        scaler.scale("Day")
        for path in (paths.job("Day"), paths.scaled_job("Day")):
            state.delete(path)
        scaler.forget({"Day"})
    else:
        for _ in range(2):
            scaler.scale("Day")
        assert shown(store, "Day")["scaler"]["alerts"] == []
    assert [(one.component, one.over, one.text) for one in told] == [("work", True, "no longer checked: it waits")]


def test_what_the_scaler_measures() -> None:
    runs = Running("", "Day-1", ((("run",), "running"),), state="QUARANTINED")
    assert is_measured(replace(runs, state="IN_SYNC")) and is_measured(runs) and barred(runs)
    stopped = replace(runs, leaves=((("run",), "stopped"),))
    others = stopped, replace(runs, leaves=()), replace(runs, state="SYNCING"), replace(runs, died=True)
    assert not any(map(is_measured, others))
    assert barred(None) == barred(replace(runs, state="IN_SYNC")) == ""


def test_a_manager_that_was_replaced_meanwhile_writes_nothing(state: MemoryStateManager) -> None:
    store, driver = make_job(state), Driver()
    other = Syncing(store, driver, "m2")

    def taken_over() -> None:
        driver.meanwhile = lambda: None
        other.sync("Day")

    driver.meanwhile = taken_over
    assert Syncing(store, driver, "m1").sync("Day") == LOOK_S
    running, _ = store.running("Day")
    assert running is not None and (running.owner, running.state) == ("m2", "IN_SYNC")
    assert driver.world.performed.count("Start") == 1


def test_layer_base_of_all_jobs_is_what_the_file_of_the_cluster_says(state: MemoryStateManager, tmp_path: Path) -> None:
    (tmp_path / "a" / "c").mkdir(parents=True)
    (tmp_path / "b" / "c").mkdir(parents=True)
    folders, first, last = (tmp_path / "a", tmp_path / "b"), tmp_path / "a/c/jobs.yaml", tmp_path / "b/c/jobs.yaml"
    first.write_text("priority: 7\nscale: {mode: advise, drain_s: 60}\nalert_command: /opt/page --team 'a b'\n")
    last.write_text(
        "quotas: {ads: {cpu: 20, ram: 64GB}}\nscale: {drain_s: 90}\nsettings: {heron.checkpoint.interval_s: 3}\n"
    )
    store, driver = make_job(state, given={"scale": {"mode": "act"}}), Driver()
    syncing = Syncing(store, driver, "m1")
    base = read_base(folders, "c")
    syncing.base = base.leaves
    assert base.quotas == {"ads": Amount(20.0, 64 << 30)} and base.alert_command == ("/opt/page", "--team", "a b")
    assert syncing.sync("Day") is None and driver.world.performed == ["Check", "Start"], "before the first start"
    view = store.get("Day")
    assert (view.document.priority, view.document.scale.mode, view.document.scale.drain_s) == (7, "act", 90.0)
    entry = view.found["scale", "drain_s"]
    assert (entry.layer, entry.entry.stamp.who, entry.entry.stamp.why) == ("base", "manager", "from jobs.yaml")
    version = store.running("Day")[1]
    assert syncing.sync("Day") is None and (store.get("Day").versions["base"], store.running("Day")[1]) == (1, version)
    first.unlink()
    last.unlink()
    syncing.base, quotas, command = read_base(folders, "c")
    assert quotas == {} and command == () and syncing.sync("Day") is None and store.get("Day").document.priority == 100


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("prority: 7", "jobs.yaml: layer base has the unknown key 'prority' (did you mean 'priority'?)"),
        ("scale: {max: {work: 3}}", "jobs.yaml: 'scale.max.work' of layer base is specific to one program, but"),
        ("definition: " + "a" * 64, "'definition' of layer base is specific to one program"),
        ("priority: low", "jobs.yaml: 'priority' of layer base is 'low'; it must be a whole number"),
        ("priority: 1\npriority: 2", "jobs.yaml:2: priority is set twice; remove one of the two"),
        (
            "quotas: {ads: {cpu: 20}}",
            "jobs.yaml: 'quotas.ads' is not a quota; it must have cpu, a number of cores, and ram,",
        ),
        ("quotas: {ads: {cpu: 0, ram: 1GB}}", "'quotas.ads' is not a quota"),
        ("quotas: 7", "'quotas' is 7; it must be a map of roles"),
        ("alert_command: [page]", "'alert_command' is ['page']; it must be a program with its arguments, such as"),
        (
            "alert_command: \"'' --team a\"",
            "'alert_command' is \"'' --team a\"; it must be a program with its arguments",
        ),
        ("alert_command: page 'a", "it must be a program with its arguments"),
        ("[", "jobs.yaml:1: not valid YAML"),
    ],
)
def test_what_is_wrong_in_the_file_is_one_sentence(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "jobs.yaml").write_text(text)
    with pytest.raises(ConfigError) as raised:
        read_base((tmp_path,), "c")
    assert said in str(raised.value) and str(raised.value).count("jobs.yaml") == 1


def test_a_damaged_node_stops_its_own_job_only(state: MemoryStateManager) -> None:
    store, driver = make_job(state), Driver()
    state.set(paths.job("Night"), b"{")
    syncing = Syncing(store, driver, "m1")
    with pytest.raises(DamagedStateError, match="jobs/Night"):
        syncing.sync("Night")
    assert syncing.sync("Day") is None and driver.world.alive


@pytest.mark.parametrize("node", [paths.running_job, paths.job_log, paths.scaled_job])
def test_each_damaged_node_of_a_job_is_named(state: MemoryStateManager, node: Callable[[str], str]) -> None:
    store, driver = make_job(state, name="Night"), Driver()
    make_job(state)
    state.set(node("Night"), b'{"format":2}')
    with pytest.raises(DamagedStateError, match=f"'{node('Night')}' was written by a later release"):
        store.running("Night"), store.log("Night"), store.scaled("Night")
    assert Syncing(store, driver, "m1").sync("Day") is None and driver.world.alive


@pytest.mark.parametrize("error", [StateAwayError("cannot be reached"), NoSpaceError("its disk is full")])
@pytest.mark.parametrize(("steps", "performed"), [(1, ["Check", "Check", "Start"]), (2, ["Check", "Start"])])
def test_a_plan_goes_on_after_the_state_manager_was_away_or_full_in_the_middle(
    state: MemoryStateManager, monkeypatch: pytest.MonkeyPatch, steps: int, performed: list[str], error: StateError
) -> None:
    store, driver = make_job(state), Driver()

    def away(*_: Any) -> int:
        raise error

    def fails() -> None:
        if len(driver.world.performed) == steps:
            monkeypatch.setattr(state, "set", away)

    driver.meanwhile = fails
    syncing = Syncing(store, driver, "m1")
    with pytest.raises(type(error), match=str(error)):
        syncing.sync("Day")
    monkeypatch.undo()
    driver.meanwhile = lambda: None
    assert syncing.sync("Day") is None
    running, _ = store.running("Day")
    assert running is not None and running.state == "IN_SYNC" and driver.world.performed == performed


def test_a_job_that_is_removed_during_its_plan_leaves_nothing(state: MemoryStateManager) -> None:
    store, driver = make_job(state), Driver()

    def removed() -> None:
        driver.meanwhile = lambda: None
        state.delete(paths.job("Day"))

    driver.meanwhile = removed
    assert Syncing(store, driver, "m1").sync("Day") is None
    assert driver.world.performed == ["Check", "Start", "Stop"] and store.known() == []


def test_a_program_that_no_longer_fits_the_newest_checkpoint_is_not_tried_again(
    state: MemoryStateManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver, topology = TopologyDriver(Target("local"), Common(), state), topology_of(definition_of("work"))
    set_key(topology.topology_config, TOPOLOGY_RELIABILITY_MODE, EFFECTIVELY_ONCE)
    planned = SimpleNamespace(pool="", topology=topology, logical=LogicalPlan.from_topology(topology))

    def choose(*_: Any) -> None:
        raise TopologyError("state of 'work' is in the checkpoint,\nbut 'work' keeps none")

    monkeypatch.setattr(driver, "prepared", lambda *_: (SimpleNamespace(record=lambda job: None), planned, None))
    monkeypatch.setattr("heronpy.jobs.driver.submission.kept_here", lambda kept: kept)
    monkeypatch.setattr("heronpy.jobs.driver.submission.submitted_of", lambda *_: None)
    monkeypatch.setattr("heronpy.jobs.driver.importing.check", lambda *_: None)
    monkeypatch.setattr("heronpy.jobs.driver.choose", choose)
    with pytest.raises(StepError, match="is in the checkpoint, but 'work' keeps none") as raised:
        driver.perform("Day", Check(()))
    assert raised.value.fatal


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "^No space left on device; free space on the disk of /"),
        (OSError(errno.ENOSPC, "No space left on device", "/d/f"), "^No space left on device: /d/f; free space on the"),
        (PermissionError(errno.EACCES, "Permission denied", "/d/f"), "^Permission denied: /d/f$"),
    ],
)
def test_a_step_that_the_disk_refuses_names_the_place(
    state: MemoryStateManager, monkeypatch: pytest.MonkeyPatch, error: OSError, said: str
) -> None:
    driver = TopologyDriver(Target("local"), Common(), state)

    def refused(*_: Any) -> None:
        raise error

    monkeypatch.setattr(driver, "prepared", refused)
    with pytest.raises(StepError, match=said):
        driver.perform("Day", Check(()))


def test_a_damaged_jobs_yaml_keeps_no_change_of_a_job_in_a_pool_back(state: MemoryStateManager, tmp_path: Path) -> None:
    (tmp_path / "local").mkdir()
    (tmp_path / "local" / "jobs.yaml").write_text("prority: 7\n")
    session = Session(Target("local"), Common(config_path=str(tmp_path)))
    session.state = state
    with pytest.raises(ConfigError, match="unknown key 'prority'"):
        read_base(session.conf_dirs(), "local")
    assert allotting_of(session, Store(state)).quotas == {}


def test_an_alert_command_that_another_user_could_change_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "local" / "jobs.yaml"
    file.parent.mkdir()
    file.write_text("alert_command: /bin/true\n")
    assert read_command([tmp_path], "local") == ("/bin/true",)
    for path in (file, file.parent):
        mode = path.stat().st_mode
        path.chmod(mode | 0o002)
        with pytest.raises(ConfigError, match=f"because {path} can be changed by every user; the program would run"):
            read_command([tmp_path], "local")
        path.chmod(mode)
    file.chmod(0o666)
    file.write_text("priority: 7\n")
    assert read_command([tmp_path], "local") == ()


def test_a_manager_takes_the_valid_parts_of_a_wrong_file(state: MemoryStateManager, tmp_path: Path) -> None:
    (tmp_path / "local").mkdir()
    store, alerts = Store(state), Alerts("local")
    allotting, syncing = Allotting(store, state, lambda job, leaves: ({}, Amount())), Syncing(store, Driver(), "m1")
    allotting.frozen = True
    page, quota, seven = "alert_command: /bin/sh -c true\n", "quotas: {ads: {cpu: 2, ram: 1GB}}\n", {("priority",): 7}

    def read(text: str) -> list[str]:
        (tmp_path / "local" / "jobs.yaml").write_text(text)
        return take_file([tmp_path], "local", syncing, allotting, alerts)

    said = read(page + "quotas: {ads: {cpu: 2}}\nprority: 7\n")
    assert alerts.command == ("/bin/sh", "-c", "true") and syncing.base is None and allotting.frozen
    assert [text.rpartition("; ")[2] for text in said] == [
        "until this is corrected, changes to quotas have no effect",
        "until this is corrected, changes to layer base have no effect",
        "until the quotas can be read, each job in a pool keeps its tasks",
    ]
    assert len(read(page + quota + "prority: 7\n")) == 1 and not allotting.frozen and allotting.quotas.keys() == {"ads"}
    assert read(page + quota + "priority: 7\n") == [] and syncing.base == seven
    (text,) = read("alert_command: ./page --team a\n" + quota + "priority: 7\n")
    assert text.startswith(
        "the program './page' of 'alert_command' in jobs.yaml does not exist on this host, or cannot"
    )
    assert read(page + quota + "priority: 7\n") == []
    (text,) = read("[")
    assert text.endswith("changes to quotas, the alert command, layer base have no effect")
    assert allotting.quotas.keys() == {"ads"} and syncing.base == seven and alerts.command and not allotting.frozen


def test_a_check_judges_the_savepoint_that_the_running_topology_will_take(
    state: MemoryStateManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the new program has other components, and if the topology has no checkpoint of its own yet."""
    driver, topology = TopologyDriver(Target("local"), Common(), state), topology_of(definition_of("werk"))
    set_key(topology.topology_config, TOPOLOGY_RELIABILITY_MODE, EFFECTIVELY_ONCE)
    planned = SimpleNamespace(pool="", topology=topology, logical=LogicalPlan.from_topology(topology))
    old = pack(topology_of(definition_of("work")), PackingSettings())
    session = SimpleNamespace(record=lambda job: SimpleNamespace(topology_id="Day1"), packing_plan=lambda job: old)
    asked = []

    def choose(_planned: Any, _latest: str, dropped: bool, _warn: Any, run: str, counts: Any) -> None:
        asked.append((dropped, run, counts))
        if run:
            raise NotThereError("the topology has no checkpoint")

    monkeypatch.setattr(driver, "prepared", lambda *_: (session, planned, None))
    monkeypatch.setattr("heronpy.jobs.driver.submission.kept_here", lambda kept: kept)
    monkeypatch.setattr("heronpy.jobs.driver.submission.submitted_of", lambda *_: None)
    monkeypatch.setattr("heronpy.jobs.driver.importing.check", lambda *_: None)
    monkeypatch.setattr("heronpy.jobs.driver.choose", choose)
    for restore in ("latest", "allow_dropped", "empty"):
        driver.perform("Day", Check(((("restore",), restore),)))
    counts = {"read": 1, "work": 1}
    assert asked == [(dropped, run, counts) for dropped in (False, True) for run in ("Day1", "")]


def test_an_engine_that_is_away_in_the_middle_of_a_plan_is_asked_again_and_nothing_is_half_done(
    state: MemoryStateManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Engine(Driver):
        driver = TopologyDriver(Target("local"), Common(), state)

        def perform(self, job: str, step: Step) -> Mapping[str, int]:
            if self.away and isinstance(step, Start):
                return self.driver.perform(job, step)  # this one asks the engine
            return super().perform(job, step)

        away = True

    def away(*_: Any) -> None:
        raise ClusterError("engine 'slurm' cannot be reached; the start can be repeated")

    monkeypatch.setattr(Engine.driver, "prepared", away)
    store, driver = make_job(state), Engine()
    syncing = Syncing(store, driver, "m1")
    syncing.sync("Day")
    running, version = store.running("Day")
    assert running is not None and running.state == "WAITING" and not driver.world.alive and running.leaves == ()
    assert running.failure == "engine 'slurm' cannot be reached; the start can be repeated" and running.tries == 1
    Engine.away = False
    store.put_running("Day", released(running), version)
    syncing.sync("Day")
    running, _ = store.running("Day")
    assert running is not None and (running.state, running.failure) == ("IN_SYNC", "") and driver.world.alive


def test_a_program_that_does_not_unpack_or_import_is_named(tmp_path: Path) -> None:
    topology = topology_of(definition_of("work"))
    topology.spouts[0].comp.class_name = "nowhere.Missing"
    for package, said in (
        (None, "module 'nowhere' is not part of the package"),
        ("a" * 64, "package directory .* does not exist"),
    ):
        submitted = launch_spec("Day", "Day-1", tmp_path, package=package).submitted
        with pytest.raises(PackageError, match=f"^the program cannot be imported: .*{said}") as raised:
            importing.check(submitted, topology)
        assert "\n" not in str(raised.value)


def test_the_task_that_has_failed_is_named_and_not_one_that_was_put_back_with_it() -> None:
    status, detail = control_pb2.StatusReply(), "ZeroDivisionError: division by zero"
    processes = status.executors.add(container=1).processes
    processes.add(name="container_1_read_1", task_id=1, restarts=9, exit=control_pb2.EXIT_REWOUND)
    line = '  File "/program/crash.py", line 32, in process\n'
    raised = [
        control_pb2.ExceptionReport(
            instance_id="container_1_call_3", type="OSError", message="away\nfor long", count=2
        ),
        control_pb2.ExceptionReport(
            instance_id="container_1_work_2", type="ZeroDivisionError", count=1, traceback=line
        ),
    ]
    assert ended_text(status, []) == ""
    assert ended_text(status, raised) == "container_1_call_3 has raised OSError: away"
    processes.add(
        name="container_1_work_2", task_id=2, restarts=6, exit=control_pb2.EXIT_USER_EXCEPTION,
        exit_reason="user_exception", exit_detail=detail,
    )  # fmt: skip
    said = f"container_1_work_2 has been restarted 6 times, the last time after user exception: {detail}"
    assert ended_text(status, []) == said
    assert ended_text(status, raised) == f"{said} in process (crash.py:32)"


def test_what_no_layer_sets_is_as_the_program_says() -> None:
    topology = topology_of(definition_of("work"))
    own = own_leaves(topology, {("config", "limit"): 7, ("slo", "lag_s"): 5.0})
    assert own == {("run",): "running", ("parallelism", "read"): 1, ("parallelism", "work"): 1}
    topology.topology_config.kvs.add(key="limit", value="5", type=1)
    assert own_leaves(topology, {("config", "limit"): "5"})["config", "limit"] == "5", "the same text is no change"
    assert own_leaves(topology, {("config", "limit"): 7})["config", "limit"] == 5


def test_a_key_that_nothing_sets_any_more_stays_only_in_the_topology_that_runs() -> None:
    state, limit = MemoryStateManager(), ("config", "limit")
    store = make_job(state)
    before = wish_of(store, store.set("Day", "oncall", {"config": {"limit": 7}}, 0, "ann", ""), Running("")).leaves
    running = Running("", "Day-1", pairs_of(before), {}, "IN_SYNC")
    after = wish_of(store, store.unset("Day", "oncall", ["config"], 1, "ann", ""), running).leaves
    assert limit not in after
    plan = plan_of(after, {}, before, Seen("Day-1", alive=True, leaves=before), 0.0, "Day-2")
    assert plan is not None and plan.steps == (Configure("Day-1", (Difference(limit, 7, None),)), Commit())
    TopologyDriver(Target("local"), Common(), state).perform("Day", plan.steps[0])
    said = "nothing sets config.limit any more; its value 7 applies until the next start"
    assert [one.text for one in store.log("Day").decisions] == [said]
    assert plan_of(after, {}, after, Seen("Day-1", alive=True, leaves=after), 0.0, "Day-2") is None
    start = plan_of(after, {}, before, Seen("Day-1"), 0.0, "Day-2")
    assert start is not None and limit not in dict(start.target)


def test_a_size_that_no_layer_sets_any_more_is_what_the_topology_was_submitted_with() -> None:
    topology = topology_of(definition_of("work"))
    ram, cpu, calls = ("resources", "work", "ram"), ("resources", "work", "cpu"), ("concurrency", "work")
    known = {ram: 1 << 28, cpu: 0.5, calls: 64}
    assert {path: own_leaves(topology, known)[path] for path in known} == {ram: 0, cpu: 0, calls: 0}
    packing = pack(topology, PackingSettings())
    assert _seen_leaves(topology, packing, known).items() >= {ram: 0, cpu: 0, calls: 0}.items()
    config = components_of(topology)["work"].comp.config
    for key, value in (
        ("topology.component.ram", "256MB"),
        ("topology.component.cpu", "0.5"),
        (ASYNC_CONCURRENCY, "64"),
    ):
        set_key(config, key, value)
    assert own_leaves(topology, dict.fromkeys(known, 1)).items() >= known.items(), "the program says so"
    # Until the packing plan has them, its tasks do not.
    assert _seen_leaves(topology, packing, known).items() >= {ram: 0, cpu: 0.0, calls: 64}.items()
    assert _seen_leaves(topology, resize(packing, topology, PackingSettings()), known).items() >= known.items()


@pytest.mark.parametrize(
    ("given", "needs"),
    [({"scale": {"max": {"work": 4}}}, True), ({"slo": {"lag_s": 5}}, True), ({"scale": {"min": {"work": 4}}}, False)],
)
def test_a_scaler_is_needed_while_a_job_that_runs_is_to_be_scaled(
    state: MemoryStateManager, given: Mapping[str, Any], needs: bool
) -> None:
    store = make_job(state, given=given)
    syncing = Syncing(store, Driver(), "m1")
    syncing.sync("Day")
    assert syncing.scaled == ({"Day"} if needs else set())
    store.set("Day", "oncall", {"scale": {"mode": "off"}}, 0, "ann", "")
    syncing.sync("Day")
    assert not syncing.scaled
    store.set("Day", "oncall", {"scale": {"mode": "act"}, "run": "stopped"}, 1, "ann", "")
    syncing.sync("Day")
    assert not syncing.scaled


def test_a_resize_that_was_cut_short_replaces_the_containers_that_outgrow_their_room(
    state: MemoryStateManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan has the new sizes already: what is left is to replace containers, by the sizes before."""
    now, before, renewed = plan_pb2.PackingPlan(version=5), plan_pb2.PackingPlan(version=6), []
    session = SimpleNamespace(
        status=lambda job: control_pb2.StatusReply(), packing_plan=lambda job: now, topology=lambda job: None
    )

    def replan(*given: Any) -> Any:
        return None, now if given[5] == ("work:512",) else before

    driver = TopologyDriver(Target("local"), Common(), state)
    monkeypatch.setattr("heronpy.jobs.driver.Session", lambda *_: session)
    monkeypatch.setattr("heronpy.clusters.scaling.replan", replan)
    monkeypatch.setattr("heronpy.clusters.scaling.renew", lambda *given: renewed.append(given[3:5]))
    driver.perform("Day", Resize("Day1", (Difference(("resources", "work", "ram"), 256, 512),), 5))
    assert renewed == [(before, now)]


def test_what_is_changed_during_a_plan_follows_at_once(state: MemoryStateManager) -> None:
    store, driver = make_job(state), Driver()

    def changed() -> None:
        driver.meanwhile = lambda: None
        store.set("Day", "oncall", {"run": "stopped"}, 0, "ann", "")

    driver.meanwhile = changed
    assert Syncing(store, driver, "m1").sync("Day") is None
    running, _ = store.running("Day")
    assert running is not None and running.state == "STOPPED" and driver.world.performed == ["Check", "Start", "Stop"]
