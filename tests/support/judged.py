"""Runs the topology of `heron verify` on a test cluster; its oracle checks every tuple."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import psutil

from heronpy.cli import exits
from heronpy.net.rpc import RpcClient
from heronpy.proto import control_pb2, plan_pb2
from heronpy.statemgr import open_state, paths
from heronpy.verify import topology as program
from heronpy.verify.oracle import Limits, Verdict, verify
from heronpy.verify.records import RECORD, TRACE, write_end
from heronpy.verify.run import Run
from heronpy.verify.stream import InputSpec
from tests.support.command import REPO
from tests.support.waiting import wait_for

JUDGED = "judged"
INPUT = InputSpec(seed=7, partitions=2, count=0, keys=50, payload_bytes=50, rate=200.0)
SMALL = {"instance_ram_bytes": "100MB", "instance_cpu": 0.1}
Records = dict[str, control_pb2.ProcessRecord]


def write_rooms(conf: Path, cluster: str, rooms: Mapping[str, Mapping[str, Any]]) -> None:
    folder = conf / cluster
    folder.mkdir(parents=True, mode=0o700)
    for room, values in rooms.items():
        (folder / f"{room}.yaml").write_text("".join(f"{name}: {value}\n" for name, value in values.items()))


class OnCluster:
    """Runs `heron` on a cluster, and reads the answers of a topology's scheduler."""

    #: Time limits of a command, and of waits.
    timeout_s, patience_s = 150.0, 90.0

    def __init__(
        self, cluster: str, home: Path, name: str, rooms: Mapping[str, Mapping[str, Any]], env: Mapping[str, str]
    ) -> None:
        self.where, self.home, self.name, self.rooms = cluster, home, name, rooms
        write_rooms(home / "conf", cluster, rooms)
        self.env = {**os.environ, **env, "HERON_CONF": str(home / "conf")}

    def heron(self, *words: object, code: int = exits.OK, codes: tuple[int, ...] = ()) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "heronpy.cli", *map(str, words)],
            env=self.env, cwd=REPO, capture_output=True, text=True, timeout=self.timeout_s, check=False,
        )  # fmt: skip
        assert done.returncode in (codes or (code,)), done.stdout + done.stderr
        return done.stdout + done.stderr

    @property
    def state(self) -> tuple[str, str]:
        """Return kind and root of the state manager."""
        given = self.rooms.get("statemgr", {})
        return given.get("type", "local"), given.get("root", str(self.home / "state" / self.where))

    def _node(self, path: str, what: str) -> bytes:
        with closing(open_state(*self.state)) as state:
            return wait_for(lambda: state.get(path), self.patience_s, what)[0]

    def location(self) -> plan_pb2.SchedulerLocation:
        return plan_pb2.SchedulerLocation.FromString(self._node(paths.scheduler(self.name), "the scheduler's permit"))

    def master(self) -> plan_pb2.TmasterLocation:
        return plan_pb2.TmasterLocation.FromString(self._node(paths.tmaster(self.name), "a topology master"))

    def records(self) -> Records:
        with RpcClient(self.location().endpoint) as client:
            reply = client.call(control_pb2.GetContainers(), 20.0)
        return {one.name: one for one in reply.containers}

    def when(self, holds: Callable[[Records], bool], what: str) -> None:
        wait_for(lambda: holds(self.records()), self.patience_s, what)

    def all_run(self, within_s: float = 60.0) -> Records:
        def running() -> Records:
            # A scheduler that has just adopted containers receives their messages before the engine's list.
            found = self.records()
            return found if found and all(one.phase == "RUNNING" and one.engine_id for one in found.values()) else {}

        return wait_for(running, within_s, "all containers running")

    def later(self, *numbers: int) -> Callable[[Records], bool]:
        """Whether all containers run, and these containers act in a later epoch than before."""
        before = {name: one.epoch for name, one in self.records().items()}
        names = [f"executor-{number}" for number in numbers]
        return lambda found: (
            all(one.phase == "RUNNING" for one in found.values())
            and all(found[name].epoch > before[name] for name in names)
        )

    def log(self) -> str:
        return next((self.home / "topologies" / self.where).rglob("scheduler.log")).read_text()

    def logs(self, *more: Path) -> str:
        """Return the logs of the scheduler and below some folders, for the message of a failed test."""
        found = [log for folder in (self.home, *more) for log in folder.rglob("*.log")]
        return "\n".join(f"==== {log}\n{log.read_text(errors='replace')[-3000:]}" for log in sorted(found))


class Judged(OnCluster):
    """The topology of `heron verify`, with tasks in two containers; all hosts share the folder `shared`."""

    def __init__(
        self,
        cluster: str,
        home: Path,
        shared: Path,
        mode: str,
        rooms: Mapping[str, Mapping[str, Any]],
        env: Mapping[str, str],
        rate: float = INPUT.rate,
    ) -> None:
        self.mode, self.input = mode, replace(INPUT, rate=rate)
        self.out = shared / "out"
        self.out.mkdir(mode=0o700)
        given = {"checkpoint": {"root": shared / "checkpoints", "interval_s": 1}, **rooms}
        given["engine"] = {"shared": shared, "poll_s": 0.5, "renew_s": 1, "permit_s": 20, **rooms["engine"]}
        super().__init__(cluster, home, JUDGED, given, env)

    def submit(self, *flags: object) -> None:
        run = Run(mode=self.mode, containers=2, tasks=2, message_timeout_s=15, input=self.input)
        (self.out / "spec").write_text(json.dumps({**asdict(run), "name": self.name, "out": str(self.out)}))
        (self.out / "topology.py").write_bytes(Path(program.__file__).read_bytes())
        self.heron("submit", self.where, self.out / "topology.py", "-", "--spec", self.out / "spec", *flags)

    def arrived(self) -> int:
        return sum(path.stat().st_size for path in (self.out / TRACE).glob("*.seg")) // RECORD.size

    def flows(self) -> None:
        """Wait until more tuples arrive than were in transit."""
        before = self.arrived()
        wait_for(lambda: self.arrived() > before + 400, self.patience_s, "further tuples")

    def judge(self, **limits: Any) -> Verdict:
        """End the input, wait until the topology has ended, and return the oracle's verdict."""
        count = write_end(self.out, self.input.partitions, self.input.rate)
        # The sources finish before the topology.
        ended = lambda: json.loads(self.heron("status", self.where, self.name, "--json"))["lifecycle"] == "FINISHED"  # noqa: E731
        wait_for(ended, 2 * self.patience_s, "the end of the topology")
        verdict = verify(self.out, replace(self.input, count=count), self.mode, Limits(**limits))
        assert verdict.ok, json.dumps(verdict.as_json(), indent=1)
        assert verdict.expected > 500
        if self.mode != "ATMOST_ONCE":
            assert verdict.arrived >= verdict.expected
        return verdict

    def close(self) -> None:
        with suppress(subprocess.TimeoutExpired):
            words = ("kill", self.where, self.name, "--force", "--timeout", "20")
            self.heron(*words, codes=(exits.OK, exits.NOT_FOUND))


def kill_tree(process: psutil.Process) -> None:
    for one in (process, *process.children(recursive=True)):
        with suppress(psutil.Error):
            one.kill()
