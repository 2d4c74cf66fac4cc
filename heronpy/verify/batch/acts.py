"""Faults of a batch run, in each of its two stages."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from functools import wraps

import psutil

from heronpy.batch.topology import KEEPER, WORKER
from heronpy.loadtest.errors import LabError
from heronpy.verify import acts
from heronpy.verify.acts import Act, repeated
from heronpy.verify.batch.topology import PARSE, SLOW
from heronpy.verify.batch.world import BatchWorld
from heronpy.verify.damage import empty, fill
from heronpy.verify.world import BACK_S, END_S, World

#: Number of kills in a series, and seconds between two kills.
KILLS, KILLS_FULL, KILL_EVERY_S = 5, 60, 2.0
FULL_S = 4.0
#: Seconds for which the state manager is unreachable.
AWAY_S, AWAY_FULL_S = 3.0, 60.0


def in_each_stage(act: Act) -> Act:
    """Return an act that performs `act` during the first stage and during the second stage."""

    @wraps(act)
    def both(batch: BatchWorld, runs: int) -> None:
        act(batch, runs)
        batch.to_next_stage()
        act(batch, runs)

    return both


kill_worker, kill_keeper = in_each_stage(acts.kill_task(WORKER)), in_each_stage(acts.kill_task(KEEPER))
stop_worker, stop_keeper = in_each_stage(acts.stop(WORKER)), in_each_stage(acts.stop(KEEPER))
kill_executor, kill_tmaster = in_each_stage(acts.kill_executor), in_each_stage(acts.kill_tmaster)
monkey = in_each_stage(acts.monkey)


@in_each_stage
def kills(world: World, runs: int) -> None:
    """Kill (-9) a worker every 2 s, even if the previous victim has not been restarted yet."""
    for _ in range(runs * (KILLS if world.short else KILLS_FULL)):
        with suppress(LabError):  # the process has ended, or has not begun
            world.kill(world.random.choice(world.tasks(WORKER)), wait=False)
        world.wait(0.3 * KILL_EVERY_S if world.short else KILL_EVERY_S)


@in_each_stage
@repeated
def kill_scheduler(world: World, number: int) -> None:
    """Kill (-9) the scheduler; its guardian starts another scheduler, which restarts all containers."""
    victim, fault = world.topology.scheduler(), world.note("kill -9 the scheduler")
    victim.kill()

    def is_back() -> bool:
        with suppress(LabError, psutil.Error):
            return world.topology.scheduler().pid != victim.pid
        return False

    world.until(is_back, BACK_S, "another scheduler")
    fault.back_s = time.monotonic() - fault.at


@in_each_stage
@repeated
def preempt(world: World, number: int) -> None:
    """Send SIGTERM to a worker, as an engine does when it preempts a container."""
    victim = world.random.choice(world.tasks(WORKER))
    fault = world.note(f"SIGTERM to {victim.name}")
    world.process(victim).terminate()
    world.back(victim, fault)


@in_each_stage
def no_space(batch: BatchWorld, runs: int) -> None:
    """Fill the disk of the run, and free it again; if the run has failed, repeat its command."""
    batch.may_charge = True
    for _ in range(runs):
        batch.may_fail = True
        fill(batch, "no space for the run")
        batch.wait(FULL_S)
        empty(batch)
        batch.go_on()
        batch.may_fail = False


def poison(batch: BatchWorld, runs: int) -> None:
    """Check that each bad line fails the run and is named as the cause; repair the line, and repeat the command."""
    batch.may_charge = batch.may_fail = True
    (batch.out / SLOW / PARSE).unlink(missing_ok=True)
    while batch.bad:
        batch.until(batch.has_failed, END_S, "the failure of the run at a line")
        batch.mend_line()
        batch.repeat()
    batch.may_fail = False


@in_each_stage
@repeated
def state_away(world: World, number: int) -> None:
    """Make the state manager unreadable for a while by replacing its folder with a file."""
    state = world.topology.cluster.home / "state"
    away = state.with_name("state-away")
    world.note("the state manager is unavailable")
    os.rename(state, away)
    try:
        state.touch()
        world.wait(AWAY_S if world.short else AWAY_FULL_S)
    finally:
        state.unlink(missing_ok=True)
        os.rename(away, state)
