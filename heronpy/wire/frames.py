"""Frames on the wire: the link header, arrays and runs of roots, edges and their derivation. Pure.

A data message is, after any identity, a 24-byte link header and a serialized Frame (heronpy/proto/frame.proto): one
ZeroMQ part, or two when the frame is large (`message_of`). The header has a magic number and a version, optionally
a checksum of the frame, the link's epoch (the incarnation of the link) and a sequence number (gaps mean loss,
decision D3). Each hop writes a new header and forwards the frame's bytes unchanged.

The roots in an ACK or a COMPLETE are split into runs (first root, number of roots), packed as two arrays. Acks in the
order of the frames are one run; other acks need a run per gap, at 12 bytes each.
"""

from __future__ import annotations

import struct
import zlib

import numpy as np
from numpy.typing import NDArray

from heronpy.common.errors import RemoteWireError
from heronpy.proto import frame_pb2

#: First roots and lengths, packed as in a Frame's run_first and run_length.
Runs = tuple[bytes, bytes]
NO_RUNS: Runs = (b"", b"")

_FIRST, _LENGTH = struct.Struct("<Q"), struct.Struct("<I")
_U64, _U32 = np.dtype("<u8"), np.dtype("<u4")


def one_run(first: int, length: int) -> Runs:
    """Return the `length` roots from `first` on as one run."""
    return _FIRST.pack(first), _LENGTH.pack(length)


def joined(runs: list[Runs]) -> Runs:
    """Return all of these runs, in this order."""
    return b"".join([first for first, _ in runs]), b"".join([length for _, length in runs])


def count_of(runs: Runs) -> int:
    """Return the number of runs."""
    return len(runs[1]) // 4


def only_run(runs: Runs) -> tuple[int, int] | None:
    """Return the first root and the length if there is exactly one run, otherwise None.

    Most messages have one run, and arrays would cost ten times as much.
    """
    if len(runs[0]) != _FIRST.size or len(runs[1]) != _LENGTH.size:
        return None
    return _FIRST.unpack(runs[0])[0], _LENGTH.unpack(runs[1])[0]


def part_of(runs: Runs, low: int, high: int) -> Runs:
    """Return the runs from number `low` up to, but not including, `high`."""
    return runs[0][8 * low : 8 * high], runs[1][4 * low : 4 * high]


def starts_of(roots: NDArray[np.uint64] | NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the start indices of the runs in a non-empty array of ascending, distinct numbers."""
    breaks = np.flatnonzero(np.diff(roots) != 1)
    breaks += 1
    return np.concatenate((np.zeros(1, dtype=np.int64), breaks))


def lengths_of(starts: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Return the lengths of the runs that begin at these indices of `count` numbers."""
    return np.diff(starts, append=count)


def runs_of(roots: NDArray[np.uint64]) -> Runs:
    """Return ascending, distinct roots as runs."""
    if not len(roots):
        return NO_RUNS
    starts = starts_of(roots)
    if len(starts) == 1:
        return one_run(int(roots[0]), len(roots))
    return roots[starts].astype(_U64).tobytes(), lengths_of(starts, len(roots)).astype(_U32).tobytes()


def read_runs(runs: Runs) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Return the first roots and the lengths as arrays."""
    return np.frombuffer(runs[0], dtype=_U64), np.frombuffer(runs[1], dtype=_U32).astype(np.int64)


def spread(first: NDArray[np.int64], length: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the numbers from `first` to `first + length - 1` for each pair, in order."""
    ends = np.cumsum(length)
    numbers = np.arange(int(ends[-1]) if len(ends) else 0, dtype=np.int64)
    numbers += np.repeat(first - (ends - length), length)
    return numbers


def expand(first: NDArray[np.uint64], length: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return all roots of these runs, in order."""
    # 64-bit sums wrap around, so the result is right.
    return spread(first.view(np.int64), length).view(np.uint64)


def distinct(roots: NDArray[np.uint64], values: NDArray[np.uint64]) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Return ascending, distinct roots, each with the XOR of all its values."""
    if (roots[1:] > roots[:-1]).all():
        return roots, values
    # A stable sort is faster here: acks are mostly a few ascending sequences.
    order = np.argsort(roots, kind="stable")
    roots, values = roots[order], values[order]
    firsts = np.concatenate((np.zeros(1, dtype=np.int64), np.flatnonzero(roots[1:] != roots[:-1]) + 1))
    if len(firsts) == len(roots):
        return roots, values
    return roots[firsts], np.bitwise_xor.reduceat(values, firsts)


def runs_fit(frame: frame_pb2.Frame, total: int | None = None) -> bool:
    """Return whether the runs of a frame are complete, not empty and 64 bits wide, and have `total` roots, if given."""
    runs = (frame.run_first, frame.run_length)
    if (only := only_run(runs)) is not None:
        return 0 < only[1] and sum(only) < 1 << 64 and total in (None, only[1])
    if len(runs[0]) % 8 or 2 * len(runs[1]) != len(runs[0]):
        return False
    first, length = read_runs(runs)
    if total is not None and int(length.sum()) != total:
        return False
    return bool((length > 0).all() and (first + length.astype(np.uint64) > first).all())


Frame = frame_pb2.Frame
Kind = frame_pb2.Kind
DATA = frame_pb2.DATA
CREDIT = frame_pb2.CREDIT
ACK = frame_pb2.ACK
FAIL = frame_pb2.FAIL
COMPLETE = frame_pb2.COMPLETE
CLAMP = frame_pb2.CLAMP
LINK_OPEN = frame_pb2.LINK_OPEN
FORGET = frame_pb2.FORGET
REGISTER = frame_pb2.REGISTER
LEAVE = frame_pb2.LEAVE
BARRIER = frame_pb2.BARRIER

#: Kinds whose `dest_task` is the spout task that owns the roots.
ACKER_KINDS = frozenset((ACK, FAIL, FORGET, REGISTER))

_HEADER = struct.Struct("<HBBIQQ")
_PLACE = struct.Struct("<QQ")
_MAGIC = 0x4846
_VERSION = 1
_CHECKED = 1


class LinkHeader:
    """<magic u16, version u8, flags u8, CRC-32 u32, epoch u64, sequence number u64>, little-endian.

    Flag 1 means that the checksum is set. Links between machines use the checksum, because neither the kernel's
    copy nor TCP's 16-bit checksum rules out damage. The checksum covers epoch, sequence number and frame.
    """

    __slots__ = ()

    size = _HEADER.size

    @staticmethod
    def pack(epoch: int, seq: int, frame: bytes | None = None) -> bytes:
        """Return the header as bytes, with a checksum if the frame is given."""
        if frame is None:
            return _HEADER.pack(_MAGIC, _VERSION, 0, 0, epoch, seq)
        crc = zlib.crc32(frame, zlib.crc32(_PLACE.pack(epoch, seq)))
        return _HEADER.pack(_MAGIC, _VERSION, _CHECKED, crc, epoch, seq)

    @staticmethod
    def unpack(header: bytes, frame: bytes | None = None) -> tuple[int, int]:
        """Return the epoch and the sequence number. Raises RemoteWireError if the bytes are not this frame's header."""
        if len(header) != _HEADER.size:
            raise RemoteWireError(f"a link header has {_HEADER.size} bytes, not {len(header)}")
        magic, version, flags, crc, epoch, seq = _HEADER.unpack(header)
        if magic != _MAGIC or version != _VERSION or flags & ~_CHECKED or (crc and not flags):
            raise RemoteWireError(f"link header of unknown kind {magic:#x}, version {version}, flags {flags:#x}")
        if flags and frame is not None and zlib.crc32(frame, zlib.crc32(header[8:])) != crc:
            raise RemoteWireError(f"frame {seq} of link {epoch} is damaged: its checksum is wrong")
        return epoch, seq


LINK_HEADER = LinkHeader()
#: Up to this size, a frame is sent in one part with its header. A second part costs more than the copy of a small
#: frame, and less than the copy of a large frame; from 16 to 48 KiB both cost the same.
JOINED_MAX_BYTES = 16 << 10


def message_of(header: bytes, frame: bytes) -> list[bytes]:
    """Return the parts of a message for a header and a frame."""
    return [header + frame] if len(frame) <= JOINED_MAX_BYTES else [header, frame]


def header_and_frame(parts: list[bytes]) -> tuple[bytes, bytes]:
    """Return the header and the frame of a message, unchecked. Raises ValueError for a wrong number of parts."""
    if len(parts) == 1:
        return parts[0][: _HEADER.size], parts[0][_HEADER.size :]
    header, frame = parts
    return header, frame


def gap(last: int, seq: int) -> int:
    """Return the number of missing frames if `seq` follows `last`; 1 if `seq` is not higher than `last`."""
    return max(1, seq - last - 1)


#: Maximum number of tuples or roots of a frame. It bounds memory: arrays are allocated from the stated number alone.
COUNT_MAX = 1 << 22

U64 = np.dtype("<u8")
U32 = np.dtype("<u4")
U16 = np.dtype("<u2")
Array64 = NDArray[np.uint64]
Array32 = NDArray[np.uint32]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX2 = np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31 = np.uint64(30), np.uint64(27), np.uint64(31)
_MASK = (1 << 64) - 1


def derived_edges(seed: int, count: int) -> Array64:
    """Return the edges of the tuples 0..count-1 of a batch: splitmix64 of (seed + index).

    Sender and receiver derive the same edges, which saves 8 bytes per tuple. splitmix64 is a
    bijection of 64-bit values (Steele, Lea, Flood, OOPSLA 2014), so edges of one batch differ.
    """
    z = np.arange(count, dtype=np.uint64)
    z += np.uint64(seed & _MASK)
    z += _GOLDEN
    z ^= z >> _S30
    z *= _MIX1
    z ^= z >> _S27
    z *= _MIX2
    z ^= z >> _S31
    return z


def fits(frame: frame_pb2.Frame) -> bool:
    """Return whether the counts and arrays of a frame are consistent, so that they are safe to read."""
    count = frame.count
    if count > COUNT_MAX or frame.skip > count:
        return False
    if frame.streams and len(frame.streams) != 2 * count:
        return False
    if frame.kind == COMPLETE:
        return runs_fit(frame)
    if frame.tracked or frame.kind in ACKER_KINDS:
        if frame.kind == ACK and frame.run_first:
            return _is_of_runs(frame)
        return _roots_fit(frame, count)
    return True


def _is_of_runs(frame: frame_pb2.Frame) -> bool:
    """Return whether an ACK has only runs of roots, which contain the stated number of roots."""
    if frame.roots or frame.root_counts or frame.values or frame.derived_edges:
        return False
    return len(frame.run_edge) == len(frame.run_first) and runs_fit(frame, frame.count)


def _roots_fit(frame: frame_pb2.Frame, roots: int) -> bool:
    if frame.roots:
        size = len(frame.roots)
        if size % 8 or (size != 8 * roots and not frame.root_counts):
            return False
        roots = size // 8
    elif frame.root_base + roots > _MASK:
        return False
    if frame.root_counts:
        if len(frame.root_counts) != 4 * frame.count:
            return False
        roots = roots if frame.roots else 0
        if int(np.frombuffer(frame.root_counts, dtype=U32).sum(dtype=np.uint64)) != roots:
            return False
    tasks, values = len(frame.root_tasks), len(frame.values)
    return (not tasks or tasks == 4 * roots) and (not values or values == 8 * roots)


def edges_of(frame: frame_pb2.Frame) -> Array64:
    """Return the edge of each tuple of a tracked frame."""
    if frame.derived_edges:
        return derived_edges(frame.edge, frame.count)
    return np.full(frame.count, frame.edge, dtype=np.uint64)


def roots_of(frame: frame_pb2.Frame) -> Array64:
    """Return all roots of a frame, in order (a tuple may have several if the frame has root_counts)."""
    if frame.roots:
        return np.frombuffer(frame.roots, dtype=U64)
    # The frame has counts of roots but lists no roots, so no tuple has a root.
    roots = np.arange(0 if frame.root_counts else frame.count, dtype=np.uint64)
    roots += np.uint64(frame.root_base)
    return roots


def root_tasks_of(frame: frame_pb2.Frame, roots: int) -> Array32:
    """Return the spout task of each of the `roots` roots."""
    if frame.root_tasks:
        return np.frombuffer(frame.root_tasks, dtype=U32)
    return np.full(roots, frame.root_task, dtype=np.uint32)


def values_of(frame: frame_pb2.Frame) -> Array64:
    """Return the XOR value of each root of an ACK or REGISTER."""
    if frame.values:
        return np.frombuffer(frame.values, dtype=U64)
    edges = edges_of(frame)
    if frame.root_counts:
        counts = np.frombuffer(frame.root_counts, dtype=U32)
        if int(counts.sum(dtype=np.uint64)) > COUNT_MAX:
            raise ValueError("the frame has too many roots")
        return np.repeat(edges, counts)
    return edges


def pack64(values: Array64 | list[int]) -> bytes:
    """Return uint64 values as little-endian bytes."""
    return np.asarray(values, dtype=U64).tobytes()


def pack16(values: list[int]) -> bytes:
    """Return uint16 values as little-endian bytes."""
    return np.asarray(values, dtype=U16).tobytes()


def unpack16(data: bytes) -> list[int]:
    """Return the uint16 values that `pack16` has packed."""
    values: list[int] = np.frombuffer(data, dtype=U16).tolist()
    return values


def pack32(values: Array32 | list[int]) -> bytes:
    """Return uint32 values as little-endian bytes."""
    return np.asarray(values, dtype=U32).tobytes()
