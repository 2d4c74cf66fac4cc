"""Workers and keepers are killed: how soon the unit is leased again, and rows are published again.

In front of a worker's kill a line is written at which the first attempt at a unit halts, so it is killed while it has
one. In front of a keeper's nothing waits: a line is appended right after the kill, and looked for in the table.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from heronpy.loadtest.checks import Check
from heronpy.loadtest.cluster import Cluster, LoadTestError, Topology
from heronpy.loadtest.run import Say
from heronpy.loadtest.topologies.log_units import HALT
from heronpy.loadtest.unit_lines import Began
from heronpy.loadtest.units import judge
from heronpy.loadtest.units.pipeline import NAME, Pipeline
from heronpy.loadtest.units.plan import Sizes

#: A kill, and the return of the process, take about so long.
KILL_S = 2.5
#: How long a unit halts, which is longer than anybody waits for its next attempt; and how soon a unit is cut.
HALT_S, UNIT_WAIT_S = 120.0, 0.2
PATIENCE_S = 60.0


def recovery(where: Cluster, sizes: Sizes, number: int, say: Say) -> tuple[dict[str, float], list[Check]]:
    """The figures of one run."""
    made = Pipeline(where, f"recovery-{number}")
    kills = max(2, int(sizes.seconds / KILL_S))
    log = made.log("clicks")
    lines = 0

    def append(word: str) -> int:
        """One more line; how many there are."""
        nonlocal lines
        _append(log, f"{lines} {word}\n")
        lines += 1
        return lines

    workers: list[float] = []
    keepers: list[float] = []
    with made.running("halt", halt_s=HALT_S, unit_wait_s=UNIT_WAIT_S) as topology:
        # Both workers and both keepers have started when a first unit is visible and all tasks have a process.
        _visible(made, topology, append("first"))
        for _ in range(kills):
            count = append(HALT)
            halted = _attempt(made, topology, lambda one: one.attempt == 1 and one.unit not in made.visible_ns())
            began = _kill(halted.pid)
            again = _attempt(made, topology, _is_next_of(halted))
            workers.append((again.at_ns - began) / 1e9)
            _visible(made, topology, count)
        for kill in range(kills):
            before = set(made.seen)
            began = _kill(_keeper(made, topology, kill))
            _visible(made, topology, append("after"))
            keepers.append((min(made.seen[name] for name in made.seen.keys() - before) - began) / 1e9)
    rows = [int(line.split(" ", 1)[0]) for _, text in made.texts() for line in text.splitlines()]
    values = {
        "recovery_worker_p50_s": judge.share(workers, 50),
        "recovery_worker_max_s": max(workers),
        "recovery_keeper_p50_s": judge.share(keepers, 50),
        "recovery_keeper_max_s": max(keepers),
    }
    say(
        f"recovery: {kills} kills each: a unit leased again after {values['recovery_worker_p50_s']:.2f} s, longest"
        f" {max(workers):.2f} s; rows published after {values['recovery_keeper_p50_s']:.2f} s, longest"
        f" {max(keepers):.2f} s"
    )
    return values, [judge.rows_check("recovery", judge.wrong_numbers(rows, lines), lines)]


def _append(log: Path, line: str) -> None:
    with open(log, "a", encoding="ascii") as out:
        out.write(line)


def _visible(made: Pipeline, topology: Topology, count: int) -> None:
    made.until(lambda: made.rows() >= count, PATIENCE_S, f"{count} rows being visible", topology)


def _attempt(made: Pipeline, topology: Topology, is_meant: Callable[[Began], bool]) -> Began:
    """The first attempt of which this holds, once there is one."""
    found: list[Began] = []

    def is_there() -> bool:
        found[:] = filter(is_meant, made.attempts())
        return bool(found)

    made.until(is_there, PATIENCE_S, "an attempt at a unit", topology)
    return found[0]


def _is_next_of(ended: Began) -> Callable[[Began], bool]:
    return lambda one: one.unit == ended.unit and one.attempt > ended.attempt


def _keeper(made: Pipeline, topology: Topology, turn: int) -> int:
    """The process of one keeper after the other, when all of them have one."""
    pids: list[int] = []

    def are_there() -> bool:
        status = topology.status()
        tasks = [task for task in status.tasks if task.component == f"{NAME}-keeper"] if status is not None else []
        pids[:] = [task.pid for task in sorted(tasks, key=lambda task: task.task_id) if _lives(task.pid)]
        return bool(pids) and len(pids) == len(tasks)

    made.until(are_there, PATIENCE_S, "all keepers being there", topology)
    return pids[turn % len(pids)]


def _lives(pid: int) -> bool:
    return pid > 0 and os.path.exists(f"/proc/{pid}")


def _kill(pid: int) -> int:
    """kill -9; the time of it (monotonic ns)."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        raise LoadTestError(f"process {pid} was to be killed, and had ended before") from None
    return time.monotonic_ns()
