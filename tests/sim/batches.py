"""Batch runs under everything that can go wrong: workers and keepers die, stop, are preempted and replaced at any step,
leases run out, the ledger is away, and the logs grow and rotate behind the boundary.

Keepers and workers are the product's own, with a topology of three stages. What stands in for the machine is that of
work units. A judge that knows every line reads the result, the savepoint, and the tables of the stages.
"""

from __future__ import annotations

import json
import os
import random
import traceback
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from heronpy import Bolt, Grouping, TopologyBuilder
from heronpy.batch import exchange, finalise, keeper, sources, splits, steps
from heronpy.batch.keeper import BatchKeeper
from heronpy.batch.record import RunRecord, RunState
from heronpy.batch.rows import StageRows
from heronpy.batch.run import Run, Runs
from heronpy.batch.stages import divide
from heronpy.batch.steps import Steps
from heronpy.batch.topology import RUN_KEY
from heronpy.batch.worker import BatchWorker
from heronpy.ckpt.state_bytes import decode_segment
from heronpy.common import exit_codes
from heronpy.common.settings import resolve
from heronpy.connectors.files import FileSink, units
from heronpy.connectors.textfiles.textfilespout import TextFileSpout
from heronpy.ingest.ledger.types import Config, File, Seal, Tally
from heronpy.ingest.ledger.validate import validate
from heronpy.ingest.outputs.lineage import Lineage, published
from heronpy.plan.component_config import config_of
from heronpy.storage.checkpoints import CheckpointStore
from heronpy.storage.locations import open_location
from heronpy.verify.units.logs import overlaps
from heronpy.wire.codec import decoder
from tests.sim.disk import Disk
from tests.sim.kernel import Process, Thread, World, current_process
from tests.sim.run import Result
from tests.sim.units import Bounded, Cluster, replaced, simulated, units_simulator
from tests.sim.units_faults import Faults
from tests.sim.units_machine import Delegate, Ledger, SimStages
from tests.support.launch import launch_spec
from tests.support.memory_ledger import MemoryStore

KEYS = 17
#: So long a run may take when there are no faults any more.
END_S = 900.0
#: The steps of a run that others see, at which a process may die, besides those of its stages and its ledger.
STEPS: tuple[tuple[Any, str], ...] = (
    (steps, "make_record"),
    (steps, "write_list"),
    (units, "publish_file"),
    (CheckpointStore, "put_shared"),
    (CheckpointStore, "write_metadata"),
    (keeper, "drop_files"),
    (Run, "write"),
    (Steps, "note"),
)


class Key(Bolt):
    """The checksum of a line, and a key that follows from it."""

    outputs = ["key", "crc"]

    def process(self, tup: Any) -> None:
        crc = zlib.crc32(tup.values[0].encode())
        self.emit([f"k{crc % KEYS}", crc])


class Count(Bolt):
    """Number and sum of the checksums of each key."""

    outputs = ["key", "count", "sum"]

    def initialize(self, config: Any, context: Any) -> None:
        self.totals, self.changed = context.keyed_state("totals"), set[str]()

    def process(self, tup: Any) -> None:
        key, crc = tup.values
        count, total = self.totals.get(key, (0, 0))
        self.totals[key] = (count + 1, total + crc)
        self.changed.add(key)

    def process_tick(self, tup: Any) -> None:
        for key in sorted(self.changed):
            self.emit([key, *self.totals[key]])


class All(Bolt):
    """The number of all lines."""

    outputs = ["count"]
    count = 0

    def process(self, tup: Any) -> None:
        self.count += tup.values[1]

    def finish(self) -> None:
        self.emit([self.count])


def topology(home: Path) -> TopologyBuilder:
    """Lines, counts by key, and the count of all, in three stages."""
    made = TopologyBuilder("sim")
    given = {TextFileSpout.PATHS: f"{home}/logs/*.log*", TextFileSpout.FOLLOW: True}
    lines = made.add_spout("lines", TextFileSpout, 1, config=given)
    key = made.add_bolt("key", Key, 2, inputs={lines: Grouping.SHUFFLE})
    ticks = {"topology.tick.tuple.freq.secs": 1}
    count = made.add_bolt("count", Count, 2, inputs={key: Grouping.fields("key")}, config=ticks)
    every = made.add_bolt("every", All, 1, inputs={count: Grouping.LOWEST})
    made.add_spec(FileSink.spec("counts", {count: Grouping.SHUFFLE}, folder=f"{home}/counts", fields=Count.outputs))
    made.add_spec(FileSink.spec("all", {every: Grouping.SHUFFLE}, folder=f"{home}/all", fields=All.outputs))
    made.set_config({"topology.reliability.mode": "EFFECTIVELY_ONCE", "heron.batch.unit_bytes": 4096})
    return made


class Store(MemoryStore):
    """Says when the first pipeline of a run is sealed."""

    def __init__(self, world: World, sealed: Callable[[], None]) -> None:
        super().__init__(lambda: world.now)
        self._sealed: Callable[[], None] | None = sealed

    def transact(self, pipeline: str, decide: Any, lasting: bool = True) -> Any:
        answer = super().transact(pipeline, decide)
        if self._sealed is not None and any(isinstance(row, Seal) for row in self.snapshot(pipeline)):
            sealed, self._sealed = self._sealed, None
            sealed()
        return answer


class Batch(Bounded):
    """A batch run, and then one without faults that takes its input."""

    def __init__(self, world: World, home: Path, lock: bool) -> None:
        built = topology(home).build()
        self.stages, self.runs, self.lock, self.holder = divide(built), Runs(home / "batch", "sim"), lock, None
        self.built = built
        settings = resolve("local", (), config_of(built), {}, ()).settings
        launch_spec("sim", "sim-1", home, settings=settings).save(home / "launch.json")
        self.launch, self.groups = str(home / "launch.json"), int(settings["checkpoint"]["key_groups"])
        self.ledgers: dict[str, Ledger] = {}
        #: The content of the logs by inode, at the begin of the run and when its input was sealed.
        self.at_begin: dict[int, bytes] = {}
        self.at_seal: dict[int, bytes] = {}
        self.seen: set[tuple[str, int]] = set()
        self.run: Run | None = None
        world.disk = Disk(world, home / "saved")  # type: ignore[attr-defined]
        super().__init__(world, home, Config(pattern=f"{home}/logs/*.log*"))

    def begin(self, **about: Any) -> None:
        for process in self.world.processes:
            process.kill()
        given = {"hold": False, "like": "", "savepoints": str(self.folder / "saved"), "saves": True} | about
        record = RunRecord(
            topology="sim", number=0, cluster="local", role="me", environ="default", code="",
            submitted_at=self.world.now, key_groups=self.groups, **given,
        )  # fmt: skip
        with self.runs.locked():
            self.run = self.runs.begin(record, self.built)
        self.ledger = self.ledgers[self.run.ledger] = Ledger(self.world, self.run.ledger[-12:])
        self.ledger.store = Store(self.world, self._sealed)
        self.at_begin, self.pipeline = self._content(), self.run.pipeline(1)
        for task in range(self.tasks):
            self.start(task)

    def _content(self) -> dict[int, bytes]:
        """All whole lines of the logs."""
        found = {entry.stat().st_ino: Path(entry.path).read_bytes() for entry in os.scandir(self.logs.folder)}
        return {inode: data[: data.rfind(b"\n") + 1] for inode, data in found.items()}

    def _sealed(self) -> None:
        self.at_seal = self._content()

    # ---- processes --------------------------------------------------------------------------
    def start(self, task: int, after: str = "") -> None:
        if self.run is not None:
            self.done.discard(task)
            super().start(task, after)

    def ledger_at(self, url: str) -> Ledger:
        return self.ledgers[url]

    def _component(self, task: int) -> str:
        return "batch" if self._kind(task) == "worker" else "batch-keeper"

    def _run(self, process: Process, task: int, after: str) -> None:
        kind: type[Any] = BatchWorker if self._kind(task) == "worker" else BatchKeeper
        delegate, thread = Delegate(self), Thread.current()
        spout = kind(delegate)
        assert thread is not None
        context = self._context(task, after)
        try:
            spout.initialize({RUN_KEY: str(self.run.folder)}, context)
            while process.program != "preempted":
                delegate.wait_s = 0.0
                spout.next_tuple()
                thread.sleep((delegate.wait_s or 0.001) * process.rng.uniform(1.0, 1.1))
            spout.close()
            process.exit(exit_codes.TERMINATED)
        except Exception as error:
            self.world.wrong(f"{process.name}: " + "".join(traceback.format_exception(error)))
        process.exit(1)

    # ---- what must hold ---------------------------------------------------------------------
    def begins(self, number: int) -> None:
        """A unit of a stage begins: all that come before are complete."""
        key = current_process().name, number
        if key not in self.seen:
            self.seen.add(key)
            for stage in self.stages[: number - 1]:
                if self._open_bytes(stage.number):
                    self.world.wrong(f"stage {number} begins before stage {stage.number} is complete")

    def _ends(self, number: int) -> dict[str, int]:
        """The bytes of the files that a stage reads, by key."""
        rows = self.ledger.store.snapshot(self.run.pipeline(number))
        return {f"{row.key} {row.generation}": row.size for row in rows if isinstance(row, File)}

    def _lineages(self, number: int) -> list[Lineage]:
        return [lineage for _, lineage in published(str(self.run.table(number)))]

    def _open_bytes(self, number: int) -> dict[str, int]:
        """The bytes of these files that no published unit has, or more than one; nothing if all is well."""
        left = Counter(self._ends(number))
        for lineage in self._lineages(number):
            for chunk in lineage.chunks:
                left[f"{chunk.key} {chunk.generation}"] -= chunk.end - chunk.begin
        return {key: count for key, count in left.items() if count}

    def rows(self, sink: str) -> list[bytes]:
        """The published rows of a sink in the order of the files' names."""
        paths = sorted((self.folder / sink).glob("part-*"))
        return [line for path in paths for line in path.read_bytes().splitlines()]

    def staged(self, sink: str) -> list[bytes]:
        """The rows of a sink in the files of the units, in the order of the input."""
        folders = [unit for stage in self.stages for unit in exchange.unit_folders(self.run.table(stage.number))]
        paths = [path for unit in folders for path in sorted(unit.glob(f"sink-{sink}*"))]
        return [line for path in paths for line in path.read_bytes().splitlines()]

    def judge(self) -> None:
        """The result, the savepoint and the boundary agree, and are those of the lines."""
        wrong, record = self.world.wrong, self.run.record
        if record.state is not (RunState.HELD if record.hold else RunState.FINISHED):
            wrong(f"the run is {record.state}: {record.cause}")
            return
        for stage in self.stages:
            rows = self.ledger.store.snapshot(self.run.pipeline(stage.number))
            for problem in [*validate(rows), *overlaps(self._lineages(stage.number))]:
                wrong(f"stage {stage.number}: {problem}")
            if left := self._open_bytes(stage.number):
                wrong(f"stage {stage.number} has not processed {left}, or more than once")
            tally = next((row for row in rows if isinstance(row, Tally)), Tally())
            self.stats.update(backups=tally.backups, in_vain=tally.in_vain, preempted=tally.preempted)
            if charged := tally.tries_failed:
                wrong(f"stage {stage.number} has charged {charged} attempts, and no one was at fault")
        self.stats["units"] += sum(len(self._lineages(stage.number)) for stage in self.stages)
        if not record.hold:
            self._judge_result(record)

    def _judge_result(self, record: RunRecord) -> None:
        wrong, lines = self.world.wrong, []
        saved = self._saved(record)
        ends = {inode: end for rows in saved["lines"].values() for _, _, inode, _, end, *_ in rows[2:]}
        for inode, content in self.at_seal.items():
            end, first = ends.pop(inode, 0), len(self.at_begin.get(inode, b""))
            if not first <= end <= len(content) or (end and content[end - 1 : end] != b"\n"):
                wrong(
                    f"a stream goes on at {end} of a file with {first} bytes at the begin, {len(content)} at the seal"
                )
            lines += content[:end].decode().splitlines()
        if any(ends.values()):
            wrong(f"a stream goes on behind {ends} bytes of files that came after the seal")
        expected: dict[str, list[int]] = {}
        for line in lines:
            crc = zlib.crc32(line.encode())
            count = expected.setdefault(f"k{crc % KEYS}", [0, 0])
            count[0], count[1] = count[0] + 1, count[1] + crc
        found = [json.loads(row) for row in self.rows("counts")]
        if sorted((row["key"], row["count"], row["sum"]) for row in found) != sorted(
            (key, *count) for key, count in expected.items()
        ):
            wrong(f"the counts are {found}, and should be {expected}")
        if {key: list(value) for key, value in saved["count"].items()} != expected:
            wrong(f"the savepoint has {saved['count']}, and should have {expected}")
        if [json.loads(row)["count"] for row in self.rows("all")] != [len(lines)]:
            wrong(f"{self.rows('all')} of {len(lines)} lines")
        if sorted(self.rows("counts")) != sorted(self.staged("counts")):
            wrong("what is published is not what the units of the tables have")
        self.stats["lines"] += len(lines)

    def _saved(self, record: RunRecord) -> dict[str, dict[Any, Any]]:
        """The keyed state of each component in the savepoint."""
        store, metadata = open_location(record.savepoint)
        found: dict[str, dict[Any, Any]] = {}
        for task in metadata.tasks:
            content = found.setdefault(task.component, {})
            for segment in (segment for keyed in task.keyed for segment in keyed.segments):
                for one in decode_segment(store.read(segment.file), decoder(allow_pickle=True))[1]:
                    if one.key in content:
                        self.world.wrong(f"the savepoint has the key {one.key!r} of {task.component} twice")
                    content[one.key] = one.value
        return found

    def judge_like(self, first: Run) -> None:
        """A run without faults over the same input has the same rows; with as many buckets in the same order."""
        self.judge()
        again, is_equal = [self.staged(sink) for sink in ("counts", "all")], None
        self.run, mine = first, self.run
        before = [self.staged(sink) for sink in ("counts", "all")]
        if (first.folder / "prepared.json").read_bytes() != (mine.folder / "prepared.json").read_bytes():
            again, before = ([sorted(rows) for rows in one] for one in (again, before))
        else:
            self.stats["same_order"] += 1
        is_equal = again == before
        if not is_equal:
            self.world.wrong(f"a run without faults gives {again}, and the first one has given {before}")


class BatchFaults(Faults):
    """The logs grow, and are rotated by renaming; processes are preempted as well."""

    def __init__(self, cluster: Batch, rng: random.Random, among: tuple[str, ...] = ()) -> None:
        self.grows = rng.random() < 0.6
        super().__init__(cluster, rng, among or KINDS)

    def _write(self, log: str) -> None:
        logs, rng = self.cluster.logs, self.rng
        if not self.grows or not self._grow():
            return
        act = rng.choices([logs.rename, logs.begin, lambda log: logs.append(log, rng.randint(1, 30))], (1, 2, 12))[0]
        act(log)
        logs.note()
        self.world.later(rng.uniform(0.05, 2.0), self._write, log)

    def _preempt(self) -> None:
        victim = self._victim("worker")
        if victim is not None:
            victim.program = "preempted"


KINDS = ("kill", "kill", "fuse", "fuse", "stop", "stop", "away", "preempt")


def _batch() -> Batch:
    assert isinstance(Cluster.active, Batch)
    return Cluster.active


@contextmanager
def batch_simulator() -> Iterator[Path]:
    """What stands in for the machine."""
    with units_simulator() as folder, _patched():
        yield folder


def _step() -> None:
    """A step that others see: time passes, and the process may end."""
    process, thread = current_process(), Thread.current()
    process.operate()
    assert thread is not None
    thread.sleep(process.rng.uniform(0.0, 0.01))


def _stepped(real: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **more: Any) -> Any:
        if Thread.current() is None:
            return real(*args, **more)
        _step()
        result = real(*args, **more)
        _step()
        return result

    return call


@contextmanager
def _one_at_a_time(of: Steps, wait: Any) -> Iterator[None]:
    """A file lock, which ends with its process; without one, two hosts end a run at once."""
    batch, thread, process = _batch(), Thread.current(), current_process()
    assert thread is not None
    while batch.lock and batch.holder is not None and batch.holder.alive:
        thread.sleep(0.05)
    batch.holder = process
    try:
        yield
    finally:
        batch.holder = None


@contextmanager
def _patched() -> Iterator[None]:
    rows = StageRows.__call__

    def slowly(self: StageRows, unit: Any) -> Iterator[Any]:
        process, thread = current_process(), Thread.current()
        assert thread is not None
        _batch().begins(self._stage.number)
        for pieces in rows(self, unit):
            process.operate()
            thread.sleep(process.rng.uniform(0.0, 0.4))
            yield pieces

    patches: list[tuple[Any, str, Any]] = [
        *((owner, name, _stepped(getattr(owner, name))) for owner, name in STEPS),
        (StageRows, "__call__", slowly),
        (SimStages, "mark_end", _stepped(SimStages.mark_end)),
        (finalise, "_one_at_a_time", _one_at_a_time),
        (steps, "uuid4", lambda: f"{current_process().rng.getrandbits(64):x}"),
        (sources, "CHUNK", 16),
        (splits, "BUCKET_BYTES", 1024),
        (splits, "UNIT_MIN_BYTES", 600),
        (splits, "UNIT_MAX_BYTES", 600),
    ]
    with replaced(patches):
        yield


def run_batch(seed: int, folder: Path, *, among: tuple[str, ...] = (), story: bool = False) -> Result:
    """A run under faults, and one without them over the same input, inside `batch_simulator()`."""

    def play(world: World, home: Path, stats: Counter[str]) -> None:
        rng = world.chance("batch")
        cluster = Batch(world, home, lock=rng.random() < 0.5)
        cluster.stats = stats
        before = os.environ.get("HERON_LAUNCH")
        os.environ["HERON_LAUNCH"] = cluster.launch
        try:
            for log in cluster.logs.written.lines:
                cluster.logs.append(log, rng.randint(1, 800))
            cluster.logs.note()
            cluster.begin()
            faults = BatchFaults(cluster, rng, among)
            world.run(faults.until, lambda: False)
            faults.end()
            _to_the_end(cluster, cluster.judge)
            first = cluster.run
            cluster.begin(hold=True, like=first.record.run)
            _to_the_end(cluster, lambda: cluster.judge_like(first))
        finally:
            os.environ.pop("HERON_LAUNCH")
            if before is not None:
                os.environ["HERON_LAUNCH"] = before

    return simulated(seed, folder, story, play, "batch")


def _to_the_end(cluster: Batch, judge: Callable[[], None]) -> None:
    world = cluster.world
    if not world.violations and not world.run(world.now + END_S, cluster.is_over) and not world.violations:
        world.wrong(f"run {cluster.run.record.run} has not ended; {sorted(cluster.done)} have")
    if not world.violations:
        judge()
