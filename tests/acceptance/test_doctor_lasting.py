"""`heron doctor` names the cause of each sick example after one minute, after five and after twelve."""

from __future__ import annotations

import json
import time
from functools import partial
from typing import Any

import pytest

from tests.acceptance.test_doctor import CAUSES
from tests.support.command import EXAMPLES, Heron
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.heavy, pytest.mark.timeout(2400)]

ASKED_AT_S = (60.0, 300.0, 720.0)


# Side by side, but not all at once: each takes more than a core.
@pytest.mark.parametrize("scenes", [("slow", "skew"), ("sink", "leak", "crash")])
def test_the_cause_stays_the_first_one(heron: Heron, scenes: tuple[str, ...]) -> None:
    """Nobody asks in between: a slow task was data skew once it had held the spouts for the whole window."""
    began = {}
    for what in scenes:
        words = (f"Sick{what}", "--timeout", "240", "--what", what)
        heron("submit", "local", EXAMPLES / "sick.py", *words, timeout_s=300.0).ok()
        began[what] = time.monotonic()

    def first(what: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(heron("doctor", "local", f"Sick{what}", "--json").out)["findings"][0]
        return found

    def is_due(at: float) -> bool:
        return time.monotonic() >= at

    wrong = {}
    for at_s in ASKED_AT_S:
        for what in scenes:
            wait_for(partial(is_due, began[what] + at_s), at_s + 60, f"{at_s:g} s to pass")
            found = first(what)
            if found["verdict"] != CAUSES[what]:
                wrong[what, at_s] = found["sentence"]
    assert not wrong
