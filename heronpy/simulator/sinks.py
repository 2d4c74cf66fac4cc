"""Spark sinks of a simulation: their rows are kept for the test instead of being passed to Spark."""

from __future__ import annotations

import importlib.util
from typing import Any

from heronpy.api.bolt.bolt import Bolt
from heronpy.api.state.stateful_component import StatefulComponent
from heronpy.api.topology_context import TopologyContext
from heronpy.connectors.spark.options import SinkOptions
from heronpy.connectors.spark.rows import RowShape, decode_schema
from heronpy.simulator.records import Records

_STATE = "simulator.rows"


class CollectingSink(Bolt, StatefulComponent):
    """Replaces a SparkSink: acks the rows that it keeps, and fails the rows that the sink would reject.

    A row that does not fit the sink's schema is only detected if pyarrow is installed. A restore drops the rows
    received after the checkpoint, as a real restore removes them from the table.
    """

    def init_state(self, state: Any) -> None:
        self._state = state

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        options = SinkOptions.from_config(config)
        self._component, self._task = context.get_component_id(), context.get_task_id()
        self._records: Records = self.delegate.world.records
        self._fields = options.fields
        self._shape: RowShape | None = None
        if options.schema and importlib.util.find_spec("pyarrow") is not None:
            self._shape = RowShape(options.fields, decode_schema(options.schema))
        if _STATE in self._state:
            self._records.keep_rows(self._component, self._task, self._state[_STATE])

    def process(self, tup: Any) -> None:
        wrong = self._misfit(list(tup.values))
        if wrong:
            self.log(f"tuple for {self._component} rejected: {wrong}", "error")
            self.fail(tup)
            return
        self._records.row(self._component, self._task, dict(zip(self._fields, tup.values, strict=True)))
        self.ack(tup)

    def _misfit(self, values: list[Any]) -> str:
        """Return why these values are not a valid row of the sink; "" if they are valid."""
        if len(values) != len(self._fields):
            return f"the row has {len(values)} values, but the sink has {len(self._fields)} columns"
        misfits = self._shape.table([values])[1] if self._shape is not None else []
        return misfits[0].reason if misfits else ""

    def pre_save(self, checkpoint_id: str) -> None:
        self._state[_STATE] = self._records.rows_of(self._component, self._task)
