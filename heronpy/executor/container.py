"""The shell of a container on another host: connects endpoint, folders and executor.

`container_state` makes the decisions.

Invariants: everything that this process has started or created is gone when `run` returns, except the packages on its
host; before it ends, a container spends at most `LOGS_S` on sending the last part of its logs.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import secrets
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from heronpy.common import exit_codes
from heronpy.common.clock import boot_s
from heronpy.common.engine_settings import EngineSettings
from heronpy.common.errors import ConfigError, HeronError, RpcError
from heronpy.common.folders import make_folders
from heronpy.common.ids import bootstrap_id, executor_id
from heronpy.common.logs import setup
from heronpy.common.setting_types import LoggingSettings
from heronpy.common.settings import settings_for
from heronpy.common.version import VERSION
from heronpy.engines.lease import Fencing, LeaseTimes
from heronpy.executor import arriving
from heronpy.executor.container_state import (
    AskState,
    Cause,
    ContainerState,
    End,
    Ending,
    Event,
    ExecutorEnded,
    KillExecutor,
    LeaveHeard,
    LinkBack,
    Prepared,
    Send,
    SendLeave,
    Signal,
    SignOfLife,
    StartExecutor,
    StateAnswered,
    StopExecutor,
    Tick,
)
from heronpy.executor.echo import ECHO_FD, Echo, open_echo
from heronpy.executor.executor_child import SIGNS_FD, ExecutorChild
from heronpy.executor.host_folder import HostFolder, home_of
from heronpy.executor.scheduler_link import (
    LOG_END_MAX_BYTES,
    Admitted,
    SchedulerLink,
    archive_logs,
    code_of,
    code_of_error,
    send_logs,
)
from heronpy.net.addresses import address_here
from heronpy.net.join_token import JoinToken, SessionCredential
from heronpy.net.state import open_state_of
from heronpy.plan.launch import SLOT, LaunchSpec, Settings, Submitted
from heronpy.procs.cgroups import memory_max_bytes
from heronpy.procs.child_log import OwnLog
from heronpy.procs.exit_reason import describe_status
from heronpy.procs.jobs import Jobs
from heronpy.proto import endpoint_pb2
from heronpy.statemgr import paths
from heronpy.storage.log_archive import LogArchive, Run

log = logging.getLogger("heronpy.executor")

TICK_S = 0.25
SLOT_MODULE = "heronpy.executor.slot"
#: Maximum number of starts of a slot in one epoch. A restarted slot continues from its disk and needs no other process.
SLOT_LIVES = 4
#: Time limit for sending the ends of all logs; the second limit applies if the engine waits for this process to end.
LOGS_S = 15.0
LOGS_SOON_S = 5.0
#: Share of `LOGS_S` for the archive; the rest is for logs that are sent to the endpoint instead.
ARCHIVE_PART = 0.6
LOG_CHECK_TICKS = 120
#: Time limit for the final message of a container that its engine ends.
FAREWELLS_MAX = 8
FAREWELL_S = 1.0
#: Length limit of an unexpected error that is reported as the exit reason.
SAID_MAX_CHARS = 500
#: Time limit for an interrupted preparation to end.
PREPARING_ENDS_S = 3.0
#: Environment variables with the engine's name for this host, the preferred variable first.
HOST_NAMES = ("HERON_HOST", "SLURMD_NODENAME")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Who:
    """The container and the submission for which this process runs."""

    topology_id: str
    container: int
    submission: int


class Container:
    """`await run()` returns the exit code, or the negative number of a signal. Requires asyncio's own event loop."""

    def __init__(
        self, token: JoinToken, who: Who, executor_module: str, start_s: float, begun_at: float, parent: int
    ) -> None:
        self._token = token
        self._who = who
        self._name = bootstrap_id(who.container)
        self._module = executor_module
        self._start_s = start_s
        self._spans = arriving.Spans()
        self._begun_at = begun_at
        self._parent = parent
        self._jobs = Jobs()
        #: Token by which the endpoint recognises this process.
        self._nonce = secrets.token_bytes(32)
        self._machine: ContainerState | None = None
        self._folder: HostFolder | None = None
        self._launch: LaunchSpec | None = None
        self._own_log: OwnLog | None = None
        #: The output that the engine keeps, if logs are also written to it.
        self._stdout = -1
        self._echo: Echo | None = None
        self._kept_bytes = 0
        self._ticks = 0
        self._started: tuple[float, float] | None = None
        self._preparing: Future[LaunchSpec] | None = None

    # ---- life -------------------------------------------------------------------------------
    async def run(self) -> int:
        """Run the container until it ends."""
        loop = asyncio.get_running_loop()
        self._end: asyncio.Future[End] = loop.create_future()
        for signum in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signum, self._on_signal, True, "its engine is ending it")
        loop.add_signal_handler(signal.SIGHUP, self._on_parent)
        loop.add_signal_handler(signal.SIGUSR1, self._on_signal, False, "its engine will end it soon")
        self._child = ExecutorChild(lambda: self._feed(SignOfLife()), lambda status: self._feed(ExecutorEnded(status)))
        self._link = SchedulerLink(
            self._token, self._who.container, self._who.submission, lambda: self._feed(LinkBack())
        )
        if os.getppid() != self._parent:
            self._on_parent()
        said, code, soon = "an internal error", int(exit_codes.FAILURE), False
        try:
            if (admitted := await self._admitted()) is not None:
                await self._arrive(admitted)
            end = await self._end
            said, code, soon = end.why, code_of(end), end.ending is Ending.ASKED
            if end.ending is Ending.EXECUTOR:
                said += f": {describe_status(end.status)}"
        except (HeronError, OSError) as error:
            said, code = " ".join(str(error).split()), code_of_error(error)
            log.error("%s", said)
        except Exception as error:
            # The traceback may be lost, so the endpoint and the engine get the error as a sentence.
            said = " ".join(f"an internal error: {type(error).__name__}: {error}".split())[:SAID_MAX_CHARS]
            log.exception("%s cannot continue", self._name)
        log.info("%s ends: %s", self._name, said)
        try:
            self._child.kill()
            await self._preparing_ended()
            self._child.close()
            with suppress(TimeoutError):
                limit_s = LOGS_SOON_S if soon else LOGS_S
                async with asyncio.timeout(limit_s):
                    await self._say_farewell()
                    await self._send_logs(said, limit_s * ARCHIVE_PART)
            await self._jobs.close()
        finally:
            self._link.close()
            self._clean_up()
            if self._echo is not None:
                self._echo.close()
        self._say(said)
        return code

    async def _admitted(self) -> Admitted | None:
        """The endpoint's answer to the join request; None if this process is asked to end before the answer arrives."""
        begun = time.monotonic()
        admission = asyncio.ensure_future(self._link.admit(self._hello, self._start_s))
        await asyncio.wait((admission, self._end), return_when=asyncio.FIRST_COMPLETED)
        if not admission.done():
            admission.cancel()
            return None
        admitted = admission.result()
        self._spans.add("admit", self._begun_at, max(time.time() - self._begun_at, time.monotonic() - begun))
        return admitted

    def _hello(self, endpoint: str) -> endpoint_pb2.Hello:
        installed = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return endpoint_pb2.Hello(
            topology_id=self._who.topology_id,
            container=self._who.container,
            submission=self._who.submission,
            heronpy=VERSION,
            python=f"{sys.version_info.major}.{sys.version_info.minor}",
            host=host_name(),
            pid=os.getpid(),
            cpu=len(os.sched_getaffinity(0)),
            ram_bytes=min(installed, memory_max_bytes() or installed),
            address=address_here("", endpoint),
            nonce=self._nonce,
        )

    async def _arrive(self, admitted: Admitted) -> None:
        """Begin to renew the lease, and prepare the executor's files; returns early if the container ends."""
        welcome = admitted.welcome
        self._kept_bytes = min(welcome.log_kept_bytes, LOG_END_MAX_BYTES)
        # The scheduler has checked these times; the other times concern only the scheduler.
        lost_s = 2 * (welcome.fence_s + welcome.stop_grace_s)
        times = LeaseTimes(welcome.renew_s, welcome.fence_s, lost_s, welcome.stop_grace_s, lost_s)
        submitted = Submitted.from_bytes(welcome.submitted, "the scheduler's answer")
        state_apart = submitted.state_type not in ("local", "endpoint")
        lives = SLOT_LIVES if submitted.program == SLOT else 1
        self._machine = ContainerState(times, _fencing_of(welcome.fencing), boot_s(), state_apart, lives)
        self._late_s = max(1.0, times.renew_s)
        self._jobs.every(TICK_S, self._on_tick)
        self._feed(Tick())
        loop = asyncio.get_running_loop()

        def read(package: str, offset: int) -> bytes:
            return asyncio.run_coroutine_threadsafe(self._link.read_package(package, offset), loop).result()

        self._preparing = _in_thread(lambda: self._prepare(admitted, submitted, read))
        preparing = asyncio.wrap_future(self._preparing)
        preparing.add_done_callback(lambda future: future.cancelled() or future.exception())
        await asyncio.wait((preparing, self._end), return_when=asyncio.FIRST_COMPLETED)
        if preparing.done():
            self._launch = preparing.result()
            self._feed(Prepared())

    def _prepare(
        self, admitted: Admitted, submitted: Submitted, read: Callable[[str, int], bytes]
    ) -> LaunchSpec:  # in a thread
        welcome, who = admitted.welcome, self._who
        engine = settings_for(_Settings(submitted), EngineSettings)
        home = home_of(engine.home)
        folder = HostFolder(home, who.topology_id, who.container, who.submission)
        self._folder = folder
        folder.open()
        launch = arriving.launch_of(welcome, self._token, folder, admitted.endpoint)
        self._log_to_file(launch)
        arriving.check_shared(welcome)
        with self._spans.step("fetch"):
            arriving.fetch_package(welcome, launch, read)
        if self._end.done():
            raise RpcError("the container had to end before its executor started")
        with self._spans.step("build"):
            launch = arriving.with_environment(launch, home, engine.environment)
            credential = SessionCredential(who.container, who.submission, bytes(welcome.secret))
            arriving.write_files(welcome, self._token, credential, launch)
        return launch

    # ---- effects ------------------------------------------------------------------------------
    def _on_signal(self, now: bool, why: str) -> None:
        log.info("%s must end: %s", self._name, why)
        if self._machine is not None:
            self._feed(Signal(now, why))
        elif now and not self._end.done():
            self._end.set_result(End(Ending.ASKED, why))

    def _on_parent(self) -> None:
        # A parent outside the PID namespace of this process always has pid 0, so its end cannot be detected.
        if not self._parent or os.getppid() != self._parent:
            self._on_signal(True, "the engine's process that started this container has ended")

    def _on_tick(self) -> None:
        self._ticks += 1
        if self._own_log is not None and self._ticks % LOG_CHECK_TICKS == 0:
            self._own_log.rotate_if_large()
        self._feed(Tick())

    def _feed(self, event: Event) -> None:
        if self._machine is None:
            return
        if isinstance(event, SignOfLife) and self._started is not None:
            begun_at, begun = self._started
            self._started = None
            self._spans.add("start", begun_at, time.monotonic() - begun)
            self._jobs.start(self._send_spans())
        for effect in self._machine.handle(event, boot_s()):
            match effect:
                case Send():
                    self._jobs.start(self._renew(effect))
                case SendLeave(why):
                    self._jobs.start(self._leave(why))
                case AskState(number):
                    self._jobs.start(self._ask_state(number))
                case StartExecutor(epoch, after, life):
                    self._start(epoch, after, life)
                case StopExecutor(why):
                    log.warning("stopping the executor: %s", why)
                    self._child.stop()
                case KillExecutor(why):
                    log.warning("killing the executor: %s", why)
                    self._child.kill()
                case End():
                    if not self._end.done():
                        self._end.set_result(effect)

    def _start(self, epoch: int, after: Cause | None, life: int) -> None:
        launch, folder = self._launch, self._folder
        assert launch is not None and folder is not None
        if life:
            log.warning(
                "the slot has ended and is being restarted (restart %d of at most %d in its epoch)",
                life,
                SLOT_LIVES - 1,
            )
        file = str(folder.path / arriving.LAUNCH)
        module = SLOT_MODULE if launch.submitted.program == SLOT else self._module
        argv = (
            *(launch.python, "-P", "-m", module, "--launch", file, "--container", str(self._who.container)),
            *("--epoch", str(epoch), "--parent", str(os.getpid()), "--signs-fd", str(SIGNS_FD)),
            *(("--echo-fd", str(ECHO_FD)) if self._stdout >= 0 else ()),
            *(("--life", str(life)) if life else ()),
            *((f"--after={after.reason}", f"--after-text={after.text}") if after is not None else ()),
        )
        # Files without a configured folder go into the folder of this submission, which is removed at the end.
        environ = {**os.environ, "HERON_HOME": str(folder.path), "HERON_LAUNCH": file}
        self._started = time.time(), time.monotonic()
        try:
            os.chdir(folder.path)
            self._child.start(argv, environ, 2, self._stdout)
        except OSError as error:
            self._end.set_exception(ConfigError(f"cannot start {launch.python}: {error.strerror}"))
            return
        log.info("the executor runs as process %d in epoch %d", self._child.pid, epoch)

    # ---- messages -----------------------------------------------------------------------------
    async def _renew(self, send: Send) -> None:
        self._feed(await self._link.renew(send, self._late_s))

    async def _leave(self, why: str) -> None:
        if await self._link.leave(why):
            self._feed(LeaveHeard())

    async def _say_farewell(self) -> None:
        """Report the end of this container to the endpoint, in case the engine is gone and cannot confirm it."""
        machine = self._machine
        send = machine.farewell(boot_s()) if machine is not None else None
        if machine is None or send is None:
            return
        for _ in range(FAREWELLS_MAX):
            # A scheduler without this message would assume that this container can act again.
            if not machine.leave_unheard or await self._link.leave(machine.leave_unheard):
                await self._link.renew(send, FAREWELL_S)
                return
            await asyncio.sleep(TICK_S)

    async def _ask_state(self, number: int) -> None:
        launch = self._launch
        has_scheduler = await asyncio.wrap_future(_in_thread(lambda: _has_scheduler(launch))) if launch else None
        self._feed(StateAnswered(number, has_scheduler))

    async def _send_spans(self) -> None:
        await self._link.spans(self._spans.taken)

    async def _send_logs(self, said: str, archive_s: float) -> None:
        if self._own_log is None:
            await self._link.log_end(self._name, f"{said}\n".encode()[-LOG_END_MAX_BYTES:], False)
            return
        first = (self._name, executor_id(self._who.container))
        folder = Path(self._own_log.path).parent
        archived = await self._archived(folder, archive_s)
        await send_logs(self._link, folder, first, self._kept_bytes, archived)

    async def _archived(self, folder: Path, within_s: float) -> frozenset[str]:
        """Archive the logs for at most `within_s`; returns the processes whose logs are in the archive."""
        place = settings_for(self._launch, LoggingSettings).archive if self._launch is not None else ""
        if not place or self._launch is None:
            return frozenset()
        archived: set[str] = set()
        try:
            archive = LogArchive(place, self._who.topology_id, within_s / 2)
        except ConfigError as error:
            log.warning("logs are not archived: %s", error)
            return frozenset()
        run = Run(self._who.container, self._who.submission, host_name())
        work = asyncio.wrap_future(_in_thread(lambda: archive_logs(archive, run, folder, archived)))
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await asyncio.shield(work)
        return frozenset(archived)

    # ---- this process -------------------------------------------------------------------------
    def _log_to_file(self, launch: LaunchSpec) -> None:
        make_folders(launch.log_dir)
        settings = settings_for(launch, LoggingSettings)
        own_log = OwnLog(str(launch.log_dir / f"{self._name}.log"), settings.file_max_bytes, settings.files_max)
        self._stderr = os.dup(2)
        if settings.echo:
            # Higher than any descriptor of the executor, so that none is overwritten before it is copied.
            self._stdout = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, ECHO_FD + 1)
            echo_fd = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, ECHO_FD + 1)
        own_log.redirect()
        setup(self._name, settings.level)
        if settings.echo:
            self._echo = open_echo(echo_fd, self._name, settings.file_max_bytes, settings.files_max)
        self._own_log = own_log

    def _say(self, text: str) -> None:
        """If this process has a log file, also write the termination report to stderr, which the engine may keep."""
        if self._own_log is not None:
            with suppress(OSError):
                os.write(self._stderr, f"{self._name}: {text}\n".encode(errors="replace"))

    async def _preparing_ended(self) -> None:
        """Wait until preparation has ended, because its folders cannot be removed earlier."""
        deadline = time.monotonic() + PREPARING_ENDS_S
        while self._preparing is not None and not self._preparing.done() and time.monotonic() < deadline:
            await asyncio.sleep(0.02)

    def _clean_up(self) -> None:
        os.chdir("/")
        for left in self._folder.close() if self._folder is not None else []:
            self._say(f"could not remove {left}")


@dataclass(frozen=True, slots=True)
class _Settings:
    """The submitted settings, used until this host has a launch file."""

    submitted: Submitted

    @property
    def settings(self) -> Settings:
        return self.submitted.settings

    @property
    def component_settings(self) -> Settings:
        return self.submitted.component_settings


def host_name() -> str:
    """The engine's name for this host."""
    return next((name for key in HOST_NAMES if (name := os.environ.get(key))), socket.gethostname())


def _in_thread(call: Callable[[], T]) -> Future[T]:
    """Run a call in a daemon thread, so that the process can end without waiting for the call."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def _has_scheduler(launch: LaunchSpec) -> bool | None:
    """Whether the state manager has a scheduler's location; None if it does not answer."""
    try:
        state = open_state_of(launch)
        try:
            return state.exists(paths.scheduler(launch.topology))
        finally:
            state.close()
    except HeronError as error:
        log.warning("the state manager does not answer: %s", error)
        return None


def _fencing_of(name: str) -> Fencing:
    try:
        return Fencing(name)
    except ValueError:
        raise ConfigError(f"the scheduler requires fencing {name!r}, which this release does not support") from None
