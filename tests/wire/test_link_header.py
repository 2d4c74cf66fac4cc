"""The link header: what was sent is read back, and what was changed on its way is never taken for it (F14)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.common.errors import RemoteWireError
from heronpy.wire.frames import JOINED_MAX_BYTES, LINK_HEADER, header_and_frame, message_of

U64 = st.integers(0, (1 << 64) - 1)
DATA = st.binary(max_size=300)


@given(U64, U64, DATA)
def test_what_is_packed_comes_back(epoch: int, seq: int, frame: bytes) -> None:
    for header in (LINK_HEADER.pack(epoch, seq), LINK_HEADER.pack(epoch, seq, frame)):
        assert len(header) == LINK_HEADER.size == 24
        assert LINK_HEADER.unpack(header) == LINK_HEADER.unpack(header, frame) == (epoch, seq)


@given(U64, U64, DATA, st.data())
def test_one_flipped_bit_anywhere_is_noticed(epoch: int, seq: int, frame: bytes, choose: st.DataObject) -> None:
    """The checksum vouches for frame, epoch, sequence number and its own flag; magic and version for themselves."""
    whole = bytearray(LINK_HEADER.pack(epoch, seq, frame) + frame)
    bit = choose.draw(st.integers(0, len(whole) * 8 - 1))
    whole[bit // 8] ^= 1 << bit % 8
    header, data = bytes(whole[:24]), bytes(whole[24:])
    with pytest.raises(RemoteWireError):
        LINK_HEADER.unpack(header, data)


@given(U64, U64, st.integers(0, 300) | st.integers(JOINED_MAX_BYTES - 2, JOINED_MAX_BYTES + 2))
def test_a_message_is_one_part_unless_its_frame_is_large(epoch: int, seq: int, size: int) -> None:
    header, frame = LINK_HEADER.pack(epoch, seq), bytes(size)
    parts = message_of(header, frame)
    assert len(parts) == (1 if size <= JOINED_MAX_BYTES else 2)
    assert header_and_frame(parts) == (header, frame)
    assert header_and_frame([header, frame]) == (header, frame), "whatever the sender has chosen"


@pytest.mark.parametrize("parts", [[], [b"a", b"b", b"c"]])
def test_no_other_number_of_parts_is_a_message(parts: list[bytes]) -> None:
    with pytest.raises(ValueError):
        header_and_frame(parts)


@given(st.binary(max_size=64), DATA)
def test_other_bytes_are_no_header(header: bytes, frame: bytes) -> None:
    with pytest.raises(RemoteWireError):
        LINK_HEADER.unpack(b"\0" + header, frame)


def test_a_frame_of_another_version_is_refused() -> None:
    header = bytearray(LINK_HEADER.pack(5, 6))
    header[2] += 1
    with pytest.raises(RemoteWireError, match="version 2"):
        LINK_HEADER.unpack(bytes(header))


@pytest.mark.parametrize("cut", range(1, 24))
def test_a_cut_frame_is_noticed(cut: int) -> None:
    header = LINK_HEADER.pack(5, 6, b"f" * 30)
    with pytest.raises(RemoteWireError, match="checksum"):
        LINK_HEADER.unpack(header, b"f" * (30 - cut))
    with pytest.raises(RemoteWireError, match="not a link header"):
        LINK_HEADER.unpack(header[:-cut])
