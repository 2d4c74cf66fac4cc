"""Lists the checkpoints on disk and checks that they are complete, for users and before a restore.

This module reads only local folders and object stores, so it also covers ended topologies, copies and moved folders. A
checkpoint exists if it has metadata; a checkpoint with unreadable metadata is listed as damaged. No files are changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from msgspec import Struct

from heronpy.ckpt import compatibility
from heronpy.common.errors import HeronError
from heronpy.common.setting_types import CheckpointSettings
from heronpy.plan.packing_plan import tasks_by_component
from heronpy.proto import checkpoint_pb2, plan_pb2
from heronpy.storage.checkpoint_files import files_of
from heronpy.storage.checkpoint_layout import METADATA, number_of
from heronpy.storage.locations import folders_in, location_of, open_store
from heronpy.storage.objects.port import ObjectsError
from heronpy.storage.objects.url import Place, place_of
from heronpy.storage.stores import store_roots

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Found(Struct):
    """A checkpoint on disk."""

    folder: Place
    """The folder; its name is the id of the topology instance that wrote the checkpoint."""
    checkpoint: int
    metadata: checkpoint_pb2.Metadata | None
    damage: list[str] = []
    """The damage, one sentence per file."""
    abandoned: bool = False
    """Whether the topology was later restored from an older checkpoint."""

    @property
    def location(self) -> str:
        return location_of(self.folder, self.checkpoint)

    @property
    def withdrawn(self) -> bool:
        """Whether sinks may have withdrawn this checkpoint's output, so that a restore would lose tuples."""
        tasks = self.metadata.tasks if self.metadata is not None else ()
        return self.abandoned and any(task.publishes for task in tasks)

    @property
    def kind(self) -> str:
        if self.metadata is None:
            return "unknown"
        return "savepoint" if self.metadata.kind == checkpoint_pb2.SAVEPOINT else "checkpoint"

    @property
    def total_bytes(self) -> int:
        return sum(task.total_bytes for task in self.metadata.tasks) if self.metadata else 0

    @property
    def uploaded_bytes(self) -> int:
        return sum(task.uploaded_bytes for task in self.metadata.tasks) if self.metadata else 0

    @property
    def name(self) -> str:
        """The checkpoint's name, for messages."""
        return f"{'savepoint' if self.kind == 'savepoint' else 'checkpoint'} {self.checkpoint} in {self.folder}"


def folders_of(roots: Iterable[Place], topology: str) -> Iterator[Place]:
    """Return the folders of all instances of a topology in the stores, including ended instances."""
    # An instance's id begins with the topology's name; only its metadata is certain.
    return (folder for root in roots for folder in folders_in(root) if folder.name.startswith(topology))


def of_topology(roots: Iterable[Place], topology: str) -> list[Found]:
    """Return all checkpoints of all instances of a topology: the newest instance first, its newest checkpoint first."""
    instances = []
    for folder in folders_of(roots, topology):
        mine = [item for item in in_folder(folder) if _belongs(item, topology)]
        if mine:
            instances.append(mine)
    # Wall time only orders instances. Within an instance, ids always grow, even if the clock is set back.
    instances.sort(key=_last_taken, reverse=True)
    return [item for mine in instances for item in mine]


def in_folder(folder: Place) -> list[Found]:
    """Return the checkpoints of one topology instance, newest first."""
    return [read(folder, number) for number in reversed(open_store(folder).checkpoints())]


def read(folder: Place, number: int) -> Found:
    """Return one checkpoint; its metadata is None if unreadable."""
    try:
        store = open_store(folder)
        return Found(folder, number, store.load_metadata(number), abandoned=store.is_abandoned(number))
    except ObjectsError:
        raise  # an unreachable store does not mean damage
    except (HeronError, OSError) as error:
        return Found(folder, number, None, [_sentence(error)])


def is_gone(found: Found) -> bool:
    """Whether a checkpoint has been deleted since it was found."""
    return not open_store(found.folder).is_complete(found.checkpoint)


def at_place(place: Place, topology: str = "") -> list[Found]:
    """Return the checkpoints at a path or URL, newest first: a checkpoint's folder or metadata, an instance's folder, a
    store or a replica. In a store or replica, only the instances of `topology` count.
    """
    if place.name == METADATA:
        place = place.parent
    number = number_of(place.name)
    if number is not None and open_store(place.parent).is_complete(number):
        return [read(place.parent, number)]
    if any(number_of(folder.name) is not None for folder in folders_in(place)):
        return in_folder(place)
    return of_topology([place], topology) if topology else []


def in_store(place: Place) -> list[Found]:
    """Return the checkpoints of every topology in a store or replica."""
    return [found for folder in folders_in(place) for found in in_folder(folder)]


def missing_files(found: Found) -> list[str]:
    """Return one sentence per file that is missing or has a different size; cheap, and sufficient before a restore."""
    if found.metadata is None:
        return list(found.damage)
    return open_store(found.folder).problems(found.metadata)


def misfits(location: str, packing: plan_pb2.PackingPlan, key_groups: int) -> list[str]:
    """Return the reasons why a checkpoint cannot be restored into a topology with this packing."""
    wrong = []
    parallelism = {component: len(tasks) for component, tasks in tasks_by_component(packing).items()}
    for found in at_place(place_of(location)):
        damage = missing_files(found)
        if damage:
            wrong.append(f"{found.name} is damaged: {damage[0]}; restore another checkpoint")
        elif found.metadata is not None:
            wrong += compatibility.problems(found.metadata, parallelism, key_groups)
    return wrong


def verify(found: Found) -> list[str]:
    """Return one sentence per missing or changed file. Reads every byte and compares hashes."""
    if found.metadata is None:
        return list(found.damage)
    store, wrong = open_store(found.folder), []
    for ref in files_of(found.metadata):
        try:
            store.read(ref)
        except ObjectsError:
            raise
        except (HeronError, OSError) as error:
            wrong.append(_sentence(error))
    return wrong


def roots_of(settings: Iterable[CheckpointSettings]) -> list[Place]:
    """Return the distinct checkpoint stores that these settings name."""
    return list(dict.fromkeys(root for item in settings for root in store_roots(item)))


def _belongs(found: Found, topology: str) -> bool:
    if found.metadata is not None:
        return found.metadata.topology == topology
    return bool(_UUID.fullmatch(found.folder.name[len(topology) :]))


def _last_taken(mine: list[Found]) -> float:
    return max((item.metadata.taken_at for item in mine if item.metadata), default=0.0)


def _sentence(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename or 'a file'} cannot be read ({error.strerror})"
    return str(error)
