"""What classes and tests written for Apache heronpy 0.20.5 do with the API beyond its documented calls."""

from __future__ import annotations

import pickle
from types import SimpleNamespace
from typing import Any

import pytest

from heronpy.api import topology as topology_module
from heronpy.api.bolt.bolt import Bolt
from heronpy.api.component.component_spec import GlobalStreamId, HeronComponentSpec
from heronpy.api.spout.spout import Spout
from heronpy.api.stream import Grouping, Stream
from heronpy.api.topology import Topology, TopologyBuilder, TopologyType
from heronpy.common.errors import TopologyError
from heronpy.common.hashing import stable_hash
from heronpy.proto import topology_pb2
from heronpy.streamlet import KeyedWindow, Resources, Streamlet, Window


@pytest.fixture(autouse=True)
def _no_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HERON_OPTIONS", raising=False)


class Words(Spout):
    outputs = ["word", Stream(["n"], "numbers")]


class Count(Bolt):
    pass


def spec(name: Any = "name", path: Any = "a.B", is_spout: Any = True, par: Any = 1, **more: Any) -> HeronComponentSpec:
    return HeronComponentSpec(name, path, is_spout, par, **more)


@pytest.mark.parametrize(
    ("make", "also"),
    [
        (lambda: spec(123), TypeError),
        (lambda: spec(False), TypeError),
        (lambda: spec("a/b"), ValueError),
        (lambda: spec(path={}), TypeError),
        (lambda: spec(is_spout=1), TypeError),
        (lambda: spec(par="1"), TypeError),
        (lambda: spec(par=1.35), TypeError),
        (lambda: spec(par=-21), ValueError),
        (lambda: spec(par=None), TypeError),
        (lambda: Words.spec(par=0), ValueError),
        (lambda: TopologyBuilder("Topology"), ValueError),
        (lambda: TopologyBuilder(123), TypeError),  # type: ignore[arg-type]
        (lambda: TopologyBuilder(None), TypeError),  # type: ignore[arg-type]
    ],
)
def test_wrong_specs_are_assertion_errors_as_well(make: Any, also: type[Exception]) -> None:
    for kind in (AssertionError, also, TopologyError):
        with pytest.raises(kind, match=r"\w+ \w+"):
            make()


def test_inputs_and_outputs_of_a_spec() -> None:
    inputs_of, outputs_of = HeronComponentSpec._sanitize_inputs, HeronComponentSpec._sanitize_outputs
    source = spec("spout")
    source.outputs = ["a", "b", Stream(["c"], "other"), Stream(["d"], "default")]
    assert outputs_of(source) == {"default": ["a", "b", "d"], "other": ["c"]}
    assert outputs_of(spec()) is None and inputs_of(spec()) is None
    given = {source: Grouping.SHUFFLE, source["other"]: Grouping.ALL}
    assert inputs_of(spec(is_spout=False, inputs=given)) == {
        GlobalStreamId("spout", "default"): Grouping.SHUFFLE,
        GlobalStreamId("spout", "other"): Grouping.ALL,
    }
    listed = inputs_of(spec(is_spout=False, inputs=[source]))
    assert listed == {GlobalStreamId("spout", "default"): Grouping.SHUFFLE}
    for wrong in ("text", 100):
        with pytest.raises(TypeError):
            inputs_of(spec(inputs=wrong))
    unnamed = spec(None)
    for inputs in ({unnamed: Grouping.ALL}, [unnamed]):
        with pytest.raises(RuntimeError, match="without a name"):
            inputs_of(spec("bolt", is_spout=False, inputs=inputs))
    source.outputs = ["a", 3]
    with pytest.raises(TypeError):
        outputs_of(source)


@pytest.mark.parametrize("sanitize", [HeronComponentSpec._sanitize_config, TopologyType._sanitize_config])
def test_configurations_are_sanitized(sanitize: Any) -> None:
    assert sanitize({"a": True, "b": -24, "c": 1e-7, "d": ["x"], "e": None, "f": "t"}) == {
        "a": "true",
        "b": "-24",
        "c": "1e-07",
        "d": ["x"],
        "e": None,
        "f": "t",
    }
    for wrong in ("{key: value}", None, {None: "value"}, {1: 2}):
        with pytest.raises(TypeError):
            sanitize(wrong)


def test_the_messages_of_a_spec_can_be_made_one_by_one() -> None:
    bolt = spec("bolt", is_spout=False, par=3, config={"a": 1})
    assert isinstance(bolt.get_protobuf(), topology_pb2.Bolt)  # inputs may come later
    assert bolt._get_base_component().class_name == "a.B"
    assert {pair.key: pair.value for pair in bolt._get_comp_config().kvs} == {
        "topology.component.parallelism": "3",
        "a": "1",
    }
    assert bolt._get_stream_id("c", "s").component_name == "c"
    assert [key.key for key in bolt._get_stream_schema(["x", "y"]).keys] == ["x", "y"]


def test_a_class_knows_what_it_was_made_of() -> None:
    class Sane(Topology):
        config = {"wide": "value", "overridden": True}
        words = Words.spec(par=3)
        count = Count.spec(par=4, inputs={words: Grouping.SHUFFLE, words["numbers"]: Grouping.ALL})

    class Child(Sane):
        config = {"wide": "other"}

    for made, wide in ((Sane, "value"), (Child, "other")):
        assert made._topo_config == {**TopologyType.DEFAULT_TOPOLOGY_CONFIG, "wide": wide, "overridden": "true"}
    spouts, bolts = Sane._protobuf_spouts, Sane._protobuf_bolts
    assert set(spouts) == {"words"} and set(bolts) == {"count"}
    assert bolts["count"].comp.class_name.endswith("Count")
    assert [item.name for item in Sane._heron_specs] == ["words", "count"]
    assert Sane.topology_name == "Sane" and Sane.topology_id.startswith("Sane")


def test_a_class_may_be_called_topology() -> None:
    made: Any = TopologyType("Topology", (Topology,), {"words": Words.spec()})
    assert made.to_proto().name == "Topology"
    entries: dict[str, Any] = {}
    TopologyType.init_topology("Topology", entries)
    assert entries == {}


def test_the_steps_of_the_metaclass(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="at least one output"):
        TopologyType.add_spout_specs(spec(), {})
    with pytest.raises(ValueError, match="at least one input"):
        TopologyType.add_bolt_specs(spec(is_spout=False), {})
    with pytest.raises(ValueError, match="duplicate"):
        TopologyType.class_dict_to_specs({"a": spec("same"), "b": spec("same", is_spout=False)})
    assert TopologyType.class_dict_to_topo_config({"config": {"k": 1}, "x": 2}) == {
        **TopologyType.DEFAULT_TOPOLOGY_CONFIG,
        "k": "1",
    }
    spouts: dict[str, Any] = {}
    TopologyType.add_spout_specs(Words.spec("words"), spouts)
    entries: dict[str, Any] = {"_topo_config": {"k": "1"}, "_protobuf_spouts": spouts, "_protobuf_bolts": {}}
    monkeypatch.setenv(
        "HERON_OPTIONS", "cmdline.topologydefn.tmpdirectory=/tmp,cmdline.topology.initial.state=PAUSED,x=a%%%%b"
    )
    TopologyType.init_topology("Mine", entries)
    made = entries["protobuf_topology"]
    assert (made.name, made.id, made.state) == ("Mine", entries["topology_id"], topology_pb2.PAUSED)
    assert [part.comp.name for part in made.spouts] == ["words"] and made.topology_config.kvs[0].key == "k"
    assert entries["topologydefn_tmpdir"] == "/tmp" and entries["heron_runtime_options"]["x"] == "a b"
    assert TopologyType.get_heron_options_from_env() == entries["heron_runtime_options"]


def test_a_subclassed_builder_makes_its_class_and_may_change_it(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class Builder(TopologyBuilder):
        def _construct_topo_class_dict(self) -> dict[str, Any]:
            attributes = super()._construct_topo_class_dict()
            return {**attributes, "config": {**attributes["config"], "added": 1}, "extra": Words.spec("extra")}

    builder = Builder("made")
    words = builder.add_spout("words", Words, 1)
    builder.add_bolt("count", Count, 1, inputs=[words])
    builder.set_config({"given": 2})
    monkeypatch.setenv("HERON_OPTIONS", f"cmdline.topologydefn.tmpdirectory={tmp_path}")
    cls: Any = TopologyType(builder.topology_name, (Topology,), builder._construct_topo_class_dict())
    cls.write()
    by_class = topology_pb2.Topology.FromString((tmp_path / "made.defn").read_bytes())
    builder.build_and_submit()
    submitted = topology_pb2.Topology.FromString((tmp_path / "made.defn").read_bytes())
    for made in (by_class, submitted, builder.build()):
        assert {part.comp.name for part in made.spouts} == {"words", "extra"}
        assert {"given", "added"} <= {pair.key for pair in made.topology_config.kvs}
    # Tasks that load the file do not submit again.
    (tmp_path / "made.defn").unlink()
    with topology_module.submissions_ignored():
        cls.write()
        builder.build_and_submit()
    assert not (tmp_path / "made.defn").exists()


def test_windows_are_apaches() -> None:
    window = Window(start_time=1, end_time=2.5)
    keyed = KeyedWindow(key="a", window=window)
    assert repr(window) == "Window {start_time: 1, end_time: 2.5}"
    assert repr(keyed) == str(keyed) == "KeyedWindow {key: a, window: Window {start_time: 1, end_time: 2.5}}"
    assert (window._start_time, window._end_time, keyed._key, keyed._window) == (1, 2.5, "a", window)
    assert (window.start, window.end, keyed.key, keyed.window) == (1, 2.5, "a", window)
    assert {keyed: 1} == {KeyedWindow("a", Window(1, 2.5)): 1} and keyed != KeyedWindow("b", window)
    assert pickle.loads(pickle.dumps(keyed)) == keyed
    assert stable_hash(keyed) == stable_hash(KeyedWindow("a", Window(1, 2.5))) != stable_hash(KeyedWindow("b", window))
    with pytest.raises(RuntimeError, match="Window"):
        KeyedWindow("a", (1, 2))  # type: ignore[arg-type]
    with pytest.raises(AttributeError):
        window.start = 3  # type: ignore[misc]


def test_resources_say_what_they_ask() -> None:
    assert repr(Resources().set_cpu(2).set_ram_in_mb(1)) == "Resource {cpu: 2.000000, ram: 1048576}"
    assert (Resources().get_cpu(), Resources().get_ram()) == (0.0, 0)


def test_a_streamlet_of_the_users_own_is_part_of_a_computation() -> None:
    """As connectors were written for Apache: the stage finds its name and adds itself."""
    from heronpy.streamlet import Builder
    from heronpy.streamlet.impl.streamletspoutbase import StreamletSpoutBase

    class OwnSpout(Spout, StreamletSpoutBase):
        pass

    class OwnStreamlet(Streamlet):
        def _build_this(self, builder: Any, stage_names: Any) -> bool:
            if not self.get_name():
                self.set_name(self._default_stage_name_calculator("own", stage_names))
            if self.get_name() in stage_names:
                raise RuntimeError("Duplicate Names")
            stage_names.add(self.get_name())
            builder.add_spout(self.get_name(), OwnSpout, par=self.get_num_partitions(), config={"a": 1})
            return True

    builder = Builder()
    source = OwnStreamlet().set_num_partitions(2)
    builder._sources.append(source)
    doubled = source.map(lambda n: n * 2)
    built = builder.build(TopologyBuilder("own"))
    assert doubled._calculate_inputs() == {GlobalStreamId("own-1", "output"): Grouping.SHUFFLE}  # type: ignore[attr-defined]
    assert {part.comp.name for part in built.build().spouts} == {"own-1"}


def test_operators_are_made_by_apaches_argument_names() -> None:
    from heronpy.streamlet.impl.consumebolt import ConsumeBolt, ConsumeStreamlet
    from heronpy.streamlet.impl.filterbolt import FilterBolt, FilterStreamlet
    from heronpy.streamlet.impl.flatmapbolt import FlatMapBolt, FlatMapStreamlet
    from heronpy.streamlet.impl.generatorspout import GeneratorSpout
    from heronpy.streamlet.impl.joinbolt import JoinBolt
    from heronpy.streamlet.impl.mapbolt import MapBolt, MapStreamlet
    from heronpy.streamlet.impl.supplierspout import SupplierSpout, SupplierStreamlet
    from heronpy.streamlet.impl.transformbolt import TransformBolt

    source = SupplierStreamlet(supplier_function=int)
    MapStreamlet(map_function=int, parent=source)
    FlatMapStreamlet(flatmap_function=int, parent=source)
    FilterStreamlet(filter_function=int, parent=source)
    ConsumeStreamlet(consume_function=int, parent=source)
    assert {MapBolt.FUNCTION, FlatMapBolt.FUNCTION, FilterBolt.FUNCTION, SupplierSpout.FUNCTION} == {"function"}
    assert (ConsumeBolt.CONSUMEFUNCTION, GeneratorSpout.GENERATOR) == ("consumefunction", "generator")
    assert (TransformBolt.OPERATOR, JoinBolt.JOINFUNCTION) == ("operator", "__join_function__")
    delegate = SimpleNamespace(logger=None)
    for bolt, key in ((MapBolt(delegate), "function"), (ConsumeBolt(delegate), "consumefunction")):
        bolt.initialize({key: len}, None)
        assert bolt.function is len
        with pytest.raises(RuntimeError, match=f"needs '{key}'"):
            bolt.initialize({}, None)


def test_a_join_emits_pairs_and_a_context_emits_through_its_component() -> None:
    from heronpy.streamlet.impl.contextimpl import ContextImpl
    from heronpy.streamlet.impl.joinbolt import JoinBolt

    emitted: list[Any] = []
    delegate = SimpleNamespace(logger=None, emit=lambda values, stream, **more: emitted.append((values[0], stream)))
    bolt = JoinBolt(delegate)
    bolt.function = lambda left, right: (left, right)
    window = SimpleNamespace(start=1, end=2)
    bolt.inner_join_and_emit("k", ([1, 2], [3]), window)
    bolt.outer_left_join_and_emit("k", ([1], []), window)
    bolt.outer_right_join_and_emit("k", ([], [3]), window)
    bolt.emit_join("k", (5, 6), window)
    assert [values[1] for values, _ in emitted] == [(1, 3), (2, 3), (1, None), (None, 3), (5, 6)]
    assert {(values[0], stream) for values, stream in emitted} == {(KeyedWindow("k", Window(1, 2)), "output")}
    emitted.clear()
    ContextImpl(None, None, emitter=bolt).emit(7)
    ContextImpl(None, None, lambda values: emitted.append(values)).emit(8)
    assert emitted == [(7, "output"), 8]
