"""Runs the real local scheduler with executors that start fake children."""

from __future__ import annotations

import sys

from heronpy.scheduler.__main__ import main as scheduler_main


def main(argv: list[str] | None = None) -> int:
    return scheduler_main(argv, "tests.support.fake_executor")


if __name__ == "__main__":
    sys.exit(main())
