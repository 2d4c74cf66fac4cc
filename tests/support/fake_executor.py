"""Runs the real executor with fake children; `main(argv)` takes the arguments of `python -m heronpy.executor`.

Each request to its state manager appends a line to `<working_dir>/requests`, and each start appends its cause to
`causes`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from heronpy.executor import shell
from heronpy.executor.__main__ import main as executor_main
from heronpy.executor.__main__ import parse
from heronpy.executor.desired import Roles
from heronpy.net.state import open_state_of
from heronpy.plan.launch import LaunchSpec

FAKES = "tests.support.fake_children"
ROLES = Roles(tmaster=FAKES, stmgr=FAKES, instance=FAKES, spark_gateway=FAKES)


class Counted:
    """A state manager that records each request."""

    def __init__(self, launch: LaunchSpec, owns: bool = True) -> None:
        self._state = open_state_of(launch, owns)
        self._file = Path(launch.working_dir) / "requests"

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._state, name)

        def call(*arguments: Any, **options: Any) -> Any:
            with open(self._file, "a") as file:
                file.write(f"{name} {arguments[0] if arguments else ''}\n")
            return method(*arguments, **options)

        return call


def main(argv: list[str] | None = None) -> int:
    shell.open_state_of = Counted  # type: ignore[assignment]
    given = parse(argv)
    with open(Path(LaunchSpec.load(given.launch).working_dir) / "causes", "a") as file:
        file.write(json.dumps([given.container, given.after, given.after_text]) + "\n")
    return executor_main(argv, ROLES)


if __name__ == "__main__":
    sys.exit(main())
