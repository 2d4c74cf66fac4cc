"""Measures how long starts, restarts and kills take, and the cost of idle tasks.

A start or restart ends with the first tuple: each incarnation of the sink records the monotonic time
of its first tuple from each incarnation of the spout.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from heronpy.loadtest.checks import Check
from heronpy.loadtest.cluster import Cluster, Topology, submitted
from heronpy.loadtest.processes import STMGRS, Tree
from heronpy.loadtest.profiles import Load
from heronpy.loadtest.run import Say, repeated, run_of
from heronpy.proto import control_pb2

PROGRAM = Path(__file__).with_name("topologies") / "startup.py"
FIRST_S = 30.0
#: Seconds between start and measuring idle CPU, because spouts that emit nothing are polled more often at first.
SETTLE_S = 27.0
IDLE_S = 20.0
#: Default number of tasks per container.
PER_CONTAINER = 50


def run_startup(where: Cluster, tasks: int, containers: int | None, repeat: int, say: Say) -> dict[str, Any]:
    """Measure the start, restarts and kill of a topology, and the cost of idle tasks; return the result document."""
    containers = containers or max(1, -(-tasks // PER_CONTAINER))

    def once(number: int, begin: str) -> dict[str, Any]:
        values, checks = _quick(where, number)
        idle, idle_checks = _idle(where, tasks, containers, number)
        say(
            f"{begin}first tuple after {values['first_tuple_s']:.2f} s,"
            f" {tasks} idle tasks use {idle['idle_cpu_percent']:.2f} % of a core"
            f" and wake up {idle['idle_wakeups_per_s']:.0f} times a second"
        )
        return run_of({**values, **idle}, [*checks, *idle_checks])

    return repeated(
        once,
        repeat,
        profile="startup",
        about=f"starting, restarting and killing 2 tasks; {tasks} idle tasks in {containers} containers",
        unit="tuples",
        options={"tasks": tasks, "containers": containers},
    )


def spec_of(name: str, out: Path, tasks: int, containers: int, beat: bool) -> dict[str, Any]:
    load = Load(name, "", "startup", containers=containers, max_spout_pending=100, message_timeout_s=30)
    return {**load.spec(name, str(out)), "parameters": {"tasks": tasks, "beat": beat}}


def _quick(where: Cluster, number: int) -> tuple[dict[str, float], list[Check]]:
    """Measure the start, restarts and kill of a topology with two tasks."""
    out = where.scratch / f"startup-{number}"
    began = time.monotonic()
    with submitted(where, PROGRAM, spec_of(f"load-startup-{number}", out, 2, 1, beat=True)) as topology:
        submit_s = time.monotonic() - began
        first_at = _first(topology, lambda name: True)
        restarts = {what: _restart(topology, what) for what in ("sink", "beat")}
        kill_s = topology.kill()
    values = {
        "submit_s": submit_s,
        "first_tuple_s": first_at - began,
        "restart_bolt_s": restarts["sink"],
        "restart_spout_s": restarts["beat"],
        "kill_s": kill_s,
    }
    return values, [Check("restarts", True, "tuples flow again after kill -9 of the bolt and of the spout")]


def _first(topology: Topology, wanted: Callable[[str], bool]) -> float:
    """Return the earliest arrival of a tuple whose file name is `wanted`. Raises LabError if no tuple arrives."""

    def arrived() -> float:
        paths = [path for path in topology.out.glob("first-*") if wanted(path.name)]
        return min((float(path.read_text(encoding="ascii")) for path in paths), default=0.0)

    return topology.until(arrived, FIRST_S, "a tuple at the sink")


def _restart(topology: Topology, component: str) -> float:
    """Kill one task; return the seconds until its next incarnation handles a tuple."""
    status = topology.ask(control_pb2.GetStatus())
    pid = next(task.pid for task in status.tasks if task.component == component)
    known = {path.name for path in topology.out.glob("first-*")}
    began = time.monotonic()
    psutil.Process(pid).kill()
    return _first(topology, lambda name: name not in known and str(pid) not in name.split("-")) - began


def _idle(where: Cluster, tasks: int, containers: int, number: int) -> tuple[dict[str, float], list[Check]]:
    out = where.scratch / f"idle-{number}"
    began = time.monotonic()
    with submitted(where, PROGRAM, spec_of(f"load-idle-{number}", out, tasks, containers, beat=False)) as topology:
        submit_s = time.monotonic() - began
        time.sleep(SETTLE_S)
        tree = Tree(topology.scheduler())
        tree.refresh()
        before, woken, before_at = tree.ran(), tree.switches(), time.monotonic()
        time.sleep(IDLE_S)
        after, woken, seconds = tree.ran(), tree.switches() - woken, time.monotonic() - before_at
        memory = tree.memory()
        descriptors = tree.descriptors()
        status = topology.ask(control_pb2.GetStatus())
        kill_s = topology.kill()
    own = [memory[role] for role in memory if role.startswith("task ")]
    count = sum(role["processes"] for role in own)
    used = sum(after.values()) - sum(before.values())
    up = sum(task.state == control_pb2.TASK_RUNNING for task in status.tasks)
    values = {
        "idle_submit_s": submit_s,
        "idle_cpu_percent": used / seconds * 100,
        "idle_wakeups_per_s": woken / seconds,
        "uss_per_task_bytes": sum(role["uss"] for role in own) / max(count, 1),
        "pss_per_task_bytes": sum(role["pss"] for role in own) / max(count, 1),
        "total_uss_bytes": float(sum(role["uss"] for role in memory.values())),
        "stmgr_uss_bytes": memory[STMGRS]["uss"] / memory[STMGRS]["processes"],
        "stmgr_descriptors": float(max(descriptors[STMGRS])),
        "total_descriptors": float(sum(map(sum, descriptors.values()))),
        "idle_kill_s": kill_s,
    }
    shares = ", ".join(
        f"{role} {(after[role] - before.get(role, 0.0)) / seconds * 100:.2f} %"
        for role in sorted(after)
        if after[role] > 0
    )
    return values, [
        Check("all tasks run", up == tasks and count == tasks, f"{up} of {tasks} tasks run"),
        Check("idle CPU by role", True, shares),
    ]
