"""Checks, routes and copies the tuples that one task emits, by the runtime's rules.

Values are serialized by the topology's own serializer, or else by the wire codec.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from heronpy.api import api_constants
from heronpy.api.topology_context import TopologyContext
from heronpy.api.user_code import load_class, load_custom_grouping
from heronpy.plan.emit_rules import ArrowColumns, ColumnRules, EmitRules, travels_as_arrow
from heronpy.plan.grouping import Chooser, make_chooser
from heronpy.plan.logical import LogicalPlan, StreamDef
from heronpy.proto import topology_pb2
from heronpy.wire import codec

_DEFAULT_SERIALIZER = "heronpy.api.serializer.PythonSerializer"


class ValueCodec:
    """The topology's own serializer (or None), and the payload decoder."""

    def __init__(self, config: dict[str, Any], allow_pickle: bool) -> None:
        self.serialize: Callable[[Any], bytes] | None = None
        deserialize = None
        path = config.get(api_constants.TOPOLOGY_SERIALIZER_CLASSNAME)
        # The default is the wire codec, which pickles only what needs it.
        if path and path != _DEFAULT_SERIALIZER:
            serializer = load_class(str(path))()
            serializer.initialize(config)
            self.serialize, deserialize = serializer.serialize, serializer.deserialize
        self._decode = codec.decoder(deserialize, allow_pickle)
        self._decode_arrow = codec.decoder()
        self.kind = codec.USER if self.serialize else codec.MSGPACK

    def decode(self, payload: bytes, kind: int) -> list[Any]:
        """Decode a new copy of the values."""
        if kind == codec.ARROW:
            # The simulator represents an Arrow tuple by the values of its row.
            return self._decode_arrow(payload, codec.MSGPACK)
        return self._decode(payload, kind)


@dataclass(slots=True)
class OutStream:
    """A declared stream with a chooser for each consumer."""

    definition: StreamDef
    choosers: list[Chooser]


class ArrowRow(list[Any]):
    """The values of a tuple that travels as Arrow."""


class Outputs:
    """The output streams of one task."""

    def __init__(
        self,
        plan: LogicalPlan,
        component: str,
        rules: EmitRules,
        tasks: dict[str, list[int]],
        rng: random.Random,
        key_groups: int = 0,
    ) -> None:
        self._component = component
        self._rules = rules
        self._customs: list[tuple[Any, str, list[int]]] = []
        self._streams: dict[str, OutStream] = {}
        for definition in sorted(plan.component(component).outputs, key=lambda out: out.name):
            choosers = []
            for consumer, message in plan.consumers(component, definition.name):
                custom = None
                if message.gtype == topology_pb2.CUSTOM:
                    custom = load_custom_grouping(message.custom_grouping_object)
                    self._customs.append((custom, definition.name, tasks[consumer]))
                choosers.append(
                    make_chooser(
                        message,
                        definition.fields,
                        tasks[consumer],
                        start=rng.randrange(len(tasks[consumer])),
                        custom=custom,
                        key_groups=key_groups,
                    )
                )
            self._streams[definition.name] = OutStream(definition, choosers)

    def prepare_customs(self, context: TopologyContext) -> None:
        """Prepare the custom groupings after the component has been initialised."""
        for custom, stream, tasks in self._customs:
            custom.prepare(context, self._component, stream, list(tasks))

    def targets(self, values: Sequence[Any], stream: str, direct_task: int | None) -> list[int]:
        """Return the tasks that get a tuple, one entry for each copy."""
        self.check(values, stream)
        return self._rules.targets(stream, self._streams[stream].choosers, values, direct_task)

    def encode(self, values: Sequence[Any], stream: str) -> bytes:
        """Encode one tuple that `check` has accepted. Raises an error if it is too large or cannot be serialized."""
        return codec.encode(self._rules.freeze(stream, values, type(values) is ArrowRow)[0])

    def check(self, values: Sequence[Any], stream: str) -> None:
        """Raise an error unless the stream is declared and the number of values matches its fields."""
        out = self._streams.get(stream)
        if out is None:
            raise self._rules.undeclared(stream, self._streams)
        self._rules.check(stream, out.definition.fields, values)

    def rows(
        self, stream: str, columns: Any, rows: Any, what: str, count: int | None, direct_task: int | None, hooked: bool
    ) -> Sequence[list[Any]]:
        """Return the values of each tuple of an `emit_batch` call; `count` is the number of `what` (anchors or ids)
        given."""
        out = self._streams.get(stream)
        if out is None:
            raise self._rules.undeclared(stream, self._streams)
        rules = ColumnRules(self._component, stream, out.definition.fields, out.definition.schema)
        given = rules.columns(columns, rows)
        if count is not None:
            rules.check_count(what, count, given.size)
        if isinstance(given, ArrowColumns):
            serializes = self._rules.serializes
            if travels_as_arrow(out.choosers, direct_task, serializes=serializes, hooked=hooked):
                return list(map(ArrowRow, given.rows()))
        return given.rows()

    def is_direct(self, stream: str) -> bool:
        """Return whether the emitter must name the receiving task."""
        return self._streams[stream].definition.direct
