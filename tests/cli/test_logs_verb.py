"""`heron logs`: past records, merged, filtered and chosen."""

from __future__ import annotations

import time

from heronpy.statemgr import paths
from tests.cli.conftest import FakeTopology, Heron


def test_logs_are_merged_by_time_filtered_and_chosen(heron: Heron, wordy: FakeTopology) -> None:
    from heronpy.common.log_format import format_record

    folder = wordy.launch.log_dir
    now = time.time()
    for offset, process, level in (
        (-900, "tmaster", "INFO"),
        (-2, "container_1_count_2", "ERROR"),
        (-1, "tmaster", "WARN"),
    ):
        with open(folder / f"{process}.log", "a", encoding="utf-8") as file:
            file.write(format_record(now + offset, level, process, "x", f"at {offset}\nmore") + "\n")
    everything = heron("logs", "local", "wordy").out
    assert everything.index("at -900") < everything.index("at -2") < everything.index("at -1\n")
    assert "  | more" in everything
    assert "at -900" not in heron("logs", "local", "wordy", "--since", "5m").out
    errors = heron("logs", "local", "wordy", "--level", "ERROR").out
    assert "at -2" in errors and "at -1\n" not in errors
    for name in ("count", "count-2", "container_1_count_2"):
        chosen = heron("logs", "local", "wordy", name).out
        assert "tmaster" not in chosen and "at -2" in chosen, name
    assert len(heron("logs", "local", "wordy", "-n", "1", "--json").out.splitlines()) == 1
    wrong = heron("logs", "local", "wordy", "tmastr")
    assert wrong.code == 2 and "did you mean 'tmaster'?" in wrong.err
    assert heron("logs", "local", "wordy", "--since", "yesterday").code == 2


def test_logs_can_be_read_after_the_topology_was_killed(heron: Heron, wordy: FakeTopology) -> None:
    (wordy.launch.log_dir / "tmaster.log").write_text("crash dump\n", encoding="utf-8")
    wordy.state.delete(paths.execution_state("wordy"))
    assert "crash dump" in heron("logs", "local", "wordy").out


def test_logs_of_earlier_topologies_are_shown_when_they_are_asked_for(heron: Heron, wordy: FakeTopology) -> None:
    """The log of a task went on where one of an earlier topology of its name had ended, without a word."""
    from heronpy.common.log_files import divide_logs
    from heronpy.common.log_format import format_record
    from heronpy.procs.child_log import last_line_of

    def write(name: str, when: float, text: str) -> None:
        with open(folder / f"{name}.log", "a", encoding="utf-8") as file:
            file.write(format_record(when, "INFO", name, "x", text) + "\n")

    folder, began = wordy.launch.log_dir, time.time() - 60
    write("tmaster", began - 900, "of yesterday")
    (folder / "stmgr-1.log").write_text("", encoding="utf-8")
    with open(folder / "tmaster.log", "a", encoding="utf-8") as file:
        file.write("raw | torn")
    for _ in range(2):
        divide_logs(folder, began - 0.002, "topology 'wordy' was submitted again")
    assert not (folder / "stmgr-1.log").read_text()
    lines = (folder / "tmaster.log").read_text().splitlines()
    assert [line.rpartition("] ")[2] for line in lines] == [
        "of yesterday", "raw | torn", "---- topology 'wordy' was submitted again ----"
    ]  # fmt: skip
    assert last_line_of((folder / "tmaster.log").read_bytes()) == "", "an earlier one has said that"
    write("tmaster", began + 1, "of today")
    wordy.record.submitted_at = began
    wordy.state.set(paths.execution_state("wordy"), wordy.record.SerializeToString())
    for found in (heron("logs", "local", "wordy"), heron("logs", "local", "wordy", "-n", "9")):
        assert "of today" in found.out and "yesterday" not in found.out and "----" not in found.out
    everything = heron("logs", "local", "wordy", "--earlier").out
    assert everything.index("yesterday") < everything.index("----") < everything.index("of today")
    assert heron("logs", "local", "wordy", "--earlier", "--since", "5m").code == 2
