"""Sites that open, report and fall behind while the partition map changes and ledgers are away: no file in two ledgers."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import suppress

import pytest

from heronpy.common.errors import LedgerAwayError, LedgerError, MovedLedgerError
from heronpy.ingest.ledger.partitioned import PartitionedLedger
from heronpy.ingest.ledger.partitions import birth_of, entries_of, partitions_of
from heronpy.ingest.ledger.requests import ListFinished, Open, ReportScan, SeenFile, Who
from heronpy.ingest.ledger.types import Config, File, Kind, Pipeline
from tests.support.memory_ledger import MemoryStore

CONFIG = Config(pattern="*.log")
URLS = ("a", "b", "c")
PROPOSED: tuple[list[dict[str, object]], ...] = (
    [{"urls": ["a"]}],
    [{"urls": ["a", "b"]}],
    [{"until": "2027-01-03", "urls": ["a"]}, {"urls": ["a", "c"]}],
)


class Store(MemoryStore):
    away = False

    def transact(self, pipeline, decide, lasting=True):  # type: ignore[no-untyped-def]
        if self.away:
            raise LedgerAwayError("it is away")
        return super().transact(pipeline, decide)


class World:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.stores = {url: Store() for url in URLS}
        self.day = 1
        self.keys: list[str] = []
        self.sites = [self._ledger(PROPOSED[(seed + number) % 3], f"k{number}") for number in range(3)]
        self.changes = 0

    def _ledger(self, setting: list[dict[str, object]], task: str, version: int = 0) -> PartitionedLedger:
        who = Who(task, "1", Kind.KEEPER)
        return PartitionedLedger(entries_of(setting), self.stores.__getitem__, "p", who, version=version)

    def now(self) -> float:
        return birth_of(f"2027-01-{self.day:02}")

    def open(self) -> None:
        with suppress(LedgerError):
            self.rng.choice(self.sites).ask(Open(CONFIG, ledger=str(self.rng.random())))

    def report(self) -> None:
        """Of a site that has opened its ledgers, whatever has changed since."""
        site = self.rng.choice(self.sites)
        if site.partitions.version:
            self._report(site, self.rng.sample(self.keys, min(3, len(self.keys))))

    def _report(self, site: PartitionedLedger, keys: list[str]) -> None:
        seen = tuple(SeenFile(key, 1, key, 10, key, "h", birth=birth_of(key)) for key in keys)
        with suppress(LedgerError):
            site.ask(ReportScan(seen))
            # A keeper asks all ledgers many times a day, and opens them again when one has another map.
        try:
            site.ask(ListFinished())
        except MovedLedgerError:
            with suppress(LedgerError):
                site.ask(Open(CONFIG, ledger="moved"))
        except LedgerError:
            pass

    def born(self) -> None:
        self.keys.append(f"{len(self.keys)}-2027-01-{self.day:02}.log")

    def next_day(self) -> None:
        for store in self.stores.values():
            store.away = False
        for site in self.sites:
            if site.partitions.version:
                self._report(site, [])
        self.day = min(20, self.day + 1)

    def go(self) -> None:
        store = self.stores[self.rng.choice(URLS)]
        store.away = not store.away and self.rng.random() < 0.5

    def change(self) -> None:
        """By a command that may die between two ledgers, or begin with a map of before another change; a change that was
        begun is finished by the sites on the same day."""
        known = [
            partitions_of(row.partitions)
            for store in self.stores.values()
            for row in store.snapshot("p")
            if isinstance(row, Pipeline) and row.partitions
        ]
        if not known:
            return
        with suppress(LedgerError):
            found = self.rng.choice(known)
            urls = self.rng.sample(URLS, self.rng.randint(1, 3))
            since = f"2027-01-{self.day + self.rng.randint(1, 3):02}"
            changed = found.with_entry(urls, since, self.now())
            self.changes += 1
            self._ledger(changed.setting(), f"c{self.changes}", changed.version).ask(Open(CONFIG))

    def check(self) -> Counter[str]:
        found = Counter(
            row.key for store in self.stores.values() for row in store.snapshot("p") if isinstance(row, File)
        )
        assert not [key for key, count in found.items() if count > 1]
        return found


@pytest.mark.parametrize("seed", range(12))
def test_no_file_is_in_two_ledgers_whoever_follows_when(seed: int) -> None:
    world = World(seed)
    steps = (world.open, world.report, world.report, world.born, world.born, world.next_day, world.go, world.change)
    for _ in range(150):
        world.rng.choice(steps)()
        world.check()
    for store in world.stores.values():
        store.away = False
    for site in world.sites:
        site.ask(Open(CONFIG, ledger="end"))
        for key in world.keys:
            world._report(site, [key])  # noqa: SLF001
    assert world.check() == Counter(world.keys)
    assert len({site.partitions for site in world.sites}) == 1
