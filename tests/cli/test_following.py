"""`heron logs -f` shows what is written until its topology comes to its end, and says so."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from heronpy.cli.look import following
from heronpy.clusters.ending import AWAY_S, GONE_S, End, Ending, Life
from heronpy.common.log_format import format_record
from heronpy.proto import control_pb2
from heronpy.statemgr import paths
from tests.cli.conftest import FakeTopology, Heron

TASK = "container_1_word_1"


def write(folder: Path, text: str, when: float = 2e9) -> None:
    folder.mkdir(exist_ok=True, parents=True)
    with open(folder / f"{TASK}.log", "a", encoding="utf-8") as file:
        file.write(format_record(when, "INFO", TASK, "user", text) + "\n")


def finishes(wordy: FakeTopology) -> None:
    wordy.status.lifecycle = control_pb2.LIFE_FINISHED


def is_killed(wordy: FakeTopology) -> None:
    wordy.state.delete(paths.execution_state("wordy"))


def is_replaced(wordy: FakeTopology) -> None:
    wordy.record.topology_id = "wordy-2"
    wordy.state.set(paths.execution_state("wordy"), wordy.record.SerializeToString())


@pytest.mark.parametrize(
    ("ends", "sentence"),
    [
        (finishes, "topology 'wordy' has finished; heron kill local wordy removes it"),
        (is_killed, "topology 'wordy' has ended; its logs are kept: heron logs local wordy"),
        (is_replaced, "a new one uses its name; to follow the new one: heron logs local wordy -f"),
    ],
)
def test_it_ends_with_its_topology_after_the_last_line(
    wordy: FakeTopology,
    heron: Heron,
    monkeypatch: pytest.MonkeyPatch,
    ends: Callable[[FakeTopology], None],
    sentence: str,
) -> None:
    monkeypatch.setattr(following, "LOOK_S", 0.05)
    monkeypatch.setattr(following, "LAST_S", 0.3)
    folder = Path(wordy.record.working_dir) / "log-files"
    write(folder, "first")
    asked: list[str] = []

    def on_ask(name: str) -> None:
        asked.append(name)
        if asked.count("get_status") == 3:
            write(folder, "last")
            ends(wordy)

    wordy.on_ask = on_ask
    shown = heron("logs", "local", "wordy", "-f", "--since", "5m")
    assert shown.code == 0, shown
    assert [line.rpartition("] ")[2] for line in shown.out.splitlines()] == ["first", "last"]
    assert shown.err.splitlines() == [shown.err.strip()] and sentence in shown.err


def test_of_a_topology_that_has_ended_it_shows_what_there_is(
    wordy: FakeTopology, heron: Heron, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "LAST_S", 0.1)
    write(Path(wordy.record.working_dir) / "log-files", "first", 1.5e9)
    is_killed(wordy)
    shown = heron("logs", "local", "wordy", "-f")
    assert shown.code == 0 and "first" in shown.out and "topology 'wordy' has ended" in shown.err


def test_a_topology_whose_state_cannot_be_read_goes_on_while_its_logs_can() -> None:
    ending = Ending(by_endpoint=False, now=0.0)
    assert [ending.look(Life.UNKNOWN, now) for now in (1.0, AWAY_S, 1000.0)] == [None] * 3
    assert ending.look(Life.RUNS, 1001.0) is None
    assert ending.look(Life.REMOVED, 1002.0) is End.REMOVED


def test_behind_an_endpoint_it_counts_what_the_scheduler_did_last() -> None:
    ending = Ending(by_endpoint=True, now=0.0)
    assert ending.look(Life.RUNS, 10.0) is None
    assert ending.look(Life.UNKNOWN, 10.0 + AWAY_S - 1) is None
    assert ending.look(Life.UNKNOWN, 10.0 + AWAY_S) is End.AWAY
    assert ending.look(Life.KILLING, 50.0) is None
    # A scheduler that is started again while it kills is heard again.
    assert ending.look(Life.UNKNOWN, 50.0 + GONE_S - 1) is None
    assert ending.look(Life.KILLING, 58.0) is None
    assert ending.look(Life.UNKNOWN, 58.0 + GONE_S) is End.KILLED


def test_what_two_folders_have_is_shown_once_and_what_one_has_twice_is_shown_twice(tmp_path: Path) -> None:
    """The end of a container's log comes to the scheduler's host when the container ends."""
    copied, kept = tmp_path / "copied", tmp_path / "kept"
    for text in ("one", "two", "two"):
        write(copied, text)
    over = False
    shown = []
    records = following.followed_records([copied, kept], [TASK], (), None, None, lambda: over)
    for record in records:
        shown.append(record.message)
        if len(shown) == 3:
            for text in ("two", "two", "three"):
                write(kept, text)
            over = True
    assert shown == ["one", "two", "two", "three"]
    assert os.listdir(kept) == [f"{TASK}.log"]
