"""Rows of two sides as multisets, whatever their order and wherever they are."""

from __future__ import annotations

import gzip
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heronpy.batch import compare as module
from heronpy.batch.compare import SHOWN, compare, files_of_folder, files_of_run, rows_of
from heronpy.common.errors import ConfigError
from tests.cli.conftest import word_count

rows = st.lists(st.integers(0, 40).map(lambda number: b"row %d" % number), max_size=60)


@settings(max_examples=25)
@given(rows, rows, st.sampled_from([3, 1024]))
def test_it_is_the_difference_of_multisets(first: list[bytes], second: list[bytes], parts: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "PARTS", parts)
        patch.setattr(module, "BUFFER_BYTES", 32)
        found = compare("s", lambda: first, lambda: second)
    ours, theirs = Counter(first), Counter(second)
    assert (found.first, found.second) == (len(first), len(second))
    assert (found.only_first, found.only_second) == ((ours - theirs).total(), (theirs - ours).total())
    assert found.is_equal == (ours == theirs)
    differing = {row for row in {*ours, *theirs} if ours[row] != theirs[row]}
    assert len(found.differences) == min(SHOWN, len(differing))
    for one in found.differences:
        row = one.row.encode()
        assert row in differing and (one.first, one.second) == (ours[row], theirs[row])


def test_rows_of_a_folder_in_any_format_are_the_same_rows(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({"word": ["a", "b", "b"], "count": [1, 2, 2]})
    for name in ("parquet", "arrow"):
        (tmp_path / name / "unit=1-2").mkdir(parents=True)
    pq.write_table(table, tmp_path / "parquet" / "unit=1-2" / "part-0.parquet")
    with pa.ipc.new_file(tmp_path / "arrow" / "unit=1-2" / "x.arrow", table.schema) as file:
        file.write_table(table)
    expected = [b'{"count": 1, "word": "a"}', b'{"count": 2, "word": "b"}', b'{"count": 2, "word": "b"}']
    for name in ("parquet", "arrow"):
        assert list(rows_of(files_of_folder(tmp_path / name), tmp_path / name)) == expected
    lines = tmp_path / "text" / "hour=12"
    lines.mkdir(parents=True)
    (lines / "part-0.txt").write_bytes(b"a\r\nb")
    (lines / "part-1.gz").write_bytes(gzip.compress(b"c\n"))
    for hidden in (".open-x", "_SUCCESS"):
        (lines / hidden).write_bytes(b"hidden\n")
    (tmp_path / "text" / "_units").mkdir()
    (tmp_path / "text" / "_units" / "x").write_bytes(b"hidden\n")
    assert list(rows_of(files_of_folder(tmp_path / "text"), tmp_path / "text")) == [
        b"hour=12 a", b"hour=12 b", b"hour=12 c",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["x.parquet", "x.arrow", "x.gz"])
def test_a_damaged_file_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"\x1f\x8bPAR1 nothing")
    with pytest.raises(ConfigError, match=f"{name} cannot be read"):
        list(rows_of([tmp_path / name]))


def test_the_rows_of_a_run_are_those_of_published_units(tmp_path: Path) -> None:
    for place in ("1/unit=1-1/sink-count@.jsonl", "1/unit=1-2/sink-count@.jsonl", "1/.stage-3/sink-count@.jsonl",
                  "2/unit=1-1/sink-word@.jsonl", "2/unit=1-1/to-2"):  # fmt: skip
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_bytes(b"row\n")
    found = files_of_run(tmp_path, word_count())
    assert {sink: len(files) for sink, files in found.items()} == {"count": 2, "word": 1}
