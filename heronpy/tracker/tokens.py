"""Tokens: 256 bits that are shown once and kept as their SHA-256, in a file that only its user reads.

The file has one JSON object per token. A change is written beside it and renamed: a reader sees the old or the new
one. It is read again when it changed, so that a token that was made or removed counts at once.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
import tempfile
import time
from pathlib import Path

import msgspec

from heronpy.common.errors import ConfigError
from heronpy.common.folders import make_folders, read_own
from heronpy.tracker.guard import GRANTS, Asker

FILE = "tokens.json"
TOKENS_MAX = 1000
_FILE_MAX_BYTES = 1 << 20
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,63}")
_WHERE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]*(/[A-Za-z0-9_][A-Za-z0-9_.\-]*){0,2}")


class Token(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A token as it is kept."""

    name: str
    #: SHA-256 of the token, hex.
    sha256: str
    #: Keys of `GRANTS`.
    scopes: list[str]
    #: `cluster[/role[/environ]]`; empty: everything.
    where: str = ""
    created_at: float
    #: Seconds since 1970; None: it does not expire.
    expires_at: float | None = None


class Tokens:
    """The tokens below a folder of the tracker."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE
        self._read: tuple[tuple[int, int, int], list[Token]] | None = None

    def all(self) -> list[Token]:
        """By name; ConfigError when the file is damaged or others can write to it."""
        try:
            status = os.stat(self.path)
        except FileNotFoundError:
            return []
        mark = (status.st_ino, status.st_mtime_ns, status.st_size)
        if self._read is None or self._read[0] != mark:
            try:
                found = msgspec.json.decode(read_own(self.path, _FILE_MAX_BYTES), type=list[Token])
            except (msgspec.DecodeError, OSError) as error:
                raise ConfigError(f"{self.path} cannot be read ({error}); remove it and make new tokens") from None
            self._read = mark, sorted(found, key=lambda token: token.name)
        return self._read[1]

    def create(self, name: str, scopes: list[str], where: str, lasts_s: float | None, now: float) -> str:
        """Make a token and return it: the only time that anybody sees it. ConfigError for what cannot be."""
        if not _NAME.fullmatch(name):
            raise ConfigError(f"'{name}' cannot be the name of a token; use letters, digits, '_', '-', '.' and '@'")
        unknown = [scope for scope in scopes if scope not in GRANTS]
        if unknown or not scopes:
            raise ConfigError(f"'{', '.join(unknown)}' is not a scope; scopes are {', '.join(GRANTS)}")
        if where and not _WHERE.fullmatch(where):
            raise ConfigError(f"'{where}' is not cluster[/role[/environ]]")
        kept = [token for token in self.all() if not _expired(token, now)]
        if any(token.name == name for token in kept):
            raise ConfigError(f"there is a token '{name}'; remove it first, or choose another name")
        if len(kept) >= TOKENS_MAX:
            raise ConfigError(f"there are {TOKENS_MAX} tokens; remove some")
        secret = secrets.token_urlsafe(32)
        expires_at = now + lasts_s if lasts_s is not None else None
        made = Token(
            name=name, sha256=_digest(secret), scopes=scopes, where=where, created_at=now, expires_at=expires_at
        )
        self._write([*kept, made])
        return secret

    def remove(self, name: str) -> None:
        """Forget a token; ConfigError when there is none of this name."""
        kept = [token for token in self.all() if token.name != name]
        if len(kept) == len(self.all()):
            raise ConfigError(f"there is no token '{name}'; see: heron ui token list")
        self._write(kept)

    def holder(self, secret: str, now: float) -> Asker | None:
        """Whose token this is; None for an unknown or expired one. Takes as long for every token."""
        digest, found = _digest(secret), None
        for token in self.all():
            if hmac.compare_digest(token.sha256, digest):
                found = token
        if found is None or _expired(found, now):
            return None
        scopes = frozenset(scope for name in found.scopes for scope in GRANTS.get(name, ()))
        return Asker(f"token {found.name}", scopes, found.where, found.expires_at)

    def any_valid(self, now: float | None = None) -> bool:
        """Whether there is a token that has not expired."""
        return any(not _expired(token, time.time() if now is None else now) for token in self.all())

    def _write(self, tokens: list[Token]) -> None:
        make_folders(self.path.parent)
        # mkstemp creates with mode 0600.
        descriptor, temporary = tempfile.mkstemp(prefix=f".{FILE}.", dir=self.path.parent)
        try:
            with open(descriptor, "wb") as file:
                file.write(msgspec.json.format(msgspec.json.encode(tokens)) + b"\n")
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self.path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
        self._read = None


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _expired(token: Token, now: float) -> bool:
    return token.expires_at is not None and token.expires_at <= now
