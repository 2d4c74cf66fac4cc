"""The topology of `heron verify run` for work units, which writes the lines of rotating logs to a table.

Its workers and keepers are the product's own, with additional points: steps at which a verification can kill or
pause a process. A verification arms a point with a file that contains the name of a signal. The first process at the
point takes the file and sends itself the signal. The processes also see the clock that the verification sets.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from heronpy.api.topology import TopologyBuilder
from heronpy.api.topology_context import TopologyContext
from heronpy.common.folders import make_folders, replace_file
from heronpy.ingest import LineFiles, LogUnits
from heronpy.ingest.keeper import LogKeeper
from heronpy.ingest.options import UnitOptions
from heronpy.ingest.outputs.lineage import Lineage
from heronpy.ingest.outputs.stages import Stages
from heronpy.ingest.unit import LogUnit
from heronpy.ingest.worker import LogWorker
from heronpy.loadtest.topologies.parts import submit
from heronpy.verify.units.logs import BAD, DEADLY

#: In the order of a unit: while rows are staged; before rows are on disk; before the ledger records the unit; before
#: the rename; before the ledger records the rename; before staged rows of losing attempts are removed.
POINTS = ("stage", "prepare", "record", "publish", "settle", "clean")
#: Component configuration: the folder of the points.
POINTS_KEY = "verify.points"
#: Lines of a unit before the point `stage`.
STAGED_LINES = 10
CLOCK_LOOK_S = 0.2
#: While a file with this name is in the folder of the points, user code waits.
HOLD, HOLD_LOOK_S = "hold", 0.05


class Taken(NamedTuple):
    """The process that has taken an armed point, and its unit and attempt."""

    pid: int
    unit: int
    attempt: int


class Points:
    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def arm(self, point: str, number: signal.Signals) -> None:
        """Send the signal to the next process at this point."""
        self._write(point, number.name)

    def set_clock(self, container: int, offset_s: float) -> None:
        """Set the wall clock of a container's processes `offset_s` seconds ahead."""
        self._write(f"clock-{container}", repr(offset_s))

    def _write(self, name: str, text: str) -> None:
        make_folders(self.folder)
        replace_file(self.folder / name, text.encode(), durable=False)

    def disarm(self, point: str) -> None:
        """Disarm a point that no process has reached."""
        (self.folder / point).unlink(missing_ok=True)

    def taken(self, point: str) -> Taken | None:
        """Return the process that has taken this point since the last call; None if no process has."""
        for path in self.folder.glob(f"{point}-*"):
            pid, unit, attempt = map(int, path.name.split("-")[1:])
            path.unlink()
            return Taken(pid, unit, attempt)
        return None

    def reach(self, point: str, unit: int, attempt: int) -> None:
        """If the point is armed, take it with this attempt at a unit, and send the signal to the calling process."""
        taken = self.folder / f"{point}-{os.getpid()}-{unit}-{attempt}"
        with suppress(FileNotFoundError):
            os.rename(self.folder / point, taken)
            with open(taken, encoding="ascii") as file:
                number = signal.Signals[file.read()]
            os.kill(os.getpid(), number)


class PointedStages(Stages):
    def __init__(self, options: UnitOptions, points: Points) -> None:
        super().__init__(options.place, options.replicas)
        self._points = points

    def finish(self, stage: Path, lineage: Lineage) -> None:
        self._points.reach("prepare", lineage.unit, lineage.attempt)
        super().finish(stage, lineage)
        self._points.reach("record", lineage.unit, lineage.attempt)

    def publish(self, generation: int, unit: int, winner: int) -> bool:
        self._points.reach("publish", unit, winner)
        restored = super().publish(generation, unit, winner)
        self._points.reach("settle", unit, winner)
        return restored

    def discard(self, stage: Path) -> None:
        unit, _, attempt = stage.name.partition("-")
        self._points.reach("clean", int(unit), int(attempt))
        super().discard(stage)


class PointedWorker(LogWorker):
    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        super().initialize(config, context)
        self._stages = PointedStages(self._options, Points(config[POINTS_KEY]))
        see_clock(Path(config[POINTS_KEY]), context.process.container)


class PointedKeeper(LogKeeper):
    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        super().initialize(config, context)
        self._stages = PointedStages(self._options, Points(config[POINTS_KEY]))
        see_clock(Path(config[POINTS_KEY]), context.process.container)


class Lines:
    """Makes a row of each line; poison raises or kills. `whole`: all lines are read before the first row."""

    def __init__(self, folder: str, whole: bool = False) -> None:
        self._points = Points(folder)
        self._whole = whole

    def __call__(self, unit: LogUnit) -> Any:
        while (self._points.folder / HOLD).exists():
            time.sleep(HOLD_LOOK_S)
        if self._whole:
            return list(self._rows(unit, list(unit.lines())))
        return self._rows(unit, unit.lines())

    def _rows(self, unit: LogUnit, lines: Iterable[str]) -> Iterator[str]:
        for number, line in enumerate(lines):
            if number == STAGED_LINES:
                self._points.reach("stage", unit.id, unit.attempt)
            if line.startswith(f"{BAD} "):
                raise ValueError(f"this line cannot be processed: {line}")
            if line.startswith(f"{DEADLY} "):
                os.kill(os.getpid(), signal.SIGSEGV)
            yield line


def see_clock(folder: Path, container: int) -> None:
    """Give this process the wall clock set by the verification, as on a host with a wrong clock."""
    path, wall, wall_ns = folder / f"clock-{container}", time.time, time.time_ns
    looked_at, offset = float("-inf"), 0.0

    def ahead() -> float:
        nonlocal looked_at, offset
        now = time.monotonic()
        if now - looked_at >= CLOCK_LOOK_S:
            looked_at = now
            with suppress(OSError, ValueError):
                offset = float(path.read_text(encoding="ascii"))
        return offset

    seen = {"time": lambda: wall() + ahead(), "time_ns": lambda: wall_ns() + int(ahead() * 1e9)}
    for name, clock in seen.items():
        setattr(time, name, clock)


PIPELINE = "lines"


def describe(run: dict[str, Any], made: TopologyBuilder) -> None:
    """Worker and keeper"""
    worker, keeper = LogUnits.specs(
        PIPELINE,
        logs=run["logs"],
        rows=Lines(run["points"], run["whole"]),
        output=LineFiles(run["table"]),
        workers=run["tasks"],
        ledger=run["ledger"],
        unit_bytes=run["unit_bytes"],
        unit_wait_s=run["unit_wait_s"],
        until=run["until"],
        site=run["site"],
    )
    for spec, kind in ((worker, PointedWorker), (keeper, PointedKeeper)):
        config = {**(spec.custom_config or {}), POINTS_KEY: run["points"]}
        made.add_spec(kind.spec(name=spec.name, par=spec.parallelism, config=config))


if __name__ == "__main__":
    submit(describe, __doc__)
