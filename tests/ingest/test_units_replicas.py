"""Copies of stages, several ledgers by a setting, sites of a submit: in one process."""

from __future__ import annotations

import json
import shutil
import uuid
from contextlib import closing
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.common.errors import ConfigError, LedgerError
from heronpy.ingest import LineFiles, LogUnits
from heronpy.ingest.checking import check, command_of, rebuild
from heronpy.ingest.keys import SITE_KEY
from heronpy.ingest.ledger.commands import Show
from heronpy.ingest.ledger.partitions import birth_of
from heronpy.ingest.ledger.reaching import Reached, pipelines_of, text_of, urls_of
from heronpy.ingest.ledger.requests import (
    Commit,
    Cut,
    Lease,
    ListFiles,
    ListFinished,
    Open,
    Published,
    ReportScan,
    Who,
    Work,
)
from heronpy.ingest.ledger.types import Config, Kind
from heronpy.ingest.options import UnitOptions, logs_at, options_of
from heronpy.ingest.outputs.lineage import Lineage, Range, published
from heronpy.ingest.outputs.stages import About, StageGoneError, Stages
from heronpy.ingest.watch import Watch
from heronpy.launching.on_units import circle_of, shared_tables, site_problems


def _lineage(unit: int, generation: int = 1) -> Lineage:
    return Lineage("p", generation, unit, 1, 1, (Range("a.log", 1, 0, 4, "x:4:y", "z"),))


def _staged(stages: Stages, unit: int = 1, generation: int = 1, row: str = "one") -> Path:
    stage = stages.make(generation, unit, 1)
    writer = LineFiles("/any").open(stage, "{}")
    writer.write(row)
    writer.prepare()
    stages.finish(stage, _lineage(unit, generation))
    return stage


@pytest.fixture
def stages(tmp_path: Path) -> Stages:
    return Stages(str(tmp_path / "table"), [str(tmp_path / "r1"), str(tmp_path / "r2")])


# ---- replicas -------------------------------------------------------------------------------
def test_a_stage_has_its_copies_before_it_counts_and_none_when_it_is_published(stages: Stages, tmp_path: Path) -> None:
    _staged(stages)
    for folder in ("r1", "r2"):
        copy = tmp_path / folder / "_units" / "g1" / "1-1"
        assert (copy / "part-0.txt").read_text() == "one\n" and (copy / "_unit.json").exists()
        assert copy.parent.stat().st_mode & 0o777 == 0o700
    assert stages.publish(1, 1, 1) is False
    assert [unit.unit for _, unit in published(str(tmp_path / "table"))] == [1]
    assert not list(tmp_path.glob("r*/_units/g1/*"))
    assert stages.publish(1, 1, 1) is False


@pytest.mark.parametrize("lost", ["stage", "all stages", "table"])
def test_a_copy_is_published_when_the_stage_is_gone(stages: Stages, tmp_path: Path, lost: str) -> None:
    stage = _staged(stages)
    gone = {"stage": stage, "all stages": stage.parent.parent, "table": tmp_path / "table"}[lost]
    shutil.rmtree(gone)
    shutil.rmtree(tmp_path / "r1")
    assert stages.publish(1, 1, 1) is True
    [(folder, found)] = published(str(tmp_path / "table"))
    assert found == _lineage(1) and (folder / "part-0.txt").read_text() == "one\n"
    assert not list(tmp_path.glob("r*/_units/g1/*"))
    assert not [path for path in stages.home.rglob("*") if path.name.startswith("_new-")]


def test_what_no_attempt_needs_is_found_in_all_homes(stages: Stages, tmp_path: Path) -> None:
    _staged(stages, 1), _staged(stages, 2)
    shutil.rmtree(tmp_path / "table" / "_units" / "g1" / "1-1")
    (tmp_path / "r2" / "_units" / "g1" / "_new-3-1-abcd").mkdir()
    found = stages.staged_units(1)
    assert {unit: len(paths) for unit, paths in found.items()} == {1: 2, 2: 3, 3: 1}
    for paths in found.values():
        for path in paths:
            stages.discard(path)
    assert stages.staged_units(1) == {}


def test_after_a_rebuild_no_copy_brings_an_old_stage_back(stages: Stages, tmp_path: Path) -> None:
    stage = _staged(stages)
    shutil.rmtree(stage)
    assert stages.highest() == 1
    stages.drop_older(2)
    with pytest.raises(StageGoneError, match="cannot be published"):
        stages.publish(1, 1, 1)
    assert list(published(str(tmp_path / "table"))) == []


def test_a_disk_that_cannot_take_a_copy_is_not_the_fault_of_a_row(stages: Stages, tmp_path: Path) -> None:
    (tmp_path / "r1").write_text("a file where the folder should be")
    with pytest.raises(OSError):
        _staged(stages)


def test_a_folder_of_replicas_belongs_to_one_pipeline(stages: Stages, tmp_path: Path) -> None:
    about = About("p", Config(pattern="/x/*"), (str(tmp_path / "r1"),))
    stages.claim(about)
    assert stages.pipeline() == about
    other = Stages(str(tmp_path / "other"), [str(tmp_path / "r1")])
    with pytest.raises(LedgerError, match="replicas of pipeline 'p'"):
        other.claim(About("q", Config(pattern="/x/*")))


def test_the_end_of_a_run_stays_known_on_other_sites(stages: Stages) -> None:
    stages.mark_end("east-run")
    stages.forget_ends("west-run")
    assert stages.has_ended("east-run")


# ---- several ledgers ------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("app-2026-12-01.log", (2026, 12, 1)),
        ("app-20261201-17.log", (2026, 12, 1, 17)),
        ("2026/12/01/17.log", (2026, 12, 1, 17)),
        ("app.2026-12-01T17:30.log", (2026, 12, 1, 17, 30)),
        ("2026-11-30/app-2026-12-01.log.3", (2026, 12, 1)),
        ("app-20261201.42", (2026, 12, 1)),
    ],
)
def test_the_birth_of_a_file_is_the_time_in_its_key(key: str, expected: tuple[int, ...]) -> None:
    year, month, day, *rest = expected
    assert birth_of(key) == datetime(year, month, day, *rest, tzinfo=UTC).timestamp()


@given(st.text())
def test_any_key_has_a_birth(key: str) -> None:
    assert birth_of(key) >= 0.0


def test_a_key_without_a_time_belongs_to_the_first_entry() -> None:
    assert [birth_of(key) for key in ("app.log", "app.log.20", "app-2026-13-45.log", "id-120261201.log")] == [0.0] * 4


@pytest.mark.parametrize(
    ("given_ledger", "words"),
    [
        ("[", "not valid JSON"),
        ("[]", "the last entry"),
        ('["sqlite:/a"]', "must be a map with until and urls"),
        ('[{"urls": "sqlite:/a"}]', "needs a list of different urls"),
        ('[{"urls": ["ftp://a"]}]', "the URL of a ledger is sqlite"),
        ([{"urls": ["sqlite:a.db"]}], "does not name a file"),
        ([{"until": "soon", "urls": ["sqlite:/a"]}, {"urls": ["sqlite:/b"]}], "is not a time"),
        ([{"urls": ["sqlite:/a"]}, {"urls": ["sqlite:/b"]}], "except the last need an until"),
        ([7], "must be a map with until and urls"),
    ],
)
def test_a_ledger_that_cannot_be_is_refused(given_ledger: Any, words: str) -> None:
    with pytest.raises(LedgerError, match=words) as caught:
        text_of(given_ledger)
    assert "\n" not in str(caught.value)
    with pytest.raises(ConfigError, match=words):
        LogUnits.specs("p", logs="/l/*.log", rows=len, output=LineFiles("/t"), ledger=given_ledger)


def _pipeline(text: str, folder: Path, table: Path) -> None:
    """Process all of a folder into a table; as a keeper and a worker do."""
    keeper = Reached(text, "p", Who("k", uuid.uuid4().hex, Kind.KEEPER))
    worker = Reached(text, "p", Who("w", uuid.uuid4().hex, Kind.WORKER))
    config = Config(pattern=f"{folder}/*.log", unit_wait_s=0.0)
    stages = Stages(str(table))
    with closing(keeper), closing(worker):
        keeper.ask(Open(config))
        worker.ask(Open(config))
        stages.claim(About("p", config))
        watch = Watch(logs_at(config.pattern, ""), 7.0, keeper.ask(ListFiles()).files, "")
        watch.look(1.0)
        seen, gone = watch.changes(1000)
        if seen or gone:
            assert watch.answered(keeper.ask(ReportScan(seen, gone)))
        keeper.ask(Cut())
        while isinstance(work := worker.ask(Lease()), Work):
            stage = stages.make(work.generation, work.unit, work.attempt)
            stages.finish(stage, _read(work, folder))
            worker.ask(Commit(work.unit, work.attempt, work.generation, 0, 0.1))
        done = keeper.ask(ListFinished(100)).units
        for one in done:
            stages.publish(one.generation, one.unit, one.winner)
        keeper.ask(Published(tuple(one.unit for one in done), done[0].generation if done else 1))


def _read(work: Work, folder: Path) -> Lineage:
    from heronpy.connectors.textfiles.decoding import LineDecoder
    from heronpy.ingest.unit import LogUnit

    unit = LogUnit(work, str(folder), LineDecoder())
    ranges = tuple(
        Range(one.key, one.generation, one.begin, one.end, one.head, digest)
        for one, digest in zip(work.chunks, unit.digests(), strict=True)
    )
    return Lineage("p", work.generation, work.unit, work.attempt, 0, ranges)


def test_a_pipeline_gets_more_ledgers_and_is_looked_at_checked_and_rebuilt_over_all(tmp_path: Path) -> None:
    logs, table = tmp_path / "logs", tmp_path / "table"
    logs.mkdir()
    urls = [f"sqlite:{tmp_path}/l/{name}.db" for name in "abc"]
    for number in range(4):
        (logs / f"{number}-2026-11-30.log").write_text(f"old {number}\n")
    before = text_of([{"urls": urls[:1]}])
    _pipeline(before, logs, table)
    for number in range(12):
        (logs / f"{number}-2026-12-02.log").write_text(f"new {number}\n")
    (logs / "0-2026-11-30.log").open("a").write("old, later\n")
    after = text_of([{"until": "2026-12-01T17:00", "urls": urls[:1]}, {"urls": urls}])
    assert urls_of(after) == tuple(urls)
    who = Who("command", "1", Kind.COMMAND)
    # The new ledgers are not there yet, and have nothing to say.
    with closing(Reached.existing(after, "p", who)) as early:
        assert early.ask(Show()).files == {"live": 4}
        assert early.add_entry(urls, "2026-12-01T17:00", 0.0).version == 2
    _pipeline(after, logs, table)
    with closing(command_of(after, "p")) as reached:
        figures = reached.ask(Show())
        assert figures.files == {"live": 16} and figures.done_bytes == figures.known_bytes
        assert len(reached.ask(ListFiles()).files) == 16
    assert pipelines_of(after) == ("p",)
    for url in urls:
        with closing(command_of(url, "p")) as one:
            assert one.ask(Show()).files["live"] > 0
    found = check(after, "p", str(table))
    assert found.problems == [] and found.bytes == figures.done_bytes
    assert check(before, "p", str(table)).problems == [], "one of them names all"
    shutil.rmtree(tmp_path / "l")
    answer = rebuild(after, "p", str(table))
    assert (answer.files, answer.done_bytes, answer.units) == (16, figures.done_bytes, 0)
    _pipeline(after, logs, table)
    assert check(after, "p", str(table)).problems == []
    with pytest.raises(LedgerError, match=r"has no pipeline 'q'; its pipelines are p$"):
        command_of(after, "q")


# ---- sites and dependencies of a submit -----------------------------------------------------
def test_options_have_the_site_of_the_submit_and_its_folders() -> None:
    options = UnitOptions("p", "/logs/{site}/app/*.log", "sqlite:/l", LineFiles("/t"), Config())
    config = {"ingest.options": options}
    assert options_of({**config, SITE_KEY: "east"}).files.root == "/logs/east/app"
    assert options_of(config).site == ""


@pytest.mark.parametrize(
    ("given_options", "words"),
    [
        ({"site": "far east"}, "not a valid site name"),
        ({"logs": "/l/*/{site}.log"}, "after its first wildcard"),
        ({"replicas": "/r"}, "a list of folders"),
        ({"replicas": ["r"]}, "not an absolute path"),
        ({"replicas": ["/t"]}, "is the table"),
        ({"replicas": ["/r", "/r/"]}, "named twice"),
        ({"after": ["p"]}, "would wait for itself"),
        ({"after": ["a b"]}, "not a valid pipeline name"),
        ({"after": ["q"], "ledger": [{"urls": ["sqlite:/a", "sqlite:/b"]}]}, "cannot wait for other pipelines"),
    ],
)
def test_sites_replicas_and_dependencies_that_cannot_be_are_refused(given_options: dict[str, Any], words: str) -> None:
    options = {"logs": "/l/*.log", "rows": len, "output": LineFiles("/t"), "ledger": "sqlite:/a", **given_options}
    with pytest.raises(ConfigError, match=words):
        LogUnits.specs("p", **options)


def test_two_pipelines_of_one_program_do_not_share_a_table() -> None:
    parts = [
        {"ingest.pipeline": name, "ingest.table": table} for name, table in (("a", "/t"), ("a", "/t"), ("b", "/u"))
    ]
    assert list(shared_tables(parts)) == []
    [problem] = shared_tables([*parts, {"ingest.pipeline": "c", "ingest.table": "/t"}])
    assert problem.startswith("pipeline 'c': /t is also the table of pipeline 'a'")


def test_a_site_is_said_once() -> None:
    assert list(site_problems("c", "", "", "/l/*.log")) == []
    assert list(site_problems("c", "east", "east", "/l/{site}/*.log")) == []
    [both] = site_problems("c", "east", "west", "/l/*.log")
    assert "the site east in its program and west in heron.ingest.site" in both
    [none] = site_problems("c", "", "", "/l/{site}/*.log")
    assert "--config-property heron.ingest.site=NAME" in none


@given(st.dictionaries(st.sampled_from("abcde"), st.lists(st.sampled_from("abcdef"), max_size=3).map(tuple)))
def test_a_circle_is_found_if_there_is_one(afters: dict[str, tuple[str, ...]]) -> None:
    reached: dict[str, set[str]] = {name: set(after) for name, after in afters.items()}
    for _ in range(6):
        for names in reached.values():
            names |= {far for near in list(names) for far in reached.get(near, ())}
    for name in afters:
        circle = circle_of(name, afters)
        assert bool(circle) is (name in reached[name])
        if circle:
            assert circle[0] == circle[-1] == name
            assert all(later in afters[one] for one, later in pairwise(circle))


def test_a_setting_of_several_ledgers_is_plain_json() -> None:
    given_entries = [{"until": datetime(2026, 12, 1, 17, tzinfo=UTC), "urls": ("sqlite:/a",)}, {"urls": ["sqlite:/b"]}]
    assert json.loads(text_of(given_entries))[0]["urls"] == ["sqlite:/a"]
