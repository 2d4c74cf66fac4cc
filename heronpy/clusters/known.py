"""The clusters that are configured."""

from __future__ import annotations

from heronpy.clusters.client_config import ClientConfig, config_home
from heronpy.common import settings
from heronpy.common.errors import ConfigError


def known_clusters(config_path: str | None = None) -> list[str]:
    """Clusters with settings files, in the folders that a command reads or in the folder of the client's file."""
    try:
        found = set(settings.clusters_of(settings.find_conf(config_path)))
    except ConfigError:  # a missing folder, which the command reports
        found = {"local"}
    home = config_home()
    named = [entry.name for entry in home.iterdir() if entry.is_dir()] if home.is_dir() else []
    return sorted(found.union(name for name in named if ClientConfig(name).get("config-path")))
