"""The sink and the real gateway with a real Spark driver: happy paths, errors, kills.

One gateway serves the whole module, kept alive by a supervisor as an executor would; each test has
components of its own.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import tempfile
import threading
import time
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest
import zmq

from heronpy.connectors.spark.records import records_of
from heronpy.net.rpc import parse
from heronpy.plan.launch import LaunchSpec
from heronpy.procs.exit_reason import ExitHints, ExitReason, classify
from tests.connectors.two_phase import Tup
from tests.spark.support import GatewaySupervisor, make_launch, start_sink
from tests.support.leaks import LeakCheck
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

SCHEMA = {"word": "string", "n": "int64"}


@pytest.fixture(autouse=True)
def leak_check():
    """Instead of the check after each test: the gateway stays, `gateway` checks at the end of the module."""


@pytest.fixture(scope="module")
def gateway(tmp_path_factory):
    check = LeakCheck()
    sockets = Path(tempfile.mkdtemp(prefix="hs"))
    launch = make_launch(tmp_path_factory.mktemp("w"), sockets, max_retries=2)
    supervisor = GatewaySupervisor(launch)
    os.environ["HERON_LAUNCH"] = str(launch)
    pull = zmq.Context.instance().socket(zmq.PULL)
    pull.bind(f"ipc://{sockets}/executor-0.metrics")
    supervisor.reports = pull
    supervisor.start()
    yield supervisor
    supervisor.stop()
    pull.close(0)
    del os.environ["HERON_LAUNCH"]
    shutil.rmtree(sockets, ignore_errors=True)
    assert check.leaks() == []


def totals():
    """An aggregate function of the tests; made here so that it travels by value."""

    def aggregate(spark, df, batch):
        from pyspark.sql import functions as F

        batch.write_parquet(df.groupBy("word").agg(F.sum("n").alias("n"), F.count("*").alias("rows")),
                            batch.options["output"])  # fmt: skip

    return aggregate


def sink(component, task, output, aggregate=None, **spec):
    spec = {"schema": SCHEMA, "batch_rows": 100, "batch_interval_s": 0.2} | spec
    return start_sink(component, task, aggregate=aggregate or totals(), output=output, **spec)


def settled(bolt):
    return len(bolt.delegate.acked) + len(bolt.delegate.failed)


def drain(bolt, count, gateway):
    def turn():
        bolt.process_tick(None)
        gateway.keep_running()
        return settled(bolt) >= count

    wait_for(turn, 90)


def read(table):
    rows = pq.read_table(table).to_pylist()
    result = {}
    for row in rows:
        n, count = result.get(row["word"], (0, 0))
        result[row["word"]] = (n + row["n"], count + row["rows"])
    return result


@pytest.mark.heavy
def test_two_sinks_of_two_tasks(gateway, tmp_path):
    bolts = [sink(name, task, tmp_path / name) for name in ("one", "two") for task in (1, 2)]
    for bolt in bolts:
        for i in range(250):
            bolt.process(Tup(i, (f"w{i % 3}", i)))
        assert settled(bolt) < 250 or gateway, "acks come with commits"
    for bolt in bolts:
        drain(bolt, 250, gateway)
        bolt.finish()
        assert sorted(bolt.delegate.acked) == list(range(250)) and bolt.delegate.failed == []
    expected = {f"w{k}": (2 * sum(range(k, 250, 3)), 2 * len(range(k, 250, 3))) for k in range(3)}
    assert read(tmp_path / "one") == expected == read(tmp_path / "two")
    assert not (tmp_path / "one" / "_staging").exists()


@pytest.mark.heavy
def test_a_tuple_is_acked_only_after_its_commit_record(gateway, tmp_path):
    bolt = sink("order", 1, tmp_path / "t")
    folder = records_of(LaunchSpec.load(gateway.launch)).folder("order")
    seen = []
    bolt.ack = lambda tup: seen.append(len(folder.stems("done")))
    for i in range(300):
        bolt.process(Tup(i, ("w", 1)))
    bolt.finish()
    assert len(seen) == 300 and all(done >= index // 100 + 1 for index, done in enumerate(seen))


@pytest.mark.heavy
def test_the_last_batch_is_flushed_by_finish_and_by_time(gateway, tmp_path):
    bolt = sink("flush", 1, tmp_path / "t", batch_interval_s=0.1)
    bolt.process(Tup(1, ("a", 1)))
    drain(bolt, 1, gateway)
    bolt.process(Tup(2, ("a", 2)))
    bolt.finish()
    assert bolt.delegate.acked == [1, 2] and read(tmp_path / "t") == {"a": (3, 2)}


def test_process_waits_when_too_many_batches_have_no_outcome(gateway, tmp_path):
    bolt = sink("full", 1, tmp_path / "t", batch_rows=5, max_uncommitted=2)
    most = 0
    for i in range(20):
        bolt.process(Tup(i, ("a", 1)))
        most = max(most, bolt.uncommitted)
    bolt.finish()
    assert most == 2 and read(tmp_path / "t") == {"a": (20, 20)}


def test_rows_that_do_not_fit_are_failed_and_the_batch_goes_on(gateway, tmp_path):
    bolt = sink("misfit", 1, tmp_path / "t")
    for i, values in enumerate([("a", 1), ("a", "x"), ("a",), (5, 1), ("b", 2)]):
        bolt.process(Tup(i, values))
    bolt.finish()
    assert sorted(bolt.delegate.acked) == [0, 4] and sorted(bolt.delegate.failed) == [1, 2, 3]
    assert any("column 'n' must be int64, but 'x' is not" in line for line in bolt.delegate.lines)
    assert bolt.counts.get_value_and_reset()["rows-rejected"] == 3
    assert read(tmp_path / "t") == {"a": (1, 1), "b": (2, 1)}


def flaky(fails, calls):
    def aggregate(spark, df, batch):
        with open(calls, "a") as out:
            out.write(f"{batch.id} {batch.attempt}\n")
        from pyspark.sql import functions as F

        batch.write_parquet(df.groupBy("word").agg(F.sum("n").alias("n"), F.count("*").alias("rows")),
                            batch.options["output"])  # fmt: skip
        if batch.attempt <= fails:
            raise ValueError("no luck today")

    return aggregate


def test_an_attempt_that_raises_is_repeated_and_counts_once(gateway, tmp_path):
    bolt = sink("flaky", 1, tmp_path / "t", flaky(2, str(tmp_path / "calls")))
    for i in range(5):
        bolt.process(Tup(i, ("a", 1)))
    bolt.finish()
    calls = [line.split() for line in (tmp_path / "calls").read_text().splitlines()]
    assert len({batch for batch, _ in calls}) == 1 and [attempt for _, attempt in calls] == ["1", "2", "3"]
    assert len(bolt.delegate.acked) == 5 and read(tmp_path / "t") == {"a": (5, 5)}


def test_a_batch_that_always_raises_fails_its_tuples_and_is_reported(gateway, tmp_path):
    while gateway.reports.poll(0):
        gateway.reports.recv()
    bolt = sink("broken", 1, tmp_path / "t", flaky(99, str(tmp_path / "calls")))
    other = sink("fine", 1, tmp_path / "f")
    bolt.process(Tup(1, ("a", 1)))
    drain(bolt, 1, gateway)
    bolt.finish()
    assert bolt.delegate.failed == [1] and "ValueError: no luck today" in bolt.delegate.lines[-1]
    assert not list((tmp_path / "t").glob("**/*.parquet"))
    other.process(Tup(1, ("a", 1)))
    other.finish()
    assert other.delegate.acked == [1], "the gateway goes on"

    def report():
        envelope = parse(gateway.reports.recv())
        return envelope.exception_report if envelope.HasField("exception_report") else None

    found = wait_for(report, 10)
    assert (found.component, found.type, found.message) == ("broken", "ValueError", "no luck today")
    assert "in aggregate" in found.traceback and found.process == "spark-gateway"


def test_a_function_that_cannot_be_loaded_is_named(gateway, tmp_path):
    bolt = sink("absent", 1, tmp_path / "t", "no_such_module.aggregate")
    bolt.process(Tup(1, ("a", 1)))
    drain(bolt, 1, gateway)
    bolt.finish()
    assert bolt.delegate.failed == [1] and "cannot load import:no_such_module.aggregate" in bolt.delegate.lines[-1]


def test_garbage_on_the_socket_does_no_harm(gateway, tmp_path):
    bolt = sink("garbage", 1, tmp_path / "t")
    dealer = zmq.Context.instance().socket(zmq.DEALER)
    dealer.connect(f"ipc://{LaunchSpec.load(gateway.launch).sockets_dir}/spark-gateway")
    for data in (b"", b"\xff" * 100, b'{"type":"ready"}'):
        dealer.send(data)
    from heronpy.connectors.spark.link import Ready, encode

    dealer.send(encode(Ready("../../etc", "1-1-1")))
    dealer.send(encode(Ready("garbage", "../1-1-1")))
    bolt.process(Tup(1, ("a", 1)))
    bolt.finish()
    dealer.close(0)
    assert bolt.delegate.acked == [1] and gateway.process.poll() is None


def jvm_of(gateway):
    record = Path(gateway.launch.parent / "spark" / ".driver.json")
    return json.loads(record.read_text())["pid"] if record.exists() else None


def stream_under_fire(gateway, tmp_path, name, tasks, rows, shoot):
    """Stream rows through sinks of which somebody shoots the gateway; the table must be exact."""
    bolts = [sink(name, task, tmp_path / "t", batch_rows=20, batch_bytes_max=1) for task in range(1, tasks + 1)]
    stop = threading.Event()
    shots = []

    def fire():
        while not stop.is_set():
            gateway.keep_running()
            if len(shots) < 3:
                shoot(shots, bolts)
            stop.wait(0.01)

    gunman = threading.Thread(target=fire)
    gunman.start()
    try:
        for i in range(rows):
            for bolt in bolts:
                bolt.process(Tup(i, (f"w{i % 7}", i)))
        for bolt in bolts:
            bolt.finish()
    finally:
        stop.set()
        gunman.join()
    for bolt in bolts:
        assert sorted(bolt.delegate.acked) == list(range(rows)) and bolt.delegate.failed == []
    expected = {f"w{k}": (tasks * sum(range(k, rows, 7)), tasks * len(range(k, rows, 7))) for k in range(7)}
    assert read(tmp_path / "t") == expected
    assert shots, "nothing was shot"


@pytest.mark.heavy
def test_the_gateway_killed_at_observed_points(gateway, tmp_path):
    """Killed right after a batch was begun, staged, or published: wherever the files say it is."""

    def shoot(shots, bolts):
        folder = records_of(LaunchSpec.load(gateway.launch)).folder("shot")
        staging, table = tmp_path / "t" / "_staging", tmp_path / "t"
        done = len(folder.stems("done"))
        published = len(list(table.glob("batch=*")))
        points = [bool(folder.stems("attempts")), staging.exists() and any(staging.iterdir()), published > done]
        if points[len(shots)]:
            gateway.kill()
            shots.append(time.monotonic())

    stream_under_fire(gateway, tmp_path, "shot", 2, 200, shoot)
    killed = gateway.log.read_text().count("killing the Spark driver of an earlier gateway")
    assert killed >= 2, "killed in the middle of a batch"


@pytest.mark.heavy
def test_the_driver_killed_at_random_points(gateway, tmp_path):
    chance = random.Random(5)

    def shoot(shots, bolts):
        pid = jvm_of(gateway)
        if pid and any(bolt.uncommitted for bolt in bolts) and len(shots) < 2 and chance.random() < 0.05:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                return
            shots.append(pid)
            wait_for(lambda: gateway.process.poll() is not None, 20)

    stream_under_fire(gateway, tmp_path, "driver", 2, 200, shoot)


@pytest.mark.heavy
def test_leftovers_of_a_dead_sink_are_committed_where_nothing_is_replayed(gateway, tmp_path):
    gateway.kill()
    dead = sink("dead", 1, tmp_path / "t", mode="ATMOST_ONCE", batch_rows=5, batch_bytes_max=1)
    for i in range(15):
        dead.process(Tup(i, ("a", 1)))
    dead._link.close()
    # Its successor only starts; the gateway finds the batches by looking.
    after = sink("dead", 1, tmp_path / "t", mode="ATMOST_ONCE")
    assert "3 left to commit" in after.delegate.lines[-1]
    gateway.start()
    wait_for(lambda: len(list((tmp_path / "t").glob("batch=*"))) == 3, 90)
    assert read(tmp_path / "t") == {"a": (15, 15)}
    after.finish()


@pytest.mark.heavy
def test_leftovers_are_withdrawn_where_tuples_are_replayed(gateway, tmp_path):
    gateway.kill()
    dead = sink("replay", 1, tmp_path / "t", batch_rows=5, batch_bytes_max=1)
    for i in range(15):
        dead.process(Tup(i, ("a", 1)))
    dead._link.close()
    after = sink("replay", 1, tmp_path / "t", batch_rows=5)
    assert "3 withdrawn" in after.delegate.lines[-1]
    gateway.start()
    for i in range(15):
        after.process(Tup(i, ("a", 1)))
    after.finish()
    assert len(after.delegate.acked) == 15 and read(tmp_path / "t") == {"a": (15, 15)}


def test_one_gateway_at_a_time_and_a_clean_stop(gateway, tmp_path):
    jvm = wait_for(lambda: jvm_of(gateway), 90)
    rival = GatewaySupervisor(gateway.launch)
    rival.log = tmp_path / "rival.log"
    rival.start()
    assert rival.process.wait(60) == 5
    assert "another Spark gateway of this topology is still running" in rival.log.read_text()
    assert gateway.stop() == 0
    wait_for(lambda: not psutil.pid_exists(jvm) or psutil.Process(jvm).status() == psutil.STATUS_ZOMBIE, 20)
    gateway.start()


def test_a_jvm_that_is_killed_is_no_fault_of_the_gateway(gateway):
    os.kill(wait_for(lambda: jvm_of(gateway), 90), signal.SIGKILL)
    status = gateway.process.wait(60) << 8
    assert classify(status, ExitHints()) is ExitReason.CRASHED
    assert "this process ends and a new process continues" in gateway.log.read_text()
    gateway.start()


def test_without_java_the_gateway_says_so(gateway, tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    other = GatewaySupervisor(make_launch(tmp_path, tmp_path))
    other.start()
    assert other.process.wait(60) == 3
    assert "correct or unset JAVA_HOME" in other.log.read_text()
