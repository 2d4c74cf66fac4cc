"""What a unit waits for: other pipelines, as `after` and `after_all` say, and in words for people. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from heronpy.ingest.ledger import policy, sites
from heronpy.ingest.ledger.commands import AfterView
from heronpy.ingest.ledger.draft import Draft
from heronpy.ingest.ledger.store import SiteLook
from heronpy.ingest.ledger.types import Unit, UnitState


class Others:
    """The pipelines that one waits for, as they are in this transaction; each is read once, however many units ask."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._config = draft.config
        self._known: dict[str, tuple[float | None, tuple[SiteLook, ...]]] = {}

    def ahead(self, unit: Unit) -> Iterator[str]:
        """Those that must go ahead of a unit, one clause each; none when it may be handed out.

        A pipeline is past a time when its sites have looked at their files since, and its oldest byte that is not
        published is younger. `after`: it must be past the time when the unit was cut, as its bytes are older.
        `after_all`: it must be past the time when both had begun.
        """
        for name in self._config.after:
            # What the first look finds may be of any age.
            yield from self._not_past(name, unit.made, max([unit.made, *(one.look.first for one in self._asked(name))]))
        yield from self.sets_ahead()

    def sets_ahead(self) -> Iterator[str]:
        """Those of `after_all` that no unit may go before."""
        for name in self._config.after_all:
            yield from self._not_past(name, self._begun(name))

    def views(self) -> Iterator[AfterView]:
        """All of them, for people; one of `after` as it is for bytes that come now."""
        for name in self._config.after:
            yield AfterView(name, False, next(iter(self._not_past(name, self._draft.now, fresh=True)), ""))
        for name in self._config.after_all:
            yield AfterView(name, True, next(iter(self._not_past(name, self._begun(name))), ""))

    def _read(self, name: str) -> tuple[float | None, tuple[SiteLook, ...]]:
        if name not in self._known:
            view = self._draft.view
            self._known[name] = view.oldest_open(name), tuple(view.looks(name))
        return self._known[name]

    def _begun(self, name: str) -> float:
        """When both had begun: what is there by now of the other one is a set that does not grow."""
        return max([self._draft.pipeline.born, *(one.look.first for one in self._asked(name))])

    def _asked(self, name: str) -> list[SiteLook]:
        """The sites whose looks count: those that are lost do not, as long as another one works."""
        found = self._read(name)[1]
        since = self._draft.now - policy.SITE_SILENCES * self._config.silent_s
        return [one for one in found if one.up and one.seen >= since] or list(found)

    def _not_past(self, name: str, when: float, since: float = 0.0, fresh: bool = False) -> Iterator[str]:
        """Why a pipeline is not past a time, and with all that waits since then; `fresh`: its next looks are not waited
        for."""
        oldest, _ = self._read(name)
        asked = self._asked(name)
        if oldest == float("-inf"):
            yield f"pipeline '{name}', which has not begun"
        elif oldest is not None and oldest <= max(when, since):
            yield f"pipeline '{name}', whose oldest byte waits since {self._draft.now - oldest:.0f} s"
        elif not asked:
            yield f"pipeline '{name}', which has not looked at its files yet"
        else:
            late = [one for one in asked if not one.look.closed and one.look.until < when]
            if late and not (fresh and all(self._is_fresh(one) for one in late)):
                yield f"pipeline '{name}', which looks at its files again" + _of_sites(late)

    def _is_fresh(self, one: SiteLook) -> bool:
        return one.look.until >= self._draft.now - self._config.silent_s


def _of_sites(late: list[SiteLook]) -> str:
    names = ", ".join(one.look.site for one in late if one.look.site)
    return f" (site {names})" if names else ""


def words(draft: Draft, unit: Unit, others: Others) -> tuple[str, ...]:
    """What keeps a unit from going on, one clause each; empty when any worker may take it, or one is at it."""
    if unit.state is UnitState.COMMITTED:
        return ("its publication",)
    if unit.state is UnitState.FAILED:
        return ("a retry by you",)
    if unit.state is UnitState.LEASED:
        return ()
    return tuple(_of_ready(draft, unit, others))


def _of_ready(draft: Draft, unit: Unit, others: Others) -> Iterator[str]:
    if draft.pipeline.paused:
        yield "the end of the pause"
    yield from others.ahead(unit)
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
