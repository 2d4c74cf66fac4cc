"""Assigns units to processes: leases, backups, and the leases of ended processes. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from heapq import merge

from msgspec.structs import replace

from heronpy.ingest.ledger import failing, policy, requests, sites, waits
from heronpy.ingest.ledger.draft import Draft, shortened
from heronpy.ingest.ledger.finishing import units_held
from heronpy.ingest.ledger.requests import Brake
from heronpy.ingest.ledger.types import PART, Answer, Client, Kind, Pace, Unit, UnitState

Totals = dict[UnitState, tuple[int, int]]
#: A process that has left is recorded as last seen this number of seconds before the limit for silent processes.
LEFT_S = 1.0


def lease(draft: Draft, request: requests.Lease, who: requests.Who) -> requests.Work | requests.Halve | requests.Idle:
    view, config, now = draft.view, draft.config, draft.now
    pipeline = draft.pipeline
    totals = view.totals()
    unpublished, unpublished_bytes = totals.get(UnitState.COMMITTED, (0, 0))
    brake, wait_s = None, policy.IDLE_S
    if pipeline.paused:
        brake, wait_s = Brake.PAUSED, 1.0
    elif sites.is_down(draft, who.site):
        brake, wait_s = Brake.SITE_DOWN, 1.0
    elif config.on_bad == "fail" and totals.get(UnitState.FAILED, (0, 0))[0]:
        brake, wait_s = Brake.FAILED, 1.0
    elif unpublished >= config.unpublished_units or unpublished_bytes >= config.unpublished_bytes:
        brake = Brake.UNPUBLISHED
    elif now < pipeline.paid_until:
        brake, wait_s = Brake.RATE, min(pipeline.paid_until - now, 1.0)
    if brake is None:
        orphans = {unit.id: unit for unit in view.orphans(now - config.silent_s, policy.LOOKED_AT_MAX)}
        whys, others = set(), waits.Others(draft)
        paces = view.paces() if totals.keys() & {UnitState.READY, UnitState.LEASED} else ()
        slow = policy.slow_containers(paces).get(who.place)
        if slow is not None and _is_held_back(draft, slow, totals, who):
            return requests.Idle(Brake.SLOW, wait_s, _open(draft, totals))
        for unit in _candidates(draft, orphans, paces, with_backups=slow is None):
            why = _obstacle(draft, unit, unit.id in orphans, who, others, paces)
            if why is None:
                return _hand_out(draft, unit, unit.id in orphans, who, paces)
            whys.add(why)
        brake = Brake.AFTER if Brake.AFTER in whys else Brake.LATER if whys else Brake.NOTHING
    return requests.Idle(brake, wait_s, _open(draft, totals))


def _open(draft: Draft, totals: Totals) -> int:
    """Return the number of units that are neither published nor waiting for the user."""
    found = sum(count for state, (count, _) in totals.items() if state is not UnitState.FAILED)
    return found - units_held(draft) if found else 0


def _is_held_back(draft: Draft, slow: policy.Slow, totals: Totals, who: requests.Who) -> bool:
    """Whether a slow container's worker gets no unit, because other workers will process the ready units sooner."""
    view, since = draft.view, draft.now - draft.config.silent_s
    ready, _ = totals.get(UnitState.READY, (0, 0))
    if ready >= slow.factor * view.seen(Kind.WORKER, since) or not view.has_other(who.site, who.container, since):
        return False
    if draft.now - slow.at < policy.PROBE_S:
        return True
    # Lease one unit at a time, to find out whether the container is still slow.
    leased = view.expired(math.inf, policy.LOOKED_AT_MAX)
    return any((unit.site, unit.container) == (who.site, who.container) for unit in leased)


def _candidates(draft: Draft, orphans: dict[int, Unit], paces: Sequence[Pace], with_backups: bool) -> Iterator[Unit]:
    """Yield units whose state permits a lease: first units without a worker, oldest first, then late units."""
    yield from merge(sorted(orphans.values(), key=_age), _ready(draft), key=_age)
    if draft.config.rows_to == "table" and with_backups:
        for unit in draft.view.expired(draft.now, policy.LOOKED_AT_MAX):
            if unit.id not in orphans and draft.now >= _late_at(unit, paces):
                yield unit


def _late_at(unit: Unit, paces: Sequence[Pace]) -> float:
    """Return the time from which a leased unit may have a backup, estimated from the durations of recent units.

    A unit has only one backup, unless the backup is late too.
    """
    holds_s = policy.lease_s(paces, unit.size, unit.attempt)
    return unit.until + policy.BACKUP_LEASES * holds_s if unit.backup else unit.leased + holds_s


def _ready(draft: Draft) -> Iterator[Unit]:
    after, looked_at, page = (-1, -1), 0, 32
    while looked_at < policy.LOOKED_AT_MAX:
        units = draft.view.units(UnitState.READY, after, page)
        yield from units
        if len(units) < page:
            return
        after, looked_at = _age(units[-1]), looked_at + len(units)


def _age(unit: Unit) -> tuple[int, int]:
    return unit.root, unit.id


def _obstacle(
    draft: Draft, unit: Unit, orphan: bool, who: requests.Who, others: waits.Others, paces: Sequence[Pace]
) -> Brake | None:
    """Return the reason why this worker does not get the unit; None if the worker gets the unit."""
    now, view = draft.now, draft.view
    if unit.state is UnitState.READY and now < unit.until:
        return Brake.LATER
    if unit.state is UnitState.LEASED and not orphan and unit.container == who.container and unit.site == who.site:
        waited = now >= _late_at(unit, paces) + policy.SAME_CONTAINER_S
        if not waited and view.has_other(who.site, who.container, now - draft.config.silent_s):
            return Brake.LATER
    if unit.site != who.site and unit.site and now < unit.site_until and not sites.is_lost(draft, unit.site):
        return Brake.LATER
    if any(others.ahead(unit)):
        return Brake.AFTER
    return None if waits.has_all(draft, unit, who.site) else Brake.LATER


def _hand_out(
    draft: Draft, unit: Unit, orphan: bool, who: requests.Who, paces: Sequence[Pace]
) -> requests.Work | requests.Halve:
    now, config, pipeline = draft.now, draft.config, draft.pipeline
    attempt = unit.attempt + 1
    holds_s = policy.lease_s(paces, unit.size, attempt)
    site_until = unit.site_until if unit.site == who.site else now + policy.SITE_LEASES * holds_s
    backup = unit.state is UnitState.LEASED and not orphan
    leased = replace(
        unit,
        state=UnitState.LEASED,
        attempt=attempt,
        holder=who.name,
        container=who.container,
        until=now + (holds_s if len(paces) >= policy.PACES_MIN else policy.LEASE_MIN_S),
        site=who.site,
        site_until=site_until,
        backup=(unit.backup or attempt) if backup else 0,
        leased=unit.leased if backup else now,
    )
    draft.put(leased)
    draft.count(attempts=1, backups=int(backup), preempted=int(orphan))
    if config.bytes_per_s:
        paid_until = max(now, pipeline.paid_until) + unit.size / config.bytes_per_s
        draft.put(replace(pipeline, paid_until=paid_until))
    chunks = draft.chunks(unit.id, who.site)
    if unit.halve:
        return requests.Halve(unit.id, attempt, pipeline.generation, unit.bytes, chunks)
    raised = bool(unit.error) and not unit.error.startswith(requests.ENDED)
    return requests.Work(
        unit.id, attempt, pipeline.generation, unit.bytes, chunks, holds_s, unit.tries, backup, pipeline.ledger, raised
    )


def give_back(draft: Draft, request: requests.GiveBack, who: requests.Who) -> requests.Returned:
    returned, failed, buried = [], [], []
    for unit in draft.view.held(who.task):
        if (unit.holder == who.name) is not request.own:
            continue
        if request.counts and not unit.halve:
            chunks = draft.chunks(unit.id, who.site)
            line = request.line if unit.id == request.unit else None
            judged = failing.died(draft, unit, request.error, line, request.memory)
            if isinstance(judged, requests.Failed):
                failed.append(unit.id)
            elif isinstance(judged, requests.Bad):
                buried.append(requests.Buried(judged, chunks))
        else:
            error = shortened(request.error) or unit.error
            # A renamed file is found immediately, so there is no pause the first time.
            again = request.own and request.error and error == unit.error
            until = draft.now + policy.UNREAD_S * bool(again)
            draft.put(replace(unit, state=UnitState.READY, holder="", container="", until=until, error=error))
            draft.count(preempted=1)
        returned.append(unit.id)
    for client in draft.view.clients_of(who.task):
        if client.name != who.name:
            draft.drop(client)
            answer = draft.get(Answer, client.name)
            if answer is not None:
                draft.drop(answer)
    return requests.Returned(tuple(returned), tuple(failed), tuple(buried))


def leave(draft: Draft, request: requests.Leave, who: requests.Who) -> requests.Alive:
    """Answer a `Leave`. The client's row is kept, so that the site keeps its units for a while."""
    give_back(draft, requests.GiveBack(counts=False, error="", own=True), who)
    known = draft.get(Client, who.name)
    if known is not None:
        silent_s = draft.config.silent_s
        draft.put(replace(known, seen=min(known.seen, draft.now - silent_s - LEFT_S)))
    pipeline = draft.pipeline
    return requests.Alive(pipeline.generation, pipeline.paused, pipeline.next_file // PART)
