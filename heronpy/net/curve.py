"""The keys of a topology's TCP links (CurveZMQ, "Ironhouse"). `transport` decides when there are such links.

`heron submit` makes two key pairs, one for listeners and one for clients, and stores them in
`<working_dir>/keys`, mode 0700, files 0600. Every process of the topology reads them there; they never
appear in a launch file, plan, log, argument or environment variable. Each submit makes new ones.

A listener proves that it has the server's secret key, a connecting process the client's. Links over ipc are
not encrypted: only the user can enter the folder of the sockets.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import zmq

from heronpy.common.errors import ConfigError
from heronpy.net.private import check_private, make_private, read_private, write_private

_SERVER: Final = "server.key"
_CLIENT: Final = "client.key"
_FILE: Final = re.compile(rb"public ([!-~]{40})\nsecret ([!-~]{40})\n")
_FILE_MAX_BYTES: Final = 1024


@dataclass(frozen=True, slots=True)
class Pair:
    """A public key and its secret, in Z85."""

    public: bytes
    secret: bytes

    def __repr__(self) -> str:
        """Without the secret, which must not appear in tracebacks and logs."""
        return f"Pair({self.public.decode()})"


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one topology, whose id is their ZAP domain."""

    domain: str
    server: Pair
    client: Pair

    def listen(self, sock: zmq.Socket[Any]) -> None:
        """Endpoints that this socket binds from now on accept only holders of the client key.

        Unless the ZAP domain is enforced, ZeroMQ accepts every connection when its ZAP requests are not answered.
        With it, a process without a `Gate` accepts none.
        """
        sock.setsockopt(zmq.CURVE_SERVER, 1)
        sock.setsockopt(zmq.CURVE_PUBLICKEY, self.server.public)
        sock.setsockopt(zmq.CURVE_SECRETKEY, self.server.secret)
        sock.setsockopt(zmq.ZAP_DOMAIN, self.domain.encode()[:255])
        sock.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)

    def connect(self, sock: zmq.Socket[Any]) -> None:
        """From now on this socket connects only to holders of the server's key (pinned)."""
        sock.setsockopt(zmq.CURVE_SERVERKEY, self.server.public)
        sock.setsockopt(zmq.CURVE_PUBLICKEY, self.client.public)
        sock.setsockopt(zmq.CURVE_SECRETKEY, self.client.secret)


def folder_of(working_dir: str) -> Path:
    """The folder of a topology's keys."""
    return Path(working_dir) / "keys"


def generate(working_dir: str) -> None:
    """Make new keys, replacing those of an earlier topology of this name."""
    remove(working_dir)
    folder = folder_of(working_dir)
    make_private(folder)
    for name in (_SERVER, _CLIENT):
        public, secret = zmq.curve_keypair()
        write_private(folder / name, b"public %s\nsecret %s\n" % (public, secret))


def remove(working_dir: str) -> None:
    """Delete the keys, once no process needs them."""
    shutil.rmtree(folder_of(working_dir), ignore_errors=True)


def load(working_dir: str, domain: str) -> Keys:
    """Read the keys; ConfigError when they are missing, damaged or readable by others."""
    folder = folder_of(working_dir)
    check_private(folder)
    return Keys(domain, _load_pair(folder / _SERVER), _load_pair(folder / _CLIENT))


def _load_pair(path: Path) -> Pair:
    match = _FILE.fullmatch(read_private(path, _FILE_MAX_BYTES))
    if match is None or not _matches(match[1], match[2]):
        raise ConfigError(f"{path} holds no key pair; submit the topology again")
    return Pair(match[1], match[2])


def _matches(public: bytes, secret: bytes) -> bool:
    try:
        return bytes(zmq.curve_public(secret)) == public
    except (zmq.ZMQError, ValueError):
        return False
