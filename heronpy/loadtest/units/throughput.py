"""CPU per GB: work units, a hand-written loop, tuples, and PySpark, one after the other over the same logs.

Each contender parses every line as `inputs.click` does; all except the tuples write Parquet. Startup before the first
byte (processes, JVM, imports) is not counted. The order is reversed after each run.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from heronpy.common.errors import ConfigError
from heronpy.loadtest import inputs
from heronpy.loadtest.checks import Check
from heronpy.loadtest.cluster import Cluster
from heronpy.loadtest.errors import LabError
from heronpy.loadtest.run import Say
from heronpy.loadtest.topologies.log_units import TUPLES
from heronpy.loadtest.units.contenders import Prepare, by_hand, spark, work_at_once
from heronpy.loadtest.units.pipeline import Pipeline, rows_check, wrong_clicks
from heronpy.loadtest.units.plan import Sizes
from heronpy.loadtest.watch import watch_whole

LOGS = 4
#: Number of concurrent hand-written loops, the same as the number of workers, because processes that share a core, a
#: cache or memory slow each other down.
HANDS = 2
#: Minimum rate of a contender, and the additional time for its start, for its time limit.
SLOWEST_BYTES_S, PATIENCE_S = 200_000, 90.0
_PIECE = 20_000


def throughput(where: Cluster, sizes: Sizes, number: int, say: Say) -> tuple[dict[str, float], list[Check]]:
    """Measure one run; return its figures."""
    if find_spec("pyarrow") is None:
        raise ConfigError("the profile 'throughput' needs pyarrow; run: pip install 'heronpy[parquet]'")
    logs = Pipeline(where, f"throughput-{number}").logs
    lines, size = write_logs(logs, sizes.bytes)
    deadline_s = PATIENCE_S + size / SLOWEST_BYTES_S
    gb = size / 1e9
    values: dict[str, float] = {}
    checks: list[Check] = []

    def topology(name: str, function: str, **changes: Any) -> tuple[dict[str, float], Path]:
        """Process all logs with a topology; return its CPU seconds by role, and its table."""
        made = Pipeline(where, f"throughput-{number}-{name}")
        flag = "--deploy-deactivated"
        with made.running(function, flag, logs=str(logs / "*.log"), **changes) as running:
            by_role = watch_whole(running, deadline_s).spent()
        values[f"{name}_cpu_s_per_gb"] = sum(by_role.values()) / gb
        return by_role, made.table

    def units() -> None:
        by_role, table = topology("units", "click", parquet=True, bounded=True, unit_wait_s=0.5)
        values["units_worker_cpu_s_per_gb"] = by_role.get("task units-worker", 0.0) / gb
        checks.append(rows_check("units", _wrong_parquet(table, "unit=*/*.parquet", lines), lines))

    def tuples() -> None:
        settings = {"heron.checkpoint.interval_s": 2.0}
        _, table = topology("lines", TUPLES, mode="EFFECTIVELY_ONCE", settings=settings)
        checks.append(rows_check("TextFileSpout", _wrong_text(table, lines), lines))

    def other(name: str, label: str, prepare: Prepare, processes: int, *arguments: object) -> Callable[[], None]:
        def run() -> None:
            table, paths = Pipeline(where, f"throughput-{number}-{name}").table, sorted(logs.glob("*.log"))
            shares = [(name, prepare, paths[place::processes], table, *arguments) for place in range(processes)]
            try:
                values[f"{name}_cpu_s_per_gb"] = work_at_once(shares, deadline_s)[1] / gb
            except LabError as error:
                if prepare is not spark:
                    raise
                say(f"throughput: {name} is skipped: {error}")
                return
            checks.append(rows_check(label, _wrong_parquet(table, "*.parquet", lines), lines))

        return run

    contenders = [units, other("hands", "by hands", by_hand, HANDS), other("hand", "by hand", by_hand, 1), tuples]
    missing = no_spark()
    if missing:
        say(f"throughput: PySpark is skipped: {missing}")
    else:
        contenders += [other("spark", "spark", spark, 1, False), other("spark_plain", "spark_plain", spark, 1, True)]
    for run in contenders if number % 2 else reversed(contenders):
        run()
    for name in ("hand", "hands", "lines", "spark", "spark_plain"):
        cost = values.get(f"{name}_cpu_s_per_gb")
        if cost:
            values[f"units_vs_{name}"] = values["units_cpu_s_per_gb"] / cost
    say(
        f"throughput: {values['units_cpu_s_per_gb']:.1f} CPU-s per GB,"
        f" ratio {values['units_vs_hands']:.2f} to two hand-written loops, {values['units_vs_hand']:.2f} to one"
    )
    return values, checks


def write_logs(logs: Path, size: int, users: int = inputs.USERS) -> tuple[int, int]:
    """Write the logs; return their numbers of lines and bytes."""
    written = number = 0
    for place in range(LOGS):
        with open(logs / f"{place}.log", "w", encoding="ascii") as out:
            while written < size * (place + 1) // LOGS:
                text = inputs.click_lines(number, number + _PIECE, users)
                number, written = number + _PIECE, written + len(text)
                out.write(text)
    return number, written


def no_spark() -> str:
    """Return why Spark cannot be measured on this machine; "" if it can."""
    if find_spec("pyspark") is None:
        return "it is not installed (pip install 'heronpy[spark]')"
    return "" if shutil.which("java") else "Java is not installed"


def _wrong_parquet(table: Path, pattern: str, lines: int) -> str:
    import pyarrow as pa
    import pyarrow.parquet as pq

    parts = [pq.ParquetFile(path).read(columns=list(inputs.COLUMNS)) for path in sorted(table.glob(pattern))]
    if not parts:
        return "the table has no rows"
    found = pa.concat_tables(part.replace_schema_metadata(None) for part in parts)
    return wrong_clicks(found["user"].to_pylist(), found["ms"].to_numpy(), lines)


def _wrong_text(table: Path, lines: int) -> str:
    users: list[str] = []
    times: list[int] = []
    for path in sorted(table.glob("part-*")):
        for line in path.read_text("ascii").splitlines():
            user, ms = inputs.click(line)
            users.append(user)
            times.append(ms)
    return wrong_clicks(users, np.asarray(times, dtype=np.int64), lines)
