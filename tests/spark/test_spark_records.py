"""The records of a hand-over: one fate for each batch, whoever works on it at once."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from heronpy.common.errors import ConfigError, FencedError, StateError
from heronpy.connectors.durable_files import run_token
from heronpy.connectors.spark import tables
from heronpy.connectors.spark.outbox import Outbox
from heronpy.connectors.spark.records import (
    RUNS_KEPT,
    AgreedSchema,
    Decision,
    Fate,
    GatewayPlace,
    RunRecords,
    check_handover,
    forget_runs,
    open_handover,
)
from heronpy.spark.batch import Batch
from heronpy.spark.inbox import Inbox
from heronpy.storage.objects.folder import FolderObjects
from heronpy.storage.objects.opening import open_objects
from heronpy.storage.objects.url import place_of
from tests.support.memory_objects import MemoryObjects
from tests.support.object_server import ObjectServer

RUN = run_token("T-1")
ROWS = pa.table({"n": [1, 2, 3]})


@pytest.fixture(params=["memory", "folder"])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> RunRecords:
    objects = MemoryObjects() if request.param == "memory" else FolderObjects(tmp_path / "handover", fsync=False)
    return RunRecords(objects, "T", RUN)


def outbox(shared: RunRecords, keep: bool = False, task: int = 3) -> Outbox:
    folder = shared.folder("store")
    folder.write_sink(b'{"component": "store"}')
    return Outbox(folder, "store", task, RUN, keep)


def gateway(shared: RunRecords, epoch: int = 1) -> Inbox:
    shared.announce(GatewayPlace(epoch, f"tcp://host:{epoch}"))
    return Inbox(shared, epoch)


def test_a_batch_is_seen_decided_committed_and_its_rows_removed(shared: RunRecords) -> None:
    box, inbox = outbox(shared), gateway(shared)
    written = box.write(ROWS)
    (ticket,) = inbox.scan()
    manifest = inbox.claim(ticket)
    assert manifest is not None and (manifest.id, manifest.rows) == (written.id, 3) and manifest.waited_s < 60
    table = inbox.rows(ticket)
    assert table == ROWS
    inbox.save(ticket, manifest)
    assert list(inbox.begun()) == [ticket]
    assert inbox.prepare(ticket, manifest)
    outcome = inbox.commit(ticket, manifest)
    assert outcome is not None and outcome.committed and inbox.outcome(ticket) == outcome
    assert list(inbox.scan()) == list(inbox.begun()) == [] and inbox.claim(ticket) is None
    assert box.folder.stems("rows") == [] and inbox.component_of("store") == "store"


def test_a_new_incarnation_withdraws_what_is_not_decided(shared: RunRecords) -> None:
    old, inbox = outbox(shared), gateway(shared)
    for _ in range(3):
        old.write(ROWS)
    first, second, third = inbox.scan()
    claimed = {ticket: inbox.claim(ticket) for ticket in (first, second, third)}
    assert inbox.prepare(first, claimed[first])
    new = outbox(shared)
    assert (new.takeover.withdrawn, new.takeover.kept, new.takeover.begun) == (2, 0, 1)
    assert not inbox.prepare(second, claimed[second]), "the sink was first"
    assert inbox.claim(second) is None and inbox.commit(first, claimed[first]).committed
    assert inbox.fail(third, claimed[third], "late") is None
    with pytest.raises(FencedError, match="replaced by a newer process"):
        old.write(ROWS)
    assert new.write(ROWS).number > 3


def test_where_nothing_is_replayed_leftovers_are_kept_in_order(shared: RunRecords) -> None:
    old, inbox = outbox(shared, keep=True), gateway(shared)
    written = [old.write(ROWS).stem for _ in range(3)]
    new = outbox(shared, keep=True)
    assert (new.takeover.withdrawn, new.takeover.kept) == (0, 3)
    written.append(new.write(ROWS).stem)
    assert [ticket.stem for ticket in inbox.scan()] == written
    assert all(inbox.claim(ticket) for ticket in inbox.scan())


def test_the_gateway_refuses_a_zombie(shared: RunRecords) -> None:
    old, inbox = outbox(shared), gateway(shared)
    outbox(shared)
    old._check_permit = lambda: None  # it passed its own check just before it was replaced
    old.write(ROWS)
    (ticket,) = inbox.scan()
    assert inbox.claim(ticket) is None and list(inbox.scan()) == [] and inbox.take_refused() == 1


def test_of_sinks_that_take_over_at_once_each_has_its_own_incarnation(shared: RunRecords) -> None:
    boxes: list[Outbox] = []
    threads = [threading.Thread(target=lambda: boxes.append(outbox(shared))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({box.incarnation for box in boxes}) == 6
    latest = max(boxes, key=lambda box: box.incarnation)
    latest.write(ROWS)
    for box in boxes:
        if box is not latest:
            with pytest.raises(FencedError):
                box.write(ROWS)


def test_the_times_of_a_batch_outlive_a_gateway(shared: RunRecords) -> None:
    outbox(shared).write(ROWS)
    inbox = gateway(shared)
    (ticket,) = inbox.scan()
    began = time.time()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("heronpy.spark.inbox.time.time", lambda: began + 3600)
        manifest = inbox.claim(ticket)
        assert manifest is not None and 3590 < manifest.waited_s < 3660
        manifest.waited_s, manifest.run_s, manifest.started = 7.0, 1.5, 1
        inbox.save(ticket, manifest)
        again = gateway(shared, 2)
        outcome = again.fail(ticket, again.claim(ticket), "it raised")
    assert outcome is not None and (outcome.waited_s, outcome.run_s, outcome.publish_s) == (7.0, 1.5, 0.0)
    assert outcome.ended_at == began + 3600


def test_numbers_and_ids_are_never_reused(shared: RunRecords) -> None:
    ids = []
    for _ in range(4):
        box = outbox(shared)
        ids += [box.write(ROWS).id, box.write(ROWS).id]
    numbers = [int(i.split("-")[2]) for i in ids]
    assert len(set(ids)) == 8 and numbers == sorted(set(numbers))
    other = RunRecords(shared.objects, "T", run_token("T-2"))
    assert Outbox(other.folder("store"), "store", 3, run_token("T-2"), False).write(ROWS).id not in ids


def test_rows_without_a_manifest_are_removed_by_the_successor(shared: RunRecords) -> None:
    folder = outbox(shared).folder
    for stem in ("3-0000000009-1", "4-0000000001-1"):
        folder.write_rows(stem, ROWS)
    new = outbox(shared)
    assert folder.stems("rows") == ["4-0000000001-1"], "those of another task stay"
    assert new.write(ROWS).number == 10


def test_earlier_submissions_are_forgotten_but_for_what_a_savepoint_may_name(tmp_path: Path) -> None:
    objects = FolderObjects(tmp_path, fsync=False)
    for number in range(12):
        outbox(RunRecords(objects, "T", f"idle{number:04d}"))
        os.utime(tmp_path / f"T-idle{number:04d}", (number, number))
    outbox(RunRecords(objects, "T", "lost0000")).write(ROWS)
    named = outbox(RunRecords(objects, "T", "named000"))
    named.folder.hand_over(replace(named.write(ROWS), checkpoint=3))
    outbox(RunRecords(objects, "T", "current0")).write(ROWS)
    damaged = outbox(RunRecords(objects, "T", "damaged0")).folder
    objects.put(damaged.key("batches", "3-0000000001-1.json"), b"{")
    (tmp_path / ".local").mkdir()
    forget_runs(tmp_path, "T-current0")
    idle = [f"T-idle{number:04d}" for number in range(12 - RUNS_KEPT, 12)]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [".local", "T-damaged0", "T-named000", "T-current0", *idle]
    )


def test_the_latest_gateway_counts(shared: RunRecords) -> None:
    old = gateway(shared, 3)
    assert shared.gateway() == GatewayPlace(3, "tcp://host:3")
    assert list(old.scan()) == []
    gateway(shared, 5)
    assert not shared.announce(GatewayPlace(4, "tcp://late"))
    assert shared.gateway() == GatewayPlace(5, "tcp://host:5")
    with pytest.raises(FencedError, match="epoch 3 was replaced"):
        list(old.scan())
    assert not shared.was_up
    shared.note_up()
    assert shared.was_up


def test_a_schema_is_agreed_on_once(shared: RunRecords) -> None:
    first, second = (AgreedSchema(shared.folder("store")) for _ in range(2))
    assert first.agreed() is None and first.offer(b"one") and not second.offer(b"two")
    assert second.agreed() == b"one"


def test_damaged_records_are_named(shared: RunRecords) -> None:
    box, inbox = outbox(shared), gateway(shared)
    stem = box.write(ROWS).stem
    (ticket,) = inbox.scan()
    shared.objects.put(box.folder.key("fates", f"{stem}.json"), b'{"fate": "x"}')
    with pytest.raises(StateError, match=r"fates.* is damaged"):
        inbox.claim(ticket)
    shared.objects.delete([box.folder.key("fates", f"{stem}.json")])
    shared.objects.put(box.folder.key("batches", f"{stem}.json"), b"{")
    with pytest.raises(StateError, match="manifest of a micro-batch is damaged"):
        inbox.claim(ticket)
    assert not inbox.fail(ticket, None, "damaged").committed and list(inbox.scan()) == []


def test_outcomes_and_fates_are_bounded(shared: RunRecords, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heronpy.spark.inbox.OUTCOMES_KEPT", 8)
    box, inbox = outbox(shared), gateway(shared)
    for _ in range(20):
        box.write(ROWS)
        (ticket,) = inbox.scan()
        manifest = inbox.claim(ticket)
        assert inbox.prepare(ticket, manifest) and inbox.commit(ticket, manifest)
    for kind in ("done", "fates"):
        assert 8 <= len(box.folder.stems(kind)) <= 8 + 2


def test_a_folder_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    loose = tmp_path / "loose"
    loose.mkdir()
    loose.chmod(0o777)
    with pytest.raises(ConfigError, match=r"the hand-over folder .* is writable by other users"):
        open_handover(str(loose))
    check_handover(str(tmp_path / "new"))
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="is not a folder"):
        check_handover(str(tmp_path / "file"))
    with pytest.raises(ConfigError, match="unknown scheme"):
        check_handover("ftp://host/x")


# -- tables -------------------------------------------------------------------------------------


def staged(inbox: Inbox, ticket: Any, epoch: int, table: Any, attempt: int = 1) -> tuple[Any, Batch]:
    manifest = inbox.claim(ticket)
    assert manifest is not None
    manifest.started = attempt
    batch = Batch(manifest, {}, epoch=epoch)
    rows = inbox.rows(ticket)
    batch.write_parquet(rows, table)
    manifest.tables, manifest.prepared = batch.staged_tables(), True
    return manifest, batch


def test_gateways_leave_what_others_stage_alone(shared: RunRecords, tmp_path: Path) -> None:
    table = tmp_path / "t"
    box, first = outbox(shared), gateway(shared, 1)
    box.write(ROWS)
    (ticket,) = first.scan()
    one, _ = staged(first, ticket, 1, table)
    second = gateway(shared, 2)
    two, batch = staged(second, ticket, 2, table)
    batch.drop_staged()
    assert Path(one.tables[0][0]).is_dir(), "an attempt of another gateway stays"
    two, _ = staged(second, ticket, 2, table, attempt=2)
    assert second.prepare(ticket, two) and not first.prepare(ticket, one)
    assert second.commit(ticket, two).committed
    assert pq.read_table(table)["n"].to_pylist() == [1, 2, 3] and not (table / "_staging").exists()


def test_what_was_published_before_is_replaced_once(tmp_path: Path) -> None:
    """A batch that an earlier submission published, and two gateways that publish the same decision."""
    table = tmp_path / "t"
    pairs = []
    for name, values in (("old", [1]), ("new", [2, 3])):
        place = table / "_staging" / name
        place.mkdir(parents=True)
        pq.write_table(pa.table({"n": values}), place / "part.parquet")
        pairs.append([[str(place), str(table / "batch=b")]])
    tables.publish(pairs[0])
    tables.publish(pairs[1])
    tables.publish(pairs[1])
    assert pq.read_table(table)["n"].to_pylist() == [2, 3] and not (table / "_staging").exists()
    tables.unpublish(pairs[1])
    with pytest.raises(ConfigError, match="are missing"):
        tables.publish(pairs[1])


@pytest.fixture
def table_store(monkeypatch: pytest.MonkeyPatch) -> MemoryObjects:
    objects = MemoryObjects("s3://bucket/table")
    monkeypatch.setattr(tables, "table_objects", lambda table: objects)
    return objects


def test_a_table_in_an_object_store_has_one_object_per_batch(shared: RunRecords, table_store: MemoryObjects) -> None:
    table = "s3://bucket/table"
    box, inbox = outbox(shared), gateway(shared)
    box.write(ROWS)
    (ticket,) = inbox.scan()
    manifest, batch = staged(inbox, ticket, 1, table)
    assert [key.split("/")[0] for key in table_store.list().objects] == ["_staging"]
    batch.drop_staged()
    assert table_store.list().objects == {}
    manifest, batch = staged(inbox, ticket, 1, table, attempt=2)
    assert inbox.prepare(ticket, manifest) and inbox.commit(ticket, manifest).committed
    (key,) = table_store.list().objects
    assert key == f"batch={manifest.id}/part-00000.parquet"
    assert pq.read_table(pa.BufferReader(table_store.get(key))).equals(ROWS)
    tables.publish(manifest.tables)
    tables.unpublish(manifest.tables)
    assert table_store.list().objects == {}
    with pytest.raises(ConfigError, match="are missing"):
        tables.publish(manifest.tables)
    with pytest.raises(ConfigError, match="one file"):
        batch.write_parquet(ROWS, table, files=2)
    assert batch.path("s3a://bucket/x/", ".csv") == f"s3a://bucket/x/batch={manifest.id}.csv"


def test_a_table_of_one_host_is_refused_between_hosts(shared: RunRecords, tmp_path: Path) -> None:
    box, inbox = outbox(shared), gateway(shared)
    box.write(ROWS)
    (ticket,) = inbox.scan()
    batch = Batch(inbox.claim(ticket), {}, epoch=1, shared=[tmp_path / "shared"])
    for call in (lambda: batch.write_parquet(ROWS, tmp_path / "t"), lambda: batch.path(tmp_path / "t")):
        with pytest.raises(
            ConfigError, match=r"folder that the hosts do not share; put it below heron\.engine\.shared"
        ):
            call()
    batch.write_parquet(ROWS, tmp_path / "shared" / "t")


# -- any order ----------------------------------------------------------------------------------


class World:
    """Sinks and gateways of which any may stop at any step and go on later, at least once."""

    def __init__(self) -> None:
        self.shared = RunRecords(MemoryObjects(), "T", RUN)
        self.sinks = [outbox(self.shared)]
        self.gateways = [gateway(self.shared, 1)]
        self.value = 0
        #: What each batch holds, what was published under which id, and what a sink knows to have failed.
        self.rows: dict[str, list[int]] = {}
        self.published: dict[str, list[int]] = {}
        self.work: list[tuple[int, Any, Any, Decision]] = []

    def write(self, which: int) -> None:
        sink = self.sinks[which % len(self.sinks)]
        self.value += 1
        try:
            manifest = sink.write(pa.table({"n": [self.value]}))
        except FencedError:
            assert sink is not self.sinks[-1], "the latest sink may always write"
            return
        self.rows[manifest.stem] = [self.value]

    def replace_sink(self, which: int) -> None:
        self.sinks.append(outbox(self.shared))

    def replace_gateway(self, which: int) -> None:
        self.gateways.append(gateway(self.shared, len(self.gateways) + 1))

    def begin(self, which: int) -> None:
        number = which % len(self.gateways)
        inbox = self.gateways[number]
        try:
            for ticket in inbox.scan():
                manifest = inbox.claim(ticket)
                if manifest is not None:
                    self.work.append((number, ticket, manifest, None))
                    return
        except FencedError:
            assert number < len(self.gateways) - 1, "the latest gateway may always work"

    def decide(self, which: int) -> None:
        """A gateway that has begun says what it wants to publish."""
        if not self.work:
            return
        number, ticket, manifest, _ = self.work.pop(which % len(self.work))
        inbox = self.gateways[number]
        if not manifest.prepared:
            # As if staged under this name: the pair never reaches a file here.
            manifest.tables = []
            if not inbox.prepare(ticket, manifest):
                return
        if inbox.commit(ticket, manifest) is not None:
            self.published.setdefault(ticket.stem, self.rows[ticket.stem])

    def finish(self) -> None:
        for _ in range(len(self.work) + 1):
            self.decide(0)
        self.replace_gateway(0)
        while list(self.gateways[-1].scan()):
            self.begin(len(self.gateways) - 1)
            self.decide(len(self.work) - 1)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["write", "write", "begin", "decide", "replace_sink", "replace_gateway"]), st.integers(0, 9)),
        max_size=30,
    )
)  # fmt: skip
def test_in_any_order_a_batch_has_one_fate(steps: list[tuple[str, int]]) -> None:
    world = World()
    for name, which in steps:
        getattr(world, name)(which)
    world.finish()
    folder = world.shared.folder("store")
    fates = Counter[Fate]()
    for stem in world.rows:
        decision, outcome = folder.decision(stem), folder.outcome(stem)
        assert decision is not None, f"{stem} was neither published nor withdrawn"
        fates[decision.fate] += 1
        is_published = stem in world.published
        assert is_published == (decision.fate is Fate.PUBLISHED) == (outcome is not None and outcome.committed)
        if decision.fate is Fate.WITHDRAWN:
            assert int(stem.rsplit("-", 1)[1]) < world.sinks[-1].incarnation, "of the latest sink nothing is withdrawn"
    assert fates.total() == len(world.rows) and folder.stems("rows") == folder.stems("batches") == []


def test_a_hand_over_in_an_object_store(bucket: str, object_server: ObjectServer) -> None:
    """The same over a real client and an S3 server: two gateways, a table in the same store, and an unsuitable store."""
    check_handover(f"{bucket}/handover")
    shared = RunRecords(open_handover(f"{bucket}/handover", 5.0), "T", RUN)
    box, first = outbox(shared), gateway(shared, 1)
    box.write(ROWS)
    (ticket,) = first.scan()
    one, _ = staged(first, ticket, 1, f"{bucket}/table")
    second = gateway(shared, 2)
    two, _ = staged(second, ticket, 2, f"{bucket}/table")
    object_server.set(lose=1)
    assert second.prepare(ticket, two), "it was written, though the answer got lost"
    assert not first.prepare(ticket, one)
    assert second.commit(ticket, two).committed
    table = open_objects(place_of(f"{bucket}/table"))
    (key,) = table.list().objects
    assert pq.read_table(pa.BufferReader(table.get(key))).equals(ROWS)
    assert box.folder.stems("rows") == box.folder.stems("batches") == []
    object_server.set(ignore_conditions=True)
    with pytest.raises(ConfigError, match=r"the store of heron\.spark\.handover .* has no put-if-absent"):
        check_handover(f"{bucket}/handover")
