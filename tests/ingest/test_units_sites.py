"""Sites as topologies on one machine with one ledger: one is killed whole, all is processed once, and it comes back."""

from __future__ import annotations

import os
import shutil
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.command import FAILED, NOT_FOUND, USAGE, Heron
from tests.support.postgres import PostgresServer
from tests.support.waiting import wait_for

PROGRAM = Path(__file__).parent / "programs" / "sites.py"
PATIENCE_S = 150.0


@pytest.fixture
def sites(home: Path) -> Iterator[dict[str, Heron]]:
    """Two homes, as if they were two hosts."""
    found = {}
    for name in ("east", "west"):
        (home.parent / name).mkdir(mode=0o700)
        (home.parent / "logs" / name).mkdir(parents=True)
        found[name] = Heron(home.parent / name)
    yield found
    for one in found.values():
        for topology in one.names():
            one.kill(topology)
    for one in found.values():
        one.check_clean()


@pytest.fixture
def root(home: Path) -> Path:
    return home.parent


def submit(heron: Heron, root: Path, ledger: str, site: str, *more: object) -> None:
    words = ("--logs", f"{root}/logs/{{site}}/*.log", "--table", root / "table", "--ledger", ledger, *more)
    settings = ("--config-property", f"heron.ingest.site={site}", "--config-property", "heron.ingest.silent_s=4")
    heron("submit", "local", *settings, PROGRAM, *words).ok()


def write(root: Path, first: int, count: int, *sites: str) -> None:
    for site in sites:
        with open(root / "logs" / site / f"{first % 3}.log", "a") as log:
            log.write("".join(f"line {number} {'x' * 80}\n" for number in range(first, first + count)))


def shown(heron: Heron, ledger: str) -> dict[str, Any]:
    found = heron("units", "show", "lines", "--ledger", ledger, "--json")
    return dict(found.json()) if found.code == 0 else {}


def site_of(heron: Heron, ledger: str, name: str) -> dict[str, Any]:
    return next((one for one in shown(heron, ledger).get("sites", ()) if one["name"] == name), {})


def settled(heron: Heron, root: Path, ledger: str, site: str) -> None:
    """Wait until what a site has is published."""
    size = sum(path.stat().st_size for path in (root / "logs" / site).glob("*.log"))

    def is_settled() -> bool:
        found = shown(heron, ledger)
        return bool(found) and found["done_bytes"] == size and not found["live"]

    wait_for(is_settled, PATIENCE_S, f"the publication of {size} bytes")


def judge(heron: Heron, root: Path, ledger: str, count: int) -> None:
    """Each line is in the table once, and table, ledger and bytes agree."""
    rows = [
        line for path in (root / "table").glob("unit=*/part-0.txt") for line in path.read_text("utf-8").splitlines()
    ]
    found = Counter(int(row.split()[1]) for row in rows)
    assert found == Counter(range(count))
    checked = heron("units", "check", "lines", "--table", root / "table", "--ledger", ledger)
    assert checked.code == 0, checked.out


def kill_whole(heron: Heron) -> None:
    """All processes of a site at once, as when its power fails."""

    def is_dead() -> bool:
        running = heron.processes()
        for process in running:
            try:
                process.send_signal(signal.SIGKILL)
            except psutil.NoSuchProcess:
                continue
        return not running

    wait_for(is_dead, 30.0, "the end of the site")


def come_back(heron: Heron, root: Path, ledger: str, site: str, *more: object) -> None:
    (heron.home / "hold").unlink(missing_ok=True)
    heron.kill("lines")
    submit(heron, root, ledger, site, *more)


def an_outage(sites: dict[str, Heron], root: Path, ledger: str, *more: object) -> None:
    """Both sites work, then the east is gone while it has units that only it has begun."""
    east, west = sites["east"], sites["west"]
    write(root, 0, 1000, "east", "west")
    (east.home / "hold").touch()
    submit(east, root, ledger, "east", *more)
    wait_for(lambda: site_of(east, ledger, "east").get("leased") == 2, PATIENCE_S, "units in the east")
    submit(west, root, ledger, "west", *more)
    write(root, 1000, 500, "east", "west")
    wait_for(lambda: shown(west, ledger)["done_bytes"] > 0, PATIENCE_S, "units by the west")
    kill_whole(east)


@pytest.mark.heavy
def test_a_site_that_is_killed_whole_and_taken_down_by_a_user(sites: dict[str, Heron], root: Path) -> None:
    ledger = f"sqlite:{root}/ledger/units.db"
    east, west = sites["east"], sites["west"]
    an_outage(sites, root, ledger)
    write(root, 1500, 500, "west")
    west("units", "site", "lines", "north", "down", "--ledger", ledger).refused(NOT_FOUND, "its sites are east, west")
    said = west("units", "site", "lines", "east", "down", "--ledger", ledger).ok().out
    assert "gets no more units" in said
    settled(west, root, ledger, "west")
    judge(west, root, ledger, 2000)
    assert "east (down)" in west("units", "list", "--ledger", ledger).ok().out
    # It comes back; first its copies catch up, then it does the work alone.
    shutil.copytree(root / "logs" / "west", root / "logs" / "east", dirs_exist_ok=True)
    come_back(east, root, ledger, "east")
    west("units", "site", "lines", "east", "up", "--ledger", ledger).ok()
    wait_for(lambda: site_of(west, ledger, "east").get("state") == "up", PATIENCE_S, "the east being up")
    west("units", "site", "lines", "west", "down", "--ledger", ledger).ok()
    write(root, 2000, 400, "east", "west")
    settled(west, root, ledger, "west")
    judge(east, root, ledger, 2400)


@pytest.mark.heavy
def test_a_site_that_falls_silent_loses_its_units(
    sites: dict[str, Heron], root: Path, postgres: PostgresServer
) -> None:
    """Nobody says so. Rows are also copied into another folder before they count."""
    ledger, replica = postgres.url, ("--replica", root / "replica")
    east, west = sites["east"], sites["west"]
    an_outage(sites, root, ledger, *replica)
    settled(west, root, ledger, "west")
    judge(west, root, ledger, 1500)
    assert site_of(west, ledger, "east")["state"] == "silent"
    assert not list((root / "replica" / "_units").glob("g*/*"))
    come_back(east, root, ledger, "east", *replica)
    write(root, 1500, 300, "east")
    settled(east, root, ledger, "east")
    judge(east, root, ledger, 1800)


@pytest.mark.heavy
def test_a_pipeline_waits_for_another_and_says_so(heron: Heron, root: Path) -> None:
    ledger = f"sqlite:{root}/ledger/units.db"
    (root / "logs").mkdir()
    (root / "logs" / "a.log").write_text("".join(f"line {number}\n" for number in range(100)))
    (heron.home / "hold").touch()
    words = ("--logs", root / "logs" / "*.log", "--table", root / "table", "--ledger", ledger, "--until", "now")
    heron.submit(PROGRAM, *words, "--pipeline", "first", "--pipeline", "second:first")

    def waits() -> bool:
        found = heron("units", "show", "second", "--ledger", ledger, "--json")
        units = found.json()["live"] if found.code == 0 else []
        return any(
            "pipeline 'first', whose oldest byte has waited for" in text for one in units for text in one["waits"]
        )

    wait_for(waits, PATIENCE_S, "a unit that waits for the other pipeline")
    assert not list((root / "table" / "second").glob("unit=*"))
    os.unlink(heron.home / "hold")
    heron.when_state("lines", "FINISHED", PATIENCE_S)
    for name in ("first", "second"):
        [part] = (root / "table" / name).glob("unit=*/part-0.txt")
        assert len(part.read_text().splitlines()) == 100
    heron.kill("lines")
    refused = heron("submit", "local", PROGRAM, *words, "--pipeline", "first:second")
    refused.refused(USAGE, "first after second after first")


@pytest.mark.heavy
def test_what_a_site_or_a_ledger_cannot_be_is_one_sentence(heron: Heron, root: Path) -> None:
    ledger = f"sqlite:{root}/ledger/units.db"
    words = ("--logs", f"{root}/logs/{{site}}/*.log", "--table", root / "table", "--ledger", ledger)
    heron("submit", "local", PROGRAM, *words).refused(USAGE, "--config-property heron.ingest.site=NAME")
    property_of = ("--config-property", "heron.ingest.site=far east")
    heron("submit", "local", *property_of, PROGRAM, *words).refused(USAGE, "'far east' is not a valid site name")
    heron("units", "list", "--ledger", '[{"until": "soon"}]').refused(FAILED, "needs a list of different urls")
    heron("units", "site", "lines", "east", "down", "--ledger", ledger).refused(FAILED, "there is no ledger")
    heron("units", "list", "--ledger", "[").refused(FAILED, "are not valid JSON")
