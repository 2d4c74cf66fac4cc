"""Work units under everything that can go wrong between logs, workers, keepers, ledger and table.

Workers and keepers are the product's own, and so is all below them, on real files in memory: what a look sees, what is
read, staged and renamed. Models are the ledger's database (answers get lost, it is away), the processes (they die,
stop, and continue next to their successors), and time. A judge that knows the seed reads the table.
"""

from __future__ import annotations

import os
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from msgspec.structs import fields

from heronpy.common import exit_codes
from heronpy.common.errors import GaveUpError, LedgerAwayError, LedgerError
from heronpy.growing import scan
from heronpy.ingest import LineFiles, asking, checking, options, watch
from heronpy.ingest.agreement import disagreements
from heronpy.ingest.bad import record_name
from heronpy.ingest.keeper import LogKeeper
from heronpy.ingest.keys import OPTIONS_KEY, ROWS_KEY
from heronpy.ingest.ledger import reaching
from heronpy.ingest.ledger.beginning import SCANNED_S
from heronpy.ingest.ledger.requests import Line
from heronpy.ingest.ledger.types import Config, File, Pipeline, Row, Span, SpanState, Unit, UnitState
from heronpy.ingest.ledger.validate import validate
from heronpy.ingest.options import UnitOptions
from heronpy.ingest.outputs.lineage import published
from heronpy.ingest.outputs.stages import Stages
from heronpy.ingest.unit import LogUnit
from heronpy.ingest.worker import LogWorker
from heronpy.verify.units.logs import BAD, DEADLY, judge
from tests.sim.kernel import START_S, Process, Thread, World, current_process
from tests.sim.modules import SimEvent, SimThread
from tests.sim.run import Result, played, simulator
from tests.sim.units_faults import STOPPED_S, Faults
from tests.sim.units_machine import Clock, Delegate, Ledger, Logs, SimStages
from tests.support.memory_ledger import MemoryStore

PIPELINE, LEDGER = "logs", "sim:"
WORKERS, KEEPERS = 3, 2
SETTLE_S = SCANNED_S + 300.0
#: Several looks of all keepers, after the last change and after a rebuild.
LOOKED_S = 20.0
TASKS = WORKERS + KEEPERS
#: Most seconds from the end of an executor to the end of its tasks.
ORPHANED_S = 30.0
#: How the end of a process is known to its successor.
ENDS = {9: "killed", 11: "crashed", 256: "user_exception", exit_codes.TERMINATED << 8: "preempted"}


class Cluster:
    """Everything that runs in one simulation."""

    active: Cluster | None = None
    #: Of its processes' names, its pipeline, its topology's id, and how many tasks there are.
    prefix, pipeline, run_id, tasks = "", PIPELINE, "sim-1", TASKS
    #: When the ledger was rebuilt last.
    rebuilt_at = 0.0

    def __init__(self, world: World, folder: Path, config: Config, poison: int = 0, slow: bool = True) -> None:
        self.world, self.folder = world, folder
        Cluster.active = self
        self.rng = world.chance("cluster")
        self.stats: Counter[str] = Counter()
        self.table = folder / "table"
        self.logs = Logs(world, folder / "logs", ("a.log", "b.log"), poison)
        self.logs.folder.mkdir()
        self.ledger = Ledger(world)
        #: Seconds that an idle process waits at least, for simulated days.
        self.pace_s = 0.0
        self.slow = slow
        self.config = config
        self.options = UnitOptions(
            self.pipeline,
            config.pattern,
            LEDGER,
            LineFiles(str(self.table)),
            config,
            given=frozenset(item.name for item in fields(Config)),
        )
        self.incarnations: Counter[str] = Counter()
        self.running: dict[str, Process] = {}
        self.closed_for_rebuild = False
        for number in range(self.tasks):
            self.start(number)

    # ---- processes --------------------------------------------------------------------------
    def _name(self, task: int) -> str:
        return f"{self.prefix}{self._kind(task)}-{task}"

    def _component(self, task: int) -> str:
        return f"{self.prefix}{self._kind(task)}"

    @staticmethod
    def _kind(task: int) -> str:
        return "worker" if task % TASKS < WORKERS else "keeper"

    def options_of(self, task: int) -> UnitOptions:
        """As its program was submitted."""
        return self.options

    def ledger_at(self, url: str) -> Ledger:
        """Who connects reaches it."""
        return self.ledger

    def has_ended(self, process: Process) -> None:
        """It says that its input has ended."""
        raise AssertionError("an endless pipeline has ended")

    def start(self, task: int, after: str = "") -> None:
        name = self._name(task)
        self.incarnations[name] += 1
        process = self.world.spawn(name, f"host-{task % 2}", lambda process: self._main(process, task, after))
        process.on_exit.append(lambda status: self._ended(process, task, status))
        self.running[name] = process

    def _ended(self, process: Process, task: int, status: int) -> None:
        if self.running.get(process.name) is process:
            del self.running[process.name]
            if not self.closed_for_rebuild:
                self.world.later(self.rng.uniform(0.1, 2.0), self._again, task, ENDS.get(status, "killed"))

    def _again(self, task: int, after: str) -> None:
        name = self._name(task)
        if name not in self.running and not self.closed_for_rebuild:
            self.start(task, after)

    def replace(self, process: Process) -> None:
        """Its host is given up while it is stopped: from then on a successor runs concurrently."""
        task = int(process.name.rpartition("-")[2])
        if self.running.get(process.name) is process and process.stopped:
            self.stats["zombies"] += 1
            self._orphan(process, STOPPED_S)
            self.start(task, "lost")

    def _orphan(self, process: Process, awake_s: float) -> None:
        """Its executor is gone; it may act for a while after it wakes up in `awake_s` seconds."""
        self.world.later(awake_s + ORPHANED_S, process.kill)

    def _main(self, process: Process, task: int, after: str) -> None:
        Thread(process, lambda: self._run(process, task, after)).start()

    def _run(self, process: Process, task: int, after: str) -> None:
        kind: type[Any] = LogWorker if self._kind(task) == "worker" else LogKeeper
        delegate = Delegate(self)
        spout = kind(delegate)
        thread = Thread.current()
        assert thread is not None
        context = self._context(task, after)
        try:
            spout.initialize({OPTIONS_KEY: self.options_of(task), ROWS_KEY: self.rows}, context)
            while True:
                delegate.wait_s = 0.0
                spout.next_tuple()
                idle_s = max(delegate.wait_s, self.pace_s) if delegate.wait_s else 0.001
                thread.sleep(idle_s * process.rng.uniform(1.0, 1.1))
        except (LedgerError, GaveUpError) as error:
            # As of a zombie whose ledger was replaced.
            self.world.trace.note("raised", f"{process.name}: {error}")
            self.stats["raised"] += 1
        except Exception as error:
            self.world.wrong(f"{process.name}: " + "".join(traceback.format_exception(error)))
        process.exit(1)

    def _context(self, task: int, after: str) -> SimpleNamespace:
        count = WORKERS if self._kind(task) == "worker" else KEEPERS
        return SimpleNamespace(
            get_topology_name=lambda: "sim",
            get_topology_id=lambda: self.run_id,
            get_component_id=lambda: self._component(task),
            get_task_id=lambda: task % TASKS,
            get_component_tasks=lambda component: range(count),
            register_metric=lambda *about: None,
            process=SimpleNamespace(container=task % 2, after=after),
        )

    def rows(self, unit: LogUnit) -> Iterator[str]:
        process, thread = current_process(), Thread.current()
        assert thread is not None
        for number, line in enumerate(unit.lines()):
            if self.slow and number % 16 == 0:
                thread.sleep(process.rng.uniform(0.0, 0.02))
            if line.startswith(f"{BAD} "):
                raise ValueError(line)
            if line.startswith(f"{DEADLY} "):
                process.kill(11)
                process.vanish()
            yield line

    # ---- a lost ledger ----------------------------------------------------------------------
    def lose(self) -> None:
        """Kill all processes except those asleep on a lost host, rebuild the ledger, and start all again."""
        if self.closed_for_rebuild or not self.table.exists():
            return
        self.closed_for_rebuild = True
        for process in list(self.running.values()):
            if process.stopped:
                self._orphan(process, STOPPED_S)
            elif self.rng.random() < 0.4:
                process.stop()
                awake_s = self.rng.uniform(0.5, 20.0)
                self.world.later(awake_s, process.proceed)
                self._orphan(process, awake_s)
                self.stats["zombies"] += 1
            else:
                process.kill()
        self.running.clear()
        self.ledger.store = MemoryStore(lambda: self.world.now)
        command = self.world.spawn("rebuild", "host-0", lambda process: Thread(process, self._rebuild).start())
        command.on_exit.append(lambda status: self._rebuilt())

    def _rebuild(self) -> None:
        thread = Thread.current()
        assert thread is not None
        try:
            while True:
                try:
                    checking.rebuild(self.options.ledger, PIPELINE, str(self.table))
                    break
                except LedgerAwayError:
                    thread.sleep(0.5)
                except LedgerError as error:
                    if "was seen" not in str(error) and "were seen" not in str(error):
                        raise
                    # A zombie asks the new ledger.
                    thread.sleep(5.0)
            self.stats["rebuilds"] += 1
        except Exception as error:
            self.world.wrong("rebuild: " + "".join(traceback.format_exception(error)))
        current_process().exit(0)

    def _rebuilt(self) -> None:
        self.closed_for_rebuild, self.rebuilt_at = False, self.world.now
        for task in range(self.tasks):
            self._again(task, "")

    # ---- what must hold ---------------------------------------------------------------------
    def parts(self) -> list[tuple[Row, ...]]:
        """The rows of each ledger of the pipeline."""
        return [self.ledger.store.snapshot(self.pipeline)]

    def is_settled(self) -> bool:
        if self.closed_for_rebuild or self.world.now < self.rebuilt_at + LOOKED_S:
            return False
        return all(map(self._is_settled, self.parts() or [()]))

    def _is_settled(self, rows: tuple[Row, ...]) -> bool:
        units = [row for row in rows if isinstance(row, Unit) and row.state is not UnitState.FAILED]
        waits = units or any(row.since is not None for row in rows if isinstance(row, File))
        return bool(rows) and not waits and not self._unrecorded(rows)

    def _unrecorded(self, rows: Iterable[Any]) -> int:
        """The number of bad ranges whose record a keeper has still to write."""
        spans = [row for row in rows if isinstance(row, Span) and row.state is SpanState.BAD and row.unit and row.tries]
        generation = next(row.generation for row in rows if isinstance(row, Pipeline))
        lines = (Line(span.file, span.begin, span.end) for span in spans)
        return sum(not Stages(str(self.table)).has_bad(record_name(generation, line)) for line in lines)

    def judge(self) -> None:
        world = self.world
        for problem in (problem for part in self.parts() for problem in validate(part)):
            world.wrong(f"the ledger is not sound: {problem}")
        found = judge(self.table, self.logs.written)
        for what in ("missing", "doubled", "foreign", "innocent", "wrong_units"):
            lines = getattr(found, what)
            if lines:
                world.wrong(f"{len(lines)} {what}, such as {lines[0]}")
        if not found.wrong_units:
            lineages = [lineage for _, lineage in published(str(self.table))]
            for problem in disagreements([row for part in self.parts() for row in part], lineages, lineages):
                world.wrong(problem)
        self.stats.update(lines=found.expected, units=found.units, bad=found.bad, thrown=found.thrown_missing)


class Bounded(Cluster):
    """The tasks of a run end with its input."""

    def __init__(self, world: World, folder: Path, config: Config, poison: int = 0) -> None:
        self.done: set[int] = set()
        super().__init__(world, folder, config, poison)

    def has_ended(self, process: Process) -> None:
        """The task does nothing more."""
        self.done.add(int(process.name.rpartition("-")[2]))
        thread = Thread.current()
        assert thread is not None
        thread.sleep(1e9)

    def is_over(self) -> bool:
        """Whether all tasks have ended, however the logs grow."""
        return len(self.done) == self.tasks


def _active() -> Cluster:
    assert Cluster.active is not None, "nothing is simulated now"
    return Cluster.active


@contextmanager
def units_simulator() -> Iterator[Path]:
    """What stands in for the machine, and an empty folder in memory."""
    with simulator() as folder, _patched():
        yield folder


@contextmanager
def _patched() -> Iterator[None]:
    def opened(url: str, must_exist: bool = False) -> Ledger:
        return _active().ledger_at(url)

    def entry(path: str, status: os.stat_result) -> scan.Entry:
        changed_ns = _active().logs.changed_ns(status)
        return scan.Entry(path, status.st_dev, status.st_ino, status.st_size, changed_ns)

    threads = SimpleNamespace(Thread=lambda **about: SimThread(about["target"], about["args"]), Event=SimEvent)
    uuids = SimpleNamespace(uuid4=lambda: f"{current_process().rng.getrandbits(64):x}")
    patches: list[tuple[Any, str, Any]] = [
        (asking, "threading", threads),
        (asking, "uuid", uuids),
        (asking, "leave", lambda code: current_process().exit(code)),
        (reaching, "open_store", opened),
        (checking, "Stages", SimStages),
        (options, "Stages", SimStages),
        (watch, "time", Clock()),
        (scan, "_entry", entry),
    ]
    with replaced(patches):
        yield


@contextmanager
def replaced(patches: Sequence[tuple[Any, str, Any]]) -> Iterator[None]:
    """Attributes of modules and classes have other values for a while: (owner, name, value)."""
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in patches]
    for owner, name, value in patches:
        setattr(owner, name, value)
    try:
        yield
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)


def simulated(
    seed: int, folder: Path, story: bool, play: Callable[[World, Path, Counter[str]], None], what: str = "units"
) -> Result:
    """One run in a home of its own below the folder."""
    home = folder / f"units-{seed:06}"

    def at_home(world: World, result: Result) -> None:
        result.mode = what
        play(world, home, result.stats)

    home.mkdir()
    try:
        return played(seed, at_home, events_max=30_000_000, story=story, again=f"make sim WHAT={what}")
    finally:
        Cluster.active = None
        _remove(home)


def _remove(folder: Path) -> None:
    for root, folders, files in os.walk(folder, topdown=False):
        for name in files:
            os.unlink(os.path.join(root, name))
        for name in folders:
            os.rmdir(os.path.join(root, name))
    os.rmdir(folder)


def settle(world: World, faults: Faults, clusters: list[Cluster]) -> None:
    """Faults until their end; then all must come to theirs."""
    world.run(faults.until, lambda: False)
    faults.end()
    world.run(world.now + LOOKED_S, lambda: False)
    while not world.violations and not all(cluster.is_settled() for cluster in clusters):
        if world.now > faults.until + SETTLE_S:
            world.wrong(f"not settled {SETTLE_S:g} s after the last fault")
        world.run(world.now + 2.0, lambda: False)
    for cluster in clusters if not world.violations else ():
        cluster.judge()


def run_units(seed: int, folder: Path, *, among: tuple[str, ...] = (), story: bool = False) -> Result:
    """One run, inside `units_simulator()`: faults, then all must come to its end."""

    def play(world: World, home: Path, stats: Counter[str]) -> None:
        rng = world.chance("units")
        config = Config(
            pattern=f"{home}/logs/*.log*",
            unit_bytes=rng.choice((300, 2_000, 20_000)),
            unit_wait_s=rng.choice((0.0, 0.5, 3.0)),
            unpublished_units=rng.choice((2, 64)),
        )
        cluster = Cluster(world, home, config, poison=rng.choice((0, 0, 150)))
        cluster.stats = stats
        faults = Faults(cluster, rng, among)
        settle(world, faults, [cluster])

    return simulated(seed, folder, story, play)


def run_days(seed: int, folder: Path, days: float, pace_s: float) -> tuple[Result, list[Counter[str]]]:
    """Days of collection of logs that rotate hourly; the sizes of all state at the end of each day."""
    sizes: list[Counter[str]] = []

    def play(world: World, home: Path, stats: Counter[str]) -> None:
        config = Config(pattern=f"{home}/logs/*.log*", unit_bytes=2_000, unit_wait_s=2.0, days=0.5)
        cluster = Cluster(world, home, config, slow=False)
        cluster.stats, cluster.pace_s = stats, pace_s
        rng = world.chance("days")

        def hour() -> None:
            if world.now > START_S + (days - 0.01) * 86_400.0:
                return
            for log in cluster.logs.written.lines:
                cluster.logs.append(log, rng.randint(1, 20))
                if rng.random() < 0.5:
                    cluster.logs.rename(log)
                    stats["removed"] += cluster.logs.forget(log, 6)
            cluster.logs.note()
            if rng.random() < 0.3 and cluster.running:
                cluster.running[rng.choice(sorted(cluster.running))].kill()
            world.later(3_600.0, hour)

        hour()
        for day in range(1, int(days) + 1):
            world.run(START_S + day * 86_400.0, lambda: False)
            sizes.append(cluster_size(cluster))
        cluster.judge()

    return simulated(seed, folder, False, play), sizes


def cluster_size(cluster: Cluster) -> Counter[str]:
    """How much of everything there is that must not grow with time."""
    size: Counter[str] = Counter(type(row).__name__ for row in cluster.ledger.store.snapshot(PIPELINE))
    size["stages"] = sum(len(stages) for stages in Stages(str(cluster.table)).staged_units(1).values())
    size["bytes"] = sum(
        len(repr(row)) for row in cluster.ledger.store.snapshot(PIPELINE) if isinstance(row, File | Span)
    )
    return size
