"""Units that a keeper gives: lists with weights, the files of an earlier run, and bytes that are processed again."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.common.errors import LedgerError, StateError
from heronpy.ingest.ledger.commands import Show
from heronpy.ingest.ledger.requests import (
    Commit,
    Cut,
    Entered,
    EnterList,
    FileRange,
    GiveBack,
    Halve,
    KnownFiles,
    ListFiles,
    ListFinished,
    Published,
    Redo,
    ReportScan,
    SeenFile,
    Share,
    SplitAt,
    TakeFiles,
    Taken,
)
from heronpy.ingest.ledger.types import Seal, SpanState
from heronpy.ingest.ledger.validate import validate
from heronpy.ingest.lists import entered, packed, write_list
from tests.ingest.ledger_steps import lease, see, spans_of, units_of, world_of
from tests.ingest.ledger_world import World

LIST = EnterList("visits-3", SeenFile("list", 1, "list", 30, "1:2", "h"), (Share(0, 10, 500), Share(10, 30, 700)))


def publish(world: World) -> None:
    units = tuple(one.unit for one in world.ask(world.keepers[0], ListFinished()).units)
    world.ask(world.keepers[0], Published(units, 1))


def test_a_list_becomes_units_with_weights_and_is_sealed_and_repeated_it_changes_nothing() -> None:
    world = world_of()
    assert world.ask(world.keepers[0], LIST) == Entered(1, 2)
    assert world.ask(world.keepers[1], LIST) == Entered(0)
    assert [(unit.bytes, unit.weight) for unit in units_of(world)] == [(10, 500), (20, 700)]
    assert world.ask(world.user, Show()).units == {"ready": (2, 1_200)}
    assert not world.ask(world.keepers[0], Cut(run="visits-3")).over
    for _ in range(2):
        work = lease(world)
        world.ask(world.workers[0], Commit(work.unit, work.attempt, 1, 1, 0.1))
    publish(world)
    assert world.ask(world.keepers[0], Cut(run="visits-3")).over
    figures = world.ask(world.user, Show())
    assert (figures.published_bytes, figures.attempts, figures.units) == (1_200, 2, {})
    assert validate(world.rows()) == []


def test_a_list_without_lines_is_over_at_once() -> None:
    world = world_of()
    assert world.ask(world.keepers[0], EnterList("visits-3")) == Entered(0)
    assert world.ask(world.keepers[0], Cut(run="visits-3")).over
    assert world.ask(world.keepers[1], LIST) == Entered(0)  # another keeper, with another list


@pytest.mark.parametrize(
    "shares", [(), (Share(0, 10, 1),), (Share(0, 10, 1), Share(11, 30, 1)), (Share(0, 30, 0),), (Share(0, 31, 1),)]
)
def test_units_that_are_not_the_list_are_refused(shares: tuple[Share, ...]) -> None:
    world = world_of()
    with pytest.raises(LedgerError, match="list: "):
        world.ask(world.keepers[0], EnterList("visits-3", LIST.seen, shares))
    assert not any(isinstance(row, Seal) for row in world.rows())


def test_halves_of_a_unit_share_its_weight_by_their_bytes() -> None:
    world = world_of()
    world.ask(world.keepers[0], LIST)
    lease(world, 1)
    for _ in range(2):
        unit = lease(world).unit
        world.workers[0].incarnation += 1
        world.workers[0].number = 0
        world.ask(world.workers[0], GiveBack(True, "oom", unit=unit, memory=True))
        world.now += 6.0
    halve = lease(world)
    assert isinstance(halve, Halve) and halve.bytes == 20
    assert isinstance(world.ask(world.workers[0], SplitAt(halve.unit, halve.attempt, 1, 1, 15)), Taken)
    assert [unit.weight for unit in units_of(world)] == [500, 175, 525]


def test_bytes_whose_output_is_damaged_are_units_again_once() -> None:
    world = world_of()
    world.ask(world.keepers[0], LIST)
    for _ in range(2):
        work = lease(world)
        world.ask(world.workers[0], Commit(work.unit, work.attempt, 1, 1, 0.1))
    publish(world)
    assert spans_of(world) == [(0, 30, SpanState.DONE)]
    again = Redo((FileRange("list", 1, 12, 15, 90), FileRange("list", 1, 14, 20, 90)))
    assert world.ask(world.keepers[0], again).units == (3,)
    assert world.ask(world.keepers[1], again).units == ()
    assert [(unit.bytes, unit.weight) for unit in units_of(world)] == [(8, 180)]
    assert validate(world.rows()) == []
    with pytest.raises(LedgerError, match="no file 'other'"):
        world.ask(world.keepers[0], Redo((FileRange("other", 1, 0, 1),)))


def test_the_files_of_an_earlier_run_are_processed_to_the_same_ends() -> None:
    earlier = world_of()
    see(earlier, "a", 150, tail="150:t")
    see(earlier, "b", 80)
    earlier.ask(earlier.keepers[0], Cut(run="visits-3", complete=True))
    known = earlier.ask(earlier.keepers[0], ListFiles())
    assert isinstance(known, KnownFiles)
    world = world_of()
    for one in known.files:
        world.ask(world.keepers[0], TakeFiles("visits-4", (one,), complete=one is known.files[-1]))
    # Grown since then; the growth is of no concern.
    grown = SeenFile("a", 1, "a", 500, "a", "h", compared="h", tail="500:t")
    world.ask(world.keepers[0], ReportScan((grown,), run="visits-4"))
    world.ask(world.keepers[1], TakeFiles("visits-4", known.files, complete=True))
    found = world.ask(world.keepers[0], ListFiles()).files
    assert [(one.file.key, one.file.size, one.copies[0].tail) for one in found] == [("a", 150, "150:t"), ("b", 80, "")]
    world.now += 2.0
    cut = world.ask(world.keepers[0], Cut(run="visits-4"))
    assert not cut.over and sum(unit.bytes for unit in units_of(world)) == 230
    assert validate(world.rows()) == []


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(1, 200)), max_size=60), st.integers(1, 150))
def test_units_of_a_list_are_neighbouring_lines_of_about_the_wanted_weight(
    sizes: list[tuple[int, int]], goal: int
) -> None:
    lines = [(b"x" * size, weight) for size, weight in sizes]
    shares = packed(lines, goal)
    ends = [0]
    for size, _ in sizes:
        ends.append(ends[-1] + size)
    assert [share.begin for share in shares] == [0, *(share.end for share in shares)][: len(shares)]
    assert not shares or shares[-1].end == ends[-1]
    for share in shares:
        part = sizes[ends.index(share.begin) : ends.index(share.end)]
        assert share.weight == sum(weight for _, weight in part)
        assert share.weight <= max(goal + goal // 2, max(weight for _, weight in part))
    light = [share for share in shares[:-1] if share.weight < goal // 4]
    heavy = [share for share in shares if share.weight >= goal]
    # Light units stand only before lines that are heavy by themselves.
    assert len(light) <= len(heavy)


def test_a_list_is_written_once(tmp_path: Path) -> None:
    path, lines = tmp_path / "list", [(b'{"name": 1}\n', 5), (b'{"name": 2}\n', 7)]
    write_list(path, lines)
    write_list(path, lines)
    request = entered(path, lines, 5, "visits-3")
    assert request.shares == (Share(0, 12, 5), Share(12, 24, 7)) and request.seen is not None
    assert (request.seen.key, request.seen.size) == ("list", 24)
    with pytest.raises(StateError, match="lists different units"):
        write_list(path, lines[:1])
    with pytest.raises(StateError, match="is not the list"):
        entered(path, lines[:1], 5, "visits-3")
    write_list(tmp_path / "empty", [])
    assert entered(tmp_path / "empty", [], 5, "visits-3") == EnterList("visits-3")
