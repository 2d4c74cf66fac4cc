#!/usr/bin/env python3
"""Measures a topology on the Slurm of the tests, and prints the table of docs/performance.md, "On an engine".

python scripts/engine_figures.py [--runs N]

Root, slurm-wlm and munge are needed. The daemons, three nodes of this machine on loopback, are started and ended here.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import psutil  # noqa: E402

from heronpy.common.folders import make_folders  # noqa: E402
from heronpy.common.units import counted  # noqa: E402
from heronpy.proto import control_pb2  # noqa: E402
from tests.support import fish  # noqa: E402
from tests.support.slurm import SlurmCluster, missing, slurm_cluster  # noqa: E402
from tests.support.slurm_topologies import NAME, Submitted  # noqa: E402
from tests.support.waiting import wait_for  # noqa: E402

#: The values of the how-to for a fast answer to a silent host.
FAST = {"renew_s": 2, "fence_s": 6, "lost_s": 10, "poll_s": 1}
#: At least once: at most once a container of a silent host waits until its end is confirmed.
PROGRAM = ("topologies/ack_and_fail.py", NAME, "--count", "10000000")
FLOW_S = 20.0
#: The end of a minute is in it: figures are kept by the minute.
REST_S = 70.0
#: For the figures of a scheduler with many containers; container 0 is one of them.
MANY = 20
#: From the last container running until nothing begins any more.
SETTLE_S = 15.0
Records = dict[str, control_pb2.ProcessRecord]


@dataclass
class Row:
    """One line of the table."""

    what: str
    #: The most that is wanted, and in words.
    goal: float
    goal_text: str
    unit: str
    found: list[float] = field(default_factory=list)

    def line(self) -> str:
        if not self.found:
            return f"| {self.what} | {self.goal_text} | not measured | |"
        middle = statistics.median(self.found)
        spread = f" ({min(self.found):.2f} to {max(self.found):.2f})" if len(self.found) > 1 else ""
        verdict = "met" if middle <= self.goal else "**missed**"
        return f"| {self.what} | {self.goal_text} | {f'{middle:.2f} {self.unit}'.strip()}{spread} | {verdict} |"


def timed(call: Callable[[], object]) -> float:
    began = time.monotonic()
    call()
    return time.monotonic() - began


def local(it: Submitted, *words: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "heronpy.cli", *words],
        env=it.env,
        cwd=ROOT,
        check=True,
        capture_output=True,
        timeout=180,
    )


class Figures:
    """What is measured, in the order of the table."""

    def __init__(self) -> None:
        self.check = Row("`heron cluster check`", 15, "15 s", "s")
        self.submit = Row("submit until all run, beyond the same on this machine", 3, "3 s", "s")
        self.killed = Row("a killed container RUNNING again", 4, "4 s", "s")
        self.adopted = Row("scheduler killed until its successor has adopted all", 2, "2 s", "s")
        self.restarts = Row("containers replaced by that", 0, "0", "")
        self.silent = Row("a silent host's container RUNNING elsewhere, `lost_s` 10", 14, "10 s + start (4 s)", "s")
        self.memory = Row(f"memory of the scheduler of {MANY} containers (USS)", 50, "50 MB", "MB")
        self.cpu = Row(f"CPU of the scheduler of {MANY} containers", 1, "1 % of a core", "%")
        self.flowing = Row(f"changes of state in {FLOW_S:g} s, while tuples flow", 0, "0", "")
        self.writes = Row(f"changes of state in {REST_S:g} s, while nothing moves", 0, "0", "")

    def rows(self) -> list[Row]:
        return [value for value in vars(self).values() if isinstance(value, Row)]

    def run(self, cluster: SlurmCluster, base: Path, number: int) -> None:
        """Once; the node of a container is lost at the end, and back after it."""
        folder = base / str(number)
        home = folder / "home"
        make_folders(home)
        os.environ["HERON_HOME"] = str(home)
        rooms = {"engine": FAST, "packing": {"instance_ram_bytes": "100MB", "instance_cpu": 0.3}}
        it = Submitted(cluster, home, folder / "hosts", rooms)
        self.check.found.append(timed(lambda: it.heron("cluster", "check", "hpc")))
        here = timed(lambda: local(it, "submit", "local", *PROGRAM))
        local(it, "kill", "local", NAME)
        there = timed(lambda: it.heron("submit", "hpc", *PROGRAM))
        self.submit.found.append(there - here)
        stopped: list[psutil.Process] = []
        lost = ""
        try:
            found = it.all_run()
            self._flow(it)
            self._rest(it)
            found = self._kill(it, found)
            found = self._adopt(it, found)
            victim = max(found.values(), key=lambda one: (one.host != found["executor-0"].host, one.name))
            stopped, lost = it.processes_of(victim.engine_id), victim.host
            began = time.monotonic()
            cluster.lose_node(lost)
            for process in stopped:
                with suppress(psutil.Error):
                    process.suspend()
            _acts(it, victim)
            self.silent.found.append(time.monotonic() - began)
        finally:
            for process in stopped:
                with suppress(psutil.Error):
                    process.kill()
            it.heron("kill", "hpc", NAME, "--force", "--timeout", "15")
            if lost:
                cluster.start_node(lost)
                wait_for(lambda: set(cluster.states().values()) == {"idle"}, 90, "the node being back")

    def many(self, base: Path) -> None:
        """A scheduler with many containers, none of which comes or goes; on a Slurm whose nodes have room for them."""
        home = base / "many"
        make_folders(home)
        os.environ["HERON_HOME"] = str(home)
        program = Path(fish.__file__).read_text(encoding="utf-8").replace("par=3", f"par={MANY - 2}")
        (home / "fish.py").write_text(program.replace('"topology.stmgrs": 2', f'"topology.stmgrs": {MANY - 1}'))
        with slurm_cluster(memory_mb=8000, cpus=16) as cluster:
            # Its leases are those of the defaults.
            rooms = {"engine": {"renew_s": 5, "fence_s": 40, "lost_s": 60, "permit_s": 600, "poll_s": 2}}
            rooms["packing"] = {"instance_ram_bytes": "100MB", "instance_cpu": 0.1}
            it = Submitted(cluster, home, home / "hosts", rooms, "fish")
            it.heron("submit", "hpc", str(home / "fish.py"))
            try:
                assert len(it.all_run(120)) == MANY
                time.sleep(SETTLE_S)
                scheduler = psutil.Process(it.location().pid)
                used = sum(scheduler.cpu_times()[:2])
                time.sleep(FLOW_S)
                self.cpu.found.append((sum(scheduler.cpu_times()[:2]) - used) / FLOW_S * 100)
                self.memory.found.append(scheduler.memory_full_info().uss / 1e6)
            finally:
                it.heron("kill", "hpc", "fish", "--force", "--timeout", "30")

    def _flow(self, it: Submitted) -> None:
        time.sleep(SETTLE_S)
        self.flowing.found.append(_changes(it, FLOW_S))

    def _rest(self, it: Submitted) -> None:
        """The spouts pause."""
        it.heron("deactivate", "hpc", NAME)
        # The minute in which they still moved is written after its end, and what was counted half a minute later.
        time.sleep(REST_S)
        self.writes.found.append(_changes(it, REST_S))
        it.heron("activate", "hpc", NAME)

    def _kill(self, it: Submitted, found: Records) -> Records:
        victim = found["executor-1"]
        processes = it.processes_of(victim.engine_id)
        began = time.monotonic()
        for process in processes:
            with suppress(psutil.Error):
                process.kill()
        _acts(it, victim)
        self.killed.found.append(time.monotonic() - began)
        return it.all_run()

    def _adopt(self, it: Submitted, found: Records) -> Records:
        first = it.location().pid
        began = time.monotonic()
        os.kill(first, 9)
        wait_for(lambda: it.location().pid != first, 30, "another scheduler")
        adopted = it.all_run()
        self.adopted.found.append(time.monotonic() - began)
        self.restarts.found.append(sum(adopted[name].submission != one.submission for name, one in found.items()))
        return adopted


def _acts(it: Submitted, victim: control_pb2.ProcessRecord) -> None:
    def next_one() -> bool:
        now = it.records()[victim.name]
        return now.epoch > victim.epoch and now.phase == "RUNNING"

    wait_for(next_one, 120, f"the successor of {victim.name}")


def _changes(it: Submitted, seconds: float) -> int:
    """How many nodes of the state change in this time; their names go to stderr."""
    state = it.home / "state" / "hpc"
    before = _files(state)
    time.sleep(seconds)
    after = _files(state)
    changed = sorted(name for name in before | after if before.get(name) != after.get(name))
    print(*changed, sep="\n", end="\n" if changed else "", file=sys.stderr)
    return len(changed)


def _files(folder: Path) -> dict[str, int]:
    found = {}
    for path in folder.rglob("*"):
        with suppress(OSError):
            if path.is_file():
                found[str(path)] = path.stat().st_mtime_ns
    return found


@contextmanager
def scratch() -> Iterator[Path]:
    """Short, because sockets lie below it."""
    with tempfile.TemporaryDirectory(prefix="hp-", dir="/tmp") as folder:
        (Path(folder) / "t").mkdir(mode=0o700)
        os.environ["TMPDIR"] = f"{folder}/t"
        tempfile.tempdir = None
        yield Path(folder)


def main() -> int:
    parser = argparse.ArgumentParser(description="Figures of a topology on Slurm.")
    parser.add_argument("--runs", type=int, default=3, help="runs, of which the medians are printed (default: 3)")
    arguments = parser.parse_args()
    if why := missing():
        print(f"error: {why}", file=sys.stderr)
        return 1
    figures, load = Figures(), os.getloadavg()[0]
    with slurm_cluster(memory_mb=4000) as cluster, scratch() as base:
        for number in range(arguments.runs):
            figures.run(cluster, base, number)
            print(f"run {number + 1} of {arguments.runs} done", file=sys.stderr)
    with scratch() as base:
        figures.many(base)
    when = time.strftime("%Y-%m-%d")
    print(f"{when}, {os.cpu_count()} cores, load {load:.1f} before and {os.getloadavg()[0]:.1f} after, medians of")
    print(
        f"{counted(arguments.runs, 'run')} (least to most); Slurm's own daemons, three nodes on one machine, two containers unless it says more.\n"
    )
    print("| what | goal | found | |\n|---|---|---|---|")
    for row in figures.rows():
        print(row.line())
    return 0


if __name__ == "__main__":
    sys.exit(main())
