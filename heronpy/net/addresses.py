"""The address and ports at which a host's processes listen for connections from other hosts.

Hosts differ in the names and order of their interfaces, so the operator may name a network; otherwise the address is
the one on the route to a peer that all hosts use. IPv4 only.
"""

from __future__ import annotations

import ipaddress
import random
import re
import socket
from collections.abc import Iterator, Sequence
from typing import Final

from heronpy.common.errors import ConfigError

_RANGE: Final = re.compile(r"([0-9]{1,5})-([0-9]{1,5})")
_PORT_MAX: Final = 65535
#: Value of heron.executor.metrics_host for the address at which other hosts reach this one.
PAGE_ON_HOST: Final = "host"
_HOST: Final = re.compile(r"[0-9A-Za-z]([0-9A-Za-z.\-]{0,251}[0-9A-Za-z])?")


def network_of(text: str) -> ipaddress.IPv4Network | None:
    """The value of heron.security.network, None if it is empty; raises ConfigError if it is not an IPv4 network."""
    if not text:
        return None
    try:
        return ipaddress.IPv4Network(text, strict=False)
    except ValueError:
        raise ConfigError(
            f"heron.security.network is {text!r} but must be an IPv4 network such as 10.1.0.0/16"
        ) from None


def ports_of(text: str) -> range | None:
    """The value of heron.security.port_range, None if it is empty; raises ConfigError if it is not a range of ports."""
    if not text:
        return None
    match = _RANGE.fullmatch(text)
    first, last = (int(match[1]), int(match[2])) if match is not None else (0, 0)
    if not 0 < first <= last <= _PORT_MAX:
        raise ConfigError(
            f"heron.security.port_range is {text!r} but must be first-last, such as 20000-20999, with ports up to"
            f" {_PORT_MAX}"
        )
    return range(first, last + 1)


def is_loopback(host: str) -> bool:
    """Whether only processes of the same host can reach this address or name."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def page_host(wanted: str, address: str, bind_host: str) -> str:
    """The address at which metrics pages listen; `wanted` is heron.executor.metrics_host.

    `address` is the address at which other hosts reach this host, or empty; `bind_host` is used instead for a topology
    on one machine.
    """
    return (address or bind_host) if wanted == PAGE_ON_HOST else wanted


def told_at(endpoint_host: str, endpoints: Sequence[str]) -> list[str]:
    """The published addresses of the control endpoint: `endpoints`, or their ports at heron.engine.endpoint_host.

    Raises ConfigError if that setting is neither a DNS name nor an IPv4 address.
    """
    if not endpoint_host:
        return list(endpoints)
    if not _HOST.fullmatch(endpoint_host):
        raise ConfigError(f"heron.engine.endpoint_host is {endpoint_host!r} but must be a DNS name or an IPv4 address")
    return list(dict.fromkeys(f"tcp://{endpoint_host}:{one.rpartition(':')[2]}" for one in endpoints))


def in_any_order(ports: range) -> Iterator[int]:
    """All ports, from a random port upwards and then from the first, so that processes seldom try the same port."""
    start = random.randrange(len(ports))
    yield from ports[start:]
    yield from ports[:start]


def address_here(network: str, towards: str) -> str:
    """The address at which this host's processes listen.

    If `network` (CIDR) is not empty, it is an address of this host in that network; otherwise it is the host's address
    on the route to `towards`, a ZeroMQ endpoint or host:port. Nothing is sent. Raises ConfigError if there is no such
    address.
    """
    wanted = network_of(network)
    if wanted is None:
        return _towards(towards.removeprefix("tcp://"))
    mine = _addresses()
    found = [address for address in mine if ipaddress.IPv4Address(address) in wanted]
    if not found:
        raise ConfigError(
            f"host {socket.gethostname()} has no address in heron.security.network {network}; its addresses are"
            f" {', '.join(mine)}"
        )
    return found[0]


def _addresses() -> list[str]:
    """The IPv4 addresses of all interfaces."""
    import psutil  # needed only where an operator names a network

    return [
        one.address for found in psutil.net_if_addrs().values() for one in found if one.family is socket.AF_INET
    ]  # fmt: skip


def _towards(peer: str) -> str:
    host, _, port = peer.rpartition(":")
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((host, int(port)))
            address: str = probe.getsockname()[0]
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ConfigError(
            f"host {socket.gethostname()} has no address from which it reaches {peer} ({reason}); its addresses are"
            f" {', '.join(_addresses())}; set heron.security.network"
        ) from None
    return address
