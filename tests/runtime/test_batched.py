"""Bolts that take batches, also as Arrow, in real processes: exact in each mode, killed in the middle, and with poison in them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.runtime.test_poison import COUNT as POISON_COUNT
from tests.runtime.test_poison import check_others, letters, numbers, tries
from tests.runtime.test_poison import submit as submit_poison
from tests.support.command import Heron


@pytest.mark.heavy
def test_a_tuple_that_makes_its_batch_fail_is_found(heron: Heron, out: Path) -> None:
    """What raises, ends the process or never returns: one tuple each is blamed, and all others arrive."""
    poison = {20: "raise", 30: "exit", 100: "hang", 140: "sysexit"}
    limit = ("--config-property", "heron.instance.execute_timeout_s=0.5")
    submit_poison(heron, out, poison, *limit, "--batches")
    heron.when_state("poison", "FINISHED", 120)
    check_others(out, poison)
    found = {letter["payload"][0]: letter for letter in letters(heron)}
    assert sorted(found) == sorted(poison) and len(letters(heron)) == len(poison)
    assert {letter["tries"] for letter in found.values()} == {3}
    assert "ValueError: this tuple is poison" in found[20]["traceback"]
    assert "process_batch() has lasted" in found[100]["traceback"]
    assert all(3 <= tries(out, number) <= 8 for number in poison)
    assert max(map(int, (out / "largest").read_text().split())) > 1, "the healthy process took them together"


def test_at_most_once_a_batch_that_fails_is_lost_as_a_whole(heron: Heron, out: Path) -> None:
    """Nothing may be processed twice, so every tuple of the batch has a letter; none is lost without one."""
    submit_poison(heron, out, {20: "raise"}, "--guarantee", "ATMOST_ONCE", "--batches")
    heron.when_state("poison", "FINISHED")
    stored, lost = numbers(out / "stored"), [letter["payload"][0] for letter in letters(heron)]
    assert 20 in lost and stored + Counter(lost) == Counter(range(POISON_COUNT))
    assert tries(out, 20) == 1


@pytest.mark.heavy
def test_effectively_once_a_tuple_that_makes_its_batch_fail_is_found(heron: Heron, out: Path) -> None:
    submit_poison(heron, out, {20: "raise", 60: "exit"}, "--guarantee", "EFFECTIVELY_ONCE", "--batches",
                  "--config-property", "heron.checkpoint.interval_s=0.2")  # fmt: skip
    heron.when_state("poison", "FINISHED", 120)
    assert set(numbers(out / "stored")) == set(range(POISON_COUNT)) - {20, 60}
    assert sorted(letter["payload"][0] for letter in letters(heron)) == [20, 60]
