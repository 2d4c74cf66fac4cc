"""One pipeline in several ledgers, and other ones from a time on, while it runs (Ubiq's time-ranged partitions).

A file's birth picks the entry, and a stable hash of its key the ledger of this: so a file stays where it is when
entries are added, and units never span ledgers. An entry is needed until its ledgers are drained. Ids of the ledgers
differ, so that names in an output never meet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar, cast

from msgspec.structs import replace

from heronpy.common.errors import LedgerAwayError, LedgerError, MovedLedgerError
from heronpy.common.hashing import stable_hash
from heronpy.ingest.ledger import commands, requests
from heronpy.ingest.ledger.beginning import PARTS_MAX
from heronpy.ingest.ledger.client import Ledger
from heronpy.ingest.ledger.partitions import Entry, Partitions, partitions_of, url_of
from heronpy.ingest.ledger.requests import Request, Who
from heronpy.ingest.ledger.store import Store
from heronpy.ingest.ledger.types import PART

A = TypeVar("A")

#: How often a newer partition map is followed before somebody is told.
FOLLOWS_MAX: Final = 10


class PartitionedLedger:
    """Asked like a `Ledger`; the first request is `Open`, or `Rebuild`."""

    def __init__(
        self,
        entries: Sequence[Entry],
        opened: Callable[[str], Store],
        pipeline: str,
        who: Who,
        only: Iterable[str] | None = None,
        version: int = 0,
        known: Mapping[str, Ledger] | None = None,
    ) -> None:
        """`only`: the ledgers to ask, for who makes none. `version`: of the partition map. `known`: ledgers that this
        process has asked before."""
        self.partitions = Partitions(tuple(entries), version)
        self._made: Callable[[str], Ledger] = lambda url: Ledger(opened(url), pipeline, who)
        self._all = dict(known or {})
        self._ledgers = self._of_urls(only if only is not None else self.partitions.urls)
        #: By part of the ids.
        self._parts: dict[int, Ledger] = {}
        self._turn = 0

    def ask(self, request: Request[A]) -> A:
        """See `Ledger.ask`; LedgerAwayError when one of the ledgers that are needed is away."""
        rule = _RULES.get(type(request))
        if rule is None:
            return self._of(cast(Any, request).unit).ask(request)
        return cast(A, rule(self, request))

    def each(self, request: Request[A]) -> dict[str, A]:
        """The answer of each ledger, by URL: an entry whose ledgers have nothing open is drained."""
        return {url: ledger.ask(request) for url, ledger in self._ledgers.items()}

    def _of_urls(self, urls: Iterable[str]) -> dict[str, Ledger]:
        """Each ledger counts the requests of this process, so there is one way to it."""
        for url in urls:
            if url not in self._all:
                self._all[url] = self._made(url)
        return {url: self._all[url] for url in urls}

    # ---- where ------------------------------------------------------------------------------
    def _of(self, number: int) -> Ledger:
        """The ledger of a file, unit or dispatch."""
        found = self._parts.get(number // PART)
        if found is None:
            raise LedgerError(f"no ledger of this pipeline has the id {number}; keep its entry until it is drained")
        return found

    def _grouped(self, numbers: Iterable[int]) -> dict[Ledger, tuple[int, ...]]:
        groups: dict[Ledger, tuple[int, ...]] = {}
        for number in numbers:
            ledger = self._of(number)
            groups[ledger] = (*groups.get(ledger, ()), number)
        return groups

    def _in_order(self) -> list[Ledger]:
        return [ledger for _, ledger in sorted(self._parts.items(), key=lambda one: one[0])]

    # ---- beginnings -------------------------------------------------------------------------
    def join(self) -> None:
        """Learn which ledger has which ids, without `Open`: for commands."""
        self._parts = {ledger.ask(requests.ShowAlive()).part: ledger for ledger in self._ledgers.values()}

    def _open(self, request: requests.Open) -> requests.Opened:
        self._parts = {}
        for _ in range(FOLLOWS_MAX):
            opened = self._open_all(request)
            if opened is not None:
                return opened
        raise LedgerAwayError("the partition map of the pipeline is changed again and again")

    def _open_all(self, request: requests.Open) -> requests.Opened | None:
        """None: a ledger has a newer partition map, which is followed from now on."""
        if (request.config.after or request.config.after_all) and len(self._ledgers) > 1:
            raise LedgerError("a pipeline in several ledgers cannot wait for others (`after`); use one ledger for them")
        generation, name = 1, request.ledger
        parts: dict[int, Ledger] = {}
        made: list[int] = []
        given: list[requests.Given] = []
        for url, ledger in self._ledgers.items():
            mine = self.partitions
            part = replace(request, part=_part(url), generation=generation, ledger=name, partitions=mine.to_json())
            opened = ledger.ask(part)
            generation = max(generation, opened.generation)
            found = partitions_of(opened.partitions)
            if found.version > mine.version:
                self.partitions = found
                if found.entries != mine.entries:
                    self._ledgers = self._of_urls(found.urls)
                    return None
            if (parts and opened.ledger != name) or found.entries != mine.entries:
                raise LedgerError(
                    f"{url} has this pipeline with other ledgers than {next(iter(self._ledgers))}; give all sites the"
                    " same ledgers, or this one a name of its own"
                )
            name = opened.ledger
            if opened.part in parts:
                raise LedgerError(f"two ledgers of this pipeline have the same ids; give {url} another name")
            parts[opened.part] = ledger
            made += opened.made
            given += opened.given
        self._parts = parts
        for ledger in self._ledgers.values():
            ledger.follow(self.partitions.version)
        return requests.Opened(
            generation, request.config, made=tuple(made), given=tuple(given), ledger=name,
            partitions=self.partitions.to_json(),
        )  # fmt: skip

    def _rebuild(self, request: commands.Rebuild) -> commands.Rebuilt:
        generation = request.at_least
        placed = replace(self.partitions, version=max(1, self.partitions.version))
        answers: list[commands.Rebuilt] = []
        for _ in range(2):  # the first round finds the highest generation, the second gives it to all
            answers = []
            for url, ledger in self._ledgers.items():
                files = tuple(
                    one for one in request.files if url_of(self.partitions.entries, one.key, one.birth) == url
                )
                part = replace(request, files=files, at_least=generation, part=_part(url), partitions=placed.to_json())
                answers.append(ledger.ask(part))
            highest = max(one.generation for one in answers)
            if all(one.generation == highest for one in answers):
                break
            generation = highest + 1
        return commands.Rebuilt(
            answers[0].generation,
            sum(one.files for one in answers),
            sum(one.units for one in answers),
            sum(one.done_bytes for one in answers),
            sum(one.bad_bytes for one in answers),
        )

    # ---- files ------------------------------------------------------------------------------
    def _report(self, request: requests.ReportScan) -> requests.Reported:
        if not self._parts:
            # The map is not in all ledgers yet, so another site may still give files to other ones.
            raise MovedLedgerError("the ledgers of the pipeline are not all open; the task opens them anew")
        seen: dict[Ledger, list[int]] = {}
        for index, one in enumerate(request.seen):
            seen.setdefault(self._ledgers[url_of(self.partitions.entries, one.key, one.birth)], []).append(index)
        gone: dict[Ledger, list[requests.GoneFile]] = {}
        for lost in request.gone:
            gone.setdefault(self._of(lost.file), []).append(lost)
        known: list[requests.KnownFile] = []
        stale: list[int] = []
        late: list[int] = []
        for ledger in {**seen, **gone}:
            indices = seen.get(ledger, [])
            part = replace(
                request, seen=tuple(request.seen[index] for index in indices), gone=tuple(gone.get(ledger, ()))
            )
            answer = ledger.ask(part)
            known.extend(answer.known)
            stale.extend(indices[index] for index in answer.stale)
            late.extend(indices[index] for index in answer.late)
        return requests.Reported(tuple(known), tuple(sorted(stale)), tuple(sorted(late)))

    def _list_files(self, request: requests.ListFiles) -> requests.KnownFiles:
        files: list[requests.KnownFile] = []
        for ledger in self._in_order():
            answer = ledger.ask(replace(request, limit=request.limit - len(files)))
            files.extend(answer.files)
            if answer.more or len(files) == request.limit:
                return requests.KnownFiles(tuple(files), True)
        return requests.KnownFiles(tuple(files), False)

    def _cut(self, request: requests.Cut) -> requests.CutUnits:
        # Each has a clock of its own, and nobody waits for a pipeline in several ledgers. What has no line end
        # yet is in the files of all of them: the first one keeps it.
        several = len(self._ledgers) > 1
        first, *others = self._ledgers.values()
        part = requests.Cut(run=request.run, complete=request.complete)
        files = replace(part, unfinished=request.unfinished, copies=request.copies)
        answers = [first.ask(files if several else request)]
        answers += [ledger.ask(part) for ledger in others]
        brakes = [one.brake for one in answers if one.brake is not requests.Brake.NOTHING]
        units = tuple(number for one in answers for number in one.units)
        now = 0.0 if several else answers[0].now
        brake = brakes[0] if brakes else requests.Brake.NOTHING
        return requests.CutUnits(units, brake, now, all(one.over for one in answers))

    # ---- units ------------------------------------------------------------------------------
    def _lease(self, request: requests.Lease) -> requests.Work | requests.Halve | requests.Idle:
        """From one ledger after the other, so that none waits for ever; one that is away stops only itself."""
        ledgers = self._in_order()
        self._turn += 1
        idle: list[requests.Idle] = []
        away: LedgerAwayError | None = None
        for offset in range(len(ledgers)):
            try:
                answer = ledgers[(self._turn + offset) % len(ledgers)].ask(request)
            except LedgerAwayError as error:
                away = error
                continue
            if not isinstance(answer, requests.Idle):
                return answer
            idle.append(answer)
        if not idle and away is not None:
            raise away
        brakes = [one.brake for one in idle if one.brake is not requests.Brake.NOTHING]
        return requests.Idle(
            brakes[0] if brakes else requests.Brake.NOTHING,
            min((one.wait_s for one in idle), default=1.0),
            sum(one.open for one in idle) + (away is not None),
        )

    def _give_back(self, request: requests.GiveBack) -> requests.Returned:
        answers = self.each(request).values()
        return requests.Returned(
            tuple(number for one in answers for number in one.units),
            tuple(number for one in answers for number in one.failed),
            tuple(buried for one in answers for buried in one.buried),
        )

    def _list_finished(self, request: requests.ListFinished) -> requests.FinishedUnits:
        found = [unit for ledger in self._in_order() for unit in ledger.ask(request).units]
        return requests.FinishedUnits(tuple(found[: request.limit]))

    def _published(self, request: requests.Published) -> requests.Settled:
        groups = self._grouped(request.units)
        answers = [ledger.ask(replace(request, units=units)) for ledger, units in groups.items()]
        return requests.Settled(
            sum(one.units for one in answers), sum(one.bytes for one in answers), sum(one.rows for one in answers)
        )

    def _which_live(self, request: requests.WhichLive) -> requests.Live:
        live = {
            number
            for ledger, units in self._grouped(request.units).items()
            for number in ledger.ask(requests.WhichLive(units)).units
        }
        return requests.Live(tuple(number for number in request.units if number in live))

    def _make_dispatch(self, request: requests.MakeDispatch) -> requests.OpenDispatches:
        answers = self.each(request).values()
        return requests.OpenDispatches(tuple(dispatch for one in answers for dispatch in one.dispatches))

    def _of_dispatch(self, request: requests.Dispatched | requests.DispatchFailed) -> requests.Settled:
        return self._of(request.id).ask(request)

    def _collect(self, request: requests.Collect) -> requests.Collected:
        answers = self.each(request).values()
        return requests.Collected(
            sum(one.files for one in answers), sum(one.lost for one in answers), any(one.more for one in answers)
        )

    # ---- users ------------------------------------------------------------------------------
    def _alive(self, request: requests.ShowAlive | requests.Leave | commands.Pause) -> requests.Alive:
        answers, away = [], None
        for ledger in self._ledgers.values():
            try:
                answers.append(ledger.ask(cast("Request[requests.Alive]", request)))
            except LedgerAwayError as error:
                away = error  # the others must see that the asker lives
        if away is not None and (not answers or isinstance(request, commands.Pause)):
            raise away
        return requests.Alive(max(one.generation for one in answers), all(one.paused for one in answers))

    def _set_site(self, request: commands.SetSite) -> commands.SiteSet:
        return commands.SiteSet(sum(one.freed for one in self.each(request).values()))

    def _forget_site(self, request: commands.ForgetSite) -> commands.SiteForgotten:
        answers = self.each(request).values()
        return commands.SiteForgotten(sum(one.files for one in answers), any(one.more for one in answers))

    def _retry(self, request: commands.RetryBad | commands.RetryFailed) -> commands.Retried:
        one = request.root if isinstance(request, commands.RetryBad) else request.unit
        ledgers = [self._of(one)] if one is not None else self._in_order()
        answers = [ledger.ask(cast("Request[commands.Retried]", request)) for ledger in ledgers]
        units = tuple(number for answer in answers for number in answer.units)
        dispatches = tuple(number for answer in answers for number in answer.dispatches)
        return commands.Retried(units, any(answer.more for answer in answers), dispatches)

    def _list_dispatches(self, request: commands.ListDispatches) -> commands.Dispatches:
        answers = (ledger.ask(request) for ledger in self._in_order())
        return commands.Dispatches(tuple(one for answer in answers for one in answer.dispatches))

    def _list_units(self, request: commands.ListUnits) -> commands.Units:
        found = [unit for ledger in self._in_order() for unit in ledger.ask(request).units]
        return commands.Units(tuple(sorted(found, key=lambda one: -one.age_s)[: request.limit]))

    def _list_bad(self, request: commands.ListBad) -> commands.BadRanges:
        ranges: list[commands.BadRange] = []
        for ledger in self._in_order():
            answer = ledger.ask(replace(request, limit=request.limit - len(ranges)))
            ranges.extend(answer.ranges)
            if answer.more or len(ranges) == request.limit:
                return commands.BadRanges(tuple(ranges), True)
        return commands.BadRanges(tuple(ranges), False)

    def _show(self, request: commands.Show) -> commands.Figures:
        answers = list(self.each(request).values())
        first = answers[0]
        for one in answers[1:]:
            first = _added(first, one)
        return first


def _part(url: str) -> int:
    """From 1 on: 0 is that of a ledger that was made alone."""
    return 1 + stable_hash(url) % (PARTS_MAX - 1)


def _added(one: commands.Figures, other: commands.Figures) -> commands.Figures:
    ages = [age for age in (one.oldest_s, other.oldest_s) if age is not None]
    states = {*one.units, *other.units}
    units = {state: (one.units.get(state, (0, 0)), other.units.get(state, (0, 0))) for state in states}
    return commands.Figures(
        generation=max(one.generation, other.generation),
        paused=one.paused and other.paused,
        files={state: one.files.get(state, 0) + other.files.get(state, 0) for state in {*one.files, *other.files}},
        known_bytes=one.known_bytes + other.known_bytes,
        waiting_bytes=one.waiting_bytes + other.waiting_bytes,
        done_bytes=one.done_bytes + other.done_bytes,
        bad_bytes=one.bad_bytes + other.bad_bytes,
        bad_ranges=one.bad_ranges + other.bad_ranges,
        units={state: (mine[0] + its[0], mine[1] + its[1]) for state, (mine, its) in units.items()},
        oldest_s=max(ages, default=None),
        # Every process is seen by every ledger.
        workers=max(one.workers, other.workers),
        keepers=max(one.keepers, other.keepers),
        pace=max(one.pace, other.pace),
        dispatches_open=one.dispatches_open + other.dispatches_open,
        dispatches_failed=one.dispatches_failed + other.dispatches_failed,
        sites_down=tuple(sorted({*one.sites_down, *other.sites_down})),
        sites=_sites_added((*one.sites, *other.sites)),
        units_held=one.units_held + other.units_held,
        rows_to=one.rows_to,
        place=one.place,
        published_units=one.published_units + other.published_units,
        backups_won=one.backups_won + other.backups_won,
        p50_s=_slower(one.p50_s, other.p50_s),
        p99_s=_slower(one.p99_s, other.p99_s),
        unfinished_bytes=max(one.unfinished_bytes, other.unfinished_bytes),
        copies=max(one.copies, other.copies),
        logs=one.logs,
        # Every keeper asks every ledger.
        looked_by=one.looked_by,
        looked_s=one.looked_s,
    )


def _slower(one: float | None, other: float | None) -> float | None:
    return max((value for value in (one, other) if value is not None), default=None)


def _sites_added(given: Sequence[commands.SiteView]) -> tuple[commands.SiteView, ...]:
    found: dict[str, commands.SiteView] = {}
    for one in given:
        known = found.get(one.name)
        if known is None:
            found[one.name] = one
            continue
        ages = [age for age in (known.seen_s, one.seen_s) if age is not None]
        found[one.name] = replace(
            known,
            state="down" if "down" in (known.state, one.state) else min(known.state, one.state, key=_STATES.index),
            files=known.files + one.files,
            bytes=known.bytes + one.bytes,
            workers=max(known.workers, one.workers),
            keepers=max(known.keepers, one.keepers),
            leased=known.leased + one.leased,
            seen_s=min(ages, default=None),
        )
    return tuple(found[name] for name in sorted(found))


_STATES: Final = ("up", "silent", "down")
#: All others name a unit, and go to its ledger.
_RULES: Final[dict[type, Callable[[PartitionedLedger, Any], Any]]] = {
    requests.Open: PartitionedLedger._open,
    commands.Rebuild: PartitionedLedger._rebuild,
    requests.ReportScan: PartitionedLedger._report,
    requests.ListFiles: PartitionedLedger._list_files,
    requests.Cut: PartitionedLedger._cut,
    requests.Lease: PartitionedLedger._lease,
    requests.GiveBack: PartitionedLedger._give_back,
    requests.ListFinished: PartitionedLedger._list_finished,
    requests.Published: PartitionedLedger._published,
    requests.WhichLive: PartitionedLedger._which_live,
    requests.MakeDispatch: PartitionedLedger._make_dispatch,
    requests.Dispatched: PartitionedLedger._of_dispatch,
    requests.DispatchFailed: PartitionedLedger._of_dispatch,
    requests.Collect: PartitionedLedger._collect,
    requests.ShowAlive: PartitionedLedger._alive,
    requests.Leave: PartitionedLedger._alive,
    commands.Pause: PartitionedLedger._alive,
    commands.SetSite: PartitionedLedger._set_site,
    commands.ForgetSite: PartitionedLedger._forget_site,
    commands.RetryBad: PartitionedLedger._retry,
    commands.RetryFailed: PartitionedLedger._retry,
    commands.ListUnits: PartitionedLedger._list_units,
    commands.ListBad: PartitionedLedger._list_bad,
    commands.ListDispatches: PartitionedLedger._list_dispatches,
    commands.Show: PartitionedLedger._show,
}
