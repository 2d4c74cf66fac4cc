"""`heron cluster init`: the settings of a new cluster."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from heronpy.cli import exits
from heronpy.cli.output import command, say, warning
from heronpy.clusters.client_config import ClientConfig, config_home
from heronpy.clusters.engines import check_kind
from heronpy.clusters.known import known_clusters
from heronpy.clusters.target import NAME, NAME_RULE
from heronpy.common.folders import absolute, make_folders, write_private_text
from heronpy.common.setting_types import ROOMS, SettingValue
from heronpy.common.settings import conf_text
from heronpy.engines.profile import profile_of


def init(name: str, engine: str, config_path: str | None) -> None:
    """Write the settings of a cluster; a Failure when there are some."""
    if not NAME.fullmatch(name):
        raise exits.Failure(f"'{name}' cannot be the name of a cluster; {NAME_RULE}", exits.USAGE)
    check_kind(engine)
    given = config_path or os.environ.get("HERON_CONF")
    base = absolute(given) if given else config_home() / "conf"
    folder = base / name
    if folder.exists() or name in known_clusters():
        where = f"{folder} exists" if folder.exists() else f"there is a cluster '{name}' already"
        raise exits.Failure(f"{where}, and is not overwritten; choose another name, or remove it", exits.EXISTS)
    found = profile_of(engine)
    if found.unknown:
        warning(f"nothing is filled in, because {engine} does not answer on this host: {found.unknown}")
    values: dict[str, dict[str, SettingValue]] = {"engine": {"kind": engine}}
    for room, fields in found.values.items():
        values.setdefault(room, {}).update(fields)
    _write(folder, values, found.notes)
    say(f"Wrote the settings of cluster {name} to {folder}")
    for room, given_values in values.items():
        for field, value in given_values.items():
            say(f"  {room}.yaml: {field}: {value}")
    if absolute(os.environ.get("HERON_CONF") or "/") != base:
        config = ClientConfig(name)
        config.set("config-path", str(base))
        say(f"  remembered in {config.path}: config-path")
    say(f"  next: {command('heron', 'cluster', 'check', name)}")


def _write(folder: Path, values: dict[str, dict[str, SettingValue]], notes: dict[str, list[str]]) -> None:
    """All rooms; the folder gets its name last, so that half a cluster is never found."""
    draft = folder.with_name(f".{folder.name}.{os.getpid()}")
    make_folders(draft)
    host = socket.gethostname()
    for room in ROOMS:
        lines = [f"found on host {host}: {note}" for note in notes.get(room, ())]
        write_private_text(draft / f"{room}.yaml", conf_text(room, values.get(room), lines))
    draft.rename(folder)
