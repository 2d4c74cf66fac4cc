"""Reads `jobs.yaml`, the settings of all jobs of a cluster, which is next to the cluster's other settings.

The file contains layer base, the quotas of roles, and the command that receives alerts.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from heronpy.common.errors import ConfigError
from heronpy.common.settings import JOBS_FILE, read_yaml
from heronpy.common.units import parse_bytes
from heronpy.jobs.documents import Leaves, leaves_of
from heronpy.jobs.merge import merge
from heronpy.scaling.capacity import Amount

#: The keys of the file that do not belong to the layer.
QUOTAS: Final = "quotas"
ALERT_COMMAND: Final = "alert_command"


class Base(NamedTuple):
    """The content of `jobs.yaml`."""

    leaves: Leaves
    """The leaves of layer base."""
    quotas: dict[str, Amount]
    """Map from a role to the resources that its jobs together may use in each pool."""
    alert_command: tuple[str, ...]
    """The command and its arguments; empty if there is no command."""


def read_base(conf_dirs: Iterable[str | os.PathLike[str]], cluster: str) -> Base:
    """Read the file in each folder; later files override earlier ones. Raises ConfigError with the file and key."""
    layers, quotas, command = [], dict[str, Amount](), ""
    for file in (Path(folder) / cluster / JOBS_FILE for folder in conf_dirs):
        if file.is_file():
            try:
                found = {key: value for key, (value, _) in read_yaml(file).items()}
                quotas |= quotas_of(found.pop(QUOTAS, {}))
                command = _command_of(found.pop(ALERT_COMMAND, command))
                layers.append(leaves_of(found, "base"))
            except ConfigError as error:
                text = str(error)
                raise ConfigError(text if text.startswith(str(file)) else f"{file}: {text}") from None
    return Base(merge(layers), quotas, tuple(shlex.split(command)))


def _command_of(given: object) -> str:
    """Return the command. Raises ConfigError unless a shell can split it into words."""
    if isinstance(given, str):
        with suppress(ValueError):
            shlex.split(given)
            return given
    wrong = f"'{ALERT_COMMAND}' is {given!r:.200}; it must be a program with its arguments"
    raise ConfigError(f"{wrong}, such as '/opt/page --team a'")


def quotas_of(given: object) -> dict[str, Amount]:
    """Return the quotas by role. Raises ConfigError with the role and the fix if a quota is invalid."""
    if not isinstance(given, dict):
        raise ConfigError(f"'{QUOTAS}' is {given!r:.200}; it must be a map of roles to quotas")
    found = {}
    for role, quota in given.items():
        try:
            found[str(role)] = Amount(float(quota.pop("cpu")), parse_bytes(quota.pop("ram")))
            if quota or not found[str(role)].cpu > 0 or not found[str(role)].ram_bytes > 0:
                raise ValueError
        except (ConfigError, AttributeError, KeyError, TypeError, ValueError):
            wrong = f"'{QUOTAS}.{role}' is not a quota; it must have cpu, a number of cores, and ram, an amount of"
            raise ConfigError(f"{wrong} bytes, such as {{cpu: 20, ram: 64GB}}") from None
    return found
