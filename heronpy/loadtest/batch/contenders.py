"""Other programs for the keyed count: two hand-written processes, PySpark with the same functions, and Spark SQL."""

from __future__ import annotations

import json
import operator
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from zlib import crc32

from heronpy.loadtest.inputs import click
from heronpy.loadtest.units.contenders import spark_session, warm_logs

HANDS = 2


def by_hand(logs: Sequence[Path], folder: Path, place: int) -> Callable[[], None]:
    """Return the work of process `place`: partition its share of the logs by user, then count its users' lines."""

    def work() -> None:
        with ExitStack() as stack:
            outs = [stack.enter_context(open(folder / f"{place}-{to}", "w", encoding="ascii")) for to in range(HANDS)]
            for log in logs[place::HANDS]:
                with open(log, encoding="utf-8") as lines:
                    for line in lines:
                        user, ms = click(line.rstrip("\n"))
                        outs[crc32(user.encode()) % HANDS].write(f"{user}\t{ms}\n")
        (folder / f"{place}.ready").touch()
        while len(list(folder.glob("*.ready"))) < HANDS:
            time.sleep(0.01)
        counts: dict[str, int] = {}
        for by in range(HANDS):
            with open(folder / f"{by}-{place}", encoding="ascii") as lines:
                for line in lines:
                    user, _ = click(line.rstrip("\n"))
                    counts[user] = counts.get(user, 0) + 1
        (folder / "result").mkdir(exist_ok=True)
        with open(folder / "result" / f"part-{place}", "w", encoding="ascii") as out:
            out.writelines(f"{_row(item)}\n" for item in counts.items())

    return work


def _one(found: tuple[str, int]) -> tuple[str, int]:
    return found[0], 1


def _row(item: tuple[str, int]) -> str:
    return json.dumps({"user": item[0], "count": item[1]})


def spark(logs: Sequence[Path], folder: Path, sql: bool) -> Callable[[], None]:
    """Warm up a Spark session; return a function that counts with SQL or, without `sql`, with an RDD."""
    session = spark_session(folder)

    def run(source: str, target: str) -> None:
        if sql:
            found = session.read.schema("user string, ms long").option("sep", "\t").csv(source)
            found.groupBy("user").count().write.json(target)
        else:
            lines = session.sparkContext.textFile(source)
            lines.map(click).map(_one).reduceByKey(operator.add).map(_row).saveAsTextFile(target)

    run(warm_logs(folder / "warm"), str(folder / "warm-result"))
    return lambda: run(str(logs[0].parent), str(folder / "result"))
