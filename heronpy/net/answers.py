"""Answers to requests that only read: a struct of `heronpy.views`, as MessagePack in an `Answer`. Pure.

A topology master or an executor creates the struct, and a client decodes it and checks all types. The name
of the struct (`kind`) shows whether an unreadable answer comes from another release.
"""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec
from msgspec import Struct

from heronpy.common.errors import AnswerError, RpcError
from heronpy.common.units import format_bytes
from heronpy.proto import control_pb2

T = TypeVar("T", bound=Struct)

#: Maximum size of the MessagePack data. Sockets accept messages of up to 16 MiB, which also have other fields.
BYTES_MAX: Final = 15 << 20


def packed(answer: Struct) -> control_pb2.Answer:
    """The answer as a message; raises RpcError if it is too large to send."""
    kind, data = type(answer).__name__, msgspec.msgpack.encode(answer)
    if len(data) > BYTES_MAX:
        raise RpcError(
            f"the answer {kind} has {format_bytes(len(data))}, but an answer may have at most {BYTES_MAX >> 20} MiB"
        )
    return control_pb2.Answer(kind=kind, data=data)


def read(found: object, shape: type[T]) -> T:
    """The struct in an answer; raises AnswerError if the struct is missing, damaged or of another kind."""
    if not isinstance(found, control_pb2.Answer) or found.kind != shape.__name__:
        raise AnswerError(
            f"the answer is not of type {shape.__name__}: its sender has another release; use the"
            " heron command of the release that submitted the topology"
        )
    if len(found.data) > BYTES_MAX:
        raise AnswerError(f"the answer {found.kind} is too large: {format_bytes(len(found.data))}")
    try:
        return msgspec.msgpack.decode(found.data, type=shape)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise AnswerError(f"the answer {found.kind} cannot be read: {error}") from None
