"""Components, context, hooks, tuples, state, serializer and metrics."""

from __future__ import annotations

import asyncio
import functools
import logging
import math
import pickle
import re
import socket
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.api import global_metrics, metrics
from heronpy.api.bolt.async_bolt import AsyncBolt
from heronpy.api.bolt.basic_bolt import BasicBolt, FailTuple, Output
from heronpy.api.bolt.bolt import Bolt
from heronpy.api.bolt.window_bolt import TumblingWindowBolt
from heronpy.api.component.component_spec import HeronComponentSpec, class_path_of
from heronpy.api.serializer import PythonSerializer, default_serializer
from heronpy.api.spout.async_spout import AsyncSpout
from heronpy.api.spout.spout import Spout
from heronpy.api.state.state import HashMapState, State
from heronpy.api.state.stateful_component import StatefulComponent, call_pre_save
from heronpy.api.stream import Grouping
from heronpy.api.task_hook import BoltAckInfo, EmitInfo, ITaskHook, SpoutAckInfo
from heronpy.api.topology import TopologyBuilder
from heronpy.api.topology_context import StreamId, TopologyContext
from heronpy.api.tuple import Tuple, TupleHelper
from heronpy.api.user_code import load_hooks
from heronpy.common.errors import ConfigError, PackageError, TopologyError
from heronpy.simulator import Simulator
from instance.lifecycle import _task_class


class Delegate:
    """Records what a component does."""

    def __init__(self) -> None:
        self.logger = logging.getLogger("test")
        self.calls: list[tuple[Any, ...]] = []

    def emit(self, *args: Any, **kwargs: Any) -> list[int]:
        self.calls.append(("emit", args, kwargs))
        return [7]

    def ack(self, tup: Any) -> None:
        self.calls.append(("ack", tup))

    def fail(self, tup: Any) -> None:
        self.calls.append(("fail", tup))

    def end_of_input(self) -> None:
        self.calls.append(("end",))

    def wait(self, seconds: float) -> None:
        self.calls.append(("wait", seconds))

    def wait_readable(self, fd: int) -> None:
        self.calls.append(("wait_readable", fd))

    def busy(self) -> None:
        self.calls.append(("busy",))

    def log(self, message: str, level: str | None) -> None:
        self.calls.append(("log", message, level))

    def report_error(self, error: Exception) -> None:
        self.calls.append(("report_error", error))


def tup(*values: Any) -> Tuple:
    return Tuple("1", "c", "default", 1, values)


def test_bolt_delegates() -> None:
    delegate = Delegate()
    bolt = Bolt(delegate=delegate)
    assert bolt.emit([1], "s", [tup()], 3, True) == [7]
    bolt.ack("t")
    bolt.fail("u")
    bolt.log("hello", "warn")
    error = ValueError("one line is bad")
    bolt.report_error(error)
    assert delegate.calls == [
        ("emit", ([1],), {"stream": "s", "anchors": [tup()], "direct_task": 3, "need_task_ids": True}),
        ("ack", "t"),
        ("fail", "u"),
        ("log", "hello", "warn"),
        ("report_error", error),
    ]
    assert bolt.logger is delegate.logger and not bolt.is_async
    bolt.initialize({}, None)  # type: ignore[arg-type]
    assert bolt.process_tick(None) is None and bolt.finish() is None
    with pytest.raises(NotImplementedError, match="process"):
        bolt.process(tup())


def test_spout_delegates() -> None:
    delegate = Delegate()
    spout = Spout(delegate=delegate)
    assert spout.emit([1], tup_id=5, need_task_ids=True) == [7]
    spout.end_of_input()
    assert delegate.calls == [
        ("emit", ([1],), {"tup_id": 5, "stream": "default", "direct_task": None, "need_task_ids": True}),
        ("end",),
    ]
    for call in (spout.close, spout.activate, spout.deactivate):
        call()
    spout.ack(1)
    spout.fail(1)
    with pytest.raises(NotImplementedError, match="next_tuple"):
        spout.next_tuple()


def test_a_spout_says_when_to_call_it_again() -> None:
    delegate = Delegate()
    spout = Spout(delegate=delegate)
    here, there = socket.socketpair()
    with here, there:
        spout.wait(2)
        spout.wait(0)
        spout.wait_readable(here)
        spout.wait_readable(there.fileno())
        spout.busy()
        assert delegate.calls == [
            ("wait", 2.0),
            ("wait", 0.0),
            ("wait_readable", here.fileno()),
            ("wait_readable", there.fileno()),
            ("busy",),
        ]


@pytest.mark.parametrize("seconds", [-1, -0.001, math.nan, math.inf, "1", None])
def test_a_wait_that_makes_no_sense_is_refused(seconds: Any) -> None:
    with pytest.raises(ValueError, match=rf"wait\({re.escape(repr(seconds))}\): give a number of seconds"):
        Spout(Delegate()).wait(seconds)


def test_what_cannot_be_waited_for_is_refused(tmp_path: Path) -> None:
    spout = Spout(Delegate())
    here, there = socket.socketpair()
    here.close()
    there.close()
    for wrong in (-1, 10**6, 10**30, True, "x", None, 1.5, here):
        with pytest.raises(ValueError, match=r"wait_readable\(.*\): give an open file descriptor"):
            spout.wait_readable(wrong)
    with open(tmp_path / "file", "wb") as file, pytest.raises(ValueError, match="regular file can always be read"):
        spout.wait_readable(file)
    assert spout.delegate.calls == []


def test_async_spout_delegates() -> None:
    class AsyncDelegate(Delegate):
        async def emit(self, *args: Any, **kwargs: Any) -> list[int]:  # type: ignore[override]
            return super().emit(*args, **kwargs)

    delegate = AsyncDelegate()
    spout = AsyncSpout(delegate=delegate)
    assert asyncio.run(spout.emit([1], tup_id=5, need_task_ids=True)) == [7]
    spout.end_of_input()
    assert delegate.calls == [
        ("emit", ([1],), {"tup_id": 5, "stream": "default", "direct_task": None, "need_task_ids": True}),
        ("end",),
    ]
    for call in (spout.close, spout.activate, spout.deactivate):
        assert call() is None
    assert spout.ack(1) is None and spout.fail(1) is None
    with pytest.raises(NotImplementedError, match=r"run\(\)"):
        asyncio.run(spout.run())


def test_async_spout_is_marked() -> None:
    assert AsyncSpout.is_async and AsyncSpout.spec(name="a", optional_outputs=["x"]).is_spout


def test_async_bolt_is_marked() -> None:
    assert AsyncBolt.is_async and AsyncBolt(Delegate()).is_async


class OneByOne(Bolt):
    async def process(self, tup: Any) -> None: ...


class Ticking(AsyncBolt):
    async def process(self, tup: Any) -> None: ...

    def process_tick(self, tup: Any) -> None: ...  # type: ignore[override]


class Plain(AsyncBolt):
    def process(self, tup: Any) -> None: ...  # type: ignore[override]


class Yielding(Bolt):
    def process(self, tup: Any) -> Any:
        yield tup.values


class Early(AsyncBolt):
    async def initialize(self, config: Any, context: Any) -> None: ...  # type: ignore[override]


class Windows(TumblingWindowBolt):
    async def processWindow(self, window_info: Any, tuples: Any) -> None: ...  # type: ignore[override]


class Polled(Spout):
    async def next_tuple(self) -> None: ...  # type: ignore[override]


class Streaming(Spout):
    async def ack(self, tup_id: Any) -> Any:  # type: ignore[override]
        yield tup_id


class Runs(AsyncSpout):
    def run(self) -> None: ...  # type: ignore[override]


WRONG_COROUTINES = [
    (OneByOne, r"OneByOne.process is a coroutine; define it with `def`, or extend AsyncBolt"),
    (Ticking, r"Ticking.process_tick is not a coroutine; define it with `async def`, and call `self.emit"),
    (Plain, r"Plain.process is not a coroutine; define it with `async def`, and call `self.emit"),
    (Yielding, r"Yielding.process is a generator; call `self.emit\(...\)` instead of yielding"),
    (Early, r"Early.initialize is a coroutine; define it with `def`$"),
    (Windows, r"Windows.processWindow is a coroutine; define it with `def`$"),
    (Polled, r"Polled.next_tuple is a coroutine; define it with `def`, or extend AsyncSpout"),
    (Streaming, r"Streaming.ack is a coroutine; define it with `def`, or extend AsyncSpout"),
    (Runs, r"Runs.run is not a coroutine; define it with `async def`, and call `await self.emit"),
]


@pytest.mark.parametrize(("kind", "why"), WRONG_COROUTINES, ids=lambda one: getattr(one, "__name__", ""))
def test_a_method_that_would_never_run_is_refused(kind: Any, why: str) -> None:
    """The runtime called the coroutine and did not await it, so every tuple was lost without an error."""
    with pytest.raises(TopologyError, match=why):
        kind.spec("name")


def test_it_is_also_refused_where_no_spec_was_made() -> None:
    source = HeronComponentSpec("source", class_path_of(Spout), True, 1, outputs=["n"])
    bolt = HeronComponentSpec("bolt", class_path_of(OneByOne), False, 1, inputs=[source])
    made = TopologyBuilder("t")
    made.add_spec(source, bolt)
    with pytest.raises(TopologyError, match=r"OneByOne\.process is a coroutine"):
        Simulator(made).run()
    topology, launch = made.build(), SimpleNamespace(package_dir=None, argv=[], main_file=None)
    _, error = _task_class(topology, topology.bolts[0], launch)  # type: ignore[arg-type]
    assert isinstance(error, TopologyError)


def test_what_does_run_is_not_refused() -> None:
    def logged(method: Any) -> Any:
        return functools.wraps(method)(lambda self, tup: method(self, tup))

    class Wrapped(AsyncBolt):
        process = logged(AsyncBolt.process)

        async def finish(self) -> None: ...  # type: ignore[override]

    class Loop(Bolt):
        async def run(self) -> None: ...

        async def close(self) -> None: ...

    class Acked(AsyncSpout):
        async def ack(self, tup_id: Any) -> None: ...  # type: ignore[override]

    for kind in (Wrapped, Loop, Acked):
        kind.spec("name")  # type: ignore[attr-defined]


def test_basic_bolt_anchors_and_acks() -> None:
    class Split(BasicBolt):
        def execute(self, tup: Any) -> Any:
            for word in tup.values[0].split():
                if word == "bad":
                    raise FailTuple
                yield [word]
            yield Output([0], "ends", direct_task=4)

    delegate = Delegate()
    bolt = Split(delegate)
    good, bad = tup("a b"), tup("bad")
    bolt.process(good)
    emits = [(c[1][0], c[2]["stream"], c[2]["anchors"], c[2]["direct_task"]) for c in delegate.calls[:3]]
    assert emits == [(["a"], "default", [good], None), (["b"], "default", [good], None), ([0], "ends", [good], 4)]
    bolt.process(bad)
    assert delegate.calls[3:] == [("ack", good), ("fail", bad)]


def test_ticks() -> None:
    tick = TupleHelper.make_tick_tuple()
    assert tick.component == "__system" and tick.stream == "__tick"
    assert TupleHelper.is_tick(tick) and Bolt.is_tick(tick)
    assert not TupleHelper.is_tick(tup()) and not Bolt.is_tick(tup())
    assert tup(1) == ("1", "c", "default", 1, (1,))


class Words(Spout):
    outputs = ["word"]


class Sink(Bolt):
    pass


class Recorder(ITaskHook):
    made: list[Recorder] = []

    def __init__(self) -> None:
        self.seen: list[Any] = []
        Recorder.made.append(self)

    def prepare(self, conf: Any, context: Any) -> None:
        self.seen.append(("prepare", conf["k"], context.get_task_id()))

    def clean_up(self) -> None:
        self.seen.append("clean_up")

    def emit(self, emit_info: EmitInfo) -> None:
        self.seen.append(emit_info)

    def spout_ack(self, spout_ack_info: SpoutAckInfo) -> None:
        self.seen.append(spout_ack_info)

    def bolt_ack(self, bolt_ack_info: BoltAckInfo) -> None:
        self.seen.append(bolt_ack_info)


def context(config: dict[str, Any] | None = None, collector: Any = None) -> TopologyContext:
    builder = TopologyBuilder("top")
    words = builder.add_spout("words", Words, 2)
    builder.add_bolt("sink", Sink, 2, inputs={words: Grouping.fields("word")})
    tasks = {4: "sink", 1: "words", 3: "sink", 2: "words"}
    return TopologyContext(config or {}, builder.build(), tasks, 3, "sink", collector, "/p")


def test_context_answers() -> None:
    config = {"x": 1}
    ctx = context(config)
    assert ctx.get_task_id() == 3 and ctx.get_component_id() == "sink"
    assert ctx.get_cluster_config() is config and ctx.get_topology_name() == "top"
    sources = ctx.get_this_sources()
    assert sources == {StreamId("default", "words"): 4}
    assert ctx.get_sources("words") is None and ctx.get_sources("nope") is None
    assert ctx.get_component_tasks("sink") == [3, 4] and ctx.get_component_tasks("nope") is None
    assert ctx.get_topology_pex_path() == "/p" and ctx.get_metrics_collector() is None
    ctx.update({1: "words", 3: "sink", 9: "sink"})
    assert ctx.get_component_tasks("sink") == [3, 9]
    with pytest.raises(RuntimeError, match="'m'"):
        ctx.register_metric("m", metrics.CountMetric(), 60)


def test_context_registers_metrics() -> None:
    class Collector:
        def register_metric(self, *args: Any) -> None:
            self.args = args

    collector, metric = Collector(), metrics.CountMetric()
    context(collector=collector).register_metric("m", metric, 60)
    assert collector.args == ("m", metric, 60)


def test_hooks_see_everything() -> None:
    ctx = context({"k": 5})
    assert not ctx.has_hooks
    hook = Recorder()
    ctx.add_task_hook(hook)
    assert ctx.has_hooks
    ctx.invoke_hook_prepare()
    ctx.invoke_hook_emit([1], "s", [2])
    ctx.invoke_hook_spout_ack("id", 2_000_000)
    ctx.invoke_hook_spout_fail("id", 1)
    ctx.invoke_hook_bolt_execute("t", 1)
    ctx.invoke_hook_bolt_ack("t", 3_000_000)
    ctx.invoke_hook_bolt_fail("t", 1)
    ctx.invoke_hook_cleanup()
    assert hook.seen == [
        ("prepare", 5, 3),
        EmitInfo([1], "s", 3, [2]),
        SpoutAckInfo("id", 3, 2.0),
        BoltAckInfo("t", 3, 3.0),
        "clean_up",
    ]
    with pytest.raises(TypeError, match="ITaskHook"):
        ctx.add_task_hook(object())  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [[f"{__name__}.Recorder"], f"{__name__}.Recorder", [Recorder]])
def test_auto_hooks(value: Any) -> None:
    Recorder.made.clear()
    [hook] = load_hooks(value)
    assert Recorder.made == [hook] and load_hooks(None) == []


def test_wrong_auto_hooks() -> None:
    with pytest.raises(ConfigError, match="not an ITaskHook"):
        load_hooks([f"{__name__}.Words"])
    with pytest.raises(ConfigError, match="list"):
        load_hooks(3)
    with pytest.raises(PackageError, match="no_such_module"):
        load_hooks(["no_such_module.Hook"])


@given(st.dictionaries(st.text(max_size=3), st.integers()))
def test_state_is_a_mapping(content: dict[str, int]) -> None:
    state = HashMapState()
    for key, value in content.items():
        state.put(key, value)
    assert dict(state.enumerate()) == content == dict(state) == state
    assert all(key in state and state[key] == state.get(key) for key in content)
    assert state.get("absent key") is None and len(state) == len(content)
    again = pickle.loads(pickle.dumps(state))
    assert isinstance(again, HashMapState) and again == content
    for key, _ in state.enumerate():
        del state[key]
    assert not state
    state["a"] = 1
    state.clear()
    assert str(state) == "{}"
    assert isinstance(state, State) and isinstance(state, dict)


def test_pre_save_with_and_without_argument() -> None:
    class Old(StatefulComponent):
        def pre_save(self) -> None:  # type: ignore[override]
            self.saved = "old"

    class New(StatefulComponent):
        def pre_save(self, checkpoint_id: str) -> None:
            self.saved = checkpoint_id

    old, new = Old(), New()
    call_pre_save(old, "7")
    call_pre_save(new, "7")
    assert (old.saved, new.saved) == ("old", "7")


def test_serializer() -> None:
    serializer = PythonSerializer()
    serializer.initialize({})
    data = serializer.serialize((1, {"a": lambda: 5}))
    assert isinstance(data, bytes)
    assert default_serializer.deserialize(data)[1]["a"]() == 5


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 9)) | st.none()))
def test_counts_are_handed_out_once(steps: list[tuple[str, int] | None]) -> None:
    count, multi = metrics.CountMetric(), metrics.MultiCountMetric()
    single_total, totals = 0, {"a": 0, "b": 0}
    for step in [*steps, None]:
        if step is None:
            single_total += int(count.get_value_and_reset())
            for key, value in multi.get_value_and_reset().items():
                totals[key] += int(value)
        else:
            count.incr(step[1])
            multi.incr(*step)
    done = [step for step in steps if step]
    assert single_total == sum(n for _, n in done)
    assert totals == {k: sum(n for key, n in done if key == k) for k in "ab"}


def test_means_and_gauges() -> None:
    mean = metrics.MeanReducedMetric()
    assert mean.get_value_and_reset() is None
    mean.update(1)
    mean.update(2)
    assert mean.get_value_and_reset() == 1.5 and mean.get_value_and_reset() is None
    multi = metrics.MultiMeanReducedMetric()
    multi.add_key("x")
    multi.update("y", 4)
    assert multi.get_value_and_reset() == {"x": None, "y": 4.0}
    gauge = metrics.AssignableMetrics(1)
    gauge.update(2)
    assert gauge.get_value_and_reset() == gauge.get_value_and_reset() == 2
    gauges = metrics.MultiAssignableMetrics()
    gauges.update("k", 1)
    gauges.update("k", 3)
    assert gauges.get_value_and_reset() == {"k": 3}
    known = metrics.MultiCountMetric()
    known.add_key("k")
    assert known.get_value_and_reset() == {"k": 0}


def test_global_metrics_lose_nothing_between_threads() -> None:
    class Collector:
        registered: list[Any] = []

        def register_metric(self, *args: Any) -> None:
            self.registered.append(args)

    collector = Collector()
    global_metrics.init(collector, 60)
    global_metrics.init(collector, 60)
    assert collector.registered == [("__auto__", global_metrics.metricsContainer, 60)]
    assert global_metrics.registered
    global_metrics.metricsContainer.get_value_and_reset()

    def work() -> None:
        for _ in range(2000):
            global_metrics.safe_incr("k")
            global_metrics.incr("k", by=2)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    total = 0
    while any(thread.is_alive() for thread in threads):
        total += global_metrics.metricsContainer.get_value_and_reset().get("k", 0)
    total += global_metrics.metricsContainer.get_value_and_reset()["k"]
    assert total == 3 * 2000 * 3
