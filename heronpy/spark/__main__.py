"""`python -m heronpy.spark --launch F --epoch E`: the Spark gateway of one topology."""

from __future__ import annotations

import argparse
import logging
import sys
import time

from heronpy.common import logs
from heronpy.common.errors import ConfigError, FencedError, HeronError
from heronpy.common.exit_codes import FAILURE, FENCED, STARTUP_FAILURE, UNAVAILABLE
from heronpy.common.setting_types import LoggingSettings, SparkSettings
from heronpy.common.settings import settings_for
from heronpy.connectors.spark.requirements import check_spark
from heronpy.plan.launch import LaunchSpec
from heronpy.procs import sampler
from heronpy.spark.gateway import Gateway
from heronpy.spark.outage import outage_of
from heronpy.spark.reports import PROCESS, Reports

log = logging.getLogger("heronpy.spark")

#: Pause in seconds before this process ends because of an outage: its successor starts immediately, and the restart is
#: not counted.
AGAIN_S = 1.5


def main(argv: list[str] | None = None) -> int:
    """Run the gateway; return the exit code of the process."""
    parser = argparse.ArgumentParser(prog="python -m heronpy.spark", description=__doc__)
    parser.add_argument("--launch", required=True, help="launch file of the topology")
    parser.add_argument("--epoch", required=True, type=int, help="incarnation of this process")
    arguments = parser.parse_args(argv)
    launch = LaunchSpec.load(arguments.launch)
    logs.setup(PROCESS, settings_for(launch, LoggingSettings).level)
    sampler.install(launch.sockets_dir)
    reports = Reports(launch.sockets_dir, arguments.epoch)
    try:
        settings = settings_for(launch, SparkSettings)
        check_spark(settings.master)
        return Gateway(launch, settings, arguments.epoch, reports).run()
    except ConfigError as error:
        log.error("%s", error)
        reports.send_exception(error, startup=True)
        return int(STARTUP_FAILURE)
    except FencedError as error:
        log.error("%s", error)
        return int(FENCED)
    except Exception as error:
        outage = outage_of(error)
        if outage is not None:
            log.error("%s; a new process will retry", outage)
            reports.waits_for = outage
            reports.send_metrics({})
            time.sleep(AGAIN_S)
            return int(UNAVAILABLE)
        if not isinstance(error, HeronError):
            raise
        log.exception("%s", error)
        reports.send_exception(error)
        return int(FAILURE)
    finally:
        reports.close()


if __name__ == "__main__":
    sys.exit(main())
