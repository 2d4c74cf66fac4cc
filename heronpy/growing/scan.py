"""Repeatedly finds the files that match a pattern, at low cost.

A scan lists folders and reads the sizes of matching files. No file is opened, so a pipe or a dead mount below
the pattern is reported but never blocks the scan. `Pace` decides the time of the next scan: scanning costs less than a
twentieth of a core for any number of files.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import NamedTuple

from msgspec import Struct

from heronpy.common.units import counted
from heronpy.growing.patterns import ANY_FOLDERS, Pattern, is_wild, join, key_of, matcher

INTERVAL_S = 0.5
#: Shortest interval between scans, as a multiple of a scan's duration.
COST_FACTOR = 20
FILES_MAX = 200_000
_LINK = "is a link, which is not followed; put its target into the pattern"
_SPECIAL = "is not a regular file; make the pattern exclude it"


class Entry(NamedTuple):
    """A matching regular file, as listed in its folder."""

    path: str
    device: int
    inode: int
    size: int
    #: A value that changes with the content, the name and the permissions.
    changed_ns: int


class Scan(Struct):
    """The result of one scan."""

    files: list[Entry] = []
    #: Maps a path or pattern to the reason why it is not read: a link, a pipe, an unreadable folder.
    refused: dict[str, str] = {}
    took_s: float = 0.0


class Pace:
    """Decides the time of the next scan, on a monotonic clock.

    `lookers`: number of processes that scan the same files and share the permitted cost.
    """

    def __init__(self, interval_s: float = INTERVAL_S, lookers: int = 1) -> None:
        self._interval_s = interval_s
        self._factor = COST_FACTOR * lookers
        self._took_s = 0.0
        self.due = float("-inf")

    def looked(self, now: float, took_s: float) -> None:
        """Record that a scan has just ended, and how long it took.

        The shorter of the last two durations counts: many new files make one scan long, but do not delay the next scan.
        """
        usual_s, self._took_s = min(took_s, self._took_s), took_s
        self.due = now + max(self._interval_s, self._factor * usual_s)

    def sooner(self, now: float, within_s: float) -> None:
        """Make the next scan earlier after a change was found. Even if changes continue, scanning takes at most half of
        the elapsed time.
        """
        self.due = min(self.due, now + max(within_s, self._took_s))


#: Messages for a pattern that matches no file: for following files, and for reading only present files.
WAITS = "matches no file yet; waiting for a file"
NOTHING = "matches no file, so nothing is processed for it"


class Scanner:
    """Scans for the files that match some patterns."""

    def __init__(self, patterns: Sequence[Pattern], files_max: int = FILES_MAX, no_match: str = WAITS) -> None:
        """`no_match` is the message for a pattern that matches no file."""
        self._no_match = no_match
        self._patterns = list(patterns)
        self._files_max = files_max

    def look(self) -> Scan:
        """Return each matching regular file once, sorted by path; report patterns that match too many files."""
        begun = time.monotonic()
        look = Scan()
        found: dict[str, Entry] = {}
        for pattern in self._patterns:
            before = len(found)
            for entry in _walk(pattern.root, pattern.parts, look.refused):
                if len(found) >= self._files_max:
                    limit = counted(self._files_max, "file")
                    look.refused[pattern.text] = f"matches more than {limit}; the rest is skipped; narrow the pattern"
                    break
                found.setdefault(entry.path, entry)
            if len(found) == before:
                look.refused.setdefault(pattern.text, self._no_match)
        look.files = sorted(found.values(), key=itemgetter(0))  # each path occurs once
        look.took_s = time.monotonic() - begun
        return look

    def root_of(self, path: str) -> tuple[str, str] | None:
        """Return a path's root and key; None if the path is outside all roots."""
        for pattern in self._patterns:
            key = key_of(pattern.root, path)
            if key is not None:
                return pattern.root, key
        return None


def siblings(path: str) -> list[tuple[str, int]]:
    """Return the path and inode of each regular file in the folder of a path; empty if the folder cannot be listed."""
    folder = path.rpartition("/")[0] or "/"
    try:
        with os.scandir(folder) as entries:
            files = [(join(folder, e.name), e.inode()) for e in entries if e.is_file(follow_symlinks=False)]
    except OSError:
        return []
    return [found for found in files if _is_text(found[0])]


def entry_of(path: str) -> Entry | None:
    """Return the regular file at a path; None for anything else."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return _entry(path, status) if stat.S_ISREG(status.st_mode) else None


def _walk(folder: str, parts: Sequence[str], refused: dict[str, str]) -> Iterator[Entry]:
    part, rest = parts[0], parts[1:]
    if not rest and not is_wild(part):
        # Look up a single file by name, because the folder may contain many other files.
        path = join(folder, part)
        try:
            status = os.lstat(path)
        except FileNotFoundError:
            return
        except OSError as error:
            refused[path] = f"cannot be read ({error.strerror}); check its folders"
            return
        if stat.S_ISDIR(status.st_mode):
            refused[path] = f"is a folder; name its files, such as {path}/*.log"
        yield from _regular(path, status, refused)
        return
    if part == ANY_FOLDERS:
        yield from _walk(folder, rest, refused)
    try:
        entries = list(os.scandir(folder))
    except FileNotFoundError:
        return
    except OSError as error:
        refused[folder] = f"cannot be listed ({error.strerror}); check its permissions"
        return
    matches = matcher("*" if part == ANY_FOLDERS else part)
    for entry in entries:
        if not matches(entry.name):
            continue
        if not rest:
            try:
                status = entry.stat(follow_symlinks=False)
            except OSError:
                continue  # removed during the scan
            if stat.S_ISREG(status.st_mode) and entry.path.isascii():
                yield _entry(entry.path, status)  # the usual case
            else:
                yield from _regular(entry.path, status, refused)
        elif entry.is_dir(follow_symlinks=False):
            yield from _walk(entry.path, parts if part == ANY_FOLDERS else rest, refused)
        elif entry.is_symlink() and entry.is_dir():
            refused[entry.path] = _LINK


def _is_text(path: str) -> bool:
    """Whether a path is valid text for checkpoints, rows and displays."""
    try:
        path.isascii() or path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _regular(path: str, status: os.stat_result, refused: dict[str, str]) -> Iterator[Entry]:
    if not _is_text(path):
        refused[path] = "has a name that is not UTF-8; rename it"
    elif stat.S_ISREG(status.st_mode):
        yield _entry(path, status)
    elif stat.S_ISLNK(status.st_mode):
        refused[path] = _LINK
    elif not stat.S_ISDIR(status.st_mode):
        refused[path] = _SPECIAL


def _entry(path: str, status: os.stat_result) -> Entry:
    return Entry(path, status.st_dev, status.st_ino, status.st_size, status.st_ctime_ns)
