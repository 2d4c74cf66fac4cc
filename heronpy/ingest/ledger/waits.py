"""Finds and describes the reasons why a unit waits, such as the pipelines of `after` and `after_all`. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from heronpy.ingest.ledger import policy, sites
from heronpy.ingest.ledger.commands import AfterView
from heronpy.ingest.ledger.draft import Draft
from heronpy.ingest.ledger.store import SiteScan
from heronpy.ingest.ledger.types import Unit, UnitState


class Others:
    """The pipelines for which a pipeline waits. Each pipeline is read once per transaction, regardless of the number of
    units."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._config = draft.config
        self._known: dict[str, tuple[float | None, tuple[SiteScan, ...]]] = {}

    def ahead(self, unit: Unit) -> Iterator[str]:
        """Return the pipelines for which a unit waits, one clause each; empty if the unit may be leased.

        A pipeline is past a time if its sites have scanned their files since then, and its oldest unpublished byte is
        younger. `after`: the other pipeline must be past the time when the unit was cut. `after_all`: the other
        pipeline must be past the time when the later of the two pipelines began.
        """
        for name in self._config.after:
            # Bytes that the first scan finds may have any age.
            yield from self._not_past(name, unit.made, max([unit.made, *(one.scan.first for one in self._asked(name))]))
        yield from self.sets_ahead()

    def sets_ahead(self) -> Iterator[str]:
        """Return the unfinished pipelines of `after_all`, for which all units wait."""
        for name in self._config.after_all:
            yield from self._not_past(name, self._begun(name))

    def views(self) -> Iterator[AfterView]:
        """Return all pipelines for display; the state of an `after` pipeline applies to bytes that arrive now."""
        for name in self._config.after:
            yield AfterView(name, False, next(iter(self._not_past(name, self._draft.now, fresh=True)), ""))
        for name in self._config.after_all:
            yield AfterView(name, True, next(iter(self._not_past(name, self._begun(name))), ""))

    def _read(self, name: str) -> tuple[float | None, tuple[SiteScan, ...]]:
        if name not in self._known:
            view = self._draft.view
            self._known[name] = view.oldest_open(name), tuple(view.scans(name))
        return self._known[name]

    def _begun(self, name: str) -> float:
        """Return the time when the later of the two pipelines began. Only earlier bytes of the other pipeline count."""
        return max([self._draft.pipeline.born, *(one.scan.first for one in self._asked(name))])

    def _asked(self, name: str) -> list[SiteScan]:
        """Return the sites whose scans count: lost sites do not count while another site is working."""
        found = self._read(name)[1]
        since = self._draft.now - policy.SITE_SILENCES * self._config.silent_s
        return [one for one in found if one.up and one.seen >= since] or list(found)

    def _not_past(self, name: str, when: float, since: float = 0.0, fresh: bool = False) -> Iterator[str]:
        """Yield the reason if a pipeline is not past a time. `since`: bytes that have waited since then also count.
        `fresh`: do not wait for the next scans of sites that have scanned recently."""
        oldest, _ = self._read(name)
        asked = self._asked(name)
        if oldest == float("-inf"):
            yield f"pipeline '{name}', which has not begun"
        elif oldest is not None and oldest <= max(when, since):
            yield f"pipeline '{name}', whose oldest byte has waited for {self._draft.now - oldest:.0f} s"
        elif not asked:
            yield f"pipeline '{name}', which has not scanned its files yet"
        else:
            late = [one for one in asked if not one.scan.closed and one.scan.until < when]
            if late and not (fresh and all(self._is_fresh(one) for one in late)):
                yield f"pipeline '{name}', which is scanning its files again" + _of_sites(late)

    def _is_fresh(self, one: SiteScan) -> bool:
        return one.scan.until >= self._draft.now - self._config.silent_s


def _of_sites(late: list[SiteScan]) -> str:
    names = ", ".join(one.scan.site for one in late if one.scan.site)
    return f" (site {names})" if names else ""


def words(draft: Draft, unit: Unit, others: Others) -> tuple[str, ...]:
    """Return the reasons why a unit waits, one clause each; empty if a worker may take the unit or is processing it."""
    if unit.state is UnitState.COMMITTED:
        return ("its publication",)
    if unit.state is UnitState.FAILED:
        return ("your retry",)
    if unit.state is UnitState.LEASED:
        return ()
    return tuple(_of_ready(draft, unit, others))


def _of_ready(draft: Draft, unit: Unit, others: Others) -> Iterator[str]:
    if draft.pipeline.paused:
        yield "the end of the pause"
    yield from others.ahead(unit)
    if draft.now < unit.until:
        yield f"its next attempt in {unit.until - draft.now:.0f} s"
    having = sorted({copy.site for span in draft.view.spans_of_unit(unit.id) for copy in draft.view.copies(span.file)})
    whole = [site for site in having if has_all(draft, unit, site)]
    if not whole:
        yield "a site that has all of its bytes"
    elif lost := [site for site in whole if sites.is_lost(draft, site)]:
        if len(lost) == len(whole) and any(lost):
            shown = ", ".join(f"{site} ({'down' if sites.is_down(draft, site) else 'silent'})" for site in lost)
            yield f"site {shown}: no other site has its bytes"
    elif unit.site and draft.now < unit.site_until and len(whole) > 1:
        yield f"site {unit.site}, which has priority for {unit.site_until - draft.now:.0f} s"


def has_all(draft: Draft, unit: Unit, site: str) -> bool:
    sizes = {copy.file: copy.size for copy in draft.view.copies_of_unit(unit.id, site)}
    return all(sizes.get(span.file, 0) >= span.end for span in draft.view.spans_of_unit(unit.id))
