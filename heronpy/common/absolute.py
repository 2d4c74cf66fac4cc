"""Paths that mean the same wherever a process runs, and that can be compared."""

from __future__ import annotations

import os
from pathlib import Path


def absolute(path: str | os.PathLike[str]) -> Path:
    """The path from the root, with `~` and without `..`.

    A path that contains `..` is resolved as the system does, since the parent of a link is that of its
    target; other links stay, because people know a folder by the name they gave it.
    """
    given = Path(path).expanduser().absolute()
    parts = given.parts
    if ".." not in parts:
        return given
    after = len(parts) - parts[::-1].index("..")
    return Path(os.path.realpath(Path(*parts[:after])), *parts[after:])
