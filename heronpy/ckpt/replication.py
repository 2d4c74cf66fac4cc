"""Copies complete checkpoints of a running topology to a second store, file by file.

A copy transfers the files that the target does not have yet, metadata last, so that an incomplete copy is not a
checkpoint. Files that no checkpoint in the target names are removed during the next copy. A failed copy is not retried
immediately, because the next checkpoint matters more; the next sweep repeats a failed removal.

Invariants: after the first copy, the target always has a complete checkpoint that can be restored; a file that a
checkpoint in the target names is never removed.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait

from msgspec import Struct

from heronpy.common.errors import HeronError
from heronpy.proto.checkpoint_pb2 import SAVEPOINT, CheckpointRecord, FileRef, Metadata
from heronpy.storage.checkpoints import CheckpointStore, DamagedFileError, StoreError, files_of
from heronpy.storage.locations import open_location

log = logging.getLogger("heronpy.ckpt")

#: Number of files copied in parallel.
THREADS = 4
#: Number of metadata files cached in memory.
CACHED_MAX = 64
#: The target is swept after this number of copies, and after a failed removal.
SWEEP_EVERY = 50


class Counts(Struct):
    """Counters of a replicator; each is a metric with the same name."""

    checkpoints_copied: int = 0
    checkpoints_failed: int = 0
    files_copied: int = 0
    bytes_copied: int = 0
    files_removed: int = 0
    removals_failed: int = 0


class Sets(Struct, frozen=True):
    """The files to copy to a store, to delete there, and to leave as they are."""

    copy: list[FileRef]
    delete: list[str]
    skip: list[FileRef]


def compare(new: Metadata, old: Iterable[Metadata], kept: Iterable[Metadata] = ()) -> Sets:
    """Return the file changes for copying `new` to a store with checkpoints `old`, of which it keeps `kept`. Pure."""
    needed = {ref.path: ref for ref in files_of(new)}
    there = {ref.path for item in old for ref in files_of(item)}
    staying = {ref.path for item in kept for ref in files_of(item)}
    return Sets(
        copy=[ref for path, ref in needed.items() if path not in there],
        delete=sorted(there - set(needed) - staying),
        skip=[ref for path, ref in needed.items() if path in there],
    )


class Replicator:
    """Copies recorded checkpoints to `target`. Use it in one thread only."""

    def __init__(self, target: CheckpointStore, threads: int = THREADS) -> None:
        self._target = target
        self._copiers = ThreadPoolExecutor(threads, "checkpoint-copier")
        self._cleaner = ThreadPoolExecutor(1, "replica-cleaner")
        self._tried: set[int] = set()
        self._cache: dict[int, Metadata] = {}
        self._sweep_due = True
        self._cleaning: Future[None] | None = None
        self._given_up = False
        self.counts = Counts()
        self.newest = 0
        """The newest checkpoint that is complete at the target."""

    def follow(self, records: Sequence[CheckpointRecord]) -> int | None:
        """Copy the newest recorded checkpoint, or else a missing savepoint.

        Returns the id of that checkpoint, even if the copy has failed; None if there is nothing to copy. Call this with
        the current records until it returns None. Checkpoints that complete during a copy are skipped if there is a
        newer one. A checkpoint that is damaged at its source is not copied, but an earlier copy of it is kept as long
        as its record, because the copy may be intact.
        """
        sound = [record for record in records if not (record.damaged or record.abandoned)]
        wanted = [record.checkpoint for record in sound if record.kind == SAVEPOINT]
        if sound:
            wanted.append(max(record.checkpoint for record in sound))
        numbers = self._target.checkpoints()
        self._mark(records, set(numbers))
        there = {item.checkpoint for item in self._known(numbers)}
        self.newest = max(there, default=0)
        self._tried &= {record.checkpoint for record in records}
        missing = sorted(set(wanted) - there - self._tried)
        if not missing:
            return None
        number = missing[-1]
        self._tried.add(number)
        if self._cleaning is not None and number < max(there, default=0):
            # Wait for the removal, because it spares only files that are newer than all checkpoints of the target.
            wait((self._cleaning,))
        record = next(record for record in sound if record.checkpoint == number)
        if self._copy(record, there):
            self._clean({record.checkpoint for record in records} | {number}, self._sweep_is_due())
        return number

    def _mark(self, records: Sequence[CheckpointRecord], there: set[int]) -> None:
        """Mark the copies of abandoned checkpoints, so that they are not restored either."""
        for record in records:
            if record.checkpoint in there:
                try:
                    self._target.mark_abandoned(record.checkpoint, record.abandoned)
                except HeronError as error:
                    log.warning("cannot mark checkpoint %d as abandoned in the replica: %s", record.checkpoint, error)

    def retry(self) -> None:
        """Allow one more attempt at each failed copy; called when no newer checkpoint has completed for a while."""
        self._tried.clear()

    def finish(self, records: Sequence[CheckpointRecord]) -> None:
        """Finish all pending removals; no further copies are made."""
        if self._cleaning is not None:
            wait((self._cleaning,))
        self._clean({record.checkpoint for record in records}, sweep=True)

    def _sweep_is_due(self) -> bool:
        return self._sweep_due or self.counts.checkpoints_copied % SWEEP_EVERY == 0

    def _copy(self, record: CheckpointRecord, there: set[int]) -> bool:
        number = record.checkpoint
        try:
            source, metadata = open_location(record.location)
            sets = self.copy(metadata, source, there)
        except (HeronError, OSError) as error:
            self._failed(number, error)
            return False
        log.info("checkpoint %d copied: %d files, %d already in the replica", number, len(sets.copy), len(sets.skip))
        return True

    def copy(self, metadata: Metadata, source: CheckpointStore, there: Iterable[int]) -> Sets:
        """Copy one checkpoint; `there`: ids of the checkpoints in the target. Nothing is removed, and an incomplete
        copy is invisible. Raises HeronError or OSError if the copy fails.
        """
        number = metadata.checkpoint
        sets = compare(metadata, self._known(there))
        self._copy_files(number, sets, source)
        self._target.write_metadata(metadata)
        self._remember(metadata)
        self.newest = max(self.newest, number)
        self.counts.checkpoints_copied += 1
        return sets

    def _copy_files(self, number: int, sets: Sets, source: CheckpointStore) -> None:
        self._target.pin(number, [ref for ref in sets.skip if ref.path.startswith("shared/")])
        # Pinned files stay, but a removal may have deleted some of the files before they were pinned.
        wanted = [*sets.copy, *self._target.missing(sets.skip)]
        copies = [self._copiers.submit(self._copy_file, number, ref, source) for ref in wanted]
        done, rest = wait(copies, return_when=FIRST_EXCEPTION)
        for copy in rest:
            copy.cancel()
        wait(rest)
        error = next((copy.exception() for copy in done if copy.exception() is not None), None)
        if error is not None:
            raise error

    def give_up(self) -> None:
        """Abandon the current copy before its next file. Safe to call in any thread or signal handler."""
        self._given_up = True

    def _copy_file(self, number: int, ref: FileRef, source: CheckpointStore) -> None:
        if self._given_up:
            raise StoreError("the copy was abandoned because the replicator is stopping")
        self._target.copy(number, ref, source)
        self.counts.files_copied += 1
        self.counts.bytes_copied += ref.bytes

    def _failed(self, number: int, error: BaseException) -> None:
        """Count and log a failed copy."""
        self.counts.checkpoints_failed += 1
        log.warning("checkpoint %d was not copied (%s); the next checkpoint will be copied", number, error)

    # ---- the target ---------------------------------------------------------------------------

    def _known(self, numbers: Iterable[int]) -> list[Metadata]:
        found = []
        for number in numbers:
            if number not in self._cache:
                with contextlib.suppress(DamagedFileError):
                    self._remember(self._target.load_metadata(number))
            if number in self._cache:
                found.append(self._cache[number])
        return found

    def _remember(self, metadata: Metadata) -> None:
        self._cache[metadata.checkpoint] = metadata
        while len(self._cache) > CACHED_MAX:
            self._cache.pop(next(iter(self._cache)))

    def _clean(self, keep: set[int], sweep: bool) -> None:
        """Remove unneeded copies in the background. Only one removal runs at a time."""
        if self._cleaning is not None and not self._cleaning.done():
            return
        there = set(self._target.checkpoints())
        kept, dropped = self._known(sorted(there & keep)), self._known(sorted(there - keep))
        if len(kept) < len(there & keep) or not kept:
            return  # an unreadable checkpoint may need any file, and at least one checkpoint must be kept
        self._cleaning = self._cleaner.submit(self._remove, kept, dropped, sweep)

    def _remove(self, kept: list[Metadata], dropped: list[Metadata], sweep: bool) -> None:
        try:
            removed = self._target.sweep(kept) if sweep else self._target.discard(dropped, kept)
            self.counts.files_removed += len(removed)
            if sweep:
                self._sweep_due = False
        except (HeronError, OSError) as error:
            self.counts.removals_failed += 1
            self._sweep_due = True
            log.warning("unneeded files in the replica were not removed (%s); the next sweep will remove them", error)

    def close(self) -> None:
        """Finish the current removal; call this only while no copy is running."""
        self._copiers.shutdown(cancel_futures=True)
        self._cleaner.shutdown()
