"""Commands at bad times, broken user code, and observers (F06, F11, F19, F26, F34)."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import psutil

from heronpy.verify.acts import BETWEEN, repeat
from heronpy.verify.errors import VerifyError
from heronpy.verify.relay import CRASH_FILE
from heronpy.verify.world import BACK_S, World

#: Configured tries of a poison tuple.
POISON_TRIES = 2
#: A topology that waits for the user uses less than this share of a core.
RESTING_CPU = 0.05


# ---- beside the data path ------------------------------------------------------------------------

#: Commands that watch a topology for a while.
_LOOKING = (("status",), ("metrics",), ("exceptions",), ("plan",), ("logs", "--follow"), ("top",))


def beside(world: World, runs: int) -> None:
    """Kill commands that watch the topology repeatedly, and leave pages of metrics half read."""
    end = time.monotonic() + runs * (4.0 if world.short else 300.0)
    world.note("what watches the topology is killed in a loop", disruptive=False)
    killed = 0
    while time.monotonic() < end:
        words = world.random.choice(_LOOKING)
        with _command(world, *words, world.topology.cluster.target, world.topology.name) as watcher:
            _leave_half_read(world)
            world.wait(world.random.uniform(0.1, 1.0))
            watcher.kill()
        killed += 1
    world.notes["watchers_killed"] = killed
    world.until_arrived(BETWEEN)


def _leave_half_read(world: World) -> None:
    """Request every page of metrics and hang up before the answer."""
    for executor in world.status().executors:
        with suppress(OSError), socket.create_connection(("127.0.0.1", executor.metrics_port), 1.0) as page:
            page.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")


def _command(
    world: World, *words: str, environment: dict[str, str] | None = None, **options: Any
) -> subprocess.Popen[str]:
    """A `heron` command against this run's cluster, left running."""
    cluster = world.topology.cluster
    return subprocess.Popen(
        [sys.executable, "-m", "heronpy.cli", *words],
        env={**os.environ, "HERON_HOME": str(cluster.home), **(environment or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        **options,
    )


# ---- user code that does not work ------------------------------------------------------------------


def crash_loop(world: World, runs: int) -> None:
    """A task that dies at start: backoff, FAILED after its budget with the cause, no CPU wasted; then cured."""

    def once(number: int) -> None:
        victim = min(world.tasks("work"), key=lambda one: int(one.name.rpartition("_")[2]))
        (world.out / CRASH_FILE).touch()
        fault = world.kill(victim, wait=False)
        status = world.until_failed(600.0)
        if victim.name not in status.cause:
            raise VerifyError(f"the cause of the failure does not name {victim.name}: {status.cause}")
        world.notes["cause"] = status.cause
        world.notes["cpu_share"] = used = _cpu_share(world, (f"executor-{victim.container}", "tmaster"))
        if used > RESTING_CPU:
            raise VerifyError(f"{victim.name} stays down, but its executor and the master take {used:.0%} of a core")
        (world.out / CRASH_FILE).unlink()
        task = victim.name.rpartition("_")[2]
        world.heron("restart", world.topology.cluster.target, world.topology.name, "--task", task)
        world.back(victim, fault)
        world.may_fail = False

    repeat(world, runs, once)


def _cpu_share(world: World, names: Iterable[str]) -> float:
    """CPU of some processes over two seconds, as a share of one core."""
    watched = [world.process(world.named(name)) for name in names]

    def used() -> float:
        return sum(sum(process.cpu_times()[:2]) for process in watched)

    before, began = used(), time.monotonic()
    world.wait(2.0)
    return (used() - before) / (time.monotonic() - began)


def poison(world: World, runs: int) -> None:
    """Tuples that no task survives, or can read: each becomes a dead letter, and all others arrive."""
    wanted = world.input.partitions * (world.input.poison or world.input.undecodable)
    for _ in range(wanted):
        # A value that cannot be decoded ends no process, and affects no other tuple.
        world.note("poison", disruptive=not world.input.undecodable)
    world.until(lambda: len(world.letters()) >= wanted, 300.0, f"{wanted} dead letters")
    letters = world.letters()
    found = {(letter["payload"][0], letter["payload"][1]) for letter in letters}
    if any(not world.input.poisoned(seq) for _, seq in found) or len(found) != wanted:
        raise VerifyError(f"the dead letters are not the {wanted} tuples of poison: {sorted(found)}")
    silent = [letter for letter in letters if not letter["traceback"] or not letter["tries"]]
    if silent:
        raise VerifyError(f"{len(silent)} dead letters do not say what happened")
    world.notes["dead_letters"] = len(letters)
    world.until_arrived(BETWEEN)


# ---- verbs -----------------------------------------------------------------------------------------


def few_files(world: World, runs: int) -> None:
    """A second topology with a low limit of open files is refused as a whole, with the reason."""
    cluster, program = world.topology.cluster, str(world.out / "topology.py")
    spec = other_spec(world)

    def narrow() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))

    for _ in range(runs):
        world.note("submitted with 64 files", disruptive=False)
        with _command(world, "submit", cluster.target, program, "-", "--spec", spec, preexec_fn=narrow) as command:
            said = command.communicate(timeout=120)[0]
        if command.returncode == 0 or "ulimit -n" not in said:
            raise VerifyError(f"a topology that may open 64 files was not refused for that reason: {said.strip()}")
        check_gone(world, other_name(world))
    world.until_arrived(BETWEEN)


def duplicate_verbs(world: World, runs: int) -> None:
    """Verbs run twice, concurrently, and killed in the middle: each takes effect once or not at all."""
    target, program = world.topology.cluster.target, str(world.out / "topology.py")
    for number in range(runs):
        world.note("submitted twice", disruptive=False)
        refusal = world.refused("submit", target, program, "-", "--spec", world.out / "spec")
        if "already" not in refusal:
            raise VerifyError(f"a second topology of the same name was refused for another reason: {refusal}")
        _update_twice(world, 3 + number % 2)
        _submit_and_kill(world, program)
        world.until_arrived(BETWEEN, BACK_S)


#: Parallelisms of two adjacent components, in turn; each run has one more update than these.
_SIZES = (3, 4, 5, 2)


def grow_neighbours(world: World, runs: int) -> None:
    """Two adjacent components get more tasks in one update, and finally fewer; no update may lose a tuple."""
    target, name = world.topology.cluster.target, world.topology.name

    def once(number: int) -> None:
        for size in _SIZES:
            world.note(f"work and sink updated to {size} tasks", disruptive=False)
            words = (f"--component-parallelism=work:{size}", f"--component-parallelism=sink:{size}")
            world.heron("update", target, name, *words, timeout_s=300.0)
            world.until_arrived(BETWEEN)

    repeat(world, runs, once)
    status = world.status()
    if status.discarded_tuples:
        raise VerifyError(f"updates discarded {status.discarded_tuples:,} tuples")


def _update_twice(world: World, parallelism: int) -> None:
    """Two concurrent updates: one or both succeed, and the topology is as requested."""
    target, name = world.topology.cluster.target, world.topology.name
    world.note("updated twice at once")
    words = ("update", target, name, "--component-parallelism", f"work:{parallelism}")
    both = [_command(world, *words) for _ in range(2)]
    said = [command.communicate(timeout=300)[0].strip() for command in both]
    if all(command.returncode for command in both):
        raise VerifyError(f"of two updates at once both failed: {'; '.join(said)}")
    world.until(lambda: len(world.tasks("work")) == parallelism, BACK_S, f"{parallelism} tasks of work")


def _submit_and_kill(world: World, program: str) -> None:
    """`heron submit` killed at any moment leaves nothing that `heron kill` would not remove."""
    target, other = world.topology.cluster.target, other_name(world)
    world.note("submit killed", disruptive=False)
    spec = other_spec(world)
    # Its own temporary files stay, as after every kill -9; here they are removed with those of the run.
    environment = {"TMPDIR": str(world.out)}
    with _command(world, "submit", target, program, "-", "--spec", spec, environment=environment) as command:
        world.wait(world.random.uniform(0.2, 2.0))
        command.send_signal(signal.SIGKILL)
    with suppress(VerifyError):
        world.heron("kill", target, other)
    check_gone(world, other)


def other_name(world: World) -> str:
    return f"{world.topology.name}-other"


def other_spec(world: World) -> str:
    """The specification of a second topology of this program."""
    spec = json.loads((world.out / "spec").read_text(encoding="utf-8"))
    folder = world.out / "other"
    folder.mkdir(exist_ok=True)
    (folder / "spec").write_text(json.dumps({**spec, "name": other_name(world), "out": str(folder)}), encoding="utf-8")
    return str(folder / "spec")


def check_gone(world: World, name: str) -> None:
    """Wait until no process and no state node has the name of a topology."""

    def left() -> list[str]:
        root = world.topology.cluster.home / "state"
        nodes = [str(path.relative_to(root)) for path in root.rglob(f"{name}*.node")]
        return nodes + [str(process.pid) for process in psutil.process_iter() if _runs(process, name)]

    world.until(lambda: not left(), 20.0, f"the end of everything of '{name}'")


def _runs(process: psutil.Process, name: str) -> bool:
    try:
        return any(f"/{name}/" in word for word in process.cmdline()) and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
