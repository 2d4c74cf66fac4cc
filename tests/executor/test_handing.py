"""The topology reaches the tasks of a container as soon as it can be read."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from heronpy.common.errors import StateAwayError
from heronpy.executor import handing
from heronpy.procs.handed_plans import handed, topology_file
from heronpy.statemgr import paths
from tests.support.launch import launch_spec
from tests.support.memory_state import MemoryStateManager, MemoryStore
from tests.support.waiting import eventually


class Away(MemoryStateManager):
    """A state manager that cannot be reached at first."""

    failures = 3

    def get(self, path: str) -> tuple[bytes, int] | None:
        self.failures -= 1
        if self.failures >= 0:
            raise StateAwayError("the state manager is away")
        return super().get(path)


def test_it_is_handed_over_after_an_outage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(handing, "AGAIN_S", 0.001)
    launch = launch_spec("wc", "wc-1", tmp_path)
    file = topology_file(launch.sockets_dir, 2)
    state: Any = Away(MemoryStore())

    async def scenario() -> None:
        one = handing.TopologyHanding(state, launch, 2)
        one.start()
        assert not file.exists()
        await eventually(lambda: state.failures < -2)  # it is not there yet: the submit has not written it
        state.create(paths.topology("wc"), b"definition")
        await eventually(file.exists)
        one.close()

    with caplog.at_level(logging.WARNING):
        asyncio.run(scenario())
    assert handed(file) == b"definition"
    assert file.stat().st_mode & 0o777 == 0o600
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2, "each reason once"
    assert "is away" in said[0] and "topology wc is not in the state manager" in said[1]
