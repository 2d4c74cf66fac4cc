"""Which ledger has which file: all sites follow one map, also while it changes, and no line comes twice."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from heronpy.cli.exits import Failure
from heronpy.cli.look.units import partition
from heronpy.common.errors import GaveUpError, LedgerError
from heronpy.common.hashing import stable_hash
from heronpy.ingest import LineFiles
from heronpy.ingest.checking import check, rebuild
from heronpy.ingest.keeper import LogKeeper
from heronpy.ingest.ledger.partitions import Partitions, entries_of, newest, partitions_of
from heronpy.ingest.outputs.stages import Stages
from tests.ingest.test_units_inside import Running, options, run, shown
from tests.support.waiting import wait_for

__all__ = ["options", "run"]
PATIENCE_S = 120.0
LATER = datetime.now(UTC) + timedelta(days=3)
BEFORE, BEHIND = (f"{LATER + timedelta(days=days):%Y-%m-%d}" for days in (-1, 1))
SINCE = f"{LATER:%Y-%m-%dT00:00}"


def urls_of(root: Path) -> list[str]:
    return [f"sqlite:{root}/ledger/{name}.db" for name in "ab"]


def write(root: Path, name: str, count: int = 20) -> None:
    """The same file on both sites."""
    for site in ("east", "west"):
        (root / "logs" / site / f"{name}.log").write_text("".join(f"{name} {number}\n" for number in range(count)))


def rows(root: Path) -> Counter[str]:
    parts = (root / "table").glob("unit=*/part-0.txt")
    return Counter(line for path in parts for line in path.read_text().splitlines())


def files_of(url: str) -> int:
    return sum(shown(url).files.values())


def settle(sites: list[Running], root: Path, names: list[str], count: int = 20) -> None:
    """Drive until all lines are there; each of them once."""

    def is_there() -> bool:
        for site in sites:
            site.drive()
        return len(rows(root)) == len(names) * count

    wait_for(is_there, PATIENCE_S, f"the lines of {len(names)} files")
    assert set(rows(root).values()) == {1}


def test_two_sites_with_different_maps_double_nothing(
    tmp_path: Path, run: Callable[..., Running], options: dict[str, Any]
) -> None:
    """The second one follows the map that the first one has begun with, and says so."""
    urls = urls_of(tmp_path)
    partitioned = json.dumps([{"until": SINCE, "urls": urls[:1]}, {"urls": urls}])
    east = run("east", **options | {"ledger": urls[0]})
    east.drive()
    west = run("west", **options | {"ledger": partitioned})
    names = [f"{number}-{day}" for number in range(4) for day in (BEFORE, BEHIND)]
    for name in names:
        write(tmp_path, name)
    settle([east, west], tmp_path, names)
    assert any("the ledgers in its settings are ignored" in text for text in west.delegate.said)
    assert files_of(urls[0]) == 8
    about = Stages(str(tmp_path / "table")).pipeline()
    assert about is not None and about.partitions is not None
    assert about.partitions == Partitions(entries_of([{"urls": urls[:1]}]), 1)


def test_the_map_changes_while_two_sites_run(
    tmp_path: Path, run: Callable[..., Running], options: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    urls = urls_of(tmp_path)
    sites = [run(site, **options | {"ledger": urls[0]}) for site in ("east", "west")]
    names = [f"{number}-{BEFORE}" for number in range(3)]
    for name in names:
        write(tmp_path, name)
    settle(sites, tmp_path, names)
    partition("lines", urls, SINCE, urls[0], False)
    assert "has version 2 of its partition map" in capsys.readouterr().out
    more = [f"{number}-{day}" for number in range(3, 9) for day in (BEFORE, BEHIND)]
    for name in more:
        write(tmp_path, name)
    settle(sites, tmp_path, names + more)
    assert files_of(urls[1]) > 0
    for site in sites:
        site.end()
    table = str(tmp_path / "table")
    assert not check(urls[0], "lines", table).problems, "a command finds all ledgers by one of them"
    partition("lines", (), "", urls[1], True)
    shown_map = json.loads(capsys.readouterr().out)
    assert shown_map["version"] == 2 and [one["urls"] for one in shown_map["entries"]] == [urls[:1], urls]
    # A program from before the change, and a rebuilt ledger, continue with the same map.
    Path(urls[1].removeprefix("sqlite:")).unlink()
    rebuild(urls[0], "lines", table)
    last = [f"last-{BEHIND}", f"end-{BEHIND}", f"last-{BEFORE}"]
    for name in last:
        write(tmp_path, name)
    settle([run("west", **options | {"ledger": urls[0]})], tmp_path, names + more + last)
    assert not check(urls[0], "lines", table).problems


def test_a_change_that_would_move_files_is_refused(
    tmp_path: Path, run: Callable[..., Running], options: dict[str, Any]
) -> None:
    urls = urls_of(tmp_path)
    site = run("east", **options | {"ledger": urls[0]})
    write(tmp_path, f"early-{BEHIND}")
    settle([site], tmp_path, [f"early-{BEHIND}"])
    for since, why in (
        ("2026-01-01T00:00", "an entry for a past time cannot be added"),
        (SINCE, "which would belong to another ledger in version 2"),
        ("soon", "is not a time"),
        ("", "needs ledgers and a time"),
    ):
        with pytest.raises((Failure, LedgerError), match=why):
            partition("lines", urls[1:], since, urls[0], False)
    write(tmp_path, "later")
    settle([site], tmp_path, [f"early-{BEHIND}", "later"])
    assert partition_version(tmp_path, urls[0]) == 1


def test_a_change_that_one_of_the_ledgers_refuses_is_in_none_of_them(
    tmp_path: Path, run: Callable[..., Running], options: dict[str, Any]
) -> None:
    """Else all tasks would follow it, and end."""
    urls = urls_of(tmp_path)
    second = next(f"{number}-{BEHIND}" for number in range(99) if stable_hash(f"{number}-{BEHIND}.log") % 2)
    write(tmp_path, second)
    east = run("east", **options | {"ledger": json.dumps([{"urls": urls}])})
    settle([east], tmp_path, [second])
    taken = f"sqlite:{tmp_path}/ledger/taken.db"
    run("west", **options | {"ledger": taken, "output": LineFiles(str(tmp_path / "other"))}).drive()
    for given, since, why in (
        (urls[:1], SINCE, "which would belong to another"),
        ([taken], f"{LATER + timedelta(days=2):%Y-%m-%d}", "; use another ledger"),
    ):
        with pytest.raises((Failure, LedgerError), match=why):
            partition("lines", given, since, urls[0], False)
    write(tmp_path, "later")
    settle([east], tmp_path, [second, "later"])
    assert partition_version(tmp_path, urls[0]) == 1


def partition_version(root: Path, url: str) -> int:
    about = Stages(str(root / "table")).pipeline()
    assert about is not None and about.partitions is not None
    return about.partitions.version


def test_two_sites_with_a_default_ledger_each_on_one_table(
    tmp_path: Path, run: Callable[..., Running], options: dict[str, Any]
) -> None:
    urls = urls_of(tmp_path)
    write(tmp_path, "one")
    east, west = (run(site, **options | {"ledger": url}) for site, url in zip(("east", "west"), urls, strict=True))
    east.drive(LogKeeper)
    with pytest.raises(GaveUpError, match="belongs to another ledger"):
        west.drive(LogKeeper)
    settle([east], tmp_path, ["one"])


def test_two_sites_that_begin_with_unequal_first_ledgers(
    tmp_path: Path, run: Callable[..., Running], options: dict[str, Any]
) -> None:
    """`b` alone is there when the other one would have both."""
    urls = urls_of(tmp_path)
    write(tmp_path, "one")
    west = run("west", **options | {"ledger": urls[1]})
    west.drive(LogKeeper)
    east = run("east", **options | {"ledger": json.dumps([{"urls": urls}])})
    with pytest.raises((LedgerError, GaveUpError), match="contains this pipeline with different ledgers than"):
        east.drive(LogKeeper)
    settle([west], tmp_path, ["one"])


def test_a_ledger_takes_a_newer_map_only() -> None:
    first, second = ([{"urls": ["a"]}], [{"until": "2027-01-01", "urls": ["a"]}, {"urls": ["b"]}])
    known = newest("", Partitions(entries_of(first)).to_json(), [])
    assert partitions_of(known) == Partitions(entries_of(first), 1)
    given = Partitions(entries_of(second), 2).to_json()
    assert newest(known, given, ["app-2026-12-01.log"]) == given
    assert newest(given, known, []) == given and newest(known, "", []) == known
    assert newest(known, Partitions(entries_of(second), 1).to_json(), []) == known
    with pytest.raises(LedgerError, match=r"already has 'app-2027-02-01.log'"):
        newest(known, given, ["app-2026-12-01.log", "app-2027-02-01.log"])
    changed = partitions_of(known).with_entry(["b"], "2027-01-01", 0.0)
    assert changed.to_json() == given and entries_of(changed.setting()) == changed.entries
    with pytest.raises(LedgerError, match="the last entry begins at 2027-01-01T00:00:00"):
        changed.with_entry(["c"], "2026-12-01", 0.0)
    with pytest.raises(LedgerError, match="partition map of the ledger is damaged"):
        partitions_of("{")
