"""Staging and publishing a unit, and comparing a table with its ledger: in one process."""

from __future__ import annotations

import os
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from heronpy import TopologyBuilder
from heronpy.common.engine_settings import IngestSettings
from heronpy.common.errors import ConfigError, LedgerError
from heronpy.connectors.spark.requirements import DISPATCH_KEY, dispatch_homes, needs_spark
from heronpy.growing.identity import Fingerprint, digest
from heronpy.ingest import LineFiles, LogUnits, ParquetTable, SparkBatches
from heronpy.ingest.agreement import disagreements, found_files
from heronpy.ingest.bad import dead_bytes
from heronpy.ingest.checking import rebuild
from heronpy.ingest.fingerprints import file_matches, fingerprint_from, head_text, tail_text
from heronpy.ingest.keys import OPTIONS_KEY
from heronpy.ingest.ledger.client import Ledger
from heronpy.ingest.ledger.reaching import open_store
from heronpy.ingest.ledger.requests import (
    Commit,
    Committed,
    Cut,
    Lease,
    Line,
    ListFiles,
    ListFinished,
    Open,
    Published,
    ReportScan,
    Who,
    Work,
)
from heronpy.ingest.ledger.types import Config, Kind, Span
from heronpy.ingest.options import logs_at, settled
from heronpy.ingest.outputs.lineage import BatchLineage, Lineage, Range, batches, published, units_of
from heronpy.ingest.outputs.stages import About, StageGoneError, Stages
from heronpy.ingest.watch import Watch
from heronpy.launching.on_engine import file_problems
from tests.ingest.unit_chunks import chunk
from tests.support.memory_ledger import MemoryStore


# ---- outputs --------------------------------------------------------------------------------
def lineage(unit: int = 1, begin: int = 0, end: int = 4, **more: Any) -> Lineage:
    chunks = (Range("a.log", 1, begin, end, "x:4:y", "z"),)
    return Lineage("p", more.get("generation", 1), unit, 1, more.get("rows", 1), more.get("chunks", chunks))


def staged(table: Path, *rows: str, unit: int = 1, attempt: int = 1) -> Stages:
    stages = Stages(str(table))
    stage = stages.make(1, unit, attempt)
    writer = LineFiles(str(table)).open(stage, "{}")
    for row in rows:
        writer.write(row)
    writer.prepare()
    stages.finish(stage, lineage(unit))
    return stages


def test_a_unit_appears_whole_and_its_publication_may_be_repeated(tmp_path: Path) -> None:
    table = tmp_path / "table"
    stages = staged(table, "one", "two")
    assert list(published(str(table))) == [] and list(stages.staged_units(1)) == [1]
    stages.publish(1, 1, 1)
    stages.publish(1, 1, 1)
    [(folder, found)] = published(str(table))
    assert (folder / "part-0.txt").read_text() == "one\ntwo\n" and found == lineage()
    with pytest.raises(StageGoneError, match="restore"):
        stages.publish(1, 2, 1)
    staged(table, "three", unit=3)
    stages.drop_older(2)
    with pytest.raises(StageGoneError):
        stages.publish(1, 3, 1)
    assert stages.highest() == 1


def test_a_table_belongs_to_one_pipeline(tmp_path: Path) -> None:
    stages = Stages(str(tmp_path / "t"))
    assert stages.pipeline() is None
    stages.claim(About("p", Config(pattern="/x/*.log")))
    stages.claim(About("p", Config(pattern="/x/*.log", bad_max=3)))
    with pytest.raises(LedgerError, match="is the table of pipeline 'p'"):
        stages.claim(About("other", Config()))
    (tmp_path / "t" / "_units").chmod(0o777)
    with pytest.raises(LedgerError, match="others may write"):
        stages.make(1, 1, 1)


def test_damaged_and_renamed_lineage_is_named(tmp_path: Path) -> None:
    staged(tmp_path / "t", "one").publish(1, 1, 1)
    folder = tmp_path / "t" / "unit=1-1"
    (tmp_path / "t" / "unit=1-9").mkdir()
    with pytest.raises(LedgerError, match="unit=1-9"):
        list(published(str(tmp_path / "t")))
    (tmp_path / "t" / "unit=1-9").rmdir()
    folder.rename(tmp_path / "t" / "unit=1-2")
    with pytest.raises(LedgerError, match="rename it back"):
        list(published(str(tmp_path / "t")))


def columnar(kind: type, table: Path) -> ParquetTable:
    """Both outputs that stage Parquet files."""
    schema = {"user": "string", "ms": "int64"}
    if kind is SparkBatches:
        return SparkBatches("module.function", schema, home=str(table))
    return ParquetTable(str(table), schema)


@pytest.mark.parametrize("kind", [ParquetTable, SparkBatches])
@pytest.mark.parametrize("row", [["a"], ["a", "b"], ["a", 1 << 70], {"user": "a"}, "text", [1, 1]])
def test_a_row_that_does_not_fit_is_an_error_of_its_own(tmp_path: Path, row: Any, kind: type) -> None:
    table = columnar(kind, tmp_path / "t")
    writer = table.open(tmp_path, "{}")
    assert writer.write(["b", 2]) == 1
    with pytest.raises((TypeError, ValueError)):
        writer.write(row)
    writer.discard()


@pytest.mark.parametrize("kind", [ParquetTable, SparkBatches])
def test_rows_of_all_shapes_are_in_the_file_with_their_lineage(tmp_path: Path, kind: type) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = columnar(kind, tmp_path / "t")
    writer = table.open(tmp_path, "who")
    writer.write(["a", 1])
    writer.write({"ms": 2, "user": "b"})
    writer.write((None, 3))
    assert writer.write(pa.table({"user": ["c", "d"], "ms": [4, 5]})) == 2
    assert writer.write(pa.record_batch({"user": ["e"], "ms": [6]})) == 1
    writer.prepare()
    found = pq.read_table(tmp_path / "part-0.parquet")
    assert found.to_pydict() == {"user": ["a", "b", None, "c", "d", "e"], "ms": [1, 2, 3, 4, 5, 6]}
    assert found.schema.metadata[b"heronpy.unit"] == b"who"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"name": "no name"}, "must begin with a letter and contain only letters"),
        ({"logs": "logs/*.log"}, "not an absolute path"),
        ({"logs": "/logs/"}, "names a folder"),
        ({"workers": 0}, "workers is 0"),
        ({"until": "later"}, "use one of forever, now"),
        ({"unit_bytes": "much"}, "unit_bytes is 'much'"),
        ({"output": "/table"}, "needs output="),
        ({"rows": None}, "needs rows="),
        ({"ledger": "mysql://x"}, "the URL of a ledger is sqlite"),
        ({"ledger": "sqlite:x.db"}, "does not name a file"),
        ({"encoding": "utf-99"}, "utf-99"),
    ],
)
def test_what_cannot_work_is_refused_where_it_is_specified(given: dict[str, Any], words: str) -> None:
    good = {"logs": "/logs/*.log", "rows": len, "output": LineFiles("/table")}
    with pytest.raises((ConfigError, LedgerError, Exception), match=words):
        LogUnits.specs(given.pop("name", "p"), **{**good, **given})
    assert len(LogUnits.specs("p", **good)) == 2


@pytest.mark.parametrize(
    ("logs", "more"),
    [
        ("/data/*/*/*.txt", {}),
        ("/data/*/**/*.txt", {}),
        ("/data/**/*.txt", {}),
        ("/data/t/u*/*.txt", {}),
        ("/data/t/_units/bad/*.json", {}),
        ("/data/{site}/*/*.txt", {}),
        ("/data/{site}/*/*.txt", {"site": "t"}),
        ("/copies/*/*/*/*.txt", {"replicas": ["/copies/one"]}),
    ],
)
def test_a_pipeline_that_could_read_what_it_writes_is_refused(logs: str, more: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"pipeline 'p' would read its own .*; move this folder or the logs"):
        LogUnits.specs("p", logs=logs, rows=len, output=LineFiles("/data/t"), **more)


@pytest.mark.parametrize(
    "logs", ["/data/*.txt", "/data/*/*.txt", "/data/t/logs/*.txt", "/data/t/day=*/*.txt", "/data/{site}x/*/*.txt"]
)
def test_a_table_beside_its_logs_is_not_refused(logs: str) -> None:
    assert LogUnits.specs("p", logs=logs, rows=len, output=LineFiles("/data/t"))


def test_a_pipeline_that_could_read_what_it_writes_through_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "data")
    for one, other in (("link", "data"), ("data", "link")):
        with pytest.raises(ConfigError, match="would read its own table"):
            LogUnits.specs("p", logs=f"{tmp_path}/{one}/*/*/*.txt", rows=len, output=LineFiles(f"{tmp_path}/{other}/t"))


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("value", [1.5, Decimal("1.5"), float("nan")])
def test_a_fraction_is_no_value_of_an_integer_column(tmp_path: Path, many: bool, value: object) -> None:
    """Arrow would cut it off."""
    writer = ParquetTable(str(tmp_path), {"a": "int64"}).open(tmp_path, "{}")
    with pytest.raises(ValueError, match=r"not a whole number|Could not convert nan"):
        if many:
            writer.write_many([[1], [value]])
            writer.prepare()
        else:
            writer.write([value])
    writer.discard()
    good = ParquetTable(str(tmp_path), {"a": "int64"}).open(tmp_path, "{}")
    good.write_many([[1], [2.0], [None]])
    good.prepare()
    assert pyarrow.parquet.read_table(tmp_path / "part-0.parquet").column("a").to_pylist() == [1, 2, None]


def test_a_relative_table_and_an_unknown_type_are_refused() -> None:
    with pytest.raises(ConfigError, match="absolute path"):
        LineFiles("table")
    with pytest.raises(ConfigError, match="pyarrow has no type 'number'"):
        ParquetTable("/t", {"a": "number"})


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"home": "relative"}, "absolute path"),
        ({"home": "/data/[x]"}, "which Spark treats as patterns"),
        ({"schema": {"at": "timestamp[ns]"}}, r"column 'at' of SparkBatches is timestamp\[ns\].*use timestamp\[us\]"),
        ({"schema": {"at": "time64[us]"}}, "use int64"),
        ({"schema": {}}, "at least one column"),
        ({"aggregate": None}, "aggregate="),
        ({"aggregate": "function"}, "module.function"),
        ({"dispatch_bytes": "much"}, "dispatch_bytes of SparkBatches is 'much'"),
        ({"dispatch_wait_s": -1}, "dispatch_wait_s of SparkBatches is -1"),
        ({"lock": object()}, "plain values"),
    ],
)
def test_what_spark_could_not_do_is_refused_where_it_is_specified(given: dict[str, Any], words: str) -> None:
    good = {"aggregate": "module.function", "schema": {"a": "string"}}
    SparkBatches("module.function", {"a": "uint64"})  # Spark reads it as decimal(20,0)
    with pytest.raises(ConfigError, match=words):
        SparkBatches(**{**good, **given})


def test_a_pipeline_to_spark_says_so_in_its_specification(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERON_HOME", str(tmp_path))
    output = SparkBatches(
        "module.function", {"a": "string"}, dispatch_bytes="1MB", dispatch_wait_s=2, out=tmp_path / "o"
    )
    assert output.options == {"out": str(tmp_path / "o")}
    builder = TopologyBuilder("t")
    builder.add_spec(*LogUnits.specs("p", logs="/logs/*.log", rows=len, output=output))
    topology = builder.build()
    assert needs_spark(topology)
    assert dispatch_homes(topology) == {"p-keeper": f"{tmp_path}/units/p/_units"}
    worker, keeper = LogUnits.specs("p", logs="/logs/*.log", rows=len, output=output)
    config = keeper.custom_config[OPTIONS_KEY].config
    assert (config.unit_wait_s, config.dispatch_bytes, config.dispatch_wait_s) == (10.0, 1 << 20, 2.0)
    assert DISPATCH_KEY not in worker.custom_config
    [refused] = {text.partition("writes ")[2] for text in file_problems(topology, [Path("/logs")]) if "writes" in text}
    assert refused.startswith(f"{tmp_path}/units/p, which other hosts may not have; move it below heron.engine.shared")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"site": "east"}, "the site"),
        ({"replicas": ["/r"]}, "replicas"),
        ({"ledger": [{"urls": ["sqlite:/l/a.db"]}]}, "several ledgers"),
        ({"ledger": '[{"urls": ["sqlite:/l/a.db"]}]'}, "several ledgers"),
    ],
)
def test_rows_for_spark_wait_in_one_place(given: dict[str, Any], words: str) -> None:
    output = SparkBatches("module.function", {"a": "string"})
    with pytest.raises(ConfigError, match=f"SparkBatches does not work with {words}"):
        LogUnits.specs("p", logs="/logs/*.log", rows=len, output=output, **given)


@pytest.mark.parametrize("broken", ["", "{}", '{"pipeline": 1}', "not json"])
def test_a_damaged_lineage_of_a_batch_is_named(tmp_path: Path, broken: str) -> None:
    folder = tmp_path / "batch=p-1-2"
    folder.mkdir()
    assert list(batches(str(tmp_path))) == [], "one of a SparkSink"
    (folder / "_batch.json").write_text(broken)
    with pytest.raises(LedgerError, match="restore it, or remove the folder and rebuild"):
        list(batches(str(tmp_path)))
    record = BatchLineage("p", 1, 2, 7, "/home", Config(pattern="/x"), (lineage(),))
    (folder / "_batch.json").write_bytes(record.to_json())
    assert list(batches(str(tmp_path))) == [record]
    assert [unit.batch for unit in units_of(record)] == ["batch=p-1-2"]
    folder.rename(tmp_path / "batch=p-1-3")
    with pytest.raises(LedgerError, match="rename it back"):
        list(batches(str(tmp_path)))


def test_settings_fill_what_the_program_does_not_give() -> None:
    given = {"logs": "/logs/*.log", "rows": len, "output": LineFiles("/table")}
    free = LogUnits.specs("p", **given)[0].custom_config[OPTIONS_KEY]
    own = LogUnits.specs("p", ledger="sqlite:/own/l.db", unit_bytes="5KB", days=2, **given)[0].custom_config[
        OPTIONS_KEY
    ]
    assert settled(free, IngestSettings()) == free, "the defaults are those of the settings"
    settings = IngestSettings(
        ledger="sqlite:/x/l.db", unit_bytes=7, days=1.5, silent_s=4.0, line_bytes_max=2048, scan_interval_s=3.0
    )
    found = settled(free, settings)
    assert (found.line_bytes_max, found.scan_interval_s) == (2048, 3.0)
    assert (found.config.unit_bytes, found.config.days, found.config.silent_s) == (7, 1.5, 4.0)
    found = settled(own, settings)
    assert (found.ledger, found.config.unit_bytes, found.config.days) == ("sqlite:/own/l.db", 5120, 2.0)
    assert (found.config.silent_s, found.config.pattern) == (4.0, "/logs/*.log")


# ---- ledger and table -----------------------------------------------------------------------
def pipeline(folder: Path) -> tuple[MemoryStore, Ledger, Watch]:
    store = MemoryStore()
    ledger = Ledger(store, "p", Who("k", "1", Kind.KEEPER))
    ledger.ask(Open(Config(pattern=f"{folder}/*.log*", unit_wait_s=0.0)))
    return store, ledger, Watch(logs_at(f"{folder}/*.log*", ""), 7.0, ledger.ask(ListFiles()).files, "")


def looked(watch: Watch, ledger: Ledger, now: float) -> dict[tuple[str, int], tuple[str, int]]:
    """Report a look; what the ledger knows of each file then: its path and size."""
    watch.look(now)
    seen, gone = watch.changes(1000)
    if seen or gone:
        assert watch.answered(ledger.ask(ReportScan(seen, gone)))
    known = ledger.ask(ListFiles()).files
    return {
        (one.file.key, one.file.generation): (one.copies[0].path if one.copies else "", one.file.size) for one in known
    }


def test_files_keep_their_names_in_the_ledger_through_rotation_and_another_keeper(tmp_path: Path) -> None:
    _, ledger, watch = pipeline(tmp_path)
    log = tmp_path / "a.log"
    log.write_text("one\ntwo\nunfin")
    assert looked(watch, ledger, 1.0) == {("a.log", 1): ("a.log", 8)}
    with log.open("a") as file:
        file.write("ished\n" + "x" * 2000 + "\n")
    assert looked(watch, ledger, 2.0) == {("a.log", 1): ("a.log", 2020)}
    log.rename(tmp_path / "a.log.1")
    log.write_text("new\n")
    assert looked(watch, ledger, 3.0) == {("a.log", 1): ("a.log.1", 2020), ("a.log", 2): ("a.log", 4)}
    # A keeper that starts knows the same, and has nothing to report.
    other = Watch(logs_at(f"{tmp_path}/*.log*", ""), 7.0, ledger.ask(ListFiles()).files, "")
    other.look(4.0)
    assert other.changes(1000) == ((), ())
    os.truncate(log, 0)
    log.write_text("another\n")
    found = looked(watch, ledger, 5.0)
    assert found["a.log", 3] == ("a.log", 8)
    # The first keeper was faster: the other one has decided on an old row, and starts again.
    other.look(6.0)
    seen, gone = other.changes(1000)
    answer = ledger.ask(ReportScan(seen, gone))
    assert other.answered(answer) or Watch(logs_at(f"{tmp_path}/*.log*", ""), 7.0, ledger.ask(ListFiles()).files, "")
    assert looked(watch, ledger, 7.0)["a.log", 3] == ("a.log", 8)


def test_what_is_settled_is_reported_again_when_it_grows_moves_or_goes(tmp_path: Path) -> None:
    _, ledger, watch = pipeline(tmp_path)
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.log").write_text(f"{name}\n")
    for now in (1.0, 2.0, 3.0):
        looked(watch, ledger, now)
        assert watch.changes(1000) == ((), ())
    with (tmp_path / "a.log").open("a") as file:
        file.write("more\n")
    (tmp_path / "b.log").rename(tmp_path / "b.log.1")
    (tmp_path / "c.log").unlink()
    for now in (4.0, 5.0, 6.0):
        found = looked(watch, ledger, now)
    assert found == {("a.log", 1): ("a.log", 7), ("b.log", 1): ("b.log.1", 2), ("c.log", 1): ("", 2)}
    (tmp_path / "c.log").write_text("c\n")
    for now in (7.0, 8.0):
        found = looked(watch, ledger, now)
    assert [path for _, (path, _) in sorted(found.items())].count("c.log") == 1


def processed(store: MemoryStore, ledger: Ledger) -> list[Lineage]:
    """Cut, lease, commit and publish all; the lineage of what is published."""
    ledger.ask(Cut())
    worker = Ledger(store, "p", Who("w", "1", Kind.WORKER))
    found = []
    while isinstance(work := worker.ask(Lease()), Work):
        assert worker.ask(Commit(work.unit, work.attempt, 1, 1, 0.1)) == Committed()
        ranges = tuple(Range(one.key, one.generation, one.begin, one.end, one.head) for one in work.chunks)
        found.append(Lineage("p", 1, work.unit, work.attempt, 1, ranges))
    units = ledger.ask(ListFinished()).units
    ledger.ask(Published(tuple(one.unit for one in units), 1))
    return found


def test_table_and_ledger_agree_or_each_difference_is_named(tmp_path: Path) -> None:
    store, ledger, watch = pipeline(tmp_path)
    (tmp_path / "a.log").write_text("one\ntwo\n")
    looked(watch, ledger, 1.0)
    table = processed(store, ledger)
    rows = store.snapshot("p")
    assert disagreements(rows, table, table) == []
    assert disagreements(rows, [], table) == [], "published after the first look"
    assert disagreements(rows, [], []) == ["a.log 0-8 is done in the ledger, but not in the table"]
    twice = [*table, Lineage("p", 1, 99, 1, 1, (Range("a.log", 1, 4, 8, "x:4:y"),))]
    assert any("is in the table twice: in unit=1-1 and unit=1-99" in one for one in disagreements(rows, table, twice))
    other = disagreements(rows, table, twice)
    assert any("a.log: unit=1-1, the ledger record a different beginning than unit=1-99" in one for one in other), other
    more = [*table, Lineage("p", 1, 99, 1, 1, (Range("a.log", 1, 8, 12, table[0].chunks[0].head),))]
    assert disagreements(rows, more, more) == ["a.log 8-12 is in the table, but unknown to the ledger"]


def test_what_a_ledger_is_rebuilt_from() -> None:
    table = [lineage(1, 0, 10), lineage(2, 20, 30)]
    bad = [
        {"key": "a.log", "file_generation": 1, "head": "x:9:w", "begin": 8, "end": 22, "error": "no", "tries": 3},
        {"key": "a.log", "file_generation": 1, "head": "x:4:y", "begin": 12, "end": 14, "error": "no", "tries": 3},
    ]
    [file] = found_files(table, bad)
    assert [(one.begin, one.end) for one in file.done] == [(0, 10), (20, 30)]
    assert [(one.begin, one.end) for one in file.bad] == [(10, 20)]
    assert file.head == "x:9:w"


def test_marks_survive_as_text(tmp_path: Path) -> None:
    fingerprint = Fingerprint("abc", 5, digest(b"hello"), 700, "ghi")
    assert fingerprint_from(head_text(fingerprint), tail_text(fingerprint)) == fingerprint
    (tmp_path / "f").write_bytes(b"hello world")
    with open(tmp_path / "f", "rb") as file:
        assert file_matches(head_text(fingerprint), file.fileno())
        assert not file_matches("nonsense", file.fileno())
    with pytest.raises(ValueError):
        fingerprint_from("nonsense", "0:")


def test_a_keeper_that_has_slept_takes_no_renamed_file_for_a_new_one(tmp_path: Path) -> None:
    _, ledger, watch = pipeline(tmp_path)
    opened = ledger.ask(Open(Config(pattern=f"{tmp_path}/*.log*", unit_wait_s=0.0)))
    sleeper = Watch(logs_at(f"{tmp_path}/*.log*", ""), 7.0, (), "", made=opened.made)
    log = tmp_path / "a.log"
    log.write_text("one\n")
    looked(watch, ledger, 1.0)
    log.rename(tmp_path / "a.log.1")
    looked(watch, ledger, 2.0)
    sleeper.look(3.0)
    seen, gone = sleeper.changes(1000)
    assert [(one.key, one.generation) for one in seen] == [("a.log.1", 1)]
    assert not sleeper.answered(ledger.ask(ReportScan(seen, gone, opened.generation, sleeper.made)))
    opened = ledger.ask(Open(Config(pattern=f"{tmp_path}/*.log*", unit_wait_s=0.0)))
    again = Watch(logs_at(f"{tmp_path}/*.log*", ""), 7.0, ledger.ask(ListFiles()).files, "", made=opened.made)
    again.look(4.0)
    assert again.changes(1000) == ((), ())
    # What others have made since does not matter once it was seen.
    (tmp_path / "b.log").write_text("two\n")
    looked(watch, ledger, 5.0)
    (tmp_path / "c.log").write_text("three\n")
    again.look(6.0)
    assert again.made == (2,)
    seen, gone = again.changes(1000)
    assert again.answered(ledger.ask(ReportScan(seen, gone, opened.generation, again.made)))
    assert again.made == (4,)


def test_the_bytes_of_a_bad_line_are_whole_also_across_the_end_of_its_range(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_text("one\ntwo\nthree")
    for begin, end, text in ((4, 6, b"two\n"), (4, 8, b"two\n"), (0, 8, b"one\ntwo\n"), (8, 10, b"three")):
        assert dead_bytes(str(tmp_path), chunk(path, begin, end), Line(1, begin, end)) == (text, True)


def test_what_is_published_during_a_rebuild_is_not_processed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a keeper that had slept, between the look at the table and the end of the old stages."""
    table, url = tmp_path / "table", f"sqlite:{tmp_path / 'l' / 'ledger.db'}"
    stages = Stages(str(table))
    stages.claim(About("p", Config(pattern="/logs/*.log")))
    for unit, begin in ((1, 0), (2, 10)):
        stage = stages.make(1, unit, 1)
        (stage / "part-0.txt").write_text("row\n")
        stages.finish(stage, Lineage("p", 1, unit, 1, 1, (Range("a.log", 1, begin, begin + 10, "x:4:y", "z"),)))
    stages.publish(1, 1, 1)
    drop_older = Stages.drop_older

    def late(self: Stages, generation: int) -> None:
        if generation == 2:
            # It had looked for a newer generation before there was one.
            (table / "_units" / "g1" / "2-1").rename(table / "unit=1-2")
        drop_older(self, generation)

    monkeypatch.setattr(Stages, "drop_older", late)
    answer = rebuild(url, "p", str(table))
    assert (answer.generation, answer.done_bytes) == (2, 20)
    with closing(open_store(url)) as store:
        spans = [row for row in store.snapshot("p") if isinstance(row, Span)]
    assert [(span.begin, span.end, span.state.value) for span in spans] == [(0, 20, "done")]
