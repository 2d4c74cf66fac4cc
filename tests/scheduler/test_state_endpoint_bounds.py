"""What the endpoint keeps for containers that ask for its state, in bytes: bounded, and refused beyond."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from heronpy.common.errors import RetryableRpcError, StateAwayError
from heronpy.proto import endpoint_pb2
from heronpy.scheduler import state_endpoint
from heronpy.scheduler.state_endpoint import StateEndpoint
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


@asynccontextmanager
async def serving(state: LocalStateManager) -> AsyncIterator[tuple[StateEndpoint, int]]:
    """The endpoint, and a session of container 0."""
    endpoint = StateEndpoint(state, "wc", time.monotonic)
    try:
        yield endpoint, await opened(endpoint, 0)
    finally:
        endpoint.close()


_numbers = itertools.count(1)


async def opened(endpoint: StateEndpoint, container: int) -> int:
    number = next(_numbers)
    opening = endpoint_pb2.StateCall(session=number, call=1, open=endpoint_pb2.StateOpen(session_s=300.0))
    await endpoint.call(opening, container, 0, print)
    return number


def call(session: int, **what: object) -> endpoint_pb2.StateCall:
    return endpoint_pb2.StateCall(session=session, **what)  # type: ignore[arg-type]


async def test_large_values_that_are_not_read_are_not_sent_again_and_again(state: LocalStateManager) -> None:
    state.set(NODE, VALUE)
    async with serving(state) as (endpoint, session):
        sent = 0
        with pytest.raises(RetryableRpcError, match="read them first"):
            for request in range(1, 100):
                await endpoint.call(call(session, get=NODE), 0, request, print)
                sent += len(VALUE)
        assert 0 < sent <= SESSION_MAX_BYTES and endpoint.refused == 1
        # It says that it has the first one.
        answer = await endpoint.call(call(session, get=NODE, awaits=2), 0, 100, print)
        assert answer.data == VALUE
        other = await opened(endpoint, 2)
        assert (await endpoint.call(call(other, get=NODE), 2, 1, print)).data == VALUE, "each session has its own"


async def test_a_change_is_carried_out_once_and_never_after_a_later_one(state: LocalStateManager) -> None:
    state.set(NODE, b"one")
    async with serving(state) as (endpoint, session):

        async def ask(number: int, data: bytes) -> endpoint_pb2.StateAnswer:
            body = call(session, call=number, put=endpoint_pb2.StatePut(path=NODE, data=data))
            return await endpoint.call(body, 0, number, print)

        first = await ask(5, b"two")
        assert await ask(5, b"two") == first, "carried out once"
        assert state.get(NODE) == (b"two", first.number)
        await ask(6, b"three")
        assert "was abandoned" in (await ask(5, b"two")).text
        assert state.get(NODE) == (b"three", first.number + 1)
        again = endpoint_pb2.StateCall(session=session, call=9, open=endpoint_pb2.StateOpen(session_s=300.0))
        await endpoint.call(again, 0, 7, print)
        assert (await endpoint.call(call(session, get=NODE), 0, 8, print)).data == b"three", "the same session goes on"


async def test_requests_under_way_are_bounded_in_bytes(
    state: LocalStateManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_endpoint, "BYTES_MAX", 1 << 20)
    hangs = threading.Event()
    write = state.set
    monkeypatch.setattr(state, "set", lambda *arguments: (hangs.wait(60), write(*arguments))[1])
    async with serving(state) as (endpoint, session):

        def writing(number: int) -> Awaitable[endpoint_pb2.StateAnswer]:
            body = endpoint_pb2.StatePut(path=NODE, data=bytes(700_000))
            return endpoint.call(call(session, call=number, put=body), 0, number, print)

        first = asyncio.ensure_future(writing(1))
        await asyncio.sleep(0)
        try:
            with pytest.raises(RetryableRpcError, match="too many bytes are in transit"):
                await writing(2)
            assert (
                await endpoint.call(call(session, get=paths.tmaster("wc")), 0, 3, print)
            ).error == endpoint_pb2.STATE_OK
        finally:
            hangs.set()
        assert (await first).error == (await writing(2)).error == endpoint_pb2.STATE_OK


async def test_a_path_of_megabytes_is_refused_in_a_short_sentence(state: LocalStateManager) -> None:
    async with serving(state) as (endpoint, session):
        answer = await endpoint.call(call(session, get="x" * (1 << 20)), 0, 1, print)
        assert answer.error == endpoint_pb2.STATE_FAILED and len(answer.text) < 200


async def test_one_container_cannot_take_all_sessions(state: LocalStateManager) -> None:
    async with serving(state) as (endpoint, _):
        with pytest.raises(StateAwayError, match="container 1 has 64 sessions"):
            for _ in range(100):
                await opened(endpoint, 1)
        await opened(endpoint, 2)


async def test_a_container_without_a_topology_master_does_not_say_where_it_is(state: LocalStateManager) -> None:
    path = paths.tmaster("wc")
    state.set(path, b"the master's")
    async with serving(state) as (endpoint, session):
        broken_into = await opened(endpoint, 2)
        changes = itertools.count(1)
        for what in (
            endpoint_pb2.StatePut(path=path, data=b"ipc:///tmp/of-another-topology"),
            endpoint_pb2.StatePut(path=path, remove=True),
            endpoint_pb2.StatePut(path=path, data=b"mine", ephemeral=True),
        ):
            answer = await endpoint.call(call(broken_into, call=next(changes), put=what), 2, 1, print)
            assert "container 2 has no topology master" in answer.text
        assert (await endpoint.call(call(broken_into, get=path), 2, 2, print)).data == b"the master's"
        assert not (
            await endpoint.call(call(session, call=1, put=endpoint_pb2.StatePut(path=path, remove=True)), 0, 3, print)
        ).error
