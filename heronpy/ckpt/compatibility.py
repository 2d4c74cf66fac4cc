"""Decides whether a checkpoint can be restored into a topology, before anything starts or stops. Pure.

A checkpoint fits if every component with state in the checkpoint still exists, the number of key groups is the same,
and a component whose state belongs to single tasks (a plain State, or tuples in flight) has the same number
of tasks. A component that is not in the checkpoint starts empty.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from heronpy.common.units import counted
from heronpy.proto import checkpoint_pb2


class ComponentState(Struct):
    """The state of one component in a checkpoint."""

    tasks: int = 0
    plain: bool = False
    keyed: list[str] = []
    keys: int = 0
    channel_tuples: int = 0
    total_bytes: int = 0
    uploaded_bytes: int = 0

    @property
    def empty(self) -> bool:
        """Whether the component can be dropped without losing state."""
        return not (self.plain or self.keyed or self.channel_tuples)


def component_states(metadata: checkpoint_pb2.Metadata) -> dict[str, ComponentState]:
    """Return the components of a checkpoint, in the order of their first task."""
    found: dict[str, ComponentState] = {}
    for task in metadata.tasks:
        state = found.setdefault(task.component, ComponentState())
        state.tasks += 1
        state.plain |= task.stateful
        state.channel_tuples += task.channel_tuples
        state.total_bytes += task.total_bytes
        state.uploaded_bytes += task.uploaded_bytes
        for keyed in task.keyed:
            state.keys += keyed.keys
            if keyed.name not in state.keyed:
                state.keyed.append(keyed.name)
    return found


def problems(
    metadata: checkpoint_pb2.Metadata,
    parallelism: Mapping[str, int],
    key_groups: int,
    allow_dropped: bool = False,
) -> list[str]:
    """Return the reasons, one sentence each, why the checkpoint does not fit a topology with this parallelism."""
    found = []
    number = metadata.checkpoint
    states = component_states(metadata)
    for component, state in states.items():
        if state.empty:
            continue
        tasks = parallelism.get(component)
        if tasks is None:
            if not allow_dropped:
                found.append(
                    f"checkpoint {number} has state of component '{component}', which the topology does not contain;"
                    " keep the component's name, or drop its state with --allow-dropped-state"
                )
            continue
        before = metadata.parallelism.get(component, state.tasks)
        if tasks == before:
            continue
        if state.plain:
            found.append(
                f"component '{component}' has plain State of {counted(before, 'task')} in checkpoint {number} and"
                f" cannot be restored with {tasks}; keep its parallelism at {before}, or use keyed or partitioned state"
            )
        elif state.channel_tuples:
            found.append(
                f"component '{component}' has {counted(state.channel_tuples, 'tuple')} in flight to"
                f" {counted(before, 'task')} in checkpoint {number} and cannot be restored with {tasks};"
                " keep its parallelism, or restore a savepoint"
            )
    kept = [name for name, state in states.items() if state.keyed and name in parallelism]
    if kept and metadata.key_groups != key_groups:
        found.append(
            f"checkpoint {number} divides keyed state into {metadata.key_groups} key groups and the topology into"
            f" {key_groups}; set heron.checkpoint.key_groups to {metadata.key_groups}"
        )
    return found


def at_savepoint(metadata: checkpoint_pb2.Metadata, parallelism: Mapping[str, int]) -> checkpoint_pb2.Metadata:
    """Return the content of a savepoint that a topology with this parallelism would take after restoring this
    checkpoint: the topology's own components, and no tuples in flight.
    """
    found = checkpoint_pb2.Metadata()
    found.CopyFrom(metadata)
    del found.tasks[:]
    found.parallelism.clear()
    found.parallelism.update(parallelism)
    for task in metadata.tasks:
        if task.component in parallelism:
            task_then = found.tasks.add()
            task_then.CopyFrom(task)
            task_then.channel_tuples = 0
    return found


def starting_empty(metadata: checkpoint_pb2.Metadata, parallelism: Mapping[str, int]) -> list[str]:
    """Return the components of the topology that are not in the checkpoint."""
    known = set(metadata.parallelism) | {task.component for task in metadata.tasks}
    return [component for component in parallelism if component not in known]
