"""One pipeline in several ledgers; files born later may get other ledgers (Ubiq's time-ranged partitions).

A file's birth selects the entry, and a stable hash of the file's key selects the ledger of the entry. So a file keeps
its ledger when entries are added, and units never span ledgers. An entry is needed until its ledgers are drained.
Ledgers have disjoint ids, so that names in an output never collide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Final, TypeVar, cast

from msgspec import Struct
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
S = TypeVar("S", bound=Struct)

#: Maximum number of newer partition maps that one request follows.
FOLLOWS_MAX: Final = 10


class PartitionedLedger:
    """All ledgers of a pipeline, with the interface of one `Ledger`; the first request must be `Open` or `Rebuild`."""

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
        """`only`: the ledgers to use, for clients that create no ledger. `version`: version of the partition map.
        `known`: ledgers that this process has used before.
        """
        self.partitions = Partitions(tuple(entries), version)
        self._made: Callable[[str], Ledger] = lambda url: Ledger(opened(url), pipeline, who)
        self._all = dict(known or {})
        self._ledgers = self._of_urls(only if only is not None else self.partitions.urls)
        #: The ledgers by part number of their ids.
        self._parts: dict[int, Ledger] = {}
        self._turn = 0

    def ask(self, request: Request[A]) -> A:
        """Return the combined answer. Raises LedgerAwayError if one of the needed ledgers does not answer."""
        rule = _RULES.get(type(request))
        if rule is None:
            return self._of(cast(Any, request).unit).ask(request)
        return cast(A, rule(self, request))

    def each(self, request: Request[A]) -> dict[str, A]:
        """Send the request to each ledger; return a map from ledger URL to answer."""
        return {url: ledger.ask(request) for url, ledger in self._ledgers.items()}

    def _of_urls(self, urls: Iterable[str]) -> dict[str, Ledger]:
        """Return a separate client for each ledger, because each ledger counts the requests of this process."""
        for url in urls:
            if url not in self._all:
                self._all[url] = self._made(url)
        return {url: self._all[url] for url in urls}

    # ---- ledgers ------------------------------------------------------------------------------
    def _of(self, number: int) -> Ledger:
        found = self._parts.get(number // PART)
        if found is None:
            raise LedgerError(f"no ledger of this pipeline has the id {number}; keep an entry until it is drained")
        return found

    def _grouped(self, numbers: Iterable[int]) -> dict[Ledger, tuple[int, ...]]:
        groups: dict[Ledger, tuple[int, ...]] = {}
        for number in numbers:
            ledger = self._of(number)
            groups[ledger] = (*groups.get(ledger, ()), number)
        return groups

    def _in_order(self) -> list[Ledger]:
        return [ledger for _, ledger in sorted(self._parts.items(), key=lambda one: one[0])]

    # ---- opening -------------------------------------------------------------------------
    def join(self) -> None:
        """Read the part number of each ledger without sending `Open`, for commands."""
        self._parts = {ledger.ask(requests.ShowAlive()).part: ledger for ledger in self._ledgers.values()}

    def _open(self, request: requests.Open) -> requests.Opened:
        self._parts = {}
        for _ in range(FOLLOWS_MAX):
            opened = self._open_all(request)
            if opened is not None:
                return opened
        raise LedgerAwayError("the partition map of the pipeline keeps changing")

    def _open_all(self, request: requests.Open) -> requests.Opened | None:
        """Open all ledgers. Return None if a ledger has a newer partition map, which this process then uses."""
        if (request.config.after or request.config.after_all) and len(self._ledgers) > 1:
            raise LedgerError("a pipeline in several ledgers cannot wait for other pipelines (`after`); use one ledger")
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
                    f"{url} contains this pipeline with different ledgers than {next(iter(self._ledgers))}; give all"
                    " sites the same ledgers, or give this pipeline another name"
                )
            name = opened.ledger
            if opened.part in parts:
                raise LedgerError(f"two ledgers of this pipeline have the same ids; rename ledger {url}")
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
        for _ in range(2):  # the first round finds the highest generation, and the second sets it in all ledgers
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
        return _joined(answers, generation=_first)

    # ---- files ------------------------------------------------------------------------------
    def _report(self, request: requests.ReportScan) -> requests.Reported:
        if not self._parts:
            # The map is not in all ledgers yet, so another site may assign files to other ledgers.
            raise MovedLedgerError("the ledgers of the pipeline are not all open; the task reopens them")
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

    def _page(self, request: requests.ListFiles | commands.ListBad) -> requests.KnownFiles | commands.BadRanges:
        """Return one page of the rows of all ledgers, in the order of their ids."""
        found: list[Any] = []
        more = False
        for ledger in self._in_order():
            answer: Any = ledger.ask(replace(request, limit=request.limit - len(found)))
            found += answer.files if isinstance(request, requests.ListFiles) else answer.ranges
            more = answer.more or len(found) == request.limit
            if more:
                break
        kind = requests.KnownFiles if isinstance(request, requests.ListFiles) else commands.BadRanges
        return kind(tuple(found), more)

    def _cut(self, request: requests.Cut) -> requests.CutUnits:
        # Each ledger has a separate clock, and no pipeline waits for a pipeline in several ledgers. Only the first
        # ledger records bytes without a line end, which may be in the files of all ledgers.
        several = len(self._ledgers) > 1
        first, *others = self._ledgers.values()
        part = requests.Cut(run=request.run, complete=request.complete)
        files = replace(part, unfinished=request.unfinished, copies=request.copies)
        answers = [first.ask(files if several else request)]
        answers += [ledger.ask(part) for ledger in others]
        return _joined(answers, brake=_brake, now=lambda times: 0.0 if several else times[0], over=all)

    # ---- units ------------------------------------------------------------------------------
    def _lease(self, request: requests.Lease) -> requests.Work | requests.Halve | requests.Idle:
        """Lease from the ledgers in turn, so that the units of every ledger make progress. An unreachable ledger is
        skipped."""
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
        found = _joined(idle, brake=_brake, wait_s=min)
        return replace(found, open=found.open + (away is not None))

    def _list_finished(self, request: requests.ListFinished) -> requests.FinishedUnits:
        found = [unit for ledger in self._in_order() for unit in ledger.ask(request).units]
        return requests.FinishedUnits(tuple(found[: request.limit]))

    def _published(self, request: requests.Published) -> requests.Settled:
        groups = self._grouped(request.units)
        answers = [ledger.ask(replace(request, units=units)) for ledger, units in groups.items()]
        return _joined([requests.Settled(0), *answers])

    def _which_live(self, request: requests.WhichLive) -> requests.Live:
        live = {
            number
            for ledger, units in self._grouped(request.units).items()
            for number in ledger.ask(requests.WhichLive(units)).units
        }
        return requests.Live(tuple(number for number in request.units if number in live))

    def _together(self, request: Request[Any]) -> Any:
        return _joined(self.each(request).values())

    def _of_dispatch(self, request: requests.Dispatched | requests.DispatchFailed) -> requests.Settled:
        return self._of(request.id).ask(request)

    # ---- users ------------------------------------------------------------------------------
    def _alive(self, request: requests.ShowAlive | requests.Leave | commands.Pause) -> requests.Alive:
        answers, away = [], None
        # Only the ledger of the attempt's unit records whether the attempt still counts.
        mine = self._of(request.unit) if isinstance(request, requests.ShowAlive) and request.unit else None
        for ledger in self._ledgers.values():
            part = request if mine is None or ledger is mine else requests.ShowAlive()
            try:
                answers.append(ledger.ask(cast("Request[requests.Alive]", part)))
            except LedgerAwayError as error:
                away = error  # the other ledgers must still get the heartbeat
        if away is not None and (not answers or isinstance(request, commands.Pause)):
            raise away
        in_vain = any(one.in_vain for one in answers)
        generation, paused = max(one.generation for one in answers), all(one.paused for one in answers)
        return requests.Alive(generation, paused, in_vain=in_vain)

    def _retry(self, request: commands.RetryBad | commands.RetryFailed) -> commands.Retried:
        one = request.root if isinstance(request, commands.RetryBad) else request.unit
        ledgers = [self._of(one)] if one is not None else self._in_order()
        answers = [ledger.ask(cast("Request[commands.Retried]", request)) for ledger in ledgers]
        return _joined(answers)

    def _list_dispatches(self, request: commands.ListDispatches) -> commands.Dispatches:
        return _joined(ledger.ask(request) for ledger in self._in_order())

    def _list_units(self, request: commands.ListUnits) -> commands.Units:
        found = [unit for ledger in self._in_order() for unit in ledger.ask(request).units]
        return commands.Units(tuple(sorted(found, key=lambda one: -one.age_s)[: request.limit]))

    def _show(self, request: commands.Show) -> commands.Figures:
        return _joined(self.each(request).values(), **_FIGURES)


def _part(url: str) -> int:
    """Return the part number of a ledger: from 1 on, or 0 for a single ledger."""
    return 1 + stable_hash(url) % (PARTS_MAX - 1)


def _joined(answers: Iterable[S], **how: Callable[[list[Any]], Any]) -> S:
    """Combine the answers of several ledgers: add numbers and concatenate lists; `how` describes the exceptions."""
    answers = list(answers)
    if len(answers) == 1:
        return answers[0]

    def joined(name: str) -> Any:
        values = [getattr(answer, name) for answer in answers]
        if name in how:
            return how[name](values)
        if isinstance(values[0], bool):
            return any(values)
        if isinstance(values[0], int | float):
            return sum(values)
        return tuple(chain.from_iterable(values)) if isinstance(values[0], tuple) else values[0]

    return replace(answers[0], **{name: joined(name) for name in answers[0].__struct_fields__})


def _first(values: list[Any]) -> Any:
    return values[0]


def _largest(values: list[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _brake(brakes: list[requests.Brake]) -> requests.Brake:
    return next((brake for brake in brakes if brake is not requests.Brake.NOTHING), requests.Brake.NOTHING)


def _counts(values: list[dict[str, int]]) -> dict[str, int]:
    return {state: sum(one.get(state, 0) for one in values) for state in dict.fromkeys(chain.from_iterable(values))}


def _units(values: list[dict[str, tuple[int, int]]]) -> dict[str, tuple[int, int]]:
    numbers = _counts([{state: number for state, (number, _) in one.items()} for one in values])
    sizes = _counts([{state: size for state, (_, size) in one.items()} for one in values])
    return {state: (number, sizes[state]) for state, number in numbers.items()}


def _state(values: list[str]) -> str:
    return "down" if "down" in values else min(values, key=_STATES.index)


def _sites(values: list[tuple[commands.SiteView, ...]]) -> tuple[commands.SiteView, ...]:
    found: dict[str, list[commands.SiteView]] = {}
    for one in chain.from_iterable(values):
        found.setdefault(one.name, []).append(one)
    how: dict[str, Any] = {"state": _state, "workers": max, "keepers": max}
    how["seen_s"] = lambda ages: min((age for age in ages if age is not None), default=None)
    return tuple(_joined(found[name], **how) for name in sorted(found))


_STATES: Final = ("up", "silent", "down")
#: Fields that are not added up, because every process sends requests to every ledger.
_FIGURES: Final[dict[str, Callable[[list[Any]], Any]]] = {
    **dict.fromkeys(("generation", "workers", "keepers", "pace", "unfinished_bytes", "copies"), max),
    **dict.fromkeys(("oldest_s", "p50_s", "p99_s"), _largest),
    **{"paused": all, "files": _counts, "units": _units, "sites": _sites, "looked_s": _first},
    "sites_down": lambda names: tuple(sorted({*chain.from_iterable(names)})),
    "slow": lambda found: {name: factor for one in found for name, factor in one.items()},
}
#: All other requests name a unit, and go to the ledger of that unit.
_RULES: Final[dict[type, Callable[[PartitionedLedger, Any], Any]]] = {
    requests.Open: PartitionedLedger._open,
    commands.Rebuild: PartitionedLedger._rebuild,
    requests.ReportScan: PartitionedLedger._report,
    requests.ListFiles: PartitionedLedger._page,
    requests.Cut: PartitionedLedger._cut,
    requests.Lease: PartitionedLedger._lease,
    requests.GiveBack: PartitionedLedger._together,
    requests.ListFinished: PartitionedLedger._list_finished,
    requests.Published: PartitionedLedger._published,
    requests.WhichLive: PartitionedLedger._which_live,
    requests.MakeDispatch: PartitionedLedger._together,
    requests.Dispatched: PartitionedLedger._of_dispatch,
    requests.DispatchFailed: PartitionedLedger._of_dispatch,
    requests.Collect: PartitionedLedger._together,
    requests.ShowAlive: PartitionedLedger._alive,
    requests.Leave: PartitionedLedger._alive,
    commands.Pause: PartitionedLedger._alive,
    commands.SetSite: PartitionedLedger._together,
    commands.ForgetSite: PartitionedLedger._together,
    commands.RetryBad: PartitionedLedger._retry,
    commands.RetryFailed: PartitionedLedger._retry,
    commands.ListUnits: PartitionedLedger._list_units,
    commands.ListBad: PartitionedLedger._page,
    commands.ListDispatches: PartitionedLedger._list_dispatches,
    commands.Show: PartitionedLedger._show,
}
