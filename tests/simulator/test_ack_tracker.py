"""The tracker against the definition: a tree is acked when every edge is, failed when one fails."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from heronpy.simulator.acking import AckTracker, Outcome

FOREVER = float("inf")


def outcomes(tracker: AckTracker) -> list[tuple[object, Outcome]]:
    return [(tree.tup_id, outcome) for tree, outcome in tracker.take_ended()]


def test_tuple_without_receivers_is_acked_at_once() -> None:
    tracker = AckTracker()
    tracker.seal(tracker.open(1, "a", 0.0, FOREVER))
    assert outcomes(tracker) == [("a", Outcome.ACKED)]
    assert tracker.pending(1) == 0


def test_anchored_tuple_keeps_its_tree_open() -> None:
    tracker = AckTracker()
    root = tracker.open(1, "a", 0.0, FOREVER)
    tracker.add((root,), 1)
    tracker.seal(root)
    tracker.add((root,), 2)
    tracker.ack((root,), 1)
    assert outcomes(tracker) == []
    assert tracker.pending(1) == 1
    tracker.ack((root,), 2)
    assert outcomes(tracker) == [("a", Outcome.ACKED)]


def test_deadlines_fire_in_order_and_late_acks_are_ignored() -> None:
    tracker = AckTracker()
    for number, deadline in ((1, 5.0), (2, 3.0), (3, 9.0)):
        root = tracker.open(7, number, 0.0, deadline)
        tracker.add((root,), number)
        tracker.seal(root)
    assert tracker.next_deadline() == 3.0
    tracker.expire(5.0)
    assert outcomes(tracker) == [(2, Outcome.TIMED_OUT), (1, Outcome.TIMED_OUT)]
    tracker.ack((1,), 1)
    assert outcomes(tracker) == []
    assert tracker.pending(7) == 1


def test_owner_that_is_gone_hears_nothing() -> None:
    tracker = AckTracker()
    root = tracker.open(1, "a", 0.0, 1.0)
    tracker.add((root,), 1)
    tracker.seal(root)
    tracker.forget_owner(1)
    tracker.ack((root,), 1)
    tracker.expire(2.0)
    assert outcomes(tracker) == []
    assert tracker.next_deadline() is None


@given(
    copies=st.integers(0, 4),
    steps=st.lists(st.tuples(st.sampled_from(["ack", "fail", "anchor"]), st.integers(0, 20)), max_size=40),
)
def test_agrees_with_a_model(copies: int, steps: list[tuple[str, int]]) -> None:
    tracker = AckTracker()
    root = tracker.open(1, "x", 0.0, FOREVER)
    live = set(range(copies))
    for edge in live:
        tracker.add((root,), edge)
    tracker.seal(root)
    expected = None if live else Outcome.ACKED
    for number, (kind, edge) in enumerate(steps):
        if kind == "anchor":
            tracker.add((root,), 100 + number)
            if expected is None:
                live.add(100 + number)
            continue
        chosen = sorted(live)[edge % len(live)] if live else edge
        if kind == "fail":
            tracker.fail((root,))
            expected = expected or Outcome.FAILED
        else:
            tracker.ack((root,), chosen)
            live.discard(chosen)
            if not live:
                expected = expected or Outcome.ACKED
    ended = outcomes(tracker)
    assert ended == ([] if expected is None else [("x", expected)])
