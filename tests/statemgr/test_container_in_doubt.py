"""A container that its scheduler does not answer asks the state manager whether there is one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from heronpy.common import exit_codes
from heronpy.common.errors import InvalidRpcError
from heronpy.statemgr import open_state, paths
from tests.support.containers import Host, at_door, host_folder, left_in, submitted
from tests.support.fake_door import FakeDoor
from tests.support.waiting import alive, eventually

FENCE_S = 4.0
RENEW_S = 0.5


@pytest.fixture
def tmp() -> Iterator[Path]:
    with host_folder() as folder:
        yield folder


@pytest.mark.heavy
def test_without_any_scheduler_it_goes_on_and_with_one_that_is_silent_it_stops(tmp: Path, zookeeper_root: str) -> None:
    async def scene(door: FakeDoor, host: Host) -> None:
        process, started = await host.run()
        door.refuses = InvalidRpcError("no answer for anybody")
        asked = len(door.all("renew"))
        await eventually(lambda: len(door.all("renew")) >= asked + 2.5 * FENCE_S / RENEW_S, 30, "many requests in vain")
        assert alive(started["pid"]), "there is no scheduler that could have replaced it"
        with closing(open_state("zookeeper", zookeeper_root)) as state:
            state.create(paths.scheduler("wc"), b"", ephemeral=True)
            await eventually(lambda: not alive(started["pid"]), 2 * FENCE_S + 5, "the end of its lease")
        assert process.poll() is None
        door.refuses = None
        await eventually(lambda: door.all("renew")[-1].stopped == 1, 5, "word of it")
        process.terminate()
        assert await host.ended(process) == exit_codes.TERMINATED and left_in(tmp) == []

    at_door(
        tmp,
        scene,
        submitted=submitted(state_type="zookeeper", state_root=zookeeper_root),
        fencing="lease",
        renew_s=RENEW_S,
        fence_s=FENCE_S,
    )
