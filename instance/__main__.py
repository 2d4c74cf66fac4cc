"""`python -m instance --launch F --container C --task T --epoch E`: run one task."""

from __future__ import annotations

import argparse
import logging
import sys

from heronpy.common import exit_codes
from heronpy.common.errors import HeronError, RetryableError
from heronpy.common.logs import capture_prints, setup
from heronpy.common.setting_types import LoggingSettings
from heronpy.common.settings import settings_for
from heronpy.plan.launch import LaunchSpec
from heronpy.procs import exit_notice
from heronpy.procs.exit_reason import ExitReason

from .lifecycle import run


def main(argv: list[str] | None = None) -> int:
    """Run one task; returns its exit code, which it has announced to the supervisor of this process."""
    exit_notice.claim()
    try:
        args = _arguments(argv)
    except SystemExit:
        exit_notice.announce(exit_codes.USAGE)
        raise
    code = _run(args)
    exit_notice.announce(code)
    return code


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="instance", description=__doc__)
    parser.add_argument("--launch", required=True, help="path of launch.json")
    parser.add_argument("--container", type=int, required=True)
    parser.add_argument("--task", type=int, required=True)
    parser.add_argument("--epoch", type=int, required=True, help="incarnation of this task")
    parser.add_argument("--after", type=ExitReason, help="why the incarnation before this one ended")
    return parser.parse_args(argv)


def _run(args: argparse.Namespace) -> int:
    try:
        launch = LaunchSpec.load(args.launch)
        setup(f"task-{args.task}", settings_for(launch, LoggingSettings).level)
        capture_prints()
        return run(launch, args.container, args.task, args.epoch, args.after)
    except HeronError as error:
        logging.getLogger("heron.instance").error("%s", error)
        return exit_codes.UNAVAILABLE if isinstance(error, RetryableError) else exit_codes.STARTUP_FAILURE


if __name__ == "__main__":
    sys.exit(main())
