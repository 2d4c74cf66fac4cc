"""Opens followed files, and checks whether their content has moved."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from heronpy.connectors.textfiles.followed import Followed
from heronpy.growing.below import UnfitFileError, open_below
from heronpy.growing.chunks import bytes_before
from heronpy.growing.identity import HEAD_BYTES, Identity, digest, identify
from heronpy.growing.scan import Scanner

#: Errors of paths that cannot be opened or read.
UNREADABLE = (OSError, UnfitFileError)


class Places:
    """Opens the files that a scanner finds, each for a moment only: no descriptor is kept."""

    def __init__(self, scanner: Scanner, header_lines: int) -> None:
        self._scanner = scanner
        self._header_lines = header_lines

    @contextmanager
    def open(self, path: str) -> Iterator[int]:
        """Open the regular file at a path. Raises one of the errors in UNREADABLE if there is no readable file."""
        place = self._scanner.root_of(path)
        if place is None:
            raise UnfitFileError("is not inside any folder that the patterns name")
        descriptor = open_below(*place)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def identify(self, file: Followed, descriptor: int, size: int) -> Identity:
        """Compare an open file with a known file."""
        fingerprint = file.fingerprint
        context = bytes_before(descriptor, fingerprint.cut) if size >= fingerprint.cut else None
        # Checked last: a file that is replaced during the comparison is another file, not a changed file.
        beginning = os.pread(descriptor, HEAD_BYTES, 0)
        found = identify(fingerprint, size, beginning, context, header_lines=self._header_lines)
        return Identity.SHORTER if found is Identity.SAME and size < file.least else found

    def is_at(self, file: Followed, descriptor: int) -> bool:
        """Whether an open file is at the last known place of a known file."""
        status = os.fstat(descriptor)
        return (file.device, file.inode) == (status.st_dev, status.st_ino)

    def is_it(self, file: Followed, descriptor: int) -> bool:
        """Whether an open file is at the place of a known file, and begins in the same way."""
        head = os.pread(descriptor, file.fingerprint.head_bytes, 0)
        return self.is_at(file, descriptor) and digest(head) == file.fingerprint.head

    def begin_alike(self, file: Followed, descriptor: int, size: int) -> bool:
        """Whether an open file of this size is a prefix of a known, longer file at its old place.

        Also true if the known file is no longer at that place, because the answer is then unknown.
        """
        try:
            with self.open(file.path) as other:
                if not self.is_it(file, other):
                    return True
                return bytes_before(descriptor, size) == bytes_before(other, size)
        except UNREADABLE:
            return True

    def was_rewritten(self, file: Followed, descriptor: int) -> bool:
        """Whether the place of a known file now contains different or less content, because the file was truncated. The
        open file must contain all bytes that were read from the known file."""
        try:
            with self.open(file.path) as other:
                if not self.is_at(file, other):
                    return False
                end = file.fingerprint.cut
                return os.fstat(other).st_size < end or bytes_before(descriptor, end) != bytes_before(other, end)
        except UNREADABLE:
            return False  # the next scan determines what the file is

    def goes_on(self, file: Followed, descriptor: int, size: int) -> bool:
        """Whether an open file contains all bytes at the place of a known file, and more. Then that place contains an
        older copy, because no copy is longer than its original. `size`: the size of the open file before this call.
        """
        try:
            with self.open(file.path) as other:
                there = os.fstat(other).st_size
                if not file.fingerprint.cut <= there < size or not self.is_it(file, other):
                    return False
                return bytes_before(descriptor, there) == bytes_before(other, there)
        except UNREADABLE:
            return False  # the next scan finds its place
