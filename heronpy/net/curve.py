"""The keys of a topology's TCP links, and when they are used (CurveZMQ, "Ironhouse"; S10).

`heron submit` makes two key pairs, one for those who listen and one for those who connect, and leaves
them in `<working_dir>/keys`, mode 0700, files 0600. Every process of the topology finds them there; they
are in no launch file, plan, log, argument or environment variable (S13, S17). A new submit makes new ones.

Who listens proves that it has the server's secret key; who connects, the client's. Links over ipc stay
plain: the folder of the sockets lets nobody else in.
"""

from __future__ import annotations

import ipaddress
import re
import shutil
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import zmq

from heronpy.common.errors import ConfigError
from heronpy.common.rooms import SecuritySettings
from heronpy.common.settings import HasSettings, settings_for
from heronpy.net.private import check_private, make_private, read_private, write_private

_SERVER: Final = "server.key"
_CLIENT: Final = "client.key"
_FILE: Final = re.compile(rb"public ([!-~]{40})\nsecret ([!-~]{40})\n")
_FILE_MAX_BYTES: Final = 1024


class HasPlace(HasSettings, Protocol):
    """What `keys_of` needs of a launch specification."""

    @property
    def topology_id(self) -> str: ...

    @property
    def working_dir(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Pair:
    """A public key and its secret, in Z85."""

    public: bytes
    secret: bytes

    def __repr__(self) -> str:
        """A traceback or log that shows a pair must not tell the secret."""
        return f"Pair({self.public.decode()})"


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one topology; its id is their domain in ZAP."""

    domain: str
    server: Pair
    client: Pair

    def listen(self, sock: zmq.Socket[Any]) -> None:
        """What this socket binds from now on takes only those who have the client's key.

        ZeroMQ lets everybody in when nobody answers its ZAP requests, unless the domain is enforced: so a
        process that forgot its `Gate` lets nobody in (S05).
        """
        sock.setsockopt(zmq.CURVE_SERVER, 1)
        sock.setsockopt(zmq.CURVE_PUBLICKEY, self.server.public)
        sock.setsockopt(zmq.CURVE_SECRETKEY, self.server.secret)
        sock.setsockopt(zmq.ZAP_DOMAIN, self.domain.encode()[:255])
        sock.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)

    def connect(self, sock: zmq.Socket[Any], endpoint: str) -> None:
        """What this socket connects to must have the server's key (pinned); ipc stays plain."""
        if endpoint.startswith("tcp:"):
            sock.setsockopt(zmq.CURVE_SERVERKEY, self.server.public)
            sock.setsockopt(zmq.CURVE_PUBLICKEY, self.client.public)
            sock.setsockopt(zmq.CURVE_SECRETKEY, self.client.secret)


def wanted(settings: SecuritySettings) -> bool:
    """Whether the TCP links of a topology are encrypted."""
    return settings.curve == "on" or (settings.curve == "auto" and not _is_loopback(settings.bind_host))


def check(settings: SecuritySettings) -> None:
    """Refuse what would leave a door open, before anything is started."""
    host = settings.bind_host
    try:
        address = ipaddress.IPv4Address("127.0.0.1" if host == "localhost" else host)
    except ValueError:
        raise ConfigError(
            f"heron.security.bind_host is {host!r} but must be the IPv4 address of one network interface of this"
            " machine, such as 127.0.0.1."
        ) from None
    if address.is_unspecified or address.is_multicast:
        raise ConfigError(
            f"heron.security.bind_host {host} is no address that others can connect to; name the address of one"
            " network interface of this machine."
        )
    if not address.is_loopback and settings.curve == "off":
        raise ConfigError(
            f"heron.security.bind_host {host} is open to other machines and heron.security.curve is off: anybody who"
            " can reach it could take over the topology; set heron.security.curve to auto, or bind_host to 127.0.0.1."
        )
    if wanted(settings) and not zmq.has("curve"):
        raise ConfigError("The libzmq of this Python has no CURVE; install pyzmq from its wheels.")
    with socket.socket() as probe:
        try:
            probe.bind((str(address), 0))
        except OSError as error:
            raise ConfigError(
                f"heron.security.bind_host {host} cannot be bound on this machine: {error.strerror}."
            ) from None


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def tcp_endpoint(launch: HasSettings) -> str:
    """What a stream manager or topology master of this topology binds."""
    host = settings_for(launch, "security").bind_host
    return f"tcp://{'127.0.0.1' if host == 'localhost' else host}:*"


def keys_of(launch: HasPlace) -> Keys | None:
    """The keys of a topology; None when its links are plain. Never plain because keys are missing."""
    return load(launch.working_dir, launch.topology_id) if wanted(settings_for(launch, "security")) else None


def folder_of(working_dir: str) -> Path:
    """Where the keys of a topology lie."""
    return Path(working_dir) / "keys"


def generate(working_dir: str) -> None:
    """Make new keys; those of an earlier topology of this name are gone."""
    remove(working_dir)
    folder = folder_of(working_dir)
    make_private(folder)
    for name in (_SERVER, _CLIENT):
        public, secret = zmq.curve_keypair()
        write_private(folder / name, b"public %s\nsecret %s\n" % (public, secret))


def remove(working_dir: str) -> None:
    """Forget the keys; nothing runs that needs them."""
    shutil.rmtree(folder_of(working_dir), ignore_errors=True)


def load(working_dir: str, domain: str) -> Keys:
    """Read the keys; ConfigError when they are missing, damaged or readable by others."""
    folder = folder_of(working_dir)
    check_private(folder)
    return Keys(domain, _load_pair(folder / _SERVER), _load_pair(folder / _CLIENT))


def _load_pair(path: Path) -> Pair:
    match = _FILE.fullmatch(read_private(path, _FILE_MAX_BYTES))
    if match is None or not _matches(match[1], match[2]):
        raise ConfigError(f"{path} holds no key pair; submit the topology again.")
    return Pair(match[1], match[2])


def _matches(public: bytes, secret: bytes) -> bool:
    try:
        return bytes(zmq.curve_public(secret)) == public
    except (zmq.ZMQError, ValueError):
        return False
