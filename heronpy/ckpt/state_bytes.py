"""Saved state as bytes: segments, which are immutable pieces of keyed state, and plain State as a whole. Pure.

A base segment contains all keys of a range of key groups; a delta segment contains the keys that changed since
the previous segments, deletions included. Content: format, kind, number of entries, the key groups of all entries, a
deletion mark (one byte) per entry, the expiry times, the keys, the values. The value codec of heronpy/wire encodes all
of them, so that each value is restored unchanged.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from heronpy.api.state.keyed_state import ABSENT
from heronpy.common.errors import HeronError, WireError
from heronpy.wire.codec import MSGPACK, PLAIN, decoder, encode, freeze, size_of

FORMAT: Final = 1
BASE: Final = 0
DELTA: Final = 1
#: Size in bytes at which a segment is closed; a key group is never divided.
SEGMENT_BYTES: Final = 4 << 20
#: The layouts: keys and values one after the other, or the dictionary as one value.
_FLAT: Final = 1
_WHOLE: Final = 2


class Part(Struct, frozen=True):
    """One encoded segment."""

    data: bytes
    entries: int
    first_group: int
    last_group: int


class Entry(Struct, frozen=True):
    """One key of a segment."""

    group: int
    key: Any
    value: Any
    """ABSENT if the segment deletes the key."""
    expires: float
    """Wall-clock time of expiry; 0 means never."""


def encode_segments(
    kind: int,
    keys: Sequence[Any],
    group_of: Callable[[Any], int],
    entry_of: Callable[[Any], tuple[Any, float]],
    allow_pickle: bool = True,
    segment_bytes: int = SEGMENT_BYTES,
) -> Iterator[Part]:
    """Encode the keys, ordered by key group, in segments of about `segment_bytes`.

    `entry_of` returns the frozen value (see heronpy/wire) and the expiry time of a key. A base omits
    absent keys; a delta marks them as deleted.
    """
    groups = [group_of(key) for key in keys]
    batch: list[tuple[int, Any, Any, float]] = []
    size = 0
    for place in sorted(range(len(keys)), key=groups.__getitem__):
        group, key = groups[place], keys[place]
        value, expires = entry_of(key)
        if value is ABSENT and kind == BASE:
            continue
        if size >= segment_bytes and batch[-1][0] != group:
            yield _part(kind, batch)
            batch, size = [], 0
        frozen = freeze(key, allow_pickle)
        batch.append((group, frozen, value, expires))
        size += 4 + size_of(frozen) + (0 if value is ABSENT else size_of(value))
    if batch:
        yield _part(kind, batch)


def _part(kind: int, batch: list[tuple[int, Any, Any, float]]) -> Part:
    count = len(batch)
    gone = bytes(value is ABSENT for _, _, value, _ in batch)
    expires = [end for _, _, _, end in batch]
    flat: list[Any] = [
        FORMAT,
        kind,
        count,
        struct.pack(f"<{count}H", *[group for group, _, _, _ in batch]),
        gone if any(gone) else b"",
        struct.pack(f"<{count}d", *expires) if any(expires) else b"",
    ]
    flat += [key for _, key, _, _ in batch]
    flat += [None if value is ABSENT else value for _, _, value, _ in batch]
    return Part(encode(flat), count, batch[0][0], batch[-1][0])


def decode_segment(data: bytes, decode: Callable[[bytes, int], list[Any]]) -> tuple[int, Iterable[Entry]]:
    """Return the kind and the entries of a segment."""
    flat = decode(data, MSGPACK)
    if len(flat) < 6 or flat[0] != FORMAT:
        found = flat[0] if flat else "no"
        raise HeronError(f"a segment of keyed state has format {found}; this release of heronpy reads {FORMAT}")
    _, kind, count, packed, gone, ends = flat[:6]
    if len(flat) != 6 + 2 * count:
        raise HeronError(f"a segment of keyed state has {len(flat) - 6} keys and values for {count} entries")
    groups = struct.unpack(f"<{count}H", packed)
    expires = struct.unpack(f"<{count}d", ends) if ends else (0.0,) * count
    values = [ABSENT if gone and gone[i] else flat[6 + count + i] for i in range(count)]
    return kind, map(Entry, groups, flat[6 : 6 + count], values, expires)


def encode_plain(state: Mapping[Any, Any], allow_pickle: bool, component: str) -> bytes:
    """Encode a plain State as a whole, so that objects with shared parts still share them after decoding. An empty
    State gives empty bytes.
    """
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
    """Return the first entry that cannot be encoded, and the reason."""
    for key, value in state.items():
        for item in (key, value):
            try:
                freeze(item, allow_pickle)
            except WireError as reason:
                return key, reason
    return next(iter(state)), error


def decode_plain(data: bytes, allow_pickle: bool) -> dict[Any, Any]:
    """Return the content of a plain State."""
    if not data:
        return {}
    layout, *items = decoder(allow_pickle=allow_pickle)(data, MSGPACK)
    if layout == _FLAT:
        return dict(zip(items[::2], items[1::2], strict=True))
    if layout == _WHOLE and len(items) == 1 and isinstance(items[0], dict):
        return items[0]
    raise HeronError(f"a saved State has layout {layout}, which this release of heronpy cannot read")
