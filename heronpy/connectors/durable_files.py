"""Files that survive a power failure whole: records, renames, and the names that go into them.

What is written here is either there as a whole or absent, whatever dies in between.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any

from heronpy.common.errors import StateError
from heronpy.common.folders import open_private


def safe_name(name: str) -> str:
    """A file name for a component: itself when it is plain, else made plain and told apart by a hash."""
    plain = re.sub(r"[^A-Za-z0-9_.-]", "_", name)
    if plain == name and not name.startswith((".", "_")):
        return name
    return f"c{plain}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def run_token(topology_id: str) -> str:
    """Tells what one submission of a topology wrote from what any other did."""
    return hashlib.sha256(topology_id.encode()).hexdigest()[:8]


def read_bytes(path: Path) -> bytes | None:
    """The content of a file, or None when there is none."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def read_json(path: Path) -> dict[str, Any] | None:
    """A record, or None when there is none."""
    data = read_bytes(path)
    if data is None:
        return None
    try:
        record = json.loads(data)
    except (ValueError, RecursionError):
        raise StateError(f"record {path} is damaged; remove the file to go on without it") from None
    return record if isinstance(record, dict) else None


def write_record(path: Path, data: bytes) -> None:
    """Write a small file so that it is whole or absent, also after a power failure."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with open(open_private(temporary, os.O_WRONLY | os.O_TRUNC), "wb") as out:
        out.write(data)
        out.flush()
        os.fsync(out.fileno())
    os.rename(temporary, path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make renames in a folder durable."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
