"""Limits of control groups."""

from __future__ import annotations

from pathlib import Path

import pytest

from heronpy.procs.cgroups import pids_left


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
