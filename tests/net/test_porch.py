"""Who has no key holds next to nothing: neither memory, nor descriptors, nor time."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import zmq

from heronpy.net import authenticator, transport, zsock
from heronpy.net.authenticator import (
    GREETED_BYTES,
    PATIENCE_S,
    SAID_MAX_BYTES,
    STRANGERS_MAX,
    Authenticator,
    HandshakeLimiter,
    Verdict,
    judge,
)
from heronpy.net.curve import Keys, Pair
from heronpy.net.rpc_loop import ControlClient, ControlServer
from heronpy.net.zsock import configure
from heronpy.proto import control_pb2
from tests.support.command import REPO
from tests.support.waiting import eventually

#: A greeting that asks for CURVE, and the beginning of a command of 59 MB.
GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00CURVE" + bytes(15) + b"\x00" + bytes(31)
LARGE = b"\x06" + struct.pack(">Q", 59 << 20)
#: Opens connections, says no word, and waits for its end.
IDLE = """
import socket, sys
kept = [socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=20) for _ in range(int(sys.argv[2]))]
print("open", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize(
    ("age_s", "told", "said", "verdict"),
    [
        (0.1, 0, 0, Verdict.WAIT),
        (0.1, 234, 500, Verdict.WAIT),
        (0.1, GREETED_BYTES, SAID_MAX_BYTES, Verdict.WAIT),
        (0.1, GREETED_BYTES + 1, 1 << 30, Verdict.ADMITTED),
        (99, GREETED_BYTES + 1, 0, Verdict.ADMITTED),
        (0.1, GREETED_BYTES, SAID_MAX_BYTES + 1, Verdict.REFUSE),
        (PATIENCE_S + 0.1, 0, 0, Verdict.REFUSE),
    ],
)
def test_who_may_stay(age_s: float, told: int, said: int, verdict: Verdict) -> None:
    assert judge(age_s, told, said) is verdict


class Guarded:
    """A control server behind an authenticator, and a client that has the key."""

    def __init__(self, message_max_bytes: int = zsock.CONTROL_MESSAGE_MAX_BYTES) -> None:
        self.keys = Keys("wc-1", Pair(*zmq.curve_keypair()), Pair(*zmq.curve_keypair()))
        self.authenticator = Authenticator(self.keys)
        self.server = ControlServer(["tcp://127.0.0.1:*"], lambda *_: control_pb2.Ok(), keys=self.keys)
        self.authenticator.watch(self.server.sock)
        self.data = configure(zmq.Context.instance().socket(zmq.ROUTER), hwm=0, message_max_bytes=message_max_bytes)
        self.data_port = port_of(transport.bind(self.data, "tcp://127.0.0.1:*", self.keys))
        self.authenticator.watch(self.data)
        self.port = port_of(self.server.endpoints[0])

    async def __aenter__(self) -> Guarded:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.authenticator.close()
        self.server.close()
        self.data.close(linger=0)

    async def serves(self) -> None:
        """A friend who comes now is served."""
        client = ControlClient(self.server.endpoints[0], lambda _: None, keys=self.keys)
        await client.call(control_pb2.Ok(), 20)
        client.close()

    @property
    def strangers(self) -> int:
        return self.authenticator.strangers


def port_of(endpoint: str) -> int:
    return int(endpoint.rpartition(":")[2])


async def test_four_strangers_hold_no_memory() -> None:
    """Each sends a message of 59 MB, all but its last byte; it held all of that before it was asked for a key."""

    def attack(port: int) -> list[int]:
        taken = []
        with contextlib.ExitStack() as stack:
            for _ in range(4):
                sock = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=20))
                sent = 0
                with contextlib.suppress(OSError):
                    sock.sendall(GREETING + LARGE)
                    for _ in range(58):
                        sock.sendall(bytes(1 << 20))
                        sent += 1
                taken.append(sent)
        return taken

    async with Guarded(64 << 20) as guarded:
        me, before, peak = psutil.Process(), psutil.Process().memory_info().rss, 0
        work = asyncio.get_running_loop().run_in_executor(None, attack, guarded.data_port)
        while not work.done():
            peak = max(peak, me.memory_info().rss - before)
            await asyncio.sleep(0.005)
        assert max(await work) < 58, "nobody may say that much"
        assert peak < 60 << 20, f"{peak >> 20} MB"
        await eventually(lambda: guarded.strangers == 0, what="nobody on the limiter")
        await guarded.serves()


@pytest.mark.heavy
async def test_a_thousand_idle_connections_keep_nobody_out() -> None:
    """They are sent away within seconds, the oldest first when there are many; a client with the key is admitted meanwhile."""
    async with Guarded() as guarded:
        before = psutil.Process().num_fds()
        command = [sys.executable, "-c", IDLE, str(guarded.port), "1100"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as idle:
            assert idle.stdout is not None
            await asyncio.get_running_loop().run_in_executor(None, idle.stdout.readline)
            await guarded.serves()
            await eventually(lambda: guarded.strangers <= STRANGERS_MAX, what="few strangers")
            await eventually(lambda: guarded.strangers == 0, what="no strangers")
            assert guarded.authenticator.refused >= 1100 - STRANGERS_MAX
            await eventually(lambda: psutil.Process().num_fds() < before + 20, what="their descriptors")
            await guarded.serves()


#: A server that has no descriptor left, while sixty others connect; then it has some again.
FULL = """
import asyncio, contextlib, os, resource, subprocess, sys, time, zmq
from heronpy.net.rpc_loop import ControlClient
from heronpy.proto import control_pb2
from tests.net.test_porch import IDLE, Guarded

async def main():
    async with Guarded() as guarded:
        friend = ControlClient(guarded.server.endpoints[0], lambda _: None, keys=guarded.keys)
        await friend.call(control_pb2.Ok(), 20)
        wait = asyncio.get_running_loop().run_in_executor
        await wait(None, int)  # what it imports takes descriptors
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        idle = subprocess.Popen([sys.executable, "-c", IDLE.replace("import", "import time; time.sleep(1); import", 1),
                                 str(guarded.port), "60"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 20, hard))
        with contextlib.ExitStack() as held:
            with contextlib.suppress(OSError):
                while True:
                    held.enter_context(open(os.devnull))
            await wait(None, idle.stdout.readline)
            await friend.call(control_pb2.Ok(), 20)
        friend.close()
        deadline = time.monotonic() + 30
        while True:
            try:  # at first strangers take what has become free
                await guarded.serves()
                break
            except zmq.ZMQError:
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.1)
        idle.communicate()

asyncio.run(main())
print("lives")
"""


def test_a_process_without_descriptors_lives_and_serves_again() -> None:
    done = subprocess.run([sys.executable, "-c", FULL], cwd=REPO, capture_output=True, text=True, timeout=110)
    assert (done.returncode, done.stdout) == (0, "lives\n"), done.stderr


async def test_friends_leave_the_porch_at_once() -> None:
    async with Guarded() as guarded:
        clients = [ControlClient(guarded.server.endpoints[0], lambda _: None, keys=guarded.keys) for _ in range(20)]
        for client in clients:
            await client.call(control_pb2.Ok(), 20)
        await eventually(lambda: guarded.strangers == 0, what="an empty limiter")
        await asyncio.sleep(PATIENCE_S + 0.2)
        for client in clients:
            await client.call(control_pb2.Ok(), 20)
            client.close()
        assert (guarded.authenticator.admitted, guarded.authenticator.refused) == (20, 0)


async def test_what_is_no_tcp_connection_is_left_alone() -> None:
    at_home = HandshakeLimiter()
    one, other = socket.socketpair()
    with one, other, open(os.devnull) as file:
        for descriptor in (one.fileno(), file.fileno(), 99999):
            at_home.accepted(descriptor)
        assert len(at_home) == 0
        one.send(b"x")
        assert other.recv(1) == b"x"
    at_home.close()


async def test_idle_connections_of_the_same_user_go_too(home: Path) -> None:
    """Over ipc nobody else can connect; a program of one's own that says nothing does not hold a descriptor either."""
    server = ControlServer([f"ipc://{home}/s"], lambda *_: control_pb2.Ok())
    before = psutil.Process().num_fds()
    with contextlib.ExitStack() as stack:
        for _ in range(50):
            sock = stack.enter_context(socket.socket(socket.AF_UNIX))
            await asyncio.sleep(0.001)  # the backlog is short
            sock.connect(f"{home}/s")
        # 50 are this end of them.
        await eventually(lambda: psutil.Process().num_fds() <= before + 50 + 5, what="their descriptors")
        client = ControlClient(f"ipc://{home}/s", lambda _: None)
        await client.call(control_pb2.Ok(), 20)
        client.close()
    server.close()


def test_the_deadline_is_zeromqs_own_first() -> None:
    assert zsock.HANDSHAKE_MS == 2000 and authenticator.PATIENCE_S > zsock.HANDSHAKE_MS / 1000
