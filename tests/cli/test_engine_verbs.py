"""What the verbs show and refuse of topologies that an engine runs; the engine and the masters are fakes."""

from __future__ import annotations

import asyncio
import json
import re
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from heronpy.cli import exits
from heronpy.cli.render import containers
from heronpy.cli.submit.waiting import Queue
from heronpy.clusters import room
from heronpy.clusters.target import caller
from heronpy.common.errors import DeadlineError, RpcError
from heronpy.common.log_format import format_record
from heronpy.common.units import MB
from heronpy.engines.contract import (
    EngineAwayError,
    NodeSize,
)
from heronpy.plan.launch import Submitted, save_submitted
from heronpy.proto import control_pb2, plan_pb2
from heronpy.statemgr import paths
from heronpy.storage.log_archive import LogArchive
from heronpy.storage.objects.port import ObjectsError, Trouble
from tests.cli.conftest import FakeTopology, Heron, Server, record, word_count
from tests.support.container_files import serve_files
from tests.support.fake_engine import FakeEngine
from tests.support.views import event, events, load_answer

# ---- what is shown ---------------------------------------------------------------------------


def test_a_queued_container_is_shown_with_its_reason_and_start() -> None:
    now = time.mktime((2026, 11, 23, 13, 0, 0, 0, 0, -1))
    soon = record(2, "QUEUED", words="Resources", starts_at=now + 3900)
    assert containers.text(soon, now) == "container 2 QUEUED job 812_2: Resources, starts about 14:05"
    later = record(2, "QUEUED", words="Resources", starts_at=now + 2 * 86_400)
    assert containers.text(later, now).endswith("starts about 2026-11-25 13:00")
    guess = record(2, "QUEUED", words="Resources", starts_at=now + 365 * 86_400)
    assert containers.text(guess, now).endswith(": Resources, no start is expected within a week")
    past = record(2, "QUEUED", words="Resources", starts_at=now - 60)
    assert containers.text(past, now) == "container 2 QUEUED job 812_2: Resources"
    assert containers.text(record(1, "STARTING", host="n1"), now) == "container 1 STARTING job 812_1 on n1"


def test_containers_that_run_or_have_no_engine_are_not_told_of() -> None:
    here = control_pb2.ProcessRecord(name="executor-1", state=control_pb2.PROC_RUNNING)
    assert containers.texts([record(0, "RUNNING"), here], 0.0) == []
    many = [record(number, "QUEUED") for number in range(8)]
    assert len(containers.texts(many, 0.0)) == containers.SHOWN + 1
    assert containers.texts(many, 0.0)[-1] == "and 3 more"


def test_queue_time_has_a_limit_of_its_own() -> None:
    queue = Queue("wc", 10.0, now=0.0)
    waits = [record(2, "QUEUED", words="Resources"), record(1, "RUNNING")]
    queue.look(waits, 1.0, 0.0)
    assert queue.waits_for == "container 2 QUEUED job 812_2: Resources"
    queue.look([record(2, "STARTING")], 9.0, 0.0)
    assert (queue.waits_for, queue.late) == ("", "container 2 STARTING job 812_2")
    queue.look(waits, 60.0, 0.0)  # the time in which none waited does not count
    queue.look(waits, 61.0, 0.0)
    with pytest.raises(exits.Failure, match="still in the queue after 10 s: container 2 QUEUED") as caught:
        queue.look(waits, 70.0, 0.0)
    assert caught.value.code == exits.TIMED_OUT


def test_a_container_that_fails_again_and_again_does_not_wait_for_the_queue() -> None:
    queue = Queue("wc", 10.0, now=0.0)
    fails = record(0, "QUEUED", words="FAILED, exit code 1", exit_reason="own_bug")
    lost = record(1, "QUEUED", words="Resources", exit_reason="lost_host")
    queue.look([fails], 1.0, 0.0)
    assert (queue.waits_for, queue.late) == ("", "container 0 QUEUED job 812_0: FAILED, exit code 1")
    queue.look([fails, lost], 2.0, 0.0)
    assert queue.waits_for == "container 1 QUEUED job 812_1: Resources"


def test_status_has_host_engine_id_and_phase(placed: FakeTopology, heron: Heron) -> None:
    placed.answers["get_containers"].containers[0].restarts = 7
    shown = heron("status", "local", "wordy")
    assert shown.code == exits.OK, shown.err
    for text in ("engine id", "812_0", "n1", "container 1 QUEUED job 812_1: Priority"):
        assert text in shown.out
    # They were one sum: of containers, and of processes in them.
    [titles] = [line.split("  ") for line in shown.out.splitlines() if "engine id" in line]
    assert [one.strip() for one in titles if one.strip()][4:7] == ["restarts", "processes", "their restarts"]
    assert re.search(r"812_0 +7 +\d+ +0 ", shown.out), shown.out
    told = json.loads(heron("status", "local", "wordy", "--json").out)["containers"]
    assert [(one["container"], one["phase"], one["engine_id"]) for one in told] == [
        (0, "RUNNING", "812_0"),
        (1, "QUEUED", "812_1"),
    ]


def test_a_container_that_was_just_moved_is_starting(placed: FakeTopology, heron: Heron) -> None:
    """The topology master still has the last word of its predecessor."""
    known = control_pb2.RegisterExecutor(container=1, epoch=3, host="n1")
    status = control_pb2.StatusReply(lifecycle=control_pb2.LIFE_RUNNING, executors=[known])
    moved = record(1, "RUNNING", host="n2", epoch=4)
    containers.tell_starting(status, [moved])
    assert (status.lifecycle, status.cause) == (control_pb2.LIFE_DEGRADED, "container 1 is starting on host n2")
    running = control_pb2.StatusReply(lifecycle=control_pb2.LIFE_RUNNING, executors=[known])
    containers.tell_starting(running, [record(1, "RUNNING", host="n1", epoch=3), record(2, "RUNNING", epoch=9)])
    assert running.lifecycle == control_pb2.LIFE_RUNNING

    shown = placed.status
    shown.lifecycle = control_pb2.LIFE_RUNNING
    del shown.executors[:]
    shown.executors.append(known)
    placed.answers["get_containers"] = control_pb2.ContainersReply(containers=[moved])
    assert "state      DEGRADED: container 1 is starting on host n2" in heron("status", "local", "wordy").out
    told = json.loads(heron("status", "local", "wordy", "--json").out)
    assert (told["lifecycle"], told["cause"]) == ("DEGRADED", "container 1 is starting on host n2")
    [row] = json.loads(heron("list", "local", "--json").out)
    assert row["state"] == "DEGRADED"


def test_a_topology_that_is_being_killed_says_so(placed: FakeTopology, heron: Heron) -> None:
    placed.answers["get_containers"] = control_pb2.ContainersReply(
        containers=[record(0, "LEAVING", host="n1")], killing=True, engine_away="for 30 s: squeue hangs"
    )
    assert "was killed, and its containers are being ended" in heron("status", "local", "wordy").out
    placed.state.delete(paths.tmaster("wordy"))
    refused = heron("metrics", "local", "wordy")
    assert refused.code != exits.OK and "run 'heron kill local wordy' again to finish" in refused.err


def test_what_the_endpoint_has_refused_is_counted(placed: FakeTopology, heron: Heron) -> None:
    quiet = heron("status", "local", "wordy")
    assert "refused" not in quiet.out
    told = json.loads(heron("status", "local", "wordy", "--json").out)["endpoint_refused"]
    assert set(told) == {field.name for field in control_pb2.EndpointRefusals.DESCRIPTOR.fields}
    assert not any(told.values())
    refused = control_pb2.EndpointRefusals(strangers=1200, releases=1)
    placed.answers["get_containers"] = control_pb2.ContainersReply(containers=[record(0, "RUNNING")], refused=refused)
    shown = heron("status", "local", "wordy").out
    words = "1,200 connections without its keys, 1 containers of another release"
    assert f"The scheduler's control endpoint has refused {words}\n" in shown
    assert json.loads(heron("status", "local", "wordy", "--json").out)["endpoint_refused"]["strangers"] == 1200


def test_list_names_what_waits(placed: FakeTopology, heron: Heron) -> None:
    assert "'wordy': container 1 QUEUED job 812_1: Priority" in heron("list", "local").out
    [row] = json.loads(heron("list", "local", "--json").out)
    assert row["engine"] == "slurm" and row["containers"][1]["words"] == "Priority"


def test_a_host_is_drained_by_the_scheduler(placed: FakeTopology, heron: Heron) -> None:
    refused = heron("drain", "local", "wordy", "--host", "n11")
    assert (refused.code, "did you mean 'n1'?" in refused.err) == (exits.USAGE, True), refused.err
    placed.answers["drain_host"] = control_pb2.Ok(text="moved container 0")
    assert heron("drain", "local", "wordy", "--host", "n1").out == "Successfully drained: moved container 0\n"
    assert placed.asked[-1] == ("drain_host", control_pb2.DrainHost(host="n1", wait_s=600, by=caller()))
    for error, code in ((DeadlineError("no room within 1 s"), exits.TIMED_OUT), (RpcError("no room"), exits.FAILED)):
        placed.answers["drain_host"] = error
        refused = heron("drain", "local", "wordy", "--host", "n1")
        assert (refused.code, "no room" in refused.err) == (code, True), refused


def test_hosts_that_are_avoided_are_shown_and_lifted(placed: FakeTopology, heron: Heron) -> None:
    assert heron("cluster", "hosts", "local").out == "No hosts are avoided\n"
    avoided = [
        control_pb2.AvoidedHost(host="n1", why="a container on this host was lost", left_s=90),
        control_pb2.AvoidedHost(host="n2", why="ann drains it", left_s=600, draining=True),
    ]
    placed.answers["get_containers"] = control_pb2.ContainersReply(containers=[record(0, "RUNNING")], avoided=avoided)
    shown = heron("cluster", "hosts", "local").out
    for words in (
        ("n1", "wordy", "1m30s", "a container on this host was lost"),
        ("n2", "wordy", "until its drain is over"),
    ):
        assert any(all(word in line for word in words) for line in shown.splitlines()), shown
    [first, _] = json.loads(heron("cluster", "hosts", "local", "--json").out)
    assert first == {
        "topology": "wordy", "host": "n1", "why": "a container on this host was lost", "draining": False, "left_s": 90,
    }  # fmt: skip
    placed.answers["drain_host"] = control_pb2.Ok(text="host n1 may get containers again")
    lifted = heron("cluster", "hosts", "local", "--lift", "n1")
    assert (lifted.code, "Host n1 may get containers of 'wordy' again" in lifted.out) == (exits.OK, True), lifted
    assert placed.asked[-1] == ("drain_host", control_pb2.DrainHost(host="n1", lift=True, by=caller()))
    refused = heron("cluster", "hosts", "local", "--lift", "n7")
    assert (refused.code, "no topology in local avoids host 'n7'" in refused.err) == (exits.NOT_FOUND, True), refused
    placed.answers["drain_host"] = RpcError("host n2 is being drained")
    refused = heron("cluster", "hosts", "local", "--lift", "n2")
    assert (refused.code, "'wordy': host n2 is being drained" in refused.err) == (exits.FAILED, True), refused
    placed.state.delete(paths.scheduler("wordy"))
    assert GONE in heron("cluster", "hosts", "local").err


def test_why_a_container_waits_is_what_status_and_doctor_say(placed: FakeTopology, heron: Heron) -> None:
    ends = event(kind="restart", subject="container 1", at=time.time(), times=3, warning=True)
    placed.answers["get_events"] = events(ends)
    placed.answers["get_metrics"] = control_pb2.MetricsReply()
    placed.answers["get_load"] = load_answer(since=time.time() - 600)
    told = heron("doctor", "local", "wordy").out
    assert "container 1 is QUEUED: Priority" in told and "next       heron status local wordy" in told
    assert "restarted 3 times" not in told, "it waits, and does not end again and again"
    placed.state.delete(paths.tmaster("wordy"))
    waits = record(0, "QUEUED", words="Resources")
    placed.answers["get_containers"] = control_pb2.ContainersReply(containers=[waits])
    for verb in ("status", "doctor"):
        refused = heron(verb, "local", "wordy")
        assert "the topology master of 'wordy' is not running; container 0 is QUEUED: Resources" in refused.err


def test_a_container_whose_end_nobody_confirms_is_replaced_by_force(placed: FakeTopology, heron: Heron) -> None:
    placed.answers["restart_container"] = control_pb2.Ok(text="restarted executor-1")
    forced = heron("restart", "local", "wordy", "1", "--force")
    assert forced.out == "Successfully restarted topology 'wordy' (executor-1)\n", forced.err
    asked = control_pb2.RestartContainer(container=1, force=True, wait_s=90, by=caller())
    assert placed.asked[-1] == ("restart_container", asked)
    refused = heron("restart", "local", "wordy", "--task", "1", "--force")
    assert refused.code == exits.USAGE and "give a container's number" in refused.err


def test_what_needs_an_engine_is_refused_without_one(wordy: FakeTopology, heron: Heron) -> None:
    for words in (("drain", "local", "wordy", "--host", "n1"), ("scheduler", "start", "local", "wordy")):
        refused = heron(*words)
        assert refused.code == exits.USAGE and "without an engine" in refused.err
    refused = heron("restart", "local", "wordy", "1", "--force")
    assert refused.code == exits.USAGE and "leave out --force" in refused.err


def test_a_scheduler_that_runs_is_not_started_again(placed: FakeTopology, heron: Heron) -> None:
    refused = heron("scheduler", "start", "local", "wordy")
    assert (refused.code, "is already running" in refused.err) == (exits.EXISTS, True), refused.err


CHANGES = (
    "restart local wordy", "restart local wordy 1", "restart local wordy --component count", "activate local wordy",
    "restart local wordy 1 --force", "deactivate local wordy", "update local wordy --component-parallelism count:3",
    "update local wordy --runtime-config k:v", "drain local wordy --host n1", "stop local wordy --drain",
    "checkpoints savepoint local wordy", "checkpoints trigger local wordy", "checkpoints restore local wordy",
)  # fmt: skip


@pytest.mark.parametrize("with_master", [True, False])
@pytest.mark.parametrize("words", CHANGES)
def test_what_would_wait_for_a_scheduler_that_is_gone_says_so_at_once(
    placed: FakeTopology, heron: Heron, words: str, with_master: bool
) -> None:
    """The state is at the scheduler's control endpoint, so the topology master could change nothing before it is back."""
    stateful = word_count()
    stateful.topology_config.kvs.add(key="topology.reliability.mode", value="EFFECTIVELY_ONCE")
    placed.state.set(paths.topology("wordy"), stateful.SerializeToString())
    placed.state.delete(paths.scheduler("wordy"))
    if not with_master:
        placed.state.delete(paths.tmaster("wordy"))
    refused = heron(*words.split())
    assert refused.code == exits.FAILED, refused
    assert "the scheduler of 'wordy' is not running; start it: heron scheduler start local wordy" in refused.err
    reads = {"get_status", "get_checkpoints", "get_load"}
    assert {name for name, _ in placed.asked} <= reads  # nothing that is carried out later


GONE = "the scheduler of 'wordy' is not running; start it: heron scheduler start local wordy"


def test_a_scheduler_that_is_gone_is_told_by_all_verbs_that_look(placed: FakeTopology, heron: Heron) -> None:
    [row] = json.loads(heron("list", "local", "--json").out)
    assert row["scheduler_away"] is None and len(row["containers"]) == 2
    assert json.loads(heron("status", "local", "wordy", "--json").out)["scheduler_away"] is None
    placed.answers["get_metrics"] = control_pb2.MetricsReply()
    placed.answers["get_events"] = events()
    placed.answers["get_load"] = load_answer(since=time.time() - 600)
    assert "scheduler" not in heron("doctor", "local", "wordy").out
    placed.state.delete(paths.scheduler("wordy"))

    [row] = json.loads(heron("list", "local", "--json").out)
    assert (row["state"], row["scheduler_away"], row["containers"]) == ("RUNNING", GONE, None)
    assert f"'wordy': {GONE}" in heron("list", "local").out
    assert json.loads(heron("status", "local", "wordy", "--json").out)["scheduler_away"] == GONE
    doctor = heron("doctor", "local", "wordy")
    assert doctor.code == exits.FAILED and "healthy" not in doctor.out.lower()
    for text in (
        "the scheduler of wordy is not running, so a container",
        "next       heron scheduler start local wordy",
    ):
        assert text in doctor.out
    told = json.loads(heron("doctor", "local", "wordy", "--json").out)
    assert (told["healthy"], told["findings"][0]["verdict"]) == (False, "down")


def test_a_master_that_does_not_answer_without_a_scheduler_is_explained(placed: FakeTopology, heron: Heron) -> None:
    """It may wait for its state, which is at the scheduler's control endpoint."""
    silent = Server(lambda _, envelope: asyncio.sleep(60))
    location = plan_pb2.TmasterLocation(topology="wordy", endpoint=silent.endpoint)
    placed.state.set(paths.tmaster("wordy"), location.SerializeToString())
    placed.state.delete(paths.scheduler("wordy"))
    try:
        [row] = json.loads(heron("list", "local", "--json").out)
        assert (row["state"], row["cause"], row["containers"]) == ("NO ANSWER", GONE, None)
        assert f"'wordy' is NO ANSWER: {GONE}" in heron("list", "local").out
        refused = heron("status", "local", "wordy")
        assert refused.code != exits.OK and GONE in refused.err, refused
    finally:
        silent.close()
    placed.state.delete(paths.tmaster("wordy"))
    [row] = json.loads(heron("list", "local", "--json").out)
    assert (row["state"], row["cause"]) == ("NO MASTER", GONE)
    shown = heron("list", "local").out
    assert GONE in shown and "heron kill" not in shown


def test_with_a_state_of_its_own_a_topology_is_changed_without_its_scheduler(
    placed: FakeTopology, heron: Heron
) -> None:
    found = placed.state.get(paths.launch("wordy"))
    assert found is not None
    submitted = replace(Submitted.from_bytes(found[0], "test"), state_type="zookeeper")
    placed.state.set(paths.launch("wordy"), submitted.to_bytes())
    placed.state.delete(paths.scheduler("wordy"))
    assert heron("deactivate", "local", "wordy").code == exits.OK


def write_log(folder: Path, process: str, at: float, text: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{process}.log").write_text(format_record(2e9 + at, "INFO", process, "user", text) + "\n")


@pytest.fixture
def archived(placed: FakeTopology, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three runs of one process: one lives, one has sent its end to this host, and one is in the archive."""
    live, name, id = tmp_path / "n9", "container_1_word_1", placed.launch.topology_id
    for folder, at, text in (
        (live / "log-files", 3.0, "it lives"),
        (Path(placed.record.working_dir) / "log-files", 2.0, "it was sent"),
        (tmp_path / "archive" / id / "1.1@n7" / "log-files", 1.0, "it is archived"),
    ):
        write_log(folder, name, at, text)

    serve_files(monkeypatch, live)
    found = placed.state.get(paths.launch("wordy"))
    assert found is not None
    submitted = Submitted.from_bytes(found[0], "test")
    settings = {
        **submitted.settings,
        "logging": {**submitted.settings["logging"], "archive": str(tmp_path / "archive")},
    }
    placed.state.set(paths.launch("wordy"), replace(submitted, settings=settings).to_bytes())
    save_submitted(replace(submitted, settings=settings), placed.record.launch_file)
    return tmp_path / "archive"


def texts(shown: str) -> list[str]:
    return [line.rpartition("] ")[2] for line in shown.splitlines()]


def test_logs_that_live_were_sent_and_are_archived_are_one(archived: Path, heron: Heron) -> None:
    assert texts(heron("logs", "local", "wordy", "word").out) == ["it is archived", "it was sent", "it lives"]
    found = heron("logs", "local", "wordy", "--find", "it ")
    assert texts(found.out) == ["it lives", "it was sent", "it is archived"], found


def test_logs_of_an_ended_topology_are_found_in_its_archive(archived: Path, placed: FakeTopology, heron: Heron) -> None:
    for path in (paths.launch, paths.scheduler, paths.tmaster, paths.execution_state):
        placed.state.delete(path("wordy"))
    assert texts(heron("logs", "local", "wordy", "word").out) == ["it is archived", "it was sent"]
    assert texts(heron("logs", "local", "wordy", "--find", "it ").out) == ["it was sent", "it is archived"]


def test_an_archive_that_cannot_be_read_is_named(archived: Path, heron: Heron, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(self: object) -> None:
        raise ObjectsError(str(archived), Trouble.AWAY)

    monkeypatch.setattr(LogArchive, "runs", away)
    shown = heron("logs", "local", "wordy", "word")
    assert (shown.code, texts(shown.out)) == (exits.OK, ["it was sent", "it lives"])
    assert f"the log archive {archived} cannot be read" in shown.err


# ---- what an update refuses ------------------------------------------------------------------


class Sized(FakeEngine):
    """Its largest host has eight cores; with `deaf` it does not say so."""

    deaf = False

    def node_sizes(self) -> list[NodeSize]:
        if self.deaf:
            raise EngineAwayError("sinfo hangs")
        return [NodeSize(8, 16_000 * MB, None, "partition batch")]


@pytest.fixture
def sized(placed: FakeTopology, monkeypatch: pytest.MonkeyPatch) -> Sized:
    engine = Sized()
    monkeypatch.setattr(room, "engine_of", lambda submitted: engine)
    placed.answers["update_topology"] = control_pb2.UpdateReply(added=[4], plan_version=4)
    return engine


@pytest.mark.parametrize("dry_run", [(), ("--dry-run",)])
def test_an_update_to_what_fits_no_host_changes_nothing(
    placed: FakeTopology, sized: Sized, heron: Heron, dry_run: tuple[str, ...]
) -> None:
    words = ("update", "local", "wordy", "--component-parallelism", "count:200", *dry_run)
    refused = heron(*words)
    assert refused.code == exits.USAGE, refused
    for text in ("container 1 requests", "the largest host of partition batch has 8 cores", "nothing was changed"):
        assert text in refused.err
    sized.deaf = True
    refused = heron(*words)
    assert (refused.code, "does not report the size of its hosts: sinfo hangs" in refused.err) == (
        exits.FAILED,
        True,
    ), refused
    assert not placed.asked
    # More containers are a way out.
    sized.deaf = False
    words = ("update", "local", "wordy", "--component-parallelism", "count:20", "--container-number", "10")
    assert heron(*words, *dry_run).code == exits.OK


def test_an_update_tells_which_container_outgrows_its_room(placed: FakeTopology, sized: Sized, heron: Heron) -> None:
    done = heron("update", "local", "wordy", "--component-parallelism", "count:3")
    assert done.code == exits.OK and "Successfully updated" in done.out, done
    assert "container 1 now requests" in done.err and "heron restart local wordy 1 --force" in done.err
    sized.deaf = True  # of what asks for less the engine is not asked
    done = heron("update", "local", "wordy", "--component-parallelism", "count:1")
    assert (done.code, done.err) == (exits.OK, "")
