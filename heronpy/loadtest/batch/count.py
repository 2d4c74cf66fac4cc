"""The keyed count of one scene: its logs, its topology, its result, and what strikes its workers meanwhile.

CPU and time count from the activation of a topology to its end: its start is no part of them, as with the contenders.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import Any

from heronpy.common.folders import make_folders
from heronpy.loadtest.checks import Check
from heronpy.loadtest.cluster import Cluster, Topology, submitted
from heronpy.loadtest.inputs import USERS
from heronpy.loadtest.processes import Tree
from heronpy.loadtest.profiles import Load, program_of
from heronpy.loadtest.watch import Watch, watch

PATIENCE_S, SLOWEST_BYTES_S = 120.0, 200_000
WORKER = "task batch"
BATCH, PAUSED = ("--mode", "batch"), "--deploy-deactivated"
#: Called with a running topology in another thread, until the event is set.
During = Callable[[Topology, Event], None]


class Count:
    """The keyed count of one scene: its logs, its result, its topology."""

    def __init__(self, where: Cluster, name: str, logs: Path | None = None) -> None:
        self.cluster, self.name = where, f"load-batch-{name}"
        self.folder = where.scratch / self.name
        self.logs, self.table, self.out = logs or self.folder / "logs", self.folder / "table", self.folder / "out"
        for folder in (self.logs, self.out):
            make_folders(folder)

    def spec(self, work: str = "", settings: dict[str, Any] | None = None, **parameters: Any) -> dict[str, Any]:
        """The specification of the topology."""
        p = {"work": work, "logs": f"{self.logs}/*.log", "table": str(self.table), **parameters}
        load = Load(self.name, "", "keyed_count", mode="EFFECTIVELY_ONCE", max_spout_pending=10_000,
                    settings={"heron.checkpoint.interval_s": 2.0, **(settings or {})})  # fmt: skip
        return {**load.spec(self.name, str(self.out)), "parameters": p}

    @contextmanager
    def running(self, spec: dict[str, Any], *flags: str) -> Iterator[Topology]:
        """The topology; killed in the end."""
        with submitted(self.cluster, program_of(Load(self.name, "", "keyed_count")), spec, *flags) as topology:
            yield topology

    def run(self, spec: dict[str, Any], *flags: str, during: During | None = None) -> Ran:
        """Run it to its end, from its activation on."""
        size = sum(path.stat().st_size for path in self.logs.iterdir())
        ended = Event()
        with self.running(spec, PAUSED, *flags) as topology:
            seen = watch(topology)
            seen.look_cpu()
            topology.activate()
            acting = Thread(target=during, args=(topology, ended), daemon=True) if during is not None else None
            if acting is not None:
                acting.start()
            try:
                seen.until_finished(PATIENCE_S + size / SLOWEST_BYTES_S)
            finally:
                ended.set()
        return Ran.of(seen)

    def command(self, spec: dict[str, Any], *flags: str) -> float:
        """Submit it and wait; the seconds of the command. LabError when it fails."""
        began = time.monotonic()
        with self.running(spec, "--wait", *flags):
            return time.monotonic() - began

    @property
    def record(self) -> dict[str, Any]:
        """The record of its newest batch run."""
        return self._of_run("run.json")

    @property
    def stages(self) -> list[dict[str, Any]]:
        """The figures of the stages of its newest batch run."""
        return list(self._of_run("progress.json")["stages"])

    @property
    def run_folder(self) -> Path:
        """Of its newest batch run."""
        folder = self.cluster.home / "batch" / self.cluster.name / self.name
        return max((path for path in folder.iterdir() if path.is_dir()), key=lambda path: int(path.name))

    def _of_run(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.run_folder / name).read_text(encoding="utf-8"))
        return found

    def check(self, name: str, lines: int, users: int = USERS, table: Path | None = None) -> Check:
        """Whether each of the lines is counted once."""
        return Check(name, *right_counts(table or self.table, lines, users))


@dataclass(frozen=True, slots=True)
class Ran:
    """What a run took, from its activation on."""

    cpu_s: float
    seconds: float
    worker_bytes: float
    """The largest mean of private memory of a worker."""

    @classmethod
    def of(cls, seen: Watch) -> Ran:
        first, last = seen.cpu[0], seen.cpu[-1]
        cpu_s = sum(last.by_role.values()) - sum(first.by_role.values())
        sizes = [roles[WORKER]["uss"] / roles[WORKER]["processes"] for _, roles in seen.memory if WORKER in roles]
        return cls(cpu_s, last.at - first.at, max(sizes, default=0.0))


def right_counts(table: Path, lines: int, users: int) -> tuple[bool, str]:
    """Whether the rows of a table are the counts of these lines, and a sentence."""
    rows = [
        json.loads(line)
        for path in sorted(table.rglob("part-*"))
        if not path.name.endswith(".crc")
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
    got = {one["user"]: one["count"] for one in rows}
    full, rest = divmod(lines, users)
    wanted = {f"user{user}": full + (user < rest) for user in range(users) if full or user < rest}
    if len(rows) != len(got):
        return False, f"{len(rows):,} rows of {len(got):,} users"
    wrong = sum(got.get(user) != count for user, count in wanted.items()) + len(got.keys() - wanted.keys())
    return (
        not wrong,
        f"{wrong:,} of {len(wanted):,} users are wrong" if wrong else f"exact: {lines:,} lines, {len(got):,} users",
    )


def strike(signum: int, pause_s: float, most: int, then: Callable[[], object] = bool) -> During:
    """Send a signal to a worker of a batch each `pause_s`, to each process once; in the end call `then`."""

    def act(topology: Topology, ended: Event) -> None:
        tree, struck = Tree(topology.scheduler()), set[int]()
        while len(struck) < most and not ended.wait(pause_s):
            tree.refresh()
            workers = [pid for pid, one in tree.seen.items() if one.role == WORKER and one.process.is_running()]
            for pid in [pid for pid in workers if pid not in struck][:1]:
                with suppress(ProcessLookupError):
                    os.kill(pid, signum)
                struck.add(pid)
        then()

    return act
