"""What is done to a pipeline of work units: ends at chosen steps, stragglers, lost ledgers, full disks, clocks."""

from __future__ import annotations

import json
import shutil
import signal
import sqlite3
import time
from contextlib import closing
from functools import partial
from pathlib import Path

from heronpy.loadtest.cluster import submitted
from heronpy.proto import control_pb2
from heronpy.verify.acts import Act, repeat
from heronpy.verify.errors import VerifyError
from heronpy.verify.units.points import set_clock
from heronpy.verify.units.topology import PIPELINE
from heronpy.verify.units.world import UnitWorld, units_of
from heronpy.verify.verbs import other_name
from heronpy.verify.world import BACK_S, World

WORKER, KEEPER = f"{PIPELINE}-worker", f"{PIPELINE}-keeper"
#: Longer than the shortest lease, so that a backup wins.
STOPPED_S = 8.0
#: Longer than a transaction waits for others.
AWAY_S, AWAY_FULL_S = 12.0, 60.0
FULL_S = 4.0
#: Rows between two faults.
ROWS = 200
JUMPS_S = (-3_600.0, 86_400.0, 0.0)


def nothing(world: World, runs: int) -> None:
    """Logs rotate, and no process is touched."""


def ends_at(point: str) -> Act:
    """kill -9 and then SIGSTOP, SIGCONT of whoever comes to a step next."""

    def act(world: World, runs: int) -> None:
        units = units_of(world)

        def once(number: int) -> None:
            for how in (signal.SIGKILL, signal.SIGSTOP):
                _ends_at(units, point, how)
                units.until_arrived(ROWS)

        repeat(world, runs, once)

    return act


def _ends_at(world: UnitWorld, point: str, how: signal.Signals) -> None:
    if point == "clean":
        # A worker dies with a finished stage, which loses against the one of another attempt.
        world.points.arm("record", signal.SIGKILL)
        world.attempt_of(world.at_point("record").unit)
    world.points.arm(point, how)
    if point == "clean":
        # A keeper that starts removes what nobody needs.
        world.kill(world.random.choice(world.tasks(KEEPER)), wait=False)
    taken = world.at_point(point)
    world.note(f"{how.name} at '{point}'")
    if how is signal.SIGSTOP:
        try:
            world.wait(STOPPED_S)
        finally:
            world.proceed(taken.pid)


def straggler(world: World, runs: int) -> None:
    """A worker stops with a unit: when its lease is over another attempt wins, and the late one does not count."""
    units = units_of(world)

    def once(number: int) -> None:
        units.points.arm("record", signal.SIGSTOP)
        taken = units.at_point("record")
        fault = units.note(f"a worker stops with unit {taken.unit}")
        try:
            winner = units.attempt_of(taken.unit)
            fault.back_s = time.monotonic() - fault.at
        finally:
            units.proceed(taken.pid)
        if winner <= taken.attempt:
            raise VerifyError(f"unit {taken.unit} was published by attempt {winner}, which was stopped")

    repeat(world, runs, once)


def _has_bad_ranges(units: UnitWorld, count: int) -> bool:
    return int(units.figures()["bad_ranges"]) >= count


def poison(world: World, runs: int) -> None:
    """Lines that raise, or kill their process: the ledger ends with exactly these ranges bad."""
    units = units_of(world)
    units.note("lines that cannot be processed", disruptive=False)

    for _ in range(runs):
        wanted = units.figures()["bad_ranges"] + 2
        units.until(partial(_has_bad_ranges, units, wanted), 2 * BACK_S, "bad ranges")
    units.notes["bad_ranges"] = units.figures()["bad_ranges"]


def lose_the_ledger(world: World, runs: int) -> None:
    """Ledger and one published unit are removed; rebuilt from the table, the pipeline goes on."""
    units = units_of(world)

    def once(number: int) -> None:
        began = time.monotonic()
        _kill(units)
        units.note("the ledger and a published unit are lost")
        for path in units.ledger_file.parent.glob(f"{units.ledger_file.name}*"):
            path.unlink()
        # The newest: the logs still have its lines.
        shutil.rmtree(units.published()[-1])
        said = units.heron("units", "rebuild", PIPELINE, "--from", units.table, "--ledger", units.ledger)
        if "to process again" not in said:
            raise VerifyError(f"a rebuild does not say what is processed again: {said}")
        _submit(units)
        units.down_s = max(units.down_s, time.monotonic() - began)

    repeat(world, runs, once)


def _kill(units: UnitWorld) -> None:
    units.topology.disconnect()
    units.heron("kill", units.topology.cluster.target, units.topology.name)


def _submit(units: UnitWorld) -> None:
    program = units.out / "topology.py"
    units.heron("submit", units.topology.cluster.target, program, "-", "--spec", units.out / "spec")


def another_ledger(world: World, runs: int) -> None:
    """The same program with a ledger of its own, as from another home: refused by its submit, or by its keepers."""
    units = units_of(world)
    cluster, program = units.topology.cluster, Path(__file__).with_name("topology.py")
    spec = json.loads((units.out / "spec").read_text(encoding="utf-8"))

    def once(number: int) -> None:
        ledger, out = units.ledger_file.with_name(f"other-{number}.db"), units.out / f"other-{number}"
        own = spec | {"name": other_name(units), "out": str(out), "ledger": f"sqlite:{ledger}"}
        units.note("the same program with another ledger", disruptive=False)
        with closing(sqlite3.connect(ledger, isolation_level=None)) as connection:
            ledger.chmod(0o600)
            # What nobody can look at is refused by keepers only.
            connection.execute("BEGIN EXCLUSIVE")
            with submitted(cluster, program, own) as topology:
                connection.execute("ROLLBACK")

                def cause() -> str:
                    status = topology.status()
                    is_failed = status is not None and status.lifecycle == control_pb2.LIFE_FAILED
                    return status.cause if is_failed and status is not None else ""

                said = units.until(cause, 2 * BACK_S, "the failure of the topology with another ledger")
        words = ("submit", cluster.target, out / "topology.py", "-", "--spec", out / "spec")
        for one in (said, units.refused(*words)):
            if "belongs to another ledger" not in one:
                raise VerifyError(f"a second ledger was refused for another reason: {one}")

    repeat(world, runs, once)


def bounded_runs(world: World, runs: int) -> None:
    """Each run ends beside logs that grow, with all that it has sealed; the last one, after the logs, has the rest."""
    units = units_of(world)

    def finished() -> bool:
        status = units.topology.status()
        return status is not None and status.lifecycle == control_pb2.LIFE_FINISHED

    for number in range(runs + 1):
        units.until(finished, 2 * BACK_S, "the end of a bounded run")
        began = time.monotonic()
        units.note("a bounded run has ended", disruptive=False)
        found = units.figures()
        if found["waiting_bytes"] or any(count for count, _ in found["units"].values()):
            raise VerifyError("a bounded run has ended before all that it had sealed was published")
        if number == runs:
            units.end_input()
        _kill(units)
        _submit(units)
        units.down_s = max(units.down_s, time.monotonic() - began)
    units.until(finished, 2 * BACK_S, "the end of the last run")


def ledger_away(world: World, runs: int) -> None:
    """Nobody can write the ledger for a while; workers and keepers wait, and go on."""
    units = units_of(world)

    def once(number: int) -> None:
        with closing(sqlite3.connect(units.ledger_file, timeout=BACK_S, isolation_level=None)) as connection:
            connection.execute("BEGIN EXCLUSIVE")
            fault = units.note("the ledger is away")
            units.wait(AWAY_S if units.short else AWAY_FULL_S)
            connection.execute("ROLLBACK")
        arrived = units.arrived()
        units.until(lambda: units.arrived() > arrived, BACK_S, "rows after the ledger is back")
        fault.back_s = time.monotonic() - fault.at

    repeat(world, runs, once)


def no_space(world: World, runs: int) -> None:
    """The disk of the table or of the ledger is full, and has space again."""
    units = units_of(world)
    disk = units.disk
    if disk is None:
        raise VerifyError("this fault needs a small disk below the home of its run")

    def once(number: int) -> None:
        disk.fill()
        units.note("no space", disruptive=False)
        units.wait(FULL_S)
        disk.empty()
        units.note("there is space again", disruptive=False)

    repeat(world, runs, once)


def wrong_clocks(world: World, runs: int) -> None:
    """The wall clocks of containers jump back and ahead, and differ."""
    units = units_of(world)
    containers = units.containers()

    def once(number: int) -> None:
        for jump_s in JUMPS_S:
            for container in containers:
                own_s = jump_s * (container % 2 or -0.5)
                set_clock(units.out / "points", container, own_s)
            units.note(f"wall clocks jump by {jump_s:+g} s", disruptive=False)
            units.until_arrived(ROWS)

    repeat(world, runs, once)
