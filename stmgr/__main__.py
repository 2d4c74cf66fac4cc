"""`python -m stmgr --launch F --container C --epoch E`: run the stream manager of one container."""

from __future__ import annotations

import argparse
import logging
import sys

from heronpy.common import exit_codes
from heronpy.common.errors import HeronError
from heronpy.common.ids import stmgr_id
from heronpy.common.logs import setup
from heronpy.common.setting_types import LoggingSettings
from heronpy.common.settings import settings_for
from heronpy.plan.launch import LaunchSpec
from heronpy.procs import sampler

from .shell import run


def main(argv: list[str] | None = None) -> int:
    """Run one stream manager; return its exit code."""
    parser = argparse.ArgumentParser(prog="stmgr", description=__doc__)
    parser.add_argument("--launch", required=True, help="path of launch.json")
    parser.add_argument("--container", type=int, required=True)
    parser.add_argument("--epoch", type=int, required=True, help="incarnation of this stream manager")
    args = parser.parse_args(argv)
    try:
        launch = LaunchSpec.load(args.launch)
        setup(stmgr_id(args.container), settings_for(launch, LoggingSettings).level)
        sampler.install(launch.sockets_dir)
        return run(launch, args.container, args.epoch)
    except HeronError as error:
        logging.getLogger("heron.stmgr").error("%s", error)
        return exit_codes.FAILURE


if __name__ == "__main__":
    sys.exit(main())
