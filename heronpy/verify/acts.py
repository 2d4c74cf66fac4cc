"""Faults in processes and in the links between them.

An act begins when tuples flow, causes its fault `runs` times with some traffic in between, and returns when the last
victim has been restarted. The oracle judges the result. Problems that only the act can detect (such as orphans) are
raised as a LabError. An act on links sets rules in the fault proxy and later clears them. Half-open connections
stay frozen, because the heartbeats of the stream managers have to detect them.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psutil

from heronpy.common.ids import stmgr_id
from heronpy.loadtest.errors import LabError
from heronpy.verify.proxy import FaultProxy, Rule
from heronpy.verify.topology import LEAK_KEY, PAUSE_KEY
from heronpy.verify.world import BACK_S, EXACT, POLL_S, Target, World

#: Number of records that must arrive between two faults.
BETWEEN = 200
#: Number of kills, greater than the maximum number of attempts of a tuple.
KILLS_IN_A_ROW = 5
#: Time limit for the end of a dead executor's children.
ORPHANS_S = 2.0
MONKEY_MEAN_S = 10.0
#: Number of kills in a short monkey run, and seconds of a full run.
MONKEY_KILLS, MONKEY_S = 6, 1800.0
GUARDIAN, SCHEDULER, FORK_SERVER = "the scheduler's guardian", "the scheduler", "the scheduler's fork server"
FORK_SERVERS, EVERY_PROCESS = "the executors' fork servers", "every process of the topology"
#: Seconds after the restart of a topology master within which checkpoints must complete again (F03).
CHECKPOINTS_AGAIN_S = 10.0
#: Memory in MB that the greedy task allocates per second.
LEAK_MB_S = 10.0

#: Function that acts on a world the given number of times.
Act = Callable[[Any, int], None]


def nothing(world: World, runs: int) -> None:
    """Cause no fault. A check that fails without a fault reveals an error of the oracle."""


def repeated(once: Act) -> Act:
    """Return an act that calls `once` with the numbers 0, 1, ..., and waits for some traffic after each call."""

    @functools.wraps(once)
    def act(world: World, runs: int) -> None:
        for number in range(runs):
            once(world, number)
            world.until_arrived(BETWEEN)
            world.wait(world.random.uniform(0.1, 0.5))

    return act


def kill_task(component: str) -> Act:
    """Return an act that kills (-9) tasks of a component, one after the other."""

    @repeated
    def act(world: World, number: int) -> None:
        before = [one for one in world.targets() if one.component]
        victim = world.random.choice(world.tasks(component))
        world.kill(victim)
        check_untouched(world, [one for one in before if one.name != victim.name], victim)

    return act


def check_untouched(world: World, others: list[Target], victim: Target) -> None:
    """Check that the death of a process ended no other process, unless the whole region restarts."""
    now = {one.name: one.pid for one in world.targets()}
    touched = [one.name for one in others if now.get(one.name) != one.pid]
    if touched and world.mode != EXACT:
        raise LabError(f"the death of {victim.name} also ended {', '.join(touched)}")


@repeated
def kill_busy(world: World, number: int) -> None:
    """Kill (-9) every task of the bolt several times while it processes many equal tuples."""
    for _ in range(KILLS_IN_A_ROW):
        for victim in world.tasks("work"):
            world.kill(victim)
        world.until_arrived(BETWEEN // 4)
    world.until_arrived(BETWEEN)
    letters = world.letters()
    if letters:
        shown = letters[0]["payload"]
        raise LabError(f"{len(letters)} tuples without poison became dead letters, such as {shown}")


@repeated
def kill_stmgr(world: World, number: int) -> None:
    world.kill(world.named(stmgr_id(world.random.choice(world.containers()))))


@repeated
def kill_tmaster(world: World, number: int) -> None:
    """Kill (-9) the active topology master, even if there are standbys."""
    world.kill(world.master()).disruptive = False


@repeated
def tmaster_down(world: World, number: int) -> None:
    """Check that data flows without a topology master, and that checkpoints resume soon after its restart."""
    world.until_checkpoint()
    fault = world.note("no topology master", disruptive=False)
    end = time.monotonic() + (4.0 if world.short else 600.0)
    while time.monotonic() < end:
        for _, process in world.processes("tmaster"):
            with suppress(psutil.NoSuchProcess):
                process.kill()
        world.wait(POLL_S)
    if world.mode == EXACT:
        world.until_checkpoint(CHECKPOINTS_AGAIN_S)
    world.status()
    fault.back_s = time.monotonic() - end


@repeated
def kill_executor(world: World, number: int) -> None:
    """Kill an executor; check that its children end with it and its container is restarted."""
    container = world.random.choice(world.containers())
    victim = world.named(f"executor-{container}")
    children = [world.process(one) for one in world.targets() if one.container == container and one != victim]
    fault = world.kill(victim, wait=False)
    _, left = psutil.wait_procs(children, timeout=ORPHANS_S)
    if left:
        names = ", ".join(str(process.pid) for process in left)
        raise LabError(f"processes {names} outlived their executor by {ORPHANS_S:g} s")
    world.back(victim, fault)


@repeated
def kill_container(world: World, number: int) -> None:
    container = world.random.choice(world.containers())
    victim = world.named(f"executor-{container}")
    world.back(victim, world.kill_container(container))


@repeated
def kill_all_containers(world: World, number: int) -> None:
    victims = [world.named(f"executor-{container}") for container in world.containers()]
    faults = [world.kill_container(victim.container) for victim in victims]
    for victim, fault in zip(victims, faults, strict=True):
        world.back(victim, fault)


def monkey(world: World, runs: int) -> None:
    """Kill or pause (SIGSTOP) processes at exponentially distributed times, without waiting for recoveries."""
    mean = 0.5 if world.short else MONKEY_MEAN_S
    for _ in range(runs * (MONKEY_KILLS if world.short else int(MONKEY_S / MONKEY_MEAN_S))):
        world.wait(min(world.random.expovariate(1 / mean), 3 * mean))
        victim = world.random.choice(world.until(world.targets, BACK_S, "a process"))
        # An earlier kill may already have ended the process.
        with suppress(LabError):
            if world.random.random() < 0.2:
                seconds = world.random.uniform(0.2, 1.0 if world.short else 5.0)
                world.pause(victim.name, [world.process(victim)], seconds)
            else:
                world.kill(victim, wait=False)


@repeated
def kill_in_restore(world: World, number: int) -> None:
    """Kill a task, then other tasks while the region restores or takes a checkpoint."""
    world.kill(world.random.choice(world.tasks("work")), wait=False)
    for component in ("sink", "source"):
        world.wait(world.random.uniform(0.0, 0.3))
        with suppress(LabError):
            world.kill(world.random.choice(world.tasks(component)), wait=False)


def stop(which: str) -> Act:
    """Return an act that sends SIGSTOP to a process and, after a while, SIGCONT."""

    @repeated
    def act(world: World, number: int) -> None:
        # No single wait of a process for a signal or message takes 3 s.
        seconds = 3.0 if world.short else (3.0, 30.0, 120.0)[number % 3]
        world.pause(*_victims(world, which), seconds)

    return act


def _victims(world: World, which: str) -> tuple[str, list[psutil.Process]]:
    """Return the victims' processes, and one name for all of them."""
    if which in (GUARDIAN, SCHEDULER, FORK_SERVER, FORK_SERVERS, EVERY_PROCESS):
        # The status of the topology master does not contain these processes.
        scheduler, guardian = world.topology.scheduler(), world.topology.guardian()
        below = scheduler.children(recursive=True)
        servers = [process for process in below if " ".join(process.cmdline()).startswith("heron: fork-server")]
        found = {
            GUARDIAN: [guardian],
            SCHEDULER: [scheduler],
            FORK_SERVER: scheduler.children(),
            FORK_SERVERS: [process for process in servers if process.ppid() != scheduler.pid],
            EVERY_PROCESS: [guardian, scheduler, *below],
        }
        return which, found[which]
    if which == "tmaster":
        victim = world.master()
    elif which in ("stmgr", "executor"):
        victim = world.named(f"{which}-{world.random.choice(world.containers())}")
    else:
        victim = world.random.choice(world.tasks(which))
    return victim.name, [world.process(victim)]


# Slow and greedy tasks: runtime configuration makes the first task of `work` slow or greedy.


def slow_bolt(world: World, runs: int) -> None:
    """Make one task slow, then much slower, then normal again."""
    for _ in range(runs):
        try:
            for pause_ms in (20, 1000) if world.short else (200, 10_000):
                world.note(f"one bolt task takes {pause_ms} ms per tuple", disruptive=False)
                world.configure(**{PAUSE_KEY: pause_ms})
                world.wait(2.0 if world.short else 30.0)
        finally:
            world.configure(**{PAUSE_KEY: 0})
        world.note("the bolt task is fast again", disruptive=False)
        world.until_arrived(BETWEEN)


@repeated
def stopped_sink(world: World, number: int) -> None:
    """Pause a sink (SIGSTOP) for a while; the sink or its successor then continues."""
    victim = world.random.choice(world.tasks("sink"))
    world.pause(victim.name, [world.process(victim)], 4.0 if world.short else 600.0)


def backlog(world: World, runs: int) -> None:
    """Pause all sinks (SIGSTOP) while the input follows its schedule; afterwards the sinks must catch up."""
    rates = []
    for _ in range(runs):
        sinks = [world.process(victim) for victim in world.tasks("sink")]
        world.pause("all sinks", sinks, 3.0 if world.short else 600.0)
        before, began = world.arrived(), time.monotonic()
        world.wait(1.0)
        rates.append((world.arrived() - before) / (time.monotonic() - began))
        world.until_arrived(BETWEEN)
    world.notes["drain_rate"] = min(rates)


def checkpoint_under_backpressure(unaligned: bool) -> Act:
    """Return an act that checks that backpressure aborts aligned checkpoints, but does not prevent unaligned ones."""

    def act(world: World, runs: int) -> None:
        def clamped() -> bool:
            status = world.topology.status()
            return status is not None and any(beat.clamped for beat in status.stmgrs)

        world.until_checkpoint()
        for _ in range(runs):
            world.note("one bolt task takes 300 ms per tuple", disruptive=False)
            world.configure(**{PAUSE_KEY: 300})
            try:
                world.until(clamped, BACK_S, "backpressure")
                if unaligned:
                    world.until_checkpoint()
                else:
                    world.until_given_up("aborted")
                # Saving tuples in transit empties the link of a task for a moment.
                lasting = "backpressure after the checkpoint; a higher --rate causes more backpressure"
                world.until(clamped, BACK_S, lasting)
            finally:
                world.configure(**{PAUSE_KEY: 0})
            world.note("the bolt task is fast again", disruptive=False)
            world.until_checkpoint()
            world.until_arrived(BETWEEN)
        reply = world.checkpoints()
        world.notes["checkpoints"] = {"completed": reply.completed, "aborted": reply.aborted, "failed": reply.failed}

    return act


@repeated
def leak(world: World, number: int) -> None:
    """Make one task leak memory up to its limit; check that only this task dies, and that the reason is reported."""
    others = [one for one in world.targets() if one.component != "work"]
    victim = world.first_task("work")

    def is_oom() -> bool:
        processes = [process for executor in world.status().executors for process in executor.processes]
        return any(process.name == victim.name and process.exit_reason == "oom" for process in processes)

    world.note(f"{victim.name} leaks memory")
    world.configure(**{LEAK_KEY: LEAK_MB_S * (30 if world.short else 1)})
    try:
        world.until(is_oom, 180.0, f"the end of {victim.name} with reason 'oom'")
    finally:
        world.configure(**{LEAK_KEY: 0})
    world.named(victim.name)
    check_untouched(world, others, victim)


# Faulty links between stream managers, and to the topology master.

#: Seconds within which half-open connections must be detected and replaced (F16).
FOUND_S = 10.0


def _proxy(world: World) -> FaultProxy:
    assert world.proxy is not None
    return world.proxy


def _two(world: World) -> tuple[str, str]:
    containers = world.containers()
    if len(containers) < 2:
        raise LabError("a link fault needs two containers; give --containers 2")
    one, other = world.random.sample(containers, 2)
    return stmgr_id(one), stmgr_id(other)


def _while(world: World, what: str, seconds: float, *rules: tuple[str, str, Rule]) -> None:
    proxy = _proxy(world)
    world.note(f"{what} for {seconds:g} s")
    for source, target, rule in rules:
        proxy.set(source, target, rule)
    try:
        world.wait(seconds)
    finally:
        proxy.clear()


def _parted(one: str, other: str) -> tuple[tuple[str, str, Rule], ...]:
    hole = Rule(blackhole=True)
    return (one, other, hole), (other, one, hole)


@repeated
def partition(world: World, number: int) -> None:
    one, other = _two(world)
    seconds = 2.0 if world.short else (10.0, 50.0, 90.0)[number % 3]
    _while(world, f"partition {one} | {other}", seconds, *_parted(one, other))


@repeated
def partition_one_way(world: World, number: int) -> None:
    one, other = _two(world)
    seconds = 2.0 if world.short else 10.0
    _while(world, f"partition {one} -> {other}", seconds, (one, other, Rule(blackhole=True)))


def partition_flapping(world: World, runs: int) -> None:
    """Partition links repeatedly for 3 s, with pauses of 3 s."""
    each = 0.7 if world.short else 3.0
    for _ in range(max(2, runs)):
        one, other = _two(world)
        _while(world, f"partition {one} | {other}", each, *_parted(one, other))
        world.wait(each)
    world.until_arrived(BETWEEN)


@repeated
def partition_tmaster(world: World, number: int) -> None:
    name = stmgr_id(world.random.choice(world.containers()))
    seconds = 2.0 if world.short else 20.0
    _while(world, f"partition {name} | tmaster", seconds, *_parted(name, "tmaster"))


def bad_link(rule: Rule) -> Act:
    def act(world: World, runs: int) -> None:
        seconds = (3.0 if world.short else 20.0) * runs
        _while(world, f"links with {rule}", seconds, ("*", "*", rule))
        world.until_arrived(BETWEEN)

    return act


def corrupt(world: World, runs: int) -> None:
    """Corrupt one byte in 1,000,000; in a short run, which has fewer bytes, three in 100,000."""
    bad_link(Rule(corrupt_share=3e-5 if world.short else 1e-6))(world, runs)
    if not _proxy(world).counts["corruptions"]:
        raise LabError("no byte was corrupted; give a higher --rate or a longer --duration")


@repeated
def throttle(world: World, number: int) -> None:
    """Throttle one link to 125,000 bytes per second."""
    one, other = _two(world)
    seconds = 3.0 if world.short else 20.0
    _while(world, f"1 Mbit/s {one} -> {other}", seconds, (one, other, Rule(bytes_per_s=125_000)))


@repeated
def half_open(world: World, number: int) -> None:
    """Freeze connections so that they pass no data and do not end; heartbeats must detect this within 10 s."""
    one, other = _two(world)
    world.note(f"half-open {one} | {other}")
    proxy = _proxy(world)
    proxy.freeze(one, other)
    before = proxy.counts["connections"]
    what = f"the end of a half-open connection between {one} and {other}"
    world.until(lambda: proxy.counts["connections"] > before, FOUND_S, what)
