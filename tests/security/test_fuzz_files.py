"""Mutated files at everything that reads one: an error of heronpy or a value, never a crash or a pickle (F23)."""

from __future__ import annotations

import io
import json
import logging
import random
import sqlite3
import tarfile
import zipfile
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import fields

from heronpy.ckpt.snapshot import TaskState
from heronpy.common.errors import ConfigError, HeronError, LedgerError, PackageError, StateError
from heronpy.common.log_format import parse_line
from heronpy.common.setting_types import CheckpointSettings
from heronpy.common.settings import resolve
from heronpy.connectors.durable_files import read_json
from heronpy.connectors.spark.handover import Manifest
from heronpy.ingest.bad import bad_record
from heronpy.ingest.checking import rebuild
from heronpy.ingest.ledger import machine, sql
from heronpy.ingest.ledger.client import Ledger
from heronpy.ingest.ledger.commands import ListBad, ListUnits, Show
from heronpy.ingest.ledger.requests import Bad, Chunk, Cut, Lease, Line, ListFiles, Open, ReportScan, SeenFile, Who
from heronpy.ingest.ledger.sqlite import SqliteStore
from heronpy.ingest.ledger.types import Config, Kind, UnitState
from heronpy.ingest.ledger.validate import validate
from heronpy.ingest.outputs.lineage import Lineage, Range
from heronpy.ingest.outputs.stages import About, Stages
from heronpy.net import curve
from heronpy.plan.launch import LaunchSpec, load_submitted
from heronpy.plan.physical_plan import build_physical_plan
from heronpy.proto import checkpoint_pb2, plan_pb2
from heronpy.statemgr import znode
from heronpy.statemgr.localfs import LocalStateManager
from heronpy.storage.checkpoint_files import DamagedFileError, encode_metadata
from heronpy.storage.checkpoints import CheckpointStore
from heronpy.storage.dead_letters import DeadLetterFile, letter_of
from heronpy.storage.locations import open_location
from heronpy.storage.packages import PackageStore
from heronpy.storage.stores import Stores
from instance.poison import InHand, Journal
from tests.security.evil import TERMINAL
from tests.security.messages import disfigured
from tests.security.mutate import CASES, SEED, cases
from tests.support.topologies import deploy
from tests.tmaster.tmaster_world import make_packing, make_topology

pytestmark = pytest.mark.usefixtures("nothing_is_unpickled")

#: Small, because each case is written to a disk.
SHARE = 0.3
FILES = max(10, int(CASES * SHARE))


def feed(file: Path, seeds: list[bytes], name: str, read: Callable[[], object], *refused: type[Exception]) -> int:
    """Write each mutation to the file and read it; how many were refused, with one of these errors only."""
    count = 0
    for data in cases(seeds, name, SHARE):
        file.write_bytes(data)
        try:
            read()
        except refused:
            count += 1
    return count


def test_launch_files_and_keys(home: Path) -> None:
    deployed = deploy(home, make_packing(make_topology({"word": 1}, {"count": 1}), 1))
    deployed.state.close()
    file = home / "launch.json"
    seeds = [Path(deployed.launch_file).read_bytes(), json.dumps({"settings": {}}).encode(), b"[" * 5_000]
    assert feed(file, seeds, "launch", lambda: load_submitted(file), ConfigError)
    here = Path(deployed.launch_file).with_name("here.json")
    assert feed(here, [here.read_bytes()], "here", lambda: LaunchSpec.load(deployed.launch_file), ConfigError)
    curve.generate(str(home))
    key = curve.folder_of(str(home)) / "client.key"
    refused = feed(key, [key.read_bytes()], "keys", lambda: curve.load(str(home), "wc-1"), ConfigError)
    # All but the untouched: a key that was changed is no key.
    assert refused > FILES * 0.9


def test_settings(tmp_path: Path) -> None:
    folder = tmp_path / "local"
    folder.mkdir()
    file = folder / "security.yaml"
    seeds = [
        b"curve: on\nbind_host: 127.0.0.1\n",
        b"curve: [auto, {a: *b}]\n",
        b"&a [*a, *a]",
        b"!!python/object/apply:os.system [x]",
    ]
    assert feed(file, seeds, "settings", lambda: resolve("local", [tmp_path], {}, {}, []), ConfigError)


def test_state_nodes(home: Path) -> None:
    """A changed node is damaged, and says so: it never holds another value than was written."""
    state = LocalStateManager(home / "state")
    topology = make_topology({"word": 2}, {"count": 2})
    values = [topology.SerializeToString(), make_packing(topology, 2).SerializeToString()]
    for number, value in enumerate(values):
        state.set(f"topologies/t{number}", value)
    folder = home / "state" / "topologies"
    seeds = [path.read_bytes() for path in sorted(folder.glob("*.node"))]

    def look() -> None:
        found = state.get("topologies/t0")
        assert found is None or found[0] in values

    assert feed(folder / "t0.node", seeds, "state", look, StateError) > FILES / 2
    state.close()


def test_zookeeper_nodes() -> None:
    seeds = [
        znode.Value("a1" * 16, b"data", "-").to_bytes(),
        znode.Value("b2" * 16, b"", "1f:2:3", znode.describe_pieces("c3" * 16, b"x" * 100)).to_bytes(),
    ]
    taken = refused = 0
    for data in cases(seeds, "znode", 5):
        try:
            value = znode.parse("/heron/x", data)
            value.whole([b"x" * 100])
            taken += 1
        except StateError:
            refused += 1
    assert taken and refused


def test_packing_and_physical_plans() -> None:
    """What a state manager hands out, changed behind a right checksum: a plan, or an error of heronpy."""
    from google.protobuf.message import DecodeError

    topology = make_topology({"word": 2}, {"count": 2})
    packing = make_packing(topology, 2)
    records = [plan_pb2.StmgrRecord(id=f"stmgr-{n}", container=n, epoch=1) for n in (1, 2)]
    built = 0
    for data in cases([packing.SerializeToString()], "packing", 5, partial(disfigured, kind=plan_pb2.PackingPlan)):
        try:
            build_physical_plan(topology, plan_pb2.PackingPlan.FromString(data), records, 1, 1)
            built += 1
        except (DecodeError, HeronError):
            pass
    assert built


# ---- checkpoints -----------------------------------------------------------------------------------------


def checkpoint_of(folder: Path) -> tuple[CheckpointStore, CheckpointSettings, str]:
    """Plain and keyed state of one task, without pickles."""
    store, settings = CheckpointStore(folder, fsync=False), CheckpointSettings(inline_max_bytes=0)
    task = new_task(store, settings)
    task.restore("", 1)
    task.plain["offset"] = 5
    keyed = task.keyed("counts")
    for key in range(50):
        keyed[key] = f"value {key}"
    capture = task.capture(1)
    snapshot = capture.persist()
    task.write_channel(1, snapshot, [b"frame"], 1)
    metadata = checkpoint_pb2.Metadata(
        version=1, checkpoint=1, topology="wc", topology_id=folder.name, parallelism={"count": 1},
        key_groups=settings.key_groups, tasks=[snapshot],
    )  # fmt: skip
    snapshot.component = "count"
    metadata.tasks[0].component = "count"
    return store, settings, store.write_metadata(metadata)


def new_task(store: CheckpointStore, settings: CheckpointSettings) -> TaskState:
    return TaskState("count", 0, 1, settings, Stores(store), task_id=1, allow_pickle=False)


def test_checkpoint_metadata(tmp_path: Path) -> None:
    store, settings, location = checkpoint_of(tmp_path / "wc-1")
    file = Path(location) / "metadata"
    whole = file.read_bytes()
    new_task(store, settings).restore(location, 2)
    refused = feed(file, [whole], "metadata", lambda: open_location(location), HeronError)
    assert refused > FILES * 0.9
    # Changed behind a right checksum.
    _, metadata = open_location_of(file, whole, location)
    odd = random.Random(3)
    for _ in range(FILES):
        data = disfigured(metadata.SerializeToString(), odd, checkpoint_pb2.Metadata)
        file.write_bytes(b"".join(encode_metadata(checkpoint_pb2.Metadata.FromString(data))))
        try:
            new_task(store, settings).restore(location, 2)
        except HeronError:
            pass


def open_location_of(file: Path, data: bytes, location: str) -> tuple[CheckpointStore, checkpoint_pb2.Metadata]:
    file.write_bytes(data)
    return open_location(location)


def test_checkpoint_files(tmp_path: Path) -> None:
    """A segment, State or channel that was changed is refused by name: its hash is in the metadata."""
    store, settings, location = checkpoint_of(tmp_path / "wc-1")
    files = [p for p in (tmp_path / "wc-1").rglob("*") if p.is_file() and p.name != "metadata" and p.stat().st_size]
    assert len(files) >= 3
    refused = 0
    for number, file in enumerate(files):
        whole = file.read_bytes()
        for data in cases([whole], f"file {number}", SHARE):
            file.chmod(0o600)
            file.write_bytes(data)
            try:
                new_task(store, settings).restore(location, 2)
                assert data == whole, f"{file} was changed and taken"
            except DamagedFileError as error:
                assert str(file) in str(error)
                refused += 1
        file.write_bytes(whole)
    assert refused > FILES * 2
    new_task(store, settings).restore(location, 2)


# ---- packages --------------------------------------------------------------------------------------------


def archives() -> list[tuple[str, bytes]]:
    packed, taken = io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("code.py", "print('hello')\n" * 20)
        archive.writestr("more/__init__.py", "")
    with tarfile.open(fileobj=taken, mode="w:gz") as tar:
        info = tarfile.TarInfo("code.py")
        info.size = 5
        tar.addfile(info, io.BytesIO(b"x = 1"))
    return [("p.zip", packed.getvalue()), ("p.tar.gz", taken.getvalue())]


@pytest.mark.parametrize(("name", "whole"), archives(), ids=["zip", "tar"])
def test_packages(tmp_path: Path, name: str, whole: bytes) -> None:
    store = PackageStore(tmp_path / "cache", files_max=100, bytes_max=1 << 20)
    file = tmp_path / "in" / name
    file.parent.mkdir()
    refused = 0
    for data in cases([whole], name, SHARE):
        file.write_bytes(data)
        try:
            package = store.add(file)
            assert package.dir.parent == tmp_path / "cache"
        except PackageError:
            refused += 1
    assert refused
    assert sorted(p.name for p in tmp_path.iterdir()) == ["cache", "in"]
    assert not list((tmp_path / "cache" / ".tmp").iterdir())


# ---- small files -----------------------------------------------------------------------------------------


def test_dead_letters_and_poison_journals(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever is wrong with them, readers skip it and tasks start."""
    caplog.set_level(logging.CRITICAL)
    file = DeadLetterFile(tmp_path, "container_1_count_2", 1 << 20)
    file.append({"payload": ["word", 1, {"base64": "eA=="}], "traceback": "Traceback\n", "tries": 3, "at": 1.5})
    deep = b"[" * 5_000 + b"\n"

    def read() -> list[object]:
        return [letter_of(line) for line in file.path.read_bytes().splitlines()]

    assert feed(file.path, [file.path.read_bytes() * 3, deep], "letters", read) == 0

    path = tmp_path / "journal"
    journal = Journal(path, 3)
    journal.charges.charge("k", "why", 1.0, deadly=True)
    journal.save()

    def reload() -> None:
        fresh = Journal(path, 3)
        fresh.load()
        for key in list(fresh.charges.by_key):
            fresh.charges.charge(key, "again", 2.0, deadly=False)
        fresh.save()

    assert feed(path, [path.read_bytes(), deep, b'{"spoken": 1e999, "charges": {}}'], "journal", reload) == 0
    mark = tmp_path / "mark"
    content = json.dumps({"key": "k", "component": "c", "stream": "s", "task": 1, "payload": "[1]"}).encode()
    seeds = [len(content).to_bytes(4, "little") + content + bytes(100), (60_000).to_bytes(4, "little") + deep * 2]
    assert feed(mark, seeds, "mark", lambda: InHand(mark).read()) == 0


def test_spark_handover(tmp_path: Path) -> None:
    manifest = Manifest.from_bytes(json.dumps(known_manifest()).encode())
    for data in cases([manifest.to_bytes(), b"{}", b"[" * 5_000], "manifest", 3):
        try:
            Manifest.from_bytes(data)
        except StateError:
            pass
    record = tmp_path / "record.json"
    assert feed(record, [b'{"pid": 3}', b"[" * 5_000], "records", lambda: read_json(record), StateError)


def known_manifest() -> dict[str, Any]:
    plain: dict[Any, Any] = {str: "text", int: 1, bool: True, float: 1.0}
    return {one.name: plain[one.type] for one in fields(Manifest) if one.required}


def test_log_lines() -> None:
    line = b"2026-11-21T00:10:21.123+0000 INFO  container_1_word_3 [logger] message"
    taken = 0
    for data in cases([line], "log", 10):
        record = parse_line(data.decode("utf-8", "backslashreplace"))
        taken += record is not None
        assert record is None or "\x1b" not in record.text
    assert taken


def test_the_cases_are_the_same_each_time() -> None:
    first = list(cases([b"seed", b"other"], "same"))
    assert first == list(cases([b"seed", b"other"], "same")) and first != list(
        cases([b"seed", b"other"], "not the same")
    )


# ---- work units ------------------------------------------------------------------------------------------


def test_records_of_a_table_of_work_units(tmp_path: Path) -> None:
    """Lineage, bad records and what a table says of itself: what is damaged is named, and nothing else happens."""
    table, number = tmp_path / "table", iter(range(10**9))
    stages = Stages(str(table))
    stages.claim(About("p", Config(pattern="/logs/*.log")))
    stage = stages.make(1, 1, 1)
    stages.finish(stage, Lineage("p", 1, 1, 1, 0, (Range("a.log", 1, 0, 10, "x:4:y", "z"),)))
    stages.publish(1, 1, 1)
    bad = Bad(1, 3, (Line(1, 20, 30),), "no")
    name, text = bad_record("p", 1, bad, Chunk(1, "a.log", 1, 20, 30, "x:4:y"), bad.ranges[0], b"bytes\n", True, "")
    stages.write_bad(name, text)

    def look() -> None:
        path = tmp_path / "l" / f"{next(number) % 4}.db"
        rebuild(f"sqlite:{path}", "p", str(table))
        with closing(SqliteStore(path)) as store:
            assert validate(store.snapshot("p")) == []

    deep = b"[" * 5_000
    for file in (
        table / "unit=1-1" / "_unit.json",
        stages.home / "pipeline.json",
        stages.home / "bad" / f"{name}.json",
    ):
        whole = file.read_bytes()
        names = sorted(path.name for path in tmp_path.iterdir())
        refused = feed(file, [whole, deep], file.name, look, HeronError)
        assert refused > FILES * 0.3
        assert set(names) | {"l"} == {path.name for path in tmp_path.iterdir()}
        file.write_bytes(whole)
    look()


#: Values that no ledger writes, for any column.
ODD_VALUES = (None, "", "x", "\x1b[31m\u2028", -1, 1 << 62, 0.5, float("inf"), b"\xff\x00", "[" * 5_000, "[1]", "{}")


def test_rows_of_a_ledger(tmp_path: Path) -> None:
    """A row that was changed is refused in one sentence, or is a row; nobody crashes over it."""
    path = tmp_path / "l" / "units.db"
    with closing(SqliteStore(path)) as store:
        keeper, worker = Ledger(store, "p", Who("k", "1", Kind.KEEPER)), Ledger(store, "p", Who("w", "1", Kind.WORKER))
        keeper.ask(Open(Config(pattern="/logs/*.log", unit_bytes=100, unit_wait_s=0.0)))
        keeper.ask(ReportScan(tuple(SeenFile(f"{n}.log", 1, f"{n}.log", 500, str(n), "x:4:y") for n in range(4))))
        keeper.ask(Cut())
        worker.ask(Lease())
    dice, taken, refused = random.Random(f"{SEED}/rows"), 0, 0
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        tables = ("pipelines", "files", "copies", "spans", "units", "clients", "answers")
        columns = [
            (table, column[1])
            for table in tables
            for column in connection.execute(f"PRAGMA table_info({table})")
            if column[1] != "pipeline"
        ]
        for _ in range(FILES):
            table, column = dice.choice(columns)
            connection.execute("BEGIN IMMEDIATE")
            try:
                connection.execute(f'UPDATE OR IGNORE {table} SET "{column}" = ?', (dice.choice(ODD_VALUES),))
            except sqlite3.IntegrityError:
                connection.execute("ROLLBACK")
                continue
            view = sql.SqlView("p", lambda statement, values: connection.execute(statement, tuple(values)).fetchall())
            for request in (Show(), ListUnits(UnitState.LEASED), ListBad(), ListFiles()):
                try:
                    machine.handle(view, request, Who("c", "1", Kind.COMMAND), 0, 1.0)
                    taken += 1
                except LedgerError as error:
                    refused += 1
                    assert not TERMINAL.search(str(error)), error
                except sqlite3.OperationalError as error:  # a sum of sizes; SqliteStore makes it a LedgerError
                    refused += 1
                    assert "overflow" in str(error)
            connection.execute("ROLLBACK")
    assert taken and refused


def test_the_file_of_a_ledger(tmp_path: Path) -> None:
    path = tmp_path / "l" / "units.db"
    store = SqliteStore(path)
    Ledger(store, "p", Who("k", "1", Kind.KEEPER)).ask(Open(Config(pattern="/logs/*.log")))
    store.close()
    assert [one.name for one in path.parent.iterdir()] == [path.name]

    def look() -> None:
        opened = SqliteStore(path)
        try:
            for name in opened.pipelines():
                opened.snapshot(name)
        finally:
            opened.close()
            for beside in path.parent.glob(f"{path.name}-*"):
                beside.unlink()

    assert feed(path, [path.read_bytes()], "ledger", look, LedgerError) > FILES * 0.2
