"""The codec gives values back exactly as they were (architecture decision D2)."""

from __future__ import annotations

import datetime
import decimal
import enum
import itertools
import pickle
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from heronpy.common.errors import LocalWireError, RemoteWireError
from heronpy.wire import codec

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.text(alphabet=st.characters(categories=["Cs"]), max_size=2)
    | st.binary()
)
VALUES = st.recursive(
    SCALARS | st.decimals(allow_nan=False) | st.datetimes() | st.uuids(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=3), inner, max_size=3)
        | st.frozensets(st.integers(), max_size=3)
    ),
    max_leaves=5,
)


class Colour(enum.Enum):
    RED = 1


class Text(str):
    pass


def roundtrip(values: list[object]) -> list[object]:
    return codec.decoder()(codec.encode([codec.freeze(value) for value in values]), codec.MSGPACK)


def same(one: object, other: object) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))  # type: ignore[arg-type]
    return one == other


@given(st.lists(VALUES, max_size=8))
def test_values_come_back_with_their_types(values: list[object]) -> None:
    assert same(roundtrip(values), values)


def test_odd_values_come_back() -> None:
    values = [
        Colour.RED,
        Text("x"),
        decimal.Decimal("1.10"),
        uuid.UUID(int=5),
        datetime.timedelta(1),
        2**64,
        -(2**70),
        b"",
    ]
    assert same(roundtrip(values), values)


def test_a_value_changed_after_emit_arrives_as_it_was() -> None:
    row = [1, 2]
    frozen = codec.freeze(row)
    row.append(3)
    assert codec.decoder()(codec.encode([frozen]), codec.MSGPACK) == [[1, 2]]


def test_lambdas_travel() -> None:
    (function,) = roundtrip([lambda x: x + 1])
    assert function(1) == 2  # type: ignore[operator]


def test_values_that_escaped_freezing_keep_their_type() -> None:
    """A memo hit may let Decimal(1) through as it equals 1; the batch must not turn it into text."""
    flat = [1, decimal.Decimal(1), True]
    assert same(codec.decoder()(codec.encode(flat), codec.MSGPACK), flat)


@given(st.lists(SCALARS, max_size=20))
def test_size_is_never_too_small(values: list[object]) -> None:
    frozen = [codec.freeze(value) for value in values]
    assert len(codec.encode(frozen)) <= sum(map(codec.size_of, frozen)) + 5 + 60 * len(values) * any(
        isinstance(v, str | int) and not isinstance(v, bool) for v in values
    )


def test_forbidden_pickle_is_an_error_on_both_sides() -> None:
    with pytest.raises(LocalWireError, match="list needs pickle"):
        codec.freeze([1], allow_pickle=False)
    payload = codec.encode([codec.freeze([1])])
    with pytest.raises(RemoteWireError, match="forbids pickle"):
        codec.decoder(allow_pickle=False)(payload, codec.MSGPACK)


@given(st.binary(max_size=64))
@example(b"\x91\xa7\x00\x00\x00\x00\x00\x00\x80")  # text that is no UTF-8
@example(b"\x91" * 5000)  # lists in lists
def test_garbage_is_refused_or_a_list(data: bytes) -> None:
    try:
        assert isinstance(codec.decoder(allow_pickle=False)(data, codec.MSGPACK), list)
    except RemoteWireError:
        pass


def test_own_serializer() -> None:
    decode = codec.decoder(deserialize=lambda data: data.decode() + "!")
    assert decode(codec.encode([b"a", b"b"]), codec.USER) == ["a!", "b!"]
    with pytest.raises(RemoteWireError, match="codec 1"):
        codec.decoder()(codec.encode([b"a"]), codec.USER)


class Bomb:
    """It can be pickled and not unpickled."""

    def __reduce__(self) -> object:
        return _explode, ()


ENDS = itertools.cycle((SystemExit, KeyboardInterrupt, GeneratorExit, ValueError))


def _explode() -> None:
    raise next(ENDS)("this value does not come back")


@given(st.lists(st.one_of(VALUES, st.just(Bomb)), min_size=1, max_size=8))
def test_all_but_the_damaged_values_are_salvaged(values: list[object]) -> None:
    """Also one whose own code asks the process to end; a list without damage is what the decoder gives."""
    given_values = [Bomb() if value is Bomb else value for value in values]
    data = codec.encode([codec.freeze(value) for value in given_values])
    found = codec.salvager()(data, codec.MSGPACK)
    assert [type(value) is codec.Undecodable for value in found] == [value is Bomb for value in values]
    assert all(same(one, value) for one, value in zip(found, values, strict=True) if value is not Bomb)
    damaged = [value for value in found if isinstance(value, codec.Undecodable)]
    assert all(isinstance(value.error, BaseException) and value.data.startswith(b"\x80") for value in damaged)


def test_values_of_a_users_serializer_and_texts_that_are_none_are_salvaged() -> None:
    def deserialize(data: bytes) -> int:
        return int(data)

    payload = codec.encode([b"1", b"two", b"3"])
    with pytest.raises(ValueError, match="invalid literal"):
        codec.decoder(deserialize)(payload, codec.USER)
    one, bad, three = codec.salvager(deserialize)(payload, codec.USER)
    assert (one, three) == (1, 3)
    assert bad.data == b"two" and isinstance(bad.error, ValueError)
    text, number = codec.salvager()(b"\x92\xa2\xff\xfe\x05", codec.MSGPACK)
    assert type(text) is codec.Undecodable and number == 5
    refused = codec.salvager(allow_pickle=False)(codec.encode([codec.freeze([1])]), codec.MSGPACK)
    assert isinstance(refused[0].error, RemoteWireError)


def test_a_watch_decodes_what_users_code_has_a_part_in_and_nothing_else() -> None:
    seen = []

    def watch(content: bytes, decode: Callable[[], Any]) -> Any:
        seen.append(content)
        return decode() if len(seen) == 1 else codec.Undecodable(content, KeyError("left out"))

    given_values = [1, (2, 3), "four", {5}, 1 << 70, b"six"]
    found = codec.salvager()(codec.encode([codec.freeze(value) for value in given_values]), codec.MSGPACK, watch)
    assert [pickle.loads(content) for content in seen] == [(2, 3), {5}]
    assert type(found[3]) is codec.Undecodable and found[3].data == seen[1]
    assert found[:3] == given_values[:3] and found[4:] == given_values[4:]
    seen.clear()
    assert codec.salvager(int)(codec.encode([b"7"]), codec.USER, watch) == [7] and seen == [b"7"]


@pytest.mark.parametrize("payload", [b"", b"\xc1", b"\x93\x01", b"\x81\x01\x02", b"\x91\x01\x01"])
def test_what_is_no_list_of_values_is_refused_as_a_whole(payload: bytes) -> None:
    with pytest.raises(RemoteWireError):
        codec.salvager()(payload, codec.MSGPACK)
    with pytest.raises(RemoteWireError, match="codec 1"):
        codec.salvager()(codec.encode([b"1"]), codec.USER)
