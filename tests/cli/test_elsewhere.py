"""A topology of another host: what cannot be reached from here is said, never taken for gone."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from heronpy.clusters import takedown
from heronpy.clusters.errors import ClusterError
from heronpy.clusters.session import Session
from heronpy.clusters.target import Target
from heronpy.common.host import Host, this_host
from heronpy.common.log_format import format_record
from heronpy.net import curve
from heronpy.proto import control_pb2
from heronpy.statemgr import paths
from tests.cli.conftest import FakeTopology, Heron
from tests.support.container_files import serve_files
from tests.support.launch import launch_spec
from tests.support.views import events

OTHER = Host("elsewhere", "00112233", "44556677")


def move(wordy: FakeTopology) -> None:
    """From now on the topology is one that was submitted on another host."""
    wordy.record.host = OTHER.to_text()
    wordy.state.set(paths.execution_state("wordy"), wordy.record.SerializeToString())


def end_scheduler(wordy: FakeTopology) -> None:
    wordy.state.delete(paths.scheduler("wordy"))


def test_kill_refuses_while_its_scheduler_runs_there(wordy: FakeTopology, heron: Heron) -> None:
    move(wordy)
    result = heron("kill", "local", "wordy")
    assert result.code == 1
    assert "submitted on host elsewhere, where its scheduler and processes are; run the command there" in result.err
    assert wordy.state.exists(paths.execution_state("wordy")) and not wordy.asked


def test_kill_without_scheduler_says_what_it_has_not_seen(
    wordy: FakeTopology, heron: Heron, monkeypatch: pytest.MonkeyPatch
) -> None:
    move(wordy)
    end_scheduler(wordy)
    curve.generate(wordy.record.working_dir)  # those of a topology of this host with the same name
    monkeypatch.setattr(takedown, "leftovers", lambda _: pytest.fail("its processes are not on this host"))
    result = heron("kill", "local", "wordy")
    assert result.code == 0
    assert "this host cannot see the topology's processes on host elsewhere" in result.err
    assert "log-files on host elsewhere" in result.out and "remaining processes" not in result.out
    assert not wordy.state.exists(paths.execution_state("wordy"))
    assert curve.folder_of(wordy.record.working_dir).is_dir()


def test_kill_in_json_names_the_host(wordy: FakeTopology, heron: Heron) -> None:
    move(wordy)
    end_scheduler(wordy)
    assert json.loads(heron("kill", "local", "wordy", "--json").out)["unseen_host"] == "elsewhere"


def test_a_socket_of_another_host_is_not_waited_for(wordy: FakeTopology, heron: Heron) -> None:
    move(wordy)
    for verb in ("status", "restart", "metrics"):
        result = heron(verb, "local", "wordy")
        assert result.code == 1, verb
        assert "where its topology master accepts local connections only; run the command there" in result.err, verb
    assert not wordy.asked


def test_logs_of_another_host_are_not_missing(wordy: FakeTopology, heron: Heron) -> None:
    os.rmdir(Path(wordy.record.working_dir) / "log-files")
    move(wordy)
    result = heron("logs", "local", "wordy")
    assert result.code != 0 and "submitted on host elsewhere, where its logs are" in result.err


def test_a_missing_launch_file_makes_no_plain_link(wordy: FakeTopology) -> None:
    session = Session(Target("local"))
    Path(wordy.record.launch_file).unlink()
    for transport in ("ipc", "tcp"):
        submitted = launch_spec(
            "wordy", "wordy-1", Path("/work"), settings={"security": {"transport": transport}}
        ).submitted
        wordy.state.set(paths.launch("wordy"), submitted.to_bytes())
        if transport == "ipc":
            assert session.keys(wordy.record) is None
            continue
        with pytest.raises(Exception, match=r"cannot read launch file .*launch.json: No such file"):
            session.keys(wordy.record)
        move(wordy)
        with pytest.raises(ClusterError, match=r"on host elsewhere, where its files are .*; run the command there"):
            session.keys(wordy.record)


def test_a_restart_of_the_host_changes_nothing(wordy: FakeTopology, heron: Heron) -> None:
    me = this_host()
    wordy.record.host = Host(me.name, me.machine or "x", "earlier").to_text()
    assert Session(Target("local")).elsewhere(wordy.record) == ("" if me.machine else me.name)
    assert heron("status", "local", "wordy").code == 0


@pytest.fixture
def reached(wordy: FakeTopology, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A topology of another host whose master and executors answer over the network; the folder of their files."""
    os.rmdir(Path(wordy.record.working_dir) / "log-files")
    move(wordy)
    wordy.state.set(paths.launch("wordy"), wordy.launch.submitted.to_bytes())
    Path(wordy.record.launch_file).unlink()
    monkeypatch.setattr(Session, "check_endpoint", lambda *_: None)  # stands for a TCP address
    there = tmp_path / "there"
    (there / "log-files").mkdir(parents=True)
    for process, text in (("container_1_count_2", "it is slow"), ("tmaster", "token: c4nary")):
        line = format_record(2e9, "INFO", process, "user", text)
        (there / "log-files" / f"{process}.log").write_text(line + "\n")
    (there / "log-files" / "container_1_count_3.log").write_text("")
    (there / "log-files" / "container_1_count_3.log.1").write_text("rotated\n")

    serve_files(monkeypatch, there)
    return there


def test_evidence_has_the_logs_of_another_host(
    reached: Path, wordy: FakeTopology, heron: Heron, tmp_path: Path
) -> None:
    file = tmp_path / "evidence.jsonl"
    wordy.answers["get_metrics"] = control_pb2.MetricsReply(interval_s=60.0)
    wordy.answers["get_events"] = events()
    wordy.answers["get_exceptions"] = control_pb2.ExceptionsReply()
    found = heron("doctor", "local", "wordy", "--evidence", str(file))
    assert f"in {file}; review it" in found.out, found
    parts = [json.loads(line) for line in file.read_text().splitlines()]
    logs = {part["log"]: part["lines"] for part in parts if "log" in part}
    assert logs["container_1_count_2"][0].endswith("it is slow"), logs
    assert logs["container_1_count_3"] == ["rotated"] and "c4nary" not in file.read_text()
    settings = next(part["settings"] for part in parts if "settings" in part)
    assert settings["release"] == "1" and settings["settings"].keys() == wordy.launch.settings.keys()


def test_evidence_names_containers_whose_logs_cannot_be_read(
    reached: Path, wordy: FakeTopology, heron: Heron, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ask_executor(self: object, container: int, request: object) -> None:
        raise ClusterError(f"container {container} is away")

    monkeypatch.setattr("heronpy.clusters.masters.Master.ask_executor", ask_executor)
    wordy.answers["get_metrics"] = control_pb2.MetricsReply(interval_s=60.0)
    wordy.answers["get_events"] = events()
    wordy.answers["get_exceptions"] = control_pb2.ExceptionsReply()
    file = tmp_path / "evidence.jsonl"
    heron("doctor", "local", "wordy", "--evidence", str(file))
    parts = [json.loads(line) for line in file.read_text().splitlines()]
    assert {"logs_of_container": 1, "logs": "cannot be read: container 1 is away"} in parts


def test_evidence_that_fails_leaves_nothing(
    reached: Path, wordy: FakeTopology, heron: Heron, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> object:
        raise ClusterError("it went away")

    monkeypatch.setattr("heronpy.cli.look.evidence._settings", lambda *_: {})
    monkeypatch.setattr("heronpy.cli.look.doctor.look", fails)
    folder = tmp_path / "out"
    folder.mkdir()
    found = heron("doctor", "local", "wordy", "--evidence", str(folder / "e.jsonl"))
    assert found.code != 0 and "it went away" in found.err and not list(folder.iterdir())


def test_logs_of_another_host_come_from_its_executors(reached: Path, heron: Heron) -> None:
    shown = heron("logs", "local", "wordy", "count")
    assert shown.code == 0 and "it is slow" in shown.out, shown
