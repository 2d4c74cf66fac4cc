"""The records at the scheduler's control endpoint under trouble: never two leaders of an epoch, no lost watch, each change once."""

from __future__ import annotations

import os

import pytest

from heronpy.proto import endpoint_pb2
from heronpy.scheduler.state_records import StateRecords
from tests.scheduler.records_world import World

#: In parts, so that several processes share them.
PARTS = 8
SEEDS = int(os.environ.get("HERON_RECORDS_SEEDS", "200"))


@pytest.mark.parametrize("part", range(PARTS))
def test_no_second_leader_and_no_lost_watch(part: int) -> None:
    worlds = [World(seed) for seed in range(part, SEEDS, PARTS)]
    assert {world.seed: found for world in worlds if (found := world.run())} == {}
    happened = {what: sum(world.counts[what] for world in worlds) for what in worlds[0].counts}
    assert all(happened.values()), f"nothing is proven about what never happens: {happened}"
    assert sum(len(world.plans) for world in worlds) > 5 * len(worlds)


class ForgetsWhoWaits(StateRecords):
    """A new scheduler gives away what the sessions of the last one own: a second leader, before the first has gone."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self._waiting = {}


class EndsTooSoon(StateRecords):
    """The time in which the endpoint was stopped counts as silence."""

    def _listen(self, now: float) -> None:
        self._awake_at = now


class CarriesOutTwice(StateRecords):
    """A copy of a change is a new change."""

    def begin(self, number: int, call: int) -> bool:
        return True


class CarriesOutLate(StateRecords):
    """A copy that was late on its way is carried out after a later change."""

    def begin(self, number: int, call: int) -> bool:
        session = self._sessions[number]
        is_new, session.latest = call != session.latest, call
        return is_new


class CountsNothing(StateRecords):
    """A change whose message was lost is never heard of."""

    def seen(self, number: int) -> endpoint_pb2.StateAnswer:
        return endpoint_pb2.StateAnswer()


@pytest.mark.parametrize(
    ("bug", "violation"),
    [
        (ForgetsWhoWaits, "taken from a living process"),
        (EndsTooSoon, "not silent"),
        (CarriesOutTwice, "was written"),
        (CarriesOutLate, "after later ones"),
        (CountsNothing, "a watch of"),
    ],
)
def test_a_planted_bug_is_found(bug: type[StateRecords], violation: str) -> None:
    for seed in range(100):
        if any(violation in one for one in World(seed, bug).run()):
            return
    raise AssertionError(f"{bug.__name__} was not found")
