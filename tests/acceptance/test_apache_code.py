"""Code that teams wrote for Apache heronpy, in a .pex and run by the command as it was run there."""

from __future__ import annotations

import json
import re
import zipfile
from collections import Counter
from pathlib import Path

import pytest

from tests.support.command import Heron
from tests.support.waiting import wait_for

SOURCES = Path(__file__).parent / "programs" / "wrapped"
LINES = 5 * [*"a little lamb".split(), *"on a wall".split()] + 10 * "round the bush".split()


@pytest.fixture
def pex(tmp_path: Path) -> Path:
    """A pex as its tools lay it out: a start line, the code, its dependencies in .deps, PEX-INFO."""
    path = tmp_path / "suite.pex"
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted(SOURCES.rglob("*")):
            name = file.relative_to(SOURCES).as_posix()
            if file.suffix in (".py", ".txt"):
                archive.write(file, f".deps/pexload-1.0-py3-none-any.whl/{name}" if name == "pexload.py" else name)
        # A pex built for Apache's release brings that release and its libraries; ours must win.
        for bundled in ("heronpy", "heronpy/api", "heronpy/streamlet", "heronpy/proto"):
            archive.writestr(f"{bundled}/__init__.py", f"raise ImportError('the bundled {bundled}')\n")
        for bundled in ("google/protobuf", "cloudpickle", "yaml", "msgpack", "zmq", "psutil", "numpy"):
            name = f".deps/{bundled.partition('/')[2] or bundled}-1.0-py3-none-any.whl/{bundled}/__init__.py"
            archive.writestr(name, f"raise ImportError('the bundled {bundled}')\n")
        archive.writestr("PEX-INFO", json.dumps({"entry_point": "wrapped_suite.main"}))
    path.write_bytes(b"#!/usr/bin/env python3\n" + path.read_bytes())
    return path


def run(heron: Heron, pex: Path, which: str, tmp_path: Path) -> list[object]:
    """What the collector of one topology of the suite wrote."""
    name, result = f"170_{which}_6e1c8cf3-ab", tmp_path / f"{which}.json"
    heron.submit(pex, "-", "-r", result, "-t", name, "--config-property", "heron.package.core.uri=file:///core.tar.gz")
    wait_for(result.exists, 60.0, f"the result of {which}")
    heron.kill(name)
    found: list[object] = json.loads(result.read_text(encoding="utf-8"))
    return found


#: Tuples of each of two words that must arrive at the end of a topology: a spout task emits five of each.
COUNTS = {
    "MultiSpoutsMultiTasks": 30,
    "BoltDoubleEmit": 10,
    "AllGrouping": 15,
    "NoneGrouping": 5,
    "OneSpoutBoltMultiTasks": 15,
    "ShuffleGrouping": 5,
    "OneSpoutTwoBolts": 10,
    "GlobalGrouping": 5,
}
#: Those that have something of each of the others.
QUICK = ("MultiSpoutsMultiTasks", "BoltDoubleEmit")


@pytest.mark.parametrize(
    ("which", "count"),
    [pytest.param(*case, marks=() if case[0] in QUICK else pytest.mark.heavy) for case in COUNTS.items()],
)
def test_a_builder_that_wraps_every_component(heron: Heron, pex: Path, tmp_path: Path, which: str, count: int) -> None:
    assert Counter(run(heron, pex, which, tmp_path)) == {"A": count, "B": count}


def test_batch_bolts_behind_a_fields_grouping(heron: Heron, pex: Path, tmp_path: Path) -> None:
    assert run(heron, pex, "FieldsGrouping", tmp_path) == [2]


def test_a_streamlet_through_the_wrapping_builder(heron: Heron, pex: Path, tmp_path: Path) -> None:
    assert Counter(map(tuple, run(heron, pex, "Streamlet", tmp_path))) == Counter((word, 1) for word in LINES)  # type: ignore[arg-type]


def test_no_topology_of_the_suite_is_left_out() -> None:
    text = (SOURCES / "wrapped_suite" / "topologies.py").read_text(encoding="utf-8")
    named = re.findall(r'^    "(\w+)": ', text, re.MULTILINE)
    assert sorted(named) == sorted([*COUNTS, "FieldsGrouping", "Streamlet"]) and len(named) == 10


def test_a_class_by_its_path_with_state(heron: Heron, pex: Path) -> None:
    heron.submit(pex, "plain_parts.by_path.Stateful", "by-path", "--deploy-deactivated", "false")
    assert heron.when_logged("by-path", r"sum is (\d+)", "*sum*") == ["1275"]
    heron.when_logged("by-path", r"saving for (\S+)", "*sum*")
    heron.kill("by-path")
