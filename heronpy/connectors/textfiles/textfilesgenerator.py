"""Text files as a source of the streamlet API."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

from heronpy.connectors.textfiles.line_share import LineShare, absolute_patterns, find_files
from heronpy.streamlet.generator import Generator

_logger = logging.getLogger(__name__)


class TextFileGenerator(Generator):
    """The lines of the files that match `filepattern` (a glob, or a list of them).

    Each partition has its share, in file order, read block by block.
    """

    def __init__(self, filepattern: Any, encoding: str = "utf-8") -> None:
        super().__init__()
        self._patterns = absolute_patterns(filepattern)
        self._encoding = encoding
        self._lines: Iterator[str] = iter(())
        self._share: LineShare | None = None

    def setup(self, context: Any) -> None:
        """Finds the files and this partition's share of them."""
        files = find_files(self._patterns)
        self._share = LineShare(files, context.get_partition_index(), context.get_num_partitions(),
                                encoding=self._encoding)
        _logger.info("reading partition %d of %d of %d text files",
                     context.get_partition_index(), context.get_num_partitions(), len(files))

    def get(self) -> str:
        """The next line without its end; StopIteration after the last one."""
        for line in self._lines:
            return line
        if self._share is None:
            raise RuntimeError("TextFileGenerator.get() was called before setup().")
        block = self._share.next_block()
        if block is None:
            raise StopIteration
        self._lines = iter(block.lines)
        return next(self._lines)
