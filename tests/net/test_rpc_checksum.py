"""Control messages carry a checksum: no bit may flip on the way unseen, whatever TCP thinks of it (F14)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from heronpy.net.rpc import parse, seal, wrap
from heronpy.proto import control_pb2


def message(text: str) -> control_pb2.Envelope:
    return wrap(control_pb2.Ok(text=text), request_id=7)


@given(st.text(max_size=200))
def test_what_was_sent_is_what_is_read(text: str) -> None:
    envelope = parse(seal(message(text)))
    assert envelope is not None and envelope.ok.text == text and envelope.request_id == 7


@given(st.text(min_size=1, max_size=200), st.data())
def test_a_flipped_bit_is_seen_or_changes_nothing(text: str, data: st.DataObject) -> None:
    sealed = bytearray(seal(message(text)))
    place = data.draw(st.integers(0, len(sealed) - 1))
    sealed[place] ^= 1 << data.draw(st.integers(0, 7))
    envelope = parse(bytes(sealed))
    # In the tag of the checksum itself a flip hides the checksum, and nothing else can be wrong then.
    assert envelope is None or (envelope.ok.text == text and place >= len(sealed) - 5)


def test_a_message_without_a_checksum_is_read() -> None:
    """From a process that does not know of it."""
    assert parse(message("x").SerializeToString()) == message("x")
