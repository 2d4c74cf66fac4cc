"""A scheduler's control endpoint in a process that a test can kill, stop and restart, and its containers."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from heronpy.common.folders import replace_file
from heronpy.common.setting_types import StatemgrSettings
from heronpy.net import endpoint_keys
from heronpy.net.endpoint_state import EndpointStateManager
from heronpy.net.join_token import JoinToken, SessionCredential
from heronpy.net.private import make_private
from tests.support.waiting import wait_for
from tests.support.zookeeper import free_ports

ROOT = Path(__file__).resolve().parents[2]
START_S = 20.0


class Endpoint:
    """One endpoint, on loopback; `rules` is "container" or "any"."""

    def __init__(self, folder: Path, rules: str = "container", topology: str = "wc", **options: Any) -> None:
        self.folder = folder
        self.topology = topology
        self.topology_id = f"{topology}-1"
        make_private(folder)
        endpoint_keys.make(str(folder))
        self.keys = endpoint_keys.load(str(folder), self.topology_id)
        self.port = free_ports(1)[0]
        self.options = {
            "topology": topology,
            "topology_id": self.topology_id,
            "port": self.port,
            "rules": rules,
            **options,
        }
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, **options: Any) -> None:
        """Start the endpoint, or restart it after a kill."""
        (self.folder / "options.json").write_text(json.dumps({**self.options, **options}))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.endpoint_process", str(self.folder)],
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        assert self.process.stdout is not None
        assert select.select([self.process.stdout], [], [], START_S)[0], "the control endpoint did not start"
        assert self.process.stdout.readline() == b"ready\n"

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        """Kill the endpoint, as if its host had failed. Idempotent."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(START_S)
            assert self.process.stdout is not None
            self.process.stdout.close()
            self.process = None

    def served(self) -> dict[str, int]:
        """Return the number of requests by container and kind since the start."""
        file = self.folder / "requests"
        file.unlink(missing_ok=True)
        self.signal(signal.SIGUSR1)
        wait_for(file.exists, START_S, "the endpoint's account")
        found: dict[str, int] = json.loads(file.read_text())
        return found

    def token(self, container: int = 1, submission: int = 1) -> Path:
        """Write a container's join token next to its session credential; return the path."""
        folder = self.folder / f"container-{container}-{submission}"
        if not folder.exists():
            make_private(folder)
            pairs = self.keys.keys
            address = f"tcp://127.0.0.1:{self.port}"
            token = JoinToken(self.topology_id, (address,), pairs.server.public, pairs.client)
            replace_file(folder / "join_token.json", token.to_text().encode())
            SessionCredential(container, submission, self.keys.secret_of(container, submission)).save(folder)
        return folder / "join_token.json"

    def open(self, container: int = 1, session_s: float = 10.0) -> EndpointStateManager:
        return EndpointStateManager(str(self.token(container)), StatemgrSettings(session_timeout_s=session_s))
