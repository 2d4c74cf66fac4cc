"""Whatever becomes of the tracker, or is done to it, no rate of a topology changes (real processes)."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import statistics
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest

from heronpy.tracker import place
from heronpy.tracker.folder import folder_of
from tests.runtime.test_states import PROGRAM, stored, when_stored
from tests.support.command import Heron, component
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(600)]

#: Connections that are open at once; 10,000 in all.
CLIENTS, STORMS = 500, 20
KILLS = 8


def started(heron: Heron) -> tuple[psutil.Process, str]:
    """A tracker that answers, and what its Host header is."""
    # On a busy machine its start may take longer than the command waits.
    wait_for(lambda: heron("ui").code == 0, 120.0, "a tracker")
    host = urlsplit(heron("ui").ok().out.split()[-1]).netloc
    known = place.read(folder_of(heron.home))
    assert known is not None and known.process is not None
    return known.process, host


def connect(host: str) -> socket.socket:
    """A connection to the tracker."""
    return socket.create_connection(("127.0.0.1", int(host.rpartition(":")[2])), 20)


def asks(host: str) -> bool:
    """Whether a request is answered."""
    request = f"GET /api/v1/topologies HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
    with contextlib.suppress(OSError), connect(host) as sock:
        sock.settimeout(20)
        sock.sendall(request.encode())
        return sock.recv(15).startswith(b"HTTP/1.1 200")
    return False


def storm(host: str) -> None:
    """Clients that connect, say half a sentence or nothing, and go."""
    clients = []
    for number in range(CLIENTS):
        with contextlib.suppress(OSError):
            client = connect(host)
            clients.append(client)
            client.sendall((b"", b"GET / HT", os.urandom(64))[number % 3])
    for client in clients:
        client.close()


class Flow:
    """Counts what the sink has stored in each interval, in a thread, while something is done to the tracker.

    The spout pauses a millisecond after each tuple, so the rate is its own, and no matter of how fast the machine is.
    """

    INTERVAL_S = 3.0

    def __init__(self, out: Path) -> None:
        self._out = out
        self._over = threading.Event()
        self.counts: list[int] = []
        self._thread = threading.Thread(target=self._count, daemon=True)

    def _count(self) -> None:
        before = len(stored(self._out))
        while not self._over.wait(self.INTERVAL_S):
            now = len(stored(self._out))
            self.counts.append(now - before)
            before = now

    def __enter__(self) -> Flow:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(30)

    def when_more(self, intervals: int) -> None:
        """Wait for this number of further intervals."""
        wanted = len(self.counts) + intervals
        wait_for(lambda: len(self.counts) >= wanted, 60.0 + 3 * intervals * self.INTERVAL_S, f"{intervals} intervals")

    def since(self, first: int) -> list[int]:
        """The counts from the interval of this number on."""
        return self.counts[first:]


def check(calm: list[int], troubled: list[int], what: str) -> None:
    """In every interval tuples went on, and about as many as before. Both share the machine with others."""
    assert len(calm) >= 3 and len(troubled) >= 3, (calm, troubled)
    assert min(troubled) > 0, f"nothing was stored in an interval while the tracker was {what}: {troubled}"
    assert statistics.median(troubled) >= 0.5 * statistics.median(calm), f"{what}: {calm} before, {troubled} then"


@pytest.fixture
def calm(heron: Heron, out: Path) -> Iterator[tuple[Flow, list[int]]]:
    """A topology whose flow is counted, and its counts without a tracker; afterwards, that it lost nothing."""
    heron.submit(PROGRAM, "calm", "--out", out)
    when_stored(out, 100)
    names = ("tmaster", "stmgr-1", "executor-1", "container_1_store_2")
    before = {name: heron.pid("calm", name) for name in names}
    try:
        with Flow(out) as flow:
            flow.when_more(5)
            yield flow, list(flow.counts)
    finally:
        heron("ui", "stop")
    assert {name: heron.pid("calm", name) for name in before} == before, "something was restarted"
    (out / "end").touch()
    status = heron.when_state("calm", "FINISHED")
    assert component(status, "store")["executed"] == len(stored(out)) == status["totals"]["acked"]
    assert status["totals"]["failed"] == 0


def test_a_tracker_killed_in_a_loop_changes_no_rate(heron: Heron, calm: tuple[Flow, list[int]]) -> None:
    flow, before = calm
    first = len(flow.counts)
    for _ in range(KILLS):
        tracker, host = started(heron)
        wait_for(lambda where=host: asks(where), 30.0, "an answer of the tracker")
        tracker.kill()
        wait_for(lambda gone=tracker: not gone.is_running(), 10.0, "the end of the tracker")
    flow.when_more(3)
    check(before, flow.since(first), "killed in a loop")


def test_a_tracker_that_hangs_changes_no_rate(heron: Heron, calm: tuple[Flow, list[int]]) -> None:
    """It is stopped while it holds connections to the topology master, a live stream of a viewer among them."""
    flow, before = calm
    tracker, host = started(heron)
    wait_for(lambda: asks(host), 30.0, "an answer of the tracker")
    with connect(host) as viewer:
        request = f"GET /api/v1/live HTTP/1.1\r\nHost: {host}\r\n\r\n"
        viewer.sendall(request.encode())
        assert viewer.recv(15).startswith(b"HTTP/1.1 200")
        tracker.send_signal(signal.SIGSTOP)
        try:
            first = len(flow.counts)
            flow.when_more(12)
            assert heron.status("calm")["lifecycle"] == "RUNNING"
            check(before, flow.since(first), "stopped")
        finally:
            tracker.send_signal(signal.SIGCONT)
    wait_for(lambda: asks(host), 30.0, "an answer after it has gone on")


def test_thousands_of_clients_that_say_nothing_change_no_rate(heron: Heron, calm: tuple[Flow, list[int]]) -> None:
    flow, before = calm
    tracker, host = started(heron)
    wait_for(lambda: asks(host), 30.0, "an answer of the tracker")
    first = len(flow.counts)
    for _ in range(STORMS):
        storm(host)
    flow.when_more(3)
    check(before, flow.since(first), "stormed")
    wait_for(lambda: asks(host), 30.0, "an answer after the storm")
    wait_for(lambda: tracker.num_fds() < 300, 30.0, "descriptors to be given back")
