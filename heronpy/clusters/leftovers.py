"""Removes what no complete checkpoint of an ended run needs."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from heronpy.ckpt import catalogue
from heronpy.storage.checkpoints import CheckpointStore

#: Folders that are removed with the last checkpoint, when they are empty.
_PARTS = (".trash", "shared", "taskowned")
#: Greater than any checkpoint id.
_EVERY = 1 << 63


def clear_leftovers(folder: Path) -> None:
    """Remove what no complete checkpoint names from the folder of a run that has ended."""
    if not folder.is_dir():
        return
    rest = catalogue.in_folder(folder)
    known = [found.metadata for found in rest if found.metadata is not None]
    if len(known) == len(rest):
        # Nothing writes here any more, so work in progress counts for nothing.
        CheckpointStore(folder).sweep(known, before=_EVERY)
    if not rest:
        for part in _PARTS:
            with suppress(OSError):
                (folder / part).rmdir()
        with suppress(OSError):
            folder.rmdir()
