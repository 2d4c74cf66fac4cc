"""The client's own defaults for a cluster: ~/.config/heron/<cluster>/cli.yaml.

Keys are `config-path`, `role`, `environ` and any setting `heron.<room>.<field>`; a setting in the file acts
like a --config-property that precedes those of the command line. Each write replaces the file.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path

from heronpy.clusters.errors import RequestError
from heronpy.clusters.target import NAME, NAME_RULE
from heronpy.common import settings
from heronpy.common.errors import ConfigError
from heronpy.common.folders import make_folders, replace_file
from heronpy.common.nearest import suggestion

CLIENT_KEYS = {
    "config-path": "folder with <cluster>/<room>.yaml files, like --config-path",
    "role": "role for commands that do not name one",
    "environ": "environ for commands that do not name one",
}


def config_home() -> Path:
    """HERON_CONFIG_HOME, or heron's folder in the user's configuration directory."""
    named = os.environ.get("HERON_CONFIG_HOME")
    if named:
        return Path(named).expanduser()
    base = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(base).expanduser() / "heron"


class ClientConfig:
    """Values of one cluster's cli.yaml."""

    def __init__(self, cluster: str) -> None:
        self.path = config_home() / cluster / "cli.yaml"

    @cached_property
    def values(self) -> dict[str, str]:
        if not self.path.is_file():
            return {}
        import yaml  # most users have no such file, and completion reads this module

        try:
            content = yaml.safe_load(self.path.read_text(encoding="utf-8")) or {}
        except (yaml.YAMLError, UnicodeDecodeError):
            raise RequestError(f"{self.path} is not valid YAML; correct or remove it") from None
        if not isinstance(content, dict):
            raise RequestError(f"{self.path} must contain 'key: value' lines; correct or remove it")
        return {str(key): _text(value) for key, value in content.items()}

    def get(self, key: str) -> str | None:
        return self.values.get(key)

    def properties(self) -> list[str]:
        """The settings in the file, as arguments of `--config-property`."""
        return [f"{key}={value}" for key, value in self.values.items() if key.startswith("heron.")]

    def given_in(self, overriding: Iterable[str]) -> dict[str, str]:
        """Map each setting in the file, except those in `overriding`, to the file's path."""
        return {key: str(self.path) for key in self.values if key.startswith("heron.") and key not in overriding}

    def set(self, key: str, value: str) -> list[str]:
        """Store a value; return warnings for the user."""
        warnings = check(key, value)
        self._write({**self.values, key: value})
        return warnings

    def unset(self, key: str) -> bool:
        """Remove a key; return False if it was not set."""
        if key not in self.values:
            return False
        left = {name: value for name, value in self.values.items() if name != key}
        if left:
            self._write(left)
        else:
            self.path.unlink()
            self.values = left
        return True

    def _write(self, values: dict[str, str]) -> None:
        import yaml

        make_folders(self.path.parent)
        replace_file(self.path, yaml.safe_dump(values, default_flow_style=False).encode(), durable=False)
        self.values = values


def check(key: str, value: str) -> list[str]:
    """Raise RequestError or ConfigError for an unknown key or an invalid value; return warnings about Apache's keys."""
    if key == "service_url":
        return ["service_url has no effect: heron connects to the cluster directly; set heron.statemgr.root instead"]
    if key in CLIENT_KEYS:
        if key != "config-path" and not NAME.fullmatch(value):
            raise RequestError(f"'{value}' is not a valid {key}; {NAME_RULE}")
        return []
    if not key.startswith("heron."):
        known = [*CLIENT_KEYS, "heron.<room>.<field>"]
        hint = suggestion(key, CLIENT_KEYS, f"; known keys are {', '.join(known)}")
        raise RequestError(f"'{key}' is not a key of the client's configuration{hint}")
    return settings.resolve("local", [], {}, {}, [f"{key}={value}"], given_in={key: "heron config set"}).ignored


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def known_clusters(config_path: str | None = None) -> list[str]:
    """Names of clusters with settings files, or with a `config-path` in the client's file."""
    try:
        found = set(settings.clusters_of(settings.find_conf(config_path)))
    except ConfigError:  # a folder is missing; the command itself reports this
        found = {"local"}
    home = config_home()
    named = [entry.name for entry in home.iterdir() if entry.is_dir()] if home.is_dir() else []
    return sorted(found.union(name for name in named if ClientConfig(name).get("config-path")))
