"""What a bounded run (`until="now"`) processes: what its site had until its first complete look. Pure."""

from __future__ import annotations

from heronpy.ingest.ledger import policy
from heronpy.ingest.ledger.draft import Draft
from heronpy.ingest.ledger.finishing import units_held
from heronpy.ingest.ledger.requests import Cut, Who
from heronpy.ingest.ledger.types import Seal, UnitState


def note(draft: Draft, request: Cut, who: Who) -> None:
    """The first complete look of a run seals what its site has."""
    if request.run and request.complete and not is_sealed(draft, request.run, who):
        draft.put(Seal(who.site, request.run, draft.now))


def is_sealed(draft: Draft, run: str, who: Who) -> bool:
    """Whether the asker's site adds no more files or bytes in this run; "" is an endless run."""
    found = draft.get(Seal, who.site)
    return run != "" and found is not None and found.run == run


def is_over(draft: Draft, request: Cut, who: Who) -> bool:
    """Whether all that a run has to process is published, bad or failed."""
    seal, view = draft.get(Seal, who.site), draft.view
    if seal is None or not is_sealed(draft, request.run, who):
        return False
    totals, waiting = view.totals(), view.waiting(1)
    live = {state: count for state, (count, _) in totals.items() if state is not UnitState.FAILED}
    if waiting or sum(live.values()) != units_held(draft):
        # What another site has added since then is up to that site, which may follow its files for ever.
        since = [file.since or 0.0 for file in waiting]
        for state in live:
            since += [unit.since for unit in view.units(state, (-1, -1), policy.LOOKED_AT_MAX)]
        if not who.site or sum(live.values()) > policy.LOOKED_AT_MAX or min(since) <= seal.at:
            return False
    # Bytes of files that were removed are counted as bad before the run ends.
    return not view.vanished(draft.now, 1)
