"""A running verification of work units: what arrives are rows in the table, and the input are logs."""

from __future__ import annotations

import json
import signal
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from heronpy.loadtest.cluster import Topology
from heronpy.verify.errors import VerifyError
from heronpy.verify.units.judge import judge
from heronpy.verify.units.logs import Writer, Written
from heronpy.verify.units.points import Points, Taken
from heronpy.verify.units.server import PostgresServer
from heronpy.verify.units.topology import PIPELINE
from heronpy.verify.world import BACK_S, World

#: Of a process that a point has stopped or ended.
POINT_S = 120.0
#: Until keepers have seen the last lines, and these are in the table; what is missing then is lost.
LOOK_S = 20.0
#: The sites of a run with two of them: the faults are the second one's.
FIRST, SECOND = "east", "west"


@dataclass(slots=True)
class UnitWorld(World):
    """The target of the faults."""

    #: Of the topology's files: its logs, the table, the ledger's URL, the points.
    logs: Path = field(default_factory=Path)
    table: Path = field(default_factory=Path)
    ledger: str = ""
    writer: Writer | None = None
    written: Written | None = None
    #: For how long there was no topology, because a fault wanted it so.
    down_s: float = 0.0
    #: The topology of the second site, and the server of a ledger in PostgreSQL.
    second: Topology | None = None
    server: PostgresServer | None = None
    #: Rows of each published unit, and when the last one was seen first.
    _rows: dict[str, int] = field(default_factory=dict)

    @property
    def points(self) -> Points:
        """The steps at which processes end."""
        return Points(self.out / "points")

    @property
    def second_points(self) -> Points:
        """Those of the second site."""
        return Points(self.out / "points-of-second")

    @property
    def ledger_file(self) -> Path:
        """The database of SQLite."""
        return Path(self.ledger.partition(":")[2])

    def arrived(self) -> int:
        """Rows in the table so far."""
        try:
            folders = [path for path in self.table.iterdir() if path.name.startswith("unit=")]
        except FileNotFoundError:
            return 0
        for folder in folders:
            if folder.name not in self._rows:
                self._rows[folder.name] = _rows_of(folder)
        return sum(self._rows[folder.name] for folder in folders)

    def published(self) -> list[Path]:
        """The folders of the published units, oldest first."""
        found = [path for path in self.table.iterdir() if path.name.startswith("unit=")]
        return sorted(found, key=lambda path: path.stat().st_mtime)

    def end_input(self) -> int:
        """No further line is written; returns how many there are."""
        if self.writer is not None and self.written is None:
            self.written = self.writer.stop()
        return sum(self.written.lines.values()) if self.written is not None else 0

    # ---- points -----------------------------------------------------------------------------
    def at_point(self, point: str, points: Points | None = None) -> Taken:
        """Wait for a process at the armed point."""
        armed = points or self.points
        try:
            return self.until(lambda: armed.taken(point), POINT_S, f"a process at the point '{point}'")
        finally:
            armed.disarm(point)

    def proceed(self, pid: int) -> None:
        """SIGCONT, unless its executor has ended it meanwhile: then another process may have the pid."""
        with suppress(psutil.Error):
            process = psutil.Process(pid)
            if process.status() == psutil.STATUS_STOPPED and process.environ().get("HERON_HOME") == str(
                self.topology.cluster.home
            ):
                process.send_signal(signal.SIGCONT)

    def attempt_of(self, unit: int, timeout_s: float = 2 * BACK_S) -> int:
        """Wait until a unit of the first generation is in the table; the number of its attempt."""
        folder = self.table / f"unit=1-{unit}"
        self.until(folder.exists, timeout_s, f"unit {unit} in the table")
        return int(json.loads((folder / "_unit.json").read_text(encoding="utf-8"))["attempt"])

    # ---- the command ------------------------------------------------------------------------
    def figures(self) -> dict[str, Any]:
        """What `heron units show` says."""
        found: dict[str, Any] = json.loads(self.heron("units", "show", PIPELINE, "--ledger", self.ledger, "--json"))
        return found

    def settled(self) -> None:
        """Wait until nothing waits and no unit is under way; VerifyError when one has failed for good.

        For a moment that is so before keepers have looked at the last lines, too: what is missing gets time to come.
        """

        def is_settled() -> bool:
            found = self.figures()
            if found["units"].get("failed", (0, 0))[0]:
                raise VerifyError("a unit has failed: " + "; ".join(str(one["error"]) for one in found["live"]))
            return not found["waiting_bytes"] and not any(count for count, _ in found["units"].values())

        def is_complete() -> bool:
            return is_settled() and self.written is not None and not judge(self.table, self.written).missing

        self.until(is_settled, 2 * BACK_S, "the end of all units")
        end = time.monotonic() + LOOK_S
        self.until(lambda: is_complete() or time.monotonic() > end, 2 * LOOK_S, "the last lines")

    def differences(self) -> list[str]:
        """What `heron units check` finds."""
        words = ("units", "check", PIPELINE, "--table", self.table, "--ledger", self.ledger)
        try:
            self.heron(*words)
        except VerifyError as error:
            return str(error).splitlines()
        return []


def units_of(world: World) -> UnitWorld:
    """The world of a fault of work units."""
    assert isinstance(world, UnitWorld)
    return world


def _rows_of(folder: Path) -> int:
    return int(json.loads((folder / "_unit.json").read_text(encoding="utf-8"))["rows"])
