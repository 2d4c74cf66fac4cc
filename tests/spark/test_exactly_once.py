"""SparkSink under EFFECTIVELY_ONCE: each row in one published batch, whatever crashes where (D12, F07).

The gateway's records and folders are the real ones, driven here without Spark: what a batch holds is
written as it is. The real gateway with real topologies is in tests/connectors/test_exactly_once_topologies.py.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from heronpy.api.config_values import decode_config, encode_config
from heronpy.api.state.state import HashMapState
from heronpy.common.errors import FencedError
from heronpy.connectors.durable_files import run_token
from heronpy.connectors.spark import sink as sink_module
from heronpy.connectors.spark.handover import Manifest
from heronpy.connectors.spark.link import Finished
from heronpy.connectors.spark.sink import SparkSink
from heronpy.spark.batch import Batch
from heronpy.spark.inbox import Inbox
from heronpy.spark.lanes import Lanes, Ticket
from tests.connectors.two_phase import POINTS, RUNS, Harness, Tup, fails_for_good, start, state_of
from tests.spark.support import make_launch

ROWS = 40


class FakeLink:
    """Answers from the records, as the gateway does; which does its work while a sink waits for it."""

    def __init__(self, endpoint: str, component: str, task: int, incarnation: int) -> None:
        self.table = Path(os.environ["HERON_LAUNCH"]).parent / "table"
        self.asked: list[str] = []

    def ready(self, stems: Any) -> None:
        self.asked += stems

    def finished(self, wait_s: float = 0.0) -> list[Finished]:
        gateway = FakeGateway(self.table)
        if wait_s > 0:
            gateway.work()
        answers, asked, self.asked = [], self.asked, []
        for stem in asked:
            outcome = gateway.inbox.folder("store").outcome(stem)
            if outcome is None and wait_s <= 0:
                self.asked.append(stem)
            else:
                answers.append(Finished("store", stem, outcome is not None and outcome.committed))
        return answers

    def close(self) -> None:
        pass


class FakeGateway:
    """The gateway's inbox and lanes; what stands for Spark copies the rows of a batch to a table."""

    def __init__(self, table: Path, topology_id: str | None = None) -> None:
        folder = table.parent
        self.table = table
        self.inbox = Inbox(folder / "spark", run_token(topology_id or f"T-{folder.name}"))
        self.lanes = Lanes()

    def step(self, die_after_claim: bool = False) -> bool:
        """Look for batches and work on one; False when there is none."""
        for ticket in self.inbox.scan():
            self.lanes.add(ticket)
        return self._step(die_after_claim)

    def _step(self, die_after_claim: bool = False) -> bool:
        ticket = self.lanes.take(0.0)
        if ticket is None:
            return False
        manifest = self.inbox.claim(ticket)
        if manifest is not None and not die_after_claim:
            self.aggregate(ticket, manifest)
            self.inbox.commit(ticket, manifest)
        self.lanes.finish(ticket)
        return True

    def aggregate(self, ticket: Ticket, manifest: Manifest) -> None:
        manifest.started += 1
        batch = Batch(manifest, {})
        with pa.memory_map(str(self.inbox.rows_file(ticket))) as source:
            batch.write_parquet(pa.ipc.open_file(source).read_all(), self.table)
        manifest.tables, manifest.prepared = batch.staged_tables(), True
        self.inbox.save(ticket, manifest)

    def work(self) -> None:
        """Work on all batches there are."""
        self.step()
        while self._step():
            pass


def config_of(**options: Any) -> dict[str, Any]:
    options = {"schema": {"n": "int64"}, "batch_rows": 7} | options
    return decode_config(encode_config(SparkSink.spec("store", aggregate="module.function", **options).custom_config))


def prepared_in(home: Path) -> list[Manifest]:
    """The batches whose checkpoint is not complete, in their order."""
    files = sorted((home / "spark" / "store" / "prepared").iterdir())
    return [Manifest.from_bytes(file.read_bytes()) for file in files]


def rows_of(table: Path) -> list[int]:
    return sorted(pq.read_table(table)["n"].to_pylist()) if list(table.glob("batch=*")) else []


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return new_home(tmp_path / "w", monkeypatch)


def new_home(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder.mkdir(parents=True)
    monkeypatch.setenv("HERON_LAUNCH", str(make_launch(folder, folder / "sockets")))
    monkeypatch.setattr(sink_module, "GatewayLink", FakeLink)
    return folder


@pytest.mark.parametrize("point", POINTS)
def test_every_row_is_published_once_whatever_crashes_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    runs = RUNS or 4
    crashed = 0
    for seed in range(runs):
        home = new_home(tmp_path / str(seed), monkeypatch)
        table = home / "table"
        harness = Harness(home / "runtime", SparkSink, config_of(), seed, ROWS, lambda n: [n],
                          between=lambda table=table, seed=seed: FakeGateway(table).step() if seed % 2 else None)  # fmt: skip
        crashed += harness.run_until_done(point)
        FakeGateway(table).work()
        assert rows_of(table) == list(range(ROWS)), f"seed {seed}"
        left = [*(home / "spark" / "store" / "inbox").iterdir(), *(home / "spark" / "store" / "prepared").iterdir()]
        assert left == [], f"seed {seed}"
    assert crashed >= runs, "it crashed in most runs"


@pytest.mark.parametrize("point", POINTS)
def test_a_stopped_process_that_goes_on_later_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """F10: SIGSTOP anywhere, its successors do all, SIGCONT: nothing that it then does is seen."""
    ends = Counter[str]()
    for seed in range(RUNS or 4):
        home = new_home(tmp_path / str(seed), monkeypatch)
        table = home / "table"
        harness = Harness(home / "runtime", SparkSink, config_of(), seed, ROWS, lambda n: [n],
                          between=lambda table=table, seed=seed: FakeGateway(table).step() if seed % 2 else None)  # fmt: skip
        ends[harness.run_with_a_zombie(point)] += 1
        FakeGateway(table).work()
        assert rows_of(table) == list(range(ROWS)), f"seed {seed}"
    # It may be at the end of its work when it is stopped; where it is not, its next write is refused.
    assert ends["fenced"] > 0 and ends["unstopped"] <= ends.total() // 2, ends


def feed(sink: SparkSink, *values: int) -> None:
    for value in values:
        sink.process(Tup(value, [value]))


def copy(state: Any) -> Any:
    return HashMapState({key: dict(value, batches=list(value["batches"])) for key, value in state.items()})


def test_a_batch_is_invisible_until_its_checkpoint_is_complete(home: Path) -> None:
    sink, gateway = start(SparkSink, config_of(), attempt=1), FakeGateway(home / "table")
    feed(sink, *range(10))
    assert not gateway.step(), "a full batch waits for its checkpoint, too"
    sink.pre_save("1")
    assert not gateway.step()
    sink.post_save("1")
    gateway.work()
    assert rows_of(home / "table") == list(range(10))
    sink.pre_save("2")
    sink.post_save("2")
    assert not gateway.step(), "an empty checkpoint makes no batch"


def test_checkpoints_do_not_outrun_spark(home: Path) -> None:
    """Each checkpoint hands over a batch; with `max_uncommitted` of them open the sink takes no more tuples."""
    sink = start(SparkSink, config_of(max_uncommitted=2), attempt=1)
    for number in (1, 2):
        feed(sink, number)
        sink.pre_save(str(number))
        sink.post_save(str(number))
    assert sink.uncommitted == 2 and rows_of(home / "table") == []
    feed(sink, 3)
    assert sink.uncommitted < 2 and rows_of(home / "table") == [1, 2]


def test_outcomes_last_as_long_as_checkpoints(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A restore of any retained checkpoint finds what was published after it, and forgets the rest in time."""
    monkeypatch.setattr("heronpy.spark.inbox.CHECKPOINTED_OUTCOMES_KEPT", 8)
    sink, gateway = start(SparkSink, config_of(), attempt=1), FakeGateway(home / "table")
    for number in range(1, 21):
        feed(sink, number)
        sink.pre_save(str(number))
        sink.post_save(str(number))
        gateway.work()
        sink.process_tick(None)
        assert len(list((home / "spark" / "store" / "done").iterdir())) >= min(number, 8)
    assert len(list((home / "spark" / "store" / "done").iterdir())) <= 8 + 2


def test_batches_end_by_bytes(home: Path) -> None:
    sink = start(SparkSink, config_of(schema={"t": "string"}, batch_rows=1000, batch_bytes=1000), attempt=1)
    for i in range(100):
        sink.process(Tup(i, ["x" * 92]))
    sink.pre_save("1")
    assert [manifest.rows for manifest in prepared_in(home)] == [11] * 9 + [1]


def test_ids_are_the_same_after_a_restore(home: Path) -> None:
    first = start(SparkSink, config_of(), attempt=1)
    feed(first, 1, 2)
    first.pre_save("1")
    first.post_save("1")
    saved = copy(state_of(first))
    feed(first, 3)
    first.pre_save("2")
    lost = [manifest.id for manifest in prepared_in(home)]
    second = start(SparkSink, config_of(), attempt=2, state=saved, checkpoint=1)
    feed(second, 3)
    second.pre_save("3")
    assert [manifest.id for manifest in prepared_in(home)] == lost


def test_a_zombie_publishes_nothing_that_was_dropped(home: Path) -> None:
    zombie = start(SparkSink, config_of(), attempt=1)
    feed(zombie, 1)
    zombie.pre_save("1")
    [prepared] = prepared_in(home)
    stem, manifest = prepared.stem, prepared.to_bytes()
    successor = start(SparkSink, config_of(), attempt=2)
    feed(successor, 1)
    successor.pre_save("2")
    successor.post_save("2")
    for call in (lambda: zombie.post_save("1"), lambda: zombie.pre_save("3")):
        with pytest.raises(FencedError, match="replaced by a newer process"):
            call()
    # It had passed its check just before, and its rename comes now.
    (home / "spark" / "store" / "inbox" / f"{stem}.json").write_bytes(manifest)
    gateway = FakeGateway(home / "table")
    gateway.work()
    assert rows_of(home / "table") == [1]
    assert gateway.inbox.take_refused() == 1 and gateway.inbox.take_refused() == 0
    assert zombie.counts.get_value_and_reset()["writes-refused"] == 2
    with pytest.raises(FencedError):
        start(SparkSink, config_of(), attempt=1)


def test_a_batch_claimed_by_a_gateway_that_died_is_published_once(home: Path) -> None:
    sink = start(SparkSink, config_of(), attempt=1)
    feed(sink, 1)
    sink.pre_save("1")
    sink.post_save("1")
    FakeGateway(home / "table").step(die_after_claim=True)
    again = start(SparkSink, config_of(), attempt=2, state=copy(state_of(sink)), checkpoint=1)
    assert again.uncommitted, "its outcome is waited for"
    FakeGateway(home / "table").work()
    assert rows_of(home / "table") == [1]


def test_rows_come_once_when_a_checkpoint_turns_out_to_be_damaged(home: Path) -> None:
    """F23: what was published after the older checkpoint is taken back at once, as its rows come again."""
    sink, gateway = start(SparkSink, config_of(), attempt=1), FakeGateway(home / "table")
    feed(sink, 1)
    sink.pre_save("1")
    older = copy(state_of(sink))
    sink.post_save("1")
    for value in (2, 3):
        feed(sink, value)
        sink.pre_save(str(value))
        sink.post_save(str(value))
    gateway.work()
    assert rows_of(home / "table") == [1, 2, 3]
    again = start(SparkSink, config_of(), attempt=2, state=older, checkpoint=1)
    assert rows_of(home / "table") == [1] and "2 taken back from the table" in again.delegate.lines[-1]
    feed(again, 2, 3)
    again.pre_save("4")
    again.post_save("4")
    gateway.work()
    assert rows_of(home / "table") == [1, 2, 3]


def test_a_batch_that_a_restore_voids_while_spark_works_on_it_is_not_published(home: Path) -> None:
    """F23: its checkpoint turned out to be damaged after the work was done and before it was published."""
    sink, gateway = start(SparkSink, config_of(), attempt=1), FakeGateway(home / "table")
    feed(sink, 1)
    sink.pre_save("1")
    older = copy(state_of(sink))
    sink.post_save("1")
    gateway.work()
    feed(sink, 2)
    sink.pre_save("2")
    sink.post_save("2")
    (ticket,) = gateway.inbox.scan()
    manifest = gateway.inbox.claim(ticket)
    assert manifest is not None
    gateway.aggregate(ticket, manifest)
    again = start(SparkSink, config_of(), attempt=2, state=older, checkpoint=1)
    assert gateway.inbox.commit(ticket, manifest) is None and gateway.inbox.take_refused() == 1
    assert rows_of(home / "table") == [1]
    # Another task of the sink gets its rows now; this one has no further batch.
    again.finish()
    again.pre_save("3")
    again.post_save("3")
    assert again.uncommitted == 0 and not list(home.glob("table/**/_staging/*"))


def test_another_submission_takes_over_what_was_not_aggregated(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = home / "table"
    first = start(SparkSink, config_of(), attempt=3)
    for number, value in enumerate((1, 2, 3, 4), 1):
        feed(first, value)
        first.pre_save(str(number))
        first.post_save(str(number) if number < 4 else "0")
        if number == 1:
            FakeGateway(table).work()
    FakeGateway(table).step(die_after_claim=True)
    # The second submission runs in the same folder, with a gateway of its own, which starts first.
    launch = home / "launch.json"
    launch.write_text(launch.read_text().replace(f"T-{home.name}", "T-second"))
    gateway = FakeGateway(table, "T-second")
    gateway.work()
    assert rows_of(table) == [1]
    for attempt in (1, 2):
        second = start(SparkSink, config_of(), attempt, state=copy(state_of(first)), checkpoint=4)
        gateway.work()
        assert rows_of(table) == [1, 2, 3, 4]
    feed(second, 5)
    second.pre_save("5")
    second.post_save("5")
    gateway.work()
    assert rows_of(table) == [1, 2, 3, 4, 5]


def test_a_new_submission_in_the_same_folder_starts_from_nothing(home: Path) -> None:
    table = home / "table"
    for topology_id in (f"T-{home.name}", "T-second"):
        launch = home / "launch.json"
        launch.write_text(launch.read_text().replace(f"T-{home.name}", topology_id))
        sink = start(SparkSink, config_of(), attempt=1)
        feed(sink, 1)
        sink.pre_save("1")
        sink.post_save("1")
        FakeGateway(table, topology_id).work()
    assert Counter(rows_of(table)) == {1: 2}, "both have published"


def test_the_last_checkpoint_waits_for_spark(home: Path) -> None:
    sink = start(SparkSink, config_of(), attempt=1)
    feed(sink, 1)
    sink.finish()
    sink.pre_save("1")
    sink.post_save("1")
    assert rows_of(home / "table") == [1]
    again = start(SparkSink, config_of(), attempt=2, state=copy(state_of(sink)), checkpoint=1)
    assert again._finished


def test_rows_of_a_batch_that_fails_are_kept(home: Path) -> None:
    sink, gateway = start(SparkSink, config_of(), attempt=1), FakeGateway(home / "table")
    feed(sink, 1)
    sink.pre_save("1")
    sink.post_save("1")
    (ticket,) = gateway.inbox.scan()
    manifest = gateway.inbox.claim(ticket)
    assert manifest is not None
    gateway.inbox.fail(ticket, manifest, "no luck")
    failed = home / "spark" / "store" / "failed"
    assert sorted(path.name for path in failed.iterdir()) == [f"{ticket.stem}.arrow", f"{ticket.stem}.json"]
    sink._settle([Finished("store", ticket.stem, False, "no luck")])
    assert "rows are kept in" in sink.delegate.lines[-1] and sink.delegate.failed == []


def test_a_failed_prepare_never_passes_rows_over(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = start(SparkSink, config_of(), attempt=1)
    fails_for_good(sink, monkeypatch, lambda value: feed(sink, value))
