"""Serializers, which convert Python objects to bytes.

`default_serializer` (cloudpickle, which also serializes lambdas and classes of `__main__`) is used for
configuration values and custom groupings. A topology may choose another serializer for tuple values
with the key `topology.serializer.classname`.
"""

from __future__ import annotations

import io
import pickle
from collections import ChainMap
from types import CodeType
from typing import Any

import cloudpickle  # type: ignore[import-untyped, unused-ignore]

_reduce_code = cloudpickle.Pickler.dispatch_table[CodeType]
#: The file name that cloudpickle puts into pickled code.
_NO_FILE = "<dynamic-code>"


def _with_file(code: CodeType) -> Any:
    """Keep a code object's file name when it is pickled, so that tracebacks of its function show source lines."""
    make, given = _reduce_code(code)
    return make, tuple(code.co_filename if isinstance(one, str) and one == _NO_FILE else one for one in given)


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc, unused-ignore]
    dispatch_table = ChainMap({CodeType: _with_file}, cloudpickle.Pickler.dispatch_table)


class IHeronSerializer:
    """Interface of a serializer. Its class must be constructible without arguments."""

    def initialize(self, config: dict[str, Any]) -> None:
        """Called once before the first use, with the component's configuration."""

    def serialize(self, obj: Any) -> bytes:
        """Return `obj` as bytes."""
        raise NotImplementedError(f"{type(self).__name__} must define serialize(obj)")

    def deserialize(self, input_str: bytes) -> Any:
        """Return the object that `serialize` converted to these bytes."""
        raise NotImplementedError(f"{type(self).__name__} must define deserialize(input_str)")


class PythonSerializer(IHeronSerializer):
    """Serializes any Python object, closures included."""

    def initialize(self, config: dict[str, Any] | None = None) -> None:
        """Do nothing: this serializer needs no configuration."""

    def serialize(self, obj: Any) -> bytes:
        data = io.BytesIO()
        _Pickler(data).dump(obj)
        return data.getvalue()

    def deserialize(self, input_str: bytes) -> Any:
        return pickle.loads(input_str)


default_serializer = PythonSerializer()
