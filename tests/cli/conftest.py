"""Fixtures of the CLI's tests: an empty home, a runner, and a fake topology with masters in a thread."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from google.protobuf.message import Message
from msgspec import Struct

from heronpy.cli.main import main
from heronpy.health.signals import AllHotSpots
from heronpy.launching import submission
from heronpy.launching.environment import child_environment
from heronpy.net.answers import packed
from heronpy.net.rpc import body_of
from heronpy.net.rpc_loop import ControlServer
from heronpy.plan.launch import LAUNCH_VARIABLE, LaunchSpec, Submitted
from heronpy.proto import control_pb2, plan_pb2, topology_pb2
from heronpy.statemgr import open_state, paths
from tests.support.launch import launch_spec
from tests.support.views import load_answer, timeline
from tests.support.wires import new_endpoint


class Result(NamedTuple):
    code: int
    out: str
    err: str


Heron = Callable[..., Result]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """HERON_HOME and the client's configuration in an empty folder."""
    folder = tmp_path / "home"
    monkeypatch.setenv("HERON_HOME", str(folder))
    monkeypatch.setenv("HERON_CONFIG_HOME", str(tmp_path / "client"))
    monkeypatch.delenv("HERON_CONF", raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    return folder


@pytest.fixture
def heron(home: Path, capfd: pytest.CaptureFixture[str]) -> Heron:
    """Runs `heron` in this process; output of its children is captured, too."""

    def run(*args: str) -> Result:
        capfd.readouterr()
        code = main(args)
        captured = capfd.readouterr()
        return Result(code, captured.out, captured.err)

    return run


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch, home: Path) -> Any:
    """Replaces the scheduler by fake_runtime.py; call it with the fate of the topology."""
    started: list[subprocess.Popen[bytes]] = []

    def spawn(spec: LaunchSpec, launch_file: str) -> subprocess.Popen[bytes]:
        argv = [sys.executable, str(Path(__file__).with_name("fake_runtime.py")), "--launch", launch_file]
        with open(spec.log_dir / "scheduler.log", "ab") as log:
            process = subprocess.Popen(
                argv,
                env=child_environment({LAUNCH_VARIABLE: launch_file}),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        started.append(process)
        return process

    monkeypatch.setattr(submission, "spawn_scheduler", spawn)

    def choose(fate: str) -> list[subprocess.Popen[bytes]]:
        monkeypatch.setenv("HERON_FAKE", fate)
        return started

    yield choose
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait(5)


def word_count(name: str = "wordy") -> topology_pb2.Topology:
    """A topology of one spout and one bolt."""
    topology = topology_pb2.Topology(id=f"{name}-1", name=name, state=topology_pb2.RUNNING)
    spout = topology.spouts.add()
    spout.comp.name = "word"
    spout.comp.class_name = "topo.Words"
    spout.comp.config.kvs.add(key="topology.component.parallelism", value="1")
    output = spout.outputs.add()
    output.stream.id, output.stream.component_name = "default", "word"
    output.schema.keys.add(key="word", type=topology_pb2.OBJECT)
    bolt = topology.bolts.add()
    bolt.comp.name = "count"
    bolt.comp.class_name = "topo.Count"
    bolt.comp.config.kvs.add(key="topology.component.parallelism", value="2")
    item = bolt.inputs.add(gtype=topology_pb2.FIELDS)
    item.stream.id, item.stream.component_name = "default", "word"
    item.grouping_fields.keys.add(key="word", type=topology_pb2.OBJECT)
    topology.topology_config.kvs.add(key="topology.stmgrs", value="1")
    return topology


def packing() -> plan_pb2.PackingPlan:
    plan = plan_pb2.PackingPlan(id="wordy", version=1)
    container = plan.containers.add(id=1)
    for task, component in ((1, "word"), (2, "count"), (3, "count")):
        container.instances.add(component=component, task_id=task, component_index=task // 3)
    return plan


@dataclass
class FakeTopology:
    """A topology in the state manager, and what its topology master answers."""

    state: Any
    launch: LaunchSpec
    record: plan_pb2.ExecutionState
    status: control_pb2.StatusReply
    answers: dict[str, Message | Struct | Exception] = field(default_factory=dict)
    asked: list[tuple[str, Message]] = field(default_factory=list)
    on_ask: Callable[[str], None] | None = None
    #: Ids of the topologies that were to be changed.
    topologies: set[str] = field(default_factory=set)

    def answer(self, _: bytes, envelope: control_pb2.Envelope) -> Message | None:
        name, body = body_of(envelope)
        self.asked.append((name, body))
        if name == "set_state":
            self.topologies.add(envelope.topology_id)
        if self.on_ask:
            self.on_ask(name)
        if name == "get_status":
            return self.status
        empty: dict[str, Message | Struct] = {
            "get_load": load_answer(),
            "get_timeline": timeline(),
            "get_hot_spots": AllHotSpots(tasks={}),
        }
        reply = self.answers.get(name, empty.get(name, control_pb2.Ok(text="done")))
        if isinstance(reply, Exception):
            raise reply
        return packed(reply) if isinstance(reply, Struct) else reply


class Server:
    """A ControlServer on a loop of its own in a thread."""

    def __init__(self, answer: Callable[[bytes, control_pb2.Envelope], Any], topology_id: str = "wordy-1") -> None:
        ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self.endpoint = ""

        async def serve() -> None:
            self._over = asyncio.Event()
            server = ControlServer([new_endpoint(topology_id)], answer)
            self.endpoint = server.endpoints[0]
            ready.set()
            await self._over.wait()
            server.close()

        self._thread = threading.Thread(target=lambda: self._loop.run_until_complete(serve()), daemon=True)
        self._thread.start()
        assert ready.wait(5)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(5)
        self._loop.close()


def make_status() -> control_pb2.StatusReply:
    status = control_pb2.StatusReply(
        topology="wordy", topology_id="wordy-1", lifecycle=control_pb2.LIFE_RUNNING, plan_version=3, uptime_s=65.0
    )
    status.plan.topology.CopyFrom(word_count())
    status.plan.version = 3
    status.plan.stmgrs.add(id="stmgr-1", container=1, epoch=65537, data_endpoint="ipc:///x", pid=11, host="here")
    for task, component in ((1, "word"), (2, "count"), (3, "count")):
        name = f"container_1_{component}_{task}"
        status.plan.instances.add(instance_id=name, task_id=task, component=component, container=1)
        status.tasks.add(
            task_id=task,
            component=component,
            instance_id=name,
            state=control_pb2.TASK_RUNNING,
            epoch=1,
            emitted=10 * task,
        )
    return status


@pytest.fixture
def wordy(home: Path) -> Iterator[FakeTopology]:
    """Topology 'wordy' of cluster 'local' runs, as far as the CLI can see."""
    working = home / "topologies" / "local" / "me" / "wordy"
    (working / "log-files").mkdir(parents=True)
    root = str(home / "state" / "local")
    launch = launch_spec(
        "wordy", "wordy-1", working, sockets_dir="/nonexistent", state_root=root, release="1", settings=_defaults()
    )
    launch.save(working / "launch.json")
    record = plan_pb2.ExecutionState(
        topology="wordy", topology_id="wordy-1", cluster="local", role="me", environ="default",
        submission_user="me", working_dir=str(working), launch_file=str(working / "launch.json"), submitted_at=1e9,
    )  # fmt: skip
    state = open_state("local", root)
    fake = FakeTopology(state, launch, record, make_status())
    server = Server(fake.answer)
    for path, message in (
        (paths.execution_state("wordy"), record),
        (paths.topology("wordy"), word_count()),
        (paths.packing_plan("wordy"), packing()),
        (paths.physical_plan("wordy"), fake.status.plan),
    ):
        state.create(path, message.SerializeToString())
    here = plan_pb2.TmasterLocation(topology="wordy", endpoint=server.endpoint)
    state.create(paths.tmaster("wordy"), here.SerializeToString(), ephemeral=True)
    there = plan_pb2.SchedulerLocation(topology="wordy", endpoint=server.endpoint)
    state.create(paths.scheduler("wordy"), there.SerializeToString(), ephemeral=True)
    yield fake
    server.close()
    state.close()


def _defaults() -> dict[str, dict[str, Any]]:
    from heronpy.common import settings

    return settings.resolve("local", [], {}, {}, []).settings


def record(container: int, phase: str, **more: Any) -> control_pb2.ProcessRecord:
    """What a scheduler says of a container that an engine runs."""
    return control_pb2.ProcessRecord(
        name=f"executor-{container}", phase=phase, engine_id=f"812_{container}", submission=1, **more
    )


@pytest.fixture
def placed(wordy: FakeTopology) -> Any:
    """'wordy' is run by an engine, as far as its scheduler says."""
    reply = control_pb2.ContainersReply(
        containers=[record(0, "RUNNING", host="n1"), record(1, "QUEUED", words="Priority")]
    )
    wordy.answers["get_containers"] = reply
    found = wordy.state.get(paths.launch("wordy"))
    launch = Submitted.from_bytes(found[0], "test") if found else wordy.launch.submitted
    changed = Submitted(**{**{name: getattr(launch, name) for name in Submitted.__slots__}, "engine": "slurm"})
    wordy.state.set(paths.launch("wordy"), changed.to_bytes())
    server = Server(wordy.answer)
    location = plan_pb2.SchedulerLocation(topology="wordy", endpoint=server.endpoint, pid=1, host="here")
    wordy.state.set(paths.scheduler("wordy"), location.SerializeToString())
    yield wordy
    server.close()
