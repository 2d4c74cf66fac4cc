"""Random graphs give the same tuples, totals and state as a batch and as a stream."""

from __future__ import annotations

from collections import Counter
from typing import Any, ClassVar
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

from heronpy.api.batch import Batch
from heronpy.api.bolt.async_bolt import AsyncBolt
from heronpy.api.bolt.bolt import Bolt
from heronpy.api.custom_grouping import ICustomGrouping
from heronpy.api.spout.spout import Spout
from heronpy.api.stream import Grouping, Stream
from heronpy.api.topology import TopologyBuilder
from heronpy.common.hashing import stable_hash
from heronpy.simulator import Simulator

OUTPUTS = [Stream(["a", "b"]), Stream(["a"], "one"), Stream([], "empty"), Stream(["a"], "way", direct=True)]
FITTING = {
    "default": ["shuffle", "local", "field", "field", "fields", "all", "lowest", "custom"],
    "one": ["shuffle", "field", "all", "lowest", "custom"],
    "empty": ["shuffle", "all", "lowest"],
    "way": ["direct"],
}


class Ends(ICustomGrouping):
    """The first task, and a copy to the last one for some tuples."""

    def prepare(self, context: Any, component: str, stream: str, target_tasks: list[int]) -> None:
        self.tasks = target_tasks

    def choose_tasks(self, values: Any) -> list[int]:
        return [self.tasks[0], self.tasks[-1]] if stable_hash(repr(values)) % 3 else [self.tasks[0]]


GROUPINGS = {
    "shuffle": Grouping.SHUFFLE,
    "local": Grouping.LOCAL_OR_SHUFFLE,
    "field": Grouping.fields("a"),
    "fields": Grouping.fields("b", "a"),
    "all": Grouping.ALL,
    "lowest": Grouping.LOWEST,
    "direct": Grouping.DIRECT,
    "custom": Grouping.custom(Ends()),
}


class Case:
    """A random topology, and what its components have seen."""

    current: ClassVar[Case]

    def __init__(self, **drawn: Any) -> None:
        self.drawn = drawn
        self.seen: Counter[Any] = Counter()
        self.keyed: dict[str, dict[Any, int]] = {}

    def builder(self) -> TopologyBuilder:
        builder = TopologyBuilder("same")
        specs: dict[str, Any] = {}
        par = self.drawn["par"]
        for number in range(self.drawn["spouts"]):
            specs[f"s{number}"] = builder.add_spout(f"s{number}", Source, par=par)
        for number, (kind, inputs) in enumerate(self.drawn["bolts"]):
            named = {specs[source][stream]: GROUPINGS[how] for (source, stream), how in inputs.items()}
            specs[f"b{number}"] = builder.add_bolt(f"b{number}", KINDS[kind], par=par, inputs=named)
        builder.set_config({"topology.reliability.mode": self.drawn["mode"]})
        return builder

    def keys_by_field(self, component: str) -> bool:
        """Whether equal keys meet in one task, so that a total by key is the same in both modes."""
        return component[0] == "b" and set(self.drawn["bolts"][int(component[1:])][1].values()) == {"field"}

    def ways(self, component: str) -> list[str]:
        """The bolts that read the direct stream of a component."""
        bolts = enumerate(self.drawn["bolts"])
        return [f"b{number}" for number, (_, inputs) in bolts if (component, "way") in inputs]


class Component:
    def initialize(self, config: Any, context: Any) -> None:
        self.case, self.name = Case.current, context.get_component_id()
        tasks = context.get_component_tasks(self.name)
        self.index = tasks.index(context.get_task_id())
        self.saves = config["topology.reliability.mode"] == "EFFECTIVELY_ONCE"
        self.totals: Any = {}
        if self.case.keys_by_field(self.name):
            self.totals = context.keyed_state("totals") if self.saves else {}
        ways = self.case.ways(self.name)
        self.way = context.get_component_tasks(ways[0])[-1] if ways else None


class Source(Component, Spout):
    outputs: ClassVar[list[Any]] = OUTPUTS

    def initialize(self, config: Any, context: Any) -> None:
        super().initialize(config, context)
        self.rows = list(self.case.drawn["rows"])[self.index :: self.case.drawn["par"]]

    def next_tuple(self) -> None:
        if not self.rows:
            self.end_of_input()
            return
        values = self.rows.pop()
        self.emit(values, tup_id=repr(values))
        self.emit(values[:1], stream="one")
        self.emit([], stream="empty")
        if self.way is not None:
            self.emit(values[:1], stream="way", direct_task=self.way)

    def ack(self, tup_id: Any) -> None:
        self.case.seen["acked", self.name, tup_id] += 1


class Answering(Component):
    outputs: ClassVar[list[Any]] = OUTPUTS

    def answers(self, tup: Any) -> list[tuple[list[Any], str, int | None]]:
        """What to emit for a tuple: values, stream, task."""
        values = list(tup.values)
        self.case.seen[self.name, tup.component, tup.stream, repr(values)] += 1
        if self.case.keys_by_field(self.name):
            key = values[0]
            self.totals[key] = self.totals.get(key, 0) + 1
        number = stable_hash(repr((self.name, tup.stream, values)))
        stream = ("default", "one", "empty", "way")[number % 4]
        if number // 4 % 3 == 0 or (stream == "way" and self.way is None):
            return []
        first = values[0] if values else None
        row = {"default": [first, number % 5], "empty": []}.get(stream, [first])
        return [(row, stream, self.way if stream == "way" else None)] * (1 + number // 16 % 2)

    def finish(self) -> Any:
        if not self.saves:
            for key, total in self.totals.items():
                self.emit([key, -total])  # type: ignore[attr-defined]


class Singly(Answering, Bolt):
    def process(self, tup: Any) -> None:
        for row, stream, task in self.answers(tup):
            self.emit(row, stream=stream, anchors=[tup], direct_task=task)
        self.ack(tup)


class Together(Answering, Bolt):
    def process_batch(self, batch: Batch) -> None:
        for tup in batch:
            for row, stream, task in self.answers(tup):
                self.emit_batch(rows=[row], stream=stream, direct_task=task)
        self.ack(batch)


class Waiting(Answering, AsyncBolt):
    async def process(self, tup: Any) -> None:
        for row, stream, task in self.answers(tup):
            self.emit(row, stream=stream, anchors=[tup], direct_task=task)
        self.ack(tup)


KINDS = {"singly": Singly, "together": Together, "waiting": Waiting}
VALUES = st.one_of(
    st.integers(-3, 3), st.sampled_from(["x", "y", "z" * 3000, None, 1.5, (1, "t"), b"\0", 2**70])
)  # fmt: skip


@st.composite
def cases(draw: Any) -> dict[str, Any]:
    spouts = draw(st.integers(1, 2))
    names = [f"s{number}" for number in range(spouts)]
    bolts: list[Any] = []
    direct: set[str] = set()
    for number in range(draw(st.integers(1, 6))):
        inputs: dict[Any, str] = {}
        for _ in range(draw(st.integers(1, 3))):
            # Mostly what came last, so that graphs are deep.
            source = draw(st.sampled_from([*names, *names[-2:], *names[-2:]]))
            stream = draw(st.sampled_from([*FITTING, "default", "default"]))
            if stream == "way" and (source in direct or direct.add(source)):  # type: ignore[func-returns-value]
                continue
            inputs[source, stream] = draw(st.sampled_from(FITTING[stream]))
        if not inputs:
            inputs[names[-1], "default"] = "shuffle"
        bolts.append((draw(st.sampled_from(list(KINDS))), inputs))
        names.append(f"b{number}")
    return {
        "spouts": spouts,
        "bolts": bolts,
        "par": draw(st.integers(1, 4)),
        "rows": draw(st.lists(st.tuples(VALUES, VALUES).map(list), max_size=12)),
        "mode": draw(st.sampled_from(["ATMOST_ONCE", "ATLEAST_ONCE", "EFFECTIVELY_ONCE"])),
    }


@given(cases())
@settings(max_examples=40)
def test_a_batch_gives_what_a_stream_gives(drawn: dict[str, Any]) -> None:
    """Each bolt gets the same tuples; totals by key and saved state are the same; spouts hear of each tuple."""
    stream, batch = Case(**drawn), Case(**drawn)
    Case.current = stream
    keyed = {f"b{number}" for number in range(len(drawn["bolts"])) if stream.keys_by_field(f"b{number}")}
    with Simulator(stream.builder()) as simulator:
        assert simulator.run().reason == "finished"
        totals: dict[str, dict[Any, int]] = {name: {} for name in keyed}
        for name in keyed:
            for index in range(drawn["par"]):
                totals[name].update(simulator.task(name, index).totals)
    Case.current = batch
    # As if a stream went on, which keeps the state.
    with mock.patch("heronpy.simulator.batch.hands_over", lambda _: drawn["mode"] == "EFFECTIVELY_ONCE"):
        result = Simulator.run_batch(batch.builder(), buckets=drawn["par"], records=False)
    assert batch.seen == stream.seen
    if drawn["mode"] == "EFFECTIVELY_ONCE":
        assert {name: result.keyed_state(name, "totals") for name in keyed} == totals
