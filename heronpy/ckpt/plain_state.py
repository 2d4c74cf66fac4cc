"""Encodes the plain State of a component as a whole, so that objects which share parts still share them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from heronpy.common.errors import HeronError, WireError
from heronpy.wire.codec import MSGPACK, PLAIN, decoder, encode, freeze

#: The layouts: keys and values one after the other, or the dictionary as one value.
_FLAT: Final = 1
_WHOLE: Final = 2


def encode_plain(state: Mapping[Any, Any], allow_pickle: bool, component: str) -> bytes:
    """The bytes of a state; none for an empty one."""
    if not state:
        return b""
    flat = [item for pair in state.items() for item in pair]
    if all(type(item) in PLAIN for item in flat):
        return encode([_FLAT, *flat])
    try:
        return encode([_WHOLE, freeze(dict(state), allow_pickle)])
    except WireError as error:
        key, reason = _culprit(state, allow_pickle, error)
        raise HeronError(f"the State of component {component} cannot be saved: key {key!r}: {reason}") from error


def _culprit(state: Mapping[Any, Any], allow_pickle: bool, error: Exception) -> tuple[Any, Exception]:
    """The first entry that cannot be encoded, and why."""
    for key, value in state.items():
        for item in (key, value):
            try:
                freeze(item, allow_pickle)
            except WireError as reason:
                return key, reason
    return next(iter(state)), error


def decode_plain(data: bytes, allow_pickle: bool) -> dict[Any, Any]:
    """The content of a state."""
    if not data:
        return {}
    layout, *items = decoder(allow_pickle=allow_pickle)(data, MSGPACK)
    if layout == _FLAT:
        return dict(zip(items[::2], items[1::2], strict=True))
    if layout == _WHOLE and len(items) == 1 and isinstance(items[0], dict):
        return items[0]
    raise HeronError(f"a saved State has layout {layout}, which this release of heronpy does not know")
