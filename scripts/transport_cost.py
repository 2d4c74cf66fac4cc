#!/usr/bin/env python3
"""Measures the cost of the transport alone: source -> router -> sink, three processes, 100 bytes per message.

    scripts/transport_cost.py                      every transport, 1,000, 5,000 and 20,000/s and saturation, 5 s each
    scripts/transport_cost.py --rates 5000,0 --seconds 10 --only zmq,unix

The transport zmq is ZeroMQ as heronpy uses it: DEALER, ROUTER and DEALER over ipc with heronpy's socket options, uvloop
in the router, one part per message, select and drain in the sink, and credit, because its queues have no limit. The
transport unix is stream sockets with length-prefixed frames, and uvloop in the router. The transport pipe is os.pipe
with blocking reads. Sockets and pipes slow down a fast sender by themselves. Messages are not parsed, batched, checked
or acknowledged. The source sleeps until the next message is due, and sends each message in a separate call; rate 0
means as fast as possible. Cores and voluntary context switches include all three processes and ZeroMQ's threads while
messages flow. Latency is measured from the due time.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import queue
import resource
import select
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

try:
    import numpy as np
    import uvloop
    import zmq
except ModuleNotFoundError as missing:
    sys.exit(f"error: this Python has no {missing.name}; run 'make demo' once, then .venv/bin/python {sys.argv[0]}")

from heronpy.loadtest.run import facts
from heronpy.net.transport import bind, connect
from heronpy.net.zsock import LoopSocket, configure, fd_of

MESSAGE_BYTES = 100
HEAD = struct.Struct("<QQ")  # number, due time; the number END ends the run
FRAME = struct.Struct("<I")
END = (1 << 64) - 1
PADDING = bytes(MESSAGE_BYTES - HEAD.size)
#: ZeroMQ: maximum number of messages in transit, and number of messages after which the sink returns credit.
WINDOW, CREDIT_EVERY = 4000, 1000
MESSAGE_MAX_BYTES = 1 << 20
SECONDS_MAX = 15.0
PATIENCE_S = 30.0
READ_BYTES = 1 << 16

Send = Callable[[bytes], object]
Role = Callable[["Line", "Usage"], dict[str, Any]]


class Usage:
    """Measures the CPU and the context switches of this process since `begin`."""

    def __init__(self) -> None:
        self.began = False

    def begin(self) -> None:
        if not self.began:
            self.began, self._before = True, resource.getrusage(resource.RUSAGE_SELF)

    def spent(self) -> dict[str, float]:
        now, before = resource.getrusage(resource.RUSAGE_SELF), self._before
        cpu = now.ru_utime + now.ru_stime - before.ru_utime - before.ru_stime
        return {"cpu": cpu, "switches": float(now.ru_nvcsw - before.ru_nvcsw)}


@dataclass(frozen=True, slots=True)
class Line:
    """The queues and connections that the three processes of a run share."""

    folder: str
    rate: float
    seconds: float
    #: source -> router and router -> sink, of sockets or of (reading, writing) descriptors.
    first: Any = None
    second: Any = None


# ---- source and sink, for every transport ---------------------------------------------------------


def emit(line: Line, usage: Usage, send: Send) -> dict[str, Any]:
    """Send messages at the rate for some seconds, then END."""
    usage.begin()
    pack, rate = HEAD.pack, line.rate
    start = time.monotonic_ns()
    end, sent, now = start + int(line.seconds * 1e9), 0, start
    due = start
    while due < end:
        if rate and due > now:
            time.sleep((due - now) / 1e9)
            now = time.monotonic_ns()
            continue
        send(pack(sent, due) + PADDING)
        sent += 1
        now = time.monotonic_ns()
        due = start + int(sent * 1e9 / rate) if rate else now
    seconds = (time.monotonic_ns() - start) / 1e9
    send(pack(END, 0) + PADDING)
    return {"sent": sent, "seconds": seconds}


class Arrivals:
    """Counts and latencies of the messages that the sink has received."""

    def __init__(self) -> None:
        self.latencies: list[int] = []
        self.ended = False

    def take(self, message: bytes) -> None:
        number, due = HEAD.unpack_from(message)
        if number == END:
            self.ended = True
            return
        if number != len(self.latencies):
            raise SystemExit(f"error: message {number} arrived instead of message {len(self.latencies)}")
        self.latencies.append(time.monotonic_ns() - due)

    def result(self) -> dict[str, Any]:
        p50, p99 = np.percentile(self.latencies, (50, 99)) / 1e6
        return {"received": len(self.latencies), "p50_ms": float(p50), "p99_ms": float(p99)}


class Frames:
    """Length-prefixed messages in a stream of bytes."""

    def __init__(self) -> None:
        self._rest = b""

    def of(self, data: bytes) -> Iterator[bytes]:
        data, at = self._rest + data, 0
        while at + FRAME.size <= len(data):
            end = at + FRAME.size + FRAME.unpack_from(data, at)[0]
            if end > len(data):
                break
            yield data[at + FRAME.size : end]
            at = end
        self._rest = data[at:]


def framed(message: bytes) -> bytes:
    return FRAME.pack(len(message)) + message


def is_end(message: bytes) -> bool:
    return bool(HEAD.unpack_from(message)[0] == END)


def drain(read: Callable[[], bytes], usage: Usage) -> dict[str, Any]:
    """Run the sink of a stream: read messages until END."""
    arrivals, frames = Arrivals(), Frames()
    while not arrivals.ended:
        data = read()
        usage.begin()
        for message in frames.of(data):
            arrivals.take(message)
    return arrivals.result()


# ---- ZeroMQ -----------------------------------------------------------------------------------------


def dealer(line: Line, name: bytes) -> zmq.Socket[bytes]:
    context: zmq.Context[Any] = zmq.Context.instance()
    sock = configure(
        context.socket(zmq.DEALER), hwm=0, message_max_bytes=MESSAGE_MAX_BYTES, identity=name, heartbeat=False
    )
    connect(sock, f"ipc://{line.folder}/router")
    return sock


def zmq_source(line: Line, usage: Usage) -> dict[str, Any]:
    sock = dealer(line, b"source")
    sock.send(b"")
    left = int(sock.recv())

    def send(message: bytes) -> None:
        nonlocal left
        while not left:
            left += int(sock.recv())
        left -= 1
        sock.send(message, zmq.DONTWAIT)

    found = emit(line, usage, send)
    sock.recv()  # the sink has received all messages
    return found


def zmq_router(line: Line, usage: Usage) -> dict[str, Any]:
    async def serve() -> None:
        context: zmq.Context[Any] = zmq.Context.instance()
        sock = configure(context.socket(zmq.ROUTER), hwm=0, message_max_bytes=MESSAGE_MAX_BYTES, heartbeat=False)
        sock.setsockopt(zmq.ROUTER_MANDATORY, 1)
        sock.setsockopt(zmq.ROUTER_HANDOVER, 1)
        bind(sock, f"ipc://{line.folder}/router")
        done = asyncio.Event()
        known: set[bytes] = set()

        def forward(parts: list[bytes]) -> None:
            who, message = parts
            if who not in known:
                known.add(who)
                if len(known) == 2:
                    router.send([b"source", b"%d" % WINDOW])
            elif who == b"source":
                usage.begin()
                router.send([b"sink", message])
            else:
                router.send([b"source", message])
                if message == b"end":
                    done.set()

        router = LoopSocket(sock, forward)
        await done.wait()
        router.close(linger_ms=1000)

    uvloop.run(serve())
    return {}


def zmq_sink(line: Line, usage: Usage) -> dict[str, Any]:
    sock = dealer(line, b"sink")
    sock.send(b"")
    fd, arrivals, returned = fd_of(sock), Arrivals(), 0
    while not arrivals.ended:
        try:
            message = sock.recv(zmq.DONTWAIT)
        except zmq.Again:
            select.select([fd], [], [], PATIENCE_S)
            continue
        usage.begin()
        arrivals.take(message)
        if len(arrivals.latencies) - returned >= CREDIT_EVERY:
            returned += CREDIT_EVERY
            sock.send(b"%d" % CREDIT_EVERY)
    sock.send(b"end")
    return arrivals.result()


# ---- Unix stream sockets ----------------------------------------------------------------------------


class Inward(asyncio.Protocol):
    """The router's connection to the source; it stops reading while the sink does not read."""

    def __init__(self, out: asyncio.WriteTransport, usage: Usage, done: asyncio.Event) -> None:
        self._out, self._usage, self._done = out, usage, done
        self._frames = Frames()

    def data_received(self, data: bytes) -> None:
        self._usage.begin()
        for message in self._frames.of(data):
            self._out.write(framed(message))
            if is_end(message):
                self._done.set()


class Outward(asyncio.Protocol):
    """The router's connection to the sink."""

    inward: asyncio.ReadTransport

    def pause_writing(self) -> None:
        self.inward.pause_reading()

    def resume_writing(self) -> None:
        self.inward.resume_reading()


def unix_router(line: Line, usage: Usage) -> dict[str, Any]:
    async def serve() -> None:
        loop, done = asyncio.get_running_loop(), asyncio.Event()
        outward = Outward()
        out, _ = await loop.create_unix_connection(lambda: outward, sock=line.second[0])
        outward.inward, _ = await loop.create_unix_connection(lambda: Inward(out, usage, done), sock=line.first[1])
        await done.wait()
        while out.get_write_buffer_size():
            await asyncio.sleep(0.01)
        out.close()

    uvloop.run(serve())
    return {}


def unix_source(line: Line, usage: Usage) -> dict[str, Any]:
    sock: socket.socket = line.first[0]
    return emit(line, usage, lambda message: sock.sendall(framed(message)))


def unix_sink(line: Line, usage: Usage) -> dict[str, Any]:
    sock: socket.socket = line.second[1]
    return drain(lambda: sock.recv(READ_BYTES), usage)


# ---- pipes --------------------------------------------------------------------------------------------


def pipe_source(line: Line, usage: Usage) -> dict[str, Any]:
    fd = line.first[1]
    return emit(line, usage, lambda message: os.write(fd, framed(message)))


def pipe_router(line: Line, usage: Usage) -> dict[str, Any]:
    inward, out, frames = line.first[0], line.second[1], Frames()
    while True:
        data = os.read(inward, READ_BYTES)
        usage.begin()
        for message in frames.of(data):
            os.write(out, framed(message))
            if is_end(message):
                return {}


def pipe_sink(line: Line, usage: Usage) -> dict[str, Any]:
    fd = line.second[0]
    return drain(lambda: os.read(fd, READ_BYTES), usage)


# ---- runs ---------------------------------------------------------------------------------------------

TRANSPORTS: dict[str, tuple[str, tuple[Role, Role, Role], Callable[[], Any] | None]] = {
    "zmq": ("ZeroMQ over ipc", (zmq_router, zmq_sink, zmq_source), None),
    "unix": ("Unix stream sockets", (unix_router, unix_sink, unix_source), socket.socketpair),
    "pipe": ("pipes, blocking reads", (pipe_router, pipe_sink, pipe_source), os.pipe),
}


def play(role: Role, line: Line, results: Any) -> None:
    """Run one of the three processes."""
    usage = Usage()
    found = role(line, usage)
    results.put(found | usage.spent())
    if role in TRANSPORTS["zmq"][1]:
        zmq.Context.instance().destroy(linger=1000)


def measure(name: str, rate: float, seconds: float) -> dict[str, float]:
    """Do one run. Raises RuntimeError if a process fails or a message is missing."""
    _, roles, link = TRANSPORTS[name]
    context = multiprocessing.get_context("fork")
    results: Any = context.Queue()
    with tempfile.TemporaryDirectory(prefix="transport-") as folder:
        line = Line(folder, rate, seconds, *((link(), link()) if link else ()))
        processes = [context.Process(target=play, args=(role, line, results), daemon=True) for role in roles]
        try:
            for process in processes:
                process.start()
            found: dict[str, float] = {"cpu": 0.0, "switches": 0.0}
            for _ in roles:
                part = results.get(timeout=seconds + PATIENCE_S)
                found |= {key: found.get(key, 0.0) + value for key, value in part.items()}
            for process in processes:
                process.join(PATIENCE_S)
        except queue.Empty:
            raise RuntimeError(f"a process of the run over {name} reported no figures; see its output") from None
        finally:
            for process in processes:
                process.kill()
                process.join()
            for end in (*(line.first or ()), *(line.second or ())):
                if isinstance(end, socket.socket):
                    end.close()
                else:
                    os.close(end)
    if found["received"] != found["sent"]:
        raise RuntimeError(f"{found['received']:.0f} of {found['sent']:.0f} messages arrived over {name}")
    return found


def row(name: str, rate: float, found: dict[str, float]) -> str:
    """Return a row of the table. At saturation, compare CPU per message; the latency is that of full queues."""
    cells = [
        f"{rate:,.0f}" if rate else "as fast as it can",
        TRANSPORTS[name][0],
        f"{found['sent'] / found['seconds']:,.0f}",
        f"{found['cpu'] / found['seconds']:.3f}",
        f"{found['cpu'] / found['sent'] * 1e6:.1f}",
        f"{found['switches'] / found['sent']:.2f}",
        *((f"{found['p50_ms']:.2f} ms", f"{found['p99_ms']:.2f} ms") if rate else ("", "")),
    ]
    return f"| {' | '.join(cells)} |"


def table(names: Sequence[str], rates: Iterable[float], seconds: float) -> Iterator[str]:
    """Yield the rows of the table, each as soon as it is measured."""
    about = facts()
    host = about["host"]
    yield (
        f"{about['date'][:10]}, {host['cores']} cores ({host['cpu']}), Linux {host['kernel']}, Python {about['python']},"
        f" libzmq {zmq.zmq_version()}, {seconds:g} s each."
    )
    yield ""
    yield "| messages/s | | reached | cores | CPU us per message | switches per message | 50 % | 99 % |"
    yield "|---|---|---|---|---|---|---|---|"
    for rate in rates:
        for name in names:
            yield row(name, rate, measure(name, rate, seconds))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rates", default="1000,5000,20000,0", help="messages per second; 0 means as fast as possible")
    parser.add_argument("--seconds", type=float, default=5.0, help=f"of each run, at most {SECONDS_MAX:g}")
    parser.add_argument("--only", default=",".join(TRANSPORTS), help="transports, of: %(default)s")
    given = parser.parse_args()
    names = given.only.split(",")
    if unknown := [name for name in names if name not in TRANSPORTS]:
        parser.error(f"there is no transport {unknown[0]!r}; choose from {', '.join(TRANSPORTS)}")
    try:
        rates = [float(rate) for rate in given.rates.split(",")]
    except ValueError:
        parser.error(f"--rates {given.rates} must be a comma-separated list of numbers, such as 1000,0")
    if not 0 < given.seconds <= SECONDS_MAX or min(rates) < 0:
        parser.error(f"--seconds must be above 0 and at most {SECONDS_MAX:g}, --rates not negative")
    for text in table(names, rates, given.seconds):
        print(text, flush=True)


if __name__ == "__main__":
    main()
