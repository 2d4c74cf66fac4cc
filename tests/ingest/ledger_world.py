"""Keepers, workers and users of a ledger in invented time, against a map of every byte."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeVar

from heronpy.ingest.ledger import machine
from heronpy.ingest.ledger.commands import FoundFile, FoundRange, Pause, Rebuild, RetryBad, RetryFailed, SetSite
from heronpy.ingest.ledger.requests import (
    Bad,
    Chunk,
    Collect,
    Commit,
    Cut,
    Dispatched,
    DispatchFailed,
    FileRange,
    Finished,
    GiveBack,
    GoneFile,
    Halve,
    Lease,
    Leave,
    Line,
    ListFinished,
    MakeDispatch,
    Open,
    Published,
    Redo,
    ReportScan,
    Request,
    SeenFile,
    ShowAlive,
    SplitAt,
    TryFailed,
    Who,
    Work,
)
from heronpy.ingest.ledger.store import Store
from heronpy.ingest.ledger.types import Config, File, Kind, Span, SpanState
from heronpy.ingest.ledger.validate import validate

A = TypeVar("A")
LINE = 10
CONFIG = Config(
    pattern="*.log",
    unit_bytes=64,
    unit_wait_s=2.0,
    unpublished_units=6,
    bad_max=4,
    dispatch_bytes=128,
    dispatch_wait_s=5.0,
)


@dataclass
class Process:
    """A task; `incarnation` grows when it dies. `works`: leases that it may still finish, also late."""

    task: str
    kind: Kind
    site: str
    container: str
    incarnation: int = 1
    number: int = 0
    last: Request[Any] | None = None
    answer: Any = None
    works: list[Work | Halve] = field(default_factory=list)

    @property
    def who(self) -> Who:
        return Who(self.task, str(self.incarnation), self.kind, self.site, self.container)


class World:
    """Every request goes to all stores, which must answer alike and have equal rows; see `check`."""

    def __init__(self, stores: Sequence[Store], pipeline: str, config: Config = CONFIG, sites: int = 1) -> None:
        self.stores, self.pipeline, self.config = stores, pipeline, config
        self.now = 1_000.0
        names = [("east", "west")[number] if sites > 1 else "" for number in range(sites)]
        self.keepers = [Process(f"k{n}", Kind.KEEPER, names[n % sites], f"c{n}") for n in range(2)]
        self.workers = [Process(f"w{n}", Kind.WORKER, names[n % sites], f"c{n % 2}") for n in range(4)]
        self.user = Process("user", Kind.COMMAND, "", "")
        self.sites = names
        #: Bytes that exist, by key, and those that a site has.
        self.sizes: dict[str, int] = {}
        self.copied: dict[tuple[str, str], int] = {}
        #: Offsets of bad lines by key: "raise", "whole" or "die".
        self.poison: dict[tuple[str, int], str] = {}
        #: What was staged as `<generation>/<unit>-<attempt>`, and which attempts were told that they count.
        self.staged: dict[tuple[int, int, int], tuple[Chunk, ...]] = {}
        self.winners: dict[tuple[int, int], int] = {}
        self.generation = 1
        #: Requests of keepers that may arrive once more.
        self.sent: list[Published] = []
        #: How often each byte was published.
        self.published: Counter[tuple[str, int]] = Counter()
        for process in (*self.keepers, *self.workers):
            self.ask(process, Open(config))

    # ---- asking -----------------------------------------------------------------------------
    def ask(self, process: Process, request: Request[A], again: bool = False) -> A:
        number = 0
        if not isinstance(request, machine.UNNUMBERED):
            process.number += not again
            number, process.last = process.number, request
        answers = [self._one(store, request, process.who, number) for store in self.stores]
        assert all(answer == answers[0] for answer in answers), answers
        if number and not again:
            process.answer = answers[0]
        return answers[0]

    def _one(self, store: Store, request: Request[A], who: Who, number: int) -> A:
        now = self.now
        return store.transact(self.pipeline, lambda view, _: machine.handle(view, request, who, number, now))

    def rows(self) -> tuple[Any, ...]:
        """The rows of all stores, which are equal."""
        snapshots = [store.snapshot(self.pipeline) for store in self.stores]
        for other in snapshots[1:]:
            assert other == snapshots[0]
        return snapshots[0]

    # ---- steps ------------------------------------------------------------------------------
    def step(self, name: str, a: int, b: int) -> None:
        """One of `STEPS`; a and b choose whom and how much."""
        getattr(self, name)(a, b)
        self.check()

    def grow(self, a: int, b: int) -> None:
        key = f"f{a % 3}.log"
        self.sizes[key] = self.sizes.get(key, 0) + (1 + b % 12) * LINE
        self.scan(a, 1)

    def poisoned(self, a: int, b: int) -> None:
        key = f"f{a % 3}.log"
        if self.sizes.get(key):
            line = (b % (self.sizes[key] // LINE)) * LINE
            self.poison[key, line] = ("raise", "whole", "die")[(a + b) % 3]

    def scan(self, a: int, b: int) -> None:
        keeper = self.keepers[a % 2]
        seen = []
        for key, size in sorted(self.sizes.items()):
            # A keeper may have seen a file when it was shorter.
            part = size if b % 3 else size // 2 // LINE * LINE
            seen.append(SeenFile(key, 1, key, part, key, "h", "h" if self._is_known(key) else ""))
        answer = self.ask(keeper, ReportScan(tuple(seen)))
        assert not answer.stale and not answer.late

    def _is_known(self, key: str) -> bool:
        return any(isinstance(row, File) and row.key == key for row in self.stores[0].snapshot(self.pipeline))

    def cut(self, a: int, b: int) -> None:
        self.ask(self.keepers[a % 2], Cut())

    def lease(self, a: int, b: int) -> None:
        worker = self.workers[a % 4]
        self._take(worker, self.ask(worker, Lease()))

    def _take(self, worker: Process, work: Any) -> None:
        if isinstance(work, (Work, Halve)):
            assert work.bytes == sum(chunk.end - chunk.begin for chunk in work.chunks)
            assert all(chunk.path for chunk in work.chunks)
            if work not in worker.works:
                worker.works.append(work)

    def finish(self, a: int, b: int) -> None:
        """A worker ends one of its attempts, perhaps late: by its own poison it fails, else it commits."""
        busy = [worker for worker in self.workers if worker.works]
        if busy:
            worker = busy[a % len(busy)]
            self.end(worker, worker.works.pop(b % len(worker.works)))

    def end(self, worker: Process, work: Work | Halve) -> None:
        generation = work.generation
        if isinstance(work, Halve):
            at = self._middle(work)
            if at is None:
                answer = self.ask(worker, SplitAt(work.unit, work.attempt, generation))
            else:
                answer = self.ask(worker, SplitAt(work.unit, work.attempt, generation, *at))
        else:
            bad = self._bad_line(work)
            if bad is None:
                self.staged[generation, work.unit, work.attempt] = work.chunks
                if self.ask(worker, Commit(work.unit, work.attempt, generation, 1, 0.5)).lost is None:
                    assert self.winners.setdefault((generation, work.unit), work.attempt) == work.attempt
                return
            file, line, how, rows = bad
            if how == "die":
                self._die(worker)
                return
            named = Line(file, line, line + LINE) if how == "raise" else None
            answer = self.ask(worker, TryFailed(work.unit, work.attempt, generation, how, named, rows))
        if isinstance(answer, Bad):
            assert all(isinstance(one, Line) for one in answer.ranges)

    def _bad_line(self, work: Work) -> tuple[int, int, str, int] | None:
        """File, offset, what happens at it, and how many lines were rows before."""
        rows = 0
        for chunk in work.chunks:
            first = -(-chunk.begin // LINE) * LINE
            for line in range(first, chunk.end, LINE):
                if (chunk.key, line) in self.poison:
                    return chunk.file, line, self.poison[chunk.key, line], rows
                rows += 1
        return None

    def _middle(self, work: Halve) -> tuple[int, int] | None:
        """The line start nearest to the middle, behind the first byte."""
        found, before = [], 0
        for index, chunk in enumerate(work.chunks):
            starts = range(-(-chunk.begin // LINE) * LINE, chunk.end, LINE)
            for start in ([chunk.begin] if index else []) + [one for one in starts if index or one > chunk.begin]:
                found.append((abs(before + start - chunk.begin - work.bytes // 2), chunk.file, start))
            before += chunk.end - chunk.begin
        return min(found)[1:] if found else None

    def _die(self, worker: Process) -> None:
        """Its next incarnation gives its leases back; what the dead one held may not be finished by anybody."""
        worker.incarnation += 1
        worker.number, worker.last, worker.works = 0, None, []
        self.ask(worker, GiveBack(True, "killed by a signal"))

    def die(self, a: int, b: int) -> None:
        """Not of itself; sometimes a zombie of it goes on and commits later."""
        worker = self.workers[a % 4]
        works = worker.works
        worker.incarnation += 1
        worker.number, worker.last = 0, None
        worker.works = works if b % 2 else []
        self.ask(worker, GiveBack(False, ""))

    def repeat(self, a: int, b: int) -> None:
        """The answer to the last numbered request got lost."""
        process = (*self.workers, self.user)[a % 5]
        if process.last is not None:
            answer = self.ask(process, process.last, again=True)
            if isinstance(process.answer, (Work, Halve)):
                assert answer == process.answer

    def repeat_published(self, a: int, b: int) -> None:
        """A keeper was stopped for long, and says once more what it has published."""
        if self.sent:
            assert self.ask(self.keepers[a % 2], self.sent[b % len(self.sent)]).units == 0

    def lose(self, a: int, b: int) -> None:
        """The ledger is lost, and rebuilt from the output and the bad records while zombies go on."""
        rows = self.rows()
        files = {row.id: row for row in rows if isinstance(row, File)}
        found = []
        for file in files.values():
            spans = [row for row in rows if isinstance(row, Span) and row.file == file.id]
            done = tuple(FoundRange(one.begin, one.end, "u") for one in spans if one.state is SpanState.DONE)
            bad = tuple(FoundRange(one.begin, one.end, "u") for one in spans if one.state is SpanState.BAD)
            found.append(FoundFile(file.key, 1, file.head, done, bad if b % 2 else ()))
        self.now += 20.0
        self.generation += 1
        self.pipeline += "'"
        for process in (*self.keepers, *self.workers, self.user):
            process.incarnation += 1
            process.number, process.last, process.answer = 0, None, None
        self.ask(self.user, Rebuild(self.config, tuple(found), self.generation))
        for process in (*self.keepers, *self.workers):
            assert self.ask(process, Open(self.config)).generation == self.generation
        for keeper in self.keepers:
            self.scan(self.keepers.index(keeper), 1)
        # Ids begin again: what zombies say must not be taken for these.
        self.cut(0, 0)
        zombies = [(worker, worker.works) for worker in self.workers]
        for number, worker in enumerate(self.workers):
            worker.works = []
            self.lease(number, 0)
            if worker.works and (a + number) % 2:
                self.end(worker, worker.works.pop())
        for worker, works in zombies:
            worker.works = [*works, *worker.works]
        self.repeat_published(a, b)

    def publish(self, a: int, b: int) -> None:
        keeper = self.keepers[a % 2]
        found = self.ask(keeper, ListFinished(1 + b % 4)).units
        self._publish(keeper, found)

    def _publish(self, keeper: Process, found: Sequence[Finished]) -> None:
        if found:
            request = Published(tuple(one.unit for one in found), found[0].generation)
            assert self.ask(keeper, request).units == len(found)
            self.sent.append(request)
            for one in found:
                self._count(one)

    def _count(self, unit: Finished) -> None:
        attempt = unit.generation, unit.unit, unit.winner
        assert attempt in self.staged, f"committed, and never staged: {attempt}"
        staged = self.staged[attempt]
        assert [_range(one) for one in staged] == [_range(one) for one in unit.chunks]
        for chunk in unit.chunks:
            self.published.update((chunk.key, offset) for offset in range(chunk.begin, chunk.end))

    def dispatch(self, a: int, b: int) -> None:
        keeper = self.keepers[a % 2]
        for one in self.ask(keeper, MakeDispatch()).dispatches:
            assert one.units
            if b % 4 == 0:
                self.ask(keeper, DispatchFailed(one.id, self.generation, "the gateway says no"))
            elif b % 2:
                settled = self.ask(keeper, Dispatched(one.id, one.units[0].generation))
                assert settled.units == len(one.units)
                for unit in one.units:
                    self._count(unit)
                assert self.ask(keeper, Dispatched(one.id, one.units[0].generation)).units == 0

    def wait(self, a: int, b: int) -> None:
        self.now += (0.5, 3.0, 10.0, 61.0)[b % 4]
        for process in (*self.keepers, *self.workers):
            # Some are silent.
            if (a + len(process.task) + ord(process.task[-1])) % 5:
                self.ask(process, ShowAlive())

    def redo(self, a: int, b: int) -> None:
        """A published folder was damaged, and is removed."""
        rows = self.rows()
        keys = {row.id: row.key for row in rows if isinstance(row, File)}
        done = [row for row in rows if isinstance(row, Span) and row.state is SpanState.DONE]
        if done:
            span = done[a % len(done)]
            begin = span.begin + (b % 3) * ((span.end - span.begin) // 3)
            end = max(begin + 1, span.end - (a % 2) * LINE)
            again = self.ask(self.keepers[0], Redo((FileRange(keys[span.file], 1, begin, end),)))
            assert len(again.units) == 1
            for offset in range(begin, end):
                self.published.pop((keys[span.file], offset), None)

    def leave(self, a: int, b: int) -> None:
        """A process ends in order; what it had in hand may still come."""
        everybody = (*self.workers, *self.keepers)
        self.ask(everybody[a % len(everybody)], Leave())

    def retry(self, a: int, b: int) -> None:
        if b % 2:
            self.poison.clear()
        self.ask(self.user, RetryBad() if a % 2 else RetryFailed())

    def collect(self, a: int, b: int) -> None:
        self.ask(self.keepers[a % 2], Collect())

    def site(self, a: int, b: int) -> None:
        self.ask(self.user, SetSite(self.sites[a % len(self.sites)], bool(b % 2)))

    def pause(self, a: int, b: int) -> None:
        self.ask(self.user, Pause(b % 5 == 0))

    def vanish(self, a: int, b: int) -> None:
        """A site loses a file, until a later scan finds it again."""
        keeper, key = self.keepers[a % 2], f"f{b % 3}.log"
        for row in self.stores[0].snapshot(self.pipeline):
            if isinstance(row, File) and row.key == key:
                self.ask(keeper, ReportScan((), (GoneFile(row.id, key),)))

    # ---- what must hold ---------------------------------------------------------------------
    def check(self) -> None:
        """The rows are sound, and done is what was published, each byte once."""
        rows = self.rows()
        assert validate(rows) == []
        keys = {row.id: row.key for row in rows if isinstance(row, File)}
        done = Counter(
            (keys[row.file], offset)
            for row in rows
            if isinstance(row, Span) and row.state is SpanState.DONE
            for offset in range(row.begin, row.end)
        )
        assert done == self.published
        assert not self.published or max(self.published.values()) == 1

    def drain(self) -> None:
        """From now on everybody works: then each byte is in the output or bad."""
        for name in self.sites:
            self.ask(self.user, SetSite(name, True))
        self.ask(self.user, Pause(False))
        for keeper in self.keepers:
            self.scan(self.keepers.index(keeper), 1)
        for second in range(4_000):
            if second % 500 == 0:
                self.poison = {} if second else self.poison  # else a unit with too much poison fails for ever
                self.ask(self.user, RetryFailed())
            self.now += 1.0
            self.ask(self.keepers[0], Cut())
            for worker in self.workers:
                self.ask(worker, ShowAlive())
                work = self.ask(worker, Lease())
                if isinstance(work, (Work, Halve)):
                    self.end(worker, work)
            self._publish(self.keepers[1], self.ask(self.keepers[1], ListFinished()).units)
            self.dispatch(0, 1)
            rows = self.rows()
            spans = [row for row in rows if isinstance(row, Span)]
            ended = {SpanState.DONE, SpanState.BAD}
            if all(row.since is None for row in rows if isinstance(row, File)) and all(
                span.state in ended for span in spans
            ):
                break
        self.check()
        bad = sum(row.end - row.begin for row in self.rows() if isinstance(row, Span) and row.state is SpanState.BAD)
        assert sum(self.published.values()) + bad == sum(self.sizes.values())


def _range(chunk: Chunk) -> tuple[str, int, int]:
    return chunk.key, chunk.begin, chunk.end


def run(stores: Sequence[Store], pipeline: str, seed: int, steps: int = 120) -> None:
    """A random sequence; AssertionError when something is wrong."""
    random = Random(seed)
    world = World(stores, pipeline, sites=1 + seed % 2)
    for _ in range(steps):
        world.step(random.choice(STEPS), random.randrange(12), random.randrange(24))
    world.drain()


STEPS = (
    *("grow", "grow", "scan", "cut", "cut", "lease", "lease", "lease", "lease", "finish", "finish", "finish"),
    *("publish", "wait", "wait", "poisoned", "poisoned", "die", "repeat", "dispatch", "retry", "collect", "site"),
    *("pause", "vanish", "repeat_published", "lose", "leave", "redo"),
)
