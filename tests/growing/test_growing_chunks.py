"""Whole lines of parts of files; opening them below a folder; looking for them."""

from __future__ import annotations

import os
import socket
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heronpy.growing import scan
from heronpy.growing.below import UnfitFileError, open_below
from heronpy.growing.chunks import LongLineError, line_at, read_chunk, safe_size
from heronpy.growing.patterns import key_of, parse, stem, stems_of_origins
from heronpy.growing.scan import Pace, Scanner

data = st.lists(st.sampled_from([b"\n", b"\n", b"a", b"bc", b"\r\n", b"0123456789" * 3]), max_size=40).map(b"".join)


def opened(path: Path, content: bytes) -> int:
    path.write_bytes(content)
    return os.open(path, os.O_RDONLY)


@settings(deadline=None)
@given(data, st.lists(st.integers(0, 200), max_size=5), st.integers(1, 20))
def test_each_line_is_in_one_chunk_however_they_are_cut(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, cuts: list[int], block_bytes: int
) -> None:
    descriptor = opened(tmp_path_factory.mktemp("chunks") / "f", content)
    try:
        size = safe_size(descriptor, len(content))
        assert size == content.rfind(b"\n") + 1
        edges = [0, *sorted({cut for cut in cuts if cut < size}), size]
        found = b""
        for begin, end in pairwise(edges):
            for lines in read_chunk(descriptor, "f", begin, end, block_bytes):
                assert lines.offset == len(found) and lines.data.endswith(b"\n")
                last = lines.data.rfind(b"\n", 0, len(lines.data) - 1) + 1
                assert begin <= lines.offset and lines.offset + last < end
                found += lines.data
        assert found == content[:size]
    finally:
        os.close(descriptor)


def test_a_line_that_does_not_fit_is_refused_with_its_place(tmp_path: Path) -> None:
    descriptor = opened(tmp_path / "f", b"short\n" + b"x" * 100 + b"\nshort\n")
    try:
        for block_bytes in (4, 30, 4096):
            with pytest.raises(LongLineError, match=r"f has a line of more than 50 bytes at byte 6"):
                list(read_chunk(descriptor, "f", 0, 113, block_bytes, 50))
        assert line_at(descriptor, "f", 0) == b"short"
        assert line_at(descriptor, "f", 107) == b"short" and line_at(descriptor, "f", 113) is None
    finally:
        os.close(descriptor)


def test_nothing_is_opened_through_a_link_or_outside(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "in").mkdir(parents=True)
    (root / "in" / "f").write_text("inside\n")
    (tmp_path / "secret").write_text("outside\n")
    (root / "link").symlink_to(tmp_path / "secret")
    (root / "folder").symlink_to(tmp_path)
    os.mkfifo(root / "pipe")
    descriptor = open_below(str(root), "in/f")
    assert os.read(descriptor, 10) == b"inside\n"
    os.close(descriptor)
    for key in ("link", "folder/secret"):
        with pytest.raises(OSError):
            open_below(str(root), key)
    for key in ("../secret", "in/../../secret", "/etc/passwd", "in//f", "pipe", "in"):
        with pytest.raises((UnfitFileError, FileNotFoundError)):
            open_below(str(root), key)


def test_patterns_are_taken_apart() -> None:
    assert parse("/logs/app.log") == ("/logs", ("app.log",))
    assert parse("/logs/*/a-[0-9].log") == ("/logs", ("*", "a-[0-9].log"))
    assert parse("/logs/**/x.log").parts == ("**", "x.log") and parse("/a.log").root == "/"
    for text, words in (("/logs/", "folder"), ("/logs/**", "folder"), ("a.log", "absolute"), ("/a/../b", "without")):
        with pytest.raises(ValueError, match=words):
            parse(text)
    assert key_of("/logs", "/logs/a/b") == "a/b" and key_of("/", "/a") == "a"
    assert key_of("/logs", "/logsa") is None and key_of("/logs", "/logs/../etc") is None
    for name in ("app.log", "app.log.1", "app.log-20260101", "app-2026-01-01.log", "app.log.bak"):
        assert stem("/l/app.log") in stems_of_origins(f"/old/{name}")
    assert stem("app-01.log") not in stems_of_origins("app-02.log")
    assert stem("app.log") not in stems_of_origins("web.log")


def test_a_look_names_what_it_does_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the path of a socket must be short
    for name in ("a.log", ".hidden.log", "b.txt", "sub/c.log", "sub/deep/d.log"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x\n")
    (tmp_path / "link.log").symlink_to("a.log")
    os.mkfifo(tmp_path / "pipe.log")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("s.log")
        (tmp_path / "other").symlink_to(tmp_path / "sub")

        def found(*patterns: str) -> tuple[list[str], dict[str, str]]:
            look = Scanner([parse(f"{tmp_path}/{pattern}") for pattern in patterns]).look()
            short = {path.removeprefix(f"{tmp_path}/"): why for path, why in look.refused.items()}
            return [entry.path.removeprefix(f"{tmp_path}/") for entry in look.files], short

        names, refused = found("*.log")
        assert names == ["a.log"] and set(refused) == {"link.log", "pipe.log", "s.log"}
        assert "put its target" in refused["link.log"] and "exclude it" in refused["pipe.log"]
        names, refused = found("**/*.log", "a.log", "*/c.log")
        assert names == ["a.log", "sub/c.log", "sub/deep/d.log"] and "other" in refused
        assert found("nothing.log") == ([], {"nothing.log": "matches no file yet; waiting for a file"})
        assert found("no/such/*.log")[0] == []
        assert "is a folder; name its files" in found("sub")[1]["sub"]
    limited = Scanner([parse(f"{tmp_path}/**/*.log")], files_max=2).look()
    assert len(limited.files) == 2 and "2 files" in str(limited.refused)


def test_looking_costs_a_twentieth_at_most() -> None:
    pace = Pace(0.5)
    assert pace.due < 0
    pace.looked(10.0, 0.001)
    assert pace.due == 10.5
    pace.sooner(10.0, 0.05)
    assert pace.due == 10.05
    pace.looked(11.0, 0.2)
    assert pace.due == 11.5, "one long look delays nothing"
    pace.looked(12.0, 0.1)
    assert pace.due == 12.0 + 20 * 0.1
    pace.sooner(12.0, 0.05)
    assert pace.due == 12.1
    assert scan.COST_FACTOR == 20


def test_who_look_at_the_same_files_share_what_it_may_cost() -> None:
    pace = Pace(0.5, lookers=3)
    for now in (1.0, 2.0):
        pace.looked(now, 0.1)
    assert pace.due == 2.0 + 3 * 20 * 0.1
    for now in (3.0, 4.0):
        pace.looked(now, 0.0001)
    assert pace.due == 4.5
