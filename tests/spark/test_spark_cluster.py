"""Spark sinks with a real Spark cluster, and over hosts: each row in the table once, whatever is lost.

The cluster is a standalone master with workers, and a Spark Connect server, from the pyspark package; hosts are made of
namespaces. YARN and Kubernetes as masters are not tried here.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest
import zmq

from heronpy.cli import exits
from heronpy.common.exit_codes import STARTUP_FAILURE
from heronpy.connectors.durable_files import run_token
from heronpy.connectors.spark.records import RunRecords, open_handover
from heronpy.connectors.spark.sink import SparkSink
from heronpy.net.rpc import parse
from heronpy.plan.launch import LaunchSpec
from heronpy.proto import control_pb2
from tests.connectors.two_phase import Tup
from tests.spark.support import GatewaySupervisor, make_launch, start_sink
from tests.support import host_engine
from tests.support.hosts import made_hosts, needs_hosts
from tests.support.judged import OnCluster
from tests.support.standalone_spark import spark_connect, standalone_spark
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.heavy, pytest.mark.spark, pytest.mark.timeout(1500)]

needs_connect = pytest.mark.skipif(find_spec("grpc") is None, reason="Spark Connect needs grpc: heronpy[spark-connect]")


class Gateway:
    """The real gateway of a topology that hands over in a folder, kept alive as by an executor."""

    def __init__(self, folder: Path, master: str, **spark: Any) -> None:
        self.sockets = Path(tempfile.mkdtemp(prefix="hs"))
        given = {"handover": str(folder / "handover"), "master": master, "max_retries": 1, **spark}
        self.launch = make_launch(folder, self.sockets, **given)
        self.supervisor = GatewaySupervisor(self.launch)
        self.pull = zmq.Context.instance().socket(zmq.PULL)
        self.pull.bind(f"ipc://{self.sockets}/executor-0.metrics")
        os.environ["HERON_LAUNCH"] = str(self.launch)

    def close(self) -> None:
        process = self.supervisor.process
        if process is not None:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(30)
            process.kill()
        self.pull.close(0)
        del os.environ["HERON_LAUNCH"]
        shutil.rmtree(self.sockets, ignore_errors=True)

    @property
    def records(self) -> RunRecords:
        launch = LaunchSpec.load(self.launch)
        place = str(self.launch.parent / "handover")
        return RunRecords(open_handover(place), launch.topology, run_token(launch.topology_id))

    def exceptions(self) -> list[control_pb2.ExceptionReport]:
        found = []
        with suppress(zmq.Again):
            while True:
                envelope = parse(self.pull.recv(zmq.DONTWAIT))
                if envelope is not None and envelope.WhichOneof("body") == "exception_report":
                    found.append(envelope.exception_report)
        return found

    def log(self) -> str:
        return self.supervisor.log.read_text(errors="replace")


@pytest.fixture
def gateway_of(tmp_path: Path) -> Iterator[Callable[..., Gateway]]:
    made: list[Gateway] = []

    def make(master: str, **spark: Any) -> Gateway:
        folder = tmp_path / f"w{len(made)}"
        folder.mkdir()
        made.append(Gateway(folder, master, **spark))
        return made[-1]

    yield make
    for one in made:
        one.close()


def through_python(begun: str = "", pause_s: float = 0.005) -> Callable[..., None]:
    """An aggregate function whose rows pass Spark's Python workers; made here so that it travels by value.

    Row 150 makes the file `begun`.
    """

    def aggregate(spark: Any, df: Any, batch: Any) -> None:
        from pyspark.sql.functions import udf

        def same(n: int) -> int:
            import pathlib
            import time

            if begun and n == 150:
                pathlib.Path(begun).touch()
            time.sleep(pause_s)
            return n

        rows = df.select(udf(same, "long", useArrow=False)("n").alias("n"))
        batch.write_parquet(rows, batch.options["table"])

    return aggregate


def sink(table: Path, aggregate: Any = None, **more: Any) -> SparkSink:
    given = {"schema": {"n": "int64"}, "batch_rows": 50, "batch_interval_s": 0.2, **more}
    return start_sink("store", 3, aggregate=aggregate or through_python(), table=str(table), **given)


def rows_of(table: Path) -> Counter[int]:
    return Counter(pq.read_table(table)["n"].to_pylist() if list(table.glob("batch=*")) else [])


def drain(bolt: SparkSink, count: int, gateway: Gateway, until: Callable[[], object] | None = None) -> None:
    def turn() -> object:
        bolt.process_tick(None)
        gateway.supervisor.keep_running()
        return until() if until is not None else len(bolt.delegate.acked) + len(bolt.delegate.failed) >= count

    try:
        wait_for(turn, 400, "the outcomes of all rows")
    except BaseException:
        print(gateway.log()[-6000:])
        raise


def test_a_cluster_through_the_loss_of_a_worker_and_of_the_gateway(
    gateway_of: Callable[..., Gateway], tmp_path: Path
) -> None:
    table = tmp_path / "table"
    with standalone_spark() as spark:
        gateway = gateway_of(spark.url, conf={"spark.executor.memory": "512m"})
        gateway.supervisor.start()
        bolt = sink(table)
        for n in range(200):
            bolt.process(Tup(n, (n,)))
        drain(bolt, 200, gateway)
        # An executor dies while Spark works on a batch.
        for n in range(200, 400):
            bolt.process(Tup(n, (n,)))
        drain(bolt, 0, gateway, until=lambda: gateway.records.folder("store").stems("attempts"))
        spark.executors()[0].send_signal(signal.SIGKILL)
        drain(bolt, 400, gateway)
        # The gateway is killed in the middle of a batch, with its driver.
        for n in range(400, 600):
            bolt.process(Tup(n, (n,)))
        drain(bolt, 0, gateway, until=lambda: gateway.records.folder("store").stems("attempts"))
        first = gateway.records.gateway()
        gateway.supervisor.kill()
        drain(bolt, 600, gateway)
        bolt.finish()
        assert gateway.records.gateway().epoch > first.epoch
    assert bolt.delegate.failed == [] and rows_of(table) == Counter(range(600))
    assert not (table / "_staging").exists()
    left = {kind: gateway.records.folder("store").stems(kind) for kind in ("batches", "rows", "attempts")}
    assert left == {"batches": [], "rows": [], "attempts": []}


def test_a_batch_whose_executor_is_lost_has_used_up_no_attempt(
    gateway_of: Callable[..., Gateway], tmp_path: Path
) -> None:
    table = tmp_path / "table"
    with standalone_spark(workers=1) as spark:
        conf = {"spark.executor.memory": "512m", "spark.task.maxFailures": "1"}
        gateway = gateway_of(spark.url, max_retries=0, conf=conf)
        gateway.supervisor.start()
        begun = tmp_path / "begun"
        bolt = sink(table, through_python(str(begun), pause_s=0.05))
        for n in range(200):
            bolt.process(Tup(n, (n,)))
        drain(bolt, 0, gateway, until=begun.exists)
        spark.executors()[0].send_signal(signal.SIGKILL)
        drain(bolt, 200, gateway)
        bolt.finish()
    assert "Spark has lost the executors" in gateway.log()
    assert bolt.delegate.failed == [] and rows_of(table) == Counter(range(200))


def test_workers_with_another_python_are_named(gateway_of: Callable[..., Gateway], tmp_path: Path) -> None:
    with standalone_spark(workers=1) as spark:
        conf = {"spark.executor.memory": "512m", "spark.pyspark.python": "/no/such/python"}
        gateway = gateway_of(spark.url, conf=conf)
        gateway.supervisor.start()
        process = gateway.supervisor.process
        assert process is not None
        assert process.wait(300) == STARTUP_FAILURE, gateway.log()[-3000:]
        said = wait_for(lambda: [one for one in gateway.exceptions() if one.startup], 20)[0]
        assert said.message.startswith(f"the workers of {spark.url} cannot run Python")
        assert "/no/such/python" in said.message and "spark.pyspark.python" in said.message


@needs_connect
def test_spark_connect_through_the_loss_of_its_server(gateway_of: Callable[..., Gateway], tmp_path: Path) -> None:
    table = tmp_path / "table"

    def with_context(spark: Any, df: Any, batch: Any) -> None:
        spark.sparkContext.parallelize([1])

    with spark_connect() as url:
        gateway = gateway_of(url)
        gateway.supervisor.start()
        bolt = sink(table)
        for n in range(150):
            bolt.process(Tup(n, (n,)))
        drain(bolt, 150, gateway)
        bad = start_sink("bad", 4, aggregate=with_context, schema={"n": "int64"}, batch_rows=1)
        bad.process(Tup(0, (0,)))
        drain(bad, 1, gateway)
        bad.finish()
        assert bad.delegate.failed == [0]
        said = wait_for(lambda: [one for one in gateway.exceptions() if "sparkContext" in one.message], 20)[0]
        assert said.message.startswith("the function uses sparkContext, which a Spark Connect session")
        port = url.rpartition(":")[2]
        process = next(p for p in psutil.process_iter() if _listens(p, int(port)))
        for n in range(150, 300):
            bolt.process(Tup(n, (n,)))
        drain(bolt, 0, gateway, until=lambda: gateway.records.folder("store").stems("attempts"))
        process.kill()
        # No session, no other start of the server: the gateway ends, is started again, and waits for it.
        first = gateway.supervisor.epoch
        drain(bolt, 0, gateway, until=lambda: gateway.supervisor.epoch > first)
    gateway.supervisor.kill()
    with spark_connect() as url:
        launch = json.loads(gateway.launch.read_text())
        launch["settings"]["spark"]["master"] = url
        gateway.launch.write_text(json.dumps(launch))
        gateway.supervisor.start()
        drain(bolt, 300, gateway)
        bolt.finish()
    assert bolt.delegate.failed == [] and rows_of(table) == Counter(range(300))


def _listens(process: psutil.Process, port: int) -> bool:
    try:
        return any(one.laddr and one.laddr.port == port for one in process.net_connections() if one.status == "LISTEN")
    except psutil.Error:
        return False


# -- hosts --------------------------------------------------------------------------------------

NAME = "Numbers"
PROGRAM = Path(__file__).parents[1] / "connectors" / "programs" / "spark_numbers.py"
ROWS = 6000


class Submitted(OnCluster):
    timeout_s = 200.0

    def __init__(self, home: Path, shared: Path, offered: dict[str, str], master: str) -> None:
        rooms = {
            "engine": {
                "kind": host_engine.KIND, "renew_s": 1, "fence_s": 6, "lost_s": 12, "permit_s": 30, "poll_s": 0.5,
                "shared": shared,
            },
            "spark": {"master": master, "handover": shared / "handover"},
            "checkpoint": {"root": shared / "checkpoints", "interval_s": 1},
        }  # fmt: skip
        super().__init__("hosts", home, NAME, rooms, offered)


@needs_hosts
def test_a_table_is_exact_through_the_loss_of_hosts(home: Path) -> None:
    """The host of the gateway is lost, then the host of the sink, while Spark works on batches."""
    with (
        tempfile.TemporaryDirectory(prefix="hp-", dir="/var/tmp") as folder,
        made_hosts(4) as (address, hosts),
        standalone_spark(address) as spark,
    ):
        shared = Path(folder)
        (shared / "engine").mkdir()
        it = Submitted(home, shared, host_engine.offer(shared / "engine"), spark.url)
        host_engine.on_hosts(shared / "engine", address, hosts)
        (shared / "numbers.txt").write_text("".join(f"{number:07d}\n" for number in range(ROWS)))
        table = shared / "table"
        words = ("--file", shared / "numbers.txt", "--table", table, "--reliability", "EFFECTIVELY_ONCE")
        by_name = {host.name: host for host in hosts}
        try:
            it.heron("submit", "hosts", PROGRAM, NAME, *words, "--arrow", "--row-pause-ms", "4")

            def published(more_than: int) -> Callable[[], bool]:
                return lambda: len(list(table.glob("batch=*"))) > more_than

            def working() -> bool:
                return any((shared / "handover").glob("*/*/attempts/*.json"))

            wait_for(published(1), 400, "the first batches")
            lost = it.records()["executor-0"]
            wait_for(working, 60, "a batch at Spark")
            by_name[lost.host].lose()
            so_far = len(list(table.glob("batch=*")))
            wait_for(published(so_far + 1), 400, "batches by the gateway on another host")
            after = it.records()
            assert after["executor-0"].host != lost.host and after["executor-0"].epoch > lost.epoch
            sink_host = next(host for host in hosts if any("_table_" in line for line in host.processes()))
            wait_for(working, 60, "a batch at Spark")
            sink_host.lose()
            wait_for(lambda: sum(pq.read_metadata(f).num_rows for f in table.glob("batch=*/*.parquet")) >= ROWS, 600,
                     "all rows")  # fmt: skip
            finished = lambda: '"lifecycle": "FINISHED"' in it.heron("status", "hosts", NAME, "--json")  # noqa: E731
            wait_for(finished, 120, "the end of the input")
            # The ends of what ran on the lost hosts are never confirmed.
            it.heron("kill", "hosts", NAME, "--force")
        except BaseException:
            print(it.logs(*(host.tmp for host in hosts)))
            it.heron("kill", "hosts", NAME, "--force", codes=(exits.OK, exits.NOT_FOUND))
            raise
        lines = Counter(pq.read_table(table, partitioning=None)["line"].to_pylist())
        assert lines == Counter(f"{number:07d}" for number in range(ROWS))
