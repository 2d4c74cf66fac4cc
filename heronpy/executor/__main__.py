"""`python -m heronpy.executor --launch F --container C --epoch E`: the executor of one container."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys

from heronpy.common import exit_codes
from heronpy.common.errors import HeronError
from heronpy.common.folders import make_folders
from heronpy.common.ids import executor_id
from heronpy.common.logs import setup
from heronpy.common.setting_types import ExecutorSettings, LoggingSettings
from heronpy.common.settings import settings_for
from heronpy.common.units import format_bytes
from heronpy.executor.desired import Place, Roles
from heronpy.net.state import module_of
from heronpy.plan.launch import LaunchSpec
from heronpy.procs.child_log import OwnLog
from heronpy.procs.forkserver import ForkServer
from heronpy.procs.linux import die_with_parent, lift_files
from heronpy.procs.preload import preload_of

log = logging.getLogger("heronpy.executor")


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="heronpy.executor", description="The executor of one container.")
    parser.add_argument("--launch", required=True, help="path of launch.json")
    parser.add_argument("--container", required=True, type=int, help="number of the container")
    parser.add_argument("--epoch", required=True, type=int, help="incarnation of the container")
    parser.add_argument(
        "--parent", type=int, default=0, help="pid of the process whose end also ends the executor; 0: none"
    )
    parser.add_argument(
        "--signs-fd",
        type=int,
        default=-1,
        help="file descriptor to which the executor writes heartbeats, one byte each",
    )
    parser.add_argument(
        "--echo-fd", type=int, default=-1, help="file descriptor to which all of the container's log lines are written"
    )
    parser.add_argument("--life", type=int, default=0, help="number of times that the slot has ended in this epoch")
    parser.add_argument("--after", default="", help="why the container was restarted; empty if unknown")
    parser.add_argument("--after-text", default="", help="explanation of --after, shown to users")
    parser.add_argument("--cpu", type=float, default=0.0, help="maximum number of cores for the container; 0: no limit")
    parser.add_argument("--ram-bytes", type=int, default=0, help="maximum memory in bytes; 0: no limit")
    return parser.parse_args(argv)


def _limit(launch: LaunchSpec, arguments: argparse.Namespace) -> str:
    """Limit the resources of this process and its future children; returns the reason if that fails, else ""."""
    from heronpy.procs import container_group  # only for topologies that request resources

    container, cpu, ram_bytes = arguments.container, arguments.cpu, arguments.ram_bytes
    size = " and ".join([f"{cpu:g} cores"] * bool(cpu) + [f"{format_bytes(ram_bytes)} of memory"] * bool(ram_bytes))
    try:
        container_group.enter(container_group.group_name(launch.topology_id, container), os.getpid(), cpu, ram_bytes)
    except OSError as error:
        log.warning("container %d is not limited to the requested %s: %s", container, size, error)
        return str(error)
    log.info("a control group limits container %d to %s", container, size)
    return ""


def main(argv: list[str] | None = None, roles: Roles | None = None) -> int:
    """Run the executor; returns its exit code. `roles` names the module to run for each kind of process."""
    arguments = parse(argv)
    if arguments.parent and not die_with_parent(signal.SIGKILL, arguments.parent):
        return exit_codes.LOST_PARENT
    try:
        launch = LaunchSpec.load(arguments.launch)
        logging_settings = settings_for(launch, LoggingSettings)
        preload = settings_for(launch, ExecutorSettings).preload
        name = executor_id(arguments.container)
        make_folders(launch.log_dir)
        own_log = OwnLog(
            str(launch.log_dir / f"{name}.log"), logging_settings.file_max_bytes, logging_settings.files_max
        )
        own_log.redirect()
        setup(name, logging_settings.level)
        os.environ["HERON_LAUNCH"] = arguments.launch
        not_limited = _limit(launch, arguments) if arguments.cpu or arguments.ram_bytes else ""
        lift_files()  # all processes of the container inherit it
        # Loaded once for this process and its fork server. The server needs the same modules, and would not be ready
        # sooner if it loaded them itself.
        from heronpy.executor.shell import Executor
        from heronpy.procs.loop import run_loop

        # Started before this process has any thread, socket, event loop or lock.
        server = ForkServer.start(
            f"fork-server-{arguments.container}",
            (*preload_of(arguments.container), module_of(launch.state_type)) if preload else (),
        )
        from heronpy.storage.roots import check_folders

        check_folders(launch)
    except (HeronError, OSError) as error:
        print(f"executor of container {arguments.container}: {error}", file=sys.stderr, flush=True)
        return exit_codes.STARTUP_FAILURE
    given = arguments
    place = Place(launch, given.launch, given.container, given.epoch, given.after, given.after_text, not_limited)
    return run_loop(lambda: Executor(place, server, roles, arguments.signs_fd, arguments.echo_fd).run())


if __name__ == "__main__":
    sys.exit(main())
