"""A pipeline of work units that runs one of the following functions.

`click`: a line becomes a row of two columns. `line`: the line is the row. `slow`: each unit takes `unit_s`, and ten
times as long in the first process that gets a unit. `bad` raises at the line `bad_line` or, if
`deadly`, kills its process. `halt`: a line that ends with `halt` takes `halt_s` in the first attempt at its unit.
`slow`, `bad` and `halt` record each attempt. `tuples` does the work of `click` with TextFileSpout, a bolt and FileSink.
"""

from __future__ import annotations

import functools
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from heronpy.api.bolt.bolt import Bolt
from heronpy.api.stream import Grouping
from heronpy.api.topology import TopologyBuilder
from heronpy.connectors.files import FileSink
from heronpy.connectors.textfiles.textfilespout import TextFileSpout
from heronpy.ingest import LineFiles, LogUnit, LogUnits, Output, ParquetTable
from heronpy.loadtest.inputs import COLUMNS, attempt_line, click
from heronpy.loadtest.topologies.parts import submit

ATTEMPTS, SLOW, HALT, TUPLES = "attempts", "slow", "halt", "tuples"
SLOWER = 10
#: Number of pauses of a slow unit.
_RESTS = 20


def click_rows(unit: LogUnit, parameters: dict[str, Any]) -> Iterator[tuple[str, int]]:
    for line in unit.lines():
        yield click(line)


def line_rows(unit: LogUnit, parameters: dict[str, Any]) -> Iterator[str]:
    yield from unit.lines()


def slow_rows(unit: LogUnit, parameters: dict[str, Any]) -> Iterator[str]:
    _write_attempt(unit, parameters)
    unit_s = parameters["unit_s"] * (SLOWER if is_slow(Path(parameters["facts"]) / SLOW) else 1)
    lines = list(unit.lines())
    each = max(1, len(lines) // _RESTS)
    for number, line in enumerate(lines):
        if number % each == 0:
            time.sleep(unit_s * each / max(len(lines), 1))
        yield line


def bad_rows(unit: LogUnit, parameters: dict[str, Any]) -> Iterator[str]:
    _write_attempt(unit, parameters)
    bad, deadly = parameters["bad_line"], parameters["deadly"]
    for line in unit.lines():
        if line == bad:
            if deadly:
                os.kill(os.getpid(), signal.SIGSEGV)
            raise ValueError("a bad line")
        yield line


def halt_rows(unit: LogUnit, parameters: dict[str, Any]) -> Iterator[str]:
    _write_attempt(unit, parameters)
    for line in unit.lines():
        if line.endswith(HALT) and unit.attempt == 1:
            time.sleep(parameters["halt_s"])
        yield line


def is_slow(path: Path) -> bool:
    """Whether this process is the first caller with this path."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return path.read_text("ascii") == str(os.getpid())
    os.write(descriptor, str(os.getpid()).encode())
    os.close(descriptor)
    return True


def _write_attempt(unit: LogUnit, parameters: dict[str, Any]) -> None:
    line = attempt_line(unit.id, unit.attempt, os.getpid(), time.monotonic_ns())
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    descriptor = os.open(Path(parameters["facts"]) / ATTEMPTS, flags, 0o600)
    os.write(descriptor, line.encode())
    os.close(descriptor)


class ParseBolt(Bolt):
    outputs = list(COLUMNS)

    def process(self, tup: Any) -> None:
        user, ms = click(tup.values[0])
        self.emit([user, ms])


FUNCTIONS = {"click": click_rows, "line": line_rows, "slow": slow_rows, "bad": bad_rows, "halt": halt_rows}


def describe(spec: dict[str, Any], made: TopologyBuilder) -> None:
    """Worker and keeper; or lines -> rows -> store"""
    p = spec["parameters"]
    if p["function"] == TUPLES:
        lines = made.add_spout("lines", TextFileSpout, par=1, config={TextFileSpout.PATHS: p["logs"]})
        rows = made.add_bolt("rows", ParseBolt, par=1, inputs={lines: Grouping.SHUFFLE})
        made.add_spec(FileSink.spec("store", {rows: Grouping.SHUFFLE}, folder=p["table"], format="text"))
        return
    output: Output = ParquetTable(p["table"], schema=COLUMNS) if p["parquet"] else LineFiles(p["table"])
    made.add_spec(
        *LogUnits.specs(
            "units",
            logs=p["logs"],
            rows=functools.partial(FUNCTIONS[p["function"]], parameters=p),
            output=output,
            workers=p["workers"],
            ledger=p["ledger"],
            until="now" if p["bounded"] else "forever",
            unit_bytes=p["unit_bytes"],
            unit_wait_s=p["unit_wait_s"],
        )
    )


if __name__ == "__main__":
    submit(describe, __doc__)
