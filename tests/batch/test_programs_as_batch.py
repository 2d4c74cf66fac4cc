"""The topologies of the tests' programs as a batch: the tuples of the stream, or the reason against it."""

from __future__ import annotations

import gc
import importlib
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from heronpy.api.topology import TopologyBuilder
from heronpy.batch.stages import BatchRefusedError, divide
from heronpy.simulator import Simulator
from heronpy.streamlet import Config, Runner
from tests.batch.programs import tally, visits
from tests.batch.test_examples_as_batch import compare
from tests.simulator.parts import line
from tests.support.command import REPO
from tests.support.user_programs import chain, write_program

#: Programs with their arguments, where {out} is a new folder.
EQUAL: dict[str, tuple[str, ...]] = {
    "acceptance/programs/counting.py": ("count", "--out", "{out}", "--count", "300", "--spouts", "2"),
    "batch/programs/splits.py": ("sums", "{out}/rows", "5", "100"),
    "batch/programs/visits.py": ("visits", "{out}/*.log", "{out}/rows"),
    "connectors/programs/rewound_sources.py": ("sources", "--file", "{out}/a.log", "--out", "{out}/rows"),
    "connectors/programs/spark_numbers.py": ("numbers", "--file", "{out}/a.log", "--table", "t", "--reliability", "ATLEAST_ONCE"),
    "runtime/programs/dropping.py": ("drops", "--out", "{out}", "--count", "200"),
    "runtime/programs/poison.py": ("poison", "--out", "{out}"),
}  # fmt: skip
#: Components that emit at ticks, which depend on time.
AT_TICKS = {"batch/programs/visits.py": ("count",)}

#: Files without a program of their own that are compared, or not, by other tests.
ELSEWHERE = {
    "batch/programs/tally.py": "here, built by the streamlet runner",
    "simulator/parts.py": "here, by its only topology",
    "support/user_programs.py": "here, by its only chain; test_programs_of_text_give_the_same",
    "runtime/programs/shapes.py": "test_examples_as_batch.py::test_all_shapes_give_the_same",
    "simulator/random_programs.py": "random graphs with the same groupings: test_batch_same.py",
    "sim/batches.py": "a batch in a simulated cluster, against its stream: tests/sim/test_worlds.py",
}

#: What cannot be compared, and why.
ENDLESS, ENDED_BY_THE_TEST = "has no end", "ends when the test writes a file"
IN_A_SIMULATION = "its user code calls the simulated cluster, which has no batch mode for it"
WRAPPED = "loads classes out of the archive of a submitted package, which a simulation does not have"
PIPELINE = "is a pipeline of work units, and has the same table in both modes: test_units_bounded.py"
EXCLUDED = {
    "acceptance/programs/wrapped/wrapped_suite/builder.py": WRAPPED,
    "acceptance/programs/wrapped/wrapped_suite/topologies.py": WRAPPED,
    "ingest/programs/sites.py": PIPELINE,
    "ingest/programs/spark_units.py": PIPELINE,
    "ingest/programs/unit_rows.py": PIPELINE,
    "ingest/programs/units.py": PIPELINE,
    "runtime/programs/arguments.py": "emits nothing",
    "runtime/programs/counted.py": ENDED_BY_THE_TEST,
    "runtime/programs/exits.py": ENDLESS,
    "runtime/programs/far.py": ENDLESS,
    "runtime/programs/forking.py": "forks its process, which in a comparison is that of the test",
    "runtime/programs/limited.py": ENDLESS,
    "runtime/programs/loops.py": "is a cycle, and refused: test_what_cannot_be_a_batch_is_refused",
    "runtime/programs/resizing.py": ENDLESS,
    "runtime/programs/sizes.py": "needs 40 MB for a tuple; test_cells.py has large ones",
    "runtime/programs/stateful.py": "commits with checkpoints, and is refused: test_what_cannot_be_a_batch_is_refused",
    "runtime/programs/states.py": ENDED_BY_THE_TEST,
    "security/evil.py": "raises",
    "sim/flow.py": IN_A_SIMULATION,
    "sim/trees.py": IN_A_SIMULATION,
    "sim/workload.py": IN_A_SIMULATION,
    "streamlet/simulated.py": "builds what its tests describe",
    "support/fish.py": ENDLESS,
    "support/troubled.py": ENDLESS,
    "ui/kept.py": ENDLESS,
    "ui/marked.py": ENDLESS,
}


def test_each_program_is_compared_or_has_a_reason() -> None:
    tests = REPO / "tests"
    defines = re.compile(r"add_spout\(|LogUnits\.specs\(|new_source\(")
    found = {
        str(path.relative_to(tests))
        for path in tests.rglob("*.py")
        if not path.name.startswith("test_") and defines.search(path.read_text(encoding="utf-8"))
    }
    listed = [*EQUAL, *ELSEWHERE, *EXCLUDED]
    assert sorted(listed) == sorted(found)


@pytest.fixture
def out(tmp_path: Path) -> Iterator[Callable[[], Path]]:
    """A new folder for each run, with a log and the file that lets slow programs be fast. What a program has opened
    there without closing it, as its process would end with it, is closed.
    """
    made: list[Path] = []

    def make() -> Path:
        folder = tmp_path / str(len(made))
        folder.mkdir()
        made.append(folder)
        (folder / "a.log").write_text("".join(f"visitor{number % 7} /{number}\n" for number in range(500)))
        (folder / "fast").touch()
        return folder

    yield make
    gc.collect()
    for descriptor in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            if Path(os.readlink(f"/proc/self/fd/{descriptor}")).is_relative_to(tmp_path):
                os.close(int(descriptor))


def built(module: Any, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> TopologyBuilder:
    """The topology that a program submits with these arguments."""
    made: list[TopologyBuilder] = []
    if not hasattr(module, "main"):
        named = dict(one.partition("=")[::2] for one in words if "=" in one)
        topology: TopologyBuilder = module.topology(*(one for one in words if "=" not in one), **named)
        return topology
    with monkeypatch.context() as patch:
        patch.setattr(TopologyBuilder, "build_and_submit", lambda builder: made.append(builder))
        patch.setattr(sys, "argv", [module.__file__, *words])
        module.main()
    return made[0]


@pytest.mark.parametrize("name", EQUAL)
def test_a_program_gives_the_same(out: Callable[[], Path], monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    module = importlib.import_module("tests." + name.removesuffix(".py").replace("/", "."))

    def make() -> TopologyBuilder:
        folder = str(out())
        return built(module, tuple(word.replace("{out}", folder) for word in EQUAL[name]), monkeypatch)

    compare(make, AT_TICKS.get(name, ()))


def test_a_streamlet_gives_the_same(out: Callable[[], Path]) -> None:
    def make() -> TopologyBuilder:
        folder = out()
        return Runner().build("tally", Config(), tally.tally(str(folder / "a.log"), str(folder / "sums")))

    compare(make)


def test_a_line_gives_the_same() -> None:
    compare(lambda: line(["a", 1, None, ("t",), "forget"], par=3))


def test_programs_of_text_give_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_program(tmp_path, chain("text", config="ATLEAST_ONCE"), "program_of_text.py")
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module("program_of_text")
    monkeypatch.setitem(sys.modules, "program_of_text", module)
    compare(lambda: built(module, (), monkeypatch))


@pytest.mark.parametrize("name", [name for name, why in EXCLUDED.items() if why is PIPELINE])
def test_a_pipeline_has_no_stages(name: str) -> None:
    """It is bounded by `until`, in both modes."""
    text = (REPO / "tests" / name).read_text(encoding="utf-8")
    assert "LogUnits.specs(" in text and "add_spout(" not in text


def test_a_cycle_is_refused() -> None:
    loops = importlib.import_module("tests.runtime.programs.loops")
    with pytest.raises(BatchRefusedError, match="form a cycle"):
        divide(loops.build("loops", "/out", "ATLEAST_ONCE").build())


def test_what_was_counted_between_a_tick_and_a_checkpoint_is_emitted_after_a_restore(tmp_path: Path) -> None:
    """The counts of visits.py: its stream continues from a batch."""
    (tmp_path / "a.log").write_text("ann /home\n")
    with Simulator(visits.topology("visits", f"{tmp_path}/*.log", "/never", follow="1")) as sim:
        sim.run(seconds=0.1)  # a tick comes each 0.2 s
        sim.checkpoint()
        assert not sim.emitted("count")
        sim.restore()
        sim.run(seconds=1)
        assert sim.emitted("count") == [["ann", 1]]
