"""A bounded run (`until="now"`) ends while logs grow: its first complete look seals what it processes."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from heronpy.ingest.checking import check
from heronpy.ingest.keeper import LogKeeper
from heronpy.ingest.ledger import policy
from heronpy.ingest.ledger.client import Ledger
from heronpy.ingest.ledger.requests import Cut, Open, ReportScan, SeenFile, Who
from heronpy.ingest.ledger.types import Config, File, Kind
from tests.ingest.test_units_inside import PATIENCE_S, Context, Running, numbers, options, run, shown, write
from tests.support.memory_ledger import MemoryStore
from tests.support.waiting import wait_for

__all__ = ["options", "run"]
GROWTH = 1_000


@pytest.fixture
def growing(tmp_path: Path) -> Iterator[Callable[..., None]]:
    """Makes logs of sites grow by a line each few milliseconds, until the test ends or a limit is reached."""
    stopped, threads = threading.Event(), []

    def begin(*sites: str, lines: int = 100_000) -> None:
        def grow() -> None:
            for number in range(GROWTH, GROWTH + lines):
                if stopped.wait(0.005):
                    return
                write(tmp_path, number, 1, *sites)

        threads.append(threading.Thread(target=grow, daemon=True))
        threads[-1].start()

    yield begin
    stopped.set()
    for thread in threads:
        thread.join()


def ends(*running: Running) -> None:
    """Drive them until all tasks have ended."""

    def all_ended() -> bool:
        for one in running:
            one.drive()
        return all(task._ended for one in running for task in one.tasks.values())  # noqa: SLF001

    wait_for(all_ended, PATIENCE_S, "the end of the run")


def known_size(ledger: str) -> int:
    return shown(ledger).known_bytes


def named(monkeypatch: pytest.MonkeyPatch, topology: str) -> None:
    """The tasks that are made from now on are of this topology."""
    monkeypatch.setattr(Context, "get_topology_id", lambda self: topology)


def test_a_run_ends_beside_a_log_that_grows_and_the_next_one_goes_on(
    tmp_path: Path,
    run: Callable[..., Running],
    options: dict[str, Any],
    growing: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write(tmp_path, 0, 100, "east")
    growing("east", lines=400)
    first = run("east", until="now", **options)
    log = tmp_path / "logs" / "east" / "a.log"
    # Rows are slower than the log, so that it has grown whenever the keeper looks.
    ends(first)
    sealed = known_size(options["ledger"])
    assert set(range(100)) <= numbers(tmp_path / "table").keys()
    first.end()
    wait_for(lambda: len(log.read_text().splitlines()) == 500, PATIENCE_S, "the end of the growth")
    assert sealed < log.stat().st_size
    named(monkeypatch, "lines-2")
    ends(run("east", until="now", **options))
    assert numbers(tmp_path / "table") == Counter([*range(100), *range(GROWTH, GROWTH + 400)])
    assert not check(options["ledger"], "lines", str(tmp_path / "table")).problems


def test_all_keepers_and_workers_end_when_one_has_found_the_end(
    tmp_path: Path, run: Callable[..., Running], options: dict[str, Any], growing: Callable[..., None]
) -> None:
    """The one that finds it later has looked again meanwhile, at files that have grown."""
    write(tmp_path, 0, 50, "east")
    growing("east")
    tasks = [run("east", until="now", **options) for _ in range(2)]
    wait_for(lambda: tasks[0].drive() or tasks[0].tasks[LogKeeper]._ended, PATIENCE_S, "the first keeper's end")  # type: ignore[attr-defined] # noqa: SLF001
    for _ in range(3):
        tasks[1].drive(LogKeeper)
    ends(*tasks)
    assert not shown(options["ledger"]).units


def test_two_sites_end_each_with_what_it_had(
    tmp_path: Path,
    run: Callable[..., Running],
    options: dict[str, Any],
    growing: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write(tmp_path, 0, 50, "east", "west")
    (tmp_path / "logs" / "west" / "only.log").write_text("line 70\nline 71\n")
    growing("east", "west")
    named(monkeypatch, "lines-east")
    east = run("east", until="now", **options)
    named(monkeypatch, "lines-west")
    west = run("west", until="now", **options)
    ends(east, west)
    found = numbers(tmp_path / "table")
    assert {*range(50), 70, 71} <= found.keys() and max(found.values()) == 1


def test_a_site_ends_beside_another_one_that_follows_its_files(
    tmp_path: Path,
    run: Callable[..., Running],
    options: dict[str, Any],
    growing: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write(tmp_path, 0, 50, "east", "west")
    growing("east", "west")
    named(monkeypatch, "lines-east")
    east = run("east", until="now", **options)
    named(monkeypatch, "lines-west")
    west = run("west", **options)
    wait_for(
        lambda: west.drive() or east.drive() or all(task._ended for task in east.tasks.values()),  # type: ignore[attr-defined] # noqa: SLF001
        PATIENCE_S,
        "the end of the bounded site",
    )
    assert set(range(50)) <= numbers(tmp_path / "table").keys()


@pytest.mark.parametrize("rotation", ["rename", "copytruncate"])
def test_a_log_is_rotated_while_the_run_is_sealed(
    tmp_path: Path, run: Callable[..., Running], options: dict[str, Any], rotation: str
) -> None:
    options |= {"logs": f"{tmp_path}/logs/{{site}}/*.log*", "unit_bytes": 100}
    write(tmp_path, 0, 100, "east")
    one = run("east", until="now", **options)
    wait_for(lambda: one.drive() or shown(options["ledger"]).units, PATIENCE_S, "a unit")
    sealed = known_size(options["ledger"])
    log = tmp_path / "logs" / "east" / "a.log"
    write(tmp_path, 100, 10, "east")  # the rotated file has more than was sealed
    if rotation == "rename":
        log.rename(f"{log}.1")
    else:
        (log.parent / "a.log.1").write_bytes(log.read_bytes())
        os.truncate(log, 0)
    write(tmp_path, 200, 10, "east")
    ends(one)
    assert numbers(tmp_path / "table") == Counter(range(100))
    assert known_size(options["ledger"]) == sealed


def test_bytes_of_a_removed_log_are_bad_before_the_run_ends(
    tmp_path: Path, run: Callable[..., Running], options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy, "VANISHED_S", 0.0)
    monkeypatch.setattr("heronpy.ingest.keeper.CLEAN_S", 0.2)
    write(tmp_path, 0, 100, "east")
    one = run("east", until="now", **options, unit_wait_s=30.0, unit_bytes=1_000_000)
    wait_for(lambda: one.drive() or known_size(options["ledger"]), PATIENCE_S, "a look")
    (tmp_path / "logs" / "east" / "a.log").unlink()
    ends(one)
    assert shown(options["ledger"]).bad_bytes and not numbers(tmp_path / "table")


def test_a_log_that_cannot_be_read_does_not_hold_up_the_end(
    tmp_path: Path, run: Callable[..., Running], options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from heronpy.connectors.textfiles import places

    write(tmp_path, 0, 10, "east")
    ends(first := run("east", until="now", **options))
    first.end()
    write(tmp_path, 10, 10, "east")

    def refused(*args: Any) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(places, "open_below", refused)
    named(monkeypatch, "lines-2")
    second = run("east", until="now", **options)
    ends(second)
    assert any("cannot be read (Permission denied)" in text for text in second.delegate.said)


def test_a_sealed_run_takes_nothing_new_and_another_run_does() -> None:
    """Also of a keeper that has not heard of the seal."""
    store = MemoryStore(lambda: 1_000.0)
    keepers = [Ledger(store, "lines", Who(f"keeper-{n}", f"{n}", Kind.KEEPER)) for n in range(2)]
    config = Config(pattern="/logs/*.log", unit_wait_s=0.0)
    seen = SeenFile("a.log", 1, "a.log", 100, "1:1", "f:4:h", tail="100:x")

    def sizes() -> dict[str, int]:
        return {row.key: row.size for row in store.snapshot("lines") if isinstance(row, File)}

    for keeper in keepers:
        keeper.ask(Open(config))
    keepers[0].ask(ReportScan((seen,), run="r1"))
    assert not keepers[0].ask(Cut(run="r1", complete=True)).over, "it is sealed, and not processed"
    grown = SeenFile("a.log", 1, "a.log", 300, "1:1", "f:4:h", compared="f:4:h", tail="300:y")
    new = SeenFile("b.log", 1, "b.log", 50, "1:2", "g:4:h", tail="50:z")
    answer = keepers[1].ask(ReportScan((grown, new), run="r1"))
    assert sizes() == {"a.log": 100} and not answer.stale
    assert [one.file.key for one in answer.known] == ["a.log"]
    keepers[1].ask(Cut(run="r2", complete=False))
    keepers[1].ask(ReportScan((grown, new), run="r2"))
    assert sizes() == {"a.log": 300, "b.log": 50}
