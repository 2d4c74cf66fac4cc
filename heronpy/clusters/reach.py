"""Finds the address at which this host reaches the control endpoint of a topology's scheduler."""

from __future__ import annotations

import enum
import socket
import time
from collections.abc import Callable

import zmq

from heronpy.clusters.errors import ClusterError
from heronpy.common.engine_settings import EngineSettings
from heronpy.common.settings import HasSettings, settings_for
from heronpy.engines.contract import EngineError
from heronpy.engines.open import way_in
from heronpy.net.curve import Keys
from heronpy.net.join_token import JoinToken
from heronpy.net.transport import connect
from heronpy.net.zsock import configure, event_of

#: Time limit for connecting to one address, and the number of addresses that are tried.
CONNECT_S = 2.0
ADDRESSES_MAX = 8
_REFUSALS = zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL


class Probe(enum.Enum):
    """The result of connecting to an address."""

    LET_IN = enum.auto()
    #: A process answers, but refuses this client's key, or has an unexpected key.
    REFUSED = enum.auto()
    SILENT = enum.auto()


def address_of(topology: str, endpoint: JoinToken, cluster: str, resolve: Callable[[], HasSettings]) -> str:
    """An endpoint's first address that admits this client, or a local address that the engine forwards to the endpoint.

    Raises ClusterError if there is no such address. `resolve` reads the settings of the cluster, which name its engine.
    """
    refused = False
    why = "no answer"
    for address in endpoint.addresses[:ADDRESSES_MAX]:
        unknown = _unknown(address)
        if unknown:
            why = unknown
            continue
        found = _probe(address, endpoint.keys())
        if found is Probe.LET_IN:
            return address
        refused = refused or found is Probe.REFUSED
    if refused:
        raise ClusterError(
            f"the control endpoint of topology '{topology}' at {', '.join(endpoint.addresses)} refuses the key of"
            " this host; run 'heron cluster access' again"
        )
    for port in sorted({int(address.rpartition(":")[2]) for address in endpoint.addresses}):
        resolved = resolve()
        try:
            way = way_in(settings_for(resolved, EngineSettings).kind, resolved, cluster, port)
        except EngineError as error:
            why = f"{why}, and {error}"
            continue
        if way:
            return way
    raise ClusterError(
        f"the control endpoint of topology '{topology}' does not answer this host at {', '.join(endpoint.addresses)}"
        f" ({why}); open the port to this host, or run the command on the scheduler's host; if the topology was killed"
        " or has moved, run 'heron cluster access' again"
    )


def _unknown(address: str) -> str:
    """Why the host name in an address cannot be resolved; "" if it can."""
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    try:
        socket.getaddrinfo(host, port, socket.AF_INET, socket.SOCK_STREAM)
    except OSError as error:
        return f"{host}: {error.strerror}"
    return ""


def _probe(endpoint: str, keys: Keys) -> Probe:
    """Connect without sending a request, and return the outcome of the handshake."""
    sock = configure(zmq.Context.instance().socket(zmq.DEALER))
    monitor = sock.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED | _REFUSALS)
    try:
        connect(sock, endpoint, keys)
        deadline = time.monotonic() + CONNECT_S
        while (left_s := deadline - time.monotonic()) > 0:
            if monitor.poll(int(left_s * 1000) + 1):
                event, _ = event_of(monitor.recv_multipart())
                return Probe.LET_IN if event == zmq.EVENT_HANDSHAKE_SUCCEEDED else Probe.REFUSED
        return Probe.SILENT
    finally:
        sock.disable_monitor()
        monitor.close(linger=0)
        sock.close(linger=0)
