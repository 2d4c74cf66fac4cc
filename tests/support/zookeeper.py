"""Runs ZooKeeper servers for tests, on loopback only, in a temporary folder, without an admin port.

The jars come from the pyspark package or from Debian's zookeeper package.
"""

from __future__ import annotations

import glob
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

from heronpy.procs.linux import die_with_parent
from tests.support.waiting import wait_for

START_S = 60.0
_JARS = ("zookeeper", "slf4j-api", "netty", "metrics-core", "snappy-java", "commons-io", "commons-cli")
_CONFIG = """
tickTime=200
minSessionTimeout=400
maxSessionTimeout=60000
maxClientCnxns=0
clientPortAddress=127.0.0.1
clientPort={port}
dataDir={folder}/data
admin.enableServer=false
4lw.commands.whitelist=*
preAllocSize=1024
"""
_MEMBERS = """
initLimit=50
syncLimit=25
"""


def classpath() -> tuple[str, str]:
    """Return the class path, and the reason why ZooKeeper cannot run on this machine; one of them is empty."""
    if shutil.which("java") is None:
        return "", "java is not installed"
    if find_spec("kazoo") is None:
        return "", "kazoo is not installed; run pip install 'heronpy[zookeeper]'"
    found = find_spec("pyspark")
    folder = os.path.join(os.path.dirname(found.origin), "jars") if found and found.origin else ""
    if glob.glob(f"{folder}/zookeeper-[0-9]*.jar"):
        return ":".join(path for name in _JARS for path in glob.glob(f"{folder}/{name}*.jar")), ""
    if os.path.exists("/usr/share/java/zookeeper.jar"):
        return "/usr/share/java/zookeeper.jar", ""
    return "", "neither pyspark nor Debian's zookeeper package is installed, which hold ZooKeeper's jars"


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]


class ZooKeeperServer:
    """One server, which can be stopped and started again with its data."""

    def __init__(self, jars: str, port: int = 0, number: int = 0, members: str = "") -> None:
        self._jars = jars
        self._process: subprocess.Popen[bytes] | None = None
        self.folder = Path(tempfile.mkdtemp(prefix="heron-zookeeper-"))
        self.port = port or free_ports(1)[0]
        self.hosts = f"127.0.0.1:{self.port}"
        self._member = bool(members)
        (self.folder / "zoo.cfg").write_text(_CONFIG.format(port=self.port, folder=self.folder) + members)
        if members:
            (self.folder / "data").mkdir()
            (self.folder / "data" / "myid").write_text(str(number))
        else:
            self.start()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        options = [
            "-Xmx256m",
            "-Dzookeeper.commitLogCount=20",
            "-Dreadonlymode.enabled=true",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-Xshare:auto",
        ]
        parent = os.getpid()
        self._process = subprocess.Popen(
            ["java", *options, "-cp", self._jars, "org.apache.zookeeper.server.quorum.QuorumPeerMain", "zoo.cfg"],
            cwd=self.folder,
            env={name: value for name, value in os.environ.items() if not name.startswith("HERON_")},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=lambda: die_with_parent(signal.SIGKILL, parent),
        )
        if not self._member:  # a member can serve only with other members
            wait_for(self.serves, START_S, "ZooKeeper serving")

    def stop(self) -> None:
        """Kill the server, as if its machine had failed."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def ask(self, word: str) -> str:
        """Send one of ZooKeeper's four-letter words; return the answer, "" while the server does not serve."""
        answer = b""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=0.5) as connection:
                connection.sendall(word.encode())
                while received := connection.recv(65536):
                    answer += received
        except OSError:
            return ""
        return answer.decode()

    def writes(self) -> int:
        """Return the number of changes to nodes and sessions so far."""
        [line] = [line for line in self.ask("srvr").splitlines() if line.startswith("Zxid:")]
        return int(line.partition(":")[2], 16)

    def serves(self) -> bool:
        """Whether the server answers clients. Raises AssertionError if it has ended."""
        assert self._process is not None
        if self._process.poll() is not None:
            raise AssertionError(f"ZooKeeper ended with code {self._process.returncode}; see {self.folder}")
        return any(f"Mode: {mode}" in self.ask("srvr") for mode in ("standalone", "leader", "follower"))


class ZooKeeperEnsemble:
    """Three servers, which serve while two of them run; a server that runs alone is read-only."""

    def __init__(self, jars: str) -> None:
        ports = free_ports(9)
        members = _MEMBERS + "".join(f"server.{n + 1}=127.0.0.1:{ports[3 + n]}:{ports[6 + n]}\n" for n in range(3))
        self.servers = [ZooKeeperServer(jars, ports[n], n + 1, members) for n in range(3)]
        self.hosts = ",".join(server.hosts for server in self.servers)
        for server in self.servers:
            server.start()
        self.when_all_serve()

    def when_all_serve(self) -> None:
        wait_for(lambda: all(server.serves() for server in self.servers), 3 * START_S, "the ensemble serving")

    def close(self) -> None:
        for server in self.servers:
            server.close()
