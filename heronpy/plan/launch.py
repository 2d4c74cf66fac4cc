"""The data that a topology's processes need to start: the submitted data, and the paths on this host.

`launch.json` contains the submitted data, which are equal on each host. `here.json`, next to it, contains the host's
own part. Both files are written before the first process of the topology starts on the host. Only the owner can read
them, and they do not change while a process runs. Every process gets the path of `launch.json` as `--launch`. Plans are
in the state manager. Invariant: a file that loads has exactly the fields of its type, each with its declared type.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from pathlib import Path, PurePosixPath
from typing import Any, Final, TypeVar

from msgspec import Struct, field

from heronpy.common.errors import ConfigError
from heronpy.common.folders import absolute, heron_home, make_folders, read_own, replace_file, sync_path
from heronpy.common.ids import short_hash
from heronpy.common.setting_types import SettingValue

_MAX_BYTES = 16 * 1024 * 1024
_AGAIN = "submit the topology again"

T = TypeVar("T", bound=Struct)
#: Value of `Submitted.program` for a pool's containers.
SLOT: Final = "slot"


def dump_json(item: Struct) -> str:
    """Encode a struct as the text of a file."""
    content = {name: getattr(item, name) for name in item.__struct_fields__}
    return json.dumps(content, indent=2, sort_keys=True, allow_nan=False) + "\n"


def parse_json(kind: type[T], text: str, source: str) -> T:
    """Decode a struct from `source`. Raises ConfigError unless the text has exactly the fields and types of `kind`."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{source} is not valid JSON ({error}); {_AGAIN}") from None
    if not isinstance(content, dict):
        raise ConfigError(f"{source} must contain a JSON object; {_AGAIN}")
    known = {name: kind.__annotations__[name] for name in kind.__struct_fields__}
    unknown = sorted(set(content) - set(known))
    if unknown:
        raise ConfigError(
            f"{source} has unknown field {unknown[0]!r}; it was written by another release of heronpy: {_AGAIN}"
        )
    missing = sorted(set(known) - set(content))
    if missing:
        raise ConfigError(f"{source} lacks field {missing[0]!r}; {_AGAIN}")
    for name, declared in known.items():
        if not _has_type(content[name], declared):
            raise ConfigError(
                f"field {name!r} of {source} must be {declared} but is {type(content[name]).__name__}; {_AGAIN}"
            )
    return kind(**content)


def read_json(kind: type[T], path: str | os.PathLike[str], what: str) -> T:
    """Read a struct from a file that only this user can have written; `what` names the file in errors."""
    try:
        text = read_own(path, _MAX_BYTES).decode()
    except OSError as error:
        raise ConfigError(f"cannot read {what} {path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not UTF-8 text; {_AGAIN}") from None
    return parse_json(kind, text, str(path))


def write_json(item: Struct, path: str | os.PathLike[str], durable: bool = True) -> None:
    """Write the file atomically, readable by its owner only.

    Without `durable`, the file is not synced to disk: for files that are written again after a machine crash.
    """
    target = Path(path)
    make_folders(target.parent)
    replace_file(target, dump_json(item).encode(), durable)
    if durable:
        sync_path(target.parent)


def _has_type(value: Any, declared: str) -> bool:
    if declared == "str | None":
        return value is None or isinstance(value, str)
    if declared == "str":
        return isinstance(value, str)
    if declared == "bool":
        return isinstance(value, bool)
    if declared == "list[str]":
        return isinstance(value, list) and all(isinstance(item, str) for item in value)
    if not isinstance(value, dict):
        return False
    if declared == "dict[str, str]":
        return all(isinstance(item, str) for item in value.values())
    return all(isinstance(item, dict) for item in value.values())


#: Environment variable with the path of the launch file, set in every process of a topology.
LAUNCH_VARIABLE = "HERON_LAUNCH"
#: Name of the host's file next to the launch file.
HERE_FILE = "here.json"
#: Maximum length of the folder of sockets, because the path of a socket may have at most 107 bytes.
_TEMPORARY_MAX_CHARS = 40
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
#: Settings: map from room to field to value.
Settings = dict[str, dict[str, SettingValue]]


class Submitted(Struct, frozen=True):
    """The submitted data: everything that a process of a topology must know on any host.

    The data are created at submission and never change. Copies are in the state manager and in each host's launch
    file. Invariant: no field names a file, interpreter, key, limit, port or program of the submitting host. Exceptions
    are fields shown to users (`source`, `origins`, `argv`), and settings that the user gave as absolute paths, which
    mean those paths on every host.
    """

    topology: str
    topology_id: str
    cluster: str
    role: str
    environ: str
    submission_user: str
    release: str
    state_type: str
    engine: str = ""
    """Kind of the engine that runs the containers; "" for this machine."""
    program: str = ""
    """The program of the containers: "" for one executor each; `slot` for a pool, where a container runs executors
    of other topologies.
    """
    pool: str = ""
    """The pool whose slots run the containers; "" if the topology has its own containers."""
    environment: str = ""
    """Digest of the wheelhouse with the dependencies (`heron.engine.environment`); "" if there is none."""
    state_root: str = ""
    """The root of the state if every host can reach it by this name; "" if the state is in files on one host."""
    package: str | None = None
    """The digest of the package; None if the program is installed."""
    package_main: str | None = None
    """The package's file that is loaded as `__main__`; None if the package is imported."""
    package_archive: str | None = None
    """The package as one file, for tasks that load from it; None if a folder was submitted."""
    needs_spark: bool = False
    dispatch_homes: dict[str, str] = field(default_factory=dict)
    """Map from component to the folder through which the component passes groups of work units to Spark."""
    settings: dict[str, dict[str, SettingValue]] = field(default_factory=dict)
    """Map from group of settings to field to resolved value."""
    origins: dict[str, str] = field(default_factory=dict)
    """Map from `group.field` of a setting to the origin of its value, which is shown to users."""
    component_settings: dict[str, dict[str, SettingValue]] = field(default_factory=dict)
    """Map from component to the settings of group `instance` that the component overrides."""
    source: str = ""
    """Folder or archive from which the package was made, as shown in tracebacks; "" if there is no package."""
    argv: list[str] = field(default_factory=list)
    """`sys.argv` of the submitting program; tasks get the same arguments."""
    argv_names_topology: bool = False
    """Whether the first argument is the topology's name, which the program's parser may not expect."""

    def to_bytes(self) -> bytes:
        """Encode the data for the state manager."""
        return dump_json(self).encode()

    @classmethod
    def from_bytes(cls, data: bytes, source: str) -> Submitted:
        """Decode the result of `to_bytes` from `source`. Raises ConfigError if it is damaged or from another release.

        Other users may be able to write to a state manager, so a launch that names a file outside the package is
        refused.
        """
        found = parse_json(cls, data.decode(errors="replace"), source)
        if found.package is not None and not _DIGEST.fullmatch(found.package):
            raise ConfigError(f"field 'package' of {source} is not a digest; submit the topology again")
        if found.environment and not _DIGEST.fullmatch(found.environment):
            raise ConfigError(f"field 'environment' of {source} is not a digest; submit the topology again")
        for name in ("package_main", "package_archive"):
            file = PurePosixPath(getattr(found, name) or "file")
            if file.is_absolute() or ".." in file.parts:
                raise ConfigError(f"field {name!r} of {source} leads out of the package; submit the topology again")
        return found


class Here(Struct, frozen=True):
    """The paths and the interpreter of a topology on this host.

    All paths are absolute.

    Each host with processes of a topology creates its own record and writes it next to its launch file. The record
    never leaves the host.
    """

    working_dir: str
    sockets_dir: str
    python: str
    """Interpreter that runs the user's code."""
    state_root: str = ""
    """Folder of the state if the state is in files on this host; "" for other kinds of state."""
    packages: str = ""
    """Folder of the stored packages."""
    checkpoints: str = ""
    """The folder of checkpoints if the settings name no folder."""
    address: str = ""
    """IPv4 address on which processes on this host listen for other hosts; "" if the settings name the address."""
    token: str = ""
    """File of the join token; "" if the containers are on the scheduler's host."""


def make_here(submitted: Submitted, launch_file: str | os.PathLike[str]) -> Here:
    """Create the record of this host, for a launch file in the topology's working folder."""
    return Here(
        working_dir=str(absolute(launch_file).parent),
        sockets_dir=str(sockets_dir(submitted.topology_id)),
        python=sys.executable,
        state_root=local_state_root(submitted.settings, submitted.cluster) if submitted.state_type == "local" else "",
        packages=str(packages_dir()),
        checkpoints=str(checkpoints_dir(submitted.cluster)),
    )


def settings_here(settings: Settings, checkpoints: str) -> Settings:
    """Return the settings with this host's checkpoint folder, unless the settings name a folder."""
    room = settings.get("checkpoint")
    return settings if room is None or room.get("root") else {**settings, "checkpoint": {**room, "root": checkpoints}}


def settings_anywhere(settings: Settings, checkpoints: str) -> Settings:
    """Return the settings without this host's checkpoint folder: the inverse of `settings_here`."""
    room = settings.get("checkpoint", {})
    return {**settings, "checkpoint": {**room, "root": ""}} if room.get("root") == checkpoints else settings


def checkpoints_dir(cluster: str) -> Path:
    """Return the default folder for a cluster's checkpoints."""
    return heron_home() / "checkpoints" / cluster


def packages_dir() -> Path:
    """Return the folder in which this host stores packages."""
    return heron_home() / "packages"


def local_state_root(settings: Settings, cluster: str) -> str:
    """Return the folder for a cluster's state if the state is in files."""
    given = settings.get("statemgr", {}).get("root")
    return str(absolute(str(given)) if given else heron_home() / "state" / cluster)


def sockets_dir(topology_id: str) -> Path:
    """Return the folder for a topology's sockets. The path is short, because a socket's path has at most 107 bytes."""
    base = tempfile.gettempdir()
    base = base if len(base) <= _TEMPORARY_MAX_CHARS else "/tmp"
    return Path(base) / f"heron-{os.getuid()}" / short_hash(topology_id)


class LaunchSpec(Struct, frozen=True):
    """The data that a process of a topology needs before it has a connection."""

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
        """The kind of state manager through which this host accesses the state."""
        return "endpoint" if self._state_is_at_endpoint else self.submitted.state_type

    @property
    def needs_spark(self) -> bool:
        return self.submitted.needs_spark

    @property
    def settings(self) -> Settings:
        """The settings by group and field, with this host's folders as defaults."""
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
        """Directory for the log files of the topology's processes on this host."""
        return Path(self.here.working_dir) / "log-files"

    @property
    def sockets_dir(self) -> str:
        return self.here.sockets_dir

    @property
    def address(self) -> str:
        """IPv4 address on which processes on this host listen for other hosts; "" if the settings name the address."""
        return self.here.address

    @property
    def state_root(self) -> str:
        if self._state_is_at_endpoint:
            return self.here.token
        return self.submitted.state_root or self.here.state_root

    @property
    def _state_is_at_endpoint(self) -> bool:
        """Whether the state is in files on the scheduler's host, which is not this host."""
        return bool(self.here.token) and self.submitted.state_type in ("local", "endpoint")

    @property
    def python(self) -> str:
        return self.here.python

    @property
    def package_dir(self) -> str | None:
        """Directory that user processes insert first in sys.path; None for a topology without a package."""
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
        """Read a launch file and the host's file next to it."""
        return cls(load_submitted(path), read_json(Here, _beside(path), "launch file"))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write both files, each atomically."""
        save_submitted(self.submitted, path)
        save_here(self.here, path)


def load_submitted(path: str | os.PathLike[str]) -> Submitted:
    """Read the submitted data from a launch file."""
    return read_json(Submitted, path, "launch file")


def save_submitted(submitted: Submitted, path: str | os.PathLike[str]) -> None:
    """Write a launch file, but not this host's file."""
    write_json(submitted, path)


def save_here(here: Here, path: str | os.PathLike[str]) -> None:
    """Write this host's file next to a launch file."""
    write_json(here, _beside(path), durable=False)


def _beside(path: str | os.PathLike[str]) -> Path:
    return Path(path).with_name(HERE_FILE)
