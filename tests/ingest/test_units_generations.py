"""A ledger that was lost, restored or rebuilt: what the table has never comes again, whoever still works with the old one."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from heronpy.cli.look.units import check_pipeline
from heronpy.common.errors import GaveUpError, LedgerError, RemovedLedgerError
from heronpy.ingest.agreement import behind, contradictions
from heronpy.ingest.checking import check, rebuild
from heronpy.ingest.keeper import LogKeeper
from heronpy.ingest.ledger.commands import Rebuild
from heronpy.ingest.ledger.reaching import Reached, open_store
from heronpy.ingest.ledger.requests import Given, Open, ShowAlive, Who
from heronpy.ingest.ledger.sqlite import SqliteStore
from heronpy.ingest.ledger.types import PART, Config, Kind, Pipeline
from heronpy.ingest.outputs.lineage import FILE, Lineage, Range
from heronpy.ingest.outputs.stages import About, OlderGenerationError, StageGoneError, Stages
from heronpy.ingest.worker import LogWorker
from tests.ingest.test_units_inside import PATIENCE_S, Running, numbers, options, run, settle, shown, write
from tests.support.waiting import wait_for

__all__ = ["options", "run"]


def log_of(folder: Path) -> Path:
    return folder / "logs" / "east" / "a.log"


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in (folder / "logs" / "east").iterdir())


def pipeline_of(ledger: str) -> Pipeline:
    with closing(open_store(ledger)) as store:
        [found] = (row for row in store.snapshot("lines") if isinstance(row, Pipeline))
    return found


def units_of(folder: Path) -> set[str]:
    return {path.name for path in (folder / "table").glob("unit=*")}


def gives_up(running: Running) -> str:
    """What its keeper says at last."""
    with pytest.raises(GaveUpError) as raised:
        wait_for(lambda: running.drive() or False, PATIENCE_S, "a keeper that gives up")
    return str(raised.value)


# ---- a ledger of a backup -------------------------------------------------------------------
def test_a_ledger_of_a_backup_is_refused_before_anything_is_cut(
    tmp_path: Path, run: Callable[..., Running], options: dict[str, Any]
) -> None:
    options |= {"logs": f"{tmp_path}/logs/{{site}}/*.log*"}
    ledger, table = options["ledger"], str(tmp_path / "table")
    write(tmp_path, 0, 100, "east")
    first = run("east", **options)
    settle(first, ledger, size_of(tmp_path))
    first.end()
    given = pipeline_of(ledger).next_unit
    shutil.copytree(tmp_path / "ledger", tmp_path / "backup")
    second = run("east", **options)
    for begin in (100, 200):
        log_of(tmp_path).rename(log_of(tmp_path).with_name(f"a.log.{begin}"))
        write(tmp_path, begin, 100, "east")
        settle(second, ledger, size_of(tmp_path))
    second.end()
    log_of(tmp_path).rename(log_of(tmp_path).with_name("a.log.300"))
    write(tmp_path, 300, 100, "east")
    before, last = units_of(tmp_path), pipeline_of(ledger).next_unit - 1
    shutil.rmtree(tmp_path / "ledger")
    (tmp_path / "backup").rename(tmp_path / "ledger")
    third = run("east", **options)
    said = gives_up(third)
    assert f"unit=1-{last} is in the table, but the ledger has created only {given - 1} units" in said
    assert "is older than its table" in said and f"run: heron units rebuild lines --from {table}" in said
    assert pipeline_of(ledger).next_unit == given and units_of(tmp_path) == before
    third.end()
    rebuild(ledger, "lines", table)
    settle(run("east", **options), ledger, size_of(tmp_path))
    assert numbers(tmp_path / "table") == Counter(range(400))
    assert not check(ledger, "lines", table).problems


def test_a_ledger_of_before_a_rebuild_is_refused(
    tmp_path: Path, run: Callable[..., Running], options: dict[str, Any]
) -> None:
    """Also when the new one has published nothing yet."""
    ledger = options["ledger"]
    write(tmp_path, 0, 50, "east")
    first = run("east", **options)
    settle(first, ledger, size_of(tmp_path))
    first.end()
    shutil.copytree(tmp_path / "ledger", tmp_path / "backup")
    rebuild(ledger, "lines", str(tmp_path / "table"))
    shutil.rmtree(tmp_path / "ledger")
    (tmp_path / "backup").rename(tmp_path / "ledger")
    assert "belongs to another ledger" in gives_up(run("east", **options))


def test_a_ledger_is_behind_when_the_table_has_what_it_has_not_given_out() -> None:
    assert behind([Given(1, 6)], 1, [(1, 5), (1, 2)]) == ""
    assert behind([Given(1, 6)], 1, [(1, 5), (1, 9), (1, 6)]) == (
        "unit=1-9 is in the table, but the ledger has created only 5 units"
    )
    assert behind([Given(2, 1)], 2, [(1, 5)]) == "", "units of the life before"
    assert "the table is at generation 3" in behind([Given(3, 1), Given(2, 1)], 3, [])
    first, second = 4 * PART, 9 * PART
    several = [Given(1, first + 3), Given(1, second + 1)]
    assert behind(several, 1, [(1, first + 2), (1, 7 * PART + 5)]) == "", "a ledger that was drained is not asked"
    assert behind(several, 1, [(1, second + 1)]) == (
        f"unit=1-{second + 1} is in the table, but the ledger has created only 0 units"
    )


def test_a_unit_that_another_attempt_has_published_names_the_backup(tmp_path: Path) -> None:
    """A ledger of a time when the unit was cut and not published: its rows are not there twice, and people hear why."""
    stages = staged(tmp_path / "table", 1, 1)
    stages.publish(1, 1, 1)
    staged(tmp_path / "table", 1, 2)
    with pytest.raises(StageGoneError, match=r"unit=1-1 is from attempt 1, but attempt 2 counts.*heron units rebuild"):
        stages.publish(1, 1, 2)
    assert stages.publish(1, 1, 1) is False, "who repeats it hears nothing"


def staged(table: Path, unit: int, attempt: int, generation: int = 1, **about: Any) -> Stages:
    stages = Stages(str(table))
    stages.claim(About("p", Config(pattern="/logs/*.log")))
    stage = stages.make(generation, unit, attempt)
    (stage / "part-0.txt").write_text("row\n")
    one = Range(
        **{"key": "a.log", "generation": 1, "begin": unit, "end": unit + 1, "head": "x:4:y", "sha256": "z"} | about
    )
    stages.finish(stage, Lineage("p", generation, unit, attempt, 1, (one,)))
    return stages


# ---- two files under one name ---------------------------------------------------------------
def test_units_of_two_files_under_one_name_are_named_and_not_rebuilt(tmp_path: Path) -> None:
    table, url = tmp_path / "table", f"sqlite:{tmp_path}/ledger/units.db"
    heads = {1: "x:4:y", 2: "x:9:w", 3: "o:4:y", 4: "o:4:y"}
    for unit, head in heads.items():
        staged(table, unit, 1, head=head).publish(1, unit, 1)
    with pytest.raises(LedgerError) as raised:
        rebuild(url, "p", str(table))
    said = str(raised.value)
    assert "a.log: unit=1-1, unit=1-2 record a different beginning than unit=1-3, unit=1-4, so these are" in said
    assert not (table / "_units" / "g2").exists(), "nothing has begun"
    for unit in (3, 4):
        shutil.rmtree(table / f"unit=1-{unit}")
    assert rebuild(url, "p", str(table)).generation == 2


def test_all_bytes_that_are_published_twice_are_named(tmp_path: Path) -> None:
    table, url = tmp_path / "table", f"sqlite:{tmp_path}/ledger/units.db"
    for unit, key in ((1, "a.log"), (2, "a.log"), (3, "b.log"), (4, "b.log")):
        staged(table, unit, 1, key=key, begin=0, end=10).publish(1, unit, 1)
    with pytest.raises(LedgerError, match=r"by unit=1-1 and unit=1-2; b.log: .* by unit=1-3 and unit=1-4; remove"):
        rebuild(url, "p", str(table))


def test_a_beginning_that_has_grown_contradicts_nothing() -> None:
    def of(*heads: str) -> list[str]:
        ranges = [Range("a.log", 1, unit, unit + 1, head) for unit, head in enumerate(heads)]
        return contradictions([Lineage("p", 1, unit, 1, 1, (one,)) for unit, one in enumerate(ranges)])

    assert of("x:4:y", "x:9:w", "x:9:w", "x:1024:v") == []
    assert of("x:4:y", "x:9:w", "x:9:u") == [
        "a.log: unit=1-1 records a different beginning than unit=1-2, so these are different files"
    ]
    assert of("x:4:y", "") == [], "of that nothing is known"


@pytest.mark.parametrize(
    "head", ["{first}:{size}:0123456789abcdef", "0123456789abcdef:3:0123456789abcdef", "{first}:3:00"]
)
def test_a_check_finds_a_unit_of_another_file(
    tmp_path: Path, run: Callable[..., Running], options: dict[str, Any], head: str
) -> None:
    """Files are matched by the records of units and ledger, or by their content if these know different lengths of it."""
    ledger, table = options["ledger"], tmp_path / "table"
    write(tmp_path, 0, 100, "east")
    site = run("east", **options)
    settle(site, ledger, size_of(tmp_path))
    site.end()
    assert not check(ledger, "lines", str(table)).problems
    path = max(table.glob("unit=*"), key=lambda one: int(one.name.rpartition("-")[2])) / FILE
    record = json.loads(path.read_text())
    first, size, _ = record["chunks"][0]["head"].split(":")
    record["chunks"][0]["head"] = head.format(first=first, size=size)
    path.write_text(json.dumps(record))
    problems = check(ledger, "lines", str(table)).problems
    assert problems and any(path.parent.name in one for one in problems), problems
    with pytest.raises(SystemExit):
        check_pipeline("lines", str(table), ledger, False)


# ---- a ledger that is removed under those who work with it ----------------------------------
def test_a_store_notices_that_its_file_was_removed_or_replaced(tmp_path: Path) -> None:
    path = tmp_path / "ledger" / "units.db"
    path.parent.mkdir(mode=0o700)
    with closing(SqliteStore(path)) as store:
        store.pipelines()
        path.rename(path.with_name("away"))
        for _ in range(2):
            with pytest.raises(RemovedLedgerError, match="was removed while this task used it"):
                store.pipelines()
        assert not path.exists(), "a new one would begin with nothing"
        path.with_name("away").rename(path)
        store.pipelines()
        path.unlink()
        with closing(SqliteStore(path)) as other:
            other.pipelines()
        with pytest.raises(RemovedLedgerError, match="was replaced by another file"):
            store.pipelines()
        store.pipelines()
        store._close()  # as after an error of the disk
        path.unlink()
        with pytest.raises(RemovedLedgerError, match="was removed"):
            store.pipelines()
        assert not path.exists()


def test_a_topology_whose_ledger_is_removed_says_so_and_goes_on_with_the_one_that_is_rebuilt(
    tmp_path: Path, run: Callable[..., Running], options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    ledger, table = options["ledger"], str(tmp_path / "table")
    write(tmp_path, 0, 100, "east")
    site = run("east", **options)
    settle(site, ledger, size_of(tmp_path))
    write(tmp_path, 100, 100, "east")
    wait_for(lambda: site.drive() or shown(ledger).units.get("leased"), PATIENCE_S, "a unit in work")
    shutil.rmtree(tmp_path / "ledger")
    for _ in range(5):
        site.drive()
    said = [text for text in site.delegate.said if "was removed while this task used it" in text]
    assert len(said) == 2, "the worker and the keeper, once"
    assert not (tmp_path / "ledger").exists()
    rebuild(ledger, "lines", table)
    settle(site, ledger, size_of(tmp_path))
    site.end()
    caplog.clear()  # its records hold errors, and these the worker
    assert numbers(tmp_path / "table") == Counter(range(200))
    assert not check(ledger, "lines", table).problems


@pytest.mark.parametrize("begun", [False, True])
def test_who_holds_a_removed_ledger_publishes_nothing_beside_the_one_that_is_rebuilt(
    tmp_path: Path, run: Callable[..., Running], options: dict[str, Any], monkeypatch: pytest.MonkeyPatch, begun: bool
) -> None:
    """Even if it does not notice that its file was removed. `begun`: it has committed before the rebuild."""
    ledger, table = options["ledger"], str(tmp_path / "table")
    monkeypatch.setattr(SqliteStore, "_refuse_removed", lambda self: None)
    write(tmp_path, 0, 100, "east")
    zombie = run("east", **options)
    settle(zombie, ledger, size_of(tmp_path))
    write(tmp_path, 100, 100, "east")
    if begun:

        def committed() -> int:
            if not shown(ledger).units:
                zombie.drive(LogKeeper)
            zombie.drive(LogWorker)
            return shown(ledger).units.get("committed", (0, 0))[0]

        wait_for(committed, PATIENCE_S, "a committed unit")
    before = units_of(tmp_path)
    shutil.rmtree(tmp_path / "ledger")
    assert rebuild(ledger, "lines", table).generation == 2
    assert "belongs to another ledger" in gives_up(zombie)
    for _ in range(20):
        with suppress(GaveUpError):
            zombie.drive()
    assert units_of(tmp_path) == before and not (tmp_path / "table" / "_units" / "g1").exists()
    zombie.die()
    settle(run("east", **options), ledger, size_of(tmp_path))
    assert numbers(tmp_path / "table") == Counter(range(200))


def test_a_worker_that_holds_a_removed_ledger_stages_nothing(
    tmp_path: Path, run: Callable[..., Running], options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = options["ledger"]
    monkeypatch.setattr(SqliteStore, "_refuse_removed", lambda self: None)
    write(tmp_path, 0, 100, "east")
    zombie = run("east", **options)
    zombie.drive(), zombie.drive(LogWorker)
    wait_for(lambda: (zombie.drive(LogKeeper), shown(ledger).units.get("ready"))[1], PATIENCE_S, "units")
    shutil.rmtree(tmp_path / "ledger")
    rebuild(ledger, "lines", str(tmp_path / "table"))
    said = zombie.delegate.said
    wait_for(lambda: zombie.drive(LogWorker) or "belongs to another ledger" in "".join(said), PATIENCE_S, "a refusal")
    assert not (tmp_path / "table" / "_units" / "g1").exists()


def test_a_rebuild_fences_before_it_writes_and_not_when_it_is_refused(
    tmp_path: Path, run: Callable[..., Running], options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, table = options["ledger"], str(tmp_path / "table")
    write(tmp_path, 0, 50, "east")
    site = run("east", **options)
    settle(site, ledger, size_of(tmp_path))
    with pytest.raises(LedgerError, match="kill the topology, then rebuild"):
        rebuild(ledger, "lines", table)
    write(tmp_path, 50, 50, "east")
    settle(site, ledger, size_of(tmp_path))
    site.end()
    ask = Reached.ask

    def killed(self: Reached, request: Any) -> Any:
        if isinstance(request, Rebuild) and not request.trial:
            raise KeyboardInterrupt
        return ask(self, request)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Reached, "ask", killed)
        rebuild(ledger, "lines", table)
    stages = Stages(table)
    with pytest.raises(OlderGenerationError, match="is at generation 2"):
        stages.publish(1, 99, 1)
    with pytest.raises(OlderGenerationError):
        stages.make(1, 99, 1)
    assert "the table is at generation 2" in gives_up(run("east", **options))


def test_a_trial_of_a_rebuild_leaves_nothing(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path}/ledger/units.db"
    config = Config(pattern="/logs/*.log")
    with closing(Reached(url, "p", Who("c", "1", Kind.COMMAND))) as reached:
        assert reached.ask(Rebuild(config, (), 4, trial=True)).generation == 4
        assert reached.snapshot() == ()
        assert reached.ask(Open(config)).generation == 1
        before = reached.snapshot()
        assert reached.ask(Rebuild(config, (), 1, trial=True)).generation == 2
        assert reached.snapshot() == before
        assert reached.ask(ShowAlive()).generation == 1


# ---- what a check knows ---------------------------------------------------------------------
def test_a_check_says_why_bytes_could_not_be_compared(
    tmp_path: Path, run: Callable[..., Running], options: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    ledger, table = options["ledger"], str(tmp_path / "table")
    write(tmp_path, 0, 50, "east")
    site = run("east", **options)
    settle(site, ledger, size_of(tmp_path))
    site.end()

    def said() -> str:
        capsys.readouterr()
        check_pipeline("lines", table, ledger, False)
        return capsys.readouterr().out

    assert said().startswith("table, ledger and bytes agree") and "could not" not in said()
    text, size = log_of(tmp_path).read_text(), size_of(tmp_path)
    log_of(tmp_path).write_text("another file, which is as long as the one before\n" * 9)
    assert f"{size}B of files that were replaced by another file or cannot be read" in said()
    log_of(tmp_path).unlink()
    assert said().startswith("table and ledger agree")
    assert f"{size}B of files that are no longer where they were last seen" in said()
    log_of(tmp_path).write_text(text)
    rebuild(ledger, "lines", table)
    assert "(the files are gone, or no scan has run since the ledger was created)" in said()
    assert check(ledger, "lines", table).bytes_unseen == size


@pytest.mark.parametrize("verb", [check, rebuild])
def test_a_table_that_does_not_exist_is_said_to(
    tmp_path: Path, run: Callable[..., Running], options: dict[str, Any], verb: Callable[..., Any]
) -> None:
    write(tmp_path, 0, 5, "east")
    site = run("east", **options)
    settle(site, options["ledger"], size_of(tmp_path))
    site.end()
    with pytest.raises(LedgerError, match=r"the folder /nonexistent does not exist"):
        verb(options["ledger"], "lines", "/nonexistent")
    with pytest.raises(LedgerError, match="does not exist"):
        check_pipeline("lines", "/nonexistent", options["ledger"], False)


@pytest.mark.parametrize("planted", ["_units", "_units/pages"])
def test_a_planted_link_is_not_written_through(
    tmp_path: Path, run: Callable[..., Running], options: dict[str, Any], planted: str
) -> None:
    victim, link = tmp_path / "victim", tmp_path / "table" / planted
    victim.mkdir()
    link.parent.mkdir(parents=True, mode=0o755)
    link.symlink_to(victim)
    write(tmp_path, 0, 5, "east")
    with pytest.raises(LedgerError, match=f"{planted} is a link"):
        run("east", **options)
    assert not list(victim.iterdir())
