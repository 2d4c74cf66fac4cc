"""Hosts made of namespaces, each with its own network, processes, host name and /tmp.

All else is shared with this machine. A bridge connects the hosts; its address is this machine's address for the hosts.
Only root can create them.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from heronpy.procs.linux import children_of
from tests.support.checkout import HOLD, SHOW
from tests.support.waiting import wait_for

_MOUNTS = ("mount --make-rprivate /", *HOLD, "mount -t tmpfs -o mode=1777 tmpfs /tmp", *SHOW)
#: The program of process 1 of a host, which reaps processes; its end ends all processes of the host.
_INIT = """
{mounts}
hostname {name} && ip link set lo up || exit 1
touch /tmp/.up
trap 'exit 0' TERM
while :; do sleep 3600 & wait $!; done
"""


def can_make_hosts() -> bool:
    """Whether namespaces and bridges can be created on this machine."""
    if os.getuid() != 0 or not all(map(shutil.which, ("unshare", "nsenter", "ip"))):
        return False
    return subprocess.run(["unshare", "-mpfnu", "true"], capture_output=True, check=False).returncode == 0


#: With HERON_TEST_HOSTS=required, the tests are not skipped, and fail if hosts cannot be created.
needs_hosts = pytest.mark.skipif(
    os.environ.get("HERON_TEST_HOSTS") != "required" and not can_make_hosts(),
    reason="hosts are made of namespaces, which only root can make",
)


@dataclass
class SimHost:
    """A host; `lose` ends all its processes simultaneously."""

    name: str
    address: str
    holder: subprocess.Popen[bytes]
    pid: int

    def command(self, *argv: str) -> list[str]:
        """Return the command line that runs a command on this host."""
        return ["nsenter", "-t", str(self.pid), "-m", "-p", "-n", "-u", "--", *argv]

    def run(self, *argv: str) -> str:
        return subprocess.run(self.command(*argv), capture_output=True, check=True, text=True).stdout

    @property
    def tmp(self) -> Path:
        """The path of the host's /tmp on this machine."""
        return Path(f"/proc/{self.pid}/root/tmp")

    def processes(self) -> list[str]:
        """Return the processes on the host, except process 1 and its sleep."""
        found = []
        for status in Path(f"/proc/{self.pid}/root/proc").glob("[0-9]*"):
            with suppress(OSError):
                line = (status / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if int(status.name) > 1 and line and not line.startswith("sleep 3600"):
                    found.append(f"{status.name}: {line}")
        return found

    def lose(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self.holder.wait()


@contextmanager
def made_hosts(count: int) -> Iterator[tuple[str, list[SimHost]]]:
    """Yield this machine's address for the hosts, and the hosts."""
    if not can_make_hosts():
        pytest.fail(
            "hosts are made of namespaces, which only root can make, with unshare, nsenter and ip", pytrace=False
        )
    bridge, net = f"hpb{os.getpid()}", f"10.{100 + os.getpid() % 100}.{os.getpid() // 100 % 250}"
    hosts: list[SimHost] = []
    _ip("link", "add", bridge, "type", "bridge")
    try:
        _ip("addr", "add", f"{net}.1/24", "dev", bridge)
        _ip("link", "set", bridge, "up")
        for number in range(1, count + 1):
            hosts.append(_make(f"host{number}", f"{net}.{10 + number}", bridge, number))
        yield f"{net}.1", hosts
    finally:
        for number, host in enumerate(hosts, 1):
            host.lose()
            # Delete the link; otherwise it remains until the last process of its network has ended.
            subprocess.run(["ip", "link", "del", f"{bridge}.{number}"], capture_output=True)
        _ip("link", "del", bridge)


def _make(name: str, address: str, bridge: str, number: int) -> SimHost:
    init = _INIT.format(name=name, mounts="\n".join(f"{line.format(root='')} || exit 1" for line in _MOUNTS))
    holder = subprocess.Popen(["unshare", "-mpfnu", "--kill-child", "--mount-proc", "sh", "-c", init])
    pid = wait_for(lambda: children_of(holder.pid), 5, f"process 1 of {name}")[0]
    host = SimHost(name, address, holder, pid)
    try:
        wait_for(lambda: (host.tmp / ".up").exists(), 5, f"the start of {name}")
        near = f"{bridge}.{number}"
        _ip("link", "add", near, "master", bridge, "up", "type", "veth", "peer", "name", "eth0", "netns", str(pid))
        host.run("ip", "addr", "add", f"{address}/24", "dev", "eth0")
        host.run("ip", "link", "set", "eth0", "up")
    except BaseException:
        host.lose()
        raise
    return host


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)
