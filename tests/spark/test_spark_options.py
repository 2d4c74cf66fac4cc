from __future__ import annotations

import os
import socket
import subprocess
import sys

import pyarrow as pa
import pytest

from heronpy.api.bolt.bolt import Bolt
from heronpy.api.component.component_spec import HeronComponentSpec
from heronpy.api.config_values import decode_config, encode_config
from heronpy.api.stream import Grouping
from heronpy.common.errors import ConfigError
from heronpy.connectors.spark import SparkSink, check_spark, needs_spark, requirements
from heronpy.connectors.spark.options import (
    SinkOptions,
    decode_aggregate,
    encode_aggregate,
    make_options,
)
from heronpy.connectors.spark.records import AgreedSchema, SinkFolder
from heronpy.connectors.spark.requirements import check_master, parse_java_version
from heronpy.connectors.spark.rows import RowShape, decode_schema, encode_schema
from heronpy.proto import topology_pb2
from heronpy.storage.objects.folder import FolderObjects


class Words(Bolt):
    outputs = ["word", "count"]


def test_options_survive_the_topology_message():
    options = make_options("m.f", {"a": "int64"}, None, batch_rows=5, batch_interval_s=0.1, options={"output": "1"})
    back = SinkOptions.from_config(decode_config(encode_config(options.to_config())))
    assert back == options and back.options["output"] == "1"


def test_the_tick_is_a_part_of_the_interval():
    def tick(interval):
        return make_options("m.f", None, ["a"], batch_interval_s=interval).to_config()["topology.tick.tuple.freq.ms"]

    assert [tick(0.01), tick(0.5), tick(None), tick(60)] == [20, 100, 100, 200]


def test_columns_come_from_the_inputs():
    words = Words.spec("words", {HeronComponentSpec("s", "x.Y", True, 1, outputs=["l"]): Grouping.SHUFFLE})
    spec = SparkSink.spec("store", {words: Grouping.SHUFFLE}, aggregate="m.f", output="/x")
    options = SinkOptions.from_config(spec.custom_config)
    assert options.fields == ["word", "count"] and options.options == {"output": "/x"}


@pytest.mark.parametrize(
    ("kwargs", "text"),
    [
        ({"aggregate": None}, "needs aggregate="),
        ({"aggregate": "nodots"}, "must be a function or"),
        ({"aggregate": "m.f", "batch_rows": 0}, "above zero"),
        ({"aggregate": "m.f", "batch_rows": 1.5}, "whole number"),
        ({"aggregate": "m.f", "max_uncommitted": 1000}, "at most"),
        ({"aggregate": "m.f", "output": object()}, "plain values"),
        ({"aggregate": "m.f", "schema": {"b": "int64"}}, "differ"),
        ({"aggregate": "m.f", "fields": ["a", "a"]}, "must have different names"),
    ],
)
def test_wrong_options_are_one_sentence(kwargs, text):
    with pytest.raises(ConfigError, match=text):
        SparkSink.spec("store", None, **{"fields": ["a"], **kwargs})


def test_a_function_travels_by_value_or_by_name():
    assert decode_aggregate(encode_aggregate(lambda spark, df, batch: 7))(None, None, None) == 7
    assert decode_aggregate(encode_aggregate("os.path.join")) is os.path.join
    with pytest.raises(ConfigError, match=r"cannot load import:no\.such"):
        decode_aggregate("import:no.such.function")


def test_a_function_of_main_travels_by_value():
    code = (
        "from heronpy.connectors.spark.options import encode_aggregate\n"
        "helper = 40\n"
        "def agg(spark, df, batch): return helper + 2\n"
        "assert encode_aggregate('__main__.agg') == encode_aggregate(agg)\n"
        "print(encode_aggregate(agg))"
    )
    text = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout
    assert decode_aggregate(text.strip())(None, None, None) == 42


def test_needs_spark_looks_at_the_components():
    topology = topology_pb2.Topology(id="i", name="n", state=topology_pb2.RUNNING)
    bolt = topology.bolts.add()
    bolt.comp.name = "b"
    assert not needs_spark(topology)
    bolt.comp.config.CopyFrom(encode_config(SparkSink.spec("s", None, aggregate="m.f", fields=["a"]).custom_config))
    assert needs_spark(topology)


def test_the_connector_does_not_import_pyspark():
    code = "import heronpy.connectors.spark.sink, heronpy.spark.gateway, sys; assert 'pyspark' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


# -- requirements -----------------------------------------------------------------------------


def test_java_versions():
    assert parse_java_version('openjdk version "17.0.15" 2025-04-15') == 17
    assert parse_java_version('java version "1.8.0_292"') == 8
    assert parse_java_version("whatever") is None


def fake_java(folder, version):
    (folder / "bin").mkdir(parents=True)
    java = folder / "bin" / "java"
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(0o755)


def test_what_is_missing_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match=r"JAVA_HOME is .* is not a program"):
        check_spark()
    fake_java(tmp_path, "11.0.2")
    with pytest.raises(ConfigError, match="is Java 11, but Spark needs Java 17"):
        check_spark()
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="no Java was found"):
        check_spark()
    monkeypatch.setattr(requirements.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'heronpy\[spark\]'"):
        check_spark()


def test_masters(monkeypatch):
    for master in ("local", "local[2]", "local[*]", "local-cluster[2,1,1024]", "yarn", "k8s://https://host:6443"):
        check_master(master)
    for master in ("", "locl", "spark://", "host:7077"):
        with pytest.raises(ConfigError, match="is not a Spark master; use"):
            check_master(master)
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        check_master(f"spark://127.0.0.1:{port}")
        check_master(f"spark://127.0.0.1:1,127.0.0.1:{port}")
        check_master(f"sc://127.0.0.1:{port}/;user_id=me")
    with pytest.raises(
        ConfigError, match=rf"sc://127\.0\.0\.1:{port} cannot be reached from this host \(Connection refused\)"
    ):
        check_master(f"sc://127.0.0.1:{port}/;user_id=me")
    with pytest.raises(ConfigError, match="SPARK_CONNECT_AUTHENTICATE_TOKEN") as refused:
        check_master("sc://host:15002/;token=geheim")
    assert "geheim" not in str(refused.value)


def test_spark_connect_needs_its_packages_and_no_java(monkeypatch):
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    monkeypatch.setattr(requirements.importlib.util, "find_spec", lambda name: name)
    check_spark("sc://host:15002")
    monkeypatch.setattr(requirements.importlib.util, "find_spec", lambda name: name if name != "grpc" else None)
    with pytest.raises(ConfigError, match=r"grpc is missing; run: pip install 'heronpy\[spark-connect\]'"):
        check_spark("sc://host:15002")


# -- rows -------------------------------------------------------------------------------------


def shape(tmp_path, fields=("a", "b"), schema=None):
    return RowShape(fields, schema, AgreedSchema(SinkFolder(FolderObjects(tmp_path), "T-run", "store")))


def test_schemas_travel_as_text():
    schema = pa.schema([("a", pa.timestamp("us")), ("b", pa.list_(pa.int32()))])
    assert decode_schema(encode_schema(schema)) == schema
    assert decode_schema(encode_schema({"a": "int64"})) == pa.schema([("a", pa.int64())])
    assert decode_schema(encode_schema(None)) is None
    with pytest.raises(ConfigError, match="unknown type 'integer64'"):
        decode_schema(encode_schema({"a": "integer64"}))


def test_the_first_batch_fixes_the_schema_for_all_tasks(tmp_path):
    first, second = shape(tmp_path), shape(tmp_path)
    table, misfits = first.table([(1, "x"), (2, None)])
    assert table.schema == pa.schema([("a", pa.int64()), ("b", pa.string())]) and not misfits
    table, misfits = second.table([(1.5, "x"), (2, 3), (4, "y")])
    assert table.to_pylist() == [{"a": 4, "b": "y"}]
    assert [m.index for m in misfits] == [0, 1] and "column 'a' must be int64" in misfits[0].reason


def test_a_column_without_values_is_decided_later(tmp_path):
    one = shape(tmp_path)
    assert one.table([(1, None)])[0].schema.field("b").type == pa.null()
    assert one.schema is None
    assert one.table([(1, None), (2, 2.5)])[0].schema.field("b").type == pa.float64()
    assert shape(tmp_path).table([(None, None)])[0].schema == one.schema


def test_mixed_first_values_are_decided_by_the_first(tmp_path):
    table, misfits = shape(tmp_path, ("a",)).table([("x",), (1,), ("y",)])
    assert table.column("a").to_pylist() == ["x", "y"] and [m.index for m in misfits] == [1]


def test_a_required_column_refuses_none(tmp_path):
    schema = pa.schema([pa.field("a", pa.int64(), nullable=False)])
    table, misfits = shape(tmp_path, ("a",), schema).table([(1,), (None,)])
    assert table.num_rows == 1 and "a column without nulls got a null" in misfits[0].reason


def test_numbers_too_large_are_misfits(tmp_path):
    table, misfits = shape(tmp_path, ("a",), pa.schema([("a", pa.int32())])).table([(2**31,), (2**70,), (5,)])
    assert table.column("a").to_pylist() == [5] and len(misfits) == 2
