"""Components of a batch run: their life, what they may do, and how their errors are told."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from heronpy.api.batch import Batch
from heronpy.api.bolt.async_bolt import AsyncBolt
from heronpy.api.bolt.base_bolt import NotReadyError
from heronpy.api.bolt.bolt import Bolt
from heronpy.api.spout.async_spout import AsyncSpout
from heronpy.api.spout.split_spout import Split, SplitSpout, To
from heronpy.api.spout.spout import Spout
from heronpy.api.state.stateful_component import StatefulComponent
from heronpy.api.stream import Grouping, Stream
from heronpy.api.topology import TopologyBuilder
from heronpy.api.topology_context import ITaskHook
from heronpy.api.user_code import UserCodeError
from heronpy.batch import cells, sources
from heronpy.batch.exchange import BucketWriter, EndlessError
from heronpy.connectors.files.sink import FileSink
from heronpy.connectors.textfiles.textfilespout import TextFileSpout
from heronpy.ingest.unit import LogUnit
from heronpy.simulator import Simulator, batch

SHUFFLE = Grouping.SHUFFLE
BY_WORD = Grouping.fields("word")


class Log:
    """What the components of a test write down."""

    said: ClassVar[list[Any]] = []

    def say(self, *what: Any) -> None:
        Log.said.append(what)


@pytest.fixture(autouse=True)
def empty_log() -> None:
    Log.said.clear()


def run(
    spout: tuple[type, dict[str, Any]], *bolts: Any, mode: str = "ATLEAST_ONCE", more: Any = None, **options: Any
) -> Any:
    """A chain: spout s, bolts b0, b1 ... of a class and a grouping, and a sink unless the last says otherwise."""
    builder = TopologyBuilder("chain")
    kind, config = spout
    before: Any = builder.add_spout("s", kind, par=2, config=config)
    for number, (bolt, how) in enumerate(bolts):
        before = builder.add_bolt(f"b{number}", bolt, par=2, inputs={before: how})
    builder.add_spec(FileSink.spec("sink", {before: SHUFFLE}, folder="/never"))
    builder.set_config({"topology.reliability.mode": mode, **(more or {})})
    return Simulator.run_batch(builder, **options)


def lines(tmp_path: Path, *texts: str) -> tuple[type, dict[str, Any]]:
    (tmp_path / "in.txt").write_text("".join(f"{text}\n" for text in texts))
    return TextFileSpout, {"textfile.paths": str(tmp_path / "in.txt"), "textfile.follow": True}


class Words(Bolt):
    outputs: ClassVar[list[Any]] = ["word"]

    def process(self, tup: Any) -> None:
        for word in tup.values[0].split():
            self.emit([word])
        self.ack(tup)


class Lives(Log, Bolt):
    outputs: ClassVar[list[Any]] = ["word", "count"]

    def initialize(self, config: Any, context: Any) -> None:
        self.count = 0
        self.say("initialize")

    def process(self, tup: Any) -> None:
        self.count += 1

    def finish(self) -> None:
        self.say("finish")
        self.emit(["all", self.count])

    def close(self) -> None:
        self.say("close", self.count)


class Reused(Lives):
    reusable = True


def test_an_object_lives_for_a_unit_or_a_bucket(tmp_path: Path) -> None:
    """In the stage of the spout there is one for each unit, and each finishes."""
    found = run(lines(tmp_path, *["a b"] * 10), (Lives, SHUFFLE), unit_bytes=20)
    assert found.rows("sink") == [["all", 5]] * 2
    assert Log.said == [("initialize",), ("finish",), ("close", 5)] * 2


def test_a_reusable_object_is_initialised_once(tmp_path: Path) -> None:
    """It is closed when its stage is over; what it emits still reaches its unit."""
    found = run(lines(tmp_path, *["a b"] * 10), (Reused, SHUFFLE), unit_bytes=20)
    assert found.rows("sink") == [["all", 5], ["all", 10]]
    assert Log.said == [("initialize",), ("finish",), ("finish",), ("close", 10)]


class Counts(Bolt):
    outputs: ClassVar[list[Any]] = ["word", "count"]

    def initialize(self, config: Any, context: Any) -> None:
        self.counts = context.keyed_state("counts")

    def process(self, tup: Any) -> None:
        word = tup.values[0]
        self.counts[word] = self.counts.get(word, 0) + 1

    def process_tick(self, tup: Any) -> None:
        self.emit(["tick", len(self.counts)])

    def finish(self) -> None:
        self.emit(["finish", len(self.counts)])


def test_many_buckets_share_more_frames_and_a_large_one_is_processed_in_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A frame costs the same with few tuples. Between two steps the worker stays reachable."""
    frames: list[int] = []
    steps: list[int] = []
    add, process = BucketWriter.add, cells.BoltCell.process

    def counted(self: BucketWriter, bucket: int, record: bytes, tuples: int) -> int:
        frames.append(tuples)
        return add(self, bucket, record, tuples)

    def in_steps(self: cells.BoltCell, tuples: list[Any]) -> None:
        steps.append(len(tuples))
        process(self, tuples)

    monkeypatch.setattr(BucketWriter, "add", counted)
    monkeypatch.setattr(cells.BoltCell, "process", in_steps)
    monkeypatch.setattr(cells, "PART", 50)
    words = " ".join(["often"] * 64 + [f"w{number}" for number in range(64)])
    more = {"heron.instance.batch_tuples": 10}
    found = run(
        lines(tmp_path, *[words] * 50), (Words, SHUFFLE), (Lives, BY_WORD), more=more, buckets=64, records=False
    )
    assert sum(count for _, count in found.rows("sink")) == sum(frames) == 50 * 128
    assert max(frames) > 10 * 8 and max(steps) == 50


TICKS = {"topology.tick.tuple.freq.secs": 60}


@pytest.mark.parametrize(
    ("mode", "more", "what"),
    [("ATLEAST_ONCE", TICKS, {"finish"}), ("EFFECTIVELY_ONCE", TICKS, {"tick"}), ("EFFECTIVELY_ONCE", {}, set())],
)
def test_what_is_handed_over_does_not_finish(tmp_path: Path, mode: str, more: Any, what: set[str]) -> None:
    """A component with saved state gets a tick instead, if it has ticks: its input goes on as a stream."""
    found = run(lines(tmp_path, "a b a", "c a"), (Words, SHUFFLE), (Counts, BY_WORD), mode=mode, more=more)
    assert {row[0] for row in found.rows("sink")} == what
    assert not what or sum(row[1] for row in found.rows("sink")) == 3
    assert found.keyed_state("b1", "counts") == ({"a": 3, "b": 1, "c": 1} if mode == "EFFECTIVELY_ONCE" else {})


@pytest.mark.parametrize("follow", [True, False])
def test_state_by_key_needs_a_grouping_by_key(tmp_path: Path, follow: bool) -> None:
    """Units of lines would each have their own value of a key, whether a stream goes on or not."""
    spout, config = lines(tmp_path, "a")
    with pytest.raises(UserCodeError, match=r"component b0: .*'b0' keeps state.*Grouping.fields"):
        run((spout, {**config, "textfile.follow": follow}), (Counts, SHUFFLE), mode="EFFECTIVELY_ONCE")


class Kept(Bolt, StatefulComponent):
    outputs: ClassVar[list[Any]] = ["word"]

    def init_state(self, state: Any) -> None:
        self.state = state

    def pre_save(self, checkpoint_id: str) -> None:
        self.state["saved"] = True

    def process(self, tup: Any) -> None:
        self.state["seen"] = self.state.get("seen", 0) + 1


def test_plain_state_is_saved_for_each_declared_task(tmp_path: Path) -> None:
    """Shuffled tuples go round; pre_save is called."""
    found = run(lines(tmp_path, *["a"] * 10), (Words, SHUFFLE), (Kept, SHUFFLE), mode="EFFECTIVELY_ONCE", unit_bytes=4)
    states = [found.plain_state("b1", index) for index in range(2)]
    assert sum(state["seen"] for state in states) == 10 and all(state["seen"] >= 3 for state in states)
    assert all(state["saved"] for state in states)


class Breaks(Bolt):
    outputs: ClassVar[list[Any]] = ["word"]

    def process(self, tup: Any) -> None:
        self.emit([str(100 // len(tup.values[0]))])


class Shields(Bolt):
    """Catches what its emits raise."""

    outputs: ClassVar[list[Any]] = ["word"]

    def process(self, tup: Any) -> None:
        try:
            self.emit(tup.values)
        except Exception:
            raise AssertionError("the error of another component came here") from None


def test_an_error_names_its_component(tmp_path: Path) -> None:
    """And not the one that has emitted; the traceback is that of the user."""
    with pytest.raises(UserCodeError, match="component b1: ZeroDivisionError") as found:
        run(lines(tmp_path, *["a"] * 5000, "", *["b"] * 5000), (Shields, SHUFFLE), (Breaks, SHUFFLE))
    assert "100 // len(tup.values[0])" in found.value.user_traceback
    assert isinstance(found.value.__cause__, ZeroDivisionError)
    assert found.value.of_many  # type: ignore[attr-defined]


class Fails(Bolt):
    outputs: ClassVar[list[Any]] = ["word"]

    def process(self, tup: Any) -> None:
        self.fail(tup)
        self.emit(tup.values)


def test_too_many_fails_fail_the_unit(tmp_path: Path) -> None:
    """99 are allowed."""
    assert len(run(lines(tmp_path, *["a"] * 99), (Fails, SHUFFLE)).rows("sink")) == 99
    with pytest.raises(UserCodeError, match=r"component b0: .*failed 100 tuples in one unit"):
        run(lines(tmp_path, *["a"] * 100), (Fails, SHUFFLE))
    assert len(run(lines(tmp_path, *["a"] * 150), (Fails, SHUFFLE), unit_bytes=20).rows("sink")) == 150


class Awaits(AsyncBolt):
    outputs: ClassVar[list[Any]] = ["word"]
    now: ClassVar[int] = 0
    most: ClassVar[int] = 0

    async def process(self, tup: Any) -> None:
        Awaits.now += 1
        Awaits.most = max(Awaits.most, Awaits.now)
        await asyncio.sleep(0)
        Awaits.now -= 1
        if tup.values[0] == "bad":
            raise KeyError("bad")
        self.emit(tup.values)

    async def finish(self) -> None:
        await asyncio.sleep(0)
        self.emit(["end"])


def test_asynchronous_bolts_run_at_once_and_one_behind_the_other(tmp_path: Path) -> None:
    """As many as the setting says; an error is that of the coroutine."""
    limit = {"heron.instance.async_concurrency": 7}
    found = run(lines(tmp_path, *["a"] * 30), (Awaits, SHUFFLE), (Awaits, SHUFFLE), more=limit, records=False)
    assert sorted(found.rows("sink")) == [["a"]] * 30 + [["end"]] * 2
    assert Awaits.most == 7
    with pytest.raises(UserCodeError, match="component b1: KeyError: 'bad'"):
        run(lines(tmp_path, "a", "bad"), (Shields, SHUFFLE), (Awaits, SHUFFLE))


SCHEMA = pa.schema([("word", pa.string()), ("size", pa.int64())])


class ToArrow(Bolt):
    outputs: ClassVar[list[Any]] = [Stream(schema=SCHEMA)]

    def process_batch(self, batch: Batch) -> None:
        words = [tup.values[0] for tup in batch]
        self.emit_batch(pa.record_batch([words, list(map(len, words))], schema=SCHEMA))


class TakesArrow(Bolt):
    outputs: ClassVar[list[Any]] = [Stream(schema=SCHEMA)]

    def process_batch(self, batch: Batch) -> None:
        assert batch.record_batch is not None
        self.emit_batch(batch.record_batch)


def test_record_batches_stay_record_batches(tmp_path: Path) -> None:
    """Within a stage, between stages, and to a sink."""
    found = run(
        lines(tmp_path, *[f"w{number}" for number in range(50)]),
        (ToArrow, SHUFFLE), (TakesArrow, BY_WORD), (TakesArrow, SHUFFLE), records=False,
    )  # fmt: skip
    assert sorted(found.rows("sink")) == sorted([f"w{n}", len(f"w{n}")] for n in range(50))


class Reversing:
    """A serializer that nobody else can read."""

    def initialize(self, config: Any) -> None: ...

    def serialize(self, value: Any) -> bytes:
        return pickle.dumps(value)[::-1]

    def deserialize(self, data: bytes) -> Any:
        return pickle.loads(data[::-1])


class Hook(Log, ITaskHook):
    def emit(self, emit_info: Any) -> None:
        self.say("emit", *emit_info.values)

    def bolt_execute(self, info: Any) -> None:
        self.say("execute", *info.heron_tuple.values)


def test_serializers_and_hooks_of_the_topology(tmp_path: Path) -> None:
    """Every value passes the serializer; hooks hear of emits of the spout as well."""
    more = {
        "topology.serializer.classname": f"{__name__}.Reversing",
        "topology.auto.task.hooks": [f"{__name__}.Hook"],
    }
    found = run(lines(tmp_path, "a b"), (Words, SHUFFLE), (Shields, BY_WORD), more=more, records=False)
    assert sorted(found.rows("sink")) == [["a"], ["b"]]
    assert [("emit", "a b"), ("execute", "a b")] == [said for said in Log.said if said[1] == "a b"]
    assert Log.said.count(("emit", "a")) == 2 and Log.said.count(("execute", "a")) == 1


class Parts(SplitSpout):
    outputs: ClassVar[list[Any]] = ["word", Stream(["word"], "other")]
    listed: ClassVar[int] = 0

    def splits(self, config: Any) -> list[Split]:
        Parts.listed += 1
        return [Split(f"p{number}", 10, {"count": number}) for number in range(4)]

    def read(self, split: Split) -> Any:
        for number in range(split.data["count"]):
            yield [f"{split.name}.{number}"]
            yield To("other", ["unseen"])


def test_splits_are_listed_once_and_read_by_any_worker() -> None:
    """Each is a unit."""
    Parts.listed = 0
    found = run((Parts, {}), (Shields, SHUFFLE))
    assert found.rows("sink") == [["p1.0"], ["p2.0"], ["p2.1"], ["p3.0"], ["p3.1"], ["p3.2"]]
    assert found.emitted("s", "other") == [["unseen"]] * 6
    assert Parts.listed == 1


class Polled(Log, Spout, StatefulComponent):
    outputs: ClassVar[list[Any]] = ["word"]
    calls: ClassVar[int] = 0

    def init_state(self, state: Any) -> None:
        self.state = state

    def initialize(self, config: Any, context: Any) -> None:
        self.task, self.left = context.get_task_id(), 3

    def next_tuple(self) -> None:
        Polled.calls += 1
        if not self.left:
            self.end_of_input()
            return
        self.left -= 1
        self.state["left"] = self.left
        self.emit([f"{self.task}.{self.left}"], tup_id=self.left)
        self.wait(0.03)

    def ack(self, tup_id: Any) -> None:
        self.say("ack", tup_id)


class Ends(Shields, StatefulComponent):
    def init_state(self, state: Any) -> None:
        """Nothing is kept."""

    def finish(self) -> None:
        self.emit(["end"])


def test_any_spout_that_ends_runs_unchanged() -> None:
    """Each of its tasks is a unit; ids are acked at once, and it is called when it wants to be."""
    Polled.calls = 0
    found = run((Polled, {}), (Ends, SHUFFLE), mode="EFFECTIVELY_ONCE")
    assert sorted(found.rows("sink")) == [["1.0"], ["1.1"], ["1.2"], ["2.0"], ["2.1"], ["2.2"], ["end"], ["end"]]
    assert Log.said == [("ack", 2), ("ack", 1), ("ack", 0)] * 2
    # It has ended, so no stream goes on.
    assert not found.plain_state("s")
    assert Polled.calls == 8


class Coroutine(Log, AsyncSpout):
    outputs: ClassVar[list[Any]] = ["word"]

    async def run(self) -> None:
        for number in range(3):
            await self.emit([str(number)], tup_id=number)
            await asyncio.sleep(0.001)

    async def ack(self, tup_id: Any) -> None:
        self.say("ack", tup_id)


def test_an_asynchronous_spout_runs_to_its_end() -> None:
    """Before asynchronous bolts of the same stage."""
    found = run((Coroutine, {}), (Awaits, SHUFFLE))
    assert sorted(found.rows("sink")) == [["0"], ["0"], ["1"], ["1"], ["2"], ["2"], ["end"], ["end"]]
    assert sorted(Log.said) == sorted([("ack", number) for number in range(3)] * 2)


class Silent(Spout):
    outputs: ClassVar[list[Any]] = ["word"]

    def next_tuple(self) -> None:
        self.wait(0.001)


class Chatty(Silent):
    def next_tuple(self) -> None:
        self.emit(["again"])


class ChattyCoroutine(AsyncSpout):
    outputs: ClassVar[list[Any]] = ["word"]

    async def run(self) -> None:
        while True:
            await self.emit(["again"])
            await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("spout", "words"),
    [
        (Silent, "has emitted nothing for 0.1 s and has not called"),
        (Chatty, r"has emitted [\d,]+ tuples in 0.1 s and has not called .*set `bounded = True` in its class"),
        (ChattyCoroutine, r"has emitted [\d,]+ tuples in 0.1 s"),
    ],
)
def test_a_spout_that_does_not_end_is_named(spout: Any, words: str) -> None:
    """After a minute, by default."""
    with pytest.raises(EndlessError, match=rf"spout 's' {words}.*use --mode stream, or raise heron.batch.spout_end_s"):
        run((spout, {}), more={"heron.batch.spout_end_s": 0.1})


class Patient(Spout):
    """Ends after a while, and says so."""

    outputs: ClassVar[list[Any]] = ["word"]
    bounded = True
    left = 6

    def next_tuple(self) -> None:
        self.wait(0.05)
        self.left -= 1
        if self.left:
            self.emit([str(self.left)])
        else:
            self.end_of_input()


def test_a_bounded_spout_may_take_its_time() -> None:
    found = run((Patient, {}), (Shields, SHUFFLE), more={"heron.batch.spout_end_s": 0.15})
    assert len(found.rows("sink")) == 10


class Warms(Shields):
    asked: ClassVar[int] = 0

    def is_ready(self) -> bool:
        Warms.asked += 1
        if Warms.asked < 3:
            raise NotReadyError("still loading")
        return True


def test_a_bolt_that_is_not_ready_is_waited_for(tmp_path: Path) -> None:
    """Until the limit, which the error names."""
    Warms.asked = 0
    assert run(lines(tmp_path, "a"), (Warms, SHUFFLE)).rows("sink") == [["a"]]
    assert Warms.asked == 3
    Warms.asked = -1000
    with pytest.raises(UserCodeError, match=r"b0 is not ready after 0\.1 s: still loading"):
        run(lines(tmp_path, "a"), (Warms, SHUFFLE), more={"heron.instance.ready_timeout_s": 0.1})


def test_an_empty_input_gives_an_empty_result(tmp_path: Path) -> None:
    """Where tasks are declared they finish all the same."""
    assert run(lines(tmp_path), (Words, SHUFFLE), (Counts, BY_WORD)).rows("sink") == []
    assert run(lines(tmp_path), (Words, SHUFFLE), (Counts, Grouping.LOWEST)).rows("sink") == [["finish", 0]]


class Wrong(Bolt):
    outputs: ClassVar[list[Any]] = ["word"]

    def process(self, tup: Any) -> None:
        if tup.values[0] == "wrong":
            raise LookupError("wrong")
        self.emit([tup.values[0]])


@pytest.mark.parametrize("bad", [0, 300, 999])
def test_a_repeated_unit_names_the_line_without_a_step_for_each_line(
    bad: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each step costs a turn of the worker and a write, so a step for each line made a try 100 times as long."""
    texts = ["right"] * 1000
    texts[bad] = "wrong"
    units: list[LogUnit] = []
    steps: list[int] = []

    def made(*args: Any, **kwargs: Any) -> LogUnit:
        unit = LogUnit(*args, **kwargs)
        unit.tries = 1
        units.append(unit)
        return unit

    read = sources.LinesCell.lines

    def counted(self: sources.LinesCell, unit: LogUnit) -> Iterator[None]:
        for _ in read(self, unit):
            steps.append(unit.tries)
            yield

    monkeypatch.setattr(batch, "LogUnit", made)
    monkeypatch.setattr(sources.LinesCell, "lines", counted)
    with pytest.raises(UserCodeError, match="component b0: LookupError: wrong"):
        run(lines(tmp_path, *texts), (Wrong, SHUFFLE), (Counts, BY_WORD))
    suspect = units[-1].suspect
    assert suspect is not None and (suspect.begin, suspect.end) == (bad * 6, bad * 6 + 6)
    assert len(steps) <= 5
