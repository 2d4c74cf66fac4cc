"""One pipeline in several ledgers, and more of them from a time on."""

from __future__ import annotations

import pytest

from heronpy.common.errors import LedgerAwayError, LedgerError, MovedLedgerError
from heronpy.ingest.ledger.commands import (
    FoundFile,
    FoundRange,
    ListBad,
    ListUnits,
    Pause,
    Rebuild,
    RetryBad,
    RetryFailed,
    SetSite,
    Show,
)
from heronpy.ingest.ledger.partitioned import PartitionedLedger
from heronpy.ingest.ledger.partitions import entries_of, url_of
from heronpy.ingest.ledger.requests import (
    Collect,
    Commit,
    Cut,
    GiveBack,
    GoneFile,
    Lease,
    ListFiles,
    ListFinished,
    MakeDispatch,
    Open,
    Published,
    ReportScan,
    SeenFile,
    ShowAlive,
    WhichLive,
    Who,
    Work,
)
from heronpy.ingest.ledger.types import Config, File, Kind, UnitState
from heronpy.ingest.ledger.validate import validate
from tests.support.memory_ledger import MemoryStore

CONFIG = Config(pattern="*.log", unit_bytes=100, unit_wait_s=0.0)
SWITCH = 1_796_144_400.0
BEFORE = [{"urls": ["a"]}]
AFTER = [{"until": "2026-12-01T17:00", "urls": ["a"]}, {"urls": ["a", "b", "c"]}]


class Away(MemoryStore):
    away = False

    def transact(self, pipeline, decide, lasting=True):  # type: ignore[no-untyped-def]
        if self.away:
            raise LedgerAwayError("it is away")
        return super().transact(pipeline, decide)


def _ledger(
    stores: dict[str, Away], setting: list[dict[str, object]], kind: Kind, task: str, version: int = 0
) -> PartitionedLedger:
    who = Who(task, "1", kind, container=task)
    ledger = PartitionedLedger(
        entries_of(setting), lambda url: stores.setdefault(url, Away()), "p", who, version=version
    )
    ledger.ask(Open(CONFIG))
    return ledger


def _seen(number: int, birth: float, size: int = 100) -> SeenFile:
    return SeenFile(f"f{number}", 1, f"f{number}", size, str(number), "h", birth=birth)


def _work(worker: PartitionedLedger, keeper: PartitionedLedger) -> dict[tuple[str, int], int]:
    """Process and publish all that can be cut; how often each byte was."""
    published: dict[tuple[str, int], int] = {}
    while True:
        cut = keeper.ask(Cut())
        work = worker.ask(Lease())
        if isinstance(work, Work):
            assert worker.ask(Commit(work.unit, work.attempt, work.generation, 1, 0.1)).lost is None
        done = keeper.ask(ListFinished()).units
        keeper.ask(Published(tuple(one.unit for one in done), 1))
        for one in done:
            for chunk in one.chunks:
                for offset in range(chunk.begin, chunk.end):
                    published[chunk.key, offset] = published.get((chunk.key, offset), 0) + 1
        if not cut.units and not isinstance(work, Work) and not done:
            return published


def test_more_ledgers_from_a_time_on_and_each_byte_has_one() -> None:
    stores: dict[str, Away] = {}
    old = _ledger(stores, BEFORE, Kind.KEEPER, "k0")
    files = [_seen(number, SWITCH - 100 if number < 10 else SWITCH + number) for number in range(30)]
    old.ask(ReportScan(tuple(files[:8])))
    old.ask(Cut())
    # The map changes while units are open; a keeper of the old one does not go on with it.
    keeper, worker = _ledger(stores, AFTER, Kind.KEEPER, "k1", 2), _ledger(stores, AFTER, Kind.WORKER, "w")
    keeper.ask(ReportScan(tuple(files)))
    with pytest.raises(MovedLedgerError):
        old.ask(ReportScan(tuple(files[:10])))
    old.ask(Open(CONFIG))
    old.ask(ReportScan(tuple(files[:10])))
    published = _work(worker, keeper)
    assert published == {(one.key, offset): 1 for one in files for offset in range(100)}
    rows = {url: store.snapshot("p") for url, store in stores.items()}
    assert all(validate(one) == [] for one in rows.values())
    keys = {url: {row.key for row in one if isinstance(row, File)} for url, one in rows.items()}
    assert all(keys.values()) and sum(len(one) for one in keys.values()) == 30
    assert {f"f{number}" for number in range(10)} <= keys["a"]
    ids = [row.id for one in rows.values() for row in one if isinstance(row, File)]
    assert len(ids) == len(set(ids))
    drained = {url: figures.units == {} for url, figures in keeper.each(Show()).items()}
    assert drained == {"a": True, "b": True, "c": True}


def test_every_request_finds_its_ledgers() -> None:
    stores: dict[str, Away] = {}
    keeper, worker = _ledger(stores, AFTER, Kind.KEEPER, "k"), _ledger(stores, AFTER, Kind.WORKER, "w")
    files = [_seen(number, SWITCH + 1, 150) for number in range(20)]
    known = keeper.ask(ReportScan(tuple(files))).known
    assert len(known) == 20
    # The second report of what has another head is stale at its own index.
    wrong = SeenFile("f7", 1, "f7", 150, "7", "other", birth=SWITCH + 1)
    assert keeper.ask(ReportScan((files[3], wrong, files[4]))).stale == (1,)
    listed, after = [], 0
    while True:
        page = keeper.ask(ListFiles(after, 7))
        listed.extend(one.file.key for one in page.files)
        if not page.more:
            break
        after = page.files[-1].file.id
    assert sorted(listed) == sorted(one.key for one in files)
    cut = keeper.ask(Cut())
    assert keeper.ask(WhichLive(cut.units)).units == cut.units
    assert len(keeper.ask(ListUnits(UnitState.READY)).units) == len(cut.units)
    work = worker.ask(Lease())
    assert isinstance(work, Work)
    assert worker.ask(GiveBack(False, "", own=True)).units == (work.unit,)
    figures = keeper.ask(Show())
    assert (figures.known_bytes, figures.workers, figures.keepers, figures.files) == (3_000, 1, 1, {"live": 20})
    assert keeper.ask(Pause(True)).paused and worker.ask(ShowAlive()).paused
    assert not keeper.ask(Pause(False)).paused
    assert keeper.ask(SetSite("", False)).freed == 0 and keeper.ask(SetSite("", True)).freed == 0
    assert keeper.ask(RetryFailed()).units == () and keeper.ask(RetryBad()).units == ()
    assert keeper.ask(ListBad()).ranges == ()
    assert keeper.ask(MakeDispatch()).dispatches == ()
    gone = next(one for one in known if one.file.key == "f3")
    assert keeper.ask(ReportScan((), (GoneFile(gone.file.id, "3"),))).known[0].copies == ()
    assert keeper.ask(Collect()).files == 0
    with pytest.raises(LedgerError, match="until it is drained"):
        worker.ask(Commit(7 << 40, 1, 1, 1, 0.1))


def test_a_ledger_that_is_away_stops_only_itself() -> None:
    stores: dict[str, Away] = {}
    keeper, worker = _ledger(stores, AFTER, Kind.KEEPER, "k"), _ledger(stores, AFTER, Kind.WORKER, "w")
    keeper.ask(ReportScan(tuple(_seen(number, SWITCH + 1) for number in range(20))))
    keeper.ask(Cut())
    stores["b"].away = True
    works = [worker.ask(Lease()) for _ in range(8)]
    assert all(isinstance(one, Work) for one in works)
    for store in stores.values():
        store.away = True
    with pytest.raises(LedgerAwayError):
        worker.ask(Lease())


def test_a_rebuild_gives_all_ledgers_one_generation() -> None:
    stores: dict[str, Away] = {}
    first = PartitionedLedger(
        entries_of(BEFORE), lambda url: stores.setdefault(url, Away()), "p", Who("c", "1", Kind.COMMAND)
    )
    found = [FoundFile(f"f{n}", 1, "h", (FoundRange(0, 100, "u"),), birth=SWITCH + 1) for n in range(10)]
    first.ask(Rebuild(CONFIG, tuple(found)))
    command = Who("c", "2", Kind.COMMAND)
    second = PartitionedLedger(entries_of(AFTER), lambda url: stores.setdefault(url, Away()), "p", command)
    rebuilt = second.ask(Rebuild(CONFIG, tuple(found)))
    assert (rebuilt.files, rebuilt.done_bytes) == (10, 1_000)
    assert {answer.generation for answer in second.each(Open(CONFIG)).values()} == {rebuilt.generation}


def test_settings_that_leave_a_file_without_a_ledger_are_refused() -> None:
    for setting, why in (
        ([], "last entry"),
        ([{"until": "2026-12-01", "urls": ["a"]}], "last entry"),
        ([{"urls": ["a"]}, {"urls": ["b"]}], "need an until"),
        (
            [{"until": "2027-01-01", "urls": ["a"]}, {"until": "2026-01-01", "urls": ["a"]}, {"urls": ["b"]}],
            "in ascending order",
        ),
        ([{"urls": []}], "different urls"),
        ([{"urls": ["a", "a"]}], "different urls"),
        ([{"url": "a"}], "until and urls"),
        ([{"until": "soon", "urls": ["a"]}, {"urls": ["b"]}], "is not a time"),
    ):
        with pytest.raises(LedgerError, match=why):
            entries_of(setting)
    entries = entries_of(AFTER)
    assert entries[0].until == SWITCH
    assert {url_of(entries, f"f{n}", SWITCH - 1) for n in range(50)} == {"a"}
    assert {url_of(entries, f"f{n}", SWITCH) for n in range(50)} == {"a", "b", "c"}
