"""Batch runs in this process: rows, state, and the place where a stream goes on."""

from __future__ import annotations

import hashlib
import json
import pkgutil
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import pytest
from msgspec.structs import replace

from heronpy import Bolt, Grouping, StatefulComponent, TopologyBuilder
from heronpy.api.metrics import AssignableMetrics, CountMetric
from heronpy.batch.exchange import DamagedExchangeError, Exchanges
from heronpy.batch.finalise import finalise
from heronpy.batch.keeper import BatchKeeper
from heronpy.batch.mending import failing, mend, note_damage
from heronpy.batch.record import RunState
from heronpy.batch.run import RUN
from heronpy.batch.sources import LinesCell
from heronpy.batch.stages import BatchRefusedError, divide
from heronpy.batch.steps import Steps
from heronpy.batch.worker import FAILED, BatchWorker
from heronpy.common.errors import GaveUpError, LedgerAwayError
from heronpy.connectors.files import FileSink
from heronpy.connectors.textfiles.textfilespout import TextFileSpout
from heronpy.ingest.keeper import LogKeeper
from heronpy.ingest.ledger.commands import Figures
from heronpy.ingest.ledger.reaching import Reached
from heronpy.ingest.outputs.stages import Stages
from heronpy.ingest.worker import LogWorker
from heronpy.launching.on_batch import check_like
from heronpy.storage.locations import open_location
from tests.batch.inside import InsideRun
from tests.batch.programs import splits
from tests.batch.programs.visits import topology
from tests.ingest.test_units_inside import Context


def write(path: Path, lines: int) -> Counter[str]:
    path.parent.mkdir(exist_ok=True)
    chosen = [f"visitor{number * 7 % 31}" for number in range(lines)]
    path.write_text("".join(f"{visitor} /page\n" for visitor in chosen))
    return Counter(chosen)


def rows_of(out: Path) -> list[dict[str, object]]:
    return [json.loads(line) for path in sorted(out.glob("part-*")) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("mode", ["ATMOST_ONCE", "EFFECTIVELY_ONCE"])
def test_a_run_counts_each_line_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    expected = write(tmp_path / "logs" / "a.log", 3000)
    out = tmp_path / "out"
    run = InsideRun(
        tmp_path, topology("visits", f"{tmp_path}/logs/*.log", str(out), mode=mode, follow="1"), monkeypatch
    )
    run.start()
    run.to_the_end()
    run.close()
    rows = rows_of(out)
    assert {row["visitor"]: row["visits"] for row in rows} == expected and len(rows) == len(expected)
    record = run.run.record
    assert record.state is RunState.FINISHED and bool(record.savepoint) == (mode == "EFFECTIVELY_ONCE")
    assert record.keys == (len(expected) if record.savepoint else 0)
    # Interrupted before the record was written: the repetition changes nothing and says the same.
    run.run.write(replace(record, state=RunState.RUNNING, ended_at=None, savepoint="", keys=0, sinks={}))
    finalise(Steps(run.run))
    assert rows_of(out) == rows and replace(run.run.record, ended_at=record.ended_at) == record


class KilledError(BaseException):
    """In place of the end of a process."""


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize(
    "step",
    [
        "heronpy.batch.steps.make_record",
        "heronpy.batch.steps.write_list",
        "heronpy.batch.steps.entered",
        "heronpy.storage.checkpoints.CheckpointStore.put_shared",
        "heronpy.connectors.files.units.publish_file",
        "heronpy.storage.checkpoints.CheckpointStore.write_metadata",
        "heronpy.batch.keeper.drop_files",
        "heronpy.ingest.outputs.stages.Stages.mark_end",
        "heronpy.ingest.outputs.stages.Stages.make",
        "heronpy.ingest.outputs.stages.Stages.finish",
        "heronpy.ingest.outputs.stages.Stages.publish",
        # Requests to the ledger.
        "Lease",
        "Commit",
        "Published",
    ],
)
def test_a_run_that_is_killed_at_any_step_counts_each_line_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, before: bool
) -> None:
    expected, out = write(tmp_path / "logs" / "a.log", 300), tmp_path / "out"
    given = {"mode": "EFFECTIVELY_ONCE", "follow": "1"}
    run = InsideRun(tmp_path, topology("visits", f"{tmp_path}/logs/*.log", str(out), **given), monkeypatch)
    place = step if "." in step else "heronpy.ingest.asking.Asking.ask"
    do, calls = pkgutil.resolve_name(place), iter(range(1000))

    def killed(*args: Any, **more: Any) -> Any:
        is_other = step != place and type(args[1]).__name__ != step
        is_other |= step.endswith("mark_end") and next(calls) == 0  # that of the first stage
        result = None if before and not is_other else do(*args, **more)
        if not is_other:
            raise KilledError
        return result

    with monkeypatch.context() as patch:
        patch.setattr(place, killed)
        run.start()
        with pytest.raises(KilledError):
            run.to_the_end()
        run.die()
    run.start(after="killed")
    run.to_the_end()
    run.close()
    rows, record = rows_of(out), run.run.record
    assert {row["visitor"]: row["visits"] for row in rows} == expected and len(rows) == len(expected)
    assert not list(run.run.folder.glob("*/unit=*/[ts][ot]*"))  # only rows stay
    assert (record.state, record.keys) == (RunState.FINISHED, len(expected))
    counted = next(task for task in open_location(record.savepoint)[1].tasks if task.component == "count")
    assert counted.keyed[0].keys == len(expected)


@pytest.mark.parametrize("kind", [BatchWorker, BatchKeeper])
def test_who_is_late_and_finds_no_files_does_not_fail_a_finished_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[BatchWorker | BatchKeeper]
) -> None:
    """The others have ended the run, and removed what only its stages read."""
    out = tmp_path / "out"
    run = InsideRun(tmp_path, splits.topology("sums", str(out), "12", "300"), monkeypatch)
    run.start(keepers=2)
    last = Stages(str(run.run.table(3)))
    late = next(task for task in run.tasks if isinstance(task, kind))
    gone = DamagedExchangeError(run.run.table(2) / "unit=1-1" / "to-3", "it cannot be opened")
    while late._step_now is None or late._step_now.stage.number < 3:  # noqa: SLF001
        for task in run.tasks:
            task.next_tuple()
    with monkeypatch.context() as patch:
        others = [task for task in run.tasks if task is not late]
        while not all(task.delegate.ended for task in others):
            for task in others:
                task.next_tuple()
        assert last.has_ended(RUN) and not list(run.run.folder.glob("*/unit=*/to-*"))

        def read(self: object, *args: object) -> None:
            patch.undo()
            with failing(late._steps):  # noqa: SLF001
                raise gone

        patch.setattr(LogWorker if kind is BatchWorker else LogKeeper, "next_tuple", read)
        late.next_tuple()
        late.next_tuple()
    assert late.delegate.ended and not late.delegate.said
    run.close()
    assert run.run.record.state is RunState.FINISHED
    run.run.write(replace(run.run.record, state=RunState.RUNNING))
    with pytest.raises(GaveUpError, match="to-3 is damaged"), failing(Steps(run.run)):
        raise gone


def sums(count: int) -> dict[int, int]:
    return {digit: sum(number for number in range(count) if number % 10 == digit) for digit in range(10)}


def test_splits_pass_three_stages_and_each_number_counts_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    run = InsideRun(tmp_path, splits.topology("sums", str(out), "12", "300"), monkeypatch)
    run.start(workers=3, keepers=2)
    run.to_the_end()
    run.close()
    assert {row["digit"]: row["sum"] for row in rows_of(out)} == sums(3600) and len(rows_of(out)) == 10
    progress = run.run.progress
    assert [(one.components, one.state) for one in progress.stages] == [
        (["numbers", "digit"], "finished"), (["sum"], "finished"), (["all", "store"], "finished")
    ]  # fmt: skip
    assert progress.stages[0].units >= 6 and progress.stages[0].bytes == 12 * 300 * 8


def test_a_keeper_that_is_late_leaves_a_finished_stage_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = InsideRun(tmp_path, splits.topology("sums", str(tmp_path / "out"), "2", "3"), monkeypatch)
    run.start(workers=1, keepers=2)
    first = Stages(str(run.run.table(1)))
    while not first.has_ended(RUN):
        for task in run.tasks:
            task.next_tuple()
    late = [task for task in run.tasks if isinstance(task, BatchKeeper) and task._step_now is not None]  # noqa: SLF001
    for keeper in (one for one in late if one._step_now.stage.number == 1):  # type: ignore[union-attr]  # noqa: SLF001
        keeper._progress_at = 0.0  # noqa: SLF001
        keeper._looked(Figures())  # noqa: SLF001
        assert run.run.progress.stages[0].state == "running"
    run.to_the_end()
    run.close()
    assert [one.state for one in run.run.progress.stages] == ["finished"] * 3


def away(*args: Any) -> Reached:
    raise LedgerAwayError("the ledger cannot be used now")


def test_a_damaged_file_ends_the_run_and_its_unit_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    run = InsideRun(tmp_path, splits.topology("sums", str(out), "12", "300"), monkeypatch)
    run.start()
    first = run.run.table(1)
    while not Stages(str(first)).has_ended(RUN):
        for task in run.tasks:
            task.next_tuple()
    run.close()
    damaged = sorted(first.glob("unit=*/to-2"))[1]
    damaged.write_bytes(damaged.read_bytes()[:-1])
    run.start()
    with pytest.raises(GaveUpError, match=r"unit=.*/to-2 is damaged"):
        run.to_the_end()
    run.close()
    assert not rows_of(out) and run.run.record.state is RunState.FAILED
    # What the next submit does. It does not go on without the ledger.
    with monkeypatch.context() as patch, pytest.raises(LedgerAwayError):
        patch.setattr(Reached, "existing", away)
        mend(run.run, divide(run.topology))
    mend(run.run, divide(run.topology))
    assert not damaged.exists()
    run.run.write(replace(run.run.record, state=RunState.RUNNING, cause="", ended_at=None))
    run.start()
    run.to_the_end()
    run.close()
    assert {row["digit"]: row["sum"] for row in rows_of(out)} == sums(3600) and len(rows_of(out)) == 10
    # The figures count the unit twice.
    assert len(list(first.glob("unit=*"))) == run.run.progress.stages[0].units - 1


class KeepsAll(Bolt, StatefulComponent):
    outputs: ClassVar[list[Any]] = ["line"]

    def init_state(self, state: Any) -> None:
        """Nothing is kept: the class makes the bolt begin a stage."""

    def process(self, tup: Any) -> None:
        self.emit(tup.values)


def test_a_unit_that_is_made_again_sends_its_tuples_to_the_same_buckets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its id is another one, and some units of the next stage may have read the first one."""
    for name, lines in (("a", 14), ("b", 9)):
        write(tmp_path / "logs" / f"{name}.log", lines)
    builder = TopologyBuilder("visits")
    given = {"textfile.paths": f"{tmp_path}/logs/*.log", "textfile.follow": True}
    before = builder.add_spout("lines", TextFileSpout, 1, config=given)
    keeps = builder.add_bolt("keeps", KeepsAll, 3, inputs={before: Grouping.SHUFFLE})
    builder.add_spec(FileSink.spec("store", {keeps: Grouping.SHUFFLE}, folder=str(tmp_path / "out")))
    builder.set_config({"topology.reliability.mode": "EFFECTIVELY_ONCE"})
    run = InsideRun(tmp_path, builder, monkeypatch)
    table, stages = run.run.table(1), divide(run.topology)

    def made() -> tuple[list[list[bytes]], Path]:
        run.start(workers=1)
        while not Stages(str(table)).has_ended(RUN):
            for task in run.tasks:
                task.next_tuple()
        run.close()
        files = Exchanges(run.run.folder, stages, 2, 3)
        (unit,) = table.glob("unit=*")
        return [list(files.frames(bucket)) for bucket in range(3)], unit

    first, unit = made()
    assert all(first)
    note_damage(run.run, unit)
    mend(run.run, stages)
    again, other = made()
    assert other != unit and again == first


def test_a_run_that_takes_the_input_of_another_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = write(tmp_path / "logs" / "a.log", 300)
    logs, out = f"{tmp_path}/logs/*.log", str(tmp_path / "out")
    first = InsideRun(tmp_path, topology("visits", logs, out), monkeypatch)
    with pytest.raises(BatchRefusedError, match=r"visits/1 has not finished, so its input may not be complete"):
        check_like(first.run, divide(first.topology))
    first.start()
    first.to_the_end()
    first.close()
    write(tmp_path / "logs" / "b.log", 100)
    again = InsideRun(tmp_path, topology("visits", logs, out), monkeypatch, like="visits/1", hold=True)
    check_like(first.run, divide(again.topology))
    again.start()
    again.to_the_end()
    again.close()
    assert again.run.record.boundary == first.run.record.boundary == "the first 4.6KB of lines in 1 file"
    rows = [json.loads(line) for path in again.run.folder.glob("*/unit=*/sink-*") for line in path.open()]
    assert {row["visitor"]: row["visits"] for row in rows} == expected
    with pytest.raises(BatchRefusedError, match="visits/1 has no input for spout 'numbers'"):
        check_like(first.run, divide(splits.topology("sums", out, "2", "3").build()))


def test_a_list_that_differs_from_the_written_one_fails_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its units would leave out what they do not name: another bucket of the same length, for example."""
    run = InsideRun(tmp_path, splits.topology("sums", str(tmp_path / "out"), "2", "3"), monkeypatch)
    other = run.run.list_file(2)
    other.write_text('{"bucket": 7}\n')
    run.start()
    sentence = r"2\.jsonl lists different units of work than before; give --fresh to start a new run$"
    with pytest.raises(GaveUpError, match=sentence):
        run.to_the_end()
    run.close()
    assert run.run.record.state is RunState.FAILED and not rows_of(tmp_path / "out")


def test_a_broken_split_fails_the_run_by_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"broken": "split-7"}
    run = InsideRun(tmp_path, splits.topology("sums", str(tmp_path / "out"), "12", "300", **given), monkeypatch)
    run.start()
    with pytest.raises(GaveUpError, match="split-7"):
        run.to_the_end()
    run.close()
    record = run.run.record
    assert record.state is RunState.FAILED and "split 'split-7': UserCodeError: component numbers:" in record.cause
    assert run.run.progress.state == "FAILED" and not rows_of(tmp_path / "out")
    # The figures have the last try too, and history has an exception for each.
    assert sum(stage.tries_failed for stage in run.run.progress.stages) == 3


def test_a_split_that_kills_its_process_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = InsideRun(tmp_path, splits.topology("sums", str(tmp_path / "out"), "12", "300"), monkeypatch)
    run.start()
    run.to_the_end()
    steps = run.tasks[0]._steps  # noqa: SLF001
    first, second = (line for line, _ in steps._split_lines(steps.stages[0])[:2])  # noqa: SLF001
    step = steps._step(steps.stages[0])  # noqa: SLF001
    both = "one of the splits 'split-0' to 'split-1'"
    for last, named in ((len(first), "split 'split-0'"), (len(first + second), both)):
        told = steps.fail_unit(step, 1, f"1.jsonl bytes 0-{last}: the worker ended: crashed", None)
        assert f" has failed: {named}: the worker ended: crashed" in str(told)
    run.close()


def test_a_stage_with_a_failed_unit_never_ends_and_the_run_goes_on_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other tasks live on for a while after the worker that has told of it."""
    given = {"broken": "split-7"}
    out = tmp_path / "out"
    run = InsideRun(tmp_path, splits.topology("sums", str(out), "12", "300", **given), monkeypatch)
    run.start()
    with pytest.raises(GaveUpError, match="split-7"):
        run.to_the_end()
    with pytest.raises(GaveUpError, match="split-7"):
        until = time.monotonic() + 10
        while time.monotonic() < until:
            for worker in run.tasks[1:]:
                with suppress(GaveUpError):
                    worker.next_tuple()
            run.tasks[0].next_tuple()  # the keeper
    run.close()
    mended = splits.topology("sums", str(out), "12", "300").build()
    run.run.replace_topology(mended)
    mend(run.run, divide(mended))
    run.run.write(replace(run.run.record, state=RunState.RUNNING, cause="", ended_at=None))
    run.start()
    run.to_the_end()
    run.close()
    assert {row["digit"]: row["sum"] for row in rows_of(out)} == sums(3600)


class FailsSome(Bolt):
    outputs: ClassVar[list[Any]] = ["line"]

    def initialize(self, config: Any, context: Any) -> None:
        self.seen, self.longest = CountMetric(), AssignableMetrics(0)
        context.register_metric("seen", self.seen, 60)
        context.register_metric("longest", self.longest, 60)

    def process(self, tup: Any) -> None:
        self.seen.incr()
        self.longest.update(max(self.longest.value, len(tup.values[0])))
        if tup.values[0].endswith("3 /page"):
            self.fail(tup)
        else:
            self.emit(tup.values)


def test_metrics_of_user_code_and_failed_tuples_are_counted_over_all_units(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = write(tmp_path / "logs" / "a.log", 200)
    failed = sum(count for visitor, count in expected.items() if visitor.endswith("3"))
    builder = TopologyBuilder("visits")
    lines = builder.add_spout("lines", TextFileSpout, 1, config={"textfile.paths": f"{tmp_path}/logs/*.log"})
    some = builder.add_bolt("some", FailsSome, 1, inputs={lines: Grouping.SHUFFLE})
    builder.add_spec(FileSink.spec("store", {some: Grouping.SHUFFLE}, folder=str(tmp_path / "out")))
    run = InsideRun(tmp_path, builder, monkeypatch)
    metrics: dict[str, Any] = {}
    monkeypatch.setattr(Context, "register_metric", lambda self, name, metric, bucket_s: metrics.update({name: metric}))
    run.start(workers=1)
    run.to_the_end()
    (worker,) = (task for task in run.tasks if isinstance(task, BatchWorker))
    assert metrics["seen"].get_value_and_reset() == {"some": 200}
    assert metrics["longest"].get_value_and_reset() == {"some": len("visitor10 /page")}
    assert metrics[FAILED].get_value_and_reset() == {"some": failed} and 0 < failed < 100
    assert len(rows_of(tmp_path / "out")) == 200 - failed
    said = [text for text in worker.delegate.said if "bolt 'some' fails tuples" in text]
    run.close()
    assert len(said) == 1


class Unwritable(Bolt):
    outputs: ClassVar[list[Any]] = ["line", "value"]

    def process(self, tup: Any) -> None:
        line = tup.values[0]
        self.emit([line, {1j} if line.startswith("odd") else 1])


def test_a_row_that_does_not_fit_its_sink_fails_the_run_by_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "logs" / "a.log"
    write(log, 200)
    with open(log, "a") as file:
        begin = file.tell()
        file.write("odd one\nvisitor1 /page\n")
    builder = TopologyBuilder("visits")
    lines = builder.add_spout("lines", TextFileSpout, 1, config={"textfile.paths": str(log)})
    bolt = builder.add_bolt("bolt", Unwritable, 1, inputs={lines: Grouping.SHUFFLE})
    builder.add_spec(FileSink.spec("store", {bolt: Grouping.SHUFFLE}, folder=str(tmp_path / "out")))
    run = InsideRun(tmp_path, builder, monkeypatch)
    run.start(workers=1)
    words = rf"a\.log bytes {begin}-{begin + 8}: UnfitRowError: a row does not fit sink 'store': the row cannot be"
    with pytest.raises(GaveUpError, match=words):
        run.to_the_end()
    run.close()
    assert run.run.record.state is RunState.FAILED and not rows_of(tmp_path / "out")


class FailsAll(Bolt):
    outputs: ClassVar[list[Any]] = ["line"]

    def process(self, tup: Any) -> None:
        self.fail(tup)


def test_fails_count_over_all_buckets_of_a_unit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "logs" / "a.log", 120)
    builder = TopologyBuilder("visits")
    lines = builder.add_spout("lines", TextFileSpout, 1, config={"textfile.paths": f"{tmp_path}/logs/*.log"})
    builder.add_bolt("all", FailsAll, 1, inputs={lines: Grouping.fields("line")})
    monkeypatch.setattr("heronpy.batch.splits.BUCKET_BYTES", 200)
    run = InsideRun(tmp_path, builder, monkeypatch)
    run.start(workers=1)
    with pytest.raises(GaveUpError, match=r"component all: .* failed 1\d\d tuples in one unit"):
        run.to_the_end()
    assert Steps(run.run).buckets[2] > 4
    run.close()


def test_a_sink_that_cannot_be_made_fails_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = InsideRun(tmp_path, splits.topology("sums", str(tmp_path / "out"), "2", "3"), monkeypatch)

    def refuse(component: str, config: object) -> None:
        raise KeyError("bucket")

    monkeypatch.setattr(FileSink, "unit_output", refuse)
    run.start()
    with pytest.raises(GaveUpError, match="unit_output of sink 'store' raised KeyError: 'bucket'"):
        run.to_the_end()
    run.close()
    assert run.run.record.state is RunState.FAILED


def test_splits_that_cannot_be_listed_fail_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = InsideRun(tmp_path, splits.topology("sums", str(tmp_path / "out"), "12", "300"), monkeypatch)

    def splits_of(self: object, config: object) -> None:
        raise RuntimeError("the catalogue is away")

    monkeypatch.setattr(splits.Numbers, "splits", splits_of)
    run.start()
    with pytest.raises(GaveUpError, match=r"splits\(\) of spout 'numbers' raised RuntimeError: the catalogue is away"):
        run.to_the_end()
    run.close()
    assert run.run.record.state is RunState.FAILED


@pytest.mark.parametrize("workers", [1, 2, 7])
def test_the_number_of_workers_does_not_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int) -> None:
    """Units are published under their ids, which depend on timing; the rows by the order of the input do not."""
    write(tmp_path / "logs" / "a.log", 2000)
    out = tmp_path / "out"
    given = {"mode": "EFFECTIVELY_ONCE", "follow": "1"}
    run = InsideRun(tmp_path, topology("visits", f"{tmp_path}/logs/*.log", str(out), **given), monkeypatch)
    run.start(workers=workers)
    run.to_the_end()
    run.close()
    rows = b"".join(path.read_bytes() for path in sorted(out.glob("part-*")))
    _, metadata = open_location(run.run.record.savepoint)
    counted = next(task for task in metadata.tasks if task.component == "count")
    saved = [segment.file.sha256 for segment in counted.keyed[0].segments]
    found = (hashlib.sha256(rows).digest(), saved)
    assert saved and found == EQUAL.setdefault("visits", found)


#: What the first number of workers gave.
EQUAL: dict[str, tuple[bytes, list[bytes]]] = {}


class WrongFor(Bolt):
    """Refuses one line, a number of times."""

    outputs: ClassVar[list[Any]] = ["line"]
    left: ClassVar[int] = 0

    def process(self, tup: Any) -> None:
        if tup.values[0] == "wrong /page" and WrongFor.left:
            WrongFor.left -= 1
            raise LookupError("wrong")
        self.emit(tup.values[:1])


@pytest.mark.parametrize("offsets", [False, True])
@pytest.mark.parametrize("bad", [0, 1500, 2999])
@pytest.mark.parametrize("times", [1, 99])
def test_a_repeated_unit_passes_most_lines_together_and_names_the_one_at_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int, bad: int, offsets: bool
) -> None:
    """Line by line, a try after a failure costs about 16 times the first one."""
    WrongFor.left = times
    texts = ["right /page"] * 3000
    texts[bad] = "wrong /page"
    (tmp_path / "in.log").write_text("".join(f"{text}\n" for text in texts))
    builder = TopologyBuilder("lines")
    config = {TextFileSpout.PATHS: str(tmp_path / "in.log"), TextFileSpout.EMIT_OFFSET: offsets}
    spout = builder.add_spout("lines", TextFileSpout, par=1, config=config)
    bolt = builder.add_bolt("wrong", WrongFor, par=1, inputs={spout: Grouping.SHUFFLE})
    builder.add_spec(FileSink.spec("store", {bolt: Grouping.SHUFFLE}, folder=str(tmp_path / "out"), fields=["line"]))
    run = InsideRun(tmp_path, builder, monkeypatch)
    pushed: list[int] = []
    push = LinesCell.push

    def counted(self: LinesCell, columns: Any, size: int, stream: Any) -> None:
        pushed.append(size)
        push(self, columns, size, stream)

    monkeypatch.setattr(LinesCell, "push", counted)
    run.start()
    if times == 1:
        run.to_the_end()
        assert len(rows_of(tmp_path / "out")) == 3000 and len(pushed) <= 6
    else:
        place = rf"in\.log bytes {12 * bad}-{12 * bad + 12}: UserCodeError: component wrong: "
        with pytest.raises(GaveUpError, match=place):
            run.to_the_end()
        # A first try, and two that pass the lines of one step one by one.
        assert len(pushed) <= 3 + 2 * (3 + 2 + 1024)
    run.close()
