"""The keys of a topology's TCP links (CurveZMQ, "Ironhouse"). `transport` decides whether there are such links.

`heron submit` creates two key pairs, one for listeners and one for clients, and stores them in `<working_dir>/keys`
(mode 0700, files 0600); instead, an orchestrator may mount them there as a secret. Every process of the topology reads
them there; they never appear in a launch file, plan, log, argument or environment variable. Each `heron submit` creates
new keys. A listener proves that it has the server's secret key, and a client proves that it has the client's secret
key. Links over ipc are not encrypted, because only the user can enter the folder with the sockets.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any, Final

import zmq
from msgspec import Struct

from heronpy.common.errors import ConfigError
from heronpy.common.folders import replace_file
from heronpy.net.private import check_private, is_mounted, make_private, read_mounted, read_private

_SERVER: Final = "server.key"
_CLIENT: Final = "client.key"
_NAMES: Final = (_SERVER, _CLIENT)
_FILE: Final = re.compile(rb"public ([!-~]{40})\nsecret ([!-~]{40})\n")
_FILE_MAX_BYTES: Final = 1024


class Pair(Struct, frozen=True):
    """A public key and its secret, in Z85."""

    public: bytes
    secret: bytes

    def __repr__(self) -> str:
        """The pair without its secret, which must not appear in tracebacks and logs."""
        return f"Pair({self.public.decode()})"


class Keys(Struct, frozen=True):
    """The keys of one topology, whose id is their ZAP domain."""

    domain: str
    server: Pair
    client: Pair

    def listen(self, sock: zmq.Socket[Any]) -> None:
        """Configure the socket so that endpoints which it binds from now on accept only holders of the client key.

        The ZAP domain is enforced, because ZeroMQ would otherwise accept every connection while its ZAP requests are
        not answered. A process that enforces the domain and has no `Authenticator` accepts no connection.
        """
        sock.setsockopt(zmq.CURVE_SERVER, 1)
        sock.setsockopt(zmq.CURVE_PUBLICKEY, self.server.public)
        sock.setsockopt(zmq.CURVE_SECRETKEY, self.server.secret)
        sock.setsockopt(zmq.ZAP_DOMAIN, self.domain.encode()[:255])
        sock.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)

    def connect(self, sock: zmq.Socket[Any]) -> None:
        """Configure the socket so that from now on it connects only to holders of the server's key (pinned)."""
        sock.setsockopt(zmq.CURVE_SERVERKEY, self.server.public)
        sock.setsockopt(zmq.CURVE_PUBLICKEY, self.client.public)
        sock.setsockopt(zmq.CURVE_SECRETKEY, self.client.secret)


def folder_of(working_dir: str) -> Path:
    """The folder of a topology's keys."""
    return Path(working_dir) / "keys"


def generate(working_dir: str) -> None:
    """Create new keys, which replace the keys of an earlier topology with this name."""
    remove(working_dir)
    save(folder_of(working_dir), Pair(*zmq.curve_keypair()), Pair(*zmq.curve_keypair()))


def save(folder: Path, server: Pair, client: Pair) -> None:
    """Write both pairs into a new folder that is private to this user."""
    make_private(folder)
    for name, pair in zip(_NAMES, (server, client), strict=True):
        replace_file(folder / name, pair_text(pair))


def remove(working_dir: str) -> None:
    """Delete the keys; call this once no process needs them."""
    shutil.rmtree(folder_of(working_dir), ignore_errors=True)


def load(working_dir: str, domain: str) -> Keys:
    """Read the keys; raises ConfigError if they are missing, damaged or readable by others."""
    return read(folder_of(working_dir), domain)


def read(folder: Path, domain: str) -> Keys:
    """Read both pairs from a folder, as `load` does."""
    return Keys(domain, *(read_pair(folder, name) for name in _NAMES))


def read_pair(folder: Path, name: str) -> Pair:
    """Read one pair from a folder; raises ConfigError if it is missing, damaged or readable by others."""
    return _pair(folder / name, read_secret(folder, name))


def pair_text(pair: Pair) -> bytes:
    return b"public %s\nsecret %s\n" % (pair.public, pair.secret)


def read_secret(folder: Path, name: str) -> bytes:
    """Read a file from a folder of keys; raises ConfigError unless it is the user's own or a mounted secret."""
    if is_mounted(folder):
        return read_mounted(folder, name, _FILE_MAX_BYTES)
    check_private(folder)
    return read_private(folder / name, _FILE_MAX_BYTES)


def _pair(path: Path, content: bytes) -> Pair:
    match = _FILE.fullmatch(content)
    if match is None or not is_pair(match[1], match[2]):
        raise ConfigError(f"{path} contains no key pair; submit the topology again")
    return Pair(match[1], match[2])


def is_pair(public: bytes, secret: bytes) -> bool:
    """Whether a public key belongs to a secret key, both in Z85."""
    try:
        return bytes(zmq.curve_public(secret)) == public
    except (zmq.ZMQError, ValueError):
        return False
