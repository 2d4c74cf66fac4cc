"""Up to when the files of a pipeline were looked at: others may wait for what was there. Pure."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from heronpy.ingest.ledger.draft import Draft
from heronpy.ingest.ledger.requests import Cut, Who
from heronpy.ingest.ledger.types import Config, Look, Unfinished

#: A look is written down when the last one that was is so much older.
WRITTEN_S = 0.4
#: How often it is written down how much of the files has no line end yet, while that changes.
UNFINISHED_S = 5.0


def note(draft: Draft, request: Cut, who: Who) -> None:
    """Write down what a keeper says of its look, when a pipeline waits for this one."""
    found = draft.get(Look, who.site)
    if request.looked is None:
        return
    if not is_awaited(draft):
        if found is not None:
            draft.drop(found)
    elif found is None:
        draft.put(Look(who.site, draft.now, request.looked, request.closed))
    elif found.closed != request.closed or request.looked - found.until >= WRITTEN_S:
        draft.put(replace(found, until=max(found.until, request.looked), closed=request.closed))


def note_unfinished(draft: Draft, request: Cut, who: Who) -> None:
    """Write down how much of the files has no line end yet: at once when it begins or ends, else now and then; and how
    many files are taken for copies."""
    if request.unfinished is None:
        return
    found = draft.get(Unfinished, who.site)
    known, copies = (found.bytes, found.copies) if found is not None else (0, 0)
    if (request.unfinished, request.copies) == (known, copies):
        return
    is_new = found is None or request.copies != copies or draft.now - found.at >= UNFINISHED_S
    if is_new or not known or not request.unfinished:
        draft.put(Unfinished(who.site, request.unfinished, draft.now, request.copies))


def arrived(draft: Draft, site: str) -> float:
    """Since when bytes are there at the latest that a site reports now: the look before, as it has not seen them.

    They may be older than a unit of a pipeline that waits, which was cut before this look.
    """
    found = draft.get(Look, site)
    return draft.now if found is None else min(draft.now, found.until)


def begin_again(draft: Draft, who: Who) -> None:
    """A keeper has begun: there may be more to come, whatever its predecessor has said."""
    found = draft.get(Look, who.site)
    if found is not None and found.closed:
        draft.put(replace(found, closed=False))


def is_awaited(draft: Draft) -> bool:
    """Whether another pipeline of this ledger waits for this one."""
    name = draft.view.name
    return any(name in waited_for(text) for other, text in draft.view.configs().items() if other != name)


def waited_for(config: str) -> tuple[str, ...]:
    """The pipelines for which one with this `Pipeline.config` waits."""
    found = msgspec.json.decode(config, type=Config)
    return (*found.after, *found.after_all)
