"""`heron` on a Slurm of the tests' own, and what its scheduler and Slurm say of a topology's containers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from heronpy.cli import exits
from heronpy.net.rpc import RpcClient
from heronpy.proto import control_pb2, plan_pb2
from heronpy.statemgr import open_state, paths
from tests.support.slurm import SlurmCluster
from tests.support.waiting import wait_for

ROOT = Path(__file__).parents[2]
NAME = "WordCount"
#: The topology of `Judged`, how often its containers may fail, and its tuples a second of each partition.
JUDGED, RESTARTS, RATE = "judged", 1, 200
ROOMS: Mapping[str, Mapping[str, Any]] = {
    "engine": {"kind": "slurm", "renew_s": 1, "fence_s": 6, "lost_s": 12, "permit_s": 30, "poll_s": 0.5},
    # Two containers do not fit one host.
    "packing": {"instance_ram_bytes": "150MB", "instance_cpu": 0.25},
}


class Submitted:
    """`heron` for that cluster, and what its scheduler says."""

    def __init__(
        self,
        cluster: SlurmCluster,
        home: Path,
        hosts: Path,
        rooms: Mapping[str, Mapping[str, Any]] | None = None,
        name: str = NAME,
    ) -> None:
        self.cluster = cluster
        self.home = home
        self.name = name
        conf = home / "conf" / "hpc"
        conf.mkdir(parents=True, mode=0o700)
        self.rooms = {room: {**ROOMS.get(room, {}), **(rooms or {}).get(room, {})} for room in {*ROOMS, *(rooms or {})}}
        for room, values in self.rooms.items():
            values |= {"home": str(hosts)} if room == "engine" else {}
            (conf / f"{room}.yaml").write_text("".join(f"{name}: {value}\n" for name, value in values.items()))
        slurm = {name: cluster.env[name] for name in ("SLURM_CONF", "PATH")}
        self.env = {**os.environ, **slurm, "HERON_CONF": str(conf.parent)}

    def heron(self, *arguments: str, code: int = exits.OK) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "heronpy.cli", *arguments],
            env=self.env, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    @property
    def state(self) -> tuple[str, str]:
        """Kind and root of the state manager."""
        given = self.rooms.get("statemgr", {})
        return given.get("type", "local"), given.get("root", str(self.home / "state" / "hpc"))

    def location(self) -> plan_pb2.SchedulerLocation:
        state = open_state(*self.state)
        try:
            found = wait_for(lambda: state.get(paths.scheduler(self.name)), 20, "the scheduler's permit")
        finally:
            state.close()
        return plan_pb2.SchedulerLocation.FromString(found[0])

    def records(self) -> dict[str, control_pb2.ProcessRecord]:
        with RpcClient(self.location().endpoint) as client:
            reply = client.call(control_pb2.GetContainers(), 20.0)
        return {one.name: one for one in reply.containers}

    def all_run(self, within_s: float = 60.0) -> dict[str, control_pb2.ProcessRecord]:
        def running() -> dict[str, control_pb2.ProcessRecord]:
            # A scheduler that has just adopted them hears containers before it has the engine's list.
            found = self.records()
            return found if found and all(one.phase == "RUNNING" and one.engine_id for one in found.values()) else {}

        return wait_for(running, within_s, "all containers running")

    def processes_of(self, engine_id: str) -> list[psutil.Process]:
        """Of one job, its first process first."""
        job, _, index = engine_id.partition("_")
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                variables = process.environ()
                if (variables.get("SLURM_ARRAY_JOB_ID"), variables.get("SLURM_ARRAY_TASK_ID")) == (job, index):
                    found.append(process)
        return sorted(found, key=lambda one: one.pid)


class Judged(Submitted):
    """The built-in topology of `heron verify` in two containers with tasks, until its input is ended."""

    def __init__(self, cluster: SlurmCluster, home: Path, folder: Path, mode: str, **rooms: Mapping[str, Any]) -> None:
        shared = folder / "shared"
        shared.mkdir(mode=0o700)
        given = {
            "scheduler": {"container_restart_budget": RESTARTS},
            "checkpoint": {"root": str(shared / "checkpoints"), "interval_s": 1},
            "packing": {"instance_ram_bytes": "100MB", "instance_cpu": 0.1},
            **rooms,
        }
        given["engine"] = {"shared": str(shared), **rooms.get("engine", {})}
        super().__init__(cluster, home, folder / "hosts", given, JUDGED)
        self.out = shared / "records"
        source = {"seed": 5, "partitions": 2, "count": 0, "rate": RATE, "keys": 50}
        spec = {
            "name": JUDGED, "out": str(self.out), "mode": mode, "containers": 2, "tasks": 2, "pause_ms": 0.0,
            "max_spout_pending": 1000, "message_timeout_s": 15, "settings": {}, "input": source,
        }  # fmt: skip
        file = folder / "spec.json"
        file.write_text(json.dumps(spec))
        self.heron("submit", "hpc", "heronpy/verify/topology.py", "-", "--spec", str(file))

    def arrived(self) -> int:
        """Bytes of records so far."""
        return sum(path.stat().st_size for path in (self.out / "trace").glob("*.seg"))

    def flows(self) -> None:
        """Wait for more records than those that were on their way."""
        before = self.arrived()
        wait_for(lambda: self.arrived() > before + 40 * 2 * RATE, 60, "further records")

    def judge(self) -> dict[str, Any]:
        """End the input, and what the judge says of all of it."""
        self.heron("verify", "end", str(self.out))
        wait_for(lambda: "FINISHED" in self.heron("status", "hpc", JUDGED), 90, "the topology having finished")
        verdict: dict[str, Any] = json.loads(self.heron("verify", "check", str(self.out), "--json"))
        print({name: verdict[name] for name in ("mode", "expected", "arrived", "loss", "duplicates", "stall_s")})
        return verdict

    def log(self) -> str:
        """The scheduler's."""
        return next((self.home / "topologies" / "hpc").rglob("scheduler.log")).read_text()
