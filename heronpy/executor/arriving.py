"""What a container does on its host before it can run.

It writes the files that its processes read, proves the shared folders, and fetches the package.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from heronpy.common.errors import ConfigError
from heronpy.common.setting_types import SecuritySettings
from heronpy.common.settings import settings_for
from heronpy.executor.environment import build
from heronpy.executor.host_folder import HostFolder
from heronpy.net import curve
from heronpy.net.addresses import address_here
from heronpy.net.curve import Pair
from heronpy.net.member import Membership
from heronpy.net.private import write_private
from heronpy.net.ticket import Ticket
from heronpy.plan.here import Here
from heronpy.plan.launch import LaunchSpec
from heronpy.plan.submitted import Submitted
from heronpy.proto import door_pb2
from heronpy.storage.package_pieces import PackagePieces, either
from heronpy.storage.packages import PackageStore

log = logging.getLogger("heronpy.executor")

LAUNCH: Final = "launch.json"
TICKET: Final = "ticket.json"


class Spans:
    """How long the steps of a start took, for people."""

    def __init__(self) -> None:
        self.taken: list[door_pb2.StartSpan] = []

    def add(self, name: str, begun_at: float, took_s: float) -> None:
        """A step that began at that wall time."""
        self.taken.append(door_pb2.StartSpan(name=name, begun_at=begun_at, took_s=took_s))

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Measure a step."""
        begun_at, begun = time.time(), time.monotonic()
        yield
        self.add(name, begun_at, time.monotonic() - begun)


def launch_of(welcome: door_pb2.Welcome, ticket: Ticket, folder: HostFolder, door: str) -> LaunchSpec:
    """The launch as it is on this host; `door`: the address at which the scheduler has answered. ConfigError."""
    submitted = Submitted.from_bytes(welcome.submitted, "the answer of the scheduler")
    if submitted.topology_id != ticket.topology_id:
        raise ConfigError("the scheduler at the door is another topology's; submit the topology again")
    here = Here(
        working_dir=str(folder.path),
        sockets_dir=str(folder.sockets),
        python=sys.executable,
        packages=str(folder.packages),
        checkpoints=str(folder.path / "checkpoints"),
        door=str(folder.path / TICKET),
    )
    security = settings_for(LaunchSpec(submitted, here), SecuritySettings)
    return LaunchSpec(submitted, replace(here, address=address_here(security.network, door)))


def with_environment(launch: LaunchSpec, home: Path, wheelhouse: str) -> LaunchSpec:
    """The launch with the interpreter of its dependencies, whose environment is made now unless this host has it."""
    digest = launch.submitted.environment
    if not digest:
        return launch
    return replace(launch, here=replace(launch.here, python=str(build(home, Path(wheelhouse), digest))))


def write_files(welcome: door_pb2.Welcome, ticket: Ticket, member: Membership, launch: LaunchSpec) -> Path:
    """Write launch, keys, ticket and the member's secret; the path of the launch file."""
    folder = Path(launch.working_dir)
    curve.save(curve.folder_of(launch.working_dir), _pair(welcome.server), _pair(welcome.client))
    write_private(folder / TICKET, ticket.to_text().encode())
    member.save(folder)
    launch.save(folder / LAUNCH)
    return folder / LAUNCH


def _pair(pair: door_pb2.KeyPair) -> Pair:
    return Pair(bytes(pair.public), bytes(pair.secret))


def check_shared(welcome: door_pb2.Welcome) -> None:
    """ConfigError unless each folder that the scheduler shares is the same one under its path here."""
    for folder in welcome.shared:
        if "/" in folder.name or not os.path.isabs(folder.path):
            raise ConfigError(f"the scheduler names no file of a shared folder: {folder.path!r}, {folder.name!r}")
        if _read(os.path.join(folder.path, folder.name), len(folder.content) + 1) != folder.content:
            raise ConfigError(
                f"{folder.path} on host {socket.gethostname()} is not the folder of that name on the scheduler's host;"
                " mount the same one on all hosts, or take it out of heron.engine.shared"
            )


def _read(path: str, max_bytes: int) -> bytes | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        return os.read(descriptor, max_bytes)
    except OSError:
        return None
    finally:
        os.close(descriptor)


def fetch_package(welcome: door_pb2.Welcome, launch: LaunchSpec, read: Callable[[str, int], bytes]) -> None:
    """See to it that this host has the package; PackageError. `read(package, offset)` asks the door."""
    package = launch.submitted.package
    if package is None:
        return
    if welcome.package != package:
        raise ConfigError("the scheduler offers another package than was submitted; submit the topology again")

    def from_door(offset: int) -> bytes:
        return read(package, offset)

    source: Callable[[int], bytes] = from_door
    if welcome.package_place:
        size, digest, place = welcome.package_bytes, bytes(welcome.package_sha256), welcome.package_place

        def from_place(offset: int) -> bytes:
            # Opened where it is needed: this host may have the package.
            return PackagePieces(place, launch.topology_id).read(digest, size, offset)

        source = either(from_place, from_door, lambda error: log.warning("%s; the scheduler has it, too", error))
    PackageStore(launch.here.packages).fetch(package, source, welcome.package_bytes, welcome.package_sha256)
