"""Batch runs whose ledger is in PostgreSQL, as on several hosts, and what several hosts are refused."""

from __future__ import annotations

import re
import shutil
import tempfile
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from heronpy.batch.finalise import finalise
from heronpy.batch.run import Run
from heronpy.batch.steps import Steps
from heronpy.common.engine_settings import BatchSettings
from heronpy.common.errors import GaveUpError, TopologyError
from heronpy.common.settings import resolve, settings_for
from heronpy.connectors.spark.requirements import SINK_KEY
from heronpy.ingest.ledger.reaching import open_store
from heronpy.launching.old_runs import remove
from heronpy.launching.on_batch import shared_ledger
from heronpy.plan.component_config import set_key
from heronpy.proto import components_of
from heronpy.storage.locations import open_location
from tests.batch.inside import InsideRun
from tests.batch.programs.visits import topology
from tests.batch.test_batch_inside import rows_of, write
from tests.batch.test_batch_runs import PROGRAM
from tests.support import host_engine
from tests.support.hosts import made_hosts, needs_hosts
from tests.support.judged import SMALL, OnCluster
from tests.support.local_engine import kill_containers
from tests.support.postgres import PostgresServer, served

server = pytest.fixture(served)


def test_runs_share_a_ledger_and_a_removed_one_leaves_nothing_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: PostgresServer
) -> None:
    expected = write(tmp_path / "logs" / "a.log", 1000)
    builder = topology("visits", f"{tmp_path}/logs/*.log", str(tmp_path / "out"))
    runs = []
    for name in ("visits-1", "visits-2"):
        run = InsideRun(tmp_path, builder, monkeypatch, ledger=server.url, topology_ids=(name,))
        run.start()
        run.to_the_end()
        run.close()
        runs.append(run.run)
    rows = rows_of(tmp_path / "out")
    assert {row["visitor"]: row["visits"] for row in rows} == expected and len(rows) == 2 * len(expected)
    remove(runs[0].record, runs[0].folder)
    with closing(open_store(server.url)) as store:
        assert store.pipelines() == (runs[1].pipeline(1), runs[1].pipeline(2))
    assert not runs[0].folder.exists()


#: Any exit code of a command that fails.
FAILURES = tuple(range(1, 100))


class StopError(BaseException):
    """The run is about to end."""


def test_hosts_that_end_a_run_at_once_leave_one_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock on a file may exclude nobody on a file system of several hosts."""
    expected = write(tmp_path / "logs" / "a.log", 500)
    out = tmp_path / "out"
    run = InsideRun(tmp_path, topology("visits", f"{tmp_path}/logs/*.log", str(out), follow="1"), monkeypatch)

    def stop(steps: Steps, wait: Any) -> None:
        raise StopError

    monkeypatch.setattr("heronpy.batch.keeper.finalise", stop)
    run.start()
    with pytest.raises(StopError):
        run.to_the_end()
    begun = run.run.record
    monkeypatch.setattr("fcntl.flock", lambda descriptor, how: None)
    hosts, wrong = 4, list[BaseException]()
    for _ in range(10):
        together = threading.Barrier(hosts)

        def end(together: threading.Barrier = together) -> None:
            steps = Steps(run.run)
            together.wait(60)
            try:
                finalise(steps)
            except BaseException as error:
                wrong.append(error)

        threads = [threading.Thread(target=end) for _ in range(hosts)]
        for one in threads:
            one.start()
        for one in threads:
            one.join(120)
        assert not wrong
        assert {row["visitor"]: row["visits"] for row in rows_of(out)} == expected
        assert all(path.name.startswith("part-") for path in out.iterdir())
        store, metadata = open_location(run.run.record.savepoint)
        assert not store.problems(metadata)
        shutil.rmtree(out)
        shutil.rmtree(tmp_path / "checkpoints")
        run.run.write(begun)
    run.close()


def test_a_host_without_the_folder_says_so(tmp_path: Path) -> None:
    with pytest.raises(GaveUpError, match=r"host \S+ does not have .*/visits/1, .*heron.batch.folder"):
        Run(tmp_path / "visits" / "1").refuse_unshared()


SHARED = {
    "heron.engine.kind": "slurm",
    "heron.engine.shared": "/shared",
    "heron.batch.folder": "/shared/batch",
    "heron.checkpoint.root": "/shared/checkpoints",
    "heron.ingest.ledger": "postgresql://me@db/units",
}


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({}, ()),
        ({"heron.engine.kind": ""}, ()),
        ({"heron.ingest.ledger": ""}, ("keeps its ledger in SQLite, which works on one host only",)),
        ({"heron.ingest.ledger": "sqlite:/shared/l.db"}, ("keeps its ledger in SQLite",)),
        ({"heron.batch.folder": "/mine"}, ("/mine is a folder on this host; set heron.batch.folder",)),
        ({"heron.engine.shared": "/other"}, ("'lines' reads", "'store' writes", "heron.checkpoint.root", "heron.batch.folder")),
    ],
)  # fmt: skip
def test_several_hosts_need_shared_folders_and_one_ledger(given: dict[str, Any], named: tuple[str, ...]) -> None:
    built = topology("visits", "/shared/logs/*.log", "/shared/out").build()
    resolved = resolve("local", (), {}, {}, [f"{key}={value}" for key, value in {**SHARED, **given}.items()])
    settings = settings_for(resolved, BatchSettings)
    if not named:
        expected = SHARED["heron.ingest.ledger"] if not given else ""
        assert shared_ledger(built, resolved, settings) == expected
        return
    with pytest.raises(TopologyError) as refused:
        shared_ledger(built, resolved, settings)
    for words in named:
        assert words in str(refused.value)


def test_a_spark_sink_is_refused_on_several_hosts() -> None:
    built = topology("visits", "/shared/logs/*.log", "/shared/out").build()
    set_key(components_of(built)["store"].comp.config, SINK_KEY, "true")
    resolved = resolve("local", (), {}, {}, [f"{key}={value}" for key, value in SHARED.items()])
    with pytest.raises(TopologyError, match="SparkSink 'store' cannot end a batch run on several hosts"):
        shared_ledger(built, resolved, settings_for(resolved, BatchSettings))


@pytest.mark.heavy
@needs_hosts
@pytest.mark.timeout(300)
def test_a_folder_that_the_hosts_do_not_share_ends_the_run_with_one_sentence(
    home: Path, tmp_path: Path, server: PostgresServer
) -> None:
    """The submitting host has it, and `heron.engine.shared` names it by mistake: each host has a /tmp of its own."""
    mistaken, engine = home / "mistaken", home / "engine"
    engine.mkdir(mode=0o700)
    mistaken.mkdir(mode=0o700)
    with (
        tempfile.TemporaryDirectory(prefix="hp-", dir="/var/tmp") as shared,
        made_hosts(2) as (address, hosts),
    ):
        write(Path(shared) / "logs" / "a.log", 1000)
        rooms: dict[str, dict[str, Any]] = {
            "engine": {"kind": host_engine.KIND, "shared": f"{shared}:{mistaken}", "poll_s": 0.5, "renew_s": 1},
            "security": {"port_range": "20000-20999"},
            "batch": {"folder": mistaken / "batch"},
            "ingest": {"ledger": server.url},
            "checkpoint": {"root": f"{shared}/checkpoints"},
            "packing": SMALL,
        }
        it = OnCluster("hosts", home, "visits", rooms, host_engine.offer(engine))
        host_engine.on_hosts(engine, address, hosts)

        words = (PROGRAM, "visits", f"{shared}/logs/*.log", f"{shared}/out")
        try:
            said = it.heron("submit", "hosts", "--mode", "batch", *words, codes=FAILURES)
            problem = rf"{mistaken} on host host[12] is not the folder of that name on the scheduler's host; mount the"
            assert re.search(
                rf"^error: topology 'visits' failed: .*{problem} same folder on all hosts", said, re.MULTILINE
            )
            assert not (Path(shared) / "out").exists()
        except BaseException:
            print(it.logs(*(host.tmp for host in hosts)))
            raise
        finally:
            it.heron("kill", "hosts", "visits", "--force", codes=(0, *FAILURES))
            kill_containers(home)
