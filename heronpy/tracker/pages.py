"""The files of the pages, by their names in one folder: read once, served with an ETag.

Comments and indents of our own modules, and the spaces of our style sheet, stay here: they are a fifth of what a
browser would load of them.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable

INDEX = "index.html"
FILE_MAX_BYTES = 4 << 20
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]*(/[A-Za-z0-9_][A-Za-z0-9_.@-]*){0,4}")
#: Libraries, served as published.
VENDOR = "vendor/"
#: Lines that are nothing but a comment, in the two forms that our modules have.
_COMMENT = re.compile(r"^ *(/\*\*(?:(?!\*/).)*\*/|//[^\n]*)$", re.MULTILINE | re.DOTALL)
#: The type of an expression within a line.
_CAST = re.compile(r"/\*\* @type \{[^}\n]*\} \*/ ")
#: No text of a page depends on it: a browser takes all of it for one space.
_INDENT = re.compile(r"^ +", re.MULTILINE)
#: An import, and space in it that it does not need; no line break, so that errors name the lines of the file.
_IMPORT = re.compile(r"^import \{[^}]*\} from", re.MULTILINE)
_IMPORT_SPACE = re.compile(r" *([{},]) *")
#: Space beside operators that no text of a page has.
_OPERATOR = re.compile(r" (===|!==|\?\?|&&|\|\||=>) ")
#: Space in a style sheet that no rule depends on; that before a colon may begin a selector.
_STYLE_SPACE = re.compile(r"\s*([{};,])\s*|(?<=:)\s+")
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
            if suffix == ".js" and not path.startswith(VENDOR):
                content = _without_space(without_comments(content.decode())).encode()
            elif suffix == ".css" and not path.startswith(VENDOR):
                content = _STYLE_SPACE.sub(r"\1", content.decode()).replace(";}", "}").encode()
            if len(content) <= FILE_MAX_BYTES:
                etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
                found[path] = Page(content, _MEDIA[suffix], etag)


def without_comments(text: str) -> str:
    """A module whose lines of comments are empty, so that errors name the lines of the file, and without types."""
    return _CAST.sub("", _COMMENT.sub(lambda match: "\n" * match[0].count("\n"), text))


def _without_space(text: str) -> str:
    text = _OPERATOR.sub(r"\1", _INDENT.sub("", text))
    return _IMPORT.sub(lambda found: _IMPORT_SPACE.sub(r"\1", found[0]), text)
