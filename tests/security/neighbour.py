"""What another user of the machine tries: run as a program of its own, which gives its rights up before it begins.

Reads {"uid", "places", "messages", "paths"} as JSON from its standard input: places are endpoints as ZeroMQ writes
them, messages are lists of parts in hex. Writes a list of [place, attack, what came of it], where "refused" means
that it was not let in, and "silent" that it was and nobody answered. `uid` 0 attacks as who runs it.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import socket
import sys
import time
from typing import Any

import zmq

NOISE = (
    b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"\xff" + bytes(8) + b"\x7f\x03\x00NULL" + bytes(48),
    bytes(4096),
)
PATIENCE_MS = 3000


def main() -> None:
    asked = json.load(sys.stdin)
    if asked["uid"]:
        os.setgroups([])
        os.setgid(asked["uid"])
        os.setuid(asked["uid"])
    found: list[list[str]] = []
    for place in asked["places"]:
        found += [[place, f"raw bytes {number}", raw(place, data)] for number, data in enumerate(NOISE)]
    found += links(asked["places"], asked["identities"], asked["messages"])
    found += [[path, "open", opened(path)] for path in asked["paths"]]
    json.dump(found, sys.stdout)


def raw(place: str, data: bytes) -> str:
    """Connect and send something outside of the protocol."""
    scheme, _, where = place.partition("://")
    family = socket.AF_UNIX if scheme == "ipc" else socket.AF_INET
    host, _, port = where.rpartition(":")
    with socket.socket(family) as sock:
        sock.settimeout(1)
        try:
            sock.connect(where if scheme == "ipc" else (host, int(port)))
            sock.sendall(data)
            answer = sock.recv(65536)
        except PermissionError:
            return "refused"
        except OSError as error:
            return "silent" if isinstance(error, TimeoutError) else type(error).__name__
        return f"answered {answer[:80]!r}" if answer else "closed"


def links(places: list[str], identities: list[str], messages: list[list[str]]) -> list[list[str]]:
    """Plain links with names that the topology knows, and over each all that one could want to send; all at once."""
    context: zmq.Context[Any] = zmq.Context()
    opened = []
    for place, identity in itertools.product(places, identities):
        sock = context.socket(zmq.DEALER)
        sock.setsockopt(zmq.IDENTITY, bytes.fromhex(identity))
        monitor = sock.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED)
        sock.connect(place)
        with contextlib.suppress(zmq.Again):  # refused already, so that nothing can be sent
            for parts in messages:
                sock.send_multipart([bytes.fromhex(part) for part in parts], zmq.DONTWAIT)
        opened.append((place, identity, sock, monitor))
    time.sleep(PATIENCE_MS / 1000)
    found = []
    for place, identity, sock, monitor in opened:
        if sock.poll(0):
            outcome = f"answered {b' '.join(sock.recv_multipart())[:80]!r}"
        else:
            outcome = "silent" if monitor.poll(0) else "refused"
        found.append([place, f"link as {identity}", outcome])
        sock.disable_monitor()
        monitor.close(linger=0)
    context.destroy(linger=0)
    return found


def opened(path: str) -> str:
    try:
        os.listdir(path) if os.path.isdir(path) else os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
    except OSError:
        return "refused"
    return "opened"


if __name__ == "__main__":
    main()
