"""Computes the displayed figures of a run from the ledger's figures for each stage. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from heronpy.batch.record import RunRecord
from heronpy.batch.stages import Stage
from heronpy.ingest.ledger.commands import Figures
from heronpy.ingest.ledger.types import UnitState
from heronpy.views.progress import Progress, Slow, StageProgress

#: An idle task waits for at most this share of the stage's duration so far, and for at least this number of seconds.
WAIT_SHARE, WAIT_MIN_S = 0.1, 0.01
#: Number of seconds over which the rate of a stage is measured.
RATE_S = 60.0


class Rate:
    """The rate of work over the last minute."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def per_s(self, now: float, done: int) -> float:
        """Return the rate per second, given the total `done`; 0 if it is unknown."""
        self._seen.append((now, done))
        while self._seen[0][0] < now - RATE_S:
            self._seen.popleft()
        since, before = self._seen[0]
        return (done - before) / (now - since) if now > since else 0.0


def pause_s(most_s: float, lasted_s: float) -> float:
    """Return how many seconds an idle task waits, given the duration of the stage so far."""
    return min(most_s, max(WAIT_MIN_S, WAIT_SHARE * lasted_s))


def started(record: RunRecord, stages: Sequence[Stage], boundary: str, now: float) -> Progress:
    """Return the figures of a run that has not processed anything yet."""
    waiting = [StageProgress(number=one.number, components=list(one.components), state="waiting") for one in stages]
    return Progress(
        run=record.run,
        state=record.state.value,
        at=now,
        began_at=record.submitted_at,
        boundary=boundary,
        stages=waiting,
    )


def stage_progress(
    stage: Stage, found: Figures, state: str, slow: Mapping[str, float], next_try: int = 0, tries_max: int = 0
) -> StageProgress:
    """Return a stage's progress from the figures of its pipeline; `slow`: map from slow container to
    slowdown factor. `next_try`, `tries_max`: see `StageProgress`.
    """
    counts = {UnitState(name): count for name, (count, _) in found.units.items()}
    weights = {UnitState(name): weight for name, (_, weight) in found.units.items()}
    committed = counts.get(UnitState.COMMITTED, 0)
    done = found.published_bytes + weights.get(UnitState.COMMITTED, 0)
    left = sum(weights.get(one, 0) for one in (UnitState.READY, UnitState.LEASED, UnitState.FAILED))
    return StageProgress(
        number=stage.number,
        components=list(stage.components),
        state=state,
        units=found.published_units + sum(counts.values()),
        done=found.published_units + committed,
        bytes=done + left + found.waiting_bytes,
        bytes_done=done,
        attempts=found.attempts,
        backups=found.backups,
        backups_won=found.backups_won,
        preempted=found.preempted,
        tries_failed=found.tries_failed,
        in_vain=found.in_vain,
        failed=counts.get(UnitState.FAILED, 0),
        in_work=counts.get(UnitState.LEASED, 0),
        next_try=next_try,
        tries_max=tries_max,
        slow=[Slow(container=int(container), ratio=factor) for container, factor in sorted(slow.items())],
    )


def advanced(before: Progress, record: RunRecord, stage: StageProgress, rate: float, now: float) -> Progress:
    """Return the figures of a run after an update of one of its stages."""
    stages = [stage if one.number == stage.number else one for one in before.stages]
    left = stage.bytes - stage.bytes_done
    ends_in = left / rate if rate and record.ended_at is None else None
    return replace(
        before,
        state=record.state.value,
        cause=record.cause,
        at=now,
        ended_at=record.ended_at,
        boundary=record.boundary or before.boundary,
        stages=stages,
        ends_in_s=ends_in,
        ends_at_least=stage.number != before.stages[-1].number,
    )


def ended(before: Progress, record: RunRecord) -> Progress:
    """Return the figures of a run that has failed."""
    stages = [replace(one, state="failed") if one.state == "running" else one for one in before.stages]
    return replace(
        before,
        state=record.state.value,
        cause=record.cause,
        at=record.ended_at or before.at,
        ended_at=record.ended_at,
        stages=stages,
        ends_in_s=None,
    )
