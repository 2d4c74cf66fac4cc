"""`heron clean` removes what topologies that have ended have left, and nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

import pytest

from heronpy.clusters.session import Session
from heronpy.clusters.target import Target
from heronpy.plan.launch import LAUNCH_VARIABLE
from tests.cli.conftest import FakeTopology, Heron

DAY_S = 86400.0


def ended(home: Path, name: str, days: float = 30.0, role: str = "me") -> Path:
    """The working folder of a topology that ended `days` ago."""
    folder = home / "topologies" / "local" / role / name
    (folder / "log-files").mkdir(parents=True)
    (folder / "log-files" / "tmaster.log").write_bytes(b"x" * 10_000)
    (folder / "launch.json").write_text("{}")
    age(folder, days)
    return folder


def age(folder: Path, days: float) -> None:
    then = time.time() - days * DAY_S
    for path in (*folder.rglob("*"), folder):
        os.utime(path, (then, then), follow_symlinks=False)


def test_old_folders_go_and_young_and_running_ones_stay(heron: Heron, wordy: FakeTopology, home: Path) -> None:
    old, young = ended(home, "old"), ended(home, "young", days=6.0)
    running = Path(wordy.record.working_dir)
    age(running, 30.0)
    planned = heron("clean", "local", "--dry-run")
    assert f"{old}  " in planned.out and "Would remove 1 working folder" in planned.out and old.exists()
    shown = json.loads(heron("clean", "local", "--json").out)
    assert [one["folder"] for one in shown["folders"]] == [str(old)] and shown["folders"][0]["bytes"] >= 10_000
    assert not old.exists() and young.exists() and (running / "log-files").exists()
    assert heron("clean", "local", "young", "--older-than", "0s").code == 0
    assert not young.exists() and (running / "log-files").exists()


def test_one_whose_processes_live_stays(heron: Heron, home: Path) -> None:
    """Its state may have been removed."""
    folder = ended(home, "old")
    environment = {**os.environ, LAUNCH_VARIABLE: str(folder / "launch.json")}
    with subprocess.Popen(["sleep", "60"], env=environment, start_new_session=True) as process:
        assert "Removed 0 working folders" in heron("clean", "local").out and folder.exists()
        process.kill()


def test_one_that_is_being_submitted_stays(heron: Heron, home: Path) -> None:
    folder = ended(home, "old")
    session = Session(Target.parse("local"))
    with session.operation("old"):
        result = heron("clean", "local")
    session.state.close()
    assert f"{folder} is kept: topology 'old' is running again, or another command" in result.err and folder.exists()


def test_links_are_not_followed(heron: Heron, home: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "deep").mkdir(parents=True)
    (outside / "deep" / "file").write_text("precious")
    age(outside, 60.0)
    folder = ended(home, "old")
    (folder / "linked").symlink_to(outside)
    (folder.parent / "link").symlink_to(outside)
    (folder.parent.parent / "role").symlink_to(outside)
    age(folder, 30.0)
    assert "Removed 1 working folder" in heron("clean", "local").out
    assert not folder.exists() and (outside / "deep" / "file").read_text() == "precious"


@pytest.mark.parametrize("kept", ["spark", "spool"])
def test_what_a_restore_needs_stays(heron: Heron, home: Path, kept: str) -> None:
    folder = ended(home, "old")
    (folder / kept).mkdir()
    (folder / kept / "batch").write_text("rows")
    age(folder, 30.0)
    assert heron("clean", "local").code == 0
    assert [path.name for path in folder.iterdir()] == [kept] and (folder / kept / "batch").read_text() == "rows"
    assert "Removed 0 working folders" in heron("clean", "local").out
