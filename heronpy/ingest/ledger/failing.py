"""Decides the outcome of a failed attempt: another try, a bad line, a split into halves, or the failure of the unit.
Pure."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from heronpy.common.errors import LedgerError
from heronpy.ingest.ledger import policy, ranges, requests
from heronpy.ingest.ledger.draft import Draft, shortened
from heronpy.ingest.ledger.finishing import in_vain
from heronpy.ingest.ledger.ranges import Piece
from heronpy.ingest.ledger.types import File, Unit, UnitState

#: `Unit.suspect` if the tries did not fail at the same line.
MIXED = "-"


def try_failed(draft: Draft, request: requests.TryFailed, who: requests.Who) -> requests.Judged:
    unit = in_vain(draft, request.unit, request.attempt, request.generation)
    if isinstance(unit, requests.Lost):
        return requests.Committed(unit)
    if unit.state is UnitState.COMMITTED:
        return requests.Committed()
    return _judge(draft, unit, request.error, request.line, request.attempt, proven=request.rows > 0)


def died(draft: Draft, unit: Unit, error: str, line: requests.Line | None, memory: bool) -> requests.Judged:
    """Handle a holder that crashed, hung or ran out of memory; on a unit's first try, the line is unknown."""
    told = line is not None or unit.tries > 0
    tries_max = min(policy.MEMORY_TRIES, draft.config.tries_max) if memory else draft.config.tries_max
    return _judge(draft, unit, error, line, unit.attempt, told, tries_max=tries_max, died=True)


def _judge(
    draft: Draft,
    unit: Unit,
    error: str,
    line: requests.Line | None,
    attempt: int,
    told: bool = True,
    proven: bool = False,
    tries_max: int = 0,
    died: bool = False,
) -> requests.Judged:
    """Decide the outcome of a failed try.

    `told`: whether the attempt could name its line. `proven`: whether earlier lines became rows. `tries_max`: 0 means
    the pipeline's value. `died`: whether the process died, so the unit may be too big."""
    config = draft.config
    draft.count(tries_failed=1)
    named = _text_of(line) if told else ""
    unit = replace(
        unit,
        tries=unit.tries + 1,
        suspect=named if unit.suspect in ("", named) else MIXED,
        error=shortened(error),
    )
    if unit.tries < (tries_max or config.tries_max):
        if unit.state is UnitState.LEASED and attempt < unit.attempt:
            draft.put(unit)  # a backup is still working on it
            return requests.Again(unit.tries)
        rested = draft.now + policy.try_again_s(unit.tries)
        # Without any row, a resource that the function needs may be unavailable. Earlier bytes then prove nothing,
        # because a unit may begin inside a line, and a function may read many lines before its first row.
        if line is not None and proven and _has_room(draft, unit):
            cut = ranges.cut_out(draft.pieces_of(unit.id), line.file, line.begin, line.end)
            if cut is not None and cut[0]:
                return _alone(draft, unit, *cut, unit.tries, rested)
        draft.put(_rested(unit, rested))
        return requests.Again(unit.tries)
    at_fault = line is not None and unit.suspect == named
    if config.on_bad == "fail" and (at_fault or not died):
        return _fail(draft, unit, f"{_place(draft, unit, line)}: {unit.error}")
    if not proven and draft.view.bad_count(unit.root) >= config.bad_max:
        # There are no rows, so the other lines fail together, because each separate line would need its own tries.
        return _too_many(draft, unit)
    if line is not None and at_fault:
        cut = ranges.cut_out(draft.pieces_of(unit.id), line.file, line.begin, line.end)
        if cut is not None:
            before, suspect, behind = cut
            if not before and not behind:
                return _bad(draft, unit, [suspect])
            return _alone(draft, unit, before, suspect, behind, config.tries_max - 1)
    # The next holder finds the middle, because this module reads no bytes.
    draft.put(replace(_rested(unit, draft.now), halve=True))
    return requests.Again(unit.tries)


def split_at(draft: Draft, request: requests.SplitAt, who: requests.Who) -> requests.Judged:
    unit = in_vain(draft, request.unit, request.attempt, request.generation)
    if isinstance(unit, requests.Lost):
        return requests.Committed(unit)
    if unit.state is not UnitState.LEASED or not unit.halve or request.attempt != unit.attempt:
        return requests.Committed(requests.Lost.GONE)
    pieces = draft.pieces_of(unit.id)
    if request.begin is None:
        return _bad(draft, unit, pieces)
    halves = ranges.split(pieces, request.file, request.begin)
    if halves is None:
        raise LedgerError(
            f"unit {unit.id} cannot be split at byte {request.begin} of file {request.file},"
            " which is not inside the unit"
        )
    draft.drop(unit)
    # The whole unit has failed often enough, so each half gets only one try.
    tries = draft.config.tries_max - 1
    return requests.Taken(tuple(draft.make_unit(half, unit.since, unit, tries) for half in halves))


def _has_room(draft: Draft, unit: Unit) -> bool:
    """Whether a line of the unit may be tried separately; `bad_max` limits bad ranges and such lines together."""
    config = draft.config
    if config.on_bad == "fail":
        return False
    most = config.bad_max - draft.view.bad_count(unit.root)
    ready = draft.view.units(UnitState.READY, (unit.root, -1), max(most, 0))
    return sum(one.root == unit.root for one in ready) < most


def _alone(
    draft: Draft,
    unit: Unit,
    before: Sequence[Piece],
    suspect: Piece,
    behind: Sequence[Piece],
    tries: int,
    rested: float = 0.0,
) -> requests.Taken:
    """Turn the line at which tries have failed into a separate unit with the remaining tries.

    If this line also fails alone, it is bad; the other lines do not wait for it. A function that collects a batch of
    lines fails at the last line even if another line is at fault.
    """
    draft.drop(unit)
    alone = draft.make_unit([suspect], unit.since, unit, tries)
    made = draft.get(Unit, alone)
    assert made is not None
    draft.put(replace(made, until=rested))
    others = [draft.make_unit(pieces, unit.since, unit) for pieces in (before, behind) if pieces]
    return requests.Taken((alone, *others))


def _bad(draft: Draft, unit: Unit, bad: Sequence[Piece]) -> requests.Bad | requests.Failed:
    if draft.config.on_bad == "fail":
        return _fail(draft, unit, f"{_place(draft, unit, None)}: {unit.error}")
    if draft.view.bad_count(unit.root) + len(bad) > draft.config.bad_max:
        return _too_many(draft, unit)
    draft.drop(unit)
    draft.make_bad(bad, unit.root, unit.tries, unit.error)
    return requests.Bad(unit.root, unit.tries, tuple(requests.Line(*piece) for piece in bad), unit.error)


def _too_many(draft: Draft, unit: Unit) -> requests.Failed:
    most = draft.config.bad_max
    return _fail(draft, unit, f"more than {most} ranges of unit {unit.root} are bad; the last error: {unit.error}")


def _fail(draft: Draft, unit: Unit, error: str) -> requests.Failed:
    error = shortened(error)
    draft.put(replace(_rested(unit, 0.0), state=UnitState.FAILED, halve=False, error=error))
    return requests.Failed(unit.id, error)


def _place(draft: Draft, unit: Unit, line: requests.Line | None) -> str:
    """Return the file and bytes of the failed line or, if the line is unknown, of the unit."""
    pieces = [(line.file, line.begin, line.end)] if line is not None else draft.pieces_of(unit.id)
    number, begin, end = pieces[0]
    file = draft.get(File, number)
    more = f" and {len(pieces) - 1} more" if len(pieces) > 1 else ""
    return f"{file.key if file is not None else number} bytes {begin}-{end}{more}"


def _rested(unit: Unit, until: float) -> Unit:
    return replace(unit, state=UnitState.READY, holder="", container="", until=until)


def _text_of(line: requests.Line | None) -> str:
    return MIXED if line is None else f"{line.file}:{line.begin}:{line.end}"
