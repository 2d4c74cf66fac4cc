"""The container's small HTTP server: `/metrics` for Prometheus and `/health`.

It is read-only and listens on loopback unless the settings name another address. A page on loopback answers only to
loopback names, so that a web site cannot read it through a browser (DNS rebinding).

A request has at most `REQUEST_MAX_BYTES`, and its answer must be read within `REQUEST_MAX_S`. At most `CONNECTIONS_MAX`
connections are open. A further connection closes the oldest connection that has not sent a request, so that slow
clients cannot block others. A page is built at most once in `KEEP_S`.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import socket
import time
from collections.abc import Callable

from msgspec import Struct

from heronpy.common.errors import ConfigError
from heronpy.net.addresses import in_any_order, is_loopback

log = logging.getLogger("heronpy.executor")

REQUEST_MAX_BYTES = 8192
REQUEST_MAX_S = 5.0
CONNECTIONS_MAX = 32
#: Time within which a well-behaved client sends its request.
ASK_S = 0.25

#: A page is built at most this often, regardless of the number of requests.
KEEP_S = 0.5

#: A function that returns the content type and the body of a page.
Page = Callable[[], tuple[str, str]]
#: Pages by path.
Pages = dict[str, Page]


def check_host(host: str, explicit: bool) -> None:
    """Raise ConfigError if metrics would be exposed to the network although no setting allows it."""
    if not is_loopback(host) and not explicit:
        raise ConfigError(
            f"the metrics page would listen on {host}, which other hosts can reach; if this is intended, set"
            " heron.executor.metrics_host in the topology or on the command line"
        )


class _Visit(Struct, eq=False):
    task: asyncio.Task[None]
    writer: asyncio.StreamWriter
    since: float
    asked: bool = False
    """Whether the request has arrived completely."""


class MetricsPage:
    """Serves pages after `await start()`."""

    def __init__(self, host: str, port: int, pages: Pages, ports: range | None = None) -> None:
        self._host = host
        self._wanted_port = port
        #: The range from which a free port is chosen if no port is configured; None: any port.
        self._ports = ports
        self._pages = pages
        self._server: asyncio.Server | None = None
        #: By page: when it was built, and its content type and body.
        self._kept: dict[Page, tuple[float, tuple[str, str]]] = {}
        #: The open connections, oldest first.
        self.visits: dict[_Visit, None] = {}
        #: Connections that were closed to make room for others.
        self.evicted = 0
        self.port = 0

    async def start(self) -> None:
        try:
            try:
                self._server = await (self._listen(self._wanted_port) if self._wanted_port else self._listen_anywhere())
            except OSError as error:
                if error.errno != errno.EADDRINUSE or not self._wanted_port:
                    raise
                # Another process took the port while the container was down; tasks matter more than the page's port.
                self._server = await self._listen_anywhere()
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
            raise ConfigError(
                f"the metrics page cannot listen on {self._host}:{self._wanted_port} ({reason});"
                " set heron.executor.metrics_host and heron.executor.metrics_port"
            ) from None
        self.port = self._server.sockets[0].getsockname()[1]
        if self._wanted_port not in (0, self.port):
            log.error(
                "port %d of %s for the metrics page is taken by another process, so the page is at port %d;"
                " set heron.executor.metrics_port to a free port or to 0",
                self._wanted_port,
                self._host,
                self.port,
            )

    async def _listen_anywhere(self) -> asyncio.Server:
        if self._ports is None:
            return await self._listen(0)
        for port in in_any_order(self._ports):
            try:
                return await self._listen(port)
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
        raise ConfigError(
            f"all ports {self._ports.start}-{self._ports.stop - 1} of {self._host} are taken, so no port is left for"
            " the metrics page; free some ports, or widen heron.security.port_range"
        )

    async def _listen(self, port: int) -> asyncio.Server:
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        return await asyncio.start_server(self._serve, self._host, port, family=family, limit=REQUEST_MAX_BYTES)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        visit = _Visit(task, writer, asyncio.get_running_loop().time())
        self.visits[visit] = None
        if len(self.visits) > CONNECTIONS_MAX:
            self._evict()
        # With this limit, `drain` waits until the kernel has all the data, so the time limit covers the answer.
        writer.transport.set_write_buffer_limits(0)
        try:
            async with asyncio.timeout(REQUEST_MAX_S):
                await self._converse(visit, reader)
            writer.close()
        except (TimeoutError, asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            writer.transport.abort()
        finally:
            self.visits.pop(visit, None)

    async def _converse(self, visit: _Visit, reader: asyncio.StreamReader) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            await self._reply(visit.writer, 431, "text/plain", "the request is too large\n")
            return
        visit.asked = True
        await self._reply(visit.writer, *self.answer(head))

    def _evict(self) -> None:
        """Close the oldest connection whose request is late; if there is none, close the oldest connection."""
        due = asyncio.get_running_loop().time() - ASK_S
        silent = (visit for visit in self.visits if not visit.asked and visit.since < due)
        oldest = next(silent, next(iter(self.visits)))
        del self.visits[oldest]
        self.evicted += 1
        oldest.task.cancel()

    def answer(self, head: bytes) -> tuple[int, str, str]:
        lines = head.decode("latin-1").split("\r\n")
        words = lines[0].split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return 400, "text/plain", "this is not an HTTP/1 request\n"
        if words[0] != "GET":
            return 405, "text/plain", "only GET is allowed\n"
        if not self._host_allowed(lines[1:]):
            return 403, "text/plain", "this page answers only to local host names\n"
        page = self._pages.get(words[1].partition("?")[0])
        if page is None:
            return 404, "text/plain", "the only paths are /metrics and /health\n"
        try:
            return 200, *self._built(page)
        except Exception:
            log.exception("the page %s failed", words[1])
            return 500, "text/plain", "the page failed; see the executor's log\n"

    def _built(self, page: Page) -> tuple[str, str]:
        """Content type and body of a page; cached for KEEP_S, because building costs far more than serving."""
        now = time.monotonic()
        kept = self._kept.get(page)
        if kept is None or now - kept[0] >= KEEP_S:
            kept = self._kept[page] = (now, page())
        return kept[1]

    def _host_allowed(self, headers: list[str]) -> bool:
        if not is_loopback(self._host):
            return True
        for header in headers:
            key, _, value = header.partition(":")
            if key.strip().lower() == "host":
                name = value.strip()
                if not name.endswith("]") and ":" in name:
                    name = name.rpartition(":")[0]
                return is_loopback(name)
        return True

    @staticmethod
    async def _reply(writer: asyncio.StreamWriter, status: int, content_type: str, body: str) -> None:
        data = body.encode()
        reasons = {200: "OK", 400: "Bad Request", 403: "Forbidden", 404: "Not Found"}
        head = (
            f"HTTP/1.1 {status} {reasons.get(status, 'Error')}\r\nContent-Type: {content_type}\r\n"
            f"Content-Length: {len(data)}\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n"
        )
        writer.write(head.encode() + data)
        await writer.drain()

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        tasks = [visit.task for visit in self.visits]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._server is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await self._server.wait_closed()
