"""Units whose stages somebody has deleted neither hold up the others nor fill the log."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from heronpy.ingest import LineFiles, Writer
from heronpy.ingest.keeper import AGAIN_MAX_S, GONE_MAX, TELL_S, LogKeeper, Publisher
from heronpy.ingest.ledger.requests import Finished
from heronpy.ingest.outputs.stages import StageGoneError, Stages
from heronpy.ingest.worker import LogWorker
from tests.ingest.test_units_inside import PATIENCE_S, Running, numbers, options, run, settle, shown, write
from tests.support.waiting import wait_for

__all__ = ["options", "run"]


def finished(unit: int) -> Finished:
    return Finished(unit, 1, 1, 1, 1, ())


class World:
    def __init__(self) -> None:
        self.gone: set[int] = set()
        self.tried: list[int] = []
        self.told: list[str] = []
        self.publisher = Publisher(self.publish, lambda error: self.told.append(str(error)))

    def publish(self, unit: Finished) -> None:
        self.tried.append(unit.unit)
        if unit.unit in self.gone:
            raise StageGoneError(f"unit {unit.unit} is gone")

    def turn(self, units: range, now: float) -> list[int]:
        besides = self.publisher.besides(now)
        return self.publisher.publish([finished(unit) for unit in units if unit not in besides], now)


def test_what_is_gone_is_looked_for_later_and_later_and_told_once() -> None:
    world = World()
    world.gone = {1, 2, 3}
    assert world.turn(range(1, 6), 0.0) == [4, 5]
    assert world.told == ["unit 1 is gone; the same applies to 2 more units"]
    assert world.turn(range(1, 4), 0.5) == []
    assert world.tried == [1, 2, 3, 4, 5]
    now, looks = 1.0, 0
    while now < 3_600:
        looks += bool(world.turn(range(1, 4), now) or now not in world.tried)
        now += 0.5
    assert len(world.told) == 1
    assert world.tried.count(1) < 10 + 3_600 / AGAIN_MAX_S
    world.gone.remove(2)
    assert world.turn(range(1, 4), now + AGAIN_MAX_S) == [2]
    # Published by another keeper, it is not remembered.
    world.turn(range(5, 6), now + 3 * AGAIN_MAX_S)
    assert world.publisher.besides(now + 3 * AGAIN_MAX_S) == ()


def test_what_is_remembered_and_told_is_bounded() -> None:
    world = World()
    world.gone = set(range(3 * GONE_MAX))
    for now in range(20):
        world.turn(range(3 * GONE_MAX), float(now) / 10)
        assert len(world.publisher.besides(float(now) / 10)) <= GONE_MAX
    assert len(world.told) == 1
    world.turn(range(3 * GONE_MAX), TELL_S)
    assert len(world.told) == 2


def test_why_a_unit_cannot_be_published_is_seen_on_the_disk(tmp_path: Path) -> None:
    """A folder in its place was told as a stage to restore, which does not help."""
    stages = Stages(str(tmp_path))
    assert stages.trouble(1, 7, 1) == ""  # the table is elsewhere
    stage, target = stages.make(1, 7, 1), tmp_path / "unit=1-7"
    assert stages.trouble(1, 7, 1) == ""
    target.mkdir()
    assert stages.trouble(1, 7, 1) == ""  # a rename replaces it
    (target / "mine").touch()
    wrong = f"{target} is in the way; move it away"
    assert stages.trouble(1, 7, 1) == wrong
    with pytest.raises(StageGoneError, match=f"unit 7 cannot be published .*: {wrong}$"):
        stages.publish(1, 7, 1)
    assert (target / "mine").exists() and stage.exists()
    shutil.rmtree(target)
    target.touch()
    shutil.rmtree(stage)
    assert stages.trouble(1, 7, 1) == f"{wrong}, and restore {stage}"
    target.unlink()
    gone = f"restore {stage}, or run 'heron units rebuild'"
    assert stages.trouble(1, 7, 1) == gone
    with pytest.raises(StageGoneError, match=gone):
        stages.publish(1, 7, 1)
    target.mkdir()
    assert stages.trouble(1, 7, 1) == ""  # it is published


def test_a_foreign_folder_in_the_place_of_a_unit_is_not_taken_for_it(tmp_path: Path) -> None:
    """Its stage is gone, as of one that was published before."""
    (tmp_path / "unit=1-1").mkdir()
    with pytest.raises(StageGoneError, match=r"unit=1-1 is in the way of unit 1; move it away"):
        Stages(str(tmp_path)).publish(1, 1, 1)


def test_units_behind_many_whose_stages_are_deleted_are_published(
    tmp_path: Path, run: Callable[..., Running], options: dict[str, Any]
) -> None:
    write(tmp_path, 0, 1_000, "east")
    running = run("east", **options)
    ledger = options["ledger"]

    staged = tmp_path / "table" / "_units" / "g1"

    def lost() -> int:
        """All stages so far are deleted before a keeper sees them."""
        running.drive(LogWorker)
        for stage in staged.glob("*-*") if not running.tasks[LogWorker]._attempt else ():  # type: ignore[attr-defined]  # noqa: SLF001
            shutil.rmtree(stage)
            running.drive(LogKeeper)
        if not staged.exists() or not shown(ledger).units.get("ready", (0, 0))[0]:
            running.drive(LogKeeper)
        return shown(ledger).units.get("committed", (0, 0))[0] if staged.exists() else 0

    wait_for(lambda: lost() >= 17, PATIENCE_S, "17 committed units without a stage")
    held, before = shown(ledger).units["committed"][0], shown(ledger).done_bytes

    def others_are_there() -> bool:
        running.drive()
        figures = shown(ledger)
        return not figures.waiting_bytes and {state for state, (count, _) in figures.units.items() if count} == {
            "committed"
        }

    wait_for(others_are_there, PATIENCE_S, "the publication of all units that have a stage")
    assert shown(ledger).units["committed"][0] == held and shown(ledger).done_bytes > before
    assert numbers(tmp_path / "table")
    said = [text for text in running.delegate.said if "cannot be published" in text]
    assert 1 <= len(said) <= 4


def test_a_worker_loads_its_output_before_its_first_unit(
    tmp_path: Path, run: Callable[..., Running], options: dict[str, Any]
) -> None:
    called: list[str] = []

    class Slow(LineFiles):
        def load(self) -> None:
            called.append("load")

        def open(self, stage: Path, lineage: str) -> Writer:
            called.append("open")
            return super().open(stage, lineage)

    write(tmp_path, 0, 10, "east")
    running = run("east", **{**options, "output": Slow(str(tmp_path / "table"))})
    assert called == ["load"]
    settle(running, options["ledger"], (tmp_path / "logs" / "east" / "a.log").stat().st_size)
    assert called[:2] == ["load", "open"] and called.count("load") == 1
