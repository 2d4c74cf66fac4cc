"""`heron` on a host that has neither the launch file nor a route to the containers: everything goes by the endpoint.

The containers are on two hosts made of namespaces, the client is a third, with a home of its own, which reaches the
endpoint alone.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from heronpy.cli import exits
from tests.support import host_engine
from tests.support.hosts import SimHost, made_hosts, needs_hosts
from tests.support.judged import write_rooms
from tests.support.local_engine import containers, kill_containers
from tests.support.tracker_address import request_to
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.heavy, needs_hosts, pytest.mark.timeout(600)]
ROOT = Path(__file__).parents[2]
NAME = "far"
PROGRAM = ROOT / "tests" / "runtime" / "programs" / "far.py"
ROOMS: dict[str, dict[str, Any]] = {
    "engine": {
        "kind": host_engine.KIND, "renew_s": 1, "fence_s": 6, "lost_s": 12, "permit_s": 30, "poll_s": 0.5,
    },
    "security": {"port_range": "20000-20999"},
}  # fmt: skip


@dataclass
class Seat:
    """A place from which `heron` is run."""

    env: dict[str, str]
    through: list[str]

    def _argv(self, words: tuple[object, ...]) -> list[str]:
        names = ("HERON_HOME", "HERON_CONF", "HERON_CONFIG_HOME", "TMPDIR")
        pairs = [f"{name}={self.env[name]}" for name in names if name in self.env]
        env = ["env", *pairs] if self.through else []
        return [*self.through, *env, sys.executable, "-m", "heronpy.cli", *map(str, words)]

    def run(self, *words: object, given: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self._argv(words), env=self.env, cwd=ROOT, input=given, capture_output=True, text=True, timeout=180,
            check=False,
        )  # fmt: skip

    def start(self, *words: object) -> subprocess.Popen[str]:
        """The command, left running."""
        return subprocess.Popen(
            self._argv(words), env=self.env, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def heron(self, *words: object, given: str = "", code: int = exits.OK) -> str:
        done = self.run(*words, given=given)
        assert done.returncode == code, f"heron {words}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def fetch(self, address: str) -> Any:
        """What a tracker that runs here answers."""
        asked = request_to(address)
        program = (
            "import urllib.request as u; "
            f"asked = u.Request({asked.full_url!r}, headers={dict(asked.header_items())!r}); "
            "print(u.urlopen(asked, timeout=60).read().decode())"
        )
        done = subprocess.run(
            [*self.through, sys.executable, "-c", program], capture_output=True, text=True, timeout=90, check=False
        )
        return json.loads(done.stdout) if done.returncode == 0 else None

    def json(self, *words: object) -> Any:
        done = self.run(*words, "--json")
        assert done.returncode == exits.OK, done.stdout + done.stderr
        return json.loads(done.stdout)


@dataclass
class World:
    here: Seat
    there: Seat
    hosts: list[SimHost]
    home: Path

    def bring(self) -> None:
        """The client gets the access."""
        text = self.here.run("cluster", "access", "hosts").stdout
        assert "access" in self.there.heron("cluster", "access", "--help")
        said = self.there.heron("cluster", "access", "hosts", "--install", given=text)
        assert json.loads(text)["client"][1] not in said, "the secret is not shown"

    def close(self) -> None:
        with suppress(subprocess.TimeoutExpired, AssertionError):
            self.here.run("kill", "hosts", NAME, "--force", "--timeout", "10")
        kill_containers(self.home)


@pytest.fixture
def world(home: Path) -> Iterator[World]:
    with made_hosts(3) as (address, hosts):
        *nodes, client = hosts
        engine = home / "engine"
        engine.mkdir(mode=0o700)
        write_rooms(home / "conf", "hosts", ROOMS)
        env = {**os.environ, **host_engine.offer(engine), "HERON_CONF": str(home / "conf")}
        host_engine.on_hosts(engine, address, nodes)
        for node in nodes:  # the client has no route to them
            client.run("ip", "route", "add", "blackhole", f"{node.address}/32")
        (client.tmp / "home").mkdir(mode=0o700)
        write_rooms(client.tmp / "conf", "hosts", {"engine": {"kind": host_engine.KIND}})
        there = {
            **env, "HERON_HOME": "/tmp/home", "HERON_CONF": "/tmp/conf", "HERON_CONFIG_HOME": "/tmp/client",
            "TMPDIR": "/tmp",
        }  # fmt: skip
        found = World(Seat(env, []), Seat(there, client.command()), nodes, home)
        try:
            yield found
        except BaseException:
            for log in sorted(home.rglob("scheduler.log")):
                print(f"==== {log}", log.read_text()[-5000:], sep="\n")
            raise
        finally:
            found.close()


def test_all_verbs_from_a_host_that_reaches_the_endpoint_alone(world: World) -> None:
    here, there = world.here, world.there
    here.heron("submit", "hosts", PROGRAM, NAME)
    assert "No topology runs" in there.heron("list", "hosts")
    world.bring()

    assert [row["state"] for row in there.json("list", "hosts")] in (["RUNNING"], ["DEGRADED"])
    status = there.json("status", "hosts", NAME)
    assert {one["engine_host"] for one in status["containers"]} == {"host1", "host2"}
    wait_for(
        lambda: sum(one["executed"] for one in there.json("status", "hosts", NAME)["components"]) > 0, 60, "tuples"
    )
    assert "count" in there.heron("metrics", "hosts", NAME)
    assert wait_for(lambda: "out of luck" in there.heron("exceptions", "hosts", NAME), 60, "the exception")
    shown = there.heron("logs", "hosts", NAME, "count")
    assert "counting begins" in shown and "not readable from this host; search on its scheduler's host, in" in shown
    assert "counting begins" in there.heron("logs", "hosts", NAME, "--find", "counting begins")
    assert there.json("events", "hosts", NAME)["events"]
    assert "Thread" in there.heron("stacks", "hosts", NAME, "stmgr-1")
    assert "spouts emit" in there.run("doctor", "hosts", NAME).stdout
    assert "out of luck" in there.heron("dead-letters", "hosts", NAME)
    there.heron("heap", "hosts", NAME, "tmaster", "--yes")
    there.heron("profile", "hosts", NAME, "stmgr-1", "--duration", "1", "--out", "/tmp")

    pages = there.heron("ui").strip()
    try:
        [shown] = wait_for(lambda: (there.fetch(f"{pages}/api/v1/topologies") or {}).get("topologies"), 30, "its page")
        place = f"{pages}/api/v1/topologies/" + "/".join(shown[part] for part in ("cluster", "role", "environ", "name"))
        wait_for(
            lambda: any(one["tuples_per_s"] for one in (there.fetch(f"{place}/load") or {"edges": []})["edges"]),
            60,
            "rates",
        )
        assert len(there.fetch(f"{place}/tasks")["tasks"]) == shown["tasks"]
        [task] = [one["process"] for one in there.fetch(f"{place}/logs")["files"] if "_count_" in one["process"]]
        assert any("counting begins" in one["text"] for one in there.fetch(f"{place}/logs/{task}")["lines"])
    finally:
        there.heron("ui", "stop")

    there.heron("deactivate", "hosts", NAME)
    there.heron("activate", "hosts", NAME)
    there.heron("update", "hosts", NAME, "--component-parallelism", "count:2")
    assert len([one for one in there.json("status", "hosts", NAME)["tasks"] if one["component"] == "count"]) == 2
    assert there.json("top", "hosts", NAME, "--once")
    there.heron("restart", "hosts", NAME, "1")
    before = {one["container"]: one["submission"] for one in there.json("status", "hosts", NAME)["containers"]}
    there.heron("restart", "hosts", NAME, "1", "--force")
    after = {one["container"]: one["submission"] for one in there.json("status", "hosts", NAME)["containers"]}
    assert after[1] > before[1] and after[2] == before[2]

    # What is refused at the process is refused here, in the same words and by the same code.
    refused = [seat.run("restart", "hosts", NAME, "no-such") for seat in (here, there)]
    assert refused[0].returncode == refused[1].returncode != 0 and refused[0].stderr == refused[1].stderr

    there.heron("drain", "hosts", NAME, "--host", "host2")
    status = there.json("status", "hosts", NAME)
    assert {one["engine_host"] for one in status["containers"]} == {"host1"}
    assert not any(status["endpoint_refused"].values()), status["endpoint_refused"]
    follower = there.start("logs", "hosts", NAME, "-f")
    try:
        assert follower.stdout is not None and follower.stdout.readline()
        said = there.heron("kill", "hosts", NAME)
        assert "Successfully killed" in said
        _, told = follower.communicate(timeout=60)
        assert follower.returncode == 0, told
        assert told.splitlines()[-1].startswith((f"topology '{NAME}' was killed", f"topology '{NAME}' has ended")), told
    finally:
        follower.kill()
        follower.communicate()
    wait_for(lambda: not containers(world.home), 30, "the end of all containers")
    assert "No topology runs" in here.heron("list", "hosts") and "No topology runs" in there.heron("list", "hosts")
