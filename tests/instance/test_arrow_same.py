"""Streams with an Arrow schema against single tuples: random small programs give the same results in both ways."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from heronpy.api.batch import Batch
from heronpy.api.stream import Stream
from heronpy.common.hashing import stable_hash
from tests.simulator import random_programs
from tests.simulator.random_programs import FITTING, ROWS, Chain, chains

SCHEMAS = {
    "default": pa.schema([("a", pa.string()), ("b", pa.int64())]),
    "times": pa.schema([("a", pa.timestamp("us", "UTC")), ("b", pa.list_(pa.int32())), ("c", pa.decimal128(9, 2))]),
    "way": pa.schema([("a", pa.float64())]),
}
NOON = dt.datetime(2026, 11, 22, 12, tzinfo=dt.UTC)


class Arrow:
    """Emits record batches and tables."""

    outputs = [Stream(name=name, schema=schema, direct=name == "way") for name, schema in SCHEMAS.items()]

    def row_of(self, stream: str, values: list[Any], number: int) -> list[Any]:
        size = stable_hash(repr(values)) % 1000
        if stream == "default":
            return [f"{size}-{number}", None if size % 5 == 0 else size]
        if stream == "times":
            decimal = None if size % 3 else Decimal(f"{number}.25")
            return [NOON + dt.timedelta(seconds=size % 7), [size, number], decimal]
        return [size / 8]

    def as_values(self, stream: str, row: list[Any]) -> list[Any]:
        return [pa.scalar(value, type=kind).as_py() for value, kind in zip(row, SCHEMAS[stream].types, strict=True)]

    def emit_rows(self: Any, form: str, stream: str, rows: ROWS, **more: Any) -> None:
        schema = SCHEMAS[stream]
        arrays = [pa.array([row[n] for row in rows], type=kind) for n, kind in enumerate(schema.types)]
        batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
        if form == "table":  # its fields may be in another order
            batch = pa.Table.from_batches([batch.slice(0, 1), batch.slice(1)]).select(schema.names[::-1])
        self.emit_batch(batch, stream=stream, **more)


class Source(Arrow, random_programs.Source): ...


class Singly(Arrow, random_programs.Singly): ...


class Together(Arrow, random_programs.Together):
    def check(self, batch: Batch) -> None:
        arrow = batch.to_arrow()
        assert arrow.schema == SCHEMAS[batch.stream]
        assert [list(row.values()) for row in arrow.to_pylist()] == [tup.values for tup in batch]
        backwards = list(range(-1, -len(batch) - 1, -1))
        assert batch.take(backwards).to_arrow().to_pylist() == arrow.to_pylist()[::-1]
        assert list(batch.take(backwards[1:]).columns) == arrow.schema.names


class Program(Chain):
    kinds = (Source, Singly, Together)


fitting = {"default": FITTING["default"], "times": ["shuffle", "field", "fields", "all"], "way": ["direct"]}
row = st.tuples(st.sampled_from([None, "", "a", "b", "é", "y" * 1500]), st.sampled_from([None, 0, -1, 2**62]))


@settings(max_examples=6, deadline=None)
@given(chains(Program, fitting, row.map(list), ["arrow", "table"]))
def test_arrow_and_single_tuples_give_the_same(program: Program) -> None:
    program.check()
