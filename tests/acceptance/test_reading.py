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
