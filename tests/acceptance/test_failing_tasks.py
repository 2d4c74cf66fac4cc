"""What becomes of a topology whose tasks fail: where the user sees it, and how it ends."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

from tests.support.command import FAILED, Heron
from tests.support.user_programs import chain, write_program


def started_and_failed(heron: Heron, program: Path, *words: str) -> list[str]:
    """Submit a topology whose tasks cannot start; returns the frames of the traceback."""
    result = heron("submit", "local", program)
    result.refused(FAILED, *words)
    assert result.err.count("Traceback (most recent call last):") == 1, f"{result}"
    assert heron.names() == []
    heron.check_clean()
    return [line.strip() for line in result.err.splitlines() if line.startswith("    File ")]


@pytest.mark.parametrize(
    "where",
    [pytest.param("__init__(self, *args, **kwargs)", marks=pytest.mark.heavy), "initialize(self, config, context)"],
)
def test_constructor_or_initialize_that_raises(heron: Heron, tmp_path: Path, where: str) -> None:
    body = f"""
    class Broken(Pass):
        def {where}:
            raise ConnectionError("no database at db:5432")
    """
    program = write_program(tmp_path, textwrap.dedent(body) + chain("broken", bolt="Broken"))
    sentence = "topology 'broken' failed: container_1_pass_2 failed: ConnectionError: no database at db:5432"
    [frame] = started_and_failed(heron, program, sentence)
    assert "topo.py" in frame and where.partition("(")[0] in frame


@pytest.mark.heavy
def test_tasks_that_fail_alike_share_a_traceback(heron: Heron, tmp_path: Path) -> None:
    body = """
    class Broken(Numbers):
        def initialize(self, config, context):
            raise ValueError("out of luck")

    def main():
        builder = TopologyBuilder("alike")
        numbers = builder.add_spout("numbers", Broken, par=3)
        builder.add_bolt("sink", Sink, par=1, inputs={numbers: Grouping.SHUFFLE})
        builder.build_and_submit()

    if __name__ == "__main__":
        main()
    """
    started_and_failed(heron, write_program(tmp_path, body), "container_1_numbers_", "ValueError: out of luck")


@pytest.mark.heavy
def test_a_class_that_only_the_submitter_can_import(heron: Heron, tmp_path: Path) -> None:
    """It is there when the topology is built, and not in the package."""
    body = """
    import sys
    import types

    module = types.ModuleType("made_up")
    sys.modules["made_up"] = module
    Pass.__module__ = "made_up"
    """
    program = write_program(tmp_path, textwrap.dedent(body) + chain("missing"))
    result = heron("submit", "local", program)
    result.refused(FAILED, "container_1_pass_2 failed", "made_up")
    heron.check_clean()


def test_a_program_without_a_main_guard_works(heron: Heron, tmp_path: Path) -> None:
    program = write_program(tmp_path, chain("plain", guarded=False))
    heron.submit(program)
    status = heron.when_state("plain", "FINISHED")
    assert [row["executed"] for row in status["components"]] == [0, 5, 5]


@pytest.mark.heavy
def test_a_program_that_parses_arguments_without_a_guard(heron: Heron, tmp_path: Path) -> None:
    """Tasks run it again as a module, and see the arguments of the submit."""
    body = """
    import argparse

    parser = argparse.ArgumentParser()
    parser.add_argument("--size", required=True)
    parser.parse_args()
    """
    program = write_program(tmp_path, textwrap.dedent(body) + chain("args"))
    heron("submit", "local", program).refused(FAILED, "topo.py ended with exit code 2; no topology was started")
    heron.check_clean()
    heron("submit", "local", program, "--size", "3").ok()
    heron.kill("args")
    heron.check_clean()


@pytest.mark.parametrize(
    ("component", "emit", "words"),
    [
        ("spout", "self.emit([1, 2])", "component numbers emitted 2 values on stream 'default', which declares 1: n"),
        ("bolt", 'self.emit([1], stream="odd")', "component pass emitted on stream 'odd', which it does not declare"),
    ],
)
def test_wrong_emits_fail_the_task_with_the_users_line(
    heron: Heron, tmp_path: Path, component: str, emit: str, words: str
) -> None:
    base, method = ("Numbers", "next_tuple(self)") if component == "spout" else ("Pass", "process(self, tup)")
    body = f"""
    class Wrong({base}):
        def {method}:
            {emit}
    """
    name = {"spout": "Numbers", "bolt": "Pass"} | {component: "Wrong"}
    program = write_program(tmp_path, textwrap.dedent(body) + chain("wrong", name["spout"], name["bolt"]))
    heron.submit("--detach", program, "--config-property", 'heron.executor.restart_budgets={"user_exception": 2}')
    status = heron.when_state("wrong", "FAILED")
    assert words in status["cause"] and status["cause"].startswith(
        f"container_1_{'numbers_1' if component == 'spout' else 'pass_2'}"
    )
    shown = heron("exceptions", "local", "wrong").ok().out
    assert words in shown and "topo.py" in shown and emit in shown
    heron("status", "local", "wrong").refused(FAILED, "topology 'wrong' has failed", words)


@pytest.mark.heavy
def test_process_that_raises_restarts_the_task_and_fails_the_tuple(heron: Heron, tmp_path: Path) -> None:
    body = """
    class Careful(Spout):
        outputs = ["n"]

        def initialize(self, config, context):
            self.todo, self.pending = [1, 2, 3, 4, 5], set()

        def next_tuple(self):
            if self.todo:
                n = self.todo.pop(0)
                self.pending.add(n)
                self.emit([n], tup_id=n)
            elif not self.pending:
                self.end_of_input()

        def ack(self, tup_id):
            self.pending.discard(tup_id)
            self.logger.info("acked %d", tup_id)

        def fail(self, tup_id):
            self.pending.discard(tup_id)
            self.logger.info("failed %d", tup_id)
            self.todo.append(30 if tup_id == 3 else tup_id)


    def look_up(n):
        if n == 3:
            raise KeyError("no such customer")


    class Fragile(Pass):
        def process(self, tup):
            look_up(tup.values[0])
            super().process(tup)
    """
    program = write_program(tmp_path, textwrap.dedent(body) + chain("fragile", "Careful", "Fragile", "ATLEAST_ONCE"))
    heron.submit(program)
    heron.when_state("fragile", "FINISHED")
    acked = set(heron.when_logged("fragile", r"acked (\d+)", "*numbers*", count=5))
    assert acked == {"1", "2", "30", "4", "5"}
    assert "failed 3" in heron.log_text("fragile", "*numbers*")
    [found] = heron("exceptions", "local", "fragile", "--json").json()["exceptions"]
    assert (found["instance_id"], found["type"], found["count"]) == ("container_1_pass_2", "KeyError", 1)
    frames = [line.strip() for line in found["traceback"].splitlines() if line.startswith("  File ")]
    assert ["process" in frames[0], "look_up" in frames[1], len(frames)] == [True, True, 2]
    text = heron("exceptions", "local", "fragile", "pass").ok().out
    assert (
        text.startswith(f"KeyError at {program}:")
        and "container_1_pass_2" in text
        and text.endswith("KeyError: 'no such customer'\n")
    )
    process = next(p for c in heron.status("fragile")["containers"] for p in c["processes"] if "pass" in p["name"])
    assert (process["restarts"], process["exit_reason"]) == (1, "user_exception")


@pytest.mark.heavy
def test_next_tuple_that_always_raises_backs_off_and_ends_failed(heron: Heron, tmp_path: Path) -> None:
    body = """
    class Gone(Numbers):
        def next_tuple(self):
            raise OSError("the feed is gone")
    """
    program = write_program(tmp_path, textwrap.dedent(body) + chain("loop", spout="Gone"))
    heron.submit("--detach", program, "--config-property", "heron.executor.restart_exception_budget_s=5")
    degraded = heron.when_state("loop", "DEGRADED")["cause"]
    assert degraded.startswith("the only task of numbers is down, restart ") and "restarts stop after 5 s" in degraded
    assert degraded.count("the feed is gone") == 1 and "OSError" in degraded
    status = heron.when_state("loop", "FAILED")
    pattern = (
        r"container_1_numbers_1 failed: user exception: ended \d+ times in \d+ s without a healthy run in between: "
    )
    assert re.fullmatch(pattern + "OSError: the feed is gone", status["cause"]), status["cause"]
    pauses = heron.when_logged("loop", r"container_1_numbers_1 ended \(.*\); restart in ([\d.]+) s", "executor-1")
    assert pauses == ["0.05", "0.1", "0.2", "0.4", "0.8", "1.6", "3.2"][: len(pauses)] and len(pauses) >= 4
    shown = heron("status", "local", "loop")
    shown.refused(FAILED, "topology 'loop' has failed", "OSError: the feed is gone")
    assert "FAILED" in heron("list", "local").ok().out
    # The other tasks run on, and the topology can still be looked at, repaired or killed.
    heron.when(
        "loop", lambda now: [task["state"] for task in now["tasks"][1:]] == ["RUNNING"] * 2, "the others running"
    )
    assert f"in next_tuple: {len(pauses) + 1} times" in heron("exceptions", "local", "loop").ok().out
