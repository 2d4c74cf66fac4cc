"""The files with a user's keys to a cluster on this host (see `access`). Imports no large modules."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from heronpy.common.folders import heron_home
from heronpy.net.private import read_private

FOLDER: Final = "access"
KEY: Final = "client.key"
ORIGIN: Final = ".origin"
ORIGIN_MAX_BYTES: Final = 1024


def folder_of(cluster: str) -> Path:
    """The folder with a cluster's key and endpoint records."""
    return heron_home() / FOLDER / cluster


def has_key(cluster: str) -> bool:
    """Whether this host has a key for the control endpoints of the cluster's schedulers."""
    return (folder_of(cluster) / KEY).exists()


def origin_of(cluster: str) -> str:
    """The host from which the access was copied; "" if this host created the key, or has no key."""
    file = folder_of(cluster) / ORIGIN
    return read_private(file, ORIGIN_MAX_BYTES).decode(errors="replace").strip() if file.exists() else ""
