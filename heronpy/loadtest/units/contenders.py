"""Other processes than topologies: a process that is told when to work, and those of `throughput`.

Such a process prints `ready`, waits for a line, works, prints `done` with its report, and waits for the end of its
input. So the CPU time of its work can be told from that of its start. The contenders of `throughput` are
`hand`, `hands`, `spark` and `spark-plain`:

python -m heronpy.loadtest.units.contenders KIND LOGS TABLE
"""

from __future__ import annotations

import json
import multiprocessing
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil

from heronpy.loadtest.errors import LabError
from heronpy.loadtest.inputs import COLUMNS, click, click_lines

READY, DONE = "ready", "done"
START_S = 240.0
#: Of its errors, the last so many lines are its reason.
_REASON_LINES = 20
#: As `ParquetTable` has it.
BATCH_ROWS = 20_000
_WARM_LINES = 2_000
#: How many `hands` work at once: as many as there are workers of work units.
HANDS = 2


class Contender:
    """A process that serves, see `serve`; while entered, it runs."""

    def __init__(self, command: Sequence[str], name: str) -> None:
        self._name = name
        self._errors = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            list(command), bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors
        )

    def __enter__(self) -> Contender:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is None and self._process.stdin is not None:
            self._process.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(START_S)
        below: list[psutil.Process] = []
        with suppress(psutil.Error):
            below = psutil.Process(self._process.pid).children(recursive=True)
        self._process.kill()
        for one in below:
            with suppress(psutil.Error):
                one.kill()
        self._process.wait()
        for file in (self._process.stdin, self._process.stdout, self._errors):
            if file is not None:
                file.close()

    def wait_for(self, word: str, seconds: float) -> str:
        """What follows the word in the line that it prints; LabError when it fails or is late."""
        said, end = self._process.stdout, time.monotonic() + seconds
        assert said is not None
        while select.select([said], [], [], max(0.0, end - time.monotonic()))[0]:
            line = said.readline().decode()
            if not line:
                raise self._failed("has ended")
            if line.split()[:1] == [word]:
                return line.removeprefix(word).strip()
        raise self._failed(f"was not {word} after {seconds:g} s")

    def _failed(self, how: str) -> LabError:
        self._errors.seek(0)
        reason = self._errors.read().decode(errors="replace").splitlines()[-_REASON_LINES:]
        return LabError("\n".join([f"the contender '{self._name}' {how}", *reason]))

    def go(self) -> None:
        """Let it work."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(b"go\n")

    def cpu_s(self) -> float:
        """CPU seconds so far of it and all below it, with those that its processes have waited for."""
        total = 0.0
        with suppress(psutil.Error):
            root = psutil.Process(self._process.pid)
            for process in (root, *root.children(recursive=True)):
                with suppress(psutil.Error):
                    times = process.cpu_times()
                    total += times.user + times.system + times.children_user + times.children_system
        return total


def serve(prepare: Callable[[], Callable[[], object]]) -> None:
    """The process's side: prepare, then work when told so, and report."""
    work = prepare()
    print(READY, flush=True)
    if sys.stdin.readline():
        print(DONE, json.dumps(work()), flush=True)
        sys.stdin.read()


def measured(command: Sequence[str], name: str, deadline_s: float) -> float:
    """Run a contender; the CPU seconds of its work. LabError when it fails or is late."""
    with Contender(command, name) as one:
        one.wait_for(READY, START_S)
        before = one.cpu_s()
        one.go()
        one.wait_for(DONE, deadline_s)
        return one.cpu_s() - before


def by_hand(logs: Sequence[Path], table: Path) -> Callable[[], None]:
    """What one would write for a single run: read, parse, write one file."""
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


def by_hands(logs: Sequence[Path], table: Path) -> Callable[[], None]:
    """The same loop in HANDS processes at once, each with its share of the logs.

    Processors that share a core, a cache and memory are slower beside each other: so are the workers of work units.
    """
    works = [by_hand(logs[place::HANDS], table) for place in range(HANDS)]

    def work() -> None:
        fork = multiprocessing.get_context("fork")
        processes = [fork.Process(target=one) for one in works]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        if any(process.exitcode for process in processes):
            raise SystemExit("one of the loops by hand has failed")

    return work


def _parsed(batches: Iterator[Any]) -> Iterator[Any]:
    """The same function in a Python worker of Spark."""
    import pyarrow as pa

    for batch in batches:
        users: list[str] = []
        times: list[int] = []
        for line in batch.column(0).to_pylist():
            user, ms = click(line)
            users.append(user)
            times.append(ms)
        yield pa.record_batch([pa.array(users, pa.string()), pa.array(times, pa.int64())], names=list(COLUMNS))


def spark(logs: Path, table: Path, plain: bool) -> Callable[[], None]:
    """Spark on this machine's cores, warm: with `mapInArrow`, or `plain` with its own CSV reader."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable  # its workers have what this process has
    session: Any = (
        SparkSession.builder.master("local[*]")
        .appName("load-units")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.warehouse.dir", str(table.parent / "warehouse"))
        .getOrCreate()
    )
    schema = "user string, ms long"

    def run(source: str, target: str) -> None:
        if plain:
            found = session.read.schema(schema).option("sep", "\t").csv(source)
        else:
            found = session.read.text(source).mapInArrow(_parsed, schema)
        found.write.parquet(target)

    warm = table.parent / "warm"
    warm.mkdir()
    (warm / "warm.log").write_text(click_lines(0, _WARM_LINES), encoding="ascii")
    run(str(warm), str(table.parent / "warm-table"))
    return lambda: run(str(logs), str(table))


def main() -> None:
    kind, logs, table = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    if kind in ("hand", "hands"):
        made = by_hand if kind == "hand" else by_hands
        serve(lambda: made(sorted(logs.glob("*.log")), table))
    else:
        serve(lambda: spark(logs, table, plain=kind == "spark-plain"))


if __name__ == "__main__":
    main()
