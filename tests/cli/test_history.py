"""`heron history`: what is kept of runs, with or without anything of them that still runs."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.batch.record import RunRecord, RunState
from heronpy.batch.run import Run, Runs
from heronpy.batch.topology import run_topology
from heronpy.cli.submit.batch_mode import BatchSubmit
from heronpy.cli.submit.waiting import TopologyFailed
from heronpy.clusters import history
from heronpy.net.answers import packed
from heronpy.proto import control_pb2
from heronpy.scheduler import teardown
from heronpy.scheduler.teardown import KEPT_BYTES, KEPT_S, KeptFile, outdated, remove_state
from heronpy.statemgr import paths
from heronpy.tmaster.minutes import Minutes
from heronpy.views.progress import PROGRESS, Progress, Slow, StageProgress, stopped, table_of
from tests.cli.conftest import FakeTopology, Heron, word_count
from tests.support.views import load_answer

BEGAN = time.time() - 3600


@pytest.fixture
def raised(wordy: FakeTopology) -> FakeTopology:
    """wordy, whose topology master has written what it knew."""
    wordy.record.submitted_at = BEGAN
    wordy.state.set(paths.execution_state("wordy"), wordy.record.SerializeToString())
    last, minutes = control_pb2.LastAnswers(topology_id="wordy-1", load=packed(load_answer())), Minutes()
    last.exceptions.exceptions.add(component="count", task_id=2, type="ValueError", message="no number", count=3)
    worker = last.counts.reports.add(process="container_1_count_2", component="count")
    worker.samples.add(name="units-published-rows", label="clicks", value=12)
    worker.samples.add(name="units-attempts", label="clicks", value=5)
    worker.samples.add(name="__py-user-cpu-time-secs", value=61.5)
    minutes.add(int(BEGAN // 60), {"count": {"memory_bytes": 3 << 20}, "word": {"memory_bytes": 2 << 20}})
    minutes.add(int(BEGAN // 60) + 1, {"count": {"memory_bytes": 4 << 20}})
    last.minutes.CopyFrom(minutes.ledger("wordy-1"))
    wordy.state.create(paths.last_answers("wordy"), last.SerializeToString())
    events = control_pb2.EventLedger(topology_id="wordy-1", last=1)
    events.events.add(
        number=1, at=BEGAN + 60, kind=control_pb2.EVENT_LIFE, reason="running", text="wordy is RUNNING", times=1
    )
    wordy.state.create(paths.events("wordy"), events.SerializeToString())
    return wordy


def killed(fake: FakeTopology) -> None:
    """All its processes end without a word."""
    fake.state.delete(paths.tmaster("wordy"))
    fake.state.delete(paths.scheduler("wordy"))


@pytest.mark.parametrize("end", [killed, lambda fake: remove_state(fake.state, "wordy")], ids=["dead", "removed"])
def test_it_tells_of_a_run_of_which_nothing_runs(heron: Heron, raised: FakeTopology, end: object) -> None:
    end(raised)  # type: ignore[operator]
    state = "DEAD" if end is killed else "KILLED"
    [listed] = json.loads(heron("history", "list", "local", "--json").out)
    assert (listed["run"], listed["state"], listed["name"]) == ("wordy-1", state, "wordy")
    assert f" {state} " in heron("history", "list", "local").out
    for word in ("wordy", "wordy-1"):
        shown = heron("history", "show", "local", word).out
        assert shown.startswith(f"Run wordy-1 of topology 'wordy' is {state}\n")
        assert "1m02s of CPU, at most 5MB of memory" in shown and "wordy is RUNNING" in shown
        assert "1 kind of exceptions: heron history exceptions local wordy-1" in shown and "clicks" in shown
    found = json.loads(heron("history", "show", "local", "wordy", "--json").out)
    assert found["used"]["cpu_s"] == 61.5 and found["exceptions"] == 3 and found["progress"] is None
    assert "ValueError: 3 times" in heron("history", "exceptions", "local", "wordy").out
    assert "12 rows of 0B" in heron("history", "progress", "local", "wordy").out
    [pipeline] = json.loads(heron("history", "progress", "local", "wordy", "--json").out)["pipelines"]
    assert (pipeline["name"], pipeline["attempts"]) == ("clicks", 5)


def test_a_dead_run_lasted_until_the_last_sign_of_life(heron: Heron, raised: FakeTopology) -> None:
    killed(raised)

    def lasted() -> float:
        [listed] = json.loads(heron("history", "list", "local", "--json").out)
        assert listed["ended_at"] - BEGAN == pytest.approx(listed["uptime_s"], abs=1e-3)
        return float(listed["uptime_s"])

    assert lasted() == pytest.approx(60, abs=61)  # its last event, or the figures of a minute
    log = Path(raised.record.working_dir) / "log-files" / "container_1_count_2.log"
    log.touch()
    os.utime(log, (BEGAN + 300, BEGAN + 300))
    assert lasted() == pytest.approx(300, abs=1)


def test_a_run_that_runs_is_listed_with_its_state(heron: Heron, raised: FakeTopology) -> None:
    [listed] = json.loads(heron("history", "list", "local", "--json").out)
    assert listed["state"] == "RUNNING" and listed["ended_at"] is None and listed["uptime_s"] > 3000
    assert "ended" not in heron("history", "show", "local", "wordy").out.replace("history exceptions", "")


def test_logs_are_those_of_the_run(heron: Heron, raised: FakeTopology) -> None:
    """Neither those of an earlier run of this name, nor those of a later one."""
    remove_state(raised.state, "wordy")
    log = Path(raised.record.working_dir) / "log-files" / "container_1_count_2.log"
    stamps = {"before": BEGAN - 60, "in it": BEGAN + 60, "after": time.time() + 60}
    line = "{} INFO  container_1_count_2 [user] {}\n"
    log.write_text(
        "".join(line.format(time.strftime("%Y-%m-%dT%H:%M:%S.000+0000", time.gmtime(at)), text) for text, at in stamps.items())
    )  # fmt: skip
    assert [one.rpartition("] ")[2] for one in heron("history", "logs", "local", "wordy").out.splitlines()] == ["in it"]
    assert heron("history", "logs", "local", "wordy", "nobody").code == 2


def test_what_is_not_kept_is_one_sentence(heron: Heron, wordy: FakeTopology) -> None:
    told = heron("history", "show", "local", "wordx")
    assert (told.code, told.out) == (3, "")
    assert told.err == "error: there is no record of a run 'wordx' in cluster local; did you mean 'wordy'?\n"
    told = heron("history", "progress", "local", "wordy")
    assert told.code == 1 and "had no work units" in told.err
    assert heron("history", "list", "local/other").out == "No runs of topologies are kept in local/other\n"


# ---- batch runs -------------------------------------------------------------------------------


@pytest.fixture
def batch(raised: FakeTopology, home: Path) -> Run:
    """The second submit of wordy has worked on batch run wordy/1."""
    run = Run(home / "batch" / "local" / "wordy" / "1")
    run.folder.mkdir(parents=True, mode=0o700)
    run.write(
        RunRecord(
            topology="wordy", number=1, cluster="local", role="me", environ="default", code="c", submitted_at=BEGAN,
            topology_ids=("wordy-0", "wordy-1"), state=RunState.FAILED, cause="parse raises", ended_at=BEGAN + 90,
        )
    )  # fmt: skip
    (run.folder / PROGRESS).write_bytes(msgspec.json.encode(progress()))
    (run.folder / PROGRESS).chmod(0o600)
    made = run_topology(word_count(), str(run.folder), 2)
    raised.state.set(paths.topology("wordy"), made.SerializeToString())
    return run


def progress() -> Progress:
    stages = [
        StageProgress(number=1, components=["lines", "parse"], state="running", units=2979, done=2791, bytes_done=1 << 30,
                      attempts=2803, backups=9, backups_won=6, preempted=3),
        StageProgress(number=2, components=["count"], state="waiting", units=61, slow=[Slow(container=4, ratio=3.9)]),
    ]  # fmt: skip
    return Progress(run="wordy/1", state="RUNNING", at=1.0, began_at=0.0, stages=stages, ends_in_s=160.2, ends_at_least=True)  # fmt: skip


def test_a_dead_batch_run_lasted_until_its_progress_was_written_last(
    heron: Heron, raised: FakeTopology, batch: Run
) -> None:
    killed(raised)
    record = msgspec.structs.replace(batch.record, state=RunState.RUNNING, ended_at=None)
    batch.write(record)
    (batch.folder / PROGRESS).write_bytes(msgspec.json.encode(msgspec.structs.replace(progress(), at=BEGAN + 500)))
    [listed] = json.loads(heron("history", "list", "local", "--json").out)
    assert (listed["state"], listed["uptime_s"]) == ("DEAD", pytest.approx(500, abs=1e-3))


def test_all_commands_tell_the_same_of_a_dead_batch_run(heron: Heron, raised: FakeTopology, batch: Run) -> None:
    killed(raised)
    batch.write(msgspec.structs.replace(batch.record, state=RunState.RUNNING, cause="", ended_at=None))
    cure = "repeat its command to continue batch run wordy/1, or run 'heron kill local wordy' to remove its records"
    dead = f"no process of topology 'wordy' is running; {cure}"
    told = heron("progress", "local", "wordy").out
    assert told.startswith("Batch run wordy/1 is DEAD") and dead in " ".join(told.split()) and "at least" not in told
    for words in (("progress", "local"), ("history", "progress", "local")):
        told = heron(*words, "wordy", "--json").out
        shown = json.loads(told)
        shown = shown.get("progress", shown)
        assert (shown["state"], shown["cause"], shown["ends_in_s"]) == ("DEAD", dead, None)
    [listed] = json.loads(heron("history", "list", "local", "--json").out)
    assert (listed["state"], listed["cause"]) == ("DEAD", dead)
    assert heron("status", "local", "wordy").err == f"error: {dead}\n"
    told = heron("list", "local").out
    assert " DEAD " in told and f"'wordy' is dead; {cure}\n" in told
    # Its command would not continue a run that has finished, even if the figures were not written any more.
    batch.write(msgspec.structs.replace(batch.record, state=RunState.FINISHED, ended_at=BEGAN + 90))
    assert "no process of topology 'wordy' is running; run 'heron kill" in heron("status", "local", "wordy").err
    for words in (("progress", "local"), ("history", "progress", "local")):
        shown = json.loads(heron(*words, "wordy", "--json").out)
        assert shown.get("progress", shown)["state"] == "FINISHED"
    batch.write(msgspec.structs.replace(batch.record, state=RunState.RUNNING, ended_at=None))
    remove_state(raised.state, "wordy")
    shown = json.loads(heron("progress", "local", "wordy", "--json").out)
    assert shown["state"] == "KILLED" and shown["cause"] == (
        "topology 'wordy' was killed; repeat its command to continue batch run wordy/1"
    )
    [listed] = json.loads(heron("history", "list", "local", "--json").out)
    assert listed["state"] == "KILLED"


@pytest.mark.parametrize("kept", [True, False])
def test_a_batch_run_has_its_own_name(heron: Heron, raised: FakeTopology, batch: Run, kept: bool) -> None:
    """Also when only its folder is left."""
    remove_state(raised.state, "wordy")
    if not kept:
        (Path(raised.record.working_dir) / teardown.ENDED / "wordy-1").unlink()
    [listed] = json.loads(heron("history", "list", "local", "--json").out)
    assert (listed["run"], listed["state"], listed["cause"]) == (
        "wordy/1",
        "FAILED",
        "batch run wordy/1 has failed: parse raises",
    )
    for word in ("wordy/1", "wordy", *(["wordy-1"] if kept else [])):
        assert "2,803: 9 backups (6 won), 3 preempted" in heron("history", "progress", "local", word).out
    told = heron("progress", "local", "wordy/1", "--json")
    assert json.loads(told.out)["run"] == "wordy/1" and heron("progress", "local", "wordy/2").code == 2
    assert "contains '..'" in heron("progress", "local", "../1").err
    if not kept:
        assert "only its results folder is kept" in heron("history", "logs", "local", "wordy/1").err
    table = heron("history", "show", "local", "wordy/1").out
    assert "slow: container 4, 3.9 x" in table and "FAILED" in table
    told = json.loads(heron("history", "progress", "local", "wordy/1", "--json").out)
    assert told["progress"]["stages"][0]["done"] == 2791
    assert told["progress"]["state"] == "FAILED" and told["progress"]["ends_in_s"] is None, "as its record says"
    assert heron("history", "show", "local", "wordy/2").code == 3


def test_the_run_of_the_running_topology_is_shown_wherever_its_folder_is(
    heron: Heron, raised: FakeTopology, batch: Run, tmp_path: Path
) -> None:
    """With another heron.batch.folder a run may have the name of an older one."""
    runs = Runs(tmp_path / "elsewhere" / "local", "wordy")
    with runs.locked():
        own = runs.begin(msgspec.structs.replace(batch.record, state=RunState.RUNNING, cause=""), word_count())
    now = msgspec.structs.replace(progress(), boundary="12 splits")
    (own.folder / PROGRESS).write_bytes(msgspec.json.encode(now))
    raised.state.set(paths.topology("wordy"), run_topology(word_count(), str(own.folder), 2).SerializeToString())
    for word in ("wordy", "wordy/1"):
        told = json.loads(heron("progress", "local", word, "--json").out)
        assert (told["state"], told["boundary"]) == ("RUNNING", "12 splits")


def test_a_run_that_is_removed_meanwhile_is_left_out(
    heron: Heron, raised: FakeTopology, batch: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A submit removes old runs while they are listed."""
    batch.write(msgspec.structs.replace(batch.record, state=RunState.RUNNING, ended_at=None, topology_ids=()))
    listed = history.run_folders

    def removed(*args: Any) -> Iterator[Any]:
        for found in listed(*args):
            shutil.rmtree(batch.folder)
            yield found

    monkeypatch.setattr(history, "run_folders", removed)
    told = heron("history", "list", "local", "--json")
    assert told.code == 0 and [one["run"] for one in json.loads(told.out)] == ["wordy-1"]


def test_after_the_last_unit_the_command_and_the_table_say_what_is_done() -> None:
    """Not "0s left": Spark may need an hour then."""
    stages = [
        StageProgress(number=1, components=["parse"], state="finished", units=4, done=4),
        StageProgress(number=2, components=["count"], state="running", units=2, done=1, bytes=20, bytes_done=10),
    ]
    working = msgspec.structs.replace(progress(), stages=stages, ends_in_s=0.2, ends_at_least=False)
    writing = msgspec.structs.replace(stages[1], done=2, bytes_done=20)
    done = msgspec.structs.replace(working, stages=[stages[0], writing], ends_in_s=0.0)

    def said(found: Progress) -> tuple[str, str]:
        run = SimpleNamespace(progress=found, waits_for="")
        begun: Any = SimpleNamespace(run=run, stages=found.stages)
        return BatchSubmit(begun, word_count(), ()).progress(), table_of(found).rows[1][-1]

    assert said(working) == ("stage 2 of 2 (count): 1 of 2 units, 10B, 0s left", "0s")
    assert said(done) == ("stage 2 of 2 (count): 2 of 2 units, 20B, writing the output", "writing the output")
    assert table_of(stopped(done)).rows[1][-1] == ""
    ended = msgspec.structs.replace(done, stages=[stages[0], msgspec.structs.replace(writing, state="finished")])
    assert said(ended)[0] == "2 stages, all done"
    # A unit that is tried again.
    again = msgspec.structs.replace(stages[1], done=0, bytes_done=0, in_work=1, next_try=2, tries_max=3)
    retried = msgspec.structs.replace(working, stages=[stages[0], again], ends_in_s=None)
    assert said(retried) == ("stage 2 of 2 (count): 0 of 2 units, 1 in progress, try 2 of 3, 0B", "")
    assert table_of(retried).rows[1][1] == "0 of 2, 1 in progress, try 2 of 3"


def test_a_failed_batch_run_is_told_in_one_sentence_with_each_traceback_once() -> None:
    """Its workers and keepers give up with the same sentence, and each try has the same traceback."""
    reply = control_pb2.ExceptionsReply()
    for number in (1, 2, 3):
        text = f"unit 1, try {number}: boo\nTraceback (most recent call last):\n  File parse.py\nValueError: boo"
        reply.exceptions.add(type="heronpy.api.user_code.UserCodeError", message="boo", traceback=text)
    reply.exceptions.add(type="heronpy.common.errors.GaveUpError", message="unit 1 has failed", traceback="keeper.py")
    record = SimpleNamespace(
        run="wordy/1", topology="wordy", state=RunState.FAILED, cause="unit 1 has failed", cure="fix it"
    )
    begun: Any = SimpleNamespace(run=SimpleNamespace(record=record))
    session: Any = SimpleNamespace(ask=lambda *args: reply)
    found = BatchSubmit(begun, word_count(), ()).failure(
        session, TopologyFailed("container_1_batch_1 failed", control_pb2.StatusReply(), "long")
    )
    assert str(found) == "batch run wordy/1 is FAILED: unit 1 has failed; fix it"
    assert found.report.count("Traceback") == 1 and "keeper.py" not in found.report


@pytest.mark.parametrize("damage", [b"", b"{", b'{"run": 3}', b"[" * 100_000])
def test_a_damaged_progress_is_left_out(heron: Heron, raised: FakeTopology, batch: Run, damage: bytes) -> None:
    (batch.folder / PROGRESS).write_bytes(damage)
    assert json.loads(heron("history", "progress", "local", "wordy/1", "--json").out)["progress"]["stages"] == []
    (batch.folder / "run.json").write_bytes(damage)
    [listed] = json.loads(heron("history", "list", "local", "--json").out)
    assert (listed["run"], listed["state"]) == ("wordy-1", "RUNNING")


# ---- how much is kept -------------------------------------------------------------------------

NOW = 1e9
files = st.builds(
    KeptFile,
    st.floats(NOW - 2 * KEPT_S, NOW),
    st.integers(0, KEPT_BYTES // 3),
    st.builds(lambda name, number: Path(f"/t/{name}/ended/{number}"), st.sampled_from("ab"), st.integers()),
)


@given(st.lists(files, max_size=30, unique_by=lambda one: one.path))
def test_what_is_kept_is_bounded(known: list[KeptFile]) -> None:
    old = set(outdated(known, NOW))
    kept = [one for one in known if one not in old]
    assert sum(one.bytes for one in kept) <= KEPT_BYTES
    for folder in {one.path.parent for one in known}:
        late = [one for one in kept if one.path.parent == folder and NOW - one.written_at > KEPT_S]
        assert len(late) <= teardown.ENDED_MAX
    if sum(one.bytes for one in known) <= KEPT_BYTES:
        newest = sorted(known, reverse=True)
        assert all(NOW - one.written_at > KEPT_S for one in old)
        for folder in {one.path.parent for one in known}:
            mine = [one for one in newest if one.path.parent == folder]
            assert not old.intersection(mine[: teardown.ENDED_MAX])
