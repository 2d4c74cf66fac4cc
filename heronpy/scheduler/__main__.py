"""`python -m heronpy.scheduler --launch F`: the scheduler's daemon, one per topology.

A guardian is its parent, and restarts it when it is killed or hangs. Containers run on this host, or on an engine if
the topology was submitted to one. Modules that both the scheduler and its fork server need are loaded before the fork,
so that they are loaded only once.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys

from heronpy.common import exit_codes
from heronpy.common.errors import HeronError
from heronpy.common.folders import make_folders, open_private
from heronpy.plan.launch import SLOT, LaunchSpec, load_submitted, make_here, save_here
from heronpy.procs.fork_loop import load_modules
from heronpy.procs.forkserver import ForkServer
from heronpy.procs.linux import lift_files
from heronpy.procs.preload import PRELOAD, SHARED
from heronpy.scheduler.guardian import Pulse, guard


def main(argv: list[str] | None = None, executor_module: str = "heronpy.executor") -> int:
    """Run the scheduler as the child of a guardian; returns its exit code."""
    parser = argparse.ArgumentParser(prog="heronpy.scheduler", description="The scheduler of one topology.")
    parser.add_argument("--launch", required=True, help="path of launch.json")
    arguments = parser.parse_args(argv)
    launch_file = os.path.abspath(arguments.launch)
    os.environ["HERON_LAUNCH"] = launch_file
    with contextlib.suppress(PermissionError):  # already the leader of its session's group
        os.setsid()
    try:
        submitted = load_submitted(launch_file)
        launch = LaunchSpec(submitted, make_here(submitted, launch_file))
        # All other processes of the topology on this host read this file.
        save_here(launch.here, launch_file)
        make_folders(launch.log_dir)
        log_file = str(launch.log_dir / "scheduler.log")
        fd = open_private(log_file, os.O_WRONLY | os.O_APPEND)
    except (HeronError, OSError) as error:
        print(f"scheduler: {error}", file=sys.stderr, flush=True)
        return exit_codes.STARTUP_FAILURE
    for stream in (1, 2):
        os.dup2(fd, stream)
    os.close(fd)
    if submitted.engine:
        # Imported before the guardian forks, so that the successor of a killed scheduler need not import it.
        import heronpy.scheduler.reconciler  # noqa: F401
    return guard(lambda pulse: run(launch, launch_file, executor_module, pulse))


def run(launch: LaunchSpec, launch_file: str, executor_module: str, pulse: Pulse) -> int:
    """Run the scheduler for containers on this host or on an engine; returns its exit code."""
    try:
        lift_files()  # all processes of the topology inherit it
        # Forked before this process has any thread, socket, event loop or lock.
        server = None
        if not launch.submitted.engine:
            load_modules(SHARED)
            server = ForkServer.start("fork-server", PRELOAD, output=1)
        from heronpy.storage.roots import check_folders

        check_folders(launch)
    except (HeronError, OSError) as error:
        print(f"scheduler: {error}", file=sys.stderr, flush=True)
        return exit_codes.STARTUP_FAILURE
    from heronpy.common.logs import setup
    from heronpy.common.setting_types import LoggingSettings
    from heronpy.common.settings import settings_for
    from heronpy.net.zsock import send_the_rest
    from heronpy.procs.loop import run_loop

    setup("scheduler", settings_for(launch, LoggingSettings).level)
    if launch.submitted.program == SLOT:
        from heronpy.scheduler.pool_scheduler import PoolScheduler

        code = run_loop(lambda: PoolScheduler(launch, pulse).run())
    elif server is None:
        from heronpy.scheduler.reconciler import EngineScheduler

        code = run_loop(lambda: EngineScheduler(launch, pulse).run())
    else:
        from heronpy.scheduler.local import LocalScheduler

        code = run_loop(lambda: LocalScheduler(launch, launch_file, server, executor_module, pulse).run())
    send_the_rest()
    return code


if __name__ == "__main__":
    sys.exit(main())
