"""Decides which sites are working, and which sites lose their units to other sites. Pure."""

from __future__ import annotations

from msgspec.structs import replace

from heronpy.ingest.ledger import policy
from heronpy.ingest.ledger.draft import Draft
from heronpy.ingest.ledger.types import Copy, File, Site, UnitState


def is_down(draft: Draft, site: str) -> bool:
    """Whether a user has taken a site down."""
    found = draft.get(Site, site)
    return found is not None and not found.up


def is_lost(draft: Draft, site: str) -> bool:
    """Whether other sites may take a site's units immediately, because it is down or its workers are all silent."""
    return is_down(draft, site) or draft.view.site_seen(site) < draft.now - _silent_s(draft)


def live(draft: Draft) -> frozenset[str]:
    """Return the working sites: not down, with a recently seen worker."""
    seen = draft.view.worker_sites(draft.now - _silent_s(draft))
    return frozenset(site for site in seen if not is_down(draft, site))


def lose_copy(draft: Draft, file: File, copy: Copy) -> None:
    """Record that a site no longer has a file; if no other site has the file, it is gone."""
    draft.drop(copy)
    if all(draft.get(Copy, one.file, one.site) is None for one in draft.view.copies(file.id)):
        draft.put(replace(file, gone=draft.now, since=None))


def ready_count(draft: Draft, counted: int, sites: frozenset[str]) -> int:
    """Return how many of the `counted` ready units a working site can take now or soon.

    Separate lines that wait for another try, and units that only a lost site can read, are not counted: they must
    not prevent cuts, because other bytes would wait for them.
    """
    ready = draft.view.units(UnitState.READY, (-1, -1), policy.LOOKED_AT_MAX)
    resting = {unit.id for unit in ready if policy.rests_apart(unit, draft.now)}
    if not sites - {""}:
        return counted - len(resting)
    return len({unit for site in sites for unit in draft.view.ready_on(site)} - resting)


def _silent_s(draft: Draft) -> float:
    return policy.SITE_SILENCES * draft.config.silent_s
