"""Writes and deletes the checkpoint files for which the topology master is responsible.

All work runs outside the event loop: one thread writes metadata and another deletes files, so slow deletions never
delay a checkpoint. Invariants: At most one write and one deletion run at a time, in order. The next sweep repeats a
failed deletion. No function of this module raises an exception.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from heronpy.common.errors import HeronError, StateError
from heronpy.proto import checkpoint_pb2
from heronpy.storage.checkpoints import CheckpointStore
from heronpy.storage.stores import Stores
from heronpy.tmaster.events import Failed, Prune, Written

log = logging.getLogger("heronpy.tmaster")

#: Maximum number of metadata messages cached in memory.
CACHED_MAX = 64


def _ignore(failure: Failed | None) -> None:
    """Do nothing, because no caller waits for the deletion."""


class Archive:
    """Writes and deletes checkpoint files. `open_stores` is called once, in a thread, when a store is first needed."""

    def __init__(self, open_stores: Callable[[], Stores], release: str = "") -> None:
        self._open_stores = open_stores
        self._release = release
        self._opened: Stores | None = None
        self._writer = ThreadPoolExecutor(1, "checkpoint-writer")
        self._cleaner = ThreadPoolExecutor(1, "checkpoint-cleaner")
        self._cache: dict[int, checkpoint_pb2.Metadata] = {}
        #: Failed deletions, repeated by the next sweep.
        self.failures = 0
        self._swept = False

    def write(self, metadata: checkpoint_pb2.Metadata, done: Callable[[Written | Failed], None]) -> None:
        """Write a checkpoint's metadata; `done` is called in another thread."""
        self._writer.submit(self._write, metadata, done)

    def _write(self, metadata: checkpoint_pb2.Metadata, done: Callable[[Written | Failed], None]) -> None:
        metadata.taken_at, metadata.release = time.time(), self._release
        try:
            location = self._stores().store.write_metadata(metadata)
        except (HeronError, OSError) as error:
            self._leave()
            done(Failed(_reason(error)))
            return
        except Exception as error:
            log.exception("cannot write the metadata of checkpoint %d", metadata.checkpoint)
            done(Failed(repr(error)))
            return
        self._remember(metadata)
        done(Written(location))

    def prune(self, wanted: Prune, done: Callable[[Failed | None], None] = _ignore) -> None:
        """Delete checkpoints and all files that no kept checkpoint needs, and mark abandoned checkpoints. The first
        call also sweeps the folders.

        `done` is called in another thread, with None when all files of the checkpoints are deleted.
        """
        self._cleaner.submit(self._prune, wanted, done)

    def _prune(self, wanted: Prune, done: Callable[[Failed | None], None]) -> None:
        failure: Failed | None = None
        try:
            self._mark(wanted)
            self._clear(wanted.delete, wanted.keep)
        except (HeronError, OSError) as problem:
            failure = Failed(_reason(problem))
        except Exception as problem:
            log.exception("cannot delete old checkpoints")
            failure = Failed(repr(problem))
        if failure is not None:
            self.failures += 1
            log.warning("cannot delete old checkpoints (%s); the next sweep will try again", failure.reason)
        for number in wanted.delete:
            self._cache.pop(number, None)
        done(failure)

    def _mark(self, wanted: Prune) -> None:
        """Mark abandoned checkpoints on disk, so that `heron submit`, which reads only folders, never uses them."""
        for store in self._stores().homes():
            for number in set(store.checkpoints()) & set(wanted.keep):
                store.mark_abandoned(number, number in wanted.abandoned)

    def _clear(self, delete: tuple[int, ...], keep: tuple[int, ...]) -> None:
        homes = self._stores().homes()
        there = [set(store.checkpoints()) for store in homes]
        lost = sorted(set(keep).difference(*there))
        sweeps = self.failures > 0 or not self._swept
        before = max(keep, default=0) + 1
        for store, numbers in zip(homes, there, strict=True):
            # A checkpoint and all of its files are in one store; if its store is unknown, search all stores.
            kept = self._load(store, [n for n in keep if n in numbers or lost])
            dropped = None if sweeps else self._load(store, [n for n in delete if n in numbers])
            if isinstance(kept, HeronError) or not isinstance(dropped, list):
                for number in delete:
                    store.delete(number)
            if isinstance(kept, HeronError):
                # The files that this checkpoint needs are unknown.
                raise StateError(f"shared files are kept while a checkpoint cannot be read: {kept}")
            if isinstance(dropped, list):
                store.discard(dropped, kept)
            else:
                store.sweep(kept, before)
        self._swept, self.failures = True, 0

    def _load(self, store: CheckpointStore, numbers: Iterable[int]) -> list[checkpoint_pb2.Metadata] | HeronError:
        """Read the metadata of checkpoints; return the first error if one cannot be read."""
        found = []
        for number in numbers:
            metadata = self._cache.get(number)
            if metadata is None:
                try:
                    metadata = store.load_metadata(number)
                except HeronError as error:
                    return error
                self._remember(metadata)
            found.append(metadata)
        return found

    def _remember(self, metadata: checkpoint_pb2.Metadata) -> None:
        self._cache[metadata.checkpoint] = metadata
        while len(self._cache) > CACHED_MAX:
            self._cache.pop(next(iter(self._cache)))

    def _stores(self) -> Stores:
        if self._opened is None:
            self._opened = self._open_stores()
        return self._opened

    def _leave(self) -> None:
        """Switch to another store after a failed write."""
        try:
            self._stores().failed()
        except (HeronError, OSError) as error:
            log.warning("no other checkpoint store can be used: %s", error)

    def close(self) -> None:
        """Cancel queued writes and deletions; a running write or deletion is completed."""
        self._writer.shutdown(wait=False, cancel_futures=True)
        self._cleaner.shutdown(wait=False, cancel_futures=True)


def _reason(error: HeronError | OSError) -> str:
    return str(error) or type(error).__name__
