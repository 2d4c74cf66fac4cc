"""The version of heronpy."""

from __future__ import annotations

from importlib import metadata

import heronpy


def release() -> str:
    """The version of heronpy: of the installed distribution, or the source tree's own."""
    try:
        return metadata.version("heronpy")
    except metadata.PackageNotFoundError:
        return str(getattr(heronpy, "__version__", "0+source"))
