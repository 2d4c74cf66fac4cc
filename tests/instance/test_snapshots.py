"""Writing snapshots while the task runs: forked copies, threads, and what goes wrong with them (F25)."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from heronpy.ckpt.snapshot import TaskState
from heronpy.common.errors import RetryableError
from heronpy.common.setting_types import CheckpointSettings
from heronpy.proto.checkpoint_pb2 import Metadata, TaskSnapshot
from heronpy.storage.checkpoint_files import StoreError
from heronpy.storage.checkpoints import CheckpointStore
from heronpy.storage.stores import Stores
from instance.snapshots import Channel, Job, SnapshotFailed, SnapshotWriter
from tests.support.waiting import wait_for
from tests.support.wordless import reword

SMALL, FORK_ABOVE = 100, 1000
PATIENCE_S = 60.0


class Capture:
    """A capture of a given size; `persist` is the test's."""

    def __init__(self, size: int, persist: Any = None, needs_fork: bool = False) -> None:
        self.estimate_bytes = size
        self.needs_fork = needs_fork
        self.settled = self.was_forked = False
        self._persist = persist or (lambda: TaskSnapshot(state_inline=b"state", total_bytes=5))

    def persist(self) -> TaskSnapshot:
        made: TaskSnapshot = self._persist()
        return made

    def settle(self) -> None:
        self.settled = True

    def forked(self) -> None:
        self.was_forked = True


class Bench:
    """A writer and what it reports."""

    def __init__(self, state: Any = None) -> None:
        self.reports: list[tuple[int, TaskSnapshot | None, str]] = []
        self.writer = SnapshotWriter(state, FORK_ABOVE, SMALL, lambda *report: self.reports.append(report))

    def begin(self, capture: Any, checkpoint: int = 1, timeout_s: float = PATIENCE_S, records: bool = False) -> Job:
        cut = TaskSnapshot(task_id=7, component="count", executed=12)
        job = Job(checkpoint, capture, cut, time.monotonic() + timeout_s, records)
        self.writer.prepare(job)
        self.writer.start(job)
        return job

    def report(self) -> tuple[int, TaskSnapshot | None, str]:
        wait_for(lambda: self.reports, PATIENCE_S, "a report")
        assert len(self.reports) == 1
        return self.reports.pop()

    def calm(self) -> None:
        """Every helper thread is over."""
        wait_for(lambda: not [t for t in threading.enumerate() if t.name == "snapshot"], PATIENCE_S, "the end")


def copies() -> list[psutil.Process]:
    """Children of this process that are copies of it; other tests may keep services running."""
    own, found = psutil.Process(), []
    for child in own.children():
        with contextlib.suppress(psutil.NoSuchProcess):
            if child.cmdline() == own.cmdline():
                found.append(child)
    return found


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.writer.cancel(1 << 62)
    made.calm()
    assert not copies(), "a child was not reaped"


def test_small_state_is_written_at_once(bench: Bench) -> None:
    bench.begin(Capture(SMALL), checkpoint=4)
    assert len(bench.reports) == 1, "no thread was needed"
    checkpoint, snapshot, problem = bench.report()
    assert (checkpoint, problem) == (4, "") and snapshot is not None
    assert (snapshot.task_id, snapshot.component, snapshot.executed) == (7, "count", 12)
    assert snapshot.state_inline == b"state"


def test_middle_state_is_written_in_a_thread_and_settled_before_where_it_must(bench: Bench) -> None:
    where: list[str] = []

    def persist() -> TaskSnapshot:
        where.append(threading.current_thread().name)
        return TaskSnapshot(total_bytes=5)

    capture = Capture(SMALL + 1, persist, needs_fork=True)
    bench.begin(capture)
    assert bench.report()[2] == ""
    assert where == ["snapshot"] and capture.settled and not capture.was_forked


def test_large_state_is_written_by_a_copy_that_sees_it_as_it_was(bench: Bench, tmp_path: Path) -> None:
    state = {"n": 1}
    gate = tmp_path / "go"

    def persist() -> TaskSnapshot:
        wait_for(gate.exists, PATIENCE_S, "the gate")
        return TaskSnapshot(total_bytes=state["n"], state_inline=str(os.getpid()).encode())

    capture = Capture(FORK_ABOVE + 1, persist)
    job = bench.begin(capture)
    assert capture.was_forked and job.pid
    state["n"] = 2
    gate.touch()
    _, snapshot, problem = bench.report()
    assert problem == "" and snapshot is not None
    assert snapshot.total_bytes == 1
    assert snapshot.state_inline != str(os.getpid()).encode()
    assert snapshot.async_s > 0


def test_the_copy_runs_nothing_of_the_user_at_its_end(bench: Bench, tmp_path: Path) -> None:
    """No atexit functions, no finalizers of threads, no flushing of buffers that the parent holds, too."""
    buffered = open(tmp_path / "out", "w")
    buffered.write("once\n")
    threads: list[int] = []

    def at_end() -> None:
        (tmp_path / f"atexit.{os.getpid()}").touch()

    def persist() -> TaskSnapshot:
        return TaskSnapshot(total_bytes=threading.active_count())

    atexit.register(at_end)
    stop = threading.Event()
    beside = threading.Thread(target=stop.wait)
    beside.start()
    try:
        bench.begin(Capture(FORK_ABOVE + 1, persist))
        _, snapshot, problem = bench.report()
        assert problem == "" and snapshot is not None and snapshot.total_bytes == 1, "a thread went along"
        assert threads == [] and not list(tmp_path.glob("atexit.*"))
    finally:
        atexit.unregister(at_end)
        stop.set()
        beside.join()
        buffered.close()
    assert (tmp_path / "out").read_text() == "once\n"


@pytest.mark.parametrize("size", [SMALL, SMALL + 1, FORK_ABOVE + 1])
def test_what_persist_raises_is_told(bench: Bench, size: int) -> None:
    def full() -> TaskSnapshot:
        raise RetryableError("no space left on the checkpoint store")

    def broken() -> TaskSnapshot:
        raise ValueError("cannot be encoded: \udcff")

    bench.begin(Capture(size, full))
    assert bench.report() == (1, None, "no space left on the checkpoint store")
    bench.begin(Capture(size, broken), checkpoint=2)
    checkpoint, snapshot, problem = bench.report()
    assert (checkpoint, snapshot) == (2, None)
    assert problem.startswith("ValueError: cannot be encoded")


def test_a_copy_that_is_killed_fails_its_checkpoint_only(bench: Bench) -> None:
    job = bench.begin(Capture(FORK_ABOVE + 1, lambda: time.sleep(PATIENCE_S)))
    os.kill(job.pid, signal.SIGKILL)
    checkpoint, snapshot, problem = bench.report()
    assert (checkpoint, snapshot) == (1, None) and "signal 9" in problem
    bench.begin(Capture(FORK_ABOVE + 1), checkpoint=2)
    assert bench.report()[2] == ""


def test_a_copy_that_is_stuck_ends_at_the_deadline(bench: Bench) -> None:
    job = bench.begin(Capture(FORK_ABOVE + 1, lambda: time.sleep(PATIENCE_S)), timeout_s=0.05)
    assert "within the timeout" in bench.report()[2]
    wait_for(lambda: not job.pid, PATIENCE_S, "the copy to be reaped")


@pytest.mark.parametrize("size", [SMALL + 1, FORK_ABOVE + 1])
def test_nothing_is_heard_of_a_snapshot_that_was_given_up(bench: Bench, tmp_path: Path, size: int) -> None:
    gate = tmp_path / "go"

    def persist() -> TaskSnapshot:
        wait_for(gate.exists, PATIENCE_S, "the gate")
        return TaskSnapshot()

    job = bench.begin(Capture(size, persist))
    bench.writer.cancel(0)
    assert not job.cancelled, "an older checkpoint is another one"
    bench.writer.cancel(1)
    gate.touch()
    bench.calm()
    assert bench.reports == []


def test_a_newer_snapshot_supersedes_one_that_is_still_written(bench: Bench) -> None:
    bench.begin(Capture(FORK_ABOVE + 1, lambda: time.sleep(PATIENCE_S)))
    bench.begin(Capture(SMALL), checkpoint=2)
    assert bench.report()[0] == 2
    bench.calm()
    assert bench.reports == []


def test_a_copy_reports_more_than_a_pipe_holds(bench: Bench) -> None:
    bench.begin(Capture(FORK_ABOVE + 1, lambda: TaskSnapshot(state_inline=b"x" * 3_000_000)))
    _, snapshot, problem = bench.report()
    assert problem == "" and snapshot is not None and len(snapshot.state_inline) == 3_000_000


def test_no_process_to_write_in_fails_the_checkpoint_only(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_fork() -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", no_fork)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(SnapshotFailed, match="no process"):
        bench.begin(Capture(FORK_ABOVE + 1))
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("size", [SMALL + 1, FORK_ABOVE + 1])
def test_no_thread_to_write_in_fails_the_checkpoint_only(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    def no_thread(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    before = len(os.listdir("/proc/self/fd"))
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_thread)
        with pytest.raises(SnapshotFailed, match="no thread"):
            bench.begin(Capture(size))
    assert len(os.listdir("/proc/self/fd")) == before
    assert bench.reports == []


class Channels:
    """Where the frames of an unaligned checkpoint are written to."""

    def __init__(self) -> None:
        self.written: list[tuple[int, list[bytes], int]] = []

    def write_channel(self, checkpoint: int, snapshot: TaskSnapshot, frames: list[bytes], tuples: int) -> None:
        self.written.append((checkpoint, frames, tuples))
        snapshot.channel_tuples = tuples


def test_an_unaligned_snapshot_waits_for_what_is_on_its_way(monkeypatch: pytest.MonkeyPatch) -> None:
    state = Channels()
    bench = Bench(state)
    bench.begin(Capture(SMALL), records=True)
    bench.writer.recorded(2, Channel([b"other"], 1))
    assert bench.reports == []
    bench.writer.recorded(1, Channel([b"a", b"b"], 9))
    _, snapshot, problem = bench.report()
    assert problem == "" and snapshot is not None and snapshot.channel_tuples == 9
    assert state.written == [(1, [b"a", b"b"], 9)]
    bench.begin(Capture(SMALL), checkpoint=3, records=True, timeout_s=0.05)
    assert "did not arrive" in bench.report()[2]
    reword(monkeypatch, "")
    bench.begin(Capture(SMALL), checkpoint=4, records=True, timeout_s=0.05)
    assert bench.report() == (4, None, "")
    bench.calm()


def test_hundreds_of_copies_leave_nothing_behind(bench: Bench) -> None:
    """Neither zombies nor descriptors nor threads; the memory of the task stays what it was."""
    before = len(os.listdir("/proc/self/fd"))
    for checkpoint in range(1, 101):
        bench.begin(Capture(FORK_ABOVE + 1), checkpoint)
        assert bench.report()[0] == checkpoint
    bench.calm()
    assert len(os.listdir("/proc/self/fd")) == before
    assert not copies()


def test_a_forked_snapshot_of_real_state_is_what_it_was_at_the_cut(tmp_path: Path) -> None:
    settings = CheckpointSettings(inline_max_bytes=10, fork_above_bytes=1000, fsync=False)
    store = CheckpointStore(tmp_path / "topology", fsync=False)
    state = TaskState("count", 0, 1, settings, Stores(store), task_id=3)
    reports: list[Any] = []
    writer = SnapshotWriter(state, 1000, 10, lambda *report: reports.append(report))
    counts = state.keyed("counts")
    for checkpoint in (1, 2):
        for key in range(2000):
            counts[f"word-{key}"] = checkpoint
            state.plain[key] = checkpoint
        job = Job(checkpoint, state.capture(checkpoint), TaskSnapshot(), time.monotonic() + PATIENCE_S)
        writer.prepare(job)
        assert job.pid, "not forked"
        for key in range(2000):
            counts[f"word-{key}"] = -1
            state.plain[key] = -1
        writer.start(job)
        wait_for(lambda: len(reports) == checkpoint, PATIENCE_S, "a snapshot")  # noqa: B023
        assert reports[-1][2] == ""
        state.persisted(checkpoint, reports[-1][1])
        state.completed(checkpoint)
    snapshot = reports[-1][1]
    snapshot.task_id, snapshot.component, snapshot.attempt = 3, "count", 1
    location = store.write_metadata(
        Metadata(version=1, checkpoint=2, parallelism={"count": 1}, key_groups=1024, tasks=[snapshot])
    )
    again = TaskState("count", 0, 1, settings, Stores(store), task_id=3)
    assert again.restore(location, 2) == []
    assert dict(again.plain) == dict.fromkeys(range(2000), 2)
    assert dict(again.keyed("counts").items()) == {f"word-{key}": 2 for key in range(2000)}


class Uploads:
    """A store elsewhere: what it was asked to do."""

    def __init__(self, error: str = "") -> None:
        self.calls: list[tuple[str, int, str]] = []
        self._error = error

    def upload(self, checkpoint: int) -> None:
        self.calls.append(("upload", checkpoint, threading.current_thread().name))
        if self._error:
            raise StoreError(self._error)

    def drop(self, checkpoint: int) -> None:
        self.calls.append(("drop", checkpoint, threading.current_thread().name))


def writer_to(uploads: Uploads, reports: list[tuple[int, TaskSnapshot | None, str]]) -> SnapshotWriter:
    return SnapshotWriter(None, FORK_ABOVE, SMALL, lambda *report: reports.append(report), uploads)


@pytest.mark.parametrize("size", [SMALL, FORK_ABOVE + 1])
def test_what_goes_elsewhere_is_uploaded_by_a_thread_before_the_report(size: int) -> None:
    reports: list[tuple[int, TaskSnapshot | None, str]] = []
    uploads = Uploads()
    writer = writer_to(uploads, reports)
    job = Job(3, Capture(size), TaskSnapshot(task_id=7), time.monotonic() + PATIENCE_S)
    writer.prepare(job)
    writer.start(job)
    wait_for(lambda: reports, PATIENCE_S, "a report")
    assert reports[0][0] == 3 and reports[0][2] == ""
    assert {name for _, _, name in uploads.calls} == {"snapshot"}, "the task itself waited for no network"
    assert [what for what, _, _ in uploads.calls][-2:] == ["upload", "drop"]


def test_an_upload_that_fails_fails_the_checkpoint_and_is_forgotten() -> None:
    reports: list[tuple[int, TaskSnapshot | None, str]] = []
    uploads = Uploads("the store is away")
    writer = writer_to(uploads, reports)
    job = Job(3, Capture(SMALL), TaskSnapshot(task_id=7), time.monotonic() + PATIENCE_S)
    writer.prepare(job)
    writer.start(job)
    wait_for(lambda: reports, PATIENCE_S, "a report")
    assert reports == [(3, None, "the store is away")] and uploads.calls[-1][:2] == ("drop", 3)
    writer.cancel(3)
    assert uploads.calls[-1] == ("drop", 3, threading.current_thread().name)
