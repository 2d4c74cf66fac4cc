"""Parses file patterns. Pure.

The *root* of a pattern is the path of its folders before the first wildcard; no file outside the root is opened. The
*key* of a file is its path below the root, so the key is the same wherever the root is mounted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fnmatch import translate
from typing import NamedTuple

#: A part of a pattern that matches any number of folders, including none.
ANY_FOLDERS = "**"
_WILD = re.compile(r"[*?\[]")


class Pattern(NamedTuple):
    """A pattern: the folder of its fixed part, and the parts below that folder; the last part matches file names."""

    root: str
    parts: tuple[str, ...]

    @property
    def text(self) -> str:
        return join(self.root, "/".join(self.parts))


def parse(text: str) -> Pattern:
    """Parse an absolute path with shell wildcards. Raises ValueError if the path cannot match a file."""
    if not text.startswith("/"):
        raise ValueError(f"{text!r} is not an absolute path")
    parts = [part for part in text.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise ValueError(f"{text} contains '..'; give the path without '..'")
    if not parts or text.endswith("/") or parts[-1] == ANY_FOLDERS:
        raise ValueError(f"{text} names a folder; name its files, such as {text.rstrip('/*')}/*.log")
    fixed = 0
    while fixed < len(parts) - 1 and not is_wild(parts[fixed]):
        fixed += 1
    return Pattern("/" + "/".join(parts[:fixed]), tuple(parts[fixed:]))


def is_wild(part: str) -> bool:
    """Whether a part of a pattern has wildcards."""
    return _WILD.search(part) is not None


def matcher(part: str) -> Callable[[str], bool]:
    """Return a function that checks whether a name matches a part. As in a shell, a hidden name matches only a part
    that begins with a dot.
    """
    found, shows_hidden = re.compile(translate(part)).match, part.startswith(".")
    return lambda name: found(name) is not None and (shows_hidden or not name.startswith("."))


def may_match_below(pattern: Pattern, folder: str, beginnings: Sequence[str]) -> bool:
    """Whether a pattern may match a file at any depth below those subfolders of `folder` whose names begin with one of
    `beginnings`. The answer is never False if a match is possible.
    """
    parts = [*(part for part in pattern.root.split("/") if part), *pattern.parts]
    last = len(parts) - 1
    at = _without(parts, {0})
    for name in (part for part in folder.split("/") if part):
        ahead = {index for index in at if parts[index] == ANY_FOLDERS}
        ahead |= {index + 1 for index in at if index < last and _takes(parts[index], name)}
        at = _without(parts, ahead)
    return any(parts[index] == ANY_FOLDERS or (index < last and _may_begin(parts[index], beginnings)) for index in at)


def _without(parts: Sequence[str], at: set[int]) -> set[int]:
    """Return these positions in the pattern, and the positions that are reached if `**` matches no folder."""
    found = set(at)
    for index, part in enumerate(parts):
        if index in found and part == ANY_FOLDERS:
            found.add(index + 1)
    return found


def _takes(part: str, name: str) -> bool:
    return part != ANY_FOLDERS and (matcher(part)(name) if is_wild(part) else part == name)


def _may_begin(part: str, beginnings: Sequence[str]) -> bool:
    wild = _WILD.search(part)
    fixed = part[: wild.start()] if wild else part
    return any(fixed.startswith(one) or (wild is not None and one.startswith(fixed)) for one in beginnings)


def join(folder: str, name: str) -> str:
    return folder + name if folder.endswith("/") else f"{folder}/{name}"


def key_of(root: str, path: str) -> str | None:
    """Return the path relative to a root; None if the path is outside the root."""
    start = join(root, "")
    key = path.removeprefix(start)
    if not path.startswith(start) or not key or any(part in ("", ".", "..") for part in key.split("/")):
        return None
    return key


def stem(path: str) -> str:
    """Return a file's name up to the last dot; rotated names begin with this stem.

    `app.log.1`, `app.log-20260101` and `app-2026-01-01.log` all begin with the stem of `app.log`.
    """
    name = path.rpartition("/")[2]
    return name.rpartition(".")[0] or name


def stems_of_origins(path: str) -> list[str]:
    """Return the stems of all names that a rotation may have changed into this name: the prefixes of this name."""
    name = path.rpartition("/")[2]
    return [name[:end] for end in range(1, len(name) + 1)]
