"""Work units under faults, with a judge that reads only table and lineage (U15, U21, U29, U31, F01 to F28)."""

from __future__ import annotations

from collections import Counter

import pytest

from heronpy.verify.units.server import why_not
from tests.fault.conftest import Verify

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(300)]

MODE = "ATMOST_ONCE"


@pytest.mark.timeout(600)
def test_processes_that_end_at_each_step(verify: Verify) -> None:
    """U15: kill -9, then SIGSTOP for longer than a lease, of whoever comes to the step; the simulation repeats it."""
    steps = ("stage", "prepare", "record", "publish", "settle", "clean")
    [document] = verify(MODE, *(f"U15-{step}" for step in steps), together=True, timeout_s=560)
    found = Counter(fault["what"] for fault in document["faults"])
    assert all(found[f"{signal} at '{step}'"] == 1 for step in steps for signal in ("SIGKILL", "SIGSTOP"))


@pytest.mark.timeout(600)
def test_kills_and_stops_while_logs_rotate(verify: Verify) -> None:
    """F01, F04, F08, F10; U21: a backup wins when the lease of a worker that stops is over, and the late one is in
    vain."""
    faults = ("U21", "F01-worker", "F01-keeper", "F04-units", "F08-units", "F10-worker", "F10-keeper")
    [document] = verify(MODE, *faults, together=True, timeout_s=560)
    assert document["restart_p99_s"] is not None
    assert document["faults"][0]["back_s"] is not None


@pytest.mark.timeout(600)
def test_bad_lines_are_the_only_ones_that_are_bad(verify: Verify) -> None:
    """U29: lines that raise, and lines that kill, one by one or among all lines of a unit; the judge knows which."""
    found = verify(MODE, "U29", timeout_s=560)
    assert [one["fault"] for one in found] == ["U29", "U29-whole"]
    assert all(one["notes"]["bad"] > 1 for one in found)


def test_a_ledger_that_is_lost_or_away(verify: Verify) -> None:
    """U31: rebuilt from the table, in which one unit is missing; F28: nobody can write it for longer than they wait."""
    [_] = verify(MODE, "U31", "F28-units", together=True)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("fault", ["U35", "U36"])
def test_another_ledger_and_bounded_runs(verify: Verify, fault: str) -> None:
    """U35: its topology fails, and its submit is refused; U36: each ends, and the last one has all lines."""
    verify(MODE, fault, timeout_s=560)


@pytest.mark.timeout(600)
def test_full_disks_and_wrong_clocks(verify: Verify) -> None:
    """F21, F27; each full disk has a run of its own."""
    found = verify(MODE, "F21-table", "F27-units", "F21-ledger", together=True, timeout_s=560)
    assert [one["fault"] for one in found] == ["F21-table+F27-units", "F21-ledger"]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("fault", ["U22", "U23"])
def test_a_site_that_is_away_loses_its_units_to_the_other(verify: Verify, fault: str) -> None:
    """U22: the whole site, said by a user or found out; U23: a part of it, after ten leases."""
    found = verify(MODE, fault, timeout_s=560)
    assert [one["fault"] for one in found] == (["U22", "U22-silent"] if fault == "U22" else [fault])
    assert all(one["faults"][0]["back_s"] is not None for one in found)


def test_postgres_that_is_away(verify: Verify) -> None:
    """F28: it crashes, and is back later."""
    if why_not():
        pytest.skip(why_not())
    verify(MODE, "F28-postgres")
