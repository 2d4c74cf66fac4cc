"""Reading a unit, and finding its middle, in one process."""

from __future__ import annotations

from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.connectors.textfiles.decoding import LineDecoder
from heronpy.ingest.ledger.requests import Chunk, Halve, Line, Work
from heronpy.ingest.unit import LogUnit, MovedError, SuspectPage, middle
from tests.ingest.unit_chunks import chunk

DECODER = LineDecoder()


def unit_of(folder: Path, *chunks: Chunk, page: SuspectPage | None = None, tries: int = 0) -> LogUnit:
    size = sum(one.end - one.begin for one in chunks)
    return LogUnit(Work(7, 1, 1, size, chunks, 5.0, tries), str(folder), DECODER, page=page)


@given(
    lines=st.lists(st.text(st.characters(codec="ascii", exclude_characters="\n\r"), max_size=12), max_size=30),
    cuts=st.lists(st.integers(0, 400), max_size=6),
)
def test_each_line_is_in_one_of_the_chunks(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], cuts: list[int]
) -> None:
    folder = tmp_path_factory.mktemp("unit")
    path = folder / "a.log"
    path.write_text("".join(line + "\n" for line in lines))
    size = path.stat().st_size
    places = sorted({0, size, *(cut for cut in cuts if cut < size)})
    read: list[str] = []
    for begin, end in pairwise(places):
        unit = unit_of(folder, chunk(path, begin, end))
        read += unit.lines()
        assert len(unit.digests()) == 1
    assert read == lines


def test_the_digest_is_of_all_lines_also_of_those_that_were_not_read(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_text("one\ntwo\nthree\n")
    unit = unit_of(tmp_path, chunk(path, 0, 14))
    assert next(iter(unit.lines())) == "one"
    assert unit.digests() == [sha256(b"one\ntwo\nthree\n").hexdigest()]


def test_the_suspect_is_the_line_that_was_given_out_last(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"one\ntwo\n\xff\xfe\nfour\n")
    unit = unit_of(tmp_path, chunk(path, 0, 16))
    lines = unit.lines()
    assert unit.suspect is None
    next(lines)
    assert unit.suspect == Line(1, 0, 4)
    next(lines)
    with pytest.raises(Exception, match="not valid utf-8"):
        next(lines)
    assert unit.suspect == Line(1, 8, 11)
    blocks = unit_of(tmp_path, chunk(path, 0, 16))
    assert next(blocks.blocks()).data == path.read_bytes() and blocks.suspect is None


def test_a_page_tells_the_successor_at_which_line_a_worker_was(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("one\ntwo\n")
    page = SuspectPage(tmp_path / "pages", "w-1")
    assert page.read() is None
    lines = unit_of(tmp_path, chunk(tmp_path / "a.log", 0, 8), page=page, tries=1).lines()
    next(lines), next(lines)
    found = SuspectPage(tmp_path / "pages", "w-1").read()
    assert found is not None and (found.unit, found.line) == (7, Line(1, 4, 8))
    page.clear()
    assert SuspectPage(tmp_path / "pages", "w-1").read() is None


def test_lines_that_are_processed_together_are_not_suspect(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("one\ntwo\nthree\n")
    page = SuspectPage(tmp_path / "pages", "w-1")
    unit = unit_of(tmp_path, chunk(tmp_path / "a.log", 0, 14), page=page, tries=1)
    lines = unit.lines()
    next(lines)
    unit.process_together(1)
    assert page.read() is None
    next(lines)
    assert page.read() is None and unit.suspect is None
    unit.process_together(None)
    next(lines)
    found = page.read()
    assert found is not None and found.line == unit.suspect == Line(1, 8, 14)


def test_another_file_at_the_path_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_text("one\n")
    unit = unit_of(tmp_path, chunk(path, 0, 4))
    path.write_text("two\n")
    with pytest.raises(MovedError, match="another file"):
        list(unit.lines())
    path.unlink()
    with pytest.raises(MovedError, match="cannot be read"):
        list(unit_of(tmp_path, Chunk(1, "a.log", 1, 0, 4, "x:0:", "a.log")).lines())
    (tmp_path / "a.log").symlink_to("/etc/hostname")
    with pytest.raises(MovedError):
        list(unit_of(tmp_path, Chunk(1, "a.log", 1, 0, 4, "x:0:", "a.log")).lines())


@given(st.lists(st.integers(0, 40), min_size=1, max_size=12), st.data())
def test_the_middle_is_the_line_start_nearest_to_it(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], data: Any
) -> None:
    folder = tmp_path_factory.mktemp("middle")
    path = folder / "a.log"
    path.write_text("".join("x" * length + "\n" for length in lengths))
    starts = [sum(lengths[:n]) + n for n in range(len(lengths))]
    size = path.stat().st_size
    split = data.draw(st.sampled_from([0, *starts[1:]]))
    chunks = (chunk(path, 0, split), chunk(path, split, size)) if split else (chunk(path, 0, size),)
    found = middle(Halve(7, 1, 1, size, chunks), str(folder))
    if len(starts) == 1:
        assert found is None
    else:
        assert found is not None and found[1] in starts[1:]
        best = min(abs(start - size // 2) for start in starts[1:])
        # The start of a chunk is as good as any: it costs no read.
        assert abs(found[1] - size // 2) <= max(best, abs(split - size // 2) if split else best)
