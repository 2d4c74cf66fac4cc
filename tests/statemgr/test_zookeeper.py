"""What only ZooKeeper can get wrong: outages, sessions, lost answers, owners."""

from __future__ import annotations

import asyncio
import logging
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

pytest.importorskip("kazoo", reason="kazoo is not installed; run pip install 'heronpy[zookeeper]'")

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss

from heronpy.common.errors import (
    RetryableError,
    StateError,
    VersionMismatchError,
)
from heronpy.common.host import started_at
from heronpy.statemgr import open_state, zk_session
from heronpy.statemgr.zookeeper import ZooKeeperStateManager
from heronpy.verify.proxy import ANY, FaultProxy, Rule
from stmgr.admission import get_off_loop
from tests.statemgr.processes import kill, start
from tests.support.waiting import wait_for
from tests.support.zookeeper import ZooKeeperEnsemble, ZooKeeperServer

DEADLINE_S = 20.0
Make = Callable[..., ZooKeeperStateManager]


def expire(manager: ZooKeeperStateManager) -> None:
    """End the manager's session as the server does when it has heard nothing for too long."""
    client = manager.session.client
    thief = KazooClient(manager.session.hosts, client_id=client.client_id)
    thief.start()
    thief.stop()
    thief.close()


# ---- sessions -----------------------------------------------------------------------------------


def test_a_restart_of_the_server_costs_nothing(own_server: ZooKeeperServer, make: Make) -> None:
    root = f"{own_server.hosts}/heron"
    first, second = make(root), make(root)
    first.create("tmasters/a", b"1", ephemeral=True)
    heard = threading.Event()
    first.watch("pplans/a", lambda path: heard.set())
    number = first.session.number
    with first.lock("locks/a"), ThreadPoolExecutor(1) as pool:
        own_server.stop()
        read = pool.submit(second.get, "tmasters/a")  # during the outage
        own_server.start()
        assert read.result(DEADLINE_S) == (b"1", 1)
        with pytest.raises(Exception, match="still held by process"), second.lock("locks/a", 0):
            pass
    assert first.session.number == number, "a lost connection is not a lost session"
    assert not heard.is_set()
    second.set("pplans/a", b"changed")
    assert heard.wait(DEADLINE_S), "the watch did not survive the outage"


def test_an_outage_is_one_sentence_and_does_not_stop_an_event_loop(
    own_server: ZooKeeperServer, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = make(f"{own_server.hosts}/heron")
    state.create("topologies/a", b"")
    own_server.stop()
    wait_for(lambda: not state.session.client.connected, DEADLINE_S)
    monkeypatch.setattr(zk_session, "PATIENCE_S", 2.0)
    calls: list[str] = []
    state.watch("topologies/a", calls.append)
    with pytest.raises(StateError, match=rf"ZooKeeper at {own_server.hosts} does not answer .*/heron/topologies/a"):
        state.get("topologies/a")

    async def look() -> float:
        before = time.monotonic()
        with pytest.raises(RetryableError):
            state.set("topologies/a", b"")
        took = time.monotonic() - before
        assert await get_off_loop(state, "topologies/a") is None
        return took

    assert asyncio.run(look()) < 1.5
    with pytest.raises(StateError, match="does not answer"):
        open_state("zookeeper", f"{own_server.hosts}/heron")
    assert not calls
    monkeypatch.setattr(zk_session, "PATIENCE_S", 30.0)
    own_server.start()
    wait_for(lambda: calls, DEADLINE_S, "a call for what was missed before the watch was set")
    assert state.get("topologies/a") == (b"", 1)


@pytest.mark.heavy
def test_a_rolling_restart_and_a_lost_quorum_cost_nothing(
    make: Make, ensemble: ZooKeeperEnsemble, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F28: three servers, one after the other; then only one is left, which may be read at most."""
    root = f"{ensemble.hosts}/heron"
    state, other = make(root), make(root)
    state.create("tmasters/a", b"1", ephemeral=True)
    number, seen = state.session.number, []
    other.watch("tmasters/a", seen.append)
    for round_number, server in enumerate(ensemble.servers):
        server.stop()
        assert state.set("pplans/a", b"%d" % round_number) == round_number + 1
        server.start()
        ensemble.when_all_serve()
    for server in ensemble.servers[1:]:
        server.stop()
    last = ensemble.servers[0]
    wait_for(lambda: "read-only" in last.ask("srvr") or not last.serves(), DEADLINE_S, "the quorum being lost")

    with monkeypatch.context() as patch, pytest.raises(RetryableError):
        patch.setattr(zk_session, "PATIENCE_S", 1.0)
        state.set("pplans/a", b"alone")
    for server in ensemble.servers[1:]:
        server.start()
    ensemble.when_all_serve()
    assert state.get("pplans/a") == other.get("pplans/a") == (b"2", 3)
    assert other.get("tmasters/a") == (b"1", 1) and not seen
    assert state.session.number == number, "the session ended with a server"


@pytest.mark.heavy
def test_a_slow_network_is_no_outage(make: Make, zookeeper: ZooKeeperServer) -> None:
    """F28: answers after two seconds; threads wait for them, an event loop does not, and the session lives on."""
    link = FaultProxy(lambda here, there: ("client", "server"), 1, zookeeper.port)
    try:
        state = make(f"{link.address}/slow")
        state.create("tmasters/a", b"1", ephemeral=True)
        state.create("pplans/a", b"0")
        number, seen = state.session.number, []
        state.watch("tmasters/a", seen.append)
        link.set(ANY, ANY, Rule(delay_s=1.0))  # each way
        assert state.get("tmasters/a") == (b"1", 1)
        assert state.set("pplans/a", b"1") == 2
        assert state.session.number == number and not seen

        async def look() -> None:
            before = time.monotonic()
            try:
                state.get("tmasters/a")
            except RetryableError:
                pass
            assert time.monotonic() - before < zk_session.PATIENCE_OF_LOOP_S + 1.0

        asyncio.run(look())
        link.clear()
        assert state.set("pplans/a", b"2", version=2) == 3
        assert state.session.number == number and not seen
    finally:
        link.close()


def test_an_expired_session_is_replaced_and_gets_its_ephemerals_back(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = make(), make()
    first.create("schedulers/a", b"1", ephemeral=True)
    first.set("schedulers/a", b"2")
    first.create("tmasters/a", b"mine", ephemeral=True)
    changes: list[object] = []
    second.watch("schedulers/a", lambda path: changes.append(second.get(path)))
    heard = threading.Event()
    first.watch("pplans/a", lambda path: heard.set())
    number = first.session.number
    # Takes the place of the topology master while its session is gone.
    second.watch("tmasters/a", lambda path: second.exists(path) or second.create(path, b"theirs", ephemeral=True))
    with caplog.at_level(logging.INFO), first.lock("locks/a"):
        expire(first)
        wait_for(lambda: second.get("schedulers/a") == (b"2", 1) and changes, DEADLINE_S)
        assert first.session.number != number
        with second.lock("locks/a", timeout_s=DEADLINE_S):
            pass
    assert "lock 'locks/a' was lost" in caplog.text
    second.set("pplans/a", b"")
    assert heard.wait(DEADLINE_S), "the watch did not survive the session"
    found = wait_for(lambda: second.get("tmasters/a"), DEADLINE_S)
    if found == (b"theirs", 1):  # whoever is first has it, and the other knows
        wait_for(lambda: "'tmasters/a', lost with the session, now belongs to" in caplog.text, DEADLINE_S)
        first.close()
        assert second.get("tmasters/a") == (b"theirs", 1)
    else:
        assert found == (b"mine", 1)


def test_the_ephemeral_of_a_killed_process_is_gone_at_once(make: Make, zookeeper_root: str) -> None:
    state = make()
    code = """
state.create('tmasters/a', b'x', ephemeral=True)
with state.lock('locks/a'):
    print('ready', flush=True)
    signal.pause()
"""
    process = start("zookeeper", code, zookeeper_root)
    assert state.get("tmasters/a") == (b"x", 1)
    began = time.monotonic()
    kill(process)
    assert state.get("tmasters/a") is None
    state.create("tmasters/a", b"y", ephemeral=True)
    with state.lock("locks/a", timeout_s=DEADLINE_S):
        pass
    assert time.monotonic() - began < 5.0, "its session, of 10 s, was waited for"


def test_the_ephemeral_of_another_machine_is_gone_when_its_session_is(make: Make, zookeeper_root: str) -> None:
    state = make()
    code = """
from heronpy.statemgr import zk_session
zk_session._machine = lambda: "0123456789abcdef"
from heronpy.common.setting_types import StatemgrSettings
state = open_state('zookeeper', sys.argv[1], StatemgrSettings(session_timeout_s=0.5))
state.create('tmasters/a', b'x', ephemeral=True)
print('ready', flush=True)
signal.pause()
"""
    process = start("zookeeper", code, zookeeper_root)
    gone = threading.Event()
    state.watch("tmasters/a", lambda path: gone.set())
    kill(process)
    assert state.get("tmasters/a") == (b"x", 1)
    assert gone.wait(DEADLINE_S)
    assert state.get("tmasters/a") is None


def test_a_forked_child_leaves_the_session_alone(make: Make, zookeeper_root: str) -> None:
    code = """
import threading
state.create('tmasters/a', b'x', ephemeral=True)
before = len(os.listdir('/proc/self/fd'))
child = os.fork()
if child == 0:
    try:
        state.get('tmasters/a')
    except Exception as error:
        assert 'before a fork' in str(error), error
        assert threading.active_count() == 1
        assert len(os.listdir('/proc/self/fd')) < before, 'the connection is still open here'
        mine = open_state('zookeeper', sys.argv[1])
        assert mine.get('tmasters/a') == (b'x', 1)
        mine.create('tmasters/b', b'of the child', ephemeral=True)
        state.close()
        mine.close()
        os._exit(7)
    os._exit(1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert state.get('tmasters/a') == (b'x', 1)
assert state.get('tmasters/b') is None
print('ready', flush=True)
signal.pause()
"""
    process = start("zookeeper", code, zookeeper_root)
    assert make().get("tmasters/a") == (b"x", 1)
    kill(process)


def test_a_process_that_ends_takes_its_ephemerals_along(make: Make, zookeeper_root: str) -> None:
    state = make()
    process = start(
        "zookeeper", "state.create('tmasters/a', b'', ephemeral=True); print('ready', flush=True)", zookeeper_root
    )
    assert process.wait(DEADLINE_S) == 0
    assert process.stdout
    process.stdout.close()
    assert state.children("tmasters") == []


def test_a_callback_may_close_the_manager(make: Make) -> None:
    first, second = make(), make()
    closed = threading.Event()

    def close(path: str) -> None:
        first.close()
        closed.set()

    first.create("tmasters/a", b"", ephemeral=True)
    first.watch("pplans/a", close)
    second.create("pplans/a", b"")
    assert closed.wait(DEADLINE_S)
    wait_for(lambda: not second.exists("tmasters/a"), DEADLINE_S)


def test_nothing_is_written_while_nothing_happens(own_server: ZooKeeperServer, make: Make) -> None:
    root = f"{own_server.hosts}/heron"
    managers = [make(root, session_timeout_s=1.0) for _ in range(3)]
    for number, manager in enumerate(managers):
        manager.create(f"tmasters/{number}", b"", ephemeral=True)
        manager.watch("tmasters/0", lambda path: None)
    before = own_server.writes()
    deadline = time.monotonic() + 1.5
    wait_for(lambda: time.monotonic() > deadline)
    assert managers[0].get("tmasters/1") == (b"", 1)
    assert own_server.writes() == before


# ---- lost answers -------------------------------------------------------------------------------


class Interrupted:
    """Lets an operation happen but not its answer, as when the connection breaks in between."""

    def __init__(self, state: ZooKeeperStateManager, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.times = 0
        real = getattr(KazooClient, name)

        def interrupted(client: KazooClient, *args: Any, **options: Any) -> Any:
            result = real(client, *args, **options)
            if client is state.session.client and not self.times:
                self.times += 1
                result.get(timeout=DEADLINE_S)
                result = client.handler.async_result()
                result.set_exception(ConnectionLoss())
            return result

        monkeypatch.setattr(KazooClient, name, interrupted)


def test_a_write_whose_answer_was_lost_is_not_mistaken(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    state = make()
    state.set("pplans/a", b"1")
    with monkeypatch.context() as patch:
        lost = Interrupted(state, "set_async", patch)
        assert state.set("pplans/a", b"2", version=1) == 2
        assert lost.times == 1
    with monkeypatch.context() as patch:
        Interrupted(state, "create_async", patch)
        state.create("tmasters/a", b"", ephemeral=True)
    with monkeypatch.context() as patch:
        Interrupted(state, "set_async", patch)
        assert [state.counter("epochs/a/x") for _ in range(3)] == [1, 2, 3]
    with monkeypatch.context() as patch:
        Interrupted(state, "create_async", patch)
        with state.lock("locks/a", timeout_s=0):
            pass
    with monkeypatch.context() as patch:
        Interrupted(state, "delete_async", patch)
        state.delete("pplans/a", version=2)
    assert state.get("pplans/a") is None


def test_a_write_that_another_overtook_is_told(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = make(), make()
    first.set("pplans/a", b"1")
    real = ZooKeeperStateManager._commit

    def late(manager: ZooKeeperStateManager, *args: Any, **options: Any) -> None:
        if manager is first and second.get("pplans/a") == (b"1", 1):
            second.set("pplans/a", b"theirs")
        real(manager, *args, **options)

    monkeypatch.setattr(ZooKeeperStateManager, "_commit", late)
    with pytest.raises(VersionMismatchError, match="has version 2, not 1"):
        first.set("pplans/a", b"mine", version=1)
    assert first.set("pplans/a", b"mine") == 3


# ---- owners -------------------------------------------------------------------------------------


def test_only_a_dead_process_of_this_machine_is_called_dead() -> None:
    mine = zk_session.own_token()
    machine, pid, started = mine.split(":")
    assert not zk_session.is_dead(mine)
    assert zk_session.is_dead(f"{machine}:{pid}:{int(started) - 1}"), "an earlier process of this number"
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    token = f"{machine}:{process.pid}:{started_at(process.pid)}"
    assert not zk_session.is_dead(token)
    process.send_signal(signal.SIGKILL)
    wait_for(lambda: zk_session.is_dead(token), DEADLINE_S, "a zombie being dead")
    assert process.stdin
    process.stdin.close()
    process.wait(DEADLINE_S)
    assert zk_session.is_dead(token)
    assert not zk_session.is_dead("0" * 16 + token[16:]), "nothing is known of other machines"
    assert not zk_session.is_dead(f"{machine}:1:0")
