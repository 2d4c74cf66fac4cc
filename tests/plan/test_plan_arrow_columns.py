"""What may be declared and emitted as Arrow, and the sentence for what may not."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from heronpy.api.spout.spout import Spout
from heronpy.api.stream import Stream
from heronpy.api.topology import TopologyBuilder
from heronpy.common.errors import TopologyError
from heronpy.plan.emit_rules import ArrowColumns, ColumnRules, Columns
from heronpy.plan.logical import LogicalPlan
from heronpy.plan.validation import problems
from heronpy.wire.arrow_values import schema_to_bytes

SCHEMA = pa.schema([("name", pa.string()), pa.field("count", pa.int64(), nullable=False)])
RULES = ColumnRules("word", "out", SCHEMA.names, schema_to_bytes(SCHEMA))


def table(**columns: Any) -> pa.Table:
    return pa.table(columns)


def test_a_table_in_another_order_becomes_one_batch_of_the_schema() -> None:
    chunks = pa.concat_tables([table(count=[1], name=["a"]), table(count=[2], name=["b"])])
    found = RULES.columns(chunks, None)
    assert isinstance(found, ArrowColumns) and found.batch.schema == SCHEMA
    assert found.rows() == [["a", 1], ["b", 2]] and found.part(1, 9).rows() == [["b", 2]]
    assert RULES.columns(chunks.slice(0, 0), None).size == 0


def test_other_forms_are_values_as_on_any_stream() -> None:
    assert isinstance(RULES.columns({"name": ["a"], "count": [1]}, None), Columns)
    assert isinstance(ColumnRules("word", "out", SCHEMA.names).columns(table(name=["a"], count=[1]), None), Columns)


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        (table(name=["a"], count=[1.5]), "field 'count' as double; the schema has int64; cast it"),
        (table(name=["a"]), "the columns 'name'; the schema has name, count"),
        (table(name=["a"], count=pa.array([None], pa.int64())), "no value in field 'count', which is not nullable"),
    ],
)
def test_what_does_not_match_is_one_sentence(columns: pa.Table, why: str) -> None:
    with pytest.raises(TopologyError, match="component word emitted ") as raised:
        RULES.columns(columns, None)
    assert why in str(raised.value) and "\n" not in str(raised.value)


def test_a_stream_takes_its_fields_from_the_schema() -> None:
    assert Stream(schema=SCHEMA).fields == ["name", "count"]
    assert Stream(["name", "count"], "x", schema=SCHEMA).schema == SCHEMA
    with pytest.raises(ValueError, match=r"declares the fields \['n'\] and a schema of \['name', 'count'\]"):
        Stream(["n"], schema=SCHEMA)
    with pytest.raises(ValueError, match="field 'at' is timestamp\\[ns\\], and Python's times have no nanoseconds"):
        Stream(schema=pa.schema([("at", pa.timestamp("ns"))]))
    with pytest.raises(TypeError, match=r"must be a pyarrow\.Schema"):
        Stream(schema={"n": "int64"})  # type: ignore[arg-type]


class Words(Spout):
    outputs = [Stream(schema=SCHEMA)]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"junk", "4 bytes are not an Arrow schema"),
        (schema_to_bytes(pa.schema([("name", pa.string())])), "it has name, but the stream declares name, count"),
        (
            schema_to_bytes(pa.schema([("name", pa.string()), ("count", pa.null())])),
            "field 'count' is null, and null is not supported",
        ),
    ],
)
def test_a_definition_with_another_schema_is_refused(data: bytes, why: str) -> None:
    builder = TopologyBuilder("arrows")
    builder.add_spout("words", Words, par=1)
    message = builder.build()
    assert problems(LogicalPlan.from_topology(message)) == []
    message.spouts[0].outputs[0].arrow_schema = data
    [found] = problems(LogicalPlan.from_topology(message))
    assert found.startswith("the Arrow schema of stream 'default' of spout 'words' cannot be used: ") and why in found
