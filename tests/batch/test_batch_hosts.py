"""Batch runs whose ledger is in PostgreSQL, as on several hosts, and what several hosts are refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from heronpy.batch.run import Run
from heronpy.common.engine_settings import BatchSettings
from heronpy.common.errors import GaveUpError, TopologyError
from heronpy.common.settings import resolve, settings_for
from heronpy.ingest.ledger.reaching import open_store
from heronpy.launching.old_runs import remove
from heronpy.launching.on_batch import shared_ledger
from tests.batch.inside import InsideRun
from tests.batch.programs.visits import topology
from tests.batch.test_batch_inside import rows_of, write
from tests.support.postgres import PostgresServer, why_not


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    if reason := why_not():
        pytest.skip(reason)
    server = PostgresServer()
    yield server
    server.close()


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
        ({"heron.ingest.ledger": ""}, ("keeps its ledger in SQLite, which is of one host",)),
        ({"heron.ingest.ledger": "sqlite:/shared/l.db"}, ("keeps its ledger in SQLite",)),
        ({"heron.batch.folder": "/mine"}, ("/mine is a folder of this host; set heron.batch.folder",)),
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
