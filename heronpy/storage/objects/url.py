"""Names of places: paths of folders, and URLs in object stores. Pure.

A Url has the parts of Path that callers use: `name`, `parent`, `/` and `str`. A Url never contains credentials.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, TypeAlias
from urllib.parse import unquote

from msgspec import Struct

from heronpy.common.errors import ConfigError
from heronpy.common.folders import absolute

#: Schemes of object stores, and the word for the first part of the URL.
SCHEMES: Final = {"s3": "bucket", "gs": "bucket", "az": "container"}
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
_BUCKET: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}")
_PART: Final = re.compile(r"[^\x00-\x1f\x7f\\?#*]+")


class Url(Struct, frozen=True, order=True):
    """A place in an object store."""

    scheme: str
    bucket: str
    parts: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The path within the bucket; "" for the bucket itself."""
        return "/".join(self.parts)

    @property
    def name(self) -> str:
        """The last part of the path, or the bucket."""
        return self.parts[-1] if self.parts else self.bucket

    @property
    def parent(self) -> Url:
        """The URL without its last part; a bucket is its own parent."""
        return Url(self.scheme, self.bucket, self.parts[:-1])

    def __truediv__(self, path: str) -> Url:
        return Url(self.scheme, self.bucket, (*self.parts, *path.split("/")))

    def __str__(self) -> str:
        return "/".join((f"{self.scheme}://{self.bucket}", *self.parts))


Place: TypeAlias = Path | Url
"""The path of a folder, or a URL in an object store."""


def is_url(text: str) -> bool:
    """Whether a text has the form of a URL, with any scheme."""
    return _SCHEME.fullmatch(text) is not None


def place_of(text: str) -> Place:
    """Parse a path, `file:///path`, or an object store's URL. Raises ConfigError for any other text."""
    match = _SCHEME.fullmatch(text)
    if match is None:
        return absolute(text)
    scheme, rest = match[1].lower(), match[2]
    if scheme == "file":
        if not rest.startswith("/"):
            raise ConfigError(f"{text!r} names a host; write file:///PATH, or the path alone")
        return absolute(unquote(rest))
    if scheme not in SCHEMES:
        known = ", ".join(f"{one}://" for one in (*SCHEMES, "file"))
        raise ConfigError(f"{text!r} has the unknown scheme {match[1]}://; use one of {known}, or a path")
    bucket, *parts = rest.rstrip("/").split("/")
    what = SCHEMES[scheme]
    if "@" in bucket or "?" in rest or "#" in rest:
        raise ConfigError(
            f"a URL of {scheme}:// may contain only {what} and prefix; give credentials and options in the"
            " environment of the command, see docs/howto/object-stores.md"
        )
    if not _BUCKET.fullmatch(bucket):
        raise ConfigError(f"{text!r} does not name a {what}; write {scheme}://{what.upper()}/PREFIX")
    wrong = next((part for part in parts if part in (".", "..") or not _PART.fullmatch(part)), None)
    if wrong is not None:
        raise ConfigError(f"{text!r} has the part {wrong!r}, which cannot be part of a prefix")
    return Url(scheme, bucket, tuple(parts))
