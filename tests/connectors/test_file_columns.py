"""FileSink with columns: record batches as they came, each row once under EFFECTIVELY_ONCE, whatever crashes where."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from heronpy.api.batch import Batch
from heronpy.api.bolt.bolt import Bolt, takes_batches
from heronpy.api.config_values import decode_config, encode_config
from heronpy.api.spout.spout import Spout
from heronpy.api.state.state import HashMapState
from heronpy.api.stream import Grouping, Stream
from heronpy.common.errors import ConfigError
from heronpy.connectors.files import FileSink, columns
from tests.connectors.two_phase import POINTS, RUNS, Context, Delegate, Harness, Tup, checkpoint, start

SCHEMA = pa.schema([("n", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("tags", pa.list_(pa.string()))])
FORMATS = ("parquet", "arrow")


class Rows(Batch):
    """A batch of tests: its tuples are numbered by their first value."""

    def _tuples(self) -> list[Any]:
        return [Tup(values[0], values) for values in self._values()]

    def _part(self, places: list[int]) -> Rows:
        raise AssertionError("a FileSink takes whole batches")


def made(numbers: range) -> pa.RecordBatch:
    at = [datetime.fromtimestamp(1e9 + n / 7, UTC) for n in numbers]
    return pa.RecordBatch.from_arrays(
        [pa.array(list(numbers)), pa.array(at, SCHEMA.field("at").type), pa.array([["x"] * (n % 3) for n in numbers])],
        schema=SCHEMA,
    )


def as_arrow(numbers: range) -> Rows:
    return Rows("src", "default", 1, SCHEMA.names, None, len(numbers), arrow=made(numbers))


def as_values(*rows: list[Any]) -> Rows:
    return Rows("src", "default", 1, SCHEMA.names, [value for row in rows for value in row], len(rows))


def config_of(folder: Path, **options: Any) -> dict[str, Any]:
    spec = FileSink.spec("store", folder=folder, **{"schema": SCHEMA, **options})
    return decode_config(encode_config(spec.custom_config))


def table_of(path: Path) -> pa.Table:
    if path.suffix == ".parquet":
        return pq.read_table(path)
    with pa.ipc.open_file(str(path)) as file:
        return file.read_all()


def tables_of(folder: Path) -> pa.Table:
    found = [table_of(path) for path in sorted(folder.glob("part-*"))]
    return pa.concat_tables(found) if found else SCHEMA.empty_table()


def numbers_of(folder: Path) -> list[int]:
    return sorted(tables_of(folder)["n"].to_pylist())


class Batches(Harness):
    """The source emits record batches."""

    def feed(self, sink: Any, positions: range) -> None:
        if len(positions):
            sink.process_batch(as_arrow(positions))


@pytest.mark.parametrize("format_name", FORMATS)
@pytest.mark.parametrize("point", POINTS)
def test_every_row_is_published_once_whatever_crashes_where(tmp_path: Path, point: str, format_name: str) -> None:
    runs, crashed = RUNS or 3, 0
    for seed in range(runs):
        out = tmp_path / f"out{seed}"
        config = config_of(out, format=format_name)
        harness = Batches(tmp_path / str(seed), FileSink, config, seed, 40, lambda n: [n])
        crashed += harness.run_until_done(point)
        assert numbers_of(out) == list(range(40)), f"seed {seed}"
        assert [path.name for path in out.iterdir() if not path.name.startswith("part-")] == [], f"seed {seed}"
    assert crashed >= runs, "it crashed in most runs"


@pytest.mark.parametrize("format_name", FORMATS)
def test_a_stopped_process_that_goes_on_later_changes_nothing(tmp_path: Path, format_name: str) -> None:
    for seed, point in enumerate(POINTS):
        out = tmp_path / f"out{seed}"
        config = config_of(out, format=format_name)
        Batches(tmp_path / str(seed), FileSink, config, seed, 40, lambda n: [n]).run_with_a_zombie(point)
        assert numbers_of(out) == list(range(40)), f"seed {seed}"


@pytest.mark.parametrize("format_name", FORMATS)
def test_what_came_as_arrow_is_in_the_file_as_it_came(
    tmp_path: Path, format_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for way in ("columns", "rows"):
        monkeypatch.setattr(Batch, way, property(lambda batch: pytest.fail("a value was made a Python object")))
    sink = start(FileSink, config_of(tmp_path, format=format_name), attempt=1)
    sink.delegate.ack = lambda batch: None
    for first in (0, 100, 200):
        sink.process_batch(as_arrow(range(first, first + 100)))
    sink.pre_save("1")
    assert not list(tmp_path.glob("part-*")), "prepared, not published"
    sink.post_save("1")
    [path] = tmp_path.glob("part-*")
    assert path.name == f"part-store-1-1-{sink.who.run}.1.{format_name}"
    assert table_of(path).equals(pa.Table.from_batches([made(range(300))]))
    assert table_of(path).schema.equals(SCHEMA)


@pytest.mark.parametrize("format_name", FORMATS)
def test_small_batches_are_gathered_and_large_ones_written_in_between(
    tmp_path: Path, format_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = start(FileSink, config_of(tmp_path, format=format_name), attempt=1)
    for n in range(50):
        sink.process_batch(as_arrow(range(n, n + 1)))
    assert not list(tmp_path.iterdir()), "what is gathered is in memory"
    monkeypatch.setattr(columns, "GATHERED_BYTES", 1)
    for n in range(50, 53):
        sink.process_batch(as_arrow(range(n, n + 1)))
    checkpoint(sink, 1)
    [path] = tmp_path.glob("part-*")
    if format_name == "parquet":
        assert pq.ParquetFile(path).num_row_groups == 3
    else:
        assert pa.ipc.open_file(str(path)).num_record_batches == 3
    assert numbers_of(tmp_path) == list(range(53))


def test_rows_that_come_one_by_one_are_combined_in_memory(tmp_path: Path) -> None:
    """A batch of one row needs more than 1 KB besides its values, and one misfit must not make such batches of all."""
    made: list[int] = []

    class File:
        bytes = 0

    schema = pa.schema([("n", pa.int64())])
    writer = columns.ColumnWriter(File(), "parquet", schema)  # type: ignore[arg-type]
    for n in range(2000):
        writer.row([n])
    assert len(writer._gathered) + len(writer._small) < 2000 / columns.SMALL_MAX + columns.SMALL_MAX  # noqa: SLF001
    writer._made, make = lambda rows: made.append(1) or make(rows), writer._made  # type: ignore  # noqa: SLF001
    values = [[n] for n in range(1000)]
    values[77] = ["no"]
    (reason,) = writer.batch(Rows("src", "default", 1, ["n"], [one for row in values for one in row], 1000)).items()
    assert reason[0] == 77 and "is not int64" in reason[1] and len(made) < 25


@pytest.mark.parametrize("format_name", FORMATS)
def test_values_become_rows_and_those_that_do_not_fit_are_rejected_alone(tmp_path: Path, format_name: str) -> None:
    schema = SCHEMA.set(0, pa.field("n", pa.int64(), nullable=False))
    sink = start(FileSink, config_of(tmp_path, format=format_name, schema=schema), attempt=1)
    now = datetime(2026, 11, 25, tzinfo=UTC)
    sink.process_batch(as_values([1, now, ["a"]], [2, "yesterday", []], [3, None, None], [1 << 70, now, []]))
    sink.process(Tup(5, [5, now, []]))
    sink.process(Tup(6, [None, now, []]))
    sink.process(Tup(7, [7]))
    checkpoint(sink, 1)
    assert numbers_of(tmp_path) == [1, 3, 5]
    assert sink.delegate.failed == [2, 1 << 70, 6, 7] and sink.delegate.acked == [1, 3, 5]
    assert "the value of 'at' is not timestamp" in sink.delegate.lines[0]


def running(folder: Path, mode: str, **options: Any) -> FileSink:
    sink = FileSink(Delegate())
    sink.init_state(HashMapState())
    sink.initialize({**config_of(folder, **options), "topology.reliability.mode": mode}, Context())  # type: ignore[arg-type]
    return sink


def test_at_least_once_a_batch_is_acked_when_its_file_is_published(tmp_path: Path) -> None:
    sink = running(tmp_path, "ATLEAST_ONCE", format="parquet", roll_bytes=5000)
    first = as_arrow(range(40))
    sink.process_batch(first)
    assert sink.delegate.acked == [] and not list(tmp_path.glob("part-*"))
    sink.process_batch(as_arrow(range(40, 400)))
    assert sink.delegate.acked == list(range(400)) and numbers_of(tmp_path) == list(range(400))
    sink.process_batch(as_arrow(range(400, 401)))
    sink.close()
    assert len(numbers_of(tmp_path)) == 400, "its tuples come again"


def test_at_most_once_an_unfinished_file_of_a_dead_process_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns, "GATHERED_BYTES", 1)
    pid = os.fork()
    if pid == 0:
        try:
            running(tmp_path, "ATMOST_ONCE", format="arrow").process_batch(as_arrow(range(3)))
        finally:
            os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    [path] = tmp_path.iterdir()
    assert path.name.startswith(".open-") and numbers_of(tmp_path) == []
    alive = running(tmp_path, "ATMOST_ONCE", format="arrow")
    assert not list(tmp_path.iterdir()) and alive.delegate.lines == [
        "files of an earlier process: 0 published, 1 removed"
    ]
    alive.process_batch(as_arrow(range(3)))
    alive.close()
    assert numbers_of(tmp_path) == [0, 1, 2]


class Source(Spout):
    outputs = [Stream(schema=SCHEMA), Stream(fields=["n"], name="plain")]


class Other(Spout):
    outputs = [Stream(schema=pa.schema([("n", pa.int32())]))]


def test_the_schema_is_that_of_the_inputs(tmp_path: Path) -> None:
    source, other = Source.spec("source"), Other.spec("other")
    spec = FileSink.spec("store", {source: Grouping.SHUFFLE}, folder=tmp_path, format="parquet")
    config = decode_config(encode_config(spec.custom_config))
    sink = start(FileSink, config, attempt=1)
    sink.process_batch(as_arrow(range(2)))
    for inputs, given, sentence in (
        ({source: Grouping.SHUFFLE, other: Grouping.SHUFFLE}, None, "the schemas of its inputs and of schema= differ"),
        ({source: Grouping.SHUFFLE}, pa.schema([("n", pa.int8())]), "the schemas of its inputs and of schema= differ"),
        ({source["plain"]: Grouping.SHUFFLE}, None, r"declare one with Stream\(schema=...\), or pass a pyarrow.Schema"),
        ({source: Grouping.SHUFFLE}, {"n": "int64"}, "must be a pyarrow.Schema, not dict"),
        ({}, None, "not all of its input streams declare an Arrow schema"),
    ):
        with pytest.raises(ConfigError, match=sentence):
            FileSink.spec("store", inputs, folder=tmp_path, format="arrow", schema=given)


def test_what_cannot_be_written_is_refused_at_submit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Older(pq.ParquetWriter):  # type: ignore[misc]
        """One that cannot write durations, as once."""

        def __init__(self, where: Any, schema: pa.Schema) -> None:
            if any(pa.types.is_duration(kind) for kind in schema.types):
                raise pa.ArrowNotImplementedError("Unhandled type")
            super().__init__(where, schema)

    monkeypatch.setattr(pq, "ParquetWriter", Older)
    for options, sentence in (
        ({"format": "parquet", "schema": pa.schema([("took", pa.duration("us"))])},
         r"field 'took' is duration\[us\], which the installed pyarrow cannot write as Parquet; use format='arrow'"),
        ({"format": "arrow", "schema": pa.schema([("at", pa.timestamp("ns"))])}, "no nanoseconds"),
        ({"format": "arrow", "fields": ["m"]}, "leave out fields="),
        ({"format": "jsonl"}, "schema of a FileSink works with the formats arrow and parquet, not with jsonl"),
        ({"format": "orc"}, "must be one of jsonl, text, arrow, parquet"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=sentence):
            config_of(tmp_path, **options)
    assert config_of(tmp_path, format="arrow", schema=pa.schema([("took", pa.duration("us"))]))
    assert config_of(tmp_path, format="parquet")


def test_a_file_sink_takes_batches_and_a_subclass_with_a_process_of_its_own_does_not() -> None:
    class Mine(FileSink):
        def process(self, tup: Any) -> None:
            super().process(tup)

    assert takes_batches(FileSink) and not takes_batches(Mine) and not takes_batches(Bolt)


def test_lines_of_a_batch_are_those_of_its_tuples(tmp_path: Path) -> None:
    spec = FileSink.spec("store", folder=tmp_path, format="text")
    sink = start(FileSink, decode_config(encode_config(spec.custom_config)), attempt=1)
    sink.process_batch(Rows("src", "default", 1, ["n", "text"], [1, "a", 2, "b\n", 3, "c"], 3))
    checkpoint(sink, 1)
    [path] = tmp_path.glob("part-*.txt")
    assert path.read_text() == "1\ta\n3\tc\n" and sink.delegate.failed == [2] and sink.delegate.acked == [1, 3]
