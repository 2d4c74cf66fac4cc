"""Whether a listener with these keys is at an address, and lets us in: nothing is asked."""

from __future__ import annotations

import enum
import time

import zmq
from zmq.utils.monitor import recv_monitor_message

from heronpy.net.curve import Keys
from heronpy.net.transport import connect
from heronpy.net.zsock import configure


class Probe(enum.Enum):
    """What became of it."""

    LET_IN = enum.auto()
    #: Somebody is there who does not know our key, or has another one than we expect.
    REFUSED = enum.auto()
    SILENT = enum.auto()


_REFUSALS = zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL


def probe(endpoint: str, keys: Keys, timeout_s: float) -> Probe:
    """Connect, and hear what the other side says of the handshake. ConfigError as for `transport.connect`."""
    sock = configure(zmq.Context.instance().socket(zmq.DEALER))
    monitor = sock.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED | _REFUSALS)
    try:
        connect(sock, endpoint, keys)
        deadline = time.monotonic() + timeout_s
        while (left_s := deadline - time.monotonic()) > 0:
            if monitor.poll(int(left_s * 1000) + 1):
                event = recv_monitor_message(monitor)["event"]
                return Probe.LET_IN if event == zmq.EVENT_HANDSHAKE_SUCCEEDED else Probe.REFUSED
        return Probe.SILENT
    finally:
        sock.disable_monitor()
        monitor.close(linger=0)
        sock.close(linger=0)
