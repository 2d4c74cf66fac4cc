"""What is read of a peer's answer: the struct that was asked for, or one sentence."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from heronpy.common.errors import AnswerError, RpcError
from heronpy.net import answers
from heronpy.net.answers import packed, read
from heronpy.proto import control_pb2


class Row(Struct, kw_only=True):
    name: str
    share: float | None


class Table(Struct, kw_only=True):
    """An answer."""

    rows: list[Row]


TABLE = Table(rows=[Row(name="a", share=0.5), Row(name="", share=None)])


def test_the_same_struct_arrives() -> None:
    assert read(packed(TABLE), Table) == TABLE


@pytest.mark.parametrize("found", [None, control_pb2.Ok(), control_pb2.ExceptionsReply(), packed(TABLE.rows[0])])
def test_an_answer_of_another_release_is_refused_in_one_sentence(found: object) -> None:
    with pytest.raises(AnswerError, match="not of type Table: its sender has another release; use the heron command"):
        read(found, Table)


@pytest.mark.parametrize("data", [b"", b"\xc1", packed(TABLE).data[:-1], b"\x91" * 100_000, b"\x81\xa4rows\x91\x01"])
def test_a_damaged_answer_is_refused_in_one_sentence(data: bytes) -> None:
    with pytest.raises(AnswerError, match=r"^the answer Table cannot be read: [^\n]+$"):
        read(control_pb2.Answer(kind="Table", data=data), Table)


@given(st.binary(max_size=200), st.integers(0, 60), st.integers(0, 255))
def test_whatever_comes_raises_nothing_else(garbage: bytes, place: int, byte: int) -> None:
    whole = bytearray(packed(TABLE).data)
    whole[place % len(whole)] = byte
    for data in (garbage, bytes(whole)):
        try:
            found = read(control_pb2.Answer(kind="Table", data=data), Table)
        except AnswerError:
            continue
        assert msgspec.json.encode(found)


def test_the_size_is_bounded_on_both_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    large = packed(TABLE)
    monkeypatch.setattr(answers, "BYTES_MAX", 10)
    with pytest.raises(RpcError, match="the answer Table has 44B, but an answer may have at most 0"):
        packed(TABLE)
    with pytest.raises(AnswerError, match="the answer Table is too large: "):
        read(large, Table)
