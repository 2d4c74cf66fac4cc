"""A batch run on hosts with a /tmp of their own each, where the folder of the run is: it is not shared."""

from __future__ import annotations

from pathlib import Path

import pytest

from heronpy.cli import exits
from tests.batch.test_batch_runs import PROGRAM, write
from tests.support import host_engine
from tests.support.hosts import made_hosts, needs_hosts
from tests.support.judged import OnCluster
from tests.support.local_engine import kill_containers


@needs_hosts
@pytest.mark.heavy
@pytest.mark.timeout(300)
def test_a_host_that_does_not_have_the_folder_ends_the_run_with_a_sentence(home: Path, tmp_path: Path) -> None:
    assert tmp_path.is_relative_to("/tmp")
    (tmp_path / "logs").mkdir()
    write(tmp_path / "logs" / "a.log", 100, 1)
    (engine := home / "engine").mkdir(mode=0o700)
    rooms = {
        "engine": {"kind": host_engine.KIND, "shared": tmp_path},
        "security": {"port_range": "20000-20999"},
        "batch": {"folder": tmp_path / "batch"},
        "checkpoint": {"root": tmp_path / "checkpoints"},
        "ingest": {"ledger": "postgresql://ledger@localhost/nothing"},
    }
    with made_hosts(2) as (address, hosts):
        it = OnCluster("hosts", home, "visits", rooms, host_engine.offer(engine))
        host_engine.on_hosts(engine, address, hosts)
        try:
            words = (PROGRAM, "visits", f"{tmp_path}/logs/*.log", tmp_path / "out")
            said = it.heron("submit", "hosts", "--mode", "batch", "--wait", *words, code=exits.FAILED)
        except AssertionError:
            print(it.logs(*(host.tmp for host in hosts)))
            raise
        finally:
            kill_containers(home)
    (error,) = (line for line in said.splitlines() if line.startswith("error: "))
    assert "does not have" in error and f"{tmp_path}/batch/hosts/visits/1" in error and "heron.batch.folder" in error
    assert not (tmp_path / "batch" / "hosts" / "visits" / "1").exists() or not (tmp_path / "out").exists()
