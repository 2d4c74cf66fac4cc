"""What was submitted: all that a process of a topology must know wherever it runs.

It is made once at submit and never changed; it is in the state manager and in each host's launch file. Invariant: it
names no file, interpreter, key, limit, port or program of the submitting host. What names one is for people
(`source`, `origins`, `argv`), or a setting that the user gave as an absolute path, which then means that path on every
host.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Final

from msgspec import Struct, field

from heronpy.common.errors import ConfigError
from heronpy.common.setting_types import SettingValue
from heronpy.plan import json_fields

_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
#: Room to field to value.
Settings = dict[str, dict[str, SettingValue]]


class Submitted(Struct, frozen=True):
    """What `heron submit` decided for one topology."""

    topology: str
    topology_id: str
    cluster: str
    role: str
    environ: str
    submission_user: str
    release: str
    state_type: str
    engine: str = ""
    """Kind of the engine that runs its containers; "" for this machine."""
    environment: str = ""
    """Digest of the wheelhouse of its dependencies (`heron.engine.environment`); "" for none."""
    state_root: str = ""
    """The root of the state if every host reaches it under this name; "" for a kind that is in files of one host."""
    package: str | None = None
    """The digest of the package; None when everything is installed."""
    package_main: str | None = None
    """The package's file that is loaded as `__main__`; None when the package is imported."""
    package_archive: str | None = None
    """The package's file that holds all of it, for tasks that load from it; None if a folder was submitted."""
    needs_spark: bool = False
    dispatch_homes: dict[str, str] = field(default_factory=dict)
    """Component to the folder in which it hands groups of work units to Spark."""
    settings: dict[str, dict[str, SettingValue]] = field(default_factory=dict)
    """Room to field to resolved value."""
    origins: dict[str, str] = field(default_factory=dict)
    """`room.field` to the origin of its value, for people."""
    component_settings: dict[str, dict[str, SettingValue]] = field(default_factory=dict)
    """Component to the fields of room `instance` that it overrides."""
    source: str = ""
    """Folder or archive from which the package was made, for people: tracebacks name it. "" without a package."""
    argv: list[str] = field(default_factory=list)
    """`sys.argv` of the program at submit; tasks get the same."""
    argv_names_topology: bool = False
    """Whether its first argument is the topology's name, which the program's parser may not know."""

    def to_bytes(self) -> bytes:
        """As it is kept in the state manager."""
        return json_fields.dump(self).encode()

    @classmethod
    def from_bytes(cls, data: bytes, source: str) -> Submitted:
        """Read `to_bytes`; ConfigError, which names `source`, when it is damaged or of another release.

        A state manager may be open to others than the user, so one that names a file outside the package is refused.
        """
        found = json_fields.parse(cls, data.decode(errors="replace"), source)
        if found.package is not None and not _DIGEST.fullmatch(found.package):
            raise ConfigError(f"field 'package' of {source} is no digest; submit the topology again")
        if found.environment and not _DIGEST.fullmatch(found.environment):
            raise ConfigError(f"field 'environment' of {source} is no digest; submit the topology again")
        for name in ("package_main", "package_archive"):
            file = PurePosixPath(getattr(found, name) or "file")
            if file.is_absolute() or ".." in file.parts:
                raise ConfigError(f"field {name!r} of {source} leads out of the package; submit the topology again")
        return found
