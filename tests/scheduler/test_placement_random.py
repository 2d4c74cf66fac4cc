"""Placement under random stories: its invariants hold whatever comes."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from heronpy.engines.contract import Ended, EnginePhase, Seen
from heronpy.engines.lease import Fencing
from heronpy.procs.exit_reason import ExitReason
from heronpy.scheduler.placement import Placement
from heronpy.scheduler.placement_events import (
    Activate,
    AllGone,
    ContainerSpec,
    DrainAsked,
    DrainEnded,
    EngineAway,
    Entry,
    Grant,
    Heard,
    KillAsked,
    Leaving,
    Listed,
    MoveAsked,
    MoveEnded,
    Persist,
    PlanChanged,
    Refused,
    RestartAsked,
    Submit,
    Tick,
)
from tests.scheduler.placement_story import LIMITS, TIMES, of

containers = st.integers(0, 2)
numbers = st.integers(1, 6)
seen = st.builds(
    Seen, st.just("j"), containers, numbers, st.sampled_from(EnginePhase), st.sampled_from(("", "a", "b")),
    st.sampled_from(Ended), st.sampled_from((None, *ExitReason)), st.none(), st.booleans(), st.booleans(),
    avoid=st.sampled_from(((), ("a",))),
)  # fmt: skip
events = st.one_of(
    st.builds(PlanChanged, st.lists(containers, unique=True, max_size=3).map(lambda ns: tuple(ContainerSpec(n, 1.0, 1) for n in ns))),
    st.builds(Heard, containers, numbers, st.integers(0, 6), st.integers(0, 6), st.sampled_from(("a", "b"))),
    st.builds(Leaving, containers, numbers),
    st.builds(Refused, containers, numbers, st.just("no"), st.booleans()),
    st.builds(DrainAsked, st.sampled_from(("a", "b")), st.just("ann")),
    st.builds(DrainEnded, st.sampled_from(("a", "b")), st.booleans()),
    st.builds(MoveAsked, containers, st.sampled_from(("a", "b", ""))),
    st.builds(MoveEnded, containers),
    st.builds(RestartAsked, st.lists(containers, max_size=2).map(tuple), force=st.booleans()),
    st.builds(EngineAway, st.just("no")),
    st.builds(KillAsked, st.just(3.0)),
    st.builds(Tick),
    st.lists(seen, max_size=4, unique_by=lambda one: (one.container, one.submission)).map(tuple),
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(events, st.floats(0, 30)), max_size=40), st.sampled_from(Fencing), st.booleans(), st.booleans()
)
def test_invariants_hold_whatever_comes(
    story: list[tuple[Any, float]], fencing: Fencing, alone: bool, may_kill: bool
) -> None:
    """Even what cannot happen, such as containers that nobody has submitted, in epochs that nobody has given."""
    now = 0.0
    machine = Placement("t", LIMITS, TIMES, fencing, now, {0: Entry(2, 1, 3)}, alone)
    machine.handle(PlanChanged((ContainerSpec(0, 1.0, 1),)), now)
    before = dict(machine.ledger)
    for event, after in story:
        now += after
        if isinstance(event, KillAsked) and not may_kill:
            continue
        listed = Listed(event, now - 0.1) if isinstance(event, tuple) else event
        effects = machine.handle(listed, now)
        machine.validate()
        assert not (machine.is_killed and of(effects, Submit)), "what is killed is not submitted again"
        assert not (of(effects, AllGone) and machine.left()), "what may exist is not gone"
        ledger = machine.ledger
        for number, entry in before.items():
            grown = ledger.get(number, Entry())  # of one whose move ended before it began nothing is kept
            assert (grown.submitted, grown.holder, grown.epoch) >= (entry.submitted, entry.holder, entry.epoch)
            assert grown.submitted >= entry.submitted and grown.epoch >= entry.epoch
        assert (ledger != before) <= bool(of(effects, Persist)), "what changes is written"
        assert all(isinstance(effects[0], Persist) for one in effects if isinstance(one, Persist))
        for submit in of(effects, Submit):
            assert submit.request.submission > before.get(submit.request.container, Entry()).submitted
        for one in of(effects, Activate):
            entry = ledger[one.container]
            assert (one.submission, one.epoch) == (entry.holder, entry.epoch)
        for grant in of(effects, Grant):
            assert grant.submission == ledger[grant.container].holder
        before = dict(ledger)
