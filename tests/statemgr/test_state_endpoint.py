"""What only an endpoint can get wrong: processes that die, a scheduler that is restarted, stopped or absent, lost answers."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import zmq

from heronpy.common.errors import (
    ConfigError,
    DeadlineError,
    HeronError,
    NoNodeError,
    StateAwayError,
    StateError,
    VersionMismatchError,
)
from heronpy.common.setting_types import StatemgrSettings
from heronpy.executor.handing import TopologyHanding, tasks_that_ran
from heronpy.executor.scheduler_link import SchedulerLink
from heronpy.net import endpoint_link
from heronpy.net.curve import Pair
from heronpy.net.endpoint_state import EndpointStateManager
from heronpy.net.follower import MasterFollower
from heronpy.net.join_token import JoinToken, SessionCredential
from heronpy.net.rpc_loop import ControlServer
from heronpy.net.zsock import RARE_HEARTBEAT_MS, configure
from heronpy.procs.plan_watch import PlanWatch
from heronpy.proto import control_pb2, endpoint_pb2, plan_pb2
from heronpy.statemgr import open_state, paths
from heronpy.statemgr.localfs import LocalStateManager
from tests.statemgr.processes import kill, start
from tests.support.endpoints import Endpoint
from tests.support.waiting import eventually, wait_for
from tests.support.wires import new_endpoint

NODE = paths.tmaster("wc")
PLAN = paths.physical_plan("wc")
DEADLINE_S = 20.0
HOLD = "\nprint('ready', flush=True)\nsignal.pause()\n"


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[Endpoint]:
    made = Endpoint(tmp_path / "endpoint")
    made.start()
    yield made
    made.kill()


@pytest.fixture
def here(endpoint: Endpoint) -> Iterator[LocalStateManager]:
    """The state as the processes of the scheduler's host see it."""
    state = LocalStateManager(endpoint.folder / "state")
    yield state
    state.close()


@pytest.fixture
def opened(endpoint: Endpoint) -> Iterator[Callable[..., EndpointStateManager]]:
    made: list[EndpointStateManager] = []

    def open_one(container: int = 1, session_s: float = 2.0) -> EndpointStateManager:
        made.append(endpoint.open(container, session_s))
        return made[-1]

    yield open_one
    for one in made:
        one.close()


class Reader:
    """Reads a node all the time, on the scheduler's host, and notes what it found."""

    def __init__(self, state: LocalStateManager, path: str) -> None:
        self.found: Counter[bytes | None] = Counter()
        self._stop = threading.Event()

        def read() -> None:
            while not self._stop.is_set():
                value = state.get(path)
                self.found[value[0] if value is not None else None] += 1

        self._thread = threading.Thread(target=read)
        self._thread.start()

    def stop(self) -> Counter[bytes | None]:
        self._stop.set()
        self._thread.join()
        return self.found


# ---- the end of a process ------------------------------------------------------------------------


def test_the_ephemerals_of_a_killed_process_go_after_its_session(endpoint: Endpoint, here: LocalStateManager) -> None:
    process = start("endpoint", f"state.create('{NODE}', b'x', ephemeral=True){HOLD}", endpoint.token(), session_s=1.5)
    gone = threading.Event()
    watch = here.watch(NODE, lambda path: gone.set())
    killed_at = time.monotonic()
    kill(process)
    assert here.get(NODE) == (b"x", 1)
    assert gone.wait(DEADLINE_S)
    assert here.get(NODE) is None
    # The last message came at most a third of the session before the end.
    assert 0.9 < time.monotonic() - killed_at < 4.0
    watch.cancel()


def test_a_process_that_ends_by_itself_takes_its_ephemerals_along(endpoint: Endpoint, here: LocalStateManager) -> None:
    process = start(
        "endpoint", f"state.create('{NODE}', b'x', ephemeral=True)\nprint('ready', flush=True)", endpoint.token()
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait(DEADLINE_S) == 0
    wait_for(lambda: not here.exists(NODE), 1.0, "the node's end")


def test_a_silent_process_that_wakes_up_puts_its_node_back(endpoint: Endpoint, here: LocalStateManager) -> None:
    process = start("endpoint", f"state.create('{NODE}', b'x', ephemeral=True){HOLD}", endpoint.token(), session_s=1.0)
    process.send_signal(signal.SIGSTOP)
    wait_for(lambda: not here.exists(NODE), DEADLINE_S, "the end of the session")
    process.send_signal(signal.SIGCONT)
    wait_for(lambda: here.get(NODE) == (b"x", 1), DEADLINE_S, "the node again")
    kill(process)
    wait_for(lambda: not here.exists(NODE), DEADLINE_S, "the end of the second session")


def test_a_forked_child_has_no_part_in_the_session(endpoint: Endpoint, here: LocalStateManager) -> None:
    code = f"""
state.create('{NODE}', b'x', ephemeral=True)
if os.fork() == 0:
    try:
        state.get('{NODE}')
    except Exception as error:
        assert 'before a fork' in str(error)
        sys.stdout.write('ready\\n')
    sys.stdout.flush()
    signal.pause()
os.wait()
state.set('{NODE}', b'y')
signal.pause()
"""
    process = start("endpoint", code, endpoint.token(), session_s=1.5)
    child = int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text())
    os.kill(child, signal.SIGTERM)
    wait_for(lambda: here.get(NODE) == (b"y", 2), DEADLINE_S, "the parent's write")
    kill(process)
    wait_for(lambda: not here.exists(NODE), DEADLINE_S, "the end of the parent's session")


# ---- a scheduler that is restarted -----------------------------------------------------------------


def test_ephemerals_and_watches_survive_the_schedulers_restart(
    endpoint: Endpoint, here: LocalStateManager, opened: Callable[..., EndpointStateManager]
) -> None:
    owner, other = opened(1), opened(2)
    owner.create(NODE, b"x", ephemeral=True)
    changes: list[str] = []
    other.watch(PLAN, changes.append)
    reader = Reader(here, NODE)
    endpoint.kill()
    here.set(PLAN, b"while nobody is there")
    endpoint.start()
    wait_for(lambda: changes, DEADLINE_S, "the watch after the restart")
    assert other.get(PLAN) == (b"while nobody is there", 1)
    seen = len(changes)
    here.set(PLAN, b"afterwards")
    wait_for(lambda: len(changes) > seen, DEADLINE_S, "a change after the restart")
    assert owner.set(NODE, b"x") == 2
    # Longer than a session: the new one keeps the node alive.
    wait_for(lambda: endpoint.served().get("1 keep", 0) >= 4, DEADLINE_S, "four signs of life")
    assert set(reader.stop()) == {b"x"}
    owner.close()
    assert not here.exists(NODE)


def test_nobody_else_gets_the_node_while_its_owner_may_come_back(
    endpoint: Endpoint, opened: Callable[..., EndpointStateManager]
) -> None:
    owner, other = opened(1), opened(2)
    owner.create(NODE, b"x", ephemeral=True)
    for _ in range(3):
        endpoint.kill()
        endpoint.start()
        with pytest.raises(StateError, match="already exists"):
            other.create(NODE, b"y", ephemeral=True)
    assert owner.get(NODE) == (b"x", 1)
    owner.delete(NODE)
    other.create(NODE, b"y", ephemeral=True)


@pytest.mark.parametrize("what", ["create", "set", "delete"])
def test_a_write_whose_answer_died_with_the_scheduler_is_done_once(
    endpoint: Endpoint, here: LocalStateManager, opened: Callable[..., EndpointStateManager], what: str
) -> None:
    endpoint.kill()
    endpoint.start(losing={what: 100})
    state = opened(1)
    here.set(PLAN, b"old")
    writes: dict[str, Callable[[], Any]] = {
        "create": lambda: state.create(NODE, b"x", ephemeral=True),
        "set": lambda: state.set(PLAN, b"new", version=1),
        "delete": lambda: state.delete(PLAN, version=1),
    }
    done: dict[str, Callable[[], Any]] = {
        "create": lambda: here.exists(NODE),
        "set": lambda: here.get(PLAN) == (b"new", 2),
        "delete": lambda: not here.exists(PLAN),
    }
    results: list[Any] = []
    writer = threading.Thread(target=lambda: results.append(writes[what]()))
    writer.start()
    wait_for(done[what], DEADLINE_S, "the write")
    endpoint.kill()
    endpoint.start()
    writer.join(DEADLINE_S)
    assert results == [2 if what == "set" else None]
    assert done[what]()
    if what == "set":
        with pytest.raises(VersionMismatchError):
            state.set(PLAN, b"newer", version=1)


# ---- lost answers, partitions, absence ---------------------------------------------------------------


def test_a_call_whose_answer_is_lost_is_carried_out_once(tmp_path: Path) -> None:
    lossy = Endpoint(
        tmp_path / "endpoint", losing={"counter": 1, "create": 1, "set": 1, "delete": 1, "watch": 1, "get": 1}
    )
    lossy.start()
    state = lossy.open()
    try:
        path = paths.epoch("wc", "tmaster")
        assert [state.counter(path) for _ in range(3)] == [1, 2, 3]
        state.create(NODE, b"x", ephemeral=True)
        assert state.set(NODE, b"y", version=1) == 2
        changes: list[str] = []
        state.watch(NODE, changes.append)
        assert state.get(NODE) == (b"y", 2)
        state.delete(NODE)
        with pytest.raises(NoNodeError):
            state.delete(NODE)
        wait_for(lambda: changes, DEADLINE_S, "the change")
    finally:
        state.close()
        lossy.kill()


def test_without_an_endpoint_calls_fail_in_time_and_watches_fire_when_it_is_back(
    endpoint: Endpoint, opened: Callable[..., EndpointStateManager], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint_link, "PATIENCE_S", 1.0)
    state = opened(1)
    changes: list[str] = []
    state.watch(PLAN, changes.append)
    endpoint.kill()
    begun = time.monotonic()
    with pytest.raises(StateAwayError, match=r"endpoint at tcp://.* does not answer \(pplans/wc was not served within"):
        state.set(PLAN, b"x")
    assert time.monotonic() - begun < 3.0

    async def from_a_loop() -> float:
        begun = time.monotonic()
        with pytest.raises(StateAwayError):
            state.counter(paths.epoch("wc", "tmaster"))
        return time.monotonic() - begun

    assert asyncio.run(from_a_loop()) < 0.5
    other: list[str] = []
    state.watch(NODE, other.append)  # does not fail: it is reported later
    with pytest.raises(StateAwayError, match="no session within 1 s"):
        endpoint.open(2)
    endpoint.start()
    wait_for(lambda: changes and other, DEADLINE_S, "the watches")
    wait_for(lambda: state.set(PLAN, b"x") == 1, DEADLINE_S, "the write")


def test_a_write_that_was_given_up_does_not_happen_later(
    endpoint: Endpoint,
    here: LocalStateManager,
    opened: Callable[..., EndpointStateManager],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(endpoint_link, "PATIENCE_S", 0.5)
    state = opened(1)
    endpoint.kill()
    with pytest.raises(StateAwayError):
        state.set(PLAN, b"given up")
    endpoint.start()
    monkeypatch.setattr(endpoint_link, "PATIENCE_S", 10.0)
    assert state.get(PLAN) is None
    assert state.set(PLAN, b"wanted") == 1
    assert here.get(PLAN) == (b"wanted", 1)


def test_a_lock_ends_with_the_session_of_its_holder(tmp_path: Path) -> None:
    lenient = Endpoint(tmp_path / "endpoint", rules="any")
    lenient.start()
    state = lenient.open(2)
    try:
        process = start(
            "endpoint", f"with state.lock('locks/a'):{HOLD.replace(chr(10), chr(10) + '    ')}", lenient.token(), 1.0
        )
        with pytest.raises(DeadlineError, match="locks/a"), state.lock("locks/a", 0.1):
            pass
        kill(process)
        with state.lock("locks/a", DEADLINE_S):
            local = LocalStateManager(lenient.folder / "state")
            with pytest.raises(DeadlineError), local.lock("locks/a", 0):
                pass  # it also excludes the processes of the scheduler's host
            local.close()
    finally:
        state.close()
        lenient.kill()


# ---- who may do what, and how much -------------------------------------------------------------------


def test_only_the_nodes_of_the_topology_that_a_container_needs(
    endpoint: Endpoint, here: LocalStateManager, opened: Callable[..., EndpointStateManager]
) -> None:
    state = opened(3)
    here.set(paths.topology("other"), b"secret")
    here.set(paths.scheduler("wc"), b"the scheduler")
    assert state.get(paths.scheduler("wc")) == (b"the scheduler", 1)
    for use in (
        lambda: state.get(paths.topology("other")),
        lambda: state.watch(paths.topology("other"), print),
        lambda: state.set(paths.scheduler("wc"), b"mine"),
        lambda: state.delete(paths.scheduler("wc")),
        lambda: state.set(paths.placement("wc"), b"mine"),
        lambda: state.set(paths.ephemerals("wc"), b"mine"),
        lambda: state.create(paths.scheduler("wc"), b"mine", ephemeral=True),
        lambda: state.counter(paths.epoch("wc", "container-3")),
    ):
        with pytest.raises(StateError, match="a container of topology 'wc' may not"):
            use()
    assert here.get(paths.scheduler("wc")) == (b"the scheduler", 1)
    with pytest.raises(StateError, match="not listed at the scheduler's control endpoint"):
        state.children("topologies")


def test_a_stranger_and_a_forged_credential_are_refused(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    token = endpoint.token(7)
    SessionCredential(7, 1, b"x" * 32).save(token.parent)
    with pytest.raises(StateError, match="refuses this container: no session credential of this topology"):
        EndpointStateManager(str(token))
    with pytest.raises(ConfigError, match="cannot read"):
        EndpointStateManager(str(endpoint.folder / "nowhere"))
    (token.parent / "credential.json").write_text("{}")
    with pytest.raises(ConfigError, match="contains no session credential"):
        EndpointStateManager(str(token))
    token.write_text("{}")
    with pytest.raises(ConfigError, match="contains no join token"):
        EndpointStateManager(str(token))
    with pytest.raises(ConfigError, match="known types are local, zookeeper"):
        open_state("endpoint", str(token))


def test_limits_are_clear_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = Endpoint(tmp_path / "endpoint", limits={"sessions": 1})
    small.start()
    state = small.open(1)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(endpoint_link, "PATIENCE_S", 1.0)
            with pytest.raises(
                StateAwayError, match="its last refusal: the scheduler's control endpoint has 1 sessions"
            ):
                small.open(2)
        with pytest.raises(StateError, match="exceeds 15728640 bytes"):
            state.set(PLAN, bytes((15 << 20) + 1))
        assert state.set(PLAN, bytes(15 << 20)) == 1
        assert state.get(PLAN) == (bytes(15 << 20), 1)
    finally:
        state.close()
        small.kill()


# ---- how much is asked ---------------------------------------------------------------------------------


def test_a_container_asks_ten_times_at_its_start_and_then_only_says_that_it_lives(
    endpoint: Endpoint, here: LocalStateManager, tmp_path: Path
) -> None:
    """What an executor and a stream manager read and watch, with a topology master that comes late and stays."""
    packing = plan_pb2.PackingPlan(id="wc", version=1)
    here.set(paths.topology("wc"), b"topology")
    here.set(paths.packing_plan("wc"), packing.SerializeToString())
    launch: Any = SimpleNamespace(topology="wc", topology_id="wc-1", sockets_dir=str(tmp_path))
    looks: Counter[str] = Counter()

    class Counted(EndpointStateManager):
        def get(self, path: str) -> tuple[bytes, int] | None:
            looks[path] += 1
            return super().get(path)

    def open_one() -> Counted:
        return Counted(str(endpoint.token(5)), StatemgrSettings(session_timeout_s=1.5))

    def asked(served: dict[str, int]) -> dict[str, int]:
        return {kind: count for kind, count in served.items() if not kind.endswith("keep")}

    async def container() -> int:
        master = ControlServer([new_endpoint()], lambda _, envelope: control_pb2.Ok())
        executor, stmgr = open_one(), open_one()
        plans: list[plan_pb2.PackingPlan] = []
        TopologyHanding(executor, launch, 5).start()
        watch = PlanWatch(executor, paths.packing_plan("wc"), plans.append)
        watch.start()
        tasks_that_ran(executor, launch)
        links = []
        following = []
        for name, state in ((b"executor", executor), (b"stmgr", stmgr)):
            links.append(MasterFollower("wc", name, control_pb2.Ok, lambda _: None, lambda _: None))
            following.append(asyncio.create_task(links[-1].follow(state, None)))
        # The location is asked for each 0.2 s until there is a master.
        await eventually(lambda: looks[NODE] > 10, DEADLINE_S, "that they look for a master")
        location = plan_pb2.TmasterLocation(topology="wc", endpoint=master.endpoints[0], epoch=1)
        await asyncio.to_thread(here.set, NODE, location.SerializeToString())
        await eventually(lambda: all(link.registered for link in links), DEADLINE_S, "the registrations")
        first = await asyncio.to_thread(endpoint.served)
        # Both look again and again, as they do in case a notification was missed.
        begun = time.monotonic()
        second = first
        while second.get("5 keep", 0) < first.get("5 keep", 0) + 8:
            for state in (executor, stmgr):
                await asyncio.to_thread(state.get, NODE)
            second = await asyncio.to_thread(endpoint.served)
        took_s = time.monotonic() - begun
        assert took_s > 1.5, "eight signs of life of two processes need three thirds of a session"
        assert asked(second) == asked(first)
        assert plans == [packing]
        for task in following:
            task.cancel()
        watch.close()
        for link in links:
            link.close()
        master.close()
        for state in (executor, stmgr):
            await asyncio.to_thread(state.close)
        return sum(asked(first).values())

    assert asyncio.run(container()) <= 10


@pytest.mark.heavy
def test_writes_are_exact_while_the_endpoint_is_killed_and_stopped_again_and_again(
    endpoint: Endpoint, here: LocalStateManager, opened: Callable[..., EndpointStateManager]
) -> None:
    """Writers that add one by compare and set: the sum is what they were told, and no number of a counter comes twice."""
    here.set(PLAN, b"0 0")
    ended = threading.Event()
    added, numbers, unknown = Counter[int](), list[int](), Counter[int]()

    def write(container: int) -> None:
        state = opened(container, 3.0)
        while not ended.is_set():
            try:
                found = state.get(PLAN)
                assert found is not None
                state.set(PLAN, b"%d %d" % (int(found[0].split()[0]) + 1, container), version=found[1])
                added[container] += 1
                numbers.append(state.counter(paths.epoch("wc", "tmaster")))
            except VersionMismatchError:
                continue
            except StateAwayError:
                unknown[container] += 1

    writers = [threading.Thread(target=write, args=(container,)) for container in range(1, 4)]
    for writer in writers:
        writer.start()
    try:
        for fault in range(12):
            goal = sum(added.values()) + 30
            wait_for(lambda goal=goal: sum(added.values()) >= goal, DEADLINE_S, "thirty more writes")  # type: ignore[misc]
            if fault % 3 < 2:
                endpoint.kill()
                endpoint.start()
            else:
                endpoint.signal(signal.SIGSTOP)
                assert not ended.wait(4.0)
                endpoint.signal(signal.SIGCONT)
    finally:
        ended.set()
        for writer in writers:
            writer.join(DEADLINE_S)
    found = here.get(PLAN)
    assert found is not None
    total = sum(added.values())
    # A write that was done and overtaken before its answer could be looked up counts as overtaken: one per writer and kill.
    assert total <= int(found[0].split()[0]) <= total + sum(unknown.values()) + 3 * 8
    assert len(numbers) == len(set(numbers))
    assert total > 360


def test_containers_ping_their_endpoint_rarely(
    opened: Callable[..., EndpointStateManager], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twenty containers have sixty connections to it."""
    seen: list[int] = []

    def configured(sock: zmq.Socket[bytes], **options: Any) -> zmq.Socket[bytes]:
        seen.append(options["heartbeat_ms"])
        return configure(sock, **options)

    monkeypatch.setattr("heronpy.net.endpoint_link.configure", configured)
    monkeypatch.setattr("heronpy.net.rpc_loop.configure", configured)
    opened()

    async def bootstrap() -> None:
        pair = Pair(*zmq.curve_keypair())
        link = SchedulerLink(JoinToken("wc-1", ("tcp://127.0.0.1:1",), pair.public, pair), 1, 1)
        with pytest.raises(HeronError):
            await link.admit(lambda _: endpoint_pb2.Hello(), 0.01)
        link.close()

    asyncio.run(bootstrap())
    assert seen == [RARE_HEARTBEAT_MS, RARE_HEARTBEAT_MS]
