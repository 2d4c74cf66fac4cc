"""By which address this host reaches the door of a topology's scheduler."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from heronpy.clusters.errors import ClusterError
from heronpy.engines.contract import EngineError

if TYPE_CHECKING:
    from heronpy.net.access import DoorPlace
    from heronpy.net.curve import Pair

#: For a connection to one address, and how many are tried.
CONNECT_S = 2.0
ADDRESSES_MAX = 8


def address_of(topology: str, place: DoorPlace, client: Pair, forwarded: Callable[[int], str] = lambda port: "") -> str:
    """The first address of a door that lets us in; else a way to its port that `forwarded` has made.

    ClusterError when there is none.
    """
    # Only here: it takes as long to import as all the rest.
    from heronpy.net.probing import Probe, probe

    refused = False
    why = "no answer"
    for address in place.addresses[:ADDRESSES_MAX]:
        unknown = _unknown(address)
        if unknown:
            why = unknown
            continue
        found = probe(address, place.keys(client), CONNECT_S)
        if found is Probe.LET_IN:
            return address
        refused = refused or found is Probe.REFUSED
    if refused:
        raise ClusterError(
            f"the door of topology '{topology}' at {', '.join(place.addresses)} does not take the key of this host;"
            " bring the access anew by 'heron cluster access'"
        )
    for port in sorted({int(address.rpartition(":")[2]) for address in place.addresses}):
        try:
            way = forwarded(port)
        except EngineError as error:
            why = f"{why}, and {error}"
            continue
        if way:
            return way
    raise ClusterError(
        f"the door of topology '{topology}' does not answer this host at {', '.join(place.addresses)} ({why}); let this"
        " host connect to it, or run the command where its scheduler is; if it was killed or has moved, bring the"
        " access anew by 'heron cluster access'"
    )


def _unknown(address: str) -> str:
    """Why the host of an address is none that can be connected to from here; "" if it may be one."""
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    try:
        socket.getaddrinfo(host, port, socket.AF_INET, socket.SOCK_STREAM)
    except OSError as error:
        return f"{host}: {error.strerror}"
    return ""
