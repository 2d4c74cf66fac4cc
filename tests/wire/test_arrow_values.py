"""Arrow payloads: what a schema may have, what comes back, and what a peer that sends anything else gets."""

from __future__ import annotations

import datetime as dt
import sys
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from heronpy.common.errors import RemoteWireError, TopologyError
from heronpy.wire import arrow_values
from heronpy.wire.arrow_values import (
    batch_problem,
    decode_batch,
    encode_batch,
    flat_values,
    schema_of,
    schema_problem,
    schema_to_bytes,
)
from tests.security.mutate import cases

SCHEMA = pa.schema(
    [
        ("flag", pa.bool_()),
        ("count", pa.uint8()),
        pa.field("number", pa.int64(), nullable=False),
        ("ratio", pa.float32()),
        ("text", pa.string()),
        ("big", pa.large_string()),
        ("data", pa.binary(2)),
        ("price", pa.decimal128(9, 2)),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "Europe/Berlin")),
        ("time", pa.time64("us")),
        ("took", pa.duration("ms")),
        ("list", pa.large_list(pa.string())),
        ("pair", pa.list_(pa.float64(), 2)),
        ("struct", pa.struct([("x", pa.int8()), ("y", pa.list_(pa.int16()))])),
        ("map", pa.map_(pa.string(), pa.int32())),
    ]
)
ROW = [
    True, 255, -1, 0.5, "é", "big", b"ab", Decimal("1.25"), dt.date(2026, 11, 22), dt.datetime(2026, 11, 22, tzinfo=dt.UTC),
    dt.time(12, 30), dt.timedelta(seconds=2), ["x", None], [1.0, 2.0], {"x": 1, "y": [3]}, [("k", 1)],
]  # fmt: skip
NONES = [None, None, 7, *[None] * 13]


def batch_of(*rows: list[object]) -> pa.RecordBatch:
    columns = [pa.array(column, type=kind) for column, kind in zip(zip(*rows, strict=True), SCHEMA.types, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def test_every_type_comes_back_and_a_slice_has_its_own_values_only() -> None:
    assert schema_problem(SCHEMA) is None and schema_of(schema_to_bytes(SCHEMA)) == SCHEMA
    batch = batch_of(*[ROW, NONES] * 500)
    assert decode_batch(encode_batch(batch), SCHEMA, 1000) == batch
    part = decode_batch(encode_batch(batch.slice(499, 2)), SCHEMA, 2)
    assert flat_values(part) == [*NONES, *ROW]
    assert len(encode_batch(batch.slice(499, 2))) < len(encode_batch(batch)) / 8


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (pa.timestamp("ns"), "use microseconds"),
        (pa.list_(pa.date32()), "use a separate field"),
        (pa.timestamp("us", "Nowhere/Land"), "time zone is unknown"),
        (pa.dictionary(pa.int8(), pa.string()), "is not supported"),
        (pa.null(), "is not supported"),
        (pa.float16(), "is not supported"),
        (pa.binary(0), "width of 0"),
        (pa.list_(pa.int8(), 0), "size 0"),
        (pa.struct([]), "needs fields"),
        (pa.month_day_nano_interval(), "is not supported"),
        (pa.map_(pa.string(), pa.null()), "is not supported"),
    ],
)
def test_a_type_that_has_no_sure_python_value_is_refused(kind: pa.DataType, why: str) -> None:
    problem = schema_problem(pa.schema([("fine", pa.int8()), ("odd", kind)]))
    assert problem is not None and problem.startswith("field 'odd' is ") and why in problem


def test_values_that_python_does_not_have_are_refused() -> None:
    last = pa.array([253_402_300_799_000_001], type=pa.int64()).view(pa.timestamp("us"))
    found = batch_problem(pa.RecordBatch.from_arrays([last], names=["at"]))
    assert found == "has a value in field 'at' that is beyond Python's timestamp[us]"
    late = pa.array([86_400], type=pa.int32()).view(pa.time32("s"))
    assert batch_problem(pa.RecordBatch.from_arrays([late], names=["t"])) is not None
    absent = pa.RecordBatch.from_arrays(
        [pa.array([None], pa.int8())], schema=pa.schema([pa.field("n", pa.int8(), False)])
    )
    assert batch_problem(absent) == "has no value in field 'n', which is not nullable"
    broken = pa.StringArray.from_buffers(1, pa.py_buffer(np.array([0, 1], dtype=np.int32)), pa.py_buffer(b"\xff"))
    assert "UTF8" in str(batch_problem(pa.RecordBatch.from_arrays([broken], names=["t"])))


def test_what_is_not_the_batch_that_the_frame_says_is_refused() -> None:
    batch = batch_of(ROW, NONES)
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, SCHEMA, options=options) as writer:
        writer.write_batch(batch)
    reader = pa.ipc.MessageReader.open_stream(sink.getvalue())
    reader.read_next_message()
    mark = encode_batch(batch)[:8]
    packed = mark + reader.read_next_message().serialize().to_pybytes()
    schema = mark + SCHEMA.serialize().to_pybytes()
    bad = [(encode_batch(batch), 3), (packed, 2), (schema, 2), (b"", 0), (mark, 0), (mark + b"\x00" * 64, 1)]
    for payload, count in bad:
        with pytest.raises(RemoteWireError, match=f"payload of {len(payload)} bytes"):
            decode_batch(payload, SCHEMA, count)


def test_a_batch_of_another_schema_is_not_taken_for_one_of_this() -> None:
    """As after a restore from a checkpoint with tuples of an earlier topology."""
    earlier, now = pa.schema([("n", pa.int64())]), pa.schema([("n", pa.float64())])
    payload = encode_batch(pa.RecordBatch.from_pydict({"n": [1, 2]}, schema=earlier))
    with pytest.raises(RemoteWireError, match="has a different Arrow schema"):
        decode_batch(payload, now, 2)


def test_mutated_payloads_are_refused_or_good_to_read() -> None:
    """Whatever is taken has values for Python: nothing is read beyond the payload, and memory stays bounded."""
    seeds = [encode_batch(batch_of(*[ROW, NONES] * size)) for size in (1, 20)]
    taken = refused = 0
    for payload in cases(seeds, "Arrow values"):
        for count in (2, 40):
            try:
                batch = decode_batch(payload, SCHEMA, count)
            except RemoteWireError:
                refused += 1
                continue
            assert len(flat_values(batch)) == count * len(SCHEMA)
            taken += 1
    assert taken and refused


def test_bytes_that_are_no_schema_are_an_error_of_the_topology() -> None:
    for data in (b"", b"\x00" * 30, encode_batch(batch_of(ROW))):
        with pytest.raises(TopologyError, match="are not an Arrow schema"):
            schema_of(data)


def test_without_pyarrow_the_error_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(TopologyError, match="pip install 'heronpy\\[spark\\]'"):
        arrow_values.arrow()
