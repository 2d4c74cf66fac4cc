"""Slow and greedy tasks: backpressure, backlog, checkpoints under it, memory (F17, F18, F25, F35, F38).

Runtime configuration makes the first task of `work` slow, or greedy, as a user would do it.
"""

from __future__ import annotations

import time

from heronpy.verify.acts import BETWEEN, Act, check_untouched, repeated
from heronpy.verify.topology import LEAK_KEY, PAUSE_KEY
from heronpy.verify.world import BACK_S, World

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


@repeated
def stopped_sink(world: World, number: int) -> None:
    """Stop a sink until it continues, or its successor does."""
    victim = world.random.choice(world.tasks("sink"))
    world.pause(victim.name, [world.process(victim)], 4.0 if world.short else 600.0)


def backlog(world: World, runs: int) -> None:
    """No sink works while the input follows its schedule; then the sinks have to catch up."""
    rates = []
    for _ in range(runs):
        sinks = [world.process(victim) for victim in world.tasks("sink")]
        world.pause("all sinks", sinks, 3.0 if world.short else 600.0)
        before, began = world.arrived(), time.monotonic()
        world.wait(1.0)
        rates.append((world.arrived() - before) / (time.monotonic() - began))
        world.until_arrived(BETWEEN)
    world.notes["drain_rate"] = min(rates)


def _until_given_up(world: World) -> None:
    """Wait for a checkpoint that is aborted and counted."""
    before = world.checkpoints().aborted
    world.until(lambda: world.checkpoints().aborted > before, BACK_S, "a checkpoint that is aborted and counted")


def checkpoint_under_backpressure(unaligned: bool) -> Act:
    """While the spouts are clamped: an unaligned checkpoint completes, an aligned one is aborted and counted."""

    def act(world: World, runs: int) -> None:
        def clamped() -> bool:
            status = world.topology.status()
            return status is not None and any(beat.clamped for beat in status.stmgrs)

        world.until_checkpoint()
        for _ in range(runs):
            world.note("one bolt takes 300 ms a tuple", disruptive=False)
            world.configure(**{PAUSE_KEY: 300})
            try:
                world.until(clamped, BACK_S, "backpressure")
                if unaligned:
                    world.until_checkpoint()
                else:
                    _until_given_up(world)
                # A task that saves what is under way takes that from its link, which is below its mark for a moment.
                lasting = "backpressure that outlasts the checkpoint (a higher --rate makes more)"
                world.until(clamped, BACK_S, lasting)
            finally:
                world.configure(**{PAUSE_KEY: 0})
            world.note("the bolt is cured", disruptive=False)
            world.until_checkpoint()
            world.until_arrived(BETWEEN)
        reply = world.checkpoints()
        world.notes["checkpoints"] = {"completed": reply.completed, "aborted": reply.aborted, "failed": reply.failed}

    return act


@repeated
def leak(world: World, number: int) -> None:
    """One task takes more and more memory until its limit ends it: only it dies, and the reason is reported."""
    others = [one for one in world.targets() if one.component != "work"]
    victim = world.first_task("work")

    def is_oom() -> bool:
        processes = [process for executor in world.status().executors for process in executor.processes]
        return any(process.name == victim.name and process.exit_reason == "oom" for process in processes)

    world.note(f"{victim.name} leaks memory")
    world.configure(**{LEAK_KEY: LEAK_MB_S * (30 if world.short else 1)})
    try:
        world.until(is_oom, 180.0, f"'oom' as what ended {victim.name}")
    finally:
        world.configure(**{LEAK_KEY: 0})
    world.named(victim.name)
    check_untouched(world, others, victim)
