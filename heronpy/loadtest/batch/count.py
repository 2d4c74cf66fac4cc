"""The keyed count of one scene: its logs, its topology, its result, and the signals sent to its workers.

CPU and time are measured from a topology's activation to its end. Start-up is excluded, also for the contenders.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any, NamedTuple

from heronpy.loadtest.checks import Check
from heronpy.loadtest.cluster import Cluster, Topology
from heronpy.loadtest.inputs import USERS
from heronpy.loadtest.processes import Tree
from heronpy.loadtest.run import LogScene
from heronpy.loadtest.watch import watch_whole

PATIENCE_S, SLOWEST_BYTES_S = 120.0, 200_000
WORKER = "task batch"
BATCH = ("--mode", "batch")
#: Function that runs in another thread with a running topology, until the event is set.
During = Callable[[Topology, Event], None]


class Ran(NamedTuple):
    """Duration and CPU of a run, and the highest mean private memory of a worker."""

    cpu_s: float
    seconds: float
    worker_bytes: float


class Count(LogScene):
    def __init__(self, where: Cluster, name: str, logs: Path | None = None) -> None:
        super().__init__(where, f"batch-{name}", logs)

    @contextmanager
    def running(self, *flags: str, work: str = "", settings: Any = None, **parameters: Any) -> Iterator[Topology]:
        """Submit the topology, and kill it at the end; `work` selects what its bolts do."""
        settings = {"heron.checkpoint.interval_s": 2.0, **(settings or {})}
        own = {"work": work, "logs": f"{self.logs}/*.log", "table": str(self.table), **parameters}
        with self.submitted("keyed_count", own, "EFFECTIVELY_ONCE", settings, *flags) as topology:
            yield topology

    def run(self, *flags: str, during: During | None = None, size: int = 0, **about: Any) -> Ran:
        """Run the topology to its end. `size`: input bytes (default: the logs). Raises LabError if it fails."""
        size = size or sum(path.stat().st_size for path in self.logs.iterdir())
        ended = Event()
        with self.running("--deploy-deactivated", *flags, **about) as topology:
            if during is not None:
                Thread(target=during, args=(topology, ended), daemon=True).start()
            try:
                seen = watch_whole(topology, PATIENCE_S + size / SLOWEST_BYTES_S)
            finally:
                ended.set()
        sizes = [roles[WORKER]["uss"] / roles[WORKER]["processes"] for _, roles in seen.memory if WORKER in roles]
        seconds = seen.cpu[-1].at - seen.cpu[0].at
        return Ran(sum(seen.spent().values()), seconds, max(sizes, default=0.0))

    def command(self, work: str = "") -> float:
        """Submit the topology as a batch and wait for its end; return the seconds. Raises LabError if it fails."""
        began = time.monotonic()
        with self.running(*BATCH, "--fresh", "--wait", work=work):
            return time.monotonic() - began

    @property
    def run_folder(self) -> Path:
        """The folder of the newest batch run."""
        folder = self.cluster.home / "batch" / self.cluster.name / self.name
        return max((path for path in folder.iterdir() if path.is_dir()), key=lambda path: int(path.name))

    def of_run(self, name: str) -> Any:
        """Return a record of the newest batch run; the record is empty until the run writes it."""
        with suppress(FileNotFoundError):
            return json.loads((self.run_folder / name).read_text(encoding="utf-8"))
        return {}

    def check(self, name: str, lines: int, users: int = USERS) -> Check:
        """Check that each of these lines is counted once in the table."""
        return right_counts(name, self.table, lines, users)


def right_counts(name: str, table: Path, lines: int, users: int = USERS) -> Check:
    """Check that a table of JSON rows contains each user once, with the right count for this number of lines."""
    found = [path for path in sorted(table.glob("part-*")) if path.suffix != ".crc"]
    rows = [json.loads(line) for path in found for line in path.read_text(encoding="utf-8").splitlines()]
    got = {one["user"]: one["count"] for one in rows}
    full, rest = divmod(lines, users)
    wanted = {f"user{user}": full + (user < rest) for user in range(users) if full or user < rest}
    wrong = sum(got.get(user) != wanted.get(user) for user in got.keys() | wanted.keys()) + len(rows) - len(got)
    return Check(name, not wrong, f"{lines:,} lines of {len(wanted):,} users, {wrong:,} wrong rows")


def strike(signum: int, pause_s: float, is_enough: Callable[[], bool] = bool, mark: str = "") -> During:
    """Return a function that signals a batch worker every `pause_s`, each process once, until `is_enough()`.

    With `mark`, it signals only processes for which a file `<mark>-<pid>` exists.
    """

    def is_meant(topology: Topology, pid: int) -> bool:
        return pid not in struck and (not mark or (topology.out / f"{mark}-{pid}").exists())

    struck = set[int]()

    def act(topology: Topology, ended: Event) -> None:
        tree = Tree(topology.scheduler())
        while not is_enough() and not ended.wait(pause_s):
            tree.refresh()
            workers = [pid for pid, one in tree.seen.items() if one.role == WORKER and one.process.is_running()]
            for pid in [pid for pid in workers if is_meant(topology, pid)][:1]:
                with suppress(ProcessLookupError):
                    os.kill(pid, signum)
                struck.add(pid)

    return act
