"""What of a topology's secrets others may read on Slurm while it runs, and what is left of them: nothing."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from heronpy.net import curve
from heronpy.net.join_token import JoinToken
from tests.engines.conftest import needs_slurm
from tests.support.slurm import SlurmCluster, slurm_cluster
from tests.support.slurm_topologies import Submitted
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.heavy, pytest.mark.slow, pytest.mark.timeout(590)]
NAME = "verbs"
#: A word that Count does not take comes once, and is given up.
PROGRAM = """
import time
from heronpy import Bolt, Grouping, Spout, TopologyBuilder

class Words(Spout):
    outputs = ["word"]

    def initialize(self, config, context):
        self.number = 0

    def next_tuple(self):
        time.sleep(0.01)
        self.number += 1
        self.emit(["bad" if self.number == 100 else f"word {self.number % 7}"])

class Count(Bolt):
    def initialize(self, config, context):
        self.seen = 0

    def process(self, tup):
        self.seen += 1
        if tup.values[0] == "bad":
            raise ValueError("no such word")
        if self.seen % 50 == 0:
            self.logger.info("seen %d", self.seen)

if __name__ == "__main__":
    builder = TopologyBuilder("verbs")
    words = builder.add_spout("words", Words, par=1)
    builder.add_bolt("count", Count, par=2, inputs={words: Grouping.fields("word")})
    builder.build_and_submit()
"""


def test_what_is_secret_is_shown_and_left_nowhere(home: Path, tmp_path: Path) -> None:
    needs_slurm()
    # Ended jobs are forgotten soon, and with them what Slurm keeps of their scripts.
    with slurm_cluster(nodes=3, purge_s=20, memory_mb=4000) as cluster:
        outputs = tmp_path / "outputs"
        outputs.mkdir(mode=0o700)
        program = tmp_path / "verbs.py"
        program.write_text(PROGRAM)
        rooms = {
            "slurm": {"output_dir": str(outputs)},
            "logging": {"echo": "true"},
            "packing": {"instance_ram_bytes": "100MB", "instance_cpu": 0.1},
        }
        it = Submitted(cluster, home, tmp_path / "hosts", rooms, NAME)
        it.heron("submit", "hpc", str(program))
        try:
            it.all_run()
            wait_for(lambda: "no such word" in it.heron("exceptions", "hpc", NAME), 60, "the exception")
            secrets = secrets_of(it, tmp_path / "hosts")
            assert len(secrets) >= 6
            shown_nowhere(it, secrets, (home, tmp_path, cluster.folder))
        finally:
            it.heron("kill", "hpc", NAME)
        left_nowhere(secrets, home, tmp_path, cluster)


# ---- secrets ----------------------------------------------------------------------------------------
def secrets_of(it: Submitted, hosts: Path) -> dict[str, bytes]:
    """All secrets that this run has made, by their kind."""
    found: dict[str, bytes] = {}
    for one in it.records().values():
        script = it.cluster.run("scontrol", "write", "batch_script", one.engine_id, "-")
        [text] = [line for line in script.splitlines() if line.startswith('{"topology_id"')]
        found["the token"] = JoinToken.from_text(text, "a batch script").client.secret
    for file in (one for top in (it.home, hosts) for one in top.rglob("*.key")):
        if file.name in ("server.key", "client.key"):
            found[str(file)] = curve.read_pair(file.parent, file.name).secret
    for file in hosts.rglob("credential.json"):
        found[str(file)] = str(json.loads(file.read_text())["secret"]).encode()
    for file in (path for path in it.home.rglob("keys/**/*") if path.is_file()):
        if re.fullmatch(rb"[0-9a-f]{64}\n", data := file.read_bytes()):
            found[f"the key of the credentials in {file}"] = data.strip()
    assert any(name.endswith("credential.json") for name in found) and any(
        "key of the credentials" in name for name in found
    )
    return {name: secret for name, secret in found.items() if secret}


def shown_nowhere(it: Submitted, secrets: dict[str, bytes], folders: tuple[Path, ...]) -> None:
    """While it runs: in nothing that others may read, and in no argument, variable, comment, state or log at all."""
    shown = {"scontrol show job": it.cluster.run("scontrol", "show", "job", "-d", "-a").encode()}
    for process in Path("/proc").glob("[0-9]*"):
        for name in ("environ", "cmdline"):
            try:
                shown[f"{process}/{name}"] = (process / name).read_bytes()
            except OSError:  # it has ended
                continue
    for file in files_in(*folders):
        data = file.read_bytes()
        if file.suffix in (".log", ".out", ".dead") or "/state/hpc/" in str(file):
            shown[str(file)] = data
        elif any(secret in data for secret in secrets.values()):
            assert is_private(file), f"others may read the secret in {file}"
    for where, data in shown.items():
        for name, secret in secrets.items():
            assert secret not in data, f"{name} is in {where}"


def left_nowhere(secrets: dict[str, bytes], home: Path, folder: Path, cluster: SlurmCluster) -> None:
    def left(*folders: Path) -> list[str]:
        return [
            f"{name} in {file}"
            for file in files_in(*folders)
            for name, secret in secrets.items()
            if secret in file.read_bytes()
        ]

    # The key with which this user reaches all present and future topologies of the cluster.
    own = home / "access" / "hpc" / "client.key"
    assert left(home, folder) == [f"{own} in {own}"]
    wait_for(lambda: not left(cluster.folder), 120, "Slurm forgetting the scripts of jobs that have ended")


def files_in(*folders: Path) -> Iterator[Path]:
    for top in folders:
        for where, _, names in os.walk(top):
            for name in names:
                file = Path(where) / name
                try:
                    if stat.S_ISREG(file.lstat().st_mode) and file.stat().st_size < 64 << 20:
                        file.read_bytes()
                        yield file
                except OSError:  # it is gone meanwhile
                    continue


def is_private(file: Path) -> bool:
    """Whether only its owner reaches it: by its own mode, or by that of a folder above."""
    if not file.stat().st_mode & 0o077:
        return True
    return any(not above.stat().st_mode & 0o011 for above in file.parents)
