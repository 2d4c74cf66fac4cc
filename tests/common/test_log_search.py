"""Searching a log from its end: the same lines as a search from its beginning, whatever the pieces."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from heronpy.common import log_search
from heronpy.common.log_format import format_record
from heronpy.common.log_search import Hit, contains, search_back


def search_all(path: Path, text: bytes, hits_max: int = 200, context: int = 0, ignore_case: bool = False) -> list[Hit]:
    """All hits, newest first, as one gets them call by call."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        found, until = [], os.fstat(descriptor).st_size
        while until:
            piece = search_back(descriptor, text, until, hits_max, context, ignore_case)
            assert piece.until < until
            found += piece.hits
            until = piece.until
        return found
    finally:
        os.close(descriptor)


_WORDS = st.sampled_from(["a", "b", "ab", "", "aab", "AaB", "É", "x" * 30])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lines=st.lists(_WORDS.map(str.encode), max_size=30),
    ends=st.booleans(),
    text=st.sampled_from([b"a", b"ab", b"Ab", b"xx"]),
    ignore_case=st.booleans(),
    chunk=st.integers(31, 80),
    bytes_max=st.integers(1, 200),
    hits_max=st.integers(1, 5),
    context=st.integers(0, 3),
)
def test_every_line_with_the_text_is_found_once_and_no_line_is_given_twice(
    tmp_path: Path,
    lines: list[bytes],
    ends: bool,
    text: bytes,
    ignore_case: bool,
    chunk: int,
    bytes_max: int,
    hits_max: int,
    context: int,
) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(b"\n".join(lines) + (b"\n" if ends and lines else b""))
    if not ends and lines and not lines[-1]:
        lines = lines[:-1]  # what follows the last line end is no line
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_search, "CHUNK", chunk)
        patch.setattr(log_search, "BYTES_MAX", bytes_max)
        found = search_all(path, text, hits_max, context, ignore_case)
    hit_by = [contains(line.decode(), text.decode(), ignore_case) for line in lines]
    assert [hit.line for hit in found] == [line for line, is_hit in zip(lines, hit_by, strict=True) if is_hit][::-1]
    offsets = [hit.offset for hit in found]
    assert offsets == sorted(set(offsets), reverse=True)
    whole = path.read_bytes()
    for hit in found:
        assert whole[hit.offset :].startswith(hit.line)
        assert len(hit.before) <= context >= len(hit.after)
        block = b"\n".join([*hit.before, hit.line, *hit.after])
        at = hit.offset - sum(len(line) + 1 for line in hit.before)
        assert whole[at:].startswith(block), "the block is a piece of the file"
    if hits_max > len(found) and bytes_max > len(whole):
        blocks = sum(1 + len(hit.before) + len(hit.after) for hit in found)
        near = {i for n, is_hit in enumerate(hit_by) if is_hit for i in range(n - context, n + context + 1)}
        assert blocks == len(near & set(range(len(lines))))


def test_only_a_to_z_have_a_case() -> None:
    assert contains("ValueError: É", "valueerror: É", True) and not contains("ValueError", "valueerror", False)
    assert not contains("É", "é", True), "as the search in the files, which compares bytes"


def test_a_hit_within_a_record_names_its_record(tmp_path: Path) -> None:
    record = format_record(1e9, "ERROR", "container_1_a_1", "user", "it broke\n  File 'x'\nValueError: 7")
    path = tmp_path / "x.log"
    path.write_text(f"{record}\nraw | ValueError: raw\n{format_record(2e9, 'INFO', 'p', 'l', 'ValueError too')}\n")
    plain, raw, inner = search_all(path, b"ValueError", context=1)
    assert plain.head == b"" and plain.line.endswith(b"ValueError too")
    assert raw.head == inner.head == record.split("\n")[0].encode()
    assert (inner.line, inner.before, inner.after) == (b"  | ValueError: 7", [b"  |   File 'x'"], [])


def test_long_lines_are_cut_around_the_text(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(b"y" * 70_000 + b"needle" + b"z" * 70_000 + b"\n" + b"w" * 9000 + b"\nneedle\n")
    short, long = search_all(path, b"needle", context=1)
    assert b"needle" in long.line and len(long.line) == log_search.LINE_MAX
    assert [len(line) for line in short.before] == [log_search.CONTEXT_LINE_MAX]


def test_an_answer_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_bytes((b"needle" + b"x" * 5000 + b"\n") * 500)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        found = search_back(descriptor, b"needle", 1 << 60, 10_000, 0)
    finally:
        os.close(descriptor)
    assert sum(hit.size for hit in found.hits) < log_search.FOUND_MAX_BYTES + log_search.LINE_MAX and found.until > 0
    assert len(search_all(path, b"needle")) == 500
