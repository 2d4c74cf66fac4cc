"""Removes what no complete checkpoint of an ended run needs."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from heronpy.ckpt import catalogue
from heronpy.storage.locations import open_store
from heronpy.storage.objects.url import Place

#: Folders that are removed with the last checkpoint, when they are empty.
_PARTS = (".trash", "shared", "taskowned")
#: Greater than any checkpoint id.
_EVERY = 1 << 63


def clear_leftovers(folder: Place) -> None:
    """Remove what no complete checkpoint names from the folder of a run that has ended."""
    store = open_store(folder)
    if not store.exists():
        return
    rest = catalogue.in_folder(folder)
    known = [found.metadata for found in rest if found.metadata is not None]
    if len(known) == len(rest):
        # Nothing writes here any more, so work in progress counts for nothing.
        store.sweep(known, before=_EVERY)
    if not rest and isinstance(folder, Path):
        for part in _PARTS:
            with suppress(OSError):
                (folder / part).rmdir()
        with suppress(OSError):
            folder.rmdir()
