"""Decides between ipc and TCP for the connections between a topology's processes.

On one machine, sockets are in the file system (ipc), in a private folder of the user, and nothing listens on the
network. On several machines, or on request, TCP is used, always with the topology's keys (CurveZMQ). `bind` and
`connect` refuse TCP without keys.
"""

from __future__ import annotations

import enum
import errno
import ipaddress
import os
import re
import socket
import stat
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import zmq

from heronpy.common.errors import ConfigError, RpcError
from heronpy.common.folders import check_root
from heronpy.common.setting_types import SecuritySettings
from heronpy.common.settings import HasSettings, settings_for
from heronpy.net.addresses import in_any_order, is_loopback, network_of, ports_of
from heronpy.net.curve import Keys, load
from heronpy.net.private import check_private

if TYPE_CHECKING:
    from heronpy.net.authenticator import Authenticator

_IPC: Final = "ipc://"
#: The kernel's limit on the path of a socket.
PATH_MAX_BYTES: Final = 107


class Transport(enum.Enum):
    """The kind of sockets that stream managers and the topology master use."""

    IPC = "ipc"
    TCP = "tcp"


class HasPlace(HasSettings, Protocol):
    """The part of a launch specification that this module needs."""

    @property
    def topology_id(self) -> str: ...

    @property
    def working_dir(self) -> str: ...

    @property
    def sockets_dir(self) -> str: ...

    @property
    def address(self) -> str: ...


def choose(settings: SecuritySettings) -> Transport:
    """The transport that the settings choose: TCP if they name an address that other hosts can reach."""
    if settings.transport == "auto":
        return Transport.IPC if is_loopback(settings.bind_host) else Transport.TCP
    return Transport(settings.transport)


def transport_of(launch: HasPlace) -> Transport:
    """The transport of this host's processes: TCP if the host has an address for other hosts."""
    settings = settings_for(launch, SecuritySettings)
    if not launch.address:
        return choose(settings)
    if settings.transport == "ipc":
        raise ConfigError(
            "heron.security.transport is ipc, which works on one machine only, but the containers are on several hosts;"
            " set it to tcp"
        )
    return Transport.TCP


def check(settings: SecuritySettings) -> None:
    """Raise ConfigError for settings that cannot work on any host. Called before any process is started."""
    network_of(settings.network)
    ports_of(settings.port_range)
    host = settings.bind_host
    try:
        address = ipaddress.IPv4Address("127.0.0.1" if host == "localhost" else host)
    except ValueError:
        raise ConfigError(
            f"heron.security.bind_host is {host!r} but must be the IPv4 address of one network interface of this"
            " machine, such as 127.0.0.1"
        ) from None
    if address.is_unspecified or address.is_multicast:
        raise ConfigError(
            f"heron.security.bind_host {host} is not an address that other hosts can reach; use the address of"
            " one network interface of this machine"
        )
    if choose(settings) is Transport.IPC:
        if not address.is_loopback:
            raise ConfigError(
                f"heron.security.bind_host is {host} but heron.security.transport is ipc, which works on one"
                " machine only; set heron.security.transport to auto, or remove bind_host"
            )


def check_address(settings: SecuritySettings) -> None:
    """Raise ConfigError if this host should listen at an address that it does not have."""
    if choose(settings) is Transport.IPC:
        return
    host = settings.bind_host
    if not zmq.has("curve"):
        raise ConfigError("the libzmq of this Python does not support CURVE; install pyzmq from a wheel")
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1" if host == "localhost" else host, 0))
        except OSError as error:
            raise ConfigError(
                f"heron.security.bind_host {host} cannot be bound on this machine: {error.strerror}"
            ) from None


def keys_of(launch: HasPlace) -> Keys | None:
    """The keys of a topology's TCP links; None if it has no such links. Raises ConfigError if the keys are missing."""
    if transport_of(launch) is Transport.IPC:
        return None
    return load(launch.working_dir, launch.topology_id)


def endpoint_of(launch: HasPlace, name: str) -> str:
    """The address at which this incarnation of a stream manager or topology master listens for other processes.

    `name` is unique to this incarnation, like a port. A peer of the previous incarnation counts frames as delivered
    that this incarnation has not received, so the peer must not reach this incarnation.
    """
    if transport_of(launch) is Transport.IPC:
        return f"{_IPC}{launch.sockets_dir}/{name}"
    settings = settings_for(launch, SecuritySettings)
    host = launch.address or settings.bind_host
    return f"tcp://{'127.0.0.1' if host == 'localhost' else host}:{settings.port_range or '*'}"


def remove_stale(sockets_dir: str, name: str) -> None:
    """Remove the sockets `<name>.<incarnation>.*` that no longer have a listener."""
    ours = re.compile(re.escape(name) + r"\.[0-9a-f]+\.\w+")
    for path in Path(sockets_dir).iterdir():
        if ours.fullmatch(path.name) and _is_dead(path):
            path.unlink(missing_ok=True)


def _is_dead(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        try:
            probe.connect(os.fspath(path))
        except ConnectionRefusedError:
            return True
        except OSError:
            return False  # it is busy, stopped, or just gone
    return False


def authenticator_of(keys: Keys | None) -> Authenticator | None:
    """The authenticator for TCP connections; None if nothing listens on TCP."""
    if keys is None:
        return None
    from heronpy.net.authenticator import Authenticator

    return Authenticator(keys)


def bind(sock: zmq.Socket[bytes], endpoint: str, keys: Keys | None = None) -> str:
    """Bind a socket; returns the actual endpoint. Endpoints other than ipc accept only holders of the client key.

    The port of a TCP endpoint may be * or a range such as 7000-7099, from which any free port is taken. Bind ipc
    endpoints first, because keys apply to all endpoints that a socket binds later. An ipc socket is in a private folder
    of the user, replaces a dead predecessor's file, and has mode 0600; the kernel reports the user of each client
    (SO_PEERCRED), and other users are refused. Raises ConfigError for TCP without keys, and if all ports are taken.
    """
    if endpoint.startswith(_IPC):
        path = endpoint[len(_IPC) :]
        if len(os.fsencode(path)) > PATH_MAX_BYTES:
            raise RpcError(
                f"socket path {path} is longer than {PATH_MAX_BYTES} bytes; set TMPDIR to a folder with a shorter path"
            )
        check_private(os.path.dirname(path))
        if os.path.lexists(path):
            os.unlink(path)
        sock.setsockopt(zmq.IPC_FILTER_UID, os.getuid())
        sock.bind(endpoint)
        os.chmod(path, 0o600)
        return endpoint
    _keys_for(endpoint, keys).listen(sock)
    _bind_network(sock, endpoint)
    endpoint_bytes = sock.getsockopt(zmq.LAST_ENDPOINT)
    assert isinstance(endpoint_bytes, bytes)
    return endpoint_bytes.rstrip(b"\0").decode()


def _bind_network(sock: zmq.Socket[bytes], endpoint: str) -> None:
    host, _, text = endpoint.rpartition(":")
    if "-" not in text:
        sock.bind(endpoint)
        return
    ports = ports_of(text)
    for port in in_any_order(ports or range(0)):
        try:
            sock.bind(f"{host}:{port}")
            return
        except zmq.ZMQError as error:
            if error.errno != errno.EADDRINUSE:
                raise
    raise ConfigError(
        f"all ports {text} of {host.removeprefix('tcp://')} are taken; free some ports, or widen"
        " heron.security.port_range"
    )


def connect(sock: zmq.Socket[bytes], endpoint: str, keys: Keys | None = None) -> None:
    """Connect to a process of this user; the folder (ipc) or the key (TCP) proves who owns the process.

    Raises ConfigError for a folder that other users can replace, for TCP without keys, and for ipc with keys: keys are
    used only between hosts, so an ipc endpoint given with keys is not that of the intended process. A missing folder is
    not an error: no process is listening, for example because the topology has ended.
    """
    if endpoint.startswith(_IPC):
        if keys is not None:
            raise ConfigError(
                f"{endpoint} is not a TCP endpoint, so no process of topology {keys.domain} listens there"
            )
        with suppress(FileNotFoundError):
            check_folder(os.path.dirname(endpoint[len(_IPC) :]))
    else:
        _keys_for(endpoint, keys).connect(sock)
    sock.connect(endpoint)


def check_folder(folder: str) -> None:
    """Raise ConfigError unless only this user can have created the sockets in the folder.

    Other users must not be able to rename the folder either, because they could then replace it. Raises
    FileNotFoundError if the folder is missing.
    """
    above = os.stat(os.path.dirname(folder))
    os.lstat(folder)
    check_private(folder)
    loose = above.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not above.st_mode & stat.S_ISVTX
    if loose or above.st_uid not in (0, os.getuid()):
        raise ConfigError(
            f"other users can replace {folder}, which contains this topology's sockets; make"
            f" {os.path.dirname(folder)} a folder that only you can write to, then submit the topology again"
        )
    check_root(os.path.dirname(os.path.dirname(folder)), "the folder for temporary files", sticky=True)


def _keys_for(endpoint: str, keys: Keys | None) -> Keys:
    if keys is None:
        raise ConfigError(f"{endpoint} would be a network link without keys, open to everyone, which is not allowed")
    return keys
