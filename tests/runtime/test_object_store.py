"""Checkpoints in an object store, with real processes: exact results, savepoints, restores and copies by URL."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest

from heronpy.storage.objects.opening import open_objects
from heronpy.storage.objects.url import Url, place_of
from tests.runtime.test_rewinding import PROGRAM, QUICK, finished_exactly, moves, pids, progress, when_newer
from tests.support import azure_server
from tests.support.command import Heron
from tests.support.object_server import ObjectServer
from tests.support.waiting import wait_for


def keys(url: str) -> set[str]:
    place = place_of(url)
    assert isinstance(place, Url)
    return set(open_objects(place).list().objects)


def secrets_in(home: Path) -> list[Path]:
    """Files below a folder that hold the credentials of the test's server."""
    words = [b"very-secret-word", b"testkey", azure_server.KEY.encode()]
    return [path for path in home.rglob("*") if path.is_file() and any(word in path.read_bytes() for word in words)]


def set_(**values: Any) -> list[str]:
    return [word for key, value in values.items() for word in ("--config-property", f"heron.checkpoint.{key}={value}")]


@pytest.fixture(params=["bucket", "azure_container"])
def place(request: pytest.FixtureRequest, object_server: ObjectServer) -> str:
    """The URL of a new bucket; asked for before `heron`, which takes the environment as it is then."""
    return str(request.getfixturevalue(request.param))


@pytest.mark.heavy
def test_an_exact_result_through_kills_and_a_savepoint_by_url(place: str, heron: Heron, home: Path, out: Path) -> None:
    root = f"{place}/team"
    # Small limits, so that every task forks, spools and waits.
    limits = set_(root=root, fork_above_bytes="1KB", inline_max_bytes="0", spool_bytes_max="64KB")
    heron.submit(PROGRAM, "counted", "--out", out, *QUICK, *limits)
    when_newer(heron)
    for part in ("source", "count"):
        victim = next(pid for name, pid in pids(heron, "a").items() if part in name)
        os.kill(victim, signal.SIGKILL)
        wait_for(lambda pid=victim: not psutil.pid_exists(pid), 30, "the end of a task")  # type: ignore[misc]
        moves(out, "a")
    number = when_newer(heron)
    listed = heron("checkpoints", "list", "local", "counted", "--json").json()["checkpoints"]
    assert listed[0]["checkpoint"] >= number and listed[0]["location"].startswith(f"{root}/counted")
    assert not any(row["damaged"] for row in listed)
    assert heron("checkpoints", "verify", "local", "counted").code == 0
    saved = heron("checkpoints", "savepoint", "local", "counted", "--json").json()
    shown = heron("checkpoints", "show", "local", "counted", saved["location"], "--files", "--json").json()
    assert {file["path"].split("/")[0] for file in shown["files"]} <= {"shared", f"chk-{saved['checkpoint']}"}
    at = progress(out, "a")
    said = heron("kill", "local", "counted").ok()
    assert root in said.out
    assert not [path for path in home.rglob("spool/*/*") if path.is_dir()], "nothing waits to be uploaded"
    assert secrets_in(home) == []

    # Another user's host: nothing is shared but the store.
    shutil.rmtree(home)
    home.mkdir(mode=0o700)
    heron.submit(PROGRAM, "counted", "--out", out, *QUICK, *limits, "--restore", saved["location"])
    wait_for(lambda: progress(out, "a") > at, 60, "progress beyond the first run")
    finished_exactly(heron, out, "a")
    # Its own checkpoints need nothing of the run before.
    assert heron("checkpoints", "delete", "local", "counted", saved["location"]).code == 0
    assert heron("checkpoints", "verify", "local", root).code == 0


@pytest.mark.heavy
def test_a_copy_by_url_replaces_a_store_that_is_lost(
    bucket: str, object_server: ObjectServer, heron: Heron, home: Path, out: Path
) -> None:
    """From a folder to a bucket, and from there back to a folder."""
    store, replica = out.parent / "store A", f"{bucket}/copies"
    heron.submit(PROGRAM, "counted", "--out", out, *QUICK, *set_(root=store, replica=replica))

    def newest_copy() -> int:
        listed = heron("checkpoints", "list", "local", "counted", "--store", replica, "--json").json()["checkpoints"]
        return max((row["checkpoint"] for row in listed if not row["damaged"]), default=0)

    wait_for(lambda: newest_copy() > 1, 60, "copies")
    os.kill(heron.pid("counted", "checkpoint-replicator"), signal.SIGKILL)
    before = newest_copy()
    wait_for(lambda: newest_copy() > before + 1, 60, "copies by its successor")
    # It outlives a replica that refuses it.
    copier = heron.pid("counted", "checkpoint-replicator")
    [log] = home.rglob("checkpoint-replicator.log")
    object_server.set(refuse="AccessDenied", refuse_all=True)
    wait_for(lambda: "the replica cannot be used" in log.read_text(), 60, "a refusal")
    object_server.set()
    before = newest_copy()
    wait_for(lambda: newest_copy() > before + 1, 60, "copies after the refusal")
    assert heron.pid("counted", "checkpoint-replicator") == copier
    at = progress(out, "a")
    heron.kill("counted").ok()
    shutil.rmtree(store)
    assert heron("checkpoints", "verify", "local", replica).code == 0

    back = set_(root=replica, replica=store, retained=2)
    heron.submit(PROGRAM, "counted", "--out", out, *QUICK, *back, "--restore", f"{replica}/{_instance(replica)}")
    wait_for(lambda: progress(out, "a") > at, 60, "progress beyond the first run")
    wait_for(lambda: store.is_dir() and heron("checkpoints", "verify", "local", store).code == 0, 60, "a copy in files")
    finished_exactly(heron, out, "a")
    listed = heron("checkpoints", "list", "local", "counted", "--store", store, "--json").json()["checkpoints"]
    assert listed[0]["location"].startswith(str(store))
    # Retired there as in the store; one that is on its way out may still be there.
    assert 1 <= len(list(store.glob("counted*/chk-*/metadata"))) <= 5


def _instance(root: str) -> str:
    [name] = {key.split("/")[0] for key in keys(root)}
    return name


@pytest.mark.heavy
def test_an_outage_and_a_flood_of_refusals_pass(
    bucket: str, object_server: ObjectServer, heron: Heron, out: Path
) -> None:
    """Checkpoints fail, are counted and come back; a task that dies meanwhile waits for its state."""
    heron.submit(PROGRAM, "counted", "--out", out, *QUICK, *set_(root=f"{bucket}/x", timeout_s=3, aligned_timeout_s=0))
    when_newer(heron)
    object_server.set(busy=1 << 30)
    wait_for(lambda: known_failures(heron) > 0, 60, "a checkpoint that is given up")
    moves(out, "a")
    listed = heron("checkpoints", "list", "local", "counted", "--json")
    assert listed.json()["checkpoints"] and "overloaded (503 SlowDown); showing the topology master" in listed.err
    victim = next(pid for name, pid in pids(heron, "a").items() if "count" in name)
    os.kill(victim, signal.SIGKILL)
    heron.when("counted", lambda now: now["checkpoints"]["restores"] == 1, "a restore")
    object_server.set(busy=40)
    moves(out, "a")
    when_newer(heron)
    rows = heron("checkpoints", "list", "local", "counted", "--json").json()["checkpoints"]
    assert not any(row["damaged"] for row in rows), "an outage is no damage"
    finished_exactly(heron, out, "a")
    object_server.set(refuse="AccessDenied", refuse_all=True)
    killed = heron("kill", "local", "counted").ok()
    assert "unfinished checkpoints remain in the store" in killed.err
    assert "does not permit this request (403 AccessDenied)" in killed.err


def known_failures(heron: Heron) -> int:
    reply = heron.status("counted")["checkpoints"]
    return int(reply["failed"] + reply["aborted"])


@pytest.mark.parametrize(
    ("faults", "words"),
    [
        ({"refuse": "AccessDenied"}, "is read-only for these credentials"),
        ({"ignore_conditions": True}, "has no put-if-absent"),
    ],
)
def test_a_store_that_refuses_is_refused_at_submit(
    bucket: str, object_server: ObjectServer, heron: Heron, home: Path, out: Path, faults: dict[str, Any], words: str
) -> None:
    object_server.set(**faults)
    heron("submit", "local", PROGRAM, "counted", "--out", out, *set_(root=f"{bucket}/x")).refused(2, words)
    assert not list(home.rglob("launch.json")) and secrets_in(home) == []
    object_server.set()
    assert keys(bucket) == set()


def test_a_missing_library_is_named_at_submit(bucket: str, heron: Heron, out: Path) -> None:
    shadow = out / "obstore"
    shadow.mkdir()
    (shadow / "__init__.py").write_text("raise ImportError", encoding="utf-8")
    heron.env["PYTHONPATH"] = f"{out}:{heron.env['PYTHONPATH']}"
    words = ("submit", "local", PROGRAM, "counted", "--out", out, *set_(root=f"{bucket}/x"))
    heron(*words).refused(2, "needs the library obstore; run: pip install 'heronpy[objects]'")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"root": "s4://b/x"}, "unknown scheme s4://"),
        ({"root": "s3://no-such-bucket-here/x"}, "checkpoint store s3://no-such-bucket-here/x does not exist"),
    ],
)
def test_a_store_that_cannot_be_used_is_refused_at_submit(
    bucket: str, heron: Heron, home: Path, out: Path, settings: dict[str, Any], words: str
) -> None:
    given = set_(**{key: str(value).replace("BUCKET", bucket) for key, value in settings.items()})
    refused = heron("submit", "local", PROGRAM, "counted", "--out", out, *given)
    refused.refused(refused.code, words.replace("BUCKET", bucket))
    assert refused.code != 0 and not list(home.rglob("launch.json")) and keys(bucket) == set()
