"""What an executor says to a task."""

from __future__ import annotations

import pytest

from heronpy.common import exit_codes
from heronpy.procs.exit_reason import ExitReason
from instance.__main__ import Arguments, main

GIVEN = ["--launch", "launch.json", "--container", "1", "--task", "4", "--epoch", "1048576"]


def test_all_arguments() -> None:
    assert Arguments.of(GIVEN) == Arguments("launch.json", 1, 4, 1 << 20)
    assert Arguments.of(["--after", "crashed", *GIVEN]).after is ExitReason.CRASHED


@pytest.mark.parametrize(
    "argv",
    [[], GIVEN[2:], GIVEN[:-1], [*GIVEN, "--help"], [*GIVEN, "--name", "x"], [*GIVEN[:-1], "first"],
     [*GIVEN, "--after", "lunch"]],
)  # fmt: skip
def test_other_arguments_are_refused_with_the_usage(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == exit_codes.USAGE
    assert "usage: python -m instance --launch FILE" in capsys.readouterr().err
