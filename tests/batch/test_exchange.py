"""The files between stages: what was written is read, and damage is found and named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heronpy.batch import exchange
from heronpy.batch.exchange import (
    BucketFile,
    BucketWriter,
    DamagedExchangeError,
    Exchanges,
    ForStage,
    LargeUnitError,
    StageOutput,
    unit_folders,
)
from heronpy.batch.stages import Exchange, Stage
from heronpy.ingest.outputs.lineage import FILE, Lineage, Range, folder_name

LINK = Exchange("s", "default", "b", 4, 1, 2)
STAGES = (
    Stage(1, ("s",), "lines", (), (LINK,), (), 1, ""),
    Stage(2, ("b",), "buckets", (LINK,), (), (), 0, ""),
)
RECORDS = st.lists(st.tuples(st.integers(0, 4), st.binary(max_size=60)), max_size=30)


def written(path: Path, records: Any, spills: bool = False) -> Path:
    path.unlink(missing_ok=True)
    writer = BucketWriter(path)
    for bucket, data in records:
        writer.add(bucket, data, 1)
        if spills:
            writer.spill()
    writer.finish()
    return path


@given(RECORDS, st.booleans())
@settings(max_examples=60)
def test_each_bucket_gives_its_records_in_order(
    tmp_path_factory: pytest.TempPathFactory, records: Any, spills: bool
) -> None:
    """Whether all are written at once or one by one."""
    file = BucketFile(written(tmp_path_factory.getbasetemp() / "to-2", records, spills))
    for bucket in range(5):
        assert list(file.records(bucket)) == [data for place, data in records if place == bucket]
    assert int(file.index["tuples"].sum()) == len(records)


@given(RECORDS.filter(bool), st.data())
@settings(max_examples=150)
def test_any_damage_is_found(tmp_path_factory: pytest.TempPathFactory, records: Any, data: Any) -> None:
    """Any changed byte and any cut end is found, at the latest when the bucket is read; the error names the file."""
    path = written(tmp_path_factory.getbasetemp() / "to-2", records)
    content = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        content[place] ^= data.draw(st.integers(1, 255))
    else:
        del content[place:]
    path.write_bytes(content)
    with pytest.raises(DamagedExchangeError, match="to-2 is damaged") as found:
        file = BucketFile(path)
        for bucket in range(5):
            list(file.records(bucket))
    assert found.value.unit == path.parent


def unit(folder: Path, number: int, pieces: list[Any], begin: int) -> None:
    place = folder / "1" / folder_name(1, number)
    place.mkdir(parents=True, mode=0o700)
    writer = StageOutput(str(folder / "1"), STAGES[0], {}).open(place, "")
    assert writer.write(pieces) == sum(piece.tuples for piece in pieces)
    writer.prepare()
    lineage = Lineage("p", 1, number, 1, 0, (Range("f", 1, begin, begin + 1, ""),))
    (place / FILE).write_text(lineage.to_json())
    (place / FILE).chmod(0o600)


def test_a_unit_that_never_ends_does_not_fill_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "SPILL_BYTES", 100)
    writer = StageOutput(str(tmp_path), STAGES[0], {}, bytes_max=1000).open(tmp_path, "")
    with pytest.raises(LargeUnitError, match="exchange_bytes_max, which is 1000B"):
        for _ in range(100):
            writer.write([ForStage(2, 0, bytes(60), 1)])
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 2000
    writer.discard()


def test_buckets_are_read_in_the_order_of_the_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids of units say nothing: the second half of a halved unit has a higher one. What all read comes to each."""
    monkeypatch.setattr(exchange, "SPILL_BYTES", 1)
    unit(tmp_path, 3, [ForStage(2, 0, b"middle", 1)], 50)
    unit(tmp_path, 1, [ForStage(2, 0, b"first", 2), ForStage(2, 3, b"all", 1)], 0)
    unit(tmp_path, 2, [ForStage(2, 0, b"last", 1), ForStage(2, 2, b"", 1)], 90)
    assert [path.name for path in unit_folders(tmp_path / "1")] == ["unit=1-1", "unit=1-3", "unit=1-2"]
    files = Exchanges(tmp_path, STAGES, 2, 3)
    assert list(files.frames(0)) == [b"all", b"first", b"middle", b"last"]
    assert list(files.frames(1)) == [b"all"]
    assert list(files.frames(2)) == [b"all", b""]
    lines = exchange.bucket_lines(tmp_path, STAGES, 2, 3)
    assert lines == [(b'{"bucket": 0}\n', 34), (b'{"bucket": 1}\n', 7), (b'{"bucket": 2}\n', 11)]
    (tmp_path / "1" / "unit=1-2" / "to-2").unlink()
    with pytest.raises(DamagedExchangeError, match="unit=1-2/to-2 is damaged: it cannot be opened"):
        Exchanges(tmp_path, STAGES, 2, 3)
