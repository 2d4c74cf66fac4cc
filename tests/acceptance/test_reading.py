"""What somebody reads who looks for a bug: short, once, and with the names that they know."""

from __future__ import annotations

from pathlib import Path

from tests.support.command import Heron
from tests.support.user_programs import write_program

BODY = """
class Picky(Bolt):
    def process(self, tup):
        self.log("looks at it")
        print("says so")
        raise ValueError(f"{tup.values[0]} is no good")

def main():
    builder = TopologyBuilder("picky")
    numbers = builder.add_spout("numbers", Numbers, par=1)
    builder.add_bolt("picky", Picky, par=2, inputs={numbers: Grouping.SHUFFLE})
    builder.build_and_submit()

main()
"""


def test_a_bug_is_one_group_with_the_users_own_path(heron: Heron, tmp_path: Path) -> None:
    program = write_program(tmp_path, BODY)
    heron.submit(program)
    # Without the cluster: there is only one.
    heron.when("picky", lambda status: status["exceptions"] >= 5, "five exceptions")
    shown = heron("exceptions", "picky").ok().out
    line = 1 + program.read_text().splitlines().index('        raise ValueError(f"{tup.values[0]} is no good")')
    assert f"ValueError at {program}:{line} in process: 5 times" in shown
    assert f'File "{program}", line {line}, in process' in shown and "/packages/" not in shown
    assert "container_1_picky_2, container_1_picky_3" in shown and shown.count("Traceback") == 1
    assert "exceptions 5 of user code; see 'heron exceptions local picky'" in heron("status", "picky").ok().out
    assert "/packages/" not in heron.log_text("picky", "container_1_picky_*")


def test_a_record_names_its_process_once(heron: Heron, tmp_path: Path) -> None:
    heron.submit(write_program(tmp_path, BODY))
    heron.when_logged("picky", r"\[log\] looks at it", count=5)
    records = [line for line in heron("logs", "picky", "picky").ok().out.splitlines() if "looks at it" in line]
    assert len(records) >= 5
    assert all(line.count("container_1_picky") == 1 and "[log] looks at it" in line for line in records)
    assert "[stdout] says so" in heron("logs", "picky", "picky").out


SPACED = """
builder = TopologyBuilder("spaced")
numbers = builder.add_spout("my numbers", Numbers, par=1)
builder.add_bolt("the sink", Sink, par=1, inputs={numbers: Grouping.SHUFFLE})
builder.build_and_submit()
"""


def test_names_of_components_may_have_spaces(heron: Heron, tmp_path: Path) -> None:
    heron.submit(write_program(tmp_path, SPACED))
    heron.when_state("spaced", "FINISHED")
    assert "container_1_the sink_2" in heron("plan", "local", "spaced", "physical").ok().out
    assert "the sink" in heron("metrics", "local", "spaced", "the sink").ok().out
    heron("logs", "local", "spaced", "my numbers").ok()
    heron("logs", "local", "spaced", "container_1_the sink_2").ok()
    heron("exceptions", "local", "spaced", "the sink").ok()


def test_a_component_with_a_space_restarts_and_says_that_it_was_asked(heron: Heron, tmp_path: Path) -> None:
    heron.submit(
        write_program(
            tmp_path,
            SPACED.replace("Numbers,", "Endless,").replace(
                "builder = ",
                "class Endless(Spout):\n    outputs = ['n']\n\n    def next_tuple(self):\n"
                "        time.sleep(0.01)\n        self.emit([1])\n\n\nbuilder = ",
                1,
            ),
        )
    )
    assert "component the sink" in heron("restart", "local", "spaced", "the sink").ok().out
    heron("restart", "local", "spaced", "container_1_my numbers_1").ok()
    shown = heron("status", "local", "spaced").ok().out
    assert shown.count("preempted: restarted on request, by heron restart") == 2 and "exit code" not in shown
    heron("update", "local", "spaced", "--component-parallelism", "the sink:2").ok()
    assert {task["component"] for task in heron.status("spaced")["tasks"]} == {"my numbers", "the sink"}


def test_after_the_end_the_logs_are_pointed_at(heron: Heron, tmp_path: Path) -> None:
    heron("submit", "local", write_program(tmp_path, SPACED), "--wait").ok()
    for verb in ("status", "exceptions"):
        heron(verb, "local", "spaced").refused(3, "no topology 'spaced' now", "'heron logs local spaced'")
    heron("logs", "local", "spaced", "the sink").ok()
