"""Records the time up to which a pipeline's files were scanned, for pipelines that wait for this pipeline. Pure."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from heronpy.ingest.ledger.draft import Draft
from heronpy.ingest.ledger.requests import Cut, Who
from heronpy.ingest.ledger.types import Config, Scanned, Unfinished

#: A scan is recorded if the last recorded scan is at least this number of seconds older.
WRITTEN_S = 0.4
#: Interval in seconds at which changes in the number of bytes without a line end are recorded.
UNFINISHED_S = 5.0


def note(draft: Draft, request: Cut, who: Who) -> None:
    """Record a keeper's scan if another pipeline waits for this pipeline."""
    found = draft.get(Scanned, who.site)
    if request.looked is None:
        return
    if not is_awaited(draft):
        if found is not None:
            draft.drop(found)
    elif found is None:
        draft.put(Scanned(who.site, draft.now, request.looked, request.closed))
    elif found.closed != request.closed or request.looked - found.until >= WRITTEN_S:
        draft.put(replace(found, until=max(found.until, request.looked), closed=request.closed))


def note_unfinished(draft: Draft, request: Cut, who: Who) -> None:
    """Record the number of files that are considered copies, and the bytes without a line end.

    A number is recorded immediately when bytes appear or vanish, otherwise at most every `UNFINISHED_S` seconds."""
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
    """Return the time of a site's previous scan; bytes that the site reports now may have arrived since then.

    So these bytes may be older than a unit that a waiting pipeline has cut before this scan.
    """
    found = draft.get(Scanned, site)
    return draft.now if found is None else min(draft.now, found.until)


def begin_again(draft: Draft, who: Who) -> None:
    """Record that a keeper has started: more bytes may follow, even if the previous keeper has reported the end."""
    found = draft.get(Scanned, who.site)
    if found is not None and found.closed:
        draft.put(replace(found, closed=False))


def is_awaited(draft: Draft) -> bool:
    """Whether another pipeline of this ledger waits for this pipeline."""
    name = draft.view.name
    return any(name in waited_for(text) for other, text in draft.view.configs().items() if other != name)


def waited_for(config: str) -> tuple[str, ...]:
    """Return the pipelines for which a pipeline with this `Pipeline.config` waits."""
    found = msgspec.json.decode(config, type=Config)
    return (*found.after, *found.after_all)
