"""`heron doctor` names the cause of each of the five sick examples first, and goes on to do so."""

from __future__ import annotations

import json
import time
from functools import partial
from typing import Any

import pytest

from tests.support.command import EXAMPLES, Heron
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400)]

#: The verdict and the task or component by example. The others of the five have no task of their own to be named.
CAUSES = {"slow": "slow task", "skew": "skew", "leak": "memory", "crash": "crashing", "sink": "dependency"}
ILL = {**dict.fromkeys(("slow", "leak", "crash"), ("task", "container_1_work_2")), "sink": ("component", "store")}
#: The last time is a settled start, and then a whole window of the usual length.
ASKED_AT_S = (60.0, 300.0, 540.0)


def first_finding(heron: Heron, name: str, *flags: str) -> dict[str, Any]:
    asked = heron("doctor", "local", name, *flags, "--json")
    assert asked.code in (0, 1), asked  # the exit code says that it is ill
    found: dict[str, Any] = json.loads(asked.out)["findings"][0]
    return found


def check_named(what: str, first: dict[str, Any]) -> None:
    """The finding names the task or the component, and what to do."""
    if what in ILL:
        field, name = ILL[what]
        assert first[field] == name
    assert first["next"], "what to do comes with it"


def test_the_cause_comes_first(heron: Heron) -> None:
    """Within some ten seconds, also on a machine that has other work to do."""
    heron("submit", "local", EXAMPLES / "sick.py", "Sick", "--what", "crash").ok()

    def found() -> dict[str, Any] | None:
        first = first_finding(heron, "Sick", "--window", "20")
        return first if first["verdict"] == CAUSES["crash"] else None

    check_named("crash", wait_for(found, 200.0, "the doctor naming the crashes"))


# Side by side, but not all at once: each takes more than a core.
@pytest.mark.heavy
@pytest.mark.parametrize("scenes", [("slow", "skew"), ("sink", "leak", "crash")])
def test_the_cause_stays_the_first_one(heron: Heron, scenes: tuple[str, ...]) -> None:
    """Nobody asks in between: a slow task was data skew once it had held the spouts for the whole window."""
    began = {}
    for what in scenes:
        words = (f"Sick{what}", "--timeout", "240", "--what", what)
        heron("submit", "local", EXAMPLES / "sick.py", *words, timeout_s=300.0).ok()
        began[what] = time.monotonic()

    def is_due(at: float) -> bool:
        return time.monotonic() >= at

    wrong = {}
    for at_s in ASKED_AT_S:
        for what in scenes:
            wait_for(partial(is_due, began[what] + at_s), at_s + 60, f"{at_s:g} s to pass")
            found = first_finding(heron, f"Sick{what}")
            if found["verdict"] != CAUSES[what]:
                wrong[what, at_s] = found["sentence"]
            else:
                check_named(what, found)
    assert not wrong
