"""Opens the checkpoint store at a path or URL."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from heronpy.common.errors import ConfigError
from heronpy.proto.checkpoint_pb2 import Metadata
from heronpy.storage.checkpoint_files import StoreError, open_metadata
from heronpy.storage.checkpoint_layout import METADATA, folder_name, number_of
from heronpy.storage.checkpoints import CheckpointStore
from heronpy.storage.objects.opening import COMMAND_S, open_objects
from heronpy.storage.objects.port import ObjectsError
from heronpy.storage.objects.url import Place, Url, place_of

if TYPE_CHECKING:
    from heronpy.storage.spool import Spool
    from heronpy.storage.store_limits import StoreLimits


def open_store(
    place: Place,
    fsync: bool = True,
    limits: StoreLimits | None = None,
    *,
    timeout_s: float = COMMAND_S,
    patience_s: float = 0.0,
    spool: Spool | None = None,
) -> CheckpointStore:
    """Open the checkpoints of the topology instance at a path or URL.

    `timeout_s`: the timeout of requests to an object store; see also `CheckpointStore`.
    """
    objects = open_objects(place, timeout_s) if isinstance(place, Url) else None
    return CheckpointStore(place, fsync, limits, objects=objects, spool=spool, patience_s=patience_s)


def location_of(place: Place, checkpoint: int) -> str:
    """Return the location of a checkpoint, in the form that plans and commands use."""
    return str((place if isinstance(place, Url) else Path(place).absolute()) / folder_name(checkpoint))


def open_location(location: str, fsync: bool = True, patience_s: float = 0.0) -> tuple[CheckpointStore, Metadata]:
    """Return the store of a complete checkpoint, and its metadata.

    `patience_s`: the seconds to wait for an unreachable object store.
    """
    place = place_of(location)
    if place.name == METADATA:
        place = place.parent
    number = number_of(place.name)
    if number is None:
        raise ConfigError(f"{location!r} is not the location of a checkpoint; give the path of a folder chk-<id>")
    store = open_store(place.parent, fsync, patience_s=patience_s)
    return store, store.load_metadata(number)


def check_trusted(location: str) -> None:
    """Raise DamagedFileError if another user on this host may have written a checkpoint; call this before a restore.

    An object store does not record writers: everyone who may write to a prefix is trusted.
    """
    place = place_of(location)
    if isinstance(place, Url):
        return
    with open_metadata(place if place.name == METADATA else place / METADATA):
        return


def same_place(one: Place, other: Place) -> bool:
    """Whether two paths or URLs name the same place; links in paths are resolved."""
    if isinstance(one, Url) or isinstance(other, Url):
        return one == other
    return os.path.realpath(one) == os.path.realpath(other)


def folders_in(root: Place) -> list[Place]:
    """Return the folders of topology instances in a store, by name."""
    if isinstance(root, Url):
        try:
            return [root / name for name in open_objects(root).list(deep=False).folders]
        except ObjectsError as error:
            raise StoreError(f"checkpoint {error}") from None
    if not Path(root).is_dir():
        return []
    return [entry.absolute() for entry in sorted(root.iterdir()) if entry.is_dir()]
