"""Workers and keepers of several sites, driven by hand in one process: a site dies when nobody drives it any more."""

from __future__ import annotations

import json
import logging
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from heronpy.api.spout.spout import Spout
from heronpy.api.topology_context import TaskProcess
from heronpy.cli.exits import Failure
from heronpy.cli.look.units import list_pipelines, set_site, show_pipeline
from heronpy.common.errors import GaveUpError, LedgerError
from heronpy.ingest import LineFiles, LogUnit, LogUnits
from heronpy.ingest.checking import check, command_of, rebuild
from heronpy.ingest.keeper import LogKeeper
from heronpy.ingest.ledger.commands import Figures, ListUnits, Show, UnitView
from heronpy.ingest.ledger.reaching import open_store
from heronpy.ingest.ledger.store import Changes, View
from heronpy.ingest.ledger.types import Pipeline, UnitState
from heronpy.ingest.options import SITE_KEY
from heronpy.ingest.worker import LogWorker
from tests.support.waiting import wait_for

PATIENCE_S = 60.0


class Delegate:
    """What a spout says to its task."""

    logger = logging.getLogger("test")

    def __init__(self) -> None:
        self.said: list[str] = []
        #: What is waited for outside of the topology; "" once it goes on.
        self.outages: list[str] = []
        self.ended = False

    def log(self, message: str, level: str | None = None) -> None:
        self.said.append(message)

    def report_error(self, error: Exception) -> None:
        self.said.append(str(error))

    def wait(self, seconds: float) -> None:
        """Nobody waits here."""

    def wait_outside(self, outage: str, pause_s: float) -> None:
        self.outages.append(outage)

    def busy(self) -> None:
        """It is driven on anyway."""

    def end_of_input(self) -> None:
        self.ended = True


class Context:
    """The context of one task."""

    def __init__(self, component: str, task: int, after: str = "") -> None:
        self._component, self._task = component, task
        self.process = TaskProcess(container=1, after=after)

    def get_topology_name(self) -> str:
        return "lines"

    def get_topology_id(self) -> str:
        return "lines-1"

    def get_component_id(self) -> str:
        return self._component

    def get_task_id(self) -> int:
        return self._task

    def get_component_tasks(self, component: str) -> list[int]:
        return [self._task]

    def register_metric(self, name: str, metric: object, bucket_s: float) -> None:
        """Nobody collects it."""


class Running:
    """The worker and the keeper of a pipeline on a site."""

    def __init__(self, site: str, name: str = "lines", ended: str = "", **options: Any) -> None:
        self.delegate = Delegate()
        self.tasks: dict[type, Spout] = {}
        numbers = {"rows": lambda unit: unit.lines(), "unit_bytes": 400, "unit_wait_s": 0.0}
        specs = LogUnits.specs(name, **(numbers | options))
        for number, (kind, spec) in enumerate(zip((LogWorker, LogKeeper), specs, strict=True)):
            task = kind(self.delegate)
            config = {**(spec.custom_config or {}), SITE_KEY: site}
            task.initialize(config, Context(str(spec.name), number, ended))  # type: ignore[arg-type]
            self.tasks[kind] = task

    def drive(self, *kinds: type) -> None:
        for kind in kinds or (LogWorker, LogKeeper):
            self.tasks[kind].next_tuple()

    def end(self) -> None:
        for task in self.tasks.values():
            task.close()
        self.tasks.clear()

    def die(self) -> None:
        """Without a word to the ledger."""
        for task in self.tasks.values():
            task._asking.close()  # noqa: SLF001
        self.tasks.clear()


@pytest.fixture
def run() -> Iterator[Callable[..., Running]]:
    made: list[Running] = []

    def start(*args: Any, **options: Any) -> Running:
        made.append(Running(*args, **options))
        return made[-1]

    yield start
    for one in made:
        one.die()


@pytest.fixture
def options(tmp_path: Path) -> dict[str, Any]:
    for site in ("east", "west"):
        (tmp_path / "logs" / site).mkdir(parents=True)
    return {
        "logs": f"{tmp_path}/logs/{{site}}/*.log",
        "output": LineFiles(str(tmp_path / "table")),
        "ledger": f"sqlite:{tmp_path}/ledger/units.db",
    }


def write(folder: Path, first: int, count: int, *sites: str) -> None:
    for site in sites:
        with open(folder / "logs" / site / "a.log", "a") as log:
            log.write("".join(f"line {number}\n" for number in range(first, first + count)))


def shown(ledger: str, name: str = "lines") -> Figures:
    with closing(command_of(ledger, name)) as reached:
        return reached.ask(Show())


def state_of(ledger: str, site: str) -> Any:
    return next((one for one in shown(ledger).sites if one.name == site), None)


def settle(running: Running, ledger: str, size: int, name: str = "lines", also: Running | None = None) -> None:
    def settled() -> bool:
        for one in (running, also) if also is not None else (running,):
            one.drive()
        figures = shown(ledger, name)
        return figures.done_bytes == size and not figures.units

    wait_for(settled, PATIENCE_S, f"the publication of {size} bytes")


def forget(running: Running, ledger: str, left: int) -> None:
    """Until the ledger knows only `left` bytes, since the other files are gone and behind the horizon."""

    def forgotten() -> bool:
        running.tasks[LogKeeper]._clean_at = 0.0  # type: ignore[attr-defined]  # noqa: SLF001
        running.drive()
        return shown(ledger).known_bytes == left

    wait_for(forgotten, PATIENCE_S, f"the ledger to forget all but {left} bytes")


def numbers(table: Path) -> Counter[int]:
    lines = [line for path in table.glob("unit=*/part-0.txt") for line in path.read_text("utf-8").splitlines()]
    return Counter(int(line.split()[-1]) for line in lines)


def test_two_sites_share_the_work_one_dies_and_comes_back(
    tmp_path: Path, run: Callable[..., Running], options: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    ledger = options["ledger"]
    write(tmp_path, 0, 200, "east", "west")
    east = run("east", **options)
    wait_for(lambda: (east.drive(), state_of(ledger, "east").leased)[1], PATIENCE_S, "a unit in the east")
    west = run("west", **options)
    east.die()
    size = (tmp_path / "logs" / "west" / "a.log").stat().st_size

    def all_but_one() -> bool:
        west.drive()
        figures = shown(ledger)
        return size - 400 <= figures.done_bytes < size and list(figures.units) == ["leased"]

    wait_for(all_but_one, PATIENCE_S, "the rest of the units")
    show_pipeline("lines", ledger, False)
    said = capsys.readouterr().out
    assert "east" in said and "lines-worker" in said and "leased" in said
    with pytest.raises(Failure, match="its sites are east, west"):
        set_site("lines", "north", "down", ledger, False)
    set_site("lines", "east", "down", ledger, False)
    assert "1 unit freed for other sites" in capsys.readouterr().out
    settle(west, ledger, size)
    list_pipelines(ledger, False)
    assert "sites east (down), west" in capsys.readouterr().out
    # What was written meanwhile in the west reaches the east only later; it works on with what it has.
    write(tmp_path, 200, 100, "west")
    settle(west, ledger, (tmp_path / "logs" / "west" / "a.log").stat().st_size)
    east = run("east", **options)
    set_site("lines", "east", "up", ledger, False)
    set_site("lines", "west", "down", ledger, False)
    write(tmp_path, 200, 150, "east")
    settle(east, ledger, (tmp_path / "logs" / "east" / "a.log").stat().st_size)
    assert numbers(tmp_path / "table") == Counter(range(350))
    assert check(ledger, "lines", str(tmp_path / "table")).problems == []
    west.die()


def test_a_copy_is_published_when_a_committed_stage_is_lost(
    tmp_path: Path, run: Callable[..., Running], options: dict[str, Any]
) -> None:
    ledger = options["ledger"]
    write(tmp_path, 0, 30, "east")
    site = run("east", replicas=[str(tmp_path / "replica")], **options)

    def committed() -> int:
        if not (tmp_path / "ledger").exists() or not shown(ledger).units.get("committed", (0, 0))[0]:
            site.drive(LogKeeper)
        site.drive(LogWorker)
        return shown(ledger).units.get("committed", (0, 0))[0]

    site.drive()
    wait_for(committed, PATIENCE_S, "a committed unit")
    shutil.rmtree(tmp_path / "table" / "_units" / "g1")
    settle(site, ledger, (tmp_path / "logs" / "east" / "a.log").stat().st_size)
    assert any("its copy was published" in text for text in site.delegate.said)
    assert numbers(tmp_path / "table") == Counter(range(30))
    assert not list((tmp_path / "replica").glob("_units/g*/*"))
    assert check(ledger, "lines", str(tmp_path / "table")).problems == []


def test_a_pipeline_over_two_ledgers(tmp_path: Path, run: Callable[..., Running], options: dict[str, Any]) -> None:
    urls = [f"sqlite:{tmp_path}/ledger/{name}.db" for name in "ab"]
    ledger = json.dumps([{"until": "2026-12-01T17:00", "urls": urls[:1]}, {"urls": urls}])
    for number in range(8):
        day = "11-30" if number < 2 else "12-02"
        (tmp_path / "logs" / "east" / f"{number}-2026-{day}.log").write_text(f"line {number}\n")
    site = run("east", **{**options, "ledger": ledger})
    site.drive()
    settle(site, ledger, 8 * len("line 0\n"))
    assert numbers(tmp_path / "table") == Counter(range(8))
    assert all(shown(url).done_bytes for url in urls)
    assert check(ledger, "lines", str(tmp_path / "table")).problems == []
    with pytest.raises(LedgerError, match="no pipeline 'other'"):
        show_pipeline("other", ledger, False)


def test_a_pipeline_waits_for_another_one(tmp_path: Path, run: Callable[..., Running], options: dict[str, Any]) -> None:
    ledger = options["ledger"]
    write(tmp_path, 0, 10, "east")
    size = (tmp_path / "logs" / "east" / "a.log").stat().st_size
    first = run("east", "first", **{**options, "output": LineFiles(str(tmp_path / "one"))})
    second = run("east", "second", **{**options, "output": LineFiles(str(tmp_path / "two")), "after": ["first"]})
    wait_for(lambda: (first.drive(LogKeeper), shown(ledger, "first").units)[1], PATIENCE_S, "a unit of the first")

    def waits() -> list[str]:
        second.drive()
        with closing(command_of(ledger, "second")) as reached:
            return [text for unit in reached.ask(ListUnits(UnitState.READY)).units for text in unit.waits]

    assert "pipeline 'first', whose oldest byte has waited for" in wait_for(waits, PATIENCE_S, "a unit that waits")[0]
    settle(first, ledger, size, "first")
    # The second one waits until the first has looked once more, and found nothing.
    settle(second, ledger, size, "second", also=first)
    assert numbers(tmp_path / "two") == Counter(range(10))


def test_a_new_ledger_beside_a_table_with_units_is_refused_until_it_is_rebuilt(
    tmp_path: Path, run: Callable[..., Running], options: dict[str, Any]
) -> None:
    """Else every line would be in the table twice."""
    write(tmp_path, 0, 50, "east")
    size = (tmp_path / "logs" / "east" / "a.log").stat().st_size
    first = run("east", **options)
    settle(first, options["ledger"], size)
    first.die()
    before = sorted(path.name for path in (tmp_path / "table").glob("unit=*"))
    shutil.rmtree(tmp_path / "ledger")
    second = run("east", **options)
    with pytest.raises(GaveUpError, match=r"table belongs to another ledger.*heron units rebuild lines --from"):
        wait_for(lambda: second.drive() or False, PATIENCE_S)
    second.die()
    shutil.rmtree(tmp_path / "ledger")
    rebuild(options["ledger"], "lines", str(tmp_path / "table"))
    settle(run("east", **options), options["ledger"], size)
    assert sorted(path.name for path in (tmp_path / "table").glob("unit=*")) == before
    assert not check(options["ledger"], "lines", str(tmp_path / "table")).problems


def test_what_the_ledger_has_forgotten_agrees_and_comes_back_as_another_file(
    tmp_path: Path, run: Callable[..., Running], options: dict[str, Any]
) -> None:
    """After the horizon a name stands for new files, which are not the earlier ones, for check and rebuild, too."""
    ledger, log = options["ledger"], tmp_path / "logs" / "east" / "a.log"
    options["days"] = 5.0 / 86_400  # a file that is older when it is first seen is late
    write(tmp_path, 0, 100, "east")
    running = run("east", **options)
    settle(running, ledger, log.stat().st_size)
    log.unlink()
    forget(running, ledger, 0)
    assert not check(ledger, "lines", str(tmp_path / "table")).problems
    running.end()
    write(tmp_path, 100, 50, "east")
    running = run("east", **options)
    settle(running, ledger, log.stat().st_size)
    found = check(ledger, "lines", str(tmp_path / "table"))
    assert not found.problems and found.rows == 150
    running.end()
    assert rebuild(ledger, "lines", str(tmp_path / "table")).done_bytes


def test_a_later_file_of_a_name_may_be_forgotten_before_an_earlier_one(
    tmp_path: Path, run: Callable[..., Running], options: dict[str, Any]
) -> None:
    ledger, log = options["ledger"], tmp_path / "logs" / "east" / "a.log"
    options["days"] = 5.0 / 86_400  # a file that is older when it is first seen is late
    write(tmp_path, 0, 100, "east")
    running = run("east", **options)
    settle(running, ledger, first := log.stat().st_size)
    log.rename(log.with_name("old.log"))
    write(tmp_path, 100, 60, "east")
    settle(running, ledger, first + log.stat().st_size)
    log.unlink()
    forget(running, ledger, first)
    running.end()
    write(tmp_path, 160, 40, "east")
    running = run("east", **options)
    settle(running, ledger, first + log.stat().st_size)
    found = check(ledger, "lines", str(tmp_path / "table"))
    assert not found.problems and found.rows == 200
    running.end()
    assert rebuild(ledger, "lines", str(tmp_path / "table")).done_bytes


def test_the_list_tells_of_a_pipeline_that_is_gone(
    tmp_path: Path, run: Callable[..., Running], options: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, 0, 100, "east")
    path = tmp_path / "logs" / "east" / "a.log"
    with path.open("a") as log:
        log.write("half a line")
    site = run("east", **options)
    settle(site, options["ledger"], path.stat().st_size - len("half a line"))
    site.end()
    capsys.readouterr()
    list_pipelines(options["ledger"], as_json=False)
    said = capsys.readouterr().out
    assert said.startswith("lines  ledger sqlite  1 file, ")
    assert re.search(r"0 workers, 0 keepers, [23] units, p50 \S+, p99 \S+, ", said), said
    assert "11B of unfinished last lines are not processed yet" in said
    show_pipeline("lines", options["ledger"], as_json=False)
    assert capsys.readouterr().out.startswith("lines  ledger sqlite  generation 1\n")


def test_what_ends_in_order_does_not_keep_the_ledger_from_being_rebuilt(
    tmp_path: Path, run: Callable[..., Running], options: dict[str, Any]
) -> None:
    ledger, table = options["ledger"], str(tmp_path / "table")
    write(tmp_path, 0, 100, "east")
    site = run("east", **options)
    settle(site, ledger, (tmp_path / "logs" / "east" / "a.log").stat().st_size)
    with pytest.raises(LedgerError, match=r"2 workers and keepers were seen .* kill the topology, then rebuild"):
        rebuild(ledger, "lines", table)
    write(tmp_path, 100, 100, "east")
    wait_for(lambda: site.drive() or shown(ledger).units.get("leased"), PATIENCE_S, "a unit in work")
    site.end()
    figures = shown(ledger)
    assert (figures.workers, figures.keepers) == (0, 0) and "leased" not in figures.units
    assert rebuild(ledger, "lines", table).generation == 2
    again = run("east", **options)
    settle(again, ledger, (tmp_path / "logs" / "east" / "a.log").stat().st_size)
    assert numbers(tmp_path / "table") == Counter(range(200))


def test_who_runs_says_that_the_ledger_was_replaced(
    tmp_path: Path, run: Callable[..., Running], options: dict[str, Any]
) -> None:
    ledger = options["ledger"]
    write(tmp_path, 0, 100, "east")
    site = run("east", **options)
    settle(site, ledger, (tmp_path / "logs" / "east" / "a.log").stat().st_size)

    def replaced(view: View, now: float) -> tuple[Changes, None]:
        pipeline = view.get(Pipeline)
        assert pipeline is not None
        return Changes((replace(pipeline, generation=7),)), None

    with closing(open_store(ledger)) as store:
        store.transact("lines", replaced)
    write(tmp_path, 100, 100, "east")
    settle(site, ledger, (tmp_path / "logs" / "east" / "a.log").stat().st_size)
    said = [text for text in site.delegate.said if "has generation 7, but this task began with 1" in text]
    assert len(said) == 2, "the worker and the keeper"
    assert numbers(tmp_path / "table") == Counter(range(200))


def test_a_unit_that_takes_all_memory_has_been_tried(
    tmp_path: Path, run: Callable[..., Running], options: dict[str, Any]
) -> None:
    """The worker ends in order, but with a unit that has broken it."""
    write(tmp_path, 0, 10, "east")

    def rows(unit: LogUnit) -> list[str]:
        raise MemoryError

    site = run("east", rows=rows, **options)
    with pytest.raises(MemoryError):
        wait_for(site.drive, PATIENCE_S, "an end")
    site.end()
    successor = run("east", ended="oom", rows=rows, **options)
    successor.drive(LogWorker), successor.drive(LogWorker)
    [unit] = ready_units(options["ledger"])
    assert unit.tries == 1 and "oom" in unit.error


def ready_units(ledger: str) -> tuple[UnitView, ...]:
    with closing(command_of(ledger, "lines")) as reached:
        return reached.ask(ListUnits(UnitState.READY)).units
