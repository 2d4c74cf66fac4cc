"""The layout of state in ZooKeeper: names of znodes and the format of their values. Pure.

Node "epochs/word_count/tmaster" is the znode `<chroot>/epochs/word_count%2Ftmaster`. There are two levels, because
any node may have nodes below it, but a ZooKeeper ephemeral cannot have children. A value is one header line (the unique
number of the write, the kind, the owner of an ephemeral), followed by the data, or by the list of pieces if the data is
large. Invariants: every znode of heronpy has a header, so foreign znodes are detected; reserved names begin with "%"
and a lower-case letter, unlike any encoded name.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, unquote

from heronpy.common.errors import ConfigError, DamagedStateError, StateError
from heronpy.statemgr.base import MAX_BYTES
from heronpy.statemgr.paths import check_path

PIECE_BYTES: Final = 512 * 1024
"""Maximum bytes of data in one znode: half of a server's default limit (jute.maxbuffer)."""

DEFAULT_CHROOT: Final = "/heron"
_HEADER: Final = re.compile(rb"heronzk1 ([0-9a-f]{32}) (whole|pieces) (-|[0-9a-f]+:\d+:\d+)\n")
_HEADER_MAX: Final = 160
SINGLE: Final = "/%single"
"""The parent of nodes whose path has one segment."""
_PIECES: Final = re.compile(rb"([0-9a-f]{32}) (\d{1,4}) (\d{1,10}) ([0-9a-f]{8})")


@dataclass(frozen=True, slots=True)
class Pieces:
    """The location of large data: znodes 0, 1, ... below a folder that is written once."""

    folder: str
    count: int
    length: int
    checksum: int


@dataclass(frozen=True, slots=True)
class Value:
    """The content of a znode."""

    write: str
    """Unique number of this write, which identifies it even if its answer was lost."""
    data: bytes
    owner: str = "-"
    pieces: Pieces | None = None

    def to_bytes(self) -> bytes:
        kind = "pieces" if self.pieces else "whole"
        body = self.data
        if self.pieces:
            at = self.pieces
            body = f"{at.folder} {at.count} {at.length} {at.checksum:08x}".encode()
        return f"heronzk1 {self.write} {kind} {self.owner}\n".encode() + body

    def whole(self, pieces: list[bytes]) -> bytes | None:
        """Assemble the data from its pieces; returns None if they do not match."""
        data = b"".join(pieces)
        at = self.pieces
        if at is None or len(data) != at.length or zlib.crc32(data) != at.checksum:
            return None
        return data


def parse(znode: str, content: bytes) -> Value:
    match = _HEADER.match(content[:_HEADER_MAX])
    if match:
        write, body, owner = match[1].decode(), content[match.end() :], match[3].decode()
        if match[2] == b"whole":
            return Value(write, body, owner)
        found = _PIECES.fullmatch(body)
        if found:
            pieces = Pieces(found[1].decode(), int(found[2]), int(found[3]), int(found[4], 16))
            return Value(write, b"", owner, pieces)
    raise DamagedStateError(f"ZooKeeper node {znode} does not contain heron state; remove the node")


def split(data: bytes) -> list[bytes]:
    """Split data into pieces that fit into a znode."""
    return [data[at : at + PIECE_BYTES] for at in range(0, len(data), PIECE_BYTES)]


def describe_pieces(folder: str, data: bytes) -> Pieces:
    return Pieces(folder, len(split(data)), len(data), zlib.crc32(data))


def check_size(path: str, data: bytes, ephemeral: bool = False) -> None:
    """Raise an error if a value is too large to store."""
    if len(data) > MAX_BYTES:
        raise StateError(f"value of state node {path!r} exceeds {MAX_BYTES} bytes")
    if ephemeral and len(data) > PIECE_BYTES:
        raise StateError(
            f"value of ephemeral state node {path!r} has {len(data)} bytes, but ZooKeeper accepts at most"
            f" {PIECE_BYTES}; keep large data in a node that is not ephemeral"
        )


def of(path: str) -> str:
    """The znode of a node."""
    first, *rest = check_path(path)
    return f"/{_encode(first)}/{_encode('/'.join(rest))}" if rest else f"{SINGLE}/{_encode(first)}"


def lock_of(path: str) -> str:
    check_path(path)
    return f"/%locks/{_encode(path)}"


def pieces_of(path: str) -> str:
    """The parent znode of the pieces of a node's large data."""
    return f"/%pieces/{_encode(path)}"


def parent(znode: str) -> str:
    return znode.rpartition("/")[0] or "/"


def folder_and_prefix(path: str) -> tuple[str, str]:
    """Return where the nodes below a path are: a znode, and the prefix of their names in this znode."""
    first, *rest = check_path(path)
    return f"/{_encode(first)}", _encode("/".join(rest)) + "%2F" if rest else ""


def names_below(entries: list[str], prefix: str) -> list[str]:
    """Return the first segments after the prefix, sorted."""
    below = {entry[len(prefix) :].split("%2F")[0] for entry in entries if entry.startswith(prefix)}
    return sorted(unquote(name) for name in below)


def is_reserved(entry: str) -> bool:
    """Whether an entry of the root is not a folder of nodes."""
    return re.match("%[a-z]", entry) is not None


def parse_root(root: str) -> tuple[str, str]:
    """Split `host:port,host:port/chroot` into hosts and chroot."""
    hosts, _, chroot = root.partition("/")
    named = [host.strip() for host in hosts.split(",")]
    good = all(re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[\w.-]+)(:\d{1,5})?", host) for host in named)
    segments = chroot.strip("/").split("/") if chroot.strip("/") else []
    if not good or any(part in ("", ".", "..") or not part.isprintable() for part in segments):
        raise ConfigError(
            f"{root!r} is not a root of a 'zookeeper' state manager (heron.statemgr.root);"
            " write host:port,host:port/path, as in 127.0.0.1:2181/heron"
        )
    return ",".join(named), "/" + "/".join(segments) if segments else DEFAULT_CHROOT


def _encode(name: str) -> str:
    return quote(name, safe=" ")
