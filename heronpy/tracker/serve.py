"""Runs the tracker: sockets, limits, shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import importlib
import logging
import os
import secrets
import signal
import socket
import ssl
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from heronpy.clusters.client_config import known_clusters
from heronpy.clusters.target import Common
from heronpy.common.errors import ConfigError
from heronpy.common.folders import check_root, heron_home
from heronpy.common.units import counted
from heronpy.common.version import VERSION
from heronpy.procs.loop import run_loop
from heronpy.tracker import place
from heronpy.tracker.folder import folder_of
from heronpy.tracker.front import Front
from heronpy.tracker.guard import CONNECTIONS_MAX, House, has_room
from heronpy.tracker.pages import load
from heronpy.tracker.peer import is_loopback, uid_of
from heronpy.tracker.tokens import Tokens

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from heronpy.tracker.tracker import Tracker

log = logging.getLogger("heronpy.tracker")

DEFAULT_PORT = 8889
#: All addresses of a name below .localhost in a browser. A process on one of them could answer for the others.
LOOPBACK = ("127.0.0.1", "::1")
#: Errors of a machine without IPv6.
_NO_IPV6 = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
#: Number of ports that are tried.
PORTS_TRIED = 50
#: A connection is closed if a request has not arrived completely after this time.
REQUEST_MAX_S = 10.0
HEAD_MAX_BYTES = 32 * 1024
KEEP_ALIVE_S = 30
LOOK_S = 1.0
#: Time for which a computing thread may keep the interpreter whenever the server has sent or received something.
#: Threads read records, plans and histories, and import modules, which is not urgent.
SLICE_S = 0.0005


@dataclass(frozen=True, slots=True)
class Options:
    """The flags of `heron tracker`."""

    #: Empty: all configured clusters.
    clusters: tuple[str, ...] = ()
    host: str = "127.0.0.1"
    #: 0: any free port. None: DEFAULT_PORT, or the next free one.
    port: int | None = None
    #: Certificate and key.
    tls: tuple[str, str] | None = None
    #: The name by which clients reach the proxy, with the port if it is not the usual one.
    behind_proxy: str = ""
    #: The tracker ends after this time without a request; 0: never.
    idle_exit_s: float = 0.0
    #: Whether `heron ui` started the tracker.
    by_ui: bool = False
    common: Common = field(default_factory=Common)


class Protocol(H11Protocol):
    """uvicorn's protocol with two more limits: connections, and the time for a request to arrive."""

    _timer: asyncio.TimerHandle | None = None
    #: The peer, a user or an address.
    peer = ""
    #: The tracker's own user; empty if connections do not identify users.
    owner = ""
    #: Number of connections that exceeded a limit.
    refused = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Immediately close a connection that exceeds the total limit or the limit of its user."""
        self.peer = _peer_of(transport)
        if not has_room(self.peer, self.owner, [one.peer for one in self.connections if isinstance(one, Protocol)]):
            transport.abort()
            self.transport = transport
            Protocol.refused += 1
            if str(Protocol.refused).rstrip("0") == "1":  # 1, 10, 100, ...
                log.warning("%s refused so far; the last was from %s", counted(self.refused, "connection"), self.peer)
            return
        super().connection_made(transport)
        self._arm()

    def data_received(self, data: bytes) -> None:
        """Start or stop the timer for the request that is arriving."""
        super().data_received(data)
        if self.conn.their_state in (h11.IDLE, h11.SEND_BODY):
            if self._timer is None and self.timeout_keep_alive_task is None:
                self._arm()
        else:
            self._disarm()

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        if self.flow is not None:
            super().connection_lost(exc)

    def _arm(self) -> None:
        self._timer = self.loop.call_later(REQUEST_MAX_S, self._too_late)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_late(self) -> None:
        self._timer = None
        if not self.transport.is_closing():
            self.transport.abort()


def _peer_of(transport: asyncio.Transport) -> str:
    """Return the client as `uid N` if the kernel reports a user of this machine, otherwise as an address."""
    client, server = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
    if not client or not server:
        return ""
    uid = uid_of(client[:2], server[:2])
    return f"uid {uid}" if uid is not None else str(client[0])


class _Server(uvicorn.Server):
    """uvicorn's server without its signal handlers."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def check(options: Options, tokens: Tokens) -> None:
    """Raise ConfigError if other hosts could reach the tracker without a token or without TLS."""
    if is_loopback(_address(options.host)) and not options.behind_proxy:
        if is_named(options) and _address(options.host) not in LOOPBACK:
            raise ConfigError(
                f"the tracker would listen on {options.host}, to which browsers do not connect; leave out --host"
            )
        return
    if options.tls is None and not options.behind_proxy:
        raise ConfigError(
            f"other hosts could reach the tracker on {options.host} without TLS; give --tls CERT KEY, or"
            " --behind-proxy NAME if only a proxy with TLS can reach it"
        )
    if not tokens.are_there:
        raise ConfigError("clients on other hosts need a token, but no token exists; create one: heron ui token view")


def _address(host: str) -> str:
    return "127.0.0.1" if host == "localhost" else host


def is_named(options: Options) -> bool:
    """Whether the tracker has a random name, because no certificate identifies it."""
    return options.tls is None and not options.behind_proxy


def listen(hosts: Sequence[str], wanted: int | None, last: int | None = None) -> list[socket.socket]:
    """Return sockets that listen on the same port of all these addresses. `::1` is skipped on a machine without IPv6.

    For `wanted`, 0 means any port, and None means the last port or, if it is unknown or in use, the first free port
    from the default port on. Raises ConfigError if no port is free.
    """
    port = DEFAULT_PORT if wanted is None else wanted
    reason = ""
    tried = [port] if wanted else [0] * PORTS_TRIED
    if wanted is None:
        tried = [*([last] if last else []), *range(port, port + PORTS_TRIED)]
    for number in tried:
        found: list[socket.socket] = []
        try:
            for host in hosts:
                _add_listener(found, host, found[0].getsockname()[1] if found else number)
            return found
        except OSError as error:
            for sock in found:
                sock.close()
            reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
            if error.errno != errno.EADDRINUSE:
                break
    raise ConfigError(f"the tracker cannot listen on {hosts[0]}:{port} ({reason}); choose another --host or --port")


def _add_listener(found: list[socket.socket], host: str, port: int) -> None:
    """Add a listening socket; a second address that this machine does not have is skipped."""
    sock = None
    try:
        sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((_address(host), port))
        sock.listen(CONNECTIONS_MAX)
    except OSError as error:
        if sock is not None:
            sock.close()
        if not found or error.errno not in _NO_IPV6:
            raise
    else:
        found.append(sock)


def hosts_of(options: Options, port: int) -> frozenset[str]:
    """Return the values of the Host header that the tracker accepts."""
    if options.behind_proxy:
        return frozenset({options.behind_proxy.lower()})
    bare = options.host.lower()
    names = {f"[{bare}]" if ":" in bare else bare}
    if is_loopback(_address(options.host)):
        names |= {"localhost", "127.0.0.1", "[::1]"}
    elif options.tls is not None:
        names |= {socket.gethostname().lower(), socket.getfqdn().lower()}
    implied = 443 if options.tls is not None else 80
    return frozenset({f"{name}:{port}" for name in names} | (names if port == implied else set()))


def run(options: Options, each_second: Callable[[], None] = lambda: None, say: Callable[[str], None] = log.info) -> int:
    """Serve until a signal arrives or the idle time has passed; return the exit code.

    Raises ConfigError if the tracker cannot start. `say` is called with the address.
    """
    return run_loop(lambda: _run(options, each_second, say))


async def _run(options: Options, each_second: Callable[[], None], say: Callable[[str], None]) -> int:
    home = heron_home()
    check_root(home, "HERON_HOME")
    folder = folder_of(home)
    check(options, Tokens(folder))
    sys.setswitchinterval(SLICE_S)
    context = _tls(options)
    named = is_named(options)
    # Use the last port, so that programs and open pages find a restarted tracker. Such pages then report that they are
    # old.
    sockets = listen(LOOPBACK if named else (options.host,), options.port, place.last_port(folder))
    port = sockets[0].getsockname()[1]
    scheme = "https" if options.tls is not None else "http"
    name = f"{secrets.token_hex(16)}.localhost" if named else ""
    shown = name or (f"[{options.host}]" if ":" in options.host else options.host)
    address = f"{scheme}://{shown}:{port}"
    public = "https" if options.behind_proxy else scheme
    house = House(os.getuid(), hosts_of(options, port), public, bool(options.behind_proxy), name)
    clusters = options.clusters or tuple(known_clusters(options.common.config_path))
    made: asyncio.Future[ASGIApp] = asyncio.get_running_loop().create_future()
    Protocol.owner = f"uid {house.uid}" if named else ""
    server = _Server(_config(Front(house, load(), made), context))
    for signum in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(signum, _end, server)
    running = place.write(folder, address, VERSION, options.by_ui)
    say(f"the tracker of {', '.join(clusters)} answers at {address}")
    given = (clusters, options.common, house, folder)
    work = asyncio.create_task(_work(made, given, options.idle_exit_s, each_second))
    work.add_done_callback(lambda _: _end(server))
    try:
        await server.serve(sockets=sockets)
    finally:
        work.cancel()
        try:
            with contextlib.suppress(asyncio.CancelledError):
                await work
        finally:
            for sock in sockets:
                sock.close()
            place.remove(folder, running)
    return 0


async def _work(
    made: asyncio.Future[ASGIApp],
    given: tuple[Sequence[str], Common, House, Path],
    idle_s: float,
    each_second: Callable[[], None],
) -> None:
    """Create the app, and wait until there has been no request for `idle_s`."""
    try:
        # This takes most of the time of a start, so the server is already running.
        await asyncio.to_thread(importlib.import_module, "heronpy.tracker.app")
        from heronpy.tracker.app import App
        from heronpy.tracker.tracker import Tracker

        tracker = Tracker(*given)
        made.set_result(App(tracker))
    finally:
        made.cancel()  # no effect once it is set
    try:
        await _watch(tracker, idle_s, each_second)
    finally:
        tracker.close()


def _config(app: Front, context: ssl.SSLContext | None) -> uvicorn.Config:
    given: dict[str, Any] = {"ssl_context_factory": lambda config, default: context} if context is not None else {}
    return uvicorn.Config(
        app,
        http=Protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        # uvicorn would take the client's address from X-Forwarded-For.
        proxy_headers=False,
        server_header=False,
        h11_max_incomplete_event_size=HEAD_MAX_BYTES,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=1,
        **given,
    )


def _tls(options: Options) -> ssl.SSLContext | None:
    """Return the context for TLS 1.2 and later. Raises ConfigError if the certificate or key cannot be used."""
    if options.tls is None:
        return None
    certificate, key = (str(Path(one).expanduser()) for one in options.tls)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key, password=lambda: "")
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"--tls {certificate} {key} cannot be used: {error}") from None
    return context


def _end(server: uvicorn.Server) -> None:
    server.should_exit = True


async def _watch(tracker: Tracker, idle_s: float, each_second: Callable[[], None]) -> None:
    """Wait until there has been no request and no viewer for `idle_s`."""
    while True:
        await asyncio.sleep(LOOK_S)
        each_second()
        if tracker.feeds.streams:
            tracker.asked_at = time.monotonic()
        elif idle_s and time.monotonic() - tracker.asked_at >= idle_s:
            log.info("no request for %g s; stopping the tracker", idle_s)
            return
