"""Outages of a site of a pipeline on two sites, and of the server of its ledger (U22, U23, F28)."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from heronpy.common.folders import make_folders
from heronpy.verify.acts import repeat
from heronpy.verify.errors import VerifyError
from heronpy.verify.units.points import HOLD, Points, Taken
from heronpy.verify.units.topology import PIPELINE
from heronpy.verify.units.world import SECOND, UnitWorld, units_of
from heronpy.verify.world import BACK_S, Fault, World

#: Until a unit of a site that is slow goes to others: ten leases, of 5 s at least.
PARTIAL_S = 180.0
AWAY_S, AWAY_FULL_S = 12.0, 60.0


def site_down(world: World, runs: int) -> None:
    """A whole site is killed while it has a unit, and a user says so: the unit goes to the other site at once."""
    units = units_of(world)

    def once(number: int) -> None:
        taken, fault = _stopped_with_a_unit(units), units.note(f"kill -9 the whole site {SECOND}")
        for process in _tree(units):
            with suppress(psutil.NoSuchProcess):
                process.kill()
        units.heron("units", "site", PIPELINE, SECOND, "down", "--ledger", units.ledger)
        _taken_over(units, taken, fault)
        again(units)

    repeat(world, runs, once)


def site_silent(world: World, runs: int) -> None:
    """All processes of a site stop, and nobody says so: the other site finds out, and who wakes up is too late."""
    units = units_of(world)

    def once(number: int) -> None:
        taken, fault = _stopped_with_a_unit(units), units.note(f"SIGSTOP the whole site {SECOND}")
        processes = _tree(units)
        try:
            for process in processes:
                with suppress(psutil.NoSuchProcess):
                    process.suspend()
            _taken_over(units, taken, fault)
        finally:
            for process in reversed(processes):
                with suppress(psutil.NoSuchProcess):
                    process.resume()
        units.proceed(taken.pid)

    repeat(world, runs, once)


def site_partly_away(world: World, runs: int) -> None:
    """User code on a site hangs, so that its backups do, too: after ten leases the unit goes to the other site."""
    units = units_of(world)

    def once(number: int) -> None:
        with _held(units.second_points) as hold:
            [unit] = units.until(lambda: _leased(units), 2 * BACK_S, f"a unit of the site {SECOND}")
            fault = units.note(f"user code on the site {SECOND} hangs with unit {unit[0]}")
            _taken_over(units, Taken(0, *unit), fault, PARTIAL_S)
            hold.unlink()

    repeat(world, runs, once)


def server_away(world: World, runs: int) -> None:
    """PostgreSQL ends as in a crash, and is started again: workers and keepers wait, and go on."""
    units = units_of(world)
    server = units.server
    if server is None:
        raise VerifyError("this fault needs a ledger in PostgreSQL")

    def once(number: int) -> None:
        server.stop()
        fault = units.note("PostgreSQL is away")
        units.wait(AWAY_S if units.short else AWAY_FULL_S)
        server.start()
        arrived = units.arrived()
        units.until(lambda: units.arrived() > arrived, BACK_S, "rows after PostgreSQL is back")
        fault.back_s = time.monotonic() - fault.at

    repeat(world, runs, once)


def _stopped_with_a_unit(units: UnitWorld) -> Taken:
    """A worker of the second site stops before the record of its unit."""
    points = units.second_points
    points.arm("record", signal.SIGSTOP)
    return units.at_point("record", points)


def _taken_over(units: UnitWorld, taken: Taken, fault: Fault, timeout_s: float = 2 * BACK_S) -> None:
    winner = units.attempt_of(taken.unit, timeout_s)
    fault.back_s = time.monotonic() - fault.at
    if winner <= taken.attempt:
        raise VerifyError(f"unit {taken.unit} was published by attempt {winner} of the site that was away")


def again(units: UnitWorld) -> None:
    """The site is submitted once more, and takes units again."""
    second, cluster = units.second, units.topology.cluster
    assert second is not None
    second.disconnect()
    units.heron("kill", cluster.target, second.name)
    units.heron("submit", cluster.target, second.out / "topology.py", "-", "--spec", second.out / "spec")
    units.heron("units", "site", PIPELINE, SECOND, "up", "--ledger", units.ledger)
    units.until(lambda: _site(units)["workers"] and _site(units)["state"] == "up", 2 * BACK_S, f"the site {SECOND}")


def _site(units: UnitWorld) -> dict[str, object]:
    return next(one for one in units.figures()["sites"] if one["name"] == SECOND)


def _leased(units: UnitWorld) -> list[tuple[int, int]]:
    """One unit that a worker of the second site has, with its attempt."""
    live = units.figures()["live"]
    found = [(one["unit"], one["attempt"]) for one in live if one["state"] == "leased" and one["site"] == SECOND]
    return found[:1]


@contextmanager
def _held(points: Points) -> Iterator[Path]:
    """Rows of the second site wait while the file is there."""
    hold = points.folder / HOLD
    make_folders(hold.parent)
    hold.touch()
    try:
        yield hold
    finally:
        hold.unlink(missing_ok=True)


def _tree(units: UnitWorld) -> list[psutil.Process]:
    """All processes of the second site, the guardian of its scheduler first."""
    assert units.second is not None
    scheduler = units.second.scheduler()
    guardian = scheduler.parent()
    if guardian is None:
        raise VerifyError(f"the scheduler of {units.second.name} has no guardian")
    return [guardian, *guardian.children(recursive=True)]
