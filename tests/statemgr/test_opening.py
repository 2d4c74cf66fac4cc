"""Which session a process asks for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from heronpy.common.setting_types import StatemgrSettings
from heronpy.net.state import open_state_of
from tests.support.launch import launch_spec


@pytest.mark.parametrize(
    ("owns", "set_s", "session_s"), [(True, 10.0, 10.0), (False, 10.0, 30.0), (False, 200.0, 300.0)]
)
def test_who_only_reads_at_the_endpoint_says_less_often_that_it_lives(
    owns: bool, set_s: float, session_s: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An endpoint has two sessions of each container, and each sign of life wakes it."""
    asked: list[StatemgrSettings] = []
    monkeypatch.setattr(
        "heronpy.net.endpoint_state.EndpointStateManager", lambda root, settings: asked.append(settings)
    )
    settings: dict[str, dict[str, Any]] = {"statemgr": {"session_timeout_s": set_s}}
    launch = launch_spec("wc", "wc-1", tmp_path, settings=settings, state_root="", token=str(tmp_path / "join_token"))
    open_state_of(launch, owns)
    assert [one.session_timeout_s for one in asked] == [session_s]
