"""The files of the pages, by their names in one folder: read once, served with an ETag."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable

INDEX = "index.html"
FILE_MAX_BYTES = 4 << 20
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]*(/[A-Za-z0-9_][A-Za-z0-9_.@-]*){0,4}")
_MEDIA = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".json": "application/json",
    ".txt": "text/plain; charset=utf-8",
    ".woff2": "font/woff2",
}


@dataclass(frozen=True, slots=True)
class Page:
    """A file as it is served."""

    content: bytes
    media: str
    etag: str


def load(folder: Traversable | None = None) -> dict[str, Page]:
    """All files of the folder that can be served, by their paths."""
    found: dict[str, Page] = {}
    _load(folder if folder is not None else files("heronpy.tracker").joinpath("static"), "", found)
    return found


def _load(folder: Traversable, prefix: str, found: dict[str, Page]) -> None:
    for entry in sorted(folder.iterdir(), key=lambda one: one.name):
        path = prefix + entry.name
        suffix = "." + entry.name.rpartition(".")[2]
        if entry.is_dir():
            _load(entry, path + "/", found)
        elif _NAME.fullmatch(path) and suffix in _MEDIA:
            content = entry.read_bytes()
            if len(content) <= FILE_MAX_BYTES:
                etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
                found[path] = Page(content, _MEDIA[suffix], etag)
