"""`GET /progress`: the stages of a batch run, or the pipelines of a stream."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from heronpy.batch.record import RunRecord, RunState
from heronpy.batch.run import Run
from heronpy.batch.topology import run_topology
from heronpy.ingest.keys import LEDGER_KEY
from heronpy.proto import control_pb2
from heronpy.statemgr import paths
from heronpy.views.progress import PROGRESS, Progress, StageProgress
from heronpy.views.quotes import UNSEEN, without_values
from tests.cli.conftest import FakeTopology, word_count
from tests.tracker.conftest import WORDY, Asking


@pytest.fixture
def run(home: Path) -> Run:
    """Batch run wordy/1, which has failed."""
    found = Run(home / "batch" / "local" / "wordy" / "1")
    found.folder.mkdir(parents=True, mode=0o700)
    found.write(
        RunRecord(topology="wordy", number=1, cluster="local", role="me", environ="default", code="c", submitted_at=1.0,
                  state=RunState.FAILED, cause="no number: 'x'", ended_at=9.0)
    )  # fmt: skip
    return found


def test_a_topology_without_units_is_not_asked(asking: Asking, busy: FakeTopology) -> None:
    found = asking.get(f"{WORDY}/progress")
    assert (found["run"], found["table"]["rows"]) == (None, [])
    assert "get_metrics" not in [name for name, _ in busy.asked]


def test_pipelines_are_shown_as_words(asking: Asking, busy: FakeTopology) -> None:
    made = word_count()
    made.spouts[0].comp.config.kvs.add(key=LEDGER_KEY, value="sqlite:/x")
    busy.state.set(paths.topology("wordy"), made.SerializeToString())
    reply = control_pb2.MetricsReply()
    keeper = reply.reports.add(component="p-keeper")
    for name, value in (("units-ready", 3), ("units-failed", 1), ("units-attempts", 5), ("units-backups", 2)):
        keeper.samples.add(name=name, label="p", value=value)
    busy.answers["get_metrics"] = reply
    found = asking.get(f"{WORDY}/progress")["table"]
    assert dict(zip(found["titles"], found["rows"][0])) == {
        "pipeline": "p", "units": "3 ready, 0 in progress, 0 to publish", "published": "0 rows of 0B", "waits": "0B",
        "attempts": "5: 2 backups (0 won)", "problems": "1 unit FAILED",
    }  # fmt: skip


def test_a_batch_run_is_shown_by_stage(asking: Asking, busy: FakeTopology, run: Run) -> None:
    busy.state.set(paths.topology("wordy"), run_topology(word_count(), str(run.folder), 2).SerializeToString())
    found = asking.get(f"{WORDY}/progress")
    assert (found["run"]["run"], found["run"]["state"], found["table"]["rows"]) == ("wordy/1", "FAILED", [])
    stage = StageProgress(number=1, components=["word"], state="running", units=4, done=1, bytes_done=2048, failed=1)
    run.write(replace(run.record, state=RunState.RUNNING, cause="", ended_at=None))
    told = Progress(run="wordy/1", state="RUNNING", at=2.0, began_at=1.0, stages=[stage], ends_in_s=61.0)
    (run.folder / PROGRESS).write_bytes(msgspec.json.encode(told))
    (run.folder / PROGRESS).chmod(0o600)
    assert asking.get(f"{WORDY}/progress")["table"]["rows"] == [["1 word", "1 of 4", "2KB", "1 FAILED", "1m01s"]]
    assert without_values(run.progress).cause == ""
    for node in (paths.tmaster, paths.scheduler):
        busy.state.delete(node("wordy"))
    found = asking.get(f"{WORDY}/progress")
    assert found["run"]["state"] == "DEAD" and found["table"]["rows"] == [["1 word", "1 of 4", "2KB", "1 FAILED", ""]]
    assert "repeat its command to continue batch run wordy/1, or run 'heron kill local wordy'" in found["run"]["cause"]
    run.write(replace(run.record, state=RunState.FAILED, cause="no number: 'x'", ended_at=9.0))
    assert without_values(run.progress).cause == UNSEEN, "an exception may quote values"
