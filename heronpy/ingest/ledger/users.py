"""Answers requests from commands: figures, lists, retries, sites and pauses. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import median

from msgspec.structs import replace

from heronpy.common.errors import LedgerError
from heronpy.ingest.ledger import commands, policy, requests, sites, waits
from heronpy.ingest.ledger.draft import Draft
from heronpy.ingest.ledger.finishing import dispatch_again, in_vain, units_held
from heronpy.ingest.ledger.store import SiteSums
from heronpy.ingest.ledger.types import (
    PART,
    DispatchState,
    File,
    Kind,
    Scanned,
    Seal,
    Site,
    Span,
    Tally,
    Unfinished,
    Unit,
    UnitState,
)

#: Maximum number of rows of one list or one retry.
PAGE_MAX = 1_000


# ---- reads --------------------------------------------------------------------------------
def show(draft: Draft, request: commands.Show, who: requests.Who) -> commands.Figures:
    view, now, pipeline = draft.view, draft.now, draft.pipeline
    sums, dispatches = view.sums(), [one.state for one in view.dispatches()]
    recent = view.paces()
    paces = [pace.pace for pace in recent]
    seconds = sorted(pace.seconds for pace in recent if pace.seconds)
    late = policy.late_containers(view.expired(math.inf, policy.LOOKED_AT_MAX), recent, now)
    tally = draft.get(Tally) or Tally()
    config = draft.config
    since = now - config.silent_s
    oldest, keeper = view.oldest_open(view.name), view.last(Kind.KEEPER)
    return commands.Figures(
        generation=pipeline.generation,
        paused=pipeline.paused,
        files=sums.files,
        known_bytes=sums.known_bytes,
        waiting_bytes=sums.waiting_bytes,
        done_bytes=sums.done_bytes,
        bad_bytes=sums.bad_bytes,
        bad_ranges=view.bad_count(),
        units={state.value: total for state, total in view.totals().items()},
        oldest_s=now - oldest if oldest is not None else None,
        workers=view.seen(Kind.WORKER, since),
        keepers=view.seen(Kind.KEEPER, since),
        pace=median(paces) if paces else 0.0,
        dispatches_open=dispatches.count(DispatchState.OPEN),
        dispatches_failed=dispatches.count(DispatchState.FAILED),
        sites_down=tuple(site.name for site in view.sites() if not site.up),
        sites=tuple(_sites(draft)),
        units_held=units_held(draft),
        after=tuple(waits.Others(draft).views()),
        rows_to=config.rows_to,
        place=config.place,
        published_units=tally.units,
        published_bytes=tally.size,
        attempts=tally.attempts,
        backups=tally.backups,
        backups_won=tally.backups_won,
        preempted=tally.preempted,
        tries_failed=tally.tries_failed,
        in_vain=tally.in_vain,
        slow=late | {name: one.factor for name, one in policy.slow_containers(recent).items()},
        p50_s=_percentile(seconds, 0.5),
        p99_s=_percentile(seconds, 0.99),
        # All sites have the same files.
        unfinished_bytes=max((one.bytes for one in view.unfinished()), default=0),
        copies=max((one.copies for one in view.unfinished()), default=0),
        logs=config.pattern,
        looked_by=keeper.task if keeper is not None else "",
        looked_s=now - keeper.seen if keeper is not None else None,
    )


def _percentile(ordered: Sequence[float], part: float) -> float | None:
    """Return the nearest-rank percentile; None if there are no values."""
    return ordered[min(len(ordered) - 1, math.ceil(part * len(ordered)) - 1)] if ordered else None


def _sites(draft: Draft) -> Iterator[commands.SiteView]:
    found = draft.view.site_sums(draft.now - draft.config.silent_s)
    names = {*found, *(site.name for site in draft.view.sites())}
    for name in sorted(names) if names - {""} else ():
        one = found.get(name, SiteSums())
        state = "down" if sites.is_down(draft, name) else "silent" if sites.is_lost(draft, name) else "up"
        seen_s = draft.now - one.seen if one.seen > float("-inf") else None
        yield commands.SiteView(name, state, one.files, one.bytes, one.workers, one.keepers, one.leased, seen_s)


def list_units(draft: Draft, request: commands.ListUnits, who: requests.Who) -> commands.Units:
    found = draft.view.units(request.state, (-1, -1), min(request.limit, PAGE_MAX))
    others = waits.Others(draft)
    return commands.Units(tuple(_view(draft, unit, who.site, others) for unit in found))


def _view(draft: Draft, unit: Unit, site: str, others: waits.Others) -> commands.UnitView:
    return commands.UnitView(
        unit=unit.id,
        root=unit.root,
        state=unit.state,
        bytes=unit.size,
        age_s=draft.now - unit.since,
        tries=unit.tries,
        attempt=unit.attempt,
        holder=unit.holder,
        site=unit.site,
        error=unit.error,
        chunks=draft.chunks(unit.id, site),
        waits=waits.words(draft, unit, others),
    )


def list_dispatches(draft: Draft, request: commands.ListDispatches, who: requests.Who) -> commands.Dispatches:
    found = []
    for one in draft.view.dispatches():
        units = [unit for number in one.units if (unit := draft.get(Unit, number)) is not None]
        rows, size = sum(unit.rows for unit in units), sum(unit.bytes for unit in units)
        found.append(commands.DispatchView(one.id, one.state, one.units, rows, size, one.error))
    return commands.Dispatches(tuple(found))


def list_bad(draft: Draft, request: commands.ListBad, who: requests.Who) -> commands.BadRanges:
    limit = min(request.limit, PAGE_MAX)
    spans = draft.view.bad((request.after_file, request.after_begin), limit + 1)
    ranges = []
    places: dict[int, tuple[tuple[str, str], ...]] = {}
    for span in spans[:limit]:
        file = draft.get(File, span.file)
        assert file is not None
        if file.id not in places:
            places[file.id] = tuple((copy.site, copy.path) for copy in draft.view.copies(file.id))
        ranges.append(commands.BadRange(file.key, file.generation, span, file.head, places[file.id]))
    return commands.BadRanges(tuple(ranges), len(spans) > limit)


def show_alive(draft: Draft, request: requests.ShowAlive, who: requests.Who) -> requests.Alive:
    """Answer a `ShowAlive`; the request itself is the heartbeat."""
    pipeline = draft.pipeline
    lost = bool(request.unit) and in_vain(draft, request.unit, request.attempt, request.generation)
    is_lost = isinstance(lost, requests.Lost)
    return requests.Alive(pipeline.generation, pipeline.paused, pipeline.next_file // PART, is_lost)


# ---- changes ---------------------------------------------------------------------------------
def retry_bad(draft: Draft, request: commands.RetryBad, who: requests.Who) -> commands.Retried:
    """Answer a `RetryBad`. A new unit may have many ranges, all of them from one root unit."""
    limit = max(1, min(request.limit, PAGE_MAX))
    spans = draft.view.bad((0, -1), limit + 1, request.root)
    by_root: dict[int, list[Span]] = {}
    for span in spans[:limit]:
        by_root.setdefault(span.unit, []).append(span)
    units = []
    for group in by_root.values():
        for first in range(0, len(group), policy.CHUNKS_MAX):
            part = group[first : first + policy.CHUNKS_MAX]
            units.append(draft.make_unit(((one.file, one.begin, one.end) for one in part), draft.now))
    return commands.Retried(tuple(units), len(spans) > limit)


def retry_failed(draft: Draft, request: commands.RetryFailed, who: requests.Who) -> commands.Retried:
    limit = max(1, min(request.limit, PAGE_MAX))
    dispatches: tuple[int, ...] = ()
    if request.unit is not None:
        one = draft.get(Unit, request.unit)
        if one is None or one.state is not UnitState.FAILED:
            raise LedgerError(f"unit {request.unit} has not failed")
        found = [one]
    else:
        found = list(draft.view.units(UnitState.FAILED, (-1, -1), limit + 1))
        lost = [dispatch for dispatch in draft.view.dispatches() if dispatch.state is DispatchState.FAILED]
        dispatches = tuple(dispatch_again(draft, dispatch) for dispatch in lost)
    for unit in found[:limit]:
        draft.put(replace(unit, state=UnitState.READY, tries=0, suspect="", until=draft.now, site="", site_until=0.0))
    return commands.Retried(tuple(unit.id for unit in found[:limit]), len(found) > limit, dispatches)


def set_site(draft: Draft, request: commands.SetSite, who: requests.Who) -> commands.SiteSet:
    draft.put(Site(request.site, request.up))
    freed, after = 0, (-1, -1)
    while not request.up:
        page = draft.view.units(UnitState.LEASED, after, policy.LOOKED_AT_MAX)
        for unit in page:
            if unit.site == request.site:
                draft.put(replace(unit, state=UnitState.READY, holder="", container="", until=draft.now))
                freed += 1
        if len(page) < policy.LOOKED_AT_MAX:
            break
        after = (page[-1].root, page[-1].id)
    return commands.SiteSet(freed)


def forget_site(draft: Draft, request: commands.ForgetSite, who: requests.Who) -> commands.SiteForgotten:
    silent_s = draft.config.silent_s
    found = draft.view.site_sums(draft.now - silent_s).get(request.site)
    if found is not None and found.workers + found.keepers:
        raise LedgerError(
            f"site {request.site} is active: {found.workers + found.keepers} of its processes were seen in the last"
            f" {silent_s:g} s; kill its topology first"
        )
    limit = max(1, min(request.limit, PAGE_MAX))
    copies = draft.view.copies_on(request.site, limit + 1)
    for copy in copies[:limit]:
        file = draft.get(File, copy.file)
        if file is not None:
            sites.lose_copy(draft, file, copy)
    for known in (draft.get(kind, request.site) for kind in (Site, Scanned, Seal, Unfinished)):
        if known is not None:
            draft.drop(known)
    return commands.SiteForgotten(min(len(copies), limit), len(copies) > limit)


def pause(draft: Draft, request: commands.Pause, who: requests.Who) -> requests.Alive:
    draft.put(replace(draft.pipeline, paused=request.paused))
    return requests.Alive(draft.pipeline.generation, request.paused)
