"""How the values of a topology are serialized: by its own serializer, or the wire codec."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from heronpy.api import api_constants
from heronpy.api.user_code import load_class
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
        """A fresh copy of the values."""
        if kind == codec.ARROW:
            # Here such a tuple is the values that its row of a record batch has.
            return self._decode_arrow(payload, codec.MSGPACK)
        return self._decode(payload, kind)
