"""Names of log files may hold anything, and so may a ledger that others have changed: nothing outside is read."""

from __future__ import annotations

import ast
import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.cli.look.bad_ranges import show_bad
from heronpy.cli.look.units import check_pipeline, list_pipelines, show_pipeline
from heronpy.common.errors import LedgerError
from heronpy.growing.below import UnfitFileError, open_below
from heronpy.growing.identity import digest
from heronpy.growing.patterns import key_of
from heronpy.ingest.bad import bad_record, dead_bytes
from heronpy.ingest.ledger import sql, sqlite
from heronpy.ingest.ledger.client import Ledger
from heronpy.ingest.ledger.reaching import open_store
from heronpy.ingest.ledger.requests import (
    Bad,
    Chunk,
    Commit,
    Cut,
    Lease,
    Line,
    ListFinished,
    Open,
    Published,
    ReportScan,
    SeenFile,
    TryFailed,
    Who,
    Work,
)
from heronpy.ingest.ledger.types import Config, Kind
from heronpy.ingest.ledger.validate import validate
from heronpy.ingest.options import logs_at
from heronpy.ingest.outputs.lineage import Lineage, Range
from heronpy.ingest.outputs.stages import About, Stages
from heronpy.ingest.unit import MovedError, opened
from heronpy.ingest.watch import Watch
from tests.security.evil import EVIL, TERMINAL
from tests.support.command import REPO
from tests.support.memory_ledger import MemoryStore

_SEGMENTS = st.sampled_from(["..", ".", "", "a", "in", "link", "secret", "a.log", "\0", "\x1b[2J", "..log", "%2e%2e"])


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a log and links, next to a secret."""
    folder = tmp_path_factory.mktemp("names")
    (folder / "secret").write_text("secret\n")
    logs = folder / "logs"
    (logs / "in").mkdir(parents=True)
    (logs / "a.log").write_text("one\n")
    (logs / "in" / "a.log").write_text("two\n")
    (logs / "link").symlink_to(folder)
    (logs / "out.log").symlink_to(folder / "secret")
    os.mkfifo(logs / "pipe.log")
    return logs


@given(st.lists(_SEGMENTS, min_size=1, max_size=6).map("/".join) | st.text("./a\0", max_size=12))
def test_a_key_opens_only_what_lies_below_the_root(root: Path, key: str) -> None:
    try:
        descriptor = open_below(str(root), key)
    except (OSError, UnfitFileError, ValueError):
        return
    try:
        assert Path(os.readlink(f"/proc/self/fd/{descriptor}")) in (root / "a.log", root / "in" / "a.log")
    finally:
        os.close(descriptor)


@given(st.lists(_SEGMENTS, max_size=6).map("/".join))
def test_a_key_is_a_plain_path_below_the_root(path: str) -> None:
    key = key_of("/logs", f"/logs/{path}")
    if key is not None:
        assert not {"", ".", ".."} & set(key.split("/"))


def test_a_look_follows_no_link_and_waits_for_no_pipe(root: Path) -> None:
    """And says so, whatever the names are."""
    evil = "x\x1b[2J\n\u202e.log"
    (root / evil).write_text("three\n")
    try:
        (root / "\x1b[31m.log").symlink_to("/etc/passwd")
        watch = Watch(logs_at(f"{root}/**/*.log", ""), 7.0, (), "")
        watch.look(1.0)
        seen, _ = watch.changes(100)
        assert sorted(one.key for one in seen) == sorted(["a.log", "in/a.log", evil])
        notices = [notice.text for notice in watch.notices()]
        assert sum("is a link, which is not followed" in text for text in notices) == 3
        assert any("is not a regular file" in text for text in notices)
        assert not any(TERMINAL.search(text) or "\n" in text for text in notices)
    finally:
        (root / evil).unlink()
        (root / "\x1b[31m.log").unlink(missing_ok=True)


@pytest.mark.parametrize(
    "path", ["../secret", "link/secret", "out.log", "/etc/passwd", "in/../../secret", "pipe.log", ""]
)
def test_a_ledger_that_others_have_changed_leads_nowhere(root: Path, path: str) -> None:
    chunk = Chunk(1, "a.log", 1, 0, 7, f"x:0:{digest(b'')}", path)
    with pytest.raises(MovedError, match="cannot be read"), opened(str(root), chunk):
        pass
    with opened(str(root), Chunk(1, "a.log", 1, 0, 4, chunk.head, "a.log")):
        pass  # the head alone would let it in
    assert dead_bytes(str(root), chunk, Line(1, 0, 7)) == (b"", False)


def test_names_of_outputs_come_from_numbers(tmp_path: Path) -> None:
    """A record of a bad range has the evil name inside, escaped, and none of it outside."""
    chunk = Chunk(1, f"../{EVIL}", 1, 0, 7, "x:0:y", f"../{EVIL}")
    name, text = bad_record("p", 1, Bad(1, 3, (Line(1, 0, 7),), EVIL), chunk, Line(1, 0, 7), b"\x1b[2J\n", True, EVIL)
    assert name == "g1-f1-0-7" and text.isascii() and not TERMINAL.search(text)
    stages = Stages(str(tmp_path / "table"))
    stages.write_bad(name, text)
    assert [path.name for path in stages.bad_records()] == ["g1-f1-0-7.json"]


def test_what_the_verbs_show_acts_on_no_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evil = EVIL.replace("\0", "")
    url, table = f"sqlite:{tmp_path / 'l' / 'units.db'}", tmp_path / "table"
    stages = Stages(str(table))
    with closing(open_store(url)) as store:
        keeper, worker = (Ledger(store, "p", Who(kind.value, "1", kind)) for kind in (Kind.KEEPER, Kind.WORKER))
        config = Config(pattern="/logs/*.log", unit_wait_s=0.0, tries_max=1, unit_bytes=10)
        keeper.ask(Open(config))
        stages.claim(About("p", config))
        seen = [SeenFile(f"{n}{evil}", 1, f"{n}{evil}", 10, str(n), "x:4:y") for n in range(3)]
        keeper.ask(ReportScan(tuple(seen)))
        keeper.ask(Cut())
        first = worker.ask(Lease())
        assert isinstance(first, Work)
        worker.ask(TryFailed(first.unit, 1, 1, evil, Line(first.chunks[0].file, 0, 10)))
        second = worker.ask(Lease())
        assert isinstance(second, Work)
        chunk = second.chunks[0]
        lineage = Lineage("p", 1, second.unit, 1, 0, (Range(chunk.key, 1, 0, 10, "x:4:y", "z"),) * 2)
        stages.finish(stages.make(1, second.unit, 1), lineage)
        stages.publish(1, second.unit, 1)
        worker.ask(Commit(second.unit, 1, 1, 0, 0.1))
        keeper.ask(Published(tuple(one.unit for one in keeper.ask(ListFinished()).units), 1))
        worker.ask(Lease())
    list_pipelines(url, as_json=False)
    show_pipeline("p", url, as_json=False)
    with suppress(SystemExit):
        show_bad("p", None, url, retry=False, whole=True, as_json=False)
    with suppress(SystemExit, LedgerError):
        check_pipeline("p", str(table), url, as_json=False)
    said = capsys.readouterr().out
    assert "forged" in said and "is in the table twice" in said
    assert not TERMINAL.search(said)
    assert not any(line.startswith("2026-01-01") for line in said.splitlines())


def test_a_name_that_is_no_text_is_refused_by_the_ledger() -> None:
    keeper = Ledger(MemoryStore(), "p", Who("k", "1", Kind.KEEPER))
    keeper.ask(Open(Config(pattern="/logs/*.log")))
    for name in ("a\0b", "\udcff.log", "x" * 2_001):
        with pytest.raises(LedgerError, match="must be UTF-8 and at most 2000 characters"):
            keeper.ask(ReportScan((SeenFile(name, 1, name, 1, "i", "h"),)))


def test_values_are_never_part_of_a_statement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    statements: set[str] = set()
    real = sqlite._execute

    def watched(connection: sqlite3.Connection) -> sql.Execute:
        execute = real(connection)

        def noted(statement: str, values: sql.Values) -> list[Any]:
            statements.add(statement)
            return execute(statement, values)

        return noted

    monkeypatch.setattr(sqlite, "_execute", watched)
    evil = "x'; DROP TABLE units; --"
    with closing(open_store(f"sqlite:{tmp_path / 'l' / 'units.db'}")) as store:
        keeper, worker = (
            Ledger(store, evil, Who(kind.value + evil, evil, kind, evil, evil)) for kind in (Kind.KEEPER, Kind.WORKER)
        )
        keeper.ask(Open(Config(pattern=f"/logs/{evil}", unit_wait_s=0.0, tries_max=1, after=(evil + "2",))))
        keeper.ask(ReportScan((SeenFile(evil, 1, evil, 10, evil, evil),)))
        keeper.ask(Cut(0.0))
        keeper.ask(Open(Config(pattern=f"/logs/{evil}", unit_wait_s=0.0, tries_max=1)))
        work = worker.ask(Lease())
        assert isinstance(work, Work)
        worker.ask(TryFailed(work.unit, 1, 1, evil, Line(work.chunks[0].file, 0, 10)))
        assert validate(store.snapshot(evil)) == []
        assert store.pipelines() == (evil,)
    assert len(statements) > 20 and not any("DROP" in one or "'x" in one for one in statements)


def test_nothing_that_a_ledger_or_a_table_has_is_unpickled_or_run() -> None:
    """The rooms of work units read JSON and plain columns; functions of users come with their topology."""
    for room in ("ingest", "growing"):
        for path in sorted((REPO / "heronpy" / room).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
                names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                names += [node.func.id] if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else []
                roots = {name.partition(".")[0] for name in names}
                assert not roots & {"pickle", "cloudpickle", "marshal", "shelve", "dill", "yaml", "eval", "exec"}, path
