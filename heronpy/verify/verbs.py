"""Commands at bad times, broken user code, and observers."""

from __future__ import annotations

import json
import resource
import socket
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import psutil

from heronpy.loadtest.errors import LabError
from heronpy.loadtest.processes import cpu_s
from heronpy.verify.acts import BETWEEN, repeated
from heronpy.verify.topology import CRASH_FILE
from heronpy.verify.world import BACK_S, World

#: Configured tries of a poison tuple.
POISON_TRIES = 2
#: Maximum share of a core that a topology may use while it waits for the user.
RESTING_CPU = 0.05


#: Commands that watch a topology for a while.
_LOOKING = (("status",), ("metrics",), ("exceptions",), ("plan",), ("logs", "--follow"), ("top",))


def beside(world: World, runs: int) -> None:
    """Repeatedly kill commands that watch the topology, and request metrics pages without reading them."""
    end = time.monotonic() + runs * (4.0 if world.short else 300.0)
    world.note("commands that watch the topology are killed in a loop", disruptive=False)
    killed = 0
    while time.monotonic() < end:
        with world.topology.cluster.start(*world.random.choice(_LOOKING), *world.address) as watcher:
            for executor in world.status().executors:
                # Requests a page of metrics and disconnects before the answer.
                with suppress(OSError), socket.create_connection(("127.0.0.1", executor.metrics_port), 1.0) as page:
                    page.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            world.wait(world.random.uniform(0.1, 1.0))
            watcher.kill()
        killed += 1
    world.notes["watchers_killed"] = killed
    world.until_arrived(BETWEEN)


@repeated
def crash_loop(world: World, number: int) -> None:
    """Make a task die at every start: the topology must be FAILED with the cause, and waste no CPU. Then repair the
    task.
    """
    victim = world.first_task("work")
    (world.out / CRASH_FILE).touch()
    fault = world.kill(victim, wait=False)
    status = world.until_failed(600.0)
    if victim.name not in status.cause:
        raise LabError(f"the cause of the failure does not name {victim.name}: {status.cause}")
    world.notes["cause"] = status.cause
    world.notes["cpu_share"] = used = _cpu_share(world, (f"executor-{victim.container}", "tmaster"))
    if used > RESTING_CPU:
        raise LabError(f"{victim.name} stays down, but its executor and the topology master use {used:.0%} of a core")
    (world.out / CRASH_FILE).unlink()
    world.heron("restart", *world.address, "--task", victim.name.rpartition("_")[2])
    world.back(victim, fault)
    world.may_fail = False


def _cpu_share(world: World, names: Iterable[str]) -> float:
    """Measure the CPU of some processes over 2 s, as a share of one core."""
    watched = [world.process(world.named(name)) for name in names]
    before, began = cpu_s(watched), time.monotonic()
    world.wait(2.0)
    return (cpu_s(watched) - before) / (time.monotonic() - began)


def poison(world: World, runs: int) -> None:
    """Emit tuples that kill tasks or cannot be decoded: each becomes a dead letter, and all other tuples arrive."""
    wanted = world.input.partitions * (world.input.poison or world.input.undecodable)
    for _ in range(wanted):
        # A value that cannot be decoded ends no process, and affects no other tuple.
        world.note("poison", disruptive=not world.input.undecodable)
    world.until(lambda: len(world.letters()) >= wanted, 300.0, f"{wanted} dead letters")
    letters = world.letters()
    found = {(letter["payload"][0], letter["payload"][1]) for letter in letters}
    if any(not world.input.poisoned(seq) for _, seq in found) or len(found) != wanted:
        raise LabError(f"the dead letters are not the {wanted} poison tuples: {sorted(found)}")
    silent = [letter for letter in letters if not letter["traceback"] or not letter["tries"]]
    if silent:
        raise LabError(f"{len(silent)} dead letters name no cause")
    world.notes["dead_letters"] = len(letters)
    world.until_arrived(BETWEEN)


@repeated
def few_files(world: World, number: int) -> None:
    """Submit a second topology with a low limit on open files; `heron submit` must fail and name the reason."""

    def narrow() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))

    world.note("submit with a limit of 64 open files", disruptive=False)
    with world.topology.cluster.start(*world.submission(other_spec(world)), preexec_fn=narrow) as command:
        _, errors = command.communicate(timeout=120)
    if command.returncode == 0 or "ulimit -n" not in errors:
        raise LabError(f"a submit with a limit of 64 open files was not refused for its limit: {errors.strip()}")
    check_gone(world, other_name(world))


@repeated
def duplicate_verbs(world: World, number: int) -> None:
    """Repeat commands, run them concurrently and kill them: each takes effect once or not at all."""
    world.note("a second submit", disruptive=False)
    refusal = world.refused(*world.submission(world.out))
    if "already" not in refusal:
        raise LabError(f"a second topology of the same name was refused for another reason: {refusal}")
    _update_twice(world, 3 + number % 2)
    _submit_and_kill(world)


#: Parallelisms of two adjacent components, in turn; each run has one more update than the previous run.
_SIZES = (3, 4, 5, 2)


@repeated
def grow_neighbours(world: World, number: int) -> None:
    """Give two adjacent components more tasks in one update, and fewer at the end; no update may lose a tuple."""
    for size in _SIZES:
        world.note(f"work and sink updated to {size} tasks", disruptive=False)
        words = (f"--component-parallelism=work:{size}", f"--component-parallelism=sink:{size}")
        world.heron("update", *world.address, *words, timeout_s=300.0)
        world.until_arrived(BETWEEN)
    status = world.status()
    if status.discarded_tuples:
        raise LabError(f"updates discarded {status.discarded_tuples:,} tuples")


def _update_twice(world: World, parallelism: int) -> None:
    """Run two updates concurrently: at least one succeeds, and the topology has the requested parallelism."""
    world.note("two concurrent updates")
    words = ("update", *world.address, "--component-parallelism", f"work:{parallelism}")
    both = [world.topology.cluster.start(*words) for _ in range(2)]
    errors = [command.communicate(timeout=300)[1].strip() for command in both]
    if all(command.returncode for command in both):
        raise LabError(f"two concurrent updates both failed: {'; '.join(errors)}")
    world.until(lambda: len(world.tasks("work")) == parallelism, BACK_S, f"{parallelism} tasks of work")


def _submit_and_kill(world: World) -> None:
    """Kill `heron submit`; check that `heron kill` removes everything that is left."""
    world.note("kill of a submit", disruptive=False)
    # The temporary files of the killed submit are removed with the files of the run.
    words, environment = world.submission(other_spec(world)), {"TMPDIR": str(world.out)}
    with world.topology.cluster.start(*words, env=environment) as command:
        world.wait(world.random.uniform(0.2, 2.0))
        command.kill()
    with suppress(LabError):
        world.heron("kill", world.topology.cluster.target, other_name(world))
    check_gone(world, other_name(world))


def other_name(world: World) -> str:
    """Return the name of a second topology of the same program."""
    return f"{world.topology.name}-other"


def other_spec(world: World) -> Path:
    """Return the folder of the second topology's specification."""
    spec = json.loads((world.out / "spec").read_text(encoding="utf-8"))
    folder = world.out / "other"
    folder.mkdir(exist_ok=True)
    (folder / "spec").write_text(json.dumps({**spec, "name": other_name(world), "out": str(folder)}), encoding="utf-8")
    return folder


def check_gone(world: World, name: str) -> None:
    """Wait until no process and no state node has the name of a topology."""

    def lives(process: psutil.Process) -> bool:
        with suppress(psutil.Error):
            named = any(f"/{name}/" in word for word in process.cmdline())
            return named and process.status() != psutil.STATUS_ZOMBIE
        return False

    def is_gone() -> bool:
        nodes = (world.topology.cluster.home / "state").rglob(f"{name}*.node")
        return not any(nodes) and not any(map(lives, psutil.process_iter()))

    world.until(is_gone, 20.0, f"the end of all processes and state nodes of '{name}'")
