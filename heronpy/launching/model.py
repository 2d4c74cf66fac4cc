"""The data passed between the steps of starting a topology."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from heronpy.common.settings import Resolved
from heronpy.plan.launch import LaunchSpec
from heronpy.plan.logical import LogicalPlan
from heronpy.proto import plan_pb2, topology_pb2

if TYPE_CHECKING:
    from heronpy.pools.shards import Size

#: Receives warnings about odd input that is not refused, one sentence at a time.
Warn: TypeAlias = Callable[[str], None]


def unheard(text: str) -> None:
    """Ignore a warning."""


class Loaded(Struct, frozen=True):
    """A topology and the files that its tasks need."""

    topology: topology_pb2.Topology
    package: Path | None
    """Folder or archive to store; None if everything is installed."""
    main_file: str | None
    """Path, within the package, of the file that ran as `__main__` and whose classes the topology uses."""
    source: str = ""
    """Folder or archive from which the package was made."""
    is_folder: bool = False
    """Whether the user submitted a folder; if not, tasks also get the package as one archive."""
    argv: tuple[str, ...] = ()
    """The program and its arguments."""
    argv_names_topology: bool = False
    plain: tuple[str, ...] = ()
    """Components that keep a plain State, whose content belongs to single tasks."""


class Kept(Struct, frozen=True):
    """The part of a submission that describes its stored package and its program; see `Submitted`."""

    package: str | None = None
    package_main: str | None = None
    package_archive: str | None = None
    source: str = ""
    argv: list[str] = []
    argv_names_topology: bool = False


class Restore(Struct, frozen=True):
    """A checkpoint that a topology may start from."""

    location: str
    checkpoint: int
    starting_empty: tuple[str, ...] = ()
    """Components without state in the checkpoint."""
    taken_at: float = 0.0
    """Wall time at which the checkpoint was taken."""


class Planned(Struct):
    """A topology that has passed every check that has no side effects."""

    topology: topology_pb2.Topology
    logical: LogicalPlan
    packing_plan: plan_pb2.PackingPlan
    resolved: Resolved
    needs_spark: bool
    engine: str = ""
    """Kind of the engine that runs the containers; "" for this machine."""
    restore: Restore | None = None
    """The checkpoint from which the topology starts; None to start empty."""
    pool: str = ""
    """The pool whose slots run the containers; "" if there is none."""
    slot: Size | None = None
    """Size of the slots, if this is a pool."""

    @property
    def tasks(self) -> int:
        return sum(len(container.instances) for container in self.packing_plan.containers)


class Started(Struct):
    """A topology whose scheduler is running."""

    record: plan_pb2.ExecutionState
    spec: LaunchSpec
    scheduler: subprocess.Popen[bytes]
