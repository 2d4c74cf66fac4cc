"""Files of a batch run: headers, several patterns, whole files, and the positions at which a stream continues."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from heronpy.connectors.textfiles.decoding import LineDecoder
from heronpy.connectors.textfiles.followed import Table
from heronpy.connectors.textfiles.following import Follower
from heronpy.connectors.textfiles.line_share import LineShare, find_files
from heronpy.growing.patterns import parse
from heronpy.ingest import unit
from heronpy.ingest.boundary import followed_state, read_state
from heronpy.ingest.ledger import tracking
from heronpy.ingest.ledger.client import Ledger
from heronpy.ingest.ledger.requests import Cut, KnownFile, Lease, ListFiles, Open, ReportScan, ShowAlive, Who, Work
from heronpy.ingest.ledger.types import Config, Kind
from heronpy.ingest.options import SEPARATOR, Logs, logs_at
from heronpy.ingest.unit import LogUnit
from heronpy.ingest.watch import Watch
from tests.support.memory_ledger import MemoryStore
from tests.support.seeds import seeds

RUN = "visits-3"


class Batch:
    """A sealed pipeline of the files that match now."""

    def __init__(self, *patterns: str, header_lines: int = 0, whole: bool = False, unit_bytes: int = 64) -> None:
        self.header_lines, self.whole = header_lines, whole
        self.logs: Logs = logs_at(SEPARATOR.join(patterns), "")
        config = Config(
            pattern=SEPARATOR.join(patterns), unit_bytes=unit_bytes, unit_wait_s=0.0, ready_per_worker=10_000
        )
        store = MemoryStore()
        self.keeper, self.worker = (Ledger(store, "p", Who(kind, "1", kind)) for kind in (Kind.KEEPER, Kind.WORKER))
        for one in (self.keeper, self.worker):
            one.ask(Open(config))
        self.worker.ask(ShowAlive())
        self.look()

    def look(self) -> None:
        known = self.keeper.ask(ListFiles()).files
        watch = Watch(self.logs, 7.0, known, "", bounded=True, header_lines=self.header_lines, whole=self.whole)
        watch.look(0.0)
        assert watch.has_all_readable
        seen, gone = watch.changes(1_000)
        assert watch.answered(self.keeper.ask(ReportScan(seen, gone, run=RUN)))
        while self.keeper.ask(Cut(run=RUN, complete=True)).units:
            pass

    @property
    def files(self) -> tuple[KnownFile, ...]:
        return self.keeper.ask(ListFiles()).files

    def rows(self, emit_offset: bool = False) -> list[list[Any]]:
        """What all units give."""
        found: list[list[Any]] = []
        while isinstance(work := self.worker.ask(Lease()), Work):
            one = LogUnit(work, self.logs.root, LineDecoder(), header_lines=self.header_lines, whole=self.whole)
            found += map(list, one.located()) if emit_offset else ([line] for line in one.lines())
            one.digests()
        return found

    def followed(self) -> dict[Any, Any]:
        return followed_state(self.files, self.logs.root, self.header_lines)


def lines_from(state: dict[Any, Any], patterns: Iterable[str], header_lines: int = 0, readers: int = 1) -> list[str]:
    """The lines that a stream with `readers` tasks reads when it begins with a state."""
    found: list[str] = []
    for index in range(readers):
        follower = Follower([parse(one) for one in patterns], LineDecoder(), header_lines=header_lines)
        follower.restore(state)
        follower.attend(0.0, index, readers)
        while (block := follower.next_block()) is not None:
            found += block.lines
    return found


def test_a_header_is_in_no_unit_wherever_files_are_cut(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.csv").write_text(
            "".join(["first,second\n", f"of {name}\n", *(f"{name}{n}\n" for n in range(9))])
        )
    for unit_bytes in (1, 7, 20, 1_000):
        rows = Batch(f"{tmp_path}/*.csv", header_lines=2, unit_bytes=unit_bytes).rows()
        assert sorted(row[0] for row in rows) == sorted(f"{name}{n}" for name in "ab" for n in range(9))


def test_a_file_that_matches_two_patterns_is_read_once_with_path_and_offset(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    first, second = tmp_path / "a.log", tmp_path / "in" / "b.log"
    first.write_text("one\ntwo\n")
    second.write_text("three\n")
    rows = Batch(f"{tmp_path}/*.log", f"{tmp_path}/in/*.log", f"{tmp_path}/a*", unit_bytes=4).rows(emit_offset=True)
    assert sorted(rows) == [["one", str(first), 0], ["three", str(second), 0], ["two", str(first), 4]]


def test_files_that_are_read_once_are_whole_and_none_is_taken_for_a_copy(tmp_path: Path) -> None:
    """As the same spout reads them as a stream."""
    texts = {"a.log": "1\n2", "a.log.1": "1\n2", "b.log": "x", "c.log": "", "d.log": "3\n"}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    pattern = f"{tmp_path}/*"
    share = LineShare(find_files([pattern]), lambda path, count: range(count), {})
    streamed: list[str] = []
    while (block := share.next_block()) is not None:
        streamed += block.lines
    for unit_bytes in (1, 2, 100):
        assert sorted(row[0] for row in Batch(pattern, whole=True, unit_bytes=unit_bytes).rows()) == sorted(streamed)
    # Then a stream begins behind them, and reads what is new.
    batch = Batch(pattern, whole=True)
    (tmp_path / "e.log").write_text("4\n")
    state = read_state(batch.files, batch.logs.root, 256 * 1024)
    share = LineShare(find_files([pattern]), lambda path, count: range(count), state)
    assert [block.lines for block in iter(share.next_block, None)] == [["4"]]


@pytest.mark.parametrize("readers", [1, 3])
def test_a_stream_continues_at_the_sealed_ends_while_files_grow_and_rotate(tmp_path: Path, readers: int) -> None:
    log, other, gone = tmp_path / "a.log", tmp_path / "b.log", tmp_path / "gone.log"
    log.write_text("a1\na2\nhalf of a")
    other.write_text("b1\n")
    gone.write_text("g1\n")
    batch = Batch(f"{tmp_path}/*.log*")
    with log.open("a") as file:
        file.write("3\na4\n")
    batch.look()  # sealed: it grows, and no byte is added
    os.rename(log, tmp_path / "a.log.1")
    log.write_text("new1\n")
    batch.look()
    other.write_text("b1\nb2\n")
    gone.unlink()
    (tmp_path / "c.log").write_text("c1\n")
    found = lines_from(batch.followed(), [f"{tmp_path}/*.log*"], readers=readers)
    assert sorted(found) == ["a4", "b2", "c1", "half of a3", "new1"]


def is_one_stream(folder: Path, seed: int) -> bool:
    """Whether each line is in the batch or in the stream behind it, with no gap and no overlap, if files are written
    and renamed before, during and after the batch."""
    chance, header = Random(seed), seed % 3
    names = [folder / f"{name}.log" for name in "abc"]
    written: list[str] = []

    def grow(times: int) -> None:
        for _ in range(times):
            path = chance.choice(names)
            if not path.exists():
                path.write_text("".join(f"header {n} of {path.name} {len(written)}\n" for n in range(header)))
            with path.open("a") as file:
                for _ in range(chance.randrange(1, 40)):
                    written.append(f"line {len(written)} {'x' * chance.randrange(60)}")
                    file.write(written[-1] + "\n")

    grow(chance.randrange(6))
    batch = Batch(f"{folder}/*.log", header_lines=header, unit_bytes=chance.choice((10, 200, 5_000)))
    history: list[str] = []
    if chance.random() < 0.5:
        history += [row[0] for row in batch.rows()]
    grow(chance.randrange(6))
    sealed = batch.followed()
    batch.look()
    if chance.random() < 0.5 and names[0].exists():
        os.rename(names[0], folder / "a.log.1.log")
        batch.look()
    history += [row[0] for row in batch.rows()]
    grow(chance.randrange(4))
    # The boundary is known when the pipeline is sealed, and also at the end.
    state = batch.followed() if chance.random() < 0.7 else sealed
    live = lines_from(state, [f"{folder}/*.log"], header, readers=chance.randrange(1, 5))
    return sorted(history + live) == sorted(written)


@pytest.mark.parametrize("seed", seeds(6, 200))
def test_history_and_live_are_one_stream_wherever_the_boundary_is(tmp_path: Path, seed: int) -> None:
    assert is_one_stream(tmp_path, seed)


def no_seal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files grow behind the seal."""
    monkeypatch.setattr(tracking, "is_sealed", lambda draft, run, who: False)


def one_line_too_far(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stream begins one line behind the end of the batch."""
    add = Table.add

    def added(self: Table, path: str, device: int, inode: int, mark: Any, position: int, size: int) -> Any:
        data = Path(path).read_bytes() if position and Path(path).exists() else b""
        return add(self, path, device, inode, mark, data.find(b"\n", position) + 1 or position, size)

    monkeypatch.setattr(Table, "add", added)


def without_header(monkeypatch: pytest.MonkeyPatch) -> None:
    """A header is read like other lines."""
    monkeypatch.setattr(unit, "_header_end", lambda descriptor, lines: 0)


@pytest.mark.parametrize("bug", [no_seal, one_line_too_far, without_header])
def test_a_planted_bug_is_found(
    bug: Callable[[pytest.MonkeyPatch], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bug(monkeypatch)
    for seed in range(40):
        (folder := tmp_path / str(seed)).mkdir()
        if not is_one_stream(folder, seed):
            return
    pytest.fail(f"{bug.__name__} was not found")
