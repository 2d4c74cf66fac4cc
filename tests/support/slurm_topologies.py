"""Runs `heron` on the tests' Slurm, and reads a topology's containers from the scheduler and from Slurm."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from tests.support import judged
from tests.support.judged import SMALL, OnCluster
from tests.support.slurm import SlurmCluster

NAME = "WordCount"
#: Restart budget of the containers of `Judged`.
RESTARTS = 1
ROOMS: Mapping[str, Mapping[str, Any]] = {
    "engine": {"kind": "slurm", "renew_s": 1, "fence_s": 6, "lost_s": 12, "permit_s": 30, "poll_s": 0.5},
    # Two containers do not fit on one host.
    "packing": {"instance_ram_bytes": "150MB", "instance_cpu": 0.25},
}


def env_of(cluster: SlurmCluster) -> dict[str, str]:
    return {name: cluster.env[name] for name in ("SLURM_CONF", "PATH")}


def rooms_of(hosts: Path, given: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    rooms = {room: {**ROOMS.get(room, {}), **given.get(room, {})} for room in {*ROOMS, *given}}
    rooms["engine"]["home"] = str(hosts)
    return rooms


class Submitted(OnCluster):
    """Runs `heron` with any topology on the cluster `hpc`."""

    def __init__(
        self,
        cluster: SlurmCluster,
        home: Path,
        hosts: Path,
        rooms: Mapping[str, Mapping[str, Any]] | None = None,
        name: str = NAME,
    ) -> None:
        self.cluster = cluster
        super().__init__("hpc", home, name, rooms_of(hosts, rooms or {}), env_of(cluster))


class Judged(judged.Judged):
    """The topology of `heron verify` on Slurm, submitted on creation."""

    def __init__(self, cluster: SlurmCluster, home: Path, folder: Path, mode: str, **rooms: Mapping[str, Any]) -> None:
        shared = folder / "shared"
        shared.mkdir(mode=0o700)
        given = {"scheduler": {"container_restart_budget": RESTARTS}, "packing": SMALL, **rooms}
        super().__init__("hpc", home, shared, mode, rooms_of(folder / "hosts", given), env_of(cluster))
        self.submit()


def processes_of(engine_id: str) -> list[psutil.Process]:
    """Return the processes of a job, beginning with the first process."""
    job, _, index = engine_id.partition("_")
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            variables = process.environ()
            if (variables.get("SLURM_ARRAY_JOB_ID"), variables.get("SLURM_ARRAY_TASK_ID")) == (job, index):
                found.append(process)
    return sorted(found, key=lambda one: one.pid)
