"""Payload of a frame with codec ARROW: one Arrow record batch, without its schema, which the topology declares. Pure.

Eight bytes identify the schema. A frame in a checkpoint may be older than the schema that the topology declares now,
and another schema would give the same bytes a different meaning.

A schema may only have types whose values every receiver can turn into Python values, so that bolts that process single
tuples can read them too. Data from a peer is checked before use: its bounds, texts and times. Compressed data is
refused, so the size of a payload bounds its size in memory.

pyarrow is imported when the first schema is read.
"""

from __future__ import annotations

import struct
import zlib
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from heronpy.common.errors import RemoteWireError, TopologyError

if TYPE_CHECKING:
    import pyarrow as pa

#: CRC-32 of a schema, and its number of fields.
_MARK = struct.Struct("<II")
_I32 = struct.Struct("<i")
_U32 = struct.Struct("<I")
_U16 = struct.Struct("<H")
#: Field numbers in the tables of Arrow's Message.fbs.
_MESSAGE_HEADER = 2
_BATCH_COMPRESSION = 3
_DAY_S = 86_400
#: Seconds of 0001-01-02 and 9999-12-30: one day inside the limits, so that the time exists in every time zone.
_FIRST_S, _LAST_S = -62_135_510_400, 253_402_128_000
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000}
_DURATION_MAX_S = 999_999_999 * _DAY_S


def arrow() -> Any:
    """Return the module pyarrow. Raises TopologyError if pyarrow is not installed."""
    try:
        import pyarrow
    except ImportError:
        raise TopologyError(
            "a stream with an Arrow schema needs pyarrow, which is not installed; run: pip install 'heronpy[spark]'"
        ) from None
    return pyarrow


def schema_to_bytes(schema: pa.Schema) -> bytes:
    """Return a schema as bytes for a topology's definition, without metadata."""
    data: bytes = schema.remove_metadata().serialize().to_pybytes()
    return data


def schema_of(data: bytes) -> pa.Schema:
    """Decode the result of `schema_to_bytes`. Raises TopologyError for invalid bytes, or without pyarrow."""
    pa = arrow()
    try:
        return pa.ipc.read_schema(pa.py_buffer(data))
    except (pa.ArrowException, OSError, ValueError, EOFError) as error:
        raise TopologyError(f"{len(data)} bytes are not an Arrow schema: {error}") from None


def schema_problem(schema: pa.Schema) -> str | None:
    """Return why a stream cannot have this schema ("field 'x' ...", as part of a sentence), or None."""
    if not len(schema):
        return "the schema has no fields"
    for field in schema:
        wrong = _type_problem(field.type, is_inner=False)
        if wrong:
            return f"field {field.name!r} is {field.type}, and {wrong}"
    return None


def _type_problem(kind: pa.DataType, is_inner: bool) -> str | None:
    pa = arrow()
    types = pa.types
    if types.is_temporal(kind) and not types.is_interval(kind):
        return _time_problem(kind, is_inner)
    if types.is_fixed_size_binary(kind) and not types.is_decimal(kind) and kind.byte_width == 0:
        return "a width of 0 is not supported"
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        if types.is_fixed_size_list(kind) and kind.list_size == 0:
            return "a list of size 0 is not supported"
        return _type_problem(kind.value_type, is_inner=True)
    if types.is_struct(kind):
        names = [kind.field(place).name for place in range(kind.num_fields)]
        if not names or len(set(names)) != len(names):
            return "a struct needs fields, each with a unique name"
        problems = (_type_problem(kind.field(place).type, is_inner=True) for place in range(kind.num_fields))
        return next(filter(None, problems), None)
    if types.is_map(kind):
        return _type_problem(kind.key_type, is_inner=True) or _type_problem(kind.item_type, is_inner=True)
    is_plain = (
        types.is_boolean(kind) or types.is_integer(kind) or types.is_float32(kind) or types.is_float64(kind)
        or types.is_string(kind) or types.is_large_string(kind) or types.is_binary(kind)
        or types.is_large_binary(kind) or types.is_fixed_size_binary(kind) or types.is_decimal128(kind)
        or types.is_decimal256(kind)
    )  # fmt: skip
    return None if is_plain else f"{kind} is not supported; use another type"


def _time_problem(kind: pa.DataType, is_inner: bool) -> str | None:
    if is_inner:
        return f"{kind} within a list, struct or map is not supported; use a separate field"
    if getattr(kind, "unit", "") == "ns":
        return "Python's times have no nanoseconds; use microseconds"
    pa = arrow()
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        try:
            pa.scalar(0, type=kind).as_py()
        except Exception as error:  # libraries of time zones raise different exceptions
            return f"its time zone is unknown ({error})"
    return None


# ---- values -------------------------------------------------------------------------------


def batch_problem(batch: pa.RecordBatch) -> str | None:
    """Return why the values of a batch with a valid schema are invalid, or None; check every byte of the batch."""
    pa = arrow()
    try:
        batch.validate(full=True)
    except (pa.ArrowException, ValueError) as error:
        return f"is not valid: {error}"
    for place, field, limits in _looked_at(batch.schema):
        column = batch.column(place)
        if not field.nullable and column.null_count:
            return f"has no value in field {field.name!r}, which is not nullable"
        if limits is None:
            continue
        numbers = column.view(pa.int32() if field.type.bit_width == 32 else pa.int64())
        found = arrow_compute().min_max(numbers)
        low, high = found["min"].as_py(), found["max"].as_py()
        if low is not None and not limits[0] <= low <= high <= limits[1]:
            return f"has a value in field {field.name!r} that is beyond Python's {field.type}"
    return None


@lru_cache(maxsize=256)
def _looked_at(schema: pa.Schema) -> list[tuple[int, pa.Field, tuple[int, int] | None]]:
    """Return the fields whose values pyarrow's validation does not check, and the limits of these values."""
    fields = [(place, field, _limits_of(field.type)) for place, field in enumerate(schema)]
    return [(place, field, limits) for place, field, limits in fields if limits or not field.nullable]


def arrow_compute() -> Any:
    """Return the module pyarrow.compute."""
    import pyarrow.compute

    return pyarrow.compute


def _limits_of(kind: pa.DataType) -> tuple[int, int] | None:
    """Return the lowest and highest number of a temporal type that Python can represent; None for other types."""
    types = arrow().types
    if types.is_date32(kind):
        return _FIRST_S // _DAY_S, _LAST_S // _DAY_S
    if types.is_date64(kind):
        return _FIRST_S * 1000, _LAST_S * 1000
    if types.is_timestamp(kind):
        return _FIRST_S * _PER_SECOND[kind.unit], _LAST_S * _PER_SECOND[kind.unit]
    if types.is_time(kind):
        return 0, _DAY_S * _PER_SECOND[kind.unit] - 1
    if types.is_duration(kind):
        return -_DURATION_MAX_S * _PER_SECOND[kind.unit], _DURATION_MAX_S * _PER_SECOND[kind.unit]
    return None


def encode_batch(batch: pa.RecordBatch) -> bytes:
    """Return the payload of a frame: eight bytes that identify the schema, and a message in Arrow's IPC format. For a
    slice, the message contains only the values of the slice.
    """
    data: bytes = _mark_of(batch.schema) + memoryview(batch.serialize())
    return data


@lru_cache(maxsize=256)
def _mark_of(schema: pa.Schema) -> bytes:
    return _MARK.pack(zlib.crc32(str(schema).encode()), len(schema))


def decode_batch(payload: bytes, schema: pa.Schema, count: int) -> pa.RecordBatch:
    """Return the batch of `count` tuples in a payload; it refers to the payload's memory. Raises RemoteWireError for an
    invalid payload.
    """
    pa = arrow()
    if payload[: _MARK.size] != _mark_of(schema):
        raise RemoteWireError(f"payload of {len(payload)} bytes has a different Arrow schema than its stream")
    try:
        message = pa.ipc.read_message(pa.py_buffer(payload).slice(_MARK.size))
        if message.type != "record batch":
            raise RemoteWireError(f"payload of {len(payload)} bytes is an Arrow message of type {message.type}")
        if _is_compressed(message.metadata.to_pybytes()):
            # Otherwise the size of the frame would not bound the size in memory.
            raise RemoteWireError(f"payload of {len(payload)} bytes is a compressed Arrow record batch")
        batch = pa.ipc.read_record_batch(message, schema)
        problem = batch_problem(batch) if batch.num_rows == count else f"has {batch.num_rows} rows"
    except (pa.ArrowException, OSError, ValueError, TypeError, EOFError, MemoryError, struct.error) as error:
        raise RemoteWireError(f"payload of {len(payload)} bytes is not an Arrow record batch: {error}") from None
    if problem:
        raise RemoteWireError(f"payload of {len(payload)} bytes for {count} tuples {problem}")
    return batch


def _is_compressed(metadata: bytes) -> bool:
    """Return whether a record batch is compressed. Raises struct.error for an offset outside the metadata."""
    place = _field(metadata, _U32.unpack_from(metadata, 0)[0], _MESSAGE_HEADER)
    header = place + _U32.unpack_from(metadata, place)[0]
    return _field(metadata, header, _BATCH_COMPRESSION) > 0


def _field(data: bytes, table: int, number: int) -> int:
    """Return the offset of a field in a FlatBuffers table; 0 if the field is not set."""
    vtable = table - _I32.unpack_from(data, table)[0]
    if vtable < 0:
        raise RemoteWireError("a table of Arrow metadata is out of bounds")
    entry = 4 + 2 * number
    if entry + 2 > _U16.unpack_from(data, vtable)[0]:
        return 0
    offset: int = _U16.unpack_from(data, vtable + entry)[0]
    return table + offset if offset else 0


def flat_values(batch: pa.RecordBatch) -> list[Any]:
    """Return the values of all tuples one after the other, as Python values (`to_pylist`)."""
    width = batch.num_columns
    if width == 1:
        only: list[Any] = batch.column(0).to_pylist()
        return only
    flat: list[Any] = [None] * (width * batch.num_rows)
    for place in range(width):
        flat[place::width] = batch.column(place).to_pylist()
    return flat
