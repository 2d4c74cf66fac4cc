"""The environment of the processes that a command starts.

This module must be cheap to import, because some commands start a process before they do anything else.
"""

from __future__ import annotations

import os
from pathlib import Path

from heronpy.common import version
from heronpy.common.folders import absolute


def child_environment(extra: dict[str, str]) -> dict[str, str]:
    """Return this process's environment, with heronpy importable from any folder."""
    home = str(Path(version.FILE).absolute().parents[2])
    inherited = [str(absolute(path)) for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    installed = "site-packages" in home or "dist-packages" in home
    path = [*inherited] if installed or home in inherited else [home, *inherited]
    environment = {**os.environ, **extra}
    if environment.get("HERON_HOME"):
        environment["HERON_HOME"] = str(absolute(environment["HERON_HOME"]))  # processes run in other folders
    if path:
        environment["PYTHONPATH"] = os.pathsep.join(path)
    return environment
