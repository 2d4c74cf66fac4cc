"""The wheel alone: built, installed into an empty environment and used from an empty folder."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command import REPO, Heron

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def run(*argv: object, **options: object) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([*map(str, argv)], capture_output=True, text=True, timeout=500, **options)  # type: ignore[call-overload]
    assert done.returncode == 0, f"{argv}\n{done.stdout}\n{done.stderr}"
    return done  # type: ignore[no-any-return]


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """The wheel, built from a copy of the sources so that nothing is written into the work tree."""
    source = tmp_path / "source"
    shutil.copytree(REPO, source, ignore=shutil.ignore_patterns("__pycache__", ".*", "tests", "build", "dist"))
    isolation = ["--no-build-isolation"] if importlib.util.find_spec("hatchling") else []
    env = {**os.environ, "PYTHONPATH": ""}
    run(sys.executable, "-m", "pip", "wheel", "--no-deps", *isolation, "-w", tmp_path, source, env=env)
    [built] = tmp_path.glob("heronpy-*.whl")
    return built


@pytest.fixture
def installed(wheel: Path, tmp_path: Path, home: Path) -> Iterator[Heron]:
    """`heron` of a new environment that has the wheel and what it requires, and nothing else."""
    folder = tmp_path / "env"
    run(sys.executable, "-m", "venv", folder)
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    run(folder / "bin" / "pip", "install", "--disable-pip-version-check", "-q", wheel, env=env)
    heron = Heron(home, [str(folder / "bin" / "heron")])
    heron.env = {**env, "HERON_HOME": str(home), "HERON_CONFIG_HOME": str(home / "client"), "COLUMNS": "200"}
    heron.env.pop("HERON_CONF", None)
    heron.cwd = tmp_path / "empty"
    heron.cwd.mkdir()
    yield heron
    for name in heron.names():
        heron.kill(name)


@pytest.mark.heavy
def test_wheel_holds_what_runs_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert [name.partition("/")[2] for name in names if ".data/" in name] == ["scripts/heron"]
    tops = {name.split("/")[0] for name in names if not re.search(r"\.(dist-info|data)/", name)}
    assert tops == {"heronpy", "stmgr", "instance"}
    assert (
        "heronpy/py.typed" in names
        and "heronpy/conf/local/stmgr.yaml" in names
        and "heronpy/proto/control.proto" in names
    )
    assert not [name for name in names if name.endswith((".pyc", ".log")) or "test_" in name]


@pytest.mark.heavy
def test_a_topology_runs_from_the_wheel_alone(installed: Heron) -> None:
    heron = installed
    version = heron("version").ok().out
    assert re.search(r"\d+\.\d+", version)
    program = heron.cwd / "word_count.py"
    shutil.copy(REPO / "topologies" / "word_count.py", program)
    text = heron.cwd / "text.txt"
    text.write_text("to be or not to be\n" * 50)
    done = heron("submit", "local", "word_count.py", "wc", "--file", text, "--wait").ok()
    assert done.out.rstrip().endswith("Topology 'wc' has finished and is removed")
    totals = dict(re.findall(r"container_1_count_\d \[log\] (\w+): (\d+)$", heron.log_text("wc"), re.MULTILINE))
    assert totals == {"to": "100", "be": "100", "or": "50", "not": "50"}

    # The settings come from the package, and the processes run its code.
    shown = heron("config", "show", "local", "stmgr", "--origin", "--json").ok().out
    assert "backpressure_high_bytes" in shown
    heron("submit", "local", "word_count.py", "wc").ok()
    for process in heron.processes():
        assert str(REPO) not in process.environ().get("PYTHONPATH", "")
        assert f"{REPO}/" not in Path(f"/proc/{process.pid}/maps").read_text()
    assert heron.status("wc")["lifecycle"] == "RUNNING"
    # An extra that is missing is one sentence.
    spark = heron.cwd / "spark_sink.py"
    shutil.copy(REPO / "topologies" / "spark_sink.py", spark)
    sentence = heron("submit", "local", "spark_sink.py", "--output", heron.cwd / "table")
    assert sentence.code != 0 and "heronpy[spark]" in sentence.err.splitlines()[-1], f"{sentence}"
    heron.kill("wc")
    heron.check_clean()
