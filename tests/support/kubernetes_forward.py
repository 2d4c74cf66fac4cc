"""Forwards ports of pods like an API server, over a WebSocket with the protocol v4.channel.k8s.io.

Each port has a channel for data and a channel for errors. The server begins each channel with the port's number. The
pods of the tests use the network of this machine.
"""

from __future__ import annotations

import base64
import hashlib
import socket
import struct
import threading
from contextlib import suppress
from typing import Any

_MAGIC = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_BINARY, _CLOSE = 2, 8


def answer_upgrade(handler: Any) -> None:
    """Accept the upgrade to the protocol."""
    key = handler.headers["Sec-WebSocket-Key"].encode()
    offered = [one.strip() for one in handler.headers.get("Sec-WebSocket-Protocol", "").split(",")]
    assert "v4.channel.k8s.io" in offered, offered
    handler.send_response(101)
    handler.send_header("Upgrade", "websocket")
    handler.send_header("Connection", "Upgrade")
    handler.send_header("Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(key + _MAGIC).digest()).decode())
    handler.send_header("Sec-WebSocket-Protocol", "v4.channel.k8s.io")
    handler.end_headers()


def forward(handler: Any, port: int) -> None:
    """Forward data until one side ends."""
    answer_upgrade(handler)
    lock = threading.Lock()

    def send(channel: int, data: bytes, opcode: int = _BINARY) -> None:
        content = bytes((channel,)) + data if opcode == _BINARY else b""
        with lock:
            handler.wfile.write(_head(opcode, len(content)) + content)
            handler.wfile.flush()

    for channel in (0, 1):
        send(channel, struct.pack("<H", port))
    try:
        pod = socket.create_connection(("127.0.0.1", port), 5)
    except OSError as error:
        send(1, f"an error occurred forwarding: {error}".encode())
        return
    pod.settimeout(None)
    back = threading.Thread(target=_read, args=(pod, send), daemon=True)
    back.start()
    with suppress(OSError, EOFError):
        while True:
            opcode, content = _frame(handler.rfile)
            if opcode == _CLOSE:
                break
            if opcode == _BINARY and content[0] == 0:
                pod.sendall(content[1:])
    with suppress(OSError):
        pod.shutdown(socket.SHUT_RDWR)
    back.join(5)
    pod.close()
    handler.close_connection = True


def _read(pod: socket.socket, send: Any) -> None:
    with suppress(OSError, ValueError):
        while data := pod.recv(32 << 10):
            send(0, data)
        send(0, b"", _CLOSE)


def _head(opcode: int, size: int) -> bytes:
    if size < 126:
        return struct.pack("!BB", 0x80 | opcode, size)
    return (
        struct.pack("!BBH", 0x80 | opcode, 126, size)
        if size < 1 << 16
        else struct.pack("!BBQ", 0x80 | opcode, 127, size)
    )


def _frame(stream: Any) -> tuple[int, bytes]:
    """Read one frame of a client, and unmask it."""
    first, second = _exactly(stream, 2)
    size = second & 0x7F
    if size >= 126:
        size = int.from_bytes(_exactly(stream, 2 if size == 126 else 8), "big")
    mask = _exactly(stream, 4)
    data = _exactly(stream, size)
    return first & 0x0F, bytes(byte ^ mask[at % 4] for at, byte in enumerate(data))


def _exactly(stream: Any, count: int) -> bytes:
    data: bytes = stream.read(count)
    if len(data) < count:
        raise EOFError
    return data
