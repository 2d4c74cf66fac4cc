"""Several ledgers and one table: sites whose partition map changes, and the same program from another home; and runs
that are sealed while their logs grow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from heronpy.common.errors import LedgerAwayError, LedgerError, NoPipelineError
from heronpy.ingest import checking
from heronpy.ingest.ledger import machine
from heronpy.ingest.ledger.ranges import union
from heronpy.ingest.ledger.requests import Open, Who
from heronpy.ingest.ledger.types import Config, File, Kind, Pipeline, Row, Seal, Span, SpanState
from heronpy.ingest.options import UnitOptions
from heronpy.ingest.outputs.stages import Stages
from heronpy.verify.units.logs import Written, judge
from tests.sim.kernel import START_S, Thread, World, current_process
from tests.sim.run import Result
from tests.sim.units import PIPELINE, SETTLE_S, TASKS, Bounded, Cluster, settle, simulated
from tests.sim.units_faults import Faults
from tests.sim.units_machine import Ledger
from tests.support.memory_ledger import MemoryStore

URLS = ("sim:a", "sim:b", "sim:c")
#: A minute in the name of a log is a second here. A change of the map is announced
#: `AHEAD_S` before it begins, which is longer than any outage.
FIRST_DAY, AHEAD_S = datetime(2027, 1, 1, tzinfo=UTC), 20.0
KINDS = ("kill", "kill", "fuse", "stop", "stop", "away")


def _time_at(now: float) -> datetime:
    return FIRST_DAY + timedelta(minutes=now - START_S)


class Several(Cluster):
    """Two groups of processes, which may have other ledgers."""

    tasks = 2 * TASKS
    groups = ("one", "two")

    def __init__(self, world: World, folder: Path, config: Config, poison: int = 0) -> None:
        self.ledgers = {url: Ledger(world, url) for url in URLS}
        super().__init__(world, folder, config, poison)
        self.ledger = self.ledgers[URLS[0]]

    def _name(self, task: int) -> str:
        return f"{self.groups[task // TASKS]}.{super()._name(task)}"

    def ledger_at(self, url: str) -> Ledger:
        return self.ledgers[url]

    def owners(self) -> dict[str, tuple[Row, ...]]:
        """The rows of each ledger to which the table belongs."""
        about = Stages(str(self.table)).pipeline()
        found = {url: one.store.snapshot(PIPELINE) for url, one in self.ledgers.items()}
        return {url: rows for url, rows in found.items() if about is not None and _of(rows).ledger == about.ledger}

    def parts(self) -> list[tuple[Row, ...]]:
        return list(self.owners().values())


def _of(rows: tuple[Row, ...]) -> Pipeline:
    """The first row, or that of no pipeline."""
    return next((row for row in rows if isinstance(row, Pipeline)), Pipeline(0, 0.0, 0, 0, 0, False, 0.0, ""))


class SeveralFaults(Faults):
    """Each ledger may be away alone."""

    def __init__(self, cluster: Several, rng: Any, among: tuple[str, ...] = KINDS) -> None:
        self.ledgers = list(cluster.ledgers.values())
        super().__init__(cluster, rng, among, throws=False)
        for ledger in self.ledgers:
            ledger.loss = cluster.ledger.loss

    def _away(self) -> None:
        ledger = self.rng.choice(self.ledgers)
        ledger.away = True
        self.world.later(self.rng.uniform(0.5, 12.0), setattr, ledger, "away", False)

    def end(self) -> None:
        super().end()
        for ledger in self.ledgers:
            ledger.away, ledger.loss = False, 0.0


# ---- the partition map ----------------------------------------------------------------------
class Sites(Several):
    """Two sites that see the same logs; their programs differ in the partition map, which changes while they run."""

    groups = ("east", "west")

    def __init__(self, world: World, folder: Path, config: Config, poison: int) -> None:
        later = _time_at(START_S + world.chance("map").uniform(AHEAD_S, 40.0)).isoformat()
        west = f'[{{"until": "{later}", "urls": ["sim:a"]}}, {{"urls": ["sim:a", "sim:b"]}}]'
        self.maps = ("sim:a", west)
        super().__init__(world, folder, config, poison)

    def options_of(self, task: int) -> UnitOptions:
        """Always the options of its first submit, although the map may have changed."""
        site = task // TASKS
        return replace(self.options, site=self.groups[site], ledger=self.maps[site])

    def take(self, url: str) -> None:
        """A ledger in which another user has a pipeline of that name."""
        opening = Open(self.config, ledger="another", partitions=f'{{"entries":[{{"urls":["{url}"]}}],"version":1}}')
        who = Who("other", "1", Kind.COMMAND)
        store = self.ledgers[url].store
        store.transact(PIPELINE, lambda view, now: machine.handle(view, opening, who, 0, now))

    def change(self) -> None:
        """`heron units partition`, which may die half way."""
        process = self.world.spawn("partition", "host-0", lambda process: Thread(process, self._change).start())
        if self.rng.random() < 0.4:
            process.fuse = self.rng.randint(1, 20)

    def _change(self) -> None:
        rng, thread = current_process().rng, Thread.current()
        assert thread is not None
        urls = rng.sample(URLS, rng.randint(1, 3))
        since = _time_at(self.world.now + AHEAD_S + rng.uniform(1.0, 20.0)).isoformat()
        while True:
            try:
                with closing(checking.command_of(URLS[0], PIPELINE)) as reached:
                    reached.add_entry(urls, since, _time_at(self.world.now).timestamp())
                self.stats["changes"] += 1
                break
            except (LedgerAwayError, NoPipelineError):
                thread.sleep(1.0)
            except LedgerError as error:
                self.world.trace.note("refused", str(error))
                self.stats["changes_refused"] += 1
                break
        current_process().exit(0)

    def judge(self) -> None:
        super().judge()
        found = self.owners()
        maps = {_of(rows).partitions for rows in found.values()}
        if len(maps) != 1:
            self.world.wrong(f"the ledgers have several partition maps: {sorted(maps)}")
        self.stats["several"] += sum(any(isinstance(row, File) for row in rows) for rows in found.values()) > 1


class SiteFaults(SeveralFaults):
    """Each log has a new file each few seconds, which is named after the time, and none is renamed."""

    def __init__(self, cluster: Sites, rng: Any) -> None:
        super().__init__(cluster, rng)
        if rng.random() < 0.4:
            cluster.take(URLS[2])
        for _ in range(rng.randint(1, 3)):
            self.world.at(START_S + rng.uniform(1.0, 20.0), None, cluster.change)
        # Files of the time of the last change come, too.
        self.until = START_S + 20.0 + 2 * AHEAD_S + 10.0

    def _write(self, log: str) -> None:
        logs, rng, now = self.cluster.logs, self.rng, self.world.now
        if now < START_S + 70.0:
            born = _time_at(now - (now - START_S) % 5.0)
            name = f"{log[0]}-{born:%Y-%m-%d-%H%M}.log"
            logs.written.lines.setdefault(name, 0)
            logs.append(name, rng.randint(1, 30))
            logs.note()
            self.world.later(rng.uniform(0.1, 6.0), self._write, log)


# ---- another home ---------------------------------------------------------------------------
class Homes(Several):
    """The same program from two homes, each with a ledger of its own."""

    groups = ("home", "other")

    def options_of(self, task: int) -> UnitOptions:
        return replace(self.options, ledger=URLS[task // TASKS])

    def lose(self) -> None:
        """All topologies are killed, and either of the two ledgers is rebuilt from the table."""
        if self.owners() and not self.closed_for_rebuild:
            url = self.rng.choice(URLS[:2])
            self.ledger, self.options = self.ledgers[url], replace(self.options, ledger=url)
            super().lose()

    def judge(self) -> None:
        super().judge()
        self.stats["refused"] = self.stats["raised"]
        owners = self.owners()
        if len(owners) != 1:
            self.world.wrong(f"the table belongs to {len(owners)} ledgers")
        for url in URLS[:2] if not self.stats["rebuilds"] else ():
            rows = self.ledgers[url].store.snapshot(PIPELINE)
            if url not in owners and any(isinstance(row, File) for row in rows):
                self.world.wrong(f"{url} has files of a table that belongs to another ledger")


# ---- sealed runs ----------------------------------------------------------------------------
class SealedStore(MemoryStore):
    """Tells the sizes of all files when a run is sealed."""

    def __init__(self, world: World, sealed: Callable[[str, dict[int, int]], None]) -> None:
        super().__init__(lambda: world.now)
        self._sealed = sealed

    def transact(self, pipeline: str, decide: Any, lasting: bool = True) -> Any:
        before = self._seals(pipeline)
        answer = super().transact(pipeline, decide)
        for run in self._seals(pipeline) - before:
            self._sealed(run, {one.id: one.size for one in self.snapshot(pipeline) if isinstance(one, File)})
        return answer

    def _seals(self, pipeline: str) -> set[str]:
        tables = self._tables.get(pipeline)
        return {row.run for row in tables.every(Seal)} if tables is not None else set()


class Sealed(Bounded):
    """Bounded runs, one after the other."""

    def __init__(self, world: World, folder: Path, config: Config, poison: int) -> None:
        super().__init__(world, folder, config, poison)
        self.options = replace(self.options, bounded=True)
        self.ledger.store = SealedStore(world, self._seal)
        self.sizes: dict[str, dict[int, int]] = {}

    def _seal(self, run: str, sizes: dict[int, int]) -> None:
        if run in self.sizes:
            self.world.wrong(f"run {run} is sealed twice")
        self.sizes[run] = sizes

    def begin(self) -> None:
        """A new run, after all processes of the run before have ended."""
        self.closed_for_rebuild = True
        for process in self.world.processes:
            process.kill()
        self.stats["runs"] += 1
        self.closed_for_rebuild, self.run_id = False, f"sim-{self.stats['runs'] + 1}"
        self.done.clear()
        for log in self.logs.written.lines:
            self.logs.finish(log)
        self.logs.note()
        self.begun = Written(self.logs.written.seed, self.logs.written.poison, dict(self.logs.written.lines))
        for task in range(self.tasks):
            self._again(task, "")

    def start(self, task: int, after: str = "") -> None:
        if self.run_id != Cluster.run_id:
            self.done.discard(task)
            super().start(task, after)

    def check(self) -> None:
        """Exactly the sealed bytes are done, and all bytes of the start were sealed."""
        rows, sealed = self.ledger.store.snapshot(PIPELINE), self.sizes.get(self.run_id)
        done: dict[int, list[tuple[int, int]]] = {row.id: [] for row in rows if isinstance(row, File)}
        for row in rows:
            if isinstance(row, Span) and row.state is not SpanState.UNIT:
                done[row.file].append((row.begin, row.end))
        found = {file: union(spans) for file, spans in done.items()}
        if sealed is None or found != {file: [(0, size)] if size else [] for file, size in sealed.items()}:
            self.world.wrong(f"{self.run_id} has done {found}, and was sealed with {sealed}")
        if missing := judge(self.table, self.begun).missing:
            self.world.wrong(f"{self.run_id} has not {len(missing)} lines that were there at its start: {missing[0]}")


class Growing(Faults):
    """The logs grow and rotate as long as `grows`."""

    grows = True

    def _grow(self) -> bool:
        return self.grows


# ---- runs -----------------------------------------------------------------------------------
def _player(
    kind: type[Any], faults: Callable[[Any, Any], Faults], finish: Callable[..., None]
) -> Callable[..., Result]:
    """What plays one run, inside `units_simulator()`."""

    def run(seed: int, folder: Path, *, story: bool = False) -> Result:
        def play(world: World, home: Path, stats: Counter[str]) -> None:
            rng = world.chance(kind.__name__)
            size, wait_s = rng.choice((300, 2_000, 20_000)), rng.choice((0.0, 0.5, 3.0))
            config = Config(f"{home}/logs/*.log*", unit_bytes=size, unit_wait_s=wait_s)
            cluster = kind(world, home, config, rng.choice((0, 0, 150)))
            cluster.stats = stats
            finish(world, faults(cluster, rng), [cluster])

        return simulated(seed, folder, story, play)

    return run


def _in_runs(world: World, faults: Growing, clusters: list[Sealed]) -> None:
    """Runs while logs grow, and a last one after they have stopped."""
    [cluster] = clusters
    while not world.violations and faults.grows:
        faults.grows = world.now < faults.until
        if not faults.grows:
            faults.end()
        cluster.begin()
        if not world.run(max(world.now, faults.until) + SETTLE_S, cluster.is_over) and not world.violations:
            world.wrong(f"{cluster.run_id} has not ended")
        if not world.violations:
            cluster.check()
            world.run(world.now + faults.rng.uniform(0.0, 5.0), lambda: False)
    if not world.violations:
        cluster.judge()


run_sites = _player(Sites, SiteFaults, settle)
run_homes = _player(Homes, lambda cluster, rng: SeveralFaults(cluster, rng, (*KINDS, "lose")), settle)
run_sealed = _player(Sealed, lambda cluster, rng: Growing(cluster, rng, KINDS, throws=False), _in_runs)
