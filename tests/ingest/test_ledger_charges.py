"""The ends of attempts in a batch run: what is charged to a unit, what becomes of it then, and who of two wins."""

from __future__ import annotations

import threading
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from heronpy.ingest.ledger import machine
from heronpy.ingest.ledger.policy import MEMORY_TRIES
from heronpy.ingest.ledger.requests import (
    Commit,
    Committed,
    EnterList,
    Failed,
    GiveBack,
    Halve,
    Lease,
    Line,
    ListFinished,
    Lost,
    Open,
    Published,
    SeenFile,
    Share,
    ShowAlive,
    SplitAt,
    TryFailed,
    Who,
    Work,
)
from heronpy.ingest.ledger.sqlite import SqliteStore
from heronpy.ingest.ledger.types import Config, Kind, Tally, Unit, UnitState
from heronpy.ingest.ledger.validate import validate
from heronpy.ingest.outputs.lineage import Lineage, Range, published
from heronpy.ingest.outputs.stages import Stages
from heronpy.ingest.worker import OWN_FAULT
from heronpy.procs.exit_reason import ExitReason
from tests.ingest.ledger_steps import lease, world_of
from tests.ingest.ledger_world import LINE, Process, World

BATCH = Config(pattern="*.log", unit_bytes=1000, unit_wait_s=0.0, on_bad="fail")
#: Ends of a worker that are not charged to its unit, and those that are.
SPARED = [reason.value for reason in ExitReason if reason.value not in OWN_FAULT]
DEATHS = ["crashed", "hung", "oom"]
RAISES = "raises"
COMMITS = "commits"


def run_of(lines: int, units: int = 1) -> World:
    """A run whose stage reads a list."""
    world = world_of(BATCH)
    shares = [Share(n * lines * LINE, (n + 1) * lines * LINE, lines * LINE) for n in range(units)]
    listed = SeenFile("list", 1, "list", units * lines * LINE, "1:2", "h")
    world.ask(world.keepers[0], EnterList("run", listed, tuple(shares)))
    return world


def die(world: World, worker: Process, after: str, line: Line | None, unit: int) -> Failed | None:
    """The worker ends, and its successor says how; what has failed, if the run has."""
    worker.incarnation += 1
    worker.number, worker.last = 0, None
    counts = after in OWN_FAULT
    given_back = world.ask(worker, GiveBack(counts, after, unit=unit, line=line, memory=after == "oom"))
    return Failed(given_back.failed[0], after) if given_back.failed else None


def tally(world: World) -> Tally:
    return next((row for row in world.rows() if isinstance(row, Tally)), Tally())


@dataclass
class Charged:
    """What the rules say of a unit: from its first byte to its last, and the tries that count."""

    begin: int
    end: int
    tries: int = 0


def expected_after(unit: Charged, end: str, is_named: bool) -> str:
    """What becomes of the unit: "ready", "halve" or "failed"."""
    if end in SPARED:
        return "ready"
    unit.tries += 1
    if unit.tries < (MEMORY_TRIES if end == "oom" else 3):
        return "ready"
    return "failed" if end == RAISES or is_named else "halve"


@settings(max_examples=1000)
@given(
    lines=st.integers(1, 5),
    ends=st.lists(st.sampled_from([*SPARED[:6], *DEATHS, *DEATHS, RAISES, COMMITS]), max_size=25),
    is_named=st.booleans(),
)
def test_an_end_is_charged_only_to_who_is_at_fault(lines: int, ends: list[str], is_named: bool) -> None:
    """Three exceptions, three crashes or hangs, two times out of memory, in any order among ends that are spared."""
    world, worker = run_of(lines), 0
    units = {1: Charged(0, lines * LINE)}
    charged, spared, done = 0, 0, 0
    for end in ends:
        world.now += 10.0
        work = lease(world, worker := (worker + 1) % 4)
        if not isinstance(work, Work):
            break
        process, unit = world.workers[worker], units[work.unit]
        assert work.tries == unit.tries and work.bytes == unit.end - unit.begin
        if end == COMMITS:
            assert world.ask(process, Commit(work.unit, work.attempt, 1, 1, 0.1)).lost is None
            done += work.bytes
            continue
        line = Line(1, unit.begin, unit.begin + LINE) if is_named else None
        then = expected_after(unit, end, is_named)
        charged, spared = charged + (end not in SPARED), spared + (end in SPARED)
        if end == RAISES:
            answer = world.ask(process, TryFailed(work.unit, work.attempt, 1, end, line, 0))
            found = answer if isinstance(answer, Failed) else None
        else:
            found = die(world, process, end, line, work.unit)
        assert (found is not None) == (then == "failed"), (end, unit, answer if end == RAISES else found)
        if then == "failed":
            break
        if then == "halve":
            world.now += 10.0
            halve = lease(world, worker)
            assert isinstance(halve, Halve) and halve.unit == work.unit
            if unit.end - unit.begin == LINE:
                assert isinstance(world.ask(process, SplitAt(halve.unit, halve.attempt, 1)), Failed)
                break
            middle = unit.begin + (unit.end - unit.begin) // LINE // 2 * LINE
            first, second = world.ask(process, SplitAt(halve.unit, halve.attempt, 1, 1, middle)).units
            del units[work.unit]
            units |= {first: Charged(unit.begin, middle, 2), second: Charged(middle, unit.end, 2)}
    rows = world.rows()
    assert validate(rows) == []
    assert (tally(world).tries_failed, tally(world).preempted) == (charged, spared)
    left = [row for row in rows if isinstance(row, Unit) and row.state is not UnitState.COMMITTED]
    assert sum(row.bytes for row in left) + done == lines * LINE


def test_a_hundred_preemptions_charge_nothing() -> None:
    world = run_of(3)
    for number in range(100):
        work = lease(world, number % 4)
        assert isinstance(work, Work) and work.tries == 0
        assert die(world, world.workers[number % 4], "preempted", None, work.unit) is None
    work = lease(world)
    assert isinstance(world.ask(world.workers[0], Commit(work.unit, work.attempt, 1, 1, 0.1)), Committed)
    assert (tally(world).tries_failed, tally(world).preempted, work.attempt) == (0, 100, 101)


@given(turns=st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=60))
def test_four_workers_on_two_slots_lose_at_most_one_unit_each_time(turns: list[tuple[int, bool]]) -> None:
    """Units commit one by one, so a worker that gives up its slot loses only what it has in hand."""
    world, slots, held = run_of(1, units=30), [0, 1], dict[int, Work]()
    evicted = done = 0
    for number, is_evicted in turns:
        world.now += 1.0
        slot = number % 2
        worker = slots[slot]
        if is_evicted:
            evicted += 1
            before = len(held)
            held.pop(worker, None)
            die(world, world.workers[worker], "preempted", None, 0)
            assert before - len(held) <= 1
            slots[slot] = next(other for other in range(4) if other not in slots)
        elif work := held.pop(worker, None):
            assert world.ask(world.workers[worker], Commit(work.unit, work.attempt, 1, 1, 0.1)).lost is None
            done += 1
        elif isinstance(work := lease(world, worker), Work):
            held[worker] = work
    assert tally(world).attempts - done - len(held) <= evicted
    assert tally(world).tries_failed == 0


# ---- races ----------------------------------------------------------------------------------
def at_once(*acts: object) -> list[object]:
    """Call these in threads that begin together; what they have returned."""
    start, found = threading.Barrier(len(acts)), [None] * len(acts)

    def call(place: int, act: object) -> None:
        start.wait()
        found[place] = act()  # type: ignore[operator]

    threads = [threading.Thread(target=call, args=each) for each in enumerate(acts)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_of_two_attempts_that_commit_at_once_one_counts_and_is_published_once(tmp_path: Path) -> None:
    """200 units over SQLite, each with a backup; two keepers publish, and only the winner's file is in the table."""
    races = 200
    config = Config(pattern="*.log", unit_bytes=LINE, unit_wait_s=0.0, on_bad="fail")
    shares = tuple(Share(n * LINE, (n + 1) * LINE, LINE) for n in range(races))
    tasks = [Who(f"w{n}", "1", Kind.WORKER, "", f"c{n}") for n in range(2)]
    keepers = [Who(f"k{n}", "1", Kind.KEEPER, "", f"c{n}") for n in range(2)]
    table, chance, clock = tmp_path / "table", Random(1), 1_000.0
    table.mkdir()
    wins = [0, 0]
    with closing(SqliteStore(tmp_path / "l" / "a.db")) as one, closing(SqliteStore(tmp_path / "l" / "a.db")) as other:
        stores, numbers = (one, other), dict[str, int]()

        def ask(side: int, who: Who, request: object) -> object:
            number = 0
            if not isinstance(request, machine.UNNUMBERED):
                number = numbers[who.task] = numbers.get(who.task, 0) + 1
            return stores[side].transact("p", lambda view, _: machine.handle(view, request, who, number, clock))  # type: ignore[arg-type]

        def attempt(side: int, work: Work) -> Commit:
            stages = Stages(str(table))
            stage = stages.make(1, work.unit, work.attempt)
            (stage / "rows").write_text(f"{work.unit} {work.attempt}")
            chunks = tuple(Range(one.key, 1, one.begin, one.end, one.head) for one in work.chunks)
            stages.finish(stage, Lineage("p", 1, work.unit, work.attempt, 1, chunks))
            return Commit(work.unit, work.attempt, 1, 1, 0.1)

        for side in (0, 1):
            ask(side, keepers[side], Open(config))
        ask(0, keepers[0], EnterList("run", SeenFile("list", 1, "list", races * LINE, "1:2", "h"), shares))
        ask(0, tasks[0], ShowAlive())
        firsts = [ask(0, tasks[0], Lease()) for _ in range(races)]
        clock += 700.0
        for side in (0, 1):
            ask(side, tasks[side], ShowAlive())
        for first in firsts:
            second = ask(1, tasks[1], Lease())
            assert isinstance(first, Work) and isinstance(second, Work)
            assert second.backup and second.unit == first.unit
            commits = [attempt(0, first), attempt(1, second)]
            acts = [partial(ask, side, tasks[side], commits[side]) for side in (0, 1)]
            order = chance.sample((0, 1), 2)
            found = dict(zip(order, at_once(*(acts[side] for side in order)), strict=True))
            lost = [found[side].lost for side in (0, 1)]  # type: ignore[attr-defined]
            assert lost in ([None, Lost.OTHER_WON], [Lost.OTHER_WON, None])
            winner = lost.index(None)
            wins[winner] += 1

            def publish(side: int) -> object:
                for unit in ask(side, keepers[side], ListFinished()).units:  # type: ignore[attr-defined]
                    Stages(str(table)).publish(unit.generation, unit.unit, unit.winner)
                    ask(side, keepers[side], Published((unit.unit,), unit.generation))
                return None

            at_once(lambda: publish(0), lambda: publish(1))
            folder = table / f"unit=1-{first.unit}"
            assert (folder / "rows").read_text() == f"{first.unit} {commits[winner].attempt}"
    assert len(list(published(str(table)))) == races and min(wins) > 0
