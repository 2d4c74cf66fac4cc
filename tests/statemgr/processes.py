"""Processes that use a state manager, and can be killed."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 20.0


def start(kind: str, code: str, root: object, session_s: float = 10.0) -> subprocess.Popen[bytes]:
    """Run code in a process of its own until it prints its first line."""
    head = "import sys, os, signal\nfrom heronpy.statemgr import open_state\n"
    head += "from heronpy.net.endpoint_state import EndpointStateManager\n"
    head += "from heronpy.common.setting_types import StatemgrSettings\n"
    opening = "EndpointStateManager(" if kind == "endpoint" else f"open_state('{kind}', "
    head += f"state = {opening}sys.argv[1], StatemgrSettings(session_timeout_s={session_s}))\n"
    process = subprocess.Popen(
        [sys.executable, "-c", head + code, str(root)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert process.stdout
    assert select.select([process.stdout], [], [], DEADLINE_S)[0], "the process did not start"
    assert process.stdout.readline() == b"ready\n"
    return process


def kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait(DEADLINE_S)
    if process.stdout:
        process.stdout.close()
