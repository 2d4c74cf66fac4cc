#!/usr/bin/env python3
"""Measures a topology on the Slurm of the tests, and prints the table of docs/performance.md, "On an engine".

python scripts/engine_figures.py [WHAT] [--runs N]

WHAT is one of
  slurm      all figures of a topology on Slurm (the default)
  kubernetes submit and recovery of a killed container, on the control plane that scripts/kubernetes_server.py builds
  adopt      a killed scheduler on Slurm: time until all containers are adopted, and containers replaced
  followed   time until a log line of a task on Slurm appears in `heron logs -f`
  transfers  how often each of two hosts receives the package of 8 containers with 200 tasks
  hosts      CPU per tuple of two containers on two hosts, compared with two containers on one host
  store      CPU per tuple with a checkpoint every second in an object store (moto), compared with a folder
  before     CPU of submit, restart and kill on one machine, compared with an earlier commit (--commit)

The last three figures are medians of ratios of CPU seconds, measured in alternating pairs. They are more exact on a
quiet machine. The script needs root. Slurm needs slurm-wlm and munge; the script starts and ends Slurm's daemons for
three nodes on loopback. The two hosts are namespaces. For `kubernetes`, HERON_ENGINES names the folder with the
programs of the control plane.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import psutil  # noqa: E402

from heronpy.common.folders import make_folders  # noqa: E402
from heronpy.common.units import counted  # noqa: E402
from heronpy.loadtest import profiles  # noqa: E402
from heronpy.loadtest.cluster import Cluster  # noqa: E402
from heronpy.loadtest.run import run_once  # noqa: E402
from heronpy.proto import control_pb2  # noqa: E402
from tests.support import control_plane, fish, host_engine  # noqa: E402
from tests.support.hosts import SimHost, made_hosts  # noqa: E402
from tests.support.kubernetes_client import Client  # noqa: E402
from tests.support.kubernetes_real import real_kubernetes  # noqa: E402
from tests.support.object_server import ObjectServer  # noqa: E402
from tests.support.slurm import SlurmCluster, missing, slurm_cluster  # noqa: E402
from tests.support.slurm_topologies import NAME, Submitted, processes_of  # noqa: E402
from tests.support.waiting import wait_for  # noqa: E402

#: The settings that the how-to recommends for fast detection of a silent host.
FAST = {"renew_s": 2, "fence_s": 6, "lost_s": 10, "poll_s": 1}
#: Runs in at-least-once mode; in at-most-once mode, a container of a silent host waits until its end is confirmed.
PROGRAM = ("topologies/ack_and_fail.py", NAME, "--count", "10000000")
FLOW_S = 20.0
#: Longer than a minute, because the state is written once per minute.
REST_S = 70.0
#: Number of containers for the figures of a scheduler with many containers, including container 0.
MANY = 20
#: Seconds after the start of the last container until all processes have started.
SETTLE_S = 15.0
Records = dict[str, control_pb2.ProcessRecord]


@dataclass
class Row:
    """A row of the table: a figure, its goal, and the measured values."""

    what: str
    #: The maximum, and its text in the table.
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
    """All figures, in the order of the table."""

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
        """Measure once. At the end, lose the node of a container, and start the node again."""
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
            found = self.adopt(it, found)
            victim = max(found.values(), key=lambda one: (one.host != found["executor-0"].host, one.name))
            stopped, lost = processes_of(victim.engine_id), victim.host
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
                wait_for(lambda: set(cluster.states().values()) == {"idle"}, 90, "the lost node's return")

    def many(self, base: Path) -> None:
        """Measure CPU and memory of a scheduler with many containers, while none of them starts or ends."""
        home = base / "many"
        make_folders(home)
        os.environ["HERON_HOME"] = str(home)
        program = Path(fish.__file__).read_text(encoding="utf-8").replace("par=3", f"par={MANY - 2}")
        (home / "fish.py").write_text(program.replace('"topology.stmgrs": 2', f'"topology.stmgrs": {MANY - 1}'))
        with slurm_cluster(memory_mb=8000, cpus=16) as cluster:
            # The leases have their default durations.
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
        """Count the changes of the state while the spouts are paused."""
        it.heron("deactivate", "hpc", NAME)
        # The last active minute is written after its end, and its counts half a minute later.
        time.sleep(REST_S)
        self.writes.found.append(_changes(it, REST_S))
        it.heron("activate", "hpc", NAME)

    def _kill(self, it: Submitted, found: Records) -> Records:
        victim = found["executor-1"]
        processes = processes_of(victim.engine_id)
        began = time.monotonic()
        for process in processes:
            with suppress(psutil.Error):
                process.kill()
        _acts(it, victim)
        self.killed.found.append(time.monotonic() - began)
        return it.all_run()

    def adopt(self, it: Submitted, found: Records) -> Records:
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
    """Return how many state nodes change during this time, and print their names to stderr."""
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


# ---- one figure at a time -------------------------------------------------------------------------
def adopt(cluster: SlurmCluster, base: Path, runs: int) -> list[Row]:
    """Kill schedulers one after the other, and measure the adoption of their containers."""
    figures = Figures()
    it = _submitted(cluster, base, *PROGRAM)
    try:
        found = it.all_run()
        for _ in range(runs):
            time.sleep(SETTLE_S)
            found = figures.adopt(it, found)
    finally:
        it.heron("kill", "hpc", it.name, "--force", "--timeout", "15")
    return [figures.adopted, figures.restarts]


def followed(cluster: SlurmCluster, base: Path, runs: int) -> list[Row]:
    """Measure when `heron logs -f` prints the lines of a task that logs ten times a second."""
    row = Row("time until `heron logs -f` prints a line of a task, median of a run", 1, "1 s", "s")
    latest = Row("time until `heron logs -f` prints a line of a task, maximum", 1, "1 s", "s")
    text = Path(fish.__file__).read_text(encoding="utf-8")
    text = text.replace("self.ack(tup)", 'self.ack(tup); self.n = getattr(self, "n", 0) + 1\n        '
                        'self.n % 10 or self.logger.info("heard %d", self.n)')  # fmt: skip
    assert "heard" in text
    program = base / "fish.py"
    program.write_text(text, encoding="utf-8")
    it = _submitted(cluster, base, str(program), name="fish")
    try:
        it.all_run()
        for _ in range(runs):
            delays = _delays(it)
            row.found.append(statistics.median(delays))
            latest.found.append(max(delays))
    finally:
        it.heron("kill", "hpc", it.name, "--force", "--timeout", "15")
    return [row, latest]


def _delays(it: Submitted) -> list[float]:
    argv = [sys.executable, "-u", "-m", "heronpy.cli", "logs", "hpc", it.name, "count", "-f", "-n", "0", "--json"]
    with subprocess.Popen(argv, env=it.env, cwd=ROOT, stdout=subprocess.PIPE, text=True) as follower:
        assert follower.stdout is not None
        try:
            delays = []
            for line in follower.stdout:
                record = json.loads(line)
                if record["text"].startswith("heard"):
                    delays.append(time.time() - record["time"])
                if len(delays) >= 60:
                    # The first lines were logged while the command started.
                    return delays[20:]
        finally:
            follower.kill()
    raise AssertionError("the following ended")


def _submitted(cluster: SlurmCluster, base: Path, *words: str, name: str = NAME) -> Submitted:
    home = base / "home"
    make_folders(home)
    os.environ["HERON_HOME"] = str(home)
    rooms = {"engine": FAST, "packing": {"instance_ram_bytes": "100MB", "instance_cpu": 0.3}}
    it = Submitted(cluster, home, base / "hosts", rooms, name)
    it.heron("submit", "hpc", *words)
    return it


def on_kubernetes(base: Path, runs: int) -> list[Row]:
    """Measure a submit and a restart of a small topology. `heron list` detects the start, and takes half a second."""
    submit = Row("Kubernetes: additional time of a submit, compared with this machine", 2, "2 s", "s")
    killed = Row("Kubernetes: time until a killed container is RUNNING again", 2, "2 s", "s")
    plane = control_plane.ControlPlane()
    try:
        with real_kubernetes(plane) as (cluster, kubelets):
            os.environ["KUBECONFIG"] = cluster.env["KUBECONFIG"]
            client = Client(cluster, kubelets, base)
            client.init()
            for _ in range(runs):
                here = timed(lambda: client.run("submit", "local", str(client.program)))
                client.run("kill", "local", "fish")
                submit.found.append(timed(lambda: client.run("submit", "k8s", str(client.program))) - here)
                victim = client.all_run()[1]["engine_id"]
                time.sleep(SETTLE_S)
                began = time.monotonic()
                kubelets.kill(victim)
                client.all_run(victim)
                killed.found.append(time.monotonic() - began)
                client.run("kill", "k8s", "fish")
                client.nothing_left()
    finally:
        plane.close()
    return [submit, killed]


PACKAGE_BYTES = 20_000_000
IDLE = """
from heronpy import Bolt, Grouping, Spout, TopologyBuilder

class Silent(Spout):
    outputs = ["word"]
    def next_tuple(self): pass

class Idle(Bolt):
    def process(self, tup): self.ack(tup)

builder = TopologyBuilder("idle")
silent = builder.add_spout("silent", Silent, par=1)
builder.add_bolt("idle", Idle, par=199, inputs={silent: Grouping.fields("word")})
builder.set_config({"topology.stmgrs": 8})
builder.build_and_submit()
"""


def transfers(base: Path, runs: int) -> list[Row]:
    """Measure the bytes that two hosts receive while eight containers with 200 tasks start."""
    rows = [Row(f"package to host {number}: bytes received, in packages", 1.2, "1 transfer", "") for number in (1, 2)]
    for number in range(runs):
        with made_hosts(2) as (address, hosts):
            folder = base / str(number)
            where = on_hosts(folder, address, hosts)
            (folder / "idle").mkdir()
            (folder / "idle" / "__main__.py").write_text(IDLE, encoding="utf-8")
            (folder / "idle" / "data").write_bytes(os.urandom(PACKAGE_BYTES))
            before = [_received(host) for host in hosts]
            try:
                where.heron("submit", where.target, str(folder / "idle"), "--timeout", "180")
                placed = json.loads(where.heron("list", where.target, "--json"))[0]["containers"]
                assert {one["host"] for one in placed} == {host.name for host in hosts}, placed
                assert len(placed) == 9, "container 0, and eight with tasks"
                for row, host, earlier in zip(rows, hosts, before, strict=True):
                    row.found.append((_received(host) - earlier) / PACKAGE_BYTES)
            finally:
                where.heron("kill", where.target, "idle", "--force", "--timeout", "30")
                where.close()
    return rows


def _received(host: SimHost) -> int:
    [line] = [one for one in host.run("cat", "/proc/net/dev").splitlines() if one.strip().startswith("eth0:")]
    return int(line.partition(":")[2].split()[0])


def on_hosts(folder: Path, address: str, hosts: list[SimHost]) -> Cluster:
    """Return a cluster whose containers run on several hosts, which all share its folders."""
    home = folder / "home"
    make_folders(home / "engine")
    conf = home / "conf" / "hosts"
    make_folders(conf)
    (conf / "engine.yaml").write_text(f"kind: {host_engine.KIND}\nshared: {folder}\n", encoding="utf-8")
    (conf / "packing.yaml").write_text("instance_ram_bytes: 50MB\ninstance_cpu: 0.01\n", encoding="utf-8")
    os.environ.update(host_engine.offer(home / "engine"), HERON_CONF=str(conf.parent), HERON_HOME=str(home))
    host_engine.on_hosts(home / "engine", address, hosts)
    where = Cluster("hosts", home, temporary=False)
    shutil.rmtree(where.scratch)
    where.scratch = folder / "scratch"
    make_folders(where.scratch)
    return where


#: Duration in seconds, and words per second.
LOAD_S, RATE = 12.0, 20_000.0


def hosts_ratio(base: Path, runs: int) -> list[Row]:
    """Compare the CPU per million words of the word count on two hosts and on one host."""
    row = Row("CPU per tuple, two hosts vs. two containers on one host, both with CurveZMQ", 1.1, "1.1x", "x")
    with made_hosts(2) as (address, hosts):
        far = on_hosts(base / "far", address, hosts)
        near = Cluster("local", base / "near", temporary=False)
        try:
            for number in range(1, runs + 1):
                settings = ["heron.security.transport=tcp"]
                here, there = in_turn(
                    number, partial(_cpu, near, number, settings), partial(_cpu, far, number, settings)
                )
                row.found.append(there / here)
                print(f"pair {number}: {here:.2f} and {there:.2f} CPU-s per million words", file=sys.stderr)
        finally:
            far.close()
            near.close()
    return [row]


def store_ratio(base: Path, runs: int) -> list[Row]:
    """Compare a checkpoint every second in an object store and in a folder, without the CPU of the store's server."""
    row = Row("CPU per tuple, checkpoint every second in moto vs. in a folder", 1.15, "1.15x", "x")
    server = ObjectServer()
    os.environ.update(server.environment)
    bucket = server.make_bucket("figures")
    where = Cluster("local", base / "home", temporary=False)
    try:
        for number in range(1, runs + 1):
            plain = ["heron.checkpoint.interval_s=1", f"heron.checkpoint.root={base}/store{number}"]
            remote = ["heron.checkpoint.interval_s=1", f"heron.checkpoint.root={bucket}/{number}"]
            here, there = in_turn(
                number,
                partial(_cpu, where, 2 * number, plain, "EFFECTIVELY_ONCE"),
                partial(_cpu, where, 2 * number + 1, remote, "EFFECTIVELY_ONCE"),
            )
            row.found.append(there / here)
            print(f"pair {number}: {here:.2f} and {there:.2f} CPU-s per million words", file=sys.stderr)
    finally:
        where.close()
        server.kill()
    return [row]


def in_turn(number: int, first: Callable[[], float], second: Callable[[], float]) -> tuple[float, float]:
    """Measure both variants, in alternating order."""
    if number % 2:
        return first(), second()
    late = second()
    return first(), late


def _cpu(where: Cluster, number: int, settings: list[str], mode: str = "ATMOST_ONCE") -> float:
    # Without a fixed rate, the share of the costs per second would differ between runs.
    changes = {"containers": 2, "duration_s": LOAD_S, "rate": RATE, "mode": mode}
    run = run_once(where, profiles.changed(profiles.load("word_count"), changes, settings), number)
    assert all(check["ok"] for check in run["checks"]), run["checks"]
    roles = {role: round(found["per_million"], 2) for role, found in run["figures"]["cpu"].items()}
    print(f"{where.target}, {mode}, {run['figures']['rate']:,.0f} words/s: {roles}", file=sys.stderr)
    return float(run["figures"]["cpu_s_per_million"])


#: Default for --commit: the last commit without engines.
BEFORE = "7636b50"
_COUNTED = Path("/sys/fs/cgroup/cpuacct")


def before_ratio(base: Path, runs: int, commit: str) -> list[Row]:
    """Compare the CPU of all processes during submit, restart and kill of a word count, measured by a control group."""
    rows = {what: Row(f"local {what} vs. {commit}: CPU", 1.05, "1.05x", "x") for what in ("submit", "restart", "kill")}
    old = base / "old"
    subprocess.run(["git", "worktree", "add", "--detach", str(old), commit], cwd=ROOT, check=True, capture_output=True)
    try:
        for number in range(1, runs + 1):
            pair: dict[Path, dict[str, float]] = {}
            for tree in (ROOT, old) if number % 2 else (old, ROOT):
                pair[tree] = _life(tree, base / f"home{number}-{tree.name}")
            for what, row in rows.items():
                row.found.append(pair[ROOT][what] / pair[old][what])
            print(f"pair {number}: now {pair[ROOT]}, then {pair[old]}", file=sys.stderr)
    finally:
        subprocess.run(["git", "worktree", "remove", "--force", str(old)], cwd=ROOT, check=True, capture_output=True)
    return list(rows.values())


def _life(tree: Path, home: Path) -> dict[str, float]:
    """Return the CPU seconds of all processes, including ended ones, by step: submit, restart, kill."""
    make_folders(home)
    group = _COUNTED / f"heron-figures-{os.getpid()}-{home.name}"
    group.mkdir()
    env = {**os.environ, "PYTHONPATH": str(tree), "HERON_HOME": str(home), "HERON_CONFIG_HOME": str(home / "client")}
    env.pop("HERON_CONF", None)
    # Compile the modules of the new worktree now; otherwise, each process would compile them.
    env.pop("PYTHONDONTWRITEBYTECODE", None)

    def heron(*words: str) -> float:
        began = int((group / "cpuacct.usage").read_text())
        enter = f'echo $$ > {group}/cgroup.procs && exec "$@"'
        argv = ["sh", "-c", enter, "sh", sys.executable, "-m", "heronpy.cli", *words]
        done = subprocess.run(argv, env=env, cwd=tree, capture_output=True, text=True, timeout=180, check=False)
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return (int((group / "cpuacct.usage").read_text()) - began) / 1e9

    try:
        program = str(tree / "topologies" / "windowed.py")
        found = {"submit": heron("submit", "local", program, "life")}
        found["restart"] = heron("restart", "local", "life")
        found["kill"] = heron("kill", "local", "life")
        return found
    finally:
        wait_for(lambda: not (group / "cgroup.procs").read_text().split(), 30, "the end of all processes")
        group.rmdir()


@contextmanager
def scratch() -> Iterator[Path]:
    """Yield a temporary folder with a short path, because it contains sockets."""
    with tempfile.TemporaryDirectory(prefix="hp-", dir="/tmp") as folder:
        (Path(folder) / "t").mkdir(mode=0o700)
        os.environ["TMPDIR"] = f"{folder}/t"
        tempfile.tempdir = None
        yield Path(folder)


def measured(arguments: argparse.Namespace) -> list[Row]:
    """Measure the requested figures; return the rows of the table."""
    what, runs = arguments.what, arguments.runs
    if what in ("adopt", "followed"):
        with slurm_cluster(memory_mb=4000) as cluster, scratch() as base:
            return (adopt if what == "adopt" else followed)(cluster, base, runs)
    if what in ("transfers", "hosts"):
        # Each host has a separate /tmp, so the shared folder is in /var/tmp.
        with tempfile.TemporaryDirectory(prefix="hp-", dir="/var/tmp") as folder:
            return (transfers if what == "transfers" else hosts_ratio)(Path(folder), runs)
    if what == "kubernetes":
        with scratch() as base:
            return on_kubernetes(base, runs)
    if what in ("store", "before"):
        with scratch() as base:
            return store_ratio(base, runs) if what == "store" else before_ratio(base, runs, arguments.commit)
    figures = Figures()
    with slurm_cluster(memory_mb=4000) as cluster, scratch() as base:
        for number in range(runs):
            figures.run(cluster, base, number)
            print(f"run {number + 1} of {runs} done", file=sys.stderr)
    with scratch() as base:
        figures.many(base)
    return figures.rows()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    modes = ("slurm", "kubernetes", "adopt", "followed", "transfers", "hosts", "store", "before")
    parser.add_argument("what", nargs="?", choices=modes, default="slurm")
    parser.add_argument("--runs", type=int, default=3, help="number of runs; medians are printed (default: 3)")
    parser.add_argument("--commit", default=BEFORE, help=f"commit that `before` compares with (default: {BEFORE})")
    arguments = parser.parse_args()
    why = missing() if arguments.what in ("slurm", "adopt", "followed") else ""
    if arguments.what == "kubernetes":
        why = control_plane.missing()
    if why or os.geteuid() != 0:
        print(f"error: {why or 'root is needed, for hosts and control groups'}", file=sys.stderr)
        return 1
    load, when = os.getloadavg()[0], datetime.datetime.now().strftime("%Y-%m-%d %H:%M")
    rows = measured(arguments)
    print(f"{when}, {os.cpu_count()} cores, load {load:.1f} before and {os.getloadavg()[0]:.1f} after, medians of")
    print(f"{counted(arguments.runs, 'run')} (least to most).\n")
    print("| what | goal | found | |\n|---|---|---|---|")
    for row in rows:
        print(row.line())
    return 0


if __name__ == "__main__":
    sys.exit(main())
