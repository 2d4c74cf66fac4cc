"""`python -m heronpy.tracker`: the tracker that `heron ui` starts, on loopback and with a log file."""

from __future__ import annotations

import argparse
import sys

from heronpy.clusters.target import Common
from heronpy.common.errors import HeronError
from heronpy.common.folders import heron_home
from heronpy.common.logs import setup
from heronpy.procs.child_log import OwnLog
from heronpy.tracker.folder import LOG, folder_of

LOG_MAX_BYTES, LOGS_MAX = 1 << 20, 3


def main() -> int:
    """Serve until the idle time has passed without a request."""
    parser = argparse.ArgumentParser(prog="heronpy.tracker", description="The tracker, as 'heron ui' starts it.")
    parser.add_argument("--idle-exit", type=float, required=True, help="end after this many seconds without a request")
    parser.add_argument("--config-path", help="folder with the settings files <cluster>/<room>.yaml")
    arguments = parser.parse_args()
    own_log = OwnLog(str(folder_of(heron_home()) / LOG), LOG_MAX_BYTES, LOGS_MAX)
    own_log.redirect()
    setup("tracker", "INFO")
    try:
        from heronpy.tracker.serve import Options, run

        options = Options(idle_exit_s=arguments.idle_exit, by_ui=True, common=Common(arguments.config_path))
        return run(options, own_log.rotate_if_large)
    except (HeronError, OSError) as error:
        print(f"the tracker cannot start: {error}", file=sys.stderr, flush=True)
        return 1


if __name__ == "__main__":
    sys.exit(main())
