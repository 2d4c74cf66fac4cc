"""The records of a sink, which waits while their disk is full or their store is away."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from heronpy.connectors.durable_files import UntilDone
from heronpy.storage.objects.port import Listing, Objects


class PatientObjects:
    """See `port.Objects`. Each request is repeated by `until_done`; a repeated one changes nothing more."""

    def __init__(self, objects: Objects, until_done: UntilDone) -> None:
        self._objects = objects
        self._until_done = until_done

    @property
    def name(self) -> str:
        return self._objects.name

    def put(self, key: str, data: bytes | bytearray | memoryview | Path) -> None:
        self._until_done(lambda: self._objects.put(key, data))

    def put_if_absent(self, key: str, data: bytes) -> bool:
        return self._until_done(lambda: self._objects.put_if_absent(key, data))

    def get(self, key: str) -> bytes:
        return self._until_done(lambda: self._objects.get(key))

    def head(self, key: str) -> int | None:
        return self._until_done(lambda: self._objects.head(key))

    def list(self, prefix: str = "", deep: bool = True) -> Listing:
        return self._until_done(lambda: self._objects.list(prefix, deep))

    def delete(self, keys: Iterable[str]) -> None:
        named = tuple(keys)
        self._until_done(lambda: self._objects.delete(named))

    def local_path(self, key: str) -> Path | None:
        return self._objects.local_path(key)
