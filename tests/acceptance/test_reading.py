"""What somebody reads who looks for a bug: short, once, and with the names that they know."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.support.command import EXAMPLES, Heron
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
    began = time.time()
    heron.submit(program)
    # The phases of the start are those of the whole time from the submit to the first moment in which it ran.
    start = json.loads(heron("events", "picky", "--start", "--json").ok().out)
    life = json.loads(heron("events", "picky", "--kind", "life", "--json").ok().out)["events"]
    ran_at = next(event["first_at"] for event in life if event["reason"] == "running")
    assert list(start["phases"]) == ["package", "launch", "register", "plan", "initialise"], start
    assert sum(start["phases"].values()) == pytest.approx(ran_at - start["begun_at"], rel=0.02), (start, life)
    assert began <= start["begun_at"] < ran_at
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


NAMED = """
builder = TopologyBuilder("named")
numbers = builder.add_spout("my.numbers@1", Numbers, par=1)
builder.add_bolt("the:sink=2", Sink, par=1, inputs={numbers: Grouping.SHUFFLE})
builder.build_and_submit()
"""


@pytest.mark.heavy
def test_a_component_that_a_shell_would_split_or_run_is_refused(heron: Heron, tmp_path: Path) -> None:
    for name in ("the sink", "sink(1)", "{sink}", "sink!", "$(id)"):
        heron("submit", "local", write_program(tmp_path, NAMED.replace("the:sink=2", name))).refused(
            2,
            f"the component name '{name}' may contain only letters, digits and _ - . : @ % + = ,",
            "choose another name",
        )
    heron.check_clean()


@pytest.mark.heavy
def test_names_of_components_may_have_every_character_that_no_shell_acts_upon(heron: Heron, tmp_path: Path) -> None:
    heron.submit(write_program(tmp_path, NAMED))
    heron.when_state("named", "FINISHED")
    assert "container_1_the:sink=2_2" in heron("plan", "local", "named", "physical").ok().out
    assert "the:sink=2" in heron("metrics", "local", "named", "the:sink=2").ok().out
    heron("logs", "local", "named", "my.numbers@1").ok()
    heron("logs", "local", "named", "container_1_the:sink=2_2").ok()
    heron("exceptions", "local", "named", "the:sink=2").ok()


@pytest.mark.heavy
def test_a_component_with_such_a_name_restarts_and_says_that_it_was_asked(heron: Heron, tmp_path: Path) -> None:
    heron.submit(
        write_program(
            tmp_path,
            NAMED.replace("Numbers,", "Endless,").replace(
                "builder = ",
                "class Endless(Spout):\n    outputs = ['n']\n\n    def next_tuple(self):\n"
                "        time.sleep(0.01)\n        self.emit([1])\n\n\nbuilder = ",
                1,
            ),
        )
    )
    assert "component the:sink=2" in heron("restart", "local", "named", "the:sink=2").ok().out
    heron("restart", "local", "named", "container_1_my.numbers@1_1").ok()
    shown = heron("status", "local", "named").ok().out
    assert shown.count("preempted: restarted on request, by heron restart") == 2 and "exit code" not in shown
    heron("update", "local", "named", "--component-parallelism", "the:sink=2:2").ok()
    assert {task["component"] for task in heron.status("named")["tasks"]} == {"my.numbers@1", "the:sink=2"}


@pytest.mark.heavy
def test_after_the_end_the_logs_are_pointed_at(heron: Heron, tmp_path: Path) -> None:
    heron("submit", "local", write_program(tmp_path, NAMED), "--wait").ok()
    for verb in ("status", "exceptions"):
        heron(verb, "local", "named").refused(3, "no topology 'named' now", "'heron logs local named'")
    heron("logs", "local", "named", "the:sink=2").ok()


def test_the_logs_of_the_gateway_say_what_the_jvm_said_although_spark_never_started(
    heron: Heron, tmp_path: Path
) -> None:
    submit = ("submit", "local", EXAMPLES / "spark_sink.py", "Sensors", "--output", tmp_path / "table")
    heron(*submit, "--config-property", "heron.spark.driver_memory=1k").refused(1, "Too small maximum heap")
    assert "[jvm] Too small maximum heap" in heron("logs", "local", "Sensors", "spark-gateway").ok().out
