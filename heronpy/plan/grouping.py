"""Groupings: the choice of target tasks for a tuple. Pure.

An emitting task has one chooser per (stream, consumer component); `targets(values)` returns task ids. Choosers are
pure: the caller passes random values (the first task of a shuffle). Tasks are always sorted, so that every emitter
numbers them equally and equal keys reach the same task.

Key groups are the unit in which keyed state moves between tasks. Each key belongs to one of G groups and never changes
its group; a component's tasks own consecutive ranges of groups. The grouping of tuples and the placement of state
therefore agree, and a change of parallelism moves complete groups. Invariant: the ranges of a component's tasks
partition 0 .. G-1, and their sizes differ by at most one.
"""

from __future__ import annotations

import operator
from collections.abc import Container, Iterable, Sequence
from typing import Any, Protocol

from heronpy.common.errors import TopologyError
from heronpy.common.hashing import stable_hash, stable_hash_many
from heronpy.common.nearest import did_you_mean
from heronpy.proto import topology_pb2


def key_group_of_hash(hashed: int, key_groups: int) -> int:
    """Return the key group of a key with this stable hash."""
    return hashed % key_groups


def task_index(group: int, parallelism: int, key_groups: int) -> int:
    """Return the index, by ascending task id, of the component's task that owns a key group."""
    return group * parallelism // key_groups


def group_range(index: int, parallelism: int, key_groups: int) -> range:
    """Return the key groups that one task of a component owns; may be empty if there are more tasks than groups."""
    first = -(-index * key_groups // parallelism)
    end = -(-(index + 1) * key_groups // parallelism)
    return range(first, end)


class Chooser(Protocol):
    """Chooses the target tasks of a tuple."""

    tasks: list[int]

    def targets(self, values: Sequence[Any]) -> list[int]: ...


def _sorted_tasks(tasks: Iterable[int]) -> list[int]:
    result = sorted(set(tasks))
    if not result:
        raise ValueError("a grouping needs at least one target task")
    return result


class Shuffle:
    """Round robin over the tasks that are not full, beginning with the task at index `start` (modulo their number)."""

    __slots__ = ("_next", "open", "tasks")

    def __init__(self, tasks: Iterable[int], start: int = 0) -> None:
        self.tasks = _sorted_tasks(tasks)
        #: The tasks that currently get tuples.
        self.open = self._near(self.tasks)
        self._next = start % len(self.open)

    def _near(self, tasks: list[int]) -> list[int]:
        """Select the tasks that get tuples among `tasks`: the tasks that are not full, or all tasks if all are full."""
        return tasks

    def avoid(self, full: Container[int]) -> None:
        """Rotate among the tasks that are not full, or among all tasks if all are full."""
        self.open = self._near([task for task in self.tasks if task not in full] or self.tasks)
        self._next %= len(self.open)

    def target(self, values: Sequence[Any] = ()) -> int:
        index = self._next
        self._next = index + 1 if index + 1 < len(self.open) else 0
        return self.open[index]

    def targets(self, values: Sequence[Any]) -> list[int]:
        return [self.target()]


class LocalOrShuffle(Shuffle):
    """A shuffle over the tasks in the sender's container, or over all tasks if the local tasks are full.

    Full tasks are avoided.
    """

    __slots__ = ("_local",)

    def __init__(self, tasks: Iterable[int], local_tasks: Iterable[int], start: int = 0) -> None:
        self._local = frozenset(local_tasks)
        super().__init__(tasks, start)

    def _near(self, tasks: list[int]) -> list[int]:
        return [task for task in tasks if task in self._local] or tasks


class Fields:
    """Always sends equal values of the grouping fields to the same task.

    With `key_groups`, a key goes to the task that owns the key's group and therefore its state.
    """

    __slots__ = ("_count", "_owners", "_single", "indices", "tasks")

    def __init__(self, indices: Sequence[int], tasks: Iterable[int], key_groups: int = 0) -> None:
        if not indices:
            raise ValueError("a fields grouping needs at least one field")
        self.indices = tuple(indices)
        self.tasks = _sorted_tasks(tasks)
        count = len(self.tasks)
        # The task for each remainder of the hash, or for each key group; see key_group_of_hash.
        self._owners = [self.tasks[task_index(group, count, key_groups)] for group in range(key_groups)] or self.tasks
        self._count = len(self._owners)
        self._single = self.indices[0] if len(self.indices) == 1 else -1

    def target(self, values: Sequence[Any]) -> int:
        """Return the task for a tuple; `values` are all values of the tuple, not only the grouping fields."""
        if self._single >= 0:
            return self._owners[stable_hash(values[self._single]) % self._count]
        return self._owners[stable_hash_many([values[i] for i in self.indices]) % self._count]

    def of_key(self, key: Sequence[Any]) -> int:
        """Return the task for these values of the grouping fields, in the order of `indices`."""
        return self._owners[stable_hash_many(key) % self._count]

    def targets(self, values: Sequence[Any]) -> list[int]:
        return [self.target(values)]


class All:
    """Sends a tuple to every task."""

    __slots__ = ("tasks",)

    def __init__(self, tasks: Iterable[int]) -> None:
        self.tasks = _sorted_tasks(tasks)

    def targets(self, values: Sequence[Any]) -> list[int]:
        return list(self.tasks)


class Lowest:
    """Sends all tuples to the task with the smallest id."""

    __slots__ = ("tasks",)

    def __init__(self, tasks: Iterable[int]) -> None:
        self.tasks = _sorted_tasks(tasks)

    def targets(self, values: Sequence[Any]) -> list[int]:
        return self.tasks[:1]


class Direct:
    """Sends a tuple to the task that the emit names; an emit without a task is an error."""

    __slots__ = ("_allowed", "tasks")

    def __init__(self, tasks: Iterable[int]) -> None:
        self.tasks = _sorted_tasks(tasks)
        self._allowed = frozenset(self.tasks)

    def target(self, task: int) -> int:
        """Return the named task. Raises TopologyError unless it belongs to the consumer."""
        if task not in self._allowed or isinstance(task, bool):
            raise TopologyError(
                f"task {task!r} does not consume the direct stream; emit to one of {_shown(self.tasks)}"
            )
        return task

    def targets(self, values: Sequence[Any]) -> list[int]:
        raise TopologyError("a direct stream needs a receiver; emit with direct_task=<task id>")


class Custom:
    """Sends a tuple to the tasks that the user's `choose_tasks(values)` returns; they must belong to the consumer."""

    __slots__ = ("_allowed", "_choose", "instance", "tasks")

    def __init__(self, instance: Any, tasks: Iterable[int]) -> None:
        choose = getattr(instance, "choose_tasks", None)
        if not callable(choose):
            raise TopologyError(
                f"the custom grouping {type(instance).__name__} has no choose_tasks(values); "
                "derive it from ICustomGrouping"
            )
        self.instance = instance
        self.tasks = _sorted_tasks(tasks)
        self._allowed = frozenset(self.tasks)
        self._choose = choose

    def targets(self, values: Sequence[Any]) -> list[int]:
        chosen = self._choose(values)
        if not isinstance(chosen, Iterable) or isinstance(chosen, (str, bytes)):
            raise TopologyError(
                f"the custom grouping {type(self.instance).__name__} returned {chosen!r}; "
                "choose_tasks must return a list of task ids"
            )
        return [self._checked(task) for task in chosen]

    def _checked(self, task: Any) -> int:
        try:
            number = None if isinstance(task, bool) else operator.index(task)
        except TypeError:
            number = None
        if number is None or number not in self._allowed:
            raise TopologyError(
                f"the custom grouping {type(self.instance).__name__} chose task {task!r}; "
                f"it must choose among {_shown(self.tasks)}"
            )
        return number


def field_indices(schema: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """Return the positions of the grouping fields in the schema. Raises TopologyError if a field is missing."""
    positions = {name: index for index, name in reversed(list(enumerate(schema)))}
    for name in wanted:
        if name not in positions:
            raise TopologyError(f"there is {missing_field(name, schema)}")
    return [positions[name] for name in wanted]


def grouping_width(inputs: Iterable[Any]) -> int:
    """Return the number of fields that form the keys of a component's InputStreams; 1 if there are none."""
    return max((len(item.grouping_fields.keys) for item in inputs if item.gtype == topology_pb2.FIELDS), default=1)


def missing_field(name: str, schema: Sequence[str]) -> str:
    """Return `no field X (did you mean Y?); the stream has ...` for an error."""
    has = "the stream has " + (", ".join(f"'{field}'" for field in schema) or "no fields")
    return f"no field '{name}'{did_you_mean(name, schema)}; {has}"


def make_chooser(
    input_stream: Any,
    schema: Sequence[str],
    tasks: Iterable[int],
    *,
    start: int = 0,
    local_tasks: Iterable[int] = (),
    custom: Any = None,
    key_groups: int = 0,
) -> Chooser:
    """Create the chooser for one consumer's InputStream; `custom` is the loaded object of a custom grouping.

    `key_groups` is the number of key groups in mode EFFECTIVELY_ONCE, else 0.
    """
    kind = input_stream.gtype
    if kind in (topology_pb2.SHUFFLE, topology_pb2.NONE):
        if input_stream.prefer_local:
            return LocalOrShuffle(tasks, local_tasks, start)
        return Shuffle(tasks, start)
    if kind == topology_pb2.FIELDS:
        wanted = [key.key for key in input_stream.grouping_fields.keys]
        return Fields(field_indices(schema, wanted), tasks, key_groups)
    if kind == topology_pb2.ALL:
        return All(tasks)
    if kind == topology_pb2.LOWEST:
        return Lowest(tasks)
    if kind == topology_pb2.DIRECT:
        return Direct(tasks)
    return Custom(custom, tasks)


def _shown(tasks: Sequence[int]) -> str:
    text = ", ".join(map(str, tasks[:10]))
    return text if len(tasks) <= 10 else f"{text}, ... ({len(tasks)} tasks)"
