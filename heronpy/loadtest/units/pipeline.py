"""A pipeline of work units of one profile: its folder, its topology, and what its table has."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from heronpy.common.folders import make_folders
from heronpy.ingest.outputs.lineage import published, record_of
from heronpy.loadtest.cluster import Cluster, LoadTestError, Topology, submitted
from heronpy.loadtest.topologies.log_units import ATTEMPTS
from heronpy.loadtest.unit_lines import Began, attempts_of
from heronpy.proto import control_pb2

_PROGRAMS = Path(__file__).parents[1] / "topologies"
NAME = "units"
#: How often the table is looked at.
LOOK_S = 0.01
_LOST = (control_pb2.LIFE_FAILED,)


class Pipeline:
    """See the module."""

    def __init__(self, where: Cluster, name: str) -> None:
        self.cluster = where
        self.name = f"load-units-{name}"
        self.folder = where.scratch / self.name
        self.logs, self.table, self.out = self.folder / "logs", self.folder / "table", self.folder / "out"
        self.ledger = f"sqlite:{self.folder / 'ledger' / 'units.db'}"
        make_folders(self.logs)
        #: When each published unit was first seen (monotonic ns), by its folder.
        self.seen: dict[str, int] = {}
        self._rows: dict[str, int] = {}

    def log(self, name: str) -> Path:
        """The path of a log."""
        return self.logs / f"{name}.log"

    @contextmanager
    def running(self, function: str, *flags: str, program: str = "log_units", **changes: Any) -> Iterator[Topology]:
        """The topology with this function; killed in the end."""
        parameters = {
            "function": function,
            "logs": str(self.logs / "*.log"),
            "table": str(self.table),
            "ledger": self.ledger,
            "facts": str(self.out),
            "parquet": False,
            "workers": 2,
            "bounded": False,
            "unit_bytes": 32 << 20,
            "unit_wait_s": 2.0,
            **{key: value for key, value in changes.items() if key not in ("mode", "settings")},
        }
        spec = {
            "name": self.name,
            "out": str(self.out),
            "containers": 1,
            "mode": changes.get("mode", "ATMOST_ONCE"),
            "max_spout_pending": 10_000,
            "message_timeout_s": 60,
            "settings": changes.get("settings", {}),
            "parameters": parameters,
        }
        with submitted(self.cluster, _PROGRAMS / f"{program}.py", spec, *flags) as topology:
            yield topology

    # ---- the table ----------------------------------------------------------------------------
    def look(self) -> int:
        """Look at the table once; how many units are published."""
        try:
            names = os.listdir(self.table)
        except FileNotFoundError:
            return 0
        now = time.monotonic_ns()
        for name in names:
            if name.startswith("unit=") and name not in self.seen:
                self.seen[name] = now
        return len(self.seen)

    def until(self, holds: Callable[[], bool], deadline_s: float, what: str, topology: Topology) -> None:
        """Look at the table until it holds; LoadTestError when it does not."""
        deadline = time.monotonic() + deadline_s
        status_at = time.monotonic() + 5.0
        while True:
            self.look()
            if holds():
                return
            now = time.monotonic()
            if now > deadline:
                said = topology.exceptions()
                raise LoadTestError(f"'{self.name}': {what} did not happen within {deadline_s:.0f} s\n{said}".rstrip())
            if now > status_at:
                status = topology.status()
                if status is not None and status.lifecycle in _LOST:
                    raise LoadTestError(f"'{self.name}' failed: {status.cause}\n{topology.exceptions()}".rstrip())
                status_at = now + 5.0
            time.sleep(LOOK_S)

    def rows(self) -> int:
        """How many rows are published, by the records of the units; each is read once."""
        self.look()
        for name in self.seen.keys() - self._rows.keys():
            self._rows[name] = record_of(self.table / name).rows
        return sum(self._rows.values())

    def texts(self) -> Iterator[tuple[str, str]]:
        """Name and content of each published unit."""
        for folder, _ in published(str(self.table)):
            yield folder.name, (folder / "part-0.txt").read_text("utf-8")

    def visible_ns(self) -> dict[int, int]:
        """When each unit was first seen, by its number."""
        return {int(name.rpartition("-")[2]): at for name, at in self.seen.items()}

    def attempts(self) -> list[Began]:
        """What the function has written down."""
        path = self.out / ATTEMPTS
        return attempts_of(path.read_text("ascii")) if path.exists() else []
