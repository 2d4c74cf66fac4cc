"""A table belongs to one ledger: a second one, such as that of another HERON_HOME, is refused before it does anything."""

from __future__ import annotations

import json
import multiprocessing
import shutil
from collections import Counter
from collections.abc import Callable
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import pytest

from heronpy.common.errors import GaveUpError
from heronpy.connectors.durable_files import make_record
from heronpy.ingest.checking import check, rebuild
from heronpy.ingest.keeper import LogKeeper
from heronpy.ingest.ledger.types import Config
from heronpy.ingest.outputs.lineage import Lineage
from heronpy.ingest.outputs.stages import About, OtherLedgerError, StageGoneError, Stages
from heronpy.ingest.worker import LogWorker
from tests.ingest.test_units_inside import Running, numbers, options, run, settle, shown, write
from tests.support.waiting import wait_for

__all__ = ["options", "run"]
PATIENCE_S = 120.0
BELONGS = "belongs to another ledger"


def size_of(root: Path) -> int:
    return sum(path.stat().st_size for path in (root / "logs" / "east").glob("*.log"))


def two_ledgers(root: Path, options: dict[str, Any]) -> list[dict[str, Any]]:
    return [options | {"ledger": f"sqlite:{root}/{name}/units.db"} for name in "ab"]


def test_of_two_ledgers_that_begin_with_an_empty_table_one_is_refused(
    tmp_path: Path, run: Callable[..., Running], options: dict[str, Any]
) -> None:
    """Both have begun when the first one claims the table; the refused one leads to no step that takes rows away."""
    first, second = two_ledgers(tmp_path, options)
    write(tmp_path, 0, 200, "east")
    ours, other = run("east", **first), run("east", **second)
    for site in (ours, other):
        site.drive(LogWorker)
        site.drive(LogWorker)
    ours.drive(LogKeeper)
    with pytest.raises(GaveUpError) as raised:
        other.drive(LogKeeper)
    said = str(raised.value)
    assert BELONGS in said and "move" not in said and "remove" not in said
    assert "a separate table" in said
    settle(ours, first["ledger"], size_of(tmp_path))
    other.drive(LogWorker)
    assert not shown(second["ledger"]).units, "the refused one has had nothing cut"
    assert numbers(tmp_path / "table") == Counter(range(200))
    assert not check(first["ledger"], "lines", str(tmp_path / "table")).problems


def test_a_second_ledger_that_has_units_stages_and_publishes_nothing(
    tmp_path: Path, run: Callable[..., Running], options: dict[str, Any]
) -> None:
    """As of an earlier release, which had a table of both: whoever claims it first goes on."""
    first, second = two_ledgers(tmp_path, options)
    write(tmp_path, 0, 200, "east")
    other = run("east", **second)

    def ready() -> object:
        other.drive(LogKeeper)
        return shown(second["ledger"]).units.get("ready")

    wait_for(ready, PATIENCE_S, "units to lease")
    # Its claim is lost, as when somebody empties the table.
    (tmp_path / "table" / "_units" / "pipeline.json").unlink()
    ours = run("east", **first)
    settle(ours, first["ledger"], size_of(tmp_path))
    for _ in range(20):
        other.drive(LogWorker)
    assert any(BELONGS in text for text in other.delegate.said)
    assert "committed" not in shown(second["ledger"]).units
    assert numbers(tmp_path / "table") == Counter(range(200))


def test_a_table_goes_to_the_ledger_that_is_made_of_it(
    tmp_path: Path, run: Callable[..., Running], options: dict[str, Any]
) -> None:
    """The one before does not come back into it, though its topology still runs."""
    first, second = two_ledgers(tmp_path, options)
    table = str(tmp_path / "table")
    write(tmp_path, 0, 100, "east")
    ours = run("east", **first)
    settle(ours, first["ledger"], size_of(tmp_path))
    rebuild(second["ledger"], "lines", table)
    write(tmp_path, 100, 100, "east")
    with pytest.raises(GaveUpError, match=BELONGS):
        wait_for(lambda: ours.drive(), PATIENCE_S, "a refusal")  # type: ignore[func-returns-value]
    settle(run("east", **second), second["ledger"], size_of(tmp_path))
    assert numbers(tmp_path / "table") == Counter(range(200))


def test_a_table_of_an_earlier_release_is_taken_by_its_ledger(
    tmp_path: Path, run: Callable[..., Running], options: dict[str, Any]
) -> None:
    first, second = two_ledgers(tmp_path, options)
    write(tmp_path, 0, 100, "east")
    ours = run("east", **first)
    settle(ours, first["ledger"], size_of(tmp_path))
    ours.end()
    record = tmp_path / "table" / "_units" / "pipeline.json"
    written = json.loads(record.read_text())
    record.write_text(json.dumps({name: written[name] for name in ("pipeline", "config", "replicas")}))
    write(tmp_path, 100, 100, "east")
    settle(run("east", **first), first["ledger"], size_of(tmp_path))
    with pytest.raises(GaveUpError, match=BELONGS):
        run("east", **second).drive(LogKeeper)


# ---- the record -----------------------------------------------------------------------------
def _claim(table: str, name: str, together: Barrier, won: Any) -> None:
    stages, about = Stages(table), About("p", Config(pattern="/logs/*.log"), (), name)
    stages.prepare()
    together.wait(60)
    try:
        stages.claim(about)
        won.put(name)
    except OtherLedgerError:
        won.put("")


def test_of_many_processes_that_claim_a_table_at_once_one_ledger_wins(tmp_path: Path) -> None:
    many, rounds = 4, 5
    forks = multiprocessing.get_context("fork")
    for number in range(rounds):
        table, together, won = str(tmp_path / f"table-{number}"), forks.Barrier(many), forks.Queue()
        claims = [forks.Process(target=_claim, args=(table, f"l{one}", together, won)) for one in range(many)]
        for one in claims:
            one.start()
        names = [won.get(timeout=60) for _ in claims]
        for one in claims:
            one.join(60)
        [winner] = [name for name in names if name]
        about = Stages(table).pipeline()
        assert about is not None and about.ledger == winner
        assert [path.name for path in (Path(table) / "_units").iterdir()] == ["pipeline.json"]


def test_a_record_is_made_once(tmp_path: Path) -> None:
    path = tmp_path / "record"
    assert make_record(path, b"one") and not make_record(path, b"two")
    assert path.read_bytes() == b"one" and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("record", ["whole", "damaged"])
def test_nobody_is_told_to_move_rows_of_a_unit_away(tmp_path: Path, record: str) -> None:
    table = tmp_path / "table"
    for ledger, name in (("ours", "other"), ("other", "ours")):
        shutil.rmtree(table, ignore_errors=True)
        stages = Stages(str(table))
        for one in (name, ledger):
            stage = stages.make(1, 1, 1)
            (stage / "part-0.txt").write_text(f"rows of {one}\n")
            stages.finish(stage, Lineage("p", 1, 1, 1, 1, (), ledger=one))
            if one == name:
                stage.rename(table / "unit=1-1")
        if record == "damaged":
            (table / "unit=1-1" / "_unit.json").write_text("{")
        with pytest.raises(StageGoneError) as raised:
            stages.publish(1, 1, 1)
        for said in (str(raised.value), stages.trouble(1, 1, 1)):
            assert "with rows of a unit: leave it there" in said and "move it away" not in said
        stages.discard(stages.stage_of(1, 1, 1))
        if record == "damaged":
            with pytest.raises(StageGoneError, match="leave it there"):
                stages.publish(1, 1, 1)
