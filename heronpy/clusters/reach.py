"""By which address this host reaches the door of a topology's scheduler."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from heronpy.clusters.errors import ClusterError

if TYPE_CHECKING:
    from heronpy.net.access import DoorPlace

#: For a connection to one address, and how many are tried.
CONNECT_S = 2.0
ADDRESSES_MAX = 8


def address_of(topology: str, place: DoorPlace, forwarded: Callable[[int], str] = lambda port: "") -> str:
    """The first address of a door that answers from here; else a way to its port that `forwarded` has made.

    ClusterError when there is none.
    """
    why = ""
    for address in place.addresses[:ADDRESSES_MAX]:
        host, _, port = address.removeprefix("tcp://").rpartition(":")
        try:
            with socket.create_connection((host, int(port)), CONNECT_S):
                return address
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", "") or str(error)
    ports = {address.rpartition(":")[2] for address in place.addresses}
    for port in sorted(ports):
        with suppress(ValueError):
            found = forwarded(int(port))
            if found:
                return found
    raise ClusterError(
        f"the door of topology '{topology}' does not answer this host at {', '.join(place.addresses)} ({why}); let this"
        " host connect to it, or run the command where its scheduler is; if it was killed or has moved, bring the"
        " access anew by 'heron cluster access'"
    )
