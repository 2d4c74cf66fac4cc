"""Faults of a pipeline of work units: processes that end at selected steps, stragglers, full disks, clocks, outages.

The outages affect the ledger, the ledger's server, and the second of two sites.
"""

from __future__ import annotations

import json
import shutil
import signal
import sqlite3
import time
from contextlib import closing, suppress
from functools import partial

import psutil

from heronpy.common.folders import make_folders
from heronpy.loadtest.cluster import submitted
from heronpy.loadtest.errors import LabError
from heronpy.proto import control_pb2
from heronpy.verify.acts import Act, repeated
from heronpy.verify.damage import empty, fill
from heronpy.verify.units.topology import HOLD, PIPELINE, Taken
from heronpy.verify.units.world import PROGRAM, SECOND, UnitWorld
from heronpy.verify.verbs import other_name
from heronpy.verify.world import BACK_S, Fault, World

WORKER, KEEPER = f"{PIPELINE}-worker", f"{PIPELINE}-keeper"
#: Longer than the shortest lease, so that a backup wins.
STOPPED_S = 8.0
#: Seconds until a unit of a slow site passes to other sites: ten leases of at least 5 s.
PARTIAL_S = 180.0
#: Seconds of an outage; longer than a transaction waits for other transactions.
AWAY_S, AWAY_FULL_S = 12.0, 60.0
FULL_S = 4.0
#: Rows between two faults.
ROWS = 200
JUMPS_S = (-3_600.0, 86_400.0, 0.0)


def ends_at(point: str) -> Act:
    """Return an act that kills (-9) the next process that reaches a step, then pauses the process after it."""

    @repeated
    def act(units: UnitWorld, number: int) -> None:
        for how in (signal.SIGKILL, signal.SIGSTOP):
            _ends_at(units, point, how)
            units.until_arrived(ROWS)

    return act


def _ends_at(world: UnitWorld, point: str, how: signal.Signals) -> None:
    if point == "clean":
        # A worker dies with a finished stage, which loses against the stage of another attempt.
        world.points.arm("record", signal.SIGKILL)
        world.attempt_of(world.at_point("record").unit)
    world.points.arm(point, how)
    if point == "clean":
        # A starting keeper removes unneeded files.
        world.kill(world.random.choice(world.tasks(KEEPER)), wait=False)
    taken = world.at_point(point)
    world.note(f"{how.name} at '{point}'")
    if how is signal.SIGSTOP:
        try:
            world.wait(STOPPED_S)
        finally:
            world.proceed(taken.pid)


@repeated
def straggler(units: UnitWorld, number: int) -> None:
    """Pause a worker that has a unit: after its lease ends, another attempt wins, and the late one does not count."""
    units.points.arm("record", signal.SIGSTOP)
    taken = units.at_point("record")
    fault = units.note(f"a worker is stopped with unit {taken.unit}")
    try:
        _taken_over(units, taken, fault)
    finally:
        units.proceed(taken.pid)


def _taken_over(units: UnitWorld, taken: Taken, fault: Fault, timeout_s: float = 2 * BACK_S) -> None:
    """Wait until another attempt at a unit wins."""
    winner = units.attempt_of(taken.unit, timeout_s)
    fault.back_s = time.monotonic() - fault.at
    if winner <= taken.attempt:
        raise LabError(f"unit {taken.unit} was published by attempt {winner}, not by a later attempt")


def poison(units: UnitWorld, runs: int) -> None:
    """Wait until the lines at which user code raises or ends its process are recorded as bad ranges in the ledger."""

    def has_bad_ranges(count: int) -> bool:
        return int(units.figures()["bad_ranges"]) >= count

    units.note("lines that cannot be processed", disruptive=False)
    for _ in range(runs):
        wanted = units.figures()["bad_ranges"] + 2
        units.until(partial(has_bad_ranges, wanted), 2 * BACK_S, "bad ranges")
    units.notes["bad_ranges"] = units.figures()["bad_ranges"]


@repeated
def lose_the_ledger(units: UnitWorld, number: int) -> None:
    """Remove the ledger and one published unit; after a rebuild from the table, the pipeline continues."""
    units.topology.disconnect()
    began = time.monotonic()
    units.heron("kill", *units.address)
    units.note("the ledger and a published unit are lost")
    for path in units.ledger_file.parent.glob(f"{units.ledger_file.name}*"):
        path.unlink()
    # Remove the newest unit, because the logs still have its lines.
    shutil.rmtree(units.published()[-1])
    said = units.heron("units", "rebuild", PIPELINE, "--from", units.table, "--ledger", units.ledger)
    if "to process again" not in said:
        raise LabError(f"the rebuild does not report the bytes to process again: {said}")
    units.heron(*units.submission(units.out))
    units.down_s = max(units.down_s, time.monotonic() - began)


@repeated
def another_ledger(units: UnitWorld, number: int) -> None:
    """Submit the same program with another ledger, as from another HERON_HOME: submit and keepers must refuse it."""
    cluster = units.topology.cluster
    spec = json.loads((units.out / "spec").read_text(encoding="utf-8"))
    ledger, out = units.ledger_file.with_name(f"other-{number}.db"), units.out / f"other-{number}"
    own = spec | {"name": other_name(units), "out": str(out), "ledger": f"sqlite:{ledger}"}
    units.note("the same program with another ledger", disruptive=False)
    with closing(sqlite3.connect(ledger, isolation_level=None)) as connection:
        ledger.chmod(0o600)
        # Only keepers refuse a ledger that cannot be read.
        connection.execute("BEGIN EXCLUSIVE")
        with submitted(cluster, PROGRAM, own) as topology:
            connection.execute("ROLLBACK")

            def cause() -> str:
                status = topology.status()
                is_failed = status is not None and status.lifecycle == control_pb2.LIFE_FAILED
                return status.cause if is_failed and status is not None else ""

            said = units.until(cause, 2 * BACK_S, "the failure of the topology with another ledger")
    for one in (said, units.refused(*units.submission(out))):
        if "belongs to another ledger" not in one:
            raise LabError(f"a second ledger was refused for another reason: {one}")


def bounded_runs(units: UnitWorld, runs: int) -> None:
    """Check that, while the logs grow, each run publishes all of its sealed bytes before it ends."""
    finished = partial(units.is_in, control_pb2.LIFE_FINISHED)
    for number in range(runs + 1):
        units.until(finished, 2 * BACK_S, "the end of a bounded run")
        began = time.monotonic()
        units.note("a bounded run has ended", disruptive=False)
        found = units.figures()
        if found["waiting_bytes"] or any(count for count, _ in found["units"].values()):
            raise LabError("a bounded run ended before it published all sealed bytes")
        if number == runs:
            units.end_input()
        units.topology.disconnect()
        units.heron("kill", *units.address)
        units.heron(*units.submission(units.out))
        units.down_s = max(units.down_s, time.monotonic() - began)
    units.until(finished, 2 * BACK_S, "the end of the last run")


@repeated
def no_space(world: World, number: int) -> None:
    """Fill the disk of the table or of the ledger, and free it again."""
    fill(world, "no space")
    world.wait(FULL_S)
    empty(world)


@repeated
def wrong_clocks(units: UnitWorld, number: int) -> None:
    """Make the wall clocks of containers differ and jump back and ahead."""
    containers = units.containers()
    for jump_s in JUMPS_S:
        for container in containers:
            units.points.set_clock(container, jump_s * (container % 2 or -0.5))
        units.note(f"wall clocks jump by {jump_s:+g} s", disruptive=False)
        units.until_arrived(ROWS)


@repeated
def ledger_away(units: UnitWorld, number: int) -> None:
    """Make the ledger unwritable for a while; workers and keepers wait, and then continue."""
    with closing(sqlite3.connect(units.ledger_file, timeout=BACK_S, isolation_level=None)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        fault = units.note("the ledger is locked")
        units.wait(AWAY_S if units.short else AWAY_FULL_S)
        connection.execute("ROLLBACK")
    _until_rows(units, fault)


@repeated
def server_away(units: UnitWorld, number: int) -> None:
    """Crash and restart PostgreSQL: workers and keepers wait, and then continue."""
    if units.server is None:
        raise LabError("this fault needs a ledger in PostgreSQL")
    units.server.stop()
    fault = units.note("PostgreSQL is stopped")
    units.wait(AWAY_S if units.short else AWAY_FULL_S)
    units.server.start()
    _until_rows(units, fault)


def _until_rows(units: UnitWorld, fault: Fault) -> None:
    arrived = units.arrived()
    units.until(lambda: units.arrived() > arrived, BACK_S, "rows after the ledger is available again")
    fault.back_s = time.monotonic() - fault.at


@repeated
def site_down(units: UnitWorld, number: int) -> None:
    """Kill a whole site that has a unit, and take the site down as a user would: the unit passes to the other site
    immediately.
    """
    taken, fault = _stopped_with_a_unit(units), units.note(f"kill -9 the whole site {SECOND}")
    for process in _tree(units):
        with suppress(psutil.NoSuchProcess):
            process.kill()
    units.heron("units", "site", PIPELINE, SECOND, "down", "--ledger", units.ledger)
    _taken_over(units, taken, fault)
    # Submit the site again; it must process units again.
    second = units.second
    assert second is not None
    second.disconnect()
    units.heron("kill", second.cluster.target, second.name)
    units.heron(*units.submission(second.out))
    units.heron("units", "site", PIPELINE, SECOND, "up", "--ledger", units.ledger)

    def is_up() -> bool:
        site = next(one for one in units.figures()["sites"] if one["name"] == SECOND)
        return bool(site["workers"]) and site["state"] == "up"

    units.until(is_up, 2 * BACK_S, f"the return of the site {SECOND}")


@repeated
def site_silent(units: UnitWorld, number: int) -> None:
    """Pause all processes of a site: the other site detects the silence, and the paused processes resume too late to
    win.
    """
    taken, fault = _stopped_with_a_unit(units), units.note(f"SIGSTOP the whole site {SECOND}")
    with units.stopped(_tree(units)):
        _taken_over(units, taken, fault)
    units.proceed(taken.pid)


@repeated
def site_partly_away(units: UnitWorld, number: int) -> None:
    """Make user code on a site hang, even in backups: after ten leases the unit passes to the other site."""

    def leased() -> list[tuple[int, int]]:
        live = units.figures()["live"]
        return [(one["unit"], one["attempt"]) for one in live if one["state"] == "leased" and one["site"] == SECOND]

    hold = units.second_points.folder / HOLD
    make_folders(hold.parent)
    hold.touch()
    try:
        unit, *_ = units.until(leased, 2 * BACK_S, f"a unit of the site {SECOND}")
        fault = units.note(f"user code on the site {SECOND} hangs with unit {unit[0]}")
        _taken_over(units, Taken(0, *unit), fault, PARTIAL_S)
    finally:
        hold.unlink()


def _stopped_with_a_unit(units: UnitWorld) -> Taken:
    """Pause a worker of the second site before it records its unit."""
    units.second_points.arm("record", signal.SIGSTOP)
    return units.at_point("record", units.second_points)


def _tree(units: UnitWorld) -> list[psutil.Process]:
    """Return all processes of the second site, beginning with the guardian of the scheduler."""
    assert units.second is not None
    guardian = units.second.guardian()
    return [guardian, *guardian.children(recursive=True)]
