"""Topologies become messages, and wrong ones are refused when they are defined."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.api.api_constants import TOPOLOGY_STMGRS
from heronpy.api.bolt.bolt import Bolt
from heronpy.api.component.component_spec import GlobalStreamId, HeronComponentSpec
from heronpy.api.config_values import decode_config, encode_config
from heronpy.api.custom_grouping import ICustomGrouping
from heronpy.api.spout.spout import Spout
from heronpy.api.stream import Grouping, LocalOrShuffle, Stream
from heronpy.api.topology import Topology, TopologyBuilder, TopologyType
from heronpy.common.errors import ConfigError
from heronpy.proto import topology_pb2


class Words(Spout):
    outputs = ["word", Stream(["n"], "numbers"), Stream(["x"], "straight", direct=True)]


class Count(Bolt):
    outputs = ("word", "count")


class Odd(ICustomGrouping):
    def prepare(self, context: Any, component: str, stream: str, target_tasks: list[int]) -> None:
        self.tasks = target_tasks

    def choose_tasks(self, values: Any) -> list[int]:
        return self.tasks[1::2]


@pytest.fixture
def options(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    def set_options(**extra: str) -> Path:
        values = {"cmdline.topologydefn.tmpdirectory": str(tmp_path)}
        values.update({f"cmdline.topology.{k}": v for k, v in extra.items()})
        monkeypatch.setenv("HERON_OPTIONS", ",".join(f"{k}={v}" for k, v in values.items()))
        return tmp_path

    monkeypatch.delenv("HERON_OPTIONS", raising=False)
    return set_options


def read(path: Path) -> topology_pb2.Topology:
    return topology_pb2.Topology.FromString(path.read_bytes())


def test_class_style(options: Any) -> None:
    class WordCount(Topology):
        config = {TOPOLOGY_STMGRS: 2, "flag": True, "data": {"a": 1}}
        words = Words.spec(par=2)
        count = Count.spec("counter", inputs={words: Grouping.fields("word"), words["numbers"]: Grouping.ALL}, par=3)

    proto = WordCount.to_proto("other")
    assert proto.name == "other" and proto.id.startswith("other") and len(proto.id) == 5 + 36
    assert proto.state == topology_pb2.RUNNING
    assert [s.comp.name for s in proto.spouts] == ["words"]
    assert {o.stream.id: [k.key for k in o.schema.keys] for o in proto.spouts[0].outputs} == {
        "default": ["word"],
        "numbers": ["n"],
        "straight": ["x"],
    }
    assert [o.direct for o in proto.spouts[0].outputs] == [False, False, True]
    bolt = proto.bolts[0]
    assert bolt.comp.name == "counter"
    assert bolt.comp.class_name == f"{__name__}.Count"
    assert [(i.stream.component_name, i.stream.id, i.gtype) for i in bolt.inputs] == [
        ("words", "default", topology_pb2.FIELDS),
        ("words", "numbers", topology_pb2.ALL),
    ]
    assert decode_config(bolt.comp.config) == {"topology.component.parallelism": 3}
    config = decode_config(proto.topology_config)
    assert config[TOPOLOGY_STMGRS] == 2 and config["flag"] is True and config["data"] == {"a": 1}
    assert config["topology.reliability.mode"] == "ATMOST_ONCE"
    assert WordCount.topology_name == "WordCount"
    assert WordCount.topology_id == WordCount.protobuf_topology.id


def test_subclass_inherits_components(options: Any) -> None:
    class One(Topology):
        config = {"a": 1}
        words = Words.spec()

    class Two(One):
        config = {"b": 2}
        count = Count.spec(inputs=[One.words])

    proto = Two.to_proto()
    assert len(proto.spouts) == len(proto.bolts) == 1
    config = decode_config(proto.topology_config)
    assert (config["a"], config["b"]) == (1, 2)


def test_write_needs_the_heron_command(options: Any) -> None:
    class NeverRun(Topology):
        words = Words.spec()

    with pytest.raises(RuntimeError, match="run `heron submit local"):
        NeverRun.write()
    with pytest.raises(RuntimeError, match="run `heron submit local"):
        builder().build_and_submit()
    with pytest.raises(ValueError, match="base Topology"):
        Topology.write()
    with pytest.raises(RuntimeError, match="HERON_OPTIONS"):
        TopologyType.get_heron_options_from_env()


def test_write_with_options(options: Any) -> None:
    class Named(Topology):
        words = Words.spec()

    directory = options()
    Named.write()
    assert read(directory / "Named.defn").name == "Named"
    options(name="chosen", **{"initial.state": "PAUSED"})
    Named.write()
    proto = read(directory / "chosen.defn")
    assert proto.name == "chosen" and proto.state == topology_pb2.PAUSED
    assert Named.topology_name == "chosen"


def test_options_encode_spaces(options: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERON_OPTIONS", "a=b%%%%c,cmdline.topology.name=x=y")
    assert TopologyType.get_heron_options_from_env() == {"a": "b c", "cmdline.topology.name": "x=y"}
    monkeypatch.setenv("HERON_OPTIONS", "nonsense")
    with pytest.raises(ValueError, match="nonsense"):
        builder().build()


def builder(name: str = "t") -> TopologyBuilder:
    made = TopologyBuilder(name)
    words = made.add_spout("words", Words, 1)
    made.add_bolt(
        "count",
        Count,
        2,
        inputs={words: Grouping.SHUFFLE},
        config={"k": 1.5},
        optional_outputs=[Stream(["late"], "late")],
    )
    return made


def test_builder_style(options: Any) -> None:
    directory = options()
    made = builder("word-count")
    made.set_config({"x": "y"})
    made.build_and_submit()
    proto = read(directory / "word-count.defn")
    assert [o.stream.id for o in proto.bolts[0].outputs] == ["default", "late"]
    assert decode_config(proto.bolts[0].comp.config)["k"] == 1.5
    assert decode_config(proto.topology_config)["x"] == "y"


def test_component_may_be_called_like_a_method(options: Any) -> None:
    made = TopologyBuilder("t")
    made.add_spout("write", Words, 1)
    assert made.build().spouts[0].comp.name == "write"


def test_builder_refuses(options: Any) -> None:
    made = builder()
    with pytest.raises(ValueError, match="duplicate"):
        made.add_spout("words", Words, 1)
    with pytest.raises(ValueError, match="without a name"):
        made.add_spec(Words.spec())
    with pytest.raises(ValueError, match="reserved"):
        made.add_spec(Words.spec("config"))
    with pytest.raises(TypeError):
        made.add_spec("words")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="dict"):
        made.set_config([])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at least one Spout"):
        TopologyBuilder("empty").build()
    for name in ("Topology", "a/b", "", ".."):
        with pytest.raises(ValueError):
            TopologyBuilder(name)


class Silent(Spout):
    pass


def define(**attributes: Any) -> TopologyType:
    return TopologyType("Wrong", (Topology,), attributes)


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: define(), ValueError, "at least one Spout"),
        (lambda: define(a=Silent.spec()), ValueError, "at least one output"),
        (lambda: define(a=Words.spec(), b=Count.spec()), ValueError, "at least one input"),
        (lambda: define(a=Words.spec("same"), b=Words.spec("same")), ValueError, "duplicate"),
        (lambda: define(a=Words.spec(), config=[1]), TypeError, "must be a dict"),
        (lambda: define(a=Words.spec(), config={1: 2}), TypeError, "keys"),
        (lambda: define(a=Words.spec(config={1: 2})), TypeError, "keys"),
        (lambda: define(a=Words.spec(config="x")), TypeError, "must be a dict"),  # type: ignore[arg-type]
        (lambda: define(a=Words.spec(), config=Words.spec()), TypeError, "rename"),
        (lambda: Words.spec(par=0), ValueError, "at least 1"),
        (lambda: Words.spec(par=-1), ValueError, "at least 1"),
        (lambda: Words.spec(par="2"), TypeError, "int"),  # type: ignore[arg-type]
        (lambda: Words.spec(par=True), TypeError, "int"),
        (lambda: Words.spec(name=3), TypeError, "string"),  # type: ignore[arg-type]
        (lambda: Words.spec(optional_outputs=[3]), TypeError, "field names"),  # type: ignore[list-item]
        (lambda: Words.spec(optional_outputs="ab"), TypeError, "list"),
        (lambda: Words.spec("w")["nope"], ValueError, "no output stream 'nope'"),
        (lambda: inputs({GlobalStreamId("ghost", "default"): Grouping.ALL}), ValueError, "'ghost'"),
        (lambda: inputs({GlobalStreamId("a", "ghost"): Grouping.ALL}), ValueError, "'ghost'"),
        (lambda: inputs([GlobalStreamId("a", "straight")]), ValueError, "Grouping.DIRECT"),
        (lambda: inputs({GlobalStreamId("a", "default"): Grouping.DIRECT}), ValueError, "direct=True"),
        (lambda: inputs({GlobalStreamId("a", "default"): Grouping.fields("z")}), ValueError, "'z'"),
        (lambda: inputs({GlobalStreamId("a", "default"): "shuffle"}), ValueError, "not a grouping"),
        (lambda: inputs("a"), TypeError, "inputs"),
        (lambda: inputs(["a"]), ValueError, "cannot be an input"),
        (lambda: Stream(name=None), TypeError, "name"),  # type: ignore[arg-type]
        (lambda: Stream(fields="ab"), TypeError, "fields"),
        (lambda: Stream(fields=[1]), TypeError, "strings"),  # type: ignore[list-item]
        (lambda: Stream(direct=1), TypeError, "direct"),  # type: ignore[arg-type]
        (lambda: Grouping.fields(), ValueError, "at least one"),
        (lambda: Grouping.fields(1), TypeError, "names"),
        (lambda: Grouping.custom(None), TypeError, "ICustomGrouping"),  # type: ignore[arg-type]
        (lambda: Grouping.custom_serialized("x"), TypeError, "bytes"),  # type: ignore[arg-type]
        (lambda: Grouping.custom_serialized(b"x"), NotImplementedError, "Java"),
        (lambda: Grouping.custom_object("J", []), NotImplementedError, "Java"),
        (lambda: GlobalStreamId(1, "x"), TypeError, "componentId"),  # type: ignore[arg-type]
    ],
)
def test_refused_when_defined(make: Any, error: type[Exception], text: str, options: Any) -> None:
    with pytest.raises(error, match=text):
        make()


def inputs(given: Any) -> TopologyType:
    return define(a=Words.spec(), b=Count.spec(inputs=given))


def test_groupings_in_the_message(options: Any) -> None:
    words = Words.spec("words")
    kinds = {
        "ls": Grouping.LOCAL_OR_SHUFFLE,
        "none": Grouping.NONE,
        "low": Grouping.GLOBAL,
        "custom": Grouping.custom(Odd()),
        "path": Grouping.custom("pkg.mod.Cls"),
        "fields": Grouping.fields(["word"]),
    }
    made = TopologyBuilder("t")
    made.add_spec(words)
    for name, grouping in kinds.items():
        assert Grouping.is_grouping_sane(grouping)
        made.add_bolt(name, Count, 1, inputs={words: grouping})
    made.add_bolt("direct", Count, 1, inputs={words["straight"]: Grouping.DIRECT})
    by_name = {b.comp.name: b.inputs[0] for b in made.build().bolts}
    assert by_name["ls"].gtype == topology_pb2.SHUFFLE and by_name["ls"].prefer_local
    assert not by_name["none"].prefer_local
    assert by_name["none"].gtype == topology_pb2.NONE
    assert by_name["low"].gtype == topology_pb2.LOWEST
    assert by_name["direct"].gtype == topology_pb2.DIRECT
    assert by_name["custom"].type == topology_pb2.PYTHON_OBJECT
    assert isinstance(pickle.loads(by_name["custom"].custom_grouping_object), Odd)
    assert pickle.loads(by_name["path"].custom_grouping_object) == "pkg.mod.Cls"


def test_local_or_shuffle_equals_shuffle_and_survives_pickling() -> None:
    assert Grouping.LOCAL_OR_SHUFFLE == Grouping.SHUFFLE
    assert {Grouping.SHUFFLE: 1}[Grouping.LOCAL_OR_SHUFFLE] == 1
    again = pickle.loads(pickle.dumps(Grouping.LOCAL_OR_SHUFFLE))
    assert isinstance(again, LocalOrShuffle) and again == Grouping.SHUFFLE
    assert not Grouping.is_grouping_sane(True)
    assert not Grouping.is_grouping_sane(topology_pb2.FIELDS)


def test_streams_are_not_shared_between_specs() -> None:
    class Shared(Spout):
        outputs = [Stream(["a"]), "b"]

    for _ in range(2):
        assert Shared.spec("s").output_streams()["default"].fields == ["a", "b"]
    assert Shared.outputs[0].fields == ["a"]  # type: ignore[union-attr]


def test_stream_of_a_component_without_name_yet(options: Any) -> None:
    unnamed = Words.spec()
    reference = unnamed["numbers"]
    assert unnamed.uuid in reference.component_id
    count = Count.spec(inputs={reference: Grouping.SHUFFLE})
    proto = define(first=unnamed, second=count).to_proto()
    assert proto.bolts[0].inputs[0].stream.component_name == "first"


def test_classes_in_functions_cannot_be_submitted(options: Any) -> None:
    class Inner(Spout):
        outputs = ["x"]

    options()
    made = TopologyBuilder("t")
    made.add_spout("inner", Inner, 1)
    made.build()
    with pytest.raises(ValueError, match="inside a function"):
        made.build_and_submit()


plain = st.one_of(st.booleans(), st.integers(), st.floats(allow_nan=False))


@given(st.dictionaries(st.text(max_size=5), plain))
def test_plain_values_survive(config: dict[str, Any]) -> None:
    again = decode_config(encode_config(config))
    assert again == config
    assert [type(v) for v in again.values()] == [type(v) for v in config.values()]


@given(
    st.dictionaries(
        st.text(max_size=5), st.one_of(st.none(), st.binary(max_size=5), st.lists(plain, max_size=3), st.tuples(plain))
    )
)
def test_other_values_are_pickled(config: dict[str, Any]) -> None:
    message = encode_config(config)
    assert decode_config(message) == config
    assert decode_config(message, unpickle=False) == {}


def test_auto_typing_follows_apache() -> None:
    config = {"a": "12", "b": "1.5", "c": "TRUE", "d": "text", "e": "", "f": False}
    assert decode_config(encode_config(config)) == {"a": 12, "b": 1.5, "c": True, "d": "text", "e": "", "f": False}
    assert [kv.value for kv in encode_config({"f": False, "n": 3}).kvs] == ["false", "3"]


def test_closures_travel_and_bad_values_are_named() -> None:
    three = 3
    config = decode_config(encode_config({"fn": lambda x: x + three}))
    assert config["fn"](1) == 4
    with pytest.raises(TypeError, match="'lock'"):
        import threading

        encode_config({"lock": threading.Lock()})
    message = topology_pb2.Config()
    message.kvs.add(key="bad", serialized_value=b"junk", type=topology_pb2.PYTHON_SERIALIZED_VALUE)
    with pytest.raises(ConfigError, match="'bad'"):
        decode_config(message)


def test_spec_of_a_class_path_given_by_hand(options: Any) -> None:
    spec = HeronComponentSpec("s", "pkg.Cls", True, 1, outputs=["x"])
    assert spec.get_protobuf().comp.class_name == "pkg.Cls"
    assert spec.get_out_streamids() == {"default"}
