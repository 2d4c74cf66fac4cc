"""Computes, from the ends of the processed files, the state with which a stream continues a batch run. Pure.

Both states are partitioned, so any number of tasks may continue. Each task reads only its own files or lanes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from heronpy.common.errors import LedgerError
from heronpy.connectors.textfiles.followed import Table
from heronpy.connectors.textfiles.following import kept
from heronpy.connectors.textfiles.line_share import read_lanes
from heronpy.growing.identity import digest
from heronpy.growing.patterns import join
from heronpy.ingest.fingerprints import fingerprint_from
from heronpy.ingest.ledger.requests import KnownFile
from heronpy.ingest.ledger.types import FileState

State = dict[tuple[str, int], Any]


def followed_state(files: Iterable[KnownFile], root: str, header_lines: int = 0) -> State:
    """Return the partitioned state `TextFileSpout.FOLLOWED` of a spout that follows the files of a sealed pipeline.

    The spout reads each file from its sealed end on, and new files from their beginnings."""
    table = Table()
    for one in files:
        file, copy = one.file, next(iter(one.copies), None)
        if file.state is FileState.LATE:
            continue
        try:
            fingerprint = fingerprint_from(file.head, copy.tail if copy is not None else "0:")
        except ValueError:
            raise LedgerError(f"the ledger has no fingerprint of {file.key}, so no stream can continue it") from None
        if copy is None or fingerprint.cut > file.size:
            # The file is gone, or its end is unknown: only its beginning is compared.
            fingerprint = fingerprint._replace(cut=0, before=digest(b""))
        device, _, inode = copy.inode.partition(":") if copy is not None else ("0", "", "0")
        path = join(root, copy.path if copy is not None else file.key)
        table.add(path, int(device), int(inode), fingerprint, file.size, file.size)
    return kept(table.to_state(None, 0), header_lines)


def read_state(files: Iterable[KnownFile], root: str, block_bytes: int) -> State:
    """Return the partitioned state `TextFileSpout.LANES` of a non-following spout that has read these files."""
    names = ((copy.path for copy in one.copies[:1]) for one in files)
    paths = [join(root, path) for found in names for path in found]
    return {key: place for path in paths for key, place in read_lanes(path, block_bytes).items()}
