"""Where heron keeps its files on this host."""

from __future__ import annotations

import os
from pathlib import Path

from heronpy.common.absolute import absolute


def heron_home() -> Path:
    """Where heron keeps state, packages and working directories."""
    return absolute(os.environ.get("HERON_HOME") or "~/.herondata")
