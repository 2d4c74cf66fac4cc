"""Chooses the checkpoint store that a topology writes to.

An object store is the only store for its topologies. With several folders, the policy chooses the folder of a new
topology, which keeps this folder while it is writable. The choice is recorded in the claim, a file in the topology's
working folder, so that all of its processes agree, even if they start concurrently. If a store is full or missing, the
process that notices this moves the claim to the next store, and every process follows with its next checkpoint, which
is a full checkpoint. Checkpoints in the old store stay restorable, because locations are absolute. Several hosts do not
share files or locks, so `choose_once` chooses the store at submission, and the submitted record in the state manager
names only that store.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from heronpy.common.errors import ConfigError
from heronpy.common.flock import locked
from heronpy.common.folders import check_root, heron_home, make_folders, write_private_text
from heronpy.common.ids import short_hash
from heronpy.common.setting_types import CheckpointSettings
from heronpy.common.units import parse_bytes
from heronpy.plan.launch import LaunchSpec
from heronpy.storage.checkpoint_files import StoreError
from heronpy.storage.objects.url import Place, Url, place_of
from heronpy.storage.store_limits import StoreLimits

if TYPE_CHECKING:  # code that only checks settings opens no store
    from heronpy.storage.checkpoints import CheckpointStore

#: A store with less free space counts as full for a new topology.
FREE_MIN_BYTES: Final = 16 << 20
_CLAIM: Final = "checkpoint-store"
#: Folder, in the working folder of a topology, in which files wait until they are uploaded.
SPOOL: Final = "spool"
#: Minimum number of checkpoints that an object store keeps: a task that does not know of the newest checkpoint yet
#: builds on the previous checkpoint.
RETAINED_MIN: Final = 2
_FIELDS: Final = frozenset(("folder", "weight", "writers", "rate_bytes"))


class StoreSpec(Struct, frozen=True):
    """One of a cluster's checkpoint stores."""

    name: str
    root: Path
    weight: float
    limits: StoreLimits


def specs_of(settings: CheckpointSettings) -> list[StoreSpec]:
    """Return the stores that are folders in the settings. Raises ConfigError if a store is invalid."""
    if not settings.stores:
        return [_spec("", settings.root or str(heron_home() / "checkpoints"), settings)]
    return [_spec(str(name), given, settings) for name, given in settings.stores.items()]


def object_store(settings: CheckpointSettings) -> Url | None:
    """Return the URL of the object store for all checkpoints; None if checkpoints are in folders."""
    place = place_of(settings.root) if settings.root and not settings.stores else None
    return place if isinstance(place, Url) else None


def _spec(name: str, given: Any, settings: CheckpointSettings) -> StoreSpec:
    fields = dict(given) if isinstance(given, Mapping) else {"folder": given}
    what = f"heron.checkpoint.stores: store {name!r}"
    unknown = sorted(map(str, fields.keys() - _FIELDS))
    if unknown:
        raise ConfigError(f"{what} has {unknown[0]!r}, which is not one of {', '.join(sorted(_FIELDS))}")
    folder = fields.get("folder")
    if not folder or not isinstance(folder, str | os.PathLike):
        raise ConfigError(f"{what} does not name a folder; write its path, or a map with 'folder'")
    place = place_of(str(folder))
    if isinstance(place, Url):
        raise ConfigError(
            f"{what} is {place}, but all stores of this setting must be folders; for a single store, set"
            " heron.checkpoint.root to this URL instead"
        )
    try:
        weight = float(fields.get("weight", 1.0))
        writers = int(fields.get("writers", settings.store_writers))
        rate = float(parse_bytes(fields.get("rate_bytes", settings.store_rate_bytes)))
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{what} has a value that is not a number ({error})") from None
    if not (0 < weight < math.inf) or writers < 0 or rate < 0:
        raise ConfigError(f"{what} needs a weight above 0, and limits that are not negative")
    return StoreSpec(name, place, weight, StoreLimits(place, writers, rate))


def check_stores(settings: CheckpointSettings) -> None:
    """Raise ConfigError if the stores and the replica cannot be combined, or an object store cannot be used."""
    roots: dict[Place, str] = {}
    remote = object_store(settings)
    replica = replica_of(settings)
    if remote is not None:
        if settings.retained < RETAINED_MIN:
            raise ConfigError(
                f"heron.checkpoint.retained is {settings.retained}, but in an object store tasks need the last"
                f" checkpoint while it is being replaced; set it to {RETAINED_MIN} or more"
            )
        roots[remote] = str(remote)
    for spec in specs_of(settings) if remote is None else []:
        if spec.root in roots:
            raise ConfigError(
                f"heron.checkpoint.stores: {spec.name!r} and {roots[spec.root]!r} are the same folder {spec.root};"
                " give each store its own folder"
            )
        check_root(spec.root, f"checkpoint store {spec.name!r}".replace(" ''", ""), sticky=True)
        roots[spec.root] = spec.name
    if replica in roots:
        raise ConfigError(f"heron.checkpoint.replica is the store {replica} itself; give another folder")
    for place, what in ((remote, "checkpoint store"), (replica, "the replica")):
        if isinstance(place, Url):
            from heronpy.storage.objects.opening import check_objects, open_objects

            check_objects(open_objects(place), what)


def store_roots(settings: CheckpointSettings) -> list[Place]:
    """Return the paths or the URL of all stores; a store has one folder per topology instance."""
    remote = object_store(settings)
    return [remote] if remote is not None else [spec.root for spec in specs_of(settings)]


def replica_of(settings: CheckpointSettings) -> Place | None:
    """Return the second store, to which complete checkpoints are copied; None if it is not set."""
    return place_of(settings.replica) if settings.replica else None


def choose_once(topology_id: str, settings: CheckpointSettings) -> StoreSpec | None:
    """Choose the store for all hosts of a new topology by policy; None if there is only one store.

    Raises StoreError if no store is writable.
    """
    if len(settings.stores) < 2:
        return None
    specs = specs_of(settings)
    for root in _preferred(topology_id, specs, settings.store_policy):
        if _takes_files(root):
            return next(spec for spec in specs if spec.root == root)
    raise StoreError(
        f"no checkpoint store is writable ({', '.join(str(spec.root) for spec in specs)}); free space there, or set"
        " heron.checkpoint.root to another folder"
    )


def limits_of(place: Place, writers: int, bytes_per_s: float) -> StoreLimits | None:
    """Return the limits for this host's writes to a store. The limits of an object store are kept in HERON_HOME."""
    if not isinstance(place, Url):
        return StoreLimits(place, writers, bytes_per_s)
    if not writers and not bytes_per_s:
        return None
    return StoreLimits(heron_home() / "store-limits" / short_hash(str(place)), writers, bytes_per_s)


def open_replica(topology_id: str, settings: CheckpointSettings) -> CheckpointStore:
    """Open a topology's replica, to which complete checkpoints are copied. Its limits are separate from the store's.

    Raises ConfigError if no replica is set.
    """
    place = replica_of(settings)
    if place is None:
        raise ConfigError("heron.checkpoint.replica is not set; give the folder or URL of the second store")
    from heronpy.storage.locations import open_store

    limits = limits_of(place, 0, float(settings.replica_rate_bytes))
    return open_store(place / topology_id, settings.fsync, limits, timeout_s=settings.timeout_s)


def open_stores(launch: LaunchSpec, settings: CheckpointSettings, task_id: int | None = None) -> Stores:
    """Open the checkpoint stores of a topology for one process; a task passes its id, for its spool."""
    remote = object_store(settings)
    if remote is None:
        return StoreChoice(launch, settings)
    from heronpy.storage.locations import open_store
    from heronpy.storage.spool import Spool

    spool = None
    if task_id is not None:
        spool = Spool(Path(launch.working_dir) / SPOOL / f"task-{task_id}", settings.spool_bytes_max)
    limits = limits_of(remote, settings.store_writers, float(settings.store_rate_bytes))
    place = remote / launch.topology_id
    return Stores(open_store(place, settings.fsync, limits, timeout_s=settings.timeout_s, spool=spool))


class Stores:
    """The checkpoint store of a process that has only one store."""

    def __init__(self, store: CheckpointStore) -> None:
        self._store = store

    @property
    def store(self) -> CheckpointStore:
        """The current store for writes."""
        return self._store

    def homes(self) -> Sequence[CheckpointStore]:
        """Return every store that has files of the topology."""
        return [self.store]

    def failed(self) -> None:
        """Called after a failed write to the store."""


class StoreChoice(Stores):
    """The store of one topology in one of its processes, if stores are folders."""

    def __init__(self, launch: LaunchSpec, settings: CheckpointSettings) -> None:
        self._launch = launch
        self._settings = settings
        self._specs = specs_of(settings)
        self._claim = Path(launch.working_dir) / _CLAIM
        self._go(self._choose())

    @property
    def store(self) -> CheckpointStore:
        """The current store for writes; a different object after a process of the topology has changed the claim."""
        if len(self._specs) > 1:
            root = _claimed(self._claim, self._launch.topology_id)
            if root is not None and root != self._root:
                self._go(root)
        return self._store

    def homes(self) -> list[CheckpointStore]:
        """Return the stores that have files of the topology, the current store first."""
        present = self.store
        others = [self._at(spec.root) for spec in self._specs if spec.root != self._root]
        return [present, *(store for store in others if store.exists())]

    def failed(self) -> None:
        """After a failed write, switch to another store if this store is full or missing."""
        if len(self._specs) > 1 and self.store and not _takes_files(self._root):
            self._go(self._choose())

    def _go(self, root: Path) -> None:
        self._root, self._store = root, self._at(root)

    def _at(self, root: Path) -> CheckpointStore:
        limits = next((spec.limits for spec in self._specs if spec.root == root), None)
        from heronpy.storage.locations import open_store

        return open_store(root / self._launch.topology_id, self._settings.fsync, limits)

    def _choose(self) -> Path:
        launch = self._launch
        claimed = _claimed(self._claim, launch.topology_id)
        homes = [spec.root for spec in self._specs if (spec.root / launch.topology_id).is_dir()]
        stays = list(dict.fromkeys([*([claimed] if claimed else []), *homes]))
        preferred = _preferred(launch.topology_id, self._specs, self._settings.store_policy)
        order = dict.fromkeys([*stays, *preferred])
        # A topology with checkpoints continues without new ones if no store is writable.
        found = next((root for root in order if _takes_files(root)), None) or next(iter(stays), None)
        if found is None:
            raise StoreError(
                f"no checkpoint store of topology {launch.topology} can be written "
                f"({', '.join(str(spec.root) for spec in self._specs)}); free space there, or set "
                "heron.checkpoint.root to another folder"
            )
        return found if found == claimed else _agree(self._claim, claimed, found, launch)


def _preferred(topology_id: str, specs: list[StoreSpec], policy: str) -> list[Path]:
    """Return the folders of all stores, the most suitable folder for the topology first."""
    if policy == "most_free":
        return [spec.root for spec in sorted(specs, key=lambda spec: (-free_bytes(spec.root), spec.name))]
    if policy == "least_used":
        return [spec.root for spec in sorted(specs, key=lambda spec: (_used(spec), spec.name))]
    return by_hash(topology_id, specs)


def by_hash(topology_id: str, specs: list[StoreSpec]) -> list[Path]:
    """Sort stores by weighted rendezvous hashing: if a store is lost, only its topologies move. Pure."""

    def score(spec: StoreSpec) -> float:
        digest = hashlib.sha256(f"{spec.name}\0{topology_id}".encode()).digest()
        part = (int.from_bytes(digest[:7], "big") + 1) / (1 << 56)
        return -math.log(part) / spec.weight if part < 1 else 0.0

    return [spec.root for spec in sorted(specs, key=lambda spec: (score(spec), spec.name))]


def _used(spec: StoreSpec) -> float:
    """Return the number of topology instances in a store, divided by its weight; infinite for an unreachable store."""
    try:
        make_folders(spec.root)
        with os.scandir(spec.root) as entries:
            return sum(entry.is_dir() and not entry.name.startswith(".") for entry in entries) / spec.weight
    except OSError:
        return math.inf


def free_bytes(root: Path) -> int:
    """Return the free bytes of a folder's file system; 0 if the folder is unreachable."""
    try:
        make_folders(root)
        status = os.statvfs(root)
    except OSError:
        return 0
    return status.f_bavail * status.f_frsize


def _takes_files(root: Path) -> bool:
    if free_bytes(root) < FREE_MIN_BYTES:
        return False
    probe = root / f".probe-{os.urandom(8).hex()}"
    try:
        os.close(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        probe.unlink()
    except OSError:
        return False
    return True


def _claimed(claim: Path, topology_id: str) -> Path | None:
    """Return the root that a process of this topology instance has chosen, or None."""
    try:
        root, _, owner = claim.read_text(encoding="utf-8").rpartition("\n")
    except (OSError, UnicodeDecodeError):
        return None
    return Path(root) if owner == topology_id and root else None


def _agree(claim: Path, replaced: Path | None, root: Path, launch: LaunchSpec) -> Path:
    """Return the root that the first process has chosen, so that all processes agree."""
    make_folders(claim.parent)
    with locked(claim.with_name(f".{_CLAIM}.lock")):
        current = _claimed(claim, launch.topology_id)
        if current is not None and current != replaced:
            return current
        # Create the folder now, so that the policy least_used counts this topology.
        make_folders(root / launch.topology_id)
        temporary = claim.with_name(f".{_CLAIM}.tmp")
        write_private_text(temporary, f"{root}\n{launch.topology_id}")
        os.replace(temporary, claim)
    return root
