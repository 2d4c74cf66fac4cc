"""A replica end to end: checkpoints of a running topology are copied, and it restarts from one of the copies."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import psutil
import pytest

from heronpy.ckpt import catalogue
from tests.runtime.test_rewinding import PROGRAM, QUICK, finished_exactly, moves, progress
from tests.support.command import Heron
from tests.support.waiting import wait_for


def newest(replica: Path) -> int:
    """The newest checkpoint of the replica that is whole."""
    found = catalogue.of_topology([replica], "counted")
    return max((item.checkpoint for item in found if not catalogue.missing_files(item)), default=0)


def when_copied(replica: Path) -> int:
    before = newest(replica)
    wait_for(lambda: newest(replica) > before, 60, f"a copy after checkpoint {before}")
    return newest(replica)


@pytest.mark.heavy
def test_a_topology_goes_on_from_the_replica_when_its_store_is_gone(heron: Heron, out: Path) -> None:
    store, replica = out.parent / "store A", out.parent / "store B"
    places = "--config-property", f"heron.checkpoint.root={store}", "--config-property", "heron.checkpoint.retained=2"
    heron.submit(
        PROGRAM, "counted", "--out", out, *QUICK, *places, "--config-property", f"heron.checkpoint.replica={replica}"
    )
    when_copied(replica)
    # It may die at any time; nobody but the copies waits for it.
    copier = heron.pid("counted", "checkpoint-replicator")
    os.kill(copier, signal.SIGKILL)
    wait_for(lambda: not psutil.pid_exists(copier), 30, "the end of the replicator")
    moves(out, "a")
    number = when_copied(replica)
    assert heron.pid("counted", "checkpoint-replicator") != copier
    at = progress(out, "a")
    heron.kill("counted").ok()
    shutil.rmtree(store)

    [folder] = [path for path in replica.iterdir() if path.name.startswith("counted")]
    kept = {path.name for path in folder.iterdir() if (path / "metadata").exists()}
    assert f"chk-{newest(replica)}" in kept and newest(replica) >= number
    # Retired there as in the store; one that is on its way out may still be there.
    assert len(kept) <= 5
    listed = heron("checkpoints", "list", "local", "counted", "--store", replica, "--json").json()["checkpoints"]
    assert listed[0]["checkpoint"] == newest(replica) and listed[0]["location"].startswith(str(replica))
    assert heron("checkpoints", "verify", "local", replica).code == 0
    heron.submit(PROGRAM, "counted", "--out", out, *QUICK, *places, "--restore", replica)
    wait_for(lambda: progress(out, "a") > at, 60, "progress beyond the first run")
    finished_exactly(heron, out, "a")
    # Its own checkpoints name nothing of the replica.
    shutil.rmtree(replica)
    assert heron("checkpoints", "verify", "local", "counted").code == 0
