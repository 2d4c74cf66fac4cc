"""Limits of control groups."""

from __future__ import annotations

from pathlib import Path

import pytest

from heronpy.procs.cgroups import pids_left
from heronpy.procs.container_group import enter, group_name, prefix_of, remove


@pytest.mark.parametrize(
    ("groups", "folders", "left"),
    [
        ("0::/a/b\n", {"a/b": ("max", "5"), "a": ("100", "40")}, 60),
        ("0::/a/b\n", {"a/b": ("50", "45"), "a": ("100", "40")}, 5),
        ("8:pids:/x\n7:memory:/y\n", {"pids/x": ("10", "12"), "memory/y": ("1", "1")}, 0),
        ("0::/not/seen/here\n", {"": ("30", "10")}, 20),
        ("0::/\n8:pids:/\n", {}, None),
    ],
)
def test_the_tightest_group_counts(
    tmp_path: Path, groups: str, folders: dict[str, tuple[str, str]], left: int | None
) -> None:
    (tmp_path / "cgroup").write_text(groups)
    for folder, (most, used) in folders.items():
        (tmp_path / "fs" / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / "fs" / folder / "pids.max").write_text(f"{most}\n")
        (tmp_path / "fs" / folder / "pids.current").write_text(f"{used}\n")
    assert pids_left(str(tmp_path / "cgroup"), str(tmp_path / "fs")) == left


def test_without_groups_there_is_no_limit(tmp_path: Path) -> None:
    assert pids_left(str(tmp_path / "none"), str(tmp_path)) is None


def test_a_container_gets_a_group_with_limits_of_version_1(tmp_path: Path) -> None:
    (tmp_path / "cgroup").write_text("4:memory:/a\n1:cpu,cpuacct:/b\n0::/\n")
    memory, cpu = tmp_path / "fs" / "memory" / "a", tmp_path / "fs" / "cpu"
    for folder in (memory, cpu):
        folder.mkdir(parents=True)
    where = str(tmp_path / "cgroup"), str(tmp_path / "fs")
    name = group_name("wc-1", 2)
    enter(name, 7, 1.5, 1 << 30, *where)
    assert (memory / name / "memory.limit_in_bytes").read_text() == str(1 << 30)
    assert (memory / name / "cgroup.procs").read_text() == (cpu / name / "cgroup.procs").read_text() == "7"
    assert (cpu / name / "cpu.cfs_period_us").read_text() == "100000"
    assert (cpu / name / "cpu.cfs_quota_us").read_text() == "150000"
    enter(group_name("wc-1", 3), 8, 0.0, 1 << 20, *where)
    assert not (cpu / group_name("wc-1", 3)).exists(), "it asks for memory only"


def test_a_container_gets_a_group_with_limits_of_version_2(tmp_path: Path) -> None:
    (tmp_path / "cgroup").write_text("0::/user\n")
    user = tmp_path / "fs" / "user"
    user.mkdir(parents=True)
    (user / "cgroup.controllers").write_text("cpu io memory\n")
    enter("heron.wc-1.1", 7, 0.5, 1 << 20, str(tmp_path / "cgroup"), str(tmp_path / "fs"))
    group = user / "heron.wc-1.1"
    assert (group / "memory.max").read_text() == str(1 << 20) and (group / "cpu.max").read_text() == "50000 100000"
    assert (group / "cgroup.procs").read_text() == "7"


@pytest.mark.parametrize("groups", ["", "0::/user\n", "4:memory:/a\n"])
def test_without_groups_that_can_be_written_nothing_is_limited(tmp_path: Path, groups: str) -> None:
    (tmp_path / "cgroup").write_text(groups)
    with pytest.raises(OSError, match="no control group of this process has the controller 'memory'"):
        enter("heron.wc-1.1", 7, 0.5, 1 << 20, str(tmp_path / "cgroup"), str(tmp_path / "fs"))


def test_groups_are_removed_unless_a_process_is_in_them(tmp_path: Path) -> None:
    (tmp_path / "cgroup").write_text("4:memory:/\n1:cpu:/\n")
    memory = tmp_path / "fs" / "memory"
    for name in ("heron.wc-1.1", "heron.wc-1.2", "heron.wc-10.1"):
        (memory / name).mkdir(parents=True)
    (memory / "heron.wc-1.2" / "busy").touch()
    remove(prefix_of("wc-1"), str(tmp_path / "cgroup"), str(tmp_path / "fs"))
    assert sorted(one.name for one in memory.iterdir()) == ["heron.wc-1.2", "heron.wc-10.1"]
    for container in (1, 10):
        (memory / group_name("wc-1", container)).mkdir()
    remove(group_name("wc-1", 1), str(tmp_path / "cgroup"), str(tmp_path / "fs"))
    assert sorted(one.name for one in memory.iterdir()) == ["heron.wc-1.10", "heron.wc-1.2", "heron.wc-10.1"]
