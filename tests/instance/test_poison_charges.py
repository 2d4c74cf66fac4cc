"""Who is charged, acquitted and left out (F19), and the one line that a task logs of a tuple which it gives up."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.api.user_code import user_traceback
from heronpy.procs.exit_reason import ExitReason
from instance.dead_letters import headline
from instance.poison import Journal
from instance.poison_charges import CHARGES_MAX, LAPSE_S, TERM_MAX, Charges, may_blame

TRIES = 3


@pytest.mark.parametrize(
    "reason",
    [ExitReason.KILLED, ExitReason.PREEMPTED, ExitReason.REWOUND, ExitReason.LOST_HOST, ExitReason.FENCED,
     ExitReason.FINISHED, ExitReason.STARTUP_FAILURE, ExitReason.SPAWN_FAILED],
)  # fmt: skip
def test_what_comes_from_outside_blames_nobody(reason: ExitReason) -> None:
    assert not may_blame(reason, told=False)
    assert not may_blame(None, told=False), "there was no process before"


@pytest.mark.parametrize("reason", [ExitReason.CRASHED, ExitReason.HUNG, ExitReason.OOM, ExitReason.OWN_BUG,
                                    ExitReason.OK, ExitReason.USER_EXCEPTION])  # fmt: skip
def test_what_user_code_can_do_blames_the_tuple_in_hand_unless_it_was_told(reason: ExitReason) -> None:
    assert may_blame(reason, told=False)
    told = reason in (ExitReason.OOM, ExitReason.USER_EXCEPTION)
    assert may_blame(reason, told=True) is not told


def guilty(charges: Charges, key: str = "k", now: float = 100.0) -> None:
    for _ in range(TRIES):
        charges.charge(key, "died", now, deadly=True)


def test_as_many_tries_make_guilty_and_a_pass_acquits() -> None:
    charges = Charges(TRIES)
    for tries in range(TRIES):
        assert charges.leaves_out("k", 0, 100.0) is None, tries
        charges.charge("k", "died", 100.0, deadly=True)
    assert charges.leaves_out("k", 0, 100.0) is not None
    assert charges.acquit("k")
    assert charges.leaves_out("k", 0, 100.0) is None
    assert not charges.open(100.0) and not charges.acquit("k")


def test_what_has_letters_is_not_forgotten_by_a_pass() -> None:
    charges = Charges(TRIES)
    guilty(charges)
    charges.by_key["k"].letters = 2
    charges.acquit("k")
    assert charges.by_key["k"].letters == 2 and not charges.open(100.0)


def test_guilt_lapses() -> None:
    charges = Charges(TRIES)
    guilty(charges)
    assert charges.deadly(100.0 + LAPSE_S) and not charges.deadly(101.0 + LAPSE_S)
    assert charges.leaves_out("k", 0, 101.0 + LAPSE_S) is None
    assert charges.charge("k", "died", 101.0 + LAPSE_S, deadly=True).tries == 1
    assert not charges.open(0.0), "the host was restarted"


def test_an_exception_is_tried_again_however_often() -> None:
    charges = Charges(TRIES)
    for _ in range(9):
        charges.charge("k", "raised", 100.0, deadly=False)
        assert charges.leaves_out("k", 0, 100.0) is None
    assert charges.open(100.0) and not charges.deadly(100.0)


def raised(charges: Charges, root: int, heard: int) -> int:
    return charges.raised("k", "away", 100.0, deadly=False, roots=[(1, root)], heard={1: heard}).tries


def test_an_exception_is_charged_to_one_tuple_and_not_to_its_equals() -> None:
    """What had come before it failed cannot be the same tuple again."""
    charges = Charges(TRIES)
    assert raised(charges, 10, heard=500) == 1
    assert {raised(charges, root, heard=500) for root in range(11, 501)} == {1}
    assert raised(charges, 501, heard=900) == 2, "it was sent again"
    assert raised(charges, 800, heard=1000) == 2
    assert raised(charges, 901, heard=1000) == TRIES
    charges.spend("k")
    assert raised(charges, 1001, heard=1001) == 1, "the next one has all its tries"


def test_effectively_once_each_equal_tuple_has_all_its_tries() -> None:
    """User code raises for everything: rewound to the same place, one tuple more is left out after as many tries."""
    charges, given_up = Charges(TRIES), []
    for _ in range(4 * TRIES):
        left_out = 0
        while charges.leaves_out("k", left_out, 100.0):
            left_out += 1
        given_up.append(left_out)
        charges.raised("k", "away", 100.0, deadly=True)
    assert given_up == [tries // TRIES for tries in range(4 * TRIES)]
    assert charges.acquit("k") and charges.leaves_out("k", 0, 100.0) is None, "it is back"


@given(st.integers(0, 3000))
def test_equal_tuples_that_all_kill_cost_few_deaths_and_one_letter_each(count: int) -> None:
    """Processes that die of the first tuple they try; what was left out is acked and does not come again."""
    charges, letters, deaths, left = Charges(TRIES), 0, 0, count
    while left:
        left_out = 0
        while left and charges.leaves_out("k", left_out, 1.0):
            left_out, left, letters = left_out + 1, left - 1, letters + 1
        if left:
            charges.charge("k", "died", 1.0, deadly=True)
            deaths += 1
    assert letters == count
    assert deaths <= TRIES + count.bit_length()


@given(st.lists(st.sampled_from("ab"), max_size=60), st.integers(0, 59), st.integers(1, 5))
def test_one_bad_tuple_costs_its_equals_nothing(contents: list[str], place: int, tries: int) -> None:
    """One tuple kills its process each time; those of its content that come first acquit it, those behind it arrive."""
    bad, charges, buried, deaths = (place % len(contents) if contents else -1), Charges(tries), [], 0
    queue = list(enumerate(contents))
    while queue:
        left_out = {"a": 0, "b": 0}
        number, content = queue[0]
        while queue:
            number, content = queue[0]
            if charges.leaves_out(content, left_out[content], 1.0):
                left_out[content] += 1
                buried.append(number)
            elif number == bad:
                charges.charge(content, "died", 1.0, deadly=True)
                deaths += 1
                break
            else:
                charges.acquit(content)
            del queue[0]
    assert buried == ([bad] if contents else [])
    assert deaths == (tries if contents else 0)


@given(st.lists(st.tuples(st.text("abc", max_size=2), st.booleans(), st.floats(0, 1e5)), max_size=400))
def test_it_stays_small_whatever_happens(events: list[tuple[str, bool, float]]) -> None:
    charges = Charges(TRIES)
    for number, (key, deadly, now) in enumerate(events):
        charge = charges.charge(f"{key}{number % 300}", "x" * 10, now, deadly=deadly)
        assert 1 <= charge.tries <= number + 1 and 1 <= charge.term <= TERM_MAX
        assert len(charges.by_key) <= CHARGES_MAX


def test_the_journal_keeps_it(tmp_path: Any) -> None:
    journal = Journal(tmp_path / "j", TRIES)
    guilty(journal.charges)
    journal.charges.charge("k", "died again", 100.0, deadly=True)
    journal.charges.raised("r", "raised", 100.0, deadly=False, heard={4: 1 << 63})
    journal.spoken, journal.careful = 7, True
    journal.save()
    again = Journal(tmp_path / "j", TRIES)
    again.load()
    assert again.charges.by_key == journal.charges.by_key and again.charges.by_key["k"].term == 2
    assert (again.spoken, again.careful) == (7, True)
    (tmp_path / "j").write_text('{"spoken": 1, "careful": true, "charges": {"k": {"tries": 3}}}')
    damaged = Journal(tmp_path / "j", TRIES)
    damaged.load()
    assert not damaged.charges.by_key


def traceback_of(error: Exception, cause: Exception | None = None) -> str:
    try:
        raise error from cause
    except Exception as raised:
        return user_traceback(raised)


@pytest.mark.parametrize(
    ("why", "said"),
    [
        (traceback_of(ValueError("boom")), "ValueError: boom"),
        (traceback_of(ValueError("boom\nfor the\n\n\x1b[31m")), "ValueError: boom"),
        (traceback_of(ValueError("boom\nred"), KeyError("the\ncause")), "ValueError: boom"),
        (traceback_of(ValueError()), "ValueError"),
        ("a value of this tuple could not be decoded\n" + traceback_of(TypeError("no\nway")), "TypeError: no"),
        (
            "the process ended while it processed this tuple: oom",
            "the process ended while it processed this tuple: oom",
        ),
        (" \n", "no reason is known"),
    ],
)
def test_it_is_the_type_and_the_first_line(why: str, said: str) -> None:
    assert headline(why) == said
