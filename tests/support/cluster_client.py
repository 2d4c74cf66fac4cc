"""Runs `heron` as a user does, on a test cluster that `heron cluster init` has set up."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support import fish
from tests.support.command import REPO
from tests.support.waiting import wait_for

SMALL = {"packing": "instance_ram_bytes: 100MB\ninstance_cpu: 0.1\n"}


class ClusterClient:
    """Runs `heron` with one cluster; `program` is the small topology `fish`."""

    patience_s = 90.0

    def __init__(
        self, name: str, engine: str, folder: Path, env: Mapping[str, str], rooms: Mapping[str, str] | None = None
    ) -> None:
        self.name, self.engine, self.folder, self.rooms = name, engine, folder, {**SMALL, **(rooms or {})}
        self.conf, self.home = folder / "client" / "conf" / name, folder / "home"
        self.env = {**os.environ, **env, "HERON_HOME": str(self.home), "HERON_CONFIG_HOME": str(folder / "client")}
        self.env |= {"PYTHONPATH": str(REPO), "COLUMNS": "200"}
        self.env.pop("HERON_CONF", None)
        self.program = folder / "fish.py"
        shutil.copy(fish.__file__, self.program)

    def start(self, *words: str) -> subprocess.Popen[str]:
        argv = [sys.executable, "-m", "heronpy.cli", *words]
        return subprocess.Popen(argv, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def run(self, *words: str, code: int = 0, within_s: float = 200.0) -> str:
        """Run a `heron` command; return its output."""
        process = self.start(*words)
        out, err = process.communicate(timeout=within_s)
        assert process.returncode == code, f"{words}: {process.returncode}\n{out}\n{err}\n{self.scheduler_log()}"
        return out + err

    def scheduler_log(self) -> str:
        return "\n".join(one.read_text(errors="replace")[-4000:] for one in self.folder.rglob("scheduler.log"))

    def init(self) -> None:
        self.run("cluster", "init", self.name, "--engine", self.engine)
        for room, text in self.rooms.items():
            with open(self.conf / f"{room}.yaml", "a", encoding="utf-8") as file:
                file.write(text)

    def placed(self) -> dict[int, dict[str, Any]]:
        [row] = json.loads(self.run("list", self.name, "--json"))
        return {one["container"]: one for one in row["containers"] or ()}

    def phases(self) -> set[object]:
        return {one["phase"] for one in self.placed().values()}

    def all_run(self, differs: str = "", containers: int = 1) -> dict[int, dict[str, Any]]:
        """Wait until all containers run, in other objects than `differs`; return them by number."""

        def look() -> dict[int, dict[str, Any]]:
            found = self.placed()
            good = all(one["phase"] == "RUNNING" and one["engine_id"] != differs for one in found.values())
            return found if good and len(found) >= containers else {}

        return wait_for(look, self.patience_s, f"all containers running\n{self.scheduler_log()}")
