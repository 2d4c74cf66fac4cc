"""The names of the folders and files of checkpoints, below the folder of a topology instance. Pure."""

from __future__ import annotations

import re
from typing import Final

METADATA: Final = "metadata"
#: An empty file in an abandoned checkpoint, whose topology was later restored from an older one.
ABANDONED: Final = "abandoned"

_FOLDER: Final = re.compile(r"chk-([0-9]{1,19})")
_IN_LOCATION: Final = re.compile(rf"/{_FOLDER.pattern}(?:/{METADATA})?/?$")
_PATH: Final = re.compile(r"shared/[0-9a-f]{64}-[0-9]{1,19}|(?:chk-[0-9]{1,19}|taskowned)/(?!\.)[A-Za-z0-9_.-]{1,200}")
_NAME: Final = re.compile(rf"(?!\.|(?:{METADATA}|{ABANDONED})$)[A-Za-z0-9_.-]{{1,200}}")


def folder_name(checkpoint: int) -> str:
    """The folder of one checkpoint."""
    return f"chk-{checkpoint}"


def path_in(checkpoint: int, name: str = METADATA) -> str:
    """The path of a file of this checkpoint alone."""
    return f"{folder_name(checkpoint)}/{name}"


def number_of(folder: str) -> int | None:
    """The checkpoint whose folder has this name; None if it is not the folder of a checkpoint."""
    match = _FOLDER.fullmatch(folder)
    return int(match[1]) if match else None


def number_in(location: str) -> int:
    """The checkpoint at a location, as in plans and commands; 0 if it has no number."""
    match = _IN_LOCATION.search(location)
    return int(match[1]) if match else 0


def is_path(path: str) -> bool:
    """Whether a path in metadata has the form of a checkpoint's file."""
    return _PATH.fullmatch(path) is not None


def is_file_name(name: str) -> bool:
    """Whether a file of one checkpoint may have this name."""
    return _NAME.fullmatch(name) is not None
