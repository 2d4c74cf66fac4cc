"""`python -m heronpy.tmaster --launch F [--epoch E]`: the topology master of one topology."""

from __future__ import annotations

import argparse
import asyncio
import functools
import logging
import os
import signal
import sys

import uvloop

from heronpy.common import logs
from heronpy.common.errors import ConfigError, HeronError
from heronpy.common.exit_codes import FAILURE, USAGE
from heronpy.common.setting_types import CheckpointSettings, InstanceSettings, LoggingSettings, TmasterSettings
from heronpy.common.settings import settings_for
from heronpy.net.state import open_state_of
from heronpy.net.transport import endpoint_of, keys_of, remove_stale
from heronpy.net.zsock import send_the_rest
from heronpy.plan.launch import LaunchSpec
from heronpy.procs import sampler
from heronpy.storage.stores import open_stores
from heronpy.tmaster.archive import Archive
from heronpy.tmaster.shell import Shell

log = logging.getLogger("heronpy.tmaster")


async def _run(shell: Shell) -> int:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, shell.stop)
    return await shell.run()


def _endpoint(launch: LaunchSpec, name: str) -> str:
    """Return an endpoint that is unique to this process, because a standby has no epoch yet."""
    remove_stale(launch.sockets_dir, name)
    return endpoint_of(launch, f"{name}.{os.getpid():x}.control")


def main(argv: list[str] | None = None) -> int:
    """Run the topology master; return the exit code of the process."""
    parser = argparse.ArgumentParser(prog="python -m heronpy.tmaster", description=__doc__)
    parser.add_argument("--launch", required=True, help="launch file of the topology")
    parser.add_argument("--name", default="tmaster", help="name of this process, for its log")
    parser.add_argument("--epoch", type=int, help="incarnation of this process; default: the next incarnation")
    arguments = parser.parse_args(argv)
    try:
        launch = LaunchSpec.load(arguments.launch)
        logs.setup(arguments.name, settings_for(launch, LoggingSettings).level)
        sampler.install(launch.sockets_dir)
        state = open_state_of(launch)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return int(USAGE)
    except HeronError as error:
        log.error("%s", error)
        return int(FAILURE)
    try:
        settings = settings_for(launch, TmasterSettings)
        checkpoints = settings_for(launch, CheckpointSettings)
        shell = Shell(
            launch.topology,
            settings,
            state,
            epoch=arguments.epoch,
            endpoint=_endpoint(launch, arguments.name),
            topology_id=launch.topology_id,
            keys=keys_of(launch),
            checkpoints=checkpoints,
            archive=Archive(lambda: open_stores(launch, checkpoints), launch.release),
            instance=functools.cache(lambda component: settings_for(launch, InstanceSettings, component)),
            folders=(launch.working_dir, *([launch.state_root] if launch.state_type == "local" else [])),
            process=arguments.name,
        )
        code = uvloop.run(_run(shell))
        send_the_rest()
        return code
    except HeronError as error:
        log.error("%s", error)
        return int(FAILURE)
    finally:
        state.close()


if __name__ == "__main__":
    sys.exit(main())
