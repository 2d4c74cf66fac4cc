"""Memory and options of the driver's JVM, and which class archive it is given."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.common.setting_types import SparkSettings
from heronpy.common.units import GB, MB
from heronpy.procs.cgroups import memory_max_bytes
from heronpy.spark import archive
from heronpy.spark.session import SparkDriver
from heronpy.spark.tuning import JAVA_OPTIONS, LOCAL_MAX_BYTES, driver_bytes, driver_memory, java_options, part_rows

PART_ROWS, LOCAL_MAX = (
    f"spark.sql.execution.arrow.{name}" for name in ("maxRecordsPerBatch", "localRelationThreshold")
)


@given(st.integers(1, 10_000_000), st.integers(1, 4096), st.integers(1, 64))
def test_a_batch_is_a_few_parts_none_of_which_is_too_large_for_a_message(rows: int, width: int, cores: int) -> None:
    part = part_rows(rows, rows * width, cores, 10_000)
    assert part == 10_000 or (part * width <= 16 * MB and part < rows / cores + 1)
    assert -(-rows // part) <= max(cores, rows * width // (12 * MB) + 1, -(-rows // 10_000) if part == 10_000 else 0)


class Session:
    """Records with which properties a DataFrame is made."""

    def __init__(self) -> None:
        self.conf: dict[str, str] = {PART_ROWS: "10000", LOCAL_MAX: "48MB"}
        self.sparkContext = SimpleNamespace(defaultParallelism=2)
        self.made: list[dict[str, str]] = []

    def createDataFrame(self, table: pa.Table) -> pa.Table:
        self.made.append(dict(self.conf.items()))
        if not table.num_rows:
            raise ValueError("no rows")
        return table


class Conf(dict[str, str]):
    set = dict.__setitem__


@pytest.mark.parametrize("given", [{}, {LOCAL_MAX: "1MB"}, {PART_ROWS: 500}])
def test_rows_stay_arrow_in_a_part_for_each_core_and_the_users_properties_stay(
    tmp_path: Path, given: dict[str, object]
) -> None:
    session = Session()
    session.conf = Conf({**session.conf, **{key: str(value) for key, value in given.items()}})
    before = dict(session.conf)
    driver = SparkDriver(SparkSettings(conf=given), tmp_path, "x", sys.executable, None)
    table = pa.table({"n": range(100_000)})
    assert driver.frame(session, table) is table
    [made] = session.made
    assert made == {PART_ROWS: "50000", LOCAL_MAX: str(LOCAL_MAX_BYTES)} | {key: before[key] for key in given}
    with pytest.raises(ValueError, match="no rows"):
        driver.frame(session, table.slice(0, 0))
    assert session.conf == before, "what the user's function makes is made as ever"


@given(st.integers(1, 1 << 44))
def test_the_driver_gets_a_share_of_its_container(container: int) -> None:
    memory = int(driver_memory(container).removesuffix("m")) * MB
    assert 512 * MB <= memory <= 4 * GB
    assert memory <= max(container // 2, 512 * MB), "the tasks need memory, too"
    assert memory >= min(container // 8, 4 * GB) - MB


def test_more_memory_never_means_less() -> None:
    found = [int(driver_memory(size * MB)[:-1]) for size in range(1, 64 * 1024, 100)]
    assert found == sorted(found) and found[0] == 512 and found[-1] == 4096


def test_container_0_is_sized_for_the_driver_that_it_has() -> None:
    assert driver_bytes(SparkSettings(driver_memory="3g")) == 3 * GB
    assert driver_bytes(SparkSettings(master="spark://h:7077")) == 512 * MB
    assert driver_bytes(SparkSettings(master="sc://h:15002", driver_memory="3g")) == 512 * MB, "the driver is elsewhere"


def test_the_users_java_options_replace_ours() -> None:
    assert java_options({JAVA_OPTIONS: "-XX:+UseG1GC"}, "/a.jsa", "/t") == {}
    ours = java_options({}, "/a.jsa", "/t")[JAVA_OPTIONS].split()
    assert ours[-2:] == ["-XX:SharedArchiveFile=/a.jsa", "-Djava.io.tmpdir=/t"]
    assert java_options({"spark.driver.extraJavaOptions": "-Dx=1"}, None, "/t")[JAVA_OPTIONS].split() == [
        *ours[:-2],
        ours[-1],
    ]
    assert java_options({}, "/with blank/a.jsa", "/with blank")[JAVA_OPTIONS].split() == ours[:-2]


def test_an_archive_that_others_could_have_written_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\n")
    java.chmod(0o700)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    monkeypatch.setenv("HERON_HOME", str(tmp_path / "home"))
    assert archive.find_archive() is None
    path = archive.archive_path(str(java))
    path.parent.mkdir(parents=True)
    path.write_bytes(b"x")
    path.chmod(0o444)
    assert archive.find_archive() == str(path)
    for mode in (0o464, 0o446):
        path.chmod(mode)
        assert archive.find_archive() is None
    other = tmp_path / "other"
    os.replace(path, other)
    path.symlink_to(other)
    assert archive.find_archive() is None
    java.rename(java.with_name("java17"))
    java.symlink_to("java17")
    assert archive.archive_path(str(java)) != path, "another Java has another archive"


def test_without_java_no_archive_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HERON_HOME", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert archive.main([]) == 1
    assert "correct or unset JAVA_HOME" in capsys.readouterr().err and not list(tmp_path.iterdir())


def test_the_memory_that_a_group_may_use(tmp_path: Path) -> None:
    groups, one = tmp_path / "cgroup", tmp_path / "sys" / "a" / "b"
    one.mkdir(parents=True)
    groups.write_text("0::/a/b\n")
    assert memory_max_bytes(str(groups), str(tmp_path / "sys")) is None
    (one / "memory.max").write_text("max\n")
    assert memory_max_bytes(str(groups), str(tmp_path / "sys")) is None
    (one.parent / "memory.max").write_text("4096\n")
    (one / "memory.max").write_text("8192\n")
    assert memory_max_bytes(str(groups), str(tmp_path / "sys")) == 4096
    old = tmp_path / "sys" / "memory" / "c"
    old.mkdir(parents=True)
    (old / "memory.limit_in_bytes").write_text("2048\n")
    groups.write_text("3:cpu,memory:/c\n")
    assert memory_max_bytes(str(groups), str(tmp_path / "sys")) == 2048
