"""`heron job apply`, `heron job schema`, and the unit of the manager."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from heronpy.common.host import this_host
from heronpy.jobs.documents import leaves_of
from heronpy.jobs.manager import PARTS, Acting, acting_of, desired_of
from heronpy.jobs.plans import pairs_of
from heronpy.jobs.store import Store
from heronpy.jobs.syncer import Running
from heronpy.statemgr import open_state, paths
from heronpy.statemgr.base import StateManager
from tests.cli.conftest import Heron
from tests.jobs.job_worlds import make_job
from tests.support.command import FAILED, TIMED_OUT, USAGE
from tests.support.waiting import wait_for

TWO = """
job: Day
parallelism: {work: 4}
resources:
  work: {ram: 512MB}
---
{"job": "Night", "run": "paused"}
"""


@pytest.fixture
def state(home: Path) -> Iterator[StateManager]:
    state = open_state("local", str(home / "state" / "local"))
    yield state
    state.close()


@pytest.fixture
def store(state: StateManager) -> Store:
    """Jobs Day and Night, whose programs have the components read, work and call; a manager seems to act."""
    acting = Acting("one", os.getpid(), 0, this_host().to_text(), 1.0)
    for part in PARTS:
        state.create(paths.job_manager(part), msgspec.json.encode(acting), ephemeral=True)
    for name in ("Day", "Night"):
        make_job(state, name=name, given={"parallelism": {"work": 10}})
    return Store(state)


#: A program whose topology has another name than the job.
TOPOLOGY = """
from heronpy import Spout, Topology

class Numbers(Spout):
    outputs = ["n"]

class Other(Topology):
    read = Numbers.spec(par=1)
"""


def written(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def layers(store: Store) -> Any:
    return [(store.get(name).versions, store.log(name).changes) for name in store.names()]


def test_a_layer_becomes_what_the_file_says(heron: Heron, store: Store, tmp_path: Path) -> None:
    file = written(tmp_path / "jobs.yaml", TWO)
    heron("job", "set", "local", "Day", "parallelism.work=4", "--for", "2h", "--detach")
    heron("job", "set", "local", "Day", "config.size=3", "--detach")
    before = layers(store)
    dry = heron("job", "apply", "local", "-f", file, "--dry-run")
    assert dry.code == 0 and layers(store) == before
    wet = heron("job", "apply", "local", "-f", file, "--why", "as in git", "--detach")
    assert wet.code == 0 and wet.out == dry.out.replace(
        "file and layer differ; nothing was written", "oncall v3", 1
    ).replace("file and layer differ; nothing was written", "oncall v1")
    first, *lines, night, last = wet.out.splitlines()
    assert (first, night, last) == ("job Day: oncall v3", "job Night: oncall v1", '  run: not set -> "paused"')
    assert lines[0] == "  config.size: 3 -> not set" and lines[2] == "  resources.work.ram: not set -> 512MB"
    assert lines[1].startswith("  parallelism.work: 4 until 2") and lines[1].endswith(" -> 4")
    document, change = store.get("Day").document, store.log("Day").changes[-1]
    assert (document.parallelism, document.config) == ({"work": 4}, {}) and change.stamp.why == "as in git"
    assert store.get("Day").found["parallelism", "work"].entry.stamp.until is None

    before = layers(store)
    again = heron("job", "apply", "local", "-f", file)
    assert again == (0, "job Day: no differences\njob Night: no differences\n", "") and layers(store) == before


def test_the_status_of_the_manager_names_a_missing_alert_command(heron: Heron, store: Store, tmp_path: Path) -> None:
    (tmp_path / "local").mkdir()
    for program, missing in (("/opt/missing/page --team a", True), (sys.executable, False)):
        (tmp_path / "local" / "jobs.yaml").write_text(f"alert_command: {program}\n")
        told = heron("manager", "status", "local", "--config-path", str(tmp_path))
        said = "the program '/opt/missing/page' of 'alert_command' in jobs.yaml does not exist on this host"
        assert told.code == 0 and (said in told.err) == missing


def test_a_temporary_value_says_what_applies_afterwards(heron: Heron, store: Store) -> None:
    heron("job", "set", "local", "Day", "config.size=3", "--detach")
    keys = "parallelism.work=4", "config.size=4", "resources.work.ram=1GB"
    told = heron("job", "set", "local", "Day", *keys, "--for", "2h", "--detach").out.splitlines()
    assert [line.partition(" until ")[0] for line in told] == [
        "job Day: oncall v2", "  config.size: 4", "  parallelism.work: 4", "  resources.work.ram: 1GB",
    ]  # fmt: skip
    assert told[1].endswith(", then 3 of layer oncall") and told[2].endswith(", then 10 of layer provisioner")
    assert told[3].endswith(", then no layer sets the key")
    lines = heron("job", "show", "local", "Day").out.splitlines()
    assert any(line.startswith("  config.size = 4, oncall until 2") and line.endswith(", then 3") for line in lines)


def test_a_weaker_layer_keeps_its_program_and_what_people_have_set(
    heron: Heron, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heron("job", "set", "local", "Day", "parallelism.work=6", "--detach")
    given = json.dumps([{"job": "Day", "concurrency": {"call": 64}}], indent="\t")
    with open(written(tmp_path / "jobs.json", given)) as file:
        monkeypatch.setattr(sys, "stdin", file)
        told = heron("job", "apply", "local", "--as", "provisioner", "-f", "-", "--detach")
    assert told.out.splitlines()[1:] == ["  concurrency.call: not set -> 64", "  parallelism.work: 10 -> not set"]
    document = store.get("Day").document
    assert document.definition and document.parallelism == {"work": 6} and document.concurrency == {"call": 64}


@pytest.mark.parametrize(
    ("meanwhile", "said"),
    [("Day", "nothing was written; not applied: Day, Night"), ("Night", "written: Day; not applied: Night")],
)
def test_a_key_that_somebody_has_changed_meanwhile_is_refused(
    heron: Heron, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, meanwhile: str, said: str
) -> None:
    apply = Store.apply

    def late(self: Store, *args: Any, write: bool) -> Any:
        if write and self.get(args[0]).versions["oncall"] == 0 and args[0] == meanwhile:
            store.set(meanwhile, "oncall", {"parallelism": {"work": 7}, "run": "running"}, 0, "bob", "")
        return apply(self, *args, write=write)

    monkeypatch.setattr(Store, "apply", late)
    told = heron("job", "apply", "local", "-f", written(tmp_path / "jobs.yaml", TWO), "--detach")
    assert told.code == FAILED and "by bob in the meantime" in told.err and said in told.err
    assert store.get(meanwhile).document.parallelism == {"work": 7}
    assert store.get("Night").versions["oncall"] == (meanwhile == "Night")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "job: Nigt",
            "there is no job 'Nigt' (did you mean 'Night'?); create the job first: heron job create local PROGRAM",
        ),
        ("job: ../Night", "there is no job '../Night'"),
        ("job: Night\nparallelism: {wrk: 2}", "job 'Night': 'parallelism.wrk' of layer oncall names component 'wrk'"),
        ("job: Night\nparalelism: {work: 2}", "job 'Night': layer oncall has the unknown key 'paralelism' (did you"),
        ("job: Night\nresources: {work: {cpu: many}}", "job 'Night': 'resources.work.cpu' of layer oncall is 'many'"),
        ("job: Night\nparallelism: {work: null}", "is null, but a layer cannot delete keys; leave the key out"),
        ("job: Night\nconfig: {size: .nan}", "'config.size' of layer oncall is nan, which a job cannot store"),
        ('{"job": "Night", "config": {"a": "\\ud800"}}', "'config.a' of layer oncall is '\\ud800', which a job"),
        (
            "job: Night\npriority: 5000",
            "job 'Night': 'priority' of layer oncall is 5000; it must be a whole number from 0",
        ),
        ("job: Night\ndefinition: abc", "job 'Night': 'definition' is set by heron job deploy; leave the key out"),
        ("job: Night\n---\njob: Night", "job 'Night' has two documents; merge them"),
        ("job: Night\nconfig: {a: 1, a: 2}", "cannot be read as YAML or JSON: the key 'a' is given twice; remove one"),
        ('{"job": "Night", "job": "Day"}', "the key 'job' is given twice; remove one"),
        ("parallelism: {work: 2}", "document 2 names no job; begin it with job: NAME"),
        ("[Night", "cannot be read as YAML or JSON: expected ',' or ']'"),
        ("\0", "cannot be read as YAML or JSON"),
        ("# " + "x" * (1 << 20), "is larger than 1MB; split the file"),
    ],
)
def test_what_is_wrong_is_one_sentence_and_nothing_is_written(
    heron: Heron, store: Store, tmp_path: Path, text: str, said: str
) -> None:
    before = layers(store)
    single = text.startswith("{")
    file = written(tmp_path / "jobs.yaml", text if single else f"job: Day\nparallelism: {{work: 5}}\n---\n{text}\n")
    told = heron("job", "apply", "local", "-f", file, "--detach")
    assert told.code == USAGE and told.out == "" and said in told.err and told.err.count("\n") == 1
    assert f"error: {file}" in told.err and layers(store) == before


def test_an_empty_file_is_refused(heron: Heron, store: Store, tmp_path: Path) -> None:
    told = heron("job", "apply", "local", "-f", written(tmp_path / "jobs.yaml", "# none\n---\n"))
    assert told.code == USAGE and "contains no document; write job: NAME" in told.err


def test_the_schema_lists_what_may_be_written_now(heron: Heron, home: Path) -> None:
    found = {one["key"]: one for one in json.loads(heron("job", "schema", "--json").out)}
    settings = {key for key in found if key.startswith("settings.")}
    assert found.keys() - settings == {
        "definition", "run", "restore", "parallelism.COMPONENT", "resources.COMPONENT.ram", "resources.COMPONENT.cpu",
        "concurrency.COMPONENT", "config.KEY", "component_config.COMPONENT.KEY", "slo.lag_s", "scale.mode",
        "scale.max.COMPONENT", "scale.min.COMPONENT", "scale.drain_s", "scale.day_s", "place.pool", "role", "priority",
        "privileged",
    }  # fmt: skip
    assert found["definition"]["layers"] == ["provisioner"]
    assert found["resources.COMPONENT.ram"]["unit"] == "bytes" and found["run"]["default"] == "running"
    assert found["concurrency.COMPONENT"]["range"] == "a whole number from 1 to 512"
    assert len(settings) > 100
    for key in settings:
        for layer in found[key]["layers"]:
            leaves_of({"settings": {key.removeprefix("settings."): found[key]["default"]}}, layer)
    text = heron("job", "schema").out
    assert all(f"{key}  {one['meaning'].removesuffix('.')}\n" in text for key, one in found.items())
    assert not home.exists(), "it needs no cluster"


@pytest.mark.parametrize("part", PARTS)
def test_the_unit_is_a_process_of_the_manager_in_the_foreground(heron: Heron, state: StateManager, part: str) -> None:
    told = heron("manager", "start", "local", "--unit", "--config-property", 'heron.trace.x="$a %h"')
    assert told.code == USAGE, "what the manager would refuse"
    told = heron("manager", "start", "local", "--unit", "--config-property", "heron.checkpoint.interval_s=5")
    assert told.code == 0 and acting_of(state, part) is None
    found = dict(line.split("=", 1) for line in told.out.splitlines() if "=" in line and not line.startswith("#"))
    assert [found[key] for key in ("Restart", "RestartSec", "KillMode")] == ["on-failure", "5", "process"]
    environment = dict(word.split("=", 1) for word in shlex.split(found["Environment"]))
    assert environment["HERON_HOME"] == os.environ["HERON_HOME"]
    bare = {"HOME": os.environ["HOME"], "PATH": "/usr/bin:/bin", **environment}
    command = [part if word == "%i" else word for word in shlex.split(found["ExecStart"])]
    with subprocess.Popen(command, env=bare, cwd="/", stderr=subprocess.DEVNULL) as process:
        try:
            acting = wait_for(lambda: acting_of(state, part), 30.0, "the process that acts")
            assert acting.guardian == process.pid
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
        finally:
            process.kill()


def test_a_stop_ends_also_the_managers_that_stand_by_or_are_being_restarted(
    heron: Heron, state: StateManager, tmp_path: Path
) -> None:
    told = heron("manager", "start", "local", "--unit")
    command = next(line.removeprefix("ExecStart=") for line in told.out.splitlines() if line.startswith("ExecStart="))

    def start(part: str, home: Path | None = None) -> subprocess.Popen[bytes]:
        argv = [part if word == "%i" else word for word in shlex.split(command)]
        env = {**os.environ, **({"HERON_HOME": str(home)} if home else {})}
        return subprocess.Popen(argv, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    first, other = start("syncer"), start("syncer", tmp_path / "other")
    try:
        acting = wait_for(lambda: acting_of(state), 30.0, "the manager that acts")
        os.kill(acting.pid, signal.SIGKILL)  # its guardian starts another one
        processes = [first, start("syncer"), start("scaler")]
        try:
            told = heron("manager", "stop", "local")
            assert told.code == 0 and "The manager has ended; topologies keep" in told.out, told.err
            assert [one.poll() is None for one in (*processes, other)] == [False, False, False, True]
            assert acting_of(state) is None
            assert "no manager is running" in heron("manager", "stop", "local").err
        finally:
            for one in processes:
                one.kill()
                one.wait(30)
    finally:
        for one in (first, other):
            one.kill()
            one.wait(30)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (
            ("set", "local", "Day", "parallelism.work=3", "parallelism.work=4", "--detach"),
            USAGE,
            "the key parallelism.work is given twice; give it once",
        ),
        (
            ("set", "local", "Day", "parallelism.work=4", "--as", "oncal", "--detach"),
            USAGE,
            "there is no layer 'oncal' (did you mean 'oncall'?); use provisioner or oncall",
        ),
        (
            ("delete", "local", "Day"),
            FAILED,
            "is running or being changed; stop the job first: heron job stop local Day",
        ),
    ],
)
def test_a_refusal_names_the_fix(
    heron: Heron, store: Store, state: StateManager, words: tuple[str, ...], code: int, said: str
) -> None:
    store.put_running("Day", Running("", "Day-1", (), {}, "IN_SYNC"), 0)
    refused = heron("job", *words)
    assert refused.code == code and said in refused.err, refused.err


def test_a_change_that_has_failed_says_what_runs_when_it_is_tried_again_and_how_to_undo_it(
    heron: Heron, store: Store
) -> None:
    before = tuple(desired_of(store, "Day", Running(""))[0].items())
    store.set("Day", "oncall", {"parallelism": {"work": 4}}, 0, "ann", "")
    failed = Running(
        "",
        "Day-1",
        before,
        {"base": 3, "provisioner": 1, "oncall": 2},
        "WAITING",
        failure="no room",
        retry_at=time.time() + 90,
    )
    store.put_running("Day", replace(failed, tried=pairs_of(desired_of(store, "Day", failed)[0])), 0)
    undo = "undo the change: heron job unset local Day parallelism.work"
    told = heron("job", "set", "local", "Day", "parallelism.work=4")
    assert (
        told.code == FAILED
        and f"no room; provisioner v1 with oncall v2 runs; {undo}; the manager tries again in 1m30s" in told.err
    )
    shown = heron("job", "show", "local", "Day").out
    assert f"\n  no room\n  provisioner v1 with oncall v2 runs\n  {undo}\n" in shown

    store.put_running("Day", replace(failed, state="QUARANTINED", tried=store.running("Day")[0].tried), 1)
    told = heron("job", "set", "local", "Day", "parallelism.work=4")
    assert f"; {undo}; try it again: heron job release local Day" in told.err


def test_a_revert_after_failed_changes_goes_to_the_version_that_ran_last(heron: Heron, store: Store) -> None:
    for number in range(3):
        store.set("Day", "provisioner", {"priority": number}, number + 1, "ann", "")
    running = Running("", "Day-1", (), {"provisioner": 2}, "QUARANTINED", failure="it crashes")
    store.put_running("Day", running, 0)
    told = heron("job", "revert", "local", "Day", "--detach")
    assert told.code == 0 and "v2 was the last version that ran, and is restored\njob Day: provisioner v5" in told.out
    assert store.get("Day").document.priority == 0
    store.put_running("Day", replace(running, failure=""), 1)
    assert heron("job", "revert", "local", "Day", "--detach").code == 0
    assert store.get("Day").document.priority == 2, "the previous version"


def test_a_released_job_is_not_called_done_before_the_manager_has_retried_it(heron: Heron, store: Store) -> None:
    tried = pairs_of(desired_of(store, "Day", Running(""))[0])
    store.put_running("Day", Running("", "", (), {}, "WAITING", tried=tried, retry_at=time.time() + 50), 0)
    told = heron("job", "release", "local", "Day", "--timeout", "1")
    assert told.code == TIMED_OUT and "the manager has not retried yet" in told.err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("raise ValueError('no')\n", "job Day is unchanged"),
        (TOPOLOGY, "the topology of other.py is 'Other', but the job is 'Day'"),
    ],
)
def test_a_program_that_is_broken_or_of_another_topology_is_not_deployed(
    heron: Heron, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "other.py", text)
    before = store.get("Day").versions
    refused = heron("job", "deploy", "local", "Day", "other.py")
    assert refused.code in (FAILED, USAGE) and said in refused.err
    assert store.get("Day").versions == before


def test_state_may_be_dropped_by_the_deploy_that_says_so_and_by_no_later_one(
    heron: Heron, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "day.py", TOPOLOGY.replace("class Other", "class Day"))
    restores = []
    for flags in ((), ("--allow-dropped-state",), (), ()):
        told = heron("job", "deploy", "local", "Day", "day.py", "--detach", *flags)
        assert told.code == 0, told.err
        found = store.get("Day").found.get(("restore",))
        restores.append(found and found.value)
    assert restores == [None, "allow_dropped", "latest", "latest"]
