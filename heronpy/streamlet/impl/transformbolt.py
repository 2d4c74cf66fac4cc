"""Streamlet.transform: a user's operator with setup, state and free emission."""

from __future__ import annotations

from typing import Any

from heronpy.api.component.component_spec import GlobalStreamId
from heronpy.api.state.state import HashMapState
from heronpy.api.stream import Grouping
from heronpy.api.topology import TopologyBuilder
from heronpy.streamlet.errors import StreamletError
from heronpy.streamlet.impl.contextimpl import ContextImpl
from heronpy.streamlet.impl.streamletboltbase import ElementBolt, part_of
from heronpy.streamlet.streamlet import OUTPUT_STREAM, Streamlet
from heronpy.streamlet.transformoperator import TransformOperator


class TransformBolt(ElementBolt):
    """Runs a TransformOperator; what it emits is anchored to the element being transformed."""

    OPERATOR = "operator"

    state: Any = None

    def init_state(self, stateful_state: Any) -> None:
        """Keep the state for the operator's context; the operator writes to it itself."""
        self.state = stateful_state

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Set the operator up."""
        self._current: Any = None
        self._operator: TransformOperator = part_of(config, self.OPERATOR, self)
        state = HashMapState() if self.state is None else self.state
        self._operator.setup(ContextImpl(context, state, self._emit_for_current))

    def handle(self, element: Any, tup: Any) -> None:
        """Let the operator transform the element."""
        self._current = tup
        try:
            self._operator.transform(element)
        finally:
            self._current = None

    def _emit_for_current(self, element: Any) -> None:
        if self._current is None:
            self.emit([element], stream=OUTPUT_STREAM)
        else:
            self.emit_element(element, self._current)


class TransformStreamlet(Streamlet):
    """The streamlet that `Streamlet.transform` returns."""

    def __init__(self, transform_operator: TransformOperator, parent: Streamlet) -> None:
        super().__init__()
        if not isinstance(transform_operator, TransformOperator):
            raise StreamletError(
                "transform takes an instance of a TransformOperator subclass, not "
                f"{type(transform_operator).__name__}"
            )
        self._transform_operator = transform_operator
        self._parent = parent
        self.set_num_partitions(parent.get_num_partitions())

    def _calculate_inputs(self) -> dict[GlobalStreamId, Any]:
        return {self._parent._stream_id(): Grouping.SHUFFLE}

    def _build_this(self, builder: TopologyBuilder, stage_names: set[str]) -> bool:
        builder.add_bolt(
            self._claim_name("transform", stage_names),
            TransformBolt,
            par=self.get_num_partitions(),
            inputs=self._calculate_inputs(),
            config={TransformBolt.OPERATOR: self._transform_operator},
        )
        return True
