"""Writes files that survive a power failure, and derives their names.

Each file is either complete or absent, even if the writing process dies.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

from heronpy.common.errors import StateError
from heronpy.common.folders import open_private
from heronpy.common.folders import sync_path as sync_path

T = TypeVar("T")


class UntilDone(Protocol):
    """Retries an action while the disk is full or the store is unreachable; returns the action's result."""

    def __call__(self, action: Callable[[], T], /) -> T: ...


def safe_name(name: str) -> str:
    """Return a component's name as a valid file name; a name with special characters is simplified and gets a hash."""
    plain = re.sub(r"[^A-Za-z0-9_.-]", "_", name)
    if plain == name and not name.startswith((".", "_")):
        return name
    return f"c{plain}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def run_token(topology_id: str) -> str:
    """Return an id that is unique to a submission of a topology, for the names of the topology's output files."""
    return hashlib.sha256(topology_id.encode()).hexdigest()[:8]


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the content of a JSON file, or None if the file does not exist."""
    try:
        record = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError):
        raise StateError(f"record {path} is damaged; remove the file to resume without it") from None
    return record if isinstance(record, dict) else None


def write_record(path: Path, data: bytes) -> None:
    """Write a small file atomically, even if the power fails or several hosts write it."""
    with _written(path, data) as temporary:
        os.rename(temporary, path)
    sync_path(path.parent)


def make_record(path: Path, data: bytes) -> bool:
    """Write a new small file atomically. Return False, and change nothing, if the file exists."""
    try:
        with _written(path, data) as temporary:
            os.link(temporary, path)
    except FileExistsError:
        return False
    sync_path(path.parent)
    return True


@contextmanager
def _written(path: Path, data: bytes) -> Iterator[Path]:
    """Yield a temporary file with this content in the folder of `path`; remove the file after the block.

    The name is random, because processes on two hosts may have the same process id.
    """
    temporary = path.with_name(f".{path.name}.{os.urandom(8).hex()}.tmp")
    try:
        with open(open_private(temporary, os.O_WRONLY | os.O_EXCL), "wb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)
