"""The tasks of a component, with state in a real store, driven as in a running topology."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from heronpy.ckpt.snapshot import Capture, TaskState
from heronpy.common.setting_types import CheckpointSettings
from heronpy.plan.launch import LaunchSpec
from heronpy.proto import checkpoint_pb2
from heronpy.storage.checkpoints import CheckpointStore
from heronpy.storage.stores import Stores
from tests.support.launch import launch_spec

COMPONENT = "count"
NAME = "counts"


def launch_of(working_dir: Path, topology_id: str = "wordy1", **settings: Any) -> LaunchSpec:
    """Return the launch file of a topology with these checkpoint settings."""
    working_dir.mkdir(parents=True, exist_ok=True)
    return launch_spec("wordy", topology_id, working_dir, settings={"checkpoint": settings})


class Tasks:
    """All tasks of one component in one restore attempt."""

    def __init__(
        self,
        store: CheckpointStore,
        settings: CheckpointSettings,
        parallelism: int = 1,
        location: str = "",
        attempt: int = 1,
        stores: Stores | None = None,
        **options: Any,
    ) -> None:
        self.stores = stores or Stores(store)
        self.settings = settings
        self.tasks = [
            TaskState(COMPONENT, index, parallelism, settings, self.stores, task_id=index + 1, **options)
            for index in range(parallelism)
        ]
        self.channels = [task.restore(location, attempt) for task in self.tasks]

    @property
    def store(self) -> CheckpointStore:
        return self.stores.store

    def state(self, key: Any, name: str = NAME, ttl_s: float | None = None) -> Any:
        group = self.tasks[0].owner.group_of(key)
        [task] = [task for task in self.tasks if task.owner.owns(group)]
        return task.keyed(name, ttl_s)

    def content(self, name: str = NAME) -> dict[Any, Any]:
        """Return the keys of all tasks, and check that no two tasks hold the same key."""
        found: dict[Any, Any] = {}
        for task in self.tasks:
            mine = dict(task.keyed(name).items())
            assert not mine.keys() & found.keys(), "two tasks hold a key"
            assert all(task.keyed(name).owns(key) for key in mine)
            found.update(mine)
        return found

    def begin(self, number: int) -> Taken:
        return Taken(self, number, [task.capture(number) for task in self.tasks])

    def checkpoint(self, number: int, kind: checkpoint_pb2.Kind = checkpoint_pb2.CHECKPOINT) -> Taken:
        """Take a checkpoint of all tasks and complete it."""
        taken = self.begin(number)
        taken.persist()
        taken.write(kind)
        taken.complete()
        return taken


@dataclass
class Taken:
    """A checkpoint of these tasks."""

    tasks: Tasks
    number: int
    captures: list[Capture]
    metadata: checkpoint_pb2.Metadata = field(default_factory=checkpoint_pb2.Metadata)
    location: str = ""

    def persist(self) -> None:
        for task, capture in zip(self.tasks.tasks, self.captures, strict=True):
            # In the form in which a forked child returns it.
            snapshot = checkpoint_pb2.TaskSnapshot.FromString(capture.persist().SerializeToString())
            self.metadata.tasks.append(snapshot)
            task.persisted(self.number, snapshot)

    def write(self, kind: checkpoint_pb2.Kind = checkpoint_pb2.CHECKPOINT) -> None:
        store = self.tasks.store
        self.metadata.MergeFrom(
            checkpoint_pb2.Metadata(
                version=1,
                checkpoint=self.number,
                kind=kind,
                topology="wordy",
                topology_id=store.folder.name,
                key_groups=self.tasks.settings.key_groups,
                parallelism={COMPONENT: len(self.tasks.tasks)},
            )
        )
        self.location = store.write_metadata(self.metadata)

    def complete(self) -> None:
        for task in self.tasks.tasks:
            task.completed(self.number)

    def abort(self) -> None:
        for task in self.tasks.tasks:
            task.aborted(self.number)

    @property
    def uploaded(self) -> int:
        return sum(task.uploaded_bytes for task in self.metadata.tasks)

    @property
    def total(self) -> int:
        return sum(task.total_bytes for task in self.metadata.tasks)

    @property
    def segments(self) -> int:
        return sum(len(keyed.segments) for task in self.metadata.tasks for keyed in task.keyed)


def fill(tasks: Tasks, keys: Iterable[int], value: Any) -> None:
    for key in keys:
        tasks.state(key)[key] = value
