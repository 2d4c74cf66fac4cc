"""Queries the kernel for the user at the other end of a TCP connection on this machine (sock_diag(7), INET_DIAG).

The query names the one socket whose local end is the client's address and whose remote end is the tracker's. The answer
is used only if that socket is established and belongs to a process: a closing socket has no owner, and the kernel then
reports uid 0.
"""

from __future__ import annotations

import ipaddress
import socket
import struct
from typing import Final

_NETLINK_SOCK_DIAG: Final = 4
_SOCK_DIAG_BY_FAMILY: Final = 20
_NLM_F_REQUEST: Final = 1
_ESTABLISHED: Final = 1
#: nlmsghdr; inet_diag_req_v2 up to the socket's id; inet_diag_sockid: ports, addresses, interface, cookie.
_HEADER: Final = struct.Struct("=IHHII")
_REQUEST: Final = struct.Struct("=BBBxI")
_PORTS: Final = struct.Struct("!HH")
_NO_COOKIE: Final = b"\xff" * 8
#: inet_diag_msg: family, state, timer, retransmits, then the id; expires, rqueue, wqueue, uid, inode.
_MESSAGE: Final = struct.Struct("=BBBB")
_FIGURES: Final = struct.Struct("=IIIII")
_ID_BYTES: Final = 48
_WAIT_S: Final = 0.2

Address = tuple[str, int]


def is_loopback(host: str) -> bool:
    """Whether an address is this machine's own loopback."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


def uid_of(client: Address, server: Address) -> int | None:
    """Return the uid of the process that connected from `client` to `server`, both on loopback; None if uncertain."""
    if not (is_loopback(client[0]) and is_loopback(server[0])):
        return None
    family = socket.AF_INET6 if ":" in client[0] else socket.AF_INET
    try:
        wanted = _socket_id(family, client, server)
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_SOCK_DIAG) as kernel:
            kernel.settimeout(_WAIT_S)
            body = _REQUEST.pack(family, socket.IPPROTO_TCP, 0, 0xFFFFFFFF) + wanted
            size = _HEADER.size + len(body)
            kernel.sendto(_HEADER.pack(size, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 1, 0) + body, (0, 0))
            answer, sender = kernel.recvfrom(8192)
    except (OSError, ValueError):
        return None
    return owner(answer, family, wanted) if sender[0] == 0 else None


def _socket_id(family: int, client: Address, server: Address) -> bytes:
    """Return the kernel's id of the client's socket, with ports and addresses from the client's point of view."""
    ports = _PORTS.pack(client[1], server[1])
    addresses = b"".join(
        socket.inet_pton(family, host.partition("%")[0]).ljust(16, b"\0") for host in (client[0], server[0])
    )
    return ports + addresses + b"\0" * 4 + _NO_COOKIE


def owner(answer: bytes, family: int, wanted: bytes) -> int | None:
    """Return the uid in the kernel's answer; None unless the answer is about the established socket with this id."""
    begin = _HEADER.size + _MESSAGE.size
    if len(answer) < begin + _ID_BYTES + _FIGURES.size:
        return None
    _, kind, *_ = _HEADER.unpack_from(answer)
    found_family, state, _, _ = _MESSAGE.unpack_from(answer, _HEADER.size)
    *_, uid, inode = _FIGURES.unpack_from(answer, begin + _ID_BYTES)
    # An id begins with ports and addresses, 36 bytes; then come interface and cookie.
    same = answer[begin : begin + 36] == wanted[:36]
    if kind != _SOCK_DIAG_BY_FAMILY or found_family != family or state != _ESTABLISHED or not same or not inode:
        return None
    return int(uid)
