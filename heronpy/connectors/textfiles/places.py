"""Where the content of a followed file is, and whether it is still there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from heronpy.connectors.textfiles.followed import Followed
from heronpy.growing.below import UnfitFileError, open_below
from heronpy.growing.chunks import bytes_before
from heronpy.growing.identity import HEAD_BYTES, Identity, digest, identify
from heronpy.growing.scan import Scanner

#: Why something cannot be opened or read.
UNREADABLE = (OSError, UnfitFileError)


class Places:
    """Opens the files that a scanner finds, for a moment each: no descriptor is kept."""

    def __init__(self, scanner: Scanner, header_lines: int) -> None:
        self._scanner = scanner
        self._header_lines = header_lines

    @contextmanager
    def open(self, path: str) -> Iterator[int]:
        """A descriptor of the regular file at a path; one of UNREADABLE when there is none that may be read."""
        place = self._scanner.root_of(path)
        if place is None:
            raise UnfitFileError("is not below the folders of the patterns")
        descriptor = open_below(*place)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def identify(self, file: Followed, descriptor: int, size: int) -> Identity:
        """What an open file is, compared with a known one."""
        mark = file.mark
        context = bytes_before(descriptor, mark.cut) if size >= mark.cut else None
        # Last: a file that is replaced meanwhile is another one, not a changed one.
        beginning = os.pread(descriptor, HEAD_BYTES, 0)
        found = identify(mark, size, beginning, context, header_lines=self._header_lines)
        return Identity.SHORTER if found is Identity.SAME and size < file.least else found

    def is_at(self, file: Followed, descriptor: int) -> bool:
        """Whether an open file is where a known one was last seen."""
        status = os.fstat(descriptor)
        return (file.device, file.inode) == (status.st_dev, status.st_ino)

    def is_it(self, file: Followed, descriptor: int) -> bool:
        """Whether an open file is where a known one was, and begins as it did."""
        head = os.pread(descriptor, file.mark.head_bytes, 0)
        return self.is_at(file, descriptor) and digest(head) == file.mark.head

    def begin_alike(self, file: Followed, descriptor: int, size: int) -> bool:
        """Whether an open file of this size is a beginning of a known one, which is longer and where it was.

        Also when the known one is not there any more: then nobody can say yet.
        """
        try:
            with self.open(file.path) as other:
                if not self.is_it(file, other):
                    return True
                return bytes_before(descriptor, size) == bytes_before(other, size)
        except UNREADABLE:
            return True

    def was_rewritten(self, file: Followed, descriptor: int) -> bool:
        """Whether the place of a known file, of which an open file has all that was read, has other content by now, or
        less: it was truncated."""
        try:
            with self.open(file.path) as other:
                if not self.is_at(file, other):
                    return False
                end = file.mark.cut
                return os.fstat(other).st_size < end or bytes_before(descriptor, end) != bytes_before(other, end)
        except UNREADABLE:
            return False  # the next look says what it is

    def goes_on(self, file: Followed, descriptor: int, size: int) -> bool:
        """Whether an open file, which had this size before this call, has all of what is at the place of a known one,
        and more: then that place is an older copy, as no copy is longer than what it was made from.
        """
        try:
            with self.open(file.path) as other:
                there = os.fstat(other).st_size
                if not file.mark.cut <= there < size or not self.is_it(file, other):
                    return False
                return bytes_before(descriptor, there) == bytes_before(other, there)
        except UNREADABLE:
            return False  # the next look says where it is
