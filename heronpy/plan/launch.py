"""The launch file: everything that a process of a topology must know before it has a connection.

`launch.json` is written once at submit, readable by the owner only, and never changed; every
process gets its path as `--launch`.  Plans live in the state manager, not here.  Invariant: a file
that loads has every field of `LaunchSpec`, each with its declared type, and no other field.
"""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from heronpy.common.errors import ConfigError
from heronpy.common.folders import make_folders, read_own
from heronpy.common.setting_types import SettingValue

_MAX_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """What `heron submit` decided for one topology."""

    topology: str
    topology_id: str
    cluster: str
    role: str
    environ: str
    submission_user: str
    release: str
    working_dir: str
    sockets_dir: str
    state_root: str
    state_type: str
    package_dir: str | None
    """Directory inserted first on sys.path of user processes; None for a plain file."""
    main_file: str | None
    """Plain Python file loaded as `__main__`; None when the package is imported."""
    python: str
    """Interpreter that runs the user's code."""
    needs_spark: bool = False
    package_archive: str | None = None
    """The package as one file, for tasks that load from it themselves; None if a folder was submitted."""
    settings: dict[str, dict[str, SettingValue]] = field(default_factory=dict)
    """Room to field to resolved value."""
    origins: dict[str, str] = field(default_factory=dict)
    """`room.field` to the origin of its value."""
    component_settings: dict[str, dict[str, SettingValue]] = field(default_factory=dict)
    """Component to the fields of room `instance` that it overrides."""
    source: str = ""
    """Folder or archive from which the package was made, as the user named it; "" without a package."""
    argv: list[str] = field(default_factory=list)
    """`sys.argv` of the program at submit; tasks get the same."""
    argv_names_topology: bool = False
    """Whether its first argument is the topology's name, which the program's parser may not know."""

    @property
    def log_dir(self) -> Path:
        """Directory of the log files of the topology's processes on this host."""
        return Path(self.working_dir) / "log-files"

    def to_json(self) -> str:
        """The specification as the text of a launch file."""
        content = {item.name: getattr(self, item.name) for item in fields(self)}
        return json.dumps(content, indent=2, sort_keys=True, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str, source: str = "launch file") -> LaunchSpec:
        """Parse the text of a launch file; `source` names it in errors."""
        try:
            content = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{source} is not valid JSON ({error}); submit the topology again") from None
        if not isinstance(content, dict):
            raise ConfigError(f"{source} must hold a JSON object; submit the topology again")
        known = {item.name: str(item.type) for item in fields(cls)}
        unknown = sorted(set(content) - set(known))
        if unknown:
            raise ConfigError(
                f"{source} has unknown field {unknown[0]!r}; it was written by another release of"
                " heronpy: submit the topology again"
            )
        missing = sorted(set(known) - set(content))
        if missing:
            raise ConfigError(f"{source} lacks field {missing[0]!r}; submit the topology again")
        for name, declared in known.items():
            if not _has_type(content[name], declared):
                raise ConfigError(
                    f"field {name!r} of {source} must be {declared} but is"
                    f" {type(content[name]).__name__}; submit the topology again"
                )
        return cls(**content)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> LaunchSpec:
        """Read a launch file."""
        try:
            text = read_own(path, _MAX_BYTES).decode()
        except OSError as error:
            raise ConfigError(f"cannot read launch file {path}: {error.strerror or error}") from None
        except UnicodeDecodeError:
            raise ConfigError(f"{path} is not UTF-8 text; submit the topology again") from None
        return cls.from_json(text, source=str(path))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the launch file: whole or not at all, readable by its owner only."""
        target = Path(path)
        make_folders(target.parent)
        # mkstemp creates with mode 0600, so the content is never readable by others.
        descriptor, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        try:
            with open(descriptor, "w", encoding="utf-8") as file:
                file.write(self.to_json())
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, target)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
        directory = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def _has_type(value: Any, declared: str) -> bool:
    """Whether a JSON value fits a declared field type of `LaunchSpec`."""
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
