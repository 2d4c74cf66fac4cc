"""Whatever becomes of the tracker, or is done to it, topologies run on as if it were not there (real processes)."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
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


def started(heron: Heron) -> tuple[psutil.Process, tuple[str, int]]:
    """A tracker that answers, and where."""
    # On a busy machine its start may take longer than the command waits.
    wait_for(lambda: heron("ui").code == 0, 120.0, "a tracker")
    address = urlsplit(heron("ui").ok().out.split()[-1])
    known = place.read(folder_of(heron.home))
    assert known is not None and known.process is not None and address.port is not None
    return known.process, ("127.0.0.1", address.port)


def asks(address: tuple[str, int]) -> bool:
    """Whether a request is answered."""
    request = f"GET /api/v1/topologies HTTP/1.1\r\nHost: 127.0.0.1:{address[1]}\r\nConnection: close\r\n\r\n"
    with contextlib.suppress(OSError), socket.create_connection(address, 20) as sock:
        sock.settimeout(20)
        sock.sendall(request.encode())
        return sock.recv(15).startswith(b"HTTP/1.1 200")
    return False


def storm(address: tuple[str, int]) -> None:
    """Clients that connect, say half a sentence or nothing, and go."""
    clients = []
    for number in range(CLIENTS):
        with contextlib.suppress(OSError):
            client = socket.create_connection(address, 20)
            clients.append(client)
            client.sendall((b"", b"GET / HT", os.urandom(64))[number % 3])
    for client in clients:
        client.close()


def test_a_tracker_killed_hung_or_stormed_changes_nothing(heron: Heron, out: Path) -> None:
    heron.submit(PROGRAM, "calm", "--out", out)
    when_stored(out, 100)
    before = {name: heron.pid("calm", name) for name in ("tmaster", "stmgr-1", "executor-1", "container_1_store_2")}
    try:
        for _ in range(3):
            tracker, address = started(heron)
            wait_for(lambda where=address: asks(where), 30.0, "an answer of the tracker")
            tracker.kill()
            wait_for(lambda gone=tracker: not gone.is_running(), 10.0, "the end of the tracker")
            when_stored(out, 50)
        tracker, address = started(heron)
        wait_for(lambda: asks(address), 30.0, "an answer of the tracker")
        tracker.send_signal(signal.SIGSTOP)
        when_stored(out, 500)
        assert heron.status("calm")["lifecycle"] == "RUNNING"
        tracker.send_signal(signal.SIGCONT)
        for _ in range(STORMS):
            storm(address)
            when_stored(out, 10)
        wait_for(lambda: asks(address), 30.0, "an answer after the storm")
        wait_for(lambda: tracker.num_fds() < 300, 30.0, "descriptors to be given back")
    finally:
        heron("ui", "stop")
    assert {name: heron.pid("calm", name) for name in before} == before, "something was restarted"
    (out / "end").touch()
    status = heron.when_state("calm", "FINISHED")
    assert component(status, "store")["executed"] == len(stored(out)) == status["totals"]["acked"]
    assert status["totals"]["failed"] == 0
