"""`heron doctor` finds the causes of the five sick examples, and names them first."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.command import EXAMPLES, Heron
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.heavy, pytest.mark.timeout(300)]

CAUSES = {"slow": "slow task", "skew": "skew", "leak": "memory", "crash": "crashing", "sink": "dependency"}


@pytest.mark.parametrize("what", CAUSES)
def test_the_cause_comes_first(heron: Heron, what: str) -> None:
    heron("submit", "local", EXAMPLES / "sick.py", "Sick", "--what", what).ok()

    def found() -> dict[str, Any] | None:
        asked = heron("doctor", "local", "Sick", "--window", "20", "--json")
        assert asked.code in (0, 1), asked
        first: dict[str, Any] = json.loads(asked.out)["findings"][0]
        return first if first["verdict"] == CAUSES[what] else None

    first = wait_for(found, 120.0, f"the doctor naming {CAUSES[what]}")
    ill = {"slow": "container_1_work_2", "leak": "container_1_work_2", "crash": "container_1_work_2"}.get(what)
    assert ill is None or first["task"] == ill
    assert first["component"] == "store" or what != "sink"
    assert first["next"], "what to do comes with it"
