"""What the door keeps for containers that ask for its state, in bytes: bounded, and refused beyond."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from heronpy.common.clock import MonotonicClock
from heronpy.common.errors import RetryableRpcError, StateAwayError
from heronpy.proto import door_pb2
from heronpy.scheduler import state_door
from heronpy.scheduler.state_door import StateDoor
from heronpy.scheduler.state_rules import SESSION_MAX_BYTES
from heronpy.statemgr import paths
from heronpy.statemgr.localfs import LocalStateManager

NODE = paths.topology("wc")
VALUE = bytes(11 << 20)


@pytest.fixture
def state(tmp_path: Path) -> Iterator[LocalStateManager]:
    made = LocalStateManager(tmp_path / "state")
    yield made
    made.close()


def play(state: LocalStateManager, story: Callable[[StateDoor, int], Awaitable[None]]) -> None:
    async def run() -> None:
        door = StateDoor(state, "wc", MonotonicClock())
        try:
            await story(door, await opened(door, 0))
        finally:
            door.close()

    asyncio.run(run())


_numbers = itertools.count(1)


async def opened(door: StateDoor, container: int) -> int:
    number = next(_numbers)
    opening = door_pb2.StateCall(session=number, call=1, open=door_pb2.StateOpen(session_s=300.0))
    await door.call(opening, container, 0, print)
    return number


def call(session: int, **what: object) -> door_pb2.StateCall:
    return door_pb2.StateCall(session=session, **what)  # type: ignore[arg-type]


def test_large_values_that_are_not_read_are_not_sent_again_and_again(state: LocalStateManager) -> None:
    state.set(NODE, VALUE)

    async def story(door: StateDoor, session: int) -> None:
        sent = 0
        with pytest.raises(RetryableRpcError, match="read them first"):
            for request in range(1, 100):
                await door.call(call(session, get=NODE), 0, request, print)
                sent += len(VALUE)
        assert 0 < sent <= SESSION_MAX_BYTES and door.refused == 1
        # It says that it has the first one.
        answer = await door.call(call(session, get=NODE, awaits=2), 0, 100, print)
        assert answer.data == VALUE
        other = await opened(door, 2)
        assert (await door.call(call(other, get=NODE), 2, 1, print)).data == VALUE, "each session has its own"

    play(state, story)


def test_a_change_is_carried_out_once_and_never_after_a_later_one(state: LocalStateManager) -> None:
    state.set(NODE, b"one")

    async def story(door: StateDoor, session: int) -> None:
        async def ask(number: int, data: bytes) -> door_pb2.StateAnswer:
            body = call(session, call=number, put=door_pb2.StatePut(path=NODE, data=data))
            return await door.call(body, 0, number, print)

        first = await ask(5, b"two")
        assert await ask(5, b"two") == first, "carried out once"
        assert state.get(NODE) == (b"two", first.number)
        await ask(6, b"three")
        assert "was given up" in (await ask(5, b"two")).text
        assert state.get(NODE) == (b"three", first.number + 1)
        again = door_pb2.StateCall(session=session, call=9, open=door_pb2.StateOpen(session_s=300.0))
        await door.call(again, 0, 7, print)
        assert (await door.call(call(session, get=NODE), 0, 8, print)).data == b"three", "the same session goes on"

    play(state, story)


def test_requests_under_way_are_bounded_in_bytes(state: LocalStateManager, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_door, "BYTES_MAX", 1 << 20)
    hangs = threading.Event()
    write = state.set
    monkeypatch.setattr(state, "set", lambda *arguments: (hangs.wait(60), write(*arguments))[1])

    async def story(door: StateDoor, session: int) -> None:
        def writing(number: int) -> Awaitable[door_pb2.StateAnswer]:
            body = door_pb2.StatePut(path=NODE, data=bytes(700_000))
            return door.call(call(session, call=number, put=body), 0, number, print)

        first = asyncio.ensure_future(writing(1))
        await asyncio.sleep(0)
        try:
            with pytest.raises(RetryableRpcError, match="too many bytes are under way"):
                await writing(2)
            assert (await door.call(call(session, get=paths.tmaster("wc")), 0, 3, print)).error == door_pb2.STATE_OK
        finally:
            hangs.set()
        assert (await first).error == (await writing(2)).error == door_pb2.STATE_OK

    play(state, story)


def test_a_path_of_megabytes_is_refused_in_a_short_sentence(state: LocalStateManager) -> None:
    async def story(door: StateDoor, session: int) -> None:
        answer = await door.call(call(session, get="x" * (1 << 20)), 0, 1, print)
        assert answer.error == door_pb2.STATE_FAILED and len(answer.text) < 200

    play(state, story)


def test_one_container_cannot_take_all_sessions(state: LocalStateManager) -> None:
    async def story(door: StateDoor, session: int) -> None:
        with pytest.raises(StateAwayError, match="container 1 has 64 sessions"):
            for _ in range(100):
                await opened(door, 1)
        await opened(door, 2)

    play(state, story)


def test_a_container_without_a_topology_master_does_not_say_where_it_is(state: LocalStateManager) -> None:
    path = paths.tmaster("wc")
    state.set(path, b"the master's")

    async def story(door: StateDoor, session: int) -> None:
        broken_into = await opened(door, 2)
        changes = itertools.count(1)
        for what in (
            door_pb2.StatePut(path=path, data=b"ipc:///tmp/of-another-topology"),
            door_pb2.StatePut(path=path, remove=True),
            door_pb2.StatePut(path=path, data=b"mine", ephemeral=True),
        ):
            answer = await door.call(call(broken_into, call=next(changes), put=what), 2, 1, print)
            assert "container 2 has no topology master" in answer.text
        assert (await door.call(call(broken_into, get=path), 2, 2, print)).data == b"the master's"
        assert not (
            await door.call(call(session, call=1, put=door_pb2.StatePut(path=path, remove=True)), 0, 3, print)
        ).error

    play(state, story)
