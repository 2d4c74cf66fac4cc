"""A slot's map and specifications on its own disk, for times when scheduler and state manager are unavailable.

The files belong to one epoch: a slot that acts in another epoch ignores them. Invariant: when a slot acknowledges
a map, this map is on its disk and no older map is, so a slot that restarts after a crash never starts executors that
were meanwhile assigned to another slot.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct

from heronpy.common.errors import ConfigError, DamagedStateError
from heronpy.common.folders import read_own, replace_file
from heronpy.net.private import make_private
from heronpy.pools.shards import BUCKETS, Map, Spec, pack, unpack

log = logging.getLogger("heronpy.executor")

MAP: Final = "map"
#: Size limit of a file; far larger than any node of a state manager.
_MAX_BYTES: Final = 256 << 20


class _Kept(Struct, frozen=True):
    epoch: int
    map: Map


class SlotDisk:
    """The folder of a slot in one epoch; all calls block."""

    def __init__(self, folder: Path, epoch: int) -> None:
        self._folder, self._epoch = folder, epoch
        self._number = 0
        #: Buckets that could not be written yet.
        self._owed: dict[int, tuple[Spec, ...]] = {}

    def read(self) -> tuple[Map, dict[int, tuple[Spec, ...]]] | None:
        """This epoch's last map and specifications; None if missing, damaged, or possibly written by another user."""
        try:
            kept = unpack(_Kept, read_own(self._folder / MAP, _MAX_BYTES), "the map")
            if kept.epoch != self._epoch:
                return None
            specs = {
                bucket: unpack(tuple[Spec, ...], read_own(self._bucket(bucket), _MAX_BYTES), f"bucket {bucket}")
                for bucket in range(BUCKETS)
                if kept.map.buckets[bucket]
            }
            self._number = kept.map.number
            return kept.map, specs
        except FileNotFoundError:
            return None
        except (OSError, ConfigError, DamagedStateError) as error:
            log.warning("the saved state in %s cannot be read: %s", self._folder, error)
            return None

    def keep(self, found: Map, buckets: Mapping[int, tuple[Spec, ...]]) -> None:
        """Write the buckets that have changed and then the map; if the disk is full, keep no map.

        Raises OSError if an older map cannot be removed.
        """
        if found.number <= self._number:
            return
        self._owed |= buckets
        try:
            make_private(self._folder)
            for bucket in list(self._owed):
                replace_file(self._bucket(bucket), pack(self._owed[bucket]))
                del self._owed[bucket]
            replace_file(self._folder / MAP, pack(_Kept(self._epoch, found)))
        except (OSError, ConfigError) as error:
            log.warning("map %d could not be saved for a restart of the slot: %s", found.number, error)
            (self._folder / MAP).unlink(missing_ok=True)
        self._number = found.number

    def _bucket(self, bucket: int) -> Path:
        return self._folder / f"specs-{bucket}"
