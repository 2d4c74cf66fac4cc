"""Two pipelines on the same logs, of which the second waits for the first: by units, or for a set of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import replace

from heronpy.ingest import LineFiles
from heronpy.ingest.ledger.types import Config
from heronpy.ingest.outputs.lineage import PREFIX
from heronpy.ingest.unit import LogUnit
from heronpy.verify.units.logs import read_rows
from tests.sim.kernel import Process, World
from tests.sim.run import Result
from tests.sim.units import KEEPERS, PIPELINE, WORKERS, Cluster, settle, simulated
from tests.sim.units_faults import Faults

#: Not the loss of the ledger: it is of both.
KINDS = ("kill", "fuse", "stop", "away")


class First(Cluster):
    """The pipeline that goes ahead; faults strike the processes of both."""

    second: Second | None = None

    def replace(self, process: Process) -> None:
        if self.second is not None and process.name.startswith(self.second.prefix):
            self.second.replace_own(process)
        else:
            super().replace(process)


class Second(Cluster):
    """The pipeline that waits. What it is given to process must be in the table of the first."""

    prefix, pipeline = "second.", "second"

    def __init__(self, first: First, config: Config) -> None:
        self.first = first
        self._there: set[str] = set()
        self._read: set[str] = set()
        #: Lines that were there before any process: those of a set.
        self.begun = set(first.logs.written.all_lines())
        self._join(first, config)

    def _join(self, first: First, config: Config) -> None:
        self.world, self.folder, self.rng = first.world, first.folder, first.rng
        self.logs, self.ledger, self.running = first.logs, first.ledger, first.running
        self.stats, self.incarnations = Counter[str](), Counter[str]()
        self.pace_s, self.slow, self.closed_for_rebuild = 0.0, first.slow, False
        self.config, self.table = config, first.folder / "second"
        self.options = replace(first.options, pipeline=self.pipeline, config=config, output=LineFiles(str(self.table)))
        for task in range(WORKERS + KEEPERS):
            self.start(task)

    def replace_own(self, process: Process) -> None:
        Cluster.replace(self, process)

    def rows(self, unit: LogUnit) -> Iterator[str]:
        lines = list(unit.lines())
        wanted = self.begun if self.config.after_all else set(lines)
        missing = self._missing(wanted)
        if missing:
            self.world.wrong(f"{len(missing)} lines are processed before the first pipeline has them: {min(missing)}")
        yield from lines

    def _missing(self, lines: set[str]) -> set[str]:
        missing = lines - self._there
        if missing and self.first.table.exists():
            for folder in self.first.table.glob(f"{PREFIX}*"):
                if folder.name not in self._read:
                    self._read.add(folder.name)
                    self._there.update(read_rows(folder))
            missing -= self._there
        return missing - self.logs.written.thrown_lines() if missing else missing


def run_two(seed: int, folder: Path, *, story: bool = False) -> Result:
    """One run, inside `units_simulator()`."""

    def play(world: World, home: Path, stats: Counter[str]) -> None:
        rng = world.chance("two")
        how = rng.choice(("after", "after_all"))
        config = Config(
            pattern=f"{home}/logs/*.log*",
            unit_bytes=rng.choice((300, 2_000)),
            unit_wait_s=rng.choice((0.0, 0.5, 3.0)),
        )
        first = First(world, home, config)
        for log in first.logs.written.lines:
            first.logs.append(log, rng.randint(1, 200))
        first.logs.note()
        # The second one is eager: what it does not wait for, it has first.
        second = first.second = Second(first, replace(config, unit_wait_s=0.0, **{how: (PIPELINE,)}))
        first.stats = stats
        # Of bytes that were thrown away a shorter copy may be left: their unit waits until somebody removes it.
        settle(world, Faults(first, rng, KINDS, throws=False), [first, second])
        stats.update({how: 1, "second_units": second.stats["units"]})

    return simulated(seed, folder, story, play)
