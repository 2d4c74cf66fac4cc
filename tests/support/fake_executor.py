"""The real executor with fake children; `main(argv)` as `python -m heronpy.executor` has it."""

from __future__ import annotations

import sys

from heronpy.executor.__main__ import main as executor_main
from heronpy.executor.desired import Roles

FAKES = "tests.support.fake_children"
ROLES = Roles(tmaster=FAKES, stmgr=FAKES, instance=FAKES, spark_gateway=FAKES)


def main(argv: list[str] | None = None) -> int:
    return executor_main(argv, ROLES)


if __name__ == "__main__":
    sys.exit(main())
