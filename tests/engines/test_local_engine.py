"""The engine `local`, with real processes: what it tells of containers that live, have ended, or cannot be seen."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from heronpy.common.host import this_host
from heronpy.engines.contract import Ended, EnginePhase, Request, Seen
from heronpy.engines.local.engine import KEPT_S, MARK, LocalEngine
from heronpy.procs.exit_reason import ExitReason
from tests.support.local_engine import containers, kill_containers
from tests.support.waiting import alive, wait_for

#: Prints what it is given, and then runs on.
RUNS = ("sh", "-c", 'read token; echo "$token $HERON_CONTAINER.$HERON_SUBMISSION on $HERON_HOST"; sleep 60')


@pytest.fixture
def folder(home: Path) -> Iterator[Path]:
    """Where the engine keeps the files of topology `t`."""
    yield home / "engines" / "local" / "t"
    kill_containers(home)


def engine(*command: str) -> LocalEngine:
    return LocalEngine("t", command)


def request(container: int, submission: int = 1) -> Request:
    return Request("t", container, submission, 1.0, 1 << 20, token="secret")


def ended(of: LocalEngine) -> Seen:
    """The only container, once its end is known."""
    return wait_for(lambda: [one for one in of.list() if one.ended is not Ended.NO], 10, "its end")[0]


def processes(home: Path, name: str) -> list[psutil.Process]:
    return wait_for(lambda: len(found := containers(home).get(name, [])) > 2 and found, 10, "its processes")


def test_containers_outlive_their_engine_and_are_submitted_once(home: Path, folder: Path) -> None:
    first = engine(*RUNS)
    assert first.submit([request(0), request(1)]) == {(0, 1): "0-1", (1, 1): "1-1"}
    wait_for(lambda: first.termination_report("1-1"), 10, "what it prints")
    assert first.termination_report("1-1") == f"secret 1.1 on {this_host().name}\n"
    before = containers(home)
    second = engine(*RUNS)
    second.submit([request(1)])
    assert containers(home) == before, "a submission that is repeated starts nothing"
    assert [(one.engine_id, one.phase, one.host, one.ended) for one in second.list()] == [
        (name, EnginePhase.RUNNING, this_host().name, Ended.NO) for name in ("0-1", "1-1")
    ]
    assert second.topologies() == {"t": 2}
    assert all(b"secret" not in file.read_bytes() for file in folder.iterdir() if file.suffix != ".out")


@pytest.mark.parametrize(
    ("command", "code", "reason"),
    [
        ("exit 3", 3, None),
        ("kill -9 $$", None, ExitReason.KILLED),
        ("kill -SEGV $$", None, ExitReason.CRASHED),
    ],
)
def test_how_it_ended(folder: Path, command: str, code: int | None, reason: ExitReason | None) -> None:
    it = engine("sh", "-c", command)
    it.submit([request(2)])
    seen = ended(it)
    assert (seen.ended, seen.exit_code, seen.cancelled) == (Ended.CONFIRMED, code, False)
    assert reason is None or seen.reason is reason
    assert ended(engine()) == seen, "the next scheduler hears the same"


def test_what_does_not_end_within_its_grace_is_killed(home: Path, folder: Path) -> None:
    it = engine("sh", "-c", 'trap "" TERM; sleep 60 & sleep 60; sleep 60')
    it.submit([request(1)])
    found = processes(home, "1-1")
    it.cancel(["1-1", "9-9"], 60.0)
    assert [(one.phase, one.ended) for one in it.list()] == [(EnginePhase.ENDING, Ended.NO)]
    engine().cancel(["1-1"], 0.0)
    it.cancel(["1-1"], 60.0)  # which gives no more time than before
    assert (seen := ended(it)).cancelled and seen.reason is ExitReason.KILLED
    assert not any(alive(one.pid) for one in found)


@pytest.mark.parametrize("whole", [False, True])
def test_what_is_stopped_by_a_signal_ends_as_well(home: Path, folder: Path, whole: bool) -> None:
    of = engine("sh", "-c", "read token; sleep 60 & sleep 60")
    of.submit([request(1)])
    shell = json.loads((folder / "1-1.json").read_bytes())["pid"]
    for one in processes(home, "1-1"):
        if whole or one.pid == shell:
            one.suspend()
    of.cancel(["1-1"], 0.2)
    seen = ended(of)
    assert seen.ended is Ended.CONFIRMED and seen.cancelled and not containers(home).get("1-1")


def test_an_end_is_confirmed_once_nothing_is_left(home: Path, folder: Path) -> None:
    it = engine("sh", "-c", "setsid sleep 60 & sleep 60; true")
    it.submit([request(1)])
    shell, first, *others = processes(home, "1-1")
    first.kill()
    psutil.wait_procs([shell], 10)
    assert any(alive(one.pid) for one in others), "they are nobody's children any more"
    assert ended(it).reason is ExitReason.KILLED and not any(alive(one.pid) for one in others)


@pytest.mark.skipif(os.getuid() != 0, reason="only root reads the environment of another user's process")
def test_a_process_of_another_user_with_the_mark_is_neither_killed_nor_counted(home: Path, folder: Path) -> None:
    it = engine("sh", "-c", "sleep 60")
    it.submit([request(1)])
    (mark,) = {one.environ()[MARK] for one in processes(home, "1-1")[:1]}
    with subprocess.Popen(["sleep", "60"], user=65534, env={MARK: mark, "PATH": "/usr/bin:/bin"}) as other:
        it.cancel(["1-1"], 0.0)
        assert ended(it).cancelled and other.poll() is None
        other.kill()


def test_a_shell_that_is_killed_takes_its_container_along(home: Path, folder: Path) -> None:
    it = engine(*RUNS)
    it.submit([request(1)])
    shell, *others = processes(home, "1-1")
    shell.kill()
    assert ended(it).reason is ExitReason.KILLED and not any(alive(one.pid) for one in others)


def test_of_another_boot_and_of_another_host(home: Path, folder: Path) -> None:
    it = engine("sh", "-c", "sleep 60; true")
    it.submit([request(1)])
    file, here = folder / "1-1.json", this_host()
    record = json.loads(file.read_text())
    # Without an id of its machine nobody knows a host again after its next boot.
    booted = (Ended.CONFIRMED, ExitReason.LOST_HOST) if here.machine else (Ended.UNCONFIRMED, None)
    for host, end, reason in (
        (f"{here.machine or '-'} earlier {here.name}", *booted),
        ("other other n17", Ended.UNCONFIRMED, None),
    ):
        file.write_text(json.dumps({**record, "host": host}))
        [seen] = engine().list()
        assert (seen.ended, seen.reason) == (end, reason)
    file.write_text(json.dumps({**record, "namespace": 1}))
    assert engine().list()[0].ended is Ended.UNCONFIRMED
    file.write_text(json.dumps(record))
    assert engine().list()[0].phase is EnginePhase.RUNNING


def test_files_of_what_ended_long_ago_are_removed(home: Path, folder: Path) -> None:
    it = LocalEngine("old", ("true",))
    it.submit([request(1)])
    assert ended(it).exit_code == 0
    code = folder.with_name("old") / "1-1.code"
    engine(*RUNS).submit([request(0)])
    assert code.exists()
    long_ago = time.time() - KEPT_S - 1
    os.utime(code, (long_ago, long_ago))
    engine(*RUNS).submit([request(1)])
    assert not code.parent.exists() and {one.name for one in folder.glob("*.json")} == {"0-1.json", "1-1.json"}
