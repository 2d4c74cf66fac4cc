"""Well-formed messages and files from which mutations start."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from heronpy.proto import control_pb2
from heronpy.wire import codec
from heronpy.wire.frames import (
    ACK,
    BARRIER,
    CREDIT,
    DATA,
    FAIL,
    FORGET,
    LEAVE,
    LINK_OPEN,
    REGISTER,
    Frame,
    pack16,
    pack32,
    pack64,
)

_DEPTH_MAX = 3


def fill(message: Message, depth: int = 0) -> Any:
    """Give every field a small plausible value; deep down only those without which nothing parses."""
    for field in message.DESCRIPTOR.fields:
        repeated = hasattr(getattr(message, field.name), "extend")
        if field.message_type is not None:
            if field.message_type.GetOptions().map_entry or (depth >= _DEPTH_MAX and not field.is_required):
                continue
            target = getattr(message, field.name)
            if not repeated:
                target.SetInParent()
            fill(target.add() if repeated else target, depth + 1)
            continue
        value = b"bytes" if field.type == FieldDescriptor.TYPE_BYTES else _VALUES.get(field.cpp_type, 1)
        if repeated:
            getattr(message, field.name).extend([value, value])
        else:
            setattr(message, field.name, value)
    return message


_VALUES: dict[int, Any] = {
    FieldDescriptor.CPPTYPE_STRING: "stmgr-1",
    FieldDescriptor.CPPTYPE_BOOL: True,
    FieldDescriptor.CPPTYPE_DOUBLE: 1.5,
    FieldDescriptor.CPPTYPE_FLOAT: 1.5,
}


def envelopes(without: frozenset[str] = frozenset()) -> list[bytes]:
    """One of each kind of control message, full and empty, as request and one-way."""
    found = []
    for field in control_pb2.Envelope.DESCRIPTOR.oneofs_by_name["body"].fields:
        if field.name in without:
            continue
        for request_id in (0, 7):
            for full in (False, True):
                envelope = control_pb2.Envelope(request_id=request_id)
                body = getattr(envelope, field.name)
                body.SetInParent()
                if full:
                    fill(body)
                found.append(envelope.SerializeToString())
    return found


def frames() -> list[bytes]:
    """Frames of every kind that a stream manager takes."""
    tuples = codec.encode(["word", 1, None, 2.5, b"x", 1 << 80])
    roots, edges = pack64([1, 2, 3]), pack64([9, 8, 7])
    made = [
        Frame(kind=DATA, source_task=1, dest_task=2, count=3, payload=tuples),
        Frame(kind=DATA, source_task=1, dest_task=9, count=3, payload=tuples, tracked=True, roots=roots,
              root_tasks=pack32([1, 1, 1]), root_counts=pack32([1, 1, 1]), edge=5, derived_edges=True),
        Frame(kind=DATA, source_task=1, dest_task=2, count=1, tracked=True, root_base=4, root_task=1, attempt=1),
        Frame(kind=BARRIER, source_task=1, dest_task=2),
        Frame(kind=CREDIT, granted_bytes=1000, granted_tuples=10, consumed_bytes=5, consumed_frames=1),
        Frame(kind=LINK_OPEN),
        Frame(kind=LEAVE, consumed_frames=1, skip=1),
        *(
            Frame(kind=kind, dest_task=1, count=3, roots=roots, values=edges)
            for kind in (ACK, FAIL, REGISTER, FORGET)
        ),
        Frame(kind=ACK, dest_task=1, count=3, run_first=pack64([1, 7]), run_length=pack32([1, 2]),
              run_edge=pack64([9, 8])),
        Frame(kind=ACK, dest_task=1, count=3, root_base=1, values=edges),
    ]  # fmt: skip
    return [frame.SerializeToString() for frame in made]


def payloads() -> list[bytes]:
    """Payloads of batches, with and without values that need an extension."""
    values: list[list[Any]] = [
        [],
        ["word", 1, -1, 1.5, None, True, b"bytes"],
        [codec.freeze({"a": (1, 2)}), codec.freeze([1, 2])],
        [1 << 80, -(1 << 90), "\ud800"],
        [pack16([1, 2])] * 50,
    ]
    return [codec.encode(one) for one in values]


def disfigured(data: bytes, dice: random.Random, kind: type[Message]) -> bytes:
    """The message with one to three fields, at any depth, set to a value that nobody sends; still one that parses."""
    message = kind.FromString(data)
    for _ in range(dice.randint(1, 3)):
        _disfigure(message, dice)
    return message.SerializePartialToString()


def _disfigure(message: Any, dice: random.Random) -> None:
    # In an Envelope mostly its body, not another one instead of it.
    present = [field for field, _ in message.ListFields() if field.message_type is not None]
    fields = present if present and dice.random() < 0.7 else message.DESCRIPTOR.fields
    if not len(fields):
        return
    field = dice.choice(fields)
    value = getattr(message, field.name)
    repeated = hasattr(value, "extend")
    if field.message_type is not None:
        if field.message_type.GetOptions().map_entry:
            return
        if repeated:
            _disfigure(dice.choice(value) if len(value) and dice.random() < 0.8 else value.add(), dice)
        else:
            value.SetInParent()
            _disfigure(value, dice)
    elif repeated:
        value.extend(dice.choices(_odd_values(field, dice), k=dice.randint(1, 3)))
    else:
        setattr(message, field.name, dice.choice(_odd_values(field, dice)))


def _odd_values(field: FieldDescriptor, dice: random.Random) -> list[Any]:
    if field.enum_type is not None:
        return [value.number for value in field.enum_type.values]
    if field.type == FieldDescriptor.TYPE_BYTES:
        return [b"", b"\0", dice.randbytes(7), dice.randbytes(8), pack64([0, 1, (1 << 64) - 1]), b"\xff" * 24]
    if field.type == FieldDescriptor.TYPE_STRING:
        return ["", "..", "../x", "\r\n\x1b[2J\u2028", "a" * 5000, "stmgr-2", "stmgr-x", "%s%n", "container_1_word_1"]
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return [True, False]
    if field.cpp_type in (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT):
        return [0.0, -1.0, float("inf"), float("nan"), 1e300]
    signed = field.cpp_type in (FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_INT64)
    bits = 32 if field.cpp_type in (FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_UINT32) else 64
    top = (1 << (bits - signed)) - 1
    return [0, 1, 2, 9, 4096, 1 << 24, top // 2, top - 1, top, *((-1, -top - 1) if signed else ())]


class Bomb:
    """Makes a folder when it is loaded."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.mark),)
