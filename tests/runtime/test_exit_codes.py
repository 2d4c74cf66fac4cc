"""Tasks whose user code ends the process with an exit code that means something to the runtime."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runtime.test_poison import COUNT, check_others, letters, numbers, submit, tries
from tests.support.command import Heron
from tests.support.inside import inside

#: Numbers, and the code that each ends its process with; any Python program that fails ends with 1.
POISON = {10: "exit1", 40: "exit3", 70: "exit4", 100: "exit7", 130: "exit8", 160: "exit9", 190: "exit143"}


@pytest.mark.heavy
@pytest.mark.parametrize("mode", ["ATLEAST_ONCE", "EFFECTIVELY_ONCE"])
def test_the_tuple_is_charged_whatever_the_code_means(heron: Heron, out: Path, mode: str) -> None:
    """Each becomes a dead letter after the same number of tries, and all other tuples arrive."""
    # Effectively once each try restores all tasks, which takes seconds.
    poison = POISON if mode == "ATLEAST_ONCE" else {number: POISON[number] for number in (10, 100, 190)}
    words = ("heron.checkpoint.interval_s=0.2", "heron.checkpoint.restore_budget=100")
    submit(heron, out, poison, "--guarantee", mode, *(w for word in words for w in ("--config-property", word)))
    heron.when_state("poison", "FINISHED", 120)
    if mode == "ATLEAST_ONCE":
        check_others(out, poison)
    assert set(numbers(out / "stored")) == set(range(COUNT)) - set(poison)
    found = {letter["payload"][0]: letter for letter in letters(heron)}
    assert sorted(found) == sorted(poison)
    assert {letter["tries"] for letter in found.values()} == {3}
    assert all(3 <= tries(out, number) <= 6 for number in poison)
    told = heron("exceptions", "local", "poison").ok().out
    assert "user code ended the process with exit code" in told and "(finished)" not in told


@pytest.mark.heavy
def test_at_most_once_its_losses_are_not_known_exactly(heron: Heron, out: Path) -> None:
    """It is started again, and what it held is gone: no number that is shown would be right."""
    submit(heron, out, {100: "exit7"}, "--guarantee", "ATMOST_ONCE")
    heron.when_state("poison", "FINISHED")
    [work] = [p for executor in inside(heron, "poison").executors for p in executor.processes if "work" in p.name]
    assert (work.restarts, work.exit_reason) == (1, "crashed")
    assert work.exit_detail.startswith("user code ended the process with exit code 7")
    assert inside(heron, "poison").totals.lost_estimated
