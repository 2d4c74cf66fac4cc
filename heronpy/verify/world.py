"""A running verification: its processes by name, its clock, its notes about faults, memory over time.

Every process is found through the status of its topology and checked before it is signalled: it must have
the name, and belong to the HERON_HOME of this run, so a reused pid is never hit.
"""

from __future__ import annotations

import json
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import psutil

from heronpy.loadtest.cluster import LoadTestError, Topology
from heronpy.loadtest.processes import Tree, name_of, role_of
from heronpy.proto import control_pb2, plan_pb2
from heronpy.statemgr import paths
from heronpy.verify.disk import SmallDisk
from heronpy.verify.errors import VerifyError
from heronpy.verify.proxy import FaultProxy
from heronpy.verify.records import RECORD, TRACE, write_end
from heronpy.verify.stream import InputSpec

T = TypeVar("T")

EXACT = "EFFECTIVELY_ONCE"

POLL_S = 0.02
MEMORY_EVERY_S, FAILED_EVERY_S = 0.5, 1.0
#: A killed process is back within this, or its run has failed.
BACK_S = 60.0


def newest(reply: control_pb2.CheckpointsReply) -> int:
    """The newest complete checkpoint; 0 for none."""
    return max((record.checkpoint for record in reply.complete), default=0)


@dataclass(frozen=True, slots=True)
class Target:
    """A process of the topology."""

    name: str
    pid: int
    container: int
    component: str = ""


@dataclass(slots=True)
class Fault:
    """A fault, its time, and how long it took until its victim was back."""

    what: str
    at: float
    back_s: float | None = None
    disruptive: bool = True
    """Whether tuples in memory may have died."""
    arrived: int = 0
    """Records that had arrived when it was done."""


@dataclass(slots=True)
class World:
    """The target of the injected faults."""

    topology: Topology
    out: Path
    random: random.Random
    short: bool
    mode: str
    input: InputSpec
    proxy: FaultProxy | None = None
    disk: SmallDisk | None = None
    faults: list[Fault] = field(default_factory=list)
    memory: dict[str, int] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)
    ended: float | None = None
    """When the input was ended: the rest of it does not follow the schedule."""
    may_fail: bool = False
    """Whether a fault currently expects FAILED."""
    complete: bool = False
    """Whether all of the input came to its end, so that what is missing is lost."""
    _tree: Tree | None = None
    _next_memory: float = 0.0

    # ---- looking ------------------------------------------------------------------------------

    def status(self) -> control_pb2.StatusReply:
        """The current status; waits for a topology master that is down."""
        return self.until(self.topology.status, BACK_S, "an answer of the topology master")

    def targets(self) -> list[Target]:
        """All current processes, executors first."""
        status = self.status()
        components = {task.instance_id: task.component for task in status.tasks}
        found = [Target(f"executor-{one.container}", one.pid, one.container) for one in status.executors]
        for one in status.executors:
            for process in one.processes:
                if process.pid and process.state == control_pb2.PROC_RUNNING:
                    name = process.name
                    found.append(Target(name, process.pid, one.container, components.get(name, "")))
        return found

    def tasks(self, component: str) -> list[Target]:
        """The processes of a component."""
        return self.until(
            lambda: [one for one in self.targets() if one.component == component], BACK_S, f"a task of {component}"
        )

    def named(self, name: str) -> Target:
        """A process by name, once it runs."""
        return self.until(
            lambda: next((one for one in self.targets() if one.name == name), None), BACK_S, f"the process {name}"
        )

    def master(self) -> Target:
        """The active topology master."""

        def active() -> Target | None:
            found = self.topology.cluster.state.get(paths.tmaster(self.topology.name))
            pid = plan_pb2.TmasterLocation.FromString(found[0]).pid if found else 0
            return next((one for one in self.targets() if one.pid == pid), None)

        return self.until(active, BACK_S, "an active topology master")

    def processes(self, *begins: str) -> Iterator[tuple[str, psutil.Process]]:
        """The processes of this run whose names have this prefix, without asking the topology master."""
        home, titles = str(self.topology.cluster.home), tuple(f"heron: {begin}" for begin in begins)
        for process in psutil.process_iter():
            with suppress(psutil.Error, OSError):
                title = " ".join(process.cmdline())
                if title.startswith(titles) and process.environ().get("HERON_HOME") == home:
                    yield name_of(title, ""), process

    def process(self, target: Target) -> psutil.Process:
        """The process itself, if its name matches; VerifyError otherwise."""
        try:
            process = psutil.Process(target.pid)
            title, home = " ".join(process.cmdline()), process.environ().get("HERON_HOME", "")
        except psutil.Error:
            raise VerifyError(f"process {target.pid} ({target.name}) is gone") from None
        if name_of(title, role_of(title)[0]) != target.name or Path(home) != self.topology.cluster.home:
            raise VerifyError(f"process {target.pid} is not {target.name} of this run; it was left alone")
        return process

    def arrived(self) -> int:
        """Records in the trace so far, duplicates included."""
        return sum(path.stat().st_size for path in (self.out / TRACE).glob("*.seg")) // RECORD.size

    # ---- waiting ------------------------------------------------------------------------------

    def look(self) -> None:
        """Record the memory of all processes, when it is time."""
        now = time.monotonic()
        if now < self._next_memory:
            return
        self._next_memory = now + MEMORY_EVERY_S
        with suppress(psutil.Error, LoadTestError):
            if self._tree is None or not self._tree.root.is_running():
                self._tree = Tree(self.topology.scheduler())
            self._tree.refresh()
            for one in list(self._tree.seen.values()):
                with suppress(psutil.Error):
                    size = one.process.memory_info().rss
                    self.memory[one.role] = max(size, self.memory.get(one.role, 0))

    def wait(self, seconds: float) -> None:
        """Let the topology run."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self.look()
            time.sleep(min(left, POLL_S))

    def until(self, condition: Callable[[], T | None], timeout_s: float, what: str) -> T:
        """The first true value; VerifyError if there is none in time, or the topology fails meanwhile."""
        deadline = time.monotonic() + timeout_s
        next_look = time.monotonic() + FAILED_EVERY_S
        while not (value := condition()):
            now = time.monotonic()
            if now > deadline:
                raise VerifyError(f"{what} did not come within {timeout_s:g} s")
            if now > next_look and not self.may_fail:
                next_look = now + FAILED_EVERY_S
                self._check_lifecycle(what)
            self.look()
            time.sleep(POLL_S)
        return value

    def _check_lifecycle(self, what: str) -> None:
        status = self.topology.status()
        if status is not None and status.lifecycle == control_pb2.LIFE_FAILED:
            raise VerifyError(f"'{self.topology.name}' failed before {what} came: {status.cause}")

    def until_failed(self, timeout_s: float) -> control_pb2.StatusReply:
        """Wait until the topology has failed."""

        def failed() -> control_pb2.StatusReply | None:
            status = self.topology.status()
            return status if status is not None and status.lifecycle == control_pb2.LIFE_FAILED else None

        self.may_fail = True
        return self.until(failed, timeout_s, f"the failure of '{self.topology.name}'")

    def until_arrived(self, more: int, timeout_s: float = BACK_S) -> None:
        """Wait for `more` further records, or the end of the input."""
        wanted = self.arrived() + more

        def there() -> bool:
            status = self.topology.status()
            done = status is not None and status.lifecycle in (control_pb2.LIFE_FINISHED, control_pb2.LIFE_FINISHING)
            return done or self.arrived() >= wanted

        self.until(there, timeout_s, f"{more:,} further tuples")

    def checkpoints(self) -> control_pb2.CheckpointsReply:
        """The checkpoints that the topology master knows."""
        reply: control_pb2.CheckpointsReply = self.until(
            lambda: self._ask(control_pb2.GetCheckpoints()), BACK_S, "the checkpoints that the topology master knows"
        )
        return reply

    def _ask(self, question: Any) -> Any:
        with suppress(LoadTestError):
            return self.topology.ask(question)
        return None

    def until_checkpoint(self, timeout_s: float = BACK_S) -> int:
        """Wait until a checkpoint newer than all current ones is complete; returns its number."""
        if self.mode != EXACT:
            return 0
        before = newest(self.checkpoints())
        return self.until(
            lambda: found if (found := newest(self.checkpoints())) > before else 0, timeout_s, "a complete checkpoint"
        )

    # ---- acting -------------------------------------------------------------------------------

    def heron(self, *words: object, timeout_s: float = 120.0) -> str:
        """Run a `heron` command against this run's cluster; VerifyError with its output if it fails."""
        try:
            return self.topology.cluster.heron(*map(str, words), timeout_s=timeout_s)
        except LoadTestError as error:
            raise VerifyError(str(error)) from None

    def letters(self) -> list[dict[str, Any]]:
        """The dead letters of this run."""
        words = ("dead-letters", self.topology.cluster.target, self.topology.name, "--json", "-n", 1000)
        found: list[dict[str, Any]] = json.loads(self.heron(*words))
        return found

    def refused(self, *words: object) -> str:
        """The output of a `heron` command that must fail."""
        try:
            self.topology.cluster.heron(*map(str, words))
        except LoadTestError as error:
            return str(error)
        raise VerifyError(f"'heron {' '.join(map(str, words))}' was accepted")

    def end_input(self) -> int:
        """End the input a moment from now; returns the number of tuples of each partition."""
        self.ended = self.ended or time.monotonic()
        return write_end(self.out, self.input.partitions, self.input.rate)

    def note(self, what: str, disruptive: bool = True) -> Fault:
        """Record a fault that happens now."""
        fault = Fault(what, time.monotonic(), disruptive=disruptive, arrived=self.arrived())
        self.faults.append(fault)
        return fault

    def signal(self, target: Target, number: signal.Signals) -> None:
        """Send a signal to a process after verifying it."""
        with suppress(psutil.NoSuchProcess):
            self.process(target).send_signal(number)

    def kill(self, target: Target, wait: bool = True) -> Fault:
        """SIGKILL; with `wait`, wait until another process has its name."""
        process = self.process(target)
        fault = self.note(f"kill -9 {target.name}")
        with suppress(psutil.NoSuchProcess):
            process.kill()
        if wait:
            self.back(target, fault)
        return fault

    def back(self, target: Target, fault: Fault) -> None:
        """Wait until a successor of a process runs, and note how long that took."""

        def successor() -> bool:
            return any(one.name == target.name and one.pid != target.pid for one in self.targets())

        self.until(successor, BACK_S, f"a successor of {target.name}")
        fault.back_s = time.monotonic() - fault.at

    def pause(self, what: str, processes: list[psutil.Process], seconds: float) -> None:
        """SIGSTOP, SIGCONT."""
        self.note(f"SIGSTOP {what} for {seconds:g} s")
        try:
            for process in processes:
                with suppress(psutil.NoSuchProcess):
                    process.suspend()
            self.wait(seconds)
        finally:
            for process in processes:
                # Its successor may have killed it.
                with suppress(psutil.NoSuchProcess):
                    process.resume()

    def kill_container(self, container: int) -> Fault:
        """SIGKILL every process of a container, the executor first."""
        mine = [one for one in self.targets() if one.container == container]
        fault = self.note(f"kill -9 container {container}")
        for target in mine:
            with suppress(psutil.NoSuchProcess, VerifyError):
                self.process(target).kill()
        return fault

    def configure(self, **values: Any) -> None:
        """Change the runtime configuration of the component `work`."""
        settings = [f"work:{key}:{value}" for key, value in values.items()]
        self.topology.ask(control_pb2.RuntimeConfig(settings=settings), 30.0)

    def containers(self) -> list[int]:
        """Containers with tasks."""

        def planned() -> list[int]:
            # A topology master that has just started may not know the executors yet.
            return sorted({record.container for record in self.status().plan.instances})

        return self.until(planned, BACK_S, "a plan with containers")

    def link_names(self) -> Callable[[int, int], tuple[str, str]]:
        """For the proxy: the names of both ends of a connection."""
        return _Links(self).resolve


class _Links:
    """Names of the two ends of a connection, from the sockets of the processes of the topology."""

    def __init__(self, world: World) -> None:
        self._world = world

    def resolve(self, local_port: int, wanted_port: int) -> tuple[str, str]:
        return self._owner(local_port, listening=False), self._owner(wanted_port, listening=True)

    def _owner(self, port: int, listening: bool) -> str:
        # Not through the status: this runs in a thread of the proxy, even while there is no topology master.
        for name, process in self._world.processes("stmgr-", "tmaster"):
            with suppress(psutil.Error):
                for connection in process.net_connections(kind="tcp"):
                    if connection.laddr and connection.laddr.port == port:
                        if (connection.status == psutil.CONN_LISTEN) == listening:
                            return name
        return "?"
