"""`python -m heronpy.executor.slot`: the process of a pool's slot, which runs the executors of containers of several
topologies.

The slot runs instead of an executor, as a child of its container's first process, which handles the lease, heartbeats
and orphans. The pool's map and specifications, which the slot keeps on its disk, determine the executors to run. While
the scheduler and the state manager are unavailable, the slot still restarts its executors, even after it was itself
restarted. Invariants: an executor runs only if the map assigns its shard to this slot in this epoch; a map is
acknowledged only when it is on disk and no executor that it assigns elsewhere is running.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from heronpy.common import exit_codes
from heronpy.common.engine_settings import EngineSettings
from heronpy.common.errors import HeronError, StateError
from heronpy.common.folders import make_folders
from heronpy.common.ids import executor_id, short_hash
from heronpy.common.logs import setup
from heronpy.common.setting_types import ExecutorSettings, LoggingSettings, SchedulerSettings
from heronpy.common.settings import settings_for
from heronpy.executor import arriving
from heronpy.executor.__main__ import parse
from heronpy.executor.host_folder import home_of
from heronpy.executor.scheduler_link import SchedulerLink
from heronpy.executor.slot_disk import SlotDisk
from heronpy.executor.slot_load import SAMPLE_S, TreeLoads
from heronpy.net import curve
from heronpy.net.join_token import TEXT_MAX_CHARS, JoinToken, SessionCredential
from heronpy.net.private import make_private, read_private
from heronpy.net.state import module_of, open_state_of
from heronpy.plan.launch import LaunchSpec, Submitted
from heronpy.pools.holding import Holding
from heronpy.pools.shards import Answer, Key, Map, Run, Spec, name_of, pack, unpack
from heronpy.procs import container_group
from heronpy.procs.child_log import OwnLog, last_line_in
from heronpy.procs.exit_reason import ExitReason
from heronpy.procs.forkserver import Command, ForkServer
from heronpy.procs.host import ProcessHost
from heronpy.procs.jobs import Jobs
from heronpy.procs.linux import die_with_parent, lift_files
from heronpy.procs.loop import run_loop
from heronpy.procs.preload import PRELOAD
from heronpy.procs.restart_policy import limits_of
from heronpy.procs.supervision import (
    DesiredChanged,
    Ended,
    GiveUp,
    ProcessSpec,
    ProcessState,
    RestartAsked,
    StopAsked,
    Tick,
)
from heronpy.procs.supervisor import Supervisor
from heronpy.statemgr import paths
from heronpy.storage.packages import PackageStore

log = logging.getLogger("heronpy.executor")

SIGN_S: Final = 2.0
#: The map is read again after this time, in case a notification was missed or a read failed.
POLL_S: Final = 60.0
AGAIN_S: Final = 1.0
#: After a failure, pause before another attempt to create the files of a topology.
PREPARE_AGAIN_S: Final = 10.0
MOVED_TEXT: Final = "moved from another slot"
_GONE: Final = frozenset((ProcessState.STOPPED, ProcessState.FAILED, ProcessState.BACKOFF))


class Slot:
    """One slot of a pool; `await run()` returns the exit code.

    The fork server must have been started before the event loop.
    """

    def __init__(
        self, launch: LaunchSpec, number: int, epoch: int, life: int, server: ForkServer, signs_fd: int, log_: OwnLog
    ) -> None:
        self._launch, self._number, self._life = launch, number, life
        self._server, self._signs_fd, self._own_log = server, signs_fd, log_
        self._holding = Holding(number, epoch)
        self._on_one_host = settings_for(launch, EngineSettings).on_one_host
        self._disk = SlotDisk(Path(launch.working_dir) / "pool", epoch)
        settings = settings_for(launch, SchedulerSettings)
        self._grace_s = settings.kill_grace_s
        self._logging = settings_for(launch, LoggingSettings)
        self._supervisor = Supervisor(limits_of(settings))
        #: Map from process name to run; an entry stays until its process has ended.
        self._runs: dict[str, Run] = {}
        self._epochs: dict[str, int] = {}
        #: By topology id: its launch on this host; whether it is being prepared; the time of the next attempt.
        self._ready: dict[str, LaunchSpec] = {}
        self._preparing: set[str] = set()
        self._failed: dict[str, float] = {}
        self._loads = TreeLoads()
        self._answered = b""
        #: The number of the map from which this process resumed. Containers that came here with this map or an earlier
        #: one are not reported as moved.
        self._resumed = 0
        self._exit_code: int = exit_codes.OK
        self._jobs = Jobs()

    # ---- life -------------------------------------------------------------------------------
    async def run(self) -> int:
        """Run the executors that the map requires, until the process is stopped."""
        loop = asyncio.get_running_loop()
        self._dirty, self._say, self._stopped = asyncio.Event(), asyncio.Event(), asyncio.Event()
        for signum in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signum, self._stop)
        self._host = ProcessHost(self._server, self._supervisor, self)
        folder = Path(self._launch.working_dir)
        text = read_private(folder / arriving.TOKEN, TEXT_MAX_CHARS).decode(errors="replace")
        token, credential = JoinToken.from_text(text, str(folder)), SessionCredential.load(folder)
        self._link = SchedulerLink(token, credential.container, credential.submission, secret=credential.secret)
        self._state = open_state_of(self._launch, owns=False)
        self._jobs.every(SIGN_S, self._sign)
        self._jobs.every(SAMPLE_S, lambda: self._jobs.start(self._measure()))
        self._jobs.start(self._follow())
        self._jobs.start(self._answer())
        log.info("slot %d is running in epoch %d", self._number, self._holding.epoch)
        await self._stopped.wait()
        await self._jobs.close()
        self._host.close()
        self._link.close()
        self._state.close()
        return self._exit_code

    def _stop(self) -> None:
        if not self._supervisor.stopping:
            log.info("slot %d stops", self._number)
            self._host.handle(StopAsked("its slot is stopping"))

    def _sign(self) -> None:
        self._own_log.rotate_if_large()
        if self._signs_fd >= 0:
            with contextlib.suppress(OSError):  # a full pipe contains enough heartbeats
                os.write(self._signs_fd, b".")
        self._host.handle(Tick())

    # ---- desired processes ------------------------------------------------------------------
    async def _follow(self) -> None:
        loop, watched, complaint = asyncio.get_running_loop(), False, ""

        def changed(_: str) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed, because this process is ending
                loop.call_soon_threadsafe(self._dirty.set)

        kept = await asyncio.to_thread(self._disk.read)
        if kept is not None:
            log.info("slot %d resumes from map %d on its disk", self._number, kept[0].number)
            self._holding.take(*kept)
            self._resumed = kept[0].number
            self._reconcile()
        while True:
            self._dirty.clear()
            pause_s = POLL_S
            try:
                if not watched:
                    await asyncio.to_thread(self._state.watch, paths.pool_map(self._launch.topology), changed)
                    watched = True
                found = await asyncio.to_thread(self._read)
                if found is not None:
                    await asyncio.to_thread(self._disk.keep, *found)
                    self._holding.take(*found)
                complaint = ""
            except (HeronError, OSError) as error:
                pause_s = AGAIN_S
                if str(error) != complaint:
                    complaint = str(error)
                    log.warning("the pool's map cannot be read (%s), so the slot keeps its last map", error)
            self._reconcile()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._dirty.wait()

    def _read(self) -> tuple[Map, dict[int, tuple[Spec, ...]]] | None:  # called in a thread
        pool = self._launch.topology
        found = self._state.get(paths.pool_map(pool))
        if found is None:
            return None
        known = unpack(Map, found[0], f"the map of pool '{pool}'")
        buckets = {}
        for bucket in self._holding.stale(known):
            content = self._state.get(paths.pool_specs(pool, bucket))
            if content is None:
                raise StateError(f"bucket {bucket} of the specifications of pool '{pool}' is missing")
            buckets[bucket] = unpack(tuple[Spec, ...], content[0], f"bucket {bucket} of pool '{pool}'")
        return known, buckets

    def _reconcile(self) -> None:
        if self._supervisor.stopping:
            return
        self._remove_old()
        wanted, again = self._holding.runs(), []
        for key, run in wanted.items():
            if key[0] not in self._ready:
                self._prepare(run.spec)
                continue
            before, self._runs[name_of(key)] = self._runs.get(name_of(key)), run
            if before is not None and before.restarts != run.restarts:
                again.append(name_of(key))
            if before is not None and before.ram_bytes < run.ram_bytes == self._limit_of(run):
                container_group.resize(container_group.group_name(*key), 0.0, run.ram_bytes)
        specs = [
            ProcessSpec(name_of(key), "executor", stop_grace_s=self._grace_s)
            for key in sorted(wanted)
            if key[0] in self._ready
        ]
        self._host.handle(DesiredChanged(tuple(specs)))
        if again:
            self._host.handle(RestartAsked(tuple(again), "on request"))
        self._say.set()

    # ---- files of a topology ----------------------------------------------------------------
    def _remove_old(self) -> None:
        """Remove the files of topologies that have left the pool and have no processes left in this slot."""
        known = {spec.topology_id for spec in self._holding.specs} | {
            one.spec.topology_id for one in self._runs.values()
        }
        for old in self._ready.keys() - known:
            launch = self._ready.pop(old)
            self._jobs.start(asyncio.to_thread(_remove, launch))

    def _prepare(self, spec: Spec) -> None:
        known = spec.topology_id
        if known in self._preparing or time.monotonic() < self._failed.get(known, 0.0):
            return
        self._preparing.add(known)
        self._jobs.start(self._make_ready(spec))

    async def _make_ready(self, spec: Spec) -> None:
        known, loop = spec.topology_id, asyncio.get_running_loop()

        def read(package: str, offset: int) -> bytes:
            return asyncio.run_coroutine_threadsafe(self._link.read_package(package, offset), loop).result()

        try:
            self._ready[known] = await asyncio.to_thread(_arrive, self._launch, spec, read)
            self._failed.pop(known, None)
        except (HeronError, OSError) as error:
            log.error("topology %s cannot run here yet: %s", spec.topology, error)
            self._failed[known] = time.monotonic() + PREPARE_AGAIN_S
            loop.call_later(PREPARE_AGAIN_S, self._dirty.set)
        finally:
            self._preparing.discard(known)
        self._reconcile()

    # ---- answers ----------------------------------------------------------------------------
    def _running(self) -> set[Key]:
        views = self._supervisor.views()
        return {self._key(view.spec.name) for view in views if view.state not in _GONE}

    def _key(self, name: str) -> Key:
        run = self._runs[name]
        return run.spec.topology_id, run.container

    async def _measure(self) -> None:
        pids = {
            view.spec.name: view.pid
            for view in self._supervisor.views()
            if view.pid and self._may_measure(view.spec.name)
        }
        await asyncio.to_thread(self._loads.sample, pids, time.monotonic())
        self._say.set()

    def _may_measure(self, name: str) -> bool:
        """Whether to measure a process. A Spark driver is not measured, because its heap may fill at any time."""
        run = self._runs[name]
        return run.container > 0 or not self._ready[run.spec.topology_id].needs_spark

    async def _answer(self) -> None:
        """Report the running executors when they change."""
        path = paths.pool_slot(self._launch.topology, self._number)
        while True:
            await self._say.wait()
            self._say.clear()
            content = pack(
                Answer(
                    self._holding.epoch,
                    self._holding.answer(self._running()),
                    {view.spec.name: self._record(view.spec.name) for view in self._supervisor.views()},
                    self._loads.known(time.monotonic()),
                    self._life,
                )
            )
            if content == self._answered:
                continue
            try:
                await asyncio.to_thread(self._state.set, path, content)
                self._answered = content
            except (HeronError, OSError) as error:
                log.debug("cannot report to the pool's keeper: %s", error)
                self._say.set()
                await asyncio.sleep(AGAIN_S)

    def _record(self, name: str) -> bytes:
        view = self._supervisor.view(name)
        assert view is not None
        record = view.record(self._host.started_at.get(name, 0.0), self._epochs.get(name, 0))
        record.name = executor_id(self._runs[name].container)
        return record.SerializeToString(deterministic=True)

    # ---- callbacks of the process host ------------------------------------------------------
    def command_of(self, spec: ProcessSpec, number: int) -> Command:
        run = self._runs[spec.name]
        launch, epoch = self._ready[run.spec.topology_id], run.epoch(number, self._life)
        self._epochs[spec.name] = epoch
        view = self._supervisor.view(spec.name)
        after, text = view.exit_reason if view is not None else None, ""
        if after is None and run.moved and run.number > self._resumed:
            after, text = ExitReason.MOVED, MOVED_TEXT
        file = str(Path(launch.working_dir) / arriving.LAUNCH)
        argv = ("--launch", file, "--container", str(run.container), "--epoch", str(epoch),
                *((f"--after={after.value}", f"--after-text={text}") if after is not None else ()),
                *((f"--ram-bytes={limit}",) if (limit := self._limit_of(run)) else ()))  # fmt: skip
        log.info("lease: %s starts in epoch %d, according to map %d", spec.name, epoch, run.number)
        return Command(spec.name, "heronpy.executor", argv, cwd=launch.working_dir)

    def _limit_of(self, run: Run) -> int:
        """The memory limit of a container; 0 if it has none, or if the engine limits the slot instead."""
        launch = self._ready[run.spec.topology_id]
        limited = self._on_one_host and settings_for(launch, ExecutorSettings).control_groups
        return run.ram_bytes if limited else 0

    def open_output(self, name: str) -> int:
        run = self._runs[name]
        path = self._ready[run.spec.topology_id].log_dir / f"{executor_id(run.container)}.log"
        return OwnLog(str(path), self._logging.file_max_bytes, self._logging.files_max).open()

    def termination_report(self, name: str, killed: bool) -> tuple[str, bool]:
        """The last line of the executor's own log."""
        run = self._runs[name]
        path = self._ready[run.spec.topology_id].log_dir / f"{executor_id(run.container)}.log"
        return "" if killed else last_line_in(path), False

    def on_changed(self) -> None:
        self._say.set()

    def on_removed(self, name: str) -> None:
        log.info("lease: %s has stopped", name)
        run = self._runs.pop(name)
        if self._on_one_host:
            group = container_group.group_name(run.spec.topology_id, run.container)
            self._jobs.start(asyncio.to_thread(container_group.remove, group))
        self._loads.forget(name)
        self._say.set()

    def on_give_up(self, effect: GiveUp) -> None:
        log.error("%s has failed permanently: %s", effect.name, effect.detail)

    def on_ended(self, effect: Ended) -> None:
        if effect.reason is not ExitReason.PREEMPTED:
            log.warning("%s has ended (%s): %s", effect.spec.name, effect.reason.value, effect.detail)

    def on_all_stopped(self) -> None:
        self._stopped.set()

    def on_server_gone(self) -> None:
        self._exit_code = exit_codes.FAILURE
        self._stopped.set()


def _arrive(slot: LaunchSpec, spec: Spec, read: Callable[[str, int], bytes]) -> LaunchSpec:  # called in a thread
    """Create a topology's folders and files below the slot's own folder, and fetch the topology's package."""
    submitted = Submitted.from_bytes(spec.submitted.encode(), f"the specification of '{spec.topology}'")
    name = short_hash(spec.topology_id)
    folder, sockets = Path(slot.working_dir) / "topologies" / name, Path(slot.sockets_dir) / name[:8]
    for one in (folder.parent, folder, sockets):
        make_private(one)
    here = replace(
        slot.here, working_dir=str(folder), sockets_dir=str(sockets), checkpoints=str(folder / "checkpoints")
    )
    launch = LaunchSpec(submitted, here)
    make_folders(launch.log_dir)
    package = submitted.package
    if package is not None:
        store = PackageStore(here.packages)
        store.fetch(package, lambda offset: read(package, offset), spec.package_bytes, spec.package_sha256)
    if submitted.environment:
        engine = settings_for(launch, EngineSettings)
        launch = arriving.with_environment(launch, home_of(engine.home), engine.environment)
    keys = curve.load(slot.working_dir, slot.topology_id)
    curve.save(curve.folder_of(str(folder)), keys.server, keys.client)
    launch.save(folder / arriving.LAUNCH)
    return launch


def _remove(launch: LaunchSpec) -> None:  # called in a thread
    for folder in (launch.sockets_dir, launch.working_dir):
        shutil.rmtree(folder, ignore_errors=True)


def beside_state(launch: LaunchSpec) -> LaunchSpec:
    """The launch of a slot, which accesses the state's files directly if it runs on the scheduler's host."""
    submitted = launch.submitted
    if not settings_for(launch, EngineSettings).on_one_host or submitted.state_type != "local":
        return launch
    root = str(submitted.settings["statemgr"]["root"])
    return replace(launch, here=replace(launch.here, token="", state_root=root))


def main(argv: list[str] | None = None) -> int:
    """Run the slot; returns its exit code."""
    arguments = parse(argv)
    if arguments.parent and not die_with_parent(signal.SIGKILL, arguments.parent):
        return exit_codes.LOST_PARENT
    try:
        launch = beside_state(LaunchSpec.load(arguments.launch))
        settings = settings_for(launch, LoggingSettings)
        make_folders(launch.log_dir)
        path = launch.log_dir / f"{executor_id(arguments.container)}.log"
        own_log = OwnLog(str(path), settings.file_max_bytes, settings.files_max)
        own_log.redirect()
        setup(f"slot-{arguments.container}", settings.level)
        lift_files()
        # Started before this process has any thread, socket, event loop or lock.
        server = ForkServer.start("fork-server", (*PRELOAD, module_of(launch.state_type)))
    except (HeronError, OSError) as error:
        print(f"slot {arguments.container}: {error}", file=sys.stderr, flush=True)
        return exit_codes.STARTUP_FAILURE
    return run_loop(
        lambda: Slot(
            launch, arguments.container, arguments.epoch, arguments.life, server, arguments.signs_fd, own_log
        ).run()
    )


if __name__ == "__main__":
    sys.exit(main())
