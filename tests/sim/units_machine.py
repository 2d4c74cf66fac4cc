"""What stands in for the machine of work units: the ledger's database over a network, stages that take time, and logs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from heronpy.common.errors import LedgerAwayError
from heronpy.ingest.ledger.store import Decide
from heronpy.ingest.ledger.validate import validate
from heronpy.ingest.outputs.lineage import Lineage
from heronpy.ingest.outputs.stages import Stages
from heronpy.verify.units.logs import RotatedLogs
from tests.sim.kernel import Thread, World, current_process
from tests.sim.modules import Time
from tests.support.memory_ledger import MemoryStore

if TYPE_CHECKING:
    from tests.sim.units import Cluster

T = TypeVar("T")


class Clock(Time):
    """A look takes no time."""

    @staticmethod
    def thread_time() -> float:
        return 0.0


class Ledger:
    """The database, reached over a network: an answer may get lost, and so may a question."""

    def __init__(self, world: World, name: str = "ledger") -> None:
        self.world = world
        self.rng = world.chance(name)
        self.away = False
        #: Of questions, and of answers.
        self.loss = 0.0
        self.store = MemoryStore(lambda: world.now)
        self.requests = 0

    def transact(self, pipeline: str, decide: Decide[T], lasting: bool = True) -> T:
        self._travel()
        if self.away or self.rng.random() < self.loss:
            self._lost("did not get a question")
        current_process().operate()
        self.requests += 1
        answer = self.store.transact(pipeline, decide)
        for problem in validate(self.store.news(pipeline)) if self.requests % 8 == 0 else ():
            self.world.wrong(f"the ledger is not sound: {problem}")
        self._travel()
        if self.rng.random() < self.loss:
            self._lost("answered, and nobody heard")
        return answer

    def _lost(self, how: str) -> None:
        self.world.trace.note("ledger", f"{how}: {current_process().name}")
        raise LedgerAwayError("no answer")

    def _travel(self) -> None:
        thread = Thread.current()
        assert thread is not None
        thread.sleep(self.rng.uniform(0.0002, 0.004))

    def pipelines(self) -> tuple[str, ...]:
        return self.store.pipelines()

    def close(self) -> None:
        """Nothing is open."""


class SimStages(Stages):
    """The product's stages; time passes around each step, and a process may end there."""

    def _step(self) -> None:
        process, thread = current_process(), Thread.current()
        process.operate()
        assert thread is not None
        thread.sleep(process.rng.uniform(0.0, 0.005))

    def make(self, generation: int, unit: int, attempt: int) -> Path:
        self._step()
        return super().make(generation, unit, attempt)

    def finish(self, stage: Path, lineage: Lineage) -> None:
        self._step()
        super().finish(stage, lineage)
        self._step()

    def publish(self, generation: int, unit: int, winner: int) -> bool:
        self._step()
        restored = super().publish(generation, unit, winner)
        self._step()
        return restored

    def discard(self, stage: Path) -> None:
        self._step()
        super().discard(stage)

    def staged_units(self, generation: int) -> dict[int, list[Path]]:
        found = super().staged_units(generation)
        self._step()
        return found

    def drop_older(self, generation: int) -> None:
        self._step()
        super().drop_older(generation)


class Delegate:
    """What the runtime does for a spout."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.wait_s = 0.0

    def wait(self, seconds: float) -> None:
        self.wait_s = max(self.wait_s, seconds)

    def wait_outside(self, outage: str, pause_s: float) -> None:
        self._cluster.world.trace.note("outage", f"{current_process().name}: {outage}")

    def busy(self) -> None:
        """Called again at once."""

    def end_of_input(self) -> None:
        self._cluster.has_ended(current_process())

    def report_error(self, error: Exception) -> None:
        self._cluster.world.trace.note("error", f"{current_process().name}: {type(error).__name__}")
        self._cluster.stats[type(error).__name__] += 1

    def log(self, message: str, level: str | None = None) -> None:
        self._cluster.world.trace.tick("log")

    logger = None


class Logs(RotatedLogs):
    """Seeded logs; when a file has changed is known in simulated time."""

    def __init__(self, world: World, folder: Path, names: tuple[str, ...], poison: int) -> None:
        super().__init__(folder, world.seed, names, poison)
        self.world = world
        self._changed: dict[int, tuple[tuple[int, int], float]] = {}

    def changed_ns(self, status: os.stat_result) -> int:
        known, now = (status.st_size, status.st_ctime_ns), self.world.now
        if self._changed.get(status.st_ino, (None, 0.0))[0] != known:
            self._changed[status.st_ino] = known, now
        return int((self._changed[status.st_ino][1] + 1.7e9) * 1e9)

    def note(self) -> None:
        """Something was done to the files."""
        for entry in os.scandir(self.folder):
            self.changed_ns(entry.stat(follow_symlinks=False))

    def forget(self, log: str, keep: int) -> int:
        """Remove rotated files of a log beyond the newest ones; how many."""
        count = self._rotated(log)
        for number in range(keep + 1, count + 1):
            os.unlink(self.folder / f"{log}.{number}")
        return max(0, count - keep)
