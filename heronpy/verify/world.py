"""A running verification: its processes by name, its clock, its records of faults, its memory over time.

Every process is found through the status of its topology and checked before it is signalled. The process must have the
right name and belong to the HERON_HOME of this run, so another process that has reused the pid is never signalled.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import psutil

from heronpy.loadtest.cluster import Topology, submitted
from heronpy.loadtest.errors import LabError
from heronpy.loadtest.processes import Tree, name_of, role_of
from heronpy.proto import control_pb2, plan_pb2
from heronpy.statemgr import paths
from heronpy.verify.disk import SmallDisk
from heronpy.verify.oracle import CHANGE_S, Limits, Verdict, verify
from heronpy.verify.proxy import FaultProxy
from heronpy.verify.records import RECORD, TRACE, write_end
from heronpy.verify.stream import InputSpec

T = TypeVar("T")

EXACT = "EFFECTIVELY_ONCE"

POLL_S = 0.02
MEMORY_EVERY_S = 0.5
#: Time limit for the restart of a killed process.
BACK_S = 60.0
#: Time limit from the end of the input until all of it has arrived.
END_S = 120.0


@dataclass(frozen=True, slots=True)
class Target:
    """A process of the topology."""

    name: str
    pid: int
    container: int
    component: str = ""


@dataclass(slots=True)
class Fault:
    """A fault, its time, and the seconds until a successor of its victim was running."""

    what: str
    at: float
    back_s: float | None = None
    disruptive: bool = True
    """Whether the fault may have destroyed tuples in memory."""
    arrived: int = 0
    """Number of records that had arrived at the time of the fault."""


@dataclass(slots=True)
class World:
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
    """Time at which the input was told to end; from then on it does not follow the schedule."""
    may_fail: bool = False
    """Whether the topology may be FAILED because of the current fault."""
    complete: bool = False
    """Whether the whole input was processed; if so, missing tuples were lost."""
    _tree: Tree | None = None
    _next_memory: float = 0.0

    settle_s: ClassVar[float] = CHANGE_S + 1.0
    """Seconds for which the input follows its schedule after the last fault, so that the fault's effect is visible."""

    def begin(self, spec: dict[str, Any], stack: ExitStack) -> None:
        """Submit the topology; closing the stack kills it."""
        program = Path(__file__).with_name("topology.py")
        self.topology = stack.enter_context(submitted(self.topology.cluster, program, spec))

    def status(self) -> control_pb2.StatusReply:
        """Return the current status; wait while the topology master is down."""
        return self.until(self.topology.status, BACK_S, "an answer from the topology master")

    def targets(self) -> list[Target]:
        """Return all current processes, executors first."""
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
        def found() -> list[Target]:
            return [one for one in self.targets() if one.component == component]

        return self.until(found, BACK_S, f"a task of {component}")

    def first_task(self, component: str) -> Target:
        """Return the task that can be made slow, greedy or broken."""
        return min(self.tasks(component), key=lambda one: int(one.name.rpartition("_")[2]))

    def named(self, name: str) -> Target:
        """Wait until the process with this name has started; return it."""

        def found() -> Target | None:
            return next((one for one in self.targets() if one.name == name), None)

        return self.until(found, BACK_S, f"the process {name}")

    def master(self) -> Target:
        """Wait for an active topology master; return its process."""

        def active() -> Target | None:
            found = self.topology.cluster.state.get(paths.tmaster(self.topology.name))
            pid = plan_pb2.TmasterLocation.FromString(found[0]).pid if found else 0
            return next((one for one in self.targets() if one.pid == pid), None)

        return self.until(active, BACK_S, "an active topology master")

    def processes(self, *begins: str) -> Iterator[tuple[str, psutil.Process]]:
        """Return this run's processes whose names begin with one of `begins`, found without the topology master."""
        home, titles = str(self.topology.cluster.home), tuple(f"heron: {begin}" for begin in begins)
        for process in psutil.process_iter():
            with suppress(psutil.Error, OSError):
                title = " ".join(process.cmdline())
                if title.startswith(titles) and process.environ().get("HERON_HOME") == home:
                    yield name_of(title, ""), process

    def process(self, target: Target) -> psutil.Process:
        """Return the process if its name matches. Raises LabError otherwise."""
        try:
            process = psutil.Process(target.pid)
            title, home = " ".join(process.cmdline()), process.environ().get("HERON_HOME", "")
        except psutil.Error:
            raise LabError(f"process {target.pid} ({target.name}) has ended") from None
        if name_of(title, role_of(title)) != target.name or Path(home) != self.topology.cluster.home:
            raise LabError(f"process {target.pid} is not {target.name} of this run; it got no signal")
        return process

    def arrived(self) -> int:
        """Return the number of records in the trace so far, including duplicates."""
        return sum(path.stat().st_size for path in (self.out / TRACE).glob("*.seg")) // RECORD.size

    def log_of(self, process: str) -> Path:
        name = self.topology.name
        [path] = self.topology.cluster.home.glob(f"topologies/*/*/{name}/log-files/{process}.log")
        return path

    def look(self) -> None:
        """Record the memory of all processes, if a sample is due."""
        now = time.monotonic()
        if now < self._next_memory:
            return
        self._next_memory = now + MEMORY_EVERY_S
        with suppress(psutil.Error, LabError):
            if self._tree is None or not self._tree.root.is_running():
                self._tree = Tree(self.topology.scheduler())
            self._tree.refresh()
            for one in list(self._tree.seen.values()):
                with suppress(psutil.Error):
                    size = one.process.memory_info().rss
                    self.memory[one.role] = max(size, self.memory.get(one.role, 0))

    def wait(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self.look()
            time.sleep(min(left, POLL_S))

    def until(self, condition: Callable[[], T | None], timeout_s: float, what: str) -> T:
        """Wait for a true value and return it. Raises LabError after the timeout or if the topology fails."""

        def looked() -> T | None:
            value = condition()
            if not value:
                self.look()
            return value

        return self.topology.until(looked, timeout_s, what, POLL_S, lambda: self.may_fail)

    def is_in(self, *lifecycles: int) -> bool:
        status = self.topology.status()
        return status is not None and status.lifecycle in lifecycles

    def until_failed(self, timeout_s: float) -> control_pb2.StatusReply:
        self.may_fail = True
        self.until(lambda: self.is_in(control_pb2.LIFE_FAILED), timeout_s, f"the failure of '{self.topology.name}'")
        return self.status()

    def until_arrived(self, more: int, timeout_s: float = BACK_S) -> None:
        """Wait until `more` further records have arrived, or the input has ended."""
        wanted = self.arrived() + more

        def there() -> bool:
            return self.arrived() >= wanted or self.is_in(control_pb2.LIFE_FINISHED, control_pb2.LIFE_FINISHING)

        self.until(there, timeout_s, f"{more:,} further tuples")

    def checkpoints(self) -> control_pb2.CheckpointsReply:
        def known() -> control_pb2.CheckpointsReply | None:
            with suppress(LabError):
                reply: control_pb2.CheckpointsReply = self.topology.ask(control_pb2.GetCheckpoints())
                return reply
            return None

        return self.until(known, BACK_S, "the topology master's list of checkpoints")

    def until_checkpoint(self, timeout_s: float = BACK_S) -> int:
        """Wait until a checkpoint newer than all current ones is complete; return its number."""
        if self.mode != EXACT:
            return 0

        def newest() -> int:
            return max((record.checkpoint for record in self.checkpoints().complete), default=0)

        before = newest()
        return self.until(lambda: found if (found := newest()) > before else 0, timeout_s, "a complete checkpoint")

    def until_given_up(self, *ways: str) -> None:
        """Wait until another checkpoint is counted as one of `ways`: "aborted" or "failed"."""

        def given_up() -> int:
            reply = self.checkpoints()
            return sum(getattr(reply, way) for way in ways)

        before = given_up()
        self.until(lambda: given_up() > before, BACK_S, f"a checkpoint counted as {' or '.join(ways)}")

    @property
    def address(self) -> tuple[str, str]:
        """The names of cluster and topology, as command-line arguments."""
        return self.topology.cluster.target, self.topology.name

    def submission(self, folder: Path, *flags: str, program: Path | None = None) -> tuple[object, ...]:
        """Return the arguments that submit `program` (default: this run's) with the specification in `folder`."""
        submitted = program or self.out / "topology.py"
        return "submit", *flags, self.topology.cluster.target, submitted, "-", "--spec", folder / "spec"

    def heron(self, *words: object, timeout_s: float = 120.0) -> str:
        """Run a `heron` command on this run's cluster. Raises LabError with its output if it fails."""
        return self.topology.cluster.heron(*words, timeout_s=timeout_s)

    def letters(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.heron("dead-letters", *self.address, "--json", "-n", 1000))
        return found

    def refused(self, *words: object) -> str:
        """Run a `heron` command that must fail; return its output."""
        try:
            self.heron(*words)
        except LabError as error:
            return str(error)
        raise LabError(f"'heron {' '.join(map(str, words))}' succeeded, but should be refused")

    def end_input(self) -> None:
        """End the input shortly after its current position, so that its number of tuples is known."""
        self.ended = self.ended or time.monotonic()
        self.input = replace(self.input, count=write_end(self.out, self.input.partitions, self.input.rate))

    def settled(self) -> None:
        """Wait until the topology has finished. Raises LabError if it fails or does not finish in time."""
        self.until(lambda: self.is_in(control_pb2.LIFE_FINISHED), END_S, f"the end of '{self.topology.name}'")

    def verdict(self, limits: Limits) -> Verdict:
        """Return the oracle's verdict on the records of this run."""
        faults = [(fault.at, fault.what) for fault in self.faults]
        return verify(self.out, self.input, self.mode, limits, faults, self.memory, self.ended, self.complete)

    def note(self, what: str, disruptive: bool = True) -> Fault:
        """Record a fault that happens now."""
        fault = Fault(what, time.monotonic(), disruptive=disruptive, arrived=self.arrived())
        self.faults.append(fault)
        return fault

    def kill(self, target: Target, wait: bool = True) -> Fault:
        """Send SIGKILL; with `wait`, wait until a successor with the same name is running."""
        process = self.process(target)
        fault = self.note(f"kill -9 {target.name}")
        with suppress(psutil.NoSuchProcess):
            process.kill()
        if wait:
            self.back(target, fault)
        return fault

    def back(self, target: Target, fault: Fault) -> None:
        """Wait until a successor of a process is running, and note how long that took."""

        def successor() -> bool:
            return any(one.name == target.name and one.pid != target.pid for one in self.targets())

        self.until(successor, BACK_S, f"a successor of {target.name}")
        fault.back_s = time.monotonic() - fault.at

    def pause(self, what: str, processes: list[psutil.Process], seconds: float) -> None:
        """Send SIGSTOP to processes, and SIGCONT after some seconds."""
        self.note(f"SIGSTOP {what} for {seconds:g} s")
        with self.stopped(processes):
            self.wait(seconds)

    @contextmanager
    def stopped(self, processes: list[psutil.Process]) -> Iterator[None]:
        """While entered, these processes are stopped by SIGSTOP."""
        try:
            for process in processes:
                with suppress(psutil.NoSuchProcess):
                    process.suspend()
            yield
        finally:
            for process in reversed(processes):
                # The successor may have killed the process.
                with suppress(psutil.NoSuchProcess):
                    process.resume()

    def kill_container(self, container: int) -> Fault:
        """Send SIGKILL to every process of a container, the executor first."""
        mine = [one for one in self.targets() if one.container == container]
        fault = self.note(f"kill -9 container {container}")
        for target in mine:
            with suppress(psutil.NoSuchProcess, LabError):
                self.process(target).kill()
        return fault

    def configure(self, **values: Any) -> None:
        """Change the runtime configuration of the component `work`."""
        settings = [f"work:{key}:{value}" for key, value in values.items()]
        self.topology.ask(control_pb2.RuntimeConfig(settings=settings), 30.0)

    def containers(self) -> list[int]:
        def planned() -> list[int]:
            # The executors may not have registered with a newly started topology master yet.
            return sorted({record.container for record in self.status().plan.instances})

        return self.until(planned, BACK_S, "a plan with containers")

    def link_names(self, local_port: int, wanted_port: int) -> tuple[str, str]:
        """Return the names of both ends of a connection, found by the processes' sockets; the proxy calls this."""
        return self._owner(local_port, listening=False), self._owner(wanted_port, listening=True)

    def _owner(self, port: int, listening: bool) -> str:
        # Do not use the status: this runs in a thread of the proxy, even without a topology master.
        for name, process in self.processes("stmgr-", "tmaster"):
            with suppress(psutil.Error):
                for connection in process.net_connections(kind="tcp"):
                    if connection.laddr and connection.laddr.port == port:
                        if (connection.status == psutil.CONN_LISTEN) == listening:
                            return name
        return "?"
