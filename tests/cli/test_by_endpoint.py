"""A topology of an engine that was submitted on another host: its verbs go by the endpoint, or say what is missing.

The state manager is one that both hosts reach, as ZooKeeper is; the endpoint is a real one, in a thread.
"""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from heronpy.clusters import killing, records, takedown
from heronpy.clusters.session import Session
from heronpy.common.errors import RpcError
from heronpy.common.log_format import format_record
from heronpy.net import access, endpoint_keys
from heronpy.net.access import EndpointPlace
from heronpy.net.curve import Keys
from heronpy.net.rpc import body_of
from heronpy.net.rpc_loop import ControlClient
from heronpy.proto import control_pb2, plan_pb2
from heronpy.scheduler import relay
from heronpy.scheduler.control_endpoint import ControlEndpoint
from heronpy.scheduler.relay import Relay
from heronpy.statemgr import paths
from heronpy.statemgr.file_locks import OtherHostError
from tests.cli.conftest import FakeTopology, Heron
from tests.cli.test_elsewhere import move
from tests.support.container_files import serve_files


class EndpointInThread:
    """The control endpoint of the topology's scheduler, whose own answers are the fake's as well."""

    def __init__(self, fake: FakeTopology, folder: Path) -> None:
        self._fake = fake
        folder.mkdir(mode=0o700)
        endpoint_keys.make(str(folder))
        self.keys = endpoint_keys.load(str(folder), "wordy-1")
        self.client = access.make_client("local")
        ready = threading.Event()
        self._loop = asyncio.new_event_loop()

        async def serve() -> None:
            self._over = asyncio.Event()
            clients = {self.client.public: access.USER}
            handlers: Any = None  # nobody here is a container
            self.endpoint = ControlEndpoint(self.keys, "wordy-1", ["tcp://127.0.0.1:*"], handlers, None, clients)
            self.endpoint.relay = Relay(
                lambda envelope: self.own(envelope), self._master, Keys("wordy-1", *[self.client] * 2)
            )
            ready.set()
            await self._over.wait()
            self.endpoint.relay.close()
            self.endpoint.close()

        self._thread = threading.Thread(target=lambda: self._loop.run_until_complete(serve()), daemon=True)
        self._thread.start()
        assert ready.wait(5)
        location = plan_pb2.SchedulerLocation(
            topology="wordy",
            endpoint="ipc:///of-that-host",
            control_endpoints=[*self.endpoint.listens_at, "tcp://127.0.0.1:1"],
            endpoint_key=self.keys.keys.server.public,
        )
        fake.state.set(paths.scheduler("wordy"), location.SerializeToString())

    def own(self, envelope: control_pb2.Envelope) -> Any:
        if body_of(envelope)[0] == "kill_topology":
            for node in (paths.execution_state, paths.scheduler, paths.tmaster):
                self._fake.state.delete(node("wordy"))
        return self._fake.answer(b"", envelope)

    def _master(self) -> plan_pb2.TmasterLocation | None:
        found = self._fake.state.get(paths.tmaster("wordy"))
        return plan_pb2.TmasterLocation.FromString(found[0]) if found else None

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(5)
        self._loop.close()


def unkeyed(endpoint: str, keys: Keys, topology_id: str) -> ControlClient:
    """The fake topology master listens at a socket."""
    return ControlClient(endpoint, topology_id=topology_id)


@pytest.fixture
def endpoint(wordy: FakeTopology, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EndpointInThread]:
    monkeypatch.setattr(relay, "ControlClient", unkeyed)
    submitted = replace(wordy.launch.submitted, engine="slurm")
    wordy.state.set(paths.launch("wordy"), submitted.to_bytes())
    wordy.record.launch_file = "/nowhere/launch.json"
    wordy.record.working_dir = "/nowhere"
    move(wordy)
    with closing(EndpointInThread(wordy, tmp_path / "endpoint")) as found:
        yield found


def test_verbs_are_answered_by_way_of_the_endpoint(
    endpoint: EndpointInThread, wordy: FakeTopology, heron: Heron
) -> None:
    wordy.answers["get_containers"] = control_pb2.ContainersReply()
    for words in (
        ("status", "local", "wordy"),
        ("list", "local"),
        ("top", "local", "wordy", "--once"),
        ("deactivate", "local", "wordy"),
        ("restart", "local", "wordy", "1"),
        ("update", "local", "wordy", "--runtime-config", "topology.debug:true"),
        ("plan", "local", "wordy", "physical"),
    ):
        result = heron(*words)
        assert result.code == 0, f"{words}: {result}"
    asked = {name for name, _ in wordy.asked}
    assert endpoint.endpoint.strangers == 0, "nothing is counted of those who have the key"
    assert {"get_status", "set_state", "restart_target", "runtime_config", "get_containers"} <= asked
    wordy.answers["set_state"] = RpcError("a spout of 'word' does not answer")
    result = heron("activate", "local", "wordy")
    assert result.code == 1 and result.err.strip().endswith("a spout of 'word' does not answer")


def test_logs_that_only_the_schedulers_host_has_are_named(
    endpoint: EndpointInThread, wordy: FakeTopology, heron: Heron, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = tmp_path / "there"
    (there / "log-files").mkdir(parents=True)
    line = format_record(2e9, "INFO", "container_1_count_2", "user", "it counts")
    (there / "log-files" / "container_1_count_2.log").write_text(f"{line}\n")

    serve_files(monkeypatch, there)
    where = "not readable from this host; search on host elsewhere, in /nowhere/log-files"
    for words in ((), ("--find", "counts")):
        shown = heron("logs", "local", "wordy", *words)
        assert shown.code == 0 and f"the logs of the scheduler and of ended containers are {where}" in shown.err, shown
    archive = tmp_path / "archive"
    archive.mkdir()
    settings = {**wordy.launch.settings, "logging": {**wordy.launch.settings["logging"], "archive": str(archive)}}
    submitted = replace(wordy.launch.submitted, engine="slurm", settings=settings)
    wordy.state.set(paths.launch("wordy"), submitted.to_bytes())
    shown = heron("logs", "local", "wordy")
    assert shown.code == 0 and f"the log of the scheduler is {where}" in shown.err, shown


def test_kill_is_the_schedulers_and_looks_for_nothing_here(
    endpoint: EndpointInThread, wordy: FakeTopology, heron: Heron, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(takedown, "leftovers", lambda _: pytest.fail("its processes are not on this host"))
    access.write_endpoint("local", "wordy", EndpointPlace("wordy-1", ("tcp://127.0.0.1:1",), endpoint.client.public))
    result = heron("kill", "local", "wordy", "--json")
    assert result.code == 0, result
    told = json.loads(result.out)
    assert told["by_scheduler"] and told["unseen_host"] == "elsewhere" and "unconfirmed" not in told
    assert [name for name, _ in wordy.asked].count("kill_topology") == 1
    assert access.topologies_of("local") == []


def test_the_paths_that_a_kill_names_are_those_of_the_host_that_has_them(
    endpoint: EndpointInThread, wordy: FakeTopology, heron: Heron, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hosts of this access have one name, as containers may have."""
    monkeypatch.setattr(takedown, "origin_of", lambda _: "login")
    monkeypatch.setattr(Session, "elsewhere", lambda *_: "")
    monkeypatch.setattr(killing, "newest_location", lambda *_: "/shared/checkpoints/7")
    result = heron("kill", "local", "wordy")
    assert result.code == 0, result
    paths_named = [line for line in result.out.splitlines() if "/nowhere" in line or "/shared" in line]
    assert len(paths_named) == 2 and all(line.endswith(" on host login") for line in paths_named), result.out


def test_what_remains_is_named_and_nothing_is_removed(
    endpoint: EndpointInThread, wordy: FakeTopology, heron: Heron, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = endpoint.own

    def own(envelope: control_pb2.Envelope) -> Any:
        if body_of(envelope)[0] == "kill_topology":
            return control_pb2.KillUnderWay(left=["container 2 (812_2 on n17)"])
        return answer(envelope)

    monkeypatch.setattr(endpoint, "own", own)
    result = heron("kill", "local", "wordy", "--timeout", "1")
    assert result.code == 6 and "container 2 (812_2 on n17)" in result.err
    assert wordy.state.exists(paths.execution_state("wordy"))


def test_without_a_key_it_says_how_to_bring_one(endpoint: EndpointInThread, wordy: FakeTopology, heron: Heron) -> None:
    (access.folder_of("local") / "client.key").unlink()
    for verb in ("status", "restart", "metrics", "kill"):
        result = heron(verb, "local", "wordy")
        assert result.code == 1 and "submitted on host elsewhere, and this host has no key for it" in result.err, verb
        assert "heron cluster access local --install" in result.err
    assert not wordy.asked


def test_with_a_key_of_others_nothing_is_asked(endpoint: EndpointInThread, wordy: FakeTopology, heron: Heron) -> None:
    (access.folder_of("local") / "client.key").unlink()
    access.make_client("local")
    result = heron("status", "local", "wordy")
    assert result.code == 1 and "refuses the key of this host; run 'heron cluster access' again" in result.err, result
    assert endpoint.endpoint.strangers >= 1 and not wordy.asked


def test_without_its_scheduler_or_route_it_says_so(
    endpoint: EndpointInThread, wordy: FakeTopology, heron: Heron
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    location = plan_pb2.SchedulerLocation(
        topology="wordy", control_endpoints=[f"tcp://127.0.0.1:{port}"], endpoint_key=endpoint.keys.keys.server.public
    )
    wordy.state.set(paths.scheduler("wordy"), location.SerializeToString())
    result = heron("status", "local", "wordy")
    assert result.code == 1 and f"does not answer this host at tcp://127.0.0.1:{port} (no answer)" in result.err
    wordy.state.delete(paths.scheduler("wordy"))
    result = heron("status", "local", "wordy")
    assert result.code == 1 and "start it on the submitting host: heron scheduler start local wordy" in result.err


def test_access_is_printed_into_a_pipe_and_taken_from_one(
    home: Path, heron: Heron, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = heron("cluster", "access", "local")
    assert result.code != 0 and "cluster local has no key for clients" in result.err
    access.make_client("local")
    text = heron("cluster", "access", "local").out
    assert json.loads(text)["cluster"] == "local"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    refused = heron("cluster", "access", "local", "--install")
    assert refused.code != 0 and json.loads(text)["client"][1] not in refused.err + refused.out


def test_a_state_of_another_host_is_read_by_the_endpoints(
    home: Path, heron: Heron, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hosts with one home: the state in files is of the other one, and the key is of both."""

    def of_another(*_: object) -> None:
        raise OtherHostError("the state belongs to host login")

    monkeypatch.setattr(records, "open_state", of_another)
    result = heron("list", "local")
    assert result.code != 0 and "the state belongs to host login" in result.err
    client = access.make_client("local")
    assert "No topology runs in local" in heron("list", "local").out
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    access.write_endpoint("local", "gone", EndpointPlace("gone-1", (f"tcp://127.0.0.1:{port}",), client.public))
    result = heron("list", "local")
    assert result.code == 1 and "the control endpoint of topology 'gone' does not answer this host" in result.err
    assert "No topology runs" not in result.out, "nobody knows"
    assert result.err.strip().endswith("it is not known whether 'gone' still runs; the reasons are above")
    assert json.loads(heron("list", "local", "--json").out) == []
    assert "it is not known whether 'gone' still runs" in heron("status", "local").err
    result = heron("status", "local", "gone")
    assert result.code == 1 and "the control endpoint of topology 'gone' does not answer this host" in result.err
