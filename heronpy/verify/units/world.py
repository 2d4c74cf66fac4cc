"""A verification of work units: rows in the table are the arrivals, and the judge of the logs gives the verdict."""

from __future__ import annotations

import json
import shutil
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import psutil

from heronpy.common.folders import make_folders
from heronpy.ingest.outputs.lineage import PREFIX, folder_name, record_of
from heronpy.loadtest.checks import Check
from heronpy.loadtest.cluster import Topology, submitted
from heronpy.loadtest.errors import LabError
from heronpy.verify.oracle import Limits, Verdict, longest_gap, memory_checks
from heronpy.verify.units.logs import RotatedLogs, TableVerdict, Writer, Written, judge
from heronpy.verify.units.server import PostgresServer
from heronpy.verify.units.topology import PIPELINE, Points, Taken
from heronpy.verify.world import BACK_S, World

PROGRAM = Path(__file__).with_name("topology.py")
#: Time limit for a process that a point has stopped or ended.
POINT_S = 120.0
#: Time until keepers have seen the last lines and the lines are in the table; lines that are missing then are lost.
LOOK_S = 20.0
#: The sites of a run with two sites; the faults affect the second one.
FIRST, SECOND = "east", "west"
#: Rotations per second of each log.
ROTATIONS_PER_S = 0.5
UNIT_BYTES, UNIT_WAIT_S = 32_768, 0.5
#: Folders of the home, so that a small disk can hold one of them.
LEDGERS, TABLES = "ledger", "tables"


@dataclass(slots=True)
class UnitWorld(World):
    settle_s: ClassVar[float] = 0.0
    #: The table and the ledger's URL of the topology.
    table: Path = field(default_factory=Path)
    ledger: str = ""
    writer: Writer | None = None
    written: Written | None = None
    #: Seconds without a topology because of a fault.
    down_s: float = 0.0
    #: The topology of the second site, and the server of a ledger in PostgreSQL.
    second: Topology | None = None
    server: PostgresServer | None = None
    #: Rows of each published unit.
    _rows: dict[str, int] = field(default_factory=dict)

    def begin(self, spec: dict[str, Any], stack: ExitStack) -> None:
        """Write logs, and submit the topology that reads them, on two sites if the specification requests it."""
        cluster, name = self.topology.cluster, self.topology.name
        logs, sites = self.out / "logs", spec["sites"]
        make_folders(logs)
        self.table = cluster.home / TABLES / name
        self.ledger = f"sqlite:{cluster.home / LEDGERS / f'{name}.db'}"
        if spec["server"]:
            self.server = PostgresServer()
            stack.callback(self.server.close)
            self.ledger = self.server.url
        stack.callback(shutil.rmtree, self.table, ignore_errors=True)
        rotated = RotatedLogs(logs, self.input.seed, [f"app-{n}.log" for n in range(spec["tasks"])], spec["poison"])
        # On several sites files keep their names.
        self.writer = Writer(rotated, self.input.rate, 0.0 if sites else ROTATIONS_PER_S)
        stack.callback(self.end_input)
        spec = {
            **spec,
            "logs": f"{logs}/app-*.log*",
            "table": str(self.table),
            "ledger": self.ledger,
            "points": str(self.points.folder),
            "unit_bytes": UNIT_BYTES,
            "unit_wait_s": UNIT_WAIT_S,
            "site": FIRST if sites else "",
        }
        self.writer.start()
        self.topology = stack.enter_context(submitted(cluster, PROGRAM, spec))
        if sites:
            own = {"name": f"{name}-{SECOND}", "out": str(self.out / SECOND), "site": SECOND}
            points = {"points": str(self.second_points.folder)}
            self.second = stack.enter_context(submitted(cluster, PROGRAM, spec | own | points))

    @property
    def points(self) -> Points:
        return Points(self.out / "points")

    @property
    def second_points(self) -> Points:
        """The points at which processes of the second site can be stopped."""
        return Points(self.out / "points-of-second")

    @property
    def ledger_file(self) -> Path:
        return Path(self.ledger.partition(":")[2])

    def published(self) -> list[Path]:
        """Return the folders of the published units, oldest first."""
        found: list[Path] = []
        with suppress(FileNotFoundError):
            found = [path for path in self.table.iterdir() if path.name.startswith(PREFIX)]
        return sorted(found, key=lambda path: path.stat().st_mtime)

    def arrived(self) -> int:
        """Return the number of rows in the table so far."""
        folders = self.published()
        for folder in folders:
            if folder.name not in self._rows:
                self._rows[folder.name] = record_of(folder).rows
        return sum(self._rows[folder.name] for folder in folders)

    def end_input(self) -> None:
        """Stop writing lines."""
        if self.writer is not None and self.written is None:
            self.written = self.writer.stop()

    def at_point(self, point: str, points: Points | None = None) -> Taken:
        """Wait until a process reaches the armed point."""
        armed = points or self.points
        try:
            return self.until(lambda: armed.taken(point), POINT_S, f"a process at the point '{point}'")
        finally:
            armed.disarm(point)

    def proceed(self, pid: int) -> None:
        """Send SIGCONT to a stopped process of this run; if the process has ended, another process may have its pid."""
        with suppress(psutil.Error):
            process = psutil.Process(pid)
            home = process.environ().get("HERON_HOME")
            if process.status() == psutil.STATUS_STOPPED and home == str(self.topology.cluster.home):
                process.resume()

    def attempt_of(self, unit: int, timeout_s: float = 2 * BACK_S) -> int:
        """Wait until a unit of the first generation is in the table; return the number of the attempt that won."""
        folder = self.table / folder_name(1, unit)
        self.until(folder.exists, timeout_s, f"unit {unit} in the table")
        return record_of(folder).attempt

    def figures(self) -> dict[str, Any]:
        """Return the figures of `heron units show`."""
        found: dict[str, Any] = json.loads(self.heron("units", "show", PIPELINE, "--ledger", self.ledger, "--json"))
        return found

    def settled(self) -> None:
        """Wait until no bytes are waiting and no unit is in progress. Raises LabError if a unit has failed permanently.

        The condition also holds briefly before keepers see the last lines; the wait for these lines lasts at most
        LOOK_S seconds.
        """

        def is_settled() -> bool:
            found = self.figures()
            if found["units"].get("failed", (0, 0))[0]:
                raise LabError("a unit has failed: " + "; ".join(str(one["error"]) for one in found["live"]))
            return not found["waiting_bytes"] and not any(count for count, _ in found["units"].values())

        def is_complete() -> bool:
            return is_settled() and self.written is not None and not judge(self.table, self.written).missing

        self.until(is_settled, 2 * BACK_S, "the end of all units")
        end = time.monotonic() + LOOK_S
        self.until(lambda: is_complete() or time.monotonic() > end, 2 * LOOK_S, "the last lines")

    def differences(self) -> list[str]:
        """Return the differences that `heron units check` finds."""
        try:
            self.heron("units", "check", PIPELINE, "--table", self.table, "--ledger", self.ledger)
        except LabError as error:
            return str(error).splitlines()
        return []

    def verdict(self, limits: Limits) -> Verdict:
        """Return the judge's verdict in the form of other verifications; a unit counts as a key."""
        self.end_input()
        assert self.written is not None
        found = judge(self.table, self.written)
        verdict = Verdict(self.mode, found.expected, self.complete, memory=self.memory)
        verdict.arrived, verdict.loss, verdict.duplicates = found.arrived, len(found.missing), len(found.doubled)
        verdict.unexplained, verdict.foreign = len(found.doubled), len(found.foreign) + len(found.innocent)
        verdict.keys, verdict.wrong_keys = found.units, len(found.wrong_units)
        verdict.stall_s = longest_gap(np.array([path.stat().st_mtime for path in self.published()]))
        verdict.checks = _checks(found, self.differences(), self.complete)
        text = f"longest time without a new unit {verdict.stall_s:.2f} s"
        verdict.checks.append(Check("liveness", verdict.stall_s <= limits.stall_max_s + self.down_s, text))
        verdict.checks += memory_checks(verdict, limits)
        self.notes |= {"bad": found.bad, "thrown_lines": found.thrown, "thrown_and_missed": found.thrown_missing}
        return verdict


def _checks(found: TableVerdict, differences: list[str], complete: bool) -> list[Check]:
    def named(what: str, lines: list[str]) -> str:
        return f"{len(lines):,} {what}" + (f", such as {lines[0]}" if lines else "")

    strange = found.foreign + found.innocent
    absent = "lines lost" if complete else "lines had not arrived when the run was abandoned"
    return [
        Check("input", not strange, named("rows of unknown lines, or bad ranges of good lines", strange)),
        Check("loss", not found.missing, f"{named(absent, found.missing)}, of {found.expected:,}"),
        Check("duplicates", not found.doubled, named("lines are duplicated in the table", found.doubled)),
        Check("lineage", not found.wrong_units, named(f"of {found.units:,} units are wrong", found.wrong_units)),
        Check("agreement", not differences, named("differences between table, ledger and bytes", differences)),
    ]
