"""An object store in memory, for tests, and as the model for tests of the other stores."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path

from heronpy.storage.objects.port import Listing, MissingObjectError


class MemoryObjects:
    """See `port.Objects`."""

    def __init__(self, name: str = "memory") -> None:
        self.name = name
        self._lock = threading.Lock()
        self._held: dict[str, bytes] = {}

    def put(self, key: str, data: bytes | bytearray | memoryview | Path) -> None:
        content = data.read_bytes() if isinstance(data, Path) else bytes(data)
        with self._lock:
            self._held[key] = content

    def put_if_absent(self, key: str, data: bytes) -> bool:
        with self._lock:
            return self._held.setdefault(key, bytes(data)) == data

    def get(self, key: str) -> bytes:
        with self._lock:
            if key not in self._held:
                raise MissingObjectError(self.name, key)
            return self._held[key]

    def head(self, key: str) -> int | None:
        with self._lock:
            return len(self._held[key]) if key in self._held else None

    def list(self, prefix: str = "", deep: bool = True) -> Listing:
        start = f"{prefix}/" if prefix else ""
        with self._lock:
            below = {key: len(data) for key, data in self._held.items() if key.startswith(start)}
        return below_prefix(below, start, deep)

    def delete(self, keys: Iterable[str]) -> None:
        with self._lock:
            for key in keys:
                self._held.pop(key, None)


def below_prefix(below: dict[str, int], start: str, deep: bool) -> Listing:
    """Return a listing of the keys below the prefix `start`; unless `deep`, one level with its folders (pure)."""
    if deep:
        return Listing(below)
    folders = {key[len(start) :].split("/", 1)[0] for key in below if "/" in key[len(start) :]}
    return Listing({key: size for key, size in below.items() if "/" not in key[len(start) :]}, tuple(sorted(folders)))
