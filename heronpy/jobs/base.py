"""Reads `jobs.yaml`, the settings of all jobs of a cluster, which is next to the cluster's other settings.

The file contains layer base, the quotas of roles, and the command that receives alerts.
"""

from __future__ import annotations

import os
import shlex
import shutil
import stat
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from heronpy.common.errors import ConfigError
from heronpy.common.folders import another_user, trusted_owners
from heronpy.common.settings import JOBS_FILE, read_yaml
from heronpy.common.units import parse_bytes
from heronpy.jobs.documents import Leaves, leaves_of
from heronpy.jobs.merge import merge
from heronpy.scaling.capacity import Amount

T = TypeVar("T")

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


def read_base(conf_dirs: Sequence[str | os.PathLike[str]], cluster: str) -> Base:
    """Read all parts of the file in each folder; later files override earlier ones.

    Raises ConfigError with the file and key, as do the functions that read one part.
    """
    quotas, command = read_quotas(conf_dirs, cluster), read_command(conf_dirs, cluster)
    return Base(read_layer(conf_dirs, cluster), quotas, command)


def read_layer(conf_dirs: Iterable[str | os.PathLike[str]], cluster: str) -> Leaves:
    others = {QUOTAS, ALERT_COMMAND}
    return merge(
        _each(conf_dirs, cluster, lambda found: leaves_of({k: found[k] for k in found.keys() - others}, "base"))
    )


def read_quotas(conf_dirs: Iterable[str | os.PathLike[str]], cluster: str) -> dict[str, Amount]:
    found: dict[str, Amount] = {}
    for quotas in _each(conf_dirs, cluster, lambda found: quotas_of(found.get(QUOTAS, {}))):
        found |= quotas
    return found


def read_command(conf_dirs: Sequence[str | os.PathLike[str]], cluster: str) -> tuple[str, ...]:
    commands = _each(
        conf_dirs, cluster, lambda found: [_command_of(found[one]) for one in found if one == ALERT_COMMAND]
    )
    files = [file for file in (Path(folder) / cluster / JOBS_FILE for folder in conf_dirs) if file.is_file()]
    for file, those in zip(files, commands, strict=True):
        if any(those):
            _check_owners(file)
    return next((one for those in reversed(commands) for one in those), ())


def _check_owners(file: Path) -> None:
    """Raise ConfigError if a user other than this one and root could change the file, and so name the program to run.

    Members of the file's group may change it: that is an administrator's choice.
    """
    trusted = trusted_owners()
    for path in (file, file.parent, file.parent.parent):
        status = path.stat()
        if status.st_uid not in trusted:
            who = f"belongs to {another_user(status.st_uid)}"
        elif status.st_mode & stat.S_IWOTH:
            who = "can be changed by every user"
        else:
            continue
        raise ConfigError(
            f"{file}: '{ALERT_COMMAND}' is refused, because {path} {who}; the program would run as you, so use a folder"
            " that you own"
        )


def command_problem(command: Sequence[str]) -> str:
    """Return why the alert command cannot be started on this host; "" if it can, or if there is no command."""
    # Alerts are sent from the folder /.
    if not command or shutil.which(os.path.join("/", command[0]) if os.sep in command[0] else command[0]):
        return ""
    text = f"the program '{command[0]}' of '{ALERT_COMMAND}' in {JOBS_FILE} does not exist on this host, or cannot be"
    return f"{text} executed, so alerts are lost; install the program, or correct the file"


def _each(conf_dirs: Iterable[str | os.PathLike[str]], cluster: str, read: Callable[[dict[str, Any]], T]) -> list[T]:
    """Read a part of the file in each folder."""
    parts = []
    for file in (Path(folder) / cluster / JOBS_FILE for folder in conf_dirs):
        if file.is_file():
            try:
                parts.append(read({key: value for key, (value, _) in read_yaml(file).items()}))
            except ConfigError as error:
                text = str(error)
                raise ConfigError(text if text.startswith(str(file)) else f"{file}: {text}") from None
    return parts


def _command_of(given: object) -> tuple[str, ...]:
    """Return the words of the command. Raises ConfigError unless it can be split as a shell would split it."""
    if isinstance(given, str):
        with suppress(ValueError):
            words = tuple(shlex.split(given))
            if not words or words[0]:
                return words
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
