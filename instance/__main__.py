"""`python -m instance --launch F --container C --task T --epoch E`: run one task."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from heronpy.common import exit_codes
from heronpy.common.errors import HeronError, RetryableError
from heronpy.common.logs import capture_prints, setup
from heronpy.common.setting_types import LoggingSettings
from heronpy.common.settings import settings_for
from heronpy.plan.launch import LaunchSpec
from heronpy.procs import exit_notice
from heronpy.procs.exit_reason import ExitReason

from .lifecycle import run

_USAGE = "python -m instance --launch FILE --container N --task N --epoch N [--after REASON]"
#: The arguments, and the functions that convert their values.
_KINDS: dict[str, Callable[[str], Any]] = {
    "--launch": str,
    "--container": int,
    "--task": int,
    "--epoch": int,
    "--after": ExitReason,
}


class Arguments(Struct, frozen=True):
    """The arguments that an executor passes to a task."""

    #: Path of launch.json.
    launch: str
    container: int
    task: int
    #: Incarnation of this task.
    epoch: int
    #: The reason why the previous incarnation ended.
    after: ExitReason | None = None

    @classmethod
    def of(cls, argv: Sequence[str]) -> Arguments:
        """Parse alternating names and values. Raises ValueError for anything else.

        argparse is not used, because a parser would make each task copy 0.9 MB of memory that it shares with others.
        """
        names, values = argv[::2], argv[1::2]
        required = set(_KINDS) - {"--after"}
        if len(names) != len(values) or not required <= set(names) <= set(_KINDS):
            raise ValueError("an argument is missing, unknown or without a value")
        return cls(**{name[2:]: _KINDS[name](value) for name, value in zip(names, values)})


def main(argv: list[str] | None = None) -> int:
    """Run one task; announce its exit code to this process's supervisor, and return the code."""
    exit_notice.claim()
    try:
        args = Arguments.of(sys.argv[1:] if argv is None else argv)
    except ValueError as error:
        print(f"{error}; usage: {_USAGE}", file=sys.stderr)
        exit_notice.announce(exit_codes.USAGE)
        return exit_codes.USAGE
    code = _run(args)
    exit_notice.announce(code)
    return code


def _run(args: Arguments) -> int:
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
