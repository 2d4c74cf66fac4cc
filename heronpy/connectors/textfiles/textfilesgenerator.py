"""Text files as a source of the streamlet API."""

from __future__ import annotations

import logging
from typing import Any

from heronpy.api.state.keyed_state import PartitionOwner
from heronpy.api.state.stateful_component import refuse_old_state
from heronpy.connectors.textfiles.decoding import TextFileError
from heronpy.connectors.textfiles.line_share import LineBlock, LineShare, absolute_patterns, find_files
from heronpy.streamlet.context import Context
from heronpy.streamlet.generator import Generator

_logger = logging.getLogger(__name__)


class TextFileGenerator(Generator[str]):
    """The lines of the files that `filepattern` (a glob or a list of globs) matches.

    Each partition reads its share block by block, in file order. Under EFFECTIVELY_ONCE its
    position is part of the checkpoint; a restore needs the same number of partitions.
    """

    bounded = True

    def __init__(self, filepattern: Any, encoding: str = "utf-8") -> None:
        super().__init__()
        self._patterns = absolute_patterns(filepattern)
        self._encoding = encoding
        self._block: LineBlock | None = None
        self._done = 0
        self._share: LineShare | None = None
        self._state: Any = {}

    def setup(self, context: Context) -> None:
        """Find the files and this partition's share of them; continue from a restored position."""
        index, partitions = context.get_partition_index(), context.get_num_partitions()
        self._state = context.get_state() if context.get_state() is not None else {}
        owner = "This source of text files"
        if "share" in self._state:
            refuse_old_state(self._state, owner)
        restored = "readers" in self._state
        if self._state.setdefault("readers", partitions) != partitions:
            raise TextFileError(
                f"{owner} has {partitions} tasks, but its positions were saved with {self._state['readers']};"
                f" restore with {self._state['readers']} tasks"
            )
        files = find_files(self._patterns, may_be_gone=restored)
        self._share = LineShare(
            files,
            PartitionOwner("", lambda: (index, partitions)).own,
            self._state.setdefault("lanes", {}),
            owner=owner,
            encoding=self._encoding,
        )
        self._block, self._done = None, 0
        _logger.info(
            "reading partition %d of %d of %d text files",
            index,
            partitions,
            len(files),
        )

    def get(self) -> str:
        """Return the next line without its line ending. Raises StopIteration after the last line."""
        if self._share is None:
            raise RuntimeError("TextFileGenerator.get() was called before setup()")
        if self._block is None or self._done == len(self._block.lines):
            self._block, self._done = self._share.next_block(), 0
            if self._block is None:
                raise StopIteration
        self._done += 1
        return self._block.lines[self._done - 1]

    def pre_save(self, checkpoint_id: str) -> None:
        """Put the position into the state."""
        if self._share is not None:
            self._share.keep(self._done)
