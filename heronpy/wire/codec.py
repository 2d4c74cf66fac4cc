"""Payload of a batch: a flat list of values that arrives exactly as it was emitted (decision D2). Pure.

Plain scalars (None, bool, int of 64 bits, float, str, bytes) are sent as MessagePack. Any other value is pickled
separately *at emit*, and sent as a MessagePack extension. So a list that the user changes after emit arrives with its
old content, tuples stay tuples, and one unusual value does not slow down the others. A topology may forbid pickle, and
it may have its own serializer (an IHeronSerializer), which then encodes every value.

Pickles are only ever read by tasks of the same topology; stream managers and the control plane never
decode a payload.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import cloudpickle
import msgspec

from heronpy.common.errors import LocalWireError, RemoteWireError

#: Frame.codec values.
MSGPACK = 0
USER = 1
#: One Arrow record batch instead of a list of values; see arrow_values.py.
ARROW = 2

PICKLE_EXTENSION = 1
#: Plain values that MessagePack cannot hold: ints wider than 64 bits, text with lone surrogates.
INT_EXTENSION = 2
TEXT_EXTENSION = 3
Ext = msgspec.msgpack.Ext

#: Types that MessagePack restores exactly. Exact types: a subclass of str does not count.
PLAIN = frozenset((type(None), bool, int, float, str, bytes))
_ENCODABLE = PLAIN | {Ext}
#: Plain types whose encoded size is bounded by nine bytes.
FIXED = frozenset((type(None), bool, int, float))


def _load_plain(code: int, data: memoryview) -> Any:
    if code == INT_EXTENSION:
        return int.from_bytes(data, "little", signed=True)
    if code == TEXT_EXTENSION:
        try:
            return bytes(data).decode("utf-8", "surrogatepass")
        except UnicodeDecodeError as error:
            raise RemoteWireError(f"payload contains text that is not UTF-8: {error}") from error
    raise RemoteWireError(f"payload contains a value of unknown extension type {code}")


def _load_extension(code: int, data: memoryview) -> Any:
    return pickle.loads(data) if code == PICKLE_EXTENSION else _load_plain(code, data)


def _no_pickle(code: int, data: memoryview) -> Any:
    if code == PICKLE_EXTENSION:
        raise RemoteWireError("payload contains a pickled value, but this topology forbids pickle")
    return _load_plain(code, data)


_encode = msgspec.msgpack.Encoder().encode
#: Decodes only the outermost list; its values stay bytes.
_split = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
_decode_pickles = msgspec.msgpack.Decoder(list, ext_hook=_load_extension).decode
_decode_plain = msgspec.msgpack.Decoder(list, ext_hook=_no_pickle).decode
_decode_pickle = msgspec.msgpack.Decoder(ext_hook=_load_extension).decode
_decode_one = msgspec.msgpack.Decoder(ext_hook=_no_pickle).decode


def freeze(value: Any, allow_pickle: bool = True) -> Any:
    """Return a value that the batch may keep until the flush: a plain scalar is returned unchanged, other values are
    pickled now.
    """
    if type(value) in PLAIN:
        return value
    if not allow_pickle:
        raise LocalWireError(
            f"a value of type {type(value).__name__} needs pickle, but this topology forbids it"
            " (heron.instance.allow_pickle: false); emit plain scalars or set topology.serializer.classname"
        )
    try:
        return Ext(PICKLE_EXTENSION, pickle.dumps(value, 5))
    except Exception:
        pass
    try:
        # Lambdas, closures and local classes, which Apache heronpy also accepted.
        return Ext(PICKLE_EXTENSION, cloudpickle.dumps(value, 5))
    except Exception as error:
        raise LocalWireError(f"a value of type {type(value).__name__} cannot be pickled: {error}") from error


def size_of(value: Any) -> int:
    """Return an upper bound for the encoded size of a frozen value, in bytes."""
    kind = type(value)
    if kind is str:
        return len(value) + 5 if value.isascii() else len(value.encode("utf-8", "surrogatepass")) + 5
    if kind is bytes:
        return len(value) + 5
    if kind is Ext:
        return len(value.data) + 6
    return 9


def _encode_odd(flat: list[Any]) -> bytes:
    """Encode values including the rare plain values that MessagePack cannot represent: wide ints, lone surrogates."""
    frozen = []
    for value in flat:
        if type(value) not in _ENCODABLE:
            value = Ext(PICKLE_EXTENSION, pickle.dumps(value, 5))
        elif type(value) is int and not -(1 << 63) <= value < 1 << 64:
            value = Ext(INT_EXTENSION, value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True))
        elif type(value) is str:
            try:
                value.encode()
            except UnicodeEncodeError:
                value = Ext(TEXT_EXTENSION, value.encode("utf-8", "surrogatepass"))
        frozen.append(value)
    return _encode(frozen)


def encode(flat: list[Any]) -> bytes:
    """Encode a flat list of frozen values."""
    if set(map(type, flat)) <= _ENCODABLE:
        try:
            return _encode(flat)
        except (OverflowError, UnicodeEncodeError, ValueError):
            pass
    return _encode_odd(flat)


def decoder(
    deserialize: Callable[[bytes], Any] | None = None, allow_pickle: bool = True
) -> Callable[[bytes, int], list[Any]]:
    """Return the function (payload, codec) -> flat list of values for a task.

    `deserialize` belongs to the topology's own serializer, if it has one.
    """
    unpack = _decode_pickles if allow_pickle else _decode_plain

    def decode(payload: bytes, codec: int) -> list[Any]:
        try:
            flat = unpack(payload)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise RemoteWireError(f"payload of {len(payload)} bytes is not MessagePack: {error}") from error
        if codec == MSGPACK:
            return flat
        if codec == USER and deserialize is not None:
            return [deserialize(value) for value in flat]
        raise RemoteWireError(f"payload has codec {codec}, which this task does not support")

    return decode


class Undecodable:
    """A placeholder for a value that could not be decoded: `data` is the value as received, `error` is the
    exception that decoding raised.
    """

    __slots__ = ("data", "error")

    def __init__(self, data: bytes, error: BaseException) -> None:
        self.data = data
        self.error = error

    def __repr__(self) -> str:
        return f"<undecodable value of {len(self.data)} bytes, {type(self.error).__name__}>"


#: Decodes a value with the user's code: (its content, the function that decodes it) -> the value, or a substitute.
Watch = Callable[[bytes, Callable[[], Any]], Any]


def salvager(
    deserialize: Callable[[bytes], Any] | None = None, allow_pickle: bool = True
) -> Callable[[bytes, int, Watch | None], list[Any]]:
    """Return the function (payload, codec, watch) -> flat list with an Undecodable for each undecodable value.

    The function is slower than `decoder`; it is for payloads that `decoder` has refused, or whose decoding may crash
    the process. `watch`, if given, decodes each value that involves the user's code. The function raises
    RemoteWireError if the payload is not a list of values, so that the boundaries of the values are unknown.
    """
    unpack = _decode_pickle if allow_pickle else _decode_one

    def value_of(data: msgspec.Raw, codec: int, watch: Watch | None) -> Any:
        def decode() -> Any:
            value = unpack(data)
            return deserialize(value) if codec == USER and deserialize is not None else value

        try:
            if watch is None or (codec != USER and not _is_pickled(data)):
                return decode()
            return watch(_content(bytes(data)), decode)
        except (Exception, SystemExit, KeyboardInterrupt, GeneratorExit) as error:
            # The user's types and serializers run here, and may raise anything.
            return Undecodable(_content(bytes(data)), error)

    def salvage(payload: bytes, codec: int, watch: Watch | None = None) -> list[Any]:
        if codec != MSGPACK and (codec != USER or deserialize is None):
            raise RemoteWireError(f"payload has codec {codec}, which this task does not support")
        try:
            parts = _split(payload)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise RemoteWireError(f"payload of {len(payload)} bytes is not MessagePack: {error}") from error
        return [value_of(part, codec, watch) for part in parts]

    return salvage


def _is_pickled(data: msgspec.Raw) -> bool:
    try:
        value = _plain_parts(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return isinstance(value, Ext) and value.code == PICKLE_EXTENSION


def _content(data: bytes) -> bytes:
    """Return the pickle of a pickled value, the output of the user's serializer, or else the value as received."""
    try:
        value = _plain_parts(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return data
    if isinstance(value, Ext):
        return bytes(value.data)
    return value if isinstance(value, bytes) else data


_plain_parts = msgspec.msgpack.Decoder().decode
