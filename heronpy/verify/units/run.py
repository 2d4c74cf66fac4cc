"""One verification of work units: logs that rotate, a topology that reads them, a fault, and the verdict."""

from __future__ import annotations

import shutil
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heronpy.common.folders import make_folders
from heronpy.loadtest.checks import Check
from heronpy.loadtest.cluster import submitted
from heronpy.verify.acts import Act
from heronpy.verify.errors import VerifyError
from heronpy.verify.oracle import Verdict
from heronpy.verify.recovery import longest_gap
from heronpy.verify.units.judge import TableVerdict, judge
from heronpy.verify.units.logs import RotatedLogs, Writer
from heronpy.verify.units.server import PostgresServer
from heronpy.verify.units.world import FIRST, SECOND, UnitWorld
from heronpy.verify.world import BACK_S

#: Folders of the home, so that a small disk can be below one.
LEDGERS, TABLES = "ledger", "tables"


@dataclass(frozen=True, slots=True)
class Pipeline:
    """What a run needs of its options."""

    logs: int = 2
    lines_per_s: float = 1000.0
    #: Of each log.
    rotations_per_s: float = 0.5
    #: See `logs.line_of`.
    poison: int = 0
    #: User code reads all lines of a unit before it makes a row.
    whole: bool = False
    unit_bytes: int = 32_768
    unit_wait_s: float = 0.5
    #: On two sites; and with the ledger in a server of PostgreSQL.
    sites: bool = False
    server: bool = False
    #: "now": what there is at the start is all that a run processes.
    until: str = "forever"
    baseline_s: float = 3.0
    duration_s: float = 10.0


def play(world: UnitWorld, spec: dict[str, Any], wanted: Pipeline, act: Act, stack: ExitStack) -> str:
    """Submit, do the fault, let all come to its end; what was wrong with the fault itself, or ''."""
    home, name = world.topology.cluster.home, world.topology.name
    make_folders(world.out)
    world.logs, world.table = world.out / "logs", home / TABLES / name
    world.ledger = f"sqlite:{home / LEDGERS / f'{name}.db'}"
    if wanted.server:
        world.server = PostgresServer()
        stack.callback(world.server.close)
        world.ledger = world.server.url
    world.logs.mkdir()
    stack.callback(shutil.rmtree, world.table, ignore_errors=True)
    logs = RotatedLogs(world.logs, world.input.seed, [f"app-{n}.log" for n in range(wanted.logs)], wanted.poison)
    # On several sites files keep their names.
    world.writer = Writer(logs, wanted.lines_per_s, 0.0 if wanted.sites else wanted.rotations_per_s)
    stack.callback(world.end_input)
    spec |= {
        "logs": f"{world.logs}/app-*.log*", "table": str(world.table), "ledger": world.ledger,
        "points": str(world.out / "points"), "unit_bytes": wanted.unit_bytes, "unit_wait_s": wanted.unit_wait_s,
        "site": FIRST if wanted.sites else "", "whole": wanted.whole, "until": wanted.until,
    }  # fmt: skip
    world.writer.start()
    world.topology = stack.enter_context(
        submitted(world.topology.cluster, Path(__file__).with_name("topology.py"), spec)
    )
    if wanted.sites:
        own = {"name": f"{name}-{SECOND}", "out": str(world.out / SECOND), "site": SECOND}
        points = {"points": str(world.second_points.folder)}
        program = Path(__file__).with_name("topology.py")
        world.second = stack.enter_context(submitted(world.topology.cluster, program, spec | own | points))
    return play_faults(world, wanted, act, spec["faults"])


def play_faults(world: UnitWorld, wanted: Pipeline, act: Act, faults: int) -> str:
    """Do the faults, end the logs, let all lines come to the table; what was wrong with faults or end, or ''."""
    error = ""
    try:
        world.until(lambda: world.arrived() > 0, 2 * BACK_S, "the first rows")
        began = time.monotonic()
        world.wait(wanted.baseline_s)
        act(world, faults)
        world.wait(began + wanted.duration_s - time.monotonic())
    except VerifyError as failure:
        error = str(failure)
    world.end_input()
    try:
        # Also after a fault that went wrong: what is still under way is not lost.
        world.settled()
        world.complete = True
    except VerifyError as failure:
        error = error or str(failure)
    return error


def verdict_of(world: UnitWorld, memory_max_bytes: int, stall_max_s: float) -> Verdict:
    """The verdict of the judge, in the terms of the other verifications: a key is a unit."""
    world.end_input()
    assert world.written is not None
    found = judge(world.table, world.written)
    verdict = Verdict(world.mode, found.expected, world.complete, memory=world.memory)
    verdict.arrived, verdict.loss, verdict.duplicates = found.arrived, len(found.missing), len(found.doubled)
    verdict.unexplained, verdict.foreign = len(found.doubled), len(found.foreign) + len(found.innocent)
    verdict.keys, verdict.wrong_keys = found.units, len(found.wrong_units)
    verdict.stall_s = _stall_s(world)
    verdict.checks = _checks(found, world.differences(), world.complete)
    verdict.checks.append(
        Check(
            "liveness",
            verdict.stall_s <= stall_max_s + world.down_s,
            f"longest time without a new unit {verdict.stall_s:.2f} s",
        )
    )
    if memory_max_bytes:
        text = f"{verdict.memory_max / 2**20:,.0f} MB in the largest process"
        verdict.checks.append(Check("memory", verdict.memory_max <= memory_max_bytes, text))
    world.notes |= {"bad": found.bad, "thrown_lines": found.thrown, "thrown_and_missed": found.thrown_missing}
    return verdict


def _checks(found: TableVerdict, differences: list[str], complete: bool) -> list[Check]:
    def named(what: str, lines: list[str]) -> str:
        return f"{len(lines):,} {what}" + (f", such as {lines[0]}" if lines else "")

    strange = found.foreign + found.innocent
    absent = "lines lost" if complete else "lines had not come when the run was given up"
    return [
        Check("input", not strange, named("rows of no line, or bad ranges that are no poison", strange)),
        Check("loss", not found.missing, f"{named(absent, found.missing)}, of {found.expected:,}"),
        Check("duplicates", not found.doubled, named("lines twice in the table", found.doubled)),
        Check("lineage", not found.wrong_units, named(f"of {found.units:,} units are wrong", found.wrong_units)),
        Check("agreement", not differences, named("differences of table, ledger and bytes", differences)),
    ]


def _stall_s(world: UnitWorld) -> float:
    """The longest time between two publications."""
    import numpy as np

    return longest_gap(np.array([path.stat().st_mtime for path in world.published()]))
