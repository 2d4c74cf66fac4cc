"""Runs a Slurm cluster for tests: Debian's daemons on loopback, with several nodes on this machine."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from heronpy.procs.linux import die_with_parent
from tests.support.waiting import wait_for
from tests.support.zookeeper import free_ports

START_S = 30.0
_CONFIG = """
ClusterName=heron-test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CryptoType=crypto/munge
AuthInfo=socket={folder}/munge.socket
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/cgroup
TaskPlugin=task/none
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=1
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
ReturnToService=2
SlurmctldTimeout=10
SlurmdTimeout=5
MinJobAge={purge_s}
KillWait=2
MessageTimeout=5
MailProg=/bin/true
MpiDefault=none
{nodes}
PartitionName=batch Nodes=ALL Default=YES MaxTime=1-0 State=UP PriorityTier=1 PreemptMode=CANCEL GraceTime=2
PartitionName=urgent Nodes=ALL Default=NO MaxTime=1-0 State=UP PriorityTier=2
PartitionName=tiny Nodes={first} Default=NO MaxTime=1 State=UP PriorityTier=1
"""


def missing() -> str:
    """Return why Slurm cannot run on this machine; "" if it can."""
    for name in ("slurmctld", "slurmd", "munged", "sbatch", "squeue"):
        if shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin") is None:
            return f"{name} is not installed; run apt-get install slurm-wlm munge"
    if os.geteuid() != 0:
        return "Slurm's daemons need root"
    if not os.access("/sys/fs/cgroup/freezer", os.W_OK):
        return "there is no freezer control group (cgroup v1), by which Slurm 22.05 finds what a job has started"
    return ""


class SlurmCluster:
    """A controller and its nodes; `env` has the environment variables that commands need."""

    def __init__(self, nodes: int = 3, purge_s: int = 300, memory_mb: int = 1000, cpus: int = 2) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="heron-slurm-"))
        # Node names must be unique, because they name control groups, and other tests may run at the same time.
        self.nodes = [f"h{os.getpid()}n{number}" for number in range(1, nodes + 1)]
        ports = free_ports(nodes + 1)
        host = socket.gethostname().partition(".")[0]
        lines = [
            f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={cpus} RealMemory={memory_mb} State=UNKNOWN"
            for name, port in zip(self.nodes, ports[1:], strict=True)
        ]
        for name in ("state", "munge"):
            (self.folder / name).mkdir(mode=0o700)
        self.folder.chmod(0o755)
        config = self.folder / "slurm.conf"
        config.write_text(
            _CONFIG.format(
                host=host,
                port=ports[0],
                folder=self.folder,
                nodes="\n".join(lines),
                purge_s=purge_s,
                first=self.nodes[0],
            )
        )
        (self.folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n")
        self.env = {**os.environ, "SLURM_CONF": str(config), "PATH": os.environ.get("PATH", "") + ":/usr/sbin:/sbin"}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        try:
            self._start_munge()
            self._spawn("slurmctld", "slurmctld", "-D", "-c")
            for name in self.nodes:
                self.start_node(name)
            wait_for(lambda: self.states() == dict.fromkeys(self.nodes, "idle"), START_S, "Slurm's nodes being idle")
        except BaseException:
            self.close()
            raise

    def _start_munge(self) -> None:
        key = self.folder / "munge" / "key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o600)
        (self.folder / "munge").chmod(0o755)
        socket_file = self.folder / "munge.socket"
        flags = {"key": key, "socket": socket_file, "pid": "", "log": "", "seed": ""}
        files = [
            f"--{name}-file={self.folder / 'munge' / name if name != 'key' else key}"
            for name in flags
            if name != "socket"
        ]
        self._spawn("munged", "munged", "--foreground", "--force", f"--socket={socket_file}", *files)
        wait_for(socket_file.exists, START_S, "munged listening")

    def _spawn(self, name: str, *argv: str) -> None:
        parent = os.getpid()
        with open(self.folder / f"{name}.out", "ab") as out:
            self._processes[name] = subprocess.Popen(
                argv,
                cwd=self.folder,
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                preexec_fn=lambda: die_with_parent(signal.SIGKILL, parent),
            )

    def start_node(self, name: str) -> None:
        self._spawn(name, "slurmd", "-D", "-N", name)

    def lose_node(self, name: str) -> None:
        """Kill the slurmd of a node; processes that it has started continue."""
        self._processes[name].kill()
        self._processes[name].wait()

    def reboot_node(self, name: str) -> None:
        """Simulate the reboot of a lost node: end its jobs, and start slurmd as after a boot."""
        for file in Path(f"/sys/fs/cgroup/freezer/slurm_{name}").rglob("cgroup.procs"):
            for pid in file.read_text().split():
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
        self._spawn(name, "slurmd", "-D", "-b", "-N", name)

    def stop_controller(self) -> None:
        """Stop slurmctld, as if its machine did not answer."""
        self._processes["slurmctld"].send_signal(signal.SIGSTOP)

    def continue_controller(self) -> None:
        self._processes["slurmctld"].send_signal(signal.SIGCONT)

    def run(self, *argv: str) -> str:
        """Run a command of Slurm; return its output."""
        done = subprocess.run(argv, env=self.env, capture_output=True, text=True, timeout=30, check=False)
        assert done.returncode == 0, f"{argv}: {done.stderr}"
        return done.stdout

    def states(self) -> dict[str, str]:
        """Return the states by node; empty while the controller does not answer."""
        try:
            done = subprocess.run(
                ["sinfo", "-h", "-N", "-p", "batch", "-o", "%N %T"],
                env=self.env, capture_output=True, text=True, timeout=10, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return {}
        return {line.split()[0]: line.split()[1] for line in done.stdout.splitlines()}

    def close(self) -> None:
        """End the daemons and all jobs."""
        if "slurmctld" in self._processes:
            self.continue_controller()
        for process in reversed(list(self._processes.values())):
            process.terminate()
        for process in self._processes.values():
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for left in self._left_over():
            left.kill()
        for name in self.nodes:
            for folder, _, _ in os.walk(f"/sys/fs/cgroup/freezer/slurm_{name}", topdown=False):
                wait_for(lambda folder=folder: _removed(folder), 5.0, f"{folder} being removed")
        shutil.rmtree(self.folder, ignore_errors=True)

    def _left_over(self) -> list[psutil.Process]:
        """Return the remaining step daemons and their jobs, which outlive their slurmd."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error, OSError):
                # psutil reads only a part of the environment of a daemon that has changed its title.
                variables = Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
                if f"SLURM_CONF={self.env['SLURM_CONF']}".encode() in variables:
                    found += [process, *process.children(recursive=True)]
        return found


def _removed(folder: str) -> bool:
    """Remove a control group, which is possible once its processes have ended; return whether it is removed."""
    with suppress(OSError):
        os.rmdir(folder)
    return not os.path.exists(folder)


@contextmanager
def slurm_cluster(nodes: int = 3, purge_s: int = 300, memory_mb: int = 1000, cpus: int = 2) -> Iterator[SlurmCluster]:
    """Run a cluster while the context is entered."""
    cluster = SlurmCluster(nodes, purge_s, memory_mb, cpus)
    try:
        yield cluster
    finally:
        cluster.close()
