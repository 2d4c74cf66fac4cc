"""A table of the requests in a web server's access logs, which grow and are rotated: each line counts once.

    python topologies/log_table.py --write 20000 --logs /tmp/access        # a server writes 20,000 lines, and rotates
    heron submit local topologies/log_table.py LogTable --logs /tmp/access --output /tmp/requests
    heron units list                                                       # published, under way, waiting
    heron units bad requests                                               # lines without a request, by file and offset
    heron units check requests --table /tmp/requests                       # table, ledger and bytes, compared

The table consists of Parquet files, or of text files if pyarrow is missing. You can write more lines, kill processes,
or submit the topology again after `heron kill`: the table continues at the same line. With `--until now`, the topology
ends after the existing lines.

PySpark can count the same requests by path and status, in a separate pipeline `traffic`:

    heron submit local topologies/log_table.py Traffic --spark --logs /tmp/access --output /tmp/traffic
    heron units check traffic --table /tmp/traffic

Each folder of the table `traffic` has the counts of some thousand lines, so a reader must sum them by path and status.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import random
import re
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from heronpy import TopologyBuilder
from heronpy.ingest import LineFiles, LogUnit, LogUnits, Output, ParquetTable, SparkBatches
from heronpy.spark.batch import Batch

LINE = re.compile(r'(\S+) \S+ \S+ \[([^]]+)\] "(\S+) (\S+) [^"]*" (\d{3}) (\d+)')
SCHEMA = {
    "host": "string",
    "at": "timestamp[ms]",
    "method": "string",
    "path": "string",
    "status": "int32",
    "sent": "int64",
}
#: One in this number of lines is not a request, because a client has sent invalid data to the server.
NONSENSE_EACH = 7_000
#: The server rotates its log after this number of lines.
ROTATE_EACH = 6_000


def requests(unit: LogUnit) -> Iterator[list[object]]:
    """Yield the requests of a unit. Any other line raises an exception, and is listed as a bad range."""
    for line in unit.lines():
        found = LINE.fullmatch(line)
        if found is None:
            raise ValueError("this is not a line of an access log")
        host, at, method, path, status, sent = found.groups()
        yield [host, datetime.strptime(at, "%d/%b/%Y:%H:%M:%S"), method, path, int(status), int(sent)]


def texts(unit: LogUnit) -> Iterator[str]:
    """Yield the requests of a unit as tab-separated lines."""
    for row in requests(unit):
        yield "\t".join(map(str, row))


def traffic(spark: Any, df: Any, batch: Batch) -> None:
    """Write the number of requests and the bytes sent for each path and status. Runs in the topology's Spark."""
    sums = df.selectExpr("path", "status", "1 as requests", "sent").groupBy("path", "status").sum("requests", "sent")
    batch.write_parquet(sums.toDF("path", "status", "requests", "sent"), batch.options["table"])


def log_table(name: str, logs: str, table: str, until: str = "forever") -> TopologyBuilder:
    """Return the topology: two workers and two keepers of one pipeline."""
    has_arrow = importlib.util.find_spec("pyarrow") is not None
    output: Output = ParquetTable(table, SCHEMA) if has_arrow else LineFiles(table)
    builder = TopologyBuilder(name)
    builder.add_spec(
        *LogUnits.specs(
            "requests",
            logs=f"{logs}/access.log*",
            rows=requests if has_arrow else texts,
            output=output,
            workers=2,
            unit_bytes="256KB",  # small, so that there are several units; the default is 32MB
            unit_wait_s=1.0,
            until=until,
        )
    )
    return builder


def log_traffic(name: str, logs: str, table: str, until: str = "forever") -> TopologyBuilder:
    """Return the topology with Spark: workers of one pipeline, whose rows go to Spark in groups of units."""
    builder = TopologyBuilder(name)
    builder.add_spec(
        *LogUnits.specs(
            "traffic",
            logs=f"{logs}/access.log*",
            rows=requests,
            output=SparkBatches(traffic, SCHEMA, dispatch_wait_s=2.0, table=table),
            workers=2,
            unit_bytes="256KB",
            unit_wait_s=1.0,
            until=until,
        )
    )
    return builder


def line_of(chance: random.Random, number: int) -> str:
    """Return a random line of an access log."""
    if number % NONSENSE_EACH == NONSENSE_EACH - 1:
        return f"\\x16\\x03\\x01 {number}"
    at = time.strftime("%d/%b/%Y:%H:%M:%S", time.gmtime(time.time() + number // 100))
    path = chance.choice(("/", "/cart", "/search?q=heron", "/item/42"))
    status, sent = chance.choice((200, 200, 200, 304, 404, 500)), chance.randrange(200, 40_000)
    return f'10.0.0.{chance.randrange(256)} - - [{at}] "GET {path} HTTP/1.1" {status} {sent}'


def write(folder: Path, lines: int) -> None:
    """Append lines to `access.log`, and rotate the log by renaming, as logrotate does."""
    # Level by level, because `parents=True` would create parent folders with the umask's permissions.
    for one in (*reversed(folder.absolute().parents), folder):
        one.mkdir(mode=0o700, exist_ok=True)
    chance, log = random.Random(), folder / "access.log"
    for first in range(0, lines, ROTATE_EACH):
        if log.exists():
            for number in range(len(list(folder.glob("access.log*"))), 1, -1):
                os.rename(folder / f"access.log.{number - 1}", folder / f"access.log.{number}")
            os.rename(log, folder / "access.log.1")
        with log.open("a", encoding="utf-8") as file:
            for number in range(first, min(first + ROTATE_EACH, lines)):
                file.write(line_of(chance, number) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="?", default="LogTable")
    parser.add_argument("--logs", metavar="DIR", default="/tmp/access", help="folder of access.log, access.log.1 ...")
    parser.add_argument(
        "--output", metavar="DIR", help="folder of the table (default: /tmp/requests; with --spark: /tmp/traffic)"
    )
    parser.add_argument("--spark", action="store_true", help="count the requests in PySpark instead")
    parser.add_argument("--until", choices=("forever", "now"), default="forever")
    parser.add_argument("--write", type=int, metavar="LINES", help="write this number of lines, and submit nothing")
    options = parser.parse_args()
    if options.write:
        write(Path(options.logs), options.write)
    else:
        make, table = (log_traffic, "/tmp/traffic") if options.spark else (log_table, "/tmp/requests")
        table = os.path.abspath(options.output or table)
        make(options.name, os.path.abspath(options.logs), table, options.until).build_and_submit()
