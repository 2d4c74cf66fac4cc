"""Options of a SparkSink, and their encoding in the component's configuration.

This module owns the `spark.sink.*` keys. Every value is a plain string, so that a topology's Spark options can
be read without loading user code.
"""

from __future__ import annotations

import base64
import importlib
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from heronpy.api.api_constants import TOPOLOGY_TICK_TUPLE_FREQ_MS
from heronpy.api.component.component_spec import MAIN_ALIAS
from heronpy.common.errors import ConfigError
from heronpy.connectors.spark.requirements import SINK_KEY
from heronpy.connectors.spark.rows import encode_schema

if TYPE_CHECKING:
    import pyarrow as pa

AGGREGATE_KEY = "spark.sink.aggregate"
_PICKLED = "pickle:"
_IMPORTED = "import:"
HANG_KEY = "heron.instance.hang_timeout_s"
#: The gateway keeps more outcomes of a task than this number.
UNCOMMITTED_MAX = 64


class SinkOptions(Struct, frozen=True):
    """The options of a SparkSink; None means the setting in `heron.spark`."""

    #: "import:module.function" or "pickle:<base64>".
    aggregate: str
    #: The schema, encoded by rows.encode_schema; empty if it is inferred.
    schema: str = ""
    fields: list[str] = []
    batch_rows: int | None = None
    batch_bytes: int | None = None
    batch_interval_s: float | None = None
    batch_bytes_max: int | None = None
    #: Maximum number of handed-over batches without a known outcome; at this limit the sink takes no more tuples.
    max_uncommitted: int = 4
    #: Longest wait for an outcome in seconds.
    commit_timeout_s: float = 300.0
    #: The user's options, passed to `aggregate` as batch.options.
    options: dict[str, Any] = {}

    def validate(self) -> None:
        whole = ("batch_rows", "batch_bytes", "batch_bytes_max", "max_uncommitted")
        for name in (*whole, "batch_interval_s", "commit_timeout_s"):
            value = getattr(self, name)
            is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if value is not None and not (is_number and value > 0):
                raise ConfigError(f"{name} of a SparkSink must be a number above zero, not {value!r}")
        for name in whole:
            if not isinstance(getattr(self, name), int | None):
                raise ConfigError(f"{name} of a SparkSink must be a whole number, not {getattr(self, name)!r}")
        if self.max_uncommitted > UNCOMMITTED_MAX:
            raise ConfigError(f"max_uncommitted of a SparkSink must be at most {UNCOMMITTED_MAX}")

    def to_config(self) -> dict[str, Any]:
        """Return the component configuration that carries these options."""
        self.validate()
        rest = {name: getattr(self, name) for name in self.__struct_fields__ if name != "aggregate"}
        settings = plain_json(rest, "a SparkSink")
        interval_ms = (self.batch_interval_s or 0.5) * 1000
        return {
            SINK_KEY: "true",
            AGGREGATE_KEY: self.aggregate,
            "spark.sink.settings": settings,
            # The time trigger and arrived outcomes are checked on ticks.
            TOPOLOGY_TICK_TUPLE_FREQ_MS: int(min(200, max(20, interval_ms / 5))),
            # A sink that waits for Spark blocks on purpose; it has its own timeout.
            HANG_KEY: self.commit_timeout_s + 60,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> SinkOptions:
        aggregate, settings = config.get(AGGREGATE_KEY), config.get("spark.sink.settings")
        if not isinstance(aggregate, str) or not isinstance(settings, str):
            raise ConfigError("this component is a SparkSink without options; create it with SparkSink.spec(...)")
        return cls(aggregate=aggregate, **json.loads(settings))


def sink_options(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the user's options in a component's configuration; empty if the component is not a SparkSink."""
    settings = config.get("spark.sink.settings")
    try:
        found = json.loads(settings).get("options") if isinstance(settings, str) else None
    except (ValueError, AttributeError):
        return {}
    return found if isinstance(found, dict) else {}


def plain_json(options: Mapping[str, Any], what: str) -> str:
    """Return options as JSON, with paths as text. Raises ConfigError for values that are not plain."""

    def plain(value: Any) -> Any:
        if isinstance(value, os.PathLike):
            return os.fspath(value)
        raise TypeError(f"{value!r} is a {type(value).__name__}")

    try:
        return json.dumps(options, default=plain)
    except TypeError as error:
        raise ConfigError(f"options of {what} must be plain values (text, numbers, lists): {error}") from None


def make_options(
    aggregate: str | Callable[..., Any] | None,
    schema: pa.Schema | dict[str, str] | None,
    fields: Sequence[str] | None,
    **rest: Any,
) -> SinkOptions:
    """Check and encode the arguments of SparkSink.spec; `rest` contains the other fields of `SinkOptions`."""
    encoded = encode_schema(schema)
    names = list(fields or [])
    if schema is not None:
        columns = list(schema) if isinstance(schema, dict) else schema.names
        if names and names != columns:
            raise ConfigError(f"fields {names} and the columns {columns} of schema differ; give only one of the two")
        names = columns
    if not names:
        raise ConfigError("a SparkSink needs the names of its columns; give fields=[...] or schema={...}")
    if len(set(names)) != len(names):
        raise ConfigError(f"columns of a SparkSink must have different names, but they are {names}")
    return SinkOptions(encode_aggregate(aggregate), encoded, names, **rest)


def encode_aggregate(aggregate: str | Callable[..., Any] | None) -> str:
    """Return a function as text: by name if other processes can import it, otherwise by value."""
    if isinstance(aggregate, str):
        module, dot, name = aggregate.rpartition(".")
        if not dot or not module or not name.isidentifier():
            raise ConfigError(f"aggregate={aggregate!r} must be a function or 'module.function'")
        if module != "__main__":
            return _IMPORTED + aggregate
        found = getattr(sys.modules["__main__"], name, None)
        if not callable(found):
            raise ConfigError(f"the topology's file does not define the aggregate function {name!r}")
        aggregate = found
    if not callable(aggregate):
        raise ConfigError("a SparkSink needs aggregate=: a function(spark, df, batch) or 'module.function'")
    import cloudpickle

    from heronpy.api.serializer import default_serializer

    if getattr(aggregate, "__module__", None) == MAIN_ALIAS:
        # The topology's own file, under the module name that only its tasks use.
        cloudpickle.register_pickle_by_value(sys.modules[MAIN_ALIAS])
    try:
        data = default_serializer.serialize(aggregate)
    except Exception as error:
        raise ConfigError(f"function {aggregate!r} cannot be shipped to the Spark gateway: {error}") from None
    return _PICKLED + base64.b64encode(data).decode()


def decode_aggregate(text: str) -> Callable[..., Any]:
    """Load an encoded function. Raises ConfigError if this fails."""
    try:
        if text.startswith(_PICKLED):
            import cloudpickle

            found = cloudpickle.loads(base64.b64decode(text[len(_PICKLED) :]))
        else:
            module, _, name = text[len(_IMPORTED) :].rpartition(".")
            found = getattr(importlib.import_module(module), name)
    except Exception as error:
        shown = text if text.startswith(_IMPORTED) else "the pickled function"
        raise ConfigError(
            f"the Spark gateway cannot load {shown} ({type(error).__name__}: {error}); "
            "put its module into the topology's package"
        ) from error
    if not callable(found):
        raise ConfigError(f"{text} is a {type(found).__name__}, not a function")
    return found  # type: ignore[no-any-return]
