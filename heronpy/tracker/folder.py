"""The tracker's private folder in a HERON_HOME, for its record, log and tokens.

This module is separate because `heron ui` starts a tracker before it imports the modules that read the record.
"""

from __future__ import annotations

from pathlib import Path

from heronpy.common.folders import make_folders
from heronpy.net.private import check_private

RECORD = "tracker.json"
LOG = "tracker.log"


def folder_of(home: Path) -> Path:
    """Return the folder, and create it if it is missing. Raises ConfigError if other users may enter it."""
    folder = home / "tracker"
    make_folders(folder)
    check_private(folder)
    return folder
