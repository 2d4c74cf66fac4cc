"""A state endpoint whose own disk fails: it acknowledges nothing that is not there, and goes on when the disk is back."""

from __future__ import annotations

import errno
import time
from pathlib import Path

import pytest

from heronpy.proto import endpoint_pb2
from heronpy.scheduler.state_endpoint import StateEndpoint
from heronpy.statemgr import paths
from heronpy.statemgr.localfs import LocalStateManager
from tests.support.faulty_files import faults

NODE, RECORD = paths.tmaster("wc"), paths.ephemerals("wc")


def create(session: int, call: int) -> endpoint_pb2.StateCall:
    return endpoint_pb2.StateCall(
        session=session, call=call, put=endpoint_pb2.StatePut(path=NODE, data=b"x", ephemeral=True)
    )


def remove(session: int, call: int) -> endpoint_pb2.StateCall:
    return endpoint_pb2.StateCall(session=session, call=call, put=endpoint_pb2.StatePut(path=NODE, remove=True))


async def opened(endpoint: StateEndpoint, number: int) -> int:
    opening = endpoint_pb2.StateCall(session=number, open=endpoint_pb2.StateOpen(session_s=300.0))
    await endpoint.call(opening, 0, 0, print)
    return number


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("at", range(1, 16))
async def test_whichever_step_fails_the_endpoint_goes_on_by_itself(tmp_path: Path, at: int, number: int) -> None:
    root = tmp_path / "state"
    state = LocalStateManager(root)
    endpoint = StateEndpoint(state, "wc", time.monotonic)
    first = await opened(endpoint, 1)
    for call in (1, 2):  # the record is there already, and a version is known
        assert not (await endpoint.call(create(first, 2 * call - 1), 0, call, print)).error
        assert not (await endpoint.call(remove(first, 2 * call), 0, call, print)).error
    with faults(at, number):
        answer = await endpoint.call(create(first, 5), 0, 5, print)
    reader = LocalStateManager(root)
    if not answer.error:
        assert reader.get(NODE) is not None and NODE.encode() in (reader.get(RECORD) or (b"", 0))[0]
    else:
        await endpoint.call(remove(first, 6), 0, 6, print)
        assert not (await endpoint.call(create(first, 7), 0, 7, print)).error, "the disk is back"
    assert reader.get(NODE) == (b"x", 1)
    # Its session ends: what was written by it goes.
    assert not (
        await endpoint.call(endpoint_pb2.StateCall(session=first, close=endpoint_pb2.StateClose()), 0, 8, print)
    ).error
    assert reader.get(NODE) is None
    for one in (endpoint, reader, state):
        one.close()


async def test_another_scheduler_is_still_noticed(tmp_path: Path) -> None:
    state = LocalStateManager(tmp_path / "state")
    endpoint = StateEndpoint(state, "wc", time.monotonic)
    mine = await opened(endpoint, 1)
    assert not (await endpoint.call(create(mine, 1), 0, 1, print)).error
    assert not (await endpoint.call(remove(mine, 2), 0, 2, print)).error
    other = StateEndpoint(state, "wc", time.monotonic)
    theirs = await opened(other, 2)
    assert not (await other.call(create(theirs, 1), 0, 1, print)).error
    assert not (await other.call(remove(theirs, 2), 0, 2, print)).error
    refused = await endpoint.call(create(mine, 3), 0, 3, print)
    assert refused.error == endpoint_pb2.STATE_AWAY and "another scheduler" in refused.text
    assert state.get(NODE) is None
    for one in (endpoint, other, state):
        one.close()
