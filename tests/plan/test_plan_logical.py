"""The logical plan: reading, order, and every mistake that can be seen in it."""

from __future__ import annotations

import pickle
import time
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.common.errors import TopologyError
from heronpy.plan.logical import LogicalPlan
from heronpy.plan.validation import problems, validate, warnings
from heronpy.proto import topology_pb2
from tests.plan.builders import TopologyMessage, chain

MODE = "topology__reliability__mode"


def plan_of(topology: TopologyMessage) -> LogicalPlan:
    return LogicalPlan.from_topology(topology.message)


def word_count() -> TopologyMessage:
    return (
        TopologyMessage()
        .spout("word", 2, {"default": ["word"], "errors": ["text"]})
        .bolt("count", [("word", "default", topology_pb2.FIELDS, ["word"])], 3)
        .bolt("log", [("word", "errors", topology_pb2.ALL, []), "count"], outputs={})
    )


def test_a_good_topology_is_read() -> None:
    plan = plan_of(word_count())
    validate(plan)
    assert list(plan.components) == ["word", "count", "log"]
    assert plan.spouts() == ["word"]
    assert plan.bolts() == ["count", "log"]
    assert plan.task_count == 6
    assert plan.output_streams("word") == ["default", "errors"]
    assert [name for name, _ in plan.consumers("word", "default")] == ["count"]
    assert plan.consumers("word", "errors")[0][1].gtype == topology_pb2.ALL
    assert plan.upstream("log") == ["word", "count"]
    assert plan.downstream("word") == ["count", "log"]
    assert plan.topological_order() == ["word", "count", "log"]
    assert plan.cycle() is None
    with pytest.raises(TopologyError, match="did you mean 'count'"):
        plan.component("cuont")


BAD: list[tuple[str, TopologyMessage, list[str]]] = [
    ("no spout", TopologyMessage(), ["has no spout"]),
    ("spout without outputs", TopologyMessage().spout("s", outputs={}), ["'s' has no output"]),
    ("bolt without inputs", TopologyMessage().spout("s").bolt("b", []), ["'b' has no input"]),
    (
        "unknown component",
        TopologyMessage().spout("words").bolt("b", ["wrods"]),
        ["'b'", "'wrods'", "did you mean 'words'"],
    ),
    (
        "unknown stream",
        TopologyMessage().spout("s").bolt("b", [("s", "defualt", topology_pb2.SHUFFLE, [])]),
        ["'b'", "'defualt'", "did you mean 'default'"],
    ),
    (
        "missing field",
        TopologyMessage()
        .spout("s", outputs={"default": ["word", "count"]})
        .bolt("b", [("s", "default", topology_pb2.FIELDS, ["wrod"])]),
        ["'b'", "no field 'wrod'", "did you mean 'word'", "'word', 'count'"],
    ),
    (
        "no grouping field",
        TopologyMessage().spout("s").bolt("b", [("s", "default", topology_pb2.FIELDS, [])]),
        ["names no field"],
    ),
    (
        "duplicate names",
        TopologyMessage().spout("s").bolt("x", ["s"]).bolt("x", ["s"]),
        ["2 components are named 'x'"],
    ),
    ("zero parallelism", TopologyMessage().spout("s", 0), ["'s'", "parallelism", "1 or more"]),
    ("negative parallelism", TopologyMessage().spout("s", -3), ["'s'", "-3"]),
    ("parallelism of text", TopologyMessage().spout("s", "many"), ["'s'", "'many'"]),
    ("parallelism of half", TopologyMessage().spout("s", 1.5), ["'s'", "1.5"]),
    ("too many tasks", TopologyMessage().spout("s", 10**9), ["1000000000 tasks"]),
    (
        "direct stream shuffled",
        TopologyMessage().spout("s", direct=("default",)).bolt("b", ["s"]),
        ["direct stream 'default'", "SHUFFLE"],
    ),
    (
        "direct grouping on a common stream",
        TopologyMessage().spout("s").bolt("b", [("s", "default", topology_pb2.DIRECT, [])]),
        ["not direct", "direct=True"],
    ),
    (
        "custom grouping without object",
        TopologyMessage().spout("s").bolt("b", [("s", "default", topology_pb2.CUSTOM, [])]),
        ["no grouping object"],
    ),
    ("slash", TopologyMessage().spout("a/b"), ["'a/b'", "slash"]),
    ("dots", TopologyMessage().spout("a..b"), ["'a..b'", "'..'"]),
    ("control character", TopologyMessage().spout("a\nb"), [r"'a\nb'", "control character"]),
    ("empty name", TopologyMessage().spout(""), ["is empty"]),
    ("long name", TopologyMessage().spout("a" * 201), ["longer than 200"]),
    ("bad topology name", TopologyMessage("../x").spout("s"), ["topology name", "slash"]),
    ("bad stream name", TopologyMessage().spout("s", outputs={"a/b": ["x"]}), ["stream name"]),
    ("system component", TopologyMessage().spout("__system"), ["is reserved"]),
    (
        "tick stream",
        TopologyMessage().spout("s", outputs={"__tick": []}),
        ["is reserved"],
    ),
    (
        "duplicate fields",
        TopologyMessage().spout("s", outputs={"default": ["a", "a"]}),
        ["'default'", "field 'a' 2 times"],
    ),
    (
        "same input twice",
        TopologyMessage().spout("s").bolt("b", ["s", "s"]),
        ["takes stream 'default' of 's' 2 times"],
    ),
    (
        "bolt out of reach",
        TopologyMessage().spout("s").bolt("a", ["b"]).bolt("b", ["a"]),
        ["no spout", "'a', 'b'"],
    ),
    ("unknown mode", TopologyMessage(**{MODE: "ONCE"}).spout("s"), ["'ONCE'", "ATLEAST_ONCE"]),
    (
        "misspelt key",
        TopologyMessage(topology__mesage__timeout__secs=3).spout("s"),
        ["unknown key", "did you mean 'topology.message.timeout.secs'"],
    ),
    (
        "misspelt key of a component",
        TopologyMessage().spout("s", topology__max__spout__pendign=3),
        ["spout 's'", "did you mean 'topology.max.spout.pending'"],
    ),
    (
        "text for a number",
        TopologyMessage(topology__max__spout__pending="lots").spout("s"),
        ["'topology.max.spout.pending' to 'lots'", "whole number"],
    ),
    (
        "object for a number",
        TopologyMessage(topology__message__timeout__secs=b"\x80").spout("s"),
        ["a serialized object", "number above 0"],
    ),
    (
        "nothing for a number",
        TopologyMessage(topology__max__spout__pending=pickle.dumps(None)).spout("s"),
        ["'topology.max.spout.pending' to None; it must be"],
    ),
    ("nan", TopologyMessage(topology__message__timeout__secs="nan").spout("s"), ["nan"]),
    ("zero", TopologyMessage(topology__tick__tuple__freq__ms=0).spout("s"), ["above 0"]),
    ("bytes", TopologyMessage(topology__container__ram__requested="4X").spout("s"), ["512MB"]),
    ("flag", TopologyMessage(topology__debug="yes").spout("s"), ["true or false"]),
]


@pytest.mark.parametrize(("topology", "parts"), [b[1:] for b in BAD], ids=[b[0] for b in BAD])
def test_bad_input_is_named(topology: TopologyMessage, parts: list[str]) -> None:
    plan = plan_of(topology)
    with pytest.raises(TopologyError) as caught:
        validate(plan)
    sentences = str(caught.value).splitlines()
    for part in parts:
        assert part in str(caught.value)
    for sentence in sentences:
        assert not sentence[0].isupper()
        assert not sentence.endswith(".")


def test_every_problem_is_reported() -> None:
    topology = TopologyMessage(topology__stmgrs=0).spout("s", 0).bolt("b", ["x"]).bolt("c", [])
    assert len(problems(plan_of(topology))) == 4


def loop(**config: Any) -> TopologyMessage:
    return TopologyMessage(**config).spout("s").bolt("a", ["s", "c"]).bolt("b", ["a"]).bolt("c", ["b"])


def test_a_cycle_is_refused_where_barriers_cannot_pass() -> None:
    with pytest.raises(TopologyError, match=r"EFFECTIVELY_ONCE the cycle a -> b -> c -> a cannot.*use ATLEAST_ONCE"):
        validate(plan_of(loop(**{MODE: "EFFECTIVELY_ONCE"})))
    selfish = TopologyMessage(**{MODE: "EFFECTIVELY_ONCE"}).spout("s").bolt("a", ["s", "a"])
    with pytest.raises(TopologyError, match="the cycle a -> a cannot"):
        validate(plan_of(selfish))


@pytest.mark.parametrize("mode", ["ATLEAST_ONCE", "ATMOST_ONCE"])
def test_a_cycle_that_tuples_can_leave_is_warned_of_once(mode: str) -> None:
    plan = plan_of(loop(**{MODE: mode}).bolt("end", ["c"]))
    validate(plan)
    [warning] = warnings(plan)
    assert "a -> b -> c -> a form a cycle" in warning
    assert ("within topology.message.timeout.secs" in warning) == (mode == "ATLEAST_ONCE")
    assert plan.topological_order() == ["s", "a", "b", "c", "end"]


def test_keys_of_the_user_pass() -> None:
    topology = TopologyMessage(my__key="x", topologyx=1, topology__auto__task__hooks=b"\x80")
    validate(plan_of(topology.spout("s", heron__instance__x=1)))


def test_good_settings_pass() -> None:
    topology = TopologyMessage(
        topology__debug=True,
        topology__stmgrs=2,
        topology__message__timeout__secs=0.5,
        topology__container__ram__requested="2GB",
        topology__name=12,
        topology__stateful__start__clean=False,
    )
    validate(plan_of(topology.spout("s").bolt("b", ["s"])))


def test_a_long_chain_is_quick() -> None:
    started = time.monotonic()
    plan = LogicalPlan.from_topology(chain({f"c{i}": 1 for i in range(2000)}))
    validate(plan)
    assert plan.topological_order() == [f"c{i}" for i in range(2000)]
    assert time.monotonic() - started < 5


@given(st.integers(1, 12), st.data())
def test_order_puts_sources_first_and_cycles_are_real(count: int, data: st.DataObject) -> None:
    topology = TopologyMessage().spout("c0")
    for i in range(1, count):
        sources = data.draw(st.sets(st.integers(0, count - 1), min_size=1, max_size=3))
        topology.bolt(f"c{i}", [f"c{source}" for source in sorted(sources)])
    plan = plan_of(topology)
    order = plan.topological_order()
    assert sorted(order) == sorted(plan.components)
    path = plan.cycle()
    if path is None:
        place = {name: i for i, name in enumerate(order)}
        for name in order:
            assert all(place[source] < place[name] for source in plan.upstream(name))
    else:
        assert path[0] == path[-1]
        assert len(set(path)) == len(path) - 1
        for source, target in pairwise(path):
            assert target in plan.downstream(source)
