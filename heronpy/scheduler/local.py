"""The local scheduler: each container is an executor process on this machine.

Invariants: a topology has at most one scheduler, which the ephemeral location in the state manager ensures; every
process of the topology descends from this scheduler's fork server and ends with it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import time
from collections.abc import Awaitable

from google.protobuf.message import Message

from heronpy.common import exit_codes
from heronpy.common.errors import (
    DeadlineError,
    FencedError,
    HeronError,
    NodeExistsError,
    RpcError,
)
from heronpy.common.ids import container_of, executor_id
from heronpy.common.setting_types import ExecutorSettings, LoggingSettings, SchedulerSettings
from heronpy.common.settings import settings_for
from heronpy.net import curve
from heronpy.net.private import make_private
from heronpy.net.rpc import body_of
from heronpy.net.rpc_loop import ControlServer
from heronpy.net.state import open_state_of
from heronpy.plan.launch import LaunchSpec
from heronpy.procs import container_group
from heronpy.procs.child_log import OwnLog, last_line_in
from heronpy.procs.exit_reason import ExitReason
from heronpy.procs.forkserver import Command, ForkServer
from heronpy.procs.host import ProcessHost
from heronpy.procs.plan_watch import PlanWatch
from heronpy.procs.restart_policy import limits_of
from heronpy.procs.supervision import (
    DesiredChanged,
    Ended,
    GiveUp,
    ProcessSpec,
    ProcessState,
    RestartAsked,
    StopAsked,
)
from heronpy.procs.supervisor import Supervisor
from heronpy.proto import control_pb2, plan_pb2
from heronpy.scheduler.guardian import START_OVER, Pulse, refused
from heronpy.scheduler.resources import check_host
from heronpy.scheduler.teardown import remove_sockets, remove_state
from heronpy.scheduler.waiting import wait_until
from heronpy.statemgr import paths

log = logging.getLogger("heronpy.scheduler")

RESTART_MAX_S = 30.0
LAST_ANSWERS_MS = 500
LOG_CHECK_S = 30.0
#: Interval at which the event loop sends heartbeats to the guardian.
PULSE_S = 2.0
ASKED = "a user requested it"
CAUSE_MAX_CHARS = 400


class LocalScheduler:
    """The local scheduler of one topology; `await run()` returns the exit code.

    The fork server must have been started before the event loop.
    """

    def __init__(
        self,
        launch: LaunchSpec,
        launch_file: str,
        server: ForkServer,
        executor_module: str = "heronpy.executor",
        pulse: Pulse | None = None,
    ) -> None:
        self._launch = launch
        self._pulse = pulse or Pulse()
        self._launch_file = launch_file
        self._server = server
        self._executor_module = executor_module
        self._settings = settings_for(launch, SchedulerSettings)
        self._logging = settings_for(launch, LoggingSettings)
        self._supervisor = Supervisor(limits_of(self._settings))
        self._limited = settings_for(launch, ExecutorSettings).control_groups
        self._own_log = self._log_of("scheduler")
        self._plan: plan_pb2.PackingPlan | None = None
        self._grace_s = self._settings.kill_grace_s
        self._epochs: dict[str, int] = {}
        #: Containers that are restarted because a user asked for it.
        self._asked: set[str] = set()
        self._exit_code: int = exit_codes.OK
        self._kill: asyncio.Task[None] | None = None

    def _log_of(self, name: str) -> OwnLog:
        path = self._launch.log_dir / f"{name}.log"
        return OwnLog(str(path), self._logging.file_max_bytes, self._logging.files_max)

    # ---- life -------------------------------------------------------------------------------
    async def run(self) -> int:
        """Run the topology's containers until they are killed."""
        loop = asyncio.get_running_loop()
        self._stopped = asyncio.Event()
        self._end = asyncio.Event()
        self._changed = asyncio.Event()
        for signum in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signum, self._on_signal)
        self._host = ProcessHost(self._server, self._supervisor, self)
        try:
            self._open()
        except HeronError as error:
            self._host.close()
            return refused(self._launch.topology, error)
        tasks = [asyncio.create_task(work) for work in (self._check_log(), self._show_life())]
        await self._end.wait()
        self._pulse.end()
        for task in tasks:
            task.cancel()
        self._plan_watch.close()
        self._rpc.close(LAST_ANSWERS_MS)
        self._host.close()
        self._state.close()
        return self._exit_code

    def _open(self) -> None:
        launch = self._launch
        make_private(launch.sockets_dir)
        endpoint = f"ipc://{launch.sockets_dir}/scheduler"
        self._state = open_state_of(launch)
        location = plan_pb2.SchedulerLocation(
            topology=launch.topology, endpoint=endpoint, pid=os.getpid(), host=socket.gethostname()
        )
        path = paths.scheduler(launch.topology)
        self._check_host()
        try:
            # Before the socket is bound, because binding would replace the other scheduler's socket.
            self._state.create(path, location.SerializeToString(), ephemeral=True)
        except NodeExistsError:
            self._state.close()
            raise FencedError(
                f"another scheduler is running topology {launch.topology!r}; kill the topology before starting it again"
            ) from None
        self._rpc = ControlServer([endpoint], self._on_request)
        self._plan_watch = PlanWatch(self._state, paths.packing_plan(launch.topology), self._on_plan)
        self._plan_watch.start()
        self._reconcile()
        log.info("the scheduler of %s runs as process %d", launch.topology, os.getpid())

    def _check_host(self) -> None:
        """Refuse the topology if it is too large for this host; checked only during its submission.

        After a crash, a topology starts even if the host has become too small.
        """
        name = self._launch.topology
        found = self._state.get(paths.packing_plan(name)) if self._state.exists(paths.submission(name)) else None
        if found is not None:
            check_host(plan_pb2.PackingPlan.FromString(found[0]), self._launch)

    async def _check_log(self) -> None:
        while True:
            await asyncio.sleep(LOG_CHECK_S)
            self._own_log.rotate_if_large()

    async def _show_life(self) -> None:
        while True:
            self._pulse.beat()
            await asyncio.sleep(PULSE_S)

    def _on_signal(self) -> None:
        if self._kill is None:
            log.info("the scheduler was asked to end; the topology's state is kept")
            self._kill = asyncio.create_task(self._stop(0.0))
            self._kill.add_done_callback(lambda _: self._end.set())

    # ---- commands ---------------------------------------------------------------------------
    def _on_request(self, _: bytes, envelope: control_pb2.Envelope) -> Message | Awaitable[Message]:
        field, body = body_of(envelope)
        if field == "get_containers":
            reply: Message = control_pb2.ContainersReply(containers=self.containers())
            return reply
        if field == "kill_topology":
            return self._answer_kill(body.grace_s)
        if field == "restart_container":
            return self._answer_restart(body.container)
        raise RpcError(f"the scheduler does not support the request {field!r}")

    async def _answer_kill(self, grace_s: float) -> control_pb2.Ok:
        await self.kill(grace_s)
        asyncio.get_running_loop().call_soon(self._end.set)  # after the answer has been sent
        return control_pb2.Ok(text=f"killed topology {self._launch.topology}")

    async def _answer_restart(self, container: int) -> control_pb2.Ok:
        names = await self.restart_container(container)
        return control_pb2.Ok(text=f"restarted {', '.join(names)}")

    async def kill(self, grace_s: float) -> None:
        """Stop all containers and remove the topology's state. A second call waits for the first."""
        first = self._kill is None
        if self._kill is None:
            log.info("the topology is being killed")
            self._kill = asyncio.create_task(self._stop(grace_s))
        await asyncio.shield(self._kill)
        self._plan_watch.close()
        if first:
            # The keys are removed before the name is free, because the next topology of this name has its keys there.
            curve.remove(self._launch.working_dir)
        # A repeated kill finds nothing to remove.
        remove_state(self._state, self._launch.topology)
        remove_sockets(self._launch.sockets_dir)

    async def _stop(self, grace_s: float) -> None:
        if grace_s > 0:
            self._grace_s = grace_s
            self._reconcile()
        self._host.handle(StopAsked("kill"))
        await self._stopped.wait()
        # The executors have ended; this ends their remaining descendants.
        self._host.close()
        if self._limited:
            container_group.remove(container_group.prefix_of(self._launch.topology_id))

    async def restart_container(self, container: int) -> list[str]:
        """Restart one container, or all containers with -1, and wait until the new executors are running."""
        before = {view.spec.name: view.number for view in self._supervisor.views()}
        names = sorted(before) if container < 0 else [executor_id(container)]
        if any(name not in before for name in names):
            known = ", ".join(str(container_of(name)) for name in sorted(before))
            raise RpcError(
                f"topology {self._launch.topology!r} has no container {container}; its containers are {known}"
            )
        self._asked.update(names)
        self._host.handle(RestartAsked(tuple(names), "on request"))
        deadline = time.monotonic() + RESTART_MAX_S

        def done() -> bool:
            return all(self._has_restarted(name, before[name]) for name in names)

        if not await wait_until(done, self._changed, lambda: deadline):
            raise DeadlineError(f"container {container} has not restarted within {RESTART_MAX_S:g} s")
        return names

    def _has_restarted(self, name: str, number: int) -> bool:
        view = self._supervisor.view(name)
        return view is None or (view.number > number and view.state is ProcessState.RUNNING)

    def containers(self) -> list[control_pb2.ProcessRecord]:
        started = self._host.started_at
        return [
            view.record(started.get(view.spec.name, 0.0), self._epochs.get(view.spec.name, 0))
            for view in self._supervisor.views()
        ]

    # ---- the plan ---------------------------------------------------------------------------
    def _on_plan(self, plan: plan_pb2.PackingPlan) -> None:
        self._plan = plan
        for one in plan.containers if self._limited else ():
            name = container_group.group_name(self._launch.topology_id, one.id)
            container_group.resize(name, one.required.cpu, one.required.ram_bytes)
        self._reconcile()

    def _reconcile(self) -> None:
        """Run the containers of the plan, and container 0 for the topology master."""
        numbers = {0} | ({one.id for one in self._plan.containers} if self._plan is not None else set())
        specs = [ProcessSpec(executor_id(one), "executor", stop_grace_s=self._grace_s) for one in sorted(numbers)]
        self._host.handle(DesiredChanged(tuple(specs)))

    # ---- callbacks of the process host ------------------------------------------------------
    def command_of(self, spec: ProcessSpec, number: int) -> Command:
        container = container_of(spec.name)
        epoch = self._state.counter(paths.epoch(self._launch.topology, f"container-{container}"))
        self._epochs[spec.name] = epoch
        reason, text = self._cause(spec.name, epoch)
        argv = ("--launch", self._launch_file, "--container", str(container), "--epoch", str(epoch),
                *((f"--after={reason.value}", f"--after-text={text}") if reason is not None else ()),
                *self._limits(container))  # fmt: skip
        return Command(spec.name, self._executor_module, argv, cwd=self._launch.working_dir)

    def _limits(self, container: int) -> tuple[str, ...]:
        """Flags that make an executor limit itself to the requested CPU and memory; empty if neither is requested."""
        plan = self._plan.containers if self._plan is not None and self._limited else ()
        for one in plan:
            if one.id == container and (one.required.cpu or one.required.ram_bytes):
                return f"--cpu={one.required.cpu}", f"--ram-bytes={one.required.ram_bytes}"
        return ()

    def _cause(self, name: str, epoch: int) -> tuple[ExitReason | None, str]:
        """Why a container was restarted, for events; None for its first start."""
        view = self._supervisor.view(name)
        asked = name in self._asked
        self._asked.discard(name)
        if view is not None and view.exit_reason is not None:
            if asked and view.exit_reason is ExitReason.PREEMPTED:
                return ExitReason.RESTARTED, ASKED
            how = f": {view.exit_detail}" if view.exit_detail else ""
            text = f"{view.exit_reason.value.replace('_', ' ')}{how}"
            return view.exit_reason, text.replace("\0", "")[:CAUSE_MAX_CHARS]
        # All containers end with their scheduler, and the new scheduler has no record of them.
        return (ExitReason.LOST_HOST, "its scheduler had ended") if epoch > 1 else (None, "")

    def open_output(self, name: str) -> int:
        return self._log_of(name).open()

    def termination_report(self, name: str, killed: bool) -> tuple[str, bool]:
        """The last line of the executor's own log."""
        return "" if killed else last_line_in(self._launch.log_dir / f"{name}.log"), False

    def on_changed(self) -> None:
        self._changed.set()

    def on_removed(self, name: str) -> None:
        self._epochs.pop(name, None)
        self._asked.discard(name)
        self._changed.set()

    def on_give_up(self, effect: GiveUp) -> None:
        log.error("%s has failed permanently: %s", effect.name, effect.detail)

    def on_ended(self, effect: Ended) -> None:
        if effect.reason is ExitReason.OOM:
            log.error("%s ran out of memory: %s", effect.spec.name, effect.detail)

    def on_all_stopped(self) -> None:
        self._stopped.set()

    def on_server_gone(self) -> None:
        if self._kill is None:
            # Only a process without threads can start a new fork server.
            self._exit_code = START_OVER
            self._end.set()
        self._stopped.set()
