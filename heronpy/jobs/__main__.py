"""`python -m heronpy.jobs --cluster C --part P`: the syncer or scaler of a cluster's jobs, as a guardian's child."""

from __future__ import annotations

import argparse
import signal
import sys

from heronpy.scheduler.guardian import Pulse, guard


def main() -> int:
    """Start the guardian with the manager as its child; returns the exit code of the process."""
    parser = argparse.ArgumentParser(prog="heronpy.jobs", description="The manager of a cluster's jobs.")
    parser.add_argument("--cluster", required=True)
    parser.add_argument("--part", choices=("syncer", "scaler"), required=True)
    parser.add_argument("--config-path")
    parser.add_argument("--config-property", action="append", default=[])
    given = parser.parse_args()
    return guard(lambda pulse: run(given, pulse), what=given.part)


def run(given: argparse.Namespace, pulse: Pulse) -> int:
    """Run the syncer or the scaler until it ends; returns the exit code."""
    from heronpy.clusters.target import Common, Target
    from heronpy.common import exit_codes
    from heronpy.common.errors import HeronError
    from heronpy.common.logs import setup
    from heronpy.jobs.manager import SYNCER, Process, SyncerProcess, log

    setup(given.part)
    try:
        common = Common(given.config_path, tuple(given.config_property))
        kind: type[Process] = SyncerProcess
        if given.part != SYNCER:
            from heronpy.jobs.scaler import ScalerProcess

            kind = ScalerProcess
        process = kind(Target(given.cluster), common, pulse)
        for signum in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signum, lambda *_: process.end())
        return process.run()
    except HeronError as error:
        log.error("the %s cannot continue: %s", given.part, error)
        return exit_codes.STARTUP_FAILURE


if __name__ == "__main__":
    sys.exit(main())
