"""Tuples that go round in loops: all of them leave, are acked, and come to their end."""

from __future__ import annotations

import ast
import importlib.util
import sys
from pathlib import Path

import pytest

from heronpy.simulator import Simulator
from tests.support.command import Heron

PROGRAMS = Path(__file__).parent / "programs"
LOOPS = PROGRAMS / "loops.py"
EVERY_NUMBER = list(range(1, 401))


def test_a_loop_that_tuples_leave_acks_each_and_finishes(heron: Heron, out: Path) -> None:
    done = heron("submit", "local", LOOPS, "loop", "--out", out, "--wait").ok()
    assert done.err.count("form a cycle") == 1, str(done)
    assert "step -> back -> step" in done.err
    assert ast.literal_eval((out / "acks").read_text()) == EVERY_NUMBER
    fails = ast.literal_eval((out / "fails").read_text())
    assert len(fails) == 1 and fails[0] in EVERY_NUMBER
    # The number that `step` emits when it finishes still goes round and comes out.
    assert ast.literal_eval((out / "done").read_text()) == [-1, *EVERY_NUMBER]


def test_a_loop_under_backpressure_goes_on(heron: Heron, out: Path) -> None:
    # 400 tuples of 40 kB are many times what a queue should hold, and half of it goes round at once.
    words = ("--out", out, "--guarantee", "ATMOST_ONCE", "--load-bytes", 40_000)
    heron("submit", "local", LOOPS, "loop", *words, "--wait").ok()
    # The one that fails is lost in this mode.
    assert len(ast.literal_eval((out / "done").read_text())) == len(EVERY_NUMBER)


def test_a_loop_under_checkpoints_is_refused_with_the_reason(heron: Heron, out: Path) -> None:
    result = heron("submit", "local", LOOPS, "loop", "--out", out, "--guarantee", "EFFECTIVELY_ONCE")
    result.refused(2, "step -> back -> step", "a checkpoint barrier that it must first send itself", "ATLEAST_ONCE")


@pytest.mark.parametrize("mode", ["ATLEAST_ONCE", "ATMOST_ONCE"])
def test_the_simulator_runs_the_same_loop(mode: str, tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("simulated_loops", LOOPS)
    assert spec is not None and spec.loader is not None
    program = importlib.util.module_from_spec(spec)
    sys.modules["simulated_loops"] = program
    try:
        spec.loader.exec_module(program)
        simulator = Simulator(program.build("loop", str(tmp_path), mode))
        simulator.run()
        assert simulator.is_finished
    finally:
        del sys.modules["simulated_loops"]
    assert ast.literal_eval((tmp_path / "acks").read_text()) == EVERY_NUMBER
    lost = 1 if mode == "ATMOST_ONCE" else 0
    assert len(ast.literal_eval((tmp_path / "done").read_text())) == 401 - lost
