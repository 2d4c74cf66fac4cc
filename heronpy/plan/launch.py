"""The launch of a topology as a process of it sees it: what was submitted, and where it is on this host.

`launch.json` holds what was submitted, the same on each host; `here.json` next to it holds the host's own part. Both
are written before the first process of the topology starts there, readable by the owner only, and not changed while one
runs; every process gets the path of the former as `--launch`. Plans live in the state manager, not here. Invariant: a
file that loads has every field of its type, each with its declared type, and no other.
"""

from __future__ import annotations

import os
from pathlib import Path

from msgspec import Struct

from heronpy.common.setting_types import SettingValue
from heronpy.plan import json_fields
from heronpy.plan.here import FILE, Here, settings_here
from heronpy.plan.submitted import Settings, Submitted

#: Every process of a topology has the path of its launch file in this variable of its environment.
LAUNCH_VARIABLE = "HERON_LAUNCH"


class LaunchSpec(Struct, frozen=True):
    """Everything that a process of a topology must know before it has a connection."""

    submitted: Submitted
    here: Here

    @property
    def topology(self) -> str:
        return self.submitted.topology

    @property
    def topology_id(self) -> str:
        return self.submitted.topology_id

    @property
    def release(self) -> str:
        return self.submitted.release

    @property
    def state_type(self) -> str:
        """The kind of state manager by which this host reaches the state."""
        return "door" if self._state_is_at_door else self.submitted.state_type

    @property
    def needs_spark(self) -> bool:
        return self.submitted.needs_spark

    @property
    def settings(self) -> Settings:
        """Room to field to value, with the folders of this host where none is given."""
        return settings_here(self.submitted.settings, self.here.checkpoints)

    @property
    def component_settings(self) -> dict[str, dict[str, SettingValue]]:
        return self.submitted.component_settings

    @property
    def origins(self) -> dict[str, str]:
        return self.submitted.origins

    @property
    def source(self) -> str:
        return self.submitted.source

    @property
    def argv(self) -> list[str]:
        return self.submitted.argv

    @property
    def argv_names_topology(self) -> bool:
        return self.submitted.argv_names_topology

    @property
    def working_dir(self) -> str:
        return self.here.working_dir

    @property
    def log_dir(self) -> Path:
        """Directory of the log files of the topology's processes on this host."""
        return Path(self.here.working_dir) / "log-files"

    @property
    def sockets_dir(self) -> str:
        return self.here.sockets_dir

    @property
    def address(self) -> str:
        """IPv4 address on which processes of this host listen for other hosts; "" where the settings name it."""
        return self.here.address

    @property
    def state_root(self) -> str:
        if self._state_is_at_door:
            return self.here.door
        return self.submitted.state_root or self.here.state_root

    @property
    def _state_is_at_door(self) -> bool:
        """Whether the state is in files of the scheduler's host, which is another one."""
        return bool(self.here.door) and self.submitted.state_type in ("local", "door")

    @property
    def python(self) -> str:
        return self.here.python

    @property
    def package_dir(self) -> str | None:
        """Directory inserted first on sys.path of user processes; None for a topology without a package."""
        package = self.submitted.package
        return os.path.join(self.here.packages, package) if package is not None else None

    @property
    def main_file(self) -> str | None:
        """Plain Python file loaded as `__main__`; None when the package is imported."""
        return self._in_package(self.submitted.package_main)

    @property
    def package_archive(self) -> str | None:
        """The package as one file; None if a folder was submitted."""
        return self._in_package(self.submitted.package_archive)

    def _in_package(self, name: str | None) -> str | None:
        folder = self.package_dir
        return os.path.join(folder, name) if folder is not None and name else None

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> LaunchSpec:
        """Read a launch file, and what was written next to it on this host."""
        return cls(load_submitted(path), json_fields.read(Here, _beside(path), "launch file"))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write both files, each whole or not at all."""
        save_submitted(self.submitted, path)
        save_here(self.here, path)


def load_submitted(path: str | os.PathLike[str]) -> Submitted:
    """What a launch file says of the submit."""
    return json_fields.read(Submitted, path, "launch file")


def save_submitted(submitted: Submitted, path: str | os.PathLike[str]) -> None:
    """Write a launch file, without the part of this host."""
    json_fields.write(submitted, path)


def save_here(here: Here, path: str | os.PathLike[str]) -> None:
    """Write what holds on this host, next to a launch file."""
    json_fields.write(here, _beside(path), durable=False)


def _beside(path: str | os.PathLike[str]) -> Path:
    return Path(path).with_name(FILE)
