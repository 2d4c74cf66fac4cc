"""The contract of outputs, over all of them and the one of the how-to: whoever is killed at which step, a unit is in the
table whole and once, with its lineage, and nothing else is left."""

from __future__ import annotations

import functools
import gzip
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from heronpy.ingest import LineFiles, LogUnit, LogUnits, Output, ParquetTable, SparkBatches
from heronpy.ingest.checking import check, command_of
from heronpy.ingest.keeper import LogKeeper
from heronpy.ingest.ledger.commands import Show
from heronpy.ingest.ledger.requests import Commit, Published
from heronpy.ingest.ledger.types import Span, SpanState, Unit
from heronpy.ingest.outputs.lineage import FILE, Lineage, published, record_of
from heronpy.ingest.outputs.parquet import LINEAGE_KEY
from heronpy.ingest.outputs.stages import Stages
from heronpy.ingest.worker import LogWorker
from tests.ingest.test_units_inside import Context, Delegate
from tests.support.pages import DOCS, blocks_of
from tests.support.waiting import wait_for

PATIENCE_S = 60.0
LINES = 200
LINE = "{:05d}\n"
UNIT_BYTES = 400


@functools.cache
def gzip_lines() -> type[Output]:
    """The class of the how-to."""
    [block, _] = [block for block in blocks_of(DOCS / "howto" / "units-output.md") if block.language == "python"]
    found: dict[str, Any] = {"__name__": "events"}
    exec(compile(block.text, block.name, "exec"), found)
    made: type[Output] = found["GzipLines"]
    return made


def parquet_numbers(folder: Path) -> list[int]:
    found: list[int] = pq.ParquetFile(folder / "part-0.parquet").read()["number"].to_pylist()
    return found


def text_numbers(folder: Path) -> list[int]:
    return list(map(int, (folder / "part-0.txt").read_text().splitlines()))


def gzip_numbers(folder: Path) -> list[int]:
    with gzip.open(folder / "part-0.jsonl.gz", "rt") as file:
        return [json.loads(line)["number"] for line in file]


@dataclass(frozen=True)
class Case:
    """An output, what a number is as a row of it, a row that does not fit, and how to read a folder of it."""

    make: Callable[[str], Output]
    row: Callable[[int], Any]
    misfit: Any
    numbers: Callable[[Path], list[int]]


SCHEMA = {"number": "int64"}
CASES = {
    "parquet": Case(lambda table: ParquetTable(table, SCHEMA), lambda number: [number], ["x"], parquet_numbers),
    "lines": Case(LineFiles, str, "two\nlines", text_numbers),
    "gzip": Case(lambda table: gzip_lines()(table), lambda number: {"number": number}, ["x"], gzip_numbers),
    "spark": Case(
        lambda home: SparkBatches(totals, SCHEMA, home=home), lambda number: [number], ["x"], parquet_numbers
    ),
}
#: What they stage goes to Spark, so nothing is renamed into a table.
STAGED_ONLY = "spark"
EACH = pytest.mark.parametrize("name", CASES)
EACH_TABLE = pytest.mark.parametrize("name", [name for name in CASES if name != STAGED_ONLY])


def totals(spark: Any, df: Any, batch: Any) -> None:
    """Nobody calls it here."""


class Pipeline:
    """A worker and a keeper over a log, driven by hand; those of a child process may be killed."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.case = folder, CASES[name]
        self.table = folder / "table"
        self.output = self.case.make(str(self.table))
        self.ledger = f"sqlite:{folder}/ledger/units.db"
        self.bad: set[int] = set()
        self.misfit: set[int] = set()
        (folder / "logs").mkdir()
        self.log = folder / "logs" / "a.log"
        self.log.write_text("".join(LINE.format(number) for number in range(LINES)))
        self.tasks: list[LogWorker | LogKeeper] = []

    def rows(self, unit: LogUnit) -> Iterator[Any]:
        for line in unit.lines():
            if int(line) in self.bad:
                raise ValueError(f"cannot read {line}")
            yield self.case.misfit if int(line) in self.misfit else self.case.row(int(line))

    def start(self) -> None:
        worker, keeper = LogUnits.specs(
            "numbers",
            logs=f"{self.folder}/logs/*.log",
            rows=self.rows,
            output=self.output,
            ledger=self.ledger,
            unit_bytes=UNIT_BYTES,
            unit_wait_s=0.0,
            tries_max=1,
        )
        self.said = Delegate()
        for number, (kind, spec) in enumerate(((LogKeeper, keeper), (LogWorker, worker))):
            task = kind(self.said)
            task.initialize(dict(spec.custom_config or {}), Context(str(spec.name), number))  # type: ignore[arg-type]
            self.tasks.append(task)

    def drive(self) -> None:
        for task in self.tasks:
            task.next_tuple()

    def stop(self) -> None:
        while self.tasks:
            self.tasks.pop().close()

    def figures(self) -> Any:
        with closing(command_of(self.ledger, "numbers")) as reached:
            return reached.ask(Show())

    def settle(self) -> None:
        """Drive them until every byte is published or bad."""

        def is_settled() -> bool:
            self.drive()
            found = self.figures()
            return found.done_bytes + found.bad_bytes == self.log.stat().st_size and not found.units

        wait_for(is_settled, PATIENCE_S, "all bytes being settled")

    def clean(self) -> None:
        """What a keeper does each minute."""
        for task in self.tasks:
            if isinstance(task, LogKeeper):
                task._clean()  # noqa: SLF001

    def killed_at(self, step: str) -> None:
        """A process of its own drives the pipeline and is killed at a step."""
        child = os.fork()
        if child == 0:
            try:
                STEPS[step](lambda: os.kill(os.getpid(), signal.SIGKILL))
                self.start()
                until = time.monotonic() + PATIENCE_S
                while time.monotonic() < until:
                    self.drive()
            finally:
                os._exit(1)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, f"nobody came to {step!r}"

    # ---- what is there --------------------------------------------------------------------------
    def staged(self) -> list[Path]:
        found = Stages(str(self.table)).staged_units(1)
        return [path for paths in found.values() for path in paths]

    def numbers(self) -> list[int]:
        return sorted(number for folder, _ in published(str(self.table)) for number in self.case.numbers(folder))

    def is_whole(self, without: set[int] = frozenset()) -> None:  # type: ignore[assignment]
        """Every line is in the table once, each unit has the rows of its lineage, and nothing else is there."""
        assert self.numbers() == [number for number in range(LINES) if number not in without]
        for folder, lineage in published(str(self.table)):
            agrees(folder, lineage, self)
        assert check(self.ledger, "numbers", str(self.table)).problems == []
        assert self.staged() == []
        others = {path.name for path in self.table.iterdir() if not path.name.startswith("unit=")}
        assert others == {"_units"}


def agrees(folder: Path, lineage: Lineage, made: Pipeline) -> None:
    """The rows of a folder are those of the lines which its lineage names."""
    data, size = made.log.read_bytes(), len(LINE.format(0))
    # A line belongs to the chunk in which it begins.
    pieces = [data[-(-one.begin // size) * size : -(-one.end // size) * size] for one in lineage.chunks]
    assert [chunk.sha256 for chunk in lineage.chunks] == [sha256(piece).hexdigest() for piece in pieces]
    found = made.case.numbers(folder)
    assert found == [int(line) for piece in pieces for line in piece.splitlines()]
    assert lineage.rows == len(found)
    assert folder.stat().st_mode & 0o022 == 0


# ---- steps --------------------------------------------------------------------------------------
def _before(owner: Any, name: str, act: Callable[[], None], after: bool = False, visits: int = 1) -> None:
    """Something is done at the visit of a function; only in the process that is to end."""
    real = getattr(owner, name)
    left = [visits]

    def called(*args: Any, **more: Any) -> Any:
        left[0] -= 1
        if not after and not left[0]:
            act()
        found = real(*args, **more)
        if after and not left[0]:
            act()
        return found

    setattr(owner, name, called)


def _of_writer(name: str, after: bool = False, visits: int = 1) -> Callable[[Callable[[], None]], None]:
    """A step of every writer that is opened."""

    def install(act: Callable[[], None]) -> None:
        for case in CASES.values():
            kind = type(case.make("/nowhere"))
            real = kind.open

            def opened(self: Output, stage: Path, lineage: str, real: Any = real) -> Any:
                writer = real(self, stage, lineage)
                if name == "open":
                    act()
                else:
                    _before(writer, name, act, after, visits)
                return writer

            kind.open = opened  # type: ignore[method-assign]

    return install


def _of_request(kind: type, after: bool) -> Callable[[Callable[[], None]], None]:
    """A step around a request to the ledger."""

    def install(act: Callable[[], None]) -> None:
        for owner in (LogWorker, LogKeeper):
            start = owner.initialize

            def initialize(self: Any, config: Any, context: Any, start: Any = start) -> None:
                start(self, config, context)
                ask = self._asking.ask

                def asked(request: Any) -> Any:
                    if isinstance(request, kind) and not after:
                        act()
                    answer = ask(request)
                    if isinstance(request, kind) and after:
                        act()
                    return answer

                self._asking.ask = asked

            owner.initialize = initialize  # type: ignore[method-assign]

    return install


STEPS: dict[str, Callable[[Callable[[], None]], None]] = {
    "open": _of_writer("open"),
    "write": _of_writer("write_many", visits=3),
    "before prepare": _of_writer("prepare"),
    "after prepare": _of_writer("prepare", after=True),
    "before the record": _of_request(Commit, after=False),
    "after the record": _of_request(Commit, after=True),
    "before the rename": lambda act: _before(Stages, "publish", act),
    "after the rename": _of_request(Published, after=False),
    "settled": _of_request(Published, after=True),
}
OF_WORKERS = list(STEPS)[:6]


# ---- the contract -------------------------------------------------------------------------------
@pytest.fixture
def made(name: str, tmp_path: Path) -> Iterator[Pipeline]:
    pipeline = Pipeline(tmp_path, name)
    yield pipeline
    pipeline.stop()


@EACH_TABLE
@pytest.mark.parametrize("step", STEPS)
def test_whoever_is_killed_at_a_step_each_row_is_there_once(made: Pipeline, step: str) -> None:
    made.killed_at(step)
    visible = len(list(published(str(made.table))))
    assert visible == (step in ("after the rename", "settled")), "a unit is visible after its rename, and whole"
    for folder, lineage in published(str(made.table)):
        agrees(folder, lineage, made)
    made.start()
    made.settle()
    made.clean()
    made.is_whole()


@pytest.mark.parametrize("name", [STAGED_ONLY])
@pytest.mark.parametrize("step", OF_WORKERS)
def test_what_waits_for_spark_is_there_once_as_well(made: Pipeline, step: str) -> None:
    # The keeper of SparkBatches hands over; here nobody takes it, so the units stay committed.
    made.killed_at(step)
    made.start()
    units = -(-made.log.stat().st_size // UNIT_BYTES)

    def all_committed() -> bool:
        made.drive()
        found = made.figures().units
        return sum(count for state, (count, _) in found.items() if state in ("committed", "dispatched")) == units

    wait_for(all_committed, PATIENCE_S, "all units being committed")
    with closing(command_of(made.ledger, "numbers")) as reached:
        winners = {row.id: row.winner for row in reached.snapshot() if isinstance(row, Unit)}
    # Stages of losers are removed when the unit is done.
    stages = {path.name: path for path in made.staged()}
    found = {unit: stages[f"{unit}-{winner}"] for unit, winner in winners.items()}
    assert len(found) == units
    numbers = []
    for unit, stage in found.items():
        lineage = json.loads((stage / FILE).read_text())
        assert (lineage["unit"], f"{unit}-{lineage['attempt']}") == (unit, stage.name)
        rows = made.case.numbers(stage)
        assert lineage["rows"] == len(rows)
        numbers += rows
    assert sorted(numbers) == list(range(LINES))


@EACH_TABLE
@pytest.mark.parametrize("kind", ["bad", "misfit"])
def test_a_bad_row_is_cut_out_and_leaves_nothing(made: Pipeline, kind: str) -> None:
    wrong = 77
    getattr(made, kind).add(wrong)
    made.start()
    made.settle()
    made.clean()
    made.is_whole({wrong})
    with closing(command_of(made.ledger, "numbers")) as reached:
        bad = [row for row in reached.snapshot() if isinstance(row, Span) and row.state is SpanState.BAD]
    size = len(LINE.format(0))
    assert [(one.begin, one.end) for one in bad] == [(wrong * size, (wrong + 1) * size)]


@EACH
@pytest.mark.parametrize("step", ["open", "write", "before prepare", "after prepare"])
def test_an_attempt_that_is_given_up_leaves_nothing(made: Pipeline, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No stage, no open file (which every test is looked at for), and no unit in the table."""
    kind = type(made.output)
    real = kind.open

    class Full(OSError):
        """Of the table's disk."""

    def full() -> None:
        raise Full(28, "No space left on device", str(made.table / "_units" / "part"))

    def opened(self: Output, stage: Path, lineage: str) -> Any:
        given = json.loads(lineage)
        assert (given["pipeline"], given["generation"]) == ("numbers", 1) and given["chunks"][0]["key"] == "a.log"
        assert stage.is_dir() and not list(stage.iterdir())
        writer = real(self, stage, lineage)
        name, after = {
            "open": ("write_many", False),
            "write": ("write_many", False),
            "before prepare": ("prepare", False),
            "after prepare": ("prepare", True),
        }[step]
        _before(writer, name, full, after, 3 if step == "write" else 1)
        return writer

    monkeypatch.setattr(kind, "open", opened)
    made.start()

    def is_full() -> bool:
        made.drive()
        return any("No space left on device" in one for one in made.said.said)

    wait_for(is_full, PATIENCE_S, "a full disk")
    assert made.staged() == [] and not list(published(str(made.table)))
    assert made.figures().bad_bytes == 0
    made.stop()
    assert made.staged() == []


@EACH
def test_many_rows_at_once_are_the_same_as_one_by_one(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    found = []
    for many in (False, True):
        stage = tmp_path / f"stage-{many}"
        stage.mkdir()
        writer = case.make(str(tmp_path / "table")).open(stage, "{}")
        rows = [case.row(number) for number in range(1000)]
        assert (writer.write_many(rows) if many else sum(map(writer.write, rows))) == 1000
        writer.prepare()
        writer.discard()  # another attempt was faster
        found.append(case.numbers(stage))
    assert found == [list(range(1000))] * 2


@pytest.mark.parametrize("name", ["parquet"])
def test_parquet_files_have_the_lineage_as_well(made: Pipeline) -> None:
    made.start()
    made.settle()
    for folder, lineage in published(str(made.table)):
        metadata = pq.read_metadata(folder / "part-0.parquet").metadata
        inside = json.loads(metadata[LINEAGE_KEY.encode()])
        assert inside["unit"] == lineage.unit == record_of(folder).unit
        assert [(one["begin"], one["end"]) for one in inside["chunks"]] == [
            (one.begin, one.end) for one in lineage.chunks
        ]


@pytest.mark.parametrize("name", ["lines"])
@pytest.mark.parametrize("left", ["folder", "_rows", "link"])
def test_an_output_that_leaves_more_than_plain_files_is_told_so(
    made: Pipeline, left: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would not be on disk when the unit counts, or be taken for its lineage."""
    real = LineFiles.open

    def opened(self: LineFiles, stage: Path, lineage: str) -> Any:
        if left == "folder":
            (stage / left).mkdir()
        elif left == "link":
            (stage / left).symlink_to(made.log)
        else:
            (stage / left).write_text("row\n")
        return real(self, stage, lineage)

    monkeypatch.setattr(LineFiles, "open", opened)
    made.start()

    def told() -> bool:
        made.drive()
        return any(f"the output has left {left!r} in the folder of its rows" in one for one in made.said.said)

    wait_for(told, PATIENCE_S, "the sentence")
    made.stop()
    assert made.staged() == [] and not list(published(str(made.table)))
