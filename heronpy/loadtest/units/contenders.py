"""The contenders of `throughput` that are no topology: `hand`, `hands`, `spark` and `spark-plain`.

python -m heronpy.loadtest.units.contenders KIND LOGS TABLE
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from heronpy.loadtest.unit_lines import COLUMNS, click, click_lines
from heronpy.loadtest.units.measured import serve

#: As `ParquetTable` has it.
BATCH_ROWS = 20_000
_WARM_LINES = 2_000
#: How many `hands` work at once: as many as there are workers of work units.
HANDS = 2


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
    """Serve as the contender of the command line."""
    kind, logs, table = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    if kind in ("hand", "hands"):
        made = by_hand if kind == "hand" else by_hands
        serve(lambda: made(sorted(logs.glob("*.log")), table))
    else:
        serve(lambda: spark(logs, table, plain=kind == "spark-plain"))


if __name__ == "__main__":
    main()
