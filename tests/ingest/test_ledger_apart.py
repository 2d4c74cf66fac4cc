"""When a line is tried apart from the others of its unit, and which units wait meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from heronpy.cli.look.units import check_pipeline
from heronpy.ingest.agreement import waiting_bytes
from heronpy.ingest.checking import Checked
from heronpy.ingest.ledger.requests import Again, Commit, Cut, Lease, Line, Published, Taken, TryFailed, Work
from heronpy.ingest.ledger.types import UnitState
from tests.ingest.ledger_steps import SMALL, fails_at, lease, see, units_of, world_of


def test_bytes_before_a_line_prove_nothing_as_long_as_no_row_was_made_of_them() -> None:
    """A unit begins inside a line, or its function takes many lines before it gives a row: while what it needs is away,
    it must not lose a line of each unit."""
    world = world_of()
    see(world, "a", 100)
    world.ask(world.keepers[0], Cut())
    answers = []
    for wait in (1.0, 5.0, 0.0):
        answers.append(fails_at(world, 40, rows=0))
        world.now += wait
    assert answers == [Again(1), Again(2), Taken((2, 3, 4))]


def test_lines_that_rest_between_their_tries_keep_nobody_from_cutting() -> None:
    world = world_of(replace(SMALL, ready_per_worker=1, bad_max=20))
    see(world, "a", 100)
    world.ask(world.keepers[0], Cut())
    for line in (20, 40, 60):
        work = lease(world)
        while not any(one.begin <= line < one.end for one in work.chunks):
            world.ask(world.workers[0], Commit(work.unit, work.attempt, 1, 1, 0.1))
            work = lease(world)
        world.ask(world.workers[0], TryFailed(work.unit, work.attempt, 1, "boo", Line(1, line, line + 10), 1))
    while isinstance(work := world.ask(world.workers[0], Lease()), Work):
        world.ask(world.workers[0], Commit(work.unit, work.attempt, 1, 1, 0.1))
    assert [unit.tries for unit in units_of(world) if unit.state is UnitState.READY] == [1, 1, 1]
    see(world, "b", 100)
    assert world.ask(world.keepers[0], Cut()).units
    # What rests as a whole does: its lines may all wait for the same thing.
    [fresh] = [unit for unit in units_of(world) if unit.state is UnitState.READY and not unit.tries]
    work = lease(world)
    assert work.unit == fresh.id
    world.ask(world.workers[0], TryFailed(work.unit, work.attempt, 1, "boo", Line(2, 0, 10)))
    see(world, "c", 100)
    world.ask(world.keepers[0], Cut())
    assert len([unit for unit in units_of(world) if unit.state is UnitState.READY and not unit.tries]) <= 1


def test_a_check_says_what_is_not_in_the_table_yet(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Nothing published agrees with an empty table, and is not all of the logs."""
    world = world_of(replace(SMALL, bad_max=20))
    see(world, "a", 100)
    world.ask(world.keepers[0], Cut())
    see(world, "b", 30)
    assert waiting_bytes(world.stores[0].snapshot("p")) == 130
    work = lease(world)
    world.ask(world.workers[0], Commit(work.unit, work.attempt, 1, 1, 0.1))
    assert waiting_bytes(world.stores[0].snapshot("p")) == 130
    world.ask(world.keepers[0], Published((work.unit,), 1))
    assert waiting_bytes(world.stores[0].snapshot("p")) == 30

    def said(waiting: int) -> str:
        def check(*_: Any) -> Checked:
            return Checked([], 2, 10, 100, 0, 0, 0, waiting)

        monkeypatch.setattr("heronpy.cli.look.units.check", check)
        check_pipeline("p", str(tmp_path), "sqlite:/x", as_json=False)
        return capsys.readouterr().out

    assert said(0) == "table, ledger and bytes agree: 2 units with 10 rows, 100B compared\n"
    assert said(30).endswith("100B compared; 30B are not in the table yet\n")
