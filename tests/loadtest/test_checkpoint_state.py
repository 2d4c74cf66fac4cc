"""The load test of large state: it saves, restores and counts what it says it does."""

from __future__ import annotations

from pathlib import Path

import pytest

from heronpy.loadtest.checkpoint_state import run_checkpoint_state


@pytest.mark.heavy
def test_a_run_is_exact_and_its_figures_are_of_the_state(tmp_path: Path) -> None:
    said: list[str] = []
    result = run_checkpoint_state(5000, 200, tmp_path, 1, said.append)
    values = result["runs"][0]["values"]
    assert 5000 * 200 < values["state_bytes"] < 5000 * 230
    assert values["full_bytes"] == values["state_bytes"] and values["delta_bytes"] < 0.03 * values["state_bytes"]
    checks = {check["name"]: check["ok"] for check in result["runs"][0]["checks"]}
    assert checks.keys() == {"pause", "upload", "savepoint", "exact"}
    assert checks["upload"] and checks["savepoint"] and checks["exact"]
    assert "5,000 keys" in said[0] and not list(tmp_path.iterdir())
