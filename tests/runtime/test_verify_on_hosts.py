"""The oracle judges a topology on three hosts while containers, a host, the network and the scheduler fail.

The hosts are namespaces of this machine with their own network, processes and /tmp; the engine of the tests places the
real containers there, below the real scheduler.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support import host_engine
from tests.support.hosts import SimHost, made_hosts, needs_hosts
from tests.support.judged import Judged
from tests.support.local_engine import kill_containers
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.heavy, needs_hosts, pytest.mark.timeout(300)]


class World(Judged):
    """On three hosts."""

    def __init__(self, home: Path, shared: Path, address: str, hosts: list[SimHost], mode: str) -> None:
        self.hosts = hosts
        self.engine = home / "engine"
        self.engine.mkdir(mode=0o700)
        rooms = {
            "engine": {"kind": host_engine.KIND, "fence_s": 4, "lost_s": 8},
            "security": {"port_range": "20000-20999"},
            "executor": {"metrics_host": "host"},
        }
        super().__init__("hosts", home, shared, mode, rooms, host_engine.offer(self.engine))
        host_engine.on_hosts(self.engine, address, hosts)

    def host_of(self, container: int) -> SimHost:
        name = self.records()[f"executor-{container}"].host
        return next(host for host in self.hosts if host.name == name)

    def close(self) -> None:
        super().close()
        kill_containers(self.home)


def is_next(world: World, container: int) -> Callable[[dict[str, Any]], bool]:
    """Whether a container acts in a later epoch than now."""
    name = f"executor-{container}"
    epoch = world.records()[name].epoch
    return lambda found: found[name].epoch > epoch and found[name].phase == "RUNNING"


def signal_all(host: SimHost, name: str) -> None:
    for line in host.processes():
        with suppress(subprocess.CalledProcessError):  # it died with another one
            host.run("kill", f"-{name}", line.partition(":")[0])


def replaced_or_waited_for(world: World, container: int) -> tuple[Callable[[dict[str, Any]], bool], bool]:
    """What happens when a container is silent, and whether its successor acts.

    At most once no successor acts while the old container may run: the state is at the scheduler's control endpoint.
    """
    name, waits = f"executor-{container}", world.mode == "ATMOST_ONCE"
    if waits:
        return (lambda found: "until the end of submission" in found[name].words), False
    return is_next(world, container), True


def kill_container(world: World) -> None:
    host, again = world.host_of(2), is_next(world, 2)
    signal_all(host, "KILL")
    world.when(again, "the successor of the killed container")


def lose_host(world: World) -> None:
    again = is_next(world, 2)
    silent, replaced = replaced_or_waited_for(world, 2)
    world.host_of(2).lose()
    if not replaced:
        world.when(silent, "a successor that waits for the user's word")
        world.heron("restart", "hosts", world.name, "2", "--force")
    world.when(again, "the successor of the container of the lost host")


def partition(world: World) -> None:
    """Longer than a container may be silent, so two of it run; the older one is refused when the network is back."""
    host = world.host_of(2)
    again, replaced = replaced_or_waited_for(world, 2)
    link = f"hpb{os.getpid()}.{host.name.removeprefix('host')}"
    subprocess.run(["ip", "link", "set", link, "down"], check=True)
    try:
        world.when(again, "what follows when the container is cut off")
    finally:
        subprocess.run(["ip", "link", "set", link, "up"], check=True)
    is_over(world, host, replaced)


def is_over(world: World, host: SimHost, replaced: bool) -> None:
    """One that was replaced is refused and ends; one that was not goes on."""
    if replaced:
        wait_for(lambda: not any("bootstrap" in line for line in host.processes()), 60, "the end of the older one")
        return
    world.when(lambda found: found["executor-2"].phase == "RUNNING", "the container being heard again")
    assert world.records()["executor-2"].submission == 1, "the same one goes on"


def one_way(world: World) -> None:
    """The host hears the others, and nobody hears it: its frames go to a machine that is not there."""
    host = world.host_of(2)
    again, replaced = replaced_or_waited_for(world, 2)
    net = host.address.rpartition(".")[0]
    peers = [f"{net}.1", *(other.address for other in world.hosts if other is not host)]
    for peer in peers:
        host.run("ip", "neigh", "replace", peer, "lladdr", "02:00:00:00:00:01", "dev", "eth0", "nud", "permanent")
    try:
        world.when(again, "what follows when nobody hears the container")
    finally:
        for peer in peers:
            host.run("ip", "neigh", "del", peer, "dev", "eth0")
    is_over(world, host, replaced)


def stop_container(world: World) -> None:
    """For longer than it may be silent; what wakes up finds that it was replaced."""
    host = world.host_of(2)
    again, replaced = replaced_or_waited_for(world, 2)
    signal_all(host, "STOP")
    try:
        world.when(again, "what follows when the container is stopped")
    finally:
        signal_all(host, "CONT")
    is_over(world, host, replaced)


def kill_master(world: World) -> None:
    """Its executor starts another one; no container is replaced."""
    before, host, first = acting(world), world.host_of(0), world.master()
    host.run("kill", "-KILL", str(first.pid))
    wait_for(lambda: world.master().epoch > first.epoch, 60, "another topology master")
    assert acting(world) == before


def acting(world: World) -> list[tuple[str, int, int]]:
    return [(one.name, one.submission, one.epoch) for one in world.records().values()]


def kill_scheduler(world: World) -> None:
    before, first = acting(world), world.location().pid
    os.kill(first, signal.SIGKILL)
    wait_for(lambda: world.location().pid != first, 30, "another scheduler")
    world.when(lambda found: all(one.phase == "RUNNING" for one in found.values()), "adoption")
    assert acting(world) == before, "nothing was restarted"


#: At most once a silent container has no successor until the user says so, so each such fault runs in two modes.
SILENCES = (lose_host, partition, one_way, stop_container)
#: The end of these processes is certain in every mode.
DEATHS = (kill_container, kill_master, kill_scheduler)
CASES = [
    *((fault, mode) for fault in SILENCES for mode in ("ATMOST_ONCE", "EFFECTIVELY_ONCE")),
    *((fault, "ATLEAST_ONCE") for fault in (lose_host, *DEATHS)),
]


@pytest.mark.parametrize(("fault", "mode"), CASES)
def test_what_arrives_is_what_the_mode_promises(home: Path, mode: str, fault: Callable[[World], None]) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="hp-", dir="/var/tmp") as shared,
        made_hosts(3) as (address, hosts),
    ):
        world = World(home, Path(shared), address, hosts, mode)
        try:
            world.submit()
            found = world.records()
            assert len({one.host for one in found.values()}) == len(found) == 3, "each has a host of its own"
            world.flows()
            began = time.monotonic()
            fault(world)
            world.flows()
            # At most once, what was on its way then may be lost, and nothing else.
            emitted = int((time.monotonic() - began) * world.input.partitions * world.input.rate)
            verdict = world.judge(loss_max=emitted, stall_max_s=120.0)
        except BaseException:
            print(world.logs(*(host.tmp for host in hosts)))
            raise
        finally:
            world.close()
    assert verdict.arrived > verdict.expected // 4


def test_metrics_pages_are_at_the_addresses_of_their_hosts(home: Path) -> None:
    """And at ports that the firewall lets through; this machine reaches them as a Prometheus would."""
    with (
        tempfile.TemporaryDirectory(prefix="hp-", dir="/var/tmp") as shared,
        made_hosts(3) as (address, hosts),
    ):
        world = World(home, Path(shared), address, hosts, "ATMOST_ONCE")
        try:
            world.submit()
            [pages] = wait_for(
                lambda: [
                    one for one in json.loads(world.heron("metrics", "targets", "hosts")) if len(one["targets"]) == 3
                ],
                60,
                "the targets of three containers",
            )
            assert {one.partition(":")[0] for one in pages["targets"]} == {host.address for host in hosts}
            for one in pages["targets"]:
                assert 20000 <= int(one.partition(":")[2]) <= 20999
                with urllib.request.urlopen(f"http://{one}/metrics", timeout=20) as answer:
                    assert f'topology="{world.name}"' in answer.read().decode()
        finally:
            world.close()
