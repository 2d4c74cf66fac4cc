"""A state door whose own disk fails: it acknowledges nothing that is not there, and goes on when the disk is back."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest

from heronpy.common.clock import MonotonicClock
from heronpy.proto import door_pb2
from heronpy.scheduler.state_door import StateDoor
from heronpy.statemgr import paths
from heronpy.statemgr.localfs import LocalStateManager
from tests.support.faulty_files import faults

NODE, RECORD = paths.tmaster("wc"), paths.ephemerals("wc")


def create(session: int, call: int) -> door_pb2.StateCall:
    body = door_pb2.StateCreate(path=NODE, data=b"x", ephemeral=True)
    return door_pb2.StateCall(session=session, call=call, settled=call, create=body)


def remove(session: int, call: int) -> door_pb2.StateCall:
    return door_pb2.StateCall(session=session, call=call, settled=call, delete=door_pb2.StateDelete(path=NODE))


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("at", range(1, 16))
def test_whichever_step_fails_the_door_goes_on_by_itself(tmp_path: Path, at: int, number: int) -> None:
    root = tmp_path / "state"

    async def story() -> None:
        state = LocalStateManager(root)
        door = StateDoor(state, "wc", MonotonicClock())
        first = door.open(0, 300.0)
        for call in (1, 2):  # the record is there already, and a version is known
            assert not (await door.call(create(first, 2 * call - 1), call, print)).error
            assert not (await door.call(remove(first, 2 * call), call, print)).error
        with faults(at, number):
            answer = await door.call(create(first, 5), 5, print)
        reader = LocalStateManager(root)
        if not answer.error:
            assert reader.get(NODE) is not None and NODE.encode() in (reader.get(RECORD) or (b"", 0))[0]
        else:
            await door.call(remove(first, 6), 6, print)
            assert not (await door.call(create(first, 7), 7, print)).error, "the disk is back"
        assert reader.get(NODE) == (b"x", 1)
        # Its session ends: what was written by it goes.
        assert not (await door.call(door_pb2.StateCall(session=first, close=door_pb2.StateClose()), 8, print)).error
        assert reader.get(NODE) is None
        for one in (door, reader, state):
            one.close()

    asyncio.run(story())


def test_another_scheduler_is_still_noticed(tmp_path: Path) -> None:
    async def story() -> None:
        state = LocalStateManager(tmp_path / "state")
        door = StateDoor(state, "wc", MonotonicClock())
        mine = door.open(0, 300.0)
        assert not (await door.call(create(mine, 1), 1, print)).error
        assert not (await door.call(remove(mine, 2), 2, print)).error
        other = StateDoor(state, "wc", MonotonicClock())
        theirs = other.open(0, 300.0)
        assert not (await other.call(create(theirs, 1), 1, print)).error
        assert not (await other.call(remove(theirs, 2), 2, print)).error
        refused = await door.call(create(mine, 3), 3, print)
        assert refused.error == door_pb2.STATE_AWAY and "another scheduler" in refused.text
        assert state.get(NODE) is None
        for one in (door, other, state):
            one.close()

    asyncio.run(story())
