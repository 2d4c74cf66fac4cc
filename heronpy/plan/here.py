"""Where a topology is on this host: paths and the interpreter.

Each host that runs processes of a topology makes its own, where they run, and writes it next to its launch file; it
never leaves the host.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from msgspec import Struct

from heronpy.common.folders import absolute, heron_home
from heronpy.common.ids import short_hash
from heronpy.plan.submitted import Settings, Submitted

#: Next to the launch file.
FILE = "here.json"
#: A longer folder would not leave room for the names of sockets, whose paths may have 107 bytes.
_TEMPORARY_MAX_CHARS = 40


class Here(Struct, frozen=True):
    """The folders of one topology on one host, all absolute."""

    working_dir: str
    sockets_dir: str
    python: str
    """Interpreter that runs the user's code."""
    state_root: str = ""
    """Folder of a state that is in files of this host; "" for another kind."""
    packages: str = ""
    """Folder of the stored packages."""
    checkpoints: str = ""
    """Where checkpoints are if the settings name no folder."""
    address: str = ""
    """IPv4 address on which processes of this host listen for other hosts; "" where the settings name it."""
    door: str = ""
    """File of the ticket of the scheduler's door; "" where the containers are on the scheduler's host."""


def make_here(submitted: Submitted, launch_file: str | os.PathLike[str]) -> Here:
    """What holds on this host, for a launch file in the topology's working folder."""
    return Here(
        working_dir=str(absolute(launch_file).parent),
        sockets_dir=str(sockets_dir(submitted.topology_id)),
        python=sys.executable,
        state_root=local_state_root(submitted.settings, submitted.cluster) if submitted.state_type == "local" else "",
        packages=str(packages_dir()),
        checkpoints=str(checkpoints_dir(submitted.cluster)),
    )


def settings_here(settings: Settings, checkpoints: str) -> Settings:
    """The settings with this host's folder of checkpoints, unless they name one."""
    room = settings.get("checkpoint")
    return settings if room is None or room.get("root") else {**settings, "checkpoint": {**room, "root": checkpoints}}


def settings_anywhere(settings: Settings, checkpoints: str) -> Settings:
    """The settings without this host's folder of checkpoints: the inverse of `settings_here`."""
    room = settings.get("checkpoint", {})
    return {**settings, "checkpoint": {**room, "root": ""}} if room.get("root") == checkpoints else settings


def checkpoints_dir(cluster: str) -> Path:
    """Where the checkpoints of a cluster are if its settings name no folder."""
    return heron_home() / "checkpoints" / cluster


def packages_dir() -> Path:
    """Where this host stores packages."""
    return heron_home() / "packages"


def local_state_root(settings: Settings, cluster: str) -> str:
    """The folder of a cluster's state in files."""
    given = settings.get("statemgr", {}).get("root")
    return str(absolute(str(given)) if given else heron_home() / "state" / cluster)


def sockets_dir(topology_id: str) -> Path:
    """Folder of a topology's sockets: short, because a socket's path may have at most 107 bytes."""
    base = tempfile.gettempdir()
    base = base if len(base) <= _TEMPORARY_MAX_CHARS else "/tmp"
    return Path(base) / f"heron-{os.getuid()}" / short_hash(topology_id)
