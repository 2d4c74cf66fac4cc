"""The calls of an object store, and their errors.

An object is a key, such as `chk-7/metadata`, and bytes. An object is either complete or absent, and every read
after a completed write returns the written bytes. There is no rename and no lock: an object that must be written only
once is written with `put_if_absent`.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from heronpy.common.errors import HeronError, RetryableError


class Trouble(Enum):
    """The reason why a store did not carry out a request; the value completes the sentence 'store X ...'."""

    AWAY = "cannot be reached"
    BUSY = "is overloaded"
    NO_CREDENTIALS = "needs credentials, but none were found"
    CREDENTIALS = "refuses the credentials"
    DENIED = "does not permit this request"
    NO_BUCKET = "does not exist"
    REGION = "is in another region"
    FULL = "is full or read-only"
    OTHER = "has failed"


class ObjectsError(RetryableError):
    """A store did not carry out a request; a later attempt may succeed."""

    def __init__(self, store: str, trouble: Trouble, detail: str = "") -> None:
        super().__init__(f"store {store} {trouble.value}" + (f" ({detail})" if detail else ""))
        self.store, self.trouble, self.detail = store, trouble, detail


class MissingObjectError(HeronError):
    """No object has this key."""

    def __init__(self, store: str, key: str) -> None:
        super().__init__(f"{store}/{key} is missing")
        self.key = key


class Listing(Struct, frozen=True):
    """The keys below a prefix."""

    objects: dict[str, int]
    """Maps each key to its size in bytes; keys are relative to the store, not to the prefix."""
    folders: tuple[str, ...] = ()
    """First parts of the keys at deeper levels; empty in a deep listing."""


class Objects(Protocol):
    """An object store or folder. Safe for threads, but not in a forked child.

    Every call raises ObjectsError if the store does not answer or refuses the request.
    """

    @property
    def name(self) -> str:
        """The name of the place, for messages and locations."""

    def put(self, key: str, data: bytes | bytearray | memoryview | Path) -> None:
        """Write or replace an object; a Path means the content of that file."""

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """Write an object unless its key exists; return whether the object is now `data`.

        If several callers create the object with different data, exactly one gets True, even if answers are lost.
        """

    def get(self, key: str) -> bytes:
        """Return the content of an object. Raises MissingObjectError for an unknown key."""

    def head(self, key: str) -> int | None:
        """Return the size of an object in bytes; None if the object is missing."""

    def list(self, prefix: str = "", deep: bool = True) -> Listing:
        """Return the objects below `prefix/`; without `deep`, only the first level, including its folders."""

    def delete(self, keys: Iterable[str]) -> None:
        """Remove objects; missing objects are ignored."""
