"""Slow and greedy tasks: backpressure, backlog, checkpoints under it, memory (F17, F18, F25, F35, F38).

Runtime configuration makes the first task of `work` slow, or greedy, as a user would do it.
"""

from __future__ import annotations

import signal
import time
from contextlib import ExitStack, suppress
from functools import partial

from heronpy.verify.acts import BETWEEN, Act, repeat
from heronpy.verify.errors import VerifyError
from heronpy.verify.relay import LEAK_KEY, PAUSE_KEY
from heronpy.verify.world import BACK_S, Target, World

#: Memory that the greedy task takes per second.
LEAK_MB_S = 10.0


def slow_bolt(world: World, runs: int) -> None:
    """One task is slow, then much slower, then cured."""
    for _ in range(runs):
        try:
            for pause_ms in (20, 1000) if world.short else (200, 10_000):
                world.note(f"one bolt takes {pause_ms} ms a tuple", disruptive=False)
                world.configure(**{PAUSE_KEY: pause_ms})
                world.wait(2.0 if world.short else 30.0)
        finally:
            world.configure(**{PAUSE_KEY: 0})
        world.note("the bolt is cured", disruptive=False)
        world.until_arrived(BETWEEN)


def stopped_sink(world: World, runs: int) -> None:
    """Stop a sink until it continues, or its successor does."""

    def once(number: int) -> None:
        victim = world.random.choice(world.tasks("sink"))
        world.pause(victim.name, [world.process(victim)], 4.0 if world.short else 600.0)

    repeat(world, runs, once)


def backlog(world: World, runs: int) -> None:
    """No sink works while the input follows its schedule; then the sinks have to catch up."""
    rates = []
    for _ in range(runs):
        seconds = 3.0 if world.short else 600.0
        with ExitStack() as stack:
            world.note(f"all sinks stopped for {seconds:g} s")
            for victim in world.tasks("sink"):
                world.signal(victim, signal.SIGSTOP)
                stack.callback(partial(_continue, world, victim))
            world.wait(seconds)
        before, began = world.arrived(), time.monotonic()
        world.wait(1.0)
        rates.append((world.arrived() - before) / (time.monotonic() - began))
        world.until_arrived(BETWEEN)
    world.notes["drain_rate"] = min(rates)


def _continue(world: World, victim: Target) -> None:
    with suppress(VerifyError):
        world.signal(victim, signal.SIGCONT)


# ---- checkpoints under backpressure ----------------------------------------------------------------


def _clamped(world: World) -> bool:
    status = world.topology.status()
    return status is not None and any(beat.clamped for beat in status.stmgrs)


def checkpoint_under_backpressure(unaligned: bool) -> Act:
    """While the spouts are clamped: an unaligned checkpoint completes, an aligned one is aborted and counted."""

    def act(world: World, runs: int) -> None:
        world.until_checkpoint()
        for _ in range(runs):
            world.note("one bolt takes 300 ms a tuple", disruptive=False)
            world.configure(**{PAUSE_KEY: 300})
            try:
                world.until(lambda: _clamped(world), BACK_S, "backpressure")
                if unaligned:
                    world.until_checkpoint()
                else:
                    _until_given_up(world)
                # A task that saves what is under way takes that from its link, which is below its mark for a moment.
                lasting = "backpressure that outlasts the checkpoint (a higher --rate makes more)"
                world.until(lambda: _clamped(world), BACK_S, lasting)
            finally:
                world.configure(**{PAUSE_KEY: 0})
            world.note("the bolt is cured", disruptive=False)
            world.until_checkpoint()
            world.until_arrived(BETWEEN)
        reply = world.checkpoints()
        world.notes["checkpoints"] = {"completed": reply.completed, "aborted": reply.aborted, "failed": reply.failed}

    return act


def _until_given_up(world: World) -> None:
    """Wait for a checkpoint that is aborted and counted."""
    before = world.checkpoints().aborted
    world.until(lambda: world.checkpoints().aborted > before, BACK_S, "a checkpoint that is aborted and counted")


# ---- memory ----------------------------------------------------------------------------------------


def leak(world: World, runs: int) -> None:
    """One task takes more and more memory until its limit ends it: only it dies, and the reason is reported."""

    def once(number: int) -> None:
        siblings = {one.name: one.pid for one in world.targets() if one.component != "work"}
        victim = min(world.tasks("work"), key=lambda one: int(one.name.rpartition("_")[2]))
        world.note(f"{victim.name} leaks memory")
        world.configure(**{LEAK_KEY: LEAK_MB_S * (30 if world.short else 1)})
        try:
            world.until(lambda: _reason(world, victim.name) == "oom", 180.0, f"'oom' as what ended {victim.name}")
        finally:
            world.configure(**{LEAK_KEY: 0})
        world.until(lambda: any(one.name == victim.name for one in world.targets()), BACK_S, f"a new {victim.name}")
        now = {one.name: one.pid for one in world.targets()}
        touched = [name for name, pid in siblings.items() if now.get(name) != pid]
        if touched and world.mode != "EFFECTIVELY_ONCE":
            raise VerifyError(f"the death of {victim.name} also ended {', '.join(touched)}")

    repeat(world, runs, once)


def _reason(world: World, name: str) -> str:
    """Why the previous process of a name has ended."""
    for executor in world.status().executors:
        for process in executor.processes:
            if process.name == name:
                return str(process.exit_reason)
    return ""
