"""The clusters that are configured."""

from __future__ import annotations

from heronpy.clusters.client_config import ClientConfig, config_home
from heronpy.common import settings
from heronpy.common.errors import ConfigError


def known_clusters(config_path: str | None = None) -> list[str]:
    """Clusters that have settings files, in the folders that a command reads, or that of the client's own file."""
    try:
        found = set(settings.clusters_of(settings.find_conf(config_path)))
    except ConfigError:  # a folder that is not there, which the command says
        found = {"local"}
    home = config_home()
    named = [entry.name for entry in home.iterdir() if entry.is_dir()] if home.is_dir() else []
    return sorted(found.union(name for name in named if ClientConfig(name).get("config-path")))
