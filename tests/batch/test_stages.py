"""What a topology becomes as a batch: its stages, their numbers of tasks, refusals, and the choice of mode auto."""

from __future__ import annotations

from typing import Any

import pytest

from heronpy.api.bolt.bolt import Bolt
from heronpy.api.bolt.window_bolt import TumblingWindowBolt
from heronpy.api.custom_grouping import ICustomGrouping
from heronpy.api.spout.split_spout import SplitSpout
from heronpy.api.spout.spout import Spout
from heronpy.api.state.stateful_component import StatefulComponent
from heronpy.api.state.two_phase import TwoPhaseStatefulComponent
from heronpy.api.stream import Grouping
from heronpy.api.topology import TopologyBuilder
from heronpy.batch.choice import choose
from heronpy.batch.splits import BUCKET_BYTES, bucket_unit_bytes, buckets_of, run_plan
from heronpy.batch.stages import BatchRefusedError, Stage, divide
from heronpy.connectors.files.sink import FileSink
from heronpy.connectors.textfiles.textfilespout import TextFileSpout


class Any_(Bolt):
    outputs = ["a", "b"]


class Kept(Any_, StatefulComponent):
    pass


class Ending(Any_):
    def finish(self) -> None:
        """Emits what it has kept."""


class Windows(TumblingWindowBolt):
    outputs = ["a"]


class Commits(Bolt, TwoPhaseStatefulComponent):
    pass


class Ended(Spout):
    outputs = ["a", "b"]
    bounded = True


class Endless(Spout):
    outputs = ["a", "b"]


class Parts(SplitSpout):
    outputs = ["a", "b"]


class Following(Parts):
    follow_s = 1.0


class Lines(ICustomGrouping):
    def prepare(self, *args: Any) -> None: ...

    def choose_tasks(self, values: Any) -> list[int]:
        return []


FIELD = Grouping.fields("a")


def topology(*bolts: Any, spouts: Any = (Ended,), mode: str = "ATLEAST_ONCE", name: str = "some") -> Any:
    """Spouts s0, s1, ... with three tasks each, and bolts b0, b1, ... with two: a class, and inputs by name."""
    builder = TopologyBuilder(name)
    specs: dict[str, Any] = {}
    for number, kind in enumerate(spouts):
        config = {"textfile.paths": "/logs/*", "textfile.skip_header": 0} if kind is TextFileSpout else {}
        specs[f"s{number}"] = builder.add_spout(f"s{number}", kind, par=3, config=config)
    for number, (kind, inputs) in enumerate(bolts):
        given = {specs[source]: how for source, how in inputs.items()}
        if kind is FileSink:
            specs[f"b{number}"] = builder.add_spec(FileSink.spec(f"b{number}", given, folder="/out"))
        else:
            specs[f"b{number}"] = builder.add_bolt(f"b{number}", kind, par=2, inputs=given)
    builder.set_config({"topology.reliability.mode": mode})
    return builder.build()


def shape(stages: tuple[Stage, ...]) -> list[tuple[str, str, int]]:
    return [(" ".join(stage.components), stage.source, stage.tasks) for stage in stages]


def test_shuffled_bolts_join_the_stage_of_their_producers() -> None:
    """A diamond of shuffles is one stage; what two stages feed, or what is grouped, begins a new one."""
    shuffle = Grouping.SHUFFLE
    stages = divide(
        topology(
            (Any_, {"s0": shuffle}),
            (Any_, {"s0": Grouping.LOCAL_OR_SHUFFLE}),
            (Any_, {"b0": shuffle, "b1": Grouping.NONE}),
            (Any_, {"b2": FIELD}),
            (FileSink, {"b3": shuffle}),
            (Any_, {"b2": shuffle, "b3": shuffle}),
        )
    )
    assert shape(stages) == [("s0 b0 b1 b2", "spout", 3), ("b3 b4", "buckets", 0), ("b5", "buckets", 0)]
    assert stages[1].sinks == ("b4",)
    assert [(one.producer, one.producing) for one in stages[2].inputs] == [("b2", 1), ("b3", 2)]
    assert stages[0].outputs == (*stages[1].inputs, stages[2].inputs[0])
    assert "b5" in stages[2].no_backups and not stages[1].no_backups and not stages[0].no_backups


@pytest.mark.parametrize(
    ("inputs", "tasks"),
    [
        ({"s0": FIELD}, 0),
        ({"s0": Grouping.LOWEST}, 1),
        ({"s0": Grouping.ALL}, 2),
        ({"s0": Grouping.custom(Lines())}, 2),
        ({"s0": Grouping.LOWEST, "s1": FIELD}, 0),
        ({"s0": Grouping.ALL, "s1": FIELD}, 0),
        ({"s0": Grouping.SHUFFLE, "s1": Grouping.SHUFFLE}, 0),
    ],
)
def test_the_grouping_says_how_many_tasks_a_stage_has(inputs: Any, tasks: int) -> None:
    """The data decides, unless tuples go to tasks by number or to all."""
    assert divide(topology((Any_, inputs), spouts=(Ended, Ended)))[-1].tasks == tasks


def test_saved_state_has_the_tasks_of_the_stream() -> None:
    """A bolt with State begins a stage with its declared tasks, if its State is saved."""
    bolts = [(Any_, {"s0": Grouping.SHUFFLE}), (Kept, {"b0": Grouping.SHUFFLE})]
    assert shape(divide(topology(*bolts, mode="EFFECTIVELY_ONCE"))) == [("s0 b0", "spout", 3), ("b1", "buckets", 2)]
    assert shape(divide(topology(*bolts))) == [("s0 b0 b1", "spout", 3)]


@pytest.mark.parametrize(
    ("spout", "spouts", "par", "wanted"),
    [
        (Ended, 3, 1, [("s0", "spout", 3), ("b0", "buckets", 1)]),
        (Parts, 1, 1, [("s0", "splits", 1), ("b0", "buckets", 1)]),
        # They see all tuples anyway, or would have a part in a stream as well.
        (Ended, 1, 1, [("s0 b0", "spout", 1)]),
        (Ended, 3, 2, [("s0 b0", "spout", 3)]),
    ],
)
def test_a_bolt_of_one_task_that_emits_at_the_end_sees_all_tuples(
    spout: type, spouts: int, par: int, wanted: list[Any]
) -> None:
    builder = TopologyBuilder("some")
    before = builder.add_spout("s0", spout, par=spouts)
    builder.add_bolt("b0", Ending, par=par, inputs={before: Grouping.SHUFFLE})
    assert shape(divide(builder.build())) == wanted


def test_spouts_that_cut_their_input_have_one_task() -> None:
    """Lines and splits are read by any worker; another spout has its tasks."""
    stages = divide(topology(spouts=(TextFileSpout, Parts, Endless)))
    assert shape(stages) == [("s0", "lines", 1), ("s1", "splits", 1), ("s2", "spout", 3)]


def test_buckets_grow_with_the_input_and_not_beyond_the_key_groups() -> None:
    """One for 4 MB of input, at most 256; the plan has a task of each component for each."""
    message = topology((Any_, {"s0": FIELD}), (Any_, {"b0": Grouping.SHUFFLE}), (Any_, {"b0": Grouping.LOWEST}))
    stages = divide(message)
    assert buckets_of(stages, 0, 0) == {1: 3, 2: 1, 3: 1}
    assert buckets_of(stages, 9 * BUCKET_BYTES, 0)[2] == 9
    assert buckets_of(stages, 9000 * BUCKET_BYTES, 0)[2] == 256
    assert buckets_of(stages, 9000 * BUCKET_BYTES, 100)[2] == 100
    # Small stages have several units as well, so that all workers have work.
    assert [bucket_unit_bytes(size << 20) for size in (1, 64, 512, 9000)] == [8 << 20, 8 << 20, 32 << 20, 64 << 20]
    plan = run_plan(message, stages, {1: 3, 2: 2, 3: 1})
    placed = [(one.task_id, one.component, one.component_index) for one in plan.instances]
    assert placed[:5] == [(1, "s0", 0), (2, "s0", 1), (3, "s0", 2), (4, "b0", 0), (5, "b0", 1)]
    assert len(placed) == 8 and len({one[0] for one in placed}) == 8


@pytest.mark.parametrize(
    ("bolt", "spout", "words"),
    [
        (Windows, Ended, ["bolt 'b0'", "processing-time windows", "--mode stream"]),
        (Commits, Ended, ["bolt 'b0'", "commits with checkpoints", "unit_output"]),
    ],
)
def test_what_cannot_run_as_a_batch_is_named(bolt: type, spout: type, words: list[str]) -> None:
    """One sentence with the component and the fix; mode auto then takes the stream and says so."""
    message = topology((bolt, {"s0": Grouping.SHUFFLE}), spouts=(spout,))
    with pytest.raises(BatchRefusedError) as refused:
        divide(message)
    assert all(word in str(refused.value) for word in words)
    assert choose(message).mode == "stream" and words[0] in choose(message).why


def test_a_cycle_is_refused() -> None:
    """All its components are named."""
    message = topology((Any_, {"s0": Grouping.SHUFFLE}), (Any_, {"b0": Grouping.SHUFFLE}))
    back = message.bolts[0].inputs.add()
    back.CopyFrom(message.bolts[1].inputs[0])
    back.stream.component_name = "b1"
    with pytest.raises(BatchRefusedError, match="b0 -> b1 -> b0 form a cycle"):
        divide(message)


def test_a_topology_of_an_older_release_is_refused() -> None:
    """It says nothing of its classes."""
    message = topology()
    del message.spouts[0].comp.traits[:]
    with pytest.raises(BatchRefusedError, match="spout 's0'"):
        divide(message)


@pytest.mark.parametrize(
    ("spout", "mode"),
    [(Ended, "batch"), (Endless, "stream"), (Parts, "batch"), (Following, "stream"), (TextFileSpout, "batch")],
)
def test_auto_takes_the_batch_if_every_spout_ends(spout: type, mode: str) -> None:
    """The reason names the spout that may not end."""
    found = choose(topology(spouts=(Ended, spout)))
    assert found.mode == mode and ("s1" in found.why) == (mode == "stream")


def test_auto_obeys_the_settings() -> None:
    """Denied names, names that are not allowed, and the share; a topology has the same mode each time."""
    message = topology(name="visits-eu")
    assert choose(message, deny="a*, visits-*").why == "heron.batch.auto_deny contains 'visits-*'"
    assert choose(message, allow="clicks-*").mode == "stream"
    assert choose(message, allow="clicks-*,visits-??").mode == "batch"
    assert choose(message, percent=0.0).mode == "stream"
    names = [topology(name=f"t{number}") for number in range(200)]
    chosen = sum(choose(one, percent=30.0).mode == "batch" for one in names)
    assert 35 <= chosen <= 85
