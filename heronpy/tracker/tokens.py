"""The two tokens, of 256 bits each: shown once, and stored as SHA-256 in a file that only its owner can read.

A change is written to a new file, which is then renamed, so a reader sees either the old or the new file. The file is
read again when it has changed, so a new or removed token takes effect immediately.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from pathlib import Path

import msgspec

from heronpy.common.errors import ConfigError
from heronpy.common.folders import make_folders, read_own, replace_file
from heronpy.tracker.guard import Asker, Scope

FILE = "tokens.json"
_FILE_MAX_BYTES = 64 * 1024


class Digests(msgspec.Struct, forbid_unknown_fields=True):
    """SHA-256 of each token in hexadecimal; empty if the token does not exist."""

    view: str = ""
    all: str = ""


class Tokens:
    """The tokens in a tracker's folder."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE
        self._read: tuple[tuple[int, int, int], Digests] | None = None

    def _digests(self) -> Digests:
        """Read the file. Raises ConfigError if it is damaged or other users can write to it."""
        try:
            status = os.stat(self.path)
        except FileNotFoundError:
            return Digests()
        mark = (status.st_ino, status.st_mtime_ns, status.st_size)
        if self._read is None or self._read[0] != mark:
            try:
                found = msgspec.json.decode(read_own(self.path, _FILE_MAX_BYTES), type=Digests)
            except (msgspec.DecodeError, OSError) as error:
                raise ConfigError(f"{self.path} cannot be read ({error}); remove it and create new tokens") from None
            self._read = mark, found
        return self._read[1]

    def create(self, scope: Scope) -> str:
        """Create and return the token of a scope, which is never shown again. The previous token becomes invalid."""
        secret = secrets.token_urlsafe(32)
        self._write(msgspec.structs.replace(self._digests(), **{scope.value: _digest(secret)}))
        return secret

    def remove(self, scope: Scope) -> None:
        """Revoke the token of a scope. Raises ConfigError if it does not exist."""
        found = self._digests()
        if not getattr(found, scope.value):
            raise ConfigError(f"there is no token '{scope.value}'; create one with: heron ui token {scope.value}")
        self._write(msgspec.structs.replace(found, **{scope.value: ""}))

    def holder(self, secret: str) -> Asker | None:
        """Return the owner of a token; None for an unknown token. The check takes the same time for every token."""
        digest, kept = _digest(secret), self._digests()
        is_view, is_all = (hmac.compare_digest(one, digest) for one in (kept.view, kept.all))
        if not (is_view or is_all):
            return None
        scope = Scope.ALL if is_all else Scope.VIEW
        return Asker(f"the token '{scope.value}'", scope)

    @property
    def are_there(self) -> bool:
        """Whether any token exists."""
        return self._digests() != Digests()

    def _write(self, digests: Digests) -> None:
        make_folders(self.path.parent)
        replace_file(self.path, msgspec.json.encode(digests) + b"\n")
        self._read = None


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
