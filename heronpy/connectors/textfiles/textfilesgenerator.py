"""Text files as a source of the streamlet API."""

from __future__ import annotations

import logging
from typing import Any

from heronpy.connectors.textfiles.line_share import (
    LineBlock,
    LineShare,
    absolute_patterns,
    find_files,
)
from heronpy.streamlet.context import Context
from heronpy.streamlet.generator import Generator

_logger = logging.getLogger(__name__)


class TextFileGenerator(Generator[str]):
    """The lines of the files that `filepattern` (a glob, or a list of them) matches.

    Each partition has its share, in file order, read block by block. Under EFFECTIVELY_ONCE its
    position is part of the checkpoint; a restore needs the same number of partitions.
    """

    def __init__(self, filepattern: Any, encoding: str = "utf-8") -> None:
        super().__init__()
        self._patterns = absolute_patterns(filepattern)
        self._encoding = encoding
        self._block: LineBlock | None = None
        self._done = 0
        self._share: LineShare | None = None
        self._state: Any = None

    def setup(self, context: Context) -> None:
        """Finds the files and this partition's share of them; continues from a restored position."""
        self._state = context.get_state()
        restored = self._state["share"] if self._state is not None and "share" in self._state else None
        files = find_files(self._patterns, may_be_gone=restored is not None)
        self._share = LineShare(
            files, context.get_partition_index(), context.get_num_partitions(), encoding=self._encoding
        )
        self._block, self._done = None, 0
        if restored is not None:
            self._share.restore(restored, "This source of text files")
        _logger.info(
            "reading partition %d of %d of %d text files",
            context.get_partition_index(),
            context.get_num_partitions(),
            len(files),
        )

    def get(self) -> str:
        """The next line without its end; StopIteration after the last one."""
        if self._share is None:
            raise RuntimeError("TextFileGenerator.get() was called before setup()")
        if self._block is None or self._done == len(self._block.lines):
            self._block, self._done = self._share.next_block(), 0
            if self._block is None:
                raise StopIteration
        self._done += 1
        return self._block.lines[self._done - 1]

    def pre_save(self, checkpoint_id: str) -> None:
        """Puts the position into the state."""
        if self._share is None or self._state is None:
            return
        position = self._share.position
        if self._block is not None:
            at = self._block.position
            position = at._replace(lines_done=at.lines_done + self._done)
        self._state["share"] = self._share.to_state(position)
