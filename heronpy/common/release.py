"""The version of heronpy."""

from __future__ import annotations

from importlib import metadata

from heronpy.common.version import VERSION


def release() -> str:
    """The version of heronpy: of the installed distribution, or the source tree's own."""
    try:
        return metadata.version("heronpy")
    except metadata.PackageNotFoundError:
        return VERSION
