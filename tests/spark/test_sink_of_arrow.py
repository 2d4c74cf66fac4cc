"""A SparkSink of a stream with an Arrow schema: record batches go to the batch file, and are acked with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from heronpy.api.bolt.bolt import takes_batches
from heronpy.connectors.spark.sink import SparkSink
from heronpy.task.tuples import InBatch, InFrame
from tests.connectors.two_phase import Tup, checkpoint, start, state_of
from tests.spark.support import start_sink
from tests.spark.test_exactly_once import Gateway, config_of, copy, new_home, prepared_in, rows_of

SCHEMA = pa.schema([("n", pa.int64())])


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return new_home(tmp_path / "w", monkeypatch)


@pytest.fixture(autouse=True)
def no_tuples(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Counts the batches of which single tuples were made."""
    made: list[int] = []
    tuples = InBatch.tuples
    monkeypatch.setattr(InBatch, "tuples", lambda batch: made.append(len(batch)) or tuples(batch))
    return made


class Heard:
    """What a sink acked and abandoned, by number of the tuple in its frame."""

    def __init__(self, sink: Any) -> None:
        self.acked: list[int] = []
        self.failed: list[int] = []
        sink.ack = lambda tup: self.acked.extend(tup.numbers if isinstance(tup, InBatch) else [tup.index])
        sink.delegate.abandon = lambda tup, why: self.failed.append(tup.index)


def batch_of(values: list[Any], kind: Any = None, first: int = 0) -> InBatch:
    rows = pa.record_batch([pa.array(values, type=kind or pa.int64())], names=["n"])
    frame = InFrame("numbers", "default", 1, first + len(values), 0.0)
    return InBatch(frame, "default", ["n"], None, range(first, first + len(values)), arrow=rows)


def written(home: Path) -> list[int]:
    Gateway(home).work()
    return rows_of(home / "table")


def test_rows_are_exact_effectively_once_and_none_became_an_object(home: Path, no_tuples: list[int]) -> None:
    sink = start(SparkSink, config_of(), attempt=1)
    heard = Heard(sink)
    sink.process_batch(batch_of(list(range(20))))
    sink.pre_save("1")
    # A batch is full at seven rows; the first is taken alone, as the size of a row is not known.
    assert [manifest.rows for manifest in prepared_in(home)] == [7, 7, 6]
    sink.process_batch(batch_of([100, 101], first=20))
    assert written(home) == []
    sink.post_save("1")
    assert written(home) == list(range(20)) and no_tuples == []
    assert sorted(heard.acked) == list(range(20)) and heard.failed == []
    checkpoint(sink, 2)
    assert written(home) == [*range(20), 100, 101]


def test_rows_since_the_restored_checkpoint_are_dropped(home: Path) -> None:
    first = start(SparkSink, config_of(), attempt=1)
    Heard(first)
    first.process_batch(batch_of([1, 2]))
    checkpoint(first, 1)
    saved = copy(state_of(first))
    first.process_batch(batch_of([3, 4]))
    second = start(SparkSink, config_of(), attempt=2, state=saved, checkpoint=1)
    Heard(second)
    second.process_batch(batch_of([3]))
    checkpoint(second, 2)
    assert written(home) == [1, 2, 3]


def test_acks_come_with_the_commit_at_least_once(home: Path) -> None:
    sink = start_sink("store", 7, schema={"n": "int64"}, aggregate="module.function", batch_rows=7)
    heard = Heard(sink)
    sink.process_batch(batch_of(list(range(20))))
    assert heard.acked == []
    sink.finish()
    assert written(home) == list(range(20))
    assert sorted(heard.acked) == list(range(20)) and heard.failed == []
    counts = sink.counts.get_value_and_reset()
    assert (counts["batches"], counts["rows"]) == (3, 20) and counts["bytes"] > 20 * 8


@pytest.mark.parametrize(
    ("kind", "values", "stored"),
    [
        (pa.int32(), [1, 2], [1, 2]),
        (pa.uint64(), [1, 2**63], [1]),
        (pa.float64(), [1.0, 2.5], [1]),
        (pa.string(), ["1", "2"], []),
    ],
)
def test_another_type_fits_as_single_tuples_do(home: Path, kind: Any, values: list[Any], stored: list[int]) -> None:
    sink = start(SparkSink, config_of(), attempt=1)
    heard = Heard(sink)
    sink.process_batch(batch_of(values, kind))
    checkpoint(sink, 1)
    assert written(home) == stored
    assert sorted([*heard.acked, *heard.failed]) == [0, 1] and len(heard.failed) == 2 - len(stored)


def test_the_schema_of_the_stream_is_inferred_once_with_tuples_before_it(home: Path) -> None:
    sink = start(SparkSink, config_of(schema=None, fields=["n"], batch_rows=100), attempt=1)
    sink.ack = lambda tup: None
    sink.process(Tup(0, [None]))
    sink.process_batch(batch_of([5, 6], pa.int32()))
    checkpoint(sink, 1)
    Gateway(home).work()
    [file] = (home / "table").glob("batch=*/*.parquet")
    found = pq.read_table(file)
    assert found.schema.field("n").type == pa.int32() and sorted(found["n"].to_pylist(), key=str) == [5, 6, None]


class Own(SparkSink):
    def process(self, tup: Any) -> None:
        super().process(tup)


def test_a_sink_takes_batches_unless_it_has_a_process_of_its_own() -> None:
    assert takes_batches(SparkSink) and not takes_batches(Own)


def plain_batch(rows: list[list[Any]], first: int = 0) -> InBatch:
    """Rows of two columns that came as values."""
    frame = InFrame("numbers", "default", 1, first + len(rows), 0.0)
    flat = [value for row in rows for value in row]
    return InBatch(frame, "default", ["n", "word"], flat, range(first, first + len(rows)))


def words(**options: Any) -> SparkSink:
    return start_sink("store", 7, schema={"n": "int64", "word": "string"}, aggregate="module.function", **options)


def test_rows_that_come_together_as_values_become_columns_and_no_objects(home: Path, no_tuples: list[int]) -> None:
    sink = words(batch_rows=700)
    heard = Heard(sink)
    for first in range(0, 2000, 50):
        sink.process_batch(plain_batch([[n, f"w{n}"] for n in range(first, first + 50)], first))
    assert heard.acked == []
    sink.finish()
    assert sorted(written(home)) == list(range(2000)) and no_tuples == []
    assert sorted(heard.acked) == list(range(2000)) and heard.failed == []
    assert sink.counts.get_value_and_reset()["batches"] == 3


def test_only_the_values_that_do_not_fit_are_refused_and_rows_stay_in_order(home: Path) -> None:
    sink = words(batch_rows=100)
    heard = Heard(sink)
    sink.process_batch(plain_batch([[0, "a"]]))
    sink.process_batch(plain_batch([[1, "b"], [1.5, "c"], [2, 7], [3, None]], first=1))
    sink.process_batch(plain_batch([[4, "d"]], first=5))
    sink.finish()
    assert written(home) == [0, 1, 3, 4]
    assert sorted(heard.failed) == [2, 3] and sorted(heard.acked) == [0, 1, 4, 5]


def test_a_schema_is_inferred_from_values_that_come_together(home: Path) -> None:
    sink = start_sink("store", 7, fields=["n", "word"], aggregate="module.function", batch_rows=3)
    Heard(sink)
    for n in range(8):
        sink.process_batch(plain_batch([[n, "x"]], first=n))
    sink.finish()
    assert written(home) == list(range(8))
