"""Names of checkpoint folders and files below the folder of a topology instance. Pure."""

from __future__ import annotations

import re
from typing import Final

METADATA: Final = "metadata"
#: The name of an empty file in an abandoned checkpoint, whose topology was later restored from an older checkpoint.
ABANDONED: Final = "abandoned"

_FOLDER: Final = re.compile(r"chk-([0-9]{1,19})")
_IN_LOCATION: Final = re.compile(rf"/{_FOLDER.pattern}(?:/{METADATA})?/?$")
_PATH: Final = re.compile(r"shared/[0-9a-f]{64}-[0-9]{1,19}|(?:chk-[0-9]{1,19}|taskowned)/(?!\.)[A-Za-z0-9_.-]{1,200}")
_NAME: Final = re.compile(rf"(?!\.|(?:{METADATA}|{ABANDONED})$)[A-Za-z0-9_.-]{{1,200}}")


def folder_name(checkpoint: int) -> str:
    return f"chk-{checkpoint}"


def path_in(checkpoint: int, name: str = METADATA) -> str:
    """Return the path of a file that belongs only to this checkpoint."""
    return f"{folder_name(checkpoint)}/{name}"


def number_of(folder: str) -> int | None:
    """Return the number of the checkpoint whose folder has this name; None for other names."""
    match = _FOLDER.fullmatch(folder)
    return int(match[1]) if match else None


def number_in(location: str) -> int:
    """Return the number of the checkpoint in a location (see `location_of`); 0 if the location contains no number."""
    match = _IN_LOCATION.search(location)
    return int(match[1]) if match else 0


def is_path(path: str) -> bool:
    """Whether a path in metadata is a valid path of a checkpoint file."""
    return _PATH.fullmatch(path) is not None


def is_file_name(name: str) -> bool:
    """Whether this is a valid name for a file that belongs to one checkpoint."""
    return _NAME.fullmatch(name) is not None
