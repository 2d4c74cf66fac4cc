"""Verbs that look at what has ended, and at one task, against a fake topology master."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from heronpy.clusters.ended import read_kept
from heronpy.proto import control_pb2
from heronpy.scheduler.teardown import keep_failure, remove_state
from heronpy.statemgr import paths
from heronpy.tracker import finding, place
from tests.cli.conftest import FakeTopology, Heron


def test_the_doctor_of_what_has_ended(heron: Heron, wordy: FakeTopology) -> None:
    """The doctor reads the files of its working folder, in the given role."""
    kept = control_pb2.EndedTopology(record=wordy.record, ended_at=1e9 + 3600)
    kept.events.topology_id = "wordy-1"
    kept.events.events.add(
        number=1, at=1e9 + 3500, times=3, kind=control_pb2.EVENT_OOM, subject="container_1_count_2", warning=True
    )
    folder = Path(wordy.record.working_dir) / "ended"
    folder.mkdir(mode=0o700)
    (folder / "wordy-1").write_bytes(kept.SerializeToString())
    assert "ended" not in heron("doctor", "local", "wordy").out.casefold(), "while it runs"
    wordy.state.delete(paths.execution_state("wordy"))
    told = heron("doctor", "local", "wordy")
    assert told.code == 1
    assert told.out.splitlines()[0].startswith("ENDED      topology 'wordy' was killed, after 1h00m")
    assert "container_1_count_2 ran out of memory 3 times" in told.out
    assert "are no longer known" in told.out.splitlines()[-1]
    shown = json.loads(heron("doctor", "local", "wordy", "--json").out)
    assert shown["findings"][1]["verdict"] == "memory" and shown["ended_at"] == 1e9 + 3600
    assert heron("doctor", "local/other", "wordy").code == 3
    assert "need a running topology" in heron("doctor", "local", "wordy", "--watch").err


@pytest.mark.parametrize("told_by_master", [False, True])
def test_a_failed_start_is_remembered_with_its_cause(heron: Heron, wordy: FakeTopology, told_by_master: bool) -> None:
    ledger = control_pb2.EventLedger(topology_id="wordy-1", last=1)
    one = ledger.events.add(number=1, at=1e9, times=1, kind=control_pb2.EVENT_LIFE, reason="starting", text="starts")
    if told_by_master:
        one.reason, one.text = "failed", "wordy is FAILED: no disk"
    wordy.state.create(paths.events("wordy"), ledger.SerializeToString())
    keep_failure(wordy.record, "no disk")
    remove_state(wordy.state, "wordy")
    told = heron("doctor", "local", "wordy").out.splitlines()[0]
    assert "topology 'wordy' has failed and was removed: no disk" in told
    kept = read_kept(Path(wordy.record.working_dir) / "ended" / "wordy-1")
    assert kept is not None and [event.number for event in kept.events.events] == ([1] if told_by_master else [1, 2])


def test_a_start_that_fails_before_anything_ran_is_remembered(heron: Heron, wordy: FakeTopology) -> None:
    wordy.state.delete(paths.physical_plan("wordy"))
    keep_failure(wordy.record, "it was not running after 60 s")
    remove_state(wordy.state, "wordy")
    assert "has failed and was removed: it was not running after 60 s" in heron("doctor", "local", "wordy").out


def test_a_component_of_one_task_stands_for_it(heron: Heron, wordy: FakeTopology) -> None:
    for task in wordy.status.tasks:
        executor = wordy.status.executors[0] if wordy.status.executors else wordy.status.executors.add(container=1)
        executor.processes.add(name=task.instance_id, task_id=task.task_id, state=control_pb2.PROC_RUNNING, pid=1)
    assert "the executor of container_1_word_1 has no file service" in heron("stacks", "local", "wordy", "word").err
    several = heron("heap", "local", "wordy", "count", "--yes")
    assert several.code == 2
    assert several.err == (
        "error: component 'count' of topology 'wordy' has 2 tasks; name one of them:"
        " container_1_count_2, container_1_count_3\n"
    )


def test_ui_names_the_page_of_a_topology(heron: Heron, wordy: FakeTopology, monkeypatch: pytest.MonkeyPatch) -> None:
    running = place.Running(pid=1, started_at=0.0, address="http://127.0.0.1:8889", release="0.1.0")
    monkeypatch.setattr(finding, "find_or_start", lambda home, config_path: running)
    page = "http://127.0.0.1:8889/#/t/local/me/default/wordy\n"
    assert heron("ui", "local", "wordy").out == heron("ui", "wordy").out == page
    assert heron("ui").out == "http://127.0.0.1:8889\n"
    unknown = heron("ui", "local", "wordx")
    assert unknown.code == 3 and "no topology 'wordx'; did you mean 'wordy'?" in unknown.err
    kept = control_pb2.EndedTopology(record=wordy.record, ended_at=1e9)
    folder = Path(wordy.record.working_dir) / "ended"
    folder.mkdir(mode=0o700)
    (folder / "wordy-1").write_bytes(kept.SerializeToString())
    wordy.state.delete(paths.execution_state("wordy"))
    assert heron("ui", "local", "wordy").out == page, "of the last run that has ended"
