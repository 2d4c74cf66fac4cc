"""The fork server with real processes."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from heronpy.procs.forkserver import (
    ChildExited,
    ChildSpawned,
    Command,
    ForkServer,
    Ready,
    ServerEvent,
    ServerGone,
)
from heronpy.procs.preload import PRELOAD, preload_of
from tests.support.waiting import alive, eventually, wait_for

PROGRAM = "tests.support.programs"


class Recorder:
    """The events of a server; `meanwhile` hears of them as well."""

    def __init__(self, server: ForkServer, meanwhile: Callable[[ServerEvent], None] = lambda _: None) -> None:
        self.events: list[ServerEvent] = []
        self._meanwhile = meanwhile
        server.attach(self)

    def __call__(self, event: ServerEvent) -> None:
        self.events.append(event)
        self._meanwhile(event)

    async def ended(self, request: int) -> ChildExited:
        pid = await eventually(lambda: self.pid_of(request))
        return await eventually(lambda: self.exit_of(pid))

    async def all_ended(self, count: int) -> set[int]:
        """The exit codes of that many children."""
        ends: list[ChildExited] = []

        def enough() -> bool:
            ends[:] = [one for one in self.events if isinstance(one, ChildExited)]
            return len(ends) == count

        await eventually(enough, 30)
        return {os.waitstatus_to_exitcode(one.status) for one in ends}

    def pid_of(self, request: int) -> int:
        return next((e.pid for e in self.events if isinstance(e, ChildSpawned) and e.request == request), 0)

    def exit_of(self, pid: int) -> ChildExited | None:
        return next((e for e in self.events if isinstance(e, ChildExited) and e.pid == pid), None)


def send_at_once(signum: int) -> Callable[[ServerEvent], None]:
    """Send a signal to each child as soon as it is there."""
    return lambda event: os.kill(event.pid, signum) if isinstance(event, ChildSpawned) else None


@pytest.fixture
def server() -> Iterator[ForkServer]:
    made = ForkServer.start("test", [PROGRAM, "no_such_module"])
    yield made
    made.close()


async def test_runs_main_and_reports_its_exit_code(server: ForkServer, tmp_path: Path) -> None:
    seen = Recorder(server)
    with open(tmp_path / "log", "wb") as log:
        request = server.spawn(Command("a", PROGRAM, ("exit", "4", "last words")), log.fileno())
    ended = await seen.ended(request)
    assert os.waitstatus_to_exitcode(ended.status) == 4
    assert ended.rss_bytes > 0
    assert (tmp_path / "log").read_text() == "last words\n"
    ready = next(e for e in seen.events if isinstance(e, Ready))
    assert list(ready.problems) == ["no_such_module"]
    assert ready.threads == 1


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("raise",), 1, "RuntimeError: broken"),
        (("sys_exit", "7"), 7, ""),
        (("segfault",), -signal.SIGSEGV, "Segmentation fault"),
    ],
)
async def test_ends_of_a_child(
    server: ForkServer, tmp_path: Path, arguments: tuple[str, ...], code: int, says: str
) -> None:
    seen = Recorder(server)
    with open(tmp_path / "log", "wb") as log:
        request = server.spawn(Command("a", PROGRAM, arguments), log.fileno())
    ended = await seen.ended(request)
    assert os.waitstatus_to_exitcode(ended.status) == code
    assert says in (tmp_path / "log").read_text()


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize(
    ("how", "said", "code", "announced"),
    [
        ("by itself", 7, 7, True),
        ("by itself", 0, 0, True),
        ("in a thread", 8, 8, True),
        ("by itself", 4, 7, False),
        ("not at all", 7, 7, False),
        ("in a copy", 7, 7, False),
        ("by a program", 7, 7, False),
    ],
)
async def test_an_exit_code_is_announced_by_the_process_itself(
    server: ForkServer, how: str, said: int, code: int, announced: bool, fresh: bool
) -> None:
    seen = Recorder(server)
    arguments = ("announce", how, str(said), str(code))
    request = server.spawn(Command("a", PROGRAM, arguments, fresh=fresh, announces=True))
    # One that runs no user code has no pipe: what it says is not heard.
    without = server.spawn(Command("b", PROGRAM, arguments, fresh=fresh))
    for asked, expected in ((request, announced), (without, False)):
        ended = await seen.ended(asked)
        assert (os.waitstatus_to_exitcode(ended.status), ended.announced) == (code, expected)


async def test_a_program_that_cannot_be_executed_is_announced(server: ForkServer, tmp_path: Path) -> None:
    """The fork server itself ends the process, so it is no exit of user code."""
    seen = Recorder(server)
    missing = str(tmp_path / "python")
    request = server.spawn(Command("a", PROGRAM, fresh=True, python=missing, announces=True))
    ended = await seen.ended(request)
    assert (os.waitstatus_to_exitcode(ended.status), ended.announced) == (3, True)


async def test_child_is_clean(server: ForkServer, tmp_path: Path) -> None:
    """Own session, standard files only, default signals, its own random numbers, a fresh __main__."""
    seen = Recorder(server)
    for name in ("a", "b"):
        with open(tmp_path / name, "wb") as log:
            server.spawn(Command(name, PROGRAM, ("describe",), cwd=str(tmp_path)), log.fileno())
    await seen.all_ended(2)
    first, second = ((tmp_path / name).read_text().splitlines() for name in ("a", "b"))
    assert first[:5] == ["fds 0 1 2", "leader True", "sigterm default", f"cwd {tmp_path}", "main []"]
    assert first[5] != second[5]  # random numbers
    assert first[6] == "title heron: a"


async def test_fresh_child_runs_in_a_new_interpreter(server: ForkServer, tmp_path: Path) -> None:
    seen = Recorder(server)
    with open(tmp_path / "log", "wb") as log:
        command = Command("a", PROGRAM, ("describe",), cwd=str(tmp_path), fresh=True, python=sys.executable)
        server.spawn(command, log.fileno())
    await seen.all_ended(1)
    assert "leader True" in (tmp_path / "log").read_text()


async def test_many_children_leak_no_descriptors(server: ForkServer) -> None:
    seen = Recorder(server)

    async def batch() -> int:
        before = sum(isinstance(e, ChildExited) for e in seen.events)
        for number in range(30):
            server.spawn(Command("a", PROGRAM, ("exit", "0", "x"), announces=number % 2 == 0))
        await eventually(lambda: sum(isinstance(e, ChildExited) for e in seen.events) == before + 30)
        return len(os.listdir(f"/proc/{server.pid}/fd"))

    first = await batch()
    assert await batch() == first


async def test_a_child_hears_a_signal_from_its_first_moment(server: ForkServer) -> None:
    """Before it has handlers of its own it has those of the fork server, which would swallow it."""
    seen = Recorder(server, send_at_once(signal.SIGTERM))
    for _ in range(40):
        server.spawn(Command("a", PROGRAM, ("wait",)))
    assert await seen.all_ended(40) == {-signal.SIGTERM}


@pytest.mark.parametrize("fresh", [False, True])
async def test_being_asked_for_its_stacks_ends_no_child_that_is_not_ready(server: ForkServer, fresh: bool) -> None:
    seen = Recorder(server, send_at_once(signal.SIGUSR1))
    number = 4 if fresh else 40
    for _ in range(number):
        server.spawn(Command("a", PROGRAM, ("exit", "7", ""), fresh=fresh, python=sys.executable if fresh else ""))
    assert await seen.all_ended(number) == {7}


async def test_signal_reaches_the_group_and_never_a_stranger(server: ForkServer, tmp_path: Path) -> None:
    seen = Recorder(server)
    request = server.spawn(Command("a", PROGRAM, ("with_subprocess", str(tmp_path / "pid"))))
    pid = await eventually(lambda: seen.pid_of(request))
    await eventually((tmp_path / "pid").exists)
    inner = int((tmp_path / "pid").read_text())
    stranger = subprocess.Popen(["sleep", "100"])
    server.signal(stranger.pid, signal.SIGKILL, group=True)
    server.signal(pid, signal.SIGKILL, group=True)
    await eventually(lambda: seen.exit_of(pid))
    await eventually(lambda: not alive(inner))
    assert stranger.poll() is None
    stranger.kill()
    stranger.wait()


@pytest.mark.parametrize("how", ["with_subprocess", "with_escaped_subprocess"])
async def test_subprocess_of_a_child_dies_with_it(server: ForkServer, tmp_path: Path, how: str) -> None:
    seen = Recorder(server)
    request = server.spawn(Command("a", PROGRAM, (how, str(tmp_path / "pid"))))
    pid = await eventually(lambda: seen.pid_of(request))
    await eventually((tmp_path / "pid").exists)
    inner = int((tmp_path / "pid").read_text())
    os.kill(pid, signal.SIGKILL)
    await eventually(lambda: seen.exit_of(pid))
    await eventually(lambda: not alive(inner), 2.0)


async def test_death_of_the_server_is_told_and_takes_its_children(server: ForkServer) -> None:
    seen = Recorder(server)
    request = server.spawn(Command("a", PROGRAM, ("sleep",)))
    pid = await eventually(lambda: seen.pid_of(request))
    os.kill(server.pid, signal.SIGKILL)
    await eventually(lambda: any(isinstance(e, ServerGone) for e in seen.events))
    await eventually(lambda: not alive(pid), 2.0)


def test_close_kills_every_descendant(tmp_path: Path) -> None:
    async def go() -> list[int]:
        server = ForkServer.start("test", [PROGRAM])
        seen = Recorder(server)
        request = server.spawn(Command("a", PROGRAM, ("with_escaped_subprocess", str(tmp_path / "pid"))))
        pid = await eventually(lambda: seen.pid_of(request))
        await eventually((tmp_path / "pid").exists)
        server.close()
        return [pid, int((tmp_path / "pid").read_text()), server.pid]

    pids = asyncio.run(go())
    assert not any(alive(pid) for pid in pids)


def test_kill_9_of_the_owner_leaves_nobody(tmp_path: Path) -> None:
    """Owner -> server -> nested owner -> server -> child with an escaped subprocess: all die."""
    owner = subprocess.Popen([sys.executable, "-m", PROGRAM, "nested_owner", str(tmp_path)])
    wait_for((tmp_path / "pid").exists, what="the innermost process")
    pids = [int(path.read_text()) for path in tmp_path.iterdir()]
    assert len(pids) == 5
    assert all(alive(pid) for pid in pids)
    owner.kill()
    owner.wait()
    wait_for(lambda: not any(alive(pid) for pid in pids), 2.0, "the death of all")


def test_kill_9_of_a_nested_owner_leaves_nobody_below(tmp_path: Path) -> None:
    owner = subprocess.Popen([sys.executable, "-m", PROGRAM, "nested_owner", str(tmp_path)])
    wait_for((tmp_path / "pid").exists, what="the innermost process")
    outer = int((tmp_path / "outer-server").read_text())
    pids = [int(path.read_text()) for path in tmp_path.iterdir()]
    os.kill(int((tmp_path / "nested").read_text()), signal.SIGKILL)
    wait_for(lambda: not any(alive(pid) for pid in pids if pid != outer), 2.0, "the death of all below")
    assert alive(outer)
    owner.kill()
    owner.wait()
    wait_for(lambda: not alive(outer), 2.0)


def test_a_container_loads_what_it_runs_and_not_what_others_run() -> None:
    """Many containers that start at once on a few cores load their modules one after the other."""
    first, other = preload_of(0), preload_of(1)
    assert {*first} | {*other} == {*PRELOAD}
    assert "heronpy.tmaster.__main__" in first and "heronpy.tmaster.__main__" not in other
    tasks = {"stmgr.__main__", "instance.__main__"}
    assert tasks <= {*other} and not tasks & {*first}
