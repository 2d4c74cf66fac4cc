"""Topologies of a load test, started and ended by the `heron` command and watched through RPC.

A load test runs in a temporary HERON_HOME unless the user names a cluster. Invariant: the topologies are killed at the
end of the test, even if it fails.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import psutil

from heronpy.common.errors import DeadlineError, RpcError
from heronpy.common.folders import make_folders
from heronpy.loadtest.errors import LabError
from heronpy.net.rpc import RpcClient
from heronpy.net.transport import keys_of
from heronpy.plan.launch import LaunchSpec
from heronpy.proto import control_pb2, plan_pb2
from heronpy.statemgr import open_state, paths

#: Seconds after which a `heron` command counts as hung; longer than the command's own deadlines.
COMMAND_S = 180.0
KILL_S = 60.0
POLL_S, FAILED_EVERY_S = 0.02, 1.0

T = TypeVar("T")


class Cluster:
    """The cluster for the topologies of one load test."""

    def __init__(self, target: str, home: Path, temporary: bool) -> None:
        self.target = target
        self.home = home
        self.temporary = temporary
        #: Folder of specifications and of the reports of tasks.
        self.scratch = Path(tempfile.mkdtemp(prefix="heron-load-"))
        self._state: Any = None

    @property
    def name(self) -> str:
        """The cluster's name, without role and environ."""
        return self.target.partition("/")[0]

    @property
    def state(self) -> Any:
        if self._state is None:
            self._state = open_state("local", str(self.home / "state" / self.name))
        return self._state

    def start(self, *words: object, **options: Any) -> subprocess.Popen[str]:
        """Start a `heron` command in the background; `options` are options of Popen."""
        options["env"] = {**os.environ, "HERON_HOME": str(self.home), **options.get("env", {})}
        command = [sys.executable, "-m", "heronpy.cli", *map(str, words)]
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(command, text=True, **(pipes | options))

    def heron(self, *words: object, timeout_s: float = COMMAND_S) -> str:
        """Run a `heron` command; return its output. Raises LabError with the output if it fails."""
        with self.start(*words) as command:
            try:
                said, errors = command.communicate(timeout=timeout_s)
            except subprocess.TimeoutExpired:
                raise LabError(f"'heron {words[0]}' did not end within {timeout_s:g} s") from None
            finally:
                command.kill()
        if command.returncode:
            reason = (errors or said).strip().removeprefix("error: ") or f"exit code {command.returncode}"
            raise LabError(f"'heron {words[0]}' failed: {reason}")
        return said

    def close(self) -> None:
        if self._state is not None:
            self._state.close()
        shutil.rmtree(self.scratch, ignore_errors=True)
        if self.temporary:
            shutil.rmtree(self.home, ignore_errors=True)


@contextmanager
def cluster(target: str | None = None) -> Iterator[Cluster]:
    """Yield the user's cluster (HERON_HOME applies), or a temporary cluster for this load test."""
    if target:
        home = Path(os.environ.get("HERON_HOME") or "~/.herondata").expanduser().absolute()
        made = Cluster(target, home, temporary=False)
    else:
        made = Cluster("local", Path(tempfile.mkdtemp(prefix="heron-load-home-")), temporary=True)
    try:
        yield made
    finally:
        made.close()


class Topology:
    def __init__(self, where: Cluster, name: str, out: Path) -> None:
        self.cluster = where
        self.name = name
        self.out = out
        self._client: RpcClient | None = None
        self._endpoint = ""

    def disconnect(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def ask(self, body: Any, timeout_s: float = 5.0) -> Any:
        """Send a request to the topology master. Raises LabError if it is not running or does not answer."""
        found = self.cluster.state.get(paths.tmaster(self.name))
        if found is None:
            raise LabError(f"the topology master of '{self.name}' is not running")
        endpoint = plan_pb2.TmasterLocation.FromString(found[0]).endpoint
        if self._client is None or endpoint != self._endpoint:
            self.disconnect()
            record = self.cluster.state.get(paths.execution_state(self.name))
            launch = plan_pb2.ExecutionState.FromString(record[0]).launch_file if record else ""
            keys = keys_of(LaunchSpec.load(launch)) if record else None
            self._client = RpcClient(endpoint, peer=f"the topology master of '{self.name}'", keys=keys)
            self._endpoint = endpoint
        try:
            return self._client.call(body, timeout_s)
        except (RpcError, DeadlineError) as error:
            raise LabError(str(error)) from None

    def status(self) -> control_pb2.StatusReply | None:
        """Return the current status; None while the topology master does not answer."""
        with suppress(LabError):
            reply: control_pb2.StatusReply = self.ask(control_pb2.GetStatus(), 2.0)
            return reply
        return None

    def until(
        self,
        condition: Callable[[], T | None],
        timeout_s: float,
        what: str,
        every_s: float = POLL_S,
        may_fail: Callable[[], bool] = bool,
    ) -> T:
        """Poll for a true value; return the value. Raises LabError after the timeout or if the topology fails."""
        deadline = time.monotonic() + timeout_s
        next_look = time.monotonic() + FAILED_EVERY_S
        while not (value := condition()):
            now = time.monotonic()
            if now > deadline:
                raise LabError(f"timed out after {timeout_s:g} s waiting for {what}")
            if now > next_look and not may_fail():
                next_look = now + FAILED_EVERY_S
                status = self.status()
                if status is not None and status.lifecycle == control_pb2.LIFE_FAILED:
                    raise LabError(f"'{self.name}' failed during the wait for {what}: {status.cause}")
            time.sleep(every_s)
        return value

    def activate(self) -> None:
        self.ask(control_pb2.SetState(active=True), 30.0)

    def metrics(self, names: Sequence[str]) -> control_pb2.MetricsReply:
        reply: control_pb2.MetricsReply = self.ask(control_pb2.GetMetrics(names=list(names)))
        return reply

    def scheduler(self) -> psutil.Process:
        """Return the scheduler, which is the root of the topology's process tree."""
        found = self.cluster.state.get(paths.scheduler(self.name))
        if found is None:
            raise LabError(f"the scheduler of '{self.name}' is not running")
        return psutil.Process(plan_pb2.SchedulerLocation.FromString(found[0]).pid)

    def guardian(self) -> psutil.Process:
        """Return the process that watches the scheduler."""
        found = self.scheduler().parent()
        if found is None:
            raise LabError(f"the scheduler of '{self.name}' has no guardian")
        return found

    def reports(self) -> list[dict[str, Any]]:
        return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(self.out.glob("*.json"))]

    def exceptions(self) -> str:
        """Return the most recent exceptions of user code, for an error message."""
        with suppress(LabError):
            reply = self.ask(control_pb2.GetExceptions())
            return "\n".join(item.traceback or item.message for item in reply.exceptions[-3:])
        return ""

    def kill(self) -> float:
        """Kill the topology; return how many seconds that took."""
        self.disconnect()
        began = time.monotonic()
        self.cluster.heron("kill", self.cluster.target, self.name, timeout_s=KILL_S)
        return time.monotonic() - began


@contextmanager
def submitted(where: Cluster, program: Path, spec: dict[str, Any], *flags: str) -> Iterator[Topology]:
    """Create the folder `spec["out"]`, submit a load topology, and kill the topology at the end."""
    out = Path(spec["out"])
    make_folders(out)
    (out / "spec").write_text(json.dumps(spec), encoding="utf-8")
    # Copy the program, as if it were a user's: `heron submit` does not copy installed modules.
    shutil.copy(program, out / program.name)
    made = Topology(where, spec["name"], out)
    where.heron("submit", where.target, *flags, str(out / program.name), "-", "--spec", str(out / "spec"))
    try:
        yield made
    except BaseException:
        with suppress(LabError):
            made.kill()
        raise
    made.disconnect()
    if where.state.get(paths.execution_state(made.name)) is not None:
        made.kill()
