"""Serializers: how Python objects become bytes.

`default_serializer` (cloudpickle, which also serializes lambdas and classes of `__main__`) is used for
configuration values and custom groupings. A topology may choose its own serializer for tuple values
by the key `topology.serializer.classname`.
"""

from __future__ import annotations

import io
import pickle
from collections import ChainMap
from types import CodeType
from typing import Any

import cloudpickle  # type: ignore[import-untyped, unused-ignore]

_reduce_code = cloudpickle.Pickler.dispatch_table[CodeType]
#: The file name that cloudpickle writes.
_NO_FILE = "<dynamic-code>"


def _with_file(code: CodeType) -> Any:
    """Give code the name of its file, so that tracebacks of functions that are sent by value show source lines."""
    make, given = _reduce_code(code)
    return make, tuple(code.co_filename if isinstance(one, str) and one == _NO_FILE else one for one in given)


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc, unused-ignore]
    dispatch_table = ChainMap({CodeType: _with_file}, cloudpickle.Pickler.dispatch_table)


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
        data = io.BytesIO()
        _Pickler(data).dump(obj)
        return data.getvalue()

    def deserialize(self, input_str: bytes) -> Any:
        return pickle.loads(input_str)


default_serializer = PythonSerializer()
