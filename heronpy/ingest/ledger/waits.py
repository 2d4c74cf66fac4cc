"""What a unit waits for: other pipelines, as `after` says, and in words for people (pure)."""

from __future__ import annotations

from collections.abc import Iterator

from heronpy.ingest.ledger import sites
from heronpy.ingest.ledger.draft import Draft
from heronpy.ingest.ledger.types import Unit, UnitState


def ahead(draft: Draft, unit: Unit) -> Iterator[tuple[str, float | None]]:
    """The pipelines that must go ahead of a unit, with the time of the oldest byte that they have not published.

    None: such a pipeline has not begun. One is ahead as long as its oldest open byte is not younger than the youngest
    one of the unit, which came before the unit was cut.
    """
    for name in draft.config.after:
        oldest = draft.view.oldest_open(name)
        if oldest is not None and oldest <= unit.made:
            yield name, None if oldest == float("-inf") else oldest


def words(draft: Draft, unit: Unit) -> tuple[str, ...]:
    """What keeps a unit from going on, one clause each; empty when any worker may take it, or one is at it."""
    if unit.state is UnitState.COMMITTED:
        return ("its publication",)
    if unit.state is UnitState.FAILED:
        return ("a retry by you",)
    if unit.state is UnitState.LEASED:
        return ()
    return tuple(_of_ready(draft, unit))


def _of_ready(draft: Draft, unit: Unit) -> Iterator[str]:
    if draft.pipeline.paused:
        yield "the end of the pause"
    for name, oldest in ahead(draft, unit):
        if oldest is None:
            yield f"pipeline '{name}', which has not begun"
        else:
            yield f"pipeline '{name}', whose oldest byte waits since {draft.now - oldest:.0f} s"
    if draft.now < unit.until:
        yield f"its next try in {unit.until - draft.now:.0f} s"
    having = sorted({copy.site for span in draft.view.spans_of_unit(unit.id) for copy in draft.view.copies(span.file)})
    whole = [site for site in having if has_all(draft, unit, site)]
    if not whole:
        yield "a site that has all of its bytes"
    elif lost := [site for site in whole if sites.is_lost(draft, site)]:
        if len(lost) == len(whole) and any(lost):
            shown = ", ".join(f"{site} ({'down' if sites.is_down(draft, site) else 'silent'})" for site in lost)
            yield f"site {shown}: no other has its bytes"
    elif unit.site and draft.now < unit.site_until and len(whole) > 1:
        yield f"site {unit.site}, for {unit.site_until - draft.now:.0f} s before others"


def has_all(draft: Draft, unit: Unit, site: str) -> bool:
    """Whether a site has all bytes of a unit."""
    sizes = {copy.file: copy.size for copy in draft.view.copies_of_unit(unit.id, site)}
    return all(sizes.get(span.file, 0) >= span.end for span in draft.view.spans_of_unit(unit.id))
