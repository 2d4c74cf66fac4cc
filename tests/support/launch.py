"""Makes launch files for tests."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from heronpy.plan.launch import Here, LaunchSpec, Submitted


def launch_spec(topology: str, topology_id: str, working_dir: Path, **fields: Any) -> LaunchSpec:
    """Return a launch file; state and sockets are in the working folder, unless `fields` say otherwise."""
    state_type = fields.get("state_type", "local")
    given: dict[str, Any] = {
        "cluster": "local",
        "role": "me",
        "environ": "default",
        "submission_user": "me",
        "release": "0",
        "state_type": state_type,
        **fields,
    }
    here: dict[str, Any] = {
        "working_dir": str(working_dir),
        "sockets_dir": str(working_dir),
        "state_root": str(working_dir / "state") if state_type == "local" else "",
        "python": sys.executable,
    }
    for name in [one for one in Here.__struct_fields__ if one in given]:
        if name != "state_root" or state_type == "local":
            here[name] = given.pop(name)
    return LaunchSpec(Submitted(topology=topology, topology_id=topology_id, **given), Here(**here))
