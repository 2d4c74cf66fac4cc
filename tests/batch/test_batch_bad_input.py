"""Bad input of a batch run: each gives one clear sentence, and nothing half done."""

from __future__ import annotations

import errno
import os
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any, ClassVar

import pytest
from msgspec.structs import replace

from heronpy import Bolt, Grouping, Split, Spout, TopologyBuilder
from heronpy.api.component.component_spec import GlobalStreamId
from heronpy.batch import keeper, steps
from heronpy.batch.choice import choose
from heronpy.batch.exchange import BucketWriter
from heronpy.batch.keeper import BatchKeeper
from heronpy.batch.mending import failing
from heronpy.batch.record import RunRecord, RunState
from heronpy.batch.run import Runs, refuse_unfinished
from heronpy.batch.stages import BatchRefusedError, divide
from heronpy.cli.exits import USAGE, exit_code_of
from heronpy.cli.look.batch_runs import print_progress
from heronpy.common.errors import ConfigError, GaveUpError, StateError, TopologyError
from heronpy.connectors.files import FileSink
from heronpy.connectors.textfiles.line_share import absolute_patterns
from heronpy.connectors.textfiles.textfilespout import TextFileSpout
from heronpy.connectors.unit_output import StagedRows
from heronpy.ingest.ledger.commands import Show
from heronpy.launching.batch_places import check_input, check_output, refuse_other_input
from heronpy.storage.locations import open_location
from tests.batch.inside import InsideRun
from tests.batch.programs import splits
from tests.batch.programs.visits import topology
from tests.batch.test_batch_inside import rows_of, write


class Endless(Spout):
    outputs: ClassVar[list[Any]] = ["number"]

    def next_tuple(self) -> None:
        self.emit([1])


def test_an_endless_spout_before_a_sink_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if its rows pass no exchange, whose bytes are counted; it is not tried again."""
    builder = TopologyBuilder("endless")
    numbers = builder.add_spout("numbers", Endless, par=1)
    builder.add_spec(FileSink.spec("store", {numbers: Grouping.SHUFFLE}, folder=str(tmp_path / "out")))
    builder.set_config({"heron.batch.spout_end_s": 0.3})
    run = InsideRun(tmp_path, builder, monkeypatch)
    run.start(workers=1)
    with pytest.raises(GaveUpError, match=r"spout 'numbers' has emitted .* and has not called end_of_input"):
        run.to_the_end()
    run.close()
    assert run.run.record.state is RunState.FAILED and not list((tmp_path / "out").glob("*"))
    assert run.run.progress.stages[0].attempts <= 1


class Kept(StagedRows):
    """Rows that nothing publishes."""

    def open(self, stage: Path) -> Any:
        raise NotImplementedError("nothing is staged in this test")


class KeepsRows(Bolt):
    @classmethod
    def unit_output(cls, component: str, config: Any) -> Any:
        return Kept(component)

    def process(self, tup: Any) -> None:
        pass


def test_a_sink_whose_rows_nothing_publishes_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    builder = splits.topology("sums", str(tmp_path / "out"), "2", "30")
    builder.add_bolt("kept", KeepsRows, par=1, inputs={GlobalStreamId("all", "default"): Grouping.SHUFFLE})
    run = InsideRun(tmp_path, builder, monkeypatch)
    run.start(workers=1)
    with pytest.raises(GaveUpError, match=r"unit_output of KeepsRows must return a UnitOutput, not <.*Kept object"):
        run.to_the_end()
    run.close()
    cause = run.run.record.cause
    assert cause.startswith("unit_output of KeepsRows") and run.run.record.state is RunState.FAILED


@pytest.mark.parametrize("change", ["shorter", "other bytes", "deleted"])
def test_input_that_changes_during_the_run_fails_it_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """A minute is too long for a test."""
    monkeypatch.setattr(keeper, "STALLED_S", 1.0)
    monkeypatch.setattr(keeper, "STALLED_ATTEMPTS", 2)
    log = tmp_path / "logs" / "a.log"
    write(log, 3000)
    given = {"mode": "EFFECTIVELY_ONCE", "follow": "1"}
    run = InsideRun(tmp_path, topology("visits", f"{tmp_path}/logs/*.log", str(tmp_path / "out"), **given), monkeypatch)
    run.start(workers=1)
    for task in run.tasks:
        for _ in range(20 if isinstance(task, BatchKeeper) else 0):
            task.next_tuple()  # the input is sealed
    if change == "shorter":
        os.truncate(log, 100)
    elif change == "deleted":
        log.unlink()
    else:
        size = log.stat().st_size
        log.write_bytes(b"x" * (size - 1) + b"\n")
    with pytest.raises(GaveUpError, match=r"stage 1 \(lines, parse\) has processed nothing for 1 s: .*a\.log"):
        run.to_the_end(15)
    run.close()
    assert run.run.record.state is RunState.FAILED and not rows_of(tmp_path / "out")


def test_changed_input_is_named_while_the_intact_files_are_processed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(keeper, "PROGRESS_S", 0.0)
    logs = [tmp_path / "logs" / f"{letter}.log" for letter in "abcdefgh"]
    for log in logs:
        write(log, 300)
    made = topology("visits", f"{tmp_path}/logs/*.log", str(tmp_path / "out"), unit_bytes="3000")
    run = InsideRun(tmp_path, made, monkeypatch)
    run.start(workers=0)
    (task,) = run.tasks
    assert isinstance(task, BatchKeeper)
    while task._step_now is None or task._watch is None or not task._asking.ask(Show()).units:  # noqa: SLF001
        task.next_tuple()
    # A unit may have the end of the changed file and the beginning of the next one.
    intact = sum(log.stat().st_size for log in logs[1:]) - 3000
    os.truncate(logs[0], 100)
    run.start(workers=2, keepers=0)
    until = time.monotonic() + 30
    while True:
        for one in run.tasks:
            one.next_tuple()
        stage = run.run.progress.stages[0]
        if stage.waits_for and stage.bytes_done >= intact:
            break
        assert time.monotonic() < until, stage
    assert "a.log" in stage.waits_for
    print_progress(run.run.progress)
    assert f"waits {stage.waits_for}" in " ".join(capsys.readouterr().out.split())
    run.close()
    assert run.run.record.state is RunState.RUNNING


def test_bytes_that_are_lost_before_they_are_cut_fail_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "logs" / "a.log", 30)
    run = InsideRun(tmp_path, topology("visits", f"{tmp_path}/logs/*.log", str(tmp_path / "out")), monkeypatch)
    run.start(workers=0)
    (task,) = run.tasks
    assert isinstance(task, BatchKeeper)
    for _ in range(20):
        task.next_tuple()
    figures = replace(task._asking.ask(Show()), bad_bytes=12)  # noqa: SLF001
    with pytest.raises(GaveUpError, match=r"12B of the input of stage 1 .* were deleted or changed.*--fresh"):
        task._looked(figures)  # noqa: SLF001
    run.close()
    assert run.run.record.state is RunState.FAILED


def test_a_full_disk_is_said_and_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = InsideRun(tmp_path, splits.topology("sums", str(tmp_path / "out"), "4", "300"), monkeypatch)
    finish, failures = BucketWriter.finish, iter(range(3))

    def full(self: BucketWriter) -> None:
        if next(failures, None) is not None:
            raise OSError(errno.ENOSPC, "No space left on device")
        finish(self)

    monkeypatch.setattr(BucketWriter, "finish", full)
    run.start(workers=1)
    run.to_the_end()
    assert any("No space left on device" in said for task in run.tasks for said in task.delegate.said)
    run.close()
    assert sum(row["sum"] for row in rows_of(tmp_path / "out")) == sum(range(1200))  # type: ignore[misc]


def test_a_disk_without_room_for_the_record_ends_the_run_by_its_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = InsideRun(tmp_path, splits.topology("sums", str(tmp_path / "out"), "4", "300"), monkeypatch)
    run.start(workers=1)

    def full(path: Path, data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        for module in ("run", "steps"):
            patch.setattr(f"heronpy.batch.{module}.write_record", full)
        for _ in range(20):
            for task in run.tasks:
                task.next_tuple()
        assert str(run.tasks[0]._steps.fail("the disk is full", "")) == "the disk is full"  # noqa: SLF001
    assert run.run.record.state is RunState.RUNNING
    run.to_the_end()
    run.close()


def test_a_bucket_above_the_memory_fails_the_run_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = InsideRun(tmp_path, splits.topology("sums", str(tmp_path / "out"), "2", "30"), monkeypatch)

    def large(self: Bolt, tup: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(splits.Sum, "process", large)
    run.start(workers=1)
    with pytest.raises(GaveUpError, match=r"stage 2 \(sum\) has failed.*more memory.*most tuples have the same"):
        run.to_the_end()
    run.close()
    assert run.run.record.state is RunState.FAILED and not rows_of(tmp_path / "out")


def test_a_position_that_cannot_be_told_fails_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(self: Any, *args: Any) -> dict[str, int]:
        raise KeyError("end")

    monkeypatch.setattr(splits.Numbers, "follow_state", away)
    builder = splits.topology("sums", str(tmp_path / "out"), "2", "30")
    builder.set_config({"topology.reliability.mode": "EFFECTIVELY_ONCE"})
    run = InsideRun(tmp_path, builder, monkeypatch, saves=True)
    run.start()
    with pytest.raises(GaveUpError, match=r"follow_state\(\) of spout 'numbers' raised KeyError: 'end'"):
        run.to_the_end()
    run.close()
    assert run.run.record.state is RunState.FAILED


@pytest.mark.parametrize(
    ("about", "words"),
    [
        ({"state": RunState.FAILED}, "batch run visits/1 has failed"),
        ({"state": RunState.RUNNING}, "batch run visits/1 has not finished"),
        ({"state": RunState.HELD, "hold": True}, ""),
        ({"state": RunState.RUNNING, "hold": True}, ""),
        ({"state": RunState.FINISHED}, "batch run visits/1 has left no savepoint"),
        ({"state": RunState.FINISHED, "savepoint": "/checkpoints/1"}, ""),
    ],
)
def test_the_latest_checkpoint_is_not_that_before_a_run(tmp_path: Path, about: dict[str, Any], words: str) -> None:
    """A run without a result for the stream has no checkpoint, and an older one does not have its input."""
    runs = Runs(tmp_path / "batch", "visits")
    with runs.locked():
        with pytest.raises(TopologyError, match="another command is starting a batch run of 'visits'"), runs.locked():
            pass
        record = RunRecord(
            topology="visits", number=0, cluster="local", role="me", environ="default", code="", submitted_at=100.0
        )
        run = runs.begin(record, topology("visits", "/logs", "/out").build())
        run.write(replace(run.record, **about))
    refuse_unfinished(tmp_path / "batch", "visits", 101.0)
    if not words:
        refuse_unfinished(tmp_path / "batch", "visits", 99.0)
        refuse_unfinished(tmp_path / "batch", "visits", None)
        return
    with pytest.raises(TopologyError, match=rf"{words}, so there is no checkpoint of 'visits'; .*leave out --restore"):
        refuse_unfinished(tmp_path / "batch", "visits", None)
    with pytest.raises(TopologyError, match=rf"{words}.*older than the run.*give --restore the number of a checkpoint"):
        refuse_unfinished(tmp_path / "batch", "visits", 99.0)


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("nosuchdir/*.log", r"no file matches \S+/nosuchdir/\*\.log, which spout 'lines' reads; check the path"),
        ("empty/*.log", r"no file matches \S+/empty/\*\.log, which"),
        ("links/*.log", r"no file matches \S+/links/\*\.log, .*/links/a\.log is a link, which is not followed"),
        ("links/a.log", "is a link, which is not followed"),
        ("empty", r"/empty is a folder; name its files, such as \S+/empty/\*\.log"),
        ("**", "names a folder; name its files"),
        ("logs/*.log", ""),
    ],
)
def test_input_that_does_not_exist_is_refused(tmp_path: Path, pattern: str, words: str) -> None:
    """An empty file is input."""
    for folder in ("empty", "links", "logs"):
        (tmp_path / folder).mkdir()
    (tmp_path / "logs" / "a.log").touch()
    (tmp_path / "links" / "a.log").symlink_to(tmp_path / "logs" / "a.log")
    made = topology("visits", f"{tmp_path}/{pattern}", "/out").build()
    with pytest.raises(BatchRefusedError, match=words) if words else nullcontext():
        check_input(made, divide(made))


def reading(spout: type, config: dict[str, Any]) -> TopologyBuilder:
    builder = TopologyBuilder("visits")
    lines = builder.add_spout("lines", spout, par=1, config=config)
    builder.add_spec(FileSink.spec("store", {lines: Grouping.SHUFFLE}, folder="/out"))
    return builder


def test_an_empty_pattern_and_followed_files_are_said_plainly() -> None:
    with pytest.raises(ValueError, match="a path pattern for text files is empty; name the files"):
        absolute_patterns(["/logs/*.log", ""])
    chosen = choose(topology("visits", "/logs/*.log", "/out", follow="1").build())
    assert (chosen.mode, chosen.why) == (
        "stream", "spout 'lines' follows files; give --mode batch to read them once"
    )  # fmt: skip


@pytest.mark.parametrize(
    ("spout", "before", "now", "resume", "words"),
    [
        (TextFileSpout, {"textfile.paths": "/a/*.log"}, {"textfile.paths": ["/a/*.log"]}, False, ""),
        (TextFileSpout, {"textfile.paths": "/a"}, {"textfile.paths": "/a", "textfile.skip_header": 1}, True, ""),
        (TextFileSpout, {"textfile.paths": "/a"}, {"textfile.paths": "/b"}, True, "reads /a, but this command gives /b; "),
        (TextFileSpout, {"textfile.paths": ["/a"]}, {"textfile.paths": ["/a", "/b"]}, False, "gives /a and /b; .*input"),
        (TextFileSpout, {"textfile.paths": "/a" * 999}, {"textfile.paths": "/b"}, True, r"(/a){250}\.\.\., but .* /b; "),
        (splits.Numbers, {"splits": 1}, {"splits": 1}, False, ""),
        (splits.Numbers, {"paths": ["/a"]}, {"paths": ["/b"]}, True, ""),
        (splits.Numbers, {"paths": ["/a"]}, {"paths": ["/b"]}, False, r"has paths=\['/a'\], but .*paths=\['/b'\]; .*--resume to keep"),
        (splits.Numbers, {}, {"password": "hunter2"}, False, "has password=None, but this command gives password='(?!hunter2)"),
    ],
)  # fmt: skip
def test_an_unfinished_run_does_not_go_on_with_other_input(
    spout: type, before: dict[str, Any], now: dict[str, Any], resume: bool, words: str
) -> None:
    """It would process the units of the old input under the new name."""
    old, new = (reading(spout, config).build() for config in (before, now))
    said = f"run visits/3 has not finished, and its spout 'lines' .*{words}.*--fresh or another name"
    with pytest.raises(BatchRefusedError, match=said) if words else nullcontext():
        refuse_other_input("visits/3", old, new, divide(new), resume)


def test_an_output_folder_that_cannot_be_written_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    check_output(topology("visits", "/logs", f"{tmp_path}/new/out").build())
    with pytest.raises(BatchRefusedError, match=r"sink 'store' writes to .*/file/out, but .*/file is not a folder"):
        check_output(topology("visits", "/logs", f"{tmp_path}/file/out").build())
    with pytest.raises(BatchRefusedError, match=r"sink 'store' writes to /proc/self/none, but /proc/self cannot be wr"):
        monkeypatch.setattr(os, "access", lambda path, mode: True)  # root may write anywhere
        check_output(topology("visits", "/logs", "/proc/self/none").build())
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path)
    with pytest.raises(
        BatchRefusedError, match=rf"sink 'store' writes to .*/out, but you may not write to {tmp_path};"
    ):
        check_output(topology("visits", "/logs", f"{tmp_path}/new/out").build())


def test_only_patterns_of_users_are_said_to_match_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.log").touch()
    given = {"mode": "EFFECTIVELY_ONCE", "follow": "1"}
    run = InsideRun(tmp_path, topology("visits", f"{tmp_path}/*.log", str(tmp_path / "out"), **given), monkeypatch)
    run.start()
    run.to_the_end()
    said = [line for task in run.tasks for line in task.delegate.said]
    run.close()
    assert run.run.record.state is RunState.FINISHED and not any("matches no file" in line for line in said)


def test_a_batch_folder_that_cannot_be_written_is_bad_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Runs(tmp_path / "batch", "visits")
    for problem in (PermissionError(errno.EACCES, "Permission denied"), OSError(errno.EROFS, "Read-only file system")):

        def refuse(folder: Path, error: OSError = problem) -> None:
            raise error

        with (
            monkeypatch.context() as patch,
            pytest.raises(ConfigError, match=rf"{tmp_path}/batch/visits cannot be written \({problem.strerror}\); set"),
        ):
            patch.setattr("heronpy.batch.run.make_folders", refuse)
            with runs.locked():
                pass
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write anywhere
    with pytest.raises(ConfigError, match=r"cannot be written \(Permission denied\)") as raised, runs.locked():
        pass
    assert exit_code_of(raised.value) == USAGE


def test_a_disk_that_is_full_from_the_start_is_named_and_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = InsideRun(tmp_path, splits.topology("sums", str(tmp_path / "out"), "4", "300"), monkeypatch)
    make, failures = steps.make_record, iter(range(3))

    def full(path: Path, data: bytes) -> None:
        if next(failures, None) is not None:
            raise OSError(errno.ENOSPC, "No space left on device")
        make(path, data)

    monkeypatch.setattr(steps, "make_record", full)
    run.start(workers=1)
    with monkeypatch.context() as patch:
        patch.setattr("heronpy.batch.run.full_folder", lambda folder: folder)
        assert run.run.waits_for == f"the disk of {run.run.folder} is full; free space on it, and the run continues"
    assert not run.run.waits_for
    run.to_the_end()
    outages = [said for task in run.tasks for said in task.delegate.outages]
    assert outages[0] == f"the disk of {run.run.folder} is full" and outages[-1] == ""
    run.close()
    assert sum(row["sum"] for row in rows_of(tmp_path / "out")) == sum(range(1200))  # type: ignore[misc]


def test_a_submit_to_a_full_disk_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Runs(tmp_path / "batch", "visits")
    words = rf"the disk of {tmp_path}/batch/visits, the folder of batch runs, is full; free space .*heron.batch.folder"
    with runs.locked():
        runs.refuse_full()
        monkeypatch.setattr("heronpy.batch.run.full_folder", lambda folder: folder)
        with pytest.raises(StateError, match=words):
            runs.refuse_full()

    def full(folder: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("heronpy.batch.run.make_folders", full)
    with pytest.raises(StateError, match=words), runs.locked():
        pass


def test_a_disk_that_fills_up_before_a_stage_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = InsideRun(tmp_path, splits.topology("sums", str(tmp_path / "out"), "4", "300"), monkeypatch)
    run.start(workers=0)
    monkeypatch.setattr("heronpy.batch.mending.full_folder", lambda folder: folder)
    with pytest.raises(GaveUpError, match=rf"^the disk of {run.run.folder} is full; fix the cause"):
        with failing(run.tasks[0]._steps):  # noqa: SLF001
            raise OSError(errno.ENOSPC, "No space left on device")
    run.close()


@pytest.mark.parametrize("follows", [False, True])
def test_no_splits_are_a_finished_run_behind_which_a_stream_begins_at_the_first_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, follows: bool
) -> None:
    asked: list[list[Split]] = []

    def state(self: Any, listed: list[Split], index: int, tasks: int) -> dict[str, int]:
        asked.append(listed)
        return {"offset": 0} if follows else {}

    monkeypatch.setattr(splits.Numbers, "follow_state", state)
    builder = splits.topology("sums", str(tmp_path / "out"), "0", "30")
    builder.set_config({"topology.reliability.mode": "EFFECTIVELY_ONCE"})
    run = InsideRun(tmp_path, builder, monkeypatch, saves=True)
    run.start()
    run.to_the_end()
    run.close()
    record = run.run.record
    assert (record.state, record.boundary, record.keys) == (RunState.FINISHED, "0 splits", 0)
    assert not rows_of(tmp_path / "out") and asked == [[], []]
    spout = [one for one in open_location(record.savepoint)[1].tasks if one.component == "numbers"]
    # Either the State of `follow_state`, or no split that the stream would skip.
    assert [one.stateful for one in spout] == ([True, True] if follows else [False])
    assert not any(keyed.keys for one in spout for keyed in one.keyed)


def test_a_host_that_has_no_input_fails_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The submit checks its own host only; a run without input would show an empty result."""
    run = InsideRun(tmp_path, topology("visits", f"{tmp_path}/logs/*.log", str(tmp_path / "out")), monkeypatch)
    run.start()
    with pytest.raises(
        GaveUpError, match=r"^on host \S+ no file matches \S+/logs/\*\.log, which spout 'lines' reads; fix"
    ):
        run.to_the_end()
    run.close()
    assert run.run.record.state is RunState.FAILED and "no file matches" in run.run.record.cause


@pytest.mark.parametrize("mode", ["ATMOST_ONCE", "EFFECTIVELY_ONCE"])
def test_a_host_that_cannot_write_the_output_fails_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    write(tmp_path / "logs" / "a.log", 30)
    (tmp_path / "file").touch()
    out = tmp_path / "file" / "out"
    run = InsideRun(tmp_path, topology("visits", f"{tmp_path}/logs/*.log", str(out), mode=mode), monkeypatch)
    run.start(workers=1)
    words = rf"^sink 'store' cannot write its rows to {out} \(Not a directory\); fix the cause"
    with pytest.raises(GaveUpError, match=words) as raised:
        run.to_the_end()
    run.close()
    assert run.run.record.state is RunState.FAILED and "\n" not in str(raised.value)


def test_input_that_is_gone_before_any_attempt_fails_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No worker gets its units then, so the run would wait for ever."""
    monkeypatch.setattr(keeper, "STALLED_S", 0.5)
    log = tmp_path / "logs" / "a.log"
    write(log, 3000)
    run = InsideRun(tmp_path, topology("visits", f"{tmp_path}/logs/*.log", str(tmp_path / "out")), monkeypatch)
    run.start(workers=0)
    (task,) = run.tasks
    assert isinstance(task, BatchKeeper)
    while task._step_now is None or task._watch is None or not task._asking.ask(Show()).units:  # noqa: SLF001
        task.next_tuple()
    log.unlink()
    words = (
        rf"stage 1 \(lines, parse\) has processed nothing for 0 s: {log} was deleted or replaced after the run began"
    )
    with pytest.raises(GaveUpError, match=words):
        run.to_the_end(30)
    run.close()
    assert run.run.record.state is RunState.FAILED
