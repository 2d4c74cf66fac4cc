"""The simulator: delivery, acking, time, errors, and that a seed gives one run."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from heronpy.api import global_metrics
from heronpy.api.bolt.bolt import Bolt
from heronpy.api.custom_grouping import ICustomGrouping
from heronpy.api.metrics import CountMetric, MultiCountMetric
from heronpy.api.spout.spout import Spout
from heronpy.api.state.stateful_component import StatefulComponent
from heronpy.api.stream import Grouping, Stream
from heronpy.api.task_hook import ITaskHook
from heronpy.api.topology import Topology, TopologyBuilder
from heronpy.common.errors import TopologyError
from heronpy.simulator import SimulationError, Simulator
from tests.simulator.parts import ATLEAST, ListSpout, PassBolt, SinkBolt, line


def test_runs_to_the_end_and_finishes_bolts_once() -> None:
    sim = Simulator(line([1, 2, 3], par=2))
    result = sim.run()
    assert result.reason == "finished"
    assert sim.is_finished
    assert sorted(value for [value] in sim.emitted("bolt")) == [1, 2, 3]
    assert [sim.task("bolt", i).finished for i in (0, 1)] == [1, 1]
    assert sim.acked("source") == [0, 1, 2]


def test_takes_topology_class_builder_and_message() -> None:
    class Line(Topology):
        source = ListSpout.spec(par=1, config={"values": ["x"]})
        bolt = PassBolt.spec(par=1, inputs=[source])

    for topology in (Line, line(["x"]), line(["x"]).build()):
        sim = Simulator(topology)
        sim.run()
        assert sim.emitted("bolt") == [["x"]]
    with pytest.raises(TopologyError, match="Simulator takes a TopologyBuilder"):
        Simulator("line")


def test_same_seed_same_run_other_seed_other_order() -> None:
    class MarkBolt(PassBolt):
        pass

    def order(seed: int) -> list[Any]:
        builder = TopologyBuilder("two")
        one = builder.add_spout("one", ListSpout, par=1, config={"values": list(range(50))})
        two = builder.add_spout("two", ListSpout, par=1, config={"values": list(range(50, 100))})
        builder.add_bolt("bolt", MarkBolt, par=1, inputs=[one, two])
        sim = Simulator(builder, seed=seed)
        sim.run()
        return sim.task("bolt").seen

    assert order(1) == order(1)
    assert order(1) != order(2)
    assert [v for v in order(3) if v < 50] == list(range(50))  # first in, first out per sender


def test_values_are_copied_exactly() -> None:
    shared = [1, (2, 3), {"a": {4}}, 2**80, b"x", None, 1.5, True]

    class MutatingBolt(PassBolt):
        def process(self, tup: Any) -> None:
            tup.values[0].append("mine")
            super().process(tup)

    sim = Simulator(line([shared], MutatingBolt, par=2, grouping=Grouping.ALL))
    sim.run()
    assert shared == [1, (2, 3), {"a": {4}}, 2**80, b"x", None, 1.5, True]
    assert [tup.values for tup in sim.executed("bolt")] == [[shared], [shared]]
    assert sim.emitted("bolt") == [[[*shared, "mine"]]] * 2
    assert type(sim.emitted("source")[0][0][1]) is tuple


def test_fields_grouping_keeps_keys_together() -> None:
    words = ["a", "b", "c", "d", "e", "f"] * 5
    sim = Simulator(line(words, par=3, grouping=Grouping.fields("value")))
    sim.run()
    seen = [set(sim.task("bolt", i).seen) for i in range(3)]
    assert set().union(*seen) == set(words)
    assert sum(map(len, seen)) == 6


class OddEven(ICustomGrouping):
    def prepare(self, context: Any, component: str, stream: str, target_tasks: list[int]) -> None:
        self.prepared = (component, stream)
        self.tasks = target_tasks

    def choose_tasks(self, values: Any) -> list[int]:
        assert self.prepared == ("source", "default")
        return [self.tasks[values[0] % 2]] if values[0] < 10 else [999]


def test_custom_grouping_and_its_mistakes() -> None:
    sim = Simulator(line([1, 2, 3, 4], par=2, grouping=Grouping.custom(OddEven())))
    sim.run()
    assert [sorted(sim.task("bolt", i).seen) for i in (0, 1)] == [[2, 4], [1, 3]]
    sim = Simulator(line([10], par=2, grouping=Grouping.custom(OddEven())))
    with pytest.raises(SimulationError, match=r"source\[0\].*next_tuple.*chose task 999"):
        sim.run()


class DirectSpout(Spout):
    outputs = [Stream(fields=["value"], name="out", direct=True)]

    def initialize(self, config: Any, context: Any) -> None:
        self.tasks = context.get_component_tasks("bolt")
        self.told = None

    def next_tuple(self) -> None:
        self.told = self.emit(["x"], stream="out", direct_task=self.tasks[1], need_task_ids=True)
        self.end_of_input()


def test_direct_grouping_and_task_ids() -> None:
    builder = TopologyBuilder("direct")
    source = builder.add_spout("source", DirectSpout, par=1)
    builder.add_bolt("bolt", PassBolt, par=2, inputs={source["out"]: Grouping.DIRECT})
    sim = Simulator(builder)
    sim.run()
    assert (sim.task("bolt", 0).seen, sim.task("bolt", 1).seen) == ([], ["x"])
    assert sim.task("source").told == [sim.task_ids("bolt")[1]]


@pytest.mark.parametrize(
    ("emit", "sentence"),
    [
        (lambda bolt: bolt.emit([1, 2]), "emitted 2 values on stream 'default', which declares 1"),
        (lambda bolt: bolt.emit([1], stream="defualt"), "which it does not declare.*'default'"),
        (lambda bolt: bolt.emit([1], direct_task=3), "has no consumer with direct grouping"),
        (lambda bolt: bolt.emit("a"), "emit a list of values"),
        (lambda bolt: bolt.emit([threading.Lock()]), "cannot be pickled"),
    ],
)
def test_bad_emits_are_named(emit: Any, sentence: str) -> None:
    class BadBolt(Bolt):
        outputs = ["value"]

        def process(self, tup: Any) -> None:
            emit(self)

    sim = Simulator(line([1], BadBolt))
    with pytest.raises(TopologyError, match=sentence) as caught:
        sim.run()
    assert isinstance(caught.value, SimulationError)
    assert caught.value.task == "bolt[0] (task 2)"


def test_user_exception_keeps_its_traceback() -> None:
    class BrokenBolt(Bolt):
        def process(self, tup: Any) -> None:
            raise KeyError("gone")

    with pytest.raises(SimulationError, match=r"bolt\[0\] \(task 2\) failed in process: KeyErr") as e:
        Simulator(line([1], BrokenBolt)).run()
    assert isinstance(e.value.__cause__, KeyError)
    assert e.value.__cause__.__traceback__ is not None


def test_at_least_once_acks_fails_and_timeouts() -> None:
    sim = Simulator(three_stages(["ok", "fail", "forget"], ATLEAST))
    sim.run()
    assert sim.acked("source") == [0]
    assert sim.failed("source") == [1, 2]
    assert 30 <= sim.now < 31
    assert sim.metrics("source")["__timeout-count"] == 1


def three_stages(values: list[Any], config: dict[str, Any]) -> TopologyBuilder:
    """values -> pass -> sink"""
    builder = TopologyBuilder("stages")
    source = builder.add_spout("source", ListSpout, par=1, config={"values": values})
    passed = builder.add_bolt("pass", PassBolt, par=2, inputs=[source])
    builder.add_bolt("sink", SinkBolt, par=2, inputs=[passed])
    builder.set_config(config)
    return builder


class HoldBolt(Bolt):
    """Acks and fails lists of the tuples that it has held."""

    outputs = ["count"]

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        self.held: list[Any] = []

    def process(self, tup: Any) -> None:
        self.held.append(tup)
        if len(self.held) == 4:
            self.emit([4], anchors=self.held)
            self.ack(self.held[1:])
            self.fail(tup for tup in self.held[:1])
            self.held.clear()


def test_lists_are_acked_and_failed() -> None:
    builder = TopologyBuilder("held")
    source = builder.add_spout("source", ListSpout, par=1, config={"values": ["ok"] * 8})
    builder.add_bolt("sink", SinkBolt, par=1, inputs=[builder.add_bolt("hold", HoldBolt, par=1, inputs=[source])])
    builder.set_config(ATLEAST)
    sim = Simulator(builder)
    sim.run()
    assert sim.acked("source") == [1, 2, 3, 5, 6, 7]
    assert sim.failed("source") == [0, 4]


def test_at_most_once_acks_at_once() -> None:
    sim = Simulator(three_stages(["ok", "fail", "forget"], {}))
    sim.run()
    assert sim.acked("source") == [0, 1, 2]
    assert sim.failed("source") == []


def test_max_spout_pending_holds_the_spout() -> None:
    config = {**ATLEAST, "topology.max.spout.pending": 3}
    sim = Simulator(three_stages(["forget"] * 10, config))
    sim.run(seconds=5)
    assert len(sim.emitted("source")) == 3
    assert sim.pending("source") == 3
    sim.run(seconds=30)
    assert len(sim.emitted("source")) == 6


class Recorder(ITaskHook):
    def __init__(self) -> None:
        self.calls: list[str] = []

    def prepare(self, conf: Any, context: Any) -> None:
        self.calls.append("prepare")

    def clean_up(self) -> None:
        self.calls.append("clean_up")

    def emit(self, emit_info: Any) -> None:
        self.calls.append(f"emit {emit_info.values}")

    def bolt_execute(self, info: Any) -> None:
        self.calls.append("execute")

    def bolt_ack(self, info: Any) -> None:
        self.calls.append("ack")


def test_hooks_and_metrics() -> None:
    class MeteredBolt(PassBolt):
        def initialize(self, config: Any, context: Any) -> None:
            super().initialize(config, context)
            self.hook = Recorder()
            context.add_task_hook(self.hook)
            self.count, self.by_value = CountMetric(), MultiCountMetric()
            context.register_metric("count", self.count, 10)
            context.register_metric("by_value", self.by_value, 10)

        def process(self, tup: Any) -> None:
            self.count.incr()
            self.by_value.incr(tup.values[0])
            super().process(tup)

    sim = Simulator(line(["a", "b", "a"], MeteredBolt, par=2))
    sim.run()
    metrics = sim.metrics("bolt")
    assert metrics == sim.metrics("bolt")
    assert (metrics["count"], metrics["by_value"]) == (3, {"a": 2, "b": 1})
    assert metrics["__execute-count/default"] == metrics["__ack-count/source/default"] == 3
    sim.close()
    calls = sim.task("bolt", 0).hook.calls
    assert calls[0] == "prepare"
    assert calls[-1] == "clean_up"
    assert calls[1:4] == [calls[1], "ack", "execute"]
    assert calls[1].startswith("emit")
    with pytest.raises(SimulationError, match="closed"):
        sim.run()


class ConfiguredHook(Recorder):
    made: list[Recorder] = []

    def __init__(self) -> None:
        super().__init__()
        self.made.append(self)


def test_hooks_that_the_configuration_names_watch_every_task() -> None:
    ConfiguredHook.made.clear()
    Simulator(line([1], topology_config={"topology.auto.task.hooks": [f"{__name__}.ConfiguredHook"]})).run()
    assert [[*hook.calls] for hook in ConfiguredHook.made] == [
        ["prepare", "emit [1]"],
        ["prepare", "emit [1]", "ack", "execute"],
    ]


def test_global_metrics_start_at_zero_for_each_simulation() -> None:
    class CountingBolt(PassBolt):
        def process(self, tup: Any) -> None:
            global_metrics.incr("seen")
            super().process(tup)

    for _ in range(2):
        sim = Simulator(line([1, 2], CountingBolt))
        assert not any(sim.global_metrics().values())
        sim.run()
        assert {key: value for key, value in sim.global_metrics().items() if value} == {"seen": 2}


def test_injected_tuples_feed_one_bolt() -> None:
    sim = Simulator(three_stages([], ATLEAST), run_spouts=False)
    good = sim.inject("pass", ["ok"])
    bad = sim.inject("sink", ["fail"], index=1)
    sim.run()
    assert good.is_acked
    assert bad.state == "failed"
    assert sim.emitted("pass") == [["ok"]]
    with pytest.raises(TopologyError, match="emitted 2 values"):
        sim.inject("pass", [1, 2])
    with pytest.raises(TopologyError, match="has no such input"):
        sim.inject("source", [1])
    with pytest.raises(TopologyError, match="no task 7"):
        sim.inject("sink", [1], index=7)


def test_killed_task_loses_its_work_and_is_replayed() -> None:
    class Replaying(ListSpout):
        def initialize(self, config: Any, context: Any) -> None:
            super().initialize(config, context)
            self.open = dict(self.values)

        def next_tuple(self) -> None:
            if self.values:
                number, value = self.values.pop(0)
                self.emit([value], tup_id=number)
            elif not self.open:
                self.end_of_input()

        def ack(self, tup_id: Any) -> None:
            super().ack(tup_id)
            del self.open[tup_id]

        def fail(self, tup_id: Any) -> None:
            super().fail(tup_id)
            self.values.append((tup_id, self.open[tup_id]))

    sim = Simulator(line(list(range(20)), spout=Replaying, topology_config=ATLEAST))
    while not sim.pending("source"):
        sim.run(max_steps=1)
    sim.kill_task("bolt")
    assert sim.run().reason == "finished"
    assert sorted(sim.acked("source")) == list(range(20))
    assert len(sim.failed("source")) > 0


class StatefulCount(Bolt, StatefulComponent):
    outputs = ["total"]

    def init_state(self, state: Any) -> None:
        self.state = state

    def initialize(self, config: Any, context: Any) -> None:
        self.total = self.state.get("total") or 0

    def pre_save(self, checkpoint_id: str) -> None:
        self.state.put("total", self.total)

    def process(self, tup: Any) -> None:
        self.total += tup.values[0]
        self.emit([self.total])


def test_checkpoint_and_restore() -> None:
    sim = Simulator(line([], StatefulCount), run_spouts=False)
    with pytest.raises(TopologyError, match="no checkpoint"):
        sim.restore()
    sim.inject("bolt", [5])
    assert sim.checkpoint() == "1"
    sim.inject("bolt", [7])
    sim.run()
    assert sim.task("bolt").total == 12
    sim.restore()
    assert sim.task("bolt").total == 5
    sim.kill_task("bolt")
    assert sim.task("bolt").total == 0


def test_deactivate_and_activate() -> None:
    class Aware(ListSpout):
        def activate(self) -> None:
            self.told.append(("activate", None))

        def deactivate(self) -> None:
            self.told.append(("deactivate", None))

    sim = Simulator(line([1], spout=Aware))
    sim.deactivate()
    assert sim.run().reason == "idle"
    assert sim.emitted("source") == []
    sim.activate()
    assert sim.run().reason == "finished"
    assert sim.task("source").told[:2] == [("deactivate", None), ("activate", None)]


def test_wrong_topologies_and_questions_are_named() -> None:
    sim = Simulator(line([1]))
    for question in (sim.emitted, sim.executed, sim.acked, sim.failed, sim.metrics, sim.task):
        with pytest.raises(TopologyError, match=r"no component 'blot'.*'bolt'"):
            question("blot")
    with pytest.raises(TopologyError, match="declares no stream 'other'"):
        sim.emitted("bolt", "other")
    with pytest.raises(ValueError, match="seconds is -1"):
        sim.run(seconds=-1)


@pytest.mark.parametrize(("policy", "most"), [("drop_newest", 1000), ("sample", 2000), (False, 5000)])
def test_tuples_for_a_full_task_are_dropped_where_the_topology_says_so(policy: object, most: int) -> None:
    """The bolt takes no step before the spout has emitted all, and the spout never waits."""

    class Flood(ListSpout):
        def next_tuple(self) -> None:
            self.emit_batch([[value for _, value in self.values]])
            self.end_of_input()

    config = {"topology.droptuples.upon.backpressure": policy}
    sim = Simulator(line(list(range(5000)), spout=Flood, grouping=Grouping.fields("value"), topology_config=config))
    assert sim.run().reason == "finished"
    seen = [values[0] for values in sim.emitted("bolt")]
    assert len(seen) + sim.dropped.get("bolt", 0) == 5000 and seen[:1000] == list(range(1000))
    assert len(seen) <= most and (policy != "sample" or (1500 < len(seen) and seen[-1] > 3000))
