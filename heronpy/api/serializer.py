"""Serializers: how Python objects become bytes.

`default_serializer` (cloudpickle, which also serializes lambdas and classes of `__main__`) is used for
configuration values and custom groupings. A topology may choose its own serializer for tuple values
by the key `topology.serializer.classname`.
"""

from __future__ import annotations

import pickle
from typing import Any

import cloudpickle  # type: ignore[import-untyped, unused-ignore]


class IHeronSerializer:
    """Interface of a serializer. Its class must be constructible without arguments."""

    def initialize(self, config: dict[str, Any]) -> None:
        """Called once before the first use, with the component's configuration."""

    def serialize(self, obj: Any) -> bytes:
        """The bytes of `obj`."""
        raise NotImplementedError(f"{type(self).__name__} must define serialize(obj)")

    def deserialize(self, input_str: bytes) -> Any:
        """The object whose bytes are `input_str`."""
        raise NotImplementedError(f"{type(self).__name__} must define deserialize(input_str)")


class PythonSerializer(IHeronSerializer):
    """Serializes any Python object, closures included."""

    def initialize(self, config: dict[str, Any] | None = None) -> None:
        """Nothing to prepare."""

    def serialize(self, obj: Any) -> bytes:
        data: bytes = cloudpickle.dumps(obj)
        return data

    def deserialize(self, input_str: bytes) -> Any:
        return pickle.loads(input_str)


default_serializer = PythonSerializer()
