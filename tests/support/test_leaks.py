"""Processes that a test leaves behind are found and killed, whatever home they use."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.leaks import LeakCheck, processes_of


@pytest.mark.parametrize("home", ["home", "t/heron-load-home-x"])
def test_processes_of_homes_below_the_folder_of_a_test_are_killed(tmp_path: Path, home: str) -> None:
    """`heron verify` creates a home among the temporary files; if it is killed, its topology remains."""
    environ = {**os.environ, "HERON_HOME": str(tmp_path / home)}
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env=environ) as process:
        try:
            check = LeakCheck(home=str(tmp_path / "home"), sockets=tmp_path / "t")
            assert [word for word in check.look_home() if f"process {process.pid} " in word]
            assert processes_of(str(tmp_path / "hom")) == []
            check.kill_home()
            assert process.wait(60) < 0
        finally:
            process.kill()
