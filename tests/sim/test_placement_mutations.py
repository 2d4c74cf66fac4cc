"""The simulation of placement finds bugs: each test plants one in the product, and some seed of a few must fail (F39)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from heronpy.engines.contract import Ended
from heronpy.engines.lease import Fencing, Lease, LeaseTimes
from heronpy.scheduler.leases import Grants, Permit
from heronpy.scheduler.placement import Placement
from heronpy.scheduler.placement_events import Activate, Listed, Persist
from heronpy.scheduler.submissions import Container, Submission
from tests.sim.placing import run_placement
from tests.sim.planted import Patch, each, found_by

#: The rarest is found by one in two thousand.
SEEDS = 4000


def activate_at_once(patch: pytest.MonkeyPatch) -> None:
    """The successor of a lost container is activated as soon as it stands by."""
    patch.setattr(Grants, "is_free", lambda self, container, now: True)


def count_from_the_answer(patch: pytest.MonkeyPatch) -> None:
    """A container counts its lease from the answer, not from the question."""
    patch.setattr(Lease, "granted", lambda self, number, now: setattr(self, "until", now + self._times.fence_s))


def accept_any_activation(patch: pytest.MonkeyPatch) -> None:
    """An activation is accepted however late it comes."""

    def activated(self: Any, number: int, epoch: int, now: float) -> bool:
        self.epoch, self.until = epoch, now + self._times.fence_s
        return True

    patch.setattr(Lease, "activated", activated)


def forget_the_predecessor(patch: pytest.MonkeyPatch) -> None:
    """A new scheduler does not reckon with leases that an earlier one may still grant."""
    patch.setattr(LeaseTimes, "silence_from", lambda self, now, alone: float("-inf"))
    begin = Placement.__init__

    def free(self: Any, *args: Any) -> None:
        begin(self, *args)
        for number in list(self.ledger):
            self._grants.release(number)

    patch.setattr(Placement, "__init__", free)


def trust_the_predecessors_end(patch: pytest.MonkeyPatch) -> None:
    """A new scheduler takes the end of its predecessor for certain."""
    patch.setattr(LeaseTimes, "silence_from", lambda self, now, alone: now)


def grant_for_ever(patch: pytest.MonkeyPatch) -> None:
    """A scheduler grants however long ago it has proved its permit."""
    patch.setattr(Permit, "may_grant", lambda self, received_at: True)


def believe_that_it_ended(patch: pytest.MonkeyPatch) -> None:
    """A container that the engine has given up counts as ended."""
    listed = Placement._on_listed

    def all_confirmed(self: Any, event: Listed, now: float) -> Any:
        seen = tuple(
            replace(one, ended=Ended.CONFIRMED) if one.ended is Ended.UNCONFIRMED else one for one in event.seen
        )
        return listed(self, Listed(seen, event.asked_at), now)

    patch.setattr(Placement, "_on_listed", all_confirmed)


def absence_is_an_end(patch: pytest.MonkeyPatch) -> None:
    """A container that is not on the list has ended."""
    listed = Placement._on_listed

    def shown_or_gone(self: Any, event: Listed, now: float) -> Any:
        effects = listed(self, event, now)
        shown = {(seen.container, seen.submission) for seen in event.seen}
        for container in self._containers.values():
            holder = container.holder
            if holder is not None and (container.number, holder.number) not in shown:
                container.forget(holder.number)
                self._grants.release(container.number)
        return effects

    patch.setattr(Placement, "_on_listed", shown_or_gone)


def keep_no_ledger(patch: pytest.MonkeyPatch) -> None:
    """The facts that a successor of the scheduler needs are not written."""
    handle = Placement.handle
    patch.setattr(
        Placement,
        "handle",
        lambda self, event, now: [one for one in handle(self, event, now) if not isinstance(one, Persist)],
    )


def keep_the_epoch(patch: pytest.MonkeyPatch) -> None:
    """A successor gets the epoch of its predecessor."""
    handle = Placement.handle

    def same(self: Any, event: Any, now: float) -> Any:
        effects = handle(self, event, now)
        return [replace(one, epoch=1) if isinstance(one, Activate) else one for one in effects]

    patch.setattr(Placement, "handle", same)


def trust_only_the_last(patch: pytest.MonkeyPatch) -> None:
    """A scheduler does not write down that an earlier one may still grant."""
    patch.setattr(Permit, "is_alone", lambda self, now: True)


def keep_duplicates(patch: pytest.MonkeyPatch) -> None:
    """Surplus submissions are not cancelled."""
    patch.setattr(Placement, "_cancel", lambda self, container, one, now: [])


def wait_for_a_lost_list(patch: pytest.MonkeyPatch) -> None:
    """A scheduler waits for a submission that is on no list."""
    patch.setattr(Submission, "is_absent", lambda self, now, lost_s, awake_since: False)


def trust_what_was_adopted(patch: pytest.MonkeyPatch) -> None:
    """A new scheduler does not check whether the containers that it has adopted still report."""
    lost = Placement._find_lost

    def only_heard(self: Any, container: Container, now: float) -> Any:
        known = {number: one for number, one in container.submissions.items() if one.heard_at is not None}
        container.submissions, whole = known, container.submissions
        effects = lost(self, container, now)
        container.submissions = whole
        return effects

    patch.setattr(Placement, "_find_lost", only_heard)


#: Bug, and a seed that is known to find it.
PLANTED: list[tuple[Patch, int]] = [
    (activate_at_once, 6),
    (count_from_the_answer, 178),
    (accept_any_activation, 3),
    (forget_the_predecessor, 19),
    (trust_the_predecessors_end, 212),
    (grant_for_ever, 81),
    (believe_that_it_ended, 89),
    (absence_is_an_end, 26),
    (keep_no_ledger, 0),
    (keep_the_epoch, 0),
    (trust_only_the_last, 1815),
    (keep_duplicates, 3),
    (wait_for_a_lost_list, 2),
    (trust_what_was_adopted, 2),
]
#: Kinds of faults that find a bug more often; its leases have to matter, too.
AMONG = {count_from_the_answer: ("endpoint", "hide")}


@pytest.mark.parametrize(("plant", "seed"), each(PLANTED))
def test_a_planted_bug_is_found(plant: Patch, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    if found_by(run_placement, (seed,)) is None:
        # The product changes, and another seed may find it then.
        among = AMONG.get(plant, ())
        found = found_by(run_placement, range(SEEDS), fencing=Fencing.LEASE if among else None, among=among)
        assert found is not None, f"found by none of {SEEDS} seeds"
