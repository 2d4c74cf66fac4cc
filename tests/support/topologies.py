"""Launch files and plans, for tests of a topology's processes."""

from __future__ import annotations

import json
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heronpy.common.ids import short_hash
from heronpy.net import curve, endpoint_keys
from heronpy.plan.launch import LaunchSpec
from heronpy.proto import plan_pb2, topology_pb2
from heronpy.statemgr import open_state, paths
from heronpy.statemgr.base import StateManager
from tests.support.launch import launch_spec
from tests.support.leaks import processes_of


def packing_plan(containers: dict[int, list[tuple[str, int]]], version: int = 1) -> plan_pb2.PackingPlan:
    """Return the packing plan for a map from container to (component, task) pairs."""
    plan = plan_pb2.PackingPlan(id="test", version=version)
    for number, instances in containers.items():
        container = plan.containers.add(id=number)
        for component, task in instances:
            container.instances.add(component=component, task_id=task)
    return plan


@dataclass
class Deployed:
    """A topology of which only the state and the launch file exist."""

    launch: LaunchSpec
    launch_file: str
    state: StateManager

    @property
    def working_dir(self) -> Path:
        return Path(self.launch.working_dir)

    def publish(self, plan: plan_pb2.PackingPlan) -> None:
        (self.working_dir / "plan.pb").write_bytes(plan.SerializeToString())
        self.state.set(paths.packing_plan(self.launch.topology), plan.SerializeToString())

    def behave(self, **behaviour: dict[str, Any]) -> None:
        """Set the behaviour of fake children, by name (with _ instead of -)."""
        draft = self.working_dir / "behaviour.new"
        draft.write_text(json.dumps(behaviour))
        draft.rename(self.working_dir / "behaviour.json")

    def starts(self, name: str) -> list[tuple[int, int]]:
        """Return (pid, epoch) for each start of a fake child."""
        path = self.working_dir / "starts"
        lines = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
        return [(int(pid), int(epoch)) for who, pid, epoch in lines if who == name]

    def causes(self, container: int) -> list[tuple[str, str]]:
        """Return the cause (reason and text) of each start of a container with fake children."""
        lines = map(json.loads, (self.working_dir / "causes").read_text().splitlines())
        return [(reason, text) for number, reason, text in lines if number == container]

    def clean_up(self) -> None:
        """Close the state and remove the socket files, after the processes were stopped or killed.

        Processes end a moment after their parent, and write files until then. The leak check reports files that remain.
        """
        deadline = time.monotonic() + 10
        while processes_of(os.environ["HERON_HOME"]) and time.monotonic() < deadline:
            time.sleep(0.005)
        self.state.close()
        for path in Path(self.launch.sockets_dir).glob("*"):
            path.unlink()

    def log(self, name: str) -> str:
        path = self.launch.log_dir / f"{name}.log"
        try:
            return path.read_text()
        except FileNotFoundError:  # not started, or being rotated
            return ""


def deploy(
    home: Path,
    plan: plan_pb2.PackingPlan,
    settings: dict[str, dict[str, Any]] | None = None,
    origins: dict[str, str] | None = None,
    needs_spark: bool = False,
    engine: str = "",
    **fields: Any,
) -> Deployed:
    """Write the files and nodes that `heron submit` writes before it starts the scheduler; return the topology."""
    topology_id = "word-count-1"
    working_dir = home / "topologies" / "local" / "me" / "word-count"
    working_dir.mkdir(mode=0o700, parents=True)
    (working_dir / "log-files").mkdir(mode=0o700)
    launch = launch_spec(
        "word-count",
        topology_id,
        working_dir,
        sockets_dir=os.path.join(tempfile.gettempdir(), f"heron-{os.getuid()}", short_hash(topology_id)),
        state_root=str(home / "state" / "local"),
        needs_spark=needs_spark,
        settings=settings or {},
        origins=origins or {},
        engine=engine,
        **fields,
    )
    if engine:
        curve.generate(str(working_dir))
        endpoint_keys.make(str(working_dir))
    launch_file = working_dir / "launch.json"
    launch.save(launch_file)
    state = open_state(launch.state_type, launch.state_root)
    deployed = Deployed(launch, str(launch_file), state)
    execution = plan_pb2.ExecutionState(topology=launch.topology, topology_id=topology_id, launch_file=str(launch_file))
    state.create(paths.execution_state(launch.topology), execution.SerializeToString())
    topology = topology_pb2.Topology(id=topology_id, name=launch.topology, state=topology_pb2.RUNNING)
    state.create(paths.topology(launch.topology), topology.SerializeToString())
    deployed.publish(plan)
    return deployed
