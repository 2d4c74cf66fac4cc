"""`python -m heronpy.jobs --cluster C`: the manager of a cluster's jobs, below a guardian."""

from __future__ import annotations

import argparse
import signal
import sys

from heronpy.scheduler.guardian import Pulse, guard


def main() -> int:
    """Guard and run the manager; returns its exit code."""
    parser = argparse.ArgumentParser(prog="heronpy.jobs", description="The manager of the jobs of a cluster.")
    parser.add_argument("--cluster", required=True)
    parser.add_argument("--config-path")
    parser.add_argument("--config-property", action="append", default=[])
    given = parser.parse_args()
    return guard(lambda pulse: run(given, pulse), what="manager")


def run(given: argparse.Namespace, pulse: Pulse) -> int:
    """Run the manager; its exit code."""
    from heronpy.clusters.target import Common, Target
    from heronpy.common import exit_codes
    from heronpy.common.errors import HeronError
    from heronpy.common.logs import setup
    from heronpy.jobs.manager import Manager, log

    setup("manager")
    try:
        common = Common(given.config_path, tuple(given.config_property))
        manager = Manager(Target(given.cluster), common, pulse)
        for signum in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signum, lambda *_: manager.end())
        return manager.run()
    except HeronError as error:
        log.error("the manager cannot go on: %s", error)
        return exit_codes.STARTUP_FAILURE


if __name__ == "__main__":
    sys.exit(main())
