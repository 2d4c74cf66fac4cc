"""SparkSink under EFFECTIVELY_ONCE: each row in one published batch, whatever crashes where (D12, F07, F10).

The records are the real ones; the gateways are driven without Spark: what a batch holds is written as it is.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from heronpy.api.config_values import decode_config, encode_config
from heronpy.api.state.state import HashMapState
from heronpy.cli.look.batches import failed
from heronpy.common.errors import ConfigError, DeadlineError, FencedError
from heronpy.connectors.durable_files import run_token
from heronpy.connectors.spark import sink as sink_module
from heronpy.connectors.spark.handover import Manifest
from heronpy.connectors.spark.link import Finished, Session
from heronpy.connectors.spark.records import Decision, Fate, GatewayPlace, RunRecords, SinkFolder
from heronpy.connectors.spark.sink import SparkSink
from heronpy.spark.batch import Batch
from heronpy.spark.inbox import Inbox
from heronpy.spark.lanes import Lanes, Ticket
from heronpy.storage.objects.folder import FolderObjects
from tests.connectors.two_phase import POINTS, RUNS, Delegate, Harness, Tup, checkpoint, fails_for_good, start, state_of
from tests.spark.support import make_launch
from tests.support.full_disk import Patience, fill, full_disk

__all__ = ["full_disk"]

ROWS = 30


def run_of(home: Path, topology_id: str = "", place: Path | None = None) -> RunRecords:
    objects = FolderObjects(place or home / "spark", fsync=False)  # power failures are tested with the store
    return RunRecords(objects, "T", run_token(topology_id or f"T-{home.name}"))


def folder_of(home: Path, topology_id: str = "") -> SinkFolder:
    return run_of(home, topology_id).folder("store")


class Gateway:
    """A gateway's inbox and lanes; what stands for Spark copies the rows of a batch to a table."""

    def __init__(self, home: Path, epoch: int = 1, topology_id: str = "", place: Path | None = None) -> None:
        self.table = home / "table"
        self.epoch = epoch
        shared = run_of(home, topology_id, place)
        shared.announce(GatewayPlace(epoch, f"tcp://127.0.0.1:{epoch}"))
        self.inbox = Inbox(shared, epoch)
        self.lanes = Lanes()

    def step(self) -> bool:
        """Look for batches and work on one; False without one."""
        for ticket in self.inbox.scan():
            self.lanes.add(ticket)
        ticket = self.lanes.take(0.0)
        if ticket is None:
            return False
        manifest = self.inbox.claim(ticket)
        if manifest is not None and (manifest.prepared or self.aggregate(ticket, manifest)):
            self.inbox.commit(ticket, manifest)
        self.lanes.finish(ticket)
        return True

    def aggregate(self, ticket: Ticket, manifest: Manifest) -> bool:
        """Whether what it staged is what counts."""
        manifest.started += 1
        self.inbox.save(ticket, manifest)
        batch = Batch(manifest, {}, epoch=self.epoch)
        batch.write_parquet(self.inbox.rows(ticket), self.table)
        manifest.tables, manifest.prepared = batch.staged_tables(), True
        if not self.inbox.prepare(ticket, manifest):
            batch.drop_staged()
            return False
        return True

    def work(self) -> None:
        while self.step():
            pass


class Link:
    """Answers from the records; a gateway works while a sink waits for it."""

    def __init__(self, *_: Any) -> None:
        self.home = Path(os.environ["HERON_LAUNCH"]).parent
        self.asked: list[str] = []

    def ready(self, stems: Any) -> None:
        self.asked += stems

    def finished(self, wait_s: float = 0.0) -> list[Finished]:
        if wait_s > 0:
            Gateway(self.home).work()
        folder, answers = folder_of(self.home), []
        asked, self.asked = self.asked, []
        for stem in asked:
            outcome = folder.outcome(stem)
            if outcome is None and wait_s <= 0:
                self.asked.append(stem)
            else:
                answers.append(Finished("store", stem, outcome is not None and outcome.committed))
        return answers

    def close(self) -> None:
        pass


def new_home(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder.mkdir(parents=True)
    monkeypatch.setenv("HERON_LAUNCH", str(make_launch(folder, folder / "sockets")))
    monkeypatch.setattr(sink_module, "link_to_gateway", Link)
    return folder


def config_of(**options: Any) -> dict[str, Any]:
    options = {"schema": {"n": "int64"}, "batch_rows": 7} | options
    return decode_config(encode_config(SparkSink.spec("store", aggregate="module.function", **options).custom_config))


def rows_of(table: Path) -> list[int]:
    return sorted(pq.read_table(table)["n"].to_pylist()) if list(table.glob("batch=*")) else []


def feed(sink: SparkSink, *values: int) -> None:
    for value in values:
        sink.process(Tup(value, [value]))


def copy(state: Any) -> Any:
    return HashMapState({key: dict(value, batches=list(value["batches"])) for key, value in state.items()})


def prepared_in(home: Path) -> list[Manifest]:
    """The batches whose checkpoint is not complete, in their order."""
    folder = folder_of(home)
    found = [folder.manifest("prepared", stem) for stem in folder.stems("prepared")]
    return [manifest for manifest in found if manifest is not None]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return new_home(tmp_path / "w", monkeypatch)


def saved(sink: SparkSink, number: int, complete: bool = True) -> Any:
    """A checkpoint; its state."""
    sink.pre_save(str(number))
    state = copy(state_of(sink))
    if complete:
        sink.post_save(str(number))
    return state


@pytest.mark.parametrize("point", POINTS)
def test_every_row_is_published_once_whatever_crashes_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    crashed = 0
    for seed in range(RUNS or 2):
        home = new_home(tmp_path / str(seed), monkeypatch)
        harness = Harness(home / "runtime", SparkSink, config_of(), seed, ROWS, lambda n: [n],
                          between=lambda home=home, seed=seed: Gateway(home).step() if seed % 2 else None)  # fmt: skip
        crashed += harness.run_until_done(point)
        Gateway(home).work()
        assert rows_of(home / "table") == list(range(ROWS)), f"seed {seed}"
        assert [folder_of(home).stems(kind) for kind in ("batches", "prepared", "rows", "attempts")] == [[]] * 4
    assert crashed > 0


@pytest.mark.parametrize("point", ["after_prepare", "during_publish", "after_record"])
def test_a_stopped_sink_that_goes_on_later_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    ends = Counter[str]()
    for seed in range(RUNS or 2):
        home = new_home(tmp_path / str(seed), monkeypatch)
        harness = Harness(home / "runtime", SparkSink, config_of(), seed, ROWS, lambda n: [n],
                          between=lambda home=home, seed=seed: Gateway(home).step() if seed % 2 else None)  # fmt: skip
        ends[harness.run_with_a_zombie(point)] += 1
        Gateway(home).work()
        assert rows_of(home / "table") == list(range(ROWS)), f"seed {seed}"
    assert ends["fenced"] > 0, ends


def test_a_batch_is_invisible_until_its_checkpoint_is_complete(home: Path) -> None:
    sink, gateway = start(SparkSink, config_of(), attempt=1), Gateway(home)
    feed(sink, *range(10))
    assert not gateway.step()
    sink.pre_save("1")
    assert not gateway.step()
    sink.post_save("1")
    gateway.work()
    assert rows_of(home / "table") == list(range(10))


@pytest.mark.parametrize("late", ["claimed", "staged", "decided"])
def test_a_gateway_whose_host_was_lost_goes_on_later(home: Path, late: str) -> None:
    """It is silent at some step, its successor does all, and then it goes on where it was."""
    sink, old = start(SparkSink, config_of(), attempt=1), Gateway(home, 1)
    feed(sink, 1, 2)
    saved(sink, 1)
    (ticket,) = old.inbox.scan()
    manifest = old.inbox.claim(ticket)
    assert manifest is not None
    if late != "claimed":
        manifest.started += 1
        batch = Batch(manifest, {}, epoch=1)
        batch.write_parquet(old.inbox.rows(ticket), home / "table")
        manifest.tables, manifest.prepared = batch.staged_tables(), True
    if late == "decided":
        assert old.inbox.prepare(ticket, manifest)
    new = Gateway(home, 2)
    new.work()
    assert rows_of(home / "table") == [1, 2]
    if late == "claimed":
        assert old.inbox.folder("store").outcome(ticket.stem) is not None
        manifest.tables = []
        assert not old.inbox.prepare(ticket, manifest)
    elif late == "staged":
        assert not old.inbox.prepare(ticket, manifest), "what its successor has decided stands"
        batch.drop_staged()
    else:
        old.inbox.commit(ticket, manifest)
    assert rows_of(home / "table") == [1, 2] and not list(home.glob("table/_staging/*"))
    for call in (lambda: list(old.inbox.scan()), lambda: old.inbox.claim(ticket)):
        with pytest.raises(FencedError, match="replaced by a later gateway"):
            call()


def test_a_zombie_hands_over_nothing_that_was_dropped(home: Path) -> None:
    zombie = start(SparkSink, config_of(), attempt=1)
    feed(zombie, 1)
    zombie.pre_save("1")
    (stem,) = folder_of(home).stems("prepared")
    manifest = folder_of(home).manifest("prepared", stem)
    successor = start(SparkSink, config_of(), attempt=2)
    feed(successor, 1)
    saved(successor, 2)
    for call in (lambda: zombie.post_save("1"), lambda: zombie.pre_save("3")):
        with pytest.raises(FencedError, match="replaced by a newer process"):
            call()
    folder_of(home).hand_over(manifest)  # it had passed its check just before
    gateway = Gateway(home)
    gateway.work()
    assert rows_of(home / "table") == [1] and folder_of(home).stems("rows") == []
    with pytest.raises(FencedError):
        start(SparkSink, config_of(), attempt=1)


def test_rows_come_once_when_a_checkpoint_turns_out_to_be_damaged(home: Path) -> None:
    sink, gateway = start(SparkSink, config_of(), attempt=1), Gateway(home)
    feed(sink, 1)
    sink.pre_save("1")
    older = copy(state_of(sink))
    sink.post_save("1")
    for value in (2, 3):
        feed(sink, value)
        saved(sink, value)
    gateway.work()
    assert rows_of(home / "table") == [1, 2, 3]
    for attempt in (2, 3):
        again = start(SparkSink, config_of(), attempt, state=copy(older), checkpoint=1)
        assert rows_of(home / "table") == [1] and "2 retracted from the table" in again.delegate.lines[-1]
        feed(again, 2, 3)
        saved(again, 2 * attempt)
        feed(again, 4)
        saved(again, 2 * attempt + 1)
        gateway.work()
        assert rows_of(home / "table") == [1, 2, 3, 4]


@pytest.mark.parametrize("decided", [False, True])
def test_a_batch_that_a_restore_voids_while_spark_works_on_it_is_not_published(home: Path, decided: bool) -> None:
    sink, gateway = start(SparkSink, config_of(), attempt=1), Gateway(home)
    feed(sink, 1)
    older = saved(sink, 1)
    gateway.work()
    feed(sink, 2)
    saved(sink, 2)
    (ticket,) = gateway.inbox.scan()
    manifest = gateway.inbox.claim(ticket)
    assert manifest is not None
    if decided:
        assert gateway.aggregate(ticket, manifest)
    again = start(SparkSink, config_of(), attempt=2, state=older, checkpoint=1)
    if not decided:
        # Its rows are gone; what it had read of them comes to nothing.
        manifest.tables = []
        assert not gateway.inbox.prepare(ticket, manifest)
    assert gateway.inbox.commit(ticket, manifest) is None
    assert rows_of(home / "table") == [1]
    feed(again, 2)
    saved(again, 3)
    gateway.work()
    assert rows_of(home / "table") == [1, 2] and not list(home.glob("table/_staging/*"))


@pytest.mark.parametrize("moved", [False, True])
def test_another_submission_takes_over_what_was_not_aggregated(home: Path, moved: bool) -> None:
    """In the same folder, or between hosts while the first was on one."""
    first = start(SparkSink, config_of(), attempt=3)
    for number in (1, 2, 3, 4):
        feed(first, number)
        state = saved(first, number, complete=number < 4)
        if number == 1:
            Gateway(home).work()
    ticket = next(iter(Gateway(home).inbox.scan()))
    assert Gateway(home).inbox.claim(ticket), "its gateway has begun with it"
    if moved:
        make_launch(home, home / "sockets", handover=str(home / "handover"))
    launch = home / "launch.json"
    launch.write_text(launch.read_text().replace(f"T-{home.name}", "T-second"))
    gateway = Gateway(home, 1, "T-second", home / "handover" if moved else None)
    gateway.work()
    assert rows_of(home / "table") == [1]
    for attempt in (1, 2):
        second = start(SparkSink, config_of(), attempt, state=copy(state), checkpoint=4)
        gateway.work()
        assert rows_of(home / "table") == [1, 2, 3, 4]
    feed(second, 5)
    saved(second, 5)
    gateway.work()
    assert rows_of(home / "table") == [1, 2, 3, 4, 5]


def test_batches_that_this_host_does_not_have_are_named(home: Path) -> None:
    first = start(SparkSink, config_of(), attempt=1)
    feed(first, 1)
    state = saved(first, 1)
    launch = home / "launch.json"
    launch.write_text(launch.read_text().replace(f"T-{home.name}", "T-second"))
    for lost in ({"place": str(home / "gone"), "within": ["x", "store"]}, {"folder": str(home / "old")}):
        other = copy(state)
        other["spark.sink"] = {k: v for k, v in other["spark.sink"].items() if k not in ("place", "within")} | lost
        with pytest.raises(ConfigError, match="the restored checkpoint refers to batches in "):
            start(SparkSink, config_of(), attempt=1, state=other, checkpoint=1)


@pytest.mark.parametrize("dies", [False, True])
def test_rows_of_a_batch_that_fails_are_kept(home: Path, dies: bool) -> None:
    sink, gateway = start(SparkSink, config_of(), attempt=1), Gateway(home)
    feed(sink, 1)
    saved(sink, 1)
    (ticket,) = gateway.inbox.scan()
    manifest = gateway.inbox.claim(ticket)
    if dies:  # with the decision made
        folder_of(home).decide(ticket.stem, Decision(Fate.FAILED, "gateway 1", error="no luck"))
        gateway = Gateway(home, 2)
        assert gateway.inbox.claim(ticket) is None
    else:
        assert manifest is not None and not gateway.inbox.fail(ticket, manifest, "no luck").committed
    assert gateway.inbox.outcome(ticket).error == "no luck"
    assert folder_of(home).stems("failed") == [ticket.stem] and folder_of(home).stems("rows") == []
    sink._settle([Finished("store", ticket.stem, False, "no luck")])
    assert "rows are kept in" in sink.delegate.lines[-1]
    assert gateway.inbox.claim(ticket) is None


def test_checkpoints_do_not_outrun_spark(home: Path) -> None:
    """Each checkpoint hands over a batch; with `max_uncommitted` of them open the sink takes no more tuples."""
    sink = start(SparkSink, config_of(max_uncommitted=2), attempt=1)
    for number in (1, 2):
        feed(sink, number)
        checkpoint(sink, number)
    assert sink.uncommitted == 2 and rows_of(home / "table") == []
    feed(sink, 3)
    assert sink.uncommitted < 2 and rows_of(home / "table") == [1, 2]


def test_outcomes_last_as_long_as_checkpoints(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A restore of any retained checkpoint finds what was published after it, and forgets the rest in time."""
    monkeypatch.setattr("heronpy.spark.inbox.CHECKPOINTED_OUTCOMES_KEPT", 8)
    sink, gateway = start(SparkSink, config_of(), attempt=1), Gateway(home)
    for number in range(1, 21):
        feed(sink, number)
        checkpoint(sink, number)
        gateway.work()
        sink.process_tick(None)
        assert len(folder_of(home).stems("done")) >= min(number, 8)
    assert len(folder_of(home).stems("done")) <= 8 + 2


def test_batches_end_by_bytes(home: Path) -> None:
    sink = start(SparkSink, config_of(schema={"t": "string"}, batch_rows=1000, batch_bytes=1000), attempt=1)
    for i in range(100):
        sink.process(Tup(i, ["x" * 92]))
    sink.pre_save("1")
    assert [manifest.rows for manifest in prepared_in(home)] == [11] * 9 + [1]


def test_ids_are_the_same_after_a_restore(home: Path) -> None:
    first = start(SparkSink, config_of(), attempt=1)
    feed(first, 1, 2)
    checkpoint(first, 1)
    saved = copy(state_of(first))
    feed(first, 3)
    first.pre_save("2")
    lost = [manifest.id for manifest in prepared_in(home)]
    second = start(SparkSink, config_of(), attempt=2, state=saved, checkpoint=1)
    feed(second, 3)
    second.pre_save("3")
    assert [manifest.id for manifest in prepared_in(home)] == lost


def test_a_batch_claimed_by_a_gateway_that_died_is_published_once(home: Path) -> None:
    sink = start(SparkSink, config_of(), attempt=1)
    feed(sink, 1)
    checkpoint(sink, 1)
    gateway = Gateway(home)
    (ticket,) = gateway.inbox.scan()
    assert gateway.inbox.claim(ticket) is not None
    again = start(SparkSink, config_of(), attempt=2, state=copy(state_of(sink)), checkpoint=1)
    assert again.uncommitted, "its outcome is waited for"
    Gateway(home).work()
    assert rows_of(home / "table") == [1]


def test_a_new_submission_in_the_same_folder_starts_from_nothing(home: Path) -> None:
    table = home / "table"
    for topology_id in (f"T-{home.name}", "T-second"):
        launch = home / "launch.json"
        launch.write_text(launch.read_text().replace(f"T-{home.name}", topology_id))
        sink = start(SparkSink, config_of(), attempt=1)
        feed(sink, 1)
        checkpoint(sink, 1)
        Gateway(home, topology_id=topology_id).work()
    assert Counter(rows_of(table)) == {1: 2}, "both have published"


def test_the_last_checkpoint_waits_for_spark(home: Path) -> None:
    sink = start(SparkSink, config_of(), attempt=1)
    feed(sink, 1)
    sink.finish()
    checkpoint(sink, 1)
    assert rows_of(home / "table") == [1]
    again = start(SparkSink, config_of(), attempt=2, state=copy(state_of(sink)), checkpoint=1)
    assert again._finished


def test_a_failed_prepare_never_passes_rows_over(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = start(SparkSink, config_of(), attempt=1)
    fails_for_good(sink, monkeypatch, lambda value: feed(sink, value))


def test_a_failed_batch_is_tried_again_and_published_once(home: Path) -> None:
    sink, gateway = start(SparkSink, config_of(), attempt=1), Gateway(home)
    for value in (1, 2):
        feed(sink, value)
        saved(sink, value)
    first, second = list(gateway.inbox.scan())
    for ticket in (first, second):
        gateway.inbox.fail(ticket, gateway.inbox.claim(ticket), "the table was locked")
    assert rows_of(home / "table") == [] and list(gateway.inbox.scan()) == []
    found = failed(run_of(home))
    assert [(one["sink"], one["rows"], one["error"]) for one in found] == [("store", 1, "the table was locked")] * 2
    folder = folder_of(home)
    assert folder.retry(first.stem)
    gateway.work()
    assert rows_of(home / "table") == [1] and folder.stems("failed") == [second.stem] and not folder.retry(first.stem)


def test_a_failed_batch_whose_rows_a_restore_sends_again_is_not_tried_again(home: Path) -> None:
    sink, gateway = start(SparkSink, config_of(), attempt=1), Gateway(home)
    feed(sink, 1)
    older = saved(sink, 1)
    gateway.work()
    feed(sink, 2)
    saved(sink, 2)
    (ticket,) = gateway.inbox.scan()
    gateway.inbox.fail(ticket, gateway.inbox.claim(ticket), "no luck")
    folder = folder_of(home)
    manifest, rows = (
        folder.manifest("failed", ticket.stem),
        folder.objects.get(folder.key("failed", f"{ticket.stem}.arrow")),
    )
    again = start(SparkSink, config_of(), attempt=2, state=older, checkpoint=1)
    assert not folder.retry(ticket.stem)
    # It was asked for at the same moment.
    folder.write_manifest("failed", manifest)
    folder.objects.put(folder.key("failed", f"{ticket.stem}.arrow"), rows)
    assert folder.retry(ticket.stem)
    feed(again, 2)
    saved(again, 3)
    gateway.work()
    assert rows_of(home / "table") == [1, 2]


def test_a_sink_waits_for_room_on_a_full_disk_and_loses_nothing(
    full_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ballast = full_disk / "ballast"
    ballast.unlink()
    home = new_home(full_disk / "w", monkeypatch)
    fill(ballast)
    opening = Patience(monkeypatch, Delegate, full_disk)
    sink = start(SparkSink, config_of(), attempt=1)
    assert opening.waited() == f"store {home / 'spark'} is full or read-only (No space left on device)"
    feed(sink, 1, 2)
    fill(ballast)
    preparing = Patience(monkeypatch, Delegate, full_disk)
    sink.pre_save("1")
    assert "No space left" in preparing.waited()
    fill(ballast)
    publishing = Patience(monkeypatch, Delegate, full_disk)
    sink.post_save("1")
    assert "No space left" in publishing.waited()
    Gateway(home).work()
    assert rows_of(home / "table") == [1, 2]
    assert [line for line in sink.delegate.lines if "waits" in line or "continues" in line] == [
        f"store waits: {opening.waited()}", "store continues"] * 3  # fmt: skip


def test_a_sink_waits_for_a_commit_as_long_as_the_gateway_waits_for_a_disk(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, asked = [0.0], []

    def session(_: Link) -> Session:
        asked.append(now[0])
        return Session(True, "No space left on device" if now[0] < 1000 else "")

    def finished(link: Link, wait_s: float = 0.0) -> list[Finished]:
        now[0] += wait_s * 100
        return []

    sink = start(SparkSink, config_of(max_uncommitted=1, commit_timeout_s=300), attempt=1)
    monkeypatch.setattr(Link, "session", session, raising=False)
    monkeypatch.setattr(Link, "finished", finished)
    monkeypatch.setattr(sink_module.time, "monotonic", lambda: now[0])
    feed(sink, 1)
    saved(sink, 1)
    with pytest.raises(DeadlineError, match="committed no batch of store for 300 s"):
        feed(sink, 2)
    assert 1150 < now[0] < 1400 and asked[0] > 150
