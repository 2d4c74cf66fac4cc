"""What a submit to an engine settles and refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from heronpy.api.config_values import encode_config
from heronpy.clusters import room
from heronpy.common.errors import ConfigError, TopologyError
from heronpy.common.setting_types import CheckpointSettings
from heronpy.common.settings import resolve, settings_for
from heronpy.common.units import MB
from heronpy.connectors.spark import SparkSink
from heronpy.engines.contract import (
    NodeSize,
)
from heronpy.ingest import LineFiles, LogUnits
from heronpy.launching import on_engine
from heronpy.packing.demand import ResourceRequest
from heronpy.proto import topology_pb2
from tests.cli.conftest import Heron, word_count
from tests.cli.engine_settings import settings


def test_containers_of_an_engine_talk_over_tcp() -> None:
    resolved = settings()
    assert on_engine.settle(word_count(), resolved, "local") == "slurm"
    assert resolved.settings["security"]["transport"] == "tcp"
    assert on_engine.settle(word_count(), resolve("local", [], {}, {}, []), "local") == ""


@pytest.mark.parametrize(
    ("rooms", "words"),
    [
        ({"security": {"transport": "ipc"}}, "works on one machine only"),
        ({"engine": {"fence_s": 59}}, "raise lost_s or lower fence_s"),
        ({"engine": {"fencing": "epoch"}}, "ATMOST_ONCE could deliver a tuple twice"),
        ({"engine": {"fencing": "lease"}}, "set heron.statemgr.type to zookeeper"),
        (
            {"engine": {"kind": "nomad"}},
            "this release has no engine 'nomad'; known engines are kubernetes, local, slurm, spark",
        ),
        ({"engine": {"kind": "slrm"}}, "did you mean 'slurm'"),
        ({"engine": {"shared": "some/where"}}, "not an absolute path"),
    ],
)
def test_settings_that_cannot_work_on_an_engine(rooms: dict[str, dict[str, Any]], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        on_engine.settle(word_count(), settings(**rooms), "local")


def effectively_once() -> topology_pb2.Topology:
    topology = word_count()
    topology.topology_config.kvs.add(key="topology.reliability.mode", value="EFFECTIVELY_ONCE")
    return topology


def test_effectively_once_needs_a_store_that_all_hosts_reach(tmp_path: Path) -> None:
    stores = {"checkpoint": {"root": tmp_path / "ckpt"}}
    with pytest.raises(TopologyError, match="is a folder on this host"):
        on_engine.settle(effectively_once(), settings(**stores), "local")
    assert on_engine.settle(effectively_once(), settings(**stores, engine={"shared": f"/x:{tmp_path}"}), "local")
    with pytest.raises(TopologyError, match=r"heron\.checkpoint\.replica"):
        replica = {"checkpoint": {"root": tmp_path / "ckpt", "replica": "/elsewhere"}}
        on_engine.settle(effectively_once(), settings(**replica, engine={"shared": tmp_path}), "local")


def test_of_several_stores_one_is_chosen_for_all_hosts(tmp_path: Path) -> None:
    (tmp_path / "full").touch()
    stores = {"a": str(tmp_path / "full" / "a"), "b": {"folder": str(tmp_path / "b"), "writers": 2, "rate_bytes": 1000}}
    resolved = settings(engine={"shared": tmp_path})
    resolved.settings["checkpoint"].update(stores=stores, store_policy="hash")
    on_engine.settle(effectively_once(), resolved, "local")
    chosen = settings_for(resolved, CheckpointSettings)
    assert (chosen.root, chosen.stores) == (str(tmp_path / "b"), {})
    assert (chosen.store_writers, chosen.store_rate_bytes) == (2, 1000)
    assert "store 'b'" in resolved.origins["checkpoint.root"]


def test_files_of_one_host_are_refused() -> None:
    topology = word_count()
    topology.spouts[0].comp.config.kvs.add(key="textfile.paths", value="/data/in/*.csv")
    topology.bolts[0].comp.config.kvs.add(key="file.sink.folder", value="/data/out")
    reads, writes = on_engine.file_problems(topology, [])
    assert "component 'word' reads /data/in/*.csv" in reads and "component 'count' writes /data/out" in writes
    assert on_engine.file_problems(topology, [Path("/data")]) == []
    assert len(on_engine.file_problems(topology, [Path("/data/in")])) == 1
    # A list travels as bytes.
    del topology.spouts[0].comp.config.kvs[:]
    topology.spouts[0].comp.config.kvs.extend(encode_config({"textfile.paths": ["/data/in/a", "/other/b"]}).kvs)
    assert on_engine.file_problems(topology, [Path("/data")]) == [
        "component 'word' reads /other/b, which other hosts may not have; move it below heron.engine.shared"
        " (engine.yaml), or run the topology on this machine"
    ]


def test_on_this_machine_all_folders_are_shared(tmp_path: Path) -> None:
    topology = effectively_once()
    topology.spouts[0].comp.config.kvs.add(key="textfile.paths", value="/data/in/*.csv")
    units = LogUnits.specs("p", logs="/data/*.log", rows=len, output=LineFiles("/data/table"))[0]
    topology.bolts[0].comp.config.kvs.extend(encode_config(units.custom_config).kvs)
    resolved = settings(engine={"kind": "local"}, logging={"archive": tmp_path / "logs"}, checkpoint={"root": tmp_path})
    assert on_engine.settle(topology, resolved, "local") == "local"
    assert resolved.settings["engine"]["home"].endswith("/engines/host")


def test_work_units_need_a_ledger_that_all_hosts_reach() -> None:
    topology = word_count()
    units = {"logs": "/data/*.log", "rows": len, "output": LineFiles("/data/table")}
    spec = LogUnits.specs("p", **units)[0]
    topology.spouts[0].comp.config.kvs.extend(encode_config(spec.custom_config).kvs)
    [problem] = on_engine.file_problems(topology, [Path("/data")])
    assert "component 'word' keeps its ledger in SQLite" in problem
    assert len(on_engine.file_problems(topology, [])) == 3


def test_an_archive_of_logs_is_where_all_hosts_reach_it(tmp_path: Path) -> None:
    own = {"logging": {"archive": tmp_path / "logs"}}
    with pytest.raises(ConfigError, match=r"heron.logging.archive is .*, a folder on this host"):
        on_engine.settle(word_count(), settings(**own), "local")
    resolved = settings(**own, engine={"shared": tmp_path})
    assert on_engine.settle(word_count(), resolved, "local") == "slurm"
    assert resolved.settings["logging"]["archive"] == str(tmp_path / "logs")
    with pytest.raises(ConfigError, match="unknown scheme ftp"):
        on_engine.settle(word_count(), settings(logging={"archive": "ftp://x/y"}), "local")


def test_packages_are_where_all_hosts_reach_them(tmp_path: Path) -> None:
    own = {"engine": {"packages": tmp_path / "packages"}}
    with pytest.raises(ConfigError, match=r"heron.engine.packages is .*, a folder on this host"):
        on_engine.settle(word_count(), settings(**own), "local")
    resolved = settings(engine={"packages": tmp_path / "packages", "shared": tmp_path})
    assert on_engine.settle(word_count(), resolved, "local") == "slurm"
    assert resolved.settings["engine"]["packages"] == str(tmp_path / "packages")


def with_a_spark_sink(**options: str) -> topology_pb2.Topology:
    topology = word_count()
    spec = SparkSink.spec("count", aggregate="module.function", fields=["n"], **options)
    topology.bolts[0].comp.config.kvs.extend(encode_config(spec.custom_config).kvs)
    return topology


def test_a_spark_sink_needs_a_place_for_its_batches_that_all_hosts_reach(tmp_path: Path) -> None:
    def problems(topology: topology_pb2.Topology, **rooms: dict[str, Any]) -> str:
        with pytest.raises(TopologyError) as error:
            on_engine.settle(topology, settings(**rooms), "local")
        return str(error.value)

    shared = {"shared": tmp_path}
    assert "set heron.spark.handover to a folder below" in problems(with_a_spark_sink(), engine=shared)
    assert "heron.spark.handover is /elsewhere, a folder on this host" in problems(
        with_a_spark_sink(), engine=shared, spark={"handover": "/elsewhere"}
    )
    inside = {"handover": tmp_path / "handover"}
    assert problems(with_a_spark_sink(table="/data/t"), engine=shared, spark=inside) == (
        "option table of SparkSink 'count' is /data/t, which other hosts may not have; put it below heron.engine.shared"
        " (engine.yaml), or into an object store"
    )
    for options in ({"table": f"{tmp_path}/t"}, {"table": "s3://bucket/t", "label": "x"}):
        assert on_engine.settle(with_a_spark_sink(**options), settings(engine=shared, spark=inside), "local")
    url = {"handover": "s3://bucket/handover"}
    assert on_engine.settle(with_a_spark_sink(), settings(engine=shared, spark=url), "local")


def test_a_spark_that_cannot_be_used_is_named_at_submit(tmp_path: Path) -> None:
    here = {"handover": tmp_path / "handover"}
    on_engine.check_spark_of(settings(spark=here))
    with pytest.raises(
        ConfigError, match=r"heron\.spark\.master spark://127\.0\.0\.1:1 cannot be reached from this host"
    ):
        on_engine.check_spark_of(settings(spark={**here, "master": "spark://127.0.0.1:1"}))
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="is not a folder"):
        on_engine.check_spark_of(settings(spark={"handover": tmp_path / "file"}))
    with pytest.raises(ConfigError, match="not a Spark master; use"):
        on_engine.check_spark_of(settings(spark={**here, "master": "localhost"}))


def test_a_container_larger_than_the_largest_host_is_refused() -> None:
    sizes = [NodeSize(2, 1000 * MB, None, "partition batch"), NodeSize(64, 500 * MB, None, "partition batch")]
    asked = {0: ResourceRequest(0.5, 100 * MB, 0), 1: ResourceRequest(4, 900 * MB, 1 << 40)}
    assert room.size_problem(asked, sizes).startswith(
        "container 1 requests 4 cores and 900MB of memory, but the largest host of partition batch has 2 cores"
    )
    assert room.size_problem(asked, [NodeSize(4, 900 * MB)]) == ""
    assert "1TB of disk" in room.size_problem(asked, [NodeSize(4, 900 * MB, 1 << 30)])
    assert room.size_problem(asked, []) == ""


def test_flags_of_engines_are_refused_without_one(heron: Heron, tmp_path: Path) -> None:
    assert "mutually exclusive" in heron("submit", "local", "x.py", "--foreground", "--detach").err
