"""Prepares a container on its host: writes the files for the container's processes, checks the shared folders, and
fetches the package.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from heronpy.common.errors import ConfigError, DeadlineError, PackageError
from heronpy.common.flock import unlock
from heronpy.common.folders import make_folders, replace_file
from heronpy.common.setting_types import SecuritySettings
from heronpy.common.settings import settings_for
from heronpy.executor.host_folder import HostFolder
from heronpy.net import curve
from heronpy.net.addresses import address_here
from heronpy.net.curve import Pair
from heronpy.net.join_token import JoinToken, SessionCredential
from heronpy.plan.launch import Here, LaunchSpec, Submitted
from heronpy.proto import endpoint_pb2
from heronpy.statemgr.file_locks import holder, try_lock
from heronpy.storage.package_pieces import PackagePieces, either
from heronpy.storage.packages import PackageStore
from heronpy.storage.wheelhouse import digest_of, run_pip, unpack

log = logging.getLogger("heronpy.executor")

LAUNCH: Final = "launch.json"
TOKEN: Final = "join_token.json"
#: Time limit of the whole build, including a wait for another process that builds the same environment.
BUILD_MAX_S: Final = 900.0
_LOOK_S: Final = 0.1
_SHA256: Final = re.compile(r"[0-9a-f]{64}")


def build(home: Path, archive: Path, digest: str, timeout_s: float = BUILD_MAX_S) -> Path:
    """The Python interpreter of the environment with a wheelhouse's packages; creates the environment if it is missing.

    Raises PackageError if the environment cannot be created, and DeadlineError if creating it takes too long.

    `<home>/environments/<digest>/` is a virtual environment with access to the packages of the interpreter that created
    it, such as heronpy. Invariants: an environment appears with one rename, so it is complete or absent, even after a
    crash; if several processes need an environment, it is created once; nothing is downloaded, and no index is used.
    """
    if not _SHA256.fullmatch(digest):
        raise PackageError(f"{digest[:80]!r} is not the digest of a wheelhouse; submit the topology again")
    folder = home / "environments"
    entry = folder / digest
    deadline = time.monotonic() + timeout_s
    try:
        for name in (".tmp", ".locks"):
            make_folders(folder / name)
        if not _is_whole(entry):
            with _locked(folder / ".locks" / digest, deadline):
                if not _is_whole(entry):
                    _build(folder / ".tmp" / digest, entry, archive, digest, deadline)
    except OSError as error:
        where = error.filename or folder
        raise PackageError(f"cannot create an environment below {folder}: {where}: {error.strerror or error}") from None
    return entry / "bin" / "python"


def _is_whole(entry: Path) -> bool:
    return (entry / "bin" / "python").exists()


def _build(scratch: Path, entry: Path, archive: Path, digest: str, deadline: float) -> None:
    shutil.rmtree(scratch, ignore_errors=True)  # left by a process that died
    try:
        if digest_of(archive) != digest:
            raise PackageError(f"{archive} is not the wheelhouse that was submitted; submit the topology again")
        wheels, made = scratch / "wheels", scratch / "made"
        make_folders(wheels)
        files = unpack(archive, wheels)
        trouble = f"the environment of {archive.name} cannot be created on this host"
        _make(made, deadline, trouble)
        options = ["--python", str(made / "bin" / "python"), "--isolated", "install", "--no-index", "--quiet"]
        where = ["--find-links", str(wheels), *map(str, files)]
        run_pip([*options, *where], _left(deadline), trouble)
        _name_scripts(made, entry)
        if os.path.lexists(entry):
            shutil.rmtree(entry)  # it has lost its interpreter
        with contextlib.suppress(FileExistsError):  # another process was faster, on a host without working locks
            os.rename(made, entry)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _make(made: Path, deadline: float, trouble: str) -> None:
    """Create a virtual environment without pip and with access to the packages of this interpreter."""
    command = [sys.executable, "-P", "-m", "venv", "--system-site-packages", "--without-pip", str(made)]
    try:
        ran = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_left(deadline), text=True, errors="replace"
        )
    except subprocess.TimeoutExpired:
        raise DeadlineError(f"{trouble}: venv took too long") from None
    if ran.returncode:
        reason = (ran.stderr or ran.stdout).strip().splitlines()
        raise PackageError(f"{trouble}: {reason[-1] if reason else 'venv gave no reason'}")
    if sys.prefix != sys.base_prefix:
        # This interpreter belongs to a virtual environment, whose packages the new one would not see.
        ours = dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib"))
        lines = "".join(f"import site; site.addsitedir({path!r})\n" for path in ours)
        (_site_packages(made) / "heron-interpreter.pth").write_text(lines)


def _site_packages(made: Path) -> Path:
    return Path(sysconfig.get_path("purelib", "venv", {"base": str(made), "platbase": str(made)}))


def _name_scripts(made: Path, entry: Path) -> None:
    """Replace the environment's path in its scripts, because its folder will be renamed."""
    for file in (made / "bin").iterdir():
        if file.is_symlink() or not file.is_file():
            continue
        content = file.read_bytes()
        if bytes(made) in content and b"\0" not in content:
            file.write_bytes(content.replace(bytes(made), bytes(entry)))


@contextmanager
def _locked(file: Path, deadline: float) -> Iterator[None]:
    """Hold this host's lock for creating an environment."""
    while (descriptor := try_lock(file)) < 0:
        if time.monotonic() >= deadline:
            raise DeadlineError(
                f"{holder(file)} has not created environment {file.name[:12]} in time; check that process"
            )
        time.sleep(_LOOK_S)
    try:
        yield
    finally:
        file.unlink(missing_ok=True)
        unlock(descriptor)


def _left(deadline: float) -> float:
    return max(1.0, deadline - time.monotonic())


class Spans:
    """The steps of a container's start and their durations."""

    def __init__(self) -> None:
        self.taken: list[endpoint_pb2.StartSpan] = []

    def add(self, name: str, begun_at: float, took_s: float) -> None:
        """Add a step that began at the wall time `begun_at`."""
        self.taken.append(endpoint_pb2.StartSpan(name=name, begun_at=begun_at, took_s=took_s))

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Measure the duration of a step."""
        begun_at, begun = time.time(), time.monotonic()
        yield
        self.add(name, begun_at, time.monotonic() - begun)


def launch_of(welcome: endpoint_pb2.Welcome, token: JoinToken, folder: HostFolder, endpoint: str) -> LaunchSpec:
    """The launch specification for this host; may raise ConfigError. `endpoint` is the address that has answered."""
    submitted = Submitted.from_bytes(welcome.submitted, "the scheduler's answer")
    if submitted.topology_id != token.topology_id:
        raise ConfigError(
            "the scheduler at the control endpoint belongs to another topology; submit the topology again"
        )
    here = Here(
        working_dir=str(folder.path),
        sockets_dir=str(folder.sockets),
        python=sys.executable,
        packages=str(folder.packages),
        checkpoints=str(folder.path / "checkpoints"),
        token=str(folder.path / TOKEN),
    )
    security = settings_for(LaunchSpec(submitted, here), SecuritySettings)
    return LaunchSpec(submitted, replace(here, address=address_here(security.network, endpoint)))


def with_environment(launch: LaunchSpec, home: Path, wheelhouse: str) -> LaunchSpec:
    """The launch specification, changed to use its dependencies' environment, which is created if missing."""
    digest = launch.submitted.environment
    if not digest:
        return launch
    return replace(launch, here=replace(launch.here, python=str(build(home, Path(wheelhouse), digest))))


def write_files(
    welcome: endpoint_pb2.Welcome, token: JoinToken, credential: SessionCredential, launch: LaunchSpec
) -> Path:
    """Write launch specification, keys, join token and session credential; returns the path of the launch file."""
    folder = Path(launch.working_dir)
    curve.save(curve.folder_of(launch.working_dir), _pair(welcome.server), _pair(welcome.client))
    replace_file(folder / TOKEN, token.to_text().encode())
    credential.save(folder)
    launch.save(folder / LAUNCH)
    return folder / LAUNCH


def _pair(pair: endpoint_pb2.KeyPair) -> Pair:
    return Pair(bytes(pair.public), bytes(pair.secret))


def check_shared(welcome: endpoint_pb2.Welcome) -> None:
    """Raise ConfigError unless each shared folder is the same folder on this host and on the scheduler's host."""
    for folder in welcome.shared:
        if "/" in folder.name or not os.path.isabs(folder.path):
            raise ConfigError(f"the scheduler sent an invalid shared folder: {folder.path!r}, {folder.name!r}")
        if _read(os.path.join(folder.path, folder.name), len(folder.content) + 1) != folder.content:
            raise ConfigError(
                f"{folder.path} on host {socket.gethostname()} is not the folder of that name on the scheduler's host;"
                " mount the same folder on all hosts, or remove it from heron.engine.shared"
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


def fetch_package(welcome: endpoint_pb2.Welcome, launch: LaunchSpec, read: Callable[[str, int], bytes]) -> None:
    """Fetch the package unless this host has it; may raise PackageError. `read(package, offset)` reads one piece."""
    package = launch.submitted.package
    if package is None:
        return
    if welcome.package != package:
        raise ConfigError("the scheduler offers a package that is not the submitted one; submit the topology again")

    def from_endpoint(offset: int) -> bytes:
        return read(package, offset)

    source: Callable[[int], bytes] = from_endpoint
    if welcome.package_place:
        size, digest, place = welcome.package_bytes, bytes(welcome.package_sha256), welcome.package_place

        def from_place(offset: int) -> bytes:
            # The store is opened only when a piece is read, because this host may already have the package.
            return PackagePieces(place, launch.topology_id).read(digest, size, offset)

        source = either(from_place, from_endpoint, lambda error: log.warning("%s; trying the scheduler", error))
    PackageStore(launch.here.packages).fetch(package, source, welcome.package_bytes, welcome.package_sha256)
