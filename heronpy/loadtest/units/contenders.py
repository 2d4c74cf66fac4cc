"""Contenders that are not topologies. Each is a process that prepares, works on request, and reports.

The preparation is not part of the work, so the CPU time of the work does not include the start.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil

from heronpy.loadtest.errors import LabError
from heronpy.loadtest.inputs import COLUMNS, click, click_lines

START_S = 240.0
#: Number of last lines of a contender's standard error that an error shows.
_REASON_LINES = 20
#: Number of rows per batch, the same as in `ParquetTable`.
BATCH_ROWS = 20_000
_WARM_LINES = 2_000

#: Function that prepares in the contender's process and returns the work.
Prepare = Callable[..., Callable[[], object]]


class Contender:
    """A process that prepares and waits for `go`. It runs while the context is entered."""

    def __init__(self, name: str, prepare: Prepare, *arguments: object) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._name = name
        self._errors = tempfile.NamedTemporaryFile()
        self._pipe, theirs = spawn.Pipe()
        self._process = spawn.Process(target=_serve, args=(theirs, self._errors.name, prepare, arguments))
        self._process.start()
        theirs.close()

    def __enter__(self) -> Contender:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._pipe.close()
        if kind is None:
            self._process.join(START_S)
        for process in self._tree():
            with suppress(psutil.Error):
                process.kill()
        self._process.join()
        self._errors.close()

    def _tree(self) -> list[psutil.Process]:
        with suppress(psutil.Error):
            root = psutil.Process(self._process.pid)
            return [root, *root.children(recursive=True)]
        return []

    def answer(self, what: str, seconds: float) -> Any:
        """Wait for the next message: empty when the process is ready, then the report. Raises LabError on failure."""
        if not self._pipe.poll(seconds):
            raise self._failed(f"was not {what} after {seconds:g} s")
        try:
            return self._pipe.recv()
        except EOFError:
            self._process.join()
            raise self._failed("has ended") from None

    def _failed(self, how: str) -> LabError:
        reason = self._errors.read().decode(errors="replace").splitlines()[-_REASON_LINES:]
        return LabError("\n".join([f"the contender '{self._name}' {how}", *reason]))

    def go(self) -> None:
        """Start the work of the process."""
        with suppress(BrokenPipeError):
            self._pipe.send(None)

    def cpu_s(self) -> float:
        """Return the CPU seconds of the process and its descendants so far, including ended ones."""
        total = 0.0
        for process in self._tree():
            with suppress(psutil.Error):
                times = process.cpu_times()
                total += times.user + times.system + times.children_user + times.children_system
        return total


def _serve(pipe: Connection, errors: str, prepare: Prepare, arguments: Sequence[object]) -> None:
    """Run in the contender's process until its parent has read the report and the CPU time, or has ended."""
    descriptor = os.open(errors, os.O_WRONLY | os.O_APPEND)
    for output in (1, 2):
        os.dup2(descriptor, output)
    work = prepare(*arguments)
    with suppress(EOFError):
        pipe.send(None)
        pipe.recv()
        pipe.send(work())
        # Keep the process until its CPU time has been read.
        pipe.recv()


def work_at_once(contenders: Sequence[tuple[object, ...]], seconds: float) -> tuple[list[Any], float]:
    """Run processes concurrently; return reports and total CPU seconds. Raises LabError if one fails or times out.

    A process is described by the arguments of a Contender.
    """
    with ExitStack() as stack:
        running = [stack.enter_context(Contender(*one)) for one in contenders]  # type: ignore[arg-type]
        for one in running:
            one.answer("ready", START_S)
        before = sum(one.cpu_s() for one in running)
        for one in running:
            one.go()
        reports = [one.answer("done", seconds) for one in running]
        return reports, sum(one.cpu_s() for one in running) - before


def by_hand(logs: Sequence[Path], table: Path) -> Callable[[], None]:
    """Return the work of a hand-written program that reads the logs, parses the lines, and writes one file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([(name, pa.type_for_alias(kind)) for name, kind in COLUMNS.items()])
    pa.array([""])  # imports pandas now, as a worker does before its first unit

    def work() -> None:
        table.mkdir(exist_ok=True)
        path = table / f"part-{logs[0].stem}.parquet"
        users: list[str] = []
        times: list[int] = []
        with pq.ParquetWriter(path, schema) as writer:

            def write() -> None:
                arrays = [pa.array(users, schema.types[0]), pa.array(times, schema.types[1])]
                writer.write_batch(pa.record_batch(arrays, schema=schema))
                users.clear()
                times.clear()

            for log in logs:
                with open(log, encoding="utf-8") as lines:
                    for line in lines:
                        user, ms = click(line.rstrip("\n"))
                        users.append(user)
                        times.append(ms)
                        if len(users) == BATCH_ROWS:
                            write()
            if users:
                write()
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)

    return work


def _parsed(batches: Iterator[Any]) -> Iterator[Any]:
    """Parse lines in a Python worker of Spark, with the function that every contender uses."""
    import pyarrow as pa

    for batch in batches:
        users: list[str] = []
        times: list[int] = []
        for line in batch.column(0).to_pylist():
            user, ms = click(line)
            users.append(user)
            times.append(ms)
        yield pa.record_batch([pa.array(users, pa.string()), pa.array(times, pa.int64())], names=list(COLUMNS))


def spark_session(folder: Path) -> Any:
    """Return a Spark session on all cores of this machine."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable  # Spark's workers need the packages of this process
    return (
        SparkSession.builder.master("local[*]")  # type: ignore[attr-defined]
        .appName("load-units")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .getOrCreate()
    )


def warm_logs(folder: Path) -> str:
    """Write a few lines, with which Spark warms up; return their folder."""
    folder.mkdir()
    (folder / "warm.log").write_text(click_lines(0, _WARM_LINES), encoding="ascii")
    return str(folder)


def spark(logs: Sequence[Path], table: Path, plain: bool) -> Callable[[], None]:
    """Return the work of a warm Spark session: with `mapInArrow` or, if `plain`, with Spark's CSV reader."""
    session = spark_session(table.parent)
    schema = "user string, ms long"

    def run(source: str, target: str) -> None:
        if plain:
            found = session.read.schema(schema).option("sep", "\t").csv(source)
        else:
            found = session.read.text(source).mapInArrow(_parsed, schema)
        found.write.parquet(target)

    run(warm_logs(table.parent / "warm"), str(table.parent / "warm-table"))
    return lambda: run(str(logs[0].parent), str(table))
