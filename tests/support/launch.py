"""Launch files of tests."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from heronpy.plan.launch import LaunchSpec


def launch_spec(topology: str, topology_id: str, working_dir: Path, **fields: Any) -> LaunchSpec:
    """The launch file of a topology whose state and sockets are in its working folder, but for the fields given."""
    given: dict[str, Any] = {
        "cluster": "local",
        "role": "me",
        "environ": "default",
        "submission_user": "me",
        "release": "0",
        "working_dir": str(working_dir),
        "sockets_dir": str(working_dir),
        "state_root": str(working_dir / "state"),
        "state_type": "local",
        "package_dir": None,
        "main_file": None,
        "python": sys.executable,
    }
    return LaunchSpec(topology=topology, topology_id=topology_id, **{**given, **fields})
