"""Component specs: a spec describes one spout or bolt of a topology, before it becomes a protobuf message.

A spec may lack a name until its topology class is created; the attribute's name then becomes the component's name.
Until then, `GlobalStreamId` refers to the spec itself.
"""

from __future__ import annotations

import inspect
import uuid
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from heronpy.api.api_constants import TOPOLOGY_COMPONENT_PARALLELISM
from heronpy.api.config_values import encode_config, sanitize_config
from heronpy.api.errors import SpecTypeError, SpecValueError, UnnamedInputError
from heronpy.api.stream import AnyGrouping, CustomGrouping, FieldGrouping, Grouping, LocalOrShuffle, Stream
from heronpy.common.topology_keys import NO_OUTPUTS
from heronpy.proto import topology_pb2
from heronpy.wire.arrow_values import schema_to_bytes

MAIN_ALIAS = "__heron_main__"
"""The module name under which a task loads the user's main file; it stands for `__main__`."""

_PYTHON_CLASS_NAME = topology_pb2.PYTHON_CLASS_NAME
_PYTHON_OBJECT = topology_pb2.PYTHON_OBJECT
_OBJECT = topology_pb2.OBJECT

# Classes defined inside functions cannot be imported: only the process that created such a class can find it.
LOCAL_CLASSES: weakref.WeakValueDictionary[str, type] = weakref.WeakValueDictionary()


#: The inputs of a bolt: a grouping for each component spec or `spec["stream"]`, or a list of sources for SHUFFLE.
#: Mapping is invariant in the type of its keys, so each key type has its own entry here.
Inputs: TypeAlias = (
    "Mapping[HeronComponentSpec, AnyGrouping] | Mapping[GlobalStreamId, AnyGrouping]"
    " | Mapping[InputSource, AnyGrouping] | Sequence[InputSource]"
)


class InputSource:
    """A source of a bolt's tuples: a component, which means its default stream, or one stream of a component."""


class HeronComponentSpec(InputSource):
    """The description of one component in a topology. The `spec()` of a spout or bolt class creates it."""

    def __init__(
        self,
        name: str | None,
        python_class_path: str,
        is_spout: bool,
        par: int,
        inputs: Inputs | None = None,
        outputs: Sequence[str | Stream] | None = None,
        config: dict[str, Any] | None = None,
    ) -> None:
        self._sanitize_args(name, python_class_path, is_spout, par)
        self.name = name
        self.python_class_path = python_class_path
        self.is_spout = is_spout
        self.parallelism = par
        self.inputs = inputs
        self.outputs = outputs
        self.custom_config = config
        # True if the class overrides is_ready().
        self.asks_readiness = False
        # True if this is a bolt that processes several tuples concurrently.
        self.asynchronous = False
        # The facts about the component's class that are known without loading it; see traits_of.
        self.traits: Sequence[str] = ()
        self.uuid = str(uuid.uuid4())

    @staticmethod
    def _sanitize_args(name: Any, py_class_path: Any, is_spout: Any, par: Any) -> None:
        if name is not None:
            check_name("Component name", name)
        if not isinstance(py_class_path, str):
            raise SpecTypeError(f"class path of component {name!r} must be a string, given: {py_class_path!r}")
        if not isinstance(is_spout, bool):
            raise SpecTypeError(f"is_spout of component {name!r} must be True or False, given: {is_spout!r}")
        if not isinstance(par, int) or isinstance(par, bool):
            raise SpecTypeError(f"parallelism of {name or py_class_path} must be an int, given: {par!r}")
        if par <= 0:
            raise SpecValueError(f"parallelism of {name or py_class_path} must be at least 1, given: {par}")

    def __repr__(self) -> str:
        kind = "spout" if self.is_spout else "bolt"
        return f"<{kind} {self.name or self.uuid} {self.python_class_path} x{self.parallelism}>"

    def __getitem__(self, stream_id: str) -> GlobalStreamId:
        """Return this component's stream `stream_id`, for use as a key in another component's inputs."""
        known = self.get_out_streamids()
        if stream_id not in known:
            raise ValueError(
                f"{self._title()} has no output stream {stream_id!r}; it declares {', '.join(sorted(known)) or 'none'}"
            )
        return GlobalStreamId(componentId=self.name or self, streamId=stream_id)

    def get_out_streamids(self) -> set[str]:
        """Return the names of the declared output streams."""
        return set(self.output_streams())

    def output_streams(self) -> dict[str, Stream]:
        """Return the declared output streams by name; plain field names belong to the default stream."""
        if self.outputs is None:
            return {}
        if not isinstance(self.outputs, (list, tuple)):
            raise TypeError(f"outputs of {self._title()} must be a list or tuple, given: {self.outputs!r}")
        streams: dict[str, Stream] = {}
        default = Stream.DEFAULT_STREAM_ID
        for output in self.outputs:
            if isinstance(output, str):
                streams.setdefault(default, Stream()).fields.append(output)
            elif not isinstance(output, Stream):
                raise TypeError(f"outputs of {self._title()} must be field names or Streams, given: {output!r}")
            elif output.stream_id == default and default in streams:
                streams[default].fields.extend(output.fields)
                if output.schema is not None or streams[default].schema is not None:
                    raise TypeError(f"{self._title()} declares fields and a schema for stream {default!r}; drop one")
            else:
                # Copied, because the Stream may be a class attribute that several components share.
                streams[output.stream_id] = Stream(output.fields, output.stream_id, output.direct, output.schema)
        return streams

    def input_streams(self) -> dict[GlobalStreamId, AnyGrouping]:
        """Return a map from each input stream to its grouping."""
        if self.inputs is None:
            return {}
        groupings: Sequence[tuple[Any, AnyGrouping]]
        if isinstance(self.inputs, Mapping):
            groupings = list(self.inputs.items())
        elif isinstance(self.inputs, (list, tuple)):
            groupings = [(source, Grouping.SHUFFLE) for source in self.inputs]
        else:
            raise TypeError(f"inputs of {self._title()} must be a dict, list or None, given: {self.inputs!r}")
        return {self._input_stream(source): self._input_grouping(source, grouping) for source, grouping in groupings}

    def _input_stream(self, source: Any) -> GlobalStreamId:
        if isinstance(source, GlobalStreamId):
            return source
        if isinstance(source, HeronComponentSpec):
            if source.name is None:
                raise UnnamedInputError(
                    f"an input of {self._title()} is a component without a name; "
                    "add it to the topology or give its spec() a name"
                )
            return GlobalStreamId(source.name, Stream.DEFAULT_STREAM_ID)
        raise ValueError(f"{source!r} cannot be an input of {self._title()}; give a component spec or spec['stream']")

    def _input_grouping(self, source: Any, grouping: AnyGrouping) -> AnyGrouping:
        if not Grouping.is_grouping_sane(grouping):
            raise ValueError(
                f"{grouping!r} is not a grouping for input {source} of {self._title()};"
                " use a grouping of the class Grouping"
            )
        return grouping

    def validate(self) -> None:
        """Check everything that does not depend on other components."""
        self._check_own()
        self.check_streams()

    def _check_own(self) -> None:
        if self.name is None:
            raise ValueError(f"a component of class {self.python_class_path} has no name; give its spec() a name")
        if self.custom_config is not None:
            self._sanitize_config(self.custom_config, self._title())
        self.output_streams()
        self.input_streams()

    def check_streams(self) -> None:
        """Refuse a bolt without inputs, and a spout without outputs, unless its configuration says that it has none."""
        silent = (self.custom_config or {}).get(NO_OUTPUTS)
        if self.is_spout and not self.output_streams() and not silent:
            raise ValueError(
                f"{self.python_class_path}: {self.name} requires at least one output, because it is a spout"
            )
        if not self.is_spout and not self.input_streams():
            raise ValueError(f"{self.python_class_path}: {self.name} requires at least one input, because it is a bolt")

    @staticmethod
    def _sanitize_config(custom_config: Any, owner: str = "a component") -> dict[str, Any]:
        """Return a copy of the configuration; values that are sent as strings are converted to strings."""
        return sanitize_config(custom_config, owner)

    def _sanitize_inputs(self) -> dict[GlobalStreamId, AnyGrouping] | None:
        """Return the grouping of each input stream; None if no inputs were given."""
        return None if self.inputs is None else self.input_streams()

    def _sanitize_outputs(self) -> dict[str, list[str]] | None:
        """Return the fields of each output stream; None if no outputs were given."""
        if self.outputs is None:
            return None
        return {name: list(stream.fields) for name, stream in self.output_streams().items()}

    def get_protobuf(self) -> topology_pb2.Spout | topology_pb2.Bolt:
        """Return the Spout or Bolt message of this component.

        A bolt may still lack inputs: a builder may connect it later, and the topology checks the result.
        """
        self._check_own()
        return self._get_spout() if self.is_spout else self._get_bolt()

    def _get_spout(self) -> topology_pb2.Spout:
        spout = topology_pb2.Spout()
        spout.comp.CopyFrom(self._get_base_component())
        self._add_out_streams(spout)
        return spout

    def _get_bolt(self) -> topology_pb2.Bolt:
        bolt = topology_pb2.Bolt()
        self._add_in_streams(bolt)
        bolt.comp.CopyFrom(self._get_base_component())
        self._add_out_streams(bolt)
        return bolt

    def _get_base_component(self) -> topology_pb2.Component:
        component = topology_pb2.Component()
        component.name = str(self.name)
        component.spec = _PYTHON_CLASS_NAME
        component.class_name = self.python_class_path
        if self.asks_readiness:
            component.asks_readiness = True
        if self.asynchronous:
            component.asynchronous = True
        component.traits.extend(self.traits)
        component.config.CopyFrom(self._get_comp_config())
        return component

    def _get_comp_config(self) -> topology_pb2.Config:
        """Return the component's configuration message; the configuration may override the parallelism."""
        config = {TOPOLOGY_COMPONENT_PARALLELISM: self.parallelism, **(self.custom_config or {})}
        return encode_config(config, self._title())

    def _add_out_streams(self, spbl: topology_pb2.Spout | topology_pb2.Bolt) -> None:
        for stream_id, stream in self.output_streams().items():
            output: Any = spbl.outputs.add()
            output.stream.CopyFrom(self._get_stream_id(str(self.name), stream_id))
            output.schema.CopyFrom(self._get_stream_schema(stream.fields))
            if stream.direct:
                output.direct = True
            if stream.schema is not None:
                output.arrow_schema = schema_to_bytes(stream.schema)

    def _add_in_streams(self, bolt: topology_pb2.Bolt) -> None:
        for stream, grouping in self.input_streams().items():
            entry: Any = bolt.inputs.add()
            entry.stream.CopyFrom(self._get_stream_id(stream.component_id, stream.stream_id))
            if isinstance(grouping, FieldGrouping):
                entry.gtype = grouping.gtype
                entry.grouping_fields.CopyFrom(self._get_stream_schema(grouping.fields))
            elif isinstance(grouping, CustomGrouping):
                entry.gtype = grouping.gtype
                entry.custom_grouping_object = grouping.python_serialized
                entry.type = _PYTHON_OBJECT
            else:
                entry.gtype = int(grouping)
                if isinstance(grouping, LocalOrShuffle):
                    entry.prefer_local = True

    @staticmethod
    def _get_stream_id(comp_name: str, stream_id: str) -> topology_pb2.StreamId:
        return topology_pb2.StreamId(id=stream_id, component_name=comp_name)

    @staticmethod
    def _get_stream_schema(fields: Sequence[str]) -> topology_pb2.StreamSchema:
        schema = topology_pb2.StreamSchema()
        for field in fields:
            key = schema.keys.add()
            key.key = field
            key.type = _OBJECT
        return schema

    def _title(self) -> str:
        return f"{'spout' if self.is_spout else 'bolt'} {self.name or self.python_class_path}"


class GlobalStreamId(InputSource):
    """One output stream of one component."""

    def __init__(self, componentId: str | HeronComponentSpec, streamId: str) -> None:
        if not isinstance(componentId, (str, HeronComponentSpec)):
            raise TypeError(
                f"GlobalStreamId: componentId must be a string or a HeronComponentSpec, given: {componentId!r}"
            )
        if not isinstance(streamId, str):
            raise TypeError(f"GlobalStreamId: streamId must be a string, given: {streamId!r}")
        self._component_id = componentId
        self.stream_id = streamId

    @property
    def component_id(self) -> str:
        """The component's name, or a placeholder text with the spec's uuid if the spec has no name yet."""
        if isinstance(self._component_id, str):
            return self._component_id
        if self._component_id.name is None:
            return f"<No name available for HeronComponentSpec yet, uuid: {self._component_id.uuid}>"
        return self._component_id.name

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, GlobalStreamId)
            and self.component_id == other.component_id
            and self.stream_id == other.stream_id
        )

    def __hash__(self) -> int:
        return hash(str(self))

    def __str__(self) -> str:
        return f"{self.component_id}:{self.stream_id}"

    def __repr__(self) -> str:
        return f"GlobalStreamId({self.component_id!r}, {self.stream_id!r})"


def spec_of_class(
    cls: type,
    *,
    name: str | None,
    is_spout: bool,
    par: int,
    inputs: Inputs | None = None,
    config: dict[str, Any] | None,
    optional_outputs: Sequence[str | Stream] | None,
) -> HeronComponentSpec:
    """Create the spec of a spout or bolt class; both `spec()` methods call this function."""
    outputs = getattr(cls, "outputs", ())
    if not isinstance(outputs, (list, tuple)):
        raise TypeError(
            f"{cls.__name__}.outputs must be a list or tuple of field names and Streams, given: {outputs!r}"
        )
    if optional_outputs is not None and not isinstance(optional_outputs, (list, tuple)):
        raise TypeError(f"optional_outputs of {cls.__name__} must be a list or tuple, given: {optional_outputs!r}")
    spec = HeronComponentSpec(
        name,
        class_path_of(cls),
        is_spout=is_spout,
        par=par,
        inputs=inputs,
        outputs=[*outputs, *(optional_outputs or ())],
        config=config,
    )
    spec.output_streams()
    check_coroutines(cls, is_spout)
    spec.traits = traits_of(cls)
    return spec


#: The methods of a spout (True) or bolt (False) that must be coroutines in an asynchronous class.
_AWAITED = {True: ("run",), False: ("process", "process_tick")}
#: The methods that the runtime calls without awaiting them in a plain class, and in every class.
_CALLED = {
    True: ("next_tuple", "ack", "fail", "activate", "deactivate"),
    False: ("process", "process_tick", "finish"),
}
_ALWAYS_CALLED = {True: ("initialize", "close"), False: ("initialize", "processWindow")}


def check_coroutines(cls: type, is_spout: bool) -> None:
    """Raise TopologyError if the runtime would call a method of the class without running it, or await a plain method.

    The body of a coroutine or generator does not run when it is only called, so every tuple would be lost.
    """
    is_async = getattr(cls, "is_async", False)
    for name in _AWAITED[is_spout] if is_async else ():
        method: Any = getattr(cls, name, None)
        if inspect.isfunction(method) and not inspect.iscoroutinefunction(inspect.unwrap(method)):
            emit = "await self.emit(...)" if is_spout else "self.emit(...)"
            raise SpecTypeError(
                f"{cls.__name__}.{name} is not a coroutine; define it with `async def`, and call `{emit}` instead of"
                " yielding"
            )
    for name in (*_ALWAYS_CALLED[is_spout], *(() if is_async else _CALLED[is_spout])):
        method = getattr(cls, name, None)
        if inspect.isgeneratorfunction(method):
            raise SpecTypeError(f"{cls.__name__}.{name} is a generator; call `self.emit(...)` instead of yielding")
        if inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method):
            other = "" if name in _ALWAYS_CALLED[is_spout] else f", or extend Async{'Spout' if is_spout else 'Bolt'}"
            raise SpecTypeError(f"{cls.__name__}.{name} is a coroutine; define it with `def`{other}")


#: Attributes of a component class that affect a batch run.
MARKS = ("bounded", "follow_s", "reusable", "unit_output")


def traits_of(cls: type) -> list[str]:
    """Return the names of the heronpy classes in a class's MRO, and the names of attributes that affect a batch run."""
    ours = [kind.__name__ for kind in cls.__mro__ if kind.__module__.startswith("heronpy.")]
    own = {name for kind in cls.__mro__ if not kind.__module__.startswith("heronpy.") for name in vars(kind)}
    return [*ours, *(mark for mark in MARKS if getattr(cls, mark, None)), *sorted({"follow_state", "finish"} & own)]


def class_path_of(cls: type) -> str:
    """Return the class path from which a task imports the class."""
    module = "__main__" if cls.__module__ == MAIN_ALIAS else cls.__module__
    path = f"{module}.{cls.__qualname__}"
    if "<locals>" in path:
        LOCAL_CLASSES[path] = cls
    return path


def check_name(what: str, name: Any) -> None:
    """Refuse a name that cannot be part of a file name or an instance id."""
    if not isinstance(name, str):
        raise SpecTypeError(f"{what} must be a string, given: {name!r}")
    if not name or name in (".", "..") or "/" in name or not name.isprintable():
        raise SpecValueError(f"{what} {name!r} cannot be used; use letters, digits, '-', '_' and '.'")
