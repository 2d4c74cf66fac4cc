"""However a program's path is written, its tasks find the program and what it imports."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from heronpy.common.folders import absolute, heron_home
from heronpy.plan.launch import LaunchSpec
from tests.cli.conftest import Heron
from tests.cli.test_submit import MAIN


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """work/here is where the command runs; work/my programs/topo.py imports a file of the same folder."""
    work = tmp_path / "work"
    (work / "here").mkdir(parents=True)
    programs = work / "my programs"
    programs.mkdir()
    (programs / "topo.py").write_text("import helper\n" + MAIN)
    (programs / "helper.py").write_text("")
    shutil.copytree(programs, work / "folder")
    (work / "folder" / "topo.py").rename(work / "folder" / "__main__.py")
    shutil.copy(work / "folder" / "__main__.py", work / "topo.py")
    shutil.copy(programs / "helper.py", work / "helper.py")
    (work / "link").symlink_to(programs)
    (work / "here" / "topo_link.py").symlink_to(programs / "topo.py")
    (work / "folder link").symlink_to(work / "folder")
    (tmp_path / "elsewhere").symlink_to(work / "here")
    return work


@pytest.mark.parametrize(
    "word",
    [
        "../topo.py",
        "../my programs/topo.py",
        "../here/../my programs/../topo.py",
        "../link/topo.py",
        "../link/../topo.py",
        "./topo_link.py",
        "../folder",
        "../folder link",
        "../folder/../folder link/",
    ],
)
def test_tasks_get_the_program_and_its_neighbours(
    heron: Heron, home: Path, tree: Path, runtime: Any, monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    monkeypatch.chdir(tree / "here")
    runtime("running")
    result = heron("submit", "local", word, "-", "--size", "big one")
    assert (result.code, result.err) == (0, "")
    launch = LaunchSpec.load(next(home.glob("topologies/local/*/wordy/launch.json")))
    assert launch.main_file is not None and launch.package_dir is not None
    assert MAIN in Path(launch.main_file).read_text()
    assert (Path(launch.package_dir) / "helper.py").is_file()
    assert launch.argv == [word, "--size", "big one"] and not launch.argv_names_topology
    assert heron("kill", "local", "wordy").code == 0


def test_a_program_behind_the_parent_of_a_linked_folder(
    heron: Heron, home: Path, tree: Path, runtime: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tree.parent)
    runtime("running")
    # The parent of the link's target, not of the link.
    assert heron("submit", "local", "elsewhere/../topo.py").code == 0
    launch = LaunchSpec.load(next(home.glob("topologies/local/*/wordy/launch.json")))
    assert launch.main_file is not None
    assert heron("kill", "local", "wordy").code == 0


@pytest.mark.parametrize("relative", ["../my home", "../here/../home", "home"])
def test_a_relative_home_is_the_same_for_every_process(
    heron: Heron, tree: Path, runtime: Any, monkeypatch: pytest.MonkeyPatch, relative: str
) -> None:
    monkeypatch.chdir(tree / "here")
    monkeypatch.setenv("HERON_HOME", relative)
    runtime("running")
    assert heron("submit", "local", "../topo.py").code == 0
    here = Path(os.path.normpath(tree / "here" / relative))
    assert heron_home() == here
    launch = LaunchSpec.load(next(here.glob("topologies/local/*/wordy/launch.json")))
    for path in (launch.working_dir, launch.state_root, launch.package_dir, launch.main_file):
        assert path is not None and path.startswith(f"{here}/") and ".." not in path
    monkeypatch.chdir(tree)
    monkeypatch.setenv("HERON_HOME", str(here))
    assert heron("kill", "local", "wordy").code == 0


def test_absolute_follows_links_before_a_parent_only(tree: Path) -> None:
    assert absolute(tree / "link" / "topo.py") == tree / "link" / "topo.py"
    assert absolute(tree / "link" / ".." / "link" / "x.py") == tree / "link" / "x.py"
    assert absolute(tree.parent / "elsewhere" / ".." / "nothing") == tree / "nothing"
    assert absolute("/..") == Path("/")
