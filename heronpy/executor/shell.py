"""The executor's shell: connects the process host, the metrics inbox, the metrics page and the link to the topology
master.

Invariants: the container keeps working while the topology master or the state manager is unreachable; when this process
ends for any reason, all its processes end (the fork server ensures that).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

from heronpy.common import exit_codes
from heronpy.common.clock import group_of, is_rare
from heronpy.common.errors import ConfigError, FencedRpcError, HeronError, RetryableError
from heronpy.common.folders import make_folders
from heronpy.common.ids import child_epoch, executor_id, stmgr_id
from heronpy.common.setting_types import (
    CheckpointSettings,
    ExecutorSettings,
    InstanceSettings,
    LoggingSettings,
    MetricsSettings,
    SecuritySettings,
    TmasterSettings,
)
from heronpy.common.settings import settings_for
from heronpy.executor.child_logs import ChildLogs
from heronpy.executor.desired import Place, Roles, command_of, desired_processes
from heronpy.executor.evidence import Evidence
from heronpy.executor.file_service import FileService
from heronpy.executor.handing import TopologyHanding, tasks_that_ran
from heronpy.executor.metrics_inbox import MetricsInbox
from heronpy.executor.metrics_page import MetricsPage, check_host
from heronpy.executor.records import progress
from heronpy.executor.reports import Reports
from heronpy.executor.sinks import Sinks
from heronpy.net.addresses import page_host, ports_of
from heronpy.net.curve import Keys
from heronpy.net.follower import MasterFollower
from heronpy.net.rpc import body_of
from heronpy.net.state import open_state_of
from heronpy.net.transport import keys_of
from heronpy.procs import sampler
from heronpy.procs.child_log import OwnLog
from heronpy.procs.exit_reason import ExitReason
from heronpy.procs.footprints import FootprintMeter
from heronpy.procs.forkserver import Command, ForkServer
from heronpy.procs.handed_plans import plan_file
from heronpy.procs.host import ProcessHost
from heronpy.procs.jobs import Jobs
from heronpy.procs.linux import FDS_PER_LINK, FDS_PER_PROCESS, lift_files
from heronpy.procs.plan_watch import PlanWatch
from heronpy.procs.restart_policy import RestartLimits, budgets_of
from heronpy.procs.supervision import DesiredChanged, Ended, GiveUp, ProcessSpec, RestartAsked, StopAsked, Tick
from heronpy.procs.supervisor import OWN_STALL_S, Supervisor
from heronpy.proto import control_pb2, plan_pb2
from heronpy.statemgr import paths

if TYPE_CHECKING:
    from heronpy.executor.clock_probe import ClockProbe
    from heronpy.executor.echo import Echo

log = logging.getLogger("heronpy.executor")

HEARTBEAT_S = 2.0
#: While all processes are idle, only one in this many rounds of measurements and heartbeats takes place.
CALM_ROUNDS = 2
#: Pause before the next attempt to reach a topology master after an unexpected failure.
RETRY_S = 1.0
EXCEPTION_DELAY_S = 0.05
#: Reports within this time share a message. The time is longer than the inbox's pause between reads.
REPORTS_DELAY_S = 0.06


class Executor:
    """The executor of one container; `await run()` returns the exit code.

    The fork server must have been started before the event loop.
    """

    def __init__(
        self,
        place: Place,
        server: ForkServer,
        roles: Roles | None = None,
        signs_fd: int = -1,
        echo_fd: int = -1,
    ) -> None:
        self._place = place
        self._server = server
        self._roles = roles or Roles()
        launch = place.launch
        self._name = executor_id(place.container)
        self._settings = settings_for(launch, ExecutorSettings)
        self._logging = settings_for(launch, LoggingSettings)
        self._metrics = settings_for(launch, MetricsSettings)
        self._supervisor = Supervisor(
            RestartLimits(
                self._settings.restart_backoff_s,
                self._settings.restart_backoff_max_s,
                self._settings.restart_budget,
                self._settings.restart_window_s,
                budgets_of(self._settings.restart_budgets),
                self._settings.restart_exception_budget_s,
            )
        )
        self._echo: Echo | None = None
        if echo_fd >= 0:
            from heronpy.executor.echo import open_echo  # only for containers of engines

            self._echo = open_echo(echo_fd, self._name, self._logging.file_max_bytes, self._logging.files_max)
        self._logs = ChildLogs(Path(launch.log_dir), self._logging, self._echo.put if self._echo is not None else None)
        self._own_log = OwnLog(
            str(launch.log_dir / f"{self._name}.log"), self._logging.file_max_bytes, self._logging.files_max
        )
        self._exit_code: int = exit_codes.OK
        self._group = group_of(place.container)
        self._jobs = Jobs(group=self._group)
        # Heartbeats are at most a third of `executor_lost_s` apart, as for other processes.
        lost_s = settings_for(launch, TmasterSettings).executor_lost_s
        self._rounds = min(CALM_ROUNDS, max(1, int(lost_s / 3 / HEARTBEAT_S)))
        self._clocks: ClockProbe | None = None
        self._beat_soon = self._export_soon = False
        self._exported_at = 0.0
        self._export_timer: asyncio.TimerHandle | None = None
        #: Tasks that have run under an earlier executor; None until the record has been read.
        self._has_run: frozenset[int] | None = None
        self._last_beat = time.monotonic()
        #: Descriptor of the pipe from which the parent reads heartbeats; negative if there is no such pipe.
        self._signs_fd = signs_fd

    # ---- life -------------------------------------------------------------------------------
    async def run(self) -> int:
        """Run the container until it is stopped."""
        self._done = asyncio.Event()
        loop = asyncio.get_running_loop()
        for signum in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signum, self.stop, "it was asked to stop")
        self._host = ProcessHost(self._server, self._supervisor, self)
        try:
            await self._open()
        except HeronError as error:
            log.error("%s cannot start: %s", self._name, error)
            self._host.close()
            return exit_codes.UNAVAILABLE if isinstance(error, RetryableError) else exit_codes.STARTUP_FAILURE
        self._jobs.every(HEARTBEAT_S, self._on_heartbeat)
        self._jobs.every(self._settings.usage_interval_s, self._measure_when_due)
        if self._sinks.names:
            self._jobs.every(self._metrics.sink_interval_s, self._feed_sinks)
        await self._done.wait()
        await self._close()
        return self._exit_code

    async def _open(self) -> None:
        launch, container = self._place.launch, self._place.container
        security = settings_for(launch, SecuritySettings)
        self._page_host = page_host(self._settings.metrics_host, launch.address, security.bind_host)
        check_host(self._page_host, launch.origins.get("executor.metrics_host", "default") != "default")
        self._page = MetricsPage(
            self._page_host,
            self._settings.metrics_port and self._settings.metrics_port + container,
            {
                "/metrics": lambda: self._reports.metrics_text(),
                "/health": lambda: self._reports.health_text(self._link.registered),
            },
            ports_of(security.port_range),
        )
        await self._page.start()
        make_folders(launch.sockets_dir)
        self._inbox = MetricsInbox(
            f"ipc://{launch.sockets_dir}/executor-{container}.metrics",
            container,
            self._supervisor.knows,
            self._on_report,
            self._on_exception,
        )
        sampler.install(launch.sockets_dir)
        self._evidence = Evidence(
            self._name,
            launch.sockets_dir,
            lambda name: self._supervisor.current(name)[1],
            self._server.signal,
            self._logs.stacks,
        )
        self._service = FileService(
            launch,
            container,
            {
                "dump_stacks": self._evidence.dump_stacks,
                "profile": self._evidence.profile,
                "heap": self._evidence.heap,
            },
        )
        self._sinks = Sinks(launch.topology, self._name, Path(launch.working_dir), self._metrics)
        self._reports = Reports(
            self._place,
            self._supervisor,
            self._host.started_at,
            self._inbox,
            self._settings.usage_interval_s,
            self._sinks,
            FootprintMeter(launch.working_dir, self._logs.logged),
            lambda: self._clocks.offset() if self._clocks is not None else None,
        )
        self._state = open_state_of(launch, owns=False)
        self._link = MasterFollower(
            launch.topology,
            f"{self._name}:{self._place.epoch}".encode(),
            lambda: self._reports.registration(self._page_host, self._page.port, self._service.endpoint),
            self._on_tmaster,
            self._on_registered,
        )
        keys = keys_of(launch)
        if keys is not None:
            from heronpy.executor.clock_probe import EVERY_S, ClockProbe  # on one host, all processes share a clock

            self._clocks = clocks = ClockProbe(self._link.call)
            self._jobs.every(EVERY_S, lambda: self._jobs.start(clocks.ask()))
        self._jobs.start(self._follow_tmaster(keys))
        if container == 0:
            self._on_plan(None)
            self._plan_watch = None
        else:
            self._handing = TopologyHanding(self._state, launch, container)
            self._handing.start()
            self._plan_watch = PlanWatch(
                self._state,
                paths.packing_plan(launch.topology),
                self._on_plan,
                plan_file(launch.sockets_dir, container),
            )
            self._plan_watch.start()
        log.info("%s is running; metrics on %s port %d", self._name, self._page_host, self._page.port)

    async def _close(self) -> None:
        await self._jobs.close()
        self._beat()
        self._inbox.drain()
        if (last := self._inbox.take_batch()) is not None:
            await self._link.last_word(self._state, last)
        if self._plan_watch is not None:
            self._plan_watch.close()
            self._handing.close()
        self._link.close()
        await self._page.close()
        await asyncio.to_thread(self._sinks.close)
        self._host.close()
        self._logs.close()
        if self._echo is not None:
            await asyncio.to_thread(self._echo.close)
        self._inbox.close()
        self._evidence.close()
        self._service.close()
        self._state.close()

    def stop(self, why: str, exit_code: int = exit_codes.OK) -> None:
        """Stop all processes in order, and then end. Idempotent: the first call determines the reason."""
        if self._supervisor.stopping:
            return
        self._exit_code = exit_code
        log.info("%s stops: %s", self._name, why)
        self._host.handle(StopAsked(why))

    # ---- desired processes ------------------------------------------------------------------
    def _on_plan(self, plan: plan_pb2.PackingPlan | None) -> None:
        if not self._supervisor.views():
            try:
                check_files(plan, self._place.container)
            except ConfigError as error:
                # Commands show users the last line of this log.
                self.stop(str(error), exit_codes.STARTUP_FAILURE)
                return
        if plan is not None and self._has_run is None:
            self._has_run = tasks_that_ran(self._state, self._place.launch)
        tmaster = settings_for(self._place.launch, TmasterSettings)
        specs = desired_processes(
            plan,
            self._place.container,
            needs_spark=self._place.launch.needs_spark,
            stop_grace_s=self._settings.stop_grace_s,
            hang_timeout_s=lambda component: self._instance(component).hang_timeout_s,
            memory_max_bytes=lambda component: self._instance(component).memory_soft_limit_bytes,
            standbys=tmaster.standbys,
            replicates=bool(settings_for(self._place.launch, CheckpointSettings).replica),
            has_run=self._has_run or (),
        )
        self._host.handle(DesiredChanged(specs))

    def _instance(self, component: str) -> InstanceSettings:
        return settings_for(self._place.launch, InstanceSettings, component)

    def command_of(self, spec: ProcessSpec, number: int) -> Command:
        view = self._supervisor.view(spec.name)
        after = view.exit_reason if view is not None else None
        return command_of(spec, number, self._place, self._roles, after=after, preload=self._settings.preload)

    def open_output(self, name: str) -> int:
        self._inbox.begin(name)
        return self._logs.open_output(name)

    def termination_report(self, name: str, killed: bool) -> tuple[str, bool]:
        self._inbox.drain()
        return self._logs.termination_report(name, self._inbox.last_exception(name), killed)

    # ---- events of the host -----------------------------------------------------------------
    def on_changed(self) -> None:
        if not self._beat_soon:
            self._beat_soon = True
            asyncio.get_running_loop().call_soon(self._beat)

    def on_removed(self, name: str) -> None:
        self._reports.forget(name)
        self._inbox.forget(name)
        self._logs.forget(name)

    def on_give_up(self, effect: GiveUp) -> None:
        startup = effect.reason is ExitReason.STARTUP_FAILURE
        code = exit_codes.STARTUP_FAILURE if startup else exit_codes.FAILURE
        log.error("%s is stopping, because %s has failed permanently: %s", self._name, effect.name, effect.detail)
        # The scheduler reports the last line of this log.
        self.stop(f"{effect.name} has failed permanently ({effect.reason.value}: {effect.detail})", code)

    def on_ended(self, effect: Ended) -> None:
        self._logs.ended(effect)
        self._reports.ended(effect)

    def on_all_stopped(self) -> None:
        self._done.set()

    def on_server_gone(self) -> None:
        if self._exit_code == exit_codes.OK:
            self._exit_code = exit_codes.FAILURE
        self._done.set()

    # ---- metrics and exceptions -------------------------------------------------------------
    def _on_report(self, report: control_pb2.MetricsReport) -> None:
        number, _ = self._supervisor.current(report.process)
        if report.epoch in (0, child_epoch(self._place.epoch, number)):
            self._host.reported(report.process, number, *progress(report))
        self._export_when_due()

    def _on_exception(self) -> None:
        # Users wait for these changes; a burst shares one message.
        if not self._export_soon:
            self._export_soon = True
            asyncio.get_running_loop().call_later(EXCEPTION_DELAY_S, self._export)

    def _may_skip(self, interval_s: float) -> bool:
        """Whether a periodic job may skip this round, because every process is running and idle."""
        return self._reports.calm and not is_rare(time.monotonic(), interval_s, self._group, self._rounds)

    def _measure_when_due(self) -> None:
        if not self._may_skip(self._settings.usage_interval_s):
            self._measure()

    def _measure(self) -> None:
        self._own_log.rotate_if_large()
        for overgrown in self._reports.measure():
            self._host.handle(overgrown)

    def _feed_sinks(self) -> None:
        self._sinks.offer(time.time(), self._reports.all())

    def _export_when_due(self) -> None:
        """Send several reports together to the topology master, at most twice per export interval.

        Processes report once per interval, so a report does not wait for reports from other processes.
        """
        if self._export_timer is None and not self._supervisor.stopping:
            now = time.monotonic()
            delay_s = max(REPORTS_DELAY_S, self._exported_at + 0.5 * self._metrics.export_interval_s - now)
            self._export_timer = asyncio.get_running_loop().call_later(delay_s, self._jobs.call, self._export)

    def _export(self) -> None:
        self._export_soon = False
        if self._export_timer is not None:
            self._export_timer.cancel()
            self._export_timer = None
        if not self._link.registered:
            return  # the next report sends everything
        batch, self._exported_at = self._inbox.take_batch(), time.monotonic()
        if batch is not None and not self._link.send(batch):
            self._inbox.put_back(batch)
            self._export_when_due()

    # ---- the topology master ----------------------------------------------------------------
    async def _follow_tmaster(self, keys: Keys | None) -> None:
        while True:
            try:
                await self._link.follow(self._state, keys)
            except FencedRpcError as error:
                self.stop(str(error), exit_codes.FENCED)
                return
            except Exception:
                log.exception("the connection to the topology master failed")
                await asyncio.sleep(RETRY_S)

    def _on_registered(self, _: control_pb2.Ok | None) -> None:
        if self._clocks is not None:
            self._clocks.registered()
            self._jobs.start(self._clocks.ask())
        self._measure()
        self._beat()
        self._inbox.repeat()
        self._export()

    def _on_heartbeat(self) -> None:
        now = time.monotonic()
        stalled, self._last_beat = now - self._last_beat > OWN_STALL_S, now
        if stalled:
            self._link.register_again()
        self._host.handle(Tick())
        if self._signs_fd >= 0:
            with contextlib.suppress(OSError):  # a full pipe contains enough heartbeats
                os.write(self._signs_fd, b".")
        if not self._may_skip(HEARTBEAT_S):
            self._beat()

    def _beat(self) -> None:
        self._beat_soon = False
        if self._export_soon:
            self._export()  # report why a process failed before reporting that it failed
        self._link.send(self._reports.heartbeat())

    def _on_tmaster(self, envelope: control_pb2.Envelope) -> None:
        field, body = body_of(envelope)
        if field == "restart_processes":
            log.info("the topology master requests a restart of %s", list(body.names) or "all processes")
            self._host.handle(RestartAsked(tuple(body.names), body.reason))


def files_needed(plan: plan_pb2.PackingPlan | None, container: int) -> tuple[int, str]:
    """The largest number of files that a process of the container opens, and the name of that process."""
    if plan is None or container == 0:
        return FDS_PER_PROCESS, "tmaster"
    tasks = sum(len(c.instances) for c in plan.containers if c.id == container)
    links = tasks + len(plan.containers)
    return FDS_PER_PROCESS + FDS_PER_LINK * links, stmgr_id(container)


def check_files(plan: plan_pb2.PackingPlan | None, container: int) -> None:
    """Increase the soft limit of open files; raises ConfigError if the hard limit is too low.

    This is called before the first process starts, so that a low limit causes one error and not a partial start.
    """
    needed, name = files_needed(plan, container)
    hard = lift_files()
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise ConfigError(
            f"container {container} may open {hard} files per process, but {name} needs {needed};"
            " raise 'ulimit -n' for its user, or use more containers"
        )
