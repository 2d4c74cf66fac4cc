"""Values to bytes and back, by the very codec of the wire."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from heronpy.api import api_constants
from heronpy.api.user_code import load_class
from heronpy.wire import codec

_DEFAULT_SERIALIZER = "heronpy.api.serializer.PythonSerializer"


class ValueCodec:
    """Encodes at emit and decodes at delivery, with the topology's own serializer if it has one."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._allow_pickle = bool(config.get("heron.instance.allow_pickle", True))
        self._serializer: Any = None
        path = config.get(api_constants.TOPOLOGY_SERIALIZER_CLASSNAME)
        # The default one is the wire's own codec, which pickles only what needs it.
        if path and path != _DEFAULT_SERIALIZER:
            self._serializer = load_class(str(path))()
            self._serializer.initialize(config)
        deserialize = self._serializer.deserialize if self._serializer else None
        self._decode = codec.decoder(deserialize, self._allow_pickle)
        self.kind = codec.USER if self._serializer else codec.MSGPACK

    def encode(self, values: Sequence[Any]) -> bytes:
        """The payload of one tuple; LocalWireError if a value cannot travel."""
        if self._serializer is not None:
            return codec.encode([self._serializer.serialize(value) for value in values])
        return codec.encode([codec.freeze(value, self._allow_pickle) for value in values])

    def decode(self, payload: bytes, kind: int) -> list[Any]:
        """A fresh copy of the values."""
        return self._decode(payload, kind)
