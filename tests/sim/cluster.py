"""A simulated cluster: the real shells of every process of one topology, on models of all they stand on.

An executor is the real supervisor with a model of its fork server; the scheduler starts containers that die.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import heronpy.ckpt.snapshot
import heronpy.net.rpc_loop
import heronpy.tmaster.archive
import instance.async_spout
import instance.checkpoints
import instance.control
import instance.lifecycle
import instance.link
import instance.metrics
import instance.task
import stmgr.shell
import stmgr.sockets
from heronpy.common import exit_codes
from heronpy.common.errors import HeronError, RetryableError
from heronpy.common.folders import replace_file
from heronpy.common.setting_types import CheckpointSettings, ExecutorSettings, PackingSettings, TmasterSettings
from heronpy.common.settings import resolve, settings_for
from heronpy.executor.desired import STANDBY, TMASTER, desired_processes
from heronpy.packing import pack
from heronpy.procs.exit_reason import ExitHints, ExitReason
from heronpy.procs.handed_plans import plan_file, topology_file
from heronpy.procs.restart_policy import RestartLimits
from heronpy.procs.supervision import (
    DesiredChanged,
    Event,
    Exited,
    GiveUp,
    ProcessSpec,
    Signal,
    Spawned,
    Start,
    Tick,
)
from heronpy.procs.supervisor import Supervisor
from heronpy.proto import control_pb2, plan_pb2
from heronpy.statemgr import paths
from heronpy.storage.stores import StoreChoice
from heronpy.tmaster.archive import Archive
from heronpy.tmaster.shell import Shell
from instance.checkpoints import Attempt
from instance.snapshots import Job
from stmgr.shell import Stmgr
from tests.sim.disk import Disk
from tests.sim.kernel import Process, Thread, World, current_process
from tests.sim.loop import VirtualLoop
from tests.sim.modules import Executor, SimEvent, join_thread
from tests.sim.network import Network
from tests.sim.state import StateModel
from tests.sim.task_loop import Asyncio, TaskSelector
from tests.sim.workload import Program, Shape
from tests.support.launch import launch_spec

TOPOLOGY = "sim"
#: Of virtual time; what a test waits for comes earlier.
WAIT_S = 150.0
#: Between two looks for it.
LOOK_S = 0.002
NETWORK = "tcp://127.0.0.1:*"
log = logging.getLogger("sim")


def replacements() -> list[tuple[Any, str, Any]]:
    """Replacements in the product, in addition to modules of the machine: (owner, name, new value)."""

    def bind(sock: Any, endpoint: str, keys: Any = None) -> str:
        sock.bind(endpoint)
        return str(sock.getsockopt(_LAST_ENDPOINT).decode())

    def connect(sock: Any, endpoint: str, keys: Any = None) -> None:
        sock.connect(endpoint)

    def leave(code: int) -> None:
        process = current_process()
        process.exit(code)
        process.vanish()

    def start(control: Any) -> None:
        control.sim_thread = Thread(current_process(), control.run)
        control.sim_thread.start()

    def install_signals(task: Any) -> None:
        process = current_process()
        process.program = task
        stop = control_pb2.StopTask(reason="SIGTERM")
        process.on_sigterm = lambda: task.control.deliver(stop)

    def open_state(launch: Any, owns: bool = True) -> Any:
        return current_process().world.state.open()  # type: ignore[attr-defined]

    return [
        (heronpy.net.rpc_loop, "bind", bind),
        (stmgr.sockets, "bind", bind),
        # The containers are on hosts of their own, whose network fails.
        (stmgr.sockets, "endpoint_of", lambda launch, name: NETWORK),
        *(
            (room, "connect", connect)
            for room in (heronpy.net.rpc_loop, stmgr.shell, stmgr.sockets, instance.link, instance.control)
        ),
        (heronpy.tmaster.archive, "ThreadPoolExecutor", Executor),
        (instance.control.ControlThread, "start", start),
        (
            instance.control.ControlThread,
            "join",
            lambda control, timeout=None: join_thread(control.sim_thread, timeout),
        ),
        (instance.async_spout, "asyncio", Asyncio()),
        (instance.async_spout, "WatchedSelector", TaskSelector),
        (instance.task, "Attempt", lambda component: Attempt(component, leave)),
        (instance.checkpoints, "Job", lambda *args, **options: Job(*args, ready=SimEvent(), **options)),  # type: ignore[arg-type]
        (instance.lifecycle, "setup", lambda *args: None),
        (instance.lifecycle, "_install_signals", install_signals),
        (instance.lifecycle, "_let_zeromq_finish", lambda timeout_s: None),
        (instance.metrics.TaskMetrics, "sample_process", lambda metrics: None),
        (stmgr.shell, "open_state_of", open_state),
    ]


_LAST_ENDPOINT = heronpy.net.rpc_loop.zmq.LAST_ENDPOINT


class Cluster:
    """One topology and all that it runs on."""

    def __init__(self, world: World, shape: Shape | Program, folder: Path, settings: dict[str, Any]) -> None:
        self.world = world
        self.shape = shape
        world.network = self.network = Network(world)  # type: ignore[attr-defined]
        world.state = self.state = StateModel(world)  # type: ignore[attr-defined]
        world.disk = self.disk = Disk(world, folder / "store")  # type: ignore[attr-defined]
        world.outside = self.outside = shape.outside()  # type: ignore[attr-defined]
        self.disk.clear()
        self.topology = shape.topology(settings)
        resolved = resolve("local", (), {**settings, "heron.checkpoint.root": str(self.disk.root)}, {}, ())
        self.launch = launch_spec(
            TOPOLOGY,
            self.topology.id,
            folder / "work",
            sockets_dir=str(folder / "sockets"),
            state_root="",
            settings=resolved.settings,
        )
        for name in (self.launch.working_dir, self.launch.sockets_dir):
            os.makedirs(name, exist_ok=True)
            for file in Path(name).iterdir():
                file.unlink()
        self.packing = pack(self.topology, settings_for(self.launch, PackingSettings))
        store = self.state.store
        for path, message in (
            (paths.topology(TOPOLOGY), self.topology),
            (paths.packing_plan(TOPOLOGY), self.packing),
        ):
            store.nodes[path] = _node(message.SerializeToString())
        self.containers = [Container(self, 0), *(Container(self, c.id) for c in self.packing.containers)]
        for container in self.containers:
            container.start()
        self.state.on_write.append(self._on_write)

    def _on_write(self, process: Process, path: str) -> None:
        """The scheduler and the executors watch the packing plan; each of them hears of it when it does."""
        if path == paths.packing_plan(TOPOLOGY):
            self.world.later(self.world.rng.uniform(0.001, 0.1), self._follow)

    def _follow(self) -> None:
        node = self.state.store.nodes.get(paths.packing_plan(TOPOLOGY))
        if node is None:
            return
        self.packing = plan_pb2.PackingPlan.FromString(node.data)
        numbers = {container.number for container in self.containers}
        for container in self.containers:
            self.world.later(self.world.rng.uniform(0.001, 0.1), container.follow)
        for number in sorted({c.id for c in self.packing.containers} - numbers):
            self.containers.append(Container(self, number))
            self.containers[-1].start()

    def processes(self, role: str = "") -> list[Process]:
        """Those that live, of a role (tmaster, stmgr, instance) or all."""
        found = [c.children[name] for c in self.containers for name in c.children]
        return [p for p in found if p.alive and (not role or p.role == role)]  # type: ignore[attr-defined]

    def tasks(self, component: str) -> list[Process]:
        """The processes of a component's tasks that live."""
        return [
            p for p in self.processes("instance") if p.program is not None and p.program.name.component == component
        ]

    def switches(self) -> list[Any]:
        """Those of the stream managers that live."""
        return [process.program.switch for process in self.processes("stmgr") if process.program is not None]

    def until(self, *lives: int) -> None:
        """Run until the topology's life is one of these."""
        self.run(lambda: self.life() in lives)

    def run(self, done: Callable[[], bool]) -> None:
        """Run until `done`; fail when something is wrong before."""
        deadline, came = self.world.now + WAIT_S, done()
        while not (came or self.world.violations) and self.world.now < deadline:
            self.world.run(self.world.now + LOOK_S, lambda: False)
            came = done()
        assert not self.world.violations, "\n".join([*self.world.violations, self.world.trace.tail()])
        assert came, f"it does not come to that within {WAIT_S:g} s:\n{self.world.trace.tail()}"

    def master(self) -> Any:
        """The machine of the newest topology master; None without one."""
        shells = [p.program for p in self.masters() if getattr(p.program, "machine", None) is not None]
        newest = max(shells, key=lambda shell: int(shell.epoch), default=None)
        return newest.machine if newest is not None else None

    def masters(self) -> list[Process]:
        """The topology master and those that stand by for it."""
        return self.processes(TMASTER) + self.processes(STANDBY)

    def life(self) -> int:
        """How the topology is, as the topology master says."""
        machine = self.master()
        return int(machine.life) if machine is not None else int(control_pb2.LIFE_STARTING)

    # ---- mains --------------------------------------------------------------------------------

    def main_of(
        self, spec: ProcessSpec, container: int, epoch: int, after: ExitReason | None
    ) -> Callable[[Process], None]:
        """What a process runs."""
        if spec.role == "instance":
            return lambda process: self._run_instance(process, spec.task_id, container, epoch, after)
        if spec.role == "stmgr":
            return lambda process: self._run_stmgr(process, container, epoch)
        return lambda process: self._run_tmaster(process, epoch)

    def _run_instance(self, process: Process, task: int, container: int, epoch: int, after: ExitReason | None) -> None:
        def main() -> None:
            try:
                code = instance.lifecycle.run(self.launch, container, task, epoch, after)
            except HeronError as error:
                log.error("%s", error)
                away = isinstance(error, RetryableError)
                code = exit_codes.UNAVAILABLE if away else exit_codes.STARTUP_FAILURE
            process.exit(code)

        Thread(process, main).start()

    def _run_stmgr(self, process: Process, container: int, epoch: int) -> None:
        async def main() -> None:
            try:
                process.program = Stmgr(self.launch, container, epoch)
                code = await process.program.run()
            except HeronError as error:
                log.error("%s", error)
                away = isinstance(error, RetryableError)
                code = exit_codes.UNAVAILABLE if away else exit_codes.FAILURE
            process.exit(code)

        VirtualLoop(process).begin(main)

    def _run_tmaster(self, process: Process, epoch: int) -> None:
        async def main() -> None:
            state = self.state.open()
            settings = settings_for(self.launch, CheckpointSettings)
            process.program = shell = Shell(
                TOPOLOGY,
                settings_for(self.launch, TmasterSettings),
                state,
                epoch=epoch,
                endpoint=NETWORK,
                checkpoints=settings,
                archive=Archive(lambda: StoreChoice(self.launch, settings), "sim"),
            )
            process.loop.add_signal_handler(15, shell.stop)
            try:
                code = await shell.run()
            except HeronError as error:
                log.error("%s", error)
                code = exit_codes.FAILURE
            state.close()
            process.exit(code)

        VirtualLoop(process).begin(main)


def _node(data: bytes) -> Any:
    from tests.support.memory_state import Node

    return Node(data, 1, None)


class Container:
    """A container: the real supervisor, and processes that die with it."""

    def __init__(self, cluster: Cluster, number: int) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.number = number
        self.host = f"host-{number}"
        self.epoch = 0
        self.children: dict[str, Process] = {}
        self._after: dict[str, ExitReason | None] = {}
        self.supervisor: Supervisor | None = None

    def start(self) -> None:
        """The scheduler starts the executor."""
        self.epoch += 1
        settings = settings_for(self.cluster.launch, ExecutorSettings)
        limits = RestartLimits(
            settings.restart_backoff_s, settings.restart_backoff_max_s, 1000, settings.restart_window_s
        )
        self.supervisor = Supervisor(limits)
        self.follow()

    def follow(self) -> None:
        """Run what the packing plan wants here."""
        cluster = self.cluster
        settings = settings_for(cluster.launch, ExecutorSettings)
        sockets = cluster.launch.sockets_dir
        replace_file(topology_file(sockets, self.number), cluster.topology.SerializeToString(), durable=False)
        replace_file(plan_file(sockets, self.number), cluster.packing.SerializeToString(), durable=False)
        specs = desired_processes(
            cluster.packing,
            self.number,
            needs_spark=False,
            stop_grace_s=settings.stop_grace_s,
            hang_timeout_s=lambda component: 0.0,
            standbys=settings_for(cluster.launch, TmasterSettings).standbys,
        )
        self._handle(DesiredChanged(specs))

    def die(self) -> None:
        """The executor dies, and with it all of its processes; another one takes its place."""
        self.supervisor = None
        self._after.clear()
        for process in list(self.children.values()):
            process.kill()
        self.world.later(self.world.rng.uniform(0.1, 1.0), self.start)

    def _handle(self, event: Event) -> None:
        if self.supervisor is None:
            return
        for effect in self.supervisor.handle(event, self.world.now):
            match effect:
                case Start(spec, number):
                    self._spawn(spec, number)
                case Signal(name, _, signum, _):
                    process = self.children[name]
                    process.kill() if signum == 9 else process.terminate()
                case GiveUp(name, reason, detail):
                    self.world.wrong(f"the executor gives {name} up: {reason.value}: {detail}")
        self._arm()

    def _arm(self) -> None:
        assert self.supervisor is not None
        due = self.supervisor.next_deadline()
        if due is not None:
            self.world.at(max(due, self.world.now) + 1e-3, None, self._tick, self.supervisor, due)

    def _tick(self, supervisor: Supervisor, due: float) -> None:
        if supervisor is self.supervisor and supervisor.next_deadline() == due:
            self._handle(Tick())

    def _spawn(self, spec: ProcessSpec, number: int) -> None:
        epoch = (self.epoch << 16) | number
        main = self.cluster.main_of(spec, self.number, epoch, self._after.get(spec.name))
        process = self.world.spawn(spec.name, self.host, main)
        process.role, process.epoch = spec.role, epoch  # type: ignore[attr-defined]
        self.children[spec.name] = process
        supervisor = self.supervisor
        process.on_exit.append(lambda status: self.world.later(0.002, self._exited, supervisor, spec, number, status))
        self._handle(Spawned(spec.name, number, process.pid))

    def _exited(self, supervisor: Supervisor, spec: ProcessSpec, number: int, status: int) -> None:
        if supervisor is not self.supervisor or supervisor is None:
            return
        self._handle(Exited(spec.name, number, status, ExitHints(announced=True)))
        view = supervisor.view(spec.name)
        self._after[spec.name] = view.exit_reason if view is not None else None
