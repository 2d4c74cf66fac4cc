"""The end of a unit: the commit, which decides which attempt counts, and the publication. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from heronpy.common.errors import LedgerError
from heronpy.ingest.ledger import policy, requests
from heronpy.ingest.ledger.draft import Draft, shortened
from heronpy.ingest.ledger.types import Dispatch, DispatchState, Pace, Unit, UnitState

#: Maximum number of units in one dispatch; in practice `unpublished_units` is a lower limit.
DISPATCH_UNITS_MAX = 256


def in_vain(draft: Draft, number: int, attempt: int, generation: int) -> requests.Lost | Unit:
    """Return the unit of an attempt, or the reason why the attempt no longer counts."""
    if generation != draft.pipeline.generation:
        return requests.Lost.GENERATION
    unit = draft.get(Unit, number)
    if unit is None:
        return requests.Lost.GONE
    if not 0 < attempt <= unit.attempt:
        raise LedgerError(f"unit {number} has had {unit.attempt} attempts, so attempt {attempt} does not exist")
    if unit.state is UnitState.COMMITTED and unit.winner != attempt:
        return requests.Lost.OTHER_WON
    return requests.Lost.GONE if unit.state is UnitState.FAILED else unit


def commit(draft: Draft, request: requests.Commit, who: requests.Who) -> requests.Committed:
    """Answer a `Commit`. A late attempt wins if no other attempt has won."""
    unit = in_vain(draft, request.unit, request.attempt, request.generation)
    if isinstance(unit, requests.Lost):
        return requests.Committed(unit)
    if unit.state is UnitState.COMMITTED:
        return requests.Committed()
    draft.put(
        replace(
            unit,
            state=UnitState.COMMITTED,
            winner=request.attempt,
            rows=request.rows,
            committed=draft.now,
            holder="",
            container="",
            halve=False,
        )
    )
    if unit.bytes and request.seconds > 0:
        pace = request.seconds / unit.size
        draft.put(Pace(unit.id % policy.PACES, pace, request.seconds, who.place, draft.now))
    return requests.Committed()


def list_finished(draft: Draft, request: requests.ListFinished, who: requests.Who) -> requests.FinishedUnits:
    found = draft.view.units(UnitState.COMMITTED, (-1, -1), policy.LOOKED_AT_MAX)
    besides = set(request.besides)
    free = [unit for unit in found if unit.dispatch == 0 and unit.id not in besides][: request.limit]
    return requests.FinishedUnits(tuple(draft.finished(unit, who.site) for unit in free))


def published(draft: Draft, request: requests.Published, who: requests.Who) -> requests.Settled:
    if request.generation != draft.pipeline.generation:
        return requests.Settled(0)
    units = [unit for number in dict.fromkeys(request.units) if (unit := draft.get(Unit, number)) is not None]
    units = [unit for unit in units if unit.state is UnitState.COMMITTED and unit.dispatch == 0]
    return _settled(draft, units)


def _settled(draft: Draft, units: Sequence[Unit]) -> requests.Settled:
    draft.settle(units)
    size = sum(unit.size for unit in units)
    if units:
        won = sum(1 for unit in units if 0 < unit.backup <= unit.winner)
        both = sum(1 for unit in units if unit.backup)
        draft.count(units=len(units), backups_won=won, size=size, in_vain=both)
    return requests.Settled(len(units), size, sum(unit.rows for unit in units))


# ---- dispatches -----------------------------------------------------------------------------
def make_dispatch(draft: Draft, request: requests.MakeDispatch, who: requests.Who) -> requests.OpenDispatches:
    found = draft.view.units(UnitState.COMMITTED, (-1, -1), policy.LOOKED_AT_MAX)
    free = [unit for unit in found if unit.dispatch == 0]
    taken: list[Unit] = []
    config = draft.config
    while free and len(taken) < DISPATCH_UNITS_MAX and sum(unit.bytes for unit in taken) < config.dispatch_bytes:
        taken.append(free.pop(0))
    dispatches = [one for one in draft.view.dispatches() if one.state is DispatchState.OPEN]
    oldest = min((unit.committed for unit in taken), default=draft.now)
    if policy.is_due(config, [unit.bytes for unit in taken], oldest, draft.now):
        pipeline = draft.pipeline
        new = Dispatch(pipeline.next_dispatch, tuple(unit.id for unit in taken), DispatchState.OPEN)
        draft.put(replace(pipeline, next_dispatch=pipeline.next_dispatch + 1))
        draft.put(new)
        for unit in taken:
            draft.put(replace(unit, dispatch=new.id))
        dispatches.append(new)
    return requests.OpenDispatches(tuple(_opened(draft, one, who.site) for one in dispatches))


def _opened(draft: Draft, dispatch: Dispatch, site: str) -> requests.OpenDispatch:
    units = (draft.get(Unit, number) for number in dispatch.units)
    return requests.OpenDispatch(dispatch.id, tuple(draft.finished(unit, site) for unit in units if unit is not None))


def dispatched(draft: Draft, request: requests.Dispatched, who: requests.Who) -> requests.Settled:
    dispatch = draft.get(Dispatch, request.id)
    if dispatch is None or request.generation != draft.pipeline.generation:
        return requests.Settled(0)
    units = [unit for number in dispatch.units if (unit := draft.get(Unit, number)) is not None]
    draft.drop(dispatch)
    return _settled(draft, units)


def dispatch_failed(draft: Draft, request: requests.DispatchFailed, who: requests.Who) -> requests.Settled:
    dispatch = draft.get(Dispatch, request.id)
    if dispatch is not None and request.generation == draft.pipeline.generation:
        draft.put(replace(dispatch, state=DispatchState.FAILED, error=shortened(request.error)))
    return requests.Settled(0)


def dispatch_again(draft: Draft, failed: Dispatch) -> int:
    """Put the units of a failed dispatch into a new dispatch; the failed dispatch can never be published."""
    pipeline = draft.pipeline
    new = Dispatch(pipeline.next_dispatch, failed.units, DispatchState.OPEN)
    draft.put(replace(pipeline, next_dispatch=pipeline.next_dispatch + 1))
    draft.drop(failed)
    draft.put(new)
    for number in failed.units:
        unit = draft.get(Unit, number)
        if unit is not None:
            draft.put(replace(unit, dispatch=new.id))
    return new.id


def units_held(draft: Draft) -> int:
    """Return the number of committed units that wait for the user because their dispatch has failed."""
    return sum(len(one.units) for one in draft.view.dispatches() if one.state is DispatchState.FAILED)


def which_live(draft: Draft, request: requests.WhichLive, who: requests.Who) -> requests.Live:
    return requests.Live(tuple(number for number in request.units if draft.get(Unit, number) is not None))
