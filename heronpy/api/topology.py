"""Topologies: classes that connect components, and pass the topology to the `heron` command.

A subclass of `Topology` whose class attributes are component specs, and a `TopologyBuilder`, create the
same message. Everything is checked when the class is created or the topology is built. The environment
variable HERON_OPTIONS is needed only to write the definition file, so user code can be imported without it.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from heronpy.api import api_constants
from heronpy.api.bolt.base_bolt import BaseBolt
from heronpy.api.component.component_spec import GlobalStreamId, HeronComponentSpec, Inputs, check_name
from heronpy.api.config_values import encode_config, sanitize_config
from heronpy.api.errors import SpecValueError
from heronpy.api.spout.base_spout import BaseSpout
from heronpy.api.stream import AnyGrouping, FieldGrouping, Grouping, Stream
from heronpy.common.ids import NAME_BYTES_MAX, short_hash
from heronpy.proto import components_of, topology_pb2

DEFAULT_TOPOLOGY_CONFIG: dict[str, str] = {
    api_constants.TOPOLOGY_DEBUG: "false",
    api_constants.TOPOLOGY_STMGRS: "1",
    api_constants.TOPOLOGY_MESSAGE_TIMEOUT_SECS: "30",
    api_constants.TOPOLOGY_COMPONENT_PARALLELISM: "1",
    api_constants.TOPOLOGY_MAX_SPOUT_PENDING: "100",
    api_constants.TOPOLOGY_RELIABILITY_MODE: api_constants.TopologyReliabilityMode.ATMOST_ONCE,
    api_constants.TOPOLOGY_ENABLE_MESSAGE_TIMEOUTS: "true",
}

_OPTIONS_VARIABLE = "HERON_OPTIONS"
_TMP_DIRECTORY = "cmdline.topologydefn.tmpdirectory"
_INITIAL_STATE = "cmdline.topology.initial.state"
_NAME = "cmdline.topology.name"


def heron_options() -> dict[str, str]:
    """Return the options in the variable HERON_OPTIONS: pairs `k=v`, separated by commas, with %%%% for a space.

    Returns an empty dict if the variable is not set. Raises ValueError if its value is malformed.
    """
    options: dict[str, str] = {}
    raw = os.environ.get(_OPTIONS_VARIABLE)
    if not raw:
        return options
    for part in raw.replace("%%%%", " ").split(","):
        key, separator, value = part.partition("=")
        if not separator:
            raise ValueError(f"invalid {_OPTIONS_VARIABLE} part {part!r}; it must be key=value")
        options[key] = value
    return options


def validate_components(specs: list[HeronComponentSpec]) -> None:
    """Check each component, and check that all inputs exist. Raises ValueError or TypeError."""
    by_name: dict[str, HeronComponentSpec] = {}
    for spec in specs:
        if spec.name in by_name:
            raise ValueError(f"duplicate component name: {spec.name}; give each component its own name")
        spec.validate()
        by_name[str(spec.name)] = spec
    if not any(spec.is_spout for spec in specs):
        raise ValueError("a Topology requires at least one Spout")
    for spec in specs:
        for source, grouping in spec.input_streams().items():
            _check_input(spec, source, grouping, by_name)


def _check_input(
    spec: HeronComponentSpec, source: GlobalStreamId, grouping: AnyGrouping, by_name: dict[str, HeronComponentSpec]
) -> None:
    producer = by_name.get(source.component_id)
    if producer is None:
        raise ValueError(
            f"bolt {spec.name} takes input from {source.component_id!r}, which is not "
            f"a component of this topology; it has {', '.join(sorted(by_name))}"
        )
    streams = producer.output_streams()
    stream = streams.get(source.stream_id)
    if stream is None:
        raise ValueError(
            f"bolt {spec.name} takes input from stream {source.stream_id!r} of "
            f"{producer.name}, which declares {', '.join(sorted(streams)) or 'none'}; "
            "add the stream to its outputs"
        )
    if isinstance(grouping, FieldGrouping):
        for field in grouping.fields:
            if field not in stream.fields:
                raise ValueError(
                    f"bolt {spec.name} groups {source} by field {field!r}, but the "
                    f"fields of that stream are {', '.join(stream.fields) or 'none'}"
                )
    if (grouping == Grouping.DIRECT) != stream.direct:
        _refuse_direct(spec, source, stream)


def _refuse_direct(spec: HeronComponentSpec, source: GlobalStreamId, stream: Stream) -> NoReturn:
    if stream.direct:
        raise ValueError(f"bolt {spec.name} must use Grouping.DIRECT for the direct stream {source}")
    raise ValueError(
        f"bolt {spec.name} takes {source} with Grouping.DIRECT, but the stream is not "
        f"direct; declare the stream as Stream({stream.fields!r}, {stream.stream_id!r}, "
        "direct=True)"
    )


_submissions_ignored = False


def are_submissions_ignored() -> bool:
    """Return whether a task is currently loading the file that described the topology."""
    return _submissions_ignored


@contextlib.contextmanager
def submissions_ignored() -> Iterator[None]:
    """Make submitting a no-op while a task loads the file that described the topology.

    This lets a file work without an `if __name__ == "__main__"` block.
    """
    global _submissions_ignored
    before, _submissions_ignored = _submissions_ignored, True
    try:
        yield
    finally:
        _submissions_ignored = before


def write_definition(topology: topology_pb2.Topology, directory: str) -> str:
    """Write `<directory>/<name>.defn`, with a hash in place of a name that is too long, and return its path."""
    for component in components_of(topology).values():
        if "<locals>" in component.comp.class_name:
            raise ValueError(
                f"class {component.comp.class_name} of component "
                f"{component.comp.name} is defined inside a function, where no task "
                "can find it; move it to the top level of its module"
            )
    # A name that is too long is refused when the file is read, so writing must not fail.
    too_long = len(topology.name.encode(errors="replace")) > NAME_BYTES_MAX
    path = os.path.join(directory, f"{short_hash(topology.name) if too_long else topology.name}.defn")
    with open(path, "wb") as file:
        file.write(topology.SerializeToString())
    return path


def _definition_directory(options: dict[str, str], name: str) -> str:
    directory = options.get(_TMP_DIRECTORY)
    if directory is None:
        raise RuntimeError(
            f"topology {name} can only be submitted by the heron command: run `heron submit local <file>.py - {name}`"
        )
    return directory


class TopologyType(type):
    """The metaclass that turns the specs among a class's attributes into a topology."""

    DEFAULT_TOPOLOGY_CONFIG = DEFAULT_TOPOLOGY_CONFIG

    _heron_specs: list[HeronComponentSpec]
    _topo_config: dict[str, Any]
    _own_config: dict[str, Any]
    _built: topology_pb2.Topology | None

    def __new__(mcs, classname: str, bases: tuple[type, ...], class_dict: dict[str, Any]) -> TopologyType:
        specs: dict[str, HeronComponentSpec] = {}
        config: dict[str, Any] = {}
        for base in reversed(bases):
            specs.update({str(spec.name): spec for spec in getattr(base, "_heron_specs", ())})
            config.update(getattr(base, "_own_config", {}))
        specs.update(mcs.class_dict_to_specs(class_dict))
        config.update(_own_config(class_dict, classname))
        is_base = not any(isinstance(base, TopologyType) for base in bases)
        if not is_base:
            validate_components(list(specs.values()))
        class_dict["_heron_specs"] = list(specs.values())
        class_dict["_own_config"] = config
        class_dict["_topo_config"] = {**mcs.DEFAULT_TOPOLOGY_CONFIG, **config}
        class_dict["_built"] = None
        return super().__new__(mcs, classname, bases, class_dict)

    @classmethod
    def class_dict_to_specs(mcs, class_dict: dict[str, Any]) -> dict[str, HeronComponentSpec]:
        """Return the component specs in `class_dict` by component name; an unnamed spec gets its attribute's name."""
        specs: dict[str, HeronComponentSpec] = {}
        for attribute, spec in class_dict.items():
            if not isinstance(spec, HeronComponentSpec):
                continue
            if attribute == "config":
                raise TypeError(
                    "the attribute 'config' of a topology is its configuration and "
                    "must be a dict, not a component; rename the component"
                )
            if spec.name is None:
                spec.name = attribute
            if spec.name in specs:
                raise ValueError(f"duplicate component name: {spec.name}; give each component its own name")
            specs[spec.name] = spec
        return specs

    @classmethod
    def class_dict_to_topo_config(mcs, class_dict: dict[str, Any]) -> dict[str, Any]:
        """Return the default configuration, overridden by the attribute `config`; see `_sanitize_config`."""
        return {**mcs.DEFAULT_TOPOLOGY_CONFIG, **mcs._sanitize_config(class_dict.get("config", {}))}

    @staticmethod
    def _sanitize_config(custom_config: Any) -> dict[str, Any]:
        """Return a copy of the configuration; values that are sent as strings are converted to strings."""
        return sanitize_config(custom_config, "the topology")

    @classmethod
    def add_spout_specs(mcs, spec: HeronComponentSpec, spout_specs: dict[str, Any]) -> None:
        """Add a spout's message. Raises ValueError if the spout has no output."""
        spec.check_streams()
        spout_specs[str(spec.name)] = spec.get_protobuf()

    @classmethod
    def add_bolt_specs(mcs, spec: HeronComponentSpec, bolt_specs: dict[str, Any]) -> None:
        """Add a bolt's message. Raises ValueError if the bolt has no input."""
        spec.check_streams()
        bolt_specs[str(spec.name)] = spec.get_protobuf()

    @classmethod
    def get_topology_config_protobuf(mcs, class_dict: dict[str, Any]) -> topology_pb2.Config:
        """Return the configuration in the entry `_topo_config` as a message."""
        return encode_config(class_dict["_topo_config"])

    @classmethod
    def add_bolts_and_spouts(mcs, topology: topology_pb2.Topology, class_dict: dict[str, Any]) -> None:
        """Copy the messages of the entries `_protobuf_spouts` and `_protobuf_bolts` into a topology message."""
        for spout in class_dict["_protobuf_spouts"].values():
            topology.spouts.add().CopyFrom(spout)
        for bolt in class_dict["_protobuf_bolts"].values():
            topology.bolts.add().CopyFrom(bolt)

    @classmethod
    def init_topology(mcs, classname: str, class_dict: dict[str, Any]) -> None:
        """Build a topology's message, with a new id, from the component messages and configuration in `class_dict`.

        The message and the options of the heron command (name, initial state, folder) become entries of `class_dict`.
        """
        if classname == "Topology" and not class_dict.get("_protobuf_spouts"):
            return  # the base class
        options = heron_options()
        name = options.get(_NAME, classname)
        check_name("Topology name", name)
        initial_state = options.get(_INITIAL_STATE, "RUNNING")
        if initial_state not in topology_pb2.TopologyState.keys():
            raise ValueError(f"initial state {initial_state!r} of topology {name} is unknown; use RUNNING or PAUSED")
        topology = topology_pb2.Topology()
        topology.id = name + str(uuid.uuid4())
        topology.name = name
        topology.state = topology_pb2.PAUSED if initial_state == "PAUSED" else topology_pb2.RUNNING
        topology.topology_config.CopyFrom(mcs.get_topology_config_protobuf(class_dict))
        mcs.add_bolts_and_spouts(topology, class_dict)
        class_dict.update(
            topology_name=name,
            topology_id=topology.id,
            protobuf_topology=topology,
            topologydefn_tmpdir=options.get(_TMP_DIRECTORY),
            heron_runtime_options=options,
        )

    @classmethod
    def message_of(
        mcs, classname: str, specs: list[HeronComponentSpec], config: dict[str, Any]
    ) -> topology_pb2.Topology:
        """Return the message of a topology with these components, this full configuration and a new id."""
        validate_components(specs)
        spouts: dict[str, Any] = {}
        bolts: dict[str, Any] = {}
        for spec in specs:
            if spec.is_spout:
                mcs.add_spout_specs(spec, spouts)
            else:
                mcs.add_bolt_specs(spec, bolts)
        entries = {"_topo_config": config, "_protobuf_spouts": spouts, "_protobuf_bolts": bolts}
        mcs.init_topology(classname, entries)
        message: topology_pb2.Topology = entries["protobuf_topology"]  # type: ignore[assignment]
        return message

    @staticmethod
    def get_heron_options_from_env() -> dict[str, str]:
        """The options that the heron command passed. Raises RuntimeError if another program started this process."""
        if os.environ.get(_OPTIONS_VARIABLE) is None:
            raise RuntimeError(
                f"{_OPTIONS_VARIABLE} environment variable not found; run `heron submit local <file>.py`"
            )
        return heron_options()

    @property
    def topology_name(cls) -> str:
        """The topology name given on the command line, or else the name of the class."""
        return heron_options().get(_NAME, cls.__name__)

    @property
    def topology_id(cls) -> str:
        """The topology's name and a uuid; constant for the lifetime of the class."""
        return str(cls.protobuf_topology.id)

    @property
    def protobuf_topology(cls) -> topology_pb2.Topology:
        """The topology message. It is built on first use, and rebuilt when the name from the command line changes."""
        if cls._built is None or cls._built.name != cls.topology_name:
            cls._built = cls.to_proto()
        return cls._built

    @property
    def topologydefn_tmpdir(cls) -> str:
        """The folder into which `write` puts the definition file."""
        return _definition_directory(heron_options(), cls.__name__)

    @property
    def heron_runtime_options(cls) -> dict[str, str]:
        """All options that the heron command passed."""
        return heron_options()

    @property
    def _protobuf_spouts(cls) -> dict[str, topology_pb2.Spout]:
        return {spout.comp.name: spout for spout in cls.protobuf_topology.spouts}

    @property
    def _protobuf_bolts(cls) -> dict[str, topology_pb2.Bolt]:
        return {bolt.comp.name: bolt for bolt in cls.protobuf_topology.bolts}

    def to_proto(cls, name: str | None = None) -> topology_pb2.Topology:
        """Return the message of this topology, with a new id."""
        if not cls._heron_specs:
            raise ValueError("the base Topology class has no components; write a subclass")
        message = type(cls).message_of(cls.__name__, cls._heron_specs, cls._topo_config)
        if name is not None:
            check_name("Topology name", name)
            message.id = name + message.id.removeprefix(message.name)
            message.name = name
        return message


def _own_config(class_dict: dict[str, Any], classname: str) -> dict[str, Any]:
    """Return the attribute `config`; values that are sent as strings are converted to strings."""
    return sanitize_config(class_dict.get("config", {}), f"topology {classname}")


class Topology(metaclass=TopologyType):
    """A topology as a class: attributes that `spec()` has created become the components.

    For example:

        class WordCount(Topology):
            config = {"topology.stmgrs": 2}
            words = WordSpout.spec(par=1)
            counts = CountBolt.spec(par=2, inputs={words: Grouping.fields("word")})
    """

    @classmethod
    def write(cls) -> None:
        """Write the definition file for the heron command."""
        if not cls._heron_specs:
            raise ValueError("the base Topology class cannot be written to a file; write a subclass")
        if _submissions_ignored:
            return
        write_definition(cls.protobuf_topology, cls.topologydefn_tmpdir)


class TopologyBuilder:
    """Builds a topology step by step.

    For example:

        builder = TopologyBuilder("word-count")
        words = builder.add_spout("words", WordSpout, 1)
        builder.add_bolt("counts", CountBolt, 2, inputs={words: Grouping.fields("word")})
        builder.build_and_submit()
    """

    def __init__(self, name: str) -> None:
        check_name("Topology name", name)
        if name == "Topology":
            raise SpecValueError("a topology cannot be named 'Topology'; choose another name")
        self.topology_name = name
        self._specs: dict[str, HeronComponentSpec] = {}
        self._topology_config: dict[str, Any] = {}

    def add_spec(self, *specs: HeronComponentSpec) -> None:
        """Add components by their specs."""
        for spec in specs:
            if not isinstance(spec, HeronComponentSpec):
                raise TypeError(f"argument to add_spec must be a HeronComponentSpec, given: {spec!r}")
            if spec.name is None:
                raise ValueError("TopologyBuilder cannot add a spec without a name; pass name= to spec()")
            if spec.name == "config":
                raise ValueError("'config' is a reserved name; rename the component")
            if spec.name in self._specs:
                raise ValueError(f"duplicate component name: {spec.name}; give each component its own name")
            self._specs[spec.name] = spec

    def add_spout(
        self,
        name: str,
        spout_cls: type[BaseSpout],
        par: int,
        config: dict[str, Any] | None = None,
        optional_outputs: Sequence[str | Stream] | None = None,
    ) -> HeronComponentSpec:
        """Add a spout and return its spec, for use in the inputs of bolts."""
        spec = spout_cls.spec(name=name, par=par, config=config, optional_outputs=optional_outputs)
        self.add_spec(spec)
        return spec

    def add_bolt(
        self,
        name: str,
        bolt_cls: type[BaseBolt],
        par: int,
        inputs: Inputs,
        config: dict[str, Any] | None = None,
        optional_outputs: Sequence[str | Stream] | None = None,
    ) -> HeronComponentSpec:
        """Add a bolt and return its spec, for use in the inputs of other bolts."""
        spec = bolt_cls.spec(name=name, par=par, inputs=inputs, config=config, optional_outputs=optional_outputs)
        self.add_spec(spec)
        return spec

    def set_config(self, config: dict[str, Any]) -> None:
        """Set the topology's configuration."""
        if not isinstance(config, dict):
            raise TypeError(f"argument to set_config must be a dict, given: {config!r}")
        self._topology_config = config

    def _construct_topo_class_dict(self) -> dict[str, Any]:
        """Return the attributes of a `Topology` subclass for this topology; a subclass of the builder may change them.

        `TopologyType(name, (Topology,), attributes)` creates the class.
        """
        return {**self._specs, "config": self._topology_config}

    def build(self) -> topology_pb2.Topology:
        """Return the message of the topology, with a new id."""
        attributes = self._construct_topo_class_dict()
        specs = list(TopologyType.class_dict_to_specs(attributes).values())
        return TopologyType.message_of(self.topology_name, specs, TopologyType.class_dict_to_topo_config(attributes))

    def build_and_submit(self) -> None:
        """Build the topology and write its definition file for the heron command."""
        if _submissions_ignored:
            return
        topology = self.build()
        write_definition(topology, _definition_directory(heron_options(), topology.name))
